//! Steps in order, each with what may stand beside its verb: a condition, a name for its result,
//! time-outs and further tries, and what happens when it fails.

use std::rc::Rc;
use std::sync::Arc;

use expr::jq::{Expression, rounds};
use message::{Fault, Kind};

use crate::content::Content;
use crate::exchange::Exchange;
use crate::failure::{Handled, Handlers};
use crate::handler::{LocalFuture, Services};
use crate::long_work::{ROW_ROUNDS, yield_now};
use crate::resilience::Guard;
use crate::scope;
use crate::step::{Next, Progress, Step};
use crate::value_template::ValueTemplate;

/// Whether an expression needs the body in memory.
pub fn needs_body(uses_input: bool, variables: &[usize]) -> bool {
    uses_input || variables.contains(&scope::IN)
}

/// A step where it stands in a flow.
pub struct StepNode {
    /// Its number among all places of the flow, for coverage.
    pub place: u32,
    /// What logs call it: its name, or its number and verb.
    pub label: Arc<str>,
    /// The work.
    pub step: Box<dyn Step>,
    /// Without this it is passed over.
    pub condition: Option<Expression>,
    /// The slot that its result goes to; without one it becomes the content.
    pub keep_as: Option<usize>,
    /// How it is tried.
    pub guard: Option<Box<Guard>>,
    /// What takes the place of its result when it fails.
    pub fallback: Option<Fallback>,
    /// What happens when it fails.
    pub on_error: Option<Handlers>,
}

/// What takes the place of a failed step's result.
pub enum Fallback {
    /// This value.
    Value(ValueTemplate),
    /// What these steps make.
    Steps(Block),
}

/// Steps in order.
pub struct Block {
    /// Its number among all places of the flow, for coverage.
    pub place: u32,
    /// The steps.
    pub steps: Vec<StepNode>,
}

impl Block {
    /// Runs the steps until one ends the flow.
    ///
    /// # Errors
    /// What the first step says that fails and is not handled.
    pub async fn run(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        services.visit(exchange, self.place);
        let mut before = rounds();
        for (number, node) in self.steps.iter().enumerate() {
            // Each within its time slice, many steps together may take as long as one may not.
            if number > 0 && rounds().wrapping_sub(before) >= ROW_ROUNDS {
                yield_now().await;
                before = rounds();
            }
            exchange.large.release_unused();
            exchange.at = Arc::clone(&node.label);
            if let Some(condition) = &node.condition
                && !node.holds(condition, exchange, services).await?
            {
                continue;
            }
            services.visit(exchange, node.place);
            let next = match node.is_plain() {
                true => node
                    .once(exchange, services)
                    .await
                    .map_err(|fault| node.blame(fault)),
                // Held on the heap: few steps need it, and every flow would pay for its size.
                false => Box::pin(node.run_guarded(exchange, services)).await,
            };
            match next? {
                Next::Continue => {}
                end => return Ok(end),
            }
        }
        Ok(Next::Continue)
    }

    /// The same for a step that holds the block.
    pub fn start<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Next, Fault>> {
        Box::pin(self.run(exchange, services))
    }

    /// Whether any of it needs the body in memory.
    pub fn reads_body(&self) -> bool {
        self.steps.iter().any(StepNode::reads_body)
    }

    /// Whether a step of it forwards and streams the reply back.
    pub fn streams(&self) -> bool {
        self.steps.iter().any(|node| node.step.streams())
    }

    /// Whether the flow always ends in it.
    pub fn ends_flow(&self) -> bool {
        self.steps.last().is_some_and(StepNode::ends_flow)
    }
}

impl StepNode {
    fn reads_body(&self) -> bool {
        let condition = self.condition.as_ref();
        let keeps = self.keep_as.is_some() || self.fallback.is_some() || self.on_error.is_some();
        keeps
            || condition.is_some_and(|it| needs_body(it.uses_input(), it.variables()))
            || self.step.reads_body()
    }

    /// Whether the flow always ends here.
    pub fn ends_flow(&self) -> bool {
        self.condition.is_none() && self.step.ends_flow()
    }

    /// Whether nothing stands beside its verb but a condition.
    fn is_plain(&self) -> bool {
        self.keep_as.is_none()
            && self.guard.is_none()
            && self.fallback.is_none()
            && self.on_error.is_none()
    }

    async fn holds(
        &self,
        condition: &Expression,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<bool, Fault> {
        let holds = exchange.preemptible(services, |it| it.holds(condition, services));
        holds.await.map_err(|fault| self.blame(fault))
    }

    /// Does the step's work once.
    pub(crate) async fn once(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        exchange.attempt.clear();
        loop {
            let guard = exchange.attempt.begin();
            let next = match self.step.run(&mut *exchange, services) {
                Progress::Done(next) => next,
                Progress::Waits(future) => {
                    drop(guard);
                    return future.await;
                }
            };
            drop(guard);
            match exchange.attempt.end() {
                None => return next,
                Some(deferred) => Box::pin(exchange.run_deferred(deferred, services)).await?,
            }
        }
    }

    async fn run_guarded(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let before = exchange.content.clone();
        let result = match &self.guard {
            Some(guard) => guard.run(self, &before, exchange, services).await,
            None => self.once(exchange, services).await,
        };
        let result = match result {
            Ok(next) => Ok(next),
            Err(fault) => {
                exchange.content = before.clone();
                exchange.at = Arc::clone(&self.label);
                self.recover(self.blame(fault), exchange, services).await
            }
        };
        let next = result?;
        if let (Some(slot), Next::Continue) = (self.keep_as, &next) {
            let value = exchange.preemptible(services, |it| it.value().cloned());
            let value = value.await.map_err(|fault| self.blame(fault))?;
            exchange.set_slot(slot, value);
            exchange.content = before;
        }
        Ok(next)
    }

    async fn recover(
        &self,
        fault: Fault,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let fault = match &self.fallback {
            Some(fallback) => match self.fall_back(fallback, fault, exchange, services).await {
                Ok(next) => return Ok(next),
                Err(fault) => fault,
            },
            None => fault,
        };
        let Some(handlers) = &self.on_error else {
            return Err(fault);
        };
        match handlers.handle(fault, exchange, services).await? {
            Handled::Ended(next) => Ok(next),
            Handled::Done(_) => Ok(Next::Continue),
        }
    }

    /// Makes what takes the place of the step's result, with the failure as `$error`.
    async fn fall_back(
        &self,
        fallback: &Fallback,
        fault: Fault,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        log_recovery(exchange, &fault);
        let outer = exchange.fault.replace(Rc::new(fault));
        let next = match fallback {
            Fallback::Value(value) => {
                let made = exchange.preemptible(services, |it| value.make(it, services));
                made.await.map(|value| {
                    exchange.content = Content::of_value(value);
                    Next::Continue
                })
            }
            Fallback::Steps(block) => block.start(exchange, services).await,
        };
        exchange.fault = outer;
        next.map_err(|fault| self.blame(fault))
    }

    /// Says which step failed, unless one within it has said so.
    fn blame(&self, mut fault: Fault) -> Fault {
        if fault.step.is_none() {
            fault.step = Some(Arc::clone(&self.label));
        }
        fault
    }
}

/// What stands in for a step's result hides that it failed from everybody but the log.
fn log_recovery(exchange: &Exchange, fault: &Fault) {
    let (flow, step) = (&*exchange.context.name, &*exchange.at);
    let cause = fault.cause.as_deref().unwrap_or_default();
    let text = format!("{}; the fallback is used", fault.detail);
    match fault.kind {
        Kind::Invalid | Kind::Raised => {
            tracing::debug!(target: "flow", flow, step, cause, "{text}");
        }
        _ => tracing::warn!(target: "flow", flow, step, cause, "{text}"),
    }
}
