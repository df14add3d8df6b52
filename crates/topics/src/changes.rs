//! `changes`: compares the body with the one that came before under the same key.

mod table;

use std::sync::Arc;

use bytes::Bytes;
use component::block::Block;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
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
        let now = exchange
            .preemptible(services, |it| self.document(it))
            .await?;
        let Some(steps) = &self.steps else {
            let before = self.table.swap(&key, now.text());
            exchange.set_slot(self.slot, self.result(before.as_ref(), &now)?);
            return Ok(Next::Continue);
        };
        let before = self.table.get(&key);
        let result = self.result(before.as_ref(), &now)?;
        let has_changed = is_changed(&result);
        exchange.set_slot(self.slot, result);
        if !has_changed {
            return Ok(Next::Continue);
        }
        let next = steps.run(exchange, services).await?;
        self.table.remember(&key, before.as_ref(), now.text());
        Ok(next)
    }

    /// The body as it is compared.
    fn document(&self, exchange: &mut Exchange) -> Result<Document, Fault> {
        let limit = self.body_max.max(exchange.context.body_max);
        let value = exchange.value()?;
        let mut text = Vec::with_capacity(256);
        expr::json::write(value, limit, &mut text).map_err(Fault::expression)?;
        if text.len() > self.body_max {
            let detail = "the body is larger than what is compared";
            return Err(Fault::invalid(detail).with_status(413));
        }
        Document::parse(&text).map_err(|error| Fault::invalid(format!("the body: {error}")))
    }

    /// What `$changes` is.
    fn result(&self, before: Option<&Bytes>, now: &Document) -> Result<Value, Fault> {
        let Some(before) = before else {
            self.table.count(true);
            return Ok(result(true, true, Value::Null, Value::Null));
        };
        let document = Document::parse(before).map_err(Fault::expression)?;
        let patch = match document::diff(&document, now) {
            Change::Nothing => {
                self.table.count(false);
                return Ok(result(false, false, Value::Null, Value::Null));
            }
            Change::Patch(patch) => value(&patch)?,
            // One operation that puts the whole document there.
            Change::Whole => expr::value::array([object([
                ("op".to_owned(), expr::value::text("replace")),
                ("path".to_owned(), expr::value::text("")),
                ("value".to_owned(), value(now.text())?),
            ])]),
        };
        self.table.count(true);
        Ok(result(true, false, patch, value(before)?))
    }
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

fn is_changed(result: &Value) -> bool {
    expr::value::get(result, "changed").is_some_and(expr::value::is_truthy)
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
