//! A whole flow seen from outside: a request goes in, a reply or an order to forward comes out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use message::{Fault, Reply, Request};

use crate::forward::ForwardPlan;

/// A future that stays on its worker's thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What a handler decides.
#[derive(Debug)]
pub enum Outcome {
    /// Send this reply.
    Reply(Reply),
    /// Forward this request and stream the reply back.
    Forward(Arc<ForwardPlan>, Box<Request>),
}

/// Something that takes requests: a flow with steps, or one of the engine's own pages. One value
/// serves all workers.
pub trait Handler: Send + Sync {
    /// Whether the body must be read into memory before [`Handler::handle`]; otherwise the
    /// request has [`message::Body::Unread`].
    fn reads_body(&self) -> bool;

    /// Takes one request. Dropping the future cancels the work.
    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>>;
}

/// What the worker offers to steps that call out.
pub trait Services {
    /// Sends the request as the plan says and reads the whole reply, whatever its status, bounded
    /// by the engine's body limit.
    fn call<'a>(
        &'a self,
        plan: &'a Arc<ForwardPlan>,
        request: &'a Request,
    ) -> LocalFuture<'a, Result<Reply, Fault>>;
}
