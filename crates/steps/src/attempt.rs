//! `try`: runs steps, handles their failures, and runs others in any case.

use component::block::Block;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::failure::{Handled, Handlers};
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::Node;
use message::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::BAD_BRANCH;
use component::steps::Steps;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "try",
    summary: "Runs steps and handles their failures.",
    documentation: include_str!("attempt.md"),
    example: include_str!("attempt.yaml"),
    schema: config::schema_for::<TryConfig>,
    build,
};

/// Steps, what happens when they fail, and what happens in any case.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "read from the tree, which knows the places")]
struct TryConfig {
    /// The steps to run.
    steps: Steps,
    /// Clauses for failures, as in `on_error`. If a clause ends without a reply, the flow continues
    /// behind `try`.
    catch: Option<Clauses>,
    /// Steps to run in any case, even if the flow ends in `steps` or `catch`. The body that they
    /// leave is ignored.
    finally: Option<Steps>,
}

/// Clauses for failures.
#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "describes the key to the schema")]
struct Clauses(serde::de::IgnoredAny);

impl JsonSchema for Clauses {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Clauses".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "array", "items": { "$ref": "#/$defs/clause" }, "minItems": 1
        })
    }
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: TryConfig = config::decode(node, context.report)?;
    if config.catch.is_none() && config.finally.is_none() {
        let message = "`try` has `catch` or `finally`";
        let diagnostic = context.report.error(BAD_BRANCH, node.span, message);
        diagnostic.hint("write `catch:` with clauses such as `- { on: any, log: failed }`");
        return None;
    }
    let before = context.problems();
    let steps = node
        .get("steps")
        .and_then(|node| context.branch("try", node, false));
    let catch = node
        .get("catch")
        .and_then(|node| context.handlers("catch", node));
    let finally = node
        .get("finally")
        .and_then(|node| context.branch("finally", node, false));
    if finally.as_ref().is_some_and(Block::ends_flow) {
        let span = node.get("finally").map_or(node.span, |node| node.span);
        let message = "`finally` cannot end the flow";
        context.report.error(BAD_BRANCH, span, message);
    }
    let steps = steps?;
    (context.problems() == before).then(|| {
        Box::new(Try {
            steps,
            catch,
            finally,
        }) as Box<dyn Step>
    })
}

/// The step.
struct Try {
    steps: Block,
    catch: Option<Handlers>,
    finally: Option<Block>,
}

impl Try {
    async fn run(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let before = exchange.content.clone();
        let result = match self.steps.run(exchange, services).await {
            Ok(next) => Ok(next),
            Err(fault) => {
                exchange.content = before;
                self.caught(fault, exchange, services).await
            }
        };
        if let Some(finally) = &self.finally {
            let content = exchange.content.clone();
            // A failure here hides the other one from everybody but the log.
            let next = finally.run(exchange, services).await;
            match (next, &result) {
                (Ok(Next::Continue), _) => {}
                (Ok(end), _) => return Ok(end),
                (Err(fault), Err(first)) => {
                    tracing::warn!(
                        target: "flow",
                        flow = &*exchange.context.name,
                        "{first}; then `finally` failed"
                    );
                    return Err(fault);
                }
                (Err(fault), Ok(_)) => return Err(fault),
            }
            exchange.content = content;
        }
        result
    }

    async fn caught(
        &self,
        fault: Fault,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let Some(catch) = &self.catch else {
            return Err(fault);
        };
        match catch.handle(fault, exchange, services).await? {
            Handled::Ended(next) => Ok(next),
            Handled::Done(_) => Ok(Next::Continue),
        }
    }
}

impl Step for Try {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.run(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        self.steps.reads_body()
            || self.catch.as_ref().is_some_and(Handlers::reads_body)
            || self.finally.as_ref().is_some_and(Block::reads_body)
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
