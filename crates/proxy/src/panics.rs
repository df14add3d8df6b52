//! Panics of flows become faults: the client gets 500 and everything else goes on. What went wrong
//! has been logged by the panic hook.
//!
//! A panic anywhere else in a session, a stream or a request of HTTP/2 ends its task: `tokio` drops
//! it, and with it its connections, which go back to no pool. Tasks that a worker cannot do without
//! run under `Worker::supervise`. A build with `panic = "abort"` catches nothing.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use component::handler::{LocalFuture, Services};
use component::source::Started;
use message::{Fault, Kind, Origin, Reply, Request};

/// The result of work, or a fault when it panics.
///
/// The work must not be touched again after a panic. What it shares with others may be in a state
/// between two right ones: cells are released, and each part of a worker keeps to itself what it
/// changes in several steps.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        let detail = "the flow has failed unexpectedly";
        Fault::new(Kind::Internal, Origin::Engine, detail).with_cause("a panic, see the log")
    })
}

/// Makes a future; a panic while it is made or runs is a fault. It is made at once: until then
/// what it is made of, such as a request, would be kept here too.
pub(crate) fn caught<'a, T: 'a>(
    make: impl FnOnce() -> LocalFuture<'a, Result<T, Fault>>,
) -> Caught<'a, T> {
    Caught(catch(make).unwrap_or_else(|fault| Box::pin(async { Err(fault) })))
}

/// A future whose panics are faults.
pub(crate) struct Caught<'a, T>(LocalFuture<'a, Result<T, Fault>>);

impl<T> Future for Caught<'_, T> {
    type Output = Result<T, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let poll = catch(|| self.0.as_mut().poll(context));
        poll.unwrap_or_else(|fault| Poll::Ready(Err(fault)))
    }
}

/// Runs a future to its end; false when it panics.
pub(crate) async fn survives(mut work: LocalFuture<'_, ()>) -> bool {
    let poll = |context: &mut Context<'_>| match catch(|| work.as_mut().poll(context)) {
        Ok(poll) => poll.map(|()| true),
        Err(_) => Poll::Ready(false),
    };
    poll_fn(poll).await
}

/// A flow whose panics are faults, for a source: what it does with a message that fails is right
/// for one that makes the flow panic too.
pub(crate) struct CaughtFlow(pub Arc<dyn Started>);

impl Started for CaughtFlow {
    fn name(&self) -> &Arc<str> {
        self.0.name()
    }

    fn start<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(caught(move || self.0.start(request, services)))
    }

    fn detaches(&self) -> bool {
        self.0.detaches()
    }
}
