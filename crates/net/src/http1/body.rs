//! Bodies on the wire (RFC 9112, sections 6 and 7): where they end, and which of their bytes are
//! content. The decoder looks at bytes where they lie and copies nothing.

use super::grammar::Stop;
use super::head::{FIELDS_MAX, HeadLimits};
use message::Field;

/// How the length of a body is known (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// It has this many bytes.
    Length(u64),
    /// It comes in chunks.
    Chunked,
    /// It ends when the connection does. Replies only.
    UntilClose,
}

/// What the front of the input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// This many bytes of content.
    Data(usize),
    /// This many bytes of chunked framing.
    Overhead(usize),
    /// This many bytes of the trailer section, the empty line behind it included. The body ends
    /// with it.
    Trailers(usize),
    /// This many bytes that mean nothing to us and are not passed on: chunk extensions.
    Skip(usize),
    /// More input is needed.
    NeedMore,
    /// The body has ended; the input belongs to the next message.
    End,
}

/// A body that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyError(pub &'static str);

/// Tells where a body ends and which of its bytes are content.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    /// The most bytes of the trailer section, at most [`TRAILERS_MAX`].
    trailer_bytes: u16,
    /// The most lines of it.
    trailer_fields: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// This many bytes of a body of known length are to come.
    Length(u64),
    /// All bytes are content until the connection ends.
    UntilClose,
    /// A chunk's size line follows.
    SizeLine,
    /// The extension of a size line follows, this many bytes; then CRLF and so many content bytes.
    Extension(usize, u64),
    /// CRLF of a size line, and then this many content bytes.
    SizeLineEnd(u64),
    /// This many content bytes of a chunk.
    Chunk(u64),
    /// CRLF behind a chunk's content.
    ChunkEnd,
    /// The trailer section.
    Trailers,
    /// All is read.
    End,
}

impl State {
    fn start(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Self::End,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::SizeLine,
            Framing::UntilClose => Self::UntilClose,
        }
    }
}

/// The most bytes of a chunk's size line, extension included.
const SIZE_LINE_MAX: usize = 1024;
/// The most bytes of a trailer section. It is read again with every piece that arrives, so it must
/// be far smaller than a head may be.
const TRAILERS_MAX: usize = 8 * 1024;
/// The most digits of a chunk size: 2^60 bytes is enough for anybody.
const SIZE_DIGITS_MAX: usize = 15;

impl BodyDecoder {
    /// A decoder at the beginning of a body.
    pub fn new(framing: Framing, trailer_limits: HeadLimits) -> Self {
        Self {
            state: State::start(framing),
            trailer_bytes: trailer_limits.bytes.min(TRAILERS_MAX) as u16,
            trailer_fields: trailer_limits.fields.min(FIELDS_MAX) as u16,
        }
    }

    /// The same at the beginning of a body that is framed like this.
    pub(super) fn restarted(&self, framing: Framing) -> Self {
        Self {
            state: State::start(framing),
            ..*self
        }
    }

    /// Whether the whole body has been seen.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.state == State::End
    }

    /// Whether the end of the connection is a proper end of the body.
    pub fn may_end_with_connection(&self) -> bool {
        matches!(self.state, State::End | State::UntilClose)
    }

    /// Tells what the front of `input` is. The caller takes the bytes of the piece off the input
    /// before it asks again.
    ///
    /// # Errors
    /// When the framing is malformed or a limit is passed; the decoder is of no use then.
    #[inline]
    pub fn next(&mut self, input: &[u8]) -> Result<Piece, BodyError> {
        if self.state == State::End {
            return Ok(Piece::End);
        }
        if input.is_empty() {
            return Ok(Piece::NeedMore);
        }
        match self.state {
            State::Length(left) => Ok(self.data(input, left, State::Length, State::End)),
            State::UntilClose => Ok(Piece::Data(input.len())),
            State::Chunk(left) => Ok(self.data(input, left, State::Chunk, State::ChunkEnd)),
            _ => self.chunk_framing(input),
        }
    }

    fn data(&mut self, input: &[u8], left: u64, more: fn(u64) -> State, done: State) -> Piece {
        let count = left.min(input.len() as u64);
        self.state = if count == left {
            done
        } else {
            more(left - count)
        };
        Piece::Data(count as usize)
    }

    fn chunk_framing(&mut self, input: &[u8]) -> Result<Piece, BodyError> {
        match self.state {
            State::SizeLine => self.size_line(input),
            State::Extension(length, size) => {
                self.state = State::SizeLineEnd(size);
                Ok(Piece::Skip(length))
            }
            State::SizeLineEnd(0) => self.line_end(input, State::Trailers),
            State::SizeLineEnd(size) => self.line_end(input, State::Chunk(size)),
            State::ChunkEnd => self.line_end(input, State::SizeLine),
            _ => self.trailers(input),
        }
    }

    /// Waits for the whole line, so that nothing of a malformed one has been passed on.
    fn size_line(&mut self, input: &[u8]) -> Result<Piece, BodyError> {
        let digits = input
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        if digits > SIZE_DIGITS_MAX || (digits == 0) {
            return Err(BodyError("malformed chunk size"));
        }
        let size = input.get(..digits).unwrap_or_default();
        let size = size
            .iter()
            .fold(0, |size, digit| size << 4 | hex_value(*digit));
        match input.get(digits) {
            None => return Ok(Piece::NeedMore),
            Some(b'\r') => {
                self.state = State::SizeLineEnd(size);
                return Ok(Piece::Overhead(digits));
            }
            Some(b';') => {}
            Some(_) => return Err(BodyError("malformed chunk size")),
        }
        let rest = input.get(digits..).unwrap_or_default();
        let Some(length) = memchr::memchr(b'\r', rest) else {
            let fits = rest.len() <= SIZE_LINE_MAX && rest.iter().all(|byte| is_text(*byte));
            return if fits {
                Ok(Piece::NeedMore)
            } else {
                Err(BodyError("bad chunk extension"))
            };
        };
        let extension = rest.get(..length).unwrap_or_default();
        if length > SIZE_LINE_MAX || !extension.iter().all(|byte| is_text(*byte)) {
            return Err(BodyError("bad chunk extension"));
        }
        self.state = State::Extension(length, size);
        Ok(Piece::Overhead(digits))
    }

    fn line_end(&mut self, input: &[u8], next: State) -> Result<Piece, BodyError> {
        match input {
            [b'\r', b'\n', ..] => {
                self.state = next;
                Ok(Piece::Overhead(2))
            }
            [b'\r'] => Ok(Piece::NeedMore),
            _ => Err(BodyError("a chunk does not end where its size says")),
        }
    }

    /// Waits for the whole section, so that fields that change the meaning of the message are
    /// refused before any of it has been passed on.
    fn trailers(&mut self, input: &[u8]) -> Result<Piece, BodyError> {
        let bytes_max = usize::from(self.trailer_bytes);
        let fields_max = usize::from(self.trailer_fields);
        let mut is_refused = false;
        let note = |name: &[u8], _: &[u8]| is_refused |= Field::of(name).breaks_trailers();
        match super::head::read_trailers(input, fields_max, note) {
            Err(Stop::Incomplete) if input.len() > bytes_max => {
                Err(BodyError("the trailer section is too large"))
            }
            Err(Stop::Incomplete) => Ok(Piece::NeedMore),
            Err(_) => Err(BodyError("malformed trailer section")),
            Ok(length) if length > bytes_max => Err(BodyError("the trailer section is too large")),
            Ok(_) if is_refused => Err(BodyError(
                "a trailer names a field that belongs to the head",
            )),
            Ok(length) => {
                self.state = State::End;
                Ok(Piece::Trailers(length))
            }
        }
    }
}

fn hex_value(digit: u8) -> u64 {
    char::from(digit).to_digit(16).unwrap_or_default().into()
}

/// Visible text, space, tab or bytes above ASCII: what may stand in a chunk extension.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests;
