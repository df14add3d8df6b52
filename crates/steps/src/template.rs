//! `template`: makes a text body, of a text in the flow or of a file.

use component::content::Content;
use component::definition::{BuildContext, StepDefinition, compile_text};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::{Node, Report, Span, Spanned, Value};
use expr::template::{Part, Template};
use message::{Fault, Headers};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::codes::{BAD_FILE, BAD_TEXT};
use crate::fields::reads_body;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "template",
    summary: "Fills in a text template.",
    documentation: include_str!("template.md"),
    example: include_str!("template.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// The mapping form of `template`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TemplateConfig {
    /// The text; may contain `${ }`.
    text: Option<Spanned<String>>,
    /// The path of a file with the text, relative to the flow file. It is read when the flow is
    /// loaded.
    file: Option<Spanned<String>>,
    /// How each value is escaped, so that it stays text in the surrounding format.
    #[schemars(extend("default" = "none"))]
    escape: Option<Escape>,
    /// The media type of the result. The default is `text/plain; charset=utf-8`, or the one of
    /// `escape`.
    content_type: Option<Spanned<String>>,
}

/// How values are escaped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Escape {
    /// Not at all.
    #[default]
    None,
    /// For the content and the quoted attributes of HTML elements; `text/html`.
    Html,
    /// For the content and the quoted attributes of XML elements; `application/xml`.
    Xml,
    /// For the inside of a JSON string; `application/json`.
    Json,
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<TemplateConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config = match &node.value {
        Value::String(text) => TemplateConfig {
            text: Some(Spanned {
                value: text.clone(),
                span: node.span,
            }),
            file: None,
            escape: None,
            content_type: None,
        },
        Value::Mapping(_) => config::decode(node, context.report)?,
        _ => {
            config::check_kind(node, DEFINITION.schema, context.report);
            return None;
        }
    };
    let before = context.problems();
    let escape = config.escape.unwrap_or_default();
    let content_type = match &config.content_type {
        Some(content_type) => check_media_type(content_type, context.report),
        None => default_media_type(escape).to_owned(),
    };
    let template = match (&config.text, &config.file) {
        (Some(text), None) => context.template(text),
        (None, Some(file)) => read_file(file, context),
        _ => {
            let message = "a template has either `text` or `file`";
            context.report.error(BAD_TEXT, node.span, message);
            None
        }
    }?;
    (context.problems() == before).then(|| {
        Box::new(MakeText {
            template,
            escape,
            content_type,
        }) as Box<dyn Step>
    })
}

fn default_media_type(escape: Escape) -> &'static str {
    match escape {
        Escape::None => "text/plain; charset=utf-8",
        Escape::Html => "text/html; charset=utf-8",
        Escape::Xml => "application/xml; charset=utf-8",
        Escape::Json => "application/json",
    }
}

fn check_media_type(text: &Spanned<String>, report: &mut Report) -> String {
    let lower = text.value.to_ascii_lowercase().replace(['"', ' '], "");
    let has_kind = lower
        .split_once('/')
        .is_some_and(|(kind, rest)| Headers::is_name(kind) && !rest.is_empty());
    let other_charset = lower
        .split(';')
        .filter_map(|parameter| parameter.strip_prefix("charset="))
        .any(|charset| !matches!(charset, "utf-8" | "utf8"));
    if !has_kind || !Headers::is_value(text.value.as_bytes()) {
        let message = format!("`{}` is not a media type", text.value.escape_debug());
        let diagnostic = report.error(BAD_TEXT, text.span, message);
        diagnostic.hint("write one such as `text/html; charset=utf-8`");
    } else if other_charset {
        let message = "the text is UTF-8, whatever the media type says";
        let diagnostic = report.error(BAD_TEXT, text.span, message);
        diagnostic.hint("write `charset=utf-8`, or leave it out");
    }
    text.value.clone()
}

/// Reads a text of a file. Every problem is reported where the file is named.
fn read_file(file: &Spanned<String>, context: &mut BuildContext<'_>) -> Option<Template> {
    let shown = file.value.escape_debug();
    let read = (context.surroundings.files)(file.span.source, &file.value);
    let text = match read.map(|bytes| String::from_utf8(bytes.to_vec())) {
        Ok(Ok(text)) => text,
        Ok(Err(_)) => {
            let message = format!("`{shown}` is not UTF-8");
            context.report.error(BAD_FILE, file.span, message);
            return None;
        }
        Err(error) => {
            let message = format!("cannot read `{shown}`: {error}");
            let diagnostic = context.report.error(BAD_FILE, file.span, message);
            diagnostic.hint("the path is relative to the flow file");
            return None;
        }
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // The report knows no places in this file, so that the message says the line.
    if let Err(errors) = Template::compile(text, context.scope) {
        for error in errors {
            let before = text.get(..error.at.start).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let message = format!("`{shown}`, line {line}: {}", error.message);
            refuse(message, error.hint.as_deref(), file.span, context);
        }
        return None;
    }
    let mut found = Report::default();
    let template = compile_text(text, file.span, context.scope, &mut found);
    for problem in found.diagnostics() {
        let message = format!("`{shown}`: {}", problem.message());
        refuse(message, problem.hint_text(), file.span, context);
    }
    template
}

fn refuse(message: String, hint: Option<&str>, span: Span, context: &mut BuildContext<'_>) {
    let diagnostic = context.report.error(BAD_TEXT, span, message);
    if let Some(hint) = hint {
        diagnostic.hint(hint);
    }
}

/// The step.
struct MakeText {
    template: Template,
    escape: Escape,
    content_type: String,
}

impl MakeText {
    fn make(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let mut out = String::new();
        for part in self.template.parts() {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Hole(expression) => {
                    let value = exchange.evaluate(expression, services)?;
                    let Some(text) = expr::value::scalar_text(&value) else {
                        let (shown, kind) = (expression.text().trim(), expr::value::kind(&value));
                        return Err(Fault::expression(format_args!(
                            "`{}` gave {kind}, where a text is needed",
                            shown.escape_debug()
                        )));
                    };
                    self.escape.push(&text, &mut out)?;
                }
            }
            if out.len() > exchange.context.body_max {
                return Err(Fault::expression("the text is too large"));
            }
        }
        exchange.content = Content::of_bytes(out.into_bytes(), &self.content_type);
        Ok(Next::Continue)
    }
}

impl Escape {
    fn push(self, text: &str, out: &mut String) -> Result<(), Fault> {
        match self {
            Self::None => out.push_str(text),
            Self::Html | Self::Xml => {
                for character in text.chars() {
                    match character {
                        '&' => out.push_str("&amp;"),
                        '<' => out.push_str("&lt;"),
                        '>' => out.push_str("&gt;"),
                        '"' => out.push_str("&quot;"),
                        '\'' => out.push_str("&#39;"),
                        other if self == Self::Xml && !is_xml(other) => {
                            let detail = "a value has a character that XML cannot carry";
                            return Err(Fault::invalid(detail));
                        }
                        other => out.push(other),
                    }
                }
            }
            Self::Json => {
                let quoted = serde_json::Value::from(text).to_string();
                out.push_str(quoted.get(1..quoted.len() - 1).unwrap_or_default());
            }
        }
        Ok(())
    }
}

/// Whether XML 1.0 has a character (section 2.2).
fn is_xml(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        other => other >= ' ',
    }
}

impl Step for MakeText {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Done(self.make(exchange, services))
    }

    fn reads_body(&self) -> bool {
        reads_body(&self.template)
    }
}

#[cfg(test)]
mod tests;
