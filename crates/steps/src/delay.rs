//! `delay`: waits before the flow goes on.

use std::time::Duration;

use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::{Node, Percentage, Spanned, Value};
use expr::template::Template;
use message::Fault;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::fields::reads_body;
use crate::range;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "delay",
    summary: "Waits before the flow continues.",
    documentation: include_str!("delay.md"),
    example: include_str!("delay.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// The mapping form of `delay`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DelayConfig {
    /// How long to wait: from 1ms to 1d, or a `${ }` with a string such as `300ms` as its result.
    #[allow(dead_code, reason = "read from the tree, which knows a duration")]
    time: Spanned<String>,
    /// The random part of the time: with `20%` the wait is 80 to 100 % of `time`.
    #[schemars(extend("default" = "0%"))]
    jitter: Option<Percentage>,
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Delay".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<DelayConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let before = context.problems();
    let (time, jitter) = match &node.value {
        Value::Mapping(_) => {
            let config: DelayConfig = config::decode(node, context.report)?;
            let time = node.get("time").and_then(|time| read_time(time, context));
            (time, config.jitter.map_or(0.0, |jitter| jitter.0))
        }
        _ => (read_time(node, context), 0.0),
    };
    let time = time?;
    (context.problems() == before).then(|| Box::new(Delay { time, jitter }) as Box<dyn Step>)
}

fn read_time(node: &Node, context: &mut BuildContext<'_>) -> Option<Time> {
    if let Some(text) = node.as_str().filter(|text| Template::has_holes(text)) {
        let value = text.to_owned();
        let span = node.span;
        return context.template(&Spanned { value, span }).map(Time::Made);
    }
    let time: Spanned<config::Duration> = config::decode(node, context.report)?;
    Some(Time::Fixed(range::time("delay", &time, context.report)))
}

enum Time {
    Fixed(Duration),
    Made(Template),
}

/// The step.
struct Delay {
    time: Time,
    jitter: f64,
}

impl Delay {
    fn time(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Duration, Fault> {
        let full = match &self.time {
            Time::Fixed(time) => *time,
            Time::Made(template) => {
                let text = exchange.fill_text(template, services)?;
                let time = text
                    .parse::<config::Duration>()
                    .map_err(|error| Fault::unfit("this is not a time", error))?;
                if !range::is_time(time.0) {
                    return Err(Fault::invalid(format!("a delay of {time}, at most 1d")));
                }
                time.0
            }
        };
        Ok(full.mul_f64(1.0 - self.jitter * services.random()))
    }
}

impl Step for Delay {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        match self.time(exchange, services) {
            Err(fault) => Progress::Done(Err(fault)),
            Ok(time) => {
                let sleep = services.sleep(time);
                Progress::Waits(Box::pin(async move {
                    sleep.await;
                    Ok(Next::Continue)
                }))
            }
        }
    }

    fn reads_body(&self) -> bool {
        match &self.time {
            Time::Fixed(_) => false,
            Time::Made(template) => reads_body(template),
        }
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
