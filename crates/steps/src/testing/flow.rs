//! A whole flow for tests: steps within steps, read from YAML.

use std::sync::Arc;

use component::block::Block;
use component::definition::BlockReader as _;
use component::exchange::{Exchange, FlowContext};
use component::handler::{Callee, CallerContext, LocalFuture, Services};
use component::scope::Scope;
use component::state::States;
use component::step::Next;
use message::{Fault, Reply, Request};

use super::blocks::TestBlocks;
use super::services::FakeServices;
use super::{LAST, read, request};

/// A flow of the steps of this crate.
pub(crate) struct TestFlow {
    block: Block,
    context: Arc<FlowContext>,
    states: States,
}

/// Builds a flow from a YAML list of steps, or tells every problem, warnings too.
pub(crate) fn flow(yaml: &str) -> Result<TestFlow, Vec<String>> {
    let (mut scope, states) = (Scope::default(), States::default());
    let block = read(yaml, LAST, (&mut scope, &states), |node, context| {
        TestBlocks.read_block(node, true, context)
    })?;
    let context = FlowContext {
        slots: scope.slots(),
        keeps_original: scope.uses_original(),
        ..FlowContext::new("test")
    };
    Ok(TestFlow {
        block,
        context: Arc::new(context),
        states,
    })
}

/// Builds a flow that has no problem.
pub(crate) fn sound_flow(yaml: &str) -> TestFlow {
    flow(yaml).unwrap_or_else(|problems| panic!("{yaml}: {problems:?}"))
}

impl TestFlow {
    /// A message with a JSON body.
    pub fn exchange(&self, body: &str) -> Exchange {
        self.exchange_of(&[("Content-Type", "application/json")], body)
    }

    /// A message with these header lines and this body.
    pub fn exchange_of(&self, lines: &[(&str, &str)], body: &str) -> Exchange {
        self.exchange_of_bytes(lines, body.as_bytes())
    }

    /// A message with these header lines and this body.
    pub fn exchange_of_bytes(&self, lines: &[(&str, &str)], body: &[u8]) -> Exchange {
        Exchange::new(&self.context, request(lines, body))
    }

    /// Runs the flow on one message; what it leaves to be done is not driven.
    pub async fn start(&self, body: &str, services: &FakeServices) -> Result<String, Fault> {
        let mut exchange = self.exchange(body);
        self.answer(&mut exchange, services).await
    }

    /// Runs the flow on one message to its end, and what it leaves to be done.
    pub fn run(&self, body: &str, services: &FakeServices) -> Result<String, Fault> {
        services.run_to_end(self.start(body, services))
    }

    /// The body that a flow leaves, as JSON, or the reply that ends it, as `STATUS BODY`.
    pub async fn answer(
        &self,
        exchange: &mut Exchange,
        services: &FakeServices,
    ) -> Result<String, Fault> {
        match self.block.run(exchange, services).await? {
            Next::Continue => Ok(expr::value::shown(exchange.value()?)),
            Next::Reply(reply) => {
                let body = String::from_utf8_lossy(reply.body.as_bytes());
                Ok(format!("{} {body}", reply.status))
            }
            Next::Forward(_) => Ok("forwarded".to_owned()),
        }
    }

    /// Whether any of it needs the body in memory, and whether it always ends the flow.
    pub fn traits(&self) -> (bool, bool) {
        (self.block.reads_body(), self.block.ends_flow())
    }

    /// What the admin port shows of the flow's states, as `NAME VALUE`.
    pub fn measures(&self, services: &FakeServices) -> Vec<String> {
        let measures = self.states.measures(services.now()).into_iter();
        measures
            .map(|(_, measure)| format!("{} {}", measure.name, measure.value))
            .collect()
    }
}

impl Callee for TestFlow {
    fn call<'a>(
        &'a self,
        request: Request,
        caller: CallerContext,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(async move {
            let mut exchange = Exchange::new(&self.context, request);
            exchange.depth = caller.depth;
            exchange.deadline = caller.deadline;
            match self.block.run(&mut exchange, services).await? {
                Next::Reply(reply) => Ok(reply),
                _ => exchange.take_reply(200),
            }
        })
    }
}
