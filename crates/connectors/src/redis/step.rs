//! `redis`: gives a Redis server one command.

use std::sync::Arc;
use std::time::Duration;

use component::block::needs_body;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{AnyValue, Node, Spanned};
use expr::template::Template;
use expr::{Value, value};
use message::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::{Action, COMMANDS, Condition, Fields, Known, Put, Sent, Side};
use super::connection::Redis;
use super::outcome::{Format, Outcome};
use crate::codes::BAD_COMMAND;
use crate::{ask, bounds, named};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "redis",
    summary: "Runs a Redis command.",
    documentation: include_str!("step.md"),
    example: include_str!("step.yaml"),
    schema: config::schema_for::<CommandConfig>,
    build,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const WAIT_MAX: Duration = Duration::from_secs(300);
/// The most that `start` and `stop` may be from the list's ends.
const PLACES: i64 = 1 << 32;

/// One command: its key says which, its value is the key, channel or stream that it is for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(
    dead_code,
    reason = "commands and values are read from the tree, which keeps places and numbers"
)]
struct CommandConfig {
    /// The connection: a `redis` one of `use:`.
    to: Spanned<String>,
    /// Reads a key. The result is null if it does not exist.
    get: Option<Spanned<String>>,
    /// Sets a key to `value`. The result is whether it was set.
    set: Option<Spanned<String>>,
    /// Deletes a key. The result is whether it existed.
    delete: Option<Spanned<String>>,
    /// The result is whether the key exists.
    exists: Option<Spanned<String>>,
    /// Lets a key expire after `ttl`. The result is whether it exists.
    expire: Option<Spanned<String>>,
    /// Adds `by` to the number in a key; a missing key counts as 0. The result is the sum.
    incr: Option<Spanned<String>>,
    /// Reads one `field` of a hash. The result is null if it does not exist.
    hget: Option<Spanned<String>>,
    /// Sets fields of a hash. The result is the number of new fields.
    hset: Option<Spanned<String>>,
    /// Deletes one `field` of a hash. The result is whether it existed.
    hdel: Option<Spanned<String>>,
    /// Reads a hash. The result is an object, `{}` if there is no such hash.
    hgetall: Option<Spanned<String>>,
    /// Adds `value` or `values` to a list. The result is its new length.
    push: Option<Spanned<String>>,
    /// Removes one item from a list. The result is the item, or null if the list is empty.
    pop: Option<Spanned<String>>,
    /// Reads a list from `start` to `stop`.
    range: Option<Spanned<String>>,
    /// The result is the length of a list.
    length: Option<Spanned<String>>,
    /// Adds `value` or `values` to a set. The result is the number of new members.
    sadd: Option<Spanned<String>>,
    /// Removes `value` or `values` from a set. The result is the number of removed members.
    srem: Option<Spanned<String>>,
    /// Reads a set. The result is a list in no particular order.
    smembers: Option<Spanned<String>>,
    /// Sends `value` to the subscribers of a channel. The result is their number.
    publish: Option<Spanned<String>>,
    /// Adds an entry with `fields` to a stream. The result is its id.
    xadd: Option<Spanned<String>>,
    /// The value, with `${ }` in its strings: strings and bytes as they are, anything else as JSON.
    /// The default is the message's body.
    value: Option<AnyValue>,
    /// A list of values, each stored on its own.
    values: Option<AnyValue>,
    /// The name of one field of a hash; may contain `${ }`.
    field: Option<Spanned<String>>,
    /// Fields with their values, with `${ }` in the strings: a mapping, or an expression for one.
    /// The default for `xadd` is one field `body` with `value`.
    fields: Option<AnyValue>,
    /// The time to live, from 1ms to 3650d. The default for `set` is none.
    ttl: Option<Spanned<config::Duration>>,
    /// Sets the key only if it is `absent` (NX) or `present` (XX). The default is always.
    #[serde(rename = "if")]
    condition: Option<Spanned<If>>,
    /// Whether `set` keeps the remaining time to live of the key.
    keep_ttl: Option<Spanned<bool>>,
    /// The increment: an integer, or an expression for one. The default is 1.
    by: Option<AnyValue>,
    /// The end of the list. The default is `right` for `push` and `left` for `pop`: first in, first
    /// out.
    side: Option<Spanned<End>>,
    /// How long `pop` waits for an item, from 1ms to 5m.
    wait: Option<Spanned<config::Duration>>,
    /// The first index, from 0; negative numbers count from the end. The default is 0.
    start: Option<Spanned<i64>>,
    /// The last index. The default is -1, the end of the list.
    stop: Option<Spanned<i64>>,
    /// The approximate number of entries that the stream keeps; older ones are trimmed.
    maxlen: Option<Spanned<u64>>,
    /// How the stored value is decoded: `text` (bytes if it is not UTF-8), `json` or `bytes`. The
    /// default is `text`.
    format: Option<Spanned<Format>>,
}

/// When `set` does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum If {
    /// There is no such key yet.
    Absent,
    /// There is one.
    Present,
}

/// One end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum End {
    /// Its beginning.
    Left,
    /// Its end.
    Right,
}

impl From<End> for Side {
    fn from(end: End) -> Self {
        match end {
            End::Left => Self::Left,
            End::Right => Self::Right,
        }
    }
}

/// The step.
pub struct Command {
    /// The server.
    pub server: Arc<Redis>,
    /// What is done.
    pub action: Action,
    to: String,
    name: &'static str,
    of: &'static str,
    key: Template,
    format: Format,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: CommandConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let server = named::connection::<Redis>(&config.to, &["redis"], context);
    let known = the_command(node, context)?;
    check_keys(known, node, context);
    let key = node.get(known.name)?;
    let text = Spanned {
        value: key.as_str()?.to_owned(),
        span: key.span,
    };
    if text.value.is_empty() {
        let message = format!("the {} has no name", known.of);
        let hint = "write its name, which may have `${ }` in it";
        refuse(key.span, message, hint, context);
    }
    let key = context.template(&text);
    let action = read_action(known.name, &config, node, context);
    let (server, key, action) = (server?, key?, action?);
    (context.problems() == before).then(|| {
        Box::new(Command {
            server,
            action,
            to: config.to.value,
            name: known.name,
            of: known.of,
            key,
            format: config.format.map(|it| it.value).unwrap_or_default(),
        }) as _
    })
}

fn refuse(
    span: config::Span,
    message: impl Into<String>,
    hint: impl Into<String>,
    context: &mut BuildContext<'_>,
) {
    context
        .report
        .error(BAD_COMMAND, span, message.into())
        .hint(hint.into());
}

/// The one command of the mapping.
fn the_command(node: &Node, context: &mut BuildContext<'_>) -> Option<&'static Known> {
    let entries = node.as_mapping().unwrap_or_default();
    let mut found = entries.iter().filter_map(|entry| {
        let known = COMMANDS.iter().find(|known| known.name == entry.key)?;
        Some((known, entry.key_span))
    });
    let Some((first, _)) = found.next() else {
        let hint = "write one such as `get: \"order:${ .id }\"`";
        refuse(node.span, "the step has no command", hint, context);
        return None;
    };
    if let Some((second, span)) = found.next() {
        let message = format!(
            "the step has two commands: `{}` and `{}`",
            first.name, second.name
        );
        refuse(span, message, "write a step for each", context);
        return None;
    }
    Some(first)
}

/// Everything that stands beside the command belongs to it, and nothing that it needs is missing.
fn check_keys(known: &Known, node: &Node, context: &mut BuildContext<'_>) {
    let entries = node.as_mapping().unwrap_or_default();
    for entry in entries {
        let key = entry.key.as_str();
        if key == "to" || key == known.name || known.needs.contains(&key) {
            continue;
        }
        if !known.takes.contains(&key) {
            let message = format!("`{key}` has no effect on `{}`", known.name);
            let takes = known.needs.iter().chain(known.takes);
            let takes: Vec<String> = takes.map(|it| format!("`{it}`")).collect();
            let hint = match takes.is_empty() {
                true => format!("`{}` has no other keys", known.name),
                false => format!("`{}` takes {}", known.name, takes.join(", ")),
            };
            refuse(entry.key_span, message, hint, context);
        }
    }
    for needed in known.needs {
        if !entries.iter().any(|entry| entry.key == *needed) {
            let message = format!("`{}` needs `{needed}`", known.name);
            refuse(node.span, message, format!("add `{needed}:`"), context);
        }
    }
    for (one, other) in [
        ("value", "values"),
        ("value", "fields"),
        ("field", "fields"),
        ("ttl", "keep_ttl"),
    ] {
        let other = entries.iter().find(|entry| entry.key == other);
        if let (Some(_), Some(other)) = (node.get(one), other) {
            let message = format!("`{one}` and `{}` exclude each other", other.key);
            refuse(other.key_span, message, "leave one of them out", context);
        }
    }
}

fn read_action(
    name: &str,
    config: &CommandConfig,
    node: &Node,
    context: &mut BuildContext<'_>,
) -> Option<Action> {
    let side = config.side.as_ref().map(|side| Side::from(side.value));
    Some(match name {
        "get" => Action::Get,
        "set" => Action::Set {
            put: read_put(node, context)?,
            ttl: read_ttl(config, context),
            condition: config.condition.as_ref().map(|it| match it.value {
                If::Absent => Condition::Absent,
                If::Present => Condition::Present,
            }),
            keep_ttl: config.keep_ttl.as_ref().is_some_and(|it| it.value),
        },
        "delete" => Action::Delete,
        "exists" => Action::Exists,
        "expire" => Action::Expire(read_ttl(config, context)?),
        "incr" => Action::Increment(read_by(node, context)?),
        "hget" => Action::HashGet(context.template(config.field.as_ref()?)?),
        "hdel" => Action::HashDelete(context.template(config.field.as_ref()?)?),
        "hset" => Action::HashSet(read_fields(config, node, None, context)?),
        "hgetall" => Action::HashAll,
        "push" => Action::Push(side.unwrap_or(Side::Right), read_put(node, context)?),
        "pop" => Action::Pop(side.unwrap_or(Side::Left), read_wait(config, context)),
        "range" => {
            let start = read_place(config.start.as_ref(), 0, context);
            Action::Range(start, read_place(config.stop.as_ref(), -1, context))
        }
        "length" => Action::Length,
        "sadd" => Action::SetAdd(read_put(node, context)?),
        "srem" => Action::SetRemove(read_put(node, context)?),
        "smembers" => Action::SetMembers,
        "publish" => Action::Publish(read_put(node, context)?),
        "xadd" => {
            let body = Template::compile("body", &*context.scope).ok();
            let fields = read_fields(config, node, body, context)?;
            let most = config.maxlen.as_ref();
            let maxlen = most.map(|it| bounds::count(Some(it), 1, 1..=1 << 40, context.report));
            Action::Append(fields, maxlen)
        }
        _ => return None,
    })
}

fn read_put(node: &Node, context: &mut BuildContext<'_>) -> Option<Put> {
    if let Some(values) = node.get("values") {
        return context.value(values).map(Put::Each);
    }
    match node.get("value") {
        Some(one) => context.value(one).map(Put::One),
        None => Some(Put::Body),
    }
}

/// The fields, or one of the name that is the default.
fn read_fields(
    config: &CommandConfig,
    node: &Node,
    default: Option<Template>,
    context: &mut BuildContext<'_>,
) -> Option<Fields> {
    if let Some(fields) = node.get("fields") {
        let is_text = fields.as_str().is_some();
        if fields.as_mapping().is_none() && !is_text {
            let message = format!("`fields` is a mapping, not {}", fields.type_name());
            let hint = "write `fields: { NAME: VALUE }`";
            refuse(fields.span, message, hint, context);
            return None;
        }
        return context.value(fields).map(Fields::All);
    }
    let name = match &config.field {
        Some(field) => context.template(field),
        None => default,
    };
    let Some(name) = name else {
        if config.field.is_none() {
            let hint = "write `fields: { NAME: VALUE }`, or `field` and `value`";
            refuse(node.span, "`hset` needs `field` or `fields`", hint, context);
        }
        return None;
    };
    Some(Fields::One(name, read_put(node, context)?))
}

fn read_ttl(config: &CommandConfig, context: &mut BuildContext<'_>) -> Option<Duration> {
    let ttl = config.ttl.as_ref()?;
    let range = Duration::from_millis(1)..=DAY * 3650;
    Some(bounds::time(Some(ttl), DAY, range, context.report))
}

fn read_wait(config: &CommandConfig, context: &mut BuildContext<'_>) -> Option<Duration> {
    let wait = config.wait.as_ref()?;
    let range = Duration::from_millis(1)..=WAIT_MAX;
    Some(bounds::time(Some(wait), WAIT_MAX, range, context.report))
}

fn read_place(place: Option<&Spanned<i64>>, default: i64, context: &mut BuildContext<'_>) -> i64 {
    let Some(place) = place else {
        return default;
    };
    if place.value.abs() > PLACES {
        let hint = format!("from -{PLACES} to {PLACES}");
        refuse(place.span, "no list has such a place", hint, context);
    }
    place.value
}

/// What `incr` adds; `None` in it is 1.
fn read_by(node: &Node, context: &mut BuildContext<'_>) -> Option<Option<ValueTemplate>> {
    let Some(by) = node.get("by") else {
        return Some(None);
    };
    let is_whole = match &by.value {
        config::Value::Number(number) => number.text().parse::<i64>().is_ok(),
        config::Value::String(text) => Template::has_holes(text),
        _ => false,
    };
    if !is_whole {
        let hint = "write one such as `5` or `\"${ .count }\"`";
        refuse(by.span, "`by` is an integer of 64 bits", hint, context);
        return None;
    }
    context.value(by).map(Some)
}

impl Command {
    async fn give(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let made = exchange.preemptible(services, |it| {
            let key = it.fill_text(&self.key, services)?;
            if key.is_empty() {
                let cause = format_args!("of `{}`", self.name);
                return Err(Fault::unfit(format!("the {} is empty", self.of), cause));
            }
            let sent = self.action.make(&key, it, services)?;
            Ok((key, sent))
        });
        let (key, mut sent) = made.await?;
        let outcome = self.action.outcome();
        let shown = || self.shown(&key, &mut sent);
        let asked = ask::stand_in(("redis", &self.to), shown, exchange, services).await;
        let result = match asked {
            Some(reply) => self.of_stand_in(outcome, reply?, exchange)?,
            None => self.really(outcome, &sent, services).await?,
        };
        exchange.set_value(result);
        Ok(Next::Continue)
    }

    /// The command as whoever stands in for the server sees it.
    fn shown(&self, key: &str, sent: &mut Sent) -> Value {
        let mut members = vec![
            ("command".to_owned(), value::text(self.name)),
            (self.of.to_owned(), value::text(key)),
        ];
        members.append(&mut sent.shown);
        value::object(members)
    }

    fn of_stand_in(
        &self,
        outcome: Outcome,
        reply: message::Reply,
        exchange: &mut Exchange,
    ) -> Result<Value, Fault> {
        match ask::failure(&reply) {
            Some(fault) => Err(fault),
            None => outcome.of_stand_in(ask::body_of(reply, exchange)?),
        }
    }

    #[cfg(feature = "redis")]
    async fn really(
        &self,
        outcome: Outcome,
        sent: &Sent,
        services: &dyn Services,
    ) -> Result<Value, Fault> {
        let wait = match &self.action {
            Action::Pop(_, wait) => *wait,
            _ => None,
        };
        let takes = matches!(self.action, Action::Pop(..));
        if takes {
            super::room::check()?;
        }
        let answer = super::link::ask(&self.server, services, sent, wait).await?;
        let answer = super::room::hold(answer, takes)?;
        outcome.of_answer(answer, self.format)
    }

    #[cfg(not(feature = "redis"))]
    async fn really(&self, _: Outcome, _: &Sent, _: &dyn Services) -> Result<Value, Fault> {
        let _ = self.format;
        Err(ask::no_driver())
    }
}

impl Step for Command {
    fn is_repeatable(&self, _: &Exchange) -> bool {
        self.action.is_read()
    }

    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.give(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        let reads = |it: &Template| needs_body(it.uses_input(), it.variables());
        let beside = match &self.action {
            Action::Set { put, .. }
            | Action::Push(_, put)
            | Action::SetAdd(put)
            | Action::SetRemove(put)
            | Action::Publish(put) => put.reads_body(),
            Action::Increment(by) => by.as_ref().is_some_and(ValueTemplate::reads_body),
            Action::HashGet(field) | Action::HashDelete(field) => reads(field),
            Action::HashSet(fields) | Action::Append(fields, _) => match fields {
                Fields::One(name, put) => reads(name) || put.reads_body(),
                Fields::All(members) => members.reads_body(),
            },
            _ => false,
        };
        beside || reads(&self.key)
    }

    fn waits(&self) -> bool {
        true
    }
}
