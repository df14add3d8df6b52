//! What a client meets between the router and the route's target, where the route or the listener
//! says anything: networks, preflight requests, the origins of WebSocket handshakes; and the fields
//! that replies get for it. Nothing here runs for listeners that say nothing, and next to nothing
//! for routes beside others that do.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use component::audit::{Audit, Origin as AuditOrigin, Refusal};
use component::cors::{self, CorsPolicy, Preflight, ReplyField, is_same_origin};
use component::edge::RouteEdge;
use component::egress::loops;
use component::forward::FieldEdits;
use component::security_headers::SecurityHeaders;
use component::trusted_proxies::TrustedProxies;
use message::{Fault, Headers, HeadersView, Kind, Method, Origin, Reply};

use crate::router::{Captures, Found, Route, Table, Target};
use crate::upstream::request_head;

/// The head of a request, as far as it matters here.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub method: &'a Method,
    /// The path that is routed.
    pub path: &'a [u8],
    pub query: Option<&'a [u8]>,
    pub headers: HeadersView<'a>,
    pub peer: IpAddr,
    /// Whether it came over TLS.
    pub is_secure: bool,
    /// Whether it is a WebSocket handshake.
    pub upgrades: bool,
    pub proxies: Option<&'a TrustedProxies>,
    /// Told about requests that are refused.
    pub audit: &'a Audit,
}

/// What has come of it.
pub(crate) struct Entered {
    /// The route; for a preflight request that of the request to come.
    pub found: Found,
    /// The reply, when the request goes no further.
    pub answer: Option<Reply>,
    /// What all replies to it get.
    pub fields: Option<Box<ReplyFields>>,
}

/// Looks at a request that has been routed. `listener` is what holds where a route says nothing.
pub(crate) fn enter(
    (table, listener): (&Table, &RouteEdge),
    found: Found,
    asked: Asked<'_>,
) -> Entered {
    if let Some(id) = table.loop_id()
        && let Err(fault) = loops::check(id, asked.headers)
    {
        let origin = asked.headers.get("Origin");
        return Entered {
            found,
            answer: Some(fault.to_reply()),
            fields: ReplyFields::of(listener, origin, asked.is_secure),
        };
    }
    if *asked.method == Method::Options
        && let Some(preflight) = Preflight::of(asked.headers)
        && let Some(entered) = answer_preflight((table, listener), preflight, asked)
    {
        return entered;
    }
    let own = match &found {
        Found::Route(route) => edge_of(route, asked),
        _ => None,
    };
    let edge = own.as_deref().unwrap_or(listener);
    let mut answer = None;
    if edge.is_empty() {
        return Entered {
            found,
            answer,
            fields: None,
        };
    }
    if let Found::Route(route) = &found {
        let refusal =
            refuse_network(edge, route, asked).or_else(|| refuse_page(route, edge, asked));
        answer = refusal.map(|fault| fault.to_reply());
    }
    let origin = asked.headers.get("Origin");
    Entered {
        found,
        answer,
        fields: ReplyFields::of(edge, origin, asked.is_secure),
    }
}

/// What replies get that refuse a malformed request. Its fields may not be known.
pub(crate) fn of_refused(
    table: &Table,
    headers: Option<HeadersView<'_>>,
    is_secure: bool,
) -> Option<Box<ReplyFields>> {
    let origin = headers.and_then(|headers| headers.get("Origin"));
    ReplyFields::of(table.edge()?, origin, is_secure)
}

/// What holds for a request of a route.
fn edge_of(route: &Route, asked: Asked<'_>) -> Option<Arc<RouteEdge>> {
    if let Target::Handle { handler, .. } = &route.target
        && handler.shares().is_some()
    {
        let text = |bytes| String::from_utf8_lossy(bytes);
        let query = asked.query.map(text);
        return handler.edge(&text(asked.path), query.as_deref());
    }
    route.edge.clone()
}

/// The reply to a preflight request, when the route of the request to come has a policy. It comes
/// before credentials are asked for: browsers send none with it (Fetch standard, section 3.2.2).
fn answer_preflight(
    (table, listener): (&Table, &RouteEdge),
    preflight: Preflight<'_>,
    asked: Asked<'_>,
) -> Option<Entered> {
    let method = Method::from_token(std::str::from_utf8(preflight.method).ok()?);
    let found = table.find(&method, asked.path, &mut Captures::new());
    let Found::Route(route) = &found else {
        return None;
    };
    let own = edge_of(route, asked);
    let edge = own.as_deref().unwrap_or(listener);
    let policy = edge.cors.as_deref()?;
    let (answer, origin) = match refuse_network(edge, route, asked) {
        Some(fault) => (fault.to_reply(), Some(preflight.origin)),
        None => {
            let mut reply = Reply::new(204);
            let methods = route.allowed_methods(&method);
            reply.headers = policy.preflight_fields(preflight, &methods);
            return Some(Entered {
                fields: ReplyFields::without_cors(edge, asked.is_secure),
                answer: Some(reply),
                found,
            });
        }
    };
    Some(Entered {
        fields: ReplyFields::of(edge, origin, asked.is_secure),
        answer: Some(answer),
        found,
    })
}

/// Refuses a client that may not come from where it is.
fn refuse_network(edge: &RouteEdge, route: &Route, asked: Asked<'_>) -> Option<Fault> {
    if edge.networks.is_empty() {
        return None;
    }
    let (client, is_proxied) = request_head::client(asked.proxies, asked.peer, asked.headers);
    if edge.networks.iter().all(|networks| networks.admits(client)) {
        return None;
    }
    let from = (client, is_proxied.then_some(asked.peer));
    audit(
        "network",
        403,
        (from, &format!("route {}", route.flow)),
        asked,
    );
    let detail = "requests from this address are not allowed";
    Some(Fault::new(Kind::Forbidden, Origin::Client, detail))
}

/// Tells the audit stream about a path that is refused because it could mean that of a locked
/// route.
#[cold]
pub(crate) fn audit_path(asked: Asked<'_>) {
    let (client, is_proxied) = request_head::client(asked.proxies, asked.peer, asked.headers);
    let from = (client, is_proxied.then_some(asked.peer));
    audit("path", 400, (from, "listener"), asked);
}

/// Tells the audit stream about a request that is refused.
#[cold]
fn audit(
    reason: &str,
    status: u16,
    ((client, proxy), target): ((IpAddr, Option<IpAddr>), &str),
    asked: Asked<'_>,
) {
    let refusal = Refusal {
        way: None,
        id: None,
        reason,
        status: Some(status),
        target,
    };
    asked.audit.refused(&refusal, || {
        let origin = AuditOrigin::of_address(client).with_proxy(proxy);
        origin.with_request(asked.method.as_str(), asked.path, asked.headers)
    });
}

/// Refuses WebSocket handshakes of pages that may not read replies. Browsers do not ask before they
/// open one, and send the user's cookies (RFC 6455, section 10.2), so the server has to look.
fn refuse_page(route: &Rc<Route>, edge: &RouteEdge, asked: Asked<'_>) -> Option<Fault> {
    let policy = edge.cors.as_deref().filter(|_| asked.upgrades)?;
    let origin = asked.headers.get("Origin")?;
    if let Target::Handle { handler, .. } = &route.target
        && handler.checks_origin()
    {
        return None;
    }
    let (client, is_behind_proxy) = request_head::client(asked.proxies, asked.peer, asked.headers);
    let is_own = is_same_origin(asked.headers, asked.is_secure, is_behind_proxy);
    if is_own || policy.allows(origin) {
        return None;
    }
    let from = (client, is_behind_proxy.then_some(asked.peer));
    audit(
        "origin",
        403,
        (from, &format!("route {}", route.flow)),
        asked,
    );
    let detail = "pages of this origin may not connect";
    Some(Fault::new(Kind::Forbidden, Origin::Client, detail))
}

/// The fields that replies to one request get.
#[derive(Debug)]
pub(crate) struct ReplyFields {
    /// Those of CORS, when there is a policy: then others' are dropped.
    cors: Option<Vec<ReplyField>>,
    /// Whether replies depend on the origin.
    varies: bool,
    security: Option<Arc<SecurityHeaders>>,
    is_secure: bool,
}

impl ReplyFields {
    fn of(edge: &RouteEdge, origin: Option<&[u8]>, is_secure: bool) -> Option<Box<Self>> {
        let policy = edge.cors.as_deref();
        let cors = policy.map(|policy: &CorsPolicy| policy.reply_fields(origin));
        Self::new(cors, edge, is_secure)
    }

    /// For a reply that has its fields of CORS.
    fn without_cors(edge: &RouteEdge, is_secure: bool) -> Option<Box<Self>> {
        Self::new(None, edge, is_secure)
    }

    fn new(
        cors: Option<(Vec<ReplyField>, bool)>,
        edge: &RouteEdge,
        is_secure: bool,
    ) -> Option<Box<Self>> {
        if cors.is_none() && edge.security_headers.is_none() {
            return None;
        }
        let (cors, varies) = cors.map_or((None, false), |(fields, varies)| (Some(fields), varies));
        Some(Box::new(Self {
            cors,
            varies,
            security: edge.security_headers.clone(),
            is_secure,
        }))
    }

    /// A reply of our own with them.
    pub fn put_on(&self, reply: &Reply) -> Reply {
        let mut reply = reply.clone();
        self.put_into(&mut reply.headers);
        reply
    }

    /// Puts them into the head of a reply of our own.
    pub fn put_into(&self, headers: &mut Headers) {
        if let Some(fields) = &self.cors {
            for name in cors::FIELDS {
                headers.remove(name);
            }
            for (name, value) in fields {
                headers.append(name, value);
            }
        }
        if self.varies && !depends_on_origin(headers.view()) {
            headers.append("Vary", "Origin");
        }
        for (name, value) in self.security() {
            if self.replaces() || headers.get(name).is_none() {
                headers.set(name, value);
            }
        }
    }

    /// The changes to a reply that is relayed: those of the plan, then these.
    pub fn edits(&self, plan: &FieldEdits, relayed: HeadersView<'_>) -> FieldEdits {
        let mut edits = plan.clone();
        if let Some(fields) = &self.cors {
            let is_cors = |name: &str| cors::FIELDS.iter().any(|it| it.eq_ignore_ascii_case(name));
            edits.set.retain(|(name, _)| !is_cors(name));
            edits.remove.extend(cors::FIELDS.map(str::to_owned));
            for (name, value) in fields {
                // An origin that is allowed is ASCII, as is all that a file may say.
                let value = String::from_utf8_lossy(value).into_owned();
                edits.set.push(((*name).to_owned(), value));
            }
        }
        if self.varies {
            vary(&mut edits, plan, relayed);
        }
        for (name, value) in self.security() {
            let is_same = |(known, _): &(String, String)| known.eq_ignore_ascii_case(name);
            let comes = relayed.get(name).is_some() && !plan.drops(name.as_bytes());
            let is_set = comes || plan.set.iter().any(is_same);
            if self.replaces() || !is_set {
                edits.set.retain(|it| !is_same(it));
                edits.set.push((name.to_owned(), value.to_owned()));
            }
        }
        edits
    }

    fn security(&self) -> impl Iterator<Item = (&str, &str)> {
        let headers = self.security.iter();
        headers.flat_map(|headers| headers.fields(self.is_secure))
    }

    fn replaces(&self) -> bool {
        self.security.as_ref().is_some_and(|it| it.replaces)
    }
}

/// Has a relayed reply say that it depends on the origin, beside what it says already.
fn vary(edits: &mut FieldEdits, plan: &FieldEdits, relayed: HeadersView<'_>) {
    let mut all: Vec<String> = Vec::new();
    if plan.drops(b"vary") {
        let set = plan.set.iter().filter(|(name, _)| is_vary(name.as_bytes()));
        all.extend(set.map(|(_, value)| value.clone()));
    } else {
        let lines = relayed.iter().filter(|(_, name, _)| is_vary(name));
        all.extend(lines.map(|(_, _, value)| String::from_utf8_lossy(value).into_owned()));
    }
    if all.iter().any(|value| names_origin(value.as_bytes())) {
        return;
    }
    all.retain(|value| !value.is_empty());
    all.push("Origin".to_owned());
    edits.set.retain(|(name, _)| !is_vary(name.as_bytes()));
    edits.set.push(("Vary".to_owned(), all.join(", ")));
}

/// Whether a reply says that it depends on the origin.
fn depends_on_origin(headers: HeadersView<'_>) -> bool {
    let mut vary = headers.iter().filter(|(_, name, _)| is_vary(name));
    vary.any(|(_, _, value)| names_origin(value))
}

fn is_vary(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"vary")
}

/// Whether a `Vary` says that a reply depends on the origin, or on anything at all.
fn names_origin(value: &[u8]) -> bool {
    let mut names = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"origin"))
}

#[cfg(test)]
mod tests;
