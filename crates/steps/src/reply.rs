//! `reply`: ends the flow with a reply, of the message's own body or of a given one.

use component::content::Content;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{Node, Spanned, Value};
use message::{Body, Fault, Reply};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::{BAD_STATUS, BODY_NOT_ALLOWED};
use crate::fields::{self, FieldTemplates, FieldTexts};
use config::AnyValue;

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
    /// The status, 200 to 599; `${ }` is possible. The default is 200; in a failure handler, the
    /// status of the failure.
    status: Option<StatusText>,
    /// Headers of the reply. `${ }` is possible in their values.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each name"
    )]
    headers: Option<FieldTexts>,
    /// The body, with `${ }` in its strings: a string is sent as `text/plain; charset=utf-8`,
    /// anything else as JSON. `null` is no body. Without this key the message's body is sent with
    /// its Content-Type; with a status from 300 to 399 no body; in a failure handler a problem
    /// document (RFC 9457).
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    body: Option<AnyValue>,
}

/// A status, or a text that becomes one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum StatusText {
    /// A status.
    Number(u16),
    /// A text that becomes one.
    Text(String),
}

/// What a reply's status is.
enum Status {
    Fixed(u16),
    Made(expr::template::Template),
    /// 200, or that of the failure that is handled.
    Default,
}

/// What a reply's body is.
enum ReplyBody {
    /// The message's.
    Message,
    /// A problem document about the failure that is handled.
    Problem,
    /// This.
    Made(ValueTemplate),
    /// There is none.
    Nothing,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let before = context.problems();
    let status = match &node.value {
        Value::Null => Status::Default,
        _ => {
            let config: ReplyConfig = config::decode(node, context.report)?;
            read_status(node, config.status, context)
        }
    };
    let headers = fields::read_templates(node.get("headers"), &fields::framing, context);
    let body = read_body(node, &status, context);
    (context.problems() == before).then(|| {
        let step = ReplyWith {
            status,
            headers,
            body,
        };
        Box::new(step) as Box<dyn Step>
    })
}

fn read_status(node: &Node, status: Option<StatusText>, context: &mut BuildContext<'_>) -> Status {
    let span = node.get("status").map_or(node.span, |status| status.span);
    match status {
        None => Status::Default,
        Some(StatusText::Number(status)) => {
            if !(200..=599).contains(&status) {
                let message = format!("{status} is not the status of a reply");
                context
                    .report
                    .error(BAD_STATUS, span, message)
                    .hint("from 200 to 599");
            }
            Status::Fixed(status)
        }
        Some(StatusText::Text(value)) => {
            if !expr::template::Template::has_holes(&value) {
                let message = format!("`{}` is not a status", value.escape_debug());
                context
                    .report
                    .error(BAD_STATUS, span, message)
                    .hint("from 200 to 599");
            }
            let template = context.template(&Spanned { value, span });
            template.map_or(Status::Default, Status::Made)
        }
    }
}

fn read_body(node: &Node, status: &Status, context: &mut BuildContext<'_>) -> ReplyBody {
    let may_have = !matches!(status, Status::Fixed(status) if !has_body(*status));
    let Some(entry) = node.entry("body") else {
        // Where to go on is said by a header; the client's own body is no reply.
        let redirects = matches!(status, Status::Fixed(300..=399));
        return match context.scope.handles_error() {
            _ if !may_have || redirects => ReplyBody::Nothing,
            true => ReplyBody::Problem,
            false => ReplyBody::Message,
        };
    };
    if matches!(entry.value.value, Value::Null) {
        return ReplyBody::Nothing;
    }
    if let Status::Fixed(status) = status
        && !may_have
    {
        let message = format!("a reply of status {status} has no body");
        context
            .report
            .error(BODY_NOT_ALLOWED, entry.key_span, message)
            .hint("leave `body` out, or choose another status");
    }
    let made = context.value(&entry.value);
    made.map_or(ReplyBody::Nothing, ReplyBody::Made)
}

/// Whether a reply of this status may have a body (RFC 9110, sections 15.3.5, 15.3.6, 15.4.5).
fn has_body(status: u16) -> bool {
    !matches!(status, 204 | 205 | 304)
}

/// The step.
struct ReplyWith {
    status: Status,
    headers: FieldTemplates,
    body: ReplyBody,
}

impl ReplyWith {
    fn make(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Reply, Fault> {
        let status = self.status(exchange, services)?;
        // Before the body takes the place of what they may ask for.
        let headers = self.headers.make(exchange, services)?;
        let mut reply = match &self.body {
            ReplyBody::Message => exchange.take_reply(status)?,
            ReplyBody::Nothing => Reply::new(status),
            ReplyBody::Made(value) => {
                let value = value.make(exchange, services)?;
                let made = Content::of_value(value);
                let before = std::mem::replace(&mut exchange.content, made);
                match exchange.take_reply(status) {
                    Ok(reply) => reply,
                    Err(fault) => {
                        // It is begun again where the body takes long to write.
                        exchange.content = before;
                        return Err(fault);
                    }
                }
            }
            ReplyBody::Problem => match exchange.fault.as_deref() {
                Some(fault) => fault.clone().with_status(status).to_reply(),
                None => exchange.take_reply(status)?,
            },
        };
        if !has_body(status) {
            reply.body = Body::Empty;
        }
        for (name, value) in &headers {
            reply.headers.set(name, value);
        }
        Ok(reply)
    }

    fn status(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<u16, Fault> {
        match &self.status {
            Status::Fixed(status) => Ok(*status),
            Status::Default => Ok(exchange.fault.as_deref().map_or(200, |fault| fault.status)),
            Status::Made(template) => {
                let text = exchange.fill_text(template, services)?;
                let status = text.parse::<u16>().ok();
                let status = status.filter(|status| (200..=599).contains(status));
                let shown = || text.chars().take(40).collect::<String>();
                status.ok_or_else(|| {
                    let shown = shown();
                    Fault::expression(format_args!("{shown:?} is not the status of a reply"))
                })
            }
        }
    }
}

impl Step for ReplyWith {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Done(self.make(exchange, services).map(Next::Reply))
    }

    fn reads_body(&self) -> bool {
        let body = match &self.body {
            ReplyBody::Message => true,
            ReplyBody::Made(value) => value.reads_body(),
            ReplyBody::Problem | ReplyBody::Nothing => false,
        };
        let status = match &self.status {
            Status::Made(template) => fields::reads_body(template),
            Status::Fixed(_) | Status::Default => false,
        };
        body || status || self.headers.reads_body()
    }

    fn ends_flow(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
