//! Challenges and tests: requests to a subscription's URL that are no events.

use std::time::Duration;

use access::webhook_signer;
use bytes::Bytes;
use component::handler::{Call, Services};
use message::{Fault, Headers, Kind, Origin, Reply};
use serde_json::{Value, json};

use super::Managed;
use crate::webhooks::attempts::{Attempt, WebhookId, redacted};
use crate::webhooks::deliver::BODY_TIME;
use crate::webhooks::subscriptions::record::{ID_PREFIX, Subscription};
use crate::webhooks::times::now_ms;
use crate::webhooks::{axway, post};

/// How much of the reply to a test is read.
const SHOWN_MAX: u64 = 4096;
/// The most bytes that the answer to a challenge may have: more than it needs, so that the attempt
/// shows the status of a page that is none.
const ANSWER_MAX: u64 = 64 << 10;
/// The kind of requests that ask a URL whether it wants events.
const CHALLENGE: &str = "challenge";
/// How long a URL may take to answer, at most: somebody waits.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Whether a reply is what was asked for.
type IsAccepted<'a> = &'a (dyn Fn(&Reply) -> bool + Sync);

fn no_random() -> Fault {
    let detail = "webhooks cannot be managed at the moment";
    Fault::new(Kind::Unavailable, Origin::Engine, detail)
        .with_cause("the system has no random bytes")
}

/// A new identifier of a subscription: its digits are those of a UUID of version 4 (RFC 9562,
/// section 5.4), which is what the profile `axway-streams` calls it.
///
/// # Errors
/// When the system has no random bytes.
pub(super) fn new_subscription_id() -> Result<String, Fault> {
    let digits = webhook_signer::new_id().ok_or_else(no_random)?;
    let number = u128::from_str_radix(&digits, 16).map_err(|_| no_random())?;
    let number = (number & !(0xf << 76)) | (0x4 << 76);
    let number = (number & !(0b11 << 62)) | (0b10 << 62);
    Ok(format!("{ID_PREFIX}{number:032x}"))
}

/// A new identifier of a request that is no event.
///
/// # Errors
/// When the system has no random bytes.
fn new_id(prefix: &str) -> Result<String, Fault> {
    let id = webhook_signer::new_id().ok_or_else(no_random)?;
    Ok(format!("{prefix}{id}"))
}

/// A new secret.
///
/// # Errors
/// When the system has no random bytes.
pub(super) fn new_secret() -> Result<String, Fault> {
    webhook_signer::new_secret().ok_or_else(no_random)
}

impl Managed {
    /// Has a URL asked whether it wants events: it has to answer with the challenge, which nobody
    /// can guess. False when it does not. The caller has the right to it from its pace.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub(super) async fn challenge(
        &self,
        subscription: &Subscription,
        services: &dyn Services,
    ) -> Result<bool, Fault> {
        let challenge = webhook_signer::new_challenge().ok_or_else(no_random)?;
        let body = json!({
            "type": CHALLENGE,
            "topic": &**self.topic.name(),
            "webhook": &*subscription.id,
            "challenge": challenge,
        });
        let body = Bytes::from(body.to_string());
        let is_accepted = |reply: &Reply| {
            let is_answer = answers(reply.body.as_bytes(), &challenge);
            matches!(reply.status, 200..=299) && is_answer
        };
        let of = (CHALLENGE, body, &is_accepted as IsAccepted<'_>);
        Ok(self.probe(subscription, of, services).await?.is_accepted)
    }

    /// Sends an event that is none of the topic, to try the URL: this JSON text, or one of ours.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub(super) async fn test(
        &self,
        subscription: &Subscription,
        body: Option<Bytes>,
        services: &dyn Services,
    ) -> Result<Attempt, Fault> {
        self.pace.take(&subscription.owner, services.now())?;
        let usual = || {
            let body = json!({
                "type": "test",
                "topic": &**self.topic.name(),
                "webhook": &*subscription.id,
            });
            Bytes::from(body.to_string())
        };
        let body = body.unwrap_or_else(usual);
        let is_accepted = |reply: &Reply| matches!(reply.status, 200..=299);
        let of = ("test", body, &is_accepted as IsAccepted<'_>);
        self.probe(subscription, of, services).await
    }

    async fn probe(
        &self,
        subscription: &Subscription,
        (kind, body, is_accepted): (&'static str, Bytes, IsAccepted<'_>),
        services: &dyn Services,
    ) -> Result<Attempt, Fault> {
        let outgoing = self.outgoing(subscription, services).map_err(|cause| {
            let detail = "the URL may not be called";
            Fault::new(Kind::Forbidden, Origin::Client, detail).with_cause(cause)
        })?;
        let id = new_id(&format!("{kind}-"))?;
        let of = (&**self.topic.name(), kind);
        let signed = (&*id, now_ms(services) / 1000, body);
        let mut headers = Headers::new();
        axway::name_subscription(subscription, (of.0, self.topic.epoch()), &mut headers);
        let request = post::probe(of, (headers, signed), &outgoing).await;
        let start = services.now();
        let deadline = start + self.terms.timeout.min(TIME_MAX);
        // The challenge has to be the whole answer, while a test is over with its status.
        let truncates = kind != CHALLENGE;
        let call = Call {
            body_max: Some(if truncates { SHOWN_MAX } else { ANSWER_MAX }),
            truncates,
            body_time: truncates.then_some(BODY_TIME),
            deadline: Some(deadline),
            ..Call::new(&outgoing.forward, &request, "webhook")
        };
        let at_ms = now_ms(services);
        // The call ends with its deadline. Dropped here it could not say what has come until then.
        let replied = services.call(call).await;
        let took = services.now().saturating_duration_since(start);
        let (reply, shown) = match replied {
            Ok(reply) => {
                let shown = redacted(reply.body.as_bytes(), &outgoing.secrets);
                (Some(reply), shown)
            }
            Err(fault) => (None, redacted(fault.detail.as_bytes(), &[])),
        };
        let status = reply.as_ref().map(|it| it.status);
        let attempt = Attempt {
            at_ms,
            kind: None,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            id: WebhookId::Text(id.into()),
            status,
            is_accepted: reply.as_ref().is_some_and(is_accepted),
            shown,
        };
        let of = (self.topic.name(), &subscription.id);
        self.attempts.add(of, attempt.clone());
        Ok(attempt)
    }
}

/// Whether a reply has the challenge: alone, or as the only member of a JSON object. Many servers
/// answer a POST with what they were sent, and have not agreed to anything.
fn answers(body: &[u8], challenge: &str) -> bool {
    if body.trim_ascii() == challenge.as_bytes() {
        return true;
    }
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    let members = answer.as_ref().and_then(Value::as_object);
    let members = members.filter(|members| members.len() == 1);
    members
        .and_then(|it| it.get("challenge"))
        .and_then(Value::as_str)
        == Some(challenge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_answered_alone_or_in_an_object() {
        for (body, is_answer) in [
            ("abc", true),
            (" abc\r\n", true),
            (r#"{"challenge": "abc"}"#, true),
            (r#"{"challenge":"abc","more":1}"#, false),
            (
                r#"{"type":"challenge","topic":"t","challenge":"abc"}"#,
                false,
            ),
            (r#"[{"challenge":"abc"}]"#, false),
            (r#""abc""#, false),
            ("abcd", false),
            ("xabc", false),
            (r#"{"challenge":"abcd"}"#, false),
            (r#"{"type":"challenge"}"#, false),
            ("", false),
        ] {
            assert_eq!(answers(body.as_bytes(), "abc"), is_answer, "{body}");
        }
    }
}
