//! HTTP/2 frames (RFC 9113, section 4) and header blocks of literals (RFC 7541, section 6).

use std::io::{self, Read};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Of DATA and HEADERS; of SETTINGS and PING it means an acknowledgement.
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

pub const INITIAL_WINDOW_SIZE: u16 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in values {
        payload.extend(name.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

pub fn window_update(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

pub fn reset(stream: u32) -> Vec<u8> {
    const CANCEL: u32 = 8;
    frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

/// What a client sends first: the preface and its settings.
pub fn opening(values: &[(u16, u32)]) -> Vec<u8> {
    [PREFACE, &settings(values)].concat()
}

/// An integer behind the bits of `first` (RFC 7541, section 5.1).
pub fn integer(first: u8, prefix: u32, value: usize) -> Vec<u8> {
    let most = (1_usize << prefix) - 1;
    if value < most {
        return vec![first | value as u8];
    }
    let mut bytes = vec![first | most as u8];
    let mut rest = value - most;
    while rest >= 128 {
        bytes.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    bytes.push(rest as u8);
    bytes
}

fn text(value: &str) -> Vec<u8> {
    let mut bytes = integer(0, 7, value.len());
    bytes.extend(value.as_bytes());
    bytes
}

/// A field that neither side keeps.
pub fn literal(name: &str, value: &str) -> Vec<u8> {
    [vec![0], text(name), text(value)].concat()
}

/// A field that goes into the dynamic table, at its front.
pub fn kept(name: &str, value: &str) -> Vec<u8> {
    [vec![0x40], text(name), text(value)].concat()
}

/// The newest entry of the dynamic table.
pub const NEWEST: u8 = 0x80 | 62;

/// The header block of a request.
pub fn request(method: &str, path: &str) -> Vec<u8> {
    let fields = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
    ];
    fields
        .iter()
        .flat_map(|(name, value)| literal(name, value))
        .collect()
}

/// HEADERS with the whole block.
pub fn headers(stream: u32, block: &[u8], is_all: bool) -> Vec<u8> {
    let flags = END_HEADERS | if is_all { END_STREAM } else { 0 };
    frame(HEADERS, flags, stream, block)
}

/// A frame that was read.
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

pub fn read_frame(from: &mut impl Read) -> io::Result<Frame> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    let [a, b, c, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    from.read_exact(&mut payload)?;
    let stream = u32::from_be_bytes(stream);
    Ok(Frame {
        kind,
        flags,
        stream,
        payload,
    })
}

/// Whether a header block begins with `:status: 200`, as index 8 of the static table, perhaps
/// behind changes of the table's size.
pub fn is_200(block: &[u8]) -> bool {
    let first = block.iter().find(|byte| *byte >> 5 != 1);
    first == Some(&0x88)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_those_of_the_rfc() {
        // RFC 7541, appendix C.1.
        assert_eq!(integer(0, 5, 10), [0b0_1010]);
        assert_eq!(integer(0, 5, 1337), [0b1_1111, 0b1001_1010, 0b0000_1010]);
        assert_eq!(integer(0, 8, 42), [0b10_1010]);
    }

    #[test]
    fn literals_are_those_of_the_rfc() {
        // RFC 7541, appendix C.2.1; C.2.2 has the name by its index.
        let expected = b"\x40\x0acustom-key\x0dcustom-header";
        assert_eq!(kept("custom-key", "custom-header"), expected);
        assert_eq!(literal("a", "b"), b"\0\x01a\x01b");
        let long = literal("a", &"b".repeat(200));
        assert_eq!(long.get(..5), Some(&[0, 1, b'a', 0x7f, 73][..]));
    }

    #[test]
    fn a_frame_is_read_as_it_was_made() -> io::Result<()> {
        let bytes = headers(5, &request("GET", "/"), true);
        assert_eq!(
            bytes.get(..9),
            Some(&[0, 0, bytes.len() as u8 - 9, 1, 5, 0, 0, 0, 5][..])
        );
        let read = read_frame(&mut bytes.as_slice())?;
        assert_eq!(
            (read.kind, read.flags, read.stream),
            (HEADERS, END_STREAM | END_HEADERS, 5)
        );
        assert_eq!(read.payload, request("GET", "/"));
        let settings = settings(&[(INITIAL_WINDOW_SIZE, 1)]);
        assert_eq!(settings, [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1]);
        assert!(is_200(&[0x3f, 0x88]) && !is_200(&[0x8d]) && !is_200(&[]));
        Ok(())
    }
}
