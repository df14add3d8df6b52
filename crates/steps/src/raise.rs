//! `raise`: fails under a name of the flow's own.

use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::failure::Matcher;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::{Node, Spanned, Value};
use expr::template::Template;
use message::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::{BAD_RAISE, BAD_STATUS};
use crate::fields::reads_body;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "raise",
    summary: "Fails the flow with an error of your own.",
    documentation: include_str!("raise.md"),
    example: include_str!("raise.yaml"),
    schema: config::schema_for::<RaiseConfig>,
    build,
};

/// An error.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RaiseConfig {
    /// The type, by which `on_error` clauses match and which is the `type` of the problem document.
    r#type: Spanned<String>,
    /// The status of the reply, 400 to 599.
    #[schemars(extend("default" = 500))]
    status: Option<Spanned<u16>>,
    /// A short summary for people. The default is the reason phrase of the status.
    title: Option<String>,
    /// An explanation of this failure for the caller; may contain `${ }`.
    detail: Option<Spanned<String>>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    if matches!(node.value, Value::String(_)) {
        let message = "`raise` is a mapping";
        let diagnostic = context.report.error(BAD_RAISE, node.span, message);
        diagnostic.hint("write `raise: { type: over-limit, status: 402 }`");
        return None;
    }
    let config: RaiseConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let name = &config.r#type;
    let is_free = matches!(Matcher::of_name(&name.value), Some(Matcher::Type(_)));
    let is_word = !name.value.is_empty()
        && name.value.len() <= 200
        && name.value.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_free || !is_word {
        let message = format!(
            "`{}` cannot be the name of an error",
            name.value.escape_debug()
        );
        context
            .report
            .error(BAD_RAISE, name.span, message)
            .hint("one word or URL that is no kind of failure, such as `over-limit`");
    }
    let status = config.status.map_or(500, |status| {
        if !(400..=599).contains(&status.value) {
            let message = format!("{} is not the status of an error", status.value);
            context
                .report
                .error(BAD_STATUS, status.span, message)
                .hint("from 400 to 599");
        }
        status.value
    });
    let detail = config.detail.map(|detail| context.template(&detail));
    (context.problems() == before).then(|| {
        Box::new(Raise {
            name: config.r#type.value,
            status,
            title: config.title,
            detail: detail.flatten(),
        }) as Box<dyn Step>
    })
}

/// The step.
struct Raise {
    name: String,
    status: u16,
    title: Option<String>,
    detail: Option<Template>,
}

impl Raise {
    fn raise(&self, exchange: &mut Exchange, services: &dyn Services) -> Fault {
        let detail = match &self.detail {
            None => String::new(),
            Some(template) => match exchange.fill_text(template, services) {
                Ok(text) => text,
                Err(fault) => return fault,
            },
        };
        Fault::raised(&self.name, self.title.clone(), detail).with_status(self.status)
    }
}

impl Step for Raise {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Done(Err::<Next, _>(self.raise(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        self.detail.as_ref().is_some_and(reads_body)
    }

    fn ends_flow(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
