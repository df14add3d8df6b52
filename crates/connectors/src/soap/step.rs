//! `soap`: calls an operation of a SOAP service.

use std::sync::Arc;

use component::block::needs_body;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{Node, Spanned, Value as Yaml};
use expr::template::Template;
use expr::{Value, value};
use message::{Fault, Field, Headers};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::ask;
use crate::codes::BAD_SOAP;
use crate::named;
use crate::soap::connection::Service;
use config::AnyValue;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "soap",
    summary: "Calls an operation of a SOAP service.",
    documentation: include_str!("step.md"),
    example: include_str!("step.yaml"),
    schema: config::schema_for::<SoapConfig>,
    build,
};

/// A call of a SOAP service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SoapConfig {
    /// The connection: a `soap` one of `use:`.
    to: Spanned<String>,
    /// The operation, the same for every message, as the WSDL file calls it.
    operation: Spanned<String>,
    /// The content of the SOAP body, with `${ }` in its texts. The default is the message's body.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    body: Option<AnyValue>,
    /// Header lines of the HTTP request, with `${ }` in their texts. One that is null is left out.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    headers: Option<AnyValue>,
}

/// The step.
pub struct Soap {
    /// The service.
    pub service: Arc<Service>,
    /// The operation.
    pub operation: String,
    to: String,
    body: Option<ValueTemplate>,
    headers: Option<Vec<(String, Template)>>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: SoapConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let service = named::connection::<Service>(&config.to, &["soap"], context);
    let operation = &config.operation;
    let hint = "write a step for each operation, under `choose`";
    let is_fixed = named::is_fixed("operation", hint, operation, context);
    if is_fixed && !is_element(&operation.value) {
        context
            .report
            .error(BAD_SOAP, operation.span, "this is no name of an operation")
            .hint("a name has letters, digits, `_`, `-` and `.`, and begins with a letter or `_`");
    }
    let body = match node.get("body") {
        Some(body) => context.value(body),
        None => None,
    };
    let headers = node
        .get("headers")
        .map(|headers| read_headers(headers, context));
    let service = service?;
    (context.problems() == before).then(|| {
        Box::new(Soap {
            service,
            to: config.to.value,
            operation: config.operation.value,
            body,
            headers,
        }) as _
    })
}

/// A name without a colon (Namespaces in XML 1.0, section 3).
fn is_element(name: &str) -> bool {
    let begins = |it: char| it.is_alphabetic() || it == '_';
    let goes_on = |it: char| it.is_alphanumeric() || "_-.".contains(it);
    name.starts_with(begins) && name.chars().all(goes_on)
}

fn read_headers(node: &Node, context: &mut BuildContext<'_>) -> Vec<(String, Template)> {
    let Some(entries) = node.as_mapping() else {
        let message = format!("`headers` is a mapping, not {}", node.type_name());
        context.report.error(BAD_SOAP, node.span, message);
        return Vec::new();
    };
    let mut lines: Vec<(String, Template)> = Vec::new();
    for entry in entries {
        let mut refuse = |span, message: &str, hint: &str| {
            let diagnostic = context.report.error(BAD_SOAP, span, message);
            diagnostic.hint(hint);
        };
        let name = entry.key.as_str();
        if !Headers::is_name(name) {
            let hint = "a name has letters, digits and `-`, without spaces or a colon";
            refuse(entry.key_span, "this is no name of a header", hint);
        } else if is_reserved(name) {
            let hint = "the engine writes it for each call";
            refuse(entry.key_span, "this header belongs to the engine", hint);
        }
        if lines
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            let hint = "names of headers are the same in capitals and small letters";
            refuse(entry.key_span, "this header stands twice", hint);
        }
        let text = match &entry.value.value {
            Yaml::String(text) => text.clone(),
            Yaml::Number(number) => number.text().to_owned(),
            Yaml::Bool(value) => value.to_string(),
            _ => {
                let hint = "it is a text, a number or a boolean";
                refuse(entry.value.span, "this is no value of a header", hint);
                continue;
            }
        };
        if !Template::has_holes(&text) && !Headers::is_value(text.as_bytes()) {
            let hint = "a value is one line, without control characters and white space around it";
            refuse(entry.value.span, "this is no value of a header", hint);
        }
        let span = entry.value.span;
        let template = context.template(&Spanned { value: text, span });
        lines.extend(template.map(|template| (name.to_owned(), template)));
    }
    lines
}

fn is_reserved(name: &str) -> bool {
    let field = Field::of(name.as_bytes());
    let is_ours = ["Content-Type", "Content-Encoding", "SOAPAction", "Expect"];
    field == Field::Host
        || field.is_framing()
        || field.is_hop_by_hop()
        || is_ours.iter().any(|it| it.eq_ignore_ascii_case(name))
}

impl Soap {
    async fn call(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let sent = self.shown(exchange, services)?;
        let reply = ask::ask(("soap", &self.to), sent, exchange, services).await?;
        let failure = ask::failure(&reply);
        exchange.take_over(reply);
        match failure {
            Some(fault) => Err(fault),
            None => Ok(Next::Continue),
        }
    }

    /// The call as whoever stands in for the service sees it.
    fn shown(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Value, Fault> {
        let body = match &self.body {
            Some(body) => body.make(exchange, services)?,
            None => exchange.value()?.clone(),
        };
        let mut members = vec![
            ("operation".to_owned(), value::text(self.operation.as_str())),
            ("body".to_owned(), body),
        ];
        if let Some(headers) = &self.headers {
            let mut lines = Vec::new();
            for (name, template) in headers {
                let made = exchange.fill(template, services)?;
                if !matches!(made, Value::Null) {
                    lines.push((name.clone(), value::text(line(name, &made)?)));
                }
            }
            members.push(("headers".to_owned(), value::object(lines)));
        }
        Ok(value::object(members))
    }
}

/// The value of a header line.
fn line(name: &str, made: &Value) -> Result<String, Fault> {
    let Some(text) = value::scalar_text(made) else {
        let kind = value::kind(made);
        let cause = format_args!("the header {name} is a text, not {kind}");
        return Err(Fault::expression(cause));
    };
    if !Headers::is_value(text.as_bytes()) {
        let detail = format!("the header {name} cannot have this value");
        return Err(Fault::invalid(detail));
    }
    Ok(text.into_owned())
}

impl Step for Soap {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.call(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        let body = self.body.as_ref().is_none_or(ValueTemplate::reads_body);
        let mut lines = self.headers.iter().flatten();
        body || lines.any(|(_, line)| needs_body(line.uses_input(), line.variables()))
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
