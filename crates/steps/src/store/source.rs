//! `store`: starts a flow with each message that a step `store` has kept.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use component::content::Format;
use component::intake::{
    DeadLetterConfig, DeadLetterPlace, IntakeCounts, IntakePlan, IntakePolicy, OwnTarget,
};
use component::resilience::{RetryConfig, RetryDefaults};
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
    retry: RetryConfig<OfStore>,
    dead_letter: Option<DeadLetterConfig<OfStore>>,
    /// How bodies are decoded, whatever their `Content-Type`: `json`, `xml`, `form`, `csv`, `text`
    /// or `bytes`.
    decode: Option<Format>,
}

/// `retry:` and `dead_letter:` of a store.
#[derive(Debug)]
struct OfStore;

impl RetryDefaults for OfStore {
    const SUMMARY: &'static str = "When a delivery that failed is tried again. Tries and delays go \
                                   on where they were after a restart.";
    const ON: Option<(&'static [&'static str], &'static str)> = Some((
        &["any"],
        "The failures to retry: kinds, `4xx`, `5xx`, statuses, `any` (the default). After any \
         other the message becomes a dead letter at once.",
    ));
    const TIMES: (RangeInclusive<u32>, u32, &'static str) = (
        0..=1_000_000,
        20,
        "The number of retries after the first attempt; then the message becomes a dead letter.",
    );
}

impl DeadLetterPlace for OfStore {
    const REJECT: Option<&'static str> = Some(
        "The message stays in its store as a dead letter, with the reason, until an operator \
         decides (`intertie store`).",
    );
    const OWN: Option<OwnTarget> = None;
    const REJECTS: bool = true;
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

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let config = match &node.value {
        Value::String(text) => SourceConfig {
            name: Spanned {
                value: text.to_owned(),
                span: node.span,
            },
            concurrent: None,
            ordered: None,
            retry: RetryConfig::default(),
            dead_letter: None,
            decode: None,
        },
        Value::Mapping(_) => config::decode(node, context.report)?,
        _ => {
            config::check_kind(node, DEFINITION.schema, context.report);
            return None;
        }
    };
    let report = &mut *context.report;
    let before = report.errors();
    name::check(&config.name, report);
    let order = match config.ordered.as_ref().map(|it| it.value) {
        None | Some(Ordered::All(false)) => Order::None,
        Some(Ordered::All(true)) => Order::All,
        Some(Ordered::By(ByKey::ByKey)) => Order::ByKey,
    };
    let concurrent = read_concurrent(config.concurrent.as_ref(), order, report);
    let retry = config.retry.policy(BAD_DELIVERY, report);
    let name = config.name.value;
    check_other_store(&name, node, report);
    let (dead_letter, _) = DeadLetterConfig::read(config.dead_letter, node.span, context)?;
    if context.report.errors() > before {
        return None;
    }
    let policy = IntakePolicy {
        retry,
        dead_letter,
        // The store keeps the time of the next attempt over a restart, so each retry is put back.
        hold_max: Duration::ZERO,
    };
    Some(Arc::new(StoreSource {
        store: Store::of(&name, context.surroundings.states),
        order,
        concurrent,
        plan: IntakePlan::new(policy, IntakeCounts::of("store", &name, context)),
        decode: config.decode,
    }))
}

/// Dead letters that went to the store that they come from would be delivered again for ever.
fn check_other_store(name: &str, node: &Node, report: &mut Report) {
    let target = node.get("dead_letter").and_then(|it| it.get("store"));
    if let Some(target) = target.filter(|it| it.as_str() == Some(name)) {
        let message = "the dead letters of a store go to another store";
        report.error(BAD_DELIVERY, target.span, message).hint(
            "leave `dead_letter` out: a message that fails for good stays in its store as a dead \
             letter",
        );
    }
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
