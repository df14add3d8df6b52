//! The upstream's side over HTTP/1.1: a connection of its own.

use std::io;
use std::task::{Context, Poll};

use message::Method;
use net::http1::{ClientExchange, End, HeadLimits, NoHead, ResponseHead, TransferError};
use net::{Connection, Transport};

use super::failure::Failure;
use super::{ReplyHead, Sink, Source, UpstreamExchange};

/// One request on a connection of its own.
pub(crate) struct Http1Upstream<T = Box<Connection>> {
    pub exchange: ClientExchange<T>,
    pub head: Box<ResponseHead>,
}

impl<T: Transport> Http1Upstream<T> {
    /// Begins with a head that has been written already.
    pub fn begin(transport: T, head: Vec<u8>, is_chunked: bool, spare: Box<ResponseHead>) -> Self {
        Self {
            exchange: ClientExchange::begin(transport, head, is_chunked),
            head: spare,
        }
    }
}

impl<T: Transport> Source for Http1Upstream<T> {
    #[inline]
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        self.exchange.poll_take(context, take)
    }

    #[inline]
    fn is_ended(&self) -> bool {
        self.exchange.reader().is_ended()
    }

    fn moved(&self) -> u64 {
        self.exchange.reader().moved()
    }
}

impl<T: Transport> Sink for Http1Upstream<T> {
    #[inline]
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        end: End<'_>,
    ) -> Poll<io::Result<usize>> {
        self.exchange.poll_accept(context, bytes, end)
    }

    #[inline]
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.exchange.poll_flush(context)
    }

    fn sent(&self) -> u64 {
        self.exchange.progress()
    }
}

impl<T: Transport> UpstreamExchange for Http1Upstream<T> {
    #[inline]
    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        method: &Method,
        limits: HeadLimits,
    ) -> Poll<Result<(), Failure>> {
        let head = self
            .exchange
            .poll_head(context, &mut self.head, method, limits);
        head.map_err(|error| match error {
            NoHead::Closed(error) => Failure::Closed(error),
            NoHead::Invalid(error) => Failure::Invalid(error),
        })
    }

    fn head(&self) -> ReplyHead<'_> {
        let bytes = self.exchange.input();
        let bytes = bytes.get(..self.head.length).unwrap_or_default();
        ReplyHead {
            status: self.head.status,
            reason: Some(self.head.reason(bytes)),
            fields: self.head.headers(bytes),
            connection: Some((&self.head.connection, bytes)),
            framing: self.head.framing,
        }
    }

    fn skip_interim(&mut self) {
        self.exchange.skip_interim(&self.head);
    }

    fn begin_body(&mut self, limits: HeadLimits, is_raw: bool) {
        self.exchange.begin_body(&self.head, limits, is_raw);
    }

    /// A connection that waits for its reply holds no buffer.
    fn request_sent(&mut self) -> Option<Vec<u8>> {
        self.exchange.take_buffer()
    }

    fn fail_request(&mut self, error: io::Error) {
        self.exchange.fail_request(error);
    }

    fn is_untouched(&self, _: &Failure) -> bool {
        self.exchange.sent() == 0
    }
}
