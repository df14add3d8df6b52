//! `set`: gives variables values, one after the other, and leaves the body as it is.

use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::Node;
use message::Fault;

use crate::codes::BAD_VARIABLE;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "set",
    summary: "Sets variables.",
    documentation: include_str!("set.md"),
    example: include_str!("set.yaml"),
    schema,
    build,
};

fn schema() -> serde_json::Value {
    serde_json::json!({
        "type": "object",
        "description": "Variables and their values, with `${ }` in strings. Each may use those \
                        before it.",
        "minProperties": 1,
        "additionalProperties": true
    })
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let before = context.problems();
    config::check_kind(node, schema, context.report);
    let mut variables = Vec::new();
    for entry in node.as_mapping().unwrap_or_default() {
        let value = context.value(&entry.value);
        let slot = context.declare(&entry.key, entry.key_span, BAD_VARIABLE);
        variables.extend(slot.zip(value));
    }
    (context.problems() == before).then(|| Box::new(Set(variables)) as Box<dyn Step>)
}

/// The step.
struct Set(Vec<(usize, ValueTemplate)>);

impl Set {
    fn set(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        set(&self.0, exchange, services)?;
        Ok(Next::Continue)
    }
}

/// Sets variables, all or none: a value that takes long has the step begun again, with the
/// variables as they were.
fn set(
    variables: &[(usize, ValueTemplate)],
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<(), Fault> {
    let Some(((slot, value), others)) = variables.split_first() else {
        return Ok(());
    };
    let value = value.make(exchange, services)?;
    let before = exchange.replace_slot(*slot, value);
    let result = set(others, exchange, services);
    if result.is_err() {
        exchange.set_slot(*slot, before);
    }
    result
}

impl Step for Set {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Done(self.set(exchange, services))
    }

    fn reads_body(&self) -> bool {
        self.0.iter().any(|(_, value)| value.reads_body())
    }
}

#[cfg(test)]
mod tests;
