//! Bodies on a stream of HTTP/2: a [`StreamReader`] takes one off, a [`StreamWriter`] puts one on.

use std::io;
use std::task::{Context, Poll};

use net::http1::{End, REPLAY_MAX, ReadError, TransferError};
use net::http2::{Fields, Stream, StreamError};

/// Reads the body of one side of a stream. While it keeps what was taken, for another attempt, the
/// bytes stay with the stream and the peer gets no credit for them.
#[derive(Debug, Default)]
pub(crate) struct StreamReader {
    /// How many bytes have been taken and are kept.
    kept: usize,
    keeps: bool,
    /// How many bytes are kept at most.
    most: usize,
    is_ended: bool,
    pub trailers: Option<Fields>,
    taken: u64,
}

impl StreamReader {
    /// A reader that keeps what was taken, up to [`REPLAY_MAX`] bytes and half of the window in
    /// which the peer may send: it gets no credit for them.
    pub fn with_replay(window: u32) -> Self {
        Self {
            keeps: true,
            most: REPLAY_MAX.min(window as usize / 2),
            ..Self::default()
        }
    }

    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// How many bytes have been taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    pub fn can_rewind(&self) -> bool {
        self.keeps
    }

    pub fn rewind(&mut self) {
        self.kept = 0;
        self.is_ended = false;
    }

    /// Drops what has been kept: there will be no replay.
    pub fn commit(&mut self, stream: &Stream) {
        self.keeps = false;
        let kept = std::mem::take(&mut self.kept);
        if kept > 0 {
            stream.read(|_, _| (kept, ()));
        }
    }

    /// Whether nothing waits that could be taken.
    pub fn is_starving(&self, stream: &Stream) -> bool {
        stream.read(|bytes, _| (0, bytes.len() <= self.kept))
    }

    /// Hands what has been received to `take`, as [`super::Source::poll_take`] does.
    #[inline]
    pub fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        stream: &Stream,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        let (waiting, is_end) = stream.read(|bytes, end| (0, (bytes.len(), end)));
        if waiting <= self.kept && !is_end {
            return match stream.fate(context) {
                Some(error) => Poll::Ready(Err(TransferError::Source(read_error(error)))),
                None => Poll::Pending,
            };
        }
        if is_end && self.trailers.is_none() {
            self.trailers = stream.take_trailers();
        }
        let end = match is_end {
            true => End::End(self.trailers.as_ref().map(Fields::view)),
            false => End::More,
        };
        let (kept, keeps, most) = (self.kept, self.keeps, self.most);
        let (used, is_kept) = match stream.read(|bytes, _| {
            let bytes = bytes.get(kept..).unwrap_or_default();
            match take(context, bytes, end) {
                Poll::Ready(Ok(used)) if keeps && kept + used <= most => {
                    (0, Poll::Ready(Ok((used, true))))
                }
                Poll::Ready(Ok(used)) => (kept + used, Poll::Ready(Ok((used, false)))),
                Poll::Ready(Err(error)) => (0, Poll::Ready(Err(error))),
                Poll::Pending => (0, Poll::Pending),
            }
        }) {
            Poll::Ready(result) => result.map_err(TransferError::Sink)?,
            Poll::Pending => return Poll::Pending,
        };
        self.is_ended = is_end && kept + used == waiting;
        self.taken += used as u64;
        self.keeps = is_kept;
        self.kept = if is_kept { kept + used } else { 0 };
        Poll::Ready(Ok(()))
    }
}

/// Why a stream can be read no further.
pub(crate) fn read_error(error: StreamError) -> ReadError {
    ReadError::Io(io_error(error))
}

/// The same as an error of a connection.
pub(crate) fn io_error(error: StreamError) -> io::Error {
    match error {
        StreamError::Reset(code) => {
            io::Error::new(io::ErrorKind::ConnectionReset, code.to_string())
        }
        StreamError::TooLarge => io::Error::other("header fields are above the limits"),
        StreamError::Closed => io::ErrorKind::UnexpectedEof.into(),
    }
}

/// Writes the body of one side of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamWriter {
    /// Whether the stream's end has been sent, with the head or behind the body.
    pub is_ended: bool,
    sent: u64,
}

impl StreamWriter {
    /// A writer of a stream whose head has been sent, with its end if there is no body.
    pub fn new(is_ended: bool) -> Self {
        Self { is_ended, sent: 0 }
    }

    /// How many bytes have been accepted.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Accepts some of the bytes, as [`super::Sink::poll_accept`] does.
    #[inline]
    pub fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        stream: &Stream,
        bytes: &[u8],
        end: End<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.is_ended || (bytes.is_empty() && !end.is_end()) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let (is_last, trailers) = match end {
            End::More => (false, None),
            End::End(trailers) => (trailers.is_none(), trailers),
        };
        let count = match bytes.is_empty() && !is_last {
            true => 0,
            false => stream.send(bytes, is_last).map_err(|_| closed())?,
        };
        if count == 0 && !bytes.is_empty() {
            return match stream.fate(context) {
                Some(_) => Poll::Ready(Err(closed())),
                None => Poll::Pending,
            };
        }
        self.sent += count as u64;
        if count == bytes.len() && end.is_end() {
            self.is_ended = true;
            if let Some(trailers) = trailers {
                let sent = stream.send_trailers(
                    trailers
                        .iter()
                        .filter(|(field, name, _)| field.is_trailer(name)),
                );
                sent.map_err(|_| closed())?;
            }
        }
        Poll::Ready(Ok(count))
    }
}

fn closed() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}
