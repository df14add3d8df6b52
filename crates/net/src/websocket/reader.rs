//! What comes: bytes to messages and control frames (RFC 6455, sections 5 and 6.2).

use bytes::Bytes;
use message::memory::Cover;

use super::deflate::{Deflate, Inflater};
use super::frame::{FrameHead, HEAD_MAX, Opcode};
use super::{CloseCode, Kind, Role, Violation, mask};

/// How much of a payload is unmasked at a time before it is decompressed.
const CHUNK: usize = 2048;
/// How much room a frame gets before its bytes are there.
const ROOM_MAX: usize = 64 * 1024;
/// What a reader takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a message, decompressed.
    pub message: usize,
    /// The most bytes of a frame's payload, as it comes.
    pub frame: u64,
    /// The most frames of a message.
    pub fragments: u32,
}

impl Limits {
    /// Messages of at most this many bytes, in up to 262,144 frames.
    pub fn of_message(message: usize) -> Self {
        Self {
            message,
            frame: compressed(message),
            fragments: 1 << 18,
        }
    }
}

/// The most that a message of this many bytes becomes by compression that makes it no shorter.
fn compressed(message: usize) -> u64 {
    let message = message as u64;
    message + message / 256 + 1024
}

/// What has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A whole message. A text is UTF-8.
    Message(Kind, Bytes),
    /// The other side wants these bytes back in a pong (RFC 6455, section 5.5.2).
    Ping(Bytes),
    /// An answer to a ping (RFC 6455, section 5.5.3).
    Pong(Bytes),
    /// The other side ends the connection and says why (RFC 6455, section 5.5.1). Nothing that
    /// follows counts.
    Close(Option<(CloseCode, String)>),
}

/// Makes messages of bytes.
#[derive(Debug)]
pub struct Reader {
    role: Role,
    limits: Limits,
    deflate: Option<Deflate>,
    /// The beginning of a head.
    start: [u8; HEAD_MAX],
    start_length: u8,
    frame: Option<Frame>,
    message: Option<Box<Partial>>,
    control: Vec<u8>,
    /// That of a connection whose messages refer to each other.
    kept: Option<Inflater>,
}

/// A frame of which the head is there.
#[derive(Clone, Copy, Debug)]
struct Frame {
    head: FrameHead,
    /// How many bytes of the payload have come.
    at: u64,
}

/// A message of which not all is there.
#[derive(Debug)]
struct Partial {
    kind: Kind,
    bytes: Vec<u8>,
    /// What is reserved for them of the memory for bodies.
    cover: Cover,
    /// Up to where the bytes are known to be UTF-8.
    valid: usize,
    inflater: Option<Inflater>,
    /// How many frames have begun, and how many bytes they have together as they come.
    frames: u32,
    size: u64,
}

impl Reader {
    /// Reads what comes to this side of a connection.
    pub fn new(role: Role, limits: Limits, deflate: Option<Deflate>) -> Self {
        Self {
            role,
            limits,
            deflate,
            start: [0; HEAD_MAX],
            start_length: 0,
            frame: None,
            message: None,
            control: Vec::new(),
            kept: None,
        }
    }

    /// Whether a frame or message has begun and not ended.
    pub fn is_amid(&self) -> bool {
        self.start_length > 0 || self.frame.is_some() || self.message.is_some()
    }

    /// How many bytes of a message are there that has begun and not ended.
    pub fn buffered(&self) -> usize {
        self.message.as_ref().map_or(0, |it| it.bytes.len())
    }

    /// Takes bytes up to the end of a frame, or all of them when no frame ends in them, and says
    /// how many: who reads counts frames, of which a message may have any number. Behind a
    /// [`Event::Close`] nothing more is to be read.
    ///
    /// # Errors
    /// When the other side has broken the protocol or a limit; then nothing more is to be read.
    pub fn read(&mut self, input: &[u8]) -> Result<(usize, Option<Event>), Violation> {
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            match self.frame {
                None => {
                    used += self.read_head(rest)?;
                    if self.frame.is_none() {
                        return Ok((used, None));
                    }
                }
                Some(frame) => {
                    used += self.read_payload(frame, rest)?;
                    match self.frame {
                        Some(frame) if frame.at == frame.head.length => {
                            self.frame = None;
                            return Ok((used, self.end_frame(frame.head)?));
                        }
                        _ => return Ok((used, None)),
                    }
                }
            }
        }
    }

    /// Reads a head, whole or in parts.
    fn read_head(&mut self, input: &[u8]) -> Result<usize, Violation> {
        if self.start_length == 0
            && let Some((head, size)) = FrameHead::read(input)?
        {
            self.begin_frame(head)?;
            return Ok(size);
        }
        let mut used = 0;
        for &byte in input {
            let length = usize::from(self.start_length);
            let Some(place) = self.start.get_mut(length) else {
                return Err(Violation::protocol("a malformed frame"));
            };
            *place = byte;
            used += 1;
            self.start_length += 1;
            let start = self.start.get(..=length).unwrap_or_default();
            if let Some((head, _)) = FrameHead::read(start)? {
                self.start_length = 0;
                self.begin_frame(head)?;
                break;
            }
        }
        Ok(used)
    }

    fn begin_frame(&mut self, head: FrameHead) -> Result<(), Violation> {
        if head.mask.is_some() != (self.role == Role::Server) {
            let reason = match self.role {
                Role::Server => "a frame of a client is not masked",
                Role::Client => "a frame of a server is masked",
            };
            return Err(Violation::protocol(reason));
        }
        let is_first = matches!(head.opcode, Opcode::Data(_));
        if head.is_compressed && (self.deflate.is_none() || !is_first) {
            return Err(Violation::protocol("a reserved bit is set"));
        }
        match (head.opcode, &self.message) {
            (Opcode::Data(_), Some(_)) => {
                return Err(Violation::protocol("a message within another"));
            }
            (Opcode::Continuation, None) => {
                return Err(Violation::protocol("a continuation of no message"));
            }
            (Opcode::Data(kind), None) => self.message = Some(self.begin_message(kind, head)),
            _ => {}
        }
        if !head.opcode.is_control() {
            self.check_size(head)?;
        }
        self.frame = Some(Frame { head, at: 0 });
        Ok(())
    }

    fn begin_message(&mut self, kind: Kind, head: FrameHead) -> Box<Partial> {
        let inflater = head
            .is_compressed
            .then(|| self.kept.take().unwrap_or_else(Inflater::new));
        Box::new(Partial {
            kind,
            bytes: Vec::new(),
            cover: Cover::default(),
            valid: 0,
            inflater,
            frames: 0,
            size: 0,
        })
    }

    /// Refuses what is too long as soon as it is announced.
    fn check_size(&mut self, head: FrameHead) -> Result<(), Violation> {
        let Some(message) = &mut self.message else {
            return Ok(());
        };
        message.frames += 1;
        message.size = message.size.saturating_add(head.length);
        let most = match message.inflater {
            Some(_) => compressed(self.limits.message),
            None => self.limits.message as u64,
        };
        if head.length > self.limits.frame || message.size > most {
            return Err(Violation::TOO_BIG);
        }
        if message.frames > self.limits.fragments {
            return Err(Violation {
                code: CloseCode::POLICY,
                reason: "a message in too many frames",
            });
        }
        if message.inflater.is_none() {
            let room = ROOM_MAX.min(head.length as usize);
            match head.is_final {
                true => message.bytes.reserve_exact(room),
                false => message.bytes.reserve(room),
            }
        }
        Ok(())
    }

    fn read_payload(&mut self, frame: Frame, input: &[u8]) -> Result<usize, Violation> {
        let left = frame.head.length - frame.at;
        let count = input.len().min(left.try_into().unwrap_or(usize::MAX));
        let bytes = input.get(..count).unwrap_or_default();
        let (key, at) = (frame.head.mask, (frame.at % 4) as usize);
        match &mut self.message {
            Some(message) if !frame.head.opcode.is_control() => {
                message.append(bytes, (key, at), self.limits.message)?;
            }
            _ => mask::append(&mut self.control, bytes, key, at),
        }
        self.frame = Some(Frame {
            at: frame.at + count as u64,
            ..frame
        });
        Ok(count)
    }

    fn end_frame(&mut self, head: FrameHead) -> Result<Option<Event>, Violation> {
        if head.opcode.is_control() {
            let payload = std::mem::take(&mut self.control);
            return Ok(Some(match head.opcode {
                Opcode::Ping => Event::Ping(payload.into()),
                Opcode::Pong => Event::Pong(payload.into()),
                _ => Event::Close(read_close(&payload)?),
            }));
        }
        let Some(mut message) = self.message.take_if(|_| head.is_final) else {
            return Ok(None);
        };
        message.finish(self.limits.message)?;
        if self.deflate.is_some_and(|it| it.peer_keeps_context) {
            self.kept = message.inflater.take();
        }
        let bytes = message.cover.hold(message.bytes);
        Ok(Some(Event::Message(message.kind, bytes)))
    }
}

impl Partial {
    fn append(
        &mut self,
        bytes: &[u8],
        (key, at): (Option<[u8; 4]>, usize),
        max: usize,
    ) -> Result<(), Violation> {
        match &mut self.inflater {
            None => mask::append(&mut self.bytes, bytes, key, at),
            Some(inflater) => {
                let mut plain = [0; CHUNK];
                for (number, chunk) in bytes.chunks(CHUNK).enumerate() {
                    let plain = plain.get_mut(..chunk.len()).unwrap_or_default();
                    plain.copy_from_slice(chunk);
                    if let Some(key) = key {
                        mask::apply(plain, key, at + number * CHUNK);
                    }
                    inflater.push(plain, &mut self.bytes, max)?;
                }
            }
        }
        self.cover_bytes()?;
        self.check_text()
    }

    fn cover_bytes(&mut self) -> Result<(), Violation> {
        let covered = self.cover.cover(self.bytes.len());
        covered.map_err(|_| Violation::NO_MEMORY)
    }

    /// Fails as soon as the bytes cannot become UTF-8 any more (RFC 6455, section 8.1).
    fn check_text(&mut self) -> Result<(), Violation> {
        if self.kind == Kind::Binary {
            return Ok(());
        }
        let new = self.bytes.get(self.valid..).unwrap_or_default();
        match std::str::from_utf8(new) {
            Ok(_) => self.valid = self.bytes.len(),
            Err(error) if error.error_len().is_none() => self.valid += error.valid_up_to(),
            Err(_) => return Err(NOT_UTF_8),
        }
        Ok(())
    }

    fn finish(&mut self, max: usize) -> Result<(), Violation> {
        if let Some(inflater) = &mut self.inflater {
            inflater.finish(&mut self.bytes, max)?;
            self.cover_bytes()?;
            self.check_text()?;
        }
        match self.kind == Kind::Text && self.valid < self.bytes.len() {
            true => Err(NOT_UTF_8),
            false => Ok(()),
        }
    }
}

const NOT_UTF_8: Violation = Violation::data("a text is not UTF-8");

/// The code and the reason of a close frame.
fn read_close(payload: &[u8]) -> Result<Option<(CloseCode, String)>, Violation> {
    match payload {
        [] => Ok(None),
        [high, low, reason @ ..] => {
            let code = CloseCode(u16::from_be_bytes([*high, *low]));
            if !code.may_be_sent() {
                return Err(Violation::protocol("a close code that may not be sent"));
            }
            let reason = std::str::from_utf8(reason).map_err(|_| NOT_UTF_8)?;
            Ok(Some((code, reason.to_owned())))
        }
        _ => Err(Violation::protocol("a close frame without its code")),
    }
}
