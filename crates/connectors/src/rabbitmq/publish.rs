//! `publish`: hands a message to an exchange of a broker.

use std::sync::Arc;
use std::time::Duration;

use component::block::needs_body;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{Node, Spanned};
use expr::Value;
use expr::template::Template;
use expr::value;
use message::{Fault, Headers};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::ask;
use crate::bounds;
use crate::codes::BAD_PUBLISH;
use crate::named;
use crate::rabbitmq::connection::{Rabbitmq, SHORT_MAX};
use config::AnyValue;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "publish",
    summary: "Hands the message to an exchange of a broker.",
    documentation: include_str!("publish.md"),
    example: include_str!("publish.yaml"),
    schema: config::schema_for::<PublishConfig>,
    build,
};

/// What is published and how.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PublishConfig {
    /// The connection: a `rabbitmq` one of `use:`.
    to: Spanned<String>,
    /// The exchange, the same for every message. An empty text is the default exchange, where the
    /// key is the name of a queue.
    exchange: Spanned<String>,
    /// The routing key, with `${ }` in it; at most 255 bytes. The default is an empty one.
    key: Option<Spanned<String>>,
    /// The body, with `${ }` in its texts: a text is sent as it is, anything else as JSON. The
    /// default is the message's body.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    body: Option<AnyValue>,
    /// Headers of the message: a mapping of names to texts, numbers and booleans, with `${ }` in
    /// the texts. One that is null is left out.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    headers: Option<AnyValue>,
    /// Whether the broker keeps the message on disk.
    #[serde(default = "yes")]
    persistent: bool,
    /// Whether it is an error that no queue wants the message. The default is what `confirm` is.
    mandatory: Option<Spanned<bool>>,
    /// Whether the step waits until the broker has taken the message.
    #[serde(default = "yes")]
    confirm: bool,
    /// How long the message may wait in a queue, from 1ms to 30d. The default is for ever.
    expiration: Option<Spanned<config::Duration>>,
    /// The message's id, with `${ }` in it; at most 255 bytes.
    id: Option<Spanned<String>>,
    /// The media type of the body. The default is that of the message's body.
    content_type: Option<Spanned<String>>,
    /// How urgent it is, for queues with priorities, from 0 to 255.
    priority: Option<Spanned<u64>>,
}

fn yes() -> bool {
    true
}

/// How a message is handed over.
pub struct Terms {
    /// The exchange.
    pub exchange: String,
    /// Whether the broker keeps the message on disk.
    pub persistent: bool,
    /// Whether it is an error that no queue wants the message.
    pub mandatory: bool,
    /// Whether the step waits until the broker has taken the message.
    pub confirm: bool,
    /// How long the message may wait in a queue.
    pub expiration: Option<Duration>,
    /// The media type of the body, when the step says it.
    pub content_type: Option<String>,
    /// How urgent it is.
    pub priority: Option<u8>,
}

/// The step.
pub struct Publish {
    /// The broker.
    pub broker: Arc<Rabbitmq>,
    /// How a message is handed over.
    pub terms: Terms,
    to: String,
    key: Option<Template>,
    id: Option<Template>,
    body: Option<ValueTemplate>,
    headers: Option<ValueTemplate>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: PublishConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let broker = named::connection::<Rabbitmq>(&config.to, &["rabbitmq"], context);
    check_exchange(&config, context);
    let key = read_short("key", config.key.as_ref(), context);
    let id = read_short("id", config.id.as_ref(), context);
    let body = match node.get("body") {
        Some(body) => context.value(body),
        None => None,
    };
    let headers = match node.get("headers") {
        Some(headers) => read_headers(headers, context),
        None => None,
    };
    let terms = read_terms(config, context);
    let (broker, (to, terms)) = (broker?, terms);
    (context.problems() == before).then(|| {
        Box::new(Publish {
            broker,
            terms,
            to,
            key,
            id,
            body,
            headers,
        }) as _
    })
}

fn check_exchange(config: &PublishConfig, context: &mut BuildContext<'_>) {
    let exchange = &config.exchange;
    let hint = "put what differs into `key`, which may have `${ }`";
    if !named::is_fixed("exchange", hint, exchange, context) {
        return;
    }
    let report = &mut context.report;
    if exchange.value.len() > SHORT_MAX || exchange.value.contains(char::is_control) {
        report
            .error(BAD_PUBLISH, exchange.span, "this is no name of an exchange")
            .hint("a name has at most 255 bytes and no control characters");
    }
    let has_key = config.key.as_ref().is_some_and(|key| !key.value.is_empty());
    if exchange.value.is_empty() && !has_key {
        report
            .error(
                BAD_PUBLISH,
                exchange.span,
                "the default exchange needs a key",
            )
            .hint("write `key:` with the name of a queue");
    }
}

/// A text with `${ }` in it that AMQP calls short. Every problem is reported.
fn read_short(
    what: &str,
    text: Option<&Spanned<String>>,
    context: &mut BuildContext<'_>,
) -> Option<Template> {
    let text = text?;
    let template = context.template(text)?;
    if template
        .literal()
        .is_some_and(|text| text.len() > SHORT_MAX)
    {
        let message = format!("`{what}` is too long");
        context
            .report
            .error(BAD_PUBLISH, text.span, message)
            .hint("at most 255 bytes");
    }
    Some(template)
}

fn read_headers(node: &Node, context: &mut BuildContext<'_>) -> Option<ValueTemplate> {
    let Some(entries) = node.as_mapping() else {
        let message = format!("`headers` is a mapping, not {}", node.type_name());
        context.report.error(BAD_PUBLISH, node.span, message);
        return None;
    };
    for entry in entries {
        if entry.key.is_empty() || entry.key.len() > SHORT_MAX {
            let message = "this is no name of a header";
            context
                .report
                .error(BAD_PUBLISH, entry.key_span, message)
                .hint("a name has 1 to 255 bytes");
        }
        if entry.value.as_mapping().is_some() || entry.value.as_sequence().is_some() {
            let kind = entry.value.type_name();
            let message = format!("a header is a text, a number or a boolean, not {kind}");
            context
                .report
                .error(BAD_PUBLISH, entry.value.span, message)
                .hint("write it as text: `\"${ .lines | tojson }\"`");
        }
    }
    context.value(node)
}

/// The name of the connection, and how messages are handed over.
fn read_terms(config: PublishConfig, context: &mut BuildContext<'_>) -> (String, Terms) {
    if let Some(mandatory) = config.mandatory.filter(|it| it.value && !config.confirm) {
        let message = "`mandatory` has no effect with `confirm: false`";
        context
            .report
            .error(BAD_PUBLISH, mandatory.span, message)
            .hint("the broker's answer is not waited for; leave one of both out");
    }
    if let Some(media_type) = &config.content_type {
        let hint = "write it for all messages alike, or send a text of your own as `body`";
        let is_value = Headers::is_value(media_type.value.as_bytes());
        let is_sound = media_type.value.contains('/') && is_value;
        if named::is_fixed("content_type", hint, media_type, context) && !is_sound {
            context
                .report
                .error(BAD_PUBLISH, media_type.span, "this is no media type")
                .hint("write one such as `application/json`");
        }
    }
    let report = &mut *context.report;
    let longest = Duration::from_secs(30 * 24 * 3600);
    let range = Duration::from_millis(1)..=longest;
    let expiration = config.expiration.as_ref();
    let expiration = expiration.map(|it| bounds::time(Some(it), longest, range, report));
    let priority = config.priority.as_ref();
    let priority = priority.map(|it| bounds::count(Some(it), 0, 0..=255, report) as u8);
    let terms = Terms {
        exchange: config.exchange.value,
        persistent: config.persistent,
        mandatory: config.mandatory.map_or(config.confirm, |it| it.value),
        confirm: config.confirm,
        expiration,
        content_type: config.content_type.map(|it| it.value),
        priority,
    };
    (config.to.value, terms)
}

impl Publish {
    async fn publish(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let sent = self.shown(exchange, services)?;
        let reply = ask::ask(("publish", &self.to), sent, exchange, services).await?;
        match ask::failure(&reply) {
            Some(fault) => Err(fault),
            None => Ok(Next::Continue),
        }
    }

    /// The message as whoever stands in for the broker sees it.
    fn shown(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Value, Fault> {
        let member = |name: &str, value: Value| (name.to_owned(), value);
        let key = short("key", self.key.as_ref(), exchange, services)?;
        let mut members = vec![
            member("exchange", value::text(self.terms.exchange.as_str())),
            member("key", value::text(key.unwrap_or_default())),
            member("headers", self.made_headers(exchange, services)?),
            member("body", self.made_body(exchange, services)?),
        ];
        if let Some(id) = short("id", self.id.as_ref(), exchange, services)? {
            members.push(member("id", value::text(id)));
        }
        if let Some(media_type) = &self.terms.content_type {
            members.push(member("content_type", value::text(media_type.as_str())));
        }
        if let Some(time) = self.terms.expiration {
            let text = config::Duration(time).to_string();
            members.push(member("expiration", value::text(text)));
        }
        if let Some(priority) = self.terms.priority {
            members.push(member("priority", value::integer(priority.into())));
        }
        Ok(value::object(members))
    }

    fn made_headers(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Value, Fault> {
        let Some(headers) = &self.headers else {
            return Ok(value::object([]));
        };
        let made = headers.make(exchange, services)?;
        let mut kept = Vec::new();
        for (name, header) in value::members(&made).into_iter().flatten() {
            match header {
                Value::Null => {}
                Value::Arr(_) | Value::Obj(_) => {
                    let kind = value::kind(header);
                    let cause = format_args!("the header {name} is a text, not {kind}");
                    return Err(Fault::expression(cause));
                }
                header => kept.push((name.to_owned(), header.clone())),
            }
        }
        Ok(value::object(kept))
    }

    fn made_body(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Value, Fault> {
        if let Some(body) = &self.body {
            return body.make(exchange, services);
        }
        let made = exchange.value().cloned();
        match made {
            Ok(Value::BStr(_)) | Err(_) => {
                let (bytes, _) = exchange.body()?;
                Ok(value::text(String::from_utf8_lossy(bytes.as_bytes())))
            }
            Ok(made) => Ok(made),
        }
    }
}

/// A text that AMQP calls short, for this message.
fn short(
    what: &str,
    template: Option<&Template>,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Option<String>, Fault> {
    let Some(template) = template else {
        return Ok(None);
    };
    let text = exchange.fill_text(template, services)?;
    if text.len() > SHORT_MAX {
        let detail = format!("the {what} of a message has more than 255 bytes");
        return Err(Fault::invalid(detail));
    }
    Ok(Some(text))
}

impl Step for Publish {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.publish(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        let reads = |it: &Template| needs_body(it.uses_input(), it.variables());
        let values = [&self.body, &self.headers];
        self.body.is_none()
            || values.into_iter().flatten().any(ValueTemplate::reads_body)
            || [&self.key, &self.id].into_iter().flatten().any(reads)
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
