//! `log`: writes a line to the engine's log and leaves the message as it is.

use std::fmt::Write as _;

use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::{Node, Spanned, Value};
use expr::template::{self, Template};
use message::secret::{MASK, is_secret_header, redact};
use message::{Fault, HeadersView};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::fields::reads_body;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "log",
    summary: "Writes a line to the engine's log.",
    documentation: include_str!("log.md"),
    example: include_str!("log.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// The most bytes of a body, and of all headers together, that a line shows.
const SHOWN_MAX: usize = 4096;

/// The mapping form of `log`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogConfig {
    /// The text of the line; may contain `${ }`.
    message: Option<String>,
    /// The level. Lines below `engine.log.level` are not written.
    #[serde(default)]
    level: Level,
    /// Parts of the message to add to the line. `body` makes the flow read the body.
    #[serde(default)]
    with: Vec<Part>,
}

/// How severe a line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Level {
    /// Helps to find a mistake.
    Debug,
    /// Good to know.
    #[default]
    Info,
    /// Needs a look soon.
    Warn,
    /// A failure.
    Error,
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Part {
    /// The request's method.
    Method,
    /// The request's path.
    Path,
    /// The request's query.
    Query,
    /// The client's address.
    Peer,
    /// The headers, without secrets.
    Headers,
    /// The body.
    Body,
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Log".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<LogConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config = match &node.value {
        Value::String(text) => LogConfig {
            message: Some(text.clone()),
            ..LogConfig::default()
        },
        Value::Mapping(_) => config::decode(node, context.report)?,
        _ => {
            config::check_kind(node, DEFINITION.schema, context.report);
            return None;
        }
    };
    let value = config.message.unwrap_or_default();
    let span = match node.get("message") {
        Some(message) => message.span,
        None => node.span,
    };
    let text = context.template(&Spanned { value, span })?;
    Some(Box::new(Log {
        text,
        level: config.level,
        with: config.with,
    }))
}

/// The step.
struct Log {
    text: Template,
    level: Level,
    with: Vec<Part>,
}

/// What a line shows of a message; absent what was not asked for.
#[derive(Default)]
struct Shown {
    method: Option<String>,
    path: Option<String>,
    query: Option<String>,
    peer: Option<String>,
    headers: Option<String>,
    body: Option<String>,
}

impl Shown {
    fn of(parts: &[Part], exchange: &mut Exchange) -> Result<Self, Fault> {
        let mut shown = Self::default();
        if parts.contains(&Part::Body) {
            shown.body = Some(show_bytes(exchange.body()?.0.as_bytes()));
        }
        let request = &exchange.request;
        for part in parts {
            match part {
                Part::Method => shown.method = Some(escape(request.method.as_str())),
                Part::Path => shown.path = Some(escape(&request.path)),
                Part::Query => shown.query = request.query.as_deref().map(escape),
                Part::Peer => shown.peer = Some(request.peer.to_string()),
                Part::Headers => shown.headers = Some(show_headers(request.headers.view())),
                Part::Body => {}
            }
        }
        Ok(shown)
    }
}

macro_rules! write_line {
    ($level:ident, $step:expr, $exchange:expr, $text:expr) => {
        if tracing::enabled!(target: "flow", tracing::Level::$level) {
            let text = escape($text);
            let shown = Shown::of(&$step.with, $exchange)?;
            tracing::event!(
                target: "flow",
                tracing::Level::$level,
                flow = &*$exchange.context.name,
                method = shown.method.as_deref(),
                path = shown.path.as_deref(),
                query = shown.query.as_deref(),
                peer = shown.peer.as_deref(),
                headers = shown.headers.as_deref(),
                body = shown.body.as_deref(),
                "{text}"
            );
        }
    };
}

impl Log {
    fn write(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        // Whether an expression fails must not depend on which lines are written.
        let text = &line_text(&self.text, exchange, services)?;
        match self.level {
            Level::Debug => write_line!(DEBUG, self, exchange, text),
            Level::Info => write_line!(INFO, self, exchange, text),
            Level::Warn => write_line!(WARN, self, exchange, text),
            Level::Error => write_line!(ERROR, self, exchange, text),
        }
        Ok(Next::Continue)
    }
}

/// The text of a line. What is no text is shown as JSON: a log is there to look at things.
fn line_text(
    line: &Template,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<String, Fault> {
    let mut text = String::new();
    for part in line.parts() {
        match part {
            template::Part::Text(fixed) => text.push_str(fixed),
            template::Part::Hole(expression) => {
                let value = exchange.evaluate(expression, services)?;
                match expr::value::scalar_text(&value) {
                    Some(scalar) => text.push_str(&scalar),
                    None => text.push_str(&expr::value::shown(&value)),
                }
            }
        }
    }
    Ok(cut(redact(&text).into_owned()))
}

impl Step for Log {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Done(self.write(exchange, services))
    }

    fn reads_body(&self) -> bool {
        self.with.contains(&Part::Body) || reads_body(&self.text)
    }
}

/// `Name: "value"` for each line, split by commas; secrets are `***`.
fn show_headers(headers: HeadersView<'_>) -> String {
    let mut shown = String::new();
    for (_, name, value) in headers.iter() {
        let value = if is_secret_header(name) {
            MASK.into()
        } else {
            String::from_utf8_lossy(value)
        };
        let separator = if shown.is_empty() { "" } else { ", " };
        let name = escape(&String::from_utf8_lossy(name));
        // Writing into a String cannot fail.
        let _ = write!(shown, "{separator}{name}: {value:?}");
    }
    cut(shown)
}

/// Text as it is, other bytes replaced; control characters escaped; cut to the most that is shown.
fn show_bytes(bytes: &[u8]) -> String {
    // A secret that is cut would not be known again: it is looked for before.
    let ahead = bytes.get(..SHOWN_MAX * 2).unwrap_or(bytes);
    let text = String::from_utf8_lossy(ahead);
    let text = redact(&text);
    if bytes.len() <= SHOWN_MAX {
        return escape(&text);
    }
    let end = (0..=SHOWN_MAX.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    let mut shown = escape(text.get(..end.unwrap_or(0)).unwrap_or_default());
    let _ = write!(shown, "... ({} bytes)", bytes.len());
    shown
}

fn cut(mut text: String) -> String {
    if text.len() > SHOWN_MAX {
        let end = (0..=SHOWN_MAX)
            .rev()
            .find(|&at| text.is_char_boundary(at))
            .unwrap_or(0);
        let length = text.len();
        text.truncate(end);
        // Writing into a String cannot fail.
        let _ = write!(text, "... ({length} bytes)");
    }
    text
}

/// Replaces control characters, and those that turn the direction of text, by escapes: a value
/// must not write lines or colours of its own into a log.
fn escape(text: &str) -> String {
    let is_harmful = |character: char| {
        character.is_control()
            || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_harmful) {
        return text.to_owned();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_harmful(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
