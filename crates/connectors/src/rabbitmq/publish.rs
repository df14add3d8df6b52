//! `publish`: hands a message to an exchange of a broker.

use std::sync::Arc;
use std::time::Duration;

use amqp::Properties;
use component::block::needs_body;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{AnyValue, Node, Spanned};
use expr::Value;
use expr::template::Template;
use expr::value;
use message::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::ask;
use crate::bounds;
use crate::codes::BAD_PUBLISH;
use crate::named;
use crate::rabbitmq::connection::Rabbitmq;
use crate::rabbitmq::hub::Hub;
use crate::rabbitmq::outgoing::Outgoing;
use crate::rabbitmq::parts::{self, Place, PlaceConfig};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "publish",
    summary: "Publishes the message to a RabbitMQ exchange or queue.",
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
    /// The exchange, the same for every message. An empty string is the default exchange, where the
    /// key is the name of a queue. Either this, `queue` or `queues`.
    exchange: Option<Spanned<String>>,
    /// The routing key; may contain `${ }`; at most 255 bytes. The default is an empty one.
    key: Option<Spanned<String>>,
    /// The queue: short for the default exchange with the queue's name as key.
    queue: Option<Spanned<String>>,
    /// Several queues, used in turn (round robin).
    queues: Option<Spanned<Vec<Spanned<String>>>>,
    /// The body, with `${ }` in its strings: a string is sent as it is, anything else as JSON. The
    /// default is the message's body.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    body: Option<AnyValue>,
    /// Headers of the message: a mapping of names to strings, numbers and booleans, with `${ }` in
    /// the strings. A header that is null is omitted.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    headers: Option<AnyValue>,
    /// Whether the message is persistent: the broker writes it to disk.
    #[serde(default = "yes")]
    persistent: bool,
    /// Whether a message that is routed to no queue is an error. The default is the value of
    /// `confirm`.
    mandatory: Option<Spanned<bool>>,
    /// Whether the step waits for the broker's publisher confirm.
    #[serde(default = "yes")]
    confirm: bool,
    /// How long the message may wait in a queue (message TTL), from 1ms to 30d. The default is no
    /// limit.
    expiration: Option<Spanned<config::Duration>>,
    /// The message id; may contain `${ }`; at most 255 bytes.
    id: Option<Spanned<String>>,
    /// The media type of the body. The default is that of the message's body.
    content_type: Option<Spanned<String>>,
    /// The priority, for queues with priorities, from 0 to 255.
    priority: Option<Spanned<u64>>,
    /// Whether the message has a timestamp.
    #[serde(default)]
    timestamp: bool,
}

fn yes() -> bool {
    true
}

/// How a message is handed over.
struct Terms {
    persistent: bool,
    mandatory: bool,
    confirm: bool,
    expiration: Option<Duration>,
    content_type: Option<String>,
    priority: Option<u8>,
    timestamp: bool,
}

/// The step.
struct Publish {
    broker: Arc<Rabbitmq>,
    terms: Terms,
    to: String,
    place: Place,
    id: Option<Template>,
    body: Option<ValueTemplate>,
    headers: Option<ValueTemplate>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: PublishConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let broker = named::connection::<Rabbitmq>(&config.to, &["rabbitmq"], context);
    let place = PlaceConfig {
        exchange: config.exchange.as_ref(),
        key: config.key.as_ref(),
        queue: config.queue.as_ref(),
        queues: config.queues.as_ref(),
        span: node.span,
    };
    let place = Place::read(&place, context);
    let id = parts::read_short("id", config.id.as_ref(), context);
    let body = match node.get("body") {
        Some(body) => context.value(body),
        None => None,
    };
    let headers = match node.get("headers") {
        Some(headers) => parts::read_headers(headers, context),
        None => None,
    };
    let (to, terms) = read_terms(config, context);
    let (broker, place) = (broker?, place?);
    (context.problems() == before).then(|| {
        Box::new(Publish {
            broker,
            terms,
            to,
            place,
            id,
            body,
            headers,
        }) as _
    })
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
        parts::check_media_type(media_type, context);
    }
    let report = &mut *context.report;
    let longest = Duration::from_secs(30 * 24 * 3600);
    let range = Duration::from_millis(1)..=longest;
    let expiration = config.expiration.as_ref();
    let expiration = expiration.map(|it| bounds::time(Some(it), longest, range, report));
    let priority = config.priority.as_ref();
    let priority = priority.map(|it| bounds::count(Some(it), 0, 0..=255, report) as u8);
    let terms = Terms {
        persistent: config.persistent,
        mandatory: config.mandatory.map_or(config.confirm, |it| it.value),
        confirm: config.confirm,
        expiration,
        content_type: config.content_type.map(|it| it.value),
        priority,
        timestamp: config.timestamp,
    };
    (config.to.value, terms)
}

impl Publish {
    async fn publish(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        if services.stands_in() {
            let sent = self.shown(exchange, services)?;
            let reply = ask::ask(("publish", &self.to), sent, exchange, services).await?;
            return match ask::failure(&reply) {
                Some(fault) => Err(fault),
                None => Ok(Next::Continue),
            };
        }
        let message = exchange
            .preemptible(services, |it| self.message(it, services))
            .await?;
        let pending = Hub::of(services, &self.broker).publish(message)?;
        if self.terms.confirm {
            pending.await?;
        } else {
            pending.leave();
        }
        Ok(Next::Continue)
    }

    /// The message as the broker gets it.
    fn message(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Outgoing, Fault> {
        let place = self.place.of(exchange, services)?;
        let id = parts::short("id", self.id.as_ref(), exchange, services)?;
        let headers = parts::made_table(self.headers.as_ref(), exchange, services)?;
        let headers = parts::header_bytes(&headers)?;
        let made = parts::made_body(self.body.as_ref(), exchange, services)?;
        let terms = &self.terms;
        let expiration = terms.expiration.map(|it| it.as_millis().to_string());
        let own_type = terms.content_type.as_deref().map(str::as_bytes);
        let properties = Properties {
            content_type: own_type.or(made.media_type.as_deref()),
            content_encoding: made.encoding.as_deref(),
            headers: headers.as_deref(),
            delivery_mode: terms.persistent.then_some(2),
            priority: terms.priority,
            expiration: expiration.as_deref().map(str::as_bytes),
            message_id: id.as_deref().map(str::as_bytes),
            timestamp: terms.timestamp.then(|| services.wall().as_secs()),
            ..Properties::default()
        };
        Outgoing::new(place, terms.mandatory, &properties, made.body)
            .map_err(|_| Fault::invalid("a property of a message has more than 255 bytes"))
    }

    /// The message as whoever stands in for the broker sees it.
    fn shown(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Value, Fault> {
        let member = |name: &str, value: Value| (name.to_owned(), value);
        let (name, key) = self.place.of(exchange, services)?;
        let headers = parts::made_headers(self.headers.as_ref(), exchange, services)?;
        let body = parts::shown_body(self.body.as_ref(), exchange, services)?;
        let mut members = vec![
            member("exchange", value::text(&*name)),
            member("key", value::text(key)),
            member("headers", headers),
            member("body", body),
        ];
        if let Some(id) = parts::short("id", self.id.as_ref(), exchange, services)? {
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
            || [self.place.key(), self.id.as_ref()]
                .into_iter()
                .flatten()
                .any(reads)
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
