//! `parallel`: runs branches at the same time and makes an object of what they give.

use component::block::Block;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::Node;
use expr::Value;
use message::Fault;

use crate::branches::{self, Branches};
use crate::codes::BAD_BRANCH;
use crate::concurrent::Crowd;
use crate::inner::{self, Ran};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "parallel",
    summary: "Runs branches at the same time.",
    documentation: include_str!("parallel.md"),
    example: include_str!("parallel.yaml"),
    schema: config::schema_for::<Branches>,
    build,
};

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let entries = node.as_mapping().unwrap_or_default();
    if entries.is_empty() {
        let message = format!(
            "`parallel` is a mapping of branches, not {}",
            node.type_name()
        );
        let diagnostic = context.report.error(BAD_BRANCH, node.span, message);
        diagnostic.hint("write the name of each branch and below it its steps");
        return None;
    }
    let before = context.problems();
    let branches = branches::read_named(entries, context);
    (context.problems() == before).then(|| Box::new(Parallel(branches)) as Box<dyn Step>)
}

/// The step.
struct Parallel(Vec<(String, Block)>);

impl Parallel {
    async fn run(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        // Decoded once, not by each branch. One that is not to be decoded is for them to tell.
        let _ = exchange
            .preemptible(services, |it| it.value().map(|_| ()))
            .await;
        exchange.follow_copies();
        let mut crowd = Crowd::new();
        for (number, (_, block)) in self.0.iter().enumerate() {
            let work = inner::for_value(block, exchange.clone(), true, services);
            crowd.push(number, work);
        }
        let mut bodies = vec![Value::Null; self.0.len()];
        while let Some((number, result)) = crowd.next().await {
            match result? {
                Ran::Ended(end) => return Ok(end),
                Ran::Done(body) => {
                    if let Some(place) = bodies.get_mut(number) {
                        *place = body;
                    }
                }
            }
        }
        let names = self.0.iter().map(|(name, _)| name.clone());
        exchange.set_value(expr::value::object(names.zip(bodies)));
        Ok(Next::Continue)
    }
}

impl Step for Parallel {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.run(exchange, services)))
    }

    fn ends_flow(&self) -> bool {
        self.0.iter().any(|(_, block)| block.ends_flow())
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
