//! What went wrong with a message: the one error value of the data path.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::headers::Headers;
use crate::reply::{Reply, reason_phrase};
use crate::secret;

/// What kind of failure it is; `on_error` clauses go by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The message cannot be understood or may not be sent.
    Invalid,
    /// Nobody knows who asks.
    Unauthorized,
    /// Whoever asks may not.
    Forbidden,
    /// A rate is exceeded.
    Limited,
    /// Somebody took longer than the configured time.
    Timeout,
    /// A connection could not be made, or broke, or carried nonsense.
    Connection,
    /// The work is refused for now: a limit is reached, a breaker is open, or the engine is
    /// stopping.
    Unavailable,
    /// Another system answered with a status that is no success.
    Status,
    /// A broker has not taken a message.
    Nack,
    /// A broker knows nobody who wants a message.
    Unroutable,
    /// An expression of the flow failed.
    Expression,
    /// The flow raised an error of its own.
    Raised,
    /// Our own fault.
    Internal,
}

impl Kind {
    /// The kinds that flow files name, but for those of [`Kind::Status`] and [`Kind::Raised`],
    /// whose names are statuses and the flow's own.
    pub const NAMED: [Self; 11] = [
        Self::Invalid,
        Self::Unauthorized,
        Self::Forbidden,
        Self::Limited,
        Self::Timeout,
        Self::Connection,
        Self::Unavailable,
        Self::Nack,
        Self::Unroutable,
        Self::Expression,
        Self::Internal,
    ];

    /// The name used in flow files, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Limited => "limited",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Unavailable => "unavailable",
            Self::Status => "status",
            Self::Nack => "nack",
            Self::Unroutable => "unroutable",
            Self::Expression => "expression",
            Self::Raised => "raised",
            Self::Internal => "internal",
        }
    }

    /// The status of the reply when nothing else is said.
    pub fn default_status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::Limited => 429,
            Self::Timeout => 504,
            Self::Connection | Self::Status | Self::Nack | Self::Unroutable => 502,
            Self::Unavailable => 503,
            Self::Expression | Self::Raised | Self::Internal => 500,
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

/// Whether trying again can help, and does no harm. A `retry` that names no failures goes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It cannot help.
    No,
    /// It can help. The other side may have acted on the request: it must be one that may come
    /// twice.
    IfRepeatable,
    /// It can help, and does no harm: the other side has certainly not acted on the request.
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
    /// Of [`Kind::Raised`]: the name that the flow gave it. Of [`Kind::Status`]: the status that
    /// came.
    pub of: Of,
    /// The step that failed, when one did.
    pub step: Option<Arc<str>>,
}

/// What tells failures of one kind apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Of {
    /// Nothing.
    #[default]
    Nothing,
    /// The name and the title that the flow gave it.
    Type(Box<(String, Option<String>)>),
    /// The status that another system answered with.
    Status(u16),
    /// The rate limits that the caller is subject to.
    Limit(Box<RateLimit>),
}

/// The fields of draft-ietf-httpapi-ratelimit-headers-10, as structured fields (RFC 9651).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// The value of `RateLimit-Policy`: what the caller is allowed.
    pub policy: String,
    /// The value of `RateLimit`: what is left of it.
    pub left: String,
    /// The name of the policy that has been exceeded.
    pub exceeded: Option<String>,
}

impl RateLimit {
    /// The fields with their names.
    pub fn fields(&self) -> [(&'static str, &str); 2] {
        [
            ("RateLimit-Policy", &self.policy),
            ("RateLimit", &self.left),
        ]
    }
}

/// The problem type of a quota that is exceeded, and its title (section 6.1 of the draft).
const QUOTA_EXCEEDED: (&str, &str) = (
    "https://iana.org/assignments/http-problem-types#quota-exceeded",
    "Request cannot be satisfied as assigned quota has been exceeded",
);

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
            of: Of::Nothing,
            step: None,
        }
    }

    /// An error that a flow raises under a name of its own.
    pub fn raised(name: &str, title: Option<String>, detail: String) -> Self {
        let mut fault = Self::new(Kind::Raised, Origin::Engine, detail);
        fault.of = Of::Type(Box::new((name.to_owned(), title)));
        fault
    }

    /// Another system answered with this status, which is no success.
    pub fn of_status(status: u16) -> Self {
        let detail = "the upstream did not answer with success";
        let mut fault = Self::new(Kind::Status, Origin::Upstream, detail);
        fault.of = Of::Status(status);
        fault.retry = match status {
            // It has not taken the request: too slow, too early, too often (RFC 9110, section
            // 15.5.9; RFC 8470, section 5.2; RFC 6585, section 4).
            408 | 425 | 429 => Retry::Yes,
            500.. => Retry::IfRepeatable,
            _ => Retry::No,
        };
        fault.with_cause(format_args!("status {status}"))
    }

    /// An expression of the flow failed.
    pub fn expression(cause: impl fmt::Display) -> Self {
        Self::new(
            Kind::Expression,
            Origin::Engine,
            "an expression of the flow failed",
        )
        .with_cause(cause)
    }

    /// The name that `on_error` clauses and logs use: a kind's, a status class such as `5xx`, or
    /// the type that the flow raised.
    pub fn name(&self) -> &str {
        match &self.of {
            Of::Type(names) => &names.0,
            Of::Status(400..=499) => "4xx",
            Of::Status(500..=599) => "5xx",
            Of::Status(300..=399) => "3xx",
            Of::Status(_) | Of::Limit(_) | Of::Nothing => self.kind.name(),
        }
    }

    /// The status that a flow sees: what another system answered with, or that of the reply.
    pub fn seen_status(&self) -> u16 {
        match self.of {
            Of::Status(status) => status,
            Of::Nothing | Of::Type(_) | Of::Limit(_) => self.status,
        }
    }

    /// A message that cannot be understood: status 400.
    pub fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, Origin::Client, detail)
    }

    /// A value of the message that cannot stand where the flow puts it: it is missing, empty or of
    /// a wrong type. Status 400, for another message would do. The expression that gave the value
    /// has not failed; `cause` names it for the log.
    pub fn unfit(detail: impl Into<Cow<'static, str>>, cause: impl fmt::Display) -> Self {
        Self::invalid(detail).with_cause(cause)
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

    /// The reply that tells the caller: `application/problem+json` (RFC 9457). Its type is
    /// `about:blank` and its title the status' own words, unless the flow raised the error under
    /// a name of its own.
    pub fn to_reply(&self) -> Reply {
        let (name, title) = match &self.of {
            Of::Type(names) => (names.0.as_str(), names.1.as_deref()),
            Of::Limit(_) => (QUOTA_EXCEEDED.0, Some(QUOTA_EXCEEDED.1)),
            Of::Status(_) | Of::Nothing => ("about:blank", None),
        };
        let mut problem = serde_json::Map::new();
        problem.insert("type".into(), name.into());
        let title = title.unwrap_or_else(|| reason_phrase(self.status));
        problem.insert("title".into(), title.into());
        problem.insert("status".into(), self.status.into());
        if !self.detail.is_empty() {
            let detail = secret::redact(&self.detail).into_owned();
            problem.insert("detail".into(), detail.into());
        }
        let exceeded = self.limit().and_then(|limit| limit.exceeded.as_deref());
        if let Some(exceeded) = exceeded {
            problem.insert("violated-policies".into(), vec![exceeded].into());
        }
        let mut content = serde_json::Value::Object(problem).to_string().into_bytes();
        content.push(b'\n');
        let mut reply = Reply::with_content(self.status, "application/problem+json", content);
        self.append_fields(&mut reply.headers);
        reply
    }

    /// Appends the fields that every reply made of a failure has, whatever its body looks like:
    /// `Retry-After`, and `RateLimit-Policy` and `RateLimit` where a limit is exceeded.
    pub fn append_fields(&self, headers: &mut Headers) {
        if let Some(time) = self.retry_after {
            // Rounded up: whoever comes at that time must not be too early.
            let seconds = time.as_millis().div_ceil(1000).max(1).to_string();
            headers.append("Retry-After", seconds);
        }
        for (name, value) in self.limit().into_iter().flat_map(RateLimit::fields) {
            headers.append(name, value);
        }
    }

    /// The rate limits that the caller is subject to, where one of them is exceeded.
    fn limit(&self) -> Option<&RateLimit> {
        match &self.of {
            Of::Limit(limit) => Some(limit),
            Of::Nothing | Of::Type(_) | Of::Status(_) => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = secret::redact(&self.detail);
        write!(formatter, "{}: {detail}", self.name())?;
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
    fn a_limit_is_told_in_the_fields_of_the_draft() {
        let mut fault = Fault::new(Kind::Limited, Origin::Engine, "too many requests");
        fault.of = Of::Limit(Box::new(RateLimit {
            policy: "\"gold\";q=100;w=60".to_owned(),
            left: "\"gold\";r=0;t=7".to_owned(),
            exceeded: Some("gold".to_owned()),
        }));
        let reply = fault
            .with_retry_after(Duration::from_millis(6100))
            .to_reply();
        assert_eq!(reply.status, 429);
        let field = |name| reply.headers.get(name).unwrap_or_default().to_vec();
        assert_eq!(field("Retry-After"), b"7");
        assert_eq!(field("RateLimit-Policy"), b"\"gold\";q=100;w=60");
        assert_eq!(field("RateLimit"), b"\"gold\";r=0;t=7");
        let text = String::from_utf8_lossy(reply.body.as_bytes()).into_owned();
        assert!(text.contains("#quota-exceeded\""), "{text}");
        assert!(text.contains(r#""violated-policies":["gold"]"#), "{text}");
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
