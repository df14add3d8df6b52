//! `http`: asks another system and makes the body of its reply the message's.

mod asker;
mod given;

pub use asker::Asker;

use std::sync::Arc;
use std::time::Instant;

use component::content::{Content, Format, format_of};
use component::definition::{BuildContext, StepDefinition};
use component::egress::loops;
use component::exchange::Exchange;
use component::forward::ForwardPlan;
use component::handler::{Call, Services};
use component::step::{Next, Progress, Step};
use component::text::parse_method;
use component::value_template::ValueTemplate;
use config::{ByteSize, Node, Report, Span, Spanned, Value};
use message::{Body, Fault, Headers, Kind, Method, Origin, Reply, Request};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::codes::{BAD_CALL, BAD_WEBSOCKET};
use crate::fields::{self, FieldTemplates, FieldTexts};
use crate::status::status_fault;
use crate::target::Target;
use crate::tls::TlsConfig;
use crate::url_template::{self, Parsed, UrlTemplate, push_encoded};
use crate::way::{self, EgressConfig, Own};
use config::AnyValue;
use given::Given;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "http",
    summary: "Sends an HTTP request.",
    documentation: include_str!("http_call.md"),
    example: include_str!("http_call.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// The most redirects that may be followed.
const REDIRECTS_MAX: u64 = 20;

/// The mapping form of `http`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HttpConfig {
    /// The target: `https://host:port/path?query`, or `CONNECTION:/path?query` with a name of
    /// `use:`. `${ }` is possible in path and query; each value is encoded. With `egress: guarded`
    /// it may be one `${ }` that gives a whole URL.
    to: Spanned<String>,
    /// The method. The default is `POST` with a `body`, else `GET`.
    method: Option<Spanned<String>>,
    /// Headers of the request, with `${ }` in their values. Headers of the client's request are not
    /// passed on.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    headers: Option<FieldTexts>,
    /// Query parameters, with `${ }` in their values: a list becomes several parameters, null is
    /// omitted.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    query: Option<AnyValue>,
    /// The body, with `${ }` in its strings: a string is sent as it is, anything else as JSON, or
    /// as a form or XML if the `Content-Type` says so. `null` is no body. Without this key `POST`,
    /// `PUT` and `PATCH` send the message's body.
    #[allow(
        dead_code,
        reason = "read from the tree, which keeps the text of numbers"
    )]
    body: Option<AnyValue>,
    /// Statuses that are not failures, such as `[2xx, 404]`.
    #[schemars(extend("default" = ["2xx"]))]
    expect: Option<Spanned<Vec<StatusName>>>,
    /// How the reply's body is decoded, whatever its `Content-Type`.
    decode: Option<Format>,
    /// How many redirects are followed, on the same host only, from 0 to 20; none where the URL is
    /// a value.
    #[schemars(extend("default" = 0))]
    redirects: Option<Spanned<u64>>,
    /// The largest body of a reply; the default is `engine.limits.body`.
    body_max: Option<Spanned<ByteSize>>,
    /// TLS for an `https` URL.
    tls: Option<Spanned<TlsConfig>>,
    /// `guarded`: connections are made only to addresses, ports and schemes that `engine.egress`
    /// allows (the egress guard), and the whole URL may be a value. For a connection of `use:` this
    /// stands there.
    egress: Option<Spanned<EgressConfig>>,
}

/// A status or a class of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum StatusName {
    /// A status.
    Status(u16),
    /// A class, such as `2xx`.
    Class(String),
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Http".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<HttpConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

/// What is sent as the body.
enum Sent {
    Nothing,
    Message,
    Made(ValueTemplate),
}

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
pub struct CallOptions<'a> {
    /// What logs call the one who sends it.
    pub step: &'a str,
    /// The most bytes of the reply's body; the engine's limit without one.
    pub body_max: Option<u64>,
    /// When it is given up.
    pub deadline: Option<Instant>,
}

/// Where a request goes.
enum Address {
    /// To a system that the file names.
    Fixed(UrlTemplate),
    /// To a URL that a value holds.
    Given(Given),
}

/// The step.
struct HttpCall {
    /// How requests get to the system that the file names. Of a URL that a value holds it is a
    /// template.
    plan: Arc<ForwardPlan>,
    method: Method,
    address: Address,
    query: Option<ValueTemplate>,
    headers: FieldTemplates,
    body: Sent,
    expect: Vec<std::ops::RangeInclusive<u16>>,
    decode: Option<Format>,
    redirects: u64,
    body_max: Option<u64>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let step = match &node.value {
        Value::String(text) => {
            let text = Spanned {
                value: text.clone(),
                span: node.span,
            };
            let parsed = url_template::read(&text, true, context)?;
            let method = parsed.method.clone().unwrap_or(Method::Get);
            make(parsed, method, (node.span, Own::default()), context)?
        }
        Value::Mapping(_) => build_mapping(node, context)?,
        _ => {
            config::check_kind(node, DEFINITION.schema, context.report);
            return None;
        }
    };
    Some(Box::new(step))
}

/// Reports a target of the scheme `ws` or `wss`. Whether it is one.
pub(crate) fn refuse_websocket(target: &Target, span: Span, report: &mut Report) -> bool {
    let is_websocket = matches!(target, Target::Url(url) if url.is_websocket);
    if is_websocket {
        let message = "only `forward` takes a `ws` or `wss` target";
        report
            .error(BAD_WEBSOCKET, span, message)
            .hint("a call gets one reply: write `http://` or `https://`");
    }
    is_websocket
}

/// A call with nothing said but its target.
fn make(
    parsed: Parsed,
    method: Method,
    (span, own): (Span, Own<'_>),
    context: &mut BuildContext<'_>,
) -> Option<HttpCall> {
    if refuse_websocket(&parsed.target, span, context.report) {
        return None;
    }
    let base = match &parsed.target {
        Target::Named { path, .. } => path.clone(),
        Target::Url(url) => url.path.clone(),
    };
    let way = way::find(
        parsed.target,
        span,
        own,
        (context.connections, context.report),
    )?;
    let base = way.path.strip_suffix(&base).unwrap_or_default().to_owned();
    context.upstreams.push(Arc::clone(&way.upstream));
    let others = way.credentials.as_ref().and_then(|it| it.upstream());
    context.upstreams.extend(others.map(Arc::clone));
    let mut plan = ForwardPlan::new(Arc::clone(&way.upstream), "/");
    plan.appends_rest = true;
    plan.request_fields.set = way.fields;
    way::authorize(&mut plan, way.parameter, way.credentials);
    let address = Address::Fixed(parsed.url.behind(base));
    Some(HttpCall::new(Arc::new(plan), method, address))
}

impl HttpCall {
    /// A call with nothing said but where it goes.
    fn new(plan: Arc<ForwardPlan>, method: Method, address: Address) -> Self {
        let sends = matches!(method, Method::Post | Method::Put | Method::Patch);
        Self {
            plan,
            method,
            address,
            query: None,
            headers: FieldTemplates::default(),
            body: if sends { Sent::Message } else { Sent::Nothing },
            expect: vec![200..=299],
            decode: None,
            redirects: 0,
            body_max: None,
        }
    }
}

/// The call of a target as it is written.
fn make_written(
    config: &HttpConfig,
    method: Option<Method>,
    context: &mut BuildContext<'_>,
) -> Option<HttpCall> {
    let tls = config.tls.as_ref();
    if let Some(egress) = &config.egress
        && url_template::is_one_value(&config.to)
    {
        let own = (tls, config.redirects.as_ref());
        let given = Given::read(&config.to, own, egress.span, context)?;
        return Some(HttpCall::new(
            given.template(),
            method?,
            Address::Given(given),
        ));
    }
    let parsed = url_template::read(&config.to, false, context);
    let own = Own {
        tls,
        egress: config.egress.as_ref(),
        protocols: None,
    };
    make(parsed?, method?, (config.to.span, own), context)
}

fn build_mapping(node: &Node, context: &mut BuildContext<'_>) -> Option<HttpCall> {
    let config: HttpConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let method = read_method(config.method.as_ref(), node.get("body"), context);
    let headers = fields::read_templates(node.get("headers"), &fields::framing, context);
    let query = node.get("query").map(|query| read_query(query, context));
    let body = read_body(node, context);
    let expect = read_expect(config.expect.as_ref(), context);
    let redirects = config.redirects.as_ref().map_or(0, |count| {
        if count.value > REDIRECTS_MAX {
            let message = "`redirects` is outside its range";
            let diagnostic = context.report.error(BAD_CALL, count.span, message);
            diagnostic.hint("from 0 to 20");
        }
        count.value
    });
    let mut call = make_written(&config, method, context)?;
    let place = node.get("headers").map_or(node.span, |it| it.span);
    let credentials = call.plan.credentials.as_ref();
    way::check_fields(headers.names(), credentials, place, context.report);
    let field = context.identities.map(|it| it.field());
    let is_identity = |name: &str| field.is_some_and(|it| it.is(name.as_bytes()));
    if headers.names().any(is_identity) {
        let message = "this has the identity header, which only `forward` can send";
        let diagnostic = context.report.error(BAD_CALL, place, message);
        diagnostic.hint("leave it out, or use `forward` with `identity: true`");
    }
    call.headers = headers;
    call.query = query.flatten();
    call.body = match body {
        Some(body) => body?,
        None => call.body,
    };
    call.expect = expect;
    call.decode = config.decode;
    call.redirects = redirects;
    call.body_max = config.body_max.map(|size| size.value.0);
    (context.problems() == before).then_some(call)
}

fn read_method(
    method: Option<&Spanned<String>>,
    body: Option<&Node>,
    context: &mut BuildContext<'_>,
) -> Option<Method> {
    let Some(method) = method else {
        let has_body = body.is_some_and(|body| !matches!(body.value, Value::Null));
        return Some(if has_body { Method::Post } else { Method::Get });
    };
    match parse_method(&method.value) {
        Ok(method) => Some(method),
        Err(error) => {
            let diagnostic = context.report.error(BAD_CALL, method.span, error.message);
            if let Some(hint) = error.hint {
                diagnostic.hint(hint);
            }
            None
        }
    }
}

fn read_query(node: &Node, context: &mut BuildContext<'_>) -> Option<ValueTemplate> {
    if node.as_mapping().is_none() {
        let message = format!("`query` is a mapping, not {}", node.type_name());
        context.report.error(BAD_CALL, node.span, message);
        return None;
    }
    context.value(node)
}

/// The body that the step says, if it says one.
fn read_body(node: &Node, context: &mut BuildContext<'_>) -> Option<Option<Sent>> {
    let body = node.get("body")?;
    Some(match &body.value {
        Value::Null => Some(Sent::Nothing),
        _ => context.value(body).map(Sent::Made),
    })
}

fn read_expect(
    names: Option<&Spanned<Vec<StatusName>>>,
    context: &mut BuildContext<'_>,
) -> Vec<std::ops::RangeInclusive<u16>> {
    let Some(names) = names else {
        return vec![200..=299];
    };
    let mut ranges = Vec::new();
    for name in &names.value {
        let range = match name {
            StatusName::Status(status) => {
                Some(*status..=*status).filter(|_| (200..=599).contains(status))
            }
            StatusName::Class(class) => match class.strip_suffix("xx").map(str::parse::<u16>) {
                Some(Ok(digit)) if (2..=5).contains(&digit) => Some(digit * 100..=digit * 100 + 99),
                _ => None,
            },
        };
        match range {
            Some(range) => ranges.push(range),
            None => {
                let message = "`expect` lists statuses from 200 to 599, or classes such as `2xx`";
                context.report.error(BAD_CALL, names.span, message);
            }
        }
    }
    ranges
}

impl HttpCall {
    async fn call(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let (mut request, plan) = exchange
            .preemptible(services, |it| {
                let plan = self.plan(it, services)?;
                Ok((self.request(it, services)?, plan))
            })
            .await?;
        let step = Arc::clone(&exchange.at);
        let options = CallOptions {
            step: &step,
            body_max: self.body_max,
            deadline: exchange.deadline,
        };
        let asked = self.ask(&plan, &mut request, options, services).await;
        let reply = match &self.address {
            Address::Fixed(_) => asked?,
            Address::Given(_) => asked.map_err(given::of_message)?,
        };
        if !self
            .expect
            .iter()
            .any(|range| range.contains(&reply.status))
        {
            let fault = status_fault(&reply, services);
            exchange.note_reply(reply);
            return Err(fault);
        }
        exchange.take_over(reply);
        let content = std::mem::take(&mut exchange.content);
        exchange.content = content.in_format(self.decode);
        Ok(Next::Continue)
    }

    /// Sends a request, and those that redirects ask for; the reply whatever its status.
    async fn ask(
        &self,
        plan: &Arc<ForwardPlan>,
        request: &mut Request,
        options: CallOptions<'_>,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let mut followed = 0;
        loop {
            let call = Call {
                body_max: options.body_max,
                deadline: options.deadline,
                ..Call::new(plan, request, options.step)
            };
            let reply = services.call(call).await?;
            match location(&reply) {
                Some(location) if self.redirects > 0 => {
                    if followed == self.redirects {
                        return Err(redirect_fault("too many redirects"));
                    }
                    followed += 1;
                    self.follow(&reply, &location, request)?;
                }
                _ => return Ok(reply),
            }
        }
    }

    /// How the request of a message gets where it goes.
    fn plan(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Arc<ForwardPlan>, Fault> {
        match &self.address {
            Address::Fixed(_) => Ok(Arc::clone(&self.plan)),
            Address::Given(given) => given.plan(exchange, services),
        }
    }

    fn request(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Request, Fault> {
        let (path, mut query) = match &self.address {
            Address::Fixed(url) => url.make(exchange, services)?,
            // The plan has both.
            Address::Given(_) => ("/".to_owned(), None),
        };
        if let Some(parameters) = &self.query {
            let parameters = parameters.make(exchange, services)?;
            add_query(&parameters, &mut query)?;
        }
        let mut headers = Headers::new();
        if self.plan.upstream.egress.is_guarded()
            && let Some(hops) = loops::passed_on(exchange.request.headers.view())
        {
            headers.append(loops::FIELD, hops);
        }
        let lines = self.headers.make(exchange, services)?;
        for (name, value) in &lines {
            headers.append(name, value);
        }
        let body = self.content(exchange, services, &mut headers)?;
        let rest = path.strip_prefix('/').unwrap_or(&path).to_owned();
        Ok(Request {
            method: self.method.clone(),
            path,
            query,
            parameters: vec![("rest".into(), rest)],
            headers,
            body,
            peer: exchange.request.peer,
            proxy: exchange.request.proxy,
            is_secure: exchange.request.is_secure,
            certificate: None,
            caller: None,
        })
    }

    /// The body, and the lines that describe it.
    fn content(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
        headers: &mut Headers,
    ) -> Result<Body, Fault> {
        let own_type = headers.get("Content-Type").map(<[u8]>::to_vec);
        let (body, content_type) = match &self.body {
            Sent::Nothing => return Ok(Body::Empty),
            Sent::Message => {
                let (body, content_type) = exchange.body()?;
                if let Some(encoding) = exchange.content_encoding() {
                    headers.append("Content-Encoding", encoding);
                }
                (body, content_type)
            }
            Sent::Made(value) => {
                let value = value.make(exchange, services)?;
                match own_type.as_deref().map(|it| format_of(Some(it))) {
                    Some(format @ (Format::Form | Format::Xml)) => {
                        let write = move |value: &_, size_max| write(value, format, size_max);
                        (exchange.write(&value, write)?, None)
                    }
                    _ => {
                        let content = Content::of_value(value);
                        let own = std::mem::replace(&mut exchange.content, content);
                        let sent = exchange.body();
                        exchange.content = own;
                        sent?
                    }
                }
            }
        };
        if let Some(content_type) = content_type.filter(|_| own_type.is_none()) {
            headers.append("Content-Type", content_type);
        }
        Ok(body)
    }

    /// Makes the request that a redirect asks for (RFC 9110, section 15.4).
    fn follow(&self, reply: &Reply, location: &str, request: &mut Request) -> Result<(), Fault> {
        let target = self.same_host(location);
        let Some(target) = target.filter(|target| target.starts_with('/')) else {
            return Err(redirect_fault("a redirect to another host"));
        };
        let target = target.split('#').next().unwrap_or_default();
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let is_sound = component::text::check_path(path).is_ok();
        if !is_sound {
            return Err(redirect_fault("a redirect to no path"));
        }
        request.path = path.to_owned();
        let rest = path.strip_prefix('/').unwrap_or(path).to_owned();
        request.parameters = vec![("rest".into(), rest)];
        request.query = query;
        let becomes_get = match reply.status {
            303 => request.method != Method::Head,
            301 | 302 => request.method == Method::Post,
            _ => false,
        };
        if becomes_get {
            request.method = Method::Get;
            request.body = Body::Empty;
            for name in ["Content-Type", "Content-Encoding"] {
                request.headers.remove(name);
            }
        }
        Ok(())
    }

    /// The path of a location on the host that was asked.
    fn same_host<'l>(&self, location: &'l str) -> Option<&'l str> {
        let Some((scheme, rest)) = location.split_once("://") else {
            return Some(location).filter(|it| !it.starts_with("//"));
        };
        let upstream = &self.plan.upstream;
        let expected = if upstream.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let path = rest.strip_prefix(upstream.authority().as_str())?;
        let is_same = scheme.eq_ignore_ascii_case(expected);
        Some(if path.is_empty() { "/" } else { path }).filter(|_| is_same)
    }
}

/// Where a reply redirects to.
fn location(reply: &Reply) -> Option<String> {
    if !matches!(reply.status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = reply.headers.get("Location")?;
    std::str::from_utf8(location).ok().map(str::to_owned)
}

fn redirect_fault(cause: &str) -> Fault {
    let detail = "the upstream redirected the request";
    Fault::new(Kind::Connection, Origin::Upstream, detail).with_cause(cause)
}

/// Writes a value as a form or as XML of at most `size_max` bytes.
fn write(value: &expr::Value, format: Format, size_max: usize) -> Result<Vec<u8>, Fault> {
    let written = match format {
        Format::Form => expr::format::to_form(value, size_max),
        _ => expr::format::to_xml(value, size_max),
    };
    written.map_err(Fault::expression)
}

/// The most bytes of a query. Few servers take as many as a hundredth of that.
const QUERY_MAX: usize = 1 << 20;

/// Adds parameters to a query.
fn add_query(parameters: &expr::Value, query: &mut Option<String>) -> Result<(), Fault> {
    let mut text = query.take().unwrap_or_default();
    for (name, value) in expr::value::members(parameters).into_iter().flatten() {
        let one = std::slice::from_ref(value);
        for value in expr::value::as_array(value).unwrap_or(one) {
            if matches!(value, expr::Value::Null) {
                continue;
            }
            let Some(value) = expr::value::scalar_text(value) else {
                let kind = expr::value::kind(value);
                let detail = format!("the parameter `{name}` is a text, not {kind}");
                return Err(Fault::invalid(detail));
            };
            if !text.is_empty() {
                text.push('&');
            }
            push_encoded(name, &mut text);
            text.push('=');
            push_encoded(&value, &mut text);
            // A name stands there for each entry of a list: little is needed to make much.
            if text.len() > QUERY_MAX {
                return Err(Fault::invalid("the query is longer than 1 MiB"));
            }
        }
    }
    *query = Some(text).filter(|text| !text.is_empty());
    Ok(())
}

impl Step for HttpCall {
    fn is_repeatable(&self, _: &Exchange) -> bool {
        self.method.is_idempotent()
    }

    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.call(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        let body = match &self.body {
            Sent::Nothing => false,
            Sent::Message => true,
            Sent::Made(value) => value.reads_body(),
        };
        let query = self.query.as_ref().is_some_and(ValueTemplate::reads_body);
        let address = match &self.address {
            Address::Fixed(url) => url.reads_body(),
            Address::Given(given) => given.reads_body(),
        };
        body || query || address || self.headers.reads_body()
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
