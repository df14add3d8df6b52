//! The source at work: it takes messages, runs the flow on each, and says what becomes of it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use component::content::Format;
use component::handler::{LocalFuture, Services};
use component::resilience::RetryPolicy;
use component::source::{Source, Started, success};
use journal::{Delivery, Order, Refusal, Settle};
use message::memory::{self, Intake, NoRoom};
use message::{Fault, Kind, Origin, Reply, Request};
use tokio::sync::Notify;

use super::depot::Store;
use super::envelope;

/// How long nothing is taken from a store that gives nothing.
const PAUSE: Duration = Duration::from_secs(5);
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
    pub retry: RetryPolicy,
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
        let intake = &RefCell::<Intake>::default();
        let mut taking: Option<LocalFuture<'_, Taken>> = None;
        loop {
            let free = most.saturating_sub(gate.count.get());
            if free > 0 && taking.is_none() {
                taking = Some(Box::pin(async move {
                    self.until_room(intake, flow, services).await;
                    self.take(free).await
                }));
            }
            match next(&gate, &mut taking, &mut stop).await {
                Event::Stop => break,
                Event::Ended => {}
                Event::Taken(Ok(deliveries)) => {
                    for delivery in deliveries {
                        self.start(delivery, flow, &gate, services);
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
    async fn until_room(
        &self,
        intake: &RefCell<Intake>,
        flow: &Arc<dyn Started>,
        services: &dyn Services,
    ) {
        loop {
            let Err(full) = intake.borrow_mut().check() else {
                return;
            };
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
        flow: &Arc<dyn Started>,
        gate: &Rc<Gate>,
        services: &dyn Services,
    ) {
        let work = Deliver {
            delivery: held(delivery),
            flow: Arc::clone(flow),
            retry: self.retry.clone(),
            store: Arc::clone(&self.store),
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

/// One delivery.
struct Deliver {
    delivery: Delivery,
    flow: Arc<dyn Started>,
    retry: RetryPolicy,
    store: Arc<Store>,
    place: Place,
}

impl Deliver {
    async fn run(self, services: &dyn Services) {
        let result = match self.request() {
            Ok(request) => self.flow.start(request, services).await,
            Err(fault) => Err(fault),
        };
        let settle = self.settle(result, services);
        self.note(settle, services).await;
    }

    /// The message as it was when it was stored.
    fn request(&self) -> Result<Request, Fault> {
        let unreadable = |why: String| {
            let store = &self.store.name;
            let (detail, id) = ("a stored message cannot be read", self.delivery.id);
            tracing::error!(target: "flow", store, id, why, "{detail}");
            Fault::new(Kind::Internal, Origin::Engine, detail).with_cause(why)
        };
        let body = self.delivery.body.as_ref();
        let body = body.map_err(|refusal| unreadable(refusal.to_string()))?;
        let mut request = envelope::decode(body).map_err(|why| unreadable(why.to_owned()))?;
        let id = self.delivery.name.clone();
        let attempt = (self.delivery.attempts + 1).to_string();
        for (name, value) in [("store_id", id), ("store_attempt", attempt)] {
            request.parameters.retain(|(known, _)| **known != *name);
            request.parameters.push((name.into(), value));
        }
        Ok(request)
    }

    /// What becomes of a message whose flow has ended so.
    fn settle(&self, result: Result<Reply, Fault>, services: &dyn Services) -> Settle {
        let Err(fault) = success(result) else {
            return Settle::Done;
        };
        let failed = self.delivery.attempts + 1;
        match self.retry.delay_after(failed, &fault, services.chance()) {
            Some(wait) => Settle::Back(wait),
            None => {
                let (flow, store) = (&**self.flow.name(), &*self.store.name);
                let (id, error) = (self.delivery.id, fault.to_string());
                tracing::error!(
                    target: "flow", flow, store, id, failed, error,
                    "a message is a dead letter"
                );
                Settle::Bury(error)
            }
        }
    }

    /// Has the disk note what becomes of it. Tries until it works or the source has to end: the
    /// message is delivered again then, after the next start.
    async fn note(&self, settle: Settle, services: &dyn Services) {
        let (mut wait, longest) = NOTE;
        let gate = &self.place.0;
        loop {
            let refusal = match self.delivery.settle(settle.clone()).await {
                Ok(()) => return,
                Err(refusal) => refusal,
            };
            let (flow, store) = (&**self.flow.name(), &*self.store.name);
            let id = self.delivery.id;
            tracing::warn!(
                target: "flow", flow, store, id, %refusal,
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
