//! The upstream's side over HTTP/2: a stream among others.

use std::io;
use std::task::{Context, Poll, ready};

use message::{HeadersView, Method};
use net::http1::{End, Framing, HeadError, HeadLimits, TransferError};
use net::http2::{Code, Head, Link, RequestLine, Stream, StreamError};

use super::failure::{Failed, Failure};
use super::stream::{StreamReader, StreamWriter, io_error};
use super::{ReplyHead, Sink, Source, UpstreamExchange};
use crate::request_head::{ForwardTarget, Http2Head};

/// One request on a stream.
pub(crate) struct Http2Upstream {
    pub stream: Stream,
    head: Option<Head>,
    pub reader: StreamReader,
    writer: StreamWriter,
    /// Whether the method that was sent lets the reply have a body.
    has_body: bool,
}

impl Http2Upstream {
    /// Opens a stream; `is_end` says that the request has no body.
    pub fn open(
        link: &Link,
        target: &ForwardTarget,
        method: &Method,
        head: &Http2Head,
        is_end: bool,
    ) -> Result<Self, Failed> {
        let is_secure = target.plan.upstream.tls.is_some();
        let line = RequestLine {
            method: method.as_str().as_bytes(),
            scheme: if is_secure { b"https" } else { b"http" },
            authority: &head.authority,
            path: &head.path,
        };
        let stream = link.open(line, head.fields.view().iter(), is_end);
        let stream = stream.map_err(|_| Failed {
            failure: Failure::Refused,
            repeatable: true,
        })?;
        let writer = StreamWriter::new(is_end);
        Ok(Self {
            stream,
            head: None,
            reader: StreamReader::default(),
            writer,
            has_body: *method != Method::Head,
        })
    }

    fn framing(&self, head: &Head) -> Framing {
        let status = head.status();
        if head.is_end() || !self.has_body || matches!(status, 204 | 304) {
            return Framing::None;
        }
        head.content_length()
            .map_or(Framing::UntilClose, Framing::Length)
    }
}

impl Source for Http2Upstream {
    #[inline]
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        self.reader.poll_take(context, &self.stream, take)
    }

    fn is_ended(&self) -> bool {
        self.reader.is_ended()
    }

    fn moved(&self) -> u64 {
        self.reader.taken()
    }
}

impl Sink for Http2Upstream {
    #[inline]
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        end: End<'_>,
    ) -> Poll<io::Result<usize>> {
        self.writer.poll_accept(context, &self.stream, bytes, end)
    }

    /// The connection's driver writes what streams have said.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn sent(&self) -> u64 {
        self.writer.sent()
    }
}

impl UpstreamExchange for Http2Upstream {
    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        _: &Method,
        _: HeadLimits,
    ) -> Poll<Result<(), Failure>> {
        let head = ready!(self.stream.poll_head(context));
        let head = head.map_err(|error| match error {
            StreamError::Reset(Code::REFUSED) => Failure::Refused,
            StreamError::TooLarge => Failure::Invalid(HeadError {
                status: 431,
                reason: "the head is too large",
            }),
            error => Failure::Closed(io_error(error)),
        })?;
        if let Some(before) = self.head.replace(head) {
            self.stream.recycle(before);
        }
        Poll::Ready(Ok(()))
    }

    fn head(&self) -> ReplyHead<'_> {
        let Some(head) = &self.head else {
            return ReplyHead {
                status: 0,
                reason: None,
                fields: HeadersView::new(&[], &[]),
                connection: None,
                framing: Framing::None,
            };
        };
        ReplyHead {
            status: head.status(),
            reason: None,
            fields: head.fields.view(),
            connection: None,
            framing: self.framing(head),
        }
    }

    fn skip_interim(&mut self) {}

    fn begin_body(&mut self, _: HeadLimits, _: bool) {
        if let Some(head) = self.head.take() {
            self.stream.recycle(head);
        }
    }

    fn request_sent(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn fail_request(&mut self, _: io::Error) {
        // What follows learns from the stream itself why it is over.
    }

    fn is_untouched(&self, failure: &Failure) -> bool {
        matches!(failure, Failure::Refused)
    }
}
