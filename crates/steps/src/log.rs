//! `log`: writes a line to the engine's log and leaves the message as it is.

use std::fmt::Write as _;

use component::definition::{BuildContext, StepDefinition};
use component::handler::Services;
use component::step::{Exchange, Next, Progress, Step};
use config::{Node, Value};
use message::{HeadersView, Request};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

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

/// Headers whose values are secrets.
const SECRET: [&str; 4] = [
    "Authorization",
    "Proxy-Authorization",
    "Cookie",
    "Set-Cookie",
];

/// The mapping form of `log`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogConfig {
    /// The text of the line.
    message: Option<String>,
    /// How severe it is. Lines below `engine.log.level` are not written.
    #[serde(default)]
    level: Level,
    /// What of the message is shown beside the text. `body` makes the flow read the body.
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
            config::check(node, &(DEFINITION.schema)(), context.report);
            return None;
        }
    };
    let text = escape(config.message.as_deref().unwrap_or_default());
    Some(Box::new(Log {
        text,
        level: config.level,
        with: config.with,
    }))
}

/// The step.
struct Log {
    text: String,
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
    fn of(parts: &[Part], request: &Request) -> Self {
        let mut shown = Self::default();
        for part in parts {
            match part {
                Part::Method => shown.method = Some(escape(request.method.as_str())),
                Part::Path => shown.path = Some(escape(&request.path)),
                Part::Query => shown.query = request.query.as_deref().map(escape),
                Part::Peer => shown.peer = Some(request.peer.to_string()),
                Part::Headers => shown.headers = Some(show_headers(request.headers.view())),
                Part::Body => shown.body = Some(show_bytes(request.body.as_bytes())),
            }
        }
        shown
    }
}

macro_rules! write_line {
    ($level:ident, $step:expr, $exchange:expr) => {
        if tracing::enabled!(target: "flow", tracing::Level::$level) {
            let shown = Shown::of(&$step.with, &$exchange.request);
            tracing::event!(
                target: "flow",
                tracing::Level::$level,
                flow = &*$exchange.flow,
                method = shown.method.as_deref(),
                path = shown.path.as_deref(),
                query = shown.query.as_deref(),
                peer = shown.peer.as_deref(),
                headers = shown.headers.as_deref(),
                body = shown.body.as_deref(),
                "{}",
                $step.text
            );
        }
    };
}

impl Step for Log {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, _: &'a dyn Services) -> Progress<'a> {
        match self.level {
            Level::Debug => write_line!(DEBUG, self, exchange),
            Level::Info => write_line!(INFO, self, exchange),
            Level::Warn => write_line!(WARN, self, exchange),
            Level::Error => write_line!(ERROR, self, exchange),
        }
        Progress::Done(Ok(Next::Continue))
    }

    fn reads_body(&self) -> bool {
        self.with.contains(&Part::Body)
    }
}

/// `Name: "value"` for each line, split by commas; secrets are `***`.
fn show_headers(headers: HeadersView<'_>) -> String {
    let mut shown = String::new();
    for (_, name, value) in headers.iter() {
        let is_secret = SECRET
            .iter()
            .any(|secret| name.eq_ignore_ascii_case(secret.as_bytes()));
        let value = if is_secret {
            "***".into()
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
    let head = bytes.get(..SHOWN_MAX).unwrap_or(bytes);
    let mut shown = escape(&String::from_utf8_lossy(head));
    if head.len() < bytes.len() {
        let _ = write!(shown, "... ({} bytes)", bytes.len());
    }
    shown
}

fn cut(mut text: String) -> String {
    if text.len() > SHOWN_MAX {
        let end = (0..=SHOWN_MAX)
            .rev()
            .find(|&at| text.is_char_boundary(at))
            .unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
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
