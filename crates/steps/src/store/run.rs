//! The source at work: it takes messages, runs the flow on each, and says what becomes of it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use component::content::Format;
use component::handler::{LocalFuture, Services};
use component::intake::{DeadLetter, Incoming, Intake, IntakePlan, Processed, Settlement};
use component::source::{Source, Started};
use journal::{Delivery, Order, Refusal, Settle};
use message::memory::{self, NoRoom};
use message::{Fault, Headers, Kind, Origin, Request};
use tokio::sync::Notify;

use super::depot::Store;
use super::envelope;

/// How long nothing is taken from a store that gives nothing.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a worker that has nothing under way waits for room.
const IDLE_WAIT: Duration = Duration::from_secs(30);
/// How often is looked whether there is room for messages.
const LOOK: Duration = Duration::from_millis(100);
/// The first and the longest wait before the disk is asked again to note what has become of a
/// message.
const NOTE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The source.
pub(super) struct StoreSource {
    pub store: Arc<Store>,
    pub order: Order,
    pub concurrent: usize,
    pub plan: Arc<IntakePlan>,
    pub decode: Option<Format>,
}

impl Source for StoreSource {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(self.deliver_all(flow, services, stop))
    }

    fn is_on_every_worker(&self) -> bool {
        true
    }

    fn decode(&self) -> Option<Format> {
        self.decode
    }
}

/// What a source has under way on its worker.
#[derive(Default)]
struct Gate {
    count: Cell<usize>,
    is_stopping: Cell<bool>,
    /// One has ended, or the source has to.
    changed: Notify,
}

/// One message under way.
struct Place(Rc<Gate>);

impl Place {
    fn new(gate: &Rc<Gate>) -> Self {
        gate.count.set(gate.count.get() + 1);
        Self(Rc::clone(gate))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.changed.notify_waiters();
    }
}

type Taken = Result<Vec<Delivery>, Refusal>;

/// Why the source goes on.
enum Event {
    Stop,
    Taken(Taken),
    Ended,
}

impl StoreSource {
    async fn deliver_all(
        &self,
        flow: &Arc<dyn Started>,
        services: &dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) {
        let most = services.share().of(self.concurrent);
        if most == 0 {
            return stop.await;
        }
        let gate = Rc::new(Gate::default());
        let intake = Rc::new(Intake::new(flow, &self.plan));
        let memory = &RefCell::<memory::Intake>::default();
        let mut taking: Option<LocalFuture<'_, Taken>> = None;
        loop {
            let free = most.saturating_sub(gate.count.get());
            if free > 0 && taking.is_none() && !intake.is_over() {
                let is_idle = free == most;
                taking = Some(Box::pin(async move {
                    let has_room = self.until_room(memory, is_idle, flow, services).await;
                    self.take(if has_room { free } else { 1 }).await
                }));
            }
            match next(&gate, &mut taking, &mut stop).await {
                Event::Stop => break,
                Event::Ended => {}
                // What another worker has halted meanwhile goes back.
                Event::Taken(Ok(_)) if intake.is_over() => {}
                Event::Taken(Ok(deliveries)) => {
                    for delivery in deliveries {
                        self.start(delivery, &intake, &gate, services);
                    }
                }
                Event::Taken(Err(refusal)) => {
                    let (flow, store) = (&**flow.name(), &*self.store.name);
                    tracing::error!(target: "flow", flow, store, %refusal, "nothing is delivered");
                    taking = Some(Box::pin(async {
                        services.sleep(PAUSE).await;
                        Ok(Vec::new())
                    }));
                }
            }
        }
        // What has been taken meanwhile goes back.
        drop(taking);
        intake.stop();
        gate.is_stopping.set(true);
        gate.changed.notify_waiters();
        while gate.count.get() > 0 {
            gate.changed.notified().await;
        }
    }

    async fn take(&self, most: usize) -> Taken {
        match self.store.outbox() {
            Some(outbox) => outbox.take(&self.store.name, self.order, most).await,
            None => Err(Refusal::Closed),
        }
    }

    /// Waits until the budget for bodies has room. What is taken then, 16 MiB or one message, may
    /// go beyond it: the sizes are not known before.
    ///
    /// A worker that has nothing under way waits for a while only: what uses the budget up may wait
    /// for this store to be emptied, as sources do whose dead letters it keeps. False then.
    async fn until_room(
        &self,
        memory: &RefCell<memory::Intake>,
        is_idle: bool,
        flow: &Arc<dyn Started>,
        services: &dyn Services,
    ) -> bool {
        let start = services.now();
        loop {
            let Err(full) = memory.borrow_mut().check() else {
                return true;
            };
            let waited = services.now().saturating_duration_since(start);
            if is_idle && waited >= IDLE_WAIT {
                return false;
            }
            if full == (NoRoom::Now { is_new: true }) {
                let (flow, store) = (&**flow.name(), &*self.store.name);
                tracing::warn!(
                    target: "flow", flow, store,
                    "stored messages wait for memory: limits.body_memory is used up"
                );
            }
            services.sleep(LOOK).await;
        }
    }

    fn start(
        &self,
        delivery: Delivery,
        intake: &Rc<Intake>,
        gate: &Rc<Gate>,
        services: &dyn Services,
    ) {
        let work = Deliver {
            message: Message {
                delivery: held(delivery),
                store: Arc::clone(&self.store),
            },
            intake: Rc::clone(intake),
            place: Place::new(gate),
        };
        services.spawn(Box::new(move |services| Box::pin(work.run(services))));
    }
}

/// The same delivery, whose body keeps room in the budget for bodies.
fn held(mut delivery: Delivery) -> Delivery {
    if let Ok(body) = &mut delivery.body
        && body.len() > memory::FREE
    {
        let room = memory::bodies().take_anyway(body.len() as u64);
        *body = room.hold(std::mem::take(body));
    }
    delivery
}

/// Waits until the source has something to do.
async fn next(
    gate: &Gate,
    taking: &mut Option<LocalFuture<'_, Taken>>,
    stop: &mut LocalFuture<'static, ()>,
) -> Event {
    let mut changed = Box::pin(gate.changed.notified());
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(Event::Stop);
        }
        let Some(future) = taking else {
            return changed.as_mut().poll(context).map(|()| Event::Ended);
        };
        let taken = future.as_mut().poll(context);
        if taken.is_ready() {
            *taking = None;
        }
        taken.map(Event::Taken)
    })
    .await
}

/// A delivery as a message.
struct Message {
    delivery: Delivery,
    store: Arc<Store>,
}

impl Message {
    /// The message as it was when it was stored.
    fn read(&self, attempt: u32) -> Result<Request, String> {
        let body = self.delivery.body.as_ref();
        let body = body.map_err(|refusal| refusal.to_string())?;
        let mut request = envelope::decode(body)?;
        let id = self.delivery.name.clone();
        for (name, value) in [("store_id", id), ("store_attempt", attempt.to_string())] {
            request.parameters.retain(|(known, _)| **known != *name);
            request.parameters.push((name.into(), value));
        }
        Ok(request)
    }
}

impl Incoming for Message {
    fn id(&self) -> String {
        self.delivery.name.clone()
    }

    fn request(&mut self, attempt: u32) -> Result<Request, Fault> {
        self.read(attempt).map_err(|why| {
            let store = &self.store.name;
            let (detail, id) = ("a stored message cannot be read", self.delivery.id);
            tracing::error!(target: "flow", store, id, why, "{detail}");
            Fault::new(Kind::Internal, Origin::Engine, detail).with_cause(why)
        })
    }

    /// The store counts attempts over restarts.
    fn failed_before(&self) -> u32 {
        self.delivery.attempts
    }

    fn letter(&mut self, attempt: u32) -> Request {
        self.read(attempt).unwrap_or_else(|_| {
            // As it was stored: another version may be able to read it.
            let body = self.delivery.body.clone().unwrap_or_default();
            Request::of_source("UNREADABLE", Headers::new(), body)
        })
    }
}

/// One delivery.
struct Deliver {
    message: Message,
    intake: Rc<Intake>,
    place: Place,
}

impl Deliver {
    async fn run(mut self, services: &dyn Services) {
        let intake = Rc::clone(&self.intake);
        let processed = intake.process(&mut self.message, services).await;
        // Dropped without a note, the delivery goes back as it was.
        if let Some(settle) = self.settle(processed) {
            self.note(settle, services).await;
        }
    }

    /// What the store has to note; nothing when the delivery goes back.
    fn settle(&self, processed: Processed) -> Option<Settle> {
        let is_kept = matches!(self.intake.policy().dead_letter, DeadLetter::Keep(_));
        let is_damaged = self.message.delivery.body.is_err();
        match (processed.settlement, processed.result) {
            // Its letter holds nothing of it: what there is stays here.
            (Settlement::Acknowledge, Some(Err(fault))) if is_kept && is_damaged => {
                Some(Settle::Bury(fault.to_string()))
            }
            (Settlement::Acknowledge, _) => Some(Settle::Done),
            (Settlement::Reject { reason, .. }, _) => Some(Settle::Bury(reason)),
            (Settlement::PutBack(wait), _) => Some(Settle::Back(wait)),
            (Settlement::Release, _) => None,
        }
    }

    /// Has the disk note what becomes of it. Tries until it works or the source has to end: the
    /// message is delivered again then, after the next start.
    async fn note(&self, settle: Settle, services: &dyn Services) {
        let (mut wait, longest) = NOTE;
        let gate = &self.place.0;
        loop {
            let Message { delivery, store } = &self.message;
            let refusal = match delivery.settle(settle.clone()).await {
                Ok(()) => {
                    if let Settle::Bury(reason) = &settle {
                        let (id, failed) = (&*delivery.name, delivery.attempts.saturating_add(1));
                        self.intake
                            .dead_letter_kept((id, &*store.name), failed, reason);
                    }
                    return;
                }
                Err(refusal) => refusal,
            };
            let (store, id) = (&*store.name, delivery.id);
            tracing::warn!(
                target: "flow", store, id, %refusal,
                "what became of a message is not noted"
            );
            let is_over = matches!(
                refusal,
                Refusal::Gone | Refusal::Closed | Refusal::Poisoned(_)
            );
            if is_over || gate.is_stopping.get() {
                return;
            }
            let mut stopped = Box::pin(gate.stopped());
            let mut sleep = services.sleep(wait);
            poll_fn(|context| match stopped.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => sleep.as_mut().poll(context),
            })
            .await;
            wait = (wait * 2).min(longest);
        }
    }
}

impl Gate {
    /// Waits until the source has to end.
    async fn stopped(&self) {
        while !self.is_stopping.get() {
            self.changed.notified().await;
        }
    }
}
