//! `request`: asks whoever listens on a queue and waits for the answer.

use std::sync::Arc;
use std::time::Duration;

use amqp::{Message, Properties, Table};
use component::block::needs_body;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::{Services, within};
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{AnyValue, Node, Spanned};
use expr::Value;
use expr::template::Template;
use expr::value;
use message::{Fault, Headers, Kind, Origin, Reply, Retry, memory};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::ask;
use crate::bounds;
use crate::named;
use crate::rabbitmq::connection::Rabbitmq;
use crate::rabbitmq::dial::BODY_MAX;
use crate::rabbitmq::hub::Hub;
use crate::rabbitmq::outgoing::Outgoing;
use crate::rabbitmq::parts::{self, Place, PlaceConfig};
use crate::rabbitmq::publishers::REPLY_TO;
use crate::rabbitmq::source::{STATUS, header};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "request",
    summary: "Sends the message to a RabbitMQ queue and waits for the answer (RPC).",
    documentation: include_str!("request.md"),
    example: include_str!("request.yaml"),
    schema: config::schema_for::<RequestConfig>,
    build,
};

/// What is asked and how.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RequestConfig {
    /// The connection: a `rabbitmq` one of `use:`.
    to: Spanned<String>,
    /// The exchange, the same for every message. Either this or `queue`.
    exchange: Option<Spanned<String>>,
    /// The routing key; may contain `${ }`; at most 255 bytes. The default is an empty one.
    key: Option<Spanned<String>>,
    /// The queue of the responder.
    queue: Option<Spanned<String>>,
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
    /// The media type of the body. The default is that of the message's body.
    content_type: Option<Spanned<String>>,
    /// How long to wait for the answer, from 10ms to 1h. The broker drops a request that no
    /// consumer has taken by then.
    #[schemars(extend("default" = "30s"))]
    wait: Option<Spanned<config::Duration>>,
}

/// The step.
struct RequestStep {
    broker: Arc<Rabbitmq>,
    to: String,
    place: Place,
    body: Option<ValueTemplate>,
    headers: Option<ValueTemplate>,
    content_type: Option<String>,
    wait: Duration,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: RequestConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let broker = named::connection::<Rabbitmq>(&config.to, &["rabbitmq"], context);
    let place = PlaceConfig {
        exchange: config.exchange.as_ref(),
        key: config.key.as_ref(),
        queue: config.queue.as_ref(),
        queues: None,
        span: node.span,
    };
    let place = Place::read(&place, context);
    let body = match node.get("body") {
        Some(body) => context.value(body),
        None => None,
    };
    let headers = match node.get("headers") {
        Some(headers) => parts::read_headers(headers, context),
        None => None,
    };
    if let Some(media_type) = &config.content_type {
        parts::check_media_type(media_type, context);
    }
    let range = Duration::from_millis(10)..=Duration::from_secs(3600);
    let wait = config.wait.as_ref();
    let wait = bounds::time(wait, Duration::from_secs(30), range, context.report);
    let (broker, place) = (broker?, place?);
    (context.problems() == before).then(|| {
        Box::new(RequestStep {
            broker,
            to: config.to.value,
            place,
            body,
            headers,
            content_type: config.content_type.map(|it| it.value),
            wait,
        }) as _
    })
}

impl RequestStep {
    async fn ask(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let reply = match services.stands_in() {
            true => {
                let sent = self.shown(exchange, services)?;
                ask::ask(("request", &self.to), sent, exchange, services).await?
            }
            false => self.call(exchange, services).await?,
        };
        if let Some(fault) = ask::failure(&reply) {
            return Err(fault);
        }
        exchange.take_over(reply);
        Ok(Next::Continue)
    }

    async fn call(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Reply, Fault> {
        let hub = Hub::of(services, &self.broker);
        let call = hub.next_call();
        let message = exchange.preemptible(services, |it| self.message(it, services, call));
        let mut message = message.await?;
        message.1.call = Some(message.0);
        let pending = hub.publish(message.1)?;
        match within(self.wait, services, pending).await {
            Some(outcome) => match outcome? {
                Some(answer) => reply_of(&answer),
                None => Err(self.late()),
            },
            None => Err(self.late()),
        }
    }

    fn late(&self) -> Fault {
        let detail = "nobody has answered in good time";
        Fault::new(Kind::Timeout, Origin::Upstream, detail)
            .with_retry(Retry::IfRepeatable)
            .with_cause(format_args!(
                "connection {}: no answer within {:?}",
                self.broker.label, self.wait
            ))
    }

    fn message(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
        call: u64,
    ) -> Result<(u64, Outgoing), Fault> {
        let place = self.place.of(exchange, services)?;
        let headers = parts::made_table(self.headers.as_ref(), exchange, services)?;
        let headers = parts::header_bytes(&headers)?;
        let made = parts::made_body(self.body.as_ref(), exchange, services)?;
        let (id, expiration) = (call.to_string(), self.wait.as_millis().to_string());
        let own_type = self.content_type.as_deref().map(str::as_bytes);
        let properties = Properties {
            content_type: own_type.or(made.media_type.as_deref()),
            content_encoding: made.encoding.as_deref(),
            headers: headers.as_deref(),
            correlation_id: Some(id.as_bytes()),
            reply_to: Some(REPLY_TO.as_bytes()),
            expiration: Some(expiration.as_bytes()),
            ..Properties::default()
        };
        let message = Outgoing::new(place, true, &properties, made.body)
            .map_err(|_| Fault::invalid("a property of a message has more than 255 bytes"))?;
        Ok((call, message))
    }

    /// The message as whoever stands in for the broker sees it.
    fn shown(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Value, Fault> {
        let (name, key) = self.place.of(exchange, services)?;
        let headers = parts::made_headers(self.headers.as_ref(), exchange, services)?;
        let body = parts::shown_body(self.body.as_ref(), exchange, services)?;
        Ok(value::object([
            ("exchange".to_owned(), value::text(&*name)),
            ("key".to_owned(), value::text(key)),
            ("headers".to_owned(), headers),
            ("body".to_owned(), body),
        ]))
    }
}

/// An answer as a reply.
fn reply_of(answer: &Message) -> Result<Reply, Fault> {
    let unread = |error: amqp::Error| {
        let detail = "the answer cannot be read";
        Fault::new(Kind::Connection, Origin::Upstream, detail).with_cause(error)
    };
    if answer.is_without_body() {
        if answer.size <= BODY_MAX && !memory::bodies().never_has(answer.size) {
            return Err(memory::no_room("there is no memory left for the answer"));
        }
        let detail = "the answer is too large";
        let fault = Fault::new(Kind::Connection, Origin::Upstream, detail);
        let size = answer.size;
        return Err(fault.with_cause(format_args!("it has {size} bytes")));
    }
    let properties = answer.properties().map_err(unread)?;
    let headers = properties.table().map_err(unread)?;
    let mut reply = Reply::new(status_of(&headers));
    let own = [
        ("Content-Type", properties.content_type),
        ("Content-Encoding", properties.content_encoding),
    ];
    for (name, value) in own {
        if let Some(value) = value.filter(|it| Headers::is_value(it)) {
            reply.headers.append(name, value);
        }
    }
    for (name, value) in &headers.0 {
        if let Some((name, value)) = header(name, value) {
            reply.headers.append(name, value);
        }
    }
    reply.body = answer.body.clone().into();
    Ok(reply)
}

/// The status of an answer: the header `status`, as the source gives it with `reply: true`, when it
/// is an integer that can be one.
fn status_of(headers: &Table) -> u16 {
    let status = match headers.get(STATUS) {
        Some(amqp::Value::Integer(status)) => u16::try_from(*status).ok(),
        _ => None,
    };
    status
        .filter(|status| (200..600).contains(status))
        .unwrap_or(200)
}

impl Step for RequestStep {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.ask(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        let reads = |it: &Template| needs_body(it.uses_input(), it.variables());
        let values = [&self.body, &self.headers];
        self.body.is_none()
            || values.into_iter().flatten().any(ValueTemplate::reads_body)
            || self.place.key().is_some_and(reads)
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
