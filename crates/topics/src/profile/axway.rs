//! `profile: axway-streams`: paths, media types, event names, ids and errors of Axway Amplify
//! Streams.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use component::edge::RouteEdge;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::trigger::ListenAddress;
use message::{Body, Fault, Reply, Request};
use serde_json::json;

use crate::access::{self, Protocol, Refusal, Right};
use crate::endpoint::{Directory, Endpoint};
use crate::frame;
use crate::topic::{For, Publication};
use crate::view::Mode;

/// Where topics are subscribed to, by name or id.
pub(crate) const SSE: &str = "/streams/subscribers/sse/api/v1/topics/{topic}";
/// Where events are published, by name or id.
pub(crate) const POST: &str = "/streams/publishers/http-post/api/v1/topics/{topic}";

/// What holds for requests for this path, unless the topic is not for everybody: then nothing tells
/// whether it is there.
pub(crate) fn edge(
    directory: &Directory,
    listen: &ListenAddress,
    path: &str,
) -> Option<Arc<RouteEdge>> {
    let named = path.rsplit('/').next()?;
    let endpoint = find(directory, listen, named).filter(|it| !it.access.is_locked())?;
    Some(Arc::clone(&endpoint.settings.edge))
}

/// The topic of this name or id: none when there is none, and when the id is one of a log that is
/// not there any more.
pub(crate) fn find(
    directory: &Directory,
    listen: &ListenAddress,
    named: &str,
) -> Option<Arc<Endpoint>> {
    let has_id = |it: &Endpoint| {
        let name = &**it.topic.name();
        let is_id = |epoch| frame::topic_uuid(name, epoch).eq_ignore_ascii_case(named);
        it.settings.is_axway && it.topic.epochs().into_iter().any(is_id)
    };
    let by_name = directory.find(listen, named, |it| it.settings.is_axway);
    by_name.or_else(|| directory.search(listen, has_id))
}

/// The mode of this name.
pub(crate) fn mode(name: &str) -> Option<Mode> {
    let all = [Mode::Snapshot, Mode::Patch, Mode::Event];
    all.into_iter().find(|mode| mode_name(*mode) == name)
}

/// What a mode is called.
pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Snapshot => "snapshot-only",
        Mode::Patch => "snapshot-patch",
        Mode::Event => "event",
    }
}

/// What is said of a topic that does not exist.
pub(crate) fn missing() -> Fault {
    Fault::invalid("there is no such topic").with_status(404)
}

/// What a path names: a topic, or the id of one.
pub(crate) fn named(request: &Request) -> &str {
    let mut parameters = request.parameters.iter();
    let named = parameters.find(|it| &*it.0 == "topic");
    named.map_or("", |it| it.1.as_str())
}

/// The topic that is here of whose earlier log this is the id.
fn renewed(directory: &Directory, listen: &ListenAddress, named: &str) -> Option<Arc<Endpoint>> {
    let fits = |it: &Endpoint| {
        let is_earlier = |epoch| {
            let own = frame::topic_uuid(it.topic.name(), epoch);
            frame::is_of_same_name(&own, named)
        };
        it.settings.is_axway && it.topic.epoch().is_some_and(is_earlier)
    };
    directory.search(listen, fits)
}

/// The id of a subscription, made at random: each is there as long as its stream, and nothing is
/// known by it but in what is told of failures (UUID of version 4, RFC 9562, section 5.4).
pub(crate) fn subscription_id() -> String {
    let by_chance = || RandomState::new().build_hasher().finish();
    let (high, low) = (by_chance(), by_chance());
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    frame::uuid(high, low)
}

/// What subscribers read of a failure: they go by `code` and `category`.
pub(crate) fn refused(fault: &Fault, now: Duration) -> Reply {
    failed(fault, Some(&subscription_id()), now)
}

/// What subscribers read of a refusal by a door, with what that demands.
pub(crate) fn refused_by(door: &Reply, now: Duration) -> Reply {
    demanding(door, refused(&access::fault_of(door), now))
}

/// A reply with the challenges of a door's.
pub(crate) fn demanding(door: &Reply, mut reply: Reply) -> Reply {
    let lines = door.headers.view();
    let is_challenge = |name: &[u8]| name.eq_ignore_ascii_case(b"WWW-Authenticate");
    for (_, _, value) in lines.iter().filter(|it| is_challenge(it.1)) {
        reply.headers.append("WWW-Authenticate", value);
    }
    reply
}

/// The code of errors that say that there is no such topic.
pub(crate) const NO_TOPIC: u32 = 40404;
/// The code of errors that say that there is no such subscription.
pub(crate) const NO_SUBSCRIPTION: u32 = 40405;

/// What clients read of a failure.
fn failed(fault: &Fault, subscription: Option<&str>, now: Duration) -> Reply {
    failed_as(fault, (NO_TOPIC, subscription), now)
}

/// The same where `missing` is the code of what does not exist.
pub(crate) fn failed_as(
    fault: &Fault,
    (missing, subscription): (u32, Option<&str>),
    now: Duration,
) -> Reply {
    let (code, category) = match fault.status {
        401 => (40401, "subscription"),
        403 => (40403, "subscription"),
        404 | 410 => (missing, "subscription"),
        400..=499 => (40400, "subscription"),
        503 => (50503, "server"),
        _ => (50500, "server"),
    };
    let body = body((code, category), subscription, &fault.detail, now);
    let mut reply = Reply::with_content(fault.status, "application/json", body);
    fault.append_fields(&mut reply.headers);
    reply
}

/// The body of an error: of a subscription, or of something else.
fn body(
    (code, category): (u32, &str),
    subscription: Option<&str>,
    message: &str,
    now: Duration,
) -> Vec<u8> {
    let mut body = json!({
        "datetime": datetime(now),
        "code": code,
        "category": category,
        "message": message,
    });
    if let (Some(id), Some(members)) = (subscription, body.as_object_mut()) {
        members.insert("subscriptionId".to_owned(), id.into());
    }
    body.to_string().into_bytes()
}

/// What an `error` event says of an event that cannot be shown.
pub(crate) fn event_error(subscription: &str, reason: &str) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let what = (40400, "subscription");
    body(what, Some(subscription), reason, now.unwrap_or_default())
}

/// The data of the `error` event before a stream ends whose credential has expired or has been
/// revoked: `message` says which.
pub(crate) fn end_error(subscription: &str, message: &str) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let what = (40401, "subscription");
    body(what, Some(subscription), message, now.unwrap_or_default())
}

/// A time as RFC 3339, section 5.6 writes it.
fn datetime(now: Duration) -> String {
    let (days, seconds) = (now.as_secs() / 86_400, now.as_secs() % 86_400);
    // Howard Hinnant's algorithm: days since 0000-03-01, in eras of 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Takes events for topics.
pub(crate) struct Publisher {
    directory: Arc<Directory>,
    listen: ListenAddress,
}

impl Publisher {
    /// A publisher for the topics of a listener.
    pub fn new(directory: Arc<Directory>, listen: ListenAddress) -> Self {
        Self { directory, listen }
    }

    async fn publish(&self, request: Request, services: &dyn Services) -> Result<Reply, Fault> {
        let (directory, listen) = (&*self.directory, &self.listen);
        let found = find(directory, listen, named(&request));
        let is_here = found.is_some();
        let found = found.or_else(|| renewed(directory, listen, named(&request)));
        let locks = [Right::Publish, Right::Subscribe];
        let locks = locks.map(|it| directory.locks(listen, Protocol::Axway, it));
        let at = (&request, services);
        let endpoint = match access::admit_publisher(found, locks.each_ref(), at).await {
            Ok((endpoint, _)) => endpoint,
            Err(Refusal::Reply(reply)) => {
                let answer = failed(&access::fault_of(&reply), None, services.wall());
                return Ok(demanding(&reply, answer));
            }
            Err(Refusal::Missing(_)) => return Err(missing()),
        };
        if !is_here {
            // A publisher with the id of a topic that has been made anew is not to try it again.
            return Err(Fault::invalid("the topic of this id is gone").with_status(410));
        }
        let media_type = request.headers.get("Content-Type").unwrap_or_default();
        let essence = media_type
            .split(|it| *it == b';')
            .next()
            .unwrap_or_default();
        if !essence
            .trim_ascii()
            .eq_ignore_ascii_case(b"application/json")
        {
            let detail = "an event is `application/json`";
            return Err(Fault::invalid(detail).with_status(415));
        }
        let body = match request.body {
            Body::Bytes(bytes) => bytes,
            Body::Empty | Body::Unread => Bytes::new(),
        };
        endpoint
            .topic
            .publish_for(
                For::client(request.peer, services),
                Publication { body, key: None },
            )
            .await?;
        Ok(Reply::new(202))
    }
}

impl Handler for Publisher {
    fn reads_body(&self) -> bool {
        true
    }

    fn shares(&self) -> Option<&'static str> {
        Some("publishers of axway-streams")
    }

    fn edge(&self, path: &str, _: Option<&str>) -> Option<Arc<RouteEdge>> {
        edge(&self.directory, &self.listen, path)
    }

    fn is_locked(&self) -> bool {
        self.directory.has_locks(&self.listen, Protocol::Axway)
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        self.directory.secret_parameters(&self.listen).to_vec()
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            let reply = match self.publish(request, services).await {
                Ok(reply) => reply,
                Err(fault) => failed(&fault, None, services.wall()),
            };
            Ok(Outcome::Reply(reply))
        })
    }
}

#[cfg(test)]
mod tests {
    use message::{Kind, Of, Origin, RateLimit};

    use super::*;

    #[test]
    fn a_limit_is_told_in_the_fields_that_other_interfaces_have() {
        let mut fault = Fault::new(Kind::Limited, Origin::Client, "too many requests");
        fault.of = Of::Limit(Box::new(RateLimit {
            policy: "\"gold\";q=100;w=60".to_owned(),
            left: "\"gold\";r=0;t=7".to_owned(),
            exceeded: Some("gold".to_owned()),
        }));
        let fault = fault.with_retry_after(Duration::from_millis(6100));
        for reply in [
            refused(&fault, Duration::ZERO),
            failed(&fault, None, Duration::ZERO),
        ] {
            assert_eq!(reply.status, 429);
            let field = |name| reply.headers.get(name).unwrap_or_default().to_vec();
            assert_eq!(field("Retry-After"), b"7");
            assert_eq!(field("RateLimit-Policy"), b"\"gold\";q=100;w=60");
            assert_eq!(field("RateLimit"), b"\"gold\";r=0;t=7");
        }
    }

    #[test]
    fn ids_of_subscriptions_are_uuids_and_none_comes_twice() {
        let ids: std::collections::HashSet<String> = (0..1000).map(|_| subscription_id()).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            let parts: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
            assert!(
                id[14..].starts_with('4') && "89ab".contains(&id[19..20]),
                "{id}"
            );
        }
    }

    #[test]
    fn times_are_written_as_calendars_have_them() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_795_285_501, "2026-11-21T18:25:01Z"),
        ] {
            assert_eq!(datetime(Duration::from_secs(seconds)), expected);
        }
    }
}
