//! Work of flows that no client waits for: what steps start, what goes on when its client has left,
//! and the sources that start flows by themselves.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use component::handler::{Handler, Outcome, Work};
use component::plan::Plan;
use component::source::SourcePlan;
use message::{Fault, Request};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::call::Caller;
use crate::router::ForwardTargets;
use crate::worker::Worker;

/// Runs a handler on a request until it is done or its client has left: `None` then. The work of a
/// handler that detaches goes on all the same.
pub(crate) async fn run(
    worker: &Rc<Worker>,
    handler: &Arc<dyn Handler>,
    forwards: &Rc<ForwardTargets>,
    request: Request,
    mut has_left: impl FnMut(&mut Context<'_>) -> bool,
) -> Option<Result<Outcome, Fault>> {
    let caller = Caller::new(worker, forwards);
    if !handler.detaches() {
        let mut work = handler.handle(request, &caller);
        return poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if has_left(context) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await;
    }
    let (tell, mut told) = oneshot::channel();
    let handler = Arc::clone(handler);
    start(worker, async move {
        let outcome = handler.handle(request, &caller).await;
        // The client may have left.
        let _ = tell.send(outcome);
    });
    poll_fn(|context| {
        if let Poll::Ready(outcome) = std::pin::Pin::new(&mut told).poll(context) {
            return Poll::Ready(outcome.ok());
        }
        match has_left(context) {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    })
    .await
}

/// Starts work that a drain waits for.
fn start(worker: &Rc<Worker>, work: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    let guest = worker.enter();
    tokio::task::spawn_local(async move {
        work.await;
        drop(guest);
    })
}

/// Starts work of a step.
pub(crate) fn spawn(caller: &Caller, work: Work) {
    let caller = caller.clone();
    let worker = Rc::clone(&caller.worker);
    start(&worker, async move { work(&caller).await });
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

fn run_source(
    worker: &Rc<Worker>,
    plan: SourcePlan,
    before: Option<JoinHandle<()>>,
) -> RunningSource {
    let (stop, stopped) = oneshot::channel::<()>();
    let caller = Caller::new(worker, &Rc::default());
    let flow = Arc::clone(plan.flow.name());
    let task = start(worker, async move {
        if let Some(before) = before {
            // Whatever became of it, it has ended.
            let _ = before.await;
        }
        let stopped = Box::pin(async move {
            let _ = stopped.await;
        });
        plan.source.run(&plan.flow, &caller, stopped).await;
    });
    RunningSource {
        flow,
        _stop: stop,
        task,
    }
}
