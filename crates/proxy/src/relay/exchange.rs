//! One request and its reply over one connection or stream of a back end: the request's body goes
//! up while the reply is awaited, interim replies are passed on, then the reply's body goes down.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use component::forward::ForwardPlan;
use message::Method;
use net::http1::{HeadLimits, ReadError, TransferError};
use tokio::time::Instant;

use super::failure::{Break, Failed, Failure};
use super::least_rate::ClientShare;
use super::{
    Awaited, Download, Downstream, Progress, Times, UpstreamExchange, is_stream, pump_noting,
};
use crate::stream::events;
use crate::stream::{OpenStream, Streams};

/// How many interim replies one request may have.
const INTERIM_MAX: usize = 32;

/// What an exchange goes by.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub plan: &'a ForwardPlan,
    /// The method that was sent.
    pub method: &'a Method,
    pub times: Times,
    pub limits: HeadLimits,
    /// The flow's streams, where an event stream can be left to a task of its own.
    pub streams: Option<Streams<'a>>,
    /// Whether the client has asked to go on with another protocol.
    pub upgrades: bool,
}

/// One request and its reply.
pub(crate) struct Exchange<'a, D, U> {
    pub down: &'a mut D,
    pub up: &'a mut U,
    pub terms: Terms<'a>,
    pub progress: Progress,
    /// Whether the whole request is out.
    pub is_sent: bool,
    /// Whether the upstream takes no more of it.
    is_refused: bool,
    /// Whether the head of the reply waits for the next look for input.
    waits_a_turn: bool,
    /// How many interim replies have come.
    interims: usize,
    /// What the request's body waits for.
    upload: Awaited,
    /// What the reply's body waits for.
    download: Awaited,
}

/// What has become of a reply.
pub(crate) enum Reply {
    /// It has been relayed, or has been cut.
    Relayed(Relayed),
    /// It is an event stream whose head has been sent to the client.
    EventStream(EventStream),
    /// It switches protocols; its head is with the upstream's side.
    Switched,
}

/// A reply that has been relayed.
pub(crate) struct Relayed {
    pub status: u16,
    /// Why its body broke off, if it has.
    pub cut: Option<Break>,
    /// When it had ended, if that is known.
    pub ended: Option<Instant>,
}

/// An event stream whose head has been sent to the client.
pub(crate) struct EventStream {
    pub status: u16,
    pub open: OpenStream,
    /// Whether the content is in another form than the client's, such as compressed.
    pub is_coded: bool,
}

impl<'a, D: Downstream, U: UpstreamExchange> Exchange<'a, D, U> {
    pub fn new(down: &'a mut D, up: &'a mut U, terms: Terms<'a>, progress: Progress) -> Self {
        Self {
            down,
            up,
            terms,
            progress,
            is_sent: false,
            is_refused: false,
            waits_a_turn: false,
            interims: 0,
            upload: Awaited::Sink,
            download: Awaited::Source,
        }
    }

    /// Sends the request and relays the reply. Calls `answered` when the head of the final reply is
    /// there.
    pub async fn run(&mut self, answered: impl FnOnce()) -> Result<Reply, Failed> {
        self.final_head().await?;
        self.pass_on(answered).await
    }

    /// Sends the request until the head of the final reply is there.
    pub async fn final_head(&mut self) -> Result<(), Failed> {
        let head = poll_fn(|context| self.poll_final_head(context)).await;
        head.map_err(|failure| self.failed(failure))
    }

    /// Relays the reply whose head is there.
    pub async fn pass_on(&mut self, answered: impl FnOnce()) -> Result<Reply, Failed> {
        let head = self.up.head();
        let status = head.status;
        if status == 101 {
            if !self.terms.upgrades {
                let unasked = Failure::invalid("the connection was switched unasked");
                return Err(unasked.finally());
            }
            answered();
            self.down.answered();
            return Ok(Reply::Switched);
        }
        answered();
        self.down.answered();
        if let Some(stream) = self.event_stream()? {
            return Ok(Reply::EventStream(stream));
        }
        if is_long(self.up) {
            self.terms.times.go_on();
        }
        let cut = self.relay().await;
        if let Some(Break::Upstream(error)) = &cut {
            if let ReadError::Malformed(reason) = error
                && self.down.withdraw_reply()
            {
                return Err(Failure::invalid(reason).finally());
            }
            // What has come of the reply still goes to the client, if it takes it now.
            let _ = poll_fn(|context| Poll::Ready(self.down.poll_flush(context))).await;
        }
        Ok(Reply::Relayed(Relayed {
            status,
            cut,
            ended: None,
        }))
    }

    /// What a failure means to the request: it may be sent again when all of it is at hand, and
    /// nothing of it has gone out or doing it twice is no harm (RFC 9110, section 9.2.2).
    fn failed(&self, failure: Failure) -> Failed {
        let is_harmless = self.up.is_untouched(&failure) || self.terms.method.is_idempotent();
        Failed {
            repeatable: is_harmless && self.down.can_rewind(),
            failure,
        }
    }

    /// Ready when the head of the final reply is there. Interim ones are passed on.
    fn poll_final_head(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            ready!(self.poll_reply(context))?;
            let head = self.up.head();
            if !head.is_interim() {
                return Poll::Ready(Ok(()));
            }
            self.interims += 1;
            if self.interims > INTERIM_MAX {
                return Poll::Ready(Err(Failure::invalid("too many interim replies")));
            }
            self.down.interim(&head, self.terms.plan);
            self.up.skip_interim();
        }
    }

    /// Ready when the head of a reply is there, interim ones included.
    fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if let Err(stopped) = self.poll_upload(context) {
            return Poll::Ready(Err(match stopped {
                Break::ClientInvalid(reason) => Failure::ClientInvalid(reason),
                _ => Failure::ClientGone,
            }));
        }
        let Terms { method, limits, .. } = self.terms;
        if let Poll::Ready(result) = self.up.poll_head(context, method, limits) {
            return Poll::Ready(result);
        }
        // Interim replies go out while the final one is awaited.
        if let Poll::Ready(Err(_)) = self.down.poll_flush(context) {
            return Poll::Ready(Err(Failure::ClientGone));
        }
        let is_over = self.is_upload_over();
        if self.down.poll_disconnected(context, is_over) {
            return Poll::Ready(Err(Failure::ClientGone));
        }
        let times = self.terms.times;
        let (time, moved) = match is_over {
            // From the end of the request on nothing but the final head counts: a back end may not
            // gain time by interim replies.
            true => (times.response, u64::MAX),
            false => (times.body, self.down.moved() + self.up.sent()),
        };
        let client = match is_over {
            true => ClientShare::NONE,
            false => self.client_share(self.upload == Awaited::Source),
        };
        let deadline = self.down.deadline();
        ready!(
            self.progress
                .poll_client(context, deadline, moved, time, client)
        );
        Poll::Ready(Err(if !is_over && self.down.is_starving() {
            Failure::ClientSlow
        } else {
            Failure::ReplyTimeout
        }))
    }

    fn is_upload_over(&self) -> bool {
        self.is_sent || self.is_refused
    }

    /// Sends more of the request.
    #[inline]
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), Break> {
        if self.is_upload_over() {
            return Ok(());
        }
        let pumped = pump_noting(context, self.down, self.up, &mut self.upload);
        let Poll::Ready(result) = pumped else {
            return Ok(());
        };
        match result {
            Ok(()) => {
                self.is_sent = true;
                self.down.request_sent();
                if let Some(buffer) = self.up.request_sent() {
                    self.down.recycle(buffer);
                }
                Ok(())
            }
            Err(TransferError::Source(ReadError::Malformed(reason))) => {
                Err(Break::ClientInvalid(reason))
            }
            Err(TransferError::Source(_)) => Err(Break::ClientGone),
            Err(TransferError::Sink(error)) => {
                self.is_refused = true;
                self.up.fail_request(error);
                Ok(())
            }
        }
    }

    /// Relays the final reply, head and body. Answers why it broke off, if it has.
    async fn relay(&mut self) -> Option<Break> {
        let begun = self.down.begin_reply(&self.up.head(), self.terms.plan);
        let Ok(download) = begun else {
            return Some(Break::ClientGone);
        };
        self.up
            .begin_body(self.terms.limits, download == Download::Raw);
        self.progress.restart();
        let has_body = download != Download::Nothing;
        self.waits_a_turn = has_body && self.down.writes_alone() && self.up.may_follow_soon();
        poll_fn(|context| {
            if std::mem::take(&mut self.waits_a_turn) {
                // The runtime wakes it behind its next look for input: the first of the body goes
                // out with the head. The future is done with, and no call pays for its size.
                let _ = pin!(tokio::task::yield_now()).poll(context);
                return Poll::Pending;
            }
            self.poll_relay(context, has_body)
        })
        .await
        .err()
    }

    /// Ready when the whole reply has been passed on.
    fn poll_relay(&mut self, context: &mut Context<'_>, has_body: bool) -> Poll<Result<(), Break>> {
        let download = match has_body {
            true => pump_noting(context, self.up, self.down, &mut self.download),
            false => self.poll_bodyless(context),
        };
        if let Poll::Ready(result) = download {
            return Poll::Ready(result.map_err(|error| match error {
                TransferError::Source(error) => Break::Upstream(error),
                TransferError::Sink(_) => Break::ClientGone,
            }));
        }
        if let Err(stopped) = self.poll_upload(context) {
            return Poll::Ready(Err(stopped));
        }
        let is_over = self.is_upload_over();
        // A client that has a whole reply without a body may leave: nothing is given up.
        let has_all = is_over && !has_body && self.download == Awaited::Source;
        if !has_all && self.down.poll_disconnected(context, is_over) {
            return Poll::Ready(Err(Break::ClientGone));
        }
        ready!(self.poll_idle(context, self.terms.times.body));
        Poll::Ready(Err(match self.progress.awaits_client() {
            true => Break::ClientSlow,
            false => Break::Idle,
        }))
    }

    /// Ready when a reply without a body is with the client and over.
    fn poll_bodyless(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TransferError>> {
        self.download = Awaited::Sink;
        ready!(self.down.poll_flush(context)).map_err(TransferError::Sink)?;
        self.download = Awaited::Source;
        self.up.poll_end(context).map(Ok)
    }

    /// Ready when nothing has moved for this time.
    fn poll_idle(&mut self, context: &mut Context<'_>, time: Duration) -> Poll<()> {
        let (down, up) = (&*self.down, &*self.up);
        let moved = down.moved() + up.sent() + up.moved() + down.sent();
        // The end counts too: from there on it is the upstream that is waited for.
        let moved = moved + u64::from(self.is_upload_over());
        let awaits_upload = !self.is_upload_over() && self.upload == Awaited::Source;
        let client = self.client_share(self.download == Awaited::Sink || awaits_upload);
        let deadline = self.down.deadline();
        self.progress
            .poll_client(context, deadline, moved, time, client)
    }

    /// What the client has done of both bodies.
    #[inline]
    fn client_share(&self, is_awaited: bool) -> ClientShare {
        ClientShare {
            moved: self.down.received() + self.down.delivered(),
            is_awaited,
            rate: self.terms.times.rate,
        }
    }

    /// Sends the head of a reply when it is an event stream that can be left to a task of its own:
    /// its end is unknown, and the whole request is out.
    fn event_stream(&mut self) -> Result<Option<EventStream>, Failed> {
        let Some(streams) = self.terms.streams else {
            return Ok(None);
        };
        let head = self.up.head();
        if !head.is_open_ended() || !events::are_events(head.fields) {
            return Ok(None);
        }
        if *self.down.request().method == Method::Head {
            return Ok(None);
        }
        let is_sent = events::check_upload(self.is_sent, streams).map_err(Failure::finally)?;
        if !is_sent {
            return Ok(None);
        }
        let status = head.status;
        let is_coded = events::is_coded(head.fields);
        let open = events::open(streams, is_coded).map_err(Failure::finally)?;
        let begun = self.down.begin_reply(&head, self.terms.plan);
        begun.map_err(|_| Failure::ClientGone.finally())?;
        self.up.begin_body(self.terms.limits, false);
        Ok(Some(EventStream {
            status,
            open,
            is_coded,
        }))
    }
}

/// Whether the reply may go on for long with nothing moving.
fn is_long(up: &impl UpstreamExchange) -> bool {
    let head = up.head();
    head.is_open_ended() && is_stream(head.fields)
}
