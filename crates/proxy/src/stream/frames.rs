//! Follows the frames of a WebSocket connection (RFC 6455, section 5.2) as their bytes pass,
//! without touching them: where one ends, which carry data, whether it was the last.

/// The most bytes of a frame's header.
#[cfg(test)]
const HEADER_MAX: usize = 14;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CONTINUATION: u8 = 0;
const CLOSE: u8 = 8;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// How many bytes of the frame's payload are still to come.
    left: u64,
    /// Whether the frame that closes the connection has begun.
    pub has_close: bool,
}

/// What stands at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// So many bytes of a payload.
    Payload(usize),
    /// A header.
    Header(Header),
    /// A header that is not whole.
    NeedMore,
    /// No header of a frame.
    Malformed,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// How many bytes it takes.
    pub length: usize,
    payload: u64,
    opcode: u8,
}

impl Header {
    /// Whether the frame carries data of a message.
    pub fn is_data(self) -> bool {
        matches!(self.opcode, CONTINUATION | TEXT | BINARY)
    }
}

impl Frames {
    /// Whether the next byte begins a frame.
    pub fn is_between(&self) -> bool {
        self.left == 0
    }

    /// What the bytes begin with. Nothing changes until [`Frames::pass`] or [`Frames::enter`].
    #[inline]
    pub fn look(&self, bytes: &[u8]) -> Part {
        if self.left > 0 {
            let left = usize::try_from(self.left).unwrap_or(usize::MAX);
            return Part::Payload(left.min(bytes.len()));
        }
        header(bytes)
    }

    /// So many bytes of the payload pass.
    #[inline]
    pub fn pass(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count as u64);
    }

    /// A header passes.
    #[inline]
    pub fn enter(&mut self, header: Header) {
        self.left = header.payload;
        self.has_close |= header.opcode == CLOSE;
    }
}

#[inline]
fn header(bytes: &[u8]) -> Part {
    let [first, second, rest @ ..] = bytes else {
        return Part::NeedMore;
    };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let (extended, payload) = match second & 0x7f {
        126 => match rest {
            [high, low, ..] => (2, u64::from(u16::from_be_bytes([*high, *low]))),
            _ => return Part::NeedMore,
        },
        127 => match rest.first_chunk() {
            Some(length) => (8, u64::from_be_bytes(*length)),
            None => return Part::NeedMore,
        },
        short => (0, u64::from(short)),
    };
    if payload >> 63 != 0 {
        return Part::Malformed;
    }
    let length = 2 + extended + mask;
    if bytes.len() < length {
        return Part::NeedMore;
    }
    Part::Header(Header {
        length,
        payload,
        opcode: first & 0x0f,
    })
}

/// The most bytes of the reason in a close frame.
const REASON_MAX: usize = 123;

/// A frame that closes the connection (RFC 6455, section 5.5.1), masked with this key by a client.
/// The reason has at most 123 bytes of ASCII; what is longer is cut.
pub(crate) fn close(code: u16, reason: &str, mask: Option<[u8; 4]>) -> Vec<u8> {
    let reason = reason.as_bytes();
    let reason = reason.get(..REASON_MAX).unwrap_or(reason);
    let mut payload = [&code.to_be_bytes(), reason].concat();
    let length = payload.len() as u8;
    match mask {
        None => [&[0x80 | CLOSE, length], &*payload].concat(),
        Some(key) => {
            for (byte, key) in payload.iter_mut().zip(key.iter().cycle()) {
                *byte ^= key;
            }
            [&[0x80 | CLOSE, 0x80 | length], &key[..], &*payload].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, payload: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut bytes = vec![0x80 | opcode];
        match payload {
            0..126 => bytes.push(mask | payload as u8),
            126..65536 => {
                bytes.push(mask | 126);
                bytes.extend_from_slice(&(payload as u16).to_be_bytes());
            }
            _ => {
                bytes.push(mask | 127);
                bytes.extend_from_slice(&(payload as u64).to_be_bytes());
            }
        }
        if masked {
            bytes.extend_from_slice(&[1, 2, 3, 4]);
        }
        assert!(bytes.len() <= HEADER_MAX);
        bytes.resize(bytes.len() + payload, 0xff);
        bytes
    }

    /// Data frames and others, as they pass in pieces of this size.
    fn follow(bytes: &[u8], size: usize) -> (usize, usize, Frames) {
        let (mut frames, mut data, mut others) = (Frames::default(), 0, 0);
        let (mut start, mut end) = (0, 0);
        while start < bytes.len() {
            end = (end + size).min(bytes.len());
            loop {
                match frames.look(&bytes[start..end]) {
                    Part::Payload(0) | Part::NeedMore => break,
                    Part::Payload(count) => {
                        frames.pass(count);
                        start += count;
                    }
                    Part::Header(header) => {
                        if header.is_data() {
                            data += 1;
                        } else {
                            others += 1;
                        }
                        frames.enter(header);
                        start += header.length;
                    }
                    Part::Malformed => panic!("these are frames"),
                }
            }
        }
        (data, others, frames)
    }

    #[test]
    fn frames_are_followed_however_they_are_cut() {
        let sizes = [0, 1, 125, 126, 127, 65535, 65536];
        let mut bytes = Vec::new();
        for payload in sizes {
            bytes.extend(frame(BINARY, payload, true));
            bytes.extend(frame(TEXT, payload, false));
        }
        bytes.extend(frame(9, 5, true));
        for size in [1, 2, 3, 7, 1000, bytes.len()] {
            let (data, others, frames) = follow(&bytes, size);
            assert_eq!((data, others), (2 * sizes.len(), 1), "{size}");
            assert!(frames.is_between() && !frames.has_close);
        }
        let close = close(1001, "", Some([9, 8, 7, 6]));
        let (_, others, frames) = follow(&close, 1);
        assert!(others == 1 && frames.has_close && frames.is_between());
        let (_, _, half) = follow(&bytes[..bytes.len() - 1], 100);
        assert!(!half.is_between());
    }

    #[test]
    fn a_length_beyond_all_bounds_is_no_frame() {
        let bytes = [0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Frames::default().look(&bytes), Part::Malformed);
    }
}
