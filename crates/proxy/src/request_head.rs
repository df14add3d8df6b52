//! Writes the head of a forwarded request: the target's address and path, the client's fields
//! without those of its own connection, and what a proxy adds.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use component::forward::{ForwardPlan, HostField};
use message::{Field, HeadersView, Method, Request};
use net::http1::{ConnectionOptions, Framing};

use crate::upstream::Upstream;
use crate::upstreams::Upstreams;

/// A forward plan as one worker uses it, with everything rendered that never changes.
pub(crate) struct ForwardTarget {
    /// The plan.
    pub plan: Arc<ForwardPlan>,
    /// The system it goes to.
    pub upstream: Rc<Upstream>,
    host_line: Option<Vec<u8>>,
    /// Lines behind the client's fields.
    tail: Vec<u8>,
}

impl ForwardTarget {
    pub fn new(plan: &Arc<ForwardPlan>, pool: &Upstreams) -> Self {
        Self::over(plan, pool.get(&plan.upstream))
    }

    /// The same over an upstream that is there already.
    pub fn over(plan: &Arc<ForwardPlan>, upstream: Rc<Upstream>) -> Self {
        let host = match &plan.host_field {
            HostField::Target => Some(plan.upstream.authority()),
            HostField::Fixed(host) => Some(host.clone()),
            HostField::Keep => None,
        };
        let mut tail = Vec::new();
        if let Some(name) = &plan.via {
            line(&mut tail, b"Via", &[b"1.1 ", name.as_bytes()]);
        }
        for (name, value) in &plan.request_fields.set {
            line(&mut tail, name.as_bytes(), &[value.as_bytes()]);
        }
        Self {
            plan: Arc::clone(plan),
            upstream,
            host_line: host.map(|host| format!("Host: {host}\r\n").into_bytes()),
            tail,
        }
    }
}

/// The request that is forwarded, wherever its parts lie.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub method: &'a Method,
    pub query: Option<&'a [u8]>,
    /// What the route's `*` matched.
    pub rest: Option<&'a [u8]>,
    pub headers: HeadersView<'a>,
    /// What the client said about its connection, and the bytes its places lie in.
    pub connection: Option<(&'a ConnectionOptions, &'a [u8])>,
    pub framing: Framing,
    /// Whether the upgrade to WebSocket is passed on.
    pub upgrades: bool,
    pub peer: IpAddr,
    /// Whether it came over TLS.
    pub is_secure: bool,
}

impl<'a> Outgoing<'a> {
    /// A request that a flow has worked on.
    pub fn of_message(request: &'a Request, framing: Framing) -> Self {
        let rest = request
            .parameters
            .iter()
            .find(|(name, _)| **name == *"rest");
        Self {
            method: &request.method,
            query: request.query.as_ref().map(|query| query.as_bytes()),
            rest: rest.map(|(_, rest)| rest.as_bytes()),
            headers: request.headers.view(),
            connection: None,
            framing,
            upgrades: false,
            peer: request.peer,
            is_secure: request.is_secure,
        }
    }
}

/// Appends the whole head, empty line included.
pub(crate) fn write(target: &ForwardTarget, request: &Outgoing<'_>, out: &mut Vec<u8>) {
    let plan = &*target.plan;
    let method = plan.method.as_ref().unwrap_or(request.method);
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    write_path(plan, request, out);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    match (&target.host_line, request.headers.first(Field::Host)) {
        (Some(rendered), _) => out.extend_from_slice(rendered),
        (None, Some(host)) => line(out, b"Host", &[host]),
        (None, None) => line(out, b"Host", &[plan.upstream.authority().as_bytes()]),
    }
    write_fields(plan, request, out);
    write_framing(request.framing, method, out);
    if plan.x_forwarded {
        write_x_forwarded(request, out);
    }
    if plan.forwarded {
        write_forwarded(request, out);
    }
    if request.upgrades {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
    }
    out.extend_from_slice(&target.tail);
    out.extend_from_slice(b"\r\n");
}

fn write_path(plan: &ForwardPlan, request: &Outgoing<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(plan.path.as_bytes());
    if let Some(rest) = request.rest.filter(|_| plan.appends_rest) {
        if !plan.path.ends_with('/') {
            out.push(b'/');
        }
        out.extend_from_slice(rest);
    }
    let mut separator = b'?';
    let own = plan.query.as_ref().map(|query| query.as_bytes());
    for query in [own, request.query].into_iter().flatten() {
        out.push(separator);
        out.extend_from_slice(query);
        separator = b'&';
    }
}

/// The client's fields that go through as they are.
fn write_fields(plan: &ForwardPlan, request: &Outgoing<'_>, out: &mut Vec<u8>) {
    let listed = request
        .connection
        .filter(|(options, _)| !options.listed.is_empty());
    let edits = Some(&plan.request_fields).filter(|edits| !edits.is_empty());
    for (field, name, value, whole) in request.headers.lines() {
        let ours = match field {
            Field::Host | Field::ContentLength => true,
            Field::XForwardedFor | Field::XForwardedHost | Field::XForwardedProto => {
                plan.x_forwarded
            }
            field => field.is_hop_by_hop(),
        };
        if ours
            || listed.is_some_and(|(options, head)| options.lists(head, name))
            || edits.is_some_and(|edits| edits.drops(name))
        {
            continue;
        }
        copy_line(out, name, value, whole);
    }
}

/// What says how long the body is. A method that usually has a body says so when there is none.
fn write_framing(framing: Framing, method: &Method, out: &mut Vec<u8>) {
    match framing {
        Framing::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            write_decimal(length, out);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::None if matches!(method, Method::Post | Method::Put | Method::Patch) => {
            out.extend_from_slice(b"Content-Length: 0\r\n");
        }
        Framing::None | Framing::UntilClose => {}
    }
}

/// `X-Forwarded-For` grows by the peer; `-Host` and `-Proto` keep what an earlier proxy said.
fn write_x_forwarded(request: &Outgoing<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"X-Forwarded-For: ");
    let (mut host, mut protocol) = (None, None);
    for (field, _, value) in request.headers.iter() {
        match field {
            Field::XForwardedFor if !value.is_empty() => {
                out.extend_from_slice(value);
                out.extend_from_slice(b", ");
            }
            Field::XForwardedHost => host = Some(value),
            Field::XForwardedProto => protocol = Some(value),
            Field::Host if host.is_none() => host = Some(value),
            _ => {}
        }
    }
    write_address(request.peer, out);
    out.extend_from_slice(b"\r\n");
    if let Some(host) = host {
        line(out, b"X-Forwarded-Host", &[host]);
    }
    line(
        out,
        b"X-Forwarded-Proto",
        &[protocol.unwrap_or(scheme(request))],
    );
}

/// One more element of `Forwarded` (RFC 7239, section 4).
fn write_forwarded(request: &Outgoing<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Forwarded: for=");
    match request.peer {
        IpAddr::V4(_) => write_address(request.peer, out),
        IpAddr::V6(_) => {
            out.extend_from_slice(b"\"[");
            write_address(request.peer, out);
            out.extend_from_slice(b"]\"");
        }
    }
    if let Some(host) = request.headers.first(Field::Host) {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host);
        out.push(b'"');
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(scheme(request));
    out.extend_from_slice(b"\r\n");
}

/// The scheme that the client used.
fn scheme(request: &Outgoing<'_>) -> &'static [u8] {
    if request.is_secure { b"https" } else { b"http" }
}

fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            for (at, octet) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                write_decimal(octet.into(), out);
            }
        }
        IpAddr::V6(address) => out.extend_from_slice(address.to_string().as_bytes()),
    }
}

/// Appends a field line that came from elsewhere; `whole` is it without its end, where it can be
/// copied at once.
#[inline]
pub(crate) fn copy_line(out: &mut Vec<u8>, name: &[u8], value: &[u8], whole: Option<&[u8]>) {
    match whole {
        Some(whole) => {
            out.extend_from_slice(whole);
            out.extend_from_slice(b"\r\n");
        }
        None => line(out, name, &[value]),
    }
}

/// Appends a field line.
pub(crate) fn line(out: &mut Vec<u8>, name: &[u8], value: &[&[u8]]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    for part in value {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a number without going through formatting machinery.
pub(crate) fn write_decimal(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
