//! `redis` as a source: the entries of a stream, read by a group of consumers, or the messages of a
//! channel.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use component::content::Format;
use component::intake::{DeadLetterConfig, DeadLetterPlace, IntakePolicy, OwnTarget};
use component::resilience::{RetryConfig, RetryDefaults};
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
const OF_STREAM: [&str; 6] = ["group", "consumer", "start", "batch", "idle", "field"];
const OF_CHANNEL: [&str; 1] = ["buffer"];

/// What is read, with one of `stream`, `channel` and `pattern`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-renamed" = {
    "parallel": "concurrent",
    "on_failure": "dead_letter",
    "deliveries": "retry"
}))]
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
    /// How long an entry stays pending with a consumer that is gone before another one claims it,
    /// from 100ms to 1d. The default is 1m.
    idle: Option<Spanned<config::Duration>>,
    /// How failed runs of the flow are retried. Messages of a channel are retried only where this
    /// is written.
    #[serde(default)]
    retry: RetryConfig<OfRedis>,
    dead_letter: Option<DeadLetterConfig<OfRedis>>,
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

/// `retry:` and `dead_letter:` of a flow that takes entries of a stream or messages of a channel.
#[derive(Debug)]
struct OfRedis;

impl RetryDefaults for OfRedis {
    const SUMMARY: &'static str = "How failed runs of the flow are retried.";
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

impl DeadLetterPlace for OfRedis {
    const REJECT: Option<&'static str> = None;
    const OWN: Option<OwnTarget> = Some(OwnTarget {
        key: "stream",
        meaning: "The name of a stream of the same server, for entries of streams. The entry is \
                  added to it, then acknowledged.",
    });
    const REJECTS: bool = false;
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
    /// The stream that entries are moved to whose flow fails for good; none when they are kept
    /// elsewhere or not at all.
    pub dead_letters: Option<String>,
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
    let mut config: SourceConfig = config::decode(node, context.report)?;
    let before = context.report.errors();
    let connections = context.connections;
    let server = named::find::<Redis>(
        &config.connection,
        &["redis"],
        (connections, &mut *context.report),
    );
    let policy = config.policy(node, context);
    let settings = config.settings(node, context.report);
    let (server, (policy, dead_letters), mut settings) = (server?, policy?, settings?);
    if context.report.errors() > before {
        return None;
    }
    if let Settings::Stream(settings) = &mut settings {
        settings.dead_letters = dead_letters;
    }
    Some(source(server, settings, policy, context))
}

#[cfg(feature = "redis")]
fn source(
    server: Arc<Redis>,
    settings: Settings,
    policy: IntakePolicy,
    context: &mut SourceContext<'_>,
) -> Arc<dyn Source> {
    use super::delivery::{Rules, state};
    match settings {
        Settings::Stream(settings) => {
            let key = (&server.name, &settings.stream, &settings.group);
            Arc::new(super::stream::StreamSource {
                rules: Rules::new(policy, &key, context),
                state: state(&settings, context),
                server,
                settings,
            })
        }
        Settings::Channel(settings) => {
            let key = (&server.name, &settings.name, settings.is_pattern);
            Arc::new(super::channel::ChannelSource {
                rules: Rules::new(policy, &key, context),
                state: state(&settings, context),
                server,
                settings,
            })
        }
    }
}

#[cfg(not(feature = "redis"))]
fn source(
    _: Arc<Redis>,
    settings: Settings,
    _: IntakePolicy,
    _: &mut SourceContext<'_>,
) -> Arc<dyn Source> {
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
            // Known when the policy has been read.
            dead_letters: None,
            field: self.field.as_ref().map(|it| it.value.clone()),
            decode,
        })
    }

    /// What becomes of messages whose flow fails, and the stream that they are moved to if so.
    fn policy(
        &mut self,
        node: &Node,
        context: &mut SourceContext<'_>,
    ) -> Option<(IntakePolicy, Option<String>)> {
        let is_channel = self.channel.is_some() || self.pattern.is_some();
        let mut retry = self.retry.policy(BAD_REDIS_SOURCE, context.report);
        if is_channel && node.get("retry").is_none() {
            retry.times = 0;
        }
        let dead_letter = self.dead_letter.take();
        let (dead_letter, target) = DeadLetterConfig::read(dead_letter, node.span, context)?;
        let report = &mut *context.report;
        if let Some(name) = &target {
            if is_channel {
                let message = "messages of a channel are not moved to a stream";
                let hint = "keep them in a store: `dead_letter: { store: NAME }`";
                refuse(name.span, message, hint, report);
            }
            let stream = self.stream.as_ref();
            if stream.is_some_and(|stream| stream.value == name.value) {
                let message = "the stream for dead letters is the one that is read";
                refuse(name.span, message, "name another one", report);
            }
        }
        let target = match &target {
            Some(name) => Some(read_name(name, report)?),
            None => None,
        };
        let policy = IntakePolicy {
            retry,
            dead_letter,
            // An entry is kept from other consumers for as long as it waits here; the server has
            // no delay for one that is put back.
            hold_max: Duration::MAX,
        };
        Some((policy, target))
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

#[cfg(test)]
mod tests;
