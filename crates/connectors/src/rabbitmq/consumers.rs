//! The channels that messages come on for a source: one for each queue. No more is read while the
//! messages in progress take more than the source's `memory`, or the process has none for bodies.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

use amqp::write::{self, Consumer};
use amqp::{Acks, Deliver, Message, Room, Settled};
use component::resilience::Backoff;
use message::memory::{FREE, Intake, NoRoom};

use super::state::Counts;
use super::take::keep;

/// How long to wait when a queue cannot be consumed from: at first, and at last.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(10));
/// What a message costs in memory beside its bytes, its flow and the flow's connection included.
pub(super) const OVERHEAD: usize = 8192;

/// What a source consumes from.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub queue: String,
    /// How many messages may be in flows.
    pub concurrent: usize,
    /// How many messages the broker may send before they are settled.
    pub prefetch: u16,
    /// Whether nobody else may consume.
    pub exclusive: bool,
}

/// All that a source consumes from on one worker.
#[derive(Default)]
pub(super) struct Consumers {
    all: Vec<Books>,
    /// The subscription whose turn it is to start a flow.
    turn: usize,
    waker: Option<Waker>,
    /// The bytes of messages whose flows have not ended, and how many there may be.
    held: usize,
    memory: usize,
    /// Room in the budget of the process: large messages have theirs with their bytes, this many
    /// bytes of small ones have it together.
    intake: Intake,
    small: usize,
    /// Whether there was none for the last small message.
    is_short: bool,
    /// The connection, for the log.
    connection: String,
    /// The number of the channel that was opened last.
    epoch: u64,
    is_stopping: bool,
}

struct Books {
    subscription: Subscription,
    /// Messages that wait until there is a place for one more flow.
    inbox: VecDeque<Delivery>,
    /// How many flows have not ended, those of channels that are gone included.
    active: usize,
    channel: Option<u16>,
    epoch: u64,
    acks: Acks,
    failures: u32,
    again_at: Option<Instant>,
}

/// A message for a flow.
pub(super) struct Delivery {
    pub message: Message,
    pub ticket: Ticket,
}

/// What a message is settled with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    /// The number of the subscription.
    pub at: usize,
    epoch: u64,
    tag: u64,
    size: usize,
    /// The bytes that count among those of small messages.
    small: usize,
}

/// The name of the consumer on its channel.
const NAME: &str = "flow";

impl Books {
    /// The next message, when there is a place for its flow.
    fn next(&mut self) -> Option<Delivery> {
        if self.active >= self.subscription.concurrent {
            return None;
        }
        let next = self.inbox.pop_front()?;
        self.active += 1;
        Some(next)
    }

    /// Forgets messages whose flows have not begun: the broker sends them again.
    fn drop_inbox(&mut self, (held, small): (&mut usize, &mut usize)) {
        for Delivery { ticket, .. } in self.inbox.drain(..) {
            *held = held.saturating_sub(ticket.size);
            *small = small.saturating_sub(ticket.small);
        }
    }
}

impl Consumers {
    /// Begins to consume.
    pub fn start(&mut self, subscriptions: Vec<Subscription>, memory: usize, connection: String) {
        self.connection = connection;
        let books = subscriptions.into_iter().map(|subscription| Books {
            subscription,
            inbox: VecDeque::new(),
            active: 0,
            channel: None,
            epoch: 0,
            acks: Acks::default(),
            failures: 0,
            again_at: None,
        });
        self.all = books.collect();
        self.memory = memory;
        self.is_stopping = false;
    }

    /// The queue of a subscription.
    pub fn queue(&self, at: usize) -> &str {
        self.all.get(at).map_or("", |it| &it.subscription.queue)
    }

    /// Whether so much is under way that no more may be read.
    pub fn is_full(&mut self) -> bool {
        if self.is_short {
            self.is_short = self.intake.cover(self.small).is_err();
        }
        self.held > self.memory || self.is_short
    }

    /// Looks for room for the body of a message that is about to come.
    pub fn room_for(&mut self, size: u64) -> Room {
        if self.is_stopping {
            // The broker takes it back when the channel is closed.
            return Room::Discard;
        }
        match self.intake.take(size) {
            Ok(reservation) => keep(reservation),
            Err(NoRoom::Never) => Room::Discard,
            Err(why) => {
                self.note_wait(why);
                Room::Wait
            }
        }
    }

    fn note_wait(&self, why: NoRoom) {
        if why == (NoRoom::Now { is_new: true }) {
            tracing::warn!(
                target: "rabbitmq", connection = self.connection,
                "messages wait for memory: limits.body_memory is used up"
            );
        }
    }

    /// A subscription that has no channel and may get one.
    pub fn wants_channel(&self, now: Instant) -> Option<usize> {
        self.all.iter().position(|it| {
            let may = it.again_at.is_none_or(|at| at <= now);
            it.channel.is_none() && may && !self.is_stopping
        })
    }

    /// Opens its channel and consumes on it.
    pub fn open(&mut self, at: usize, channel: u16, out: &mut Vec<u8>) {
        let Some(books) = self.all.get_mut(at) else {
            return;
        };
        self.epoch += 1;
        books.epoch = self.epoch;
        books.channel = Some(channel);
        books.acks = Acks::default();
        let consumer = Consumer {
            queue: &books.subscription.queue,
            name: NAME,
            no_ack: false,
            exclusive: books.subscription.exclusive,
        };
        write::channel_open(out, channel);
        write::basic_qos(out, channel, books.subscription.prefetch);
        // The queue's name was looked at when the flow file was loaded.
        let _ = write::basic_consume(out, channel, &consumer);
    }

    /// A message has come. `false` when it has the wrong number.
    pub fn delivered(
        &mut self,
        at: usize,
        deliver: &Deliver<'_>,
        message: &Message,
        counts: &mut Counts,
    ) -> bool {
        let Some(books) = self.all.get_mut(at) else {
            return true;
        };
        if !books.acks.push(deliver.tag) {
            return false;
        }
        books.failures = 0;
        if self.is_stopping {
            // The broker takes it back when the channel is closed.
            return true;
        }
        let bytes = message.body.len() + message.raw_properties().len();
        let size = bytes + OVERHEAD;
        self.held += size;
        let small = if message.body.len() > FREE { 0 } else { bytes };
        self.small += small;
        let covered = self.intake.cover(self.small);
        self.is_short = covered.is_err();
        counts.delivered += 1;
        counts.redelivered += i64::from(deliver.redelivered);
        books.inbox.push_back(Delivery {
            message: message.clone(),
            ticket: Ticket {
                at,
                epoch: books.epoch,
                tag: deliver.tag,
                size,
                small,
            },
        });
        if books.active < books.subscription.concurrent {
            self.wake();
        }
        if let Err(why) = covered {
            self.note_wait(why);
        }
        true
    }

    /// The next message for a flow, of each queue in turn; without one `waker` is told when there
    /// may be one.
    pub fn next(&mut self, waker: &Waker) -> Option<Delivery> {
        let count = self.all.len();
        for at in (self.turn..count).chain(0..self.turn.min(count)) {
            if let Some(next) = self.all.get_mut(at).and_then(Books::next) {
                self.turn = at + 1;
                return Some(next);
            }
        }
        self.waker = Some(waker.clone());
        None
    }

    /// The next message of a queue for whoever has settled one of it.
    pub fn next_of(&mut self, at: usize) -> Option<Delivery> {
        self.all.get_mut(at)?.next()
    }

    /// Has the source look.
    pub fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Settles a message, whose flow has ended. One of a channel that is gone comes again.
    pub fn settle(&mut self, ticket: &Ticket, how: Settled, out: &mut Vec<u8>) {
        self.release(ticket);
        let Some(books) = self.all.get_mut(ticket.at) else {
            return;
        };
        if let Some(channel) = books.channel.filter(|_| books.epoch == ticket.epoch) {
            books.acks.settle(ticket.tag, how, channel, out);
        }
    }

    /// The flow of a message has ended, whatever becomes of the message.
    pub fn release(&mut self, ticket: &Ticket) {
        self.held = self.held.saturating_sub(ticket.size);
        self.small = self.small.saturating_sub(ticket.small);
        self.intake.uncover(self.small);
        if let Some(books) = self.all.get_mut(ticket.at) {
            books.active = books.active.saturating_sub(1);
        }
    }

    /// Whether the channel is still there that a message has come on.
    pub fn is_open(&self, ticket: &Ticket) -> bool {
        let books = self.all.get(ticket.at);
        books.is_some_and(|books| books.channel.is_some() && books.epoch == ticket.epoch)
    }

    /// Writes what has been acknowledged.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        for books in &mut self.all {
            if let Some(channel) = books.channel {
                books.acks.flush(channel, out);
            }
        }
    }

    /// A channel is over. It is opened again after a while.
    pub fn channel_lost(&mut self, at: usize) -> u32 {
        let Some(books) = self.all.get_mut(at) else {
            return 0;
        };
        books.channel = None;
        books.failures += 1;
        books.again_at = Some(Instant::now() + BACKOFF.delay_after(books.failures, 0.0));
        books.drop_inbox((&mut self.held, &mut self.small));
        let failures = books.failures;
        self.intake.uncover(self.small);
        failures
    }

    /// The connection is gone: what has come on it comes again.
    pub fn lost(&mut self) {
        for books in &mut self.all {
            books.channel = None;
            books.again_at = None;
            books.drop_inbox((&mut self.held, &mut self.small));
        }
        self.intake.uncover(self.small);
    }

    /// Wants no more messages; those under way can still be settled.
    pub fn cancel(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.is_stopping, true) {
            return;
        }
        for books in &mut self.all {
            if let Some(channel) = books.channel {
                // The name is short.
                let _ = write::basic_cancel(out, channel, NAME);
            }
            books.drop_inbox((&mut self.held, &mut self.small));
        }
        self.intake.uncover(self.small);
    }

    /// Ends all: what has not been settled goes back. The channels are to be closed.
    pub fn end(&mut self, out: &mut Vec<u8>) -> Vec<u16> {
        self.flush(out);
        let all = std::mem::take(&mut self.all);
        all.into_iter().filter_map(|it| it.channel).collect()
    }
}
