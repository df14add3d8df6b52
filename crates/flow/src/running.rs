//! A flow that runs: its steps in order, then a reply or an order to forward.

use std::sync::Arc;

use component::forward::ForwardPlan;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::step::{Exchange, Next, Progress};
use message::{Body, Fault, Reply, Request};

use crate::step_list::BuiltStep;

/// A flow with steps.
pub(crate) struct RunningFlow {
    name: Arc<str>,
    /// The steps that are run; a last step that forwards is not among them.
    steps: Vec<BuiltStep>,
    /// The plan of a last step that forwards.
    forward: Option<Arc<ForwardPlan>>,
    /// Whether any of it needs the body in memory.
    pub reads_body: bool,
}

impl RunningFlow {
    /// A flow of these steps.
    pub fn new(name: Arc<str>, mut steps: Vec<BuiltStep>) -> Self {
        let forward = steps
            .last()
            .and_then(|last| last.step.forwards())
            .map(Arc::clone);
        if forward.is_some() {
            steps.pop();
        }
        let ends = forward.is_some() || steps.last().is_some_and(|last| last.step.ends_flow());
        let reads_body = !ends || steps.iter().any(|built| built.step.reads_body());
        Self {
            name,
            steps,
            forward,
            reads_body,
        }
    }

    async fn run(&self, request: Request, services: &dyn Services) -> Result<Outcome, Fault> {
        let mut exchange = Exchange {
            flow: Arc::clone(&self.name),
            request,
        };
        for built in &self.steps {
            let next = match built.step.run(&mut exchange, services) {
                Progress::Done(next) => next,
                Progress::Waits(future) => future.await,
            };
            match next {
                Ok(Next::Continue) => {}
                Ok(Next::Reply(reply)) => return Ok(Outcome::Reply(reply)),
                Err(fault) => return Err(self.blame(&built.label, fault)),
            }
        }
        Ok(match &self.forward {
            Some(plan) => Outcome::Forward(Arc::clone(plan), Box::new(exchange.request)),
            None => Outcome::Reply(end(&mut exchange)),
        })
    }

    /// Tells the log which step of which flow failed.
    fn blame(&self, label: &str, fault: Fault) -> Fault {
        let place = format!("flow {}, step {label}", self.name);
        let cause = match &fault.cause {
            Some(cause) => format!("{place}: {cause}"),
            None => place,
        };
        fault.with_cause(cause)
    }
}

impl Handler for RunningFlow {
    fn reads_body(&self) -> bool {
        self.reads_body
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(self.run(request, services))
    }
}

/// The reply of a flow that ends without one.
fn end(exchange: &mut Exchange) -> Reply {
    let is_empty = matches!(exchange.request.body, Body::Empty);
    exchange.take_reply(if is_empty { 204 } else { 200 })
}

#[cfg(test)]
mod tests;
