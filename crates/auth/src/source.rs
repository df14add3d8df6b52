//! Work that ways do by themselves, beside all requests.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use component::handler::{LocalFuture, Services};
use component::source::{Source, SourcePlan, Started};
use message::{Fault, Kind, Origin, Reply, Request};

/// The plan of such work: it has a name for logs and starts no flow.
pub(crate) fn plan(name: String, source: Arc<dyn Source>) -> SourcePlan {
    SourcePlan {
        flow: Arc::new(NoFlow(name.into())),
        source,
    }
}

/// Work that is done again and again until the engine stops.
pub(crate) trait Periodic: Send + Sync {
    /// Does it once; gives when it is done again, `None` if never.
    fn turn<'a>(
        &'a self,
        is_first: bool,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Option<Instant>>;
}

/// Runs periodic work as a source.
pub(crate) struct Repeated<P>(pub P);

impl<P: Periodic> Source for Repeated<P> {
    fn run<'a>(
        &'a self,
        _: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let mut is_first = true;
            while let Some(next) = self.0.turn(is_first, services).await {
                if !wait_until(next, &mut stop, services).await {
                    return;
                }
                is_first = false;
            }
            stop.await;
        })
    }
}

struct NoFlow(Arc<str>);

impl Started for NoFlow {
    fn name(&self) -> &Arc<str> {
        &self.0
    }

    fn start<'a>(
        &'a self,
        _: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        let fault = Fault::new(Kind::Internal, Origin::Engine, "access control is no flow");
        Box::pin(std::future::ready(Err(fault)))
    }
}

/// Waits until this time; `false` when the engine stops before.
pub(crate) async fn wait_until(
    at: Instant,
    stop: &mut LocalFuture<'static, ()>,
    services: &dyn Services,
) -> bool {
    let mut sleep = pin!(services.sleep_until(at));
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(false);
        }
        sleep.as_mut().poll(context).map(|()| true)
    })
    .await
}
