//! `wiretap`: runs steps on a copy of the message while the flow goes on (Wire Tap).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use component::block::Block;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::state::{Measure, State};
use component::step::{Next, Progress, Step};
use config::{Node, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::inner::in_background;
use crate::range;
use component::steps::Steps;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "wiretap",
    summary: "Runs steps in the background, on a copy of the message.",
    documentation: include_str!("wiretap.md"),
    example: include_str!("wiretap.yaml"),
    schema: config::schema_for::<WiretapConfig>,
    build,
};

/// What is done with a copy of the message.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WiretapConfig {
    /// The steps for the copy.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    steps: Steps,
    /// The largest number of copies in progress, on all workers together, from 1 to 1000000.
    /// Further copies are dropped and counted.
    #[schemars(extend("default" = 1000))]
    queue: Option<Spanned<u64>>,
    /// The deadline of the steps for one copy, from 1ms to 1d.
    #[schemars(extend("default" = "30s"))]
    timeout: Option<Spanned<config::Duration>>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: WiretapConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let queue = config.queue.as_ref();
    let queue = range::count("queue", queue, 1..=1_000_000, 1000, context.report);
    let default = Duration::from_secs(30);
    let timeout = config.timeout.as_ref();
    let timeout = range::time_or("timeout", timeout, default, context.report);
    let steps = node
        .get("steps")
        .and_then(|node| context.inner_branch("wiretap", node));
    let steps = Arc::new(steps?);
    let counts = context.state("wiretap", "", Counts::default);
    let step = Wiretap {
        steps,
        counts,
        queue,
        timeout,
    };
    (context.problems() == before).then(|| Box::new(step) as Box<dyn Step>)
}

/// How the copies of a step fare.
#[derive(Default)]
struct Counts {
    running: AtomicUsize,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// A copy under way, for as long as this lives.
struct Running(Arc<Counts>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    fn enter(self: &Arc<Self>, most: usize) -> Option<Running> {
        if self.running.fetch_add(1, Ordering::Relaxed) >= most {
            self.running.fetch_sub(1, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(Running(Arc::clone(self)))
    }
}

impl State for Counts {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let running = self.running.load(Ordering::Relaxed);
        let dropped = self.dropped.load(Ordering::Relaxed);
        let failed = self.failed.load(Ordering::Relaxed);
        let measure = |name, help, value| Measure { name, help, value };
        vec![
            measure("wiretap_running", "Copies under way.", running as f64),
            measure(
                "wiretap_dropped_total",
                "Copies dropped since too many were under way.",
                dropped as f64,
            ),
            measure(
                "wiretap_failed_total",
                "Copies whose steps failed.",
                failed as f64,
            ),
        ]
    }
}

/// The step.
struct Wiretap {
    steps: Arc<Block>,
    counts: Arc<Counts>,
    queue: usize,
    timeout: Duration,
}

impl Wiretap {
    fn tap(&self, exchange: &Exchange, services: &dyn Services) {
        let Some(running) = self.counts.enter(self.queue) else {
            tracing::debug!(
                target: "flow",
                flow = &*exchange.context.name,
                step = &*exchange.at,
                "a copy is dropped: too many are under way"
            );
            return;
        };
        let (copy, steps, timeout) = (exchange.clone(), Arc::clone(&self.steps), self.timeout);
        services.spawn(Box::new(move |services| {
            Box::pin(async move {
                if !in_background(&steps, copy, timeout, services).await {
                    running.0.failed.fetch_add(1, Ordering::Relaxed);
                }
            })
        }));
    }
}

impl Step for Wiretap {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        self.tap(exchange, services);
        Progress::Done(Ok(Next::Continue))
    }

    fn reads_body(&self) -> bool {
        self.steps.reads_body()
    }
}

#[cfg(test)]
mod tests;
