//! The heads of frames (RFC 6455, section 5.2).

use super::{Kind, Violation};

/// The longest head.
pub(super) const HEAD_MAX: usize = 14;
/// The longest payload of a control frame (RFC 6455, section 5.5).
pub(super) const CONTROL_MAX: usize = 125;

const FINAL: u8 = 0x80;
const COMPRESSED: u8 = 0x40;
const RESERVED: u8 = 0x30;
const MASKED: u8 = 0x80;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Data(Kind),
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Continuation,
            1 => Self::Data(Kind::Text),
            2 => Self::Data(Kind::Binary),
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn number(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Data(Kind::Text) => 1,
            Self::Data(Kind::Binary) => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    pub fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub opcode: Opcode,
    /// Whether the message ends with the frame.
    pub is_final: bool,
    /// RSV1: whether the message is compressed (RFC 7692, section 6).
    pub is_compressed: bool,
    pub mask: Option<[u8; 4]>,
    /// How long the payload is.
    pub length: u64,
}

impl FrameHead {
    /// Reads a head and says how long it is; `None` when more bytes are needed. What is wrong
    /// with the first two bytes is told when these are there.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Violation> {
        let &[first, second, ref rest @ ..] = bytes else {
            return Ok(None);
        };
        if first & RESERVED != 0 {
            return Err(Violation::protocol("a reserved bit is set"));
        }
        let Some(opcode) = Opcode::of(first & 0x0f) else {
            return Err(Violation::protocol("an unknown kind of frame"));
        };
        let is_final = first & FINAL != 0;
        let short = second & !MASKED;
        if opcode.is_control() && !is_final {
            return Err(Violation::protocol("a control frame in fragments"));
        }
        if opcode.is_control() && usize::from(short) > CONTROL_MAX {
            return Err(Violation::protocol("a control frame is too long"));
        }
        let Some((length, rest)) = read_length(short, rest)? else {
            return Ok(None);
        };
        let (mask, rest) = match (second & MASKED != 0, rest) {
            (false, rest) => (None, rest),
            (true, &[a, b, c, d, ref rest @ ..]) => (Some([a, b, c, d]), rest),
            (true, _) => return Ok(None),
        };
        let head = Self {
            opcode,
            is_final,
            is_compressed: first & COMPRESSED != 0,
            mask,
            length,
        };
        Ok(Some((head, bytes.len() - rest.len())))
    }

    /// Appends the head.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut first = self.opcode.number();
        if self.is_final {
            first |= FINAL;
        }
        if self.is_compressed {
            first |= COMPRESSED;
        }
        let mask = if self.mask.is_some() { MASKED } else { 0 };
        match self.length {
            short @ 0..=125 => out.extend_from_slice(&[first, mask | short as u8]),
            middle @ 126..=0xffff => {
                out.extend_from_slice(&[first, mask | 126]);
                out.extend_from_slice(&(middle as u16).to_be_bytes());
            }
            long => {
                out.extend_from_slice(&[first, mask | 127]);
                out.extend_from_slice(&long.to_be_bytes());
            }
        }
        if let Some(key) = self.mask {
            out.extend_from_slice(&key);
        }
    }
}

/// The length, and what is behind it. It is written as short as it can be.
fn read_length(short: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, Violation> {
    let (length, rest, least) = match short {
        126 => match rest.split_first_chunk::<2>() {
            Some((length, rest)) => (u64::from(u16::from_be_bytes(*length)), rest, 126),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk::<8>() {
            Some((length, rest)) => (u64::from_be_bytes(*length), rest, 0x1_0000),
            None => return Ok(None),
        },
        short => (u64::from(short), rest, 0),
    };
    if length < least || length > i64::MAX as u64 {
        return Err(Violation::protocol("a malformed length of a frame"));
    }
    Ok(Some((length, rest)))
}

/// Where the frame ends into which the first `count` of these bytes reach, when the bytes are whole
/// frames of a server: `count` itself when it is the end of a frame. For whoever has written a
/// part of frames that many share and may not put another frame into the middle.
pub fn frames_end(frames: &[u8], count: usize) -> usize {
    let mut end = 0;
    while end < count {
        let rest = frames.get(end..).unwrap_or_default();
        match FrameHead::read(rest) {
            Ok(Some((head, size))) => end += size + head.length as usize,
            // No frames: nothing may come between the bytes at all.
            Ok(None) | Err(_) => return frames.len().max(count),
        }
    }
    end
}
