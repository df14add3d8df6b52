//! `store`: starts a flow with each message that a step `store` has kept.

use std::sync::Arc;
use std::time::Duration;

use component::content::Format;
use component::failure::Matcher;
use component::source::{Source, SourceContext, SourceDefinition};
use config::{Node, Report, Spanned, Value};
use journal::Order;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::depot::Store;
use super::name;
use super::run::StoreSource;
use crate::codes::{BAD_DELIVERY, STORE_NO_EFFECT};
use crate::range;

/// The definition of the source.
pub const DEFINITION: SourceDefinition = SourceDefinition {
    name: "store",
    summary: "Starts a flow with each message of a store, until it succeeds.",
    documentation: include_str!("source.md"),
    example: include_str!("source.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// The mapping form of `store`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourceConfig {
    /// The name of the store, as in `store: { in: NAME }`.
    name: Spanned<String>,
    /// The number of messages that may be in progress at a time, on all workers together, from 1 to
    /// 10000.
    #[schemars(extend("default" = 16))]
    concurrent: Option<Spanned<u64>>,
    /// Which messages are kept in order: `false` for none, `by-key` for those with the same `key`,
    /// `true` for all. A message that is being retried delays those behind it.
    ordered: Option<Spanned<Ordered>>,
    /// How failed deliveries are retried.
    #[serde(default)]
    retry: Option<RetryConfig>,
    /// How bodies are decoded, whatever their `Content-Type`: `json`, `xml`, `form`, `csv`, `text`
    /// or `bytes`.
    decode: Option<Format>,
}

/// When a delivery that failed is tried again. Tries and waits go on where they were after a
/// restart.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct RetryConfig {
    /// The failures to retry: kinds, `4xx`, `5xx`, statuses, `any` (the default). After any other
    /// the message becomes a dead letter at once.
    on: Option<Spanned<Vec<OneName>>>,
    /// The number of retries after the first attempt, from 0 to 1000000; then the message becomes a
    /// dead letter.
    #[schemars(extend("default" = 20))]
    times: Option<Spanned<u64>>,
    /// The delay before the first retry, from 1ms to 1d.
    #[schemars(extend("default" = "1s"))]
    delay: Option<Spanned<config::Duration>>,
    /// The factor by which the delay grows with each retry, from 1 to 10.
    #[schemars(extend("default" = 2))]
    backoff: Option<Spanned<f64>>,
    /// The longest delay, from 1ms to 1d. A `Retry-After` may ask for more.
    #[schemars(extend("default" = "5m"))]
    delay_max: Option<Spanned<config::Duration>>,
    /// The random part of each delay, from `0%` to `100%`.
    #[schemars(extend("default" = "20%"))]
    jitter: Option<Spanned<String>>,
}

/// Which messages wait for each other.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Ordered {
    /// None or all.
    All(bool),
    /// Those of one key.
    By(ByKey),
}

/// Those of one key.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
enum ByKey {
    /// Those of one key.
    #[serde(rename = "by-key")]
    ByKey,
}

/// The name of a kind of failure, or a status.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum OneName {
    /// A status.
    Status(u16),
    /// A name.
    Name(String),
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StoreSource".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<SourceConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

/// How failed deliveries are retried.
#[derive(Clone, Debug)]
pub(super) struct Tries {
    pub on: Vec<Matcher>,
    pub times: u32,
    pub delay: Duration,
    pub backoff: f64,
    pub delay_max: Duration,
    pub jitter: f64,
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let report = &mut *context.report;
    let config = match &node.value {
        Value::String(text) => SourceConfig {
            name: Spanned {
                value: text.to_owned(),
                span: node.span,
            },
            concurrent: None,
            ordered: None,
            retry: None,
            decode: None,
        },
        Value::Mapping(_) => config::decode(node, report)?,
        _ => {
            config::check_kind(node, DEFINITION.schema, report);
            return None;
        }
    };
    let before = report.errors();
    name::check(&config.name, report);
    let order = match config.ordered.as_ref().map(|it| it.value) {
        None | Some(Ordered::All(false)) => Order::None,
        Some(Ordered::All(true)) => Order::All,
        Some(Ordered::By(ByKey::ByKey)) => Order::ByKey,
    };
    let concurrent = read_concurrent(config.concurrent.as_ref(), order, report);
    let tries = read_tries(config.retry.as_ref(), report);
    if report.errors() > before {
        return None;
    }
    Some(Arc::new(StoreSource {
        store: Store::of(&config.name.value, context.surroundings.states),
        order,
        concurrent,
        tries: tries?,
        decode: config.decode,
    }))
}

fn read_concurrent(value: Option<&Spanned<u64>>, order: Order, report: &mut Report) -> usize {
    if order != Order::All {
        return range::count("concurrent", value, 1..=10_000, 16, report);
    }
    if let Some(value) = value {
        let message = "`concurrent` has no effect with `ordered: true`";
        report
            .error(STORE_NO_EFFECT, value.span, message)
            .hint("one message after the other is delivered; leave one of both out");
    }
    1
}

fn read_tries(config: Option<&RetryConfig>, report: &mut Report) -> Option<Tries> {
    let default = RetryConfig::default();
    let config = config.unwrap_or(&default);
    let on = match &config.on {
        Some(names) => read_names(names, report)?,
        None => vec![Matcher::Any],
    };
    let times = range::count("times", config.times.as_ref(), 0..=1_000_000, 20, report);
    let second = Duration::from_secs(1);
    let delay = range::time_or("delay", config.delay.as_ref(), second, report);
    let longest = config.delay_max.as_ref();
    let delay_max = range::time_or("delay_max", longest, 300 * second, report);
    let backoff = config.backoff.as_ref().map_or(2.0, |backoff| {
        if !(1.0..=10.0).contains(&backoff.value) {
            let message = "`backoff` is outside its range";
            report
                .error(BAD_DELIVERY, backoff.span, message)
                .hint("from 1 to 10");
        }
        backoff.value
    });
    let jitter = config.jitter.as_ref();
    let jitter = jitter.map_or(0.2, |part| range::part("jitter", part, report));
    Some(Tries {
        on,
        times: times as u32,
        delay,
        backoff,
        delay_max: delay_max.max(delay),
        jitter,
    })
}

fn read_names(names: &Spanned<Vec<OneName>>, report: &mut Report) -> Option<Vec<Matcher>> {
    let texts = names.value.iter().map(|name| match name {
        OneName::Status(status) => status.to_string(),
        OneName::Name(name) => name.clone(),
    });
    let read: Option<Vec<Matcher>> = texts
        .map(|text| Matcher::of_name(&text).filter(|_| !text.is_empty()))
        .collect();
    if read.is_none() || names.value.is_empty() {
        report
            .error(
                BAD_DELIVERY,
                names.span,
                "this is no list of kinds of failures",
            )
            .hint("kinds such as `timeout`, `5xx`, a status, a type that the flow raises, `any`");
        return None;
    }
    read
}
