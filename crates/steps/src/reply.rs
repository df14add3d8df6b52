//! `reply`: ends the flow with a reply, of the message's own body or of a given one.

use component::definition::{BuildContext, StepDefinition};
use component::handler::Services;
use component::step::{Exchange, Next, Progress, Step};
use config::{Node, Report, Value};
use message::{Body, Headers, Reply};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::codes::{BAD_STATUS, BODY_NOT_ALLOWED};
use crate::fields::{self, FieldTexts};
use crate::json;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "reply",
    summary: "Ends the flow with a reply.",
    documentation: include_str!("reply.md"),
    example: include_str!("reply.yaml"),
    schema: config::schema_for::<ReplyConfig>,
    build,
};

/// The mapping under `reply`. Without anything in it the message's body is the reply's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplyConfig {
    /// The status, 200 to 599.
    #[schemars(extend("default" = 200))]
    status: Option<u16>,
    /// Headers of the reply.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each name"
    )]
    headers: Option<FieldTexts>,
    /// The body: a text is sent as `text/plain; charset=utf-8`, anything else as JSON. `null` is
    /// no body. Without this key the message's body is sent, with its Content-Type.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    body: Option<AnyValue>,
}

/// Any YAML value.
#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "describes the key to the schema")]
struct AnyValue(IgnoredAny);

impl JsonSchema for AnyValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Any".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

/// What a reply's body is.
enum Content {
    /// The message's.
    Message,
    /// This, with its media type; without one there is no body.
    Fixed(Option<(&'static str, Vec<u8>)>),
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    if matches!(node.value, Value::Null) {
        return Some(Box::new(ReplyWith::message(200)));
    }
    let report = &mut *context.report;
    let config: ReplyConfig = config::decode(node, report)?;
    let before = report.diagnostics().len();
    let status = config.status.unwrap_or(200);
    if !(200..=599).contains(&status) {
        let span = node.get("status").map_or(node.span, |status| status.span);
        report
            .error(
                BAD_STATUS,
                span,
                format!("{status} is not the status of a reply"),
            )
            .hint("from 200 to 599");
    }
    let lines = fields::read_set(node.get("headers"), &fields::framing, report);
    let content = read_content(node, status, report);
    if report.diagnostics().len() > before {
        return None;
    }
    Some(Box::new(ReplyWith::new(status, &lines, content)))
}

fn read_content(node: &Node, status: u16, report: &mut Report) -> Content {
    let Some(entry) = node.entry("body") else {
        return if has_body(status) {
            Content::Message
        } else {
            Content::Fixed(None)
        };
    };
    let content = match &entry.value.value {
        Value::Null => return Content::Fixed(None),
        Value::String(text) => ("text/plain; charset=utf-8", text.clone().into_bytes()),
        _ => ("application/json", json::to_bytes(&entry.value)),
    };
    if !has_body(status) {
        report
            .error(
                BODY_NOT_ALLOWED,
                entry.key_span,
                format!("a reply of status {status} has no body"),
            )
            .hint("leave `body` out, or choose another status");
    }
    Content::Fixed(Some(content))
}

/// Whether a reply of this status may have a body (RFC 9110, sections 15.3.5, 15.3.6, 15.4.5).
fn has_body(status: u16) -> bool {
    !matches!(status, 204 | 205 | 304)
}

/// The step.
struct ReplyWith {
    status: u16,
    /// The flow's header lines; with a fixed body its `Content-Type` is among them.
    headers: Headers,
    /// The body; absent for the message's.
    body: Option<Body>,
}

impl ReplyWith {
    fn message(status: u16) -> Self {
        Self {
            status,
            headers: Headers::new(),
            body: None,
        }
    }

    fn new(status: u16, lines: &[(String, String)], content: Content) -> Self {
        let mut reply = Self::message(status);
        for (name, value) in lines {
            reply.headers.append(name, value);
        }
        reply.body = match content {
            Content::Message => None,
            Content::Fixed(None) => Some(Body::Empty),
            Content::Fixed(Some((media_type, bytes))) => {
                if reply.headers.get("Content-Type").is_none() {
                    reply.headers.append("Content-Type", media_type);
                }
                Some(bytes.into())
            }
        };
        reply
    }

    fn make(&self, exchange: &mut Exchange) -> Reply {
        let Some(body) = &self.body else {
            let mut reply = exchange.take_reply(self.status);
            for (_, name, value) in self.headers.view().iter() {
                // The names come from a flow file and are ASCII.
                if let Ok(name) = std::str::from_utf8(name) {
                    reply.headers.set(name, value);
                }
            }
            return reply;
        };
        Reply {
            status: self.status,
            headers: self.headers.clone(),
            body: body.clone(),
        }
    }
}

impl Step for ReplyWith {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, _: &'a dyn Services) -> Progress<'a> {
        Progress::Done(Ok(Next::Reply(self.make(exchange))))
    }

    fn reads_body(&self) -> bool {
        self.body.is_none()
    }

    fn ends_flow(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
