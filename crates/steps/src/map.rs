//! `map`: makes a new body of the message by an expression, or of a YAML value with `${ }` in it.

use component::block::needs_body;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{Entry, Node, Spanned, Value};
use expr::jq::Expression;
use message::Fault;

use crate::codes::NOT_EVALUATED;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "map",
    summary: "Transforms the body with a jq expression.",
    documentation: include_str!("map.md"),
    example: include_str!("map.yaml"),
    schema,
    build,
};

fn schema() -> serde_json::Value {
    serde_json::json!({
        "description": "A jq expression, or a mapping or list with `${ }` in its strings.",
        "type": ["string", "object", "array", "number", "boolean"]
    })
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let before = context.problems();
    let mapping = match &node.value {
        Value::Mapping(_) | Value::Sequence(_) => {
            refuse_bare(node, context);
            Mapping::Value(context.value(node)?)
        }
        _ => Mapping::Expression(Box::new(expression(node, context)?)),
    };
    (context.problems() == before).then(|| Box::new(Map(mapping)) as Box<dyn Step>)
}

/// Reads a bare expression; numbers and booleans of YAML are expressions too.
pub(crate) fn expression(node: &Node, context: &mut BuildContext<'_>) -> Option<Expression> {
    let value = match &node.value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.json_text()?,
        Value::Bool(value) => value.to_string(),
        _ => {
            let message = format!("an expression is a text, not {}", node.type_name());
            let diagnostic = context.report.error(NOT_EVALUATED, node.span, message);
            diagnostic.hint("put an expression with `{` or `[` into quotes, or below `|`");
            return None;
        }
    };
    let span = node.span;
    context.expression(&Spanned { value, span })
}

/// In a YAML value a text that looks like an expression is none, which is hardly meant.
fn refuse_bare(node: &Node, context: &mut BuildContext<'_>) {
    match &node.value {
        Value::String(text) => {
            let looks = text.starts_with('.') || text.starts_with('$') && !text.starts_with("${");
            if looks && !text.contains("${") {
                let shown = text.chars().take(40).collect::<String>();
                let message = "this text is not evaluated";
                let diagnostic = context.report.error(NOT_EVALUATED, node.span, message);
                diagnostic.hint(format!("write \"${{ {} }}\"", shown.escape_debug()));
            }
        }
        Value::Sequence(items) => items.iter().for_each(|item| refuse_bare(item, context)),
        Value::Mapping(entries) => {
            let values = entries.iter().map(|entry: &Entry| &entry.value);
            values.for_each(|value| refuse_bare(value, context));
        }
        _ => {}
    }
}

enum Mapping {
    Expression(Box<Expression>),
    Value(ValueTemplate),
}

/// The step.
struct Map(Mapping);

impl Map {
    fn make(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        match &self.0 {
            Mapping::Expression(expression) => exchange.map(expression, services)?,
            Mapping::Value(value) => {
                let value = value.make(exchange, services)?;
                exchange.set_value(value);
            }
        }
        Ok(Next::Continue)
    }
}

impl Step for Map {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Done(self.make(exchange, services))
    }

    fn reads_body(&self) -> bool {
        match &self.0 {
            Mapping::Expression(it) => needs_body(it.uses_input(), it.variables()),
            Mapping::Value(value) => value.reads_body(),
        }
    }
}

#[cfg(test)]
mod tests;
