//! Frames of WebSocket (RFC 6455 section 5) and its handshake: what stub and load generator share.
//! Extensions are not spoken, and messages are bounded by their readers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// The opcode of a continuation frame.
pub const CONTINUATION: u8 = 0;
/// The opcode of a text frame.
pub const TEXT: u8 = 1;
/// The opcode of a binary frame.
pub const BINARY: u8 = 2;
/// The opcode of a close frame.
pub const CLOSE: u8 = 8;
/// The opcode of a ping frame.
pub const PING: u8 = 9;
/// The opcode of a pong frame.
pub const PONG: u8 = 10;

/// What the head of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whether it is the last frame of its message.
    pub is_final: bool,
    /// Whether a bit is set that belongs to an extension.
    pub has_reserved: bool,
    /// One of the constants above.
    pub opcode: u8,
    /// The key, when the payload is masked.
    pub mask: Option<[u8; 4]>,
    /// The bytes of the payload.
    pub length: usize,
    /// The bytes of the head.
    pub size: usize,
}

impl Head {
    /// Where the frame ends.
    pub fn end(&self) -> usize {
        self.size.saturating_add(self.length)
    }
}

/// The head of the frame that begins here; `None` while it is incomplete.
pub fn head(bytes: &[u8]) -> Option<Head> {
    let [first, second, rest @ ..] = bytes else {
        return None;
    };
    let (length, extra) = match second & 0x7F {
        126 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 2),
        127 => (u64::from_be_bytes(*rest.first_chunk()?), 8),
        length => (u64::from(length), 0),
    };
    let has_mask = second & 0x80 != 0;
    let mask = match has_mask {
        true => Some(*rest.get(extra..)?.first_chunk::<4>()?),
        false => None,
    };
    Some(Head {
        is_final: first & 0x80 != 0,
        has_reserved: first & 0x70 != 0,
        opcode: first & 0x0F,
        mask,
        length: usize::try_from(length).unwrap_or(usize::MAX),
        size: 2 + extra + if has_mask { 4 } else { 0 },
    })
}

/// Adds the head of a whole message in one frame.
pub fn write_head(opcode: u8, length: usize, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    out.push(0x80 | opcode);
    let bit = if mask.is_some() { 0x80 } else { 0 };
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length), _) if length < 126 => out.push(bit | length),
        (_, Ok(length)) => {
            out.push(bit | 126);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(bit | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(mask.as_ref().map_or(&[], |mask| mask.as_slice()));
}

/// Adds a whole message in one frame, masked as clients must.
pub fn write_masked(opcode: u8, payload: &[u8], key: [u8; 4], out: &mut Vec<u8>) {
    write_head(opcode, payload.len(), Some(key), out);
    let start = out.len();
    out.extend_from_slice(payload);
    mask(out.get_mut(start..).unwrap_or_default(), key);
}

/// Puts the mask on, or takes it off.
pub fn mask(bytes: &mut [u8], key: [u8; 4]) {
    let wide = u64::from_ne_bytes([
        key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3],
    ]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

/// The answer to a client's key (RFC 6455 section 4.2.2).
pub fn accept(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_answered_as_the_rfc_says() {
        assert_eq!(
            accept(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn frames_of_all_lengths_are_read_again() {
        for length in [0, 1, 125, 126, 65_535, 65_536, 100_000] {
            for key in [None, Some([1, 2, 3, 4])] {
                let mut bytes = Vec::new();
                write_head(BINARY, length, key, &mut bytes);
                for cut in 0..bytes.len() {
                    assert_eq!(head(&bytes[..cut]), None);
                }
                let head = head(&bytes).unwrap();
                assert_eq!((head.length, head.mask), (length, key));
                assert_eq!((head.size, head.opcode), (bytes.len(), BINARY));
                assert!(head.is_final && !head.has_reserved);
            }
        }
    }

    #[test]
    fn the_example_of_the_rfc_is_unmasked() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        let mut payload = [0x7f, 0x9f, 0x4d, 0x51, 0x58];
        mask(&mut payload, key);
        assert_eq!(&payload, b"Hello");
        let text: Vec<u8> = (0..=255).collect();
        let mut masked = Vec::new();
        write_masked(TEXT, &text, key, &mut masked);
        let head = head(&masked).unwrap();
        mask(&mut masked[head.size..], key);
        assert_eq!(masked[head.size..], text);
    }
}
