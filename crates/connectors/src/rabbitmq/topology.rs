//! `declare`: exchanges, queues and bindings that are made when a connection is.

use amqp::write::{self, Binding, Exchange, Queue};
use amqp::{SHORT_MAX, Table, Value};
use config::{AnyValue, Node, Report, Span, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::BAD_DECLARE;

/// What is made on the broker when a connection to it is, unless it is there already. What is
/// there and differs is an error: nothing is ever changed or deleted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclareConfig {
    /// The exchanges.
    #[serde(default)]
    exchanges: Vec<ExchangeConfig>,
    /// The queues.
    #[serde(default)]
    queues: Vec<QueueConfig>,
    /// The bindings: which messages of an exchange go to a queue or to another exchange.
    #[serde(default)]
    bindings: Vec<BindingConfig>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExchangeConfig {
    /// Its name.
    name: Spanned<String>,
    /// `direct`, `fanout`, `topic`, `headers`, or a type that a plugin of the broker brings.
    #[serde(rename = "type")]
    kind: Spanned<String>,
    /// Whether it survives a restart of the broker.
    #[serde(default = "yes")]
    durable: bool,
    /// Whether it is deleted when nothing is bound to it any more.
    #[serde(default)]
    auto_delete: bool,
    /// Whether only other exchanges can publish to it.
    #[serde(default)]
    internal: bool,
    /// More arguments, such as `alternate-exchange`.
    #[allow(dead_code, reason = "read from the tree")]
    arguments: Option<AnyValue>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct QueueConfig {
    /// Its name.
    name: Spanned<String>,
    /// Its type. The default is the virtual host's, which is `classic` unless an operator has
    /// changed it.
    #[serde(rename = "type")]
    kind: Option<QueueType>,
    /// Whether it survives a restart of the broker.
    #[serde(default = "yes")]
    durable: bool,
    /// Whether only the connection that has declared it may use it; it is deleted with that
    /// connection.
    #[serde(default)]
    exclusive: bool,
    /// Whether it is deleted with its last consumer.
    #[serde(default)]
    auto_delete: bool,
    /// The dead-letter exchange, for messages that are rejected, expire, or exceed the maximum
    /// length.
    dead_letter: Option<DeadLetter>,
    /// The largest number of waiting messages.
    max_length: Option<Spanned<u64>>,
    /// What happens when the queue is full. The default is `drop-head`.
    overflow: Option<Overflow>,
    /// How long a message may wait in it.
    message_ttl: Option<Spanned<config::Duration>>,
    /// More arguments, such as `x-max-priority`.
    #[allow(dead_code, reason = "read from the tree")]
    arguments: Option<AnyValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum QueueType {
    /// On one node.
    Classic,
    /// Kept by most of several nodes; durable.
    Quorum,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
enum Overflow {
    /// The oldest message makes room.
    DropHead,
    /// The new one is refused: its publisher gets `nack`.
    RejectPublish,
    /// The same, and it becomes a dead letter.
    RejectPublishDlx,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeadLetter {
    /// The exchange; an empty string is the default exchange, where `key` is a queue's name.
    exchange: Spanned<String>,
    /// The routing key. The default is the message's own.
    key: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BindingConfig {
    /// The exchange that messages come from.
    exchange: Spanned<String>,
    /// The queue that they go to. Either this or `to_exchange`.
    queue: Option<Spanned<String>>,
    /// The exchange that they go to.
    to_exchange: Option<Spanned<String>>,
    /// The routing key or pattern. The default is an empty one.
    key: Option<Spanned<String>>,
    /// More arguments, such as those of a `headers` exchange.
    #[allow(dead_code, reason = "read from the tree")]
    arguments: Option<AnyValue>,
}

fn yes() -> bool {
    true
}

/// One thing that is declared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Declaration {
    /// What it is called in messages, such as `queue orders`.
    pub label: String,
    /// The bytes of the method on channel 1.
    frames: Vec<u8>,
}

/// The channel that everything is declared on.
pub(super) const CHANNEL: u16 = 1;

impl Declaration {
    /// Writes it, on [`CHANNEL`].
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.frames);
    }
}

/// Reads what is declared. Every problem is reported.
pub(super) fn read(config: &DeclareConfig, node: &Node, report: &mut Report) -> Vec<Declaration> {
    let mut made = Vec::new();
    let arguments = |list: &str, at: usize| {
        let items = node.get(list).and_then(Node::as_sequence)?;
        items.get(at)?.get("arguments")
    };
    for (at, it) in config.exchanges.iter().enumerate() {
        let extra = arguments("exchanges", at);
        made.extend(read_exchange(it, extra, report));
    }
    for (at, it) in config.queues.iter().enumerate() {
        let extra = arguments("queues", at);
        made.extend(read_queue(it, extra, report));
    }
    for (at, it) in config.bindings.iter().enumerate() {
        let extra = arguments("bindings", at);
        made.extend(read_binding(it, extra, report));
    }
    made
}

fn read_exchange(
    it: &ExchangeConfig,
    extra: Option<&Node>,
    report: &mut Report,
) -> Option<Declaration> {
    let named = is_name("exchange", &it.name, report);
    let typed = is_name("type of exchange", &it.kind, report);
    let arguments = read_arguments(extra, Table::default(), report)?;
    if !(named && typed) {
        return None;
    }
    let exchange = Exchange {
        name: &it.name.value,
        kind: &it.kind.value,
        durable: it.durable,
        auto_delete: it.auto_delete,
        internal: it.internal,
        arguments: &arguments,
    };
    let mut frames = Vec::new();
    write::exchange_declare(&mut frames, CHANNEL, &exchange).ok()?;
    let label = format!("exchange `{}`", it.name.value);
    Some(Declaration { label, frames })
}

fn read_queue(it: &QueueConfig, extra: Option<&Node>, report: &mut Report) -> Option<Declaration> {
    let named = is_name("queue", &it.name, report);
    let is_quorum = it.kind == Some(QueueType::Quorum);
    if is_quorum && (!it.durable || it.exclusive || it.auto_delete) {
        report
            .error(
                BAD_DECLARE,
                it.name.span,
                "a quorum queue is always durable and shared",
            )
            .hint("leave `durable`, `exclusive` and `auto_delete` out, or write `type: classic`");
    }
    let arguments = read_arguments(extra, queue_arguments(it, report), report)?;
    if !named {
        return None;
    }
    let queue = Queue {
        name: &it.name.value,
        durable: it.durable,
        exclusive: it.exclusive,
        auto_delete: it.auto_delete,
        arguments: &arguments,
    };
    let mut frames = Vec::new();
    write::queue_declare(&mut frames, CHANNEL, &queue).ok()?;
    let label = format!("queue `{}`", it.name.value);
    Some(Declaration { label, frames })
}

fn queue_arguments(it: &QueueConfig, report: &mut Report) -> Table {
    let mut table = Table::default();
    match it.kind {
        Some(QueueType::Classic) => table.set("x-queue-type", "classic"),
        Some(QueueType::Quorum) => table.set("x-queue-type", "quorum"),
        None => {}
    }
    if let Some(dead_letter) = &it.dead_letter {
        let exchange = &dead_letter.exchange;
        if !exchange.value.is_empty() {
            is_name("exchange", exchange, report);
        }
        table.set("x-dead-letter-exchange", exchange.value.as_str());
        if let Some(key) = &dead_letter.key {
            table.set("x-dead-letter-routing-key", key.value.as_str());
        }
    }
    if let Some(length) = &it.max_length {
        match i64::try_from(length.value) {
            Ok(length) => table.set("x-max-length", length),
            Err(_) => out_of_range(length.span, report),
        }
    }
    let overflow = it.overflow.map(|it| match it {
        Overflow::DropHead => "drop-head",
        Overflow::RejectPublish => "reject-publish",
        Overflow::RejectPublishDlx => "reject-publish-dlx",
    });
    if let Some(overflow) = overflow {
        table.set("x-overflow", overflow);
    }
    if let Some(ttl) = &it.message_ttl {
        match i64::try_from(ttl.value.0.as_millis()) {
            Ok(millis) => table.set("x-message-ttl", millis),
            Err(_) => out_of_range(ttl.span, report),
        }
    }
    table
}

fn out_of_range(span: Span, report: &mut Report) {
    report.error(BAD_DECLARE, span, "the number is too large");
}

fn read_binding(
    it: &BindingConfig,
    extra: Option<&Node>,
    report: &mut Report,
) -> Option<Declaration> {
    let from = is_name("exchange", &it.exchange, report);
    let arguments = read_arguments(extra, Table::default(), report)?;
    let (to, is_queue) = match (&it.queue, &it.to_exchange) {
        (Some(queue), None) => (queue, true),
        (None, Some(exchange)) => (exchange, false),
        _ => {
            let message = "a binding has either `queue` or `to_exchange`";
            report
                .error(BAD_DECLARE, it.exchange.span, message)
                .hint("write one of both: where messages go to");
            return None;
        }
    };
    let there = is_name(if is_queue { "queue" } else { "exchange" }, to, report);
    let key = it.key.as_ref().map_or("", |key| key.value.as_str());
    if key.len() > SHORT_MAX {
        let span = it.key.as_ref().map_or(it.exchange.span, |key| key.span);
        report.error(BAD_DECLARE, span, "the key has more than 255 bytes");
        return None;
    }
    if !(from && there) {
        return None;
    }
    let binding = Binding {
        exchange: &it.exchange.value,
        to: &to.value,
        key,
        arguments: &arguments,
    };
    let mut frames = Vec::new();
    let written = match is_queue {
        true => write::queue_bind(&mut frames, CHANNEL, &binding),
        false => write::exchange_bind(&mut frames, CHANNEL, &binding),
    };
    written.ok()?;
    let label = format!("binding of `{}` to `{}`", to.value, it.exchange.value);
    Some(Declaration { label, frames })
}

fn is_name(what: &str, name: &Spanned<String>, report: &mut Report) -> bool {
    let text = &name.value;
    let is_name = !text.is_empty() && text.len() <= SHORT_MAX && !text.contains(char::is_control);
    if !is_name {
        let message = format!("this is no name of a {what}").replace("a exchange", "an exchange");
        report
            .error(BAD_DECLARE, name.span, message)
            .hint("a name has 1 to 255 bytes and no control characters");
    }
    is_name
}

/// More arguments, behind those that keys of their own have made.
fn read_arguments(extra: Option<&Node>, mut table: Table, report: &mut Report) -> Option<Table> {
    let Some(node) = extra else {
        return Some(table);
    };
    let Some(entries) = node.as_mapping() else {
        report.error(BAD_DECLARE, node.span, "`arguments` is a mapping");
        return None;
    };
    for entry in entries {
        if table.get(&entry.key).is_some() {
            let message = format!("`{}` is said by a key of its own", entry.key.escape_debug());
            report
                .error(BAD_DECLARE, entry.key_span, message)
                .hint("leave one of both out");
            return None;
        }
        if entry.key.is_empty() || entry.key.len() > SHORT_MAX {
            let message = "this is no name of an argument";
            report.error(BAD_DECLARE, entry.key_span, message);
            return None;
        }
        let value = read_value(&entry.value, report)?;
        table.set(&entry.key, value);
    }
    Some(table)
}

fn read_value(node: &Node, report: &mut Report) -> Option<Value> {
    Some(match &node.value {
        config::Value::Null => Value::Void,
        config::Value::Bool(value) => Value::Bool(*value),
        config::Value::String(text) => Value::from(text.as_str()),
        config::Value::Number(number) => {
            let whole = number.json_text().and_then(|it| it.parse::<i64>().ok());
            whole.map_or_else(|| Value::Float(number.as_f64()), Value::Integer)
        }
        config::Value::Sequence(items) => {
            let items = items.iter().map(|item| read_value(item, report));
            Value::Array(items.collect::<Option<_>>()?)
        }
        config::Value::Mapping(_) => {
            Value::Table(read_arguments(Some(node), Table::default(), report)?)
        }
    })
}
