//! `soap`: calls an operation of a SOAP service.

use std::sync::Arc;

use component::block::needs_body;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::forward::ForwardPlan;
use component::handler::{Call, Services};
use component::long_work::{AT_ONCE, ENVELOPE_AT_ONCE, beside};
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{AnyValue, Node, Spanned, Value as Yaml};
use expr::template::Template;
use expr::{Value, value};
use message::{Fault, Field, Headers, Method, Reply, Request, Retry};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::ask;
use crate::codes::{BAD_SOAP, BAD_SOAP_BODY};
use crate::named;
use crate::soap::connection::{self, Service};
use crate::soap::envelope::Message;
use crate::soap::reply::{self, Answer, Asked};
use crate::soap::wsdl::{Operation, Version};
use crate::soap::xsd::check::check;

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
    /// The name of the operation in the WSDL file, the same for every message.
    operation: Spanned<String>,
    /// The content of the SOAP body, with `${ }` in its strings. The default is the message's body.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    body: Option<AnyValue>,
    /// The blocks of the SOAP header by name, with `${ }` in their strings. A block that the WSDL
    /// file does not declare needs its namespace as `@xmlns`.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    header: Option<AnyValue>,
    /// Headers of the HTTP request, with `${ }` in their strings. A header that is null is omitted.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    headers: Option<AnyValue>,
}

/// The step.
pub struct Soap {
    service: Arc<Service>,
    operation: Arc<Operation>,
    version: Version,
    plan: Arc<ForwardPlan>,
    to: Arc<str>,
    body: Option<ValueTemplate>,
    header: Option<ValueTemplate>,
    headers: Option<Vec<(String, Template)>>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: SoapConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let service = named::connection::<Service>(&config.to, &["soap"], context);
    let operation = &config.operation;
    let hint = "write a step for each operation, under `choose`";
    let is_fixed = named::is_fixed("operation", hint, operation, context);
    let found = match (&service, is_fixed) {
        (Some(service), true) => find(service, operation, context),
        _ => None,
    };
    let mut value = |name: &str| node.get(name).and_then(|it| context.value(it));
    let (body, header) = (value("body"), value("header"));
    let headers = node
        .get("headers")
        .map(|headers| read_headers(headers, context));
    let (service, (operation, version)) = (service?, found?);
    check_body(node, (&operation, version), (&body, &header), context);
    context.upstreams.push(Arc::clone(&service.upstream));
    let plan = Arc::new(plan(&service));
    (context.problems() == before).then(|| {
        Box::new(Soap {
            service,
            operation: Arc::new(operation),
            version,
            plan,
            to: config.to.value.into(),
            body,
            header,
            headers,
        }) as _
    })
}

/// The operation of this name, and the version that it is called in.
fn find(
    service: &Service,
    name: &Spanned<String>,
    context: &mut BuildContext<'_>,
) -> Option<(Operation, Version)> {
    // A port that cannot be used has been reported with the connection.
    let port = service.wsdl.port(service.port.as_deref()).ok()?;
    match service.wsdl.operation(&port, &name.value) {
        Ok(operation) => Some((operation, port.version)),
        Err(problem) => {
            connection::put(&problem, name.span, context.report);
            None
        }
    }
}

fn plan(service: &Service) -> ForwardPlan {
    let mut plan = ForwardPlan::new(Arc::clone(&service.upstream), service.path.as_str());
    plan.query.clone_from(&service.query);
    plan.request_fields.set.clone_from(&service.fields);
    plan.timeouts.connect = Some(service.connect_timeout);
    plan
}

/// Tells what is wrong with body and header blocks whatever the message is.
fn check_body(
    node: &Node,
    (operation, version): (&Operation, Version),
    (body, header): (&Option<ValueTemplate>, &Option<ValueTemplate>),
    context: &mut BuildContext<'_>,
) {
    let before = context.problems();
    let shape = &operation.input;
    let mut wrong = Vec::new();
    if let (Some(node), Some(element)) = (node.get("body"), &shape.body) {
        check(&operation.model, element, node, &mut wrong);
    }
    let blocks = node.get("header");
    for entry in blocks.and_then(Node::as_mapping).unwrap_or_default() {
        let mut declared = shape.headers.iter();
        if let Some(block) = declared.find(|it| *it.element.name.local == *entry.key) {
            check(&operation.model, &block.element, &entry.value, &mut wrong);
        }
    }
    for (span, error) in wrong {
        context.report.error(BAD_SOAP_BODY, span, error.to_string());
    }
    // What is the same for every message can be written now.
    let body_value = match body {
        Some(ValueTemplate::Fixed(value)) => value,
        None if shape.body.is_none() => &Value::Null,
        _ => return,
    };
    let blocks_value = match header {
        Some(ValueTemplate::Fixed(value)) => Some(value),
        _ => None,
    };
    let message = Message {
        version,
        model: &operation.model,
        shape,
        size_max: usize::MAX,
    };
    if let Err(error) = message.write(body_value, blocks_value, None)
        && context.problems() == before
    {
        let place = node.get("body").map_or(node.span, |it| it.span);
        context
            .report
            .error(BAD_SOAP_BODY, place, error.to_string());
    }
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
        let made = exchange.preemptible(services, |it| {
            let body = match &self.body {
                Some(body) => body.make(it, services)?,
                None if self.operation.input.body.is_none() => Value::Null,
                None => it.value()?.clone(),
            };
            let header = self.header.as_ref();
            let blocks = header.map(|header| header.make(it, services)).transpose()?;
            Ok((body, blocks, self.lines(it, services)?))
        });
        let (body, blocks, lines) = made.await?;
        // Written before anybody stands in, so that a test finds what does not fit.
        let content = (body.clone(), blocks.clone());
        let envelope = self.envelope(content, exchange, services).await?;
        let shown = || self.shown(body, blocks, &lines);
        let of = ("soap", &*self.to);
        if let Some(answer) = ask::stand_in(of, shown, exchange, services).await {
            let reply = answer?;
            let failure = reply::stood_in(&reply);
            exchange.take_over(reply);
            return failure.map_or(Ok(Next::Continue), Err);
        }
        self.ask(envelope, lines, exchange, services).await
    }

    async fn ask(
        &self,
        envelope: String,
        lines: Vec<(String, String)>,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let request = self.request(envelope, lines, exchange);
        let step = Arc::clone(&exchange.at);
        let call = Call {
            deadline: exchange.deadline,
            ..Call::new(&self.plan, &request, &step)
        };
        let reply = services
            .call(call)
            .await
            .map_err(|fault| self.named(fault))?;
        let is_large = reply.body.as_bytes().len() > ENVELOPE_AT_ONCE;
        let (reply, answer) = self.read(reply, services).await?;
        match answer {
            Ok(Answer::Value(value)) => {
                if is_large {
                    exchange.hold_large(&value);
                }
                reply::keep(exchange, (reply.status, reply.headers), value, true);
                Ok(Next::Continue)
            }
            Ok(Answer::Fault(fault)) => {
                let head = (reply.status, reply.headers);
                reply::keep(exchange, head, fault.value(), false);
                Err(asked(&self.to, &self.operation, self.version).failure(&fault))
            }
            Err(fault) => {
                exchange.note_reply(reply);
                Err(fault)
            }
        }
    }

    /// Reads an answer, a large one beside the worker. It comes back with what it says.
    async fn read(
        &self,
        reply: Reply,
        services: &dyn Services,
    ) -> Result<(Reply, Result<Answer, Fault>), Fault> {
        let is_short = reply.body.as_bytes().len() <= ENVELOPE_AT_ONCE;
        let (to, operation) = (Arc::clone(&self.to), Arc::clone(&self.operation));
        let version = self.version;
        let read = move || {
            let answer = asked(&to, &operation, version).read(&reply);
            (reply, answer)
        };
        match is_short {
            true => Ok(read()),
            // The service may have acted on the request.
            false => beside(services, move |_| read())
                .await
                .map_err(|fault| fault.with_retry(Retry::IfRepeatable)),
        }
    }

    /// The same failure with the connection's name for the log.
    fn named(&self, fault: Fault) -> Fault {
        let cause = fault.cause.as_deref().unwrap_or_default().to_owned();
        let (to, operation) = (&self.to, &self.operation.name);
        fault.with_cause(format_args!(
            "connection {to}, operation {operation}: {cause}"
        ))
    }

    /// The envelope around a body and blocks, a large one made beside the worker.
    async fn envelope(
        &self,
        (body, blocks): (Value, Option<Value>),
        exchange: &Exchange,
        services: &dyn Services,
    ) -> Result<String, Fault> {
        // Random bytes are a system call.
        let nonce = self.service.security.as_ref().map(|_| uuid::Uuid::new_v4());
        let now = nonce.map(|nonce| (services.wall(), nonce));
        let (service, operation) = (Arc::clone(&self.service), Arc::clone(&self.operation));
        let version = self.version;
        let write = move |size_max| {
            let message = Message {
                version,
                model: &operation.model,
                shape: &operation.input,
                size_max,
            };
            let now = now
                .as_ref()
                .map(|(wall, nonce)| (*wall, &nonce.as_bytes()[..]));
            message.write(&body, blocks.as_ref(), service.security.as_ref().zip(now))
        };
        let size_max = exchange.context.body_max;
        let written = match write(size_max.min(AT_ONCE)) {
            // It is too large for the worker, or wrong, which is found out again.
            Err(_) if size_max > AT_ONCE => beside(services, move |_| write(size_max)).await?,
            written => written,
        };
        written.map_err(|error| {
            let detail = format!(
                "the message is none that {} takes: {error}",
                self.operation.name
            );
            let cause = format_args!("connection {}", self.to);
            Fault::invalid(detail).with_cause(cause)
        })
    }

    fn request(
        &self,
        envelope: String,
        lines: Vec<(String, String)>,
        exchange: &Exchange,
    ) -> Request {
        let mut headers = Headers::new();
        for (name, value) in &lines {
            headers.append(name, value);
        }
        let action = &self.operation.action;
        match self.version {
            // SOAP 1.1, section 6.1.1.
            Version::V11 => {
                headers.append("Content-Type", "text/xml; charset=utf-8");
                headers.append("SOAPAction", format!("\"{action}\""));
            }
            // RFC 3902.
            Version::V12 if action.is_empty() => {
                headers.append("Content-Type", "application/soap+xml; charset=utf-8");
            }
            Version::V12 => {
                let value = format!("application/soap+xml; charset=utf-8; action=\"{action}\"");
                headers.append("Content-Type", value);
            }
        }
        Request {
            method: Method::Post,
            path: self.service.path.clone(),
            query: None,
            parameters: Vec::new(),
            headers,
            body: envelope.into_bytes().into(),
            peer: exchange.request.peer,
            proxy: exchange.request.proxy,
            is_secure: exchange.request.is_secure,
            certificate: None,
            caller: None,
        }
    }

    fn lines(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Vec<(String, String)>, Fault> {
        let mut lines = Vec::new();
        for (name, template) in self.headers.iter().flatten() {
            let made = exchange.fill(template, services)?;
            if !matches!(made, Value::Null) {
                lines.push((name.clone(), line(name, &made)?));
            }
        }
        Ok(lines)
    }

    /// The call as whoever stands in for the service sees it.
    fn shown(&self, body: Value, blocks: Option<Value>, lines: &[(String, String)]) -> Value {
        let mut members = vec![
            ("operation".to_owned(), value::text(&*self.operation.name)),
            ("body".to_owned(), body),
        ];
        members.extend(blocks.map(|blocks| ("header".to_owned(), blocks)));
        if self.headers.is_some() {
            let lines = lines.iter();
            let lines = lines.map(|(name, text)| (name.clone(), value::text(text.as_str())));
            members.push(("headers".to_owned(), value::object(lines)));
        }
        value::object(members)
    }
}

fn asked<'a>(connection: &'a str, operation: &'a Operation, version: Version) -> Asked<'a> {
    Asked {
        connection,
        operation,
        version,
    }
}

/// The value of a header line.
fn line(name: &str, made: &Value) -> Result<String, Fault> {
    let Some(text) = value::scalar_text(made) else {
        let kind = value::kind(made);
        return Err(Fault::invalid(format!(
            "the header {name} is a text, not {kind}"
        )));
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
        let has_body = self.operation.input.body.is_some();
        let body = self
            .body
            .as_ref()
            .map_or(has_body, ValueTemplate::reads_body);
        let blocks = self.header.as_ref().is_some_and(ValueTemplate::reads_body);
        let mut lines = self.headers.iter().flatten();
        body || blocks || lines.any(|(_, line)| needs_body(line.uses_input(), line.variables()))
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
