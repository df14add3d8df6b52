//! What one worker keeps of a connection to a broker: the messages on their way, the channels, the
//! consumers, and the bytes that wait to be written. [`super::driver`] owns the socket.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use amqp::{Method, Settled, Tuned, write};
use component::handler::{LocalFuture, Services};
use component::resources::Resource;
use component::vital::vital;
use message::{Fault, Kind, Origin, Retry};

use super::connection::Rabbitmq;
use super::consumers::{Consumers, Delivery, Subscription, Ticket};
use super::driver;
use super::outgoing::{Outgoing, Pending, Stage};
use super::publishers::Publishers;
use super::state::Counts;

/// How often time-outs are looked for.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// How long a message waits until it can be sent, in ticks: 10 s.
const WAIT_TICKS: u32 = 20;
/// How long a message waits until it is confirmed, in ticks: 30 s.
const CONFIRM_TICKS: u32 = 60;
/// The most messages that wait or have not been confirmed.
const MESSAGES_MAX: usize = 65_536;
/// The most bytes of them while the connection is being made.
const CONNECTING_BYTES_MAX: usize = 16 << 20;
/// The most bytes of them while there is a connection.
const OPEN_BYTES_MAX: usize = 64 << 20;
/// No further message is written behind so many bytes that the broker has not taken.
const OUT_MAX: usize = 1 << 20;
/// A larger buffer is not kept.
const OUT_KEPT: usize = 256 << 10;
/// When it makes sense to try again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// For so long messages wait for a connection that cannot be made; then they fail at once.
const BLIP: Duration = Duration::from_secs(1);
/// How often a connection is tried that messages are there for.
pub(super) const WANTED: Duration = Duration::from_secs(1);

/// How the connection is.
#[derive(Debug)]
pub(super) enum Status {
    /// It is being made; why that has failed so far.
    Connecting(Option<Box<str>>),
    /// It has not been there for a while, and cannot be made, for this reason. It is tried again.
    Down(Box<str>),
    /// The broker does not want us, for this reason. It is asked again.
    Refused(Box<str>),
    /// It is there.
    Open,
    /// It is wanted no more.
    Over,
}

/// What a channel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Free,
    /// Of this publisher.
    Publisher(usize),
    /// Of this subscription.
    Consumer(usize),
    /// We have closed it, and the broker has not said so yet.
    Closing,
}

/// What one worker keeps of a connection.
pub(super) struct Hub {
    pub broker: Arc<Rabbitmq>,
    pub inner: RefCell<Inner>,
}

/// What changes.
pub(super) struct Inner {
    pub status: Status,
    /// Since when there has been no connection, while there is none.
    missing_since: Instant,
    /// Whether a message has come that the connection is wanted for.
    pub is_wanted: bool,
    /// Bytes for the broker, of which so many have been written.
    pub out: Vec<u8>,
    pub written: usize,
    pub tuned: Tuned,
    channels: Vec<Use>,
    pub publishers: Publishers,
    pub consumers: Consumers,
    /// Why the broker takes no messages.
    pub blocked: Option<String>,
    waiting: VecDeque<Rc<Outgoing>>,
    waiting_bytes: usize,
    /// Those among the waiting ones that nobody wants to know of any more.
    forgotten: usize,
    pub calls: HashMap<u64, Rc<Outgoing>>,
    next_call: u64,
    pub counts: Counts,
    /// The task that owns the socket.
    pub waker: Option<Waker>,
    pub ticks: u32,
    /// Whether the connection is to end.
    pub is_closing: bool,
    is_closed: bool,
    closed: Option<Waker>,
}

impl Hub {
    /// The one for messages to a broker on this worker, made when it is not there yet.
    pub fn of(services: &dyn Services, broker: &Arc<Rabbitmq>) -> Rc<Self> {
        let settings = |it: &Rabbitmq| format!("publish {}", it.settings);
        // A copy: the connection ends when nobody else has the broker of a plan.
        let make = || Self::start(&Arc::new(Rabbitmq::clone(broker)));
        services.resources().get(broker, settings, make)
    }

    /// Starts a connection.
    pub fn start(broker: &Arc<Rabbitmq>) -> Rc<Self> {
        let hub = Rc::new(Self {
            broker: Arc::clone(broker),
            inner: RefCell::new(Inner::new()),
        });
        let run = driver::run(Rc::clone(&hub));
        tokio::task::spawn_local(vital("connection to RabbitMQ", run));
        hub
    }

    /// Sends a message, or lets it wait until it can be sent.
    ///
    /// # Errors
    /// When there is no room or no hope.
    pub fn publish(self: &Rc<Self>, message: Outgoing) -> Result<Pending, Fault> {
        let message = Rc::new(message);
        let mut inner = self.inner.borrow_mut();
        self.admit(&mut inner, message.size())?;
        message.since.set(inner.ticks);
        if let Some(call) = message.call {
            inner.calls.insert(call, Rc::clone(&message));
        }
        let may_send = matches!(inner.status, Status::Open) && inner.has_room();
        if may_send && inner.waiting.is_empty() {
            inner.send(&self.broker, Rc::clone(&message));
        } else {
            inner.waiting_bytes += message.size();
            inner.waiting.push_back(Rc::clone(&message));
        }
        inner.wake();
        drop(inner);
        Ok(Pending {
            hub: Rc::clone(self),
            message,
        })
    }

    /// A number for a call.
    pub fn next_call(&self) -> u64 {
        let mut inner = self.inner.borrow_mut();
        inner.next_call += 1;
        inner.next_call
    }

    fn admit(&self, inner: &mut Inner, size: usize) -> Result<(), Fault> {
        let bytes_max = match &inner.status {
            Status::Over => return Err(self.unavailable("the connection is being closed")),
            Status::Refused(cause) => return Err(self.lost(cause).with_retry(Retry::Yes)),
            Status::Down(cause) => {
                let fault = self.down(cause);
                inner.is_wanted = true;
                inner.wake();
                return Err(fault);
            }
            Status::Open => {
                if let Some(reason) = &inner.blocked {
                    let cause = format!("the broker takes no messages for now: {reason}");
                    return Err(self.unavailable(&cause));
                }
                OPEN_BYTES_MAX
            }
            Status::Connecting(_) => CONNECTING_BYTES_MAX,
        };
        let (count, bytes) = inner.publishers.unconfirmed();
        let count = count + inner.waiting.len() - inner.forgotten;
        let bytes = bytes + inner.waiting_bytes;
        // One message has room whatever its size.
        if count >= MESSAGES_MAX || (bytes + size > bytes_max && count > 0) {
            return Err(self.unavailable("too many messages wait for the broker"));
        }
        Ok(())
    }

    /// A failure for the reason that the connection is not there.
    pub fn lost(&self, cause: &str) -> Fault {
        Fault::new(
            Kind::Connection,
            Origin::Upstream,
            "the broker could not be reached",
        )
        .with_retry(Retry::IfRepeatable)
        .with_cause(format_args!("connection {}: {cause}", self.broker.label))
    }

    /// A failure of a message that certainly has not been sent, since there is no connection.
    fn down(&self, cause: &str) -> Fault {
        self.lost(cause)
            .with_status(503)
            .with_retry(Retry::Yes)
            .with_retry_after(WANTED)
    }

    pub fn unavailable(&self, cause: &str) -> Fault {
        unavailable(&self.broker, cause)
    }

    /// Nobody waits for a message any more.
    pub fn forget(&self, message: &Rc<Outgoing>) {
        let stage = message.stage.replace(Stage::Over);
        if stage == Stage::Over && message.call.is_none() {
            return;
        }
        let mut inner = self.inner.borrow_mut();
        if let Some(call) = message.call {
            inner.calls.remove(&call);
        }
        if stage == Stage::Waits {
            inner.waiting_bytes -= message.size();
            inner.forgotten += 1;
            if inner.forgotten * 2 > inner.waiting.len() {
                inner.waiting.retain(|it| it.stage.get() != Stage::Over);
                inner.forgotten = 0;
            }
        }
    }

    /// Looks for messages whose time is over.
    pub fn tick(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.ticks = inner.ticks.wrapping_add(1);
        let now = inner.ticks;
        let cause = match (&inner.status, &inner.blocked) {
            (Status::Connecting(Some(cause)) | Status::Down(cause) | Status::Refused(cause), _) => {
                cause.to_string()
            }
            (_, Some(reason)) => format!("the broker takes no messages for now: {reason}"),
            _ => "there was no connection in good time".to_owned(),
        };
        while let Some(first) = inner.waiting.front() {
            let waits = first.stage.get() == Stage::Waits;
            if waits && now.wrapping_sub(first.since.get()) <= WAIT_TICKS {
                break;
            }
            let Some(first) = inner.waiting.pop_front() else {
                break;
            };
            match waits {
                true => inner.waiting_bytes -= first.size(),
                false => inner.forgotten = inner.forgotten.saturating_sub(1),
            }
            first.settle(Err(self.unavailable(&cause)));
        }
        inner.publishers.expire(now, CONFIRM_TICKS, &self.broker);
        inner.wake();
    }

    /// The connection is there.
    pub fn opened(&self, tuned: Tuned) {
        let mut inner = self.inner.borrow_mut();
        inner.tuned = tuned;
        inner.status = Status::Open;
        inner.out.clear();
        inner.written = 0;
        inner.channels.clear();
        let figures = &self.broker.figures;
        figures.connected.fetch_add(1, Ordering::Relaxed);
    }

    /// The connection is gone, whose end this is.
    pub fn closed(&self, cause: &str) {
        let mut inner = self.inner.borrow_mut();
        let figures = &self.broker.figures;
        figures.connected.fetch_sub(1, Ordering::Relaxed);
        if inner.blocked.take().is_some() {
            figures.blocked.fetch_sub(1, Ordering::Relaxed);
        }
        inner.status = Status::Connecting(Some(cause.into()));
        inner.missing_since = Instant::now();
        inner.channels.clear();
        inner.out = Vec::new();
        inner.written = 0;
        let fault = self.lost(cause);
        let Inner {
            publishers, counts, ..
        } = &mut *inner;
        publishers.lost(counts, &fault);
        inner.fail_calls(&fault, |_| true);
        inner.consumers.lost();
        inner.counts.flush(figures);
    }

    /// The connection could not be made.
    pub fn not_opened(&self, cause: &str, is_refused: bool) {
        let mut inner = self.inner.borrow_mut();
        let fault = match is_refused {
            true => {
                inner.status = Status::Refused(cause.into());
                self.lost(cause).with_retry(Retry::Yes)
            }
            false if inner.missing_since.elapsed() < BLIP => {
                inner.status = Status::Connecting(Some(cause.into()));
                return;
            }
            false => {
                inner.status = Status::Down(cause.into());
                self.down(cause)
            }
        };
        while let Some(message) = inner.take_waiting() {
            message.settle(Err(fault.clone()));
        }
        inner.waiting.clear();
    }

    /// Nothing more happens.
    pub fn over(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.status = Status::Over;
        let fault = self.unavailable("the connection is being closed");
        while let Some(message) = inner.take_waiting() {
            message.settle(Err(fault.clone()));
        }
        inner.is_closed = true;
        inner.consumers.wake();
        if let Some(waker) = inner.closed.take() {
            waker.wake();
        }
    }
}

/// The broker takes nothing for now.
pub(super) fn unavailable(broker: &Rabbitmq, cause: &str) -> Fault {
    Fault::new(
        Kind::Unavailable,
        Origin::Upstream,
        "the broker takes no messages for now",
    )
    .with_retry(Retry::Yes)
    .with_retry_after(RETRY_AFTER)
    .with_cause(format_args!("connection {}: {cause}", broker.label))
}

impl Resource for Hub {
    fn close(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            {
                let mut inner = self.inner.borrow_mut();
                inner.is_closing = true;
                inner.wake();
            }
            poll_fn(|context| {
                let mut inner = self.inner.borrow_mut();
                if inner.is_closed {
                    return Poll::Ready(());
                }
                inner.closed = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
        })
    }
}

impl Inner {
    fn new() -> Self {
        Self {
            status: Status::Connecting(None),
            missing_since: Instant::now(),
            is_wanted: false,
            out: Vec::new(),
            written: 0,
            tuned: Tuned {
                channel_max: 0,
                frame_max: amqp::FRAME_MIN,
                heartbeat: 0,
            },
            channels: Vec::new(),
            publishers: Publishers::default(),
            consumers: Consumers::default(),
            blocked: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            forgotten: 0,
            calls: HashMap::new(),
            next_call: 0,
            counts: Counts::default(),
            waker: None,
            ticks: 0,
            is_closing: false,
            is_closed: false,
            closed: None,
        }
    }

    /// Has the task look that owns the socket.
    pub fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Whether everything that was to be sent has been, and confirmed.
    pub fn is_idle(&self) -> bool {
        self.publishers.unconfirmed().0 == 0 && self.waiting.len() == self.forgotten
    }

    fn has_room(&self) -> bool {
        self.blocked.is_none() && self.out.len() - self.written < OUT_MAX
    }

    /// The first message that waits and that somebody wants to know of.
    fn take_waiting(&mut self) -> Option<Rc<Outgoing>> {
        while let Some(message) = self.waiting.pop_front() {
            if message.stage.get() == Stage::Waits {
                self.waiting_bytes -= message.size();
                return Some(message);
            }
            self.forgotten = self.forgotten.saturating_sub(1);
        }
        None
    }

    /// Writes what waits, as far as there is room.
    pub fn pump(&mut self, broker: &Rabbitmq) {
        while self.has_room() && !self.waiting.is_empty() {
            if let Some(message) = self.take_waiting() {
                self.send(broker, message);
            }
        }
        let now = Instant::now();
        while let Some(at) = self.consumers.wants_channel(now) {
            let Some(channel) = self.take_channel(Use::Consumer(at)) else {
                break;
            };
            self.consumers.open(at, channel, &mut self.out);
        }
        self.consumers.flush(&mut self.out);
    }

    fn send(&mut self, broker: &Rabbitmq, message: Rc<Outgoing>) {
        let at = self.publishers.at(&message);
        let channel = match self.publishers.channel(at) {
            Some(channel) => channel,
            None => {
                let Some(channel) = self.take_channel(Use::Publisher(at)) else {
                    let cause = "the broker allows no more channels";
                    return message.settle(Err(unavailable(broker, cause)));
                };
                self.publishers.open(at, channel, &mut self.out);
                channel
            }
        };
        message.since.set(self.ticks);
        let frame_max = self.tuned.frame_max;
        let out = &mut self.out;
        if self.publishers.send(at, (channel, frame_max), message, out) {
            self.counts.unconfirmed += 1;
        }
    }

    fn take_channel(&mut self, what: Use) -> Option<u16> {
        let free = self.channels.iter().position(|it| *it == Use::Free);
        let at = free.unwrap_or(self.channels.len());
        if at >= usize::from(self.tuned.channel_max) {
            return None;
        }
        match self.channels.get_mut(at) {
            Some(place) => *place = what,
            None => self.channels.push(what),
        }
        u16::try_from(at + 1).ok()
    }

    /// What a channel is for.
    pub fn use_of(&self, channel: u16) -> Use {
        let at = usize::from(channel).wrapping_sub(1);
        self.channels.get(at).copied().unwrap_or(Use::Free)
    }

    /// Says what a channel is for from now on.
    pub fn set_use(&mut self, channel: u16, what: Use) {
        let at = usize::from(channel).wrapping_sub(1);
        if let Some(place) = self.channels.get_mut(at) {
            *place = what;
        }
    }

    /// Ends a channel from our side.
    pub fn close_channel(&mut self, channel: u16) {
        write::channel_close(&mut self.out, channel);
        self.set_use(channel, Use::Closing);
    }

    /// Fails calls whose messages are chosen.
    pub fn fail_calls(&mut self, fault: &Fault, chosen: impl Fn(&Outgoing) -> bool) {
        self.calls.retain(|_, call| {
            let is_chosen = call.stage.get() != Stage::Waits && chosen(call);
            if is_chosen {
                call.settle(Err(fault.clone()));
            }
            !is_chosen
        });
    }

    /// Takes back the room of what has been written.
    pub fn all_written(&mut self) {
        self.written = 0;
        self.out.clear();
        if self.out.capacity() > OUT_KEPT {
            self.out = Vec::new();
        }
    }

    /// Whether a method of the broker's is an answer that nobody needs.
    pub fn is_answer(method: &Method<'_>) -> bool {
        matches!(
            method,
            Method::ChannelOpenOk
                | Method::ConfirmSelectOk
                | Method::BasicQosOk
                | Method::BasicConsumeOk(_)
                | Method::BasicCancelOk(_)
        )
    }
}

/// What a source does with its connection.
impl Hub {
    /// Begins to consume.
    pub fn start_consuming(&self, subscriptions: Vec<Subscription>, memory: usize) {
        let mut inner = self.inner.borrow_mut();
        let connection = self.broker.label.to_string();
        inner.consumers.start(subscriptions, memory, connection);
        inner.wake();
    }

    /// The queue of a subscription.
    pub fn queue(&self, at: usize) -> String {
        self.inner.borrow().consumers.queue(at).to_owned()
    }

    /// Ready with the next message.
    pub fn poll_delivery(&self, context: &mut Context<'_>) -> Poll<Delivery> {
        let mut inner = self.inner.borrow_mut();
        match inner.consumers.next(context.waker()) {
            Some(delivery) => Poll::Ready(delivery),
            None => Poll::Pending,
        }
    }

    /// The next message of a subscription for whoever has settled one of it.
    pub fn next_of(&self, at: usize) -> Option<Delivery> {
        self.inner.borrow_mut().consumers.next_of(at)
    }

    /// Has the source look for messages whose flows can begin.
    pub fn look(&self) {
        self.inner.borrow_mut().consumers.wake();
    }

    /// Settles a message.
    pub fn settle(&self, ticket: &Ticket, how: Settled) {
        let mut inner = self.inner.borrow_mut();
        let Inner { consumers, out, .. } = &mut *inner;
        consumers.settle(ticket, how, out);
        inner.wake();
    }

    /// Whether a message can be settled: its channel is not gone.
    pub fn is_open(&self, ticket: &Ticket) -> bool {
        self.inner.borrow().consumers.is_open(ticket)
    }

    /// The flow of a message has ended that is not settled before its channel ends.
    pub fn abandon(&self, ticket: &Ticket) {
        self.inner.borrow_mut().consumers.release(ticket);
    }

    /// Wants no more messages; those under way can still be settled.
    pub fn cancel_consuming(&self) {
        let mut inner = self.inner.borrow_mut();
        let Inner { consumers, out, .. } = &mut *inner;
        consumers.cancel(out);
        inner.wake();
    }

    /// Ends all consumers: what has not been settled goes back.
    pub fn end_consuming(&self) {
        let mut inner = self.inner.borrow_mut();
        let Inner { consumers, out, .. } = &mut *inner;
        for channel in consumers.end(out) {
            inner.close_channel(channel);
        }
        inner.wake();
    }
}

#[cfg(test)]
mod tests;
