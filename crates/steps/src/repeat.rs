//! `while`: runs steps again and again as long as a condition holds.

use std::time::Duration;

use component::block::{Block, needs_body};
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::{Node, Spanned};
use expr::jq::Expression;
use message::{Fault, Kind, Origin};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::BAD_VARIABLE;
use crate::map::expression;
use crate::range;
use component::long_work::{ROW_ROUNDS, yield_now};
use component::steps::Steps;
use config::AnyValue;

/// After how many rounds others of the worker have their turn.
const ROW_MAX: usize = 64;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "while",
    summary: "Repeats steps while a condition holds.",
    documentation: include_str!("repeat.md"),
    example: include_str!("repeat.yaml"),
    schema: config::schema_for::<WhileConfig>,
    build,
};

/// A condition and what is done as long as it holds.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WhileConfig {
    /// The condition, evaluated before each round; it holds unless the result is false or null.
    /// `$round` is the number of completed rounds.
    #[allow(dead_code, reason = "read from the tree, which knows the place")]
    when: AnyValue,
    /// The steps of each round.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    steps: Steps,
    /// The largest number of rounds, from 1 to 1000000. If the condition still holds then, the step
    /// fails with `expression`.
    #[schemars(extend("default" = 1000))]
    max: Option<Spanned<u64>>,
    /// The delay between two rounds, from 1ms to 1d. The default is none.
    delay: Option<Spanned<config::Duration>>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: WhileConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let max = config.max.as_ref();
    let max = range::count("max", max, 1..=1_000_000, 1000, context.report);
    let delay = config.delay.as_ref();
    let delay = delay.map(|delay| range::time("delay", delay, context.report));
    let mark = context.scope.enter();
    let round = context.declare("round", node.span, BAD_VARIABLE);
    let condition = node.get("when").and_then(|node| expression(node, context));
    let steps = node
        .get("steps")
        .and_then(|node| context.branch("while", node, false));
    context.scope.leave(mark);
    let step = While {
        condition: condition?,
        round: round?,
        steps: steps?,
        max,
        delay,
    };
    (context.problems() == before).then(|| Box::new(step) as Box<dyn Step>)
}

/// The step.
struct While {
    condition: Expression,
    round: usize,
    steps: Block,
    max: usize,
    delay: Option<Duration>,
}

impl While {
    async fn run(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        // Another `while` around this one counts in the same place.
        let outer = exchange.slot(self.round);
        let result = self.rounds(exchange, services).await;
        exchange.set_slot(self.round, outer);
        result
    }

    async fn rounds(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let mut rounds = 0;
        let mut dear = expr::jq::rounds();
        loop {
            exchange.set_slot(self.round, expr::value::integer(rounds as i64));
            let holds = exchange.preemptible(services, |it| it.holds(&self.condition, services));
            if !holds.await? {
                return Ok(Next::Continue);
            }
            if rounds == self.max {
                let detail = "the condition of a loop holds for too many rounds";
                let fault = Fault::new(Kind::Expression, Origin::Engine, detail);
                return Err(fault.with_cause(format_args!("at most {rounds} rounds")));
            }
            if rounds > 0 {
                let is_dear = expr::jq::rounds().wrapping_sub(dear) >= ROW_ROUNDS;
                self.pause(is_dear || rounds.is_multiple_of(ROW_MAX), services)
                    .await;
                if is_dear {
                    dear = expr::jq::rounds();
                }
            }
            match self.steps.run(exchange, services).await? {
                Next::Continue => rounds += 1,
                end => return Ok(end),
            }
        }
    }

    async fn pause(&self, is_long: bool, services: &dyn Services) {
        match self.delay {
            Some(delay) => services.sleep(delay).await,
            None if is_long => yield_now().await,
            None => {}
        }
    }
}

impl Step for While {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.run(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        needs_body(self.condition.uses_input(), self.condition.variables())
            || self.steps.reads_body()
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
