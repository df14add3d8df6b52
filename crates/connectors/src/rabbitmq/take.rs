//! What becomes of what a broker sends.

use std::sync::atomic::Ordering;

use amqp::{Closed, Event, Message, Method, Received, Room, write};
use message::memory::{self, Exhausted, Reservation};

use super::driver::Lost;
use super::hub::{Hub, Inner, Use};
use super::publishers::refused;

/// A body is kept with what is reserved for it.
pub(super) fn keep(reservation: Option<Reservation>) -> Room {
    match reservation {
        None => Room::Keep,
        Some(reservation) => Room::KeepBy(Box::new(|bytes| reservation.hold(bytes))),
    }
}

impl Hub {
    /// Takes in one event. Gives the channel that is over, when one is.
    pub fn take(&self, event: Event<'_>) -> Result<Option<u16>, Lost> {
        let mut inner = self.inner.borrow_mut();
        match event {
            Event::Heartbeat | Event::Part => Ok(None),
            Event::Method(0, method) => self.take_own(&mut inner, &method).map(|()| None),
            Event::Method(channel, method) => self.take_method(&mut inner, channel, &method),
            Event::Message(channel, message) => {
                self.take_message(&mut inner, channel, &message)?;
                Ok(None)
            }
        }
    }

    /// Looks for room for the body of a message that is about to come on a channel. A consumer
    /// waits for it; an answer, for which somebody waits, is passed over without.
    pub fn room_for(&self, channel: u16, size: u64) -> Room {
        let mut inner = self.inner.borrow_mut();
        match inner.use_of(channel) {
            Use::Consumer(_) => inner.consumers.room_for(size),
            Use::Publisher(_) => {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                match memory::bodies().reserve(size) {
                    Ok(reservation) => keep(reservation),
                    Err(Exhausted) => Room::Discard,
                }
            }
            Use::Free | Use::Closing => Room::Discard,
        }
    }

    /// A method of the connection itself.
    fn take_own(&self, inner: &mut Inner, method: &Method<'_>) -> Result<(), Lost> {
        let (label, blocked) = (&*self.broker.label, &self.broker.figures.blocked);
        match method {
            Method::ConnectionClose(closed) => {
                let text = String::from_utf8_lossy(closed.text);
                let cause = format!("the broker has ended it: {} {text}", closed.code);
                Err(Lost::Broken(cause))
            }
            Method::ConnectionCloseOk => Err(Lost::Left),
            Method::ConnectionBlocked(reason) => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                tracing::warn!(
                    target: "rabbitmq", connection = label, reason,
                    "the broker takes no messages for now"
                );
                if inner.blocked.replace(reason).is_none() {
                    blocked.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
            Method::ConnectionUnblocked => {
                if inner.blocked.take().is_some() {
                    blocked.fetch_sub(1, Ordering::Relaxed);
                    tracing::info!(
                        target: "rabbitmq", connection = label,
                        "the broker takes messages again"
                    );
                }
                Ok(())
            }
            _ => Err(amqp::Error::Unexpected.into()),
        }
    }

    fn take_method(
        &self,
        inner: &mut Inner,
        channel: u16,
        method: &Method<'_>,
    ) -> Result<Option<u16>, Lost> {
        let what = inner.use_of(channel);
        match (what, method) {
            (Use::Closing, Method::ChannelCloseOk) => {
                inner.set_use(channel, Use::Free);
                return Ok(Some(channel));
            }
            (_, Method::ChannelClose(closed)) => {
                write::channel_close_ok(&mut inner.out, channel);
                // Who closes at the same moment still waits for the answer.
                if what != Use::Closing {
                    inner.set_use(channel, Use::Free);
                }
                self.channel_lost(inner, what, closed);
                return Ok(Some(channel));
            }
            (Use::Closing, _) => {}
            (Use::Publisher(at), &Method::BasicAck { tag, multiple }) => {
                self.confirmed(inner, at, (tag, multiple, true))?;
            }
            (Use::Publisher(at), &Method::BasicNack { tag, multiple }) => {
                self.confirmed(inner, at, (tag, multiple, false))?;
            }
            (Use::Publisher(at), Method::BasicCancel(_)) => {
                // No replies come any more, and with the channel the confirmations end.
                inner.close_channel(channel);
                self.publisher_lost(inner, at, "the broker has ended the consumer of replies");
            }
            (Use::Consumer(at), Method::BasicCancel(_)) => {
                let queue = inner.consumers.queue(at).to_owned();
                tracing::warn!(
                    target: "rabbitmq", connection = &*self.broker.label, queue,
                    "the broker has ended the consumer: the queue may be gone"
                );
                inner.consumers.flush(&mut inner.out);
                inner.close_channel(channel);
                inner.consumers.channel_lost(at);
            }
            (Use::Publisher(_) | Use::Consumer(_), &Method::ChannelFlow(active)) => {
                // RabbitMQ does not send it; whoever does stops the connection by its buffers.
                write::channel_flow_ok(&mut inner.out, channel, active);
            }
            (Use::Publisher(_) | Use::Consumer(_), method) if Inner::is_answer(method) => {}
            _ => return Err(amqp::Error::Unexpected.into()),
        }
        Ok(None)
    }

    fn confirmed(&self, inner: &mut Inner, at: usize, what: (u64, bool, bool)) -> Result<(), Lost> {
        let Inner {
            publishers,
            counts,
            calls,
            ..
        } = inner;
        match publishers.confirmed(at, what, counts, &self.broker) {
            true => {
                if !what.2 {
                    calls.retain(|_, call| call.stage.get() != super::outgoing::Stage::Over);
                }
                Ok(())
            }
            false => Err(Lost::Broken(
                "the broker has confirmed what was not sent".to_owned(),
            )),
        }
    }

    /// The broker has closed a channel.
    fn channel_lost(&self, inner: &mut Inner, what: Use, closed: &Closed<'_>) {
        let text = String::from_utf8_lossy(closed.text);
        let (label, code) = (&*self.broker.label, closed.code);
        match what {
            Use::Publisher(at) => self.publisher_lost(inner, at, &format!("{code} {text}")),
            Use::Consumer(at) => {
                let queue = inner.consumers.queue(at).to_owned();
                let failures = inner.consumers.channel_lost(at);
                if failures <= 1 || failures.is_multiple_of(10) {
                    tracing::error!(
                        target: "rabbitmq", connection = label, queue, cause = %text, code,
                        "the broker does not let the queue be consumed"
                    );
                }
            }
            Use::Free | Use::Closing => {}
        }
    }

    /// The channel of a publisher is over: what has been sent on it is not confirmed any more, and
    /// no reply comes for its calls. The next message opens another channel.
    fn publisher_lost(&self, inner: &mut Inner, at: usize, cause: &str) {
        let exchange = inner.publishers.exchange(at).to_owned();
        let fault = refused(&self.broker, &format!("exchange `{exchange}`: {cause}"));
        let Inner {
            publishers, counts, ..
        } = inner;
        if publishers.channel_lost(at, counts, &fault) {
            let label = &*self.broker.label;
            tracing::error!(
                target: "rabbitmq", connection = label, exchange, cause,
                "the broker refuses messages for an exchange"
            );
        }
        let sent_there: Vec<u64> = inner
            .calls
            .iter()
            .filter(|(_, call)| inner.publishers.sends(at, call))
            .map(|(number, _)| *number)
            .collect();
        inner.fail_calls(&fault, |call| {
            call.call.is_some_and(|it| sent_there.contains(&it))
        });
    }

    fn take_message(&self, inner: &mut Inner, channel: u16, message: &Message) -> Result<(), Lost> {
        match (inner.use_of(channel), message.received()?) {
            (Use::Publisher(at), Received::Returned(back)) => {
                let Inner {
                    publishers, counts, ..
                } = inner;
                publishers.returned(at, (&back, message), counts, &self.broker);
            }
            (Use::Publisher(_), Received::Delivered(_)) => {
                let id = message.properties()?.correlation_id.unwrap_or_default();
                let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
                // A reply that nobody waits for any more is no mistake.
                if let Some(call) = id.and_then(|id: u64| inner.calls.remove(&id)) {
                    call.settle(Ok(Some(message.clone())));
                }
            }
            (Use::Consumer(at), Received::Delivered(deliver)) => {
                let Inner {
                    consumers, counts, ..
                } = inner;
                if !consumers.delivered(at, &deliver, message, counts) {
                    return Err(Lost::Broken(
                        "the broker has numbered a message wrongly".to_owned(),
                    ));
                }
            }
            (Use::Closing, _) => {}
            _ => return Err(amqp::Error::Unexpected.into()),
        }
        Ok(())
    }
}
