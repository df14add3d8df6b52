//! The channels that messages come on for a source: one for each queue.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

use amqp::write::{self, Consumer};
use amqp::{Acks, Deliver, Message, Settled};

use super::state::Counts;

/// How long to wait when a queue cannot be consumed from: at first, and at last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
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
    fn drop_inbox(&mut self, held: &mut usize) {
        for delivery in self.inbox.drain(..) {
            *held = held.saturating_sub(delivery.ticket.size);
        }
    }
}

impl Consumers {
    /// Begins to consume.
    pub fn start(&mut self, subscriptions: Vec<Subscription>, memory: usize) {
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
    pub fn is_full(&self) -> bool {
        self.held > self.memory
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
        let size = message.body.len() + message.raw_properties().len() + OVERHEAD;
        self.held += size;
        counts.delivered += 1;
        counts.redelivered += i64::from(deliver.redelivered);
        books.inbox.push_back(Delivery {
            message: message.clone(),
            ticket: Ticket {
                at,
                epoch: books.epoch,
                tag: deliver.tag,
                size,
            },
        });
        if books.active < books.subscription.concurrent {
            self.wake();
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
        let (first, longest) = BACKOFF;
        let factor = 1_u32 << (books.failures - 1).min(8);
        books.again_at = Some(Instant::now() + first.saturating_mul(factor).min(longest));
        books.drop_inbox(&mut self.held);
        books.failures
    }

    /// The connection is gone: what has come on it comes again.
    pub fn lost(&mut self) {
        for books in &mut self.all {
            books.channel = None;
            books.again_at = None;
            books.drop_inbox(&mut self.held);
        }
    }

    /// Wants no more messages; those under way can still be settled.
    pub fn cancel(&mut self, out: &mut Vec<u8>) {
        self.is_stopping = true;
        for books in &mut self.all {
            if let Some(channel) = books.channel {
                // The name is short.
                let _ = write::basic_cancel(out, channel, NAME);
            }
            books.drop_inbox(&mut self.held);
        }
    }

    /// Ends all: what has not been settled goes back. The channels are to be closed.
    pub fn end(&mut self, out: &mut Vec<u8>) -> Vec<u16> {
        self.flush(out);
        let all = std::mem::take(&mut self.all);
        all.into_iter().filter_map(|it| it.channel).collect()
    }
}
