//! `if` with steps: runs them when a condition holds, or others when it does not.

use component::block::{Block, needs_body};
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::Node;
use expr::jq::Expression;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::map::expression;
use component::steps::Steps;
use config::AnyValue;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "if",
    summary: "Runs steps if a condition holds.",
    documentation: include_str!("branch.md"),
    example: include_str!("branch.yaml"),
    schema: config::schema_for::<IfConfig>,
    build,
};

/// A condition and what depends on it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read from the tree, which knows the places")]
struct IfConfig {
    /// The condition, a jq expression. It holds unless the result is false or null.
    when: AnyValue,
    /// The steps to run if it holds.
    then: Steps,
    /// The steps to run if it does not.
    r#else: Option<Steps>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let _: IfConfig = config::decode(node, context.report)?;
    let condition = node.get("when").and_then(|node| expression(node, context));
    let is_last = context.is_last;
    let then = node
        .get("then")
        .and_then(|node| context.branch("then", node, is_last));
    let otherwise = match node.get("else") {
        Some(node) => Some(context.branch("else", node, is_last)?),
        None => None,
    };
    Some(Box::new(If {
        condition: condition?,
        then: then?,
        otherwise,
    }))
}

/// The step.
struct If {
    condition: Expression,
    then: Block,
    otherwise: Option<Block>,
}

impl Step for If {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        let block = match exchange.holds(&self.condition, services) {
            Err(fault) => return Progress::Done(Err(fault)),
            Ok(true) => Some(&self.then),
            Ok(false) => self.otherwise.as_ref(),
        };
        match block {
            Some(block) => Progress::Waits(block.start(exchange, services)),
            None => Progress::Done(Ok(Next::Continue)),
        }
    }

    fn reads_body(&self) -> bool {
        needs_body(self.condition.uses_input(), self.condition.variables())
            || self.then.reads_body()
            || self.otherwise.as_ref().is_some_and(Block::reads_body)
    }

    fn streams(&self) -> bool {
        self.then.streams() || self.otherwise.as_ref().is_some_and(Block::streams)
    }

    fn ends_flow(&self) -> bool {
        self.then.ends_flow() && self.otherwise.as_ref().is_some_and(Block::ends_flow)
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
