//! Where a message is forwarded to and how its head is rewritten. Plain data: `proxy` does it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use message::Method;

use crate::credentials::Credentials;
use crate::identity::Identity;
use crate::limits::Gate;
use crate::stream_limits::StreamLimits;
use crate::upstream::UpstreamPlan;

/// Everything needed to forward a request.
#[derive(Clone, Debug)]
pub struct ForwardPlan {
    /// The system it goes to.
    pub upstream: Arc<UpstreamPlan>,
    /// The path of the target, percent-encoded, beginning with `/`.
    pub path: String,
    /// Whether what the trigger's `*` matched is put behind `path`.
    pub appends_rest: bool,
    /// The target's own query, without `?`; the request's query follows it after an `&`.
    pub query: Option<String>,
    /// The method to send instead of the request's.
    pub method: Option<Method>,
    /// What the `Host` field says.
    pub host_field: HostField,
    /// Whether `X-Forwarded-For`, `-Host` and `-Proto` are written.
    pub x_forwarded: bool,
    /// Whether `Forwarded` (RFC 7239) is written.
    pub forwarded: bool,
    /// The name to write into `Via` (RFC 9110, section 7.6.3), if any.
    pub via: Option<String>,
    /// Changes to the request's fields.
    pub request_fields: FieldEdits,
    /// Changes to the reply's fields.
    pub reply_fields: FieldEdits,
    /// Time-outs that differ from the engine's.
    pub timeouts: ForwardTimeouts,
    /// Whether clients of HTTP/1.1 get 103 Early Hints, and other interim replies beside
    /// `100 Continue`.
    pub early_hints: bool,
    /// Whether only WebSocket handshakes are forwarded (RFC 6455, section 4).
    pub websocket: bool,
    /// A parameter that every query gets in place of the request's of that name: an API key.
    pub parameter: Option<QueryParameter>,
    /// What each request is authorized with, in place of the client's fields of those names, which
    /// are among `request_fields.remove`.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// What tells the system who the caller is: a request for which it has no token is not sent.
    pub identity: Option<Arc<dyn Identity>>,
    /// What its streams may take, when it is all that its flow does.
    pub streams: Option<Arc<StreamLimits>>,
    /// What its requests have to pass, when it is all that its flow does.
    pub gate: Option<Arc<Gate>>,
}

impl ForwardPlan {
    /// A plan that sends requests to this path as they are and adds nothing.
    pub fn new(upstream: Arc<UpstreamPlan>, path: impl Into<String>) -> Self {
        Self {
            upstream,
            path: path.into(),
            appends_rest: false,
            query: None,
            method: None,
            host_field: HostField::Target,
            x_forwarded: false,
            forwarded: false,
            via: None,
            request_fields: FieldEdits::default(),
            reply_fields: FieldEdits::default(),
            timeouts: ForwardTimeouts::default(),
            early_hints: false,
            websocket: false,
            parameter: None,
            credentials: None,
            identity: None,
            streams: None,
            gate: None,
        }
    }
}

/// A parameter of a query.
#[derive(Clone)]
pub struct QueryParameter {
    /// Its name, as it is meant.
    pub name: String,
    /// Name and value, percent-encoded: `name=value`.
    pub pair: String,
}

/// Without the value, which is a secret.
impl fmt::Debug for QueryParameter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("QueryParameter")
            .field(&self.name)
            .finish()
    }
}

/// What the `Host` field of a forwarded request says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostField {
    /// The target's host and port; of several endpoints, the first one's.
    Target,
    /// What the client sent.
    Keep,
    /// This text.
    Fixed(String),
}

/// Changes to header fields: first removed, then set.
#[derive(Clone, Debug, Default)]
pub struct FieldEdits {
    /// Names whose lines are dropped.
    pub remove: Vec<String>,
    /// How names begin whose lines are dropped, too.
    pub remove_prefix: Option<&'static str>,
    /// Lines that replace all lines of their name.
    pub set: Vec<(String, String)>,
}

impl FieldEdits {
    /// Whether there is nothing to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.remove_prefix.is_none()
    }

    /// Whether lines with this name are dropped or replaced.
    pub fn drops(&self, name: &[u8]) -> bool {
        let same = |other: &String| other.as_bytes().eq_ignore_ascii_case(name);
        let begins = |prefix: &str| {
            let begin = name.get(..prefix.len());
            begin.is_some_and(|it| it.eq_ignore_ascii_case(prefix.as_bytes()))
        };
        self.remove.iter().any(same)
            || self.set.iter().map(|(name, _)| name).any(same)
            || self.remove_prefix.is_some_and(begins)
    }
}

/// Time-outs of one `forward` step that differ from the engine's.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForwardTimeouts {
    /// How long connecting may take.
    pub connect: Option<Duration>,
    /// How long the target may take from the end of the request to the head of the reply.
    pub response: Option<Duration>,
    /// How long a body may make no progress.
    pub body: Option<Duration>,
    /// The longest from the request's head to the reply's, connecting and waiting included.
    pub total: Option<Duration>,
}
