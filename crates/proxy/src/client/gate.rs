//! The limits of a flow or topic, asked for each of its requests before the body is read.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use component::access::Admitted;
use component::limits::{Entered, Gate, Passed, Visit};
use component::trusted_proxies::TrustedProxies;
use message::{Fault, HeadersView, Request};

use crate::call;
use crate::upstream::request_head;
use crate::worker::Worker;

/// Why a request does not go on.
pub(crate) enum Refusal {
    /// A limit is exceeded.
    Fault(Fault),
    /// The client has left while its request was waiting.
    Gone,
}

/// A request that stands before a gate.
pub(crate) struct Visitor<'a, L> {
    pub gate: &'a Gate,
    pub worker: &'a Rc<Worker>,
    pub now: Instant,
    /// The head of the request.
    pub request: Request,
    /// Whether the client has left.
    pub has_left: L,
}

/// Asks a gate that needs no expression: the common case, which waits for nothing.
///
/// # Errors
/// When a limit is exceeded.
pub(crate) fn enter<'g>(
    gate: &'g Gate,
    (peer, headers, admitted): (IpAddr, HeadersView<'_>, Option<&Admitted>),
    proxies: Option<&TrustedProxies>,
    now: Instant,
) -> Result<Entered<'g>, Fault> {
    let (address, _) = request_head::client(proxies, peer, headers);
    gate.enter(&Visit {
        address,
        headers,
        hidden: admitted.and_then(Admitted::hidden_field),
        caller: admitted.map(|it| &*it.caller),
        now,
    })
}

impl<L: FnMut(&mut Context<'_>) -> bool> Visitor<'_, L> {
    /// Asks a gate with expressions, and waits until it is the request's turn.
    pub async fn pass(self) -> Result<Passed, Refusal> {
        let caller = call::Caller::new(self.worker, &Rc::default());
        let work = async {
            let entered = self.gate.enter_by_value(&self.request, &caller).await?;
            entered.wait(&caller).await;
            Ok(entered.finish(self.now))
        };
        passed(work, self.has_left).await
    }
}

/// Waits until it is the turn of a request that has been let in.
pub(crate) async fn wait(
    entered: Entered<'_>,
    worker: &Rc<Worker>,
    has_left: impl FnMut(&mut Context<'_>) -> bool,
) -> Result<Passed, Refusal> {
    let caller = call::Caller::new(worker, &Rc::default());
    let work = async {
        entered.wait(&caller).await;
        Ok(entered.finish(Instant::now()))
    };
    passed(work, has_left).await
}

async fn passed(
    work: impl Future<Output = Result<Passed, Fault>>,
    has_left: impl FnMut(&mut Context<'_>) -> bool,
) -> Result<Passed, Refusal> {
    let passed = until_gone(work, has_left).await;
    passed.ok_or(Refusal::Gone)?.map_err(Refusal::Fault)
}

/// Works until the client has left: `None` then.
pub(crate) async fn until_gone<T>(
    work: impl Future<Output = T>,
    mut has_left: impl FnMut(&mut Context<'_>) -> bool,
) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if has_left(context) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}
