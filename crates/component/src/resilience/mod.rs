//! How a step that calls out is tried: again after failures, not at all while a breaker is open, no
//! faster than a rate, no more at a time than a number, and no longer than a time. In this order,
//! the outermost first.

mod breaker;
mod bulkhead;
mod policy;
mod retry;
mod throttle;

use std::sync::Arc;
use std::time::Duration;

use message::{Fault, Kind, Origin, Retry as Repeat};

pub use breaker::{Breaker, BreakerSettings};
pub use bulkhead::{Bulkhead, BulkheadSettings, Permit};
pub use policy::{Backoff, RetryConfig, RetryDefaults, RetryPolicy};
pub use retry::{Retry, RetryCounts};
pub use throttle::{Throttle, ThrottleSettings};

use crate::block::StepNode;
use crate::content::Content;
use crate::exchange::Exchange;
use crate::handler::{Services, until};
use crate::step::Next;

/// How a step is tried.
#[derive(Default)]
pub struct Guard {
    /// Whether and when it is tried again.
    pub retry: Option<Retry>,
    /// Whether it is tried at all after many failures.
    pub breaker: Option<Arc<Breaker>>,
    /// How often it is tried.
    pub throttle: Option<Arc<Throttle>>,
    /// How many tries there are at a time.
    pub bulkhead: Option<Arc<Bulkhead>>,
    /// How long one try may take.
    pub timeout: Option<Duration>,
}

impl Guard {
    pub(crate) async fn run(
        &self,
        node: &StepNode,
        before: &Content,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let mut failed = 0;
        loop {
            let fault = match self.attempt(node, exchange, services).await {
                Ok(next) => return Ok(next),
                Err(fault) => fault,
            };
            // Nobody is there any more who could use the result.
            if exchange.is_out_of_time(services) {
                return Err(fault);
            }
            failed += 1;
            let Some(retry) = &self.retry else {
                return Err(fault);
            };
            let is_safe = is_safe(&fault, node, exchange);
            let Some(wait) = retry.wait(failed, &fault, is_safe, services.random()) else {
                return Err(fault);
            };
            tracing::debug!(
                target: "flow",
                flow = &*exchange.context.name,
                step = &*node.label,
                failed,
                kind = fault.name(),
                "trying again in {wait:?}"
            );
            exchange.content = before.clone();
            exchange.at = Arc::clone(&node.label);
            services.sleep(wait).await;
        }
    }

    async fn attempt(
        &self,
        node: &StepNode,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let Some(breaker) = &self.breaker else {
            return self.limited(node, exchange, services).await;
        };
        let mut admission = breaker.admit(services)?;
        let result = self.limited(node, exchange, services).await;
        admission.end(result.as_ref().err(), exchange.is_out_of_time(services));
        result
    }

    async fn limited(
        &self,
        node: &StepNode,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        if let Some(throttle) = &self.throttle {
            throttle.pass(services).await?;
        }
        let _place = match &self.bulkhead {
            Some(bulkhead) => Some(bulkhead.enter(services).await?),
            None => None,
        };
        let Some(time) = self.timeout else {
            return node.once(exchange, services).await;
        };
        let at = services.now() + time;
        let before = exchange.checkpoint();
        let outer = exchange.cap(at);
        let result = until(Some(at), services, node.once(exchange, services)).await;
        if let Some(result) = result {
            exchange.deadline = outer;
            return result;
        }
        exchange.roll_back(before);
        let fault = Fault::new(Kind::Timeout, Origin::Upstream, "a step took too long");
        Err(fault
            .with_retry(Repeat::IfRepeatable)
            .with_cause(exchange.longer_than(time)))
    }
}

/// Whether a step may be run again after this failure without doing anything twice. The failure of
/// a step within this one says nothing of those that ran before it.
fn is_safe(fault: &Fault, node: &StepNode, exchange: &Exchange) -> bool {
    let is_own = fault.step.is_none();
    match fault.retry {
        Repeat::No => false,
        Repeat::IfRepeatable => is_own && node.step.is_repeatable(exchange),
        Repeat::Yes => is_own || node.step.is_atomic(),
    }
}

#[cfg(test)]
mod tests;
