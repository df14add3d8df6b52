//! The channels that messages are sent on: one for each exchange, so that an exchange that the
//! broker does not have fails nobody else's messages.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp::write::{self, Consumer, Target};
use amqp::{Confirms, Message, Return};
use message::{Fault, Kind, Origin, Retry};

use super::connection::Rabbitmq;
use super::outgoing::{Outgoing, Stage};
use super::state::Counts;

/// Where replies of calls are to go
/// (<https://www.rabbitmq.com/docs/direct-reply-to>).
pub(super) const REPLY_TO: &str = "amq.rabbitmq.reply-to";
/// How often the log tells that an exchange cannot be published to.
const TELL: Duration = Duration::from_secs(60);

/// All channels that messages are sent on.
#[derive(Default)]
pub(super) struct Publishers {
    all: Vec<Publisher>,
    unconfirmed: (usize, usize),
}

struct Publisher {
    exchange: Arc<str>,
    /// Whether replies come on the same channel, as they must.
    is_for_calls: bool,
    channel: Option<u16>,
    confirms: Confirms<Rc<Outgoing>>,
    told: Option<Instant>,
}

impl Publishers {
    /// The number of the publisher for a message.
    pub fn at(&mut self, message: &Outgoing) -> usize {
        let is_for_calls = message.call.is_some();
        let found = self.all.iter().position(|it| {
            let is_same = Arc::ptr_eq(&it.exchange, &message.exchange);
            it.is_for_calls == is_for_calls && (is_same || it.exchange == message.exchange)
        });
        found.unwrap_or_else(|| {
            self.all.push(Publisher {
                exchange: Arc::clone(&message.exchange),
                is_for_calls,
                channel: None,
                confirms: Confirms::default(),
                told: None,
            });
            self.all.len() - 1
        })
    }

    /// Its channel, when there is one.
    pub fn channel(&self, at: usize) -> Option<u16> {
        self.all.get(at).and_then(|it| it.channel)
    }

    /// Whether it is the one for calls of this exchange.
    pub fn sends(&self, at: usize, message: &Outgoing) -> bool {
        self.all.get(at).is_some_and(|it| {
            it.is_for_calls == message.call.is_some() && it.exchange == message.exchange
        })
    }

    /// How many messages, and bytes, have not been confirmed.
    pub fn unconfirmed(&self) -> (usize, usize) {
        self.unconfirmed
    }

    /// Opens its channel. The broker takes one method after the other, so nobody waits for its
    /// answers.
    pub fn open(&mut self, at: usize, channel: u16, out: &mut Vec<u8>) {
        let Some(publisher) = self.all.get_mut(at) else {
            return;
        };
        publisher.channel = Some(channel);
        publisher.confirms = Confirms::default();
        write::channel_open(out, channel);
        write::confirm_select(out, channel);
        if publisher.is_for_calls {
            let consumer = Consumer {
                queue: REPLY_TO,
                name: "replies",
                no_ack: true,
                exclusive: false,
            };
            // Both texts are short.
            let _ = write::basic_consume(out, channel, &consumer);
        }
    }

    /// Writes a message; whether that was possible.
    pub fn send(
        &mut self,
        at: usize,
        channel: (u16, u32),
        message: Rc<Outgoing>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(publisher) = self.all.get_mut(at) else {
            return false;
        };
        let target = Target {
            exchange: &message.exchange,
            key: &message.key,
            mandatory: message.mandatory,
        };
        let properties = &message.properties;
        if write::basic_publish(out, channel, &target, properties, &message.body).is_err() {
            message.settle(Err(Fault::invalid(
                "the headers of a message are longer than the broker takes",
            )));
            return false;
        }
        message.stage.set(match message.stage.get() {
            Stage::Over => Stage::Over,
            _ => Stage::Sent,
        });
        self.unconfirmed.0 += 1;
        self.unconfirmed.1 += message.size();
        publisher.confirms.push(message);
        true
    }

    /// The broker has taken messages, or not. `false` when there are no such messages.
    pub fn confirmed(
        &mut self,
        at: usize,
        (tag, multiple, is_taken): (u64, bool, bool),
        counts: &mut Counts,
        broker: &Rabbitmq,
    ) -> bool {
        let Some(publisher) = self.all.get_mut(at) else {
            return false;
        };
        let (exchange, left) = (&publisher.exchange, &mut self.unconfirmed);
        publisher.confirms.settle(tag, multiple, |message| {
            release(&message, left, counts);
            match is_taken {
                // The broker confirms what it has given back.
                true if message.returned.get() => {}
                true => {
                    counts.published += 1;
                    if message.call.is_none() {
                        message.settle(Ok(None));
                    }
                }
                false => {
                    counts.nacked += 1;
                    let cause = format!("exchange `{exchange}`: basic.nack");
                    message.settle(Err(refused(broker, &cause).with_retry(Retry::Yes)));
                }
            }
        })
    }

    /// A message has come back: the first one like it that has not been confirmed, for brokers
    /// tell of both in the order in which they came.
    pub fn returned(
        &self,
        at: usize,
        (back, it): (&Return<'_>, &Message),
        counts: &mut Counts,
        broker: &Rabbitmq,
    ) {
        let Some(publisher) = self.all.get(at) else {
            return;
        };
        counts.returned += 1;
        let is_like = |sent: &&Rc<Outgoing>| {
            let size = sent.body.len() as u64;
            sent.mandatory
                && !sent.returned.get()
                && sent.key.as_bytes() == back.key
                && size == it.size
                && (it.is_without_body() || sent.body == it.body)
        };
        let is_same = |sent: &&Rc<Outgoing>| sent.properties == it.raw_properties();
        let mut exact = publisher.confirms.iter().filter(is_like).filter(is_same);
        let mut like = publisher.confirms.iter().filter(is_like);
        let Some(sent) = exact.next().or_else(|| like.next()) else {
            let exchange = &*publisher.exchange;
            tracing::debug!(target: "rabbitmq", exchange, "a message came back that nobody sent");
            return;
        };
        sent.returned.set(true);
        let (exchange, key) = (&publisher.exchange, &sent.key);
        let text = String::from_utf8_lossy(back.text);
        let label = &broker.label;
        let cause = format!(
            "connection {label}: exchange `{exchange}`, key `{}`: {} {text}",
            key.escape_debug(),
            back.code
        );
        let detail = "no queue of the broker wants the message";
        let fault = Fault::new(Kind::Unroutable, Origin::Upstream, detail).with_cause(cause);
        sent.settle(Err(fault));
    }

    /// The broker has closed its channel, and why. Whether the log is to tell.
    pub fn channel_lost(&mut self, at: usize, counts: &mut Counts, fault: &Fault) -> bool {
        let Some(publisher) = self.all.get_mut(at) else {
            return false;
        };
        publisher.channel = None;
        let left = &mut self.unconfirmed;
        publisher.confirms.drain(|message| {
            release(&message, left, counts);
            message.settle(Err(fault.clone()));
        });
        let now = Instant::now();
        let is_new = publisher.told.is_none_or(|told| now - told >= TELL);
        if is_new {
            publisher.told = Some(now);
        }
        is_new
    }

    /// The exchange of a publisher.
    pub fn exchange(&self, at: usize) -> &str {
        self.all.get(at).map_or("", |it| &it.exchange)
    }

    /// The connection is gone.
    pub fn lost(&mut self, counts: &mut Counts, fault: &Fault) {
        for publisher in &mut self.all {
            publisher.channel = None;
            let left = &mut self.unconfirmed;
            publisher.confirms.drain(|message| {
                release(&message, left, counts);
                message.settle(Err(fault.clone()));
            });
        }
    }

    /// Whoever waits too long is told; the broker may confirm nevertheless.
    pub fn expire(&mut self, now: u32, ticks: u32, broker: &Rabbitmq) {
        let sent = self.all.iter().flat_map(|it| {
            let is_old = |it: &&Rc<Outgoing>| now.wrapping_sub(it.since.get()) > ticks;
            it.confirms.iter().take_while(is_old)
        });
        for message in sent.filter(|it| it.stage.get() == Stage::Sent && it.call.is_none()) {
            let detail = "the broker did not confirm the message in time";
            let fault = Fault::new(Kind::Timeout, Origin::Upstream, detail)
                .with_retry(Retry::IfRepeatable)
                .with_cause(format_args!("connection {}", broker.label));
            message.settle(Err(fault));
        }
    }
}

fn release(message: &Outgoing, left: &mut (usize, usize), counts: &mut Counts) {
    left.0 -= 1;
    left.1 -= message.size();
    counts.unconfirmed -= 1;
}

/// The broker has not taken a message.
pub(super) fn refused(broker: &Rabbitmq, cause: &str) -> Fault {
    let detail = "the broker has not taken the message";
    Fault::new(Kind::Nack, Origin::Upstream, detail)
        .with_cause(format_args!("connection {}: {cause}", broker.label))
}
