//! `publish: { topic: … }`: publishes the message to a topic.

use std::sync::Arc;

use bytes::Bytes;
use component::access::Caller;
use component::block::needs_body;
use component::connection::Connections;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::outside;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{AnyValue, Node, Report, Spanned};
use expr::template::Template;
use expr::{Value, value};
use message::{Body, Fault, Reply};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::UNKNOWN_TOPIC;
use crate::declare::KIND;
use crate::topic::{For, Publication, Receipt, Topic, in_time};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "publish",
    summary: "Publishes the message to a topic.",
    documentation: include_str!("publish.md"),
    example: include_str!("publish.yaml"),
    schema: config::schema_for::<PublishConfig>,
    build,
};

/// What is published to which topic.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PublishConfig {
    /// The topic: the name of a `topic:` document.
    topic: Spanned<String>,
    /// The event, with `${ }` in its strings, published as JSON. The default is the message's body.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    body: Option<AnyValue>,
    /// The idempotency key, such as `"${ .orderId }"`, 1 to 256 bytes: a second run with the same
    /// key publishes no second event. Without one each run publishes an event.
    key: Option<Spanned<String>>,
    /// Whether all callers of a flow with `auth` share the keys. By default each caller
    /// (`$auth.way` and `$auth.id`) has its own: a key that another one has used is new.
    #[schemars(extend("default" = false))]
    #[allow(dead_code, reason = "read from the tree, as in other steps")]
    shared: Option<bool>,
}

/// The topic of this name. One that is not there is reported.
pub(crate) fn find(
    name: &Spanned<String>,
    connections: &Connections,
    report: &mut Report,
) -> Option<Arc<Topic>> {
    let found = connections.declared(KIND, &name.value);
    let topic = found.and_then(|it| Arc::clone(&it.value).downcast().ok());
    if topic.is_none() {
        let (message, hint) = match name.value.contains("${") {
            true => (
                "a value cannot decide which topic an event goes to".to_owned(),
                "write a `choose` with a step `publish` for each topic".to_owned(),
            ),
            false => {
                let near = config::suggest(&name.value, connections.declared_names(KIND));
                (
                    format!("there is no topic `{}`", name.value.escape_debug()),
                    match near {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => {
                            "declare it in a document that begins with `topic: NAME`".to_owned()
                        }
                    },
                )
            }
        };
        report.error(UNKNOWN_TOPIC, name.span, message).hint(hint);
    }
    topic
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let step = read(node, context);
    // Also when there is a problem, or each use of the name would be another one.
    let slot = context.scope.declare("published")?;
    let step = Publish { slot, ..step? };
    Some(Box::new(step))
}

fn read(node: &Node, context: &mut BuildContext<'_>) -> Option<Publish> {
    let config: PublishConfig = config::decode(node, context.report)?;
    let before = context.problems();
    // Said here, not again by the loader.
    context.compiled.push(config.topic.span);
    let topic = find(&config.topic, context.connections, context.report);
    let body = match node.get("body") {
        Some(body) => context.value(body),
        None => None,
    };
    let key = config.key.as_ref();
    let key = key.and_then(|key| context.template(key));
    let is_shared = steps::key::read_shared(node, context);
    if let (None, Some(shared)) = (&config.key, node.entry("shared")) {
        let message = "`shared` has no effect without `key`";
        let diagnostic = context
            .report
            .error(steps::codes::NO_EFFECT, shared.key_span, message);
        diagnostic.hint("leave it out");
    }
    let topic = topic?;
    (context.problems() == before).then_some(Publish {
        topic,
        body,
        key,
        is_shared,
        slot: 0,
    })
}

/// The step.
struct Publish {
    topic: Arc<Topic>,
    body: Option<ValueTemplate>,
    key: Option<Template>,
    /// Whether callers have the same keys.
    is_shared: bool,
    /// Where `$published` goes.
    slot: usize,
}

impl Publish {
    async fn publish(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let made = exchange.preemptible(services, |it| {
            let key = self.key.as_ref();
            let key = key.map(|key| it.fill_text(key, services)).transpose()?;
            Ok((key, self.body(it, services)?))
        });
        let (key, body) = made.await?;
        let published = match services.stands_in() {
            true => self.shown(key, body, exchange, services).await?,
            false => {
                let key = key.map(Bytes::from);
                let is_own = key.is_some() && !self.is_shared;
                let caller = Caller::of(&exchange.request).filter(|_| is_own);
                let publisher = For::client(exchange.request.peer, services);
                let publisher = publisher.with_keys_of(caller)?;
                let publishing = self.topic.publish_for(publisher, Publication { body, key });
                let receipt = in_time(&self.topic, services, publishing).await?;
                published(&receipt)
            }
        };
        exchange.set_slot(self.slot, published);
        Ok(Next::Continue)
    }

    /// What is published of this message, as JSON.
    fn body(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Bytes, Fault> {
        let made = match &self.body {
            Some(body) => body.make(exchange, services)?,
            None => {
                let (body, media_type) = exchange.body()?;
                match body {
                    Body::Empty | Body::Unread => {
                        return Err(Fault::invalid("there is nothing to publish"));
                    }
                    Body::Bytes(bytes) if is_json(media_type.as_deref()) => return Ok(bytes),
                    Body::Bytes(_) => exchange.value()?.clone(),
                }
            }
        };
        let mut text = Vec::new();
        expr::json::write(&made, exchange.context.body_max, &mut text)
            .map_err(|error| Fault::expression(format_args!("what is published: {error}")))?;
        Ok(Bytes::from(text))
    }

    /// Asks whoever stands in for the topic.
    async fn shown(
        &self,
        key: Option<String>,
        body: Bytes,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Value, Fault> {
        let parsed = expr::json::parse(&body, crate::document::DEPTH_MAX);
        let parsed =
            parsed.map_err(|error| Fault::invalid(format!("the event is not JSON: {error}")))?;
        let mut members = vec![("body".to_owned(), parsed)];
        members.extend(key.map(|key| ("key".to_owned(), value::text(key))));
        let of = ("publish", &**self.topic.name());
        let sent = || value::object(members);
        let answer = outside::stand_in(of, sent, exchange, services).await;
        let reply = answer.unwrap_or_else(|| Ok(Reply::new(204)))?;
        match outside::failure(&reply) {
            Some(fault) => Err(fault),
            None => Ok(mocked(&reply)),
        }
    }
}

/// What `$published` is.
fn published(receipt: &Receipt) -> Value {
    let text = |name: &str, text: String| (name.to_owned(), value::text(text));
    value::object([
        text("id", receipt.id.to_string()),
        ("new".to_owned(), Value::Bool(receipt.is_new)),
        text("durability", receipt.durability.name().to_owned()),
    ])
}

/// The same as a test's mock gives it, or what is always the same.
fn mocked(reply: &Reply) -> Value {
    let body = Bytes::copy_from_slice(reply.body.as_bytes());
    match expr::json::parse(&body, 8) {
        Ok(object @ Value::Obj(_)) => object,
        _ => value::object([
            ("id".to_owned(), value::text("mock")),
            ("new".to_owned(), Value::Bool(true)),
        ]),
    }
}

fn is_json(media_type: Option<&[u8]>) -> bool {
    let essence = media_type.unwrap_or_default();
    let essence = essence.split(|it| *it == b';').next().unwrap_or_default();
    let essence = essence.trim_ascii().to_ascii_lowercase();
    essence == b"application/json" || essence == b"text/json" || essence.ends_with(b"+json")
}

impl Step for Publish {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.publish(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        let reads = |it: &Template| needs_body(it.uses_input(), it.variables());
        self.body.as_ref().is_none_or(ValueTemplate::reads_body)
            || self.key.as_ref().is_some_and(reads)
    }

    fn waits(&self) -> bool {
        true
    }
}
