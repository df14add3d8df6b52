//! Bodies on their way through a connection: a [`BodyReader`] takes one off the input, a
//! [`BodyWriter`] puts one on the wire. Both are state machines, over a [`Transport`] and an
//! [`Output`]. Neither copies a large body: the reader hands out the bytes where they lie, and the
//! writer passes them to the socket from there.

use std::fmt;
use std::io;
use std::task::{Context, Poll, ready};

use message::{Field, Headers, HeadersView};

use super::{BodyDecoder, Framing, HeadLimits, Piece};
use crate::Buffer;
use crate::budget::{self, Budget};
use crate::transport::{Output, Transport};

/// How many bytes of a request are kept after they were taken, so that it can be sent again.
pub const REPLAY_MAX: usize = 32 * 1024;
/// How many bytes may wait for the connection to take them.
const STAGED_MAX: usize = 64 * 1024;
/// Fewer bytes than these are copied behind what waits already, instead of a write of their own.
const DIRECT_MIN: usize = 4096;

/// Whether a piece of a body is the last.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// More may follow.
    More,
    /// The body ends behind the piece, with these trailers.
    End(Option<HeadersView<'a>>),
}

impl End<'_> {
    /// Whether the body ends behind the piece.
    #[inline]
    pub fn is_end(&self) -> bool {
        matches!(self, Self::End(_))
    }
}

/// Why a body cannot be read to its end.
#[derive(Debug)]
pub enum ReadError {
    /// What came is no body.
    Malformed(&'static str),
    /// The connection ended before the body did.
    Truncated,
    /// The connection broke.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) => formatter.write_str(reason),
            Self::Truncated => formatter.write_str("the body ended too early"),
            Self::Io(error) => error.fmt(formatter),
        }
    }
}

/// Why a transfer from one side to another stopped.
#[derive(Debug)]
pub enum TransferError {
    /// The body could not be read.
    Source(ReadError),
    /// It could not be written.
    Sink(io::Error),
}

/// Reads one body off a connection.
///
/// Taken bytes leave the input at once, unless the reader keeps them for a replay: then the decoder
/// can be rewound, for another attempt, until more than [`REPLAY_MAX`] bytes have been taken or
/// [`BodyReader::commit`] was called.
#[derive(Debug)]
pub struct BodyReader {
    decoder: BodyDecoder,
    /// How the body is framed, while bytes are kept: the decoder can begin anew.
    replayed: Option<Framing>,
    /// Where the body begins in the input while bytes are kept: behind the message's head.
    head: usize,
    /// How many bytes at the front of the input have been taken and are kept, the head included.
    kept: usize,
    /// How many bytes behind those may be taken as they are.
    ready: usize,
    /// Whether framing is taken too, so that the body can go on byte for byte as it came.
    is_raw: bool,
    /// Whether the connection's end was the body's.
    is_closed: bool,
    is_ended: bool,
    trailers: Option<Box<Headers>>,
    /// Bytes that were read from the connection.
    filled: u64,
    /// Bytes that were taken.
    taken: u64,
    /// What has been decoded since this reader was last pending.
    budget: Budget,
}

impl BodyReader {
    /// Reads a body whose first byte is at the front of the input.
    pub fn new(framing: Framing, limits: HeadLimits) -> Self {
        let decoder = BodyDecoder::new(framing, limits);
        Self {
            is_ended: false,
            decoder,
            replayed: None,
            head: 0,
            kept: 0,
            ready: 0,
            is_raw: false,
            is_closed: false,
            trailers: None,
            filled: 0,
            taken: 0,
            budget: Budget::default(),
        }
    }

    /// Reads a body that follows a head of `head` bytes at the front of the input, and keeps both
    /// for a replay.
    pub fn with_replay(framing: Framing, limits: HeadLimits, head: usize) -> Self {
        Self {
            replayed: Some(framing),
            head,
            kept: head,
            ..Self::new(framing, limits)
        }
    }

    /// Hands chunk framing out as well, for a writer that adds none.
    #[must_use]
    pub fn raw(self) -> Self {
        Self {
            is_raw: true,
            ..self
        }
    }

    /// Whether all of the body has been taken.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether nothing of the body is left in the input or still to come.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.ready == 0 && self.decoder.is_done()
    }

    /// How many bytes have been read or taken; tells progress.
    pub fn moved(&self) -> u64 {
        self.filled + self.taken
    }

    /// How many bytes have been taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether the body can be read from its beginning once more.
    pub fn can_rewind(&self) -> bool {
        self.replayed.is_some()
    }

    /// Goes back to the body's beginning.
    pub fn rewind(&mut self) {
        if let Some(framing) = self.replayed {
            self.decoder = self.decoder.restarted(framing);
            self.kept = self.head;
            self.ready = 0;
            self.is_ended = false;
            self.trailers = None;
        }
    }

    /// Drops what has been kept: there will be no replay.
    pub fn commit(&mut self, input: &mut Buffer) {
        input.consume(std::mem::take(&mut self.kept));
        self.replayed = None;
        self.head = 0;
    }

    /// Whether nothing is there that could be taken: the body goes on when the other side sends
    /// more. Holds behind a [`BodyReader::poll_take`] that was pending.
    pub fn is_starving(&self) -> bool {
        self.ready == 0 && !self.is_whole()
    }

    /// Drops what is there of the body, without reading from the connection, and what was kept.
    pub fn discard(&mut self, input: &mut Buffer) {
        self.commit(input);
        loop {
            input.consume(std::mem::take(&mut self.ready));
            if self.is_whole() || self.scan(input).is_err() || self.ready == 0 {
                return;
            }
        }
    }

    /// Hands what is there of the body to `take`, with whether it ends behind that; `take` answers
    /// how many bytes it has used. Reads from the connection when nothing is there. Pending, too,
    /// when its [`Budget`] is spent: the task is woken after others.
    ///
    /// # Errors
    /// When the body cannot be read, or with the error of `take`.
    #[inline]
    pub fn poll_take<T: Transport>(
        &mut self,
        context: &mut Context<'_>,
        transport: &mut T,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        if self.budget.yields(context) {
            return Poll::Pending;
        }
        let taken = self.poll_take_now(context, transport, take);
        if taken.is_pending() {
            self.budget.refill();
        }
        taken
    }

    #[inline]
    fn poll_take_now<T: Transport>(
        &mut self,
        context: &mut Context<'_>,
        transport: &mut T,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        while self.ready == 0 && !self.is_whole() {
            self.scan(transport.input_mut())?;
            if self.ready == 0 && !self.is_whole() {
                ready!(self.poll_fill(context, transport))?;
            }
        }
        let end = match self.is_whole() {
            true => End::End(self.trailers.as_ref().map(|trailers| trailers.view())),
            false => End::More,
        };
        let bytes = transport.input().bytes();
        let bytes = bytes
            .get(self.kept..self.kept + self.ready)
            .unwrap_or_default();
        let used = ready!(take(context, bytes, end)).map_err(TransferError::Sink)?;
        self.is_ended = end.is_end() && used == self.ready;
        self.ready -= used.min(self.ready);
        self.taken += used as u64;
        self.pass(transport.input_mut(), used);
        Poll::Ready(Ok(()))
    }

    /// Whether the end of the body is in sight: nothing behind what is ready belongs to it.
    #[inline]
    fn is_whole(&self) -> bool {
        self.is_closed || self.decoder.is_done()
    }

    fn poll_fill<T: Transport>(
        &mut self,
        context: &mut Context<'_>,
        transport: &mut T,
    ) -> Poll<Result<(), TransferError>> {
        let source = |error| TransferError::Source(error);
        match ready!(transport.poll_fill(context)).map_err(|error| source(ReadError::Io(error)))? {
            0 if self.decoder.may_end_with_connection() => self.is_closed = true,
            0 => return Poll::Ready(Err(source(ReadError::Truncated))),
            count => self.filled += count as u64,
        }
        self.budget.spend(budget::READ);
        Poll::Ready(Ok(()))
    }

    /// Looks at what has been read. Afterwards something is ready, or the end is in sight, or more
    /// must be read.
    #[inline]
    fn scan(&mut self, input: &mut Buffer) -> Result<(), TransferError> {
        loop {
            self.budget.spend(budget::PIECE);
            let at = self.kept + self.ready;
            let rest = input.bytes().get(at..).unwrap_or_default();
            let piece = self.decoder.next(rest);
            let piece =
                piece.map_err(|error| TransferError::Source(ReadError::Malformed(error.0)))?;
            match piece {
                Piece::End | Piece::NeedMore => return Ok(()),
                Piece::Data(count) => {
                    self.ready += count;
                    if !self.is_raw {
                        return Ok(());
                    }
                }
                Piece::Skip(count) if self.is_raw => input.remove(at, count),
                Piece::Overhead(count) if self.is_raw => self.ready += count,
                Piece::Trailers(count) if self.is_raw => {
                    self.ready += count - remove_fields_of_head(input, at, count);
                }
                Piece::Trailers(count) => {
                    let section = rest.get(..count).unwrap_or_default();
                    self.trailers = super::head::trailers(section).map(Box::new);
                    self.pass(input, count);
                }
                Piece::Overhead(count) | Piece::Skip(count) => self.pass(input, count),
            }
        }
    }

    /// Goes on behind bytes that have been taken: they are kept, or leave the input. Framing that
    /// leaves it makes a replay as impossible as content does.
    #[inline]
    fn pass(&mut self, input: &mut Buffer, count: usize) {
        if count == 0 {
            return;
        }
        self.kept += count;
        if self.replayed.is_none() || self.kept - self.head > REPLAY_MAX {
            self.commit(input);
        }
    }
}

/// Takes the lines that may not be trailers out of a checked trailer section, `count` bytes behind
/// the first `at` ones, and tells how many bytes that were.
fn remove_fields_of_head(input: &mut Buffer, at: usize, count: usize) -> usize {
    let (mut start, mut end) = (at, at + count);
    loop {
        let section = input.bytes().get(start..end).unwrap_or_default();
        let Some(length) = section.windows(2).position(|two| two == b"\r\n") else {
            return at + count - end;
        };
        let line = section.get(..length).unwrap_or_default();
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        // The section ends with an empty line.
        if line.is_empty() || Field::of(name).is_trailer(name) {
            start += length + 2;
        } else {
            input.remove(start, length + 2);
            end -= length + 2;
        }
    }
}

/// Writes one message to a connection: a head that is staged first, then its body.
#[derive(Debug)]
pub struct BodyWriter {
    /// What waits for the connection, of which so many bytes are written.
    staged: Vec<u8>,
    written: usize,
    is_chunked: bool,
    is_finished: bool,
    /// How many bytes the connection has accepted.
    sent: u64,
}

impl BodyWriter {
    /// A message of which this is staged. Whether its body goes in chunks can be said later.
    pub fn new(staged: Vec<u8>) -> Self {
        Self {
            staged,
            written: 0,
            is_chunked: false,
            is_finished: false,
            sent: 0,
        }
    }

    /// Sends the body in chunks (RFC 9112, section 7.1) from here on, or as it is.
    pub fn set_chunked(&mut self, is_chunked: bool) {
        self.is_chunked = is_chunked;
    }

    /// Where heads are appended. What stands there goes out before the body.
    pub fn staged_mut(&mut self) -> &mut Vec<u8> {
        if self.written == self.staged.len() {
            self.staged.clear();
            self.written = 0;
        } else if self.written >= STAGED_MAX / 2 {
            self.staged.drain(..self.written);
            self.written = 0;
        }
        &mut self.staged
    }

    /// Whether some of what is staged has gone out and some has not.
    pub fn is_partly_written(&self) -> bool {
        self.written > 0 && !self.is_flushed()
    }

    /// How many bytes the connection has accepted: none means that nothing can have been acted on.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether the end of the body has been accepted and nothing waits.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.is_finished && self.is_flushed()
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.written == self.staged.len()
    }

    /// Gives the buffer up when nothing waits in it and it is larger than this.
    pub fn shrink(&mut self, most: usize) {
        if self.is_flushed() && self.staged.capacity() > most {
            self.written = 0;
            self.staged = Vec::new();
        }
    }

    /// The buffer, when nothing waits in it.
    pub fn take_buffer(&mut self) -> Option<Vec<u8>> {
        self.is_flushed().then(|| {
            self.written = 0;
            std::mem::take(&mut self.staged)
        })
    }

    /// Accepts some of a piece of the body. An end counts once all bytes in front of it were
    /// accepted.
    ///
    /// # Errors
    /// Those of the connection.
    #[inline]
    pub fn poll_accept<T: Output>(
        &mut self,
        context: &mut Context<'_>,
        output: &mut T,
        bytes: &[u8],
        end: End<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.staged.len() - self.written > STAGED_MAX / 2 {
            ready!(self.poll_write_staged(context, output))?;
        }
        let is_direct = !self.is_chunked && bytes.len() >= DIRECT_MIN;
        let count = if is_direct && (self.is_flushed() || output.is_write_vectored()) {
            ready!(self.poll_write_direct(context, output, bytes))?
        } else {
            self.stage(bytes)
        };
        if let End::End(trailers) = end
            && count == bytes.len()
        {
            self.is_finished = true;
            if self.is_chunked {
                self.stage_last_chunk(trailers);
            }
        }
        Poll::Ready(Ok(count))
    }

    /// Writes some of these bytes, at least one, without a copy behind what is staged. Ready with
    /// how many of these they were.
    #[inline]
    fn poll_write_direct<T: Output>(
        &mut self,
        context: &mut Context<'_>,
        output: &mut T,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let staged = self.staged.get(self.written..).unwrap_or_default();
            let count = match staged.is_empty() {
                true => ready!(output.poll_write(context, bytes))?,
                false => ready!(output.poll_write_vectored(context, [staged, bytes]))?,
            };
            self.sent += count as u64;
            let of_staged = count.min(staged.len());
            self.written += of_staged;
            if count > of_staged {
                return Poll::Ready(Ok(count - of_staged));
            }
        }
    }

    fn stage(&mut self, bytes: &[u8]) -> usize {
        let is_chunked = self.is_chunked;
        let waiting = self.staged.len() - self.written;
        let room = STAGED_MAX.saturating_sub(waiting).max(1);
        let staged = self.staged_mut();
        let piece = bytes.get(..room).unwrap_or(bytes);
        if is_chunked && !piece.is_empty() {
            chunk_size(piece.len(), staged);
        }
        staged.extend_from_slice(piece);
        if is_chunked && !piece.is_empty() {
            staged.extend_from_slice(b"\r\n");
        }
        piece.len()
    }

    fn stage_last_chunk(&mut self, trailers: Option<HeadersView<'_>>) {
        let staged = self.staged_mut();
        staged.extend_from_slice(b"0\r\n");
        for (field, name, value) in trailers.iter().flat_map(|trailers| trailers.iter()) {
            if field.is_trailer(name) {
                staged.extend_from_slice(name);
                staged.extend_from_slice(b": ");
                staged.extend_from_slice(value);
                staged.extend_from_slice(b"\r\n");
            }
        }
        staged.extend_from_slice(b"\r\n");
    }

    /// Ready when the socket has taken everything that was accepted.
    ///
    /// # Errors
    /// Those of the connection.
    #[inline]
    pub fn poll_flush<T: Output>(
        &mut self,
        context: &mut Context<'_>,
        output: &mut T,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_write_staged(context, output))?;
        output.poll_flush(context)
    }

    #[inline]
    fn poll_write_staged<T: Output>(
        &mut self,
        context: &mut Context<'_>,
        output: &mut T,
    ) -> Poll<io::Result<()>> {
        while let Some(rest) = self.staged.get(self.written..)
            && !rest.is_empty()
        {
            let count = ready!(output.poll_write(context, rest))?;
            self.written += count;
            self.sent += count as u64;
        }
        Poll::Ready(Ok(()))
    }
}

/// Appends a chunk's size line.
pub(crate) fn chunk_size(size: usize, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for at in (0..digits).rev() {
        let digit = (size >> (at * 4)) & 0xf;
        out.push(DIGITS.get(digit).copied().unwrap_or(b'0'));
    }
    out.extend_from_slice(b"\r\n");
}
