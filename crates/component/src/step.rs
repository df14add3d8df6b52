//! One step of a running flow.

use std::sync::Arc;

use message::{Fault, Reply};

use crate::exchange::Exchange;
use crate::forward::ForwardPlan;
use crate::handler::{LocalFuture, Services};

/// What follows a step.
#[derive(Debug)]
pub enum Next {
    /// The next step.
    Continue,
    /// This reply ends the flow.
    Reply(Reply),
    /// The message goes on as this plan says, and the reply is streamed back.
    Forward(Arc<ForwardPlan>),
}

/// The work of a step: done at once, or a future. Most steps are done at once and cost no
/// allocation.
pub enum Progress<'a> {
    /// The step is done.
    Done(Result<Next, Fault>),
    /// The step waits for something.
    Waits(LocalFuture<'a, Result<Next, Fault>>),
}

/// A place where steps of other flows may enter a flow of another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Arc<str>,
    /// The variables that may have values there.
    pub variables: Arc<[Arc<str>]>,
}

/// One step of a flow. One value serves all workers, so a step keeps no state of a message.
pub trait Step: Send + Sync {
    /// Does the step's work on the exchange.
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a>;

    /// Whether the step looks at the body. When no step of a flow does, bodies are relayed as they
    /// arrive.
    fn reads_body(&self) -> bool {
        true
    }

    /// The plan of a step that does nothing but forward and stream the reply back.
    fn forwards(&self) -> Option<&Arc<ForwardPlan>> {
        None
    }

    /// Whether it, or a step within it, forwards and streams the reply back.
    fn streams(&self) -> bool {
        self.forwards().is_some()
    }

    /// Whether the flow always ends here, so that a step behind it would never run.
    fn ends_flow(&self) -> bool {
        false
    }

    /// Whether the step may wait for something, so that a time-out or a further try means
    /// something.
    fn waits(&self) -> bool {
        false
    }

    /// Whether it does no harm to run the step a second time when nobody knows what became of the
    /// first: it only reads, or has the same effect as once. A step that holds others is not asked
    /// for them.
    fn is_repeatable(&self, _exchange: &Exchange) -> bool {
        false
    }

    /// The places where steps of other flows may enter the flow that it stands for, when that is of
    /// another kind: screens of a menu.
    fn entries(&self) -> Vec<Entry> {
        Vec::new()
    }

    /// Whether a failure of a step within it has undone all that the steps within it have done
    /// before.
    fn is_atomic(&self) -> bool {
        false
    }
}
