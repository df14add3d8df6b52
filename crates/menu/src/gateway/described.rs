//! Gateways that a file describes: expressions say where in a request everything stands, templates
//! what the reply is. `get` and `xml` are such descriptions, too.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use component::content::{decode, format_of};
use component::definition::{compile_expression, compile_text};
use component::dialogue::{Screen, SessionEvent};
use component::scope::{self, Scope};
use component::source::SourceContext;
use config::Node;
use expr::Value;
use expr::jq::{Expression, Limits, Variables};
use expr::template::Template;
use message::{Fault, Kind, Method, Origin, Reply, Request};

use super::Asked;
use crate::codes::BAD_MENU;

/// A description that needs no file.
struct Known {
    method: Method,
    event: &'static str,
    session: &'static str,
    msisdn: &'static str,
    text: &'static str,
    sequence: &'static str,
    content_type: &'static str,
    body: &'static str,
}

/// What a type is that says it in one of the usual ways. What is no word ends nothing.
const EVENT: &str = "tostring | trim | ascii_downcase | \
                     if IN(\"1\", \"begin\", \"new\", \"initiation\") then \"dial\" \
                     elif IN(\"2\", \"continue\", \"reply\", \"response\") then \"reply\" \
                     elif . != \"null\" and test(\"^[0-9a-z_. -]+$\") then \"end\" else null end";

const GET: Known = Known {
    method: Method::Get,
    event: ".query.type",
    session: ".query.session",
    msisdn: ".query.msisdn",
    text: ".query.text",
    sequence: ".query.sequence",
    content_type: "text/plain; charset=utf-8",
    body: "${ if .ends then \"END\" else \"CON\" end } ${ .text }",
};

/// An expression whose text has no white space around it.
macro_rules! trimmed {
    ($expression:literal) => {
        concat!($expression, " | if type == \"string\" then trim else . end")
    };
}

const XML: Known = Known {
    method: Method::Post,
    event: ".body.ussd.type",
    session: trimmed!(".body.ussd.sessionid"),
    msisdn: trimmed!(".body.ussd.msisdn"),
    // An element without content is a text without characters.
    text: trimmed!(".body.ussd | if has(\"msg\") then .msg // \"\" else null end"),
    sequence: trimmed!(".body.ussd.sequence"),
    content_type: "application/xml",
    body: "<ussd><sessionid>${ .session | @html }</sessionid>\
           <type>${ if .ends then 3 else 2 end }</type><msg>${ .text | @html }</msg></ussd>",
};

/// A gateway as it is described.
pub(crate) struct DescribedGateway {
    methods: Vec<Method>,
    /// The parameters of the query in which the number is and what was typed.
    secret: Vec<Arc<str>>,
    session: Expression,
    msisdn: Expression,
    event: Expression,
    text: Expression,
    code: Option<Expression>,
    sequence: Option<Expression>,
    content_type: String,
    body: Template,
    values: EngineValues,
    limits: Limits,
}

/// What every expression may use: `$env`, `$secret` and the time.
struct EngineValues {
    env: Value,
    secrets: Value,
}

impl Variables for EngineValues {
    fn get(&self, slot: usize) -> Value {
        match slot {
            scope::ENV => self.env.clone(),
            scope::SECRET => self.secrets.clone(),
            _ => Value::Null,
        }
    }

    fn now(&self) -> f64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.unwrap_or_default().as_secs_f64()
    }
}

impl DescribedGateway {
    /// One that is known by name.
    pub fn known(name: &str, context: &mut SourceContext<'_>) -> Option<Self> {
        let known = match name {
            "get" => GET,
            "xml" => XML,
            _ => return None,
        };
        let scope = context.evaluation.scope();
        let compile = |text: &str| Expression::compile(text, &scope).ok();
        let event = format!("{} | {EVENT}", known.event);
        Some(Self {
            // Tools send theirs by POST, whatever the gateway does.
            methods: match known.method {
                Method::Post => vec![Method::Post],
                method => vec![method, Method::Post],
            },
            secret: [known.text, known.msisdn]
                .into_iter()
                .flat_map(parameters)
                .collect(),
            session: compile(known.session)?,
            msisdn: compile(known.msisdn)?,
            event: compile(&event)?,
            text: compile(known.text)?,
            code: None,
            sequence: compile(known.sequence),
            content_type: known.content_type.to_owned(),
            body: Template::compile(known.body, &scope).ok()?,
            values: engine_values(context),
            limits: limits(context, &scope),
        })
    }

    /// One that the file describes, whose shape has been checked. Every problem is reported.
    pub fn read(node: &Node, context: &mut SourceContext<'_>) -> Option<Self> {
        let scope = context.evaluation.scope();
        let (request, reply) = (node.get("request")?, node.get("reply")?);
        let secret = [request.get("text")?, request.get("msisdn")?]
            .into_iter()
            .flat_map(|node| secret_of(node, context))
            .collect();
        let mut compile = |key: &str| {
            let node = request.get(key)?;
            let text = node.as_str()?;
            compile_expression(text, node.span, &scope, context.report)
        };
        let (session, msisdn) = (compile("session"), compile("msisdn"));
        let (event, text) = (compile("event"), compile("text"));
        let (code, sequence) = (compile("code"), compile("sequence"));
        let body = reply.get("body")?;
        let body = compile_text(body.as_str()?, body.span, &scope, context.report);
        let content_type = reply.get("content_type").and_then(Node::as_str);
        Some(Self {
            methods: vec![Method::Post, Method::Get],
            secret,
            session: session?,
            msisdn: msisdn?,
            event: event?,
            text: text?,
            code,
            sequence,
            content_type: content_type
                .unwrap_or("text/plain; charset=utf-8")
                .to_owned(),
            body: body?,
            values: engine_values(context),
            limits: limits(context, &scope),
        })
    }

    /// The methods of its requests, and of those of tools.
    pub fn methods(&self) -> Vec<Method> {
        self.methods.clone()
    }

    /// The parameters of the query that logs must not show.
    pub fn secret_parameters(&self) -> Vec<Arc<str>> {
        self.secret.clone()
    }

    fn find(&self, expression: &Expression, input: &Value) -> Option<String> {
        let value = expression
            .evaluate(input, &self.values, &self.limits)
            .ok()?;
        expr::value::scalar_text(&value).map(Into::into)
    }

    /// What a request says.
    pub fn read_request(&self, request: &Request) -> Result<Asked, &'static str> {
        let bytes = Bytes::copy_from_slice(request.body.as_bytes());
        let content_type = request.headers.get("Content-Type");
        let body = match bytes.is_empty() {
            true => Value::Null,
            false => decode(&bytes, format_of(content_type), content_type)
                .map_err(|_| "the body cannot be read")?,
        };
        let query = request.query.as_deref().unwrap_or_default();
        let query = expr::format::from_form(query.as_bytes());
        let query = query.map_err(|_| "the query cannot be read")?;
        let headers = request.headers.view().iter();
        let headers = headers.filter_map(|(_, name, value)| {
            let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
            let value = std::str::from_utf8(value).ok()?;
            Some((name, expr::value::text(value)))
        });
        let input = expr::value::object([
            ("body".to_owned(), body),
            ("query".to_owned(), query),
            ("headers".to_owned(), expr::value::object(headers)),
        ]);
        let find = |expression: &Expression| self.find(expression, &input);
        let text = || find(&self.text).ok_or("what was typed is missing");
        let sequence = || match self.sequence.as_ref().and_then(find) {
            Some(text) if !text.is_empty() => match text.parse() {
                Ok(sequence) => Ok(Some(sequence)),
                Err(_) => Err("the sequence is no whole number"),
            },
            _ => Ok(None),
        };
        let event = match find(&self.event).as_deref() {
            Some("dial") => SessionEvent::Dial(text()?),
            Some("reply") => SessionEvent::Reply {
                text: text()?,
                sequence: sequence()?,
            },
            Some("typed") => SessionEvent::Typed {
                code: self
                    .code
                    .as_ref()
                    .and_then(find)
                    .ok_or("the code is missing")?,
                text: text()?,
            },
            Some("end") => SessionEvent::End,
            _ => return Err("the event is none of dial, reply, typed and end"),
        };
        Ok(Asked {
            session: find(&self.session).ok_or("the session's id is missing")?,
            msisdn: find(&self.msisdn).ok_or("the number is missing")?,
            event,
        })
    }

    /// The reply with a screen.
    ///
    /// # Errors
    /// When the template fails.
    pub fn write(&self, screen: &Screen, session: &str) -> Result<Reply, Fault> {
        let input = expr::value::object([
            ("text".to_owned(), expr::value::text(screen.text.as_str())),
            ("ends".to_owned(), Value::from(screen.ends)),
            ("session".to_owned(), expr::value::text(session)),
        ]);
        let body = self.body.evaluate(&input, &self.values, &self.limits);
        let body = body.map_err(|error| {
            let detail = "the reply to the gateway cannot be written";
            Fault::new(Kind::Expression, Origin::Engine, detail).with_cause(error)
        })?;
        let body = match expr::value::as_text(&body) {
            Some(text) => text.as_bytes().to_vec(),
            None => {
                let mut json = Vec::new();
                expr::json::write(&body, 1 << 20, &mut json).map_err(Fault::expression)?;
                json
            }
        };
        Ok(Reply::with_content(200, &self.content_type, body))
    }
}

/// The parameters of the query that an expression of the file looks at. Where it does not say
/// which, that is reported.
fn secret_of(node: &Node, context: &mut SourceContext<'_>) -> Vec<Arc<str>> {
    let text = node.as_str().unwrap_or_default();
    let found = parameters(text);
    if found.len() < text.matches("query").count() {
        let message = "it is not clear which parameter this is, and logs must not show it";
        let diagnostic = context.report.error(BAD_MENU, node.span, message);
        diagnostic.hint("write `.query.NAME` or `.query[\"NAME\"]`");
    }
    found
}

/// The names behind `.query.` and in `.query["…"]`.
fn parameters(text: &str) -> Vec<Arc<str>> {
    let behind = text.split(".query").skip(1);
    let names = behind.filter_map(|rest| {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            return quoted.split_once('"').map(|(name, _)| name);
        }
        let name = rest.strip_prefix('.')?;
        let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let end = name.find(|it| !is_part(it)).unwrap_or(name.len());
        name.get(..end).filter(|name| !name.is_empty())
    });
    names.map(Arc::from).collect()
}

fn engine_values(context: &SourceContext<'_>) -> EngineValues {
    let (env, secrets) = context.evaluation.values();
    EngineValues { env, secrets }
}

fn limits(context: &SourceContext<'_>, scope: &Scope) -> Limits {
    Limits {
        // A request of a gateway is small, and others wait on the same thread.
        steps: 100_000,
        ..context.evaluation.context("ussd", scope).limits
    }
}
