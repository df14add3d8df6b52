//! Connections behind `101 Switching Protocols`, as a source and a sink of the relay: streams of
//! bytes that have no framing and no end but the connection's.

use std::io;
use std::task::{Context, Poll, ready};

use component::stream::Client;
use net::Connection;
use net::http1::{End, ReadError, TransferError};

use crate::relay::{Sink, Source};

/// One side of a tunnel.
pub(crate) trait ByteStream {
    /// Reads once and puts what came behind the input. `Ok(0)`: the other side has finished.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>>;
    /// What has been read and not been consumed.
    fn input(&self) -> &[u8];
    /// Drops the first bytes of the input.
    fn consume(&mut self, count: usize);
    /// Writes some of these bytes, at least one.
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Ready when the socket has taken everything that was written.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl ByteStream for Connection {
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Self::poll_fill(self, context)
    }

    fn input(&self) -> &[u8] {
        self.input.bytes()
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(self, context, bytes)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(self, context)
    }
}

impl ByteStream for dyn Client + '_ {
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Client::poll_fill(self, context)
    }

    fn input(&self) -> &[u8] {
        Client::input(self)
    }

    fn consume(&mut self, count: usize) {
        Client::consume(self, count);
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Client::poll_write(self, context, bytes)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Client::poll_flush(self, context)
    }
}

/// What comes from a stream. Nothing more is read before what is there has been taken, unless the
/// sink needs more than that.
pub(crate) struct ByteSource<'a, S: ?Sized> {
    pub stream: &'a mut S,
    /// How many bytes have been read or taken; it outlives one poll.
    pub moved: &'a mut u64,
}

impl<S: ByteStream + ?Sized> ByteSource<'_, S> {
    /// The end of a connection that has switched protocols is no proper end of anything.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TransferError>> {
        let read = match ready!(self.stream.poll_fill(context)) {
            Ok(0) => Err(ReadError::Truncated),
            Ok(count) => {
                *self.moved += count as u64;
                Ok(())
            }
            Err(error) => Err(ReadError::Io(error)),
        };
        Poll::Ready(read.map_err(TransferError::Source))
    }
}

impl<S: ByteStream + ?Sized> Source for ByteSource<'_, S> {
    #[inline]
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        if self.stream.input().is_empty() {
            ready!(self.poll_fill(context))?;
        }
        let used = ready!(take(context, self.stream.input(), End::More));
        match used.map_err(TransferError::Sink)? {
            0 => self.poll_fill(context),
            used => {
                self.stream.consume(used);
                *self.moved += used as u64;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn is_ended(&self) -> bool {
        false
    }

    fn moved(&self) -> u64 {
        *self.moved
    }
}

/// What goes to a stream, as it is.
pub(crate) struct ByteSink<'a, S: ?Sized> {
    stream: &'a mut S,
    sent: u64,
}

impl<'a, S: ByteStream + ?Sized> ByteSink<'a, S> {
    pub fn new(stream: &'a mut S) -> Self {
        Self { stream, sent: 0 }
    }
}

impl<S: ByteStream + ?Sized> Sink for ByteSink<'_, S> {
    #[inline]
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        _: End<'_>,
    ) -> Poll<io::Result<usize>> {
        let count = ready!(self.stream.poll_write(context, bytes))?;
        self.sent += count as u64;
        Poll::Ready(Ok(count))
    }

    #[inline]
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(context)
    }

    fn sent(&self) -> u64 {
        self.sent
    }
}
