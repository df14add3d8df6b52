//! What went wrong with a message: the one error value of the data path.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::reply::{Reply, reason_phrase};
use crate::secret;

/// What kind of failure it is; `on_error` clauses go by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The message cannot be understood or may not be sent.
    Invalid,
    /// Somebody took longer than the configured time.
    Timeout,
    /// A connection could not be made, or broke, or carried nonsense.
    Connection,
    /// The work is refused for now: a limit is reached or the engine is stopping.
    Unavailable,
    /// Our own or the flow's fault.
    Internal,
}

impl Kind {
    /// The name used in flow files, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// The status of the reply when nothing else is said.
    pub fn default_status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Timeout => 504,
            Self::Connection => 502,
            Self::Unavailable => 503,
            Self::Internal => 500,
        }
    }
}

/// Who caused a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Whoever sent the message.
    Client,
    /// The system a message was sent on to.
    Upstream,
    /// Intertie itself or the flow.
    Engine,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It cannot.
    No,
    /// It can, when the request is safe to repeat.
    IfRepeatable,
    /// It can, always: the other side has certainly not acted on the request.
    Yes,
}

/// A failed message. `detail` may be shown to the caller; `cause` is for the log only.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What kind of failure it is.
    pub kind: Kind,
    /// Who caused it.
    pub origin: Origin,
    /// Whether trying again can help.
    pub retry: Retry,
    /// The status of the reply.
    pub status: u16,
    /// What the caller may read. Names no address, path or internal state.
    pub detail: Cow<'static, str>,
    /// What the log says beside it.
    pub cause: Option<Box<str>>,
    /// When it makes sense to ask again, for `Retry-After` (RFC 9110, section 10.2.3).
    pub retry_after: Option<Duration>,
}

impl Fault {
    /// A failure with its kind's status, which no retry helps.
    pub fn new(kind: Kind, origin: Origin, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            origin,
            retry: Retry::No,
            status: kind.default_status(),
            detail: detail.into(),
            cause: None,
            retry_after: None,
        }
    }

    /// A message that cannot be understood: status 400.
    pub fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, Origin::Client, detail)
    }

    /// The same failure with another status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// The same failure with a statement about retries.
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The same failure with the time after which it makes sense to ask again.
    pub fn with_retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// The same failure with words for the log.
    pub fn with_cause(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string().into_boxed_str());
        self
    }

    /// The reply that tells the caller: `application/problem+json` (RFC 9457) with the type
    /// `about:blank`, the status' own words as title, and the detail.
    pub fn to_reply(&self) -> Reply {
        let mut problem = serde_json::Map::new();
        problem.insert("type".into(), "about:blank".into());
        problem.insert("title".into(), reason_phrase(self.status).into());
        problem.insert("status".into(), self.status.into());
        if !self.detail.is_empty() {
            let detail = secret::redact(&self.detail).into_owned();
            problem.insert("detail".into(), detail.into());
        }
        let mut content = serde_json::Value::Object(problem).to_string().into_bytes();
        content.push(b'\n');
        let mut reply = Reply::with_content(self.status, "application/problem+json", content);
        if let Some(time) = self.retry_after {
            let seconds = time.as_secs().max(1).to_string();
            reply.headers.append("Retry-After", seconds);
        }
        reply
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = secret::redact(&self.detail);
        write!(formatter, "{}: {detail}", self.kind.name())?;
        if let Some(cause) = &self.cause {
            write!(formatter, " ({})", secret::redact(cause))?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_shows_the_detail_and_hides_the_cause() {
        let fault = Fault::new(Kind::Connection, Origin::Upstream, "the back end refused")
            .with_cause("connect 10.0.0.7:99: refused");
        let reply = fault.to_reply();
        let text = String::from_utf8(reply.body.as_bytes().to_vec()).unwrap();
        assert_eq!(reply.status, 502);
        assert_eq!(
            text,
            "{\"type\":\"about:blank\",\"title\":\"Bad Gateway\",\"status\":502,\
             \"detail\":\"the back end refused\"}\n"
        );
        assert!(fault.to_string().contains("10.0.0.7"));
    }

    #[test]
    fn neither_reply_nor_text_shows_a_secret() {
        secret::register("fault-test-secret");
        let fault = Fault::invalid("`fault-test-secret` is no number")
            .with_cause("sent fault%2dtest%2dsecret as fault-test-secret");
        let reply = fault.to_reply();
        let text = String::from_utf8(reply.body.as_bytes().to_vec()).unwrap();
        assert!(text.contains("`***` is no number"), "{text}");
        assert_eq!(
            fault.to_string(),
            "invalid: `***` is no number (sent *** as ***)"
        );
    }
}
