//! `first`: runs branches at the same time; the first that succeeds counts.

use component::block::Block;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::{Node, Value};
use message::{Fault, Kind, Origin};

use crate::branches;
use crate::codes::BAD_BRANCH;
use crate::concurrent::Crowd;
use crate::inner::{self, Ran};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "first",
    summary: "Runs branches at the same time and takes the first result.",
    documentation: include_str!("first.md"),
    example: include_str!("first.yaml"),
    schema,
    build,
};

fn schema() -> serde_json::Value {
    let branch = branches::branch_schema();
    serde_json::json!({
        "description": "Branches, as a list or by names: each a list of steps or one step.",
        "anyOf": [
            { "type": "array", "minItems": 2, "items": branch },
            { "type": "object", "minProperties": 2, "additionalProperties": branch }
        ]
    })
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let before = context.problems();
    let branches = match &node.value {
        Value::Sequence(items) if items.len() > 1 => read_listed(items, context),
        Value::Mapping(entries) if entries.len() > 1 => branches::read_named(entries, context),
        Value::Sequence(_) | Value::Mapping(_) => {
            let message = "`first` has at least two branches";
            let diagnostic = context.report.error(BAD_BRANCH, node.span, message);
            diagnostic.hint("each is a list of steps, or one step");
            return None;
        }
        _ => {
            let message = format!("`first` is a list of branches, not {}", node.type_name());
            let diagnostic = context.report.error(BAD_BRANCH, node.span, message);
            diagnostic.hint("each is a list of steps, or one step");
            return None;
        }
    };
    let blocks = branches.into_iter().map(|(_, block)| block).collect();
    (context.problems() == before).then(|| Box::new(First(blocks)) as Box<dyn Step>)
}

fn read_listed(items: &[Node], context: &mut BuildContext<'_>) -> Vec<(String, Block)> {
    let mut branches = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let name = format!("branch{}", at + 1);
        let block = branches::read(&name, item, context);
        branches.extend(block.map(|block| (name, block)));
    }
    branches
}

/// The step.
struct First(Vec<Block>);

impl First {
    async fn run(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        exchange.follow_copies();
        let mut crowd = Crowd::new();
        for (number, block) in self.0.iter().enumerate() {
            crowd.push(
                number,
                inner::for_content(block, exchange.clone(), services),
            );
        }
        let mut last = Fault::new(Kind::Internal, Origin::Engine, "no branch was run");
        while let Some((_, result)) = crowd.next().await {
            match result {
                Ok(Ran::Ended(end)) => return Ok(end),
                Ok(Ran::Done(left)) => {
                    left.put(exchange);
                    return Ok(Next::Continue);
                }
                Err(fault) => {
                    log_failure(exchange, &fault);
                    last = fault;
                }
            }
        }
        Err(last)
    }
}

/// Another branch may hide it.
fn log_failure(exchange: &Exchange, fault: &Fault) {
    tracing::debug!(
        target: "flow",
        flow = &*exchange.context.name,
        step = fault.step.as_deref().unwrap_or_default(),
        kind = fault.name(),
        cause = fault.cause.as_deref().unwrap_or_default(),
        "{}; another branch of `{}` may succeed", fault.detail, exchange.at
    );
}

impl Step for First {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.run(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        self.0.iter().any(Block::reads_body)
    }

    fn ends_flow(&self) -> bool {
        self.0.iter().all(Block::ends_flow)
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
