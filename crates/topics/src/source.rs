//! `from: topic`: starts a flow with each event of a topic, and remembers how far it has come.

mod run;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use component::intake::{
    DeadLetterConfig, DeadLetterPlace, IntakeCounts, IntakePlan, IntakePolicy, OwnTarget,
};
use component::resilience::{RetryConfig, RetryDefaults};
use component::source::{Source, SourceContext, SourceDefinition};
use config::{Node, Report, Spanned, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use self::run::TopicSource;
use crate::bounds;
use crate::codes::BAD_TOPIC_SOURCE;
use crate::publish;
use crate::settings::Payload;

/// The definition of the source.
pub const DEFINITION: SourceDefinition = SourceDefinition {
    name: "topic",
    summary: "Starts a flow with each event of a topic.",
    documentation: include_str!("source.md"),
    example: include_str!("source.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// The most bytes of a cursor's name.
const CURSOR_MAX: usize = 100;

/// The mapping form of `topic`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourceConfig {
    /// The topic: the name of a `topic:` document.
    name: Spanned<String>,
    /// What the flow gets: `event` for a topic of events; for a topic of snapshots each whole
    /// document (`snapshot`, the default), or the changes (`patch`).
    mode: Option<Spanned<Mode>>,
    /// Where a new flow starts: with events published from then on (`latest`), or with the oldest
    /// event that is kept (`earliest`).
    #[serde(default)]
    start: Start,
    /// The name under which the flow's position is recorded. The default is the flow's name; set it
    /// to keep the position when the flow is renamed.
    cursor: Option<Spanned<String>>,
    /// The number of events that may be in progress at a time, from 1 to 1000. With more than one,
    /// order is not kept.
    #[schemars(extend("default" = 1))]
    concurrent: Option<Spanned<u64>>,
    /// How failed runs of the flow are retried.
    #[serde(default)]
    retry: RetryConfig<OfTopic>,
    dead_letter: Option<DeadLetterConfig<OfTopic>>,
}

/// `retry:` and `dead_letter:` of a flow that takes a topic's events.
#[derive(Debug)]
struct OfTopic;

impl RetryDefaults for OfTopic {
    const SUMMARY: &'static str = "How failed runs of the flow are retried.";
    const ON: Option<(&'static [&'static str], &'static str)> = Some((
        &["any"],
        "The failures to retry: kinds, `4xx`, `5xx`, statuses, `any` (the default). After any \
         other the event becomes a dead letter at once.",
    ));
    const TIMES: (RangeInclusive<u32>, u32, &'static str) = (
        0..=1_000_000,
        20,
        "The number of retries after the first attempt; then the event becomes a dead letter.",
    );
}

impl DeadLetterPlace for OfTopic {
    const REJECT: Option<&'static str> = None;
    const OWN: Option<OwnTarget> = None;
    const REJECTS: bool = false;
}

/// What a flow gets of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Mode {
    /// Each event.
    Event,
    /// Each whole snapshot.
    Snapshot,
    /// What has changed.
    Patch,
}

/// Where a flow begins that has not been there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Start {
    /// With what is published from then on.
    #[default]
    Latest,
    /// With the oldest event that is kept.
    Earliest,
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TopicSource".into()
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
            mode: None,
            start: Start::default(),
            cursor: None,
            concurrent: None,
            retry: RetryConfig::default(),
            dead_letter: None,
        },
        Value::Mapping(_) => config::decode(node, context.report)?,
        _ => {
            config::check_kind(node, DEFINITION.schema, context.report);
            return None;
        }
    };
    let report = &mut *context.report;
    let before = report.errors();
    let topic = publish::find(&config.name, context.connections, report);
    let payload = topic.as_ref().map(|topic| topic.settings().payload);
    let mode = payload.map(|payload| read_mode(config.mode.as_ref(), payload, report));
    let concurrent = config.concurrent.as_ref();
    let concurrent = bounds::count("concurrent", concurrent, 1..=1000, report).unwrap_or(1);
    let retry = config.retry.policy(BAD_TOPIC_SOURCE, report);
    if let Some(cursor) = &config.cursor {
        check_cursor(cursor, report);
    }
    let cursor = config.cursor.map(|it| it.value);
    let dead_letter = DeadLetterConfig::read(config.dead_letter, node.span, context);
    let (topic, mode, (dead_letter, _)) = (topic?, mode?, dead_letter?);
    let cursor = cursor.unwrap_or_else(|| context.flow.to_string());
    let policy = IntakePolicy {
        retry,
        dead_letter,
        // The event stays in the topic, and nothing waits for its acknowledgement.
        hold_max: Duration::MAX,
    };
    (context.report.errors() == before).then(|| {
        Arc::new(TopicSource {
            plan: IntakePlan::new(
                policy,
                IntakeCounts::of("topic", &(topic.name(), &cursor), context),
            ),
            topic,
            mode,
            start: config.start,
            cursor,
            concurrent: concurrent as usize,
        }) as _
    })
}

fn check_cursor(cursor: &Spanned<String>, report: &mut Report) {
    let text = &cursor.value;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > CURSOR_MAX || !text.chars().all(is_letter) {
        let message = format!("`{}` is no name of a cursor", text.escape_debug());
        report
            .error(BAD_TOPIC_SOURCE, cursor.span, message)
            .hint("a name has letters, digits, `-`, `_` and `.`, and at most 100 of them");
    }
}

fn read_mode(mode: Option<&Spanned<Mode>>, payload: Payload, report: &mut Report) -> Mode {
    let default = match payload {
        Payload::Event => Mode::Event,
        Payload::Snapshot => Mode::Snapshot,
    };
    let Some(mode) = mode else {
        return default;
    };
    if (mode.value == Mode::Event) != (default == Mode::Event) {
        let message = format!("a topic of `payload: {}` has no such mode", payload.name());
        report
            .error(BAD_TOPIC_SOURCE, mode.span, message)
            .hint(match payload {
                Payload::Event => "leave it out: the flow gets each event",
                Payload::Snapshot => "write `snapshot` or `patch`",
            });
    }
    mode.value
}
