//! The `engine:` document: settings of the whole engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use component::access::AccessDefinition;
use component::egress::{EgressConfig, Policy};
use component::limits::CALLERS_DEFAULT;
use component::settings::{Http2Limits, Limits, Settings, Timeouts};
use component::trigger::ListenAddress;
use component::trusted_proxies::TrustedProxies;
use config::{AnyValue, ByteSize, Node, Report, Spanned, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::admin::AdminConfig;
use crate::audit::AuditConfig;
use crate::bounds::{BODY, Bounds, WAIT};
use crate::codes::BAD_PROXY;
use crate::gates::PlanConfig;
use crate::listeners::{ListenerConfig, Listeners};
use crate::public_url;
use crate::secrets::{self, SecretsConfig};
use crate::trigger::parse_listen;

/// What the engine is set to beside the plan's own settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineSettings {
    /// The log.
    pub log: LogSettings,
}

/// How the engine logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// The lowest level that is logged.
    pub level: LogLevel,
    /// How a line looks.
    pub format: LogFormat,
}

/// The lowest level that is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogLevel {
    /// Failures of the engine.
    Error,
    /// What needs a look soon.
    Warn,
    /// What is good to know.
    #[default]
    Info,
    /// What helps to find a mistake.
    Debug,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// Settings of the whole engine. All files together hold at most one `engine:` document.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EngineConfig {
    /// Where triggers without a port listen: `host:port`, or `:port` for all interfaces.
    #[schemars(extend("default" = "127.0.0.1:8080"))]
    listen: Option<Spanned<String>>,
    /// How others reach the engine: what stands before each path, such as `https://api.example`.
    /// The `Host` of requests is not believed for that. WebSub hubs need it.
    public_url: Option<Spanned<String>>,
    /// The addresses of proxies in front of the engine, such as `10.0.0.7` or `10.0.0.0/8`. Only
    /// these are believed when they tell who the client is: `X-Forwarded-*`, `X-Real-IP` and
    /// `Forwarded` of others are dropped. The default is none.
    #[serde(default)]
    trusted_proxies: Vec<Spanned<String>>,
    /// The ways to know a caller, by name. `auth:` of flows, topics and listeners uses them, and
    /// the admin port.
    #[allow(
        dead_code,
        reason = "read from the tree, by the crate that knows the ways"
    )]
    auth: Option<AnyValue>,
    /// The deny list: credentials that are refused although they are good.
    #[allow(
        dead_code,
        reason = "read from the tree, by the crate that knows the ways"
    )]
    deny: Option<AnyValue>,
    /// The identity header: a signed token that tells systems behind the engine who a caller is.
    #[allow(
        dead_code,
        reason = "read from the tree, by the crate that knows the ways"
    )]
    identity: Option<AnyValue>,
    /// The audit stream: who was refused, and who has changed what, as JSON in a file or a topic.
    #[allow(dead_code, reason = "read from the tree, with the topics")]
    audit: Option<AuditConfig>,
    /// The admin port: where it is and who may use it.
    #[allow(dead_code, reason = "read from the tree, with the ways")]
    admin: Option<AdminConfig>,
    /// What all flows and topics on one address share, by the address as they write it, such as
    /// `":8443"`.
    #[serde(default)]
    listeners: BTreeMap<String, ListenerConfig>,
    /// Environment variables that flow files can use as `${ $env.NAME }`. Each must be set.
    #[allow(
        dead_code,
        reason = "read before the other settings, by the module environment"
    )]
    env: Option<Vec<String>>,
    /// Plans: named sets of limits, counted over all flows and topics that say `limits.plan`. The
    /// one named `default` is for callers who have no other.
    #[allow(dead_code, reason = "read from the tree, with what has been counted")]
    plans: Option<BTreeMap<String, PlanConfig>>,
    /// The egress guard: which URLs may be called that users set, and by connections and steps with
    /// `egress: guarded`.
    egress: Option<EgressConfig>,
    /// The sources of secrets, which flow files use as `${ $secret.NAME }`.
    secrets: Option<SecretsConfig>,
    /// Limits on what a peer can make the engine hold or do.
    limits: Option<LimitsConfig>,
    /// Time limits, each from 1ms to 1d.
    timeouts: Option<TimeoutsConfig>,
    /// The log.
    log: Option<LogConfig>,
}

/// Limits on what a peer can make the engine hold or do.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitsConfig {
    /// The largest head of a request or reply, from 1KiB to 1MiB.
    #[schemars(extend("default" = "32KiB"))]
    head: Option<Spanned<ByteSize>>,
    /// The largest number of header fields, from 1 to 256.
    #[schemars(extend("default" = 100))]
    fields: Option<Spanned<u64>>,
    /// The largest body that is held in memory, from 1B to 1GiB. A flow can set its own with
    /// `from.http.body_max`. Streamed bodies have no limit.
    #[schemars(extend("default" = "1MiB"))]
    body: Option<Spanned<ByteSize>>,
    /// The memory that all bodies above 64KiB together may take while they are held: collected
    /// requests, collected replies of calls, WebSocket messages, files, messages of brokers and
    /// stores, rows of databases, what subscribers of topics have missed, and replies until their
    /// clients have taken them. From 1MiB to 16TiB, and not below `body`. A request above it is
    /// refused with 503 and `Retry-After`, a step fails as `unavailable`, sources and subscribers
    /// wait until there is room, a WebSocket connection is closed with 1013.
    /// The default is half of the memory of the control group or machine.
    body_memory: Option<Spanned<ByteSize>>,
    /// The least number of bytes a second at which a client must send its body and take a reply's
    /// while the engine waits for it, judged over `timeouts.body`; from 0B, for no least rate, to
    /// 1MiB. Event streams, gRPC and WebSocket have none.
    #[schemars(extend("default" = "256B"))]
    min_body_rate: Option<Spanned<ByteSize>>,
    /// The largest number of client connections, from 1 to 10000000.
    #[schemars(extend("default" = 20000))]
    connections: Option<Spanned<u64>>,
    /// The largest number of connections from one client address, from 1 to 10000000; the
    /// addresses of one IPv6 network of 64 bits count as one. Behind a load balancer all come from
    /// its address, unless it speaks the PROXY protocol. Without it there is no such limit.
    connections_per_address: Option<Spanned<u64>>,
    /// The largest number of callers that each limit per caller remembers, from 64 to 10000000. A
    /// caller takes up to 36 bytes, with four windows up to 72. When there are as many, those whose
    /// bucket is full again are forgotten; if there is none, further callers share one bucket.
    #[schemars(extend("default" = 1_000_000))]
    callers: Option<Spanned<u64>>,
    /// The largest number of idle connections of a worker to one upstream, from 1 to 100000.
    #[schemars(extend("default" = 1024))]
    upstream_idle: Option<Spanned<u64>>,
    /// Limits on what a peer can make one HTTP/2 connection hold or do.
    h2: Option<Http2Config>,
    /// The largest number of steps of one evaluation of an expression, from 1000 to 1000000000. One
    /// that takes longer than a few milliseconds leaves its worker to others.
    #[schemars(extend("default" = 1000000))]
    expression_steps: Option<Spanned<u64>>,
    /// The memory that one evaluation of an expression may allocate, from 64KiB to 16GiB.
    #[schemars(extend("default" = "64MiB"))]
    expression_memory: Option<Spanned<ByteSize>>,
}

/// Limits on what a peer can make one HTTP/2 connection hold or do. A connection on which a peer
/// exceeds one of the last three is closed with ENHANCE_YOUR_CALM.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Http2Config {
    /// The largest number of concurrent requests, from 1 to 10000; others are refused unread.
    #[schemars(extend("default" = 128))]
    streams: Option<Spanned<u64>>,
    /// The flow-control window of a stream: bytes that a peer may send before they are passed on,
    /// from 1KiB to 1GiB.
    #[schemars(extend("default" = "64KiB"))]
    stream_window: Option<Spanned<ByteSize>>,
    /// The flow-control window of the connection, from 64KiB to 1GiB.
    #[schemars(extend("default" = "1MiB"))]
    connection_window: Option<Spanned<ByteSize>>,
    /// How many requests a peer may start and reset in ten seconds, from 1 to 1000000.
    #[schemars(extend("default" = 200))]
    resets: Option<Spanned<u64>>,
    /// How many frames without content (PING, SETTINGS, PRIORITY, empty DATA) a peer may send in
    /// ten seconds, from 10 to 1000000.
    #[schemars(extend("default" = 2000))]
    control_frames: Option<Spanned<u64>>,
    /// The largest number of CONTINUATION frames of one head, from 1 to 1000.
    #[schemars(extend("default" = 16))]
    continuations: Option<Spanned<u64>>,
}

/// Time limits, each from 1ms to 1d.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimeoutsConfig {
    /// How long a client connection may be idle between two requests.
    #[schemars(extend("default" = "75s"))]
    idle: Option<Spanned<config::Duration>>,
    /// How long a client may take to send a head, from its first byte to its end.
    #[schemars(extend("default" = "15s"))]
    head: Option<Spanned<config::Duration>>,
    /// How long a body may make no progress, in either direction.
    #[schemars(extend("default" = "30s"))]
    body: Option<Spanned<config::Duration>>,
    /// How long connecting to an upstream may take, including the DNS look-up.
    #[schemars(extend("default" = "5s"))]
    connect: Option<Spanned<config::Duration>>,
    /// How long an upstream may take from the end of the request to the head of the reply.
    #[schemars(extend("default" = "1m"))]
    response: Option<Spanned<config::Duration>>,
    /// How long a call of a step such as `http` may take in all, to the end of the reply's body. A
    /// `timeout` beside the step and `limits.time` of the flow may end it earlier. The default is
    /// the sum of `connect`, `response` and `body` if that is longer.
    #[schemars(extend("default" = "5m"))]
    call: Option<Spanned<config::Duration>>,
    /// How long an upgraded connection or an event stream may be silent.
    #[schemars(extend("default" = "1h"))]
    stream: Option<Spanned<config::Duration>>,
    /// How long an idle connection to an upstream is kept.
    #[schemars(extend("default" = "55s"))]
    upstream_idle: Option<Spanned<config::Duration>>,
    /// How long requests in flight may take to finish after the engine was told to stop.
    #[schemars(extend("default" = "30s"))]
    drain: Option<Spanned<config::Duration>>,
}

/// The log.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogConfig {
    /// The lowest level that is logged.
    #[serde(default)]
    level: LogLevel,
    /// Text on a terminal and JSON elsewhere (`auto`), or always one of them.
    #[serde(default)]
    format: LogFormat,
    /// Whether each request is logged (access log).
    #[serde(default)]
    access: bool,
}

/// Everything an engine document says, or its defaults.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    /// The most callers that each limit remembers.
    pub callers_max: usize,
    pub listen: ListenAddress,
    pub listeners: Arc<Listeners>,
    /// Without a `/` at its end.
    pub public_url: Option<Arc<str>>,
    pub settings: Settings,
    pub engine: EngineSettings,
    pub expressions: expr::jq::Limits,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            callers_max: CALLERS_DEFAULT,
            listen: ListenAddress {
                host: Some("127.0.0.1".to_owned()),
                port: 8080,
            },
            listeners: Arc::default(),
            public_url: None,
            settings: Settings::default(),
            engine: EngineSettings::default(),
            expressions: expr::jq::Limits::default(),
        }
    }
}

/// The schema of the value under `engine:`.
pub(crate) fn schema(access: &AccessDefinition) -> serde_json::Value {
    let mut schema = config::schema_for::<EngineConfig>();
    if let Some(auth) = schema.pointer_mut("/properties/auth") {
        *auth = (access.ways)();
    }
    if let Some(deny) = schema.pointer_mut("/properties/deny") {
        *deny = (access.deny)();
    }
    if let Some(identity) = schema.pointer_mut("/properties/identity") {
        *identity = (access.identity)();
    }
    let auth = (access.auth)();
    for (of, key) in [
        ("ListenerConfig", "auth"),
        ("AdminConfig", "view"),
        ("AdminConfig", "operate"),
    ] {
        let place = schema.pointer_mut(&format!("/$defs/{of}/properties/{key}"));
        let Some(serde_json::Value::Object(place)) = place else {
            continue;
        };
        let mut like = auth.as_object().cloned().unwrap_or_default();
        like.extend(place.remove_entry("description"));
        *place = like;
    }
    schema
}

/// The schema of an engine document with these schemas for `use` and the value under `engine:`.
pub(crate) fn shape(
    connections: serde_json::Value,
    engine: serde_json::Value,
) -> serde_json::Value {
    json!({
        "type": "object",
        "description": "Settings of the whole engine.",
        "properties": { "engine": engine, "use": connections },
        "required": ["engine"],
        "additionalProperties": false
    })
}

/// Reads an engine document. What has a problem is reported and stays at its default, so that the
/// flows can be checked too.
pub(crate) fn read_document(document: &Node, report: &mut Report) -> Engine {
    config::check(document, &shape(json!({}), json!({})), report);
    document
        .get("engine")
        .map_or_else(Engine::default, |engine| read(engine, report))
}

fn read(node: &Node, report: &mut Report) -> Engine {
    let mut engine = Engine::default();
    if matches!(node.value, Value::Null) {
        return engine;
    }
    let Some(config) = config::decode::<EngineConfig>(node, report) else {
        return engine;
    };
    if let Some(listen) = &config.listen {
        match parse_listen(&listen.value) {
            Ok(address) => engine.listen = address,
            Err(problem) => problem.put(listen.span, report),
        }
    }
    let public_url = config.public_url.as_ref();
    engine.public_url = public_url.and_then(|url| public_url::read(url, report));
    if let Some(config) = &config.secrets {
        secrets::check(config, report);
    }
    engine.settings.trusted_proxies = read_proxies(&config.trusted_proxies, report);
    if let Some(config) = &config.egress {
        engine.settings.egress = Policy::read(config, report);
    }
    let proxies = engine.settings.trusted_proxies.as_deref();
    let listeners = node.get("listeners");
    let listeners = Listeners::read(&config.listeners, listeners, proxies, report);
    engine.listeners = Arc::new(listeners);
    let limits = config.limits.unwrap_or_default();
    read_limits(&limits, &mut engine.settings.limits, report);
    if let Some(callers) = &limits.callers {
        let count = CALLERS.check_count("callers", callers, report);
        set_count(&mut engine.callers_max, count);
    }
    read_expression_limits(&limits, &mut engine.expressions, report);
    read_timeouts(
        &config.timeouts.unwrap_or_default(),
        &mut engine.settings.timeouts,
        report,
    );
    let log = config.log.unwrap_or_default();
    engine.settings.access_log = log.access;
    engine.engine.log = LogSettings {
        level: log.level,
        format: log.format,
    };
    engine
}

fn read_proxies(proxies: &[Spanned<String>], report: &mut Report) -> Option<Arc<TrustedProxies>> {
    let mut trusted = TrustedProxies::default();
    trusted.add_all(proxies, BAD_PROXY, report);
    (!trusted.is_empty()).then(|| Arc::new(trusted))
}

const CALLERS: Bounds<u64> = Bounds {
    least: 64,
    greatest: 10_000_000,
};

const CONNECTIONS: Bounds<u64> = Bounds {
    least: 1,
    greatest: 10_000_000,
};

fn read_limits(config: &LimitsConfig, limits: &mut Limits, report: &mut Report) {
    const HEAD: Bounds<u64> = Bounds {
        least: 1 << 10,
        greatest: 1 << 20,
    };
    const FIELDS: Bounds<u64> = Bounds {
        least: 1,
        greatest: 256,
    };
    const UPSTREAM_IDLE: Bounds<u64> = Bounds {
        least: 1,
        greatest: 100_000,
    };
    if let Some(size) = &config.body {
        limits.body = BODY.check_size("body", size, report).unwrap_or(limits.body);
    }
    read_body_bounds(config, limits, report);
    if let Some(h2) = &config.h2 {
        read_http2(h2, &mut limits.h2, report);
    }
    if let Some(size) = &config.head {
        set_count(&mut limits.head, HEAD.check_size("head", size, report));
    }
    for (name, bounds, value, place) in [
        ("fields", FIELDS, &config.fields, &mut limits.fields),
        (
            "connections",
            CONNECTIONS,
            &config.connections,
            &mut limits.connections,
        ),
        (
            "upstream_idle",
            UPSTREAM_IDLE,
            &config.upstream_idle,
            &mut limits.upstream_idle,
        ),
    ] {
        if let Some(count) = value {
            set_count(place, bounds.check_count(name, count, report));
        }
    }
}

/// Reads what bounds all bodies together and the time that one may take.
fn read_body_bounds(config: &LimitsConfig, limits: &mut Limits, report: &mut Report) {
    const RATE: Bounds<u64> = Bounds {
        least: 0,
        greatest: 1 << 20,
    };
    if let Some(size) = &config.body_memory {
        let bounds = Bounds {
            least: limits.body.max(1 << 20),
            greatest: 16 << 40,
        };
        limits.body_memory = bounds.check_size("body_memory", size, report);
    }
    if let Some(rate) = &config.min_body_rate {
        let rate = RATE.check_size("min_body_rate", rate, report);
        limits.min_body_rate = rate.unwrap_or(limits.min_body_rate);
    }
    if let Some(count) = &config.connections_per_address {
        let count = CONNECTIONS.check_count("connections_per_address", count, report);
        limits.connections_per_address = count.and_then(|count| usize::try_from(count).ok());
    }
}

fn read_expression_limits(
    config: &LimitsConfig,
    limits: &mut expr::jq::Limits,
    report: &mut Report,
) {
    const STEPS: Bounds<u64> = Bounds {
        least: 1000,
        greatest: 1_000_000_000,
    };
    const MEMORY: Bounds<u64> = Bounds {
        least: 64 << 10,
        greatest: 16 << 30,
    };
    let steps = config.expression_steps.as_ref();
    let steps = steps.and_then(|steps| STEPS.check_count("expression_steps", steps, report));
    limits.steps = steps.unwrap_or(limits.steps);
    if let Some(memory) = &config.expression_memory {
        let memory = MEMORY.check_size("expression_memory", memory, report);
        set_count(&mut limits.memory, memory);
    }
}

fn read_http2(config: &Http2Config, limits: &mut Http2Limits, report: &mut Report) {
    let range = |least, greatest| Bounds { least, greatest };
    for (name, bounds, value, place) in [
        (
            "streams",
            range(1, 10_000),
            &config.streams,
            &mut limits.streams,
        ),
        (
            "resets",
            range(1, 1_000_000),
            &config.resets,
            &mut limits.resets,
        ),
        (
            "control_frames",
            range(10, 1_000_000),
            &config.control_frames,
            &mut limits.control_frames,
        ),
        (
            "continuations",
            range(1, 1000),
            &config.continuations,
            &mut limits.continuations,
        ),
    ] {
        let count = value
            .as_ref()
            .and_then(|count| bounds.check_count(name, count, report));
        *place = count.map_or(*place, |count| count as u32);
    }
    for (name, least, value, place) in [
        (
            "stream_window",
            1 << 10,
            &config.stream_window,
            &mut limits.stream_window,
        ),
        (
            "connection_window",
            1 << 16,
            &config.connection_window,
            &mut limits.connection_window,
        ),
    ] {
        let size = value
            .as_ref()
            .and_then(|size| range(least, 1 << 30).check_size(name, size, report));
        *place = size.map_or(*place, |size| size as u32);
    }
}

fn set_count(place: &mut usize, value: Option<u64>) {
    // The bounds are far below what any machine's `usize` holds.
    if let Some(value) = value.and_then(|value| usize::try_from(value).ok()) {
        *place = value;
    }
}

fn read_timeouts(config: &TimeoutsConfig, timeouts: &mut Timeouts, report: &mut Report) {
    let places: [(&str, &Option<Spanned<config::Duration>>, &mut Duration); 9] = [
        ("idle", &config.idle, &mut timeouts.idle),
        ("head", &config.head, &mut timeouts.head),
        ("body", &config.body, &mut timeouts.body),
        ("connect", &config.connect, &mut timeouts.connect),
        ("response", &config.response, &mut timeouts.response),
        ("call", &config.call, &mut timeouts.call),
        ("stream", &config.stream, &mut timeouts.stream),
        (
            "upstream_idle",
            &config.upstream_idle,
            &mut timeouts.upstream_idle,
        ),
        ("drain", &config.drain, &mut timeouts.drain),
    ];
    for (name, value, place) in places {
        if let Some(time) = value
            .as_ref()
            .and_then(|time| WAIT.check_time(name, time, report))
        {
            *place = time;
        }
    }
    if config.call.is_none() {
        let parts = timeouts.connect + timeouts.response + timeouts.body;
        timeouts.call = timeouts.call.max(parts);
    }
}
