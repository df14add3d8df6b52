//! One request and its reply on a connection to a server: a state machine from the first byte of
//! the request to the point where the connection can take another one.

use std::io;
use std::net::IpAddr;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use message::Method;

use super::{
    BodyReader, BodyWriter, End, Framing, HeadError, HeadLimits, ResponseHead, TransferError,
};
use crate::Connection;
use crate::transport::Transport;

/// A connection on which an exchange has ended cleanly: the whole request was written, the whole
/// reply was read, and nothing waits in either direction. Only [`ClientExchange::release`] makes
/// one, and only such a connection can be kept for another request.
#[derive(Debug)]
pub struct Released<T = Box<Connection>> {
    pub(crate) transport: T,
    /// How long the server has said that it keeps the connection (`Keep-Alive: timeout`).
    pub(crate) promised: Option<Duration>,
}

impl Released {
    /// The address of the other side.
    pub fn peer(&self) -> IpAddr {
        self.transport.peer()
    }
}

impl<T> Released<T> {
    /// The connection, for a use that ends with it: there is no way back into a pool.
    pub fn into_inner(self) -> T {
        self.transport
    }
}

/// Why there is no head of a reply.
#[derive(Debug)]
pub enum NoHead {
    /// The connection ended before the first byte of it.
    Closed(io::Error),
    /// It is malformed, too large or incomplete.
    Invalid(HeadError),
}

/// One request and its reply on a connection to a server.
#[derive(Debug)]
pub struct ClientExchange<T = Box<Connection>> {
    transport: T,
    writer: BodyWriter,
    reader: BodyReader,
    /// Why the connection takes no more of the request. There may be a reply all the same.
    write_error: Option<io::Error>,
    /// Whether the connection may be used again behind the reply, and for how long it is kept;
    /// known once the final head is there.
    keeps: Option<Option<Duration>>,
}

impl<T: Transport> ClientExchange<T> {
    /// Begins with a head, written already but not sent; `is_chunked` says how the body follows.
    pub fn begin(transport: T, head: Vec<u8>, is_chunked: bool) -> Self {
        let mut writer = BodyWriter::new(head);
        writer.set_chunked(is_chunked);
        let limits = HeadLimits {
            bytes: 0,
            fields: 0,
        };
        Self {
            transport,
            writer,
            reader: BodyReader::new(Framing::None, limits),
            write_error: None,
            keeps: None,
        }
    }

    /// How many bytes the connection has accepted: none means that nothing can have been acted on.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.writer.sent()
    }

    /// How many bytes have gone out; tells progress.
    pub fn progress(&self) -> u64 {
        self.writer.sent() + self.transport.records_taken()
    }

    /// Accepts some of the request's body.
    ///
    /// # Errors
    /// Those of the connection.
    #[inline]
    pub fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        end: End<'_>,
    ) -> Poll<io::Result<usize>> {
        self.writer
            .poll_accept(context, &mut self.transport, bytes, end)
    }

    /// Ready when the socket has taken what was accepted of the request.
    ///
    /// # Errors
    /// Those of the connection.
    #[inline]
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.poll_flush(context, &mut self.transport)
    }

    /// Notes that the connection takes no more of the request: it is never released.
    pub fn fail_request(&mut self, error: io::Error) {
        self.write_error = Some(error);
    }

    /// The buffer that the head was written into, once it is out.
    pub fn take_buffer(&mut self) -> Option<Vec<u8>> {
        self.writer.take_buffer()
    }

    /// Ready when a head is complete at the front of the input, an interim one included.
    ///
    /// # Errors
    /// When the connection ends before it, or it is malformed.
    #[inline]
    pub fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        head: &mut ResponseHead,
        method: &Method,
        limits: HeadLimits,
    ) -> Poll<Result<(), NoHead>> {
        loop {
            let bytes = self.transport.input().bytes();
            if !bytes.is_empty() && head.parse(bytes, method, limits).map_err(NoHead::Invalid)? {
                return Poll::Ready(Ok(()));
            }
            let error = match ready!(self.transport.poll_fill(context)) {
                Ok(0) => io::Error::new(io::ErrorKind::UnexpectedEof, "closed before a reply"),
                Ok(_) => continue,
                Err(error) => error,
            };
            return Poll::Ready(Err(self.no_head(error)));
        }
    }

    fn no_head(&mut self, error: io::Error) -> NoHead {
        if self.transport.input().is_empty() {
            return NoHead::Closed(self.write_error.take().unwrap_or(error));
        }
        let reason = "the connection ended within the head";
        NoHead::Invalid(HeadError::bad(reason))
    }

    /// What has been read and not been used: a head that [`ClientExchange::poll_head`] has found is
    /// at its front.
    #[inline]
    pub fn input(&self) -> &[u8] {
        self.transport.input().bytes()
    }

    /// Drops an interim head.
    pub fn skip_interim(&mut self, head: &ResponseHead) {
        self.transport.input_mut().consume(head.length);
    }

    /// Takes the final head off the input; what follows is the body, which `is_raw` hands out with
    /// its chunk framing.
    pub fn begin_body(&mut self, head: &ResponseHead, limits: HeadLimits, is_raw: bool) {
        let promised = head.keep_alive_time(self.transport.input().bytes());
        // Behind 101 the connection speaks another protocol.
        let keeps = head.keeps_alive() && head.status != 101;
        self.keeps = keeps.then_some(promised);
        self.transport.input_mut().consume(head.length);
        let reader = BodyReader::new(head.framing, limits);
        self.reader = if is_raw { reader.raw() } else { reader };
    }

    /// How the body is read.
    pub fn reader(&self) -> &BodyReader {
        &self.reader
    }

    /// Hands some of the reply's body to `take`, as [`BodyReader::poll_take`] does.
    ///
    /// # Errors
    /// When the body cannot be read, or with the error of `take`.
    #[inline]
    pub fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        self.reader.poll_take(context, &mut self.transport, take)
    }

    /// Gives the connection back for another request. None when it cannot take one: the request or
    /// the reply is not over, something waits unsent or unread, or the server closes. The
    /// connection is closed then.
    #[inline]
    pub fn release(mut self) -> Option<Released<T>> {
        let promised = self.keeps?;
        let is_clean = self.write_error.is_none()
            && self.writer.is_finished()
            && self.transport.is_flushed()
            && self.reader.is_drained()
            && self.transport.input().is_empty();
        is_clean.then(|| {
            // An idle connection holds no buffer.
            self.transport.input_mut().release();
            Released {
                transport: self.transport,
                promised,
            }
        })
    }

    /// The connection for another protocol, behind 101. It can never be kept.
    pub fn into_transport(self) -> T {
        self.transport
    }
}
