//! The source at work: each message is a task that runs the flow and settles the message.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use amqp::{Message, Properties, Received, Settled};
use component::handler::{LocalFuture, Services};
use component::source::{Started, has_succeeded};
use message::{Fault, Reply, memory};

use super::incoming::{Facts, STATUS};
use super::{Consume, OnFailure, Owner, Settings};
use crate::rabbitmq::connection::Rabbitmq;
use crate::rabbitmq::consumers::{Delivery, Subscription, Ticket};
use crate::rabbitmq::dial::BODY_MAX;
use crate::rabbitmq::hub::Hub;
use crate::rabbitmq::outgoing::Outgoing;
use crate::rabbitmq::parts::{default_exchange, header_bytes};

/// How often those that wait look whether the source is to end.
const LOOK: Duration = Duration::from_millis(200);

/// How many flows may end in a row before others of the worker have their turn.
const ROW_MAX: u32 = 16;

/// What all messages share.
struct Work {
    hub: Rc<Hub>,
    broker: Arc<Rabbitmq>,
    settings: Arc<Settings>,
    flow: Arc<dyn Started>,
    /// With `ordered`, the message of each queue whose flow has failed and that is held here. When
    /// the connection is lost meanwhile it is the next one of its queue again.
    failing: RefCell<Vec<Failing>>,
    /// How many flows have not ended.
    active: Cell<usize>,
    waker: RefCell<Option<Waker>>,
    is_stopping: Cell<bool>,
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
        flow: Arc::clone(flow),
        failing: RefCell::default(),
        active: Cell::new(0),
        waker: RefCell::new(None),
        is_stopping: Cell::new(false),
    });
    while let Some(delivery) = work.next(&mut stop).await {
        start(&work, delivery, services);
    }
    work.is_stopping.set(true);
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
    failures: u64,
}

impl Failing {
    /// Whether a message that has come is this one.
    fn is(&self, facts: &Facts<'_>, message: &Message) -> bool {
        let Ok(Received::Delivered(deliver)) = self.message.received() else {
            return false;
        };
        let known = Facts::read(&self.message, deliver);
        self.message.body == message.body && known.is_some_and(|known| known.is_same(facts))
    }
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
    /// The next message; `None` when the source is to end.
    async fn next(&self, stop: &mut LocalFuture<'static, ()>) -> Option<Delivery> {
        poll_fn(|context| {
            if stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            self.hub.poll_delivery(context).map(Some)
        })
        .await
    }

    async fn process(&self, delivery: &Delivery, services: &dyn Services) {
        let Delivery { message, ticket } = delivery;
        let held = Held {
            hub: &self.hub,
            ticket: *ticket,
            is_settled: false,
        };
        let (Ok(Received::Delivered(deliver)), queue) =
            (message.received(), self.hub.queue(ticket.at))
        else {
            return held.settle(Settled::Reject);
        };
        if message.is_without_body() {
            let (flow, size) = (&**self.flow.name(), message.size);
            let (limit, of) = match size > BODY_MAX {
                true => (BODY_MAX, "a message"),
                false => (memory::bodies().limit(), "limits.body_memory"),
            };
            tracing::error!(
                target: "flow", flow, queue, size, limit, of,
                "a message is too large; it is rejected"
            );
            return held.settle(Settled::Reject);
        }
        let Some(mut facts) = Facts::read(message, deliver) else {
            return held.settle(Settled::Reject);
        };
        if !self.settings.ordered {
            return held.settle(self.attempt(&facts, delivery, &queue, services).await);
        }
        // It is kept until it is done: a queue may put back at its end what is given back.
        facts.remembered = self.failures_of(ticket.at, &facts, message);
        loop {
            let how = self.attempt(&facts, delivery, &queue, services).await;
            if how != Settled::Requeue {
                self.failing.borrow_mut().retain(|it| it.queue != ticket.at);
                return held.settle(how);
            }
            if self.is_stopping.get() || !self.hub.is_open(ticket) {
                return held.abandon();
            }
            // Flows that wait for nothing would let nobody else have a turn.
            tokio::task::yield_now().await;
            facts.remembered = self.failures_of(ticket.at, &facts, message);
        }
    }

    /// Runs the flow with a message, and says what is to become of the message.
    async fn attempt(
        &self,
        facts: &Facts<'_>,
        delivery: &Delivery,
        queue: &str,
        services: &dyn Services,
    ) -> Settled {
        let request = facts.request(queue, delivery.message.body.clone().into());
        let result = self.flow.start(request, services).await;
        let has_failed = !has_succeeded(&result);
        let how = match has_failed {
            false => Settled::Ack,
            // On the heap, as what follows: every message that is under way would pay for its size.
            true => {
                let work = self.after_failure(facts, delivery, queue, services);
                Box::pin(work).await
            }
        };
        let is_final = how != Settled::Requeue && (how == Settled::Reject) == has_failed;
        let answers = self.settings.reply && is_final;
        if answers && !Box::pin(self.answer(facts, result, services)).await {
            // The broker takes no replies for now: the message comes again.
            self.pause(services).await;
            return Settled::Requeue;
        }
        how
    }

    /// What becomes of a message whose flow has failed: acknowledged means that a copy waits.
    async fn after_failure(
        &self,
        facts: &Facts<'_>,
        Delivery { message, ticket }: &Delivery,
        queue: &str,
        services: &dyn Services,
    ) -> Settled {
        let failures = facts.failures();
        let is_through = failures.count >= self.settings.redeliveries;
        if self.settings.on_failure == OnFailure::Reject || is_through {
            return Settled::Reject;
        }
        if self.settings.ordered {
            self.note_failures(ticket.at, message, failures.count + 1);
        }
        self.pause(services).await;
        if failures.is_counted || self.settings.ordered {
            return Settled::Requeue;
        }
        match self
            .put_back(facts, failures.count + 1, &message.body, queue, services)
            .await
        {
            Ok(()) => Settled::Ack,
            Err(fault) => {
                let flow = &**self.flow.name();
                let cause = fault.cause.as_deref().unwrap_or_default();
                tracing::warn!(
                    target: "flow", flow, queue, cause,
                    "a message could not be put back with a count; it goes back as it is"
                );
                Settled::Requeue
            }
        }
    }

    /// How often the flow of a message of an ordered queue has failed here.
    fn failures_of(&self, queue: usize, facts: &Facts<'_>, message: &Message) -> u64 {
        let failing = self.failing.borrow();
        let known = failing.iter().find(|it| it.queue == queue);
        known
            .filter(|it| it.is(facts, message))
            .map_or(0, |it| it.failures)
    }

    fn note_failures(&self, queue: usize, message: &Message, failures: u64) {
        let mut failing = self.failing.borrow_mut();
        failing.retain(|it| it.queue != queue);
        failing.push(Failing {
            queue,
            message: message.clone(),
            failures,
        });
    }

    /// Waits before a message goes back, unless the source is to end.
    async fn pause(&self, services: &dyn Services) {
        let end = services.now() + self.settings.delay;
        while !self.is_stopping.get() {
            let left = end.saturating_duration_since(services.now());
            if left.is_zero() {
                return;
            }
            services.sleep(left.min(LOOK)).await;
        }
    }

    /// Puts a copy into the queue that counts how often its flow has failed.
    async fn put_back(
        &self,
        facts: &Facts<'_>,
        failures: u64,
        body: &bytes::Bytes,
        queue: &str,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let headers = facts.headers_of_copy(failures);
        let headers = header_bytes(&headers)?;
        let properties = Properties {
            headers: headers.as_deref(),
            // The broker refuses one that is not ours.
            user_id: None,
            ..facts.properties
        };
        let place = (default_exchange(), queue.to_owned());
        let message = Outgoing::new(place, true, &properties, body.clone());
        let message = message.map_err(|_| Fault::invalid("the queue's name is too long"))?;
        let hub = Hub::of(services, &self.broker);
        hub.publish(message)?.await?;
        Ok(())
    }

    /// Publishes the flow's reply to whoever waits for it. `false` when that was not possible.
    async fn answer(
        &self,
        facts: &Facts<'_>,
        result: Result<Reply, Fault>,
        services: &dyn Services,
    ) -> bool {
        let Some(reply_to) = facts.properties.reply_to else {
            return true;
        };
        let reply = result.unwrap_or_else(|fault| fault.to_reply());
        let sent = self.send_reply(facts, reply_to, reply, services).await;
        let Err(fault) = sent else {
            return true;
        };
        let (flow, cause) = (&**self.flow.name(), fault.cause.as_deref());
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
        let mut headers = amqp::Table::default();
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
