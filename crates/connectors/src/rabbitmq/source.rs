//! `rabbitmq` as a source: starts a flow with each message of a queue.

mod incoming;
mod run;

use std::sync::Arc;
use std::time::Duration;

use component::content::Format;
use component::handler::{LocalFuture, Services};
use component::source::{Source, SourceContext, SourceDefinition, Started};
use config::{ByteSize, Node, Report, Span, Spanned};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds;
use crate::codes::{BAD_CONSUME, OUT_OF_RANGE};
use crate::named;
use crate::rabbitmq::connection::Rabbitmq;
use crate::rabbitmq::consumers::OVERHEAD;
use crate::rabbitmq::parts::is_queue;

pub(crate) use incoming::{STATUS, header};

/// The definition of the source.
pub const DEFINITION: SourceDefinition = SourceDefinition {
    name: "rabbitmq",
    summary: "Starts a flow with each message of a RabbitMQ queue.",
    documentation: include_str!("source.md"),
    example: include_str!("source.yaml"),
    schema: config::schema_for::<ConsumeConfig>,
    build,
};

/// What is consumed and how.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConsumeConfig {
    /// The connection: a `rabbitmq` one of `use:`.
    connection: Spanned<String>,
    /// The queue, or a list of queues.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    queue: Queues,
    /// The largest number of messages of each queue in flows at a time, on all workers together,
    /// from 1 to 65535. The default is `prefetch` if only that is set, otherwise 100.
    concurrent: Option<Spanned<u64>>,
    /// The prefetch count: the largest number of unacknowledged messages of each queue, on all
    /// workers together, from `concurrent` to 65535. The default is twice `concurrent`.
    prefetch: Option<Spanned<u64>>,
    /// Whether messages of a queue are processed one after another, by one worker, as the queue's
    /// exclusive consumer.
    #[serde(default)]
    ordered: bool,
    /// When a message is acknowledged.
    #[serde(default)]
    #[allow(dead_code, reason = "there is one way so far")]
    acknowledge: Acknowledge,
    /// What happens to a message whose flow has failed, or has replied with a status from 400 on.
    #[serde(default)]
    on_failure: OnFailure,
    /// With `on_failure: requeue`: how often a message is redelivered before it is rejected, from 1
    /// to 1000.
    #[schemars(extend("default" = 5))]
    redeliveries: Option<Spanned<u64>>,
    /// With `on_failure: requeue`: how long a message is held before it is requeued, from 0s to 5m.
    #[schemars(extend("default" = "1s"))]
    delay: Option<Spanned<config::Duration>>,
    /// The memory for messages in progress, on all workers together, from 1MiB to 64GiB. A message
    /// counts as its size plus 8KiB. The default is 64MiB, or 16KiB for each message of `prefetch`
    /// if that is more.
    memory: Option<Spanned<ByteSize>>,
    /// Whether the flow's reply is published to the queue in the message's `reply-to`.
    #[serde(default)]
    reply: bool,
    /// How bodies are decoded, whatever their content type: `json`, `xml`, `form`, `csv`, `text` or
    /// `bytes`.
    decode: Option<Format>,
}

/// The most messages that a broker counts (AMQP 0-9-1, `basic.qos`).
const COUNT_MAX: u64 = 65_535;

/// When a message is acknowledged.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
enum Acknowledge {
    /// When its flow has succeeded.
    #[default]
    AfterSuccess,
}

/// What happens to a message whose flow has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum OnFailure {
    /// The broker drops it, or makes it a dead letter where the queue says so.
    #[default]
    Reject,
    /// It goes back into the queue, a limited number of times; then it is rejected.
    Requeue,
}

/// A queue or a list of queues, for the schema alone.
#[derive(Debug)]
struct Queues;

impl<'de> Deserialize<'de> for Queues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl JsonSchema for Queues {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Queues".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 }
        ] })
    }
}

/// What is decided when the file is read.
#[derive(Debug)]
struct Settings {
    queues: Vec<String>,
    concurrent: usize,
    prefetch: usize,
    ordered: bool,
    on_failure: OnFailure,
    redeliveries: u64,
    delay: Duration,
    memory: usize,
    reply: bool,
    decode: Option<Format>,
}

/// The source.
struct Consume {
    broker: Arc<Rabbitmq>,
    /// What the connection on each worker belongs to: it outlives a reload that changes nothing
    /// of it.
    owner: Arc<Owner>,
    settings: Arc<Settings>,
}

/// Whose a connection is.
struct Owner {
    flow: Arc<str>,
    broker: Arc<Rabbitmq>,
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let config: ConsumeConfig = config::decode(node, context.report)?;
    let before = context.report.errors();
    let name = &config.connection;
    let found = (context.connections, &mut *context.report);
    let broker = named::find::<Rabbitmq>(name, &["rabbitmq"], found);
    let queues = read_queues(node.get("queue")?, context.report);
    let settings = config.settings(queues, context.report);
    let broker = broker?;
    (context.report.errors() == before).then(|| {
        Arc::new(Consume {
            owner: Arc::new(Owner {
                flow: Arc::clone(context.flow),
                broker: Arc::clone(&broker),
            }),
            broker,
            settings: Arc::new(settings),
        }) as _
    })
}

fn read_queues(node: &Node, report: &mut Report) -> Vec<String> {
    let nodes = match node.as_sequence() {
        Some(nodes) => nodes,
        None => std::slice::from_ref(node),
    };
    let mut queues: Vec<String> = Vec::new();
    for node in nodes {
        let name = node.as_str().unwrap_or_default();
        if !is_queue(name) {
            report
                .error(BAD_CONSUME, node.span, "this is no name of a queue")
                .hint("a name has 1 to 255 bytes and no control characters");
        }
        if queues.iter().any(|known| known == name) {
            report.error(BAD_CONSUME, node.span, "the queue is there twice");
        }
        queues.push(name.to_owned());
    }
    queues
}

impl ConsumeConfig {
    /// Checks everything. Every problem goes into the report.
    fn settings(&self, queues: Vec<String>, report: &mut Report) -> Settings {
        let mut idle = |name: &str, span: Span, why: &str, hint: &str| {
            let message = format!("`{name}` has no effect: {why}");
            report
                .error(BAD_CONSUME, span, message)
                .hint(hint.to_owned());
        };
        let hint = "leave it out, or write `on_failure: requeue`";
        if self.on_failure != OnFailure::Requeue {
            let why = "what fails is rejected";
            if let Some(redeliveries) = &self.redeliveries {
                idle("redeliveries", redeliveries.span, why, hint);
            }
            if let Some(delay) = &self.delay {
                idle("delay", delay.span, why, hint);
            }
        }
        for (name, count) in [
            ("concurrent", &self.concurrent),
            ("prefetch", &self.prefetch),
        ] {
            if let Some(count) = count.as_ref().filter(|_| self.ordered) {
                let why = "with `ordered` one message is under way";
                idle(name, count.span, why, "leave one of both out");
            }
        }
        let (concurrent, prefetch) = self.counts(report);
        let messages = prefetch.saturating_mul(queues.len());
        let minutes = Duration::from_secs(300);
        let second = Duration::from_secs(1);
        Settings {
            queues,
            concurrent,
            prefetch,
            ordered: self.ordered,
            on_failure: self.on_failure,
            redeliveries: bounds::count(self.redeliveries.as_ref(), 5, 1..=1000, report),
            delay: bounds::time(
                self.delay.as_ref(),
                second,
                Duration::ZERO..=minutes,
                report,
            ),
            memory: read_memory(self.memory.as_ref(), messages, report),
            reply: self.reply,
            decode: self.decode,
        }
    }

    /// How many messages may be in flows, and how many the broker may send.
    fn counts(&self, report: &mut Report) -> (usize, usize) {
        let range = || 1..=COUNT_MAX;
        let given = self.prefetch.as_ref();
        let given = given.map(|it| bounds::count(Some(it), COUNT_MAX, range(), report));
        let concurrent = self.concurrent.as_ref();
        let concurrent = bounds::count(concurrent, given.unwrap_or(100), range(), report);
        // What is on its way to and from the broker takes no place of a flow.
        let ahead = concurrent.saturating_mul(2);
        let prefetch = given.unwrap_or(ahead.min(COUNT_MAX));
        if let Some(given) = self.prefetch.as_ref().filter(|_| prefetch < concurrent) {
            let message = "`prefetch` is smaller than `concurrent`: so many never come";
            report
                .error(BAD_CONSUME, given.span, message)
                .hint("leave it out, or write twice `concurrent`");
        }
        (concurrent as usize, prefetch as usize)
    }
}

fn read_memory(memory: Option<&Spanned<ByteSize>>, messages: usize, report: &mut Report) -> usize {
    let Some(memory) = memory else {
        return (64 << 20).max(messages.saturating_mul(2 * OVERHEAD));
    };
    let (least, greatest) = (ByteSize(1 << 20), ByteSize(64 << 30));
    if memory.value < least || memory.value > greatest {
        report
            .error(OUT_OF_RANGE, memory.span, "the size is outside its range")
            .hint(format!("from {least} to {greatest}"));
    }
    usize::try_from(memory.value.0).unwrap_or(usize::MAX)
}

impl Source for Consume {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(run::run(self, flow, services, stop))
    }

    fn is_on_every_worker(&self) -> bool {
        !self.settings.ordered
    }

    fn decode(&self) -> Option<Format> {
        self.settings.decode
    }
}

#[cfg(test)]
mod tests;
