//! `rabbitmq` as a source: starts a flow with each message of a queue.

mod incoming;
mod run;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use component::content::Format;
use component::handler::{LocalFuture, Services};
use component::intake::{
    DeadLetterConfig, DeadLetterPlace, IntakeCounts, IntakePlan, IntakePolicy, OwnTarget,
};
use component::resilience::{RetryConfig, RetryDefaults, RetryPolicy};
use component::source::{Source, SourceContext, SourceDefinition, Started};
use config::{ByteSize, Node, Report, Span, Spanned};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

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
#[schemars(extend("x-renamed" = {
    "on_failure": "dead_letter",
    "redeliveries": "retry",
    "delay": "retry"
}))]
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
    /// How failed runs of the flow are retried.
    #[serde(default)]
    retry: RetryConfig<OfRabbitmq>,
    dead_letter: Option<DeadLetterConfig<OfRabbitmq>>,
    /// The memory for messages in progress, on all workers together, from 1MiB to 64GiB. A message
    /// counts as its size plus 8KiB. The default is 64MiB, or 16KiB for each message of `prefetch`
    /// if that is more.
    memory: Option<Spanned<ByteSize>>,
    /// Whether the flow's reply is published to the queue in the message's `reply-to`. Without
    /// `retry` in the file nothing is retried then, for somebody waits for the reply.
    #[serde(default)]
    reply: bool,
    /// How bodies are decoded, whatever their content type: `json`, `xml`, `form`, `csv`, `text` or
    /// `bytes`.
    decode: Option<Format>,
}

/// The most messages that a broker counts (AMQP 0-9-1, `basic.qos`).
const COUNT_MAX: u64 = 65_535;

/// The longest that the retries of a message, and of those that it waits for in the prefetch, may
/// take together, beside the runs of their flows: a broker takes back what was not acknowledged for
/// 30 minutes (<https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout>).
const DELAYS_MAX: Duration = Duration::from_secs(20 * 60);

/// `retry:` and `dead_letter:` of a flow that takes messages of a broker.
#[derive(Debug)]
struct OfRabbitmq;

impl RetryDefaults for OfRabbitmq {
    const SUMMARY: &'static str = "How failed runs of the flow are retried. The message is held \
                                   unacknowledged meanwhile.";
    const ON: Option<(&'static [&'static str], &'static str)> = Some((
        &["any"],
        "The failures to retry: kinds, `4xx`, `5xx`, statuses, `any` (the default). After any \
         other the message becomes a dead letter at once.",
    ));
    const TIMES: (RangeInclusive<u32>, u32, &'static str) = (
        0..=1000,
        5,
        "The number of retries after the first attempt; then the message becomes a dead letter. \
         All delays together may take 20m divided by `prefetch` / `concurrent`: 10m by default.",
    );
    const DELAY_MAX: Duration = Duration::from_secs(30);
    const DELAY_MAX_MEANING: &'static str =
        "The longest delay. A `Retry-After` may ask for as much.";
}

impl DeadLetterPlace for OfRabbitmq {
    const REJECT: Option<&'static str> = Some(
        "The message is rejected without requeueing (`basic.reject`): the broker moves it to the \
         dead-letter exchange of the queue, or drops it if there is none.",
    );
    const OWN: Option<OwnTarget> = Some(OwnTarget {
        key: "queue",
        meaning: "The name of a queue of the same broker, to which the message is published with \
                  a publisher confirm.",
    });
    const REJECTS: bool = false;
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
    memory: usize,
    reply: bool,
    decode: Option<Format>,
    /// Where messages go that fail for good, when that is a queue.
    dead_letter_queue: Option<String>,
}

/// The source.
struct Consume {
    broker: Arc<Rabbitmq>,
    /// What the connection on each worker belongs to: it outlives a reload that changes nothing
    /// of it.
    owner: Arc<Owner>,
    settings: Arc<Settings>,
    plan: Arc<IntakePlan>,
}

/// Whose a connection is.
struct Owner {
    flow: Arc<str>,
    broker: Arc<Rabbitmq>,
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let mut config: ConsumeConfig = config::decode(node, context.report)?;
    let before = context.report.errors();
    let name = &config.connection;
    let found = (context.connections, &mut *context.report);
    let broker = named::find::<Rabbitmq>(name, &["rabbitmq"], found);
    let queues = read_queues(node.get("queue")?, context.report);
    let mut retry = config.retry.policy(BAD_CONSUME, context.report);
    if config.reply && node.get("retry").is_none() {
        // Somebody waits for the reply.
        retry.times = 0;
    }
    let span = node.get("retry").map_or(node.span, |it| it.span);
    let dead_letter = DeadLetterConfig::read(config.dead_letter.take(), node.span, context);
    let own = dead_letter.as_ref().and_then(|(_, own)| own.as_ref());
    if let Some(own) = own {
        check_dead_letter_queue(own, &queues, context.report);
    }
    let mut settings = config.settings(queues, context.report);
    check_delays(&retry, span, &settings, context.report);
    settings.dead_letter_queue = own.map(|name| name.value.clone());
    let (broker, (dead_letter, _)) = (broker?, dead_letter?);
    let policy = IntakePolicy {
        // What a failure asks for must not take longer than the broker waits.
        hold_max: retry.backoff.delay_max,
        retry,
        dead_letter,
    };
    (context.report.errors() == before).then(|| {
        Arc::new(Consume {
            owner: Arc::new(Owner {
                flow: Arc::clone(context.flow),
                broker: Arc::clone(&broker),
            }),
            plan: IntakePlan::new(
                policy,
                IntakeCounts::of("rabbitmq", &(&broker.label, &settings.queues), context),
            ),
            broker,
            settings: Arc::new(settings),
        }) as _
    })
}

/// Reports delays that take longer than a message can be held.
fn check_delays(retry: &RetryPolicy, span: Span, settings: &Settings, report: &mut Report) {
    let delays = (1..=retry.times).map(|failed| retry.backoff.delay_after(failed, 0.0));
    let sum = delays.fold(Duration::ZERO, Duration::saturating_add);
    // A message waits until those before it have got all their attempts.
    let rounds = settings.prefetch.div_ceil(settings.concurrent.max(1));
    let held = sum.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
    if held > DELAYS_MAX {
        let minutes = sum.as_secs().div_ceil(60);
        let message = format!(
            "the delays of all retries take {minutes}m together: the broker takes back messages \
             that are not acknowledged for so long"
        );
        report.error(BAD_CONSUME, span, message).hint(
            "they may take 20m divided by `prefetch` / `concurrent`; to retry for longer, store \
             the message first (step `store`), and retry in a flow `from: store`",
        );
    }
}

fn check_dead_letter_queue(name: &Spanned<String>, queues: &[String], report: &mut Report) {
    if !is_queue(&name.value) {
        report
            .error(BAD_CONSUME, name.span, NO_QUEUE)
            .hint(NO_QUEUE_HINT);
    } else if queues.contains(&name.value) {
        let message = "dead letters would go into a queue that is consumed here";
        report
            .error(BAD_CONSUME, name.span, message)
            .hint("name another queue");
    }
}

const NO_QUEUE: &str = "this is no name of a queue";
const NO_QUEUE_HINT: &str = "a name has 1 to 255 bytes and no control characters";

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
                .error(BAD_CONSUME, node.span, NO_QUEUE)
                .hint(NO_QUEUE_HINT);
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
        for (name, count) in [
            ("concurrent", &self.concurrent),
            ("prefetch", &self.prefetch),
        ] {
            if let Some(count) = count.as_ref().filter(|_| self.ordered) {
                let message =
                    format!("`{name}` has no effect: with `ordered` one message is under way");
                report
                    .error(BAD_CONSUME, count.span, message)
                    .hint("leave one of both out");
            }
        }
        let (concurrent, prefetch) = self.counts(report);
        let messages = prefetch.saturating_mul(queues.len());
        Settings {
            queues,
            concurrent,
            prefetch,
            ordered: self.ordered,
            memory: read_memory(self.memory.as_ref(), messages, report),
            reply: self.reply,
            decode: self.decode,
            dead_letter_queue: None,
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
