//! `aggregate`: collects messages in groups and runs steps once for each (Aggregator).

mod groups;

use std::sync::Arc;
use std::time::Duration;

use component::block::Block;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::{Services, Work};
use component::step::{Next, Progress, Step};
use config::{Node, Spanned};
use expr::Value;
use expr::jq::Expression;
use message::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::{BAD_AGGREGATE, BAD_VARIABLE};
use crate::inner::{self, Ran, in_background};
use crate::map::expression;
use crate::range;
use component::steps::Steps;
use config::AnyValue;
use groups::{Added, Groups, Timer};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "aggregate",
    summary: "Collects messages in groups and runs steps for each group.",
    documentation: include_str!("aggregate.md"),
    example: include_str!("aggregate.yaml"),
    schema: config::schema_for::<AggregateConfig>,
    build,
};

/// The most bodies of a group.
const COUNT_MAX: u64 = 100_000;

/// The longest key, in bytes of JSON.
const KEY_MAX: usize = 1024;

/// Which messages belong together, and what is done with them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AggregateConfig {
    /// A jq expression: messages for which it gives the same value form a group. At most 1 KiB as
    /// JSON; null fails with `expression`.
    #[allow(dead_code, reason = "read from the tree, which knows the place")]
    key: AnyValue,
    /// The number of bodies that completes a group, from 2 to 100000. The default is 100000.
    count: Option<Spanned<u64>>,
    /// A group is complete this long after its first message, from 1ms to 1d, however many bodies
    /// it has.
    time: Option<Spanned<config::Duration>>,
    /// The largest number of incomplete groups, from 1 to 1000000. A message that would start
    /// another one fails with `unavailable`.
    #[schemars(extend("default" = 10000))]
    groups_max: Option<Spanned<u64>>,
    /// The steps for a complete group: `.` is the list of bodies in order of arrival, `$key` the
    /// key.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    steps: Steps,
    /// The deadline of the steps for a group that was completed by `time`, from 1ms to 1d.
    #[schemars(extend("default" = "30s"))]
    timeout: Option<Spanned<config::Duration>>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: AggregateConfig = config::decode(node, context.report)?;
    let before = context.problems();
    check_end(node, &config, context);
    let report = &mut *context.report;
    let count = config.count.as_ref();
    let count = range::count("count", count, 2..=COUNT_MAX, COUNT_MAX, report);
    let time = config.time.as_ref();
    let time = time.map(|time| range::time("time", time, report));
    let groups_max = config.groups_max.as_ref();
    let groups_max = range::count("groups_max", groups_max, 1..=1_000_000, 10_000, report);
    let default = Duration::from_secs(30);
    let timeout = range::time_or("timeout", config.timeout.as_ref(), default, report);
    let key = node.get("key").and_then(|node| expression(node, context));
    let mark = context.scope.enter();
    let key_slot = context.declare("key", node.span, BAD_VARIABLE);
    let steps = node
        .get("steps")
        .and_then(|node| context.branch("group", node, false));
    context.scope.leave(mark);
    let result_slot = context.declare("aggregate", node.span, BAD_VARIABLE);
    let (key, steps) = (key?, steps?);
    let settings = (key.text().to_owned(), count, time, groups_max);
    let groups = context.state("aggregate", settings, || Groups::new(count, groups_max));
    let parts = Parts {
        steps,
        key_slot: key_slot?,
        groups,
        timeout,
    };
    let step = Aggregate {
        key,
        result_slot: result_slot?,
        time,
        parts: Arc::new(parts),
    };
    (context.problems() == before).then(|| Box::new(step) as Box<dyn Step>)
}

/// Whether groups are ever complete.
fn check_end(node: &Node, config: &AggregateConfig, context: &mut BuildContext<'_>) {
    let hint = "add `time`, such as `time: 30s`";
    match (&config.count, &config.time) {
        (None, None) => {
            let message = "`aggregate` has `count`, `time` or both";
            let diagnostic = context.report.error(BAD_AGGREGATE, node.span, message);
            diagnostic.hint(hint);
        }
        (Some(count), None) => {
            let message = "a group that does not reach this count stays for ever";
            let diagnostic = context.report.warning(BAD_AGGREGATE, count.span, message);
            diagnostic.hint(hint);
        }
        (_, Some(_)) => {}
    }
}

/// The step.
struct Aggregate {
    key: Expression,
    result_slot: usize,
    time: Option<Duration>,
    parts: Arc<Parts>,
}

/// What the work of a timer needs of the step.
struct Parts {
    steps: Block,
    key_slot: usize,
    groups: Arc<Groups>,
    timeout: Duration,
}

impl Aggregate {
    async fn run(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let made = exchange.preemptible(services, |it| {
            let key = it.evaluate(&self.key, services)?;
            Ok((key, it.value()?.clone()))
        });
        let (key, body) = made.await?;
        let name = written(&key, self.key.text())?;
        let groups = &self.parts.groups;
        let (count, bodies) = match groups.add(&name, body, self.time.is_some())? {
            Added::Waits { count, timer } => {
                if let Some(timer) = timer {
                    self.start_timer((name, key.clone()), timer, exchange, services);
                }
                (count, None)
            }
            Added::Completes(bodies) => (bodies.len(), Some(bodies)),
        };
        exchange.set_slot(self.result_slot, result(bodies.is_some(), count, &key));
        let Some(bodies) = bodies else {
            return Ok(Next::Continue);
        };
        let copy = self.parts.copy(exchange, key, bodies);
        let ran = inner::for_content(&self.parts.steps, copy, services).await;
        match ran.inspect_err(|_| groups.count_failure())? {
            Ran::Ended(end) => Ok(end),
            Ran::Done(left) => {
                left.put(exchange);
                Ok(Next::Continue)
            }
        }
    }

    /// Has the group completed when its time is over, unless it is complete before.
    fn start_timer(
        &self,
        (name, key): (Box<[u8]>, Value),
        mut timer: Timer,
        exchange: &Exchange,
        services: &dyn Services,
    ) {
        let Some(time) = self.time else {
            return;
        };
        let mut copy = exchange.clone();
        // The group holds the body.
        copy.set_value(Value::Null);
        let parts = Arc::clone(&self.parts);
        let work: Work = Box::new(move |services| {
            Box::pin(async move {
                if !timer.passes(time, services).await {
                    return;
                }
                let Some(bodies) = parts.groups.take(&name, timer.number) else {
                    return;
                };
                let copy = parts.copy(&copy, key, bodies);
                if !in_background(&parts.steps, copy, parts.timeout, services).await {
                    parts.groups.count_failure();
                }
            })
        });
        services.spawn(work);
    }
}

impl Parts {
    fn copy(&self, exchange: &Exchange, key: Value, bodies: Vec<Value>) -> Exchange {
        let mut copy = exchange.clone();
        copy.set_value(expr::value::array(bodies));
        copy.set_slot(self.key_slot, key);
        copy
    }
}

/// The key as groups are found by.
fn written(key: &Value, text: &str) -> Result<Box<[u8]>, Fault> {
    let text = text.trim();
    if matches!(key, Value::Null) {
        let cause = format_args!("`{text}`");
        return Err(Fault::unfit("the message has no key of a group", cause));
    }
    let mut name = Vec::new();
    let written = expr::json::write(key, KEY_MAX, &mut name);
    written.map_err(|error| {
        Fault::unfit(
            "the key of a group is too long",
            format_args!("`{text}`: {error}"),
        )
    })?;
    Ok(name.into_boxed_slice())
}

/// What `$aggregate` is.
fn result(is_complete: bool, count: usize, key: &Value) -> Value {
    expr::value::object([
        ("complete".to_owned(), Value::Bool(is_complete)),
        ("count".to_owned(), expr::value::integer(count as i64)),
        ("key".to_owned(), key.clone()),
    ])
}

impl Step for Aggregate {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.run(exchange, services)))
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
