//! `forward`: sends the message on to another system. As the last step the reply is streamed back;
//! before another step it is read whole and becomes the message.
//!
//! This file checks and makes the plan; `proxy` carries it out.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use component::credentials::Signs;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::forward::{FieldEdits, ForwardPlan, ForwardTimeouts, HostField};
use component::handler::{Call, Services};
use component::identity::Identity;
use component::step::{Next, Progress, Step};
use component::text::{parse_authority, parse_method};
use component::tls::Protocol;
use component::trigger::Methods;
use config::{Node, Report, Span, Spanned, Value};
use message::{Fault, Field, Headers, Method, Reply};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::codes::{BAD_FORWARD, BAD_HOST, BAD_TARGET, NO_EFFECT, OUT_OF_RANGE};
use crate::fields::{self, FieldTexts};
use crate::status::status_fault;
use crate::tls::TlsConfig;
use crate::way::{self, Way};

mod to;

use to::{Aim, To};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "forward",
    summary: "Forwards the message to another system and streams its reply.",
    documentation: include_str!("forward.md"),
    example: include_str!("forward.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// The pseudonym in `Via` when the flow names none.
const VIA: &str = "intertie";

/// The mapping form of `forward`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForwardConfig {
    /// The target: `https://host:port/path?query`, or `CONNECTION:/path?query` with a name of
    /// `use:`. `ws` and `wss` take WebSocket handshakes only. `${ }` is possible in path and query;
    /// each value is encoded.
    to: Spanned<String>,
    /// The method to send; the default is the request's.
    method: Option<Spanned<String>>,
    /// What the `Host` header says: `target` (the target's host and port), `keep` (what the client
    /// sent), or a host of your own.
    #[schemars(extend("default" = "target"))]
    host: Option<Spanned<String>>,
    /// Changes to the request's headers.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each name"
    )]
    headers: Option<EditsConfig>,
    /// Changes to the reply's headers. Only if `forward` is the last step.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each name"
    )]
    reply_headers: Option<EditsConfig>,
    /// Which headers tell the target about the client: `X-Forwarded-For`, `-Host` and `-Proto`
    /// (`x-forwarded`), `Forwarded` (`rfc7239`), `both` or `none`. Those of the request are kept
    /// only if it comes from one of `engine.trusted_proxies`.
    #[serde(default)]
    forwarded: ForwardedConfig,
    /// Whether the target is told who the caller is, by the header that `engine.identity`
    /// describes. `audience` says for whom the token is, in place of the engine's.
    identity: Option<Spanned<IdentityConfig>>,
    /// The name that is added to the request's `Via`, or `false` to add none.
    #[schemars(extend("default" = VIA))]
    via: Option<ViaConfig>,
    /// Whether HTTP/1.1 clients get `103 Early Hints` and other interim replies besides `100
    /// Continue`; some clients mistake them for the final reply. HTTP/2 clients always get them.
    /// Only if `forward` is the last step.
    #[serde(default)]
    early_hints: bool,
    /// Time-outs that differ from `engine.timeouts`. Each is from 1ms to 1d.
    timeouts: Option<TimeoutsConfig>,
    /// TLS for an `https` URL. A connection of `use:` has its own setting.
    tls: Option<Spanned<TlsConfig>>,
    /// The protocols to use, the preferred one first. The default is `[h2, http/1.1]` for `https`,
    /// where the target chooses (ALPN), and `[http/1.1]` for `http`. A connection of `use:` has its
    /// own setting.
    protocols: Option<Spanned<Vec<Protocol>>>,
}

/// Changes to headers: first `remove`, then `set`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(
    dead_code,
    reason = "read from the tree, which knows the place of each name"
)]
struct EditsConfig {
    /// Headers to set; each replaces all fields of that name.
    set: Option<FieldTexts>,
    /// Names of headers to remove.
    remove: Option<Vec<String>>,
}

/// Whether the target is told who the caller is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum IdentityConfig {
    Switch(bool),
    For(IdentityFor),
}

/// For whom the token is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct IdentityFor {
    /// The `aud` of the token.
    audience: String,
}

/// Which headers tell the target about the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
enum ForwardedConfig {
    /// `X-Forwarded-For`, `X-Forwarded-Host`, `X-Forwarded-Proto`.
    #[default]
    XForwarded,
    /// `Forwarded` of RFC 7239.
    Rfc7239,
    /// Both kinds.
    Both,
    /// None; what the client sent is passed on.
    None,
}

impl ForwardedConfig {
    fn writes_x_forwarded(self) -> bool {
        matches!(self, Self::XForwarded | Self::Both)
    }

    fn writes_forwarded(self) -> bool {
        matches!(self, Self::Rfc7239 | Self::Both)
    }
}

/// Time-outs of one target.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimeoutsConfig {
    /// How long connecting may take.
    connect: Option<Spanned<config::Duration>>,
    /// How long the target may take from the end of the request to the head of the reply.
    response: Option<Spanned<config::Duration>>,
    /// How long a body may make no progress.
    body: Option<Spanned<config::Duration>>,
}

/// A name, or `false`.
#[derive(Debug, PartialEq, Eq)]
enum ViaConfig {
    Name(String),
    Off,
}

impl<'de> Deserialize<'de> for ViaConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrFalse;
        impl Visitor<'_> for NameOrFalse {
            type Value = ViaConfig;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a name or false")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<ViaConfig, E> {
                Ok(ViaConfig::Name(name.to_owned()))
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<ViaConfig, E> {
                if value {
                    Err(E::custom("write a name or false"))
                } else {
                    Ok(ViaConfig::Off)
                }
            }
        }
        deserializer.deserialize_any(NameOrFalse)
    }
}

impl JsonSchema for ViaConfig {
    fn schema_name() -> Cow<'static, str> {
        "Via".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, { "const": false }] })
    }
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> Cow<'static, str> {
        "Forward".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<ForwardConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let appends_rest = context.trigger.is_some_and(|trigger| trigger.path.rest);
    let built = match &node.value {
        Value::String(text) => build_short(text, node.span, context),
        Value::Mapping(_) => build_mapping(node, context),
        _ => {
            config::check_kind(node, DEFINITION.schema, context.report);
            None
        }
    };
    let (mut plan, aim) = built?;
    plan.appends_rest = appends_rest || aim.is_some();
    context.upstreams.push(Arc::clone(&plan.upstream));
    let others = plan.credentials.as_ref().and_then(|it| it.upstream());
    context.upstreams.extend(others.map(Arc::clone));
    let place = match (context.is_last, context.may_stream) {
        (true, true) => Place::Streams,
        (true, false) => Place::Ends,
        (false, _) => Place::GoesOn,
    };
    Some(Box::new(Forward {
        plan: Arc::new(plan),
        aim,
        place,
    }))
}

/// A plan, and what makes its path and query where they depend on the message.
type Built = (ForwardPlan, Option<Aim>);

fn build_short(text: &str, span: Span, context: &mut BuildContext<'_>) -> Option<Built> {
    let before = context.problems();
    let value = text.to_owned();
    let to = To::read(&Spanned { value, span }, true, context)?;
    let method = to.method.clone();
    check_method(method.as_ref(), span, context);
    let found = to.find(way::Own::default(), method.as_ref(), context)?;
    let plan = ForwardPlan {
        websocket: found.websocket,
        ..plain_plan(found.way, method)
    };
    (context.problems() == before).then_some((plan, found.aim))
}

/// A plan with the defaults.
fn plain_plan(way: Way, method: Option<Method>) -> ForwardPlan {
    let mut plan = ForwardPlan {
        query: way.query,
        method,
        request_fields: FieldEdits {
            set: way.fields,
            remove_prefix: way.credentials.as_ref().and_then(|it| it.orders()),
            ..FieldEdits::default()
        },
        x_forwarded: true,
        via: Some(VIA.to_owned()),
        ..ForwardPlan::new(way.upstream, way.path)
    };
    way::authorize(&mut plan, way.parameter, way.credentials);
    plan
}

fn build_mapping(node: &Node, context: &mut BuildContext<'_>) -> Option<Built> {
    let config: ForwardConfig = config::decode(node, context.report)?;
    let before = context.report.diagnostics().len();
    let to = To::read(&config.to, false, context);
    let report = &mut *context.report;
    let method = config
        .method
        .as_ref()
        .and_then(|method| read_method(method, report));
    let host_field = read_host(config.host.as_ref(), report);
    let via = read_via(node, config.via.as_ref(), report);
    let forwarded = config.forwarded;
    let writes_via = via.is_some();
    let reserved = |field| reserved_in_request(field, forwarded, writes_via);
    let mut request_fields = read_edits(node.get("headers"), &reserved, report);
    let reply_fields = read_edits(node.get("reply_headers"), &fields::framing, report);
    if let Some(entry) = node.entry("reply_headers").filter(|_| !context.is_last) {
        report
            .error(
                NO_EFFECT,
                entry.key_span,
                "`reply_headers` has no effect before another step",
            )
            .hint("only the reply's body, its Content-Type and Content-Encoding go on from here");
    }
    if let Some(entry) = node.entry("early_hints").filter(|_| !context.is_last) {
        let message = "`early_hints` has no effect before another step";
        report
            .error(NO_EFFECT, entry.key_span, message)
            .hint("the reply is read whole here");
    }
    let timeouts = read_timeouts(config.timeouts.as_ref(), report);
    let own = way::Own::new(config.tls.as_ref(), config.protocols.as_ref());
    let span = config.method.as_ref().map_or(node.span, |it| it.span);
    check_method(method.as_ref(), span, context);
    let found = to?.find(own, method.as_ref(), context)?;
    let identity = read_identity(config.identity.as_ref(), node, context);
    check_body_time(found.websocket, config.timeouts.as_ref(), context.report);
    let way = found.way;
    let place = node.get("headers").map_or(node.span, |it| it.span);
    let names = request_fields.set.iter().map(|(name, _)| name.as_str());
    way::check_fields(names, way.credentials.as_ref(), place, context.report);
    for (name, value) in &way.fields {
        if !request_fields.drops(name.as_bytes()) {
            request_fields.set.push((name.clone(), value.clone()));
        }
    }
    let plain = plain_plan(way, method);
    // What the credentials replace.
    request_fields
        .remove
        .extend(plain.request_fields.remove.iter().cloned());
    request_fields.remove_prefix = plain.request_fields.remove_prefix;
    let plan = ForwardPlan {
        host_field,
        x_forwarded: forwarded.writes_x_forwarded(),
        forwarded: forwarded.writes_forwarded(),
        via,
        request_fields,
        reply_fields,
        timeouts,
        early_hints: config.early_hints,
        websocket: found.websocket,
        identity,
        ..plain
    };
    (context.report.diagnostics().len() == before).then_some((plan, found.aim))
}

/// What tells the target who the caller is. Every problem is reported.
fn read_identity(
    config: Option<&Spanned<IdentityConfig>>,
    node: &Node,
    context: &mut BuildContext<'_>,
) -> Option<Arc<dyn Identity>> {
    let config = config?;
    let audience = match &config.value {
        IdentityConfig::Switch(false) => return None,
        IdentityConfig::Switch(true) => None,
        IdentityConfig::For(it) => Some(&it.audience),
    };
    let mut refuse = |span, message: &str, hint: &str| {
        let diagnostic = context.report.error(BAD_FORWARD, span, message);
        diagnostic.hint(hint);
        None
    };
    let Some(identities) = context.identities else {
        let message = "there is no identity header";
        return refuse(config.span, message, "describe it under `engine.identity`");
    };
    if !context.may_have_caller {
        let message = "no caller is known whose identity could be passed on";
        let hint = "add `auth` to the flow, or to its listener under `engine.listeners`";
        return refuse(config.span, message, hint);
    }
    if audience.is_some_and(|it| it.is_empty() || it.contains(char::is_control)) {
        let message = "the audience is empty or has a control character";
        return refuse(
            config.span,
            message,
            "write what the target expects in `aud`",
        );
    }
    let field = identities.field();
    let set = node.get("headers").and_then(|it| it.get("set"));
    let mut set = set.and_then(Node::as_mapping).into_iter().flatten();
    if let Some(entry) = set.find(|it| field.is(it.key.as_bytes())) {
        let message = "this is the identity header, which the engine writes";
        return refuse(
            entry.key_span,
            message,
            "leave it out, or leave `identity` out",
        );
    }
    let identity = identities.for_audience(audience.map(String::as_str));
    if identity.is_none() {
        let message = "nothing says for whom the identity is";
        let hint = "write `identity: { audience: NAME }`, or add `audience` to `engine.identity`";
        return refuse(config.span, message, hint);
    }
    identity
}

/// A reply to `HEAD` goes on only to a client that has sent `HEAD`: to any other it announces a
/// body that never comes (RFC 9112, section 6.3).
fn check_method(method: Option<&Method>, span: Span, context: &mut BuildContext<'_>) {
    if method != Some(&Method::Head) || !context.is_last {
        return;
    }
    let only_head = context
        .trigger
        .is_some_and(|trigger| match &trigger.methods {
            Methods::Only(methods) => methods.iter().all(|method| *method == Method::Head),
            Methods::Any => false,
        });
    if !only_head {
        let message = "the reply to `HEAD` has no body and cannot be the client's reply";
        context
            .report
            .error(BAD_FORWARD, span, message)
            .hint("leave the method out: `HEAD` is sent when the client has sent `HEAD`");
    }
}

fn check_body_time(websocket: bool, timeouts: Option<&TimeoutsConfig>, report: &mut Report) {
    let body = timeouts.and_then(|timeouts| timeouts.body.as_ref());
    if let Some(body) = body.filter(|_| websocket) {
        report
            .error(NO_EFFECT, body.span, "a WebSocket handshake has no body")
            .hint("how long a connection may be quiet is `engine.timeouts.stream`");
    }
}

fn read_method(method: &Spanned<String>, report: &mut Report) -> Option<Method> {
    parse_method(&method.value)
        .map_err(|error| {
            let diagnostic = report.error(BAD_TARGET, method.span, error.message);
            if let Some(hint) = error.hint {
                diagnostic.hint(hint);
            }
        })
        .ok()
}

fn read_host(host: Option<&Spanned<String>>, report: &mut Report) -> HostField {
    let Some(host) = host else {
        return HostField::Target;
    };
    match host.value.as_str() {
        "target" => HostField::Target,
        "keep" => HostField::Keep,
        text => {
            if !matches!(parse_authority(text), Ok((Some(_), _))) {
                let message = format!("`{}` is not a host", text.escape_debug());
                report
                    .error(BAD_HOST, host.span, message)
                    .hint("write `target`, `keep` or a host such as `api.example:8080`");
            }
            HostField::Fixed(text.to_owned())
        }
    }
}

/// A pseudonym is a token (RFC 9110, section 7.6.3).
fn read_via(node: &Node, via: Option<&ViaConfig>, report: &mut Report) -> Option<String> {
    match via {
        None => Some(VIA.to_owned()),
        Some(ViaConfig::Off) => None,
        Some(ViaConfig::Name(name)) => {
            let is_host = matches!(parse_authority(name), Ok((Some(_), _)));
            if !is_host && !Headers::is_name(name) {
                let span = node.get("via").map_or(node.span, |via| via.span);
                let message = format!("`{}` cannot stand in `Via`", name.escape_debug());
                report
                    .error(BAD_HOST, span, message)
                    .hint("write one word, a host, or `false`");
            }
            Some(name.clone())
        }
    }
}

fn reserved_in_request(
    field: Field,
    forwarded: ForwardedConfig,
    writes_via: bool,
) -> Option<&'static str> {
    match field {
        Field::XForwardedFor | Field::XForwardedHost | Field::XForwardedProto
            if forwarded.writes_x_forwarded() =>
        {
            Some("the engine writes it; say `forwarded: none` to do it yourself")
        }
        Field::Forwarded if forwarded.writes_forwarded() => {
            Some("the engine writes it; choose another `forwarded` to do it yourself")
        }
        Field::Via if writes_via => Some("the engine writes it; say `via: false` or `via: NAME`"),
        field => fields::framing(field),
    }
}

fn read_edits(
    node: Option<&Node>,
    reserved: fields::Reserved<'_>,
    report: &mut Report,
) -> FieldEdits {
    let part = |name| node.and_then(|node| node.get(name));
    FieldEdits {
        remove: fields::read_remove(part("remove"), reserved, report),
        set: fields::read_set(part("set"), reserved, report),
        ..FieldEdits::default()
    }
}

fn read_timeouts(config: Option<&TimeoutsConfig>, report: &mut Report) -> ForwardTimeouts {
    let Some(config) = config else {
        return ForwardTimeouts::default();
    };
    let mut read = |time: &Option<Spanned<config::Duration>>| {
        time.as_ref().map(|time| {
            let range = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);
            if !range.contains(&time.value.0) {
                report
                    .error(
                        OUT_OF_RANGE,
                        time.span,
                        "this time-out is outside its range",
                    )
                    .hint("from 1ms to 1d");
            }
            time.value.0
        })
    };
    ForwardTimeouts {
        connect: read(&config.connect),
        response: read(&config.response),
        body: read(&config.body),
        total: None,
    }
}

/// The step.
struct Forward {
    plan: Arc<ForwardPlan>,
    aim: Option<Aim>,
    place: Place,
}

/// What becomes of the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is streamed to the client.
    Streams,
    /// It is read whole, since the flow handles failures, and sent to the client as it is.
    Ends,
    /// It is read whole, and its body becomes the message's.
    GoesOn,
}

impl Forward {
    /// Leaves the message to whoever forwards it.
    fn leave(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        if let Some(aim) = &self.aim {
            let place = aim.make(exchange, services)?;
            to::point(&mut exchange.request, place);
        }
        Ok(Next::Forward(Arc::clone(&self.plan)))
    }

    /// Whether the request can be sent only when its body has been read.
    fn signs_body(&self) -> bool {
        let credentials = self.plan.credentials.as_ref();
        credentials.is_some_and(|it| it.signs() == Signs::Body)
    }

    async fn call(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let request = exchange.preemptible(services, |it| {
            let mut request = it.take_request()?;
            if let Some(aim) = &self.aim {
                to::point(&mut request, aim.make(it, services)?);
            }
            Ok(request)
        });
        let request = request.await?;
        let step = Arc::clone(&exchange.at);
        let call = Call {
            deadline: exchange.deadline,
            ..Call::new(&self.plan, &request, &step)
        };
        let reply = services.call(call).await?;
        if self.place == Place::Ends {
            return Ok(Next::Reply(end_to_end(reply)));
        }
        if !(200..300).contains(&reply.status) {
            let fault = status_fault(&reply, services);
            exchange.note_reply(reply);
            return Err(fault);
        }
        exchange.take_over(reply);
        Ok(Next::Continue)
    }
}

/// A reply without the fields that are only about one connection.
fn end_to_end(mut reply: Reply) -> Reply {
    let names: Vec<String> = reply
        .headers
        .view()
        .iter()
        .filter(|(field, ..)| field.is_hop_by_hop() || field.is_framing())
        .map(|(_, name, _)| String::from_utf8_lossy(name).into_owned())
        .collect();
    for name in names {
        reply.headers.remove(&name);
    }
    reply
}

impl Step for Forward {
    fn is_repeatable(&self, exchange: &Exchange) -> bool {
        let method = self.plan.method.as_ref();
        method.unwrap_or(&exchange.request.method).is_idempotent()
    }

    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        if self.place == Place::Streams {
            return Progress::Done(self.leave(exchange, services));
        }
        Progress::Waits(Box::pin(self.call(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        self.place != Place::Streams
            || self.signs_body()
            || self.aim.as_ref().is_some_and(Aim::reads_body)
    }

    fn forwards(&self) -> Option<&Arc<ForwardPlan>> {
        let streams = self.streams() && self.aim.is_none() && !self.signs_body();
        Some(&self.plan).filter(|_| streams)
    }

    fn streams(&self) -> bool {
        self.place == Place::Streams
    }

    fn ends_flow(&self) -> bool {
        self.place != Place::GoesOn
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
