//! The source at work: each message is a task that runs the flow and settles the message.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use amqp::{Message, Properties, Settled, Table};
use component::handler::{LocalFuture, Services};
use component::intake::{DeadLetter, Incoming as _, Intake, Processed, Settlement};
use component::source::Started;
use message::{Fault, Kind, Reply};

use super::incoming::{Facts, QueueMessage, STATUS};
use super::{Consume, Owner, Settings};
use crate::rabbitmq::connection::Rabbitmq;
use crate::rabbitmq::consumers::{Delivery, Subscription, Ticket};
use crate::rabbitmq::hub::Hub;
use crate::rabbitmq::outgoing::Outgoing;
use crate::rabbitmq::parts::{default_exchange, header_bytes};

/// How many flows may end in a row before others of the worker have their turn.
const ROW_MAX: u32 = 16;

/// The longest wait before a message is processed again whose reply could not be published.
const REPLY_AGAIN: Duration = Duration::from_secs(30);

/// What all messages of a worker share.
struct Work {
    hub: Rc<Hub>,
    broker: Arc<Rabbitmq>,
    settings: Arc<Settings>,
    intake: Intake,
    flow: Arc<str>,
    /// With `ordered`, the message of each queue whose channel was lost while it waited for its
    /// next try: it is the next one of its queue again.
    failing: RefCell<Vec<Failing>>,
    /// How many flows have not ended.
    active: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

/// What happens next.
enum Next {
    Message(Delivery),
    /// The source has to end.
    Stop,
    /// No further message is taken until then.
    Halt,
}

pub(super) async fn run(
    source: &Consume,
    flow: &Arc<dyn Started>,
    services: &dyn Services,
    mut stop: LocalFuture<'static, ()>,
) {
    let settings = &source.settings;
    let share = services.share();
    let (concurrent, prefetch, memory) = match settings.ordered {
        true => (1, 1, settings.memory),
        false => {
            let memory = settings.memory / share.count.max(1);
            let concurrent = share.of(settings.concurrent);
            (concurrent, share.of(settings.prefetch), memory)
        }
    };
    if concurrent == 0 {
        // There are more workers than flows may run: the others do the work.
        return stop.await;
    }
    let describe = |it: &Owner| format!("consume {} {}", it.flow, it.broker.settings);
    let make = || Hub::start(&source.broker);
    let hub: Rc<Hub> = services.resources().get(&source.owner, describe, make);
    let queues = settings.queues.iter().map(|queue| Subscription {
        queue: queue.clone(),
        concurrent,
        prefetch: u16::try_from(prefetch).unwrap_or(u16::MAX),
        exclusive: settings.ordered,
    });
    hub.start_consuming(queues.collect(), memory);
    let work = Rc::new(Work {
        hub,
        broker: Arc::clone(&source.broker),
        settings: Arc::clone(settings),
        intake: Intake::new(flow, &source.plan),
        flow: Arc::clone(flow.name()),
        failing: RefCell::default(),
        active: Cell::new(0),
        waker: RefCell::new(None),
    });
    let is_stopped = work.take_all(&mut stop, services).await;
    work.intake.stop();
    work.hub.cancel_consuming();
    poll_fn(|context| {
        if work.active.get() == 0 {
            return Poll::Ready(());
        }
        *work.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    })
    .await;
    work.hub.end_consuming();
    if !is_stopped {
        stop.await;
    }
}

/// Starts a task that runs the flow with a message, and then with those that wait meanwhile.
fn start(work: &Rc<Work>, delivery: Delivery, services: &dyn Services) {
    work.active.set(work.active.get() + 1);
    let work = Rc::clone(work);
    services.spawn(Box::new(move |services| {
        Box::pin(async move {
            let ended = Ended(Rc::clone(&work));
            let (mut delivery, mut in_a_row) = (delivery, 0);
            loop {
                let queue = delivery.ticket.at;
                work.process(&delivery, services).await;
                in_a_row = (in_a_row + 1) % ROW_MAX;
                if in_a_row == 0 {
                    // Flows that wait for nothing would let nobody else have a turn.
                    tokio::task::yield_now().await;
                }
                // The next one begins at once, not behind all others that have ended meanwhile.
                match work.hub.next_of(queue) {
                    Some(next) => delivery = next,
                    None => break,
                }
            }
            drop(ended);
        })
    }));
}

/// A message whose flow has failed.
struct Failing {
    /// The number of the queue.
    queue: usize,
    message: Message,
    /// How often it has failed.
    failed: u32,
}

impl Failing {
    /// Whether this is the message, delivered again. That of a queue which counts deliveries has
    /// another count, and is not found.
    fn is(&self, other: &Message) -> bool {
        self.message.raw_properties() == other.raw_properties() && self.message.body == other.body
    }
}

/// What is to be done with a message.
enum Fate {
    Settle(Settled),
    /// It is back at its place in the queue when its channel ends.
    Leave,
    /// It is processed once more.
    Again,
}

/// Counts a flow as ended, however it ends.
struct Ended(Rc<Work>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
        if let Some(waker) = self.0.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Puts a message back when its task ends before it has settled it.
struct Held<'a> {
    hub: &'a Hub,
    ticket: Ticket,
    is_settled: bool,
}

impl Held<'_> {
    fn settle(mut self, how: Settled) {
        self.is_settled = true;
        self.hub.settle(&self.ticket, how);
    }

    /// Leaves it unsettled: it is back at its place in the queue when its channel ends.
    fn abandon(mut self) {
        self.is_settled = true;
        self.hub.abandon(&self.ticket);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.hub.settle(&self.ticket, Settled::Requeue);
            self.hub.look();
        }
    }
}

impl Work {
    /// Starts a task for each message; whether the source has to end, or takes no further one.
    async fn take_all(
        self: &Rc<Self>,
        stop: &mut LocalFuture<'static, ()>,
        services: &dyn Services,
    ) -> bool {
        let mut halted = pin!(self.intake.over());
        loop {
            let next = poll_fn(|context| {
                if stop.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Next::Stop);
                }
                // Waiting for a halt takes locks that workers share: not for each message.
                if !self.intake.is_over()
                    && let Poll::Ready(delivery) = self.hub.poll_delivery(context)
                {
                    return Poll::Ready(Next::Message(delivery));
                }
                halted.as_mut().poll(context).map(|()| Next::Halt)
            });
            match next.await {
                Next::Message(delivery) => start(self, delivery, services),
                Next::Stop => return true,
                Next::Halt => return false,
            }
        }
    }

    /// Has a message processed, and settles it.
    async fn process(&self, delivery: &Delivery, services: &dyn Services) {
        let Delivery { message, ticket } = delivery;
        let held = Held {
            hub: &self.hub,
            ticket: *ticket,
            is_settled: false,
        };
        let (queue, is_answered) = (self.hub.queue(ticket.at), self.settings.reply);
        let mut taken = QueueMessage::new(delivery, &queue, is_answered, &self.hub);
        taken.failed_before = self.failed_before(ticket.at, message);
        loop {
            let finish = match self.intake.process(&mut taken, services).await {
                Processed {
                    settlement: Settlement::Acknowledge,
                    result: Some(Ok(_)),
                } if !is_answered => None,
                // On the heap: every message that is under way would pay for its size.
                processed => Some(Box::pin(
                    self.finish(&mut taken, processed, ticket.at, services),
                )),
            };
            let fate = match finish {
                Some(finish) => finish.await,
                None => Fate::Settle(Settled::Ack),
            };
            match fate {
                Fate::Settle(how) => {
                    self.failing.borrow_mut().retain(|it| it.queue != ticket.at);
                    return held.settle(how);
                }
                Fate::Leave => return held.abandon(),
                // Flows that wait for nothing would let nobody else have a turn.
                Fate::Again => tokio::task::yield_now().await,
            }
        }
    }

    /// Answers a message that was processed, or has failed for good, and says what is to be done
    /// with it.
    async fn finish(
        &self,
        taken: &mut QueueMessage<'_>,
        Processed { settlement, result }: Processed,
        at: usize,
        services: &dyn Services,
    ) -> Fate {
        let retry = &self.intake.policy().retry;
        match settlement {
            Settlement::Release => {
                if self.intake.is_halted() {
                    // Before it is settled, or the broker would send it here again.
                    self.hub.cancel_consuming();
                }
                return self.leave(taken, at);
            }
            Settlement::PutBack(_) => {
                // A broker has no delays, and takes back what is held for longer.
                let goes_on = self
                    .intake
                    .pause(self.intake.policy().hold_max, services)
                    .await;
                taken.failed_before = taken.attempt;
                return match goes_on && !taken.is_gone() {
                    true => Fate::Again,
                    false => self.leave(taken, at),
                };
            }
            Settlement::Acknowledge | Settlement::Reject { .. } => {}
        }
        let has_succeeded = matches!(result, Some(Ok(_)));
        let is_dead_letter = settlement == Settlement::Acknowledge && !has_succeeded;
        if self.settings.reply
            && let Some(result) = result
            && !self.answer(taken, result, services).await
            && !is_dead_letter
        {
            // The broker takes no replies for now: the message comes again.
            let wait = retry.backoff.delay.min(REPLY_AGAIN);
            let goes_on = self.intake.pause(wait, services).await;
            return match self.settings.ordered && goes_on && !taken.is_gone() {
                true => Fate::Again,
                false => self.leave(taken, at),
            };
        }
        match settlement {
            Settlement::Reject { reason, failed } => {
                self.reject(taken, (failed, &reason), at, services).await
            }
            _ => Fate::Settle(self.acknowledged(taken, is_dead_letter)),
        }
    }

    /// How a message is settled that has been dealt with.
    fn acknowledged(&self, taken: &QueueMessage<'_>, is_dead_letter: bool) -> Settled {
        let is_kept =
            is_dead_letter && !matches!(self.intake.policy().dead_letter, DeadLetter::Drop);
        match is_kept && taken.message.is_without_body() {
            // The dead letter has no body. The broker has it, and may keep it by the policy of
            // the queue.
            true => {
                let (flow, queue, size) = (&*self.flow, taken.queue, taken.message.size);
                tracing::error!(
                    target: "flow", flow, queue, size,
                    "the dead letter of a message that is too large has no body; the message goes \
                     to the dead-letter exchange of its queue, if there is one"
                );
                Settled::Reject
            }
            false => Settled::Ack,
        }
    }

    /// What becomes of a message that is not settled because the source ends, or because its
    /// channel is gone.
    fn leave(&self, taken: &QueueMessage<'_>, at: usize) -> Fate {
        if self.settings.ordered && taken.is_gone() {
            let mut failing = self.failing.borrow_mut();
            failing.retain(|it| it.queue != at);
            failing.push(Failing {
                queue: at,
                message: taken.message.clone(),
                failed: taken.attempt.max(taken.failed_before),
            });
        }
        // A queue may put at its end what is given back.
        match self.settings.ordered || self.intake.is_halted() {
            true => Fate::Leave,
            false => Fate::Settle(Settled::Requeue),
        }
    }

    /// How often the flow of a message had failed when its channel was lost.
    fn failed_before(&self, queue: usize, message: &Message) -> u32 {
        let failing = self.failing.borrow();
        let known = failing.iter().find(|it| it.queue == queue);
        known.filter(|it| it.is(message)).map_or(0, |it| it.failed)
    }

    /// What becomes of a message that failed for good and no store keeps.
    async fn reject(
        &self,
        taken: &QueueMessage<'_>,
        why: (u32, &str),
        at: usize,
        services: &dyn Services,
    ) -> Fate {
        let (failed, reason) = why;
        let Some(to) = &self.settings.dead_letter_queue else {
            let of = (&*taken.id(), "the dead-letter exchange, if there is one");
            self.intake.dead_letter_kept(of, failed, reason);
            return Fate::Settle(Settled::Reject);
        };
        let kept = self.intake.until_kept(
            services,
            async || match taken.is_gone() {
                // It comes again, and becomes a dead letter then.
                true => Ok(false),
                false => {
                    let copied = self.publish_copy(taken, (to, why), services).await;
                    copied.map(|()| true)
                }
            },
            |fault: &Fault| {
                let (flow, queue) = (&*self.flow, taken.queue);
                tracing::error!(
                    target: "flow", flow, queue, to, error = %fault,
                    "a dead letter cannot be published: no further messages are taken until it is"
                );
            },
        );
        match kept.await {
            Some(true) => {
                let of = (&*taken.id(), &**to);
                self.intake.dead_letter_kept(of, failed, reason);
                Fate::Settle(self.acknowledged(taken, true))
            }
            Some(false) | None => self.leave(taken, at),
        }
    }

    /// Puts a copy into the dead-letter queue; when this returns the broker has confirmed it.
    async fn publish_copy(
        &self,
        taken: &QueueMessage<'_>,
        (to, why): (&str, (u32, &str)),
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let Some(facts) = &taken.facts else {
            let headers = Table::default();
            return self.send_copy(taken, (to, &headers), services).await;
        };
        let own = facts.headers_of_copy();
        let mut headers = own.clone();
        facts.explain(&mut headers, taken.queue, why);
        match self.send_copy(taken, (to, &headers), services).await {
            // They do not fit into a frame any more.
            Err(fault) if fault.kind == Kind::Invalid => {
                self.send_copy(taken, (to, &own), services).await
            }
            sent => sent,
        }
    }

    async fn send_copy(
        &self,
        taken: &QueueMessage<'_>,
        (to, headers): (&str, &Table),
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let headers = header_bytes(headers)?;
        let properties = taken.facts.as_ref().map(|facts| facts.properties);
        let properties = Properties {
            headers: headers.as_deref(),
            // The broker refuses one that is not ours.
            user_id: None,
            // A dead letter stays, and outlives a restart of the broker.
            expiration: None,
            delivery_mode: Some(2),
            ..properties.unwrap_or_default()
        };
        let place = (default_exchange(), to.to_owned());
        let message = Outgoing::new(place, true, &properties, taken.message.body.clone());
        let message = message.map_err(|_| Fault::invalid("the queue's name is too long"))?;
        Hub::of(services, &self.broker).publish(message)?.await?;
        Ok(())
    }

    /// Publishes the flow's reply to whoever waits for it. `false` when that was not possible.
    async fn answer(
        &self,
        taken: &mut QueueMessage<'_>,
        result: Result<Reply, Fault>,
        services: &dyn Services,
    ) -> bool {
        let error_reply = taken.error_reply.take();
        let Some(facts) = &taken.facts else {
            return true;
        };
        let Some(reply_to) = facts.properties.reply_to else {
            return true;
        };
        let reply = match (result, error_reply) {
            (Ok(reply), _) => reply,
            (Err(_), Some(reply)) => *reply,
            (Err(fault), None) => fault.to_reply(),
        };
        let sent = self.send_reply(facts, reply_to, reply, services).await;
        let Err(fault) = sent else {
            return true;
        };
        let (flow, cause) = (&*self.flow, fault.cause.as_deref());
        let cause = cause.unwrap_or_default();
        tracing::warn!(target: "flow", flow, cause, "a reply could not be published");
        false
    }

    async fn send_reply(
        &self,
        facts: &Facts<'_>,
        reply_to: &[u8],
        reply: Reply,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let mut headers = Table::default();
        headers.set(STATUS, i64::from(reply.status));
        let headers = header_bytes(&headers)?;
        let short = |name: &str| {
            let value = reply.headers.get(name);
            value.filter(|it| it.len() <= amqp::SHORT_MAX)
        };
        let properties = Properties {
            content_type: short("Content-Type"),
            content_encoding: short("Content-Encoding"),
            headers: headers.as_deref(),
            correlation_id: facts.properties.correlation_id,
            ..Properties::default()
        };
        let key = String::from_utf8_lossy(reply_to).into_owned();
        let body = bytes::Bytes::copy_from_slice(reply.body.as_bytes());
        let message = Outgoing::new((default_exchange(), key), false, &properties, body);
        let message = message.map_err(|_| Fault::invalid("the reply's address is too long"))?;
        let hub = Hub::of(services, &self.broker);
        hub.publish(message)?.await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With what it is spawned with it takes less than 1 KiB, above which the allocator is slower.
    #[test]
    fn a_message_under_way_takes_little_memory() {
        fn size<'a, F>(_: impl FnOnce(&'a Work, &'a Delivery, &'a dyn Services) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(Work::process);
        assert!(size <= 808, "{size}");
    }
}
