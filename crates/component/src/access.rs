//! Access control as the data path sees it: a door stands in front of a flow or a topic, looks at
//! the head of each request, and lets it in with its caller or answers it. What a door goes by is
//! its own matter (the crate `auth`).

mod ticket;
mod validity;

use std::net::IpAddr;
use std::sync::{Arc, LazyLock, OnceLock};

use config::{Node, Report, Span};
use expr::Value;
use message::{ClientCertificate, Fault, Headers, HeadersView, Kind, Origin, Reply, Request};

pub use self::ticket::{
    TICKET_COOKIE, TICKET_PARAMETER, TicketHandler, TicketTarget, drop_ticket_cookie,
    has_ticket_cookie, note_ticket_door, tickets_of,
};
use crate::cookies;
use crate::definition::Surroundings;
use crate::evaluation::Evaluation;
use crate::handler::{Handler, LocalFuture, Services};
use crate::identity::{Identities, SignedToken, SignedTokens};
use crate::source::SourcePlan;
use crate::trigger::{Methods, PathPattern};
use crate::upstream::UpstreamPlan;

pub use validity::{Revocable, Validity, notify_streams, revocations};

/// Makes the claims of a caller when they are first asked for.
type MakeClaims = Box<dyn FnOnce() -> Value + Send>;

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
    /// What may revoke the credential, if anything does.
    pub revocable: Option<Arc<dyn Revocable>>,
    /// Whether the id has no control characters. It is looked at for each request, and the id lies
    /// elsewhere in memory.
    is_printable: bool,
    /// Everything that the credential claims: a JSON object.
    claims: LazyLock<Value, MakeClaims>,
    /// What `$auth` shows, made when an expression first asks for it.
    value: OnceLock<Value>,
    /// What tells other systems who it is.
    signed: SignedTokens,
}

impl Caller {
    /// A caller without scopes and plan, whose credential does not expire.
    #[must_use]
    pub fn new(way: &Arc<str>, id: impl Into<Arc<str>>, claims: Value) -> Self {
        Self::with_lazy_claims(way, id, move || claims)
    }

    /// The same with claims that are made when they are first asked for. Most flows never ask.
    #[must_use]
    pub fn with_lazy_claims(
        way: &Arc<str>,
        id: impl Into<Arc<str>>,
        claims: impl FnOnce() -> Value + Send + 'static,
    ) -> Self {
        let id = id.into();
        Self {
            way: Arc::clone(way),
            is_printable: !id.chars().any(char::is_control),
            id,
            scopes: Vec::new(),
            plan: None,
            expires: None,
            revocable: None,
            claims: LazyLock::new(Box::new(claims)),
            value: OnceLock::new(),
            signed: SignedTokens::default(),
        }
    }

    /// The caller of a request, when a door has found out who it is.
    #[must_use]
    pub fn of(request: &Request) -> Option<&Self> {
        request.caller.as_deref()?.downcast_ref()
    }

    /// Whether the id may stand in logs and headers: a line break would make something else of
    /// them.
    #[must_use]
    pub fn is_printable(&self) -> bool {
        self.is_printable
    }

    /// Everything that the credential claims: a JSON object.
    #[must_use]
    pub fn claims(&self) -> &Value {
        &self.claims
    }

    /// The token that this signer has signed for the caller, or a new one.
    ///
    /// # Errors
    /// Those of signing.
    pub fn signed_token(
        &self,
        signer: u64,
        now: u64,
        sign: impl FnOnce() -> Result<SignedToken, Fault>,
    ) -> Result<Arc<str>, Fault> {
        self.signed.get(signer, now, sign)
    }

    /// A claim that is a text.
    #[must_use]
    pub fn claim(&self, name: &str) -> Option<&str> {
        expr::value::as_text(expr::value::get(&self.claims, name)?)
    }

    /// A claim that is a time in seconds since 1970; parts of a second are left out.
    #[must_use]
    pub fn seconds(&self, name: &str) -> Option<u64> {
        let number = expr::value::scalar_text(expr::value::get(&self.claims, name)?)?;
        let whole = number.split('.').next().unwrap_or_default();
        whole.parse().ok()
    }

    /// Whether the credential has been denied although it is good, by the time of day in seconds
    /// since 1970 that `now` gives.
    #[must_use]
    pub fn is_denied(&self, now: &dyn Fn() -> u64) -> bool {
        let revocable = self.revocable.as_ref();
        revocable.is_some_and(|it| it.is_denied(self, now))
    }

    /// How long a stream may go on that is about to be opened; `None`: the credential neither
    /// expires nor can be revoked.
    #[must_use]
    pub fn validity(&self) -> Option<Arc<Validity>> {
        match &self.revocable {
            Some(revocable) => Some(revocable.validity(self)),
            None => self.expires.map(|it| Arc::new(Validity::new(Some(it)))),
        }
    }

    /// What tells this caller from every other one, whatever their names: for keys of what is done
    /// or kept for each caller.
    ///
    /// # Errors
    /// `forbidden` when the way does not say who it is, as `ask` may not: it would be taken for
    /// somebody else.
    pub fn scope(&self) -> Result<String, Fault> {
        let Self { way, id, .. } = self;
        if id.is_empty() {
            let detail =
                "the caller has no name, by which its keys could be told from those of others";
            return Err(Fault::new(Kind::Forbidden, Origin::Client, detail));
        }
        Ok(format!("{}:{way}{}:{id}", way.len(), id.len()))
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
                member("claims", (*self.claims).clone()),
            ])
        })
    }
}

/// The head of a request, wherever it lies.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, percent-encoded, without the query.
    pub path: &'a [u8],
    /// The query as it was sent, without the `?`.
    pub query: Option<&'a [u8]>,
    /// The header fields.
    pub headers: HeadersView<'a>,
    /// The address of the client: what a trusted proxy says, else who is connected.
    pub peer: IpAddr,
    /// The trusted proxy that is connected, if one is: what the fields say of the request's way is
    /// true then.
    pub proxy: Option<IpAddr>,
    /// Whether it came over TLS.
    pub is_secure: bool,
    /// The certificate that the client has shown.
    pub certificate: Option<&'a Arc<ClientCertificate>>,
    /// The request as a message; always there for doors that say [`Door::needs_message`].
    pub message: Option<&'a Request>,
}

impl<'a> RequestHead<'a> {
    /// The head of a message.
    #[must_use]
    pub fn of(request: &'a Request) -> Self {
        Self {
            method: request.method.as_str(),
            path: request.path.as_bytes(),
            query: request.query.as_deref().map(str::as_bytes),
            headers: request.headers.view(),
            peer: request.peer,
            proxy: request.proxy,
            is_secure: request.is_secure,
            certificate: request.certificate.as_ref(),
            message: Some(request),
        }
    }
}

/// Where a credential stood, so that it can be taken out of what is forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialLocation {
    /// In `Authorization`.
    Authorization,
    /// In the header field of this name, in lower case, which is another one.
    Field(Arc<str>),
    /// In the parameter of the query of this name.
    Query(Arc<str>),
    /// In the cookie of this name.
    Cookie(Arc<str>),
    /// In `Authorization`, with its proof in `DPoP` (RFC 9449).
    Dpop,
    /// Behind the subprotocol `bearer` of a WebSocket handshake.
    Subprotocol,
    /// In the parameter [`TICKET_PARAMETER`], the cookie [`TICKET_COOKIE`], or both.
    Ticket,
}

impl CredentialLocation {
    /// The names of the fields with a proof of possession and its token.
    pub const DPOP_FIELDS: [&'static str; 2] = ["authorization", "dpop"];

    /// Takes out of a message what stands there.
    fn clear(&self, request: &mut Request) {
        match self {
            Self::Authorization => request.headers.remove("authorization"),
            Self::Field(name) => request.headers.remove(name),
            Self::Query(name) => remove_parameter(request, name),
            Self::Cookie(name) => request.headers = cookies::without(&request.headers, name),
            Self::Dpop => {
                for name in Self::DPOP_FIELDS {
                    request.headers.remove(name);
                }
            }
            Self::Subprotocol => remove_subprotocol_token(&mut request.headers),
            Self::Ticket => {
                remove_parameter(request, TICKET_PARAMETER);
                request.headers = cookies::without(&request.headers, TICKET_COOKIE);
            }
        }
    }
}

/// A field of a reply, its name in lower case.
pub type ReplyField<T = String> = (&'static str, T);

/// A request that may come in.
#[derive(Debug)]
pub struct Admitted {
    /// Who has sent it.
    pub caller: Arc<Caller>,
    /// The credential, when it must not go further than the door.
    pub strip: Option<CredentialLocation>,
    /// Other credentials of the door that browsers send along by themselves: they go no further
    /// either.
    pub implied: Option<Arc<[CredentialLocation]>>,
    /// What wants to know how the request ends; only of judgements that have seen the body.
    pub settlement: Option<Settlement>,
    /// What the reply gets: the cookie that stands for a used ticket, the subprotocol that stood
    /// before a token, unless the reply has one, and [`KEEP_PRIVATE`], unless it says as much.
    pub reply_fields: Vec<ReplyField>,
    /// What stands for the ticket that this request has used up, as a value of `Cookie`.
    pub successor: Option<Box<str>>,
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
            CredentialLocation::Field(name) => Some(name),
            CredentialLocation::Authorization | CredentialLocation::Dpop => Some("authorization"),
            // Nobody says which of the cookies is meant.
            CredentialLocation::Cookie(_) => Some("cookie"),
            CredentialLocation::Query(_)
            | CredentialLocation::Subprotocol
            | CredentialLocation::Ticket => None,
        }
    }

    /// Takes the credential out of a message and notes who has sent it.
    pub fn enter(&self, request: &mut Request) {
        for place in self
            .strip
            .iter()
            .chain(self.implied.iter().flat_map(|it| &**it))
        {
            place.clear(request);
        }
        request.caller = Some(Arc::clone(&self.caller) as _);
    }

    /// Has caches that others share not keep the reply.
    pub fn keep_private(&mut self) {
        let (name, value) = KEEP_PRIVATE;
        self.reply_fields.push((name, value.to_owned()));
    }

    /// Makes of a request that has used up a ticket one that can be judged again.
    pub fn replace_ticket(&self, request: &mut Request) {
        if let Some(successor) = &self.successor {
            CredentialLocation::Ticket.clear(request);
            request.headers.append("Cookie", &**successor);
        }
    }
}

fn remove_parameter(request: &mut Request, name: &str) {
    let query = request.query.take();
    request.query = query.and_then(|query| without_parameter(&query, name));
}

/// The field with subprotocols (RFC 6455, section 11.3.4), in lower case.
pub const SUBPROTOCOL_FIELD: &str = "sec-websocket-protocol";

/// The field that tells caches what they may keep, in lower case.
pub const CACHE_FIELD: &str = "cache-control";

/// What replies say to caches that others share when the credential of the request is nothing that
/// caches know for one (RFC 6750, section 2.3).
pub const KEEP_PRIVATE: ReplyField<&str> = (CACHE_FIELD, "private");

/// Whether a reply with these fields is for the caches of its client alone, or for none (RFC 9111,
/// sections 5.2.2.5 and 5.2.2.7).
#[must_use]
pub fn is_kept_private(fields: HeadersView<'_>) -> bool {
    let lines = fields.iter();
    let mut lines = lines.filter(|it| it.1.eq_ignore_ascii_case(CACHE_FIELD.as_bytes()));
    lines.any(|(_, _, value)| {
        let mut directives = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        // `private="NAME"` is about one field only.
        directives
            .any(|it| it.eq_ignore_ascii_case(b"private") || it.eq_ignore_ascii_case(b"no-store"))
    })
}

/// The subprotocol whose next one is a token, in offers such as `bearer, TOKEN`. The reply names it
/// when no other is chosen: browsers close a connection whose reply has none of those offered.
pub const TOKEN_SUBPROTOCOL: &str = "bearer";

/// Takes `bearer, TOKEN` out of the subprotocols; the others stay.
fn remove_subprotocol_token(headers: &mut Headers) {
    let lines: Vec<Vec<u8>> = {
        let view = headers.view();
        let is_it = |name: &[u8]| name.eq_ignore_ascii_case(SUBPROTOCOL_FIELD.as_bytes());
        let lines = view.iter().filter(|it| is_it(it.1));
        lines.map(|it| it.2.to_vec()).collect()
    };
    headers.remove(SUBPROTOCOL_FIELD);
    for line in lines {
        let mut others: Vec<&[u8]> = Vec::new();
        let mut names = line.split(|it| *it == b',').map(<[u8]>::trim_ascii);
        while let Some(name) = names.next() {
            match name == TOKEN_SUBPROTOCOL.as_bytes() {
                true => drop(names.next()),
                false => others.push(name),
            }
        }
        if !others.is_empty() {
            headers.append("Sec-WebSocket-Protocol", others.join(&b", "[..]));
        }
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
    /// Whether it may know credentials from the head alone that it has found good before: to ask it
    /// to [`recall`](Self::recall) costs something.
    fn recalls(&self) -> bool {
        false
    }

    /// Judges a request whose credential it has found good before, without the work that this
    /// saves. `None`: it has to [judge](Self::judge) the request, and nothing has been noted of it.
    fn recall(
        &self,
        _head: RequestHead<'_>,
        _services: &dyn Services,
    ) -> Option<Result<Admitted, Box<Reply>>> {
        None
    }

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

    /// Whether it may want a proof with the credential that is good for one judgement: a request
    /// that is judged again is refused then.
    fn judges_once(&self) -> bool {
        false
    }

    /// Whether it may know a caller by the certificate that its client has shown: a listener that
    /// asks for none, and believes nobody who says which, would let no such caller in.
    fn reads_certificate(&self) -> bool {
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

    /// The names of the ways by which it knows callers.
    fn way_names(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// Whether whoever reads a request on its way can use the credential for another one, as
    /// tokens, keys and passwords are.
    fn takes_secrets(&self) -> bool {
        false
    }

    /// Judges a message whose caller is known already, or is nobody, as in tests of flows: whether
    /// it is known by one of the ways, and may do this.
    ///
    /// # Errors
    /// The reply to whoever may not come in.
    fn judge_known(&self, _: &Request, _: &dyn Services) -> Result<(), Box<Reply>> {
        Ok(())
    }

    /// Whether it takes out more than lines, cookies and parameters, such as a token among
    /// subprotocols, or takes tickets: what stands behind it must be on the message path.
    fn rewrites_fields(&self) -> bool {
        false
    }

    /// Whether it gives tickets.
    fn gives_tickets(&self) -> bool {
        false
    }

    /// The name of the first way that passes a credential on for which there could be a ticket:
    /// what is behind the door would miss it then.
    fn passing_way(&self) -> Option<&Arc<str>> {
        None
    }

    /// Gives a ticket to whoever would be let in: the reply is JSON. `head` is that of the request
    /// that the ticket is for, with its message.
    ///
    /// # Errors
    /// The reply of one who may not come in.
    fn ticket<'a>(
        &'a self,
        _head: RequestHead<'a>,
        _services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Box<Reply>, Box<Reply>>> {
        Box::pin(std::future::ready(Err(ticket::none_here())))
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
    /// Where it takes tickets, if it does.
    pub tickets: Option<TicketTarget>,
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

    /// What tells systems behind flows who a caller is, if anything does.
    fn identities(&self) -> Option<&dyn Identities> {
        None
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
    /// The JSON Schema of the value under `engine.deny`.
    pub deny: fn() -> serde_json::Value,
    /// The JSON Schema of the value under `engine.identity`.
    pub identity: fn() -> serde_json::Value,
    /// The JSON Schema of the value under `auth` of flows and topics.
    pub auth: fn() -> serde_json::Value,
    /// Reads the settings of access control. Every problem goes into the report. Opens nothing but
    /// the files that they name.
    pub build: fn(AccessNodes<'_>, &Surroundings<'_>, &mut Report) -> Arc<dyn Ways>,
}

/// The settings of access control in the `engine:` document.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessNodes<'a> {
    /// The value under `auth`.
    pub ways: Option<&'a Node>,
    /// The value under `deny`.
    pub deny: Option<&'a Node>,
    /// The value under `identity`.
    pub identity: Option<&'a Node>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_have_different_scopes() {
        let caller = |way: &str, id: &str| Caller::new(&way.into(), id, Value::Null).scope();
        let scopes = [
            ("a", "b1:c"),
            ("a1:b", "c"),
            ("ab", "1:c"),
            ("a", "b"),
            ("b", "a"),
        ];
        let mut scopes = scopes.map(|(way, id)| caller(way, id).unwrap()).to_vec();
        scopes.sort();
        scopes.dedup();
        assert_eq!(scopes.len(), 5);
        assert_eq!(caller("ask", "").unwrap_err().kind, Kind::Forbidden);
    }

    #[test]
    fn replies_that_no_shared_cache_keeps_are_known() {
        for (lines, expected) in [
            (&[][..], false),
            (&["private"], true),
            (&["max-age=60, Private"], true),
            (&["max-age=60", "no-store"], true),
            (&["public, max-age=60"], false),
            (&["no-cache"], false),
            (&["private=\"set-cookie\""], false),
            (&["privately"], false),
        ] {
            let mut headers = Headers::new();
            for line in lines {
                headers.append("Cache-Control", line);
            }
            assert_eq!(is_kept_private(headers.view()), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_token_is_taken_out_of_the_subprotocols() {
        for (value, expected) in [
            ("bearer, a.b.c", None),
            ("chat, bearer,a.b.c , v2", Some("chat, v2")),
            ("Bearer, v2", Some("Bearer, v2")),
            ("bearer", None),
            ("chat", Some("chat")),
        ] {
            let mut headers = Headers::new();
            headers.append("Sec-WebSocket-Protocol", value);
            remove_subprotocol_token(&mut headers);
            let left = headers.get("Sec-WebSocket-Protocol");
            assert_eq!(left, expected.map(str::as_bytes), "{value}");
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
