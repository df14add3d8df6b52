//! What the load generator reads of HTTP/1.1 replies.

use std::io;

use crate::wire::{BodyLength, body_length, invalid, read_chunked};

const FIELDS_MAX: usize = 64;

/// The head of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub status: u16,
    pub body: BodyLength,
    /// The bytes of the head.
    pub size: usize,
}

/// Reads the head that begins here; `None` while it is incomplete.
pub(super) fn head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut reply = httparse::Response::new(&mut fields);
    let status = reply.parse(bytes);
    let status = status.map_err(|error| invalid(&error.to_string()))?;
    let httparse::Status::Complete(size) = status else {
        return Ok(None);
    };
    Ok(Some(Head {
        status: reply.code.unwrap_or(0),
        body: body_length(reply.headers)?,
        size,
    }))
}

/// A whole reply that stands at the beginning: its status and its bytes.
pub(super) fn reply(bytes: &[u8], scratch: &mut Vec<u8>) -> io::Result<Option<(u16, usize)>> {
    let Some(head) = head(bytes)? else {
        return Ok(None);
    };
    let rest = bytes.get(head.size..).unwrap_or_default();
    let body = match head.body {
        _ if matches!(head.status, 204 | 304) => Some(0),
        BodyLength::Exactly(length) => (rest.len() >= length).then_some(length),
        BodyLength::Chunked => read_chunked(rest, scratch)?,
        BodyLength::Unknown => return Err(invalid("a reply without a length")),
    };
    Ok(body.map(|body| (head.status, head.size + body)))
}

/// A chunk that stands whole at the beginning (RFC 9112 section 7.1): where its data begins, how
/// long it is, and where it ends. A chunk without data is the last.
pub(super) fn chunk(bytes: &[u8]) -> io::Result<Option<(usize, usize, usize)>> {
    let Some(line) = memchr::memchr(b'\n', bytes) else {
        let is_long = bytes.len() > 1024;
        return if is_long {
            Err(invalid("no chunk size"))
        } else {
            Ok(None)
        };
    };
    let digits = bytes.get(..line).unwrap_or_default();
    let digits = digits
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default();
    let size = std::str::from_utf8(digits.trim_ascii()).ok();
    let size = size.and_then(|text| usize::from_str_radix(text, 16).ok());
    let size = size.ok_or_else(|| invalid("no chunk size"))?;
    let start = line + 1;
    let end = start.checked_add(size).and_then(|end| end.checked_add(2));
    let end = end.ok_or_else(|| invalid("a huge chunk"))?;
    Ok((bytes.len() >= end).then_some((start, size, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_when_they_are_whole() {
        for (text, status) in [
            ("HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok", 202),
            ("HTTP/1.1 204 No Content\r\n\r\n", 204),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
                200,
            ),
        ] {
            let mut scratch = Vec::new();
            for length in 0..text.len() {
                let cut = &text.as_bytes()[..length];
                assert_eq!(reply(cut, &mut scratch).unwrap(), None, "{text} {length}");
            }
            let more = format!("{text}HTTP/1.1");
            let read = reply(more.as_bytes(), &mut scratch).unwrap();
            assert_eq!(read, Some((status, text.len())));
        }
        let mut scratch = Vec::new();
        assert!(reply(b"HTTP/1.1 200 OK\r\n\r\n", &mut scratch).is_err());
        assert!(reply(b"nonsense\r\n\r\n", &mut scratch).is_err());
    }

    #[test]
    fn chunks_are_read_when_they_are_whole() {
        assert_eq!(chunk(b"5;x=y\r\nhello\r\n").unwrap(), Some((7, 5, 14)));
        for length in 0..14 {
            assert_eq!(chunk(&b"5;x=y\r\nhello\r\n"[..length]).unwrap(), None);
        }
        assert_eq!(chunk(b"0\r\n\r\n").unwrap(), Some((3, 0, 5)));
        assert!(chunk(b"x\r\n").is_err());
        assert!(chunk(b"ffffffffffffffff\r\n").is_err());
    }
}
