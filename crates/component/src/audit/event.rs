//! An event of the audit stream and its JSON: who has done what, from where, how it ended and why.
//! Nothing in it is a secret: no credential, no body and no query has a place here.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use message::secret::redact;
use message::{HeadersView, Request};
use serde_json::{Map, Value, json};

use crate::access::{Caller, RequestHead};

/// The most bytes of a text of an event. Longer ones are cut.
const TEXT_MAX: usize = 512;
/// The most names of a list.
const NAMES_MAX: usize = 100;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A request was refused by access control or by its network; with `count`, several were.
    AccessRefused,
    /// Refusals were counted together because there were too many.
    AccessSuppressed,
    /// A credential was revoked whose streams were open: they end.
    AccessRevoked,
    /// Sessions of a login have ended by a logout.
    SessionEnded,
    /// A file of API keys has changed.
    KeysChanged,
    /// A file of users has changed.
    UsersChanged,
    /// The file of the deny list has changed.
    DenyChanged,
    /// An entry was added to the deny list by the admin API or a logout.
    DenyAdded,
    /// An entry was removed from the deny list by the admin API.
    DenyRemoved,
    /// Somebody has asked the admin API to load the files again.
    AdminReload,
    /// A webhook was paused, by the admin API or by its owner.
    WebhookPaused,
    /// A webhook was resumed, by the admin API or by its owner.
    WebhookResumed,
    /// A webhook gets events again, as the admin API or its owner wants it.
    WebhookReplayed,
    /// A caller has created a webhook.
    WebhookCreated,
    /// A webhook was changed by its owner or an operator.
    WebhookChanged,
    /// A webhook was given a new secret.
    WebhookSecretRotated,
    /// A webhook was deleted.
    WebhookDeleted,
    /// The files were loaded again.
    ConfigReload,
    /// A reload has changed plans of callers.
    PlansChanged,
    /// A reload has changed ways to know a caller.
    AuthChanged,
    /// The stream begins.
    AuditStarted,
    /// The stream ends.
    AuditStopped,
    /// Events could not be kept until they were written.
    AuditDropped,
}

impl EventKind {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::AccessRefused,
        Self::AccessSuppressed,
        Self::AccessRevoked,
        Self::SessionEnded,
        Self::KeysChanged,
        Self::UsersChanged,
        Self::DenyChanged,
        Self::DenyAdded,
        Self::DenyRemoved,
        Self::AdminReload,
        Self::WebhookPaused,
        Self::WebhookResumed,
        Self::WebhookReplayed,
        Self::WebhookCreated,
        Self::WebhookChanged,
        Self::WebhookSecretRotated,
        Self::WebhookDeleted,
        Self::ConfigReload,
        Self::PlansChanged,
        Self::AuthChanged,
        Self::AuditStarted,
        Self::AuditStopped,
        Self::AuditDropped,
    ];

    /// The value of the member `event`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AccessRefused => "access.refused",
            Self::AccessSuppressed => "access.suppressed",
            Self::AccessRevoked => "access.revoked",
            Self::SessionEnded => "session.ended",
            Self::KeysChanged => "keys.changed",
            Self::UsersChanged => "users.changed",
            Self::DenyChanged => "deny.changed",
            Self::DenyAdded => "deny.added",
            Self::DenyRemoved => "deny.removed",
            Self::AdminReload => "admin.reload",
            Self::WebhookPaused => "webhook.paused",
            Self::WebhookResumed => "webhook.resumed",
            Self::WebhookReplayed => "webhook.replayed",
            Self::WebhookCreated => "webhook.created",
            Self::WebhookChanged => "webhook.changed",
            Self::WebhookSecretRotated => "webhook.secret_rotated",
            Self::WebhookDeleted => "webhook.deleted",
            Self::ConfigReload => "config.reload",
            Self::PlansChanged => "plans.changed",
            Self::AuthChanged => "auth.changed",
            Self::AuditStarted => "audit.started",
            Self::AuditStopped => "audit.stopped",
            Self::AuditDropped => "audit.dropped",
        }
    }
}

/// From where a request has come, and which it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client: what a trusted proxy says, else who is connected.
    pub address: IpAddr,
    /// The trusted proxy that is connected, if one is.
    pub proxy: Option<IpAddr>,
    /// The method and the path without the query.
    request: Option<(String, String)>,
    /// The trace that the client says the request belongs to.
    trace: Option<String>,
}

impl Origin {
    /// A client whose request is not known.
    #[must_use]
    pub fn of_address(address: IpAddr) -> Self {
        Self {
            address,
            proxy: None,
            request: None,
            trace: None,
        }
    }

    /// The same with the trusted proxy that is connected, if one is.
    #[must_use]
    pub fn with_proxy(mut self, proxy: Option<IpAddr>) -> Self {
        self.proxy = proxy;
        self
    }

    /// The same with a request. `path` is without the query, in which credentials may stand.
    #[must_use]
    pub fn with_request(mut self, method: &str, path: &[u8], headers: HeadersView<'_>) -> Self {
        let path = String::from_utf8_lossy(path);
        self.request = Some((bounded(method), bounded(&path)));
        self.trace = headers.get("traceparent").and_then(trace_id);
        self
    }
}

impl From<&RequestHead<'_>> for Origin {
    fn from(head: &RequestHead<'_>) -> Self {
        let origin = Self::of_address(head.peer).with_proxy(head.proxy);
        origin.with_request(head.method, head.path, head.headers)
    }
}

impl From<&Request> for Origin {
    fn from(request: &Request) -> Self {
        Self::from(&RequestHead::of(request))
    }
}

/// The trace id of a `traceparent` (W3C Trace Context, section 3.2.2).
fn trace_id(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let id = text.split('-').nth(1)?;
    let is_id = id.len() == 32 && id.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    (is_id && id.bytes().any(|it| it != b'0')).then(|| id.to_owned())
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    kind: EventKind,
    is_success: bool,
    way: Option<Arc<str>>,
    id: Option<Arc<str>>,
    origin: Option<Origin>,
    target: Option<String>,
    status: Option<u16>,
    reason: Option<String>,
    details: Map<String, Value>,
}

impl Event {
    /// One that has ended well.
    #[must_use]
    pub fn success(kind: EventKind) -> Self {
        Self {
            kind,
            is_success: true,
            way: None,
            id: None,
            origin: None,
            target: None,
            status: None,
            reason: None,
            details: Map::new(),
        }
    }

    /// One that was refused or has failed, for this reason.
    #[must_use]
    pub fn failure(kind: EventKind, reason: &str) -> Self {
        Self {
            is_success: false,
            reason: Some(bounded(reason)),
            ..Self::success(kind)
        }
    }

    /// Why it has happened.
    #[must_use]
    pub fn because(mut self, reason: &str) -> Self {
        self.reason = Some(bounded(reason));
        self
    }

    /// Who has done it: the way by which the caller is known, and who it is by that way, where that
    /// is known.
    #[must_use]
    pub fn by(mut self, way: Option<Arc<str>>, id: Option<Arc<str>>) -> Self {
        (self.way, self.id) = (way, id);
        self
    }

    /// Who has done it, and from where.
    #[must_use]
    pub fn of_request(self, request: &Request) -> Self {
        let caller = Caller::of(request);
        let way = caller.map(|it| Arc::clone(&it.way));
        let id = caller.map(|it| Arc::clone(&it.id));
        self.by(way, id).with_origin(Origin::from(request))
    }

    /// From where it has come.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// What it was done to, such as `flow orders`.
    #[must_use]
    pub fn with_target(mut self, target: &str) -> Self {
        self.target = Some(bounded(target));
        self
    }

    /// The status of the reply.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Something else about it.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::String(text) => Value::String(bounded(&text)),
            value => value,
        };
        self.details.insert(name.to_owned(), value);
        self
    }

    /// What was added, removed and changed.
    #[must_use]
    pub fn with_changes(mut self, changes: &Changes) -> Self {
        let mut hidden = 0;
        let all = [
            ("added", &changes.added),
            ("removed", &changes.removed),
            ("changed", &changes.changed),
        ];
        for (name, names) in all.into_iter().filter(|(_, names)| names.count > 0) {
            let shown = names.shown.iter();
            let shown: Vec<Value> = shown.map(|it| bounded(it).into()).collect();
            hidden += names.count - shown.len();
            self.details.insert(name.to_owned(), shown.into());
        }
        if hidden > 0 {
            self.details.insert("not_listed".to_owned(), hidden.into());
        }
        self
    }

    /// What has happened.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// The event as JSON, without secrets that have been registered.
    #[must_use]
    pub fn to_json(&self, time: SystemTime) -> Value {
        let mut members = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
        let outcome = if self.is_success {
            "success"
        } else {
            "failure"
        };
        put("time", Some(timestamp(time).into()));
        put("event", Some(self.kind.name().into()));
        put("outcome", Some(outcome.into()));
        put("reason", self.reason.as_deref().map(shown));
        put("status", self.status.map(Value::from));
        put("actor", self.actor());
        put("source", self.origin.as_ref().map(source));
        put("target", self.target.as_deref().map(shown));
        put("request", self.origin.as_ref().and_then(request));
        members.extend(self.details.iter().map(|(name, value)| {
            let value = without_secrets(value);
            (name.clone(), value)
        }));
        Value::Object(members)
    }

    fn actor(&self) -> Option<Value> {
        let mut actor = Map::new();
        for (name, value) in [("way", &self.way), ("id", &self.id)] {
            if let Some(value) = value {
                actor.insert(name.to_owned(), shown(&bounded(value)));
            }
        }
        (!actor.is_empty()).then(|| actor.into())
    }
}

fn source(origin: &Origin) -> Value {
    let mut source = json!({ "address": origin.address.to_string() });
    if let (Some(proxy), Value::Object(members)) = (origin.proxy, &mut source) {
        members.insert("proxy".to_owned(), proxy.to_string().into());
    }
    source
}

fn request(origin: &Origin) -> Option<Value> {
    let (method, path) = origin.request.as_ref()?;
    let mut request = json!({ "method": shown(method), "path": shown(path) });
    if let (Some(trace), Value::Object(members)) = (&origin.trace, &mut request) {
        members.insert("trace_id".to_owned(), trace.as_str().into());
    }
    Some(request)
}

/// A time as RFC 3339 has it, in UTC with milliseconds.
#[must_use]
pub fn timestamp(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => format!("{time:.3}"),
        // Beyond the year 9999.
        Err(_) => jiff::Timestamp::MAX.to_string(),
    }
}

fn shown(text: &str) -> Value {
    redact(text).into()
}

fn without_secrets(value: &Value) -> Value {
    match value {
        Value::String(text) => shown(text),
        Value::Array(items) => items.iter().map(without_secrets).collect(),
        Value::Object(members) => {
            let members = members.iter();
            members
                .map(|(name, value)| (name.clone(), without_secrets(value)))
                .collect::<Map<_, _>>()
                .into()
        }
        value => value.clone(),
    }
}

/// As much of a text as an event has.
fn bounded(text: &str) -> String {
    if text.len() <= TEXT_MAX {
        return text.to_owned();
    }
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=TEXT_MAX).rev().find(is_boundary).unwrap_or_default();
    format!("{}...", text.get(..end).unwrap_or_default())
}

/// What differs between two states of something that has named entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The names that were not there before.
    pub added: Names,
    /// The names that are gone.
    pub removed: Names,
    /// The names whose entries are others now.
    pub changed: Names,
}

/// Names, of which an event shows the first ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The first ones in their order, as many as an event shows.
    pub shown: Vec<String>,
    /// How many there are in all.
    pub count: usize,
}

impl<K: Ord + fmt::Display> FromIterator<K> for Names {
    fn from_iter<T: IntoIterator<Item = K>>(names: T) -> Self {
        let mut names: Vec<K> = names.into_iter().collect();
        let count = names.len();
        // There may be a million: only those that are shown become texts.
        if count > NAMES_MAX {
            names.select_nth_unstable(NAMES_MAX);
            names.truncate(NAMES_MAX);
        }
        names.sort_unstable();
        Self {
            shown: names.iter().map(ToString::to_string).collect(),
            count,
        }
    }
}

impl Changes {
    /// Compares entries by their names. Names are unique.
    pub fn between<K: Hash + Ord + fmt::Display, V: PartialEq>(
        before: impl IntoIterator<Item = (K, V)>,
        now: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let mut before: HashMap<K, V> = before.into_iter().collect();
        let (mut added, mut changed) = (Vec::new(), Vec::new());
        for (name, value) in now {
            match before.remove(&name) {
                None => added.push(name),
                Some(old) if old != value => changed.push(name),
                Some(_) => {}
            }
        }
        Self {
            added: added.into_iter().collect(),
            removed: before.into_keys().collect(),
            changed: changed.into_iter().collect(),
        }
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let all = [&self.added, &self.removed, &self.changed];
        all.iter().all(|it| it.count == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_event_says_who_what_when_and_from_where() {
        let mut headers = message::Headers::new();
        headers.append(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        );
        let mut request = Request::of_source("POST", headers, b"the body".to_vec());
        request.path = "/orders/7".to_owned();
        request.query = Some("access_token=abc".to_owned());
        request.peer = [192, 0, 2, 1].into();
        request.proxy = Some([10, 0, 0, 1].into());
        let event = Event::failure(EventKind::AccessRefused, "expired")
            .by(Some("staff".into()), Some("ann".into()))
            .with_origin(Origin::from(&request))
            .with_target("flow orders")
            .with_status(401);
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_123);
        assert_eq!(
            event.to_json(time).to_string(),
            r#"{"time":"2027-01-15T08:00:00.123Z","event":"access.refused","outcome":"failure","#
                .to_owned()
                + r#""reason":"expired","status":401,"actor":{"way":"staff","id":"ann"},"#
                + r#""source":{"address":"192.0.2.1","proxy":"10.0.0.1"},"target":"flow orders","#
                + r#""request":{"method":"POST","path":"/orders/7","#
                + r#""trace_id":"0af7651916cd43dd8448eb211c80319c"}}"#
        );
    }

    #[test]
    fn values_are_bounded_and_secrets_are_taken_out() {
        message::secret::register("audited-secret-value");
        let long = "\u{e4}".repeat(1000);
        let ids = (0..150).rev().map(|it| (format!("k{it:03}"), ()));
        let changes = Changes::between([], ids);
        let event = Event::success(EventKind::KeysChanged)
            .with_target(&long)
            .with("entry", json!({ "reason": "audited-secret-value" }))
            .with_changes(&changes);
        let event = event.to_json(SystemTime::UNIX_EPOCH);
        let target = event["target"].as_str().unwrap();
        assert!(target.len() <= TEXT_MAX + 3 && target.ends_with("..."));
        assert_eq!(event["entry"]["reason"], "***");
        let added = event["added"].as_array().unwrap();
        assert_eq!(added.len(), NAMES_MAX);
        assert_eq!((&added[0], &added[99]), (&json!("k000"), &json!("k099")));
        assert_eq!(event["not_listed"], 50);
    }

    #[test]
    fn only_a_trace_id_is_taken_for_one() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        let sound = format!("00-{id}-b7ad6b7169203331-01");
        assert_eq!(trace_id(sound.as_bytes()).as_deref(), Some(id));
        for other in [
            "",
            "00",
            "00-xyz-1-1",
            "00-00000000000000000000000000000000-1-1",
        ] {
            assert_eq!(trace_id(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn changes_are_found_by_name() {
        let before = [("a", 1), ("b", 2), ("c", 3)];
        let now = [("b", 2), ("c", 4), ("d", 5)];
        let changes = Changes::between(before, now);
        let names = |names: &[&str]| names.iter().collect::<Names>();
        assert_eq!(changes.added, names(&["d"]));
        assert_eq!(changes.removed, names(&["a"]));
        assert_eq!(changes.changed, names(&["c"]));
        assert!(Changes::between(before, before).is_empty());
    }
}
