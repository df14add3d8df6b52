//! Relays one body from one connection to another, as it arrives.

use std::fmt;
use std::io;
use std::task::{Context, Poll, ready};

use net::http1::{BodyDecoder, Framing, HeadLimits, Piece};
use net::{Buffer, Connection};

/// How the body is written on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Byte for byte as it came.
    AsIs,
    /// The content alone.
    Plain,
    /// The content in chunks (RFC 9112, section 7.1).
    Chunked,
}

/// Why a body cannot be relayed to its end.
#[derive(Debug)]
pub(crate) enum PipeError {
    /// The source sent something that is no body.
    Malformed(&'static str),
    /// The source ended before the body did.
    Truncated,
    /// The source's connection broke.
    Source(io::Error),
    /// The sink's connection broke.
    Sink(io::Error),
}

impl fmt::Display for PipeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) => formatter.write_str(reason),
            Self::Truncated => formatter.write_str("the body ended too early"),
            Self::Source(error) | Self::Sink(error) => error.fmt(formatter),
        }
    }
}

/// Relays one body. The bytes that wait lie in the source's input buffer.
#[derive(Debug)]
pub(crate) struct Pipe {
    decoder: BodyDecoder,
    encoding: Encoding,
    /// How many bytes at the front of the source's input may be written as they are.
    ready: usize,
    /// Bytes in another form than they came in.
    staged: Vec<u8>,
    staged_at: usize,
    finished: bool,
    /// How many bytes have been read or written; tells progress.
    pub moved: u64,
}

impl Pipe {
    pub fn new(framing: Framing, encoding: Encoding, limits: HeadLimits) -> Self {
        let decoder = BodyDecoder::new(framing, limits);
        let finished = decoder.is_done();
        Self {
            decoder,
            encoding,
            ready: 0,
            staged: Vec::new(),
            staged_at: 0,
            finished,
            moved: 0,
        }
    }

    /// Whether the whole body has been written.
    pub fn is_done(&self) -> bool {
        self.finished && self.ready == 0 && self.staged_at == self.staged.len()
    }

    /// Moves what is there already behind a head that has not been written yet, at most about
    /// `max` bytes, so that both go out at once.
    pub fn take_into(
        &mut self,
        source: &mut Buffer,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<(), PipeError> {
        let mut room = max;
        while room > 0 {
            if self.ready == 0 && self.staged.is_empty() && !self.finished {
                self.scan(source)?;
            }
            let count = self.ready.min(room);
            out.extend_from_slice(source.bytes().get(..count).unwrap_or_default());
            source.consume(count);
            self.ready -= count;
            out.extend_from_slice(&self.staged);
            let moved = count + self.staged.len();
            self.staged.clear();
            self.moved += moved as u64;
            room = room.saturating_sub(moved);
            if moved == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Relays as much as both sides allow now. Ready when the whole body has been written.
    pub fn poll(
        &mut self,
        context: &mut Context<'_>,
        source: &mut Connection,
        sink: &mut Connection,
    ) -> Poll<Result<(), PipeError>> {
        loop {
            ready!(self.poll_write(context, source, sink)).map_err(PipeError::Sink)?;
            if self.finished {
                return Poll::Ready(Ok(()));
            }
            self.scan(&mut source.input)?;
            if self.ready > 0 || !self.staged.is_empty() || self.finished {
                continue;
            }
            match ready!(source.poll_fill(context)).map_err(PipeError::Source)? {
                0 => self.end_with_connection()?,
                count => self.moved += count as u64,
            }
        }
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        source: &mut Connection,
        sink: &mut Connection,
    ) -> Poll<io::Result<()>> {
        while let Some(rest) = self
            .staged
            .get(self.staged_at..)
            .filter(|rest| !rest.is_empty())
        {
            let written = ready!(sink.poll_write(context, rest))?;
            self.staged_at += written;
            self.moved += written as u64;
        }
        self.staged.clear();
        self.staged_at = 0;
        while self.ready > 0 {
            let written = ready!(sink.poll_write_from(context, &mut source.input, self.ready))?;
            self.ready -= written;
            self.moved += written as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Looks at what has been read. Afterwards something is ready or staged, or the body is
    /// finished, or more must be read.
    fn scan(&mut self, input: &mut Buffer) -> Result<(), PipeError> {
        loop {
            let rest = input.bytes().get(self.ready..).unwrap_or_default();
            match self
                .decoder
                .next(rest)
                .map_err(|error| PipeError::Malformed(error.0))?
            {
                Piece::End => {
                    self.finish();
                    return Ok(());
                }
                Piece::NeedMore => return Ok(()),
                Piece::Skip(count) => input.remove(self.ready, count),
                Piece::Data(count) | Piece::Overhead(count) if self.encoding == Encoding::AsIs => {
                    self.ready += count;
                }
                Piece::Overhead(count) => input.consume(count),
                Piece::Data(count) => {
                    let content = rest.get(..count).unwrap_or_default();
                    stage(&mut self.staged, content, self.encoding);
                    input.consume(count);
                }
            }
        }
    }

    fn end_with_connection(&mut self) -> Result<(), PipeError> {
        if !self.decoder.may_end_with_connection() {
            return Err(PipeError::Truncated);
        }
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        self.finished = true;
        if self.encoding == Encoding::Chunked {
            self.staged.extend_from_slice(b"0\r\n\r\n");
        }
    }
}

fn stage(staged: &mut Vec<u8>, content: &[u8], encoding: Encoding) {
    if encoding == Encoding::Chunked {
        staged.extend_from_slice(format!("{:x}\r\n", content.len()).as_bytes());
    }
    staged.extend_from_slice(content);
    if encoding == Encoding::Chunked {
        staged.extend_from_slice(b"\r\n");
    }
}
