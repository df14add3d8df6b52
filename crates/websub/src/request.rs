//! What subscribers and publishers ask of a hub (sections 5.1 and 8 of the recommendation).

use std::sync::Arc;

use crate::form::Form;
use crate::signature::Secret;
use crate::url::Url;

/// The most bytes of the body of a request for a subscription.
pub const REQUEST_MAX: u64 = 16 * 1024;
/// The most topics of one ping.
const TOPICS_MAX: usize = 20;

/// What is asked of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubRequest {
    /// Deliver this topic to this callback.
    Subscribe(Subscribe),
    /// Deliver it no more.
    Unsubscribe {
        /// The topic.
        topic: Arc<str>,
        /// The callback.
        callback: Url,
    },
    /// These topics have changed.
    Publish(Vec<String>),
}

/// A request for a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// The topic, as it was written.
    pub topic: Arc<str>,
    /// Where to deliver it.
    pub callback: Url,
    /// For how many seconds, if the subscriber says so.
    pub lease: Option<u64>,
    /// What deliveries are signed with.
    pub secret: Option<Secret>,
}

/// Why a request is refused: a status and one sentence for the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the reply.
    pub status: u16,
    /// The sentence.
    pub reason: String,
    /// After how many seconds it makes sense to ask again.
    pub retry_after: Option<u64>,
}

impl Refusal {
    /// A request that is wrong.
    pub(crate) fn bad(reason: impl Into<String>) -> Self {
        Self {
            status: 400,
            reason: reason.into(),
            retry_after: None,
        }
    }

    /// One that is refused for now.
    pub(crate) fn later(status: u16, reason: &str, seconds: u64) -> Self {
        Self {
            status,
            reason: reason.to_owned(),
            retry_after: Some(seconds.max(1)),
        }
    }
}

impl HubRequest {
    /// Reads a request. Parameters that are not known are ignored.
    ///
    /// # Errors
    /// When something is missing, wrong or there twice.
    pub fn read(content_type: Option<&[u8]>, body: &[u8]) -> Result<Self, Refusal> {
        check_type(content_type.unwrap_or_default())?;
        let form = Form::parse(body).map_err(|error| Refusal::bad(error.to_string()))?;
        let one = |name| {
            let value = form.one(name);
            value.map_err(|error| Refusal::bad(error.to_string()))
        };
        let required = |name| {
            let value = one(name)?.filter(|it| !it.is_empty());
            value.ok_or_else(|| Refusal::bad(format!("{name} is missing")))
        };
        match required("hub.mode")? {
            "publish" => publish(&form),
            mode @ ("subscribe" | "unsubscribe") => {
                let callback = required("hub.callback")?;
                let callback = Url::parse(callback).map_err(|error| {
                    Refusal::bad(format!("hub.callback cannot be called: {error}"))
                })?;
                let topic = required("hub.topic")?;
                let topic = Url::parse(topic)
                    .map_err(|error| Refusal::bad(format!("hub.topic is no topic: {error}")))?;
                let topic = Arc::clone(topic.text());
                if mode == "unsubscribe" {
                    return Ok(Self::Unsubscribe { topic, callback });
                }
                Ok(Self::Subscribe(Subscribe {
                    topic,
                    callback,
                    lease: lease(one("hub.lease_seconds")?)?,
                    secret: secret(one("hub.secret")?)?,
                }))
            }
            _ => Err(Refusal::bad(
                "hub.mode is subscribe, unsubscribe or publish",
            )),
        }
    }
}

fn check_type(content_type: &[u8]) -> Result<(), Refusal> {
    let mut parts = content_type.split(|byte| *byte == b';');
    let essence = parts.next().unwrap_or_default().trim_ascii();
    let is_form = essence.eq_ignore_ascii_case(b"application/x-www-form-urlencoded");
    let is_utf8 = |part: &[u8]| {
        let part = part.to_ascii_lowercase();
        let charset = part.trim_ascii().strip_prefix(b"charset=");
        charset.is_none_or(|it| matches!(it, b"utf-8" | b"\"utf-8\""))
    };
    match is_form && parts.all(is_utf8) {
        true => Ok(()),
        false => Err(Refusal {
            status: 415,
            ..Refusal::bad("a request is application/x-www-form-urlencoded in UTF-8")
        }),
    }
}

/// A lease; 0 is no wish, since no subscription is for ever.
fn lease(text: Option<&str>) -> Result<Option<u64>, Refusal> {
    let Some(text) = text.filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refusal::bad("hub.lease_seconds is a number of seconds"));
    }
    // So many digits are more than any lease.
    let seconds = text.parse().unwrap_or(u64::MAX);
    Ok(Some(seconds).filter(|it| *it > 0))
}

fn secret(text: Option<&str>) -> Result<Option<Secret>, Refusal> {
    let Some(text) = text.filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    match Secret::new(text) {
        Some(secret) => Ok(Some(secret)),
        None => Err(Refusal::bad("hub.secret has less than 200 bytes")),
    }
}

fn publish(form: &Form) -> Result<HubRequest, Refusal> {
    let mut topics: Vec<String> = Vec::new();
    for topic in form.all("hub.url").chain(form.all("hub.topic")) {
        if !topic.is_empty() && !topics.iter().any(|it| it == topic) {
            topics.push(topic.to_owned());
        }
    }
    match topics.len() {
        0 => Err(Refusal::bad("hub.url is missing")),
        1..=TOPICS_MAX => Ok(HubRequest::Publish(topics)),
        _ => Err(Refusal::bad(format!(
            "a ping names at most {TOPICS_MAX} topics"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Option<&[u8]> = Some(b"application/x-www-form-urlencoded");

    fn read(body: &str) -> Result<HubRequest, Refusal> {
        HubRequest::read(FORM, body.as_bytes())
    }

    fn reason(body: &str) -> String {
        let refusal = read(body).unwrap_err();
        assert_eq!(refusal.status, 400, "{body}");
        refusal.reason
    }

    const PLAIN: &str =
        "hub.mode=subscribe&hub.callback=http%3A%2F%2Fa%2Fcb%3Fx%3D%2526&hub.topic=http://t/x%2Dy";

    #[test]
    fn a_subscription_is_read() {
        let HubRequest::Subscribe(plain) = read(PLAIN).unwrap() else {
            panic!("no subscription");
        };
        // What is encoded without need is decoded, once.
        assert_eq!(plain.callback.as_str(), "http://a/cb?x=%26");
        assert_eq!(&*plain.topic, "http://t/x-y");
        assert_eq!((plain.lease, plain.secret), (None, None));
        let more = format!("{PLAIN}&hub.lease_seconds=60&hub.secret=s%C3%A4&hub.foo=1&foo=1&foo=2");
        let HubRequest::Subscribe(more) = read(&more).unwrap() else {
            panic!("no subscription");
        };
        assert_eq!((more.lease, more.callback), (Some(60), plain.callback));
        assert_eq!(more.secret, Secret::new("s\u{e4}"));
    }

    #[test]
    fn no_lease_is_for_ever() {
        for (text, lease) in [
            ("", None),
            ("0", None),
            ("00", None),
            ("7", Some(7)),
            ("99999999999999999999999", Some(u64::MAX)),
        ] {
            let read = read(&format!("{PLAIN}&hub.lease_seconds={text}"));
            let Ok(HubRequest::Subscribe(read)) = read else {
                panic!("{text}: {read:?}");
            };
            assert_eq!(read.lease, lease, "{text}");
        }
        for text in ["-1", "1.5", "ten", "1e3", "%201", "+1"] {
            let reason = reason(&format!("{PLAIN}&hub.lease_seconds={text}"));
            assert_eq!(reason, "hub.lease_seconds is a number of seconds");
        }
    }

    #[test]
    fn a_request_that_is_wrong_is_refused_with_a_reason() {
        let [mode, callback, topic] = ["mode", "callback", "topic"].map(|left_out| {
            let parts = PLAIN.split('&');
            let parts = parts.filter(|it| !it.starts_with(&format!("hub.{left_out}=")));
            reason(&parts.collect::<Vec<_>>().join("&"))
        });
        assert_eq!(mode, "hub.mode is missing");
        assert_eq!(callback, "hub.callback is missing");
        assert_eq!(topic, "hub.topic is missing");
        let twice = reason(&format!("{PLAIN}&hub.callback=http://b/"));
        assert_eq!(twice, "hub.callback is there twice");
        for (parameter, expected) in [
            ("hub.callback=ftp://a/", "hub.callback cannot be called"),
            (
                "hub.callback=http://u:p@a/",
                "it has a user name or password",
            ),
            (
                "hub.callback=http://a/%23f",
                "hub.callback cannot be called: it has a fragment",
            ),
            (
                "hub.topic=x",
                "hub.topic is no topic: it is no absolute URL",
            ),
            (
                "hub.mode=resubscribe",
                "hub.mode is subscribe, unsubscribe or publish",
            ),
            ("hub.topic=%", "malformed percent-encoding"),
        ] {
            let name = parameter.split_once('=').unwrap().0;
            let others = PLAIN.split('&').filter(|it| !it.starts_with(name));
            let body = others.chain([parameter]).collect::<Vec<_>>().join("&");
            let reason = reason(&body);
            assert!(reason.contains(expected), "{body}: {reason}");
        }
    }

    #[test]
    fn a_secret_of_200_bytes_is_refused() {
        let with = |length| read(&format!("{PLAIN}&hub.secret={}", "s".repeat(length)));
        assert!(with(199).is_ok() && with(0).is_ok());
        let refusal = with(200).unwrap_err();
        assert_eq!(refusal.reason, "hub.secret has less than 200 bytes");
    }

    #[test]
    fn only_forms_in_utf8_are_read() {
        let status = |content_type: &str| {
            let read = HubRequest::read(Some(content_type.as_bytes()), PLAIN.as_bytes());
            read.map_or_else(|refusal| refusal.status, |_| 202)
        };
        for good in [
            "application/x-www-form-urlencoded",
            "Application/X-WWW-Form-Urlencoded ; charset=UTF-8",
            "application/x-www-form-urlencoded;charset=\"utf-8\"",
        ] {
            assert_eq!(status(good), 202, "{good}");
        }
        for bad in [
            "",
            "text/plain",
            "application/json",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded; charset=iso-8859-1",
        ] {
            assert_eq!(status(bad), 415, "{bad}");
        }
        assert_eq!(HubRequest::read(None, b"").unwrap_err().status, 415);
        let refusal = HubRequest::read(FORM, b"hub.mode=\xff").unwrap_err();
        assert_eq!(refusal.status, 400);
    }

    #[test]
    fn a_ping_names_topics() {
        let ping =
            read("hub.mode=publish&hub.url=http://t/a&hub.url=http://t/b&hub.topic=http://t/a");
        let topics = ["http://t/a", "http://t/b"].map(str::to_owned).to_vec();
        assert_eq!(ping, Ok(HubRequest::Publish(topics)));
        assert_eq!(reason("hub.mode=publish"), "hub.url is missing");
        let many: String = (0..=TOPICS_MAX)
            .map(|it| format!("&hub.url=http://t/{it}"))
            .collect();
        let reason = reason(&format!("hub.mode=publish{many}"));
        assert_eq!(reason, "a ping names at most 20 topics");
    }
}
