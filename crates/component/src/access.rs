//! Access control as the data path sees it: a door stands in front of a flow or a topic, looks at
//! the head of each request, and lets it in with its caller or answers it. What a door goes by is
//! its own matter (the crate `auth`).

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use config::{Node, Report, Span};
use expr::Value;
use message::{Headers, HeadersView, Reply, Request};

use crate::definition::Surroundings;
use crate::evaluation::Evaluation;
use crate::handler::{Handler, LocalFuture, Services};
use crate::source::SourcePlan;
use crate::trigger::{Methods, PathPattern};
use crate::upstream::UpstreamPlan;

/// Who has sent a request. One value serves all requests with the same credential.
#[derive(Debug)]
pub struct Caller {
    /// The way by which the caller is known: a name under `engine.auth`.
    pub way: Arc<str>,
    /// Who it is, by this way.
    pub id: Arc<str>,
    /// What it may do.
    pub scopes: Vec<String>,
    /// The plan by which it is limited.
    pub plan: Option<Arc<str>>,
    /// When the credential expires, in seconds since 1970.
    pub expires: Option<u64>,
    /// Everything that the credential claims: a JSON object.
    claims: Value,
    /// What `$auth` shows, made when an expression first asks for it.
    value: OnceLock<Value>,
}

impl Caller {
    /// A caller without scopes and plan, whose credential does not expire.
    #[must_use]
    pub fn new(way: &Arc<str>, id: impl Into<Arc<str>>, claims: Value) -> Self {
        Self {
            way: Arc::clone(way),
            id: id.into(),
            scopes: Vec::new(),
            plan: None,
            expires: None,
            claims,
            value: OnceLock::new(),
        }
    }

    /// The caller of a request, when a door has found out who it is.
    #[must_use]
    pub fn of(request: &Request) -> Option<&Self> {
        request.caller.as_deref()?.downcast_ref()
    }

    /// What `$auth` shows.
    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| {
            use expr::value::{array, object, text};
            let member = |name: &str, value| (name.to_owned(), value);
            let scopes = self.scopes.iter().map(|it| text(it.as_str()));
            let plan = self.plan.as_deref().map_or(Value::Null, text);
            object([
                member("way", text(&*self.way)),
                member("id", text(&*self.id)),
                member("scopes", array(scopes)),
                member("plan", plan),
                member("claims", self.claims.clone()),
            ])
        })
    }
}

/// The head of a request, wherever it lies.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The query as it was sent, without the `?`.
    pub query: Option<&'a [u8]>,
    /// The header fields.
    pub headers: HeadersView<'a>,
    /// The address of the client: what a trusted proxy says, else who is connected.
    pub peer: IpAddr,
    /// Whether it came over TLS.
    pub is_secure: bool,
    /// The request as a message; always there for doors that say [`Door::needs_message`].
    pub message: Option<&'a Request>,
}

impl<'a> RequestHead<'a> {
    /// The head of a message.
    #[must_use]
    pub fn of(request: &'a Request) -> Self {
        Self {
            query: request.query.as_deref().map(str::as_bytes),
            headers: request.headers.view(),
            peer: request.peer,
            is_secure: request.is_secure,
            message: Some(request),
        }
    }
}

/// Where a credential stood, so that it can be taken out of what is forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the header field of this name, in lower case.
    Field(Arc<str>),
    /// In the parameter of the query of this name.
    Query(Arc<str>),
    /// In the cookie of this name.
    Cookie(Arc<str>),
}

/// A request that may come in.
#[derive(Debug)]
pub struct Admitted {
    /// Who has sent it.
    pub caller: Arc<Caller>,
    /// The credential, when it must not go further than the door.
    pub strip: Option<Place>,
    /// What wants to know how the request ends; only of judgements that have seen the body.
    pub settlement: Option<Settlement>,
}

/// Tells a door how an admitted request has ended: whether it was answered with a success. One that
/// is dropped without a word was not, as when the client disconnects.
pub struct Settlement(Option<Box<dyn FnOnce(bool)>>);

impl Settlement {
    /// Calls this once, with whether the request was answered with a success.
    #[must_use]
    pub fn new(settle: impl FnOnce(bool) + 'static) -> Self {
        Self(Some(Box::new(settle)))
    }

    /// The request has ended.
    pub fn settle(mut self, has_succeeded: bool) {
        if let Some(settle) = self.0.take() {
            settle(has_succeeded);
        }
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        if let Some(settle) = self.0.take() {
            settle(false);
        }
    }
}

impl std::fmt::Debug for Settlement {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Settlement")
    }
}

impl Admitted {
    /// The header field, in lower case, that goes no further than the door.
    #[must_use]
    pub fn hidden_field(&self) -> Option<&str> {
        match self.strip.as_ref()? {
            Place::Field(name) => Some(name),
            Place::Query(_) => None,
            // Nobody says which of the cookies is meant.
            Place::Cookie(_) => Some("cookie"),
        }
    }

    /// Takes the credential out of a message and notes who has sent it.
    pub fn enter(&self, request: &mut Request) {
        match &self.strip {
            None => {}
            Some(Place::Field(name)) => request.headers.remove(name),
            Some(Place::Query(name)) => {
                let query = request.query.take();
                request.query = query.and_then(|query| without_parameter(&query, name));
            }
            Some(Place::Cookie(name)) => {
                request.headers = without_cookie(&request.headers, name);
            }
        }
        request.caller = Some(Arc::clone(&self.caller) as _);
    }
}

/// A query without all parameters of one name; `None` when nothing is left. Names are compared
/// after percent-decoding, as whoever reads the query behind us does.
#[must_use]
pub fn without_parameter(query: &str, name: &str) -> Option<String> {
    let is_other = |part: &&str| parameter_name(part) != name;
    let rest: Vec<&str> = query.split('&').filter(is_other).collect();
    (!rest.is_empty()).then(|| rest.join("&"))
}

/// Header fields without a cookie.
fn without_cookie(headers: &Headers, name: &str) -> Headers {
    let mut others = Headers::new();
    for (_, field, value) in headers.view().iter() {
        let is_cookies = field.eq_ignore_ascii_case(b"cookie");
        let field = String::from_utf8_lossy(field);
        match is_cookies {
            false => others.append(&field, value),
            true => {
                if let Some(rest) = cookies_without(value, name) {
                    others.append(&field, rest);
                }
            }
        }
    }
    others
}

/// The value of a field `Cookie` without the cookie of this name; `None` when nothing is left.
#[must_use]
pub fn cookies_without(value: &[u8], name: &str) -> Option<Vec<u8>> {
    let is_other = |pair: &&[u8]| {
        let own = pair.split(|&byte| byte == b'=').next().unwrap_or_default();
        own.trim_ascii() != name.as_bytes()
    };
    let pairs = value.split(|&byte| byte == b';').filter(is_other);
    let pairs: Vec<&[u8]> = pairs.map(<[u8]>::trim_ascii).collect();
    (!pairs.is_empty()).then(|| pairs.join(&b"; "[..]))
}

/// The decoded name of `NAME=VALUE`.
#[must_use]
pub fn parameter_name(part: &str) -> String {
    let name = part.split('=').next().unwrap_or_default();
    decode_parameter(name)
}

/// Undoes the encoding of a name or value of a query (`application/x-www-form-urlencoded`).
#[must_use]
pub fn decode_parameter(text: &str) -> String {
    let plain = text.replace('+', " ");
    crate::variables::decoded(&plain).into_owned()
}

/// What a door says of a request.
pub enum Judgement<'a> {
    /// It comes in, or gets this reply.
    Ready(Result<Admitted, Box<Reply>>),
    /// The door has to ask somebody first.
    Pending(LocalFuture<'a, Result<Admitted, Box<Reply>>>),
    /// Nothing in the head speaks against the request: the door judges again when the message has
    /// its body. Only doors that say [`Door::reads_body`] give this, and only while the body of
    /// [`RequestHead::message`] is unread or there is no message.
    NeedsBody,
}

impl Judgement<'_> {
    /// Waits for the end; `None` when the body has to be read first.
    ///
    /// # Errors
    /// The reply of a request that may not come in.
    pub async fn end(self) -> Result<Option<Admitted>, Box<Reply>> {
        match self {
            Self::Ready(result) => result.map(Some),
            Self::Pending(future) => future.await.map(Some),
            Self::NeedsBody => Ok(None),
        }
    }
}

/// What stands in front of a flow or a topic. One value serves all workers.
pub trait Door: Send + Sync {
    /// Judges a request by its head, and by its body when that is in the message. Dropping a
    /// pending judgement leaves nothing behind.
    fn judge<'a>(&'a self, head: RequestHead<'a>, services: &'a dyn Services) -> Judgement<'a>;

    /// Whether it needs [`RequestHead::message`].
    fn needs_message(&self) -> bool {
        false
    }

    /// Whether it judges some requests by their bodies. What stands behind it must be on the
    /// message path, for the forward path reads no bodies.
    fn reads_body(&self) -> bool {
        false
    }

    /// The parameters of the query that carry credentials: logs must not show them.
    fn secret_parameters(&self) -> &[Arc<str>] {
        &[]
    }

    /// Pages that have to be served on each listener with this door, in front of which there is
    /// none, such as the one that a login comes back to.
    fn pages(&self) -> Vec<AccessPage> {
        Vec::new()
    }
}

/// A page that a way to know a caller has on a listener.
#[derive(Clone)]
pub struct AccessPage {
    /// The way that it belongs to. Its pages are the same on all doors.
    pub way: Arc<str>,
    /// The methods that it takes.
    pub methods: Methods,
    /// Its path, of literals only.
    pub path: PathPattern,
    /// Who takes its requests.
    pub handler: Arc<dyn Handler>,
    /// The most bytes of a body.
    pub body_max: u64,
    /// Where it is written.
    pub span: Span,
}

/// What a door may know of its surroundings while it is built.
pub struct DoorContext<'a> {
    /// Where problems go.
    pub report: &'a mut Report,
    /// What it stands in front of, such as `flow orders`.
    pub name: &'a str,
    /// What its expressions may use.
    pub evaluation: &'a Evaluation,
}

/// The ways to know a caller, by their names.
pub trait Ways: Send + Sync {
    /// Makes the door that an `auth:` describes: `None` when it is `none`, and when there was a
    /// problem, which is reported.
    fn door(&self, auth: &Node, context: &mut DoorContext<'_>) -> Option<Arc<dyn Door>>;

    /// What the ways do by themselves, such as fetching keys.
    fn sources(&self) -> Vec<SourcePlan> {
        Vec::new()
    }

    /// The systems that they ask.
    fn upstreams(&self) -> Vec<Arc<UpstreamPlan>> {
        Vec::new()
    }
}

/// No ways, for tests: doors are left out.
#[derive(Debug)]
pub struct NoWays;

impl Ways for NoWays {
    fn door(&self, _: &Node, _: &mut DoorContext<'_>) -> Option<Arc<dyn Door>> {
        None
    }
}

/// How ways are read, so that loader, schema and reference pages read the same table.
#[derive(Clone, Copy)]
pub struct AccessDefinition {
    /// Prose for the reference page, in Markdown.
    pub documentation: &'static str,
    /// Complete flow files that show it; a test loads them.
    pub example: &'static str,
    /// The JSON Schema of the value under `engine.auth`.
    pub ways: fn() -> serde_json::Value,
    /// The JSON Schema of the value under `auth` of flows and topics.
    pub auth: fn() -> serde_json::Value,
    /// Reads the value under `engine.auth`, if there is one. Every problem goes into the report.
    /// Opens nothing but the files that it names.
    pub build: fn(Option<&Node>, &Surroundings<'_>, &mut Report) -> Arc<dyn Ways>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_taken_out_and_others_stay() {
        for (cookies, expected) in [
            ("s=1", None),
            ("a=1; s=2; b=3", Some("a=1; b=3")),
            (" s =2;a=1", Some("a=1")),
            ("s=1; s=2; ss=3", Some("ss=3")),
        ] {
            let rest = cookies_without(cookies.as_bytes(), "s");
            assert_eq!(rest.as_deref(), expected.map(str::as_bytes), "{cookies}");
        }
    }

    #[test]
    fn a_parameter_is_taken_out_however_its_name_is_spelt() {
        for (query, expected) in [
            ("key=1", None),
            ("a=1&key=2&b=3", Some("a=1&b=3")),
            ("k%65y=2&b", Some("b")),
            ("key&key=2&keys=1", Some("keys=1")),
            ("", Some("")),
        ] {
            assert_eq!(
                without_parameter(query, "key").as_deref(),
                expected,
                "{query}"
            );
        }
    }
}
