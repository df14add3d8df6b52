//! `from: topic`: starts a flow with each event of a topic, and remembers how far it has come.

mod run;

use std::sync::Arc;
use std::time::Duration;

use component::failure::Matcher;
use component::source::{Source, SourceContext, SourceDefinition};
use config::{Node, Report, Spanned, Value};
use message::Fault;
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
    retry: RetryConfig,
}

/// How failed runs of the flow are retried.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct RetryConfig {
    /// The failures to retry: kinds, `4xx`, `5xx`, statuses, `any` (the default). After any other
    /// the event is skipped at once.
    on: Option<Spanned<Vec<OneName>>>,
    /// The number of retries after the first attempt, from 0 to 1000000; then the event is skipped.
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
        "TopicSource".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<SourceConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

/// When the flow is run again.
#[derive(Clone, Debug)]
pub(crate) struct Tries {
    on: Vec<Matcher>,
    times: u32,
    delay: Duration,
    backoff: f64,
    delay_max: Duration,
}

impl Tries {
    /// How long to wait before the next try after this many failures; `None` when there is none.
    pub fn wait(&self, failed: u32, fault: &Fault) -> Option<Duration> {
        if failed > self.times || !self.on.iter().any(|matcher| matcher.fits(fault)) {
            return None;
        }
        let growth = self.backoff.powi(failed.saturating_sub(1).min(64) as i32);
        let longest = self.delay_max.as_secs_f64();
        let wait = (self.delay.as_secs_f64() * growth).min(longest);
        let wait = Duration::from_secs_f64(wait.max(0.0));
        Some(wait.max(fault.retry_after.unwrap_or_default()))
    }
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let report = &mut *context.report;
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
        },
        Value::Mapping(_) => config::decode(node, report)?,
        _ => {
            config::check_kind(node, DEFINITION.schema, report);
            return None;
        }
    };
    let before = report.errors();
    let topic = publish::find(&config.name, context.connections, report);
    let payload = topic.as_ref().map(|topic| topic.settings().payload);
    let mode = payload.map(|payload| read_mode(config.mode.as_ref(), payload, report));
    let concurrent = config.concurrent.as_ref();
    let concurrent = bounds::count("concurrent", concurrent, 1..=1000, report).unwrap_or(1);
    let tries = read_tries(&config.retry, report);
    if let Some(cursor) = &config.cursor {
        check_cursor(cursor, report);
    }
    let cursor = config.cursor.map(|it| it.value);
    let (topic, mode, tries) = (topic?, mode?, tries?);
    (report.errors() == before).then(|| {
        Arc::new(TopicSource {
            topic,
            mode,
            start: config.start,
            cursor: cursor.unwrap_or_else(|| context.flow.to_string()),
            concurrent: concurrent as usize,
            tries,
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

fn read_tries(config: &RetryConfig, report: &mut Report) -> Option<Tries> {
    let on = match &config.on {
        Some(names) => read_names(names, report)?,
        None => vec![Matcher::Any],
    };
    let day = Duration::from_secs(24 * 3600);
    let range = || Duration::from_millis(1)..=day;
    let mut time = |name, value: Option<&Spanned<config::Duration>>, default| {
        value.map_or(default, |value| bounds::time(name, value, range(), report))
    };
    let delay = time("delay", config.delay.as_ref(), Duration::from_secs(1));
    let delay_max = time(
        "delay_max",
        config.delay_max.as_ref(),
        Duration::from_secs(300),
    );
    if let (Some(_), Some(longest)) = (&config.delay, &config.delay_max)
        && delay_max < delay
    {
        let message = "`delay_max` is less than `delay`";
        report.error(BAD_TOPIC_SOURCE, longest.span, message);
    }
    let times = bounds::count("times", config.times.as_ref(), 0..=1_000_000, report);
    let backoff = config.backoff.as_ref().map_or(2.0, |backoff| {
        if !(1.0..=10.0).contains(&backoff.value) {
            report
                .error(
                    BAD_TOPIC_SOURCE,
                    backoff.span,
                    "`backoff` is outside its range",
                )
                .hint("from 1 to 10");
        }
        backoff.value
    });
    Some(Tries {
        on,
        times: times.unwrap_or(20) as u32,
        delay,
        backoff,
        delay_max: delay_max.max(delay),
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
                BAD_TOPIC_SOURCE,
                names.span,
                "this is no list of kinds of failures",
            )
            .hint("kinds such as `timeout`, `5xx`, a status, a type that the flow raises, `any`");
        return None;
    }
    read
}
