//! `each`: runs steps for every item of a list (Splitter) and makes a list of what they give.

use component::block::{Block, needs_body};
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::{LocalFuture, Services};
use component::step::{Next, Progress, Step};
use component::variables::fault_value;
use config::{Node, Span, Spanned};
use expr::Value;
use expr::jq::Expression;
use message::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codes::{BAD_VARIABLE, NO_EFFECT};
use crate::concurrent::Crowd;
use crate::inner::{self, Ran};
use crate::map::expression;
use crate::range;
use component::steps::Steps;
use config::AnyValue;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "each",
    summary: "Runs steps for each item of a list.",
    documentation: include_str!("each.md"),
    example: include_str!("each.yaml"),
    schema: config::schema_for::<EachConfig>,
    build,
};

/// A list and what is done with each of its items.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EachConfig {
    /// A jq expression for the list.
    #[allow(dead_code, reason = "read from the tree, which knows the place")]
    r#in: AnyValue,
    /// The variable with the item, which is also the body `.` of the steps.
    #[schemars(extend("default" = "item"))]
    r#as: Option<Spanned<String>>,
    /// The variable with the index of the item, from 0.
    #[schemars(extend("default" = "index"))]
    index: Option<Spanned<String>>,
    /// The number of items that are processed at the same time, from 1 to 1000.
    #[schemars(extend("default" = 1))]
    parallel: Option<Spanned<u64>>,
    /// The steps for each item.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    steps: Steps,
    /// Whether the list of results becomes the body; otherwise the body stays as it was.
    #[schemars(extend("default" = true))]
    collect: Option<bool>,
    /// What happens if the steps fail for an item.
    #[serde(default)]
    on_item_error: OnItemError,
    /// The maximum length of the list, from 1 to 1000000. A longer list fails with `invalid`.
    #[schemars(extend("default" = 10000))]
    max: Option<Spanned<u64>>,
}

/// What happens if the steps fail for an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum OnItemError {
    /// The first failure cancels the other items and fails the step.
    #[default]
    Fail,
    /// The item is left out of the result.
    Skip,
    /// `{ error, index, item }` stands in its place, where `error` is as `$error` in a handler.
    Collect,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: EachConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let list = node.get("in").and_then(|node| expression(node, context));
    let parallel = config.parallel.as_ref();
    let parallel = range::count("parallel", parallel, 1..=1000, 1, context.report);
    let max = range::count(
        "max",
        config.max.as_ref(),
        1..=1_000_000,
        10_000,
        context.report,
    );
    let collect = config.collect.unwrap_or(true);
    if !collect && config.on_item_error == OnItemError::Collect {
        let span = node.get("on_item_error").map_or(node.span, |it| it.span);
        let message = "`on_item_error: collect` has no effect without `collect`";
        let diagnostic = context.report.error(NO_EFFECT, span, message);
        diagnostic.hint("write `on_item_error: skip`, or take `collect: false` out");
    }
    let mark = context.scope.enter();
    let names = read_names(&config, node.span, context);
    let steps = node
        .get("steps")
        .and_then(|node| context.branch("each", node, false));
    context.scope.leave(mark);
    let (list, (item, index), steps) = (list?, names?, steps?);
    let each = Each {
        list,
        item,
        index,
        parallel,
        steps,
        collect,
        on_item_error: config.on_item_error,
        max,
    };
    (context.problems() == before).then(|| Box::new(each) as Box<dyn Step>)
}

/// Makes the variables of item and place usable, and says where they go.
fn read_names(
    config: &EachConfig,
    span: Span,
    context: &mut BuildContext<'_>,
) -> Option<(usize, usize)> {
    let name = |name: Option<&Spanned<String>>, default: &str| match name {
        Some(name) => (name.value.clone(), name.span),
        None => (default.to_owned(), span),
    };
    let (item, item_span) = name(config.r#as.as_ref(), "item");
    let (index, index_span) = name(config.index.as_ref(), "index");
    if item == index {
        let message = format!("`${item}` cannot be both the item and its place");
        let diagnostic = context.report.error(BAD_VARIABLE, index_span, message);
        diagnostic.hint("choose another name for one of them, with `as` or `index`");
        return None;
    }
    let item = context.declare(&item, item_span, BAD_VARIABLE);
    let index = context.declare(&index, index_span, BAD_VARIABLE);
    item.zip(index)
}

/// The step.
struct Each {
    list: Expression,
    item: usize,
    index: usize,
    parallel: usize,
    steps: Block,
    collect: bool,
    on_item_error: OnItemError,
    max: usize,
}

type Run<'a> = LocalFuture<'a, Result<Ran<Value>, Fault>>;

impl Each {
    async fn run(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let list = exchange.preemptible(services, |it| it.evaluate(&self.list, services));
        let list = list.await?;
        let items = self.items(&list)?;
        let mut results: Vec<Option<Value>> = Vec::new();
        if self.collect {
            results.resize(items.len(), None);
        }
        let mut waiting = items.iter().enumerate();
        exchange.follow_copies();
        let mut crowd = Crowd::new();
        loop {
            while crowd.len() < self.parallel
                && let Some((at, item)) = waiting.next()
            {
                crowd.push(at, self.start(at, item, exchange, services));
            }
            let Some((at, result)) = crowd.next().await else {
                break;
            };
            let result = match result {
                Ok(Ran::Ended(end)) => return Ok(end),
                Ok(Ran::Done(body)) => Some(body),
                Err(fault) => self.failed(fault, (at, items.get(at)), exchange)?,
            };
            if let Some(place) = results.get_mut(at) {
                *place = result;
            }
        }
        drop(crowd);
        if self.collect {
            exchange.set_value(expr::value::array(results.into_iter().flatten()));
        }
        Ok(Next::Continue)
    }

    fn items<'v>(&self, list: &'v Value) -> Result<&'v [Value], Fault> {
        let Some(items) = expr::value::as_array(list) else {
            let kind = expr::value::kind(list);
            let hint = match list {
                Value::Null => "; write `// []` behind it if the list may be missing",
                _ => "",
            };
            let text = self.list.text().trim();
            let cause = format_args!("`{text}` gives {kind}, not an array{hint}");
            return Err(Fault::expression(cause));
        };
        if items.len() > self.max {
            let cause = format_args!("{} items, at most {}", items.len(), self.max);
            return Err(Fault::invalid("a list has too many items").with_cause(cause));
        }
        Ok(items)
    }

    fn start<'a>(
        &'a self,
        at: usize,
        item: &Value,
        exchange: &Exchange,
        services: &'a dyn Services,
    ) -> Run<'a> {
        let mut copy = exchange.clone();
        copy.set_value(item.clone());
        copy.set_slot(self.item, item.clone());
        copy.set_slot(self.index, expr::value::integer(at as i64));
        inner::for_value(&self.steps, copy, self.collect, services)
    }

    /// What stands in the result in place of an item that failed.
    fn failed(
        &self,
        fault: Fault,
        (at, item): (usize, Option<&Value>),
        exchange: &Exchange,
    ) -> Result<Option<Value>, Fault> {
        if self.on_item_error == OnItemError::Fail {
            return Err(fault);
        }
        tracing::warn!(
            target: "flow",
            flow = &*exchange.context.name,
            step = fault.step.as_deref().unwrap_or_default(),
            kind = fault.name(),
            cause = fault.cause.as_deref().unwrap_or_default(),
            "{}; item {at} of `{}`", fault.detail, exchange.at
        );
        let is_kept = self.on_item_error == OnItemError::Collect;
        Ok(is_kept.then(|| {
            expr::value::object([
                ("error".to_owned(), fault_value(&fault)),
                ("index".to_owned(), expr::value::integer(at as i64)),
                ("item".to_owned(), item.cloned().unwrap_or_default()),
            ])
        }))
    }
}

impl Step for Each {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.run(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        needs_body(self.list.uses_input(), self.list.variables()) || self.steps.reads_body()
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
