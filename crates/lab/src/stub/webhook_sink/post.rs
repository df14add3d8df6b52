//! Requests as the sink reads them, one after the other from what has been read of a connection.

use std::io;

use super::SinkArgs;
use super::ledger::Post;
use crate::stamp;
use crate::wire::{BodyLength, body_length, invalid, read_chunked};

const FIELDS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Method {
    Post,
    Get,
    Delete,
    #[default]
    Other,
}

/// What matters of a request's head.
#[derive(Default)]
pub(super) struct Head {
    pub method: Method,
    /// The bytes of the head.
    length: usize,
    /// Whether a head has been read whose body is not complete.
    is_waiting: bool,
    body: BodyLength,
    pub is_last: bool,
    pub expects_continue: bool,
    target: Vec<u8>,
    /// How many bytes of the target are the path.
    path: usize,
    /// The hash of the event's name; 0 without one.
    id: u64,
    /// The name, which Standard Webhooks signs.
    id_text: Vec<u8>,
    published: u64,
    timestamp: Vec<u8>,
    signature: Vec<u8>,
}

/// Looks for a request at the start: the bytes that it takes, and whether it is whole.
pub(super) fn step(
    head: &mut Head,
    bytes: &[u8],
    args: &SinkArgs,
    chunks: &mut Vec<u8>,
) -> io::Result<Option<(usize, bool)>> {
    if bytes.is_empty() || (!head.is_waiting && !read_head(head, bytes, args)?) {
        return Ok(None);
    }
    let (taken, is_whole) = match head.body {
        BodyLength::Unknown => (head.length, true),
        BodyLength::Exactly(length) => {
            let end = head.length.saturating_add(length);
            (end, bytes.len() >= end)
        }
        BodyLength::Chunked => {
            let rest = bytes.get(head.length..).unwrap_or_default();
            let end = read_chunked(rest, chunks)?;
            (head.length + end.unwrap_or(0), end.is_some())
        }
    };
    head.is_waiting = !is_whole;
    Ok(Some((taken, is_whole)))
}

fn read_head(head: &mut Head, bytes: &[u8], args: &SinkArgs) -> io::Result<bool> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let status = request
        .parse(bytes)
        .map_err(|error| invalid(&error.to_string()))?;
    let httparse::Status::Complete(length) = status else {
        return Ok(false);
    };
    head.length = length;
    head.body = body_length(request.headers)?;
    head.method = match request.method {
        Some("POST") => Method::Post,
        Some("GET") => Method::Get,
        Some("DELETE") => Method::Delete,
        _ => Method::Other,
    };
    head.is_last = request.version == Some(0);
    head.expects_continue = false;
    (head.id, head.published) = (0, 0);
    head.target.clear();
    let target = request.path.unwrap_or_default().as_bytes();
    head.target.extend_from_slice(target);
    head.path = memchr::memchr(b'?', target).unwrap_or(target.len());
    for text in [&mut head.id_text, &mut head.timestamp, &mut head.signature] {
        text.clear();
    }
    let keeps_proof = args.secret.is_some();
    for field in request.headers.iter() {
        let (name, value) = (field.name, field.value);
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is(&args.id_header) {
            head.id = stamp::hash(1, value);
            if keeps_proof {
                head.id_text.extend_from_slice(value);
            }
        } else if is(&args.at_header) {
            head.published = stamp::number(value).map_or(0, |(number, _)| number);
        } else if is("connection") {
            head.is_last |= value.eq_ignore_ascii_case(b"close");
        } else if is("expect") {
            head.expects_continue = true;
        } else if keeps_proof && is("webhook-timestamp") {
            head.timestamp.extend_from_slice(value);
        } else if keeps_proof && super::signature::is_field(name) {
            // Several lines are one list.
            if !head.signature.is_empty() {
                head.signature.push(b' ');
            }
            head.signature.extend_from_slice(value);
        }
    }
    Ok(true)
}

impl Head {
    /// The path, which names the endpoint.
    pub fn path(&self) -> &[u8] {
        self.target.get(..self.path).unwrap_or_default()
    }

    /// The query without `?`.
    pub fn query(&self) -> &[u8] {
        self.target.get(self.path + 1..).unwrap_or_default()
    }

    /// The body of a request of these bytes.
    pub fn body<'a>(&self, bytes: &'a [u8], chunks: &'a [u8]) -> &'a [u8] {
        match self.body {
            BodyLength::Unknown => &[],
            BodyLength::Exactly(_) => bytes.get(self.length..).unwrap_or_default(),
            BodyLength::Chunked => chunks,
        }
    }

    /// What is kept of the request.
    pub fn post<'a>(&'a self, body: &'a [u8], at: u64, status: u16) -> Post<'a> {
        let stamp = stamp::find(body);
        let number = stamp.map_or(0, |it| it.number);
        // What has neither a name nor a number is known by its body.
        let id = match (self.id, number) {
            (0, 0) => stamp::hash(3, body),
            (0, number) => stamp::hash(2, &number.to_le_bytes()),
            (id, _) => id,
        };
        Post {
            path: self.path(),
            id,
            id_text: &self.id_text,
            number,
            published: stamp.map_or(self.published, |it| it.at),
            is_changed: stamp.is_some_and(|it| !it.is_whole),
            at,
            status,
            timestamp: &self.timestamp,
            signature: &self.signature,
            body,
        }
    }
}
