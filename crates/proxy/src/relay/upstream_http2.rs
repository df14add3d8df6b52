//! The upstream's side over HTTP/2: a stream among others.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use message::{HeadersView, Method};
use net::http1::{End, Framing, HeadError, HeadLimits, TransferError};
use net::http2::{Code, Fields, Head, Link, RequestLine, Stream, StreamError};

use super::failure::{Failed, Failure};
use super::stream::{StreamReader, StreamWriter, io_error};
use super::{ReplyHead, Sink, Source, UpstreamExchange};

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
    /// Opens a stream with the head of a request, and with what is there of its body: both go out
    /// in one piece. `has_body` says that there is a body.
    pub async fn open(
        link: &Link,
        line: RequestLine<'_>,
        fields: &Fields,
        has_body: bool,
        body: &mut impl Source,
    ) -> Result<Self, Failed> {
        let mut opened = None;
        if has_body {
            let taken = poll_fn(|context| {
                Poll::Ready(body.poll_take(context, |_, bytes, end| {
                    if matches!(end, End::End(Some(_))) {
                        // Trailers need a stream that is open.
                        return Poll::Pending;
                    }
                    match link.open_with(line, fields.view().iter(), bytes, end.is_end()) {
                        Ok((stream, count)) => {
                            let is_ended = end.is_end() && count == bytes.len();
                            opened = Some(Ok((stream, is_ended)));
                            Poll::Ready(Ok(count))
                        }
                        Err(error) => {
                            opened = Some(Err(error));
                            Poll::Pending
                        }
                    }
                }))
            });
            if let Poll::Ready(Err(error)) = taken.await {
                return Err(Failure::of_request(error).finally());
            }
        }
        let opened = opened.unwrap_or_else(|| {
            let stream = link.open(line, fields.view().iter(), !has_body);
            stream.map(|stream| (stream, !has_body))
        });
        let (stream, is_ended) = opened.map_err(|_| Failed {
            failure: Failure::Refused,
            repeatable: true,
        })?;
        Ok(Self {
            stream,
            head: None,
            reader: StreamReader::default(),
            writer: StreamWriter::new(is_ended),
            has_body: line.method != b"HEAD",
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
            StreamError::Reset(_) => Failure::Reset(io_error(error)),
            StreamError::Closed => Failure::Closed(io_error(error)),
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

    #[inline]
    fn may_follow_soon(&self) -> bool {
        self.stream.may_follow_soon()
    }

    fn begin_body(&mut self, _: HeadLimits, _: bool) {
        if let Some(head) = self.head.take() {
            self.stream.recycle(head);
        }
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // What comes in place of an end does not belong to the reply: the stream is given up.
        let is_over = self.stream.read(|bytes, end| (0, end || !bytes.is_empty()));
        match is_over || self.stream.fate(context).is_some() {
            true => Poll::Ready(()),
            false => Poll::Pending,
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
