//! Work of flows that no client waits for: what steps start, what goes on when its client has left,
//! and the sources that start flows by themselves.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use component::access::Settlement;
use component::handler::{Handler, Outcome, Work};
use component::plan::Plan;
use component::source::{SourcePlan, Started};
use message::{Fault, Request};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::call::Caller;
use crate::client::door;
use crate::panics::{self, Caught, CaughtFlow};
use crate::worker::{Busy, Worker};

/// How long a source rests that has panicked.
const SOURCE_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 1000 });

/// Runs a handler on a request until it is done or its client has left: `None` then. The work of a
/// handler that detaches goes on all the same, and settles the request when nobody waits any more.
///
/// No `async fn`, which would keep the request for as long as the flow runs.
pub(crate) fn run<'a>(
    caller: &'a Caller,
    handler: &'a Arc<dyn Handler>,
    request: Request,
    settlement: &'a Cell<Option<Settlement>>,
    mut has_left: impl FnMut(&mut Context<'_>) -> bool + 'a,
) -> impl Future<Output = Option<Result<Outcome, Fault>>> + 'a {
    let mut running = match handler.detaches() {
        false => Running::Here(panics::caught(|| handler.handle(request, caller))),
        true => Running::Detached(detach(caller, handler, request, settlement.take())),
    };
    poll_fn(move |context| match running.poll(context, settlement) {
        Poll::Ready(outcome) => Poll::Ready(outcome),
        Poll::Pending if has_left(context) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
}

/// A flow that somebody waits for.
enum Running<'a> {
    Here(Caught<'a, Outcome>),
    /// In a task of its own.
    Detached(Awaiting),
}

/// Somebody who waits for detached work.
struct Awaiting {
    told: oneshot::Receiver<Detached>,
    /// What the work sees of that.
    has_left: Rc<Cell<bool>>,
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.has_left.set(true);
    }
}

impl Running<'_> {
    /// Ready with the outcome; with `None` when the task has been dropped.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        settlement: &Cell<Option<Settlement>>,
    ) -> Poll<Option<Result<Outcome, Fault>>> {
        match self {
            Self::Here(work) => Pin::new(work).poll(context).map(Some),
            Self::Detached(awaiting) => Pin::new(&mut awaiting.told).poll(context).map(|told| {
                let mut detached = told.ok()?;
                settlement.set(detached.settlement.take());
                detached.outcome.take()
            }),
        }
    }
}

/// What detached work came to. When it is dropped because nobody waits any more, it settles the
/// request: what was to be forwarded or to go on as a stream has not been taken then.
struct Detached {
    outcome: Option<Result<Outcome, Fault>>,
    settlement: Option<Settlement>,
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(settlement) = self.settlement.take() {
            let is_taken = match &self.outcome {
                Some(Ok(Outcome::Reply(reply))) => door::is_success(reply.status),
                _ => false,
            };
            settlement.settle(is_taken);
        }
    }
}

fn detach(
    caller: &Caller,
    handler: &Arc<dyn Handler>,
    request: Request,
    settlement: Option<Settlement>,
) -> Awaiting {
    let (tell, told) = oneshot::channel();
    let has_left = Rc::new(Cell::new(false));
    let caller = caller.clone().detached(Rc::clone(&has_left));
    let handler = Arc::clone(handler);
    let worker = Rc::clone(&caller.worker);
    start(&worker, |busy| async move {
        let outcome = panics::caught(|| handler.handle(request, &caller)).await;
        // The client may have left.
        let _ = tell.send(Detached {
            outcome: Some(outcome),
            settlement,
        });
        drop(busy);
    });
    Awaiting { told, has_left }
}

/// Starts work that a drain waits for: until what the work is given is dropped. Work that is given
/// to another future would take its memory twice.
fn start<F>(worker: &Rc<Worker>, work: impl FnOnce(Busy) -> F) -> JoinHandle<()>
where
    F: Future<Output = ()> + 'static,
{
    tokio::task::spawn_local(work(worker.enter()))
}

/// Starts work of a step.
pub(crate) fn spawn(caller: &Caller, work: Work) {
    let caller = caller.clone();
    let worker = Rc::clone(&caller.worker);
    start(&worker, |busy| async move {
        work(&caller).await;
        drop(busy);
    });
}

/// The sources that run on a worker.
#[derive(Default)]
pub(crate) struct Sources(RefCell<Vec<RunningSource>>);

struct RunningSource {
    flow: Arc<str>,
    /// Dropped to stop the source.
    _stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Sources {
    /// Stops the sources that run and starts those of a plan, each when the one before it that
    /// starts the same flow has ended.
    pub fn replace(&self, worker: &Rc<Worker>, plan: &Plan) {
        let mut old = self.0.take();
        let is_first = worker.share.number == 0;
        let here = plan
            .sources
            .iter()
            .filter(|plan| is_first || plan.source.is_on_every_worker());
        let started = here.map(|plan| {
            let same = old.iter().position(|old| old.flow == *plan.flow.name());
            let before = same.map(|at| old.swap_remove(at).task);
            run_source(worker, plan.clone(), before)
        });
        let started = started.collect();
        *self.0.borrow_mut() = started;
    }

    /// Stops all sources. What they have under way is waited for by the drain.
    pub fn stop(&self) {
        self.0.take();
    }
}

/// Tells a source to stop, also one that has been started again.
struct Stop {
    receiver: RefCell<oneshot::Receiver<()>>,
    is_over: Cell<bool>,
}

impl Stop {
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_over.get() {
            ready!(Pin::new(&mut *self.receiver.borrow_mut()).poll(context)).ok();
            self.is_over.set(true);
        }
        Poll::Ready(())
    }
}

fn run_source(
    worker: &Rc<Worker>,
    plan: SourcePlan,
    before: Option<JoinHandle<()>>,
) -> RunningSource {
    let (stop_source, stopped) = oneshot::channel::<()>();
    let caller = Caller::new(worker, &Rc::default());
    let flow = Arc::clone(plan.flow.name());
    let started: Arc<dyn Started> = Arc::new(CaughtFlow(Arc::clone(&plan.flow)));
    let stop = Rc::new(Stop {
        receiver: RefCell::new(stopped),
        is_over: Cell::new(false),
    });
    let task = start(worker, |busy| async move {
        let _busy = busy;
        if let Some(before) = before {
            // Whatever became of it, it has ended.
            let _ = before.await;
        }
        loop {
            let stopped = Rc::clone(&stop);
            let stopped = Box::pin(poll_fn(move |context| stopped.poll(context)));
            let work = plan.source.run(&started, &caller, stopped);
            if panics::survives(work).await || stop.is_over.get() {
                return;
            }
            let flow = &**started.name();
            tracing::error!(target: "proxy", flow, "a source has panicked and is started again");
            tokio::time::sleep(SOURCE_PAUSE).await;
        }
    });
    RunningSource {
        flow,
        _stop: stop_source,
        task,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use component::handler::{LocalFuture, Services};
    use component::resources::Share;
    use component::source::Source;
    use message::Reply;

    use super::*;
    use crate::worker::Engine;

    struct PanickingFlow(Arc<str>);

    impl Started for PanickingFlow {
        fn name(&self) -> &Arc<str> {
            &self.0
        }

        fn start<'a>(
            &'a self,
            _: Request,
            _: &'a dyn Services,
        ) -> LocalFuture<'a, Result<Reply, Fault>> {
            Box::pin(async { panic!("on purpose") })
        }
    }

    /// Panics twice, then has a flow panic, then waits for its stop.
    struct PanickingSource {
        starts: AtomicUsize,
        faults: AtomicUsize,
    }

    impl Source for PanickingSource {
        fn run<'a>(
            &'a self,
            flow: &'a Arc<dyn Started>,
            services: &'a dyn Services,
            stop: LocalFuture<'static, ()>,
        ) -> LocalFuture<'a, ()> {
            let start = self.starts.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                assert!(start >= 2, "on purpose");
                let request = Request {
                    method: message::Method::Get,
                    path: "/".to_owned(),
                    query: None,
                    parameters: Vec::new(),
                    headers: message::Headers::new(),
                    body: message::Body::Empty,
                    peer: [0, 0, 0, 0].into(),
                    proxy: None,
                    is_secure: false,
                    certificate: None,
                    caller: None,
                };
                let fault = flow.start(request, services).await.unwrap_err();
                self.faults
                    .fetch_add(fault.status.into(), Ordering::Relaxed);
                stop.await;
            })
        }
    }

    #[test]
    fn a_source_that_panics_is_started_again_and_a_flow_that_does_has_failed() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap();
        let source = Arc::new(PanickingSource {
            starts: AtomicUsize::new(0),
            faults: AtomicUsize::new(0),
        });
        let plan = SourcePlan {
            flow: Arc::new(PanickingFlow("test".into())),
            source: Arc::clone(&source) as Arc<dyn Source>,
        };
        runtime.block_on(async {
            let share = Share {
                number: 0,
                count: 1,
            };
            let worker = Worker::new(share, Arc::new(Engine::new(None)));
            let running = run_source(&worker, plan, None);
            while source.faults.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let RunningSource { _stop, task, .. } = running;
            drop(_stop);
            task.await.unwrap();
        });
        assert_eq!(source.starts.load(Ordering::Relaxed), 3);
        assert_eq!(source.faults.load(Ordering::Relaxed), 500);
    }
}
