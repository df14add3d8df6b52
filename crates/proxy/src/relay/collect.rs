//! The asking side of a call from a step: the request is in memory, and the reply is read into it.

use std::io;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use component::forward::ForwardPlan;
use component::settings::Settings;
use message::memory::Collected;
use message::{Body, Headers, Reply, Request};
use net::deadline::Deadline;
use net::http1::{End, Framing, TransferError};
use tokio::time::Instant;

use super::failure::ClientGone;
use super::{
    ClientWatch, Content, Download, Downstream, ReplyHead, Requester, Sink, Source, Waiting,
};
use crate::client::door;
use crate::upstream::request_head::Outgoing;
use crate::worker::Worker;

/// The most memory that is taken for a body before it has come.
const AHEAD_MAX: u64 = 1 << 20;
/// The most bytes of a body that are read only to keep its connection.
const SKIPPED_MAX: u32 = 1 << 20;

/// One call of a step.
pub(crate) struct Collector<'a> {
    pub worker: &'a Rc<Worker>,
    pub deadline: &'a Deadline,
    pub settings: &'a Settings,
    request: &'a Request,
    body: Content,
    /// The most bytes of the reply's body.
    max: u64,
    /// Whether to discard the body beyond that, and the header fields of a 2xx.
    pub truncates: bool,
    /// How many milliseconds the body is waited for behind the head, where there is a bound: in as
    /// few bytes as that takes, for each call has it.
    body_ms: Option<NonZeroU32>,
    skipped: u32,
    pub status: u16,
    pub headers: Headers,
    pub content: Collected,
    /// Whether the whole request has gone out in this attempt.
    pub is_sent: bool,
    /// Whether the body of this attempt's reply is being read.
    has_begun: bool,
    /// Whether the reply's body is above the limit: what has come of it is of no use.
    pub is_too_large: bool,
    /// Whether there was no memory left for the reply's body.
    pub is_refused: bool,
}

impl<'a> Collector<'a> {
    pub fn new(
        worker: &'a Rc<Worker>,
        deadline: &'a Deadline,
        settings: &'a Settings,
        max: u64,
        request: &'a Request,
    ) -> Self {
        Self {
            worker,
            deadline,
            settings,
            request,
            body: Content::of(&request.body).unwrap_or_default(),
            max,
            truncates: false,
            body_ms: None,
            skipped: 0,
            status: 0,
            headers: Headers::new(),
            content: Collected::default(),
            is_sent: false,
            has_begun: false,
            is_too_large: false,
            is_refused: false,
        }
    }

    /// Has the body waited for no longer than this behind the head.
    pub fn bound_body(&mut self, time: Duration) {
        let time = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self.body_ms = NonZeroU32::new(time.max(1));
    }

    /// Starts the time of the body, once it is nothing but the body that is waited for.
    fn cap_body(&self) {
        if let Some(time) = self.body_ms.filter(|_| self.is_sent && self.has_begun) {
            let time = Duration::from_millis(time.get().into());
            self.deadline.cap(Instant::now(), time);
        }
    }

    /// What has come.
    pub fn into_reply(self) -> Reply {
        Reply {
            status: self.status,
            headers: self.headers,
            body: Body::from(self.content.into_bytes()),
        }
    }

    /// How many of these bytes are kept.
    fn wanted(&self, bytes: &[u8]) -> usize {
        let room = self.max.saturating_sub(self.content.len() as u64);
        bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))
    }
}

impl Source for Collector<'_> {
    #[inline]
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        self.body.poll_take(context, take)
    }

    fn is_ended(&self) -> bool {
        self.body.is_ended
    }

    fn moved(&self) -> u64 {
        self.body.taken()
    }
}

impl Sink for Collector<'_> {
    #[inline]
    fn poll_accept(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
        _: End<'_>,
    ) -> Poll<io::Result<usize>> {
        let wanted = self.wanted(bytes);
        if wanted < bytes.len() {
            let skipped = u32::try_from(bytes.len() - wanted).unwrap_or(u32::MAX);
            self.skipped = self.skipped.saturating_add(skipped);
            if !self.truncates || self.skipped > SKIPPED_MAX {
                self.is_too_large = true;
                return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
            }
        }
        let kept = bytes.get(..wanted).unwrap_or_default();
        if self.content.extend(kept).is_err() {
            self.is_refused = true;
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn sent(&self) -> u64 {
        self.content.len() as u64 + u64::from(self.skipped)
    }
}

impl Downstream for Collector<'_> {
    fn request(&self) -> Outgoing<'_> {
        Outgoing {
            identity_field: self.settings.identity_field.as_deref(),
            ..Outgoing::of_message(self.request, Framing::None)
        }
    }

    fn can_rewind(&self) -> bool {
        true
    }

    fn rewind(&mut self) {
        self.body.rewind();
        (self.is_sent, self.has_begun) = (false, false);
    }

    /// The time of a call holds for its whole reply.
    fn answered(&mut self) {}

    fn is_starving(&self) -> bool {
        false
    }

    fn received(&self) -> u64 {
        self.body.taken()
    }

    fn interim(&mut self, _: &ReplyHead<'_>, _: &ForwardPlan) {}

    fn begin_reply(
        &mut self,
        head: &ReplyHead<'_>,
        _: &ForwardPlan,
    ) -> Result<Download, ClientGone> {
        self.status = head.status;
        if !self.truncates || !door::is_success(head.status) {
            self.headers = head.fields.to_owned();
        }
        if let Framing::Length(length) = head.framing {
            self.content
                .reserve(length.min(self.max).min(AHEAD_MAX) as usize);
        }
        if head.framing == Framing::None {
            return Ok(Download::Nothing);
        }
        self.has_begun = true;
        self.cap_body();
        Ok(Download::Content)
    }

    fn withdraw_reply(&mut self) -> bool {
        false
    }

    fn deadline(&self) -> &Deadline {
        self.deadline
    }

    fn poll_disconnected(&mut self, _: &mut Context<'_>, _: bool) -> bool {
        false
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.worker.return_scratch(buffer);
    }

    fn request_sent(&mut self) {
        self.is_sent = true;
        self.cap_body();
    }
}

impl Requester for Collector<'_> {
    fn path(&self) -> &[u8] {
        self.request.path.as_bytes()
    }

    fn waiting(&mut self) -> Waiting<'_> {
        Waiting {
            deadline: self.deadline,
            client: ClientWatch::Nobody,
        }
    }

    fn worker(&self) -> &Rc<Worker> {
        self.worker
    }

    fn settings(&self) -> &Settings {
        self.settings
    }

    fn content(&self) -> Option<Bytes> {
        Some(self.body.whole())
    }
}
