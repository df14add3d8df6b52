//! `changes`: compares the body with the one that came before under the same key.

mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use component::block::Block;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::long_work::{AT_ONCE, beside};
use component::step::{Next, Progress, Step};
use component::steps::Steps;
use config::{AnyValue, ByteSize, Node, Spanned};
use expr::Value;
use expr::value::object;
use message::Fault;
use schemars::JsonSchema;
use serde::Deserialize;
use steps::key::{self, KeyTemplate};
use steps::range;

use crate::document::{self, Change, DEPTH_MAX, Document};
use crate::poll::codes::BAD_CHANGES;
use table::Table;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "changes",
    summary: "Compares the body with the previous one.",
    documentation: include_str!("changes.md"),
    example: include_str!("changes.yaml"),
    schema: config::schema_for::<ChangesConfig>,
    build,
};

/// What is compared with what.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChangesConfig {
    /// Bodies with the same key are compared with each other: a string with `${ }`, or a list of
    /// such strings. Without it, each body is compared with the one before. A key that is null or
    /// empty fails with `invalid`.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    key: Option<AnyValue>,
    /// The largest number of keys, from 1 to 1000000. The least recently seen one is evicted first.
    #[schemars(extend("default" = 10000))]
    max: Option<Spanned<u64>>,
    /// The memory for all remembered bodies together, from `1KiB` to `64GiB`.
    #[schemars(extend("default" = "64MiB"))]
    memory: Option<Spanned<ByteSize>>,
    /// The largest body that is compared, as JSON, from `1B` to `1GiB`. A larger one fails with
    /// `invalid`, status 413.
    #[schemars(extend("default" = "1MiB"))]
    body_max: Option<Spanned<ByteSize>>,
    /// The steps to run if the body has changed. The body is remembered when they have succeeded;
    /// without `steps`, at once.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    steps: Option<Steps>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let slot = context.scope.declare("changes")?;
    let config: ChangesConfig = match node.value {
        config::Value::Null => ChangesConfig::default(),
        _ => config::decode(node, context.report)?,
    };
    let before = context.problems();
    let report = &mut *context.report;
    let max = range::count("max", config.max.as_ref(), 1..=1_000_000, 10_000, report);
    let memory = range::size(
        "memory",
        config.memory.as_ref(),
        range::ALL,
        64 << 20,
        report,
    );
    let body_max = config.body_max.as_ref();
    let body_max = range::size("body_max", body_max, range::ONE, 1 << 20, report);
    if body_max >= memory {
        let span = config.body_max.as_ref().map(|it| it.span);
        let span = span.or(config.memory.as_ref().map(|it| it.span));
        let message =
            "a body of `body_max` does not fit into `memory`: it would never be remembered";
        let diagnostic = report.error(BAD_CHANGES, span.unwrap_or(node.span), message);
        diagnostic.hint("make `memory` larger, or `body_max` smaller");
    }
    let key = node.get("key").map(|node| key::read(node, context));
    let steps = node.get("steps");
    let steps = steps.map(|steps| context.inner_branch("changes", steps));
    if context.problems() > before {
        return None;
    }
    let settings = (
        max,
        memory,
        node.get("key").map(|it| it.to_json().to_string()),
    );
    let table = context.state("changes", settings, || Table::new(max, memory));
    Some(Box::new(Changes {
        key: key.flatten(),
        steps: steps.flatten(),
        slot,
        body_max,
        table,
    }))
}

/// The step.
struct Changes {
    key: Option<KeyTemplate>,
    steps: Option<Block>,
    /// Where `$changes` goes.
    slot: usize,
    body_max: usize,
    table: Arc<Table>,
}

impl Changes {
    async fn run(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let key = match &self.key {
            Some(key) => {
                exchange
                    .preemptible(services, |it| key.make(it, services))
                    .await?
            }
            None => String::new(),
        };
        let now = Arc::new(self.document(exchange, services).await?);
        let Some(steps) = &self.steps else {
            let before = self.table.swap(&key, now.text());
            self.compare(exchange, before, &now, services).await?;
            return Ok(Next::Continue);
        };
        let before = self.table.get(&key);
        if !self
            .compare(exchange, before.clone(), &now, services)
            .await?
        {
            return Ok(Next::Continue);
        }
        let next = steps.run(exchange, services).await?;
        self.table.remember(&key, before.as_ref(), now.text());
        Ok(next)
    }

    /// The body as it is compared, a large one made beside the worker.
    async fn document(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Document, Fault> {
        let body = exchange.preemptible(services, |it| it.value().cloned());
        let body = body.await?;
        let (body_max, limit) = (self.body_max, self.body_max.max(exchange.context.body_max));
        let mut text = Vec::with_capacity(256);
        if expr::json::write(&body, AT_ONCE, &mut text).is_ok() {
            return document(&text, body_max);
        }
        // It is large, or cannot be written, which is found out again.
        let large = move |_: &AtomicBool| {
            let mut text = Vec::with_capacity(2 * AT_ONCE);
            expr::json::write(&body, limit, &mut text).map_err(Fault::expression)?;
            document(&text, body_max)
        };
        beside(services, large).await?
    }

    /// Says in `$changes` how the body differs from the one before; whether it does.
    async fn compare(
        &self,
        exchange: &mut Exchange,
        before: Option<Bytes>,
        now: &Arc<Document>,
        services: &dyn Services,
    ) -> Result<bool, Fault> {
        let Some(before) = before else {
            self.table.count(true);
            exchange.set_slot(self.slot, result(true, true, Value::Null, Value::Null));
            return Ok(true);
        };
        let difference = match before.len().max(now.text().len()) <= AT_ONCE {
            true => difference(&before, now)?,
            false => {
                let now = Arc::clone(now);
                let result = beside(services, move |_| difference(&before, &now)).await??;
                result.iter().for_each(|it| {
                    exchange.hold_large(&it.before);
                    exchange.hold_large(&it.patch);
                });
                result
            }
        };
        self.table.count(difference.is_some());
        let has_changed = difference.is_some();
        let result = match difference {
            Some(it) => result(true, false, it.patch, it.before),
            None => result(false, false, Value::Null, Value::Null),
        };
        exchange.set_slot(self.slot, result);
        Ok(has_changed)
    }
}

/// The document of a text.
///
/// # Errors
/// `invalid` when it is larger than what is compared, or nests too deep.
fn document(text: &[u8], body_max: usize) -> Result<Document, Fault> {
    if text.len() > body_max {
        let detail = "the body is larger than what is compared";
        return Err(Fault::invalid(detail).with_status(413));
    }
    Document::parse(text).map_err(|error| Fault::invalid(format!("the body: {error}")))
}

/// How two bodies differ.
struct Difference {
    /// JSON Patch from the one before to this one.
    patch: Value,
    /// The one before.
    before: Value,
}

/// How a body differs from the one before; `None` when it does not.
fn difference(before: &Bytes, now: &Document) -> Result<Option<Difference>, Fault> {
    let document = Document::parse(before).map_err(Fault::expression)?;
    let patch = match document::diff(&document, now) {
        Change::Nothing => return Ok(None),
        Change::Patch(patch) => value(&patch)?,
        // One operation that puts the whole document there.
        Change::Whole => expr::value::array([object([
            ("op".to_owned(), expr::value::text("replace")),
            ("path".to_owned(), expr::value::text("")),
            ("value".to_owned(), value(now.text())?),
        ])]),
    };
    let before = value(before)?;
    Ok(Some(Difference { patch, before }))
}

fn value(json: &Bytes) -> Result<Value, Fault> {
    expr::json::parse(json, DEPTH_MAX).map_err(Fault::expression)
}

fn result(changed: bool, first: bool, patch: Value, before: Value) -> Value {
    object([
        ("changed".to_owned(), Value::Bool(changed)),
        ("first".to_owned(), Value::Bool(first)),
        ("patch".to_owned(), patch),
        ("before".to_owned(), before),
    ])
}

impl Step for Changes {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.run(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        self.steps.is_some()
    }
}

#[cfg(test)]
mod tests;
