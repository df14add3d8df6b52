//! Frames of HTTP/2 and the little of HPACK that a client with constant fields needs.

use anyhow::ensure;

/// The most bytes of one DATA frame that any peer takes (RFC 9113 section 4.2).
pub(super) const DATA_MAX: usize = 16_384;
const HEAD: usize = 9;
const FRAME_MAX: usize = 1 << 20;

// Names in the static table (RFC 7541 appendix A).
pub(super) const AUTHORITY: u8 = 1;
pub(super) const PATH: u8 = 4;
pub(super) const CONTENT_LENGTH: u8 = 28;
pub(super) const CONTENT_TYPE: u8 = 31;
/// `:method: POST`, `:scheme: http` and `:scheme: https`.
const POST: u8 = 0x83;
const HTTP: u8 = 0x86;
const HTTPS: u8 = 0x87;
/// `:status: 200`.
const STATUS_200: u8 = 0x88;
/// The index of the newest entry of the dynamic table.
const NEWEST: u8 = 62;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The frames that matter to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Reset,
    Settings,
    Ping,
    GoAway,
    WindowUpdate,
    Other,
}

/// A frame that has been received.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub kind: Kind,
    flags: u8,
    pub stream: u32,
    /// Without padding and priority.
    pub payload: &'a [u8],
    /// With them: this is what flow control counts.
    pub length: usize,
}

impl<'a> Frame<'a> {
    /// The frame at the start and the bytes it takes, if it is whole.
    pub fn read(bytes: &'a [u8]) -> anyhow::Result<Option<(Self, usize)>> {
        let Some((&[high, middle, low, kind, flags, s0, s1, s2, s3], rest)) =
            bytes.split_first_chunk::<HEAD>()
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        ensure!(length <= FRAME_MAX, "not a frame of HTTP/2");
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::Headers,
            3 => Kind::Reset,
            4 => Kind::Settings,
            6 => Kind::Ping,
            7 => Kind::GoAway,
            8 => Kind::WindowUpdate,
            _ => Kind::Other,
        };
        let frame = Self {
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
            payload: inner(kind, flags, payload),
            length,
        };
        Ok(Some((frame, HEAD + length)))
    }

    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Headers) && self.flags & END_STREAM != 0
    }

    pub fn is_ack(&self) -> bool {
        self.flags & ACK != 0
    }
}

/// A payload without padding and priority.
fn inner(kind: Kind, flags: u8, mut payload: &[u8]) -> &[u8] {
    if !matches!(kind, Kind::Data | Kind::Headers) {
        return payload;
    }
    if flags & PADDED != 0
        && let Some((&padding, rest)) = payload.split_first()
    {
        let length = rest.len().saturating_sub(usize::from(padding));
        payload = rest.get(..length).unwrap_or_default();
    }
    if kind == Kind::Headers && flags & PRIORITY != 0 {
        payload = payload.get(5..).unwrap_or_default();
    }
    payload
}

/// The last four bytes as a number.
pub(super) fn number(payload: &[u8]) -> u32 {
    payload
        .last_chunk::<4>()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Whether a header block says 200. Every encoder uses the entry of the static table for it, behind
/// changes of the table's size at most.
pub(super) fn is_status_200(block: &[u8]) -> bool {
    let mut bytes = block.iter().copied();
    let mut first = bytes.next();
    while let Some(byte) = first.filter(|byte| byte & 0xe0 == 0x20) {
        // A size of 31 and more goes on in further bytes.
        if byte & 0x1f == 0x1f {
            while bytes.next().is_some_and(|byte| byte & 0x80 != 0) {}
        }
        first = bytes.next();
    }
    first == Some(STATUS_200)
}

fn put_head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let [_, high, middle, low] = u32::try_from(length).unwrap_or(0).to_be_bytes();
    out.extend_from_slice(&[high, middle, low, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// The preface, settings without push, and a large window.
pub(super) fn put_preface(out: &mut Vec<u8>, window: u32, connection_window: u32) {
    out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    put_head(out, 12, 4, 0, 0);
    out.extend_from_slice(&[0, 2, 0, 0, 0, 0, 0, 4]);
    out.extend_from_slice(&window.to_be_bytes());
    put_window(out, connection_window);
}

pub(super) fn put_window(out: &mut Vec<u8>, more: u32) {
    put_head(out, 4, 8, 0, 0);
    out.extend_from_slice(&more.to_be_bytes());
}

pub(super) fn put_settings_ack(out: &mut Vec<u8>) {
    put_head(out, 0, 4, ACK, 0);
}

pub(super) fn put_pong(out: &mut Vec<u8>, payload: &[u8]) {
    put_head(out, payload.len(), 6, ACK, 0);
    out.extend_from_slice(payload);
}

pub(super) fn put_headers(out: &mut Vec<u8>, stream: u32, block: &[u8]) {
    put_head(out, block.len(), 1, END_HEADERS, stream);
    out.extend_from_slice(block);
}

pub(super) fn put_data(out: &mut Vec<u8>, stream: u32, body: &[u8]) {
    put_head(out, body.len(), 0, END_STREAM, stream);
    out.extend_from_slice(body);
}

/// The first header block: fields in full, for the peer's table or not.
pub(super) fn first_block(fields: &[(u8, &str)], is_tls: bool, keeps: bool) -> Vec<u8> {
    let mut block = vec![POST, if is_tls { HTTPS } else { HTTP }];
    for (name, value) in fields {
        match keeps {
            true => block.push(0x40 | name),
            // A name above 14 goes on in a second byte.
            false if *name < 15 => block.push(*name),
            false => block.extend_from_slice(&[0x0f, name - 15]),
        }
        let value = value.as_bytes();
        // Values are short: paths, addresses and numbers.
        let length = value.len().min(126);
        block.push(length as u8);
        block.extend_from_slice(value.get(..length).unwrap_or_default());
    }
    block
}

/// The following header blocks: indices of what the first one put into the table.
pub(super) fn indexed_block(fields: usize, is_tls: bool) -> Vec<u8> {
    let mut block = vec![POST, if is_tls { HTTPS } else { HTTP }];
    let indices = (0..fields).rev().map(|back| 0x80 | (NEWEST + back as u8));
    block.extend(indices);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_when_they_are_whole() {
        let mut bytes = Vec::new();
        put_data(&mut bytes, 7, b"body");
        for length in 0..bytes.len() {
            assert!(Frame::read(&bytes[..length]).unwrap().is_none());
        }
        let (frame, taken) = Frame::read(&bytes).unwrap().unwrap();
        assert_eq!(
            (frame.kind, frame.stream, frame.payload),
            (Kind::Data, 7, &b"body"[..])
        );
        assert!(frame.ends_stream());
        assert_eq!(taken, bytes.len());
        assert!(Frame::read(b"HTTP/1.1 400 Bad Request\r\n").is_err());
    }

    #[test]
    fn padding_and_priority_are_no_payload() {
        assert_eq!(inner(Kind::Data, PADDED, b"\x02abcd"), b"ab");
        assert_eq!(inner(Kind::Headers, PRIORITY, b"12345x"), b"x");
        assert_eq!(inner(Kind::Ping, PADDED, b"12345678"), b"12345678");
    }

    #[test]
    fn status_200_is_known_behind_table_sizes() {
        for block in [&b"\x88"[..], b"\x20\x88\x5f", b"\x3f\xe1\x1f\x88"] {
            assert!(is_status_200(block), "{block:x?}");
        }
        for block in [&b""[..], b"\x8d", b"\x20"] {
            assert!(!is_status_200(block), "{block:x?}");
        }
    }

    #[test]
    fn blocks_name_fields_in_the_order_of_the_first() {
        let fields = [(PATH, "/a"), (CONTENT_LENGTH, "50")];
        assert_eq!(
            first_block(&fields, true, true),
            b"\x83\x87\x44\x02/a\x5c\x0250"
        );
        assert_eq!(
            first_block(&fields, false, false),
            b"\x83\x86\x04\x02/a\x0f\x0d\x0250"
        );
        assert_eq!(indexed_block(2, true), [0x83, 0x87, 0xbf, 0xbe]);
    }
}
