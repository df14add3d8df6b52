//! What goes: messages and control frames to bytes (RFC 6455, sections 5 and 6.1).

use super::deflate::Deflate;
use super::frame::{CONTROL_MAX, FrameHead, Opcode};
use super::{CloseCode, Kind, Role, mask};

/// Makes frames. It keeps nothing from one message to the next: what a server's writer has made of
/// a message is right for every client with the same [`Deflate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Which side writes.
    pub role: Role,
    /// What has been agreed on about compression.
    pub deflate: Option<Deflate>,
}

impl Writer {
    /// Appends a message as one frame, compressed when that was agreed on: what cannot be made
    /// shorter grows by a few bytes. A text must be UTF-8.
    pub fn message(&self, kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
        let opcode = Opcode::Data(kind);
        if let Some(deflate) = self.deflate {
            let mut compressed = Vec::new();
            if deflate.compress(payload, &mut compressed) {
                return self.frame(opcode, true, &compressed, out);
            }
        }
        self.frame(opcode, false, payload, out);
    }

    /// Appends a ping with at most 125 bytes; what is longer is cut.
    pub fn ping(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.control(Opcode::Ping, payload, out);
    }

    /// Appends the answer to a ping; what is longer than 125 bytes is cut.
    pub fn pong(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.control(Opcode::Pong, payload, out);
    }

    /// Appends a close frame. A reason of more than 123 bytes is cut where a character ends.
    pub fn close(&self, code: Option<CloseCode>, reason: &str, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(CONTROL_MAX);
        if let Some(code) = code {
            payload.extend_from_slice(&code.0.to_be_bytes());
            let end = reason.floor_char_boundary(CONTROL_MAX - payload.len());
            payload.extend_from_slice(reason.get(..end).unwrap_or_default().as_bytes());
        }
        self.control(Opcode::Close, &payload, out);
    }

    fn control(&self, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
        let payload = payload.get(..CONTROL_MAX).unwrap_or(payload);
        self.frame(opcode, false, payload, out);
    }

    fn frame(&self, opcode: Opcode, is_compressed: bool, payload: &[u8], out: &mut Vec<u8>) {
        let head = FrameHead {
            opcode,
            is_final: true,
            is_compressed,
            mask: (self.role == Role::Client).then(mask::masking_key),
            length: payload.len() as u64,
        };
        out.reserve(payload.len() + super::frame::HEAD_MAX);
        head.write(out);
        mask::append(out, payload, head.mask, 0);
    }
}
