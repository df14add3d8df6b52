//! `call`: runs another flow on the message and goes on with its result.

use std::sync::Arc;

use component::content::Content;
use component::definition::{BuildContext, FlowCall, StepDefinition};
use component::exchange::Exchange;
use component::handler::{CallerContext, Outbound, Services};
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{Node, Spanned, Value};
use message::{Fault, Kind, Origin, Reply};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::status::status_fault;
use config::AnyValue;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "call",
    summary: "Calls another flow and continues with its result.",
    documentation: include_str!("call.md"),
    example: include_str!("call.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// The mapping form of `call`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CallConfig {
    /// The name of the flow, which has `from: call`.
    flow: Spanned<String>,
    /// The body for the called flow, with `${ }` in its strings. The default is the message's body.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    body: Option<AnyValue>,
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Call".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<CallConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config = match &node.value {
        Value::String(name) => CallConfig {
            flow: Spanned {
                value: name.clone(),
                span: node.span,
            },
            body: None,
        },
        Value::Mapping(_) => config::decode(node, context.report)?,
        _ => {
            config::check_kind(node, DEFINITION.schema, context.report);
            return None;
        }
    };
    let body = match node.get("body") {
        Some(body) => Some(context.value(body)?),
        None => None,
    };
    context.calls.push(FlowCall {
        flow: config.flow.clone(),
        entry: None,
    });
    Some(Box::new(CallFlow {
        flow: config.flow.value,
        body,
    }))
}

/// The step.
struct CallFlow {
    flow: String,
    body: Option<ValueTemplate>,
}

impl CallFlow {
    async fn call(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        if let Some(body) = &self.body {
            let value = exchange.preemptible(services, |it| body.make(it, services));
            let value = value.await?;
            exchange.content = Content::of_value(value);
        }
        let reply = self.ask(exchange, services).await?;
        if reply.status >= 300 {
            return Err(status_fault(&reply, services));
        }
        exchange.take_over(reply);
        Ok(Next::Continue)
    }

    async fn ask(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Reply, Fault> {
        let step = Arc::clone(&exchange.at);
        let outbound = Outbound {
            verb: DEFINITION.name,
            step: &step,
            connection: &self.flow,
        };
        if let Some(reply) = services.stand_in(outbound, exchange) {
            return reply.await;
        }
        let Some(callee) = services.flow(&self.flow) else {
            let detail = "a called flow is not there any more";
            let fault = Fault::new(Kind::Internal, Origin::Engine, detail);
            return Err(fault.with_cause(&self.flow));
        };
        let request = exchange
            .preemptible(services, Exchange::take_request)
            .await?;
        let caller = CallerContext {
            depth: exchange.depth + 1,
            deadline: exchange.deadline,
        };
        callee.call(request, caller, services).await
    }
}

impl Step for CallFlow {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.call(exchange, services)))
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
