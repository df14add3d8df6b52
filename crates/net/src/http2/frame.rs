//! Frames (RFC 9113, sections 4 and 6): their headers, and writers for those without state.

use super::error::Code;

/// What a client sends first (RFC 9113, section 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame's header.
pub(crate) const HEADER: usize = 9;
/// The payload that every peer takes.
pub(crate) const PAYLOAD: usize = 16_384;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Flag of DATA and HEADERS: the sender is done with the stream.
pub(crate) const END_STREAM: u8 = 0x1;
/// Flag of SETTINGS and PING.
pub(crate) const ACK: u8 = 0x1;
/// Flag of HEADERS and CONTINUATION: the header block is whole.
pub(crate) const END_HEADERS: u8 = 0x4;
/// Flag of DATA and HEADERS: there is padding.
pub(crate) const PADDED: u8 = 0x8;
/// Flag of HEADERS: the old priority is there.
pub(crate) const WITH_PRIORITY: u8 = 0x20;

/// The header of a frame (RFC 9113, section 4.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub length: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl Header {
    /// Takes the header off the beginning of `input`, when all of it is there.
    #[inline]
    pub(crate) fn parse(input: &[u8]) -> Option<(Self, &[u8])> {
        let (&[a, b, c, kind, flags, d, e, f, g], rest) = input.split_first_chunk::<HEADER>()?;
        let header = Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([d & 0x7f, e, f, g]),
        };
        Some((header, rest))
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The big-endian number at the beginning of `input`.
#[inline]
pub(crate) fn number(input: &[u8]) -> Option<u32> {
    input
        .first_chunk::<4>()
        .map(|bytes| u32::from_be_bytes(*bytes))
}

/// Writes the header of a frame.
#[inline]
pub(crate) fn header(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags, d, e, f, g]);
}

pub(crate) fn rst_stream(out: &mut Vec<u8>, stream: u32, code: Code) {
    header(out, 4, RST_STREAM, 0, stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub(crate) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    header(out, 4, WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(crate) fn ping(out: &mut Vec<u8>, flags: u8, payload: [u8; 8]) {
    header(out, 8, PING, flags, 0);
    out.extend_from_slice(&payload);
}

pub(crate) fn goaway(out: &mut Vec<u8>, last: u32, code: Code, debug: &[u8]) {
    header(out, 8 + debug.len(), GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(debug);
}

/// Writes the header of the HEADERS frame whose block begins at `start + HEADER` and is the rest
/// of `out`; a block above `most` bytes is cut into CONTINUATION frames (RFC 9113, section 6.10).
#[inline]
pub(crate) fn seal(out: &mut Vec<u8>, start: usize, most: usize, flags: u8, stream: u32) {
    let length = out.len().saturating_sub(start + HEADER);
    if length > most {
        return seal_parts(out, start, most, flags, stream);
    }
    place_header(out, start, length, HEADERS, flags | END_HEADERS, stream);
}

fn place_header(out: &mut [u8], at: usize, length: usize, kind: u8, flags: u8, stream: u32) {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    if let Some(place) = out.get_mut(at..at + HEADER) {
        place.copy_from_slice(&[a, b, c, kind, flags, d, e, f, g]);
    }
}

#[cold]
fn seal_parts(out: &mut Vec<u8>, start: usize, most: usize, flags: u8, stream: u32) {
    let block = out.split_off(start + HEADER);
    let (first, rest) = block.split_at(most.min(block.len()));
    place_header(out, start, first.len(), HEADERS, flags, stream);
    out.extend_from_slice(first);
    let mut parts = rest.chunks(most.max(1)).peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_none() {
            END_HEADERS
        } else {
            0
        };
        header(out, part.len(), CONTINUATION, flags, stream);
        out.extend_from_slice(part);
    }
}

/// The payload without its padding (RFC 9113, section 6.1), or nothing when there is more padding
/// than payload.
#[inline]
pub(crate) fn unpadded(header: Header, payload: &[u8]) -> Option<&[u8]> {
    if !header.has(PADDED) {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    let length = rest.len().checked_sub(usize::from(padding))?;
    rest.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let mut out = Vec::new();
        header(&mut out, 0x01_0203, PING, ACK, 0x7fff_ffff);
        let (header, rest) = Header::parse(&out).unwrap();
        assert_eq!((header.length, header.kind), (0x01_0203, PING));
        assert_eq!((header.flags, header.stream), (ACK, 0x7fff_ffff));
        assert!(rest.is_empty() && Header::parse(&out[..8]).is_none());
    }

    #[test]
    fn large_blocks_are_cut() {
        let mut out = b"before".to_vec();
        out.extend_from_slice(&[0; HEADER]);
        out.extend_from_slice(&[7; 250]);
        seal(&mut out, 6, 100, END_STREAM, 5);
        let (mut input, mut found) = (&out[6..], Vec::new());
        while let Some((header, rest)) = Header::parse(input) {
            assert!(rest[..header.length].iter().all(|&byte| byte == 7));
            found.push((header.kind, header.flags, header.length));
            input = &rest[header.length..];
        }
        let wanted = [
            (HEADERS, END_STREAM, 100),
            (CONTINUATION, 0, 100),
            (CONTINUATION, END_HEADERS, 50),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn padding_is_taken_off() {
        let padded = Header {
            length: 0,
            kind: DATA,
            flags: PADDED,
            stream: 1,
        };
        assert_eq!(unpadded(padded, b"\x02abPP"), Some(&b"ab"[..]));
        assert_eq!(unpadded(padded, b"\x02PP"), Some(&b""[..]));
        assert_eq!(unpadded(padded, b"\x03PP"), None);
        assert_eq!(unpadded(padded, b""), None);
    }
}
