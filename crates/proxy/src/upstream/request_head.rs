//! Writes the head of a forwarded request: the target's address and path, the client's fields
//! without those of its own connection, and what a proxy adds.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use component::access::{Caller, without_parameter};
use component::egress::loops;
use component::forward::{ForwardPlan, HostField};
use component::identity::IdentityField;
use component::settings::Settings;
use component::trusted_proxies::TrustedProxies;
use message::{
    Body, CertificateSource, ClientCertificate, Entry, Field, FieldLine, Headers, HeadersView,
    Method, Request,
};
use net::http1::{ConnectionOptions, Framing};
use net::http2::Fields;

use crate::client::door::StrippedLines;
use crate::relay::authorize::Authorizer;
use crate::upstream::Upstream;
use crate::upstream::upstreams::Upstreams;

/// A forward plan as one worker uses it, with everything rendered that never changes.
pub(crate) struct ForwardTarget {
    /// The plan.
    pub plan: Arc<ForwardPlan>,
    /// The system it goes to.
    pub upstream: Rc<Upstream>,
    /// What `Host` says, unless that is the client's.
    host: Option<String>,
    /// Fields behind the client's, for requests that came by HTTP/1.1 and by HTTP/2.
    own_fields: [Vec<OwnField>; 2],
    /// The same as lines.
    tails: [Vec<u8>; 2],
    /// Asks for what requests are authorized with, where that is made for each.
    pub authorizer: Option<Authorizer>,
}

/// The version of HTTP that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CameBy {
    Http1,
    Http2,
}

impl CameBy {
    /// The one of two that belongs to this version.
    fn pick<T>(self, [http1, http2]: &[T; 2]) -> &T {
        match self {
            Self::Http1 => http1,
            Self::Http2 => http2,
        }
    }
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
        let guards = plan.upstream.egress.is_guarded();
        let loop_id = guards.then(|| Arc::clone(&upstream.settings().egress.loop_id));
        let loop_id = loop_id.as_deref();
        let own_fields = [b"1.1 ", b"2.0 "].map(|version| own_fields(plan, version, loop_id));
        let tails = own_fields.each_ref().map(|fields| {
            let mut tail = Vec::new();
            for (name, value) in fields {
                line(&mut tail, name.as_bytes(), value);
            }
            tail
        });
        Self {
            plan: Arc::clone(plan),
            upstream,
            host,
            own_fields,
            tails,
            authorizer: Authorizer::of(plan),
        }
    }
}

/// A field that is added to every request: name and value.
type OwnField = (String, Vec<u8>);

fn own_fields(plan: &ForwardPlan, version: &[u8], loop_id: Option<&str>) -> Vec<OwnField> {
    let via = plan.via.as_ref();
    let via = via.map(|name| ("Via".to_owned(), [version, name.as_bytes()].concat()));
    let set = plan.request_fields.set.iter();
    let set = set.map(|(name, value)| (name.clone(), value.as_bytes().to_vec()));
    // Behind what others have written: none of that is left out (RFC 8586, section 2).
    let hop = loop_id.map(|id| (loops::FIELD.to_owned(), id.as_bytes().to_vec()));
    via.into_iter().chain(set).chain(hop).collect()
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
    /// Who is connected.
    pub peer: IpAddr,
    pub sent_by: SentBy<'a>,
    /// Whether it came over TLS.
    pub is_secure: bool,
    pub came_by: CameBy,
    /// What is left out: the client's credential.
    pub strip: &'a [StrippedLines],
    /// The header in which only the engine says who a caller is: it is left out, too.
    pub identity_field: Option<&'a IdentityField>,
    /// Who has sent it, when that stands in the message.
    pub caller: Option<&'a Caller>,
}

/// How a request came to us, which decides about what it says of its way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SentBy<'a> {
    /// A peer has sent it, who is believed when it is one of these.
    Peer(Option<&'a TrustedProxies>),
    /// A flow has made it, for the client with this address; its fields are meant.
    Flow(IpAddr),
}

/// The address of the client of a request, and whether a trusted proxy is connected that says so.
pub(crate) fn client(
    proxies: Option<&TrustedProxies>,
    peer: IpAddr,
    headers: HeadersView<'_>,
) -> (IpAddr, bool) {
    match proxies.filter(|proxies| proxies.contains(peer)) {
        Some(proxies) => (proxies.client(peer, headers), true),
        None => (peer, false),
    }
}

/// The certificate of the client of a request: that of its connection, or of a request that a
/// trusted proxy has passed on what that says in `Client-Cert` (RFC 9440), where these say so. The
/// certificate of the connection is the proxy's own then.
pub(crate) fn certificate(
    settings: &Settings,
    peer: IpAddr,
    headers: HeadersView<'_>,
    of_connection: Option<&Arc<ClientCertificate>>,
) -> Option<Arc<ClientCertificate>> {
    let proxies = settings.trusted_proxies.as_deref();
    let speaks = |proxies: &TrustedProxies| proxies.contains(peer);
    if !settings.client_cert_header || !proxies.is_some_and(speaks) {
        return of_connection.cloned();
    }
    let is_it = |name: &[u8]| name.eq_ignore_ascii_case(b"client-cert");
    let mut values = headers
        .iter()
        .filter(|(field, name, _)| *field == Field::ClientCert && is_it(name))
        .map(|(_, _, value)| value);
    let mut all = values.next()?.to_vec();
    for value in values {
        all.extend_from_slice(b", ");
        all.extend_from_slice(value);
    }
    let source = CertificateSource::Field(all);
    Some(Arc::new(ClientCertificate::new(source)))
}

/// What a message has of the head of its request.
pub(crate) struct Taken {
    /// The fields. Those that tell the way of the request are left out when its peer is not
    /// trusted, and `Client-Cert` and the identity header always.
    pub headers: Headers,
    /// The address of the client.
    pub peer: IpAddr,
    /// The trusted proxy that is connected, if there is one.
    pub proxy: Option<IpAddr>,
    /// The certificate of the client.
    pub certificate: Option<Arc<ClientCertificate>>,
}

/// Copies the fields of a request for a flow.
pub(crate) fn take_fields(
    settings: &Settings,
    peer: IpAddr,
    headers: HeadersView<'_>,
    of_connection: Option<&Arc<ClientCertificate>>,
) -> Taken {
    let (client, is_proxied) = client(settings.trusted_proxies.as_deref(), peer, headers);
    let mut taken = match is_proxied {
        true => headers.without(|field| field == Field::ClientCert),
        false => headers.without(Field::is_forwarding),
    };
    if let Some(identity) = &settings.identity_field {
        identity.remove_from(&mut taken);
    }
    Taken {
        headers: taken,
        peer: client,
        proxy: is_proxied.then_some(peer),
        certificate: certificate(settings, peer, headers, of_connection),
    }
}

impl<'a> Outgoing<'a> {
    /// A request that a flow has worked on. `unread` is how its body is framed when that is still
    /// with the client.
    pub fn of_message(request: &'a Request, unread: Framing) -> Self {
        let framing = match &request.body {
            Body::Unread => unread,
            Body::Empty => Framing::None,
            Body::Bytes(bytes) => Framing::Length(bytes.len() as u64),
        };
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
            peer: request.proxy.unwrap_or(request.peer),
            sent_by: SentBy::Flow(request.peer),
            is_secure: request.is_secure,
            came_by: CameBy::Http1,
            strip: &[],
            identity_field: None,
            caller: Caller::of(request),
        }
    }

    /// The address of the client, as far as it is known.
    pub fn client(&self) -> IpAddr {
        match self.sent_by {
            SentBy::Flow(client) => client,
            SentBy::Peer(proxies) => client(proxies, self.peer, self.headers).0,
        }
    }

    /// Whether fields that tell the way of the request are believed.
    fn is_believed(&self) -> bool {
        match self.sent_by {
            SentBy::Flow(_) => true,
            SentBy::Peer(None) => false,
            SentBy::Peer(Some(proxies)) => proxies.contains(self.peer),
        }
    }

    /// The host that the target is asked for.
    fn host<'b>(&'b self, target: &'b ForwardTarget, spare: &'b str) -> &'b [u8] {
        match (&target.host, self.headers.first(Field::Host)) {
            (Some(host), _) => host.as_bytes(),
            (None, Some(host)) => host,
            (None, None) => spare.as_bytes(),
        }
    }
}

/// Where field lines are written.
pub(crate) trait Lines {
    /// Begins a line; its value goes into [`Lines::text`].
    fn begin(&mut self, name: &[u8]);
    fn text(&mut self) -> &mut Vec<u8>;
    fn end(&mut self);
    /// A whole line.
    fn line(&mut self, name: &[u8], value: &[u8]);
    /// A line that came from elsewhere.
    fn copy(&mut self, line: FieldLine<'_>);
    /// Whether `TE: trailers` may be written.
    fn keeps_te(&self) -> bool;
}

/// HTTP/1.1: lines one below the other.
impl Lines for Vec<u8> {
    fn begin(&mut self, name: &[u8]) {
        self.extend_from_slice(name);
        self.extend_from_slice(b": ");
    }

    fn text(&mut self) -> &mut Vec<u8> {
        self
    }

    fn end(&mut self) {
        self.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn line(&mut self, name: &[u8], value: &[u8]) {
        line(self, name, value);
    }

    #[inline]
    fn copy(&mut self, line: FieldLine<'_>) {
        copy_line(self, line);
    }

    fn keeps_te(&self) -> bool {
        false
    }
}

/// HTTP/2: lines with their places.
impl Lines for Fields {
    fn begin(&mut self, name: &[u8]) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        let end = self.bytes.len() as u32;
        self.entries.push(Entry {
            name: (start, end),
            value: (end, end),
            field: Field::of(name),
        });
    }

    fn text(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn end(&mut self) {
        let end = self.bytes.len() as u32;
        if let Some(entry) = self.entries.last_mut() {
            entry.value.1 = end;
        }
    }

    #[inline]
    fn line(&mut self, name: &[u8], value: &[u8]) {
        self.begin(name);
        self.bytes.extend_from_slice(value);
        self.end();
    }

    #[inline]
    fn copy(&mut self, line: FieldLine<'_>) {
        self.line(line.name(), line.value());
    }

    fn keeps_te(&self) -> bool {
        true
    }
}

/// The largest head for HTTP/2 whose memory is kept.
const HTTP2_HEAD_MAX: usize = 16 * 1024;

/// The head of a forwarded request for HTTP/2.
pub(crate) struct Http2Head {
    pub authority: Vec<u8>,
    pub path: Vec<u8>,
    pub fields: Fields,
}

impl Default for Http2Head {
    fn default() -> Self {
        Self {
            authority: Vec::with_capacity(64),
            path: Vec::with_capacity(64),
            fields: Fields::with_room(),
        }
    }
}

impl Http2Head {
    /// Whether it is small enough to be kept for another request.
    pub fn is_small(&self) -> bool {
        let Self { path, fields, .. } = self;
        path.capacity() + fields.bytes.capacity() <= HTTP2_HEAD_MAX
    }

    fn clear(&mut self) {
        self.authority.clear();
        self.path.clear();
        self.fields.bytes.clear();
        self.fields.entries.clear();
    }
}

/// Writes the head for HTTP/2.
pub(crate) fn write_http2(target: &ForwardTarget, request: &Outgoing<'_>, head: &mut Http2Head) {
    head.clear();
    let plan = &*target.plan;
    let method = plan.method.as_ref().unwrap_or(request.method);
    head.authority
        .extend_from_slice(request.host(target, &spare_host(target)));
    write_path(plan, request, &mut head.path);
    let out = &mut head.fields;
    write_fields(plan, request, out);
    if let Framing::Length(length) = request.framing {
        out.begin(b"content-length");
        write_decimal(length, out.text());
        out.end();
    } else if request.framing == Framing::None && usually_has_body(method) {
        out.line(b"content-length", b"0");
    }
    write_proxy_fields(plan, request, out);
    for (name, value) in request.came_by.pick(&target.own_fields) {
        out.line(name.as_bytes(), value);
    }
}

/// The target's host, in case neither the flow nor the client names one.
fn spare_host(target: &ForwardTarget) -> String {
    match target.host {
        Some(_) => String::new(),
        None => target.plan.upstream.authority(),
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
    out.extend_from_slice(b"Host: ");
    out.extend_from_slice(request.host(target, &spare_host(target)));
    out.extend_from_slice(b"\r\n");
    write_fields(plan, request, out);
    write_framing(request.framing, method, out);
    write_proxy_fields(plan, request, out);
    if request.upgrades {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
    }
    let tail: &Vec<u8> = request.came_by.pick(&target.tails);
    out.extend_from_slice(tail);
    out.extend_from_slice(b"\r\n");
}

/// What a proxy tells about the client.
fn write_proxy_fields(plan: &ForwardPlan, request: &Outgoing<'_>, out: &mut impl Lines) {
    if plan.x_forwarded {
        write_x_forwarded(request, out);
    }
    if plan.forwarded {
        write_forwarded(request, out);
    }
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
    let Some(parameter) = &plan.parameter else {
        for query in [own, request.query].into_iter().flatten() {
            out.push(separator);
            out.extend_from_slice(query);
            separator = b'&';
        }
        return;
    };
    // The client's own parameters of that name are left out: a back end may take the last one.
    let sent = request
        .query
        .and_then(|query| without_parameter(&String::from_utf8_lossy(query), &parameter.name));
    let sent = sent.as_ref().map(|query| query.as_bytes());
    for query in [own, sent, Some(parameter.pair.as_bytes())]
        .into_iter()
        .flatten()
    {
        out.push(separator);
        out.extend_from_slice(query);
        separator = b'&';
    }
}

/// The client's fields that go through as they are.
fn write_fields(plan: &ForwardPlan, request: &Outgoing<'_>, out: &mut impl Lines) {
    let listed = request
        .connection
        .filter(|(options, _)| !options.listed.is_empty());
    let edits = Some(&plan.request_fields).filter(|edits| !edits.is_empty());
    // The target's own name holds too: a reload may have come between the settings and the plan.
    let identity = plan.identity.as_ref().map(|it| it.field());
    let identity = identity.or(request.identity_field);
    let mut is_believed = None;
    let mut is_believed = || *is_believed.get_or_insert_with(|| request.is_believed());
    for line in request.headers.lines() {
        let ours = match line.field() {
            Field::Host | Field::ContentLength => true,
            Field::XForwardedFor | Field::XForwardedHost | Field::XForwardedProto => {
                plan.x_forwarded || !is_believed()
            }
            Field::Forwarded | Field::XForwardedOther | Field::XForwardedPort | Field::XRealIp => {
                !is_believed()
            }
            Field::Te => !out.keeps_te(),
            // One that a flow has set is its own.
            Field::ClientCert => matches!(request.sent_by, SentBy::Peer(_)),
            field => field.is_hop_by_hop(),
        };
        if ours
            || listed.is_some_and(|(options, head)| options.lists(head, line.name()))
            || edits.is_some_and(|edits| edits.drops(line.name()))
            || identity.is_some_and(|it| it.is(line.name()))
        {
            continue;
        }
        match request.strip.iter().find(|it| it.concerns(&line)) {
            None => out.copy(line),
            Some(StrippedLines::Authorization | StrippedLines::Field(_)) => {}
            Some(StrippedLines::Cookies(names)) => copy_without_cookies(names, line, out),
        }
    }
}

/// Copies a line of cookies, if it has any without those of these names.
fn copy_without_cookies(names: &[Arc<str>], line: FieldLine<'_>, out: &mut impl Lines) {
    if let Some(rest) = component::cookies::without_names(line.value(), names) {
        out.line(line.name(), &rest);
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
        Framing::None if usually_has_body(method) => {
            out.extend_from_slice(b"Content-Length: 0\r\n");
        }
        Framing::None | Framing::UntilClose => {}
    }
}

/// Whether requests of this method say so when they have no body (RFC 9110, section 8.6).
fn usually_has_body(method: &Method) -> bool {
    matches!(method, Method::Post | Method::Put | Method::Patch)
}

/// `X-Forwarded-For` grows by the peer; `-Host` and `-Proto` keep what a trusted proxy said.
fn write_x_forwarded(request: &Outgoing<'_>, out: &mut impl Lines) {
    out.begin(b"X-Forwarded-For");
    let (mut host, mut protocol) = (request.headers.first(Field::Host), None);
    // Of others only the host counts, which is among the first fields.
    let believed = request.is_believed().then(|| request.headers.iter());
    for (field, _, value) in believed.into_iter().flatten() {
        match field {
            Field::XForwardedFor if !value.is_empty() => {
                out.text().extend_from_slice(value);
                out.text().extend_from_slice(b", ");
            }
            Field::XForwardedHost => host = Some(value),
            Field::XForwardedProto => protocol = Some(value),
            _ => {}
        }
    }
    write_address(request.peer, out.text());
    out.end();
    if let Some(host) = host {
        out.line(b"X-Forwarded-Host", host);
    }
    let protocol = protocol.unwrap_or(scheme(request));
    out.line(b"X-Forwarded-Proto", protocol);
}

/// One more element of `Forwarded` (RFC 7239, section 4).
fn write_forwarded(request: &Outgoing<'_>, out: &mut impl Lines) {
    out.begin(b"Forwarded");
    let text = out.text();
    text.extend_from_slice(b"for=");
    match request.peer {
        IpAddr::V4(_) => write_address(request.peer, text),
        IpAddr::V6(_) => {
            text.extend_from_slice(b"\"[");
            write_address(request.peer, text);
            text.extend_from_slice(b"]\"");
        }
    }
    if let Some(host) = request.headers.first(Field::Host) {
        text.extend_from_slice(b";host=\"");
        text.extend_from_slice(host);
        text.push(b'"');
    }
    text.extend_from_slice(b";proto=");
    text.extend_from_slice(scheme(request));
    out.end();
}

/// The scheme that the client used.
fn scheme(request: &Outgoing<'_>) -> &'static [u8] {
    if request.is_secure { b"https" } else { b"http" }
}

/// Each octet of an IPv4 address as text, a dot behind it, and how long that is.
static OCTETS: [([u8; 4], usize); 256] = {
    let mut table = [([0; 4], 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let [a, b, c] = [octet / 100, octet / 10 % 10, octet % 10];
        let [a, b, c] = [b'0' + a as u8, b'0' + b as u8, b'0' + c as u8];
        table[octet] = match octet {
            0..10 => ([c, b'.', 0, 0], 2),
            10..100 => ([b, c, b'.', 0], 3),
            _ => ([a, b, c, b'.'], 4),
        };
        octet += 1;
    }
    table
};

fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            let mut text = [0; 16];
            let mut length = 0;
            for octet in address.octets() {
                let (digits, count) = OCTETS[usize::from(octet)];
                if let Some(room) = text.get_mut(length..length + 4) {
                    room.copy_from_slice(&digits);
                }
                length += count;
            }
            out.extend_from_slice(text.get(..length - 1).unwrap_or_default());
        }
        IpAddr::V6(address) => out.extend_from_slice(address.to_string().as_bytes()),
    }
}

/// Appends a field line that came from elsewhere.
#[inline]
pub(crate) fn copy_line(out: &mut Vec<u8>, from: FieldLine<'_>) {
    match from.whole() {
        Some(whole) => {
            out.extend_from_slice(whole);
            out.extend_from_slice(b"\r\n");
        }
        None => line(out, from.name(), from.value()),
    }
}

/// Appends a field line.
pub(crate) fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number without going through formatting machinery.
pub(crate) fn write_decimal(number: u64, out: &mut Vec<u8>) {
    let digit = |unit: u64| b'0' + (number / unit % 10) as u8;
    match number {
        0..10 => return out.push(digit(1)),
        10..100 => return out.extend_from_slice(&[digit(10), digit(1)]),
        100..1000 => return out.extend_from_slice(&[digit(100), digit(10), digit(1)]),
        _ => {}
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for octet in 0..=255 {
            let address = IpAddr::from([octet, 255 - octet, octet / 10, octet]);
            let mut out = Vec::new();
            write_address(address, &mut out);
            assert_eq!(out, address.to_string().into_bytes());
        }
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for number in [0, 9, 10, 99, 100, 999, 1000, 65_535, u64::MAX] {
            let mut out = b"n=".to_vec();
            write_decimal(number, &mut out);
            assert_eq!(out, format!("n={number}").into_bytes());
        }
    }
}
