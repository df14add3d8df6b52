//! The `from:` of a flow: what starts it.

mod endpoint;
mod entrance;
mod methods;
mod path;
mod text;
mod tls;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use component::content::Format;
use component::endpoint::{EndpointDefinition, Envelope};
use component::flow_kind::FlowKind;
use component::source::{Source, SourceContext, SourceDefinition};
use component::tls::{ListenerTls, Protocol};
use component::trigger::{HttpTrigger, ListenAddress, Methods};
use config::{ByteSize, Node, Report, Span, Spanned, Value};
use message::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

pub(crate) use endpoint::schema as endpoint_schema;
pub(crate) use entrance::schemas as listener_schemas;
pub(crate) use text::parse_listen;

use crate::bounds::{BODY, Bounds};
use crate::codes::{BAD_METHOD, UNKNOWN_TRIGGER};
use crate::gates::CallerLimits;
use crate::listeners::Listeners;
use crate::problem::Problem;
use crate::suggest::did_you_mean;
use crate::trigger::tls::TlsConfig;

/// What engine settings mean to flows.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub listen: ListenAddress,
    pub listeners: Arc<Listeners>,
    /// How others reach the engine.
    pub public_url: Option<Arc<str>>,
    pub body_max: u64,
    /// The memory of all bodies, when it is set: no body may be larger.
    pub body_memory: Option<u64>,
    pub expressions: expr::jq::Limits,
    /// The plans of callers.
    pub callers: CallerLimits,
}

/// What starts a flow.
#[derive(Clone)]
pub(crate) enum Trigger {
    /// Requests.
    Http(Box<HttpStart>),
    /// Something that comes by itself.
    Source(Arc<dyn Source>),
    /// Other flows.
    Call,
}

impl Trigger {
    /// The HTTP trigger, when it is one.
    pub fn http(&self) -> Option<&HttpTrigger> {
        self.start().map(|start| &start.http)
    }

    /// The HTTP trigger with what the checks of all flows together need.
    pub fn start(&self) -> Option<&HttpStart> {
        match self {
            Self::Http(start) => Some(start),
            Self::Source(_) | Self::Call => None,
        }
    }

    /// The source, when it is one.
    pub fn source(&self) -> Option<&Arc<dyn Source>> {
        match self {
            Self::Source(source) => Some(source),
            Self::Http(_) | Self::Call => None,
        }
    }

    /// The format of bodies, when it does not go by their `Content-Type`.
    pub fn decode(&self) -> Option<Format> {
        match self {
            Self::Http(start) => start.http.decode,
            Self::Source(source) => source.decode(),
            Self::Call => None,
        }
    }

    /// Whether other flows start it.
    pub fn is_call(&self) -> bool {
        matches!(self, Self::Call)
    }
}

/// An HTTP trigger with what the checks of all flows together need.
#[derive(Clone)]
pub(crate) struct HttpStart {
    pub http: HttpTrigger,
    pub tls: Option<ListenerTls>,
    /// The protocols of the listener, the preferred one first.
    pub protocols: Vec<Protocol>,
    /// Where `from:` has its value.
    pub span: Span,
    /// Where `body_max` stands, when it does.
    pub body_max_span: Option<Span>,
    /// The protocol within.
    pub envelope: Option<Arc<dyn Envelope>>,
}

/// Takes HTTP requests. The short form is `METHOD [host]:port/path`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HttpConfig {
    /// `GET`, `GET,POST`, a list of methods, or `any` (the default): all but `CONNECT` and `TRACE`.
    /// `GET` also matches `HEAD`, unless another flow names `HEAD`.
    method: Option<MethodsConfig>,
    /// Where to listen: `:8080` for all interfaces, `127.0.0.1:8080`, `[::1]:8080`,
    /// `localhost:8080`. The default is `engine.listen`.
    listen: Option<Spanned<String>>,
    /// The path: literal segments, `{name}` for one segment, `*` at the end for the rest. The most
    /// specific path wins, then a named method wins over `any`.
    path: Spanned<String>,
    /// The largest body that the flow reads into memory, from 1B to 1GiB; a larger one gets 413.
    /// The default is `engine.limits.body`. Bodies that are streamed by `forward` have no limit.
    body_max: Option<Spanned<ByteSize>>,
    /// How bodies are decoded, whatever their `Content-Type`: `json`, `xml`, `form`, `csv`, `text`
    /// or `bytes`.
    decode: Option<Format>,
    /// TLS. All flows on one address must have the same settings.
    tls: Option<Spanned<TlsConfig>>,
    /// The protocols to accept, the preferred one first. The default is `[h2, http/1.1]` with TLS,
    /// where ALPN decides, and `[http/1.1]` without; there `h2` means HTTP/2 with prior knowledge.
    /// All flows on one address must have the same.
    protocols: Option<Spanned<Vec<Protocol>>>,
}

/// One text or a list of texts.
#[derive(Debug)]
enum MethodsConfig {
    Text(String),
    List(Vec<String>),
}

impl<'de> Deserialize<'de> for MethodsConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrList;
        impl<'de> Visitor<'de> for TextOrList {
            type Value = MethodsConfig;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a method or a list of methods")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<MethodsConfig, E> {
                Ok(MethodsConfig::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<MethodsConfig, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(MethodsConfig::List)
            }
        }
        deserializer.deserialize_any(TextOrList)
    }
}

impl JsonSchema for MethodsConfig {
    fn schema_name() -> Cow<'static, str> {
        "Methods".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 }
            ]
        })
    }
}

/// The short form or the mapping, for the schema alone.
struct HttpForms;

impl JsonSchema for HttpForms {
    fn schema_name() -> Cow<'static, str> {
        "HttpTrigger".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<HttpConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

/// The schema of the value under `http:`.
pub(crate) fn schema() -> serde_json::Value {
    config::schema_for::<HttpForms>()
}

/// The schema of the mapping form alone, for the reference page.
pub(crate) fn mapping_schema() -> serde_json::Value {
    config::schema_for::<HttpConfig>()
}

/// Reads the value of `from:`. Every problem is reported; `None` when there was one.
pub(crate) fn read(
    from: &Node,
    (sources, endpoints): (&[SourceDefinition], &[EndpointDefinition]),
    defaults: &Defaults,
    context: &mut SourceContext<'_>,
) -> Option<Trigger> {
    if from.as_str() == Some("call") {
        return Some(Trigger::Call);
    }
    let names = sources.iter().map(|source| source.name);
    let names: Vec<&str> = names.chain(endpoints.iter().map(|it| it.name)).collect();
    let known = format!("there are `http`, {} and `call`", quoted(&names));
    let Some(entries) = from.as_mapping() else {
        let message = format!(
            "`from` is a mapping with one trigger, not {}",
            from.type_name()
        );
        let hint = match from.as_str().and_then(|text| did_you_mean(text, ["call"])) {
            Some(hint) => hint,
            None => "write `from:` and below it, indented, `http: GET :8080/path`".to_owned(),
        };
        context
            .report
            .error(UNKNOWN_TRIGGER, from.span, message)
            .hint(hint);
        return None;
    };
    let is_known = |key: &str| key == "http" || names.contains(&key);
    for entry in entries.iter().filter(|entry| !is_known(&entry.key)) {
        let message = format!("unknown trigger `{}`", entry.key.escape_debug());
        let hint = if entry.key == "call" {
            "write `from: call`".to_owned()
        } else if matches!(entry.value.value, Value::Null) && entries.len() > 1 {
            "within `{ }` a text with commas needs quotes: `http: \"GET,POST /x\"`".to_owned()
        } else {
            let all = names.iter().copied().chain(["http"]);
            did_you_mean(&entry.key, all).unwrap_or_else(|| known.clone())
        };
        context
            .report
            .error(UNKNOWN_TRIGGER, entry.key_span, message)
            .hint(hint);
    }
    let [entry] = entries else {
        let message = match entries {
            [] => "`from` names no trigger",
            _ => "a flow has one trigger",
        };
        if entries.is_empty() || entries.iter().all(|entry| is_known(&entry.key)) {
            context
                .report
                .error(UNKNOWN_TRIGGER, from.span, message)
                .hint(known);
        }
        return None;
    };
    if entry.key == "http" {
        let start = read_http(&entry.value, defaults, context.report)?;
        return Some(Trigger::Http(Box::new(start)));
    }
    if let Some(endpoint) = endpoints.iter().find(|it| it.name == entry.key) {
        let start = endpoint::read(endpoint, &entry.value, defaults, context)?;
        return Some(Trigger::Http(Box::new(start)));
    }
    let definition = sources.iter().find(|source| source.name == entry.key)?;
    (definition.build)(&entry.value, context).map(Trigger::Source)
}

/// Reads the `from:` of a kind of flow that has one trigger, with `http` among its keys. Every
/// problem is reported; `None` when there was one.
pub(crate) fn read_of_kind(
    from: &Node,
    kind: &FlowKind,
    defaults: &Defaults,
    context: &mut SourceContext<'_>,
) -> Option<Trigger> {
    let name = kind.trigger.name;
    let only = match from.as_mapping() {
        Some([entry]) if entry.key == name => &entry.value,
        _ => {
            let message = format!(
                "a {} is started by `{name}`, and by nothing else",
                kind.name
            );
            let diagnostic = context.report.error(UNKNOWN_TRIGGER, from.span, message);
            diagnostic.hint(format!(
                "write `from: {{ {name}: {{ http: POST /{name} }} }}`"
            ));
            return None;
        }
    };
    let envelope = (kind.trigger.build)(only, context);
    let mut start = read_http(only.get("http")?, defaults, context.report)?;
    let envelope = envelope?;
    let taken = envelope.methods();
    if let Methods::Only(methods) = &start.http.methods
        && let Some(other) = methods.iter().find(|it| !taken.contains(it))
    {
        let names: Vec<&str> = taken.iter().map(Method::as_str).collect();
        let message = format!("no request comes with {}", other.as_str());
        let diagnostic = context.report.error(BAD_METHOD, start.span, message);
        diagnostic.hint(format!("requests come with {}", names.join(" or ")));
        return None;
    }
    start.http.methods = Methods::Only(taken);
    start.http.decode = envelope.decode();
    start.envelope = Some(envelope);
    Some(Trigger::Http(Box::new(start)))
}

fn quoted(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

fn read_http(node: &Node, defaults: &Defaults, report: &mut Report) -> Option<HttpStart> {
    match &node.value {
        Value::String(text) => {
            let text = put_all(text::parse(text), node.span, report)?;
            let http = HttpTrigger {
                methods: text.methods,
                listen: text.listen.unwrap_or_else(|| defaults.listen.clone()),
                path: text.path,
                body_max: defaults.body_max,
                decode: None,
            };
            Some(HttpStart {
                http,
                tls: None,
                protocols: vec![Protocol::Http1],
                span: node.span,
                body_max_span: None,
                envelope: None,
            })
        }
        Value::Mapping(_) => read_mapping(node, defaults, report),
        _ => {
            config::check_kind(node, schema, report);
            None
        }
    }
}

fn read_mapping(node: &Node, defaults: &Defaults, report: &mut Report) -> Option<HttpStart> {
    let config: HttpConfig = config::decode(node, report)?;
    start(node, config, defaults, report)
}

fn start(
    node: &Node,
    config: HttpConfig,
    defaults: &Defaults,
    report: &mut Report,
) -> Option<HttpStart> {
    let methods = read_methods(node, config.method.as_ref(), report);
    let listen = match &config.listen {
        None => Some(defaults.listen.clone()),
        Some(listen) => {
            let parsed = parse_listen(&listen.value).map_err(|problem| vec![problem]);
            put_all(parsed, listen.span, report)
        }
    };
    let path = put_all(path::parse(&config.path.value), config.path.span, report);
    let body_max = match &config.body_max {
        None => Some(defaults.body_max),
        Some(size) => {
            let memory = defaults.body_memory.unwrap_or(BODY.greatest);
            let bounds = Bounds {
                greatest: BODY.greatest.min(memory),
                ..BODY
            };
            bounds.check_size("body_max", size, report)
        }
    };
    let tls = config.tls.as_ref().map(|config| tls::read(config, report));
    let protocols = tls::read_protocols(config.protocols.as_ref(), tls.is_some(), report);
    let http = HttpTrigger {
        methods: methods?,
        listen: listen?,
        path: path?,
        body_max: body_max?,
        decode: config.decode,
    };
    Some(HttpStart {
        http,
        tls,
        protocols,
        span: node.span,
        body_max_span: config.body_max.map(|size| size.span),
        envelope: None,
    })
}

fn read_methods(
    node: &Node,
    config: Option<&MethodsConfig>,
    report: &mut Report,
) -> Option<Methods> {
    let span = node.get("method").map_or(node.span, |method| method.span);
    let methods = match config {
        None => Ok(Methods::Any),
        Some(MethodsConfig::Text(text)) => methods::parse(text),
        Some(MethodsConfig::List(list)) => methods::collect(list.iter().map(String::as_str)),
    };
    put_all(methods, span, report)
}

fn put_all<T>(result: Result<T, Vec<Problem>>, span: Span, report: &mut Report) -> Option<T> {
    result
        .map_err(|problems| {
            problems
                .into_iter()
                .for_each(|problem| problem.put(span, report))
        })
        .ok()
}
