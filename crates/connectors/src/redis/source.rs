//! `redis` as a source: the entries of a stream, read by a group of consumers, or the messages of a
//! channel.

use std::sync::Arc;
use std::time::Duration;

use component::content::Format;
use component::source::{Source, SourceContext, SourceDefinition};
use config::{Node, Report, Span, Spanned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::connection::Redis;
use crate::codes::BAD_REDIS_SOURCE;
use crate::{bounds, named};

/// The definition of the source.
pub const DEFINITION: SourceDefinition = SourceDefinition {
    name: "redis",
    summary: "Starts a flow with each entry of a Redis stream, or each message of a channel.",
    documentation: include_str!("source.md"),
    example: include_str!("source.yaml"),
    schema: config::schema_for::<SourceConfig>,
    build,
};

const NAME_MAX: usize = 1024;
const HOUR: Duration = Duration::from_secs(3600);

/// The keys that mean something for streams, and those for channels.
const OF_STREAM: [&str; 9] = [
    "group",
    "consumer",
    "start",
    "batch",
    "idle",
    "on_failure",
    "dead_letter",
    "deliveries",
    "field",
];
const OF_CHANNEL: [&str; 1] = ["buffer"];

/// What is read, with one of `stream`, `channel` and `pattern`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-renamed" = { "parallel": "concurrent" }))]
struct SourceConfig {
    /// The connection: a `redis` one of `use:`.
    connection: Spanned<String>,
    /// The stream whose entries start the flow. It is created if it is missing.
    stream: Option<Spanned<String>>,
    /// The channel whose messages start the flow.
    channel: Option<Spanned<String>>,
    /// The pattern of channels whose messages start the flow: `*`, `?`, `[ab]`.
    pattern: Option<Spanned<String>>,
    /// The consumer group that shares the stream: each entry goes to one of its consumers. It is
    /// created if it is missing.
    group: Option<Spanned<String>>,
    /// The consumer name, to which each worker adds its number. It must be different for each
    /// engine. The default is the host name.
    consumer: Option<Spanned<String>>,
    /// Where a new group starts: with new entries (`new`, the default) or with all that the stream
    /// holds (`all`).
    start: Option<Spanned<Start>>,
    /// The number of entries to read at a time, from 1 to 1000. The default is 16.
    batch: Option<Spanned<u64>>,
    /// How long an entry stays pending, because its consumer has not acknowledged it or its flow
    /// has failed, before it is claimed; from 100ms to 1d. The default is 1m.
    idle: Option<Spanned<config::Duration>>,
    /// What happens to an entry whose flow has failed. The default is `leave`.
    on_failure: Option<Spanned<OnFailureConfig>>,
    /// With `on_failure: dead-letter`: the stream that entries are moved to.
    dead_letter: Option<Spanned<String>>,
    /// With `on_failure: dead-letter`: the number of attempts, from 1 to 1000. The default is 5.
    deliveries: Option<Spanned<u64>>,
    /// The field of an entry that becomes the body. Without it the body is an object of all fields.
    field: Option<Spanned<String>>,
    /// The number of messages that may wait while flows are busy, from 1 to 1000000; further ones
    /// are dropped and counted. The default is 1000.
    buffer: Option<Spanned<u64>>,
    /// The number of flows that may run at a time, from 1 to 4096; for a stream, on all workers
    /// together. The default is 16; with 1 they run in order.
    concurrent: Option<Spanned<u64>>,
    /// How bodies are decoded: `json`, `xml`, `form`, `csv`, `text` or `bytes`. The default is
    /// `text`.
    decode: Option<Spanned<Format>>,
}

/// Where a new group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Start {
    /// With what is added from now on.
    New,
    /// With the stream's first entry.
    All,
}

/// What becomes of an entry whose flow has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
enum OnFailureConfig {
    /// It is tried again after `idle`, for ever.
    Leave,
    /// It is acknowledged like one whose flow has succeeded.
    Ack,
    /// It is tried again after `idle`, and moved to another stream when that has failed too often.
    DeadLetter,
}

/// What becomes of an entry whose flow has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It is tried again, for ever.
    Leave,
    /// It is acknowledged.
    Acknowledge,
    /// It is moved to this stream after so many tries.
    Move(String, u64),
}

/// How a stream is read.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// The stream.
    pub stream: String,
    /// The group.
    pub group: String,
    /// The engine's name without the number of the worker.
    pub consumer: Option<String>,
    /// Where a new group begins.
    pub start: Start,
    /// How many entries are asked for at a time.
    pub batch: u64,
    /// How many flows may run at a time on all workers.
    pub concurrent: usize,
    /// After which time an entry is taken over.
    pub idle: Duration,
    /// What becomes of an entry whose flow has failed.
    pub on_failure: OnFailure,
    /// The field that is the body.
    pub field: Option<String>,
    /// How the body is read.
    pub decode: Format,
}

/// How a channel is read.
#[derive(Clone, Debug)]
pub struct ChannelSettings {
    /// The channel or pattern.
    pub name: String,
    /// Whether it is a pattern.
    pub is_pattern: bool,
    /// How many messages may wait.
    pub buffer: usize,
    /// How many flows may run at a time.
    pub concurrent: usize,
    /// How the body is read.
    pub decode: Format,
}

/// What is read, and how.
enum Settings {
    Stream(StreamSettings),
    Channel(ChannelSettings),
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let config: SourceConfig = config::decode(node, context.report)?;
    let before = context.report.diagnostics().len();
    let connections = context.connections;
    let server = named::find::<Redis>(
        &config.connection,
        &["redis"],
        (connections, &mut *context.report),
    );
    let settings = config.settings(node, context.report);
    let (server, settings) = (server?, settings?);
    if context.report.diagnostics().len() > before {
        return None;
    }
    Some(source(server, settings, context))
}

#[cfg(feature = "redis")]
fn source(
    server: Arc<Redis>,
    settings: Settings,
    context: &mut SourceContext<'_>,
) -> Arc<dyn Source> {
    match settings {
        Settings::Stream(settings) => {
            let state = super::delivery::state(&settings, context);
            Arc::new(super::stream::StreamSource {
                server,
                settings,
                state,
            })
        }
        Settings::Channel(settings) => {
            let state = super::delivery::state(&settings, context);
            Arc::new(super::channel::ChannelSource {
                server,
                settings,
                state,
            })
        }
    }
}

#[cfg(not(feature = "redis"))]
fn source(_: Arc<Redis>, settings: Settings, _: &mut SourceContext<'_>) -> Arc<dyn Source> {
    /// A flow that has it is checked and tested, and refused before it runs.
    struct Missing(Format);
    impl Source for Missing {
        fn run<'a>(
            &'a self,
            _: &'a Arc<dyn component::source::Started>,
            _: &'a dyn component::handler::Services,
            stop: component::handler::LocalFuture<'static, ()>,
        ) -> component::handler::LocalFuture<'a, ()> {
            stop
        }

        fn decode(&self) -> Option<Format> {
            Some(self.0)
        }
    }
    Arc::new(Missing(match settings {
        Settings::Stream(settings) if settings.field.is_none() => Format::Json,
        Settings::Stream(settings) => settings.decode,
        Settings::Channel(settings) => settings.decode,
    }))
}

fn refuse(span: Span, message: impl Into<String>, hint: impl Into<String>, report: &mut Report) {
    let diagnostic = report.error(BAD_REDIS_SOURCE, span, message.into());
    diagnostic.hint(hint.into());
}

impl SourceConfig {
    /// Checks everything. Every problem is reported.
    fn settings(&self, node: &Node, report: &mut Report) -> Option<Settings> {
        let given = [&self.stream, &self.channel, &self.pattern];
        let mut given = given.into_iter().flatten();
        let Some(first) = given.next() else {
            let hint = "write `stream:` with its name, `channel:`, or `pattern:`";
            refuse(node.span, "nothing is said to be read", hint, report);
            return None;
        };
        if let Some(second) = given.next() {
            let message = "a source reads one stream, one channel or one pattern";
            refuse(second.span, message, "write a flow for each", report);
            return None;
        }
        let name = read_name(first, report);
        let is_stream = self.stream.is_some();
        check_keys(is_stream, node, report);
        let concurrent = bounds::count(self.concurrent.as_ref(), 16, 1..=4096, report) as usize;
        let decode = self.decode.as_ref().map_or(Format::Text, |it| it.value);
        if is_stream {
            let settings = self.stream_settings(node, name?, (concurrent, decode), report);
            return settings.map(Settings::Stream);
        }
        Some(Settings::Channel(ChannelSettings {
            name: name?,
            is_pattern: self.pattern.is_some(),
            buffer: bounds::count(self.buffer.as_ref(), 1000, 1..=1_000_000, report) as usize,
            concurrent,
            decode,
        }))
    }

    fn stream_settings(
        &self,
        node: &Node,
        stream: String,
        (concurrent, decode): (usize, Format),
        report: &mut Report,
    ) -> Option<StreamSettings> {
        let Some(group) = &self.group else {
            let hint = "write `group:` with the name of the engine's part of the system";
            refuse(node.span, "a stream is read by a group", hint, report);
            return None;
        };
        let group = read_name(group, report);
        let consumer = self.consumer.as_ref().map(|it| read_name(it, report));
        if let (Some(decode), None) = (&self.decode, &self.field) {
            let message = "`decode` has no effect without `field`";
            let hint = "the body is an object of all fields; name the field that is the body";
            refuse(decode.span, message, hint, report);
        }
        let times = Duration::from_millis(100)..=24 * HOUR;
        let minute = Duration::from_secs(60);
        let idle = bounds::time(self.idle.as_ref(), minute, times, report);
        let on_failure = self.on_failure(&stream, node, report);
        Some(StreamSettings {
            stream,
            group: group?,
            consumer: match consumer {
                Some(name) => Some(name?),
                None => None,
            },
            start: self.start.as_ref().map_or(Start::New, |it| it.value),
            batch: bounds::count(self.batch.as_ref(), 16, 1..=1000, report),
            concurrent,
            idle,
            on_failure: on_failure?,
            field: self.field.as_ref().map(|it| it.value.clone()),
            decode,
        })
    }

    fn on_failure(&self, stream: &str, node: &Node, report: &mut Report) -> Option<OnFailure> {
        let chosen = self.on_failure.as_ref().map(|it| it.value);
        if chosen != Some(OnFailureConfig::DeadLetter) {
            let spans = [
                self.dead_letter.as_ref().map(|it| it.span),
                self.deliveries.as_ref().map(|it| it.span),
            ];
            for span in spans.into_iter().flatten() {
                let message = "this has an effect with `on_failure: dead-letter` alone";
                refuse(span, message, "write that too, or leave it out", report);
            }
        }
        match chosen {
            None | Some(OnFailureConfig::Leave) => Some(OnFailure::Leave),
            Some(OnFailureConfig::Ack) => Some(OnFailure::Acknowledge),
            Some(OnFailureConfig::DeadLetter) => {
                let Some(target) = &self.dead_letter else {
                    let message = "`on_failure: dead-letter` needs a stream";
                    refuse(node.span, message, "write `dead_letter: NAME`", report);
                    return None;
                };
                let name = read_name(target, report)?;
                if name == stream {
                    let message = "the stream for dead letters is the one that is read";
                    refuse(target.span, message, "name another one", report);
                }
                let tries = bounds::count(self.deliveries.as_ref(), 5, 1..=1000, report);
                Some(OnFailure::Move(name, tries))
            }
        }
    }
}

/// The name of a stream, channel, group or consumer.
fn read_name(name: &Spanned<String>, report: &mut Report) -> Option<String> {
    let text = &name.value;
    if text.is_empty() || text.len() > NAME_MAX || text.contains(char::is_control) {
        let hint = "a name has 1 to 1024 bytes and no control characters";
        refuse(name.span, "this is no name", hint, report);
        return None;
    }
    if text.contains("${") {
        let message = "a source reads the same for as long as it runs: it has no `${ }`";
        refuse(name.span, message, "write the name as it is", report);
        return None;
    }
    Some(text.clone())
}

fn check_keys(is_stream: bool, node: &Node, report: &mut Report) {
    let (idle, of): (&[&str], _) = match is_stream {
        true => (&OF_CHANNEL, "a stream"),
        false => (&OF_STREAM, "a channel"),
    };
    for entry in node.as_mapping().unwrap_or_default() {
        if idle.contains(&entry.key.as_str()) {
            let message = format!("`{}` has no effect on {of}", entry.key);
            refuse(entry.key_span, message, "leave it out", report);
        }
    }
}
