//! Writes the head of a reply to the client: one that is relayed, or one of our own.

use component::forward::{FieldEdits, ForwardPlan};
use message::{Field, Headers, HeadersView, Method, Reply, reason_phrase};
use net::http1::{ConnectionOptions, Framing, Version};
use tokio::time::Instant;

use crate::client::added_fields::AddedFields;
use crate::date::DateField;
use crate::relay::ReplyHead;
use crate::upstream::request_head::{copy_line, line, write_decimal};

/// What the client's side needs to know about the head that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientSide {
    /// The version of its request.
    pub version: Version,
    /// Whether the connection ends behind this reply.
    pub closes: bool,
}

/// The version of HTTP that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientVersion {
    Http1(Version),
    Http2,
}

/// Whether an interim reply of a back end is passed on to the client (RFC 9110, section 15.2).
///
/// Many clients of HTTP/1.1, Python's `http.client` among them, take any interim reply but
/// `100 Continue` for the final one, so others (103 Early Hints, RFC 8297) pass only where the flow
/// says so. In HTTP/2 interim replies cannot be mistaken, and in HTTP/1.0 there are none.
pub(crate) fn passes_interim(status: u16, client: ClientVersion, plan: &ForwardPlan) -> bool {
    match client {
        ClientVersion::Http1(Version::Http10) => false,
        ClientVersion::Http1(Version::Http11) => status == 100 || plan.early_hints,
        ClientVersion::Http2 => true,
    }
}

/// The head of a reply that is relayed to an HTTP/1.1 client. A final reply without a `Date` gets
/// one (RFC 9110, section 6.6.1), unless the flow removes it.
pub(crate) struct Relayed<'a> {
    pub head: &'a ReplyHead<'a>,
    /// How the body goes to the client.
    pub framing: Framing,
    pub client: ClientSide,
    /// The method of the client's request.
    pub method: &'a Method,
    pub edits: &'a FieldEdits,
    /// Fields of the caller's rate limits and of the door.
    pub added_fields: Option<&'a AddedFields>,
    /// Where the date comes from, and when the request came.
    pub date: Option<(&'a DateField, Instant)>,
}

impl Relayed<'_> {
    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        let head = self.head;
        let status = head.status;
        let phrase = || reason_phrase(status).as_bytes();
        status_line(status, head.reason.unwrap_or_else(phrase), out);
        let keeps_length = self.keeps_length();
        let keeps_upgrade = matches!(status, 101 | 426);
        let listed = head
            .connection
            .filter(|(options, _)| !options.listed.is_empty());
        let edited = !self.edits.is_empty();
        let mut lacks_date = status >= 200;
        for line in head.fields.lines() {
            lacks_date &= line.field() != Field::Date;
            let dropped = match line.field() {
                Field::ContentLength => !keeps_length,
                Field::Upgrade => !keeps_upgrade,
                field => field.is_hop_by_hop(),
            };
            if dropped
                || listed.is_some_and(|(options, bytes)| options.lists(bytes, line.name()))
                || (edited && self.edits.drops(line.name()))
            {
                continue;
            }
            copy_line(out, line);
        }
        for (name, value) in &self.edits.set {
            line(out, name.as_bytes(), value.as_bytes());
        }
        if let Some(added) = self.added_fields {
            for (name, _, value) in added.fields(head.fields) {
                line(out, name.as_bytes(), value.as_bytes());
            }
        }
        if let Some((date, now)) = self.date
            && lacks_date
            && !(edited && self.edits.drops(b"date"))
        {
            out.extend_from_slice(b"Date: ");
            date.append(now, out);
            out.extend_from_slice(b"\r\n");
        }
        self.write_framing(out);
        out.extend_from_slice(b"\r\n");
    }

    /// Whether `Content-Length` says what follows, or what would follow without `HEAD` or 304 (RFC
    /// 9110, section 8.6).
    fn keeps_length(&self) -> bool {
        match self.framing {
            Framing::Length(_) => true,
            Framing::None => *self.method == Method::Head || self.head.status == 304,
            Framing::Chunked | Framing::UntilClose => false,
        }
    }

    fn write_framing(&self, out: &mut Vec<u8>) {
        let status = self.head.status;
        if self.framing == Framing::Chunked {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        } else if self.framing == Framing::None
            && !self.keeps_length()
            && status >= 200
            && status != 204
        {
            out.extend_from_slice(b"Content-Length: 0\r\n");
        }
        if status == 101 {
            out.extend_from_slice(b"Connection: Upgrade\r\n");
        } else if status >= 200 {
            write_connection(self.client, out);
        }
    }
}

/// Appends a reply of our own, head and content. A reply to `HEAD` says how long the content is
/// and leaves it out.
pub(crate) fn write_own(
    reply: &Reply,
    method: &Method,
    client: ClientSide,
    date: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    status_line(reply.status, reason_phrase(reply.status).as_bytes(), out);
    let mut has_date = false;
    let asks_for_upgrade = reply.status == 426;
    for (field, name, value) in reply.headers.view().iter() {
        let keeps = asks_for_upgrade && field == Field::Upgrade;
        if field == Field::ContentLength || (field.is_hop_by_hop() && !keeps) {
            continue;
        }
        has_date |= field == Field::Date;
        line(out, name, value);
    }
    if asks_for_upgrade {
        out.extend_from_slice(b"Connection: Upgrade\r\n");
    }
    if !has_date {
        out.extend_from_slice(b"Date: ");
        date(out);
        out.extend_from_slice(b"\r\n");
    }
    let content = reply.body.as_bytes();
    let may_have_content = !matches!(reply.status, 204 | 304);
    if may_have_content {
        out.extend_from_slice(b"Content-Length: ");
        write_decimal(content.len() as u64, out);
        out.extend_from_slice(b"\r\n");
    }
    write_connection(client, out);
    out.extend_from_slice(b"\r\n");
    if may_have_content && *method != Method::Head {
        out.extend_from_slice(content);
    }
}

/// Appends the head of a reply of our own that goes on: in chunks, until the connection ends, or in
/// another protocol.
pub(crate) fn write_stream(
    reply: &Reply,
    client: ClientSide,
    date: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let switches = reply.status == 101;
    status_line(reply.status, reason_phrase(reply.status).as_bytes(), out);
    let mut has_date = false;
    for (field, name, value) in reply.headers.view().iter() {
        let is_dropped = match field {
            Field::ContentLength => true,
            Field::Upgrade => !switches,
            field => field.is_hop_by_hop(),
        };
        if !is_dropped {
            has_date |= field == Field::Date;
            line(out, name, value);
        }
    }
    if !has_date {
        out.extend_from_slice(b"Date: ");
        date(out);
        out.extend_from_slice(b"\r\n");
    }
    if switches {
        out.extend_from_slice(b"Connection: Upgrade\r\n");
    } else {
        if client.version == Version::Http11 {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        write_connection(client, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Whether a relayed reply lacks the `Date` that a proxy adds (RFC 9110, section 6.6.1).
pub(crate) fn needs_date(status: u16, fields: HeadersView<'_>, edits: &FieldEdits) -> bool {
    status >= 200 && fields.first(Field::Date).is_none() && !edits.drops(b"date")
}

pub(crate) fn status_line(status: u16, reason: &[u8], out: &mut Vec<u8>) {
    if status == 200 && reason == b"OK" {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    write_decimal(status.into(), out);
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn write_connection(client: ClientSide, out: &mut Vec<u8>) {
    if client.closes {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if client.version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
}

/// The fields of a relayed reply for HTTP/2: those of its connection are left out, and the flow's
/// edits applied. `connection` is what an HTTP/1.1 head says of its connection, `date` the `Date`
/// of a reply that [needs one](needs_date).
pub(crate) fn relayed_fields<'a>(
    fields: HeadersView<'a>,
    connection: Option<(&'a ConnectionOptions, &'a [u8])>,
    edits: &'a FieldEdits,
    date: Option<&'a [u8]>,
) -> impl Iterator<Item = (Field, &'a [u8], &'a [u8])> {
    let edited = !edits.is_empty();
    let kept = fields.iter().filter(move |(field, name, _)| {
        let is_dropped = field.is_hop_by_hop()
            || connection.is_some_and(|(options, head)| options.lists(head, name))
            || (edited && edits.drops(name));
        !is_dropped
    });
    let set = edits.set.iter();
    let set = set.map(|(name, value)| (Field::Other, name.as_bytes(), value.as_bytes()));
    let date = date.map(|date| (Field::Date, &b"date"[..], date));
    kept.chain(set).chain(date)
}

/// The fields of a reply of our own for HTTP/2. One that goes on has no length.
pub(crate) fn own_fields(reply: &Reply, goes_on: bool, date: impl FnOnce(&mut Vec<u8>)) -> Headers {
    let mut headers = Headers::new();
    let mut has_date = false;
    for (field, name, value) in reply.headers.view().iter() {
        if field == Field::ContentLength || field.is_hop_by_hop() {
            continue;
        }
        has_date |= field == Field::Date;
        headers.append(&String::from_utf8_lossy(name), value);
    }
    if !has_date {
        let mut text = Vec::new();
        date(&mut text);
        headers.append("date", text);
    }
    if !goes_on && !matches!(reply.status, 204 | 304) {
        let length = reply.body.as_bytes().len().to_string();
        headers.append("content-length", length);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use component::upstream::UpstreamPlan;

    #[test]
    fn interim_replies_go_to_clients_that_can_tell_them_from_final_ones() {
        let mut plan = ForwardPlan::new(UpstreamPlan::single("a", 80, None).into(), "/");
        let clients = [
            ClientVersion::Http1(Version::Http10),
            ClientVersion::Http1(Version::Http11),
            ClientVersion::Http2,
        ];
        for (early_hints, expected) in [(false, [false, false, true]), (true, [false, true, true])]
        {
            plan.early_hints = early_hints;
            for status in [102, 103, 104] {
                let passes = clients.map(|client| passes_interim(status, client, &plan));
                assert_eq!(passes, expected, "{status}");
            }
            let passes = clients.map(|client| passes_interim(100, client, &plan));
            assert_eq!(passes, [false, true, true]);
        }
    }

    #[test]
    fn a_final_reply_over_http_2_gets_the_date_that_it_lacks() {
        let fields = |name| {
            let mut headers = Headers::new();
            headers.append(name, "x");
            headers
        };
        let (dated, plain) = (fields("Date"), fields("a"));
        let edits = FieldEdits::default();
        assert!(!needs_date(200, dated.view(), &edits));
        assert!(!needs_date(103, plain.view(), &edits));
        assert!(needs_date(200, plain.view(), &edits));
        let removed = FieldEdits {
            remove: vec!["date".to_owned()],
            ..FieldEdits::default()
        };
        assert!(!needs_date(200, plain.view(), &removed));
        let fields = relayed_fields(plain.view(), None, &edits, Some(b"now"));
        let names: Vec<&[u8]> = fields.map(|(_, name, _)| name).collect();
        assert_eq!(names, [&b"a"[..], b"date"]);
    }
}
