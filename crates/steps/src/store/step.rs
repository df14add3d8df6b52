//! `store`: puts a message on the disk before the flow goes on.

use std::sync::Arc;

use bytes::Bytes;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::{Outbound, Services};
use component::step::{Next, Progress, Step};
use config::{AnyValue, ByteSize, Node, Spanned};
use expr::value;
use journal::Room;
use message::{Fault, Reply};
use schemars::JsonSchema;
use serde::Deserialize;

use super::name;
use super::writer::StoreWriter;
use crate::key::{self, KeyTemplate};
use crate::range;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "store",
    summary: "Stores the message on the disk until it is delivered.",
    documentation: include_str!("step.md"),
    example: include_str!("step.yaml"),
    schema: config::schema_for::<StoreConfig>,
    build,
};

/// Which store the message goes to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StoreConfig {
    /// The name of the store. Flows with the trigger `store` of this name take the message.
    r#in: Spanned<String>,
    /// The ordering key, such as `"${ .orderId }"`: for triggers with `ordered: by-key`, messages
    /// with the same key are delivered in order.
    key: Option<AnyValue>,
    /// The largest size of the store, dead letters included, from 1KiB to 64GiB; then the step
    /// fails with `unavailable`.
    #[schemars(extend("default" = "1GiB"))]
    max: Option<Spanned<ByteSize>>,
    /// The largest number of messages in the store, dead letters included, from 1 to 10000000; then
    /// the step fails with `unavailable`.
    #[schemars(extend("default" = 1_000_000))]
    max_messages: Option<Spanned<u64>>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let step = read(node, context);
    // Also when there is a problem, or each use of the name would be another one.
    let slot = context.scope.declare("stored")?;
    let step = StoreStep { slot, ..step? };
    Some(Box::new(step))
}

fn read(node: &Node, context: &mut BuildContext<'_>) -> Option<StoreStep> {
    let config: StoreConfig = config::decode(node, context.report)?;
    let before = context.problems();
    if config.r#in.value.contains("${") {
        // Said here, not again by the loader.
        context.compiled.push(config.r#in.span);
    }
    name::check(&config.r#in, context.report);
    let report = &mut *context.report;
    let count = config.max_messages.as_ref();
    let count = range::count("max_messages", count, 1..=10_000_000, 1_000_000, report);
    let bytes = range::size("max", config.max.as_ref(), range::ALL, 1 << 30, report);
    let key = match config.key.and(node.get("key")) {
        Some(node) => Some(key::read(node, context)?),
        None => None,
    };
    let room = Room {
        count: count as u64,
        bytes: bytes as u64,
    };
    let name = &config.r#in.value;
    (context.problems() == before).then(|| StoreStep {
        writer: StoreWriter::of(name, room, context.surroundings.states),
        key,
        slot: 0,
    })
}

/// The step.
struct StoreStep {
    writer: StoreWriter,
    key: Option<KeyTemplate>,
    /// Where `$stored` goes.
    slot: usize,
}

impl StoreStep {
    async fn store(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let key = match &self.key {
            Some(key) => {
                exchange
                    .preemptible(services, |it| key.make(it, services))
                    .await?
            }
            None => String::new(),
        };
        let step = Arc::clone(&exchange.at);
        let outbound = Outbound {
            verb: "store",
            step: &step,
            connection: self.writer.name(),
        };
        let id = match services.stand_in(outbound, exchange) {
            Some(answer) => shown_id(&answer.await?)?,
            None => self.append(key, exchange, services).await?,
        };
        let stored = value::object([("id".to_owned(), value::text(id))]);
        exchange.set_slot(self.slot, stored);
        Ok(Next::Continue)
    }

    async fn append(
        &self,
        key: String,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<String, Fault> {
        let request = exchange
            .preemptible(services, Exchange::take_request)
            .await?;
        self.writer.append(key, request, services).await
    }
}

/// The `id` that a test's mock gives, or one that is always the same.
fn shown_id(reply: &Reply) -> Result<String, Fault> {
    if !(200..300).contains(&reply.status) {
        return Err(Fault::of_status(reply.status));
    }
    let id = expr::json::parse(&Bytes::copy_from_slice(reply.body.as_bytes()), 8).ok();
    let id = id.as_ref().and_then(|body| value::get(body, "id"));
    let id = id.and_then(value::scalar_text);
    Ok(id.map_or_else(|| "mock".to_owned(), |id| id.into_owned()))
}

impl Step for StoreStep {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.store(exchange, services)))
    }

    fn waits(&self) -> bool {
        true
    }
}
