//! One step of a running flow.

use std::sync::Arc;

use message::{Fault, Reply, Request};

use crate::forward::ForwardPlan;
use crate::handler::{LocalFuture, Services};

/// What follows a step.
#[derive(Debug)]
pub enum Next {
    /// The next step.
    Continue,
    /// This reply ends the flow.
    Reply(Reply),
}

/// The work of a step: done at once, or a future. Most steps are done at once and cost no
/// allocation.
pub enum Progress<'a> {
    /// The step is done.
    Done(Result<Next, Fault>),
    /// The step waits for something.
    Waits(LocalFuture<'a, Result<Next, Fault>>),
}

/// One step of a flow. One value serves all workers, so a step keeps no state of a message.
pub trait Step: Send + Sync {
    /// Does the step's work on the exchange.
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a>;

    /// Whether the step looks at the body or replaces it. When no step of a flow does, bodies are
    /// relayed as they arrive.
    fn reads_body(&self) -> bool {
        true
    }

    /// The plan of a step that forwards. As the last step it is handed to the proxy, which streams
    /// the reply; anywhere else [`Step::run`] reads the reply whole.
    fn forwards(&self) -> Option<&Arc<ForwardPlan>> {
        None
    }

    /// Whether the flow always ends here, so that a step behind it would never run.
    fn ends_flow(&self) -> bool {
        false
    }
}

/// The state of one message on its way through a flow.
#[derive(Debug)]
pub struct Exchange {
    /// The name of the flow.
    pub flow: Arc<str>,
    /// The message: the request as it came in, with the body and fields that steps have changed.
    pub request: Request,
}
