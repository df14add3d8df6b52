//! `http` connections: another HTTP system that `use:` names, with its endpoints and how they are
//! chosen, watched and spared.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use component::connection::HttpConnection;
use component::credentials::Credentials;
use component::definition::{ConnectionContext, ConnectionDefinition};
use component::forward::QueryParameter;
use component::text::check_path;
use component::tls::Protocol;
use component::upstream::{
    Balance, ConnectionLimits, Eject, EndpointPlan, HashKey, HealthCheck, UpstreamPlan,
};
use config::{Node, Report, Span, Spanned, Value};
use message::Headers;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::aws_sigv4::{self, AwsSigv4Config};
use crate::codes::{BAD_TLS, BAD_UPSTREAM, BAD_WEBSOCKET, OUT_OF_RANGE};
use crate::fields::{self, FieldTexts};
use crate::oauth2::{self, Oauth2Config};
use crate::target::{Url, parse_url};
use crate::tls::{self, TlsConfig};
use crate::url_template::push_encoded;
use crate::way::EgressConfig;

/// The definition of the connection.
pub const DEFINITION: ConnectionDefinition = ConnectionDefinition {
    name: "http",
    summary: "An HTTP service: one or several endpoints, HTTP/1.1 or HTTP/2, with or without TLS.",
    documentation: include_str!("http.md"),
    example: include_str!("http.yaml"),
    schema: config::schema_for::<HttpConfig>,
    missing: None,
    build,
    key_value: None,
};

/// An HTTP system.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HttpConfig {
    /// The base URL, to which paths are appended, or a list of base URLs that differ in host and
    /// port only.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    http: Urls,
    /// TLS for `https` URLs.
    tls: Option<Spanned<TlsConfig>>,
    /// The protocols to use, the preferred one first. The default is `[h2, http/1.1]` for `https`,
    /// where the target chooses (ALPN), and `[http/1.1]` for `http`, where `[h2]` means HTTP/2 with
    /// prior knowledge.
    protocols: Option<Spanned<Vec<Protocol>>>,
    /// Authentication, added to every request in place of what a client has sent.
    auth: Option<Spanned<AuthConfig>>,
    /// Headers to add to every request, such as an API key.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each name"
    )]
    headers: Option<FieldTexts>,
    /// The load-balancing policy: in turn (`round-robin`), the endpoint with the fewest requests in
    /// flight (`least-requests`), or by `hash`.
    #[serde(default)]
    balance: BalanceConfig,
    /// The key for `balance: hash`: `client` (its address), `path`, or `header NAME`.
    hash: Option<Spanned<String>>,
    /// When a failing endpoint is ejected (outlier detection).
    eject: Option<EjectConfig>,
    /// Active health checks of each endpoint.
    health: Option<HealthConfig>,
    /// The largest number of connections to each endpoint, of all workers together, from 1 to
    /// 100000. The default is no limit.
    connections: Option<Spanned<u64>>,
    /// The queue for requests that find no free connection.
    queue: Option<QueueConfig>,
    /// How often a request that is safe to repeat is sent to another endpoint, from 0 to 10.
    #[schemars(extend("default" = 1))]
    retries: Option<Spanned<u64>>,
    /// How long resolved addresses are used before the name is resolved again, from 1s to 1d.
    #[schemars(extend("default" = "30s"))]
    resolve: Option<Spanned<config::Duration>>,
    /// `guarded`: connections are made only to addresses, ports and schemes that `engine.egress`
    /// allows (the egress guard). Without it to all.
    egress: Option<Spanned<EgressConfig>>,
}

/// How one of several is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
enum BalanceConfig {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in flight.
    LeastRequests,
    /// The same for the same key.
    Hash,
}

/// When a failing endpoint is ejected (outlier detection).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EjectConfig {
    /// The number of consecutive failures after which an endpoint is ejected, from 1 to 1000.
    #[schemars(extend("default" = 5))]
    failures: Option<Spanned<u64>>,
    /// How long it is ejected, from 1ms to 1d; then a single request tries it.
    #[schemars(extend("default" = "10s"))]
    time: Option<Spanned<config::Duration>>,
}

/// Active health checks of each endpoint.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HealthConfig {
    /// The path of the `GET` request.
    path: Spanned<String>,
    /// The interval, from 10ms to 1d.
    #[schemars(extend("default" = "5s"))]
    every: Option<Spanned<config::Duration>>,
    /// The time-out, to the end of the reply, from 1ms to 1d.
    #[schemars(extend("default" = "2s"))]
    timeout: Option<Spanned<config::Duration>>,
    /// The status of a healthy endpoint. The default is any from 200 to 299.
    status: Option<Spanned<u64>>,
    /// The number of consecutive successes after which an endpoint is healthy again, from 1 to
    /// 1000.
    #[schemars(extend("default" = 2))]
    healthy: Option<Spanned<u64>>,
    /// The number of consecutive failures after which an endpoint is unhealthy, from 1 to 1000.
    #[schemars(extend("default" = 3))]
    unhealthy: Option<Spanned<u64>>,
}

/// The queue for requests that find no free connection.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct QueueConfig {
    /// The largest number of waiting requests, of all workers together, from 0 to 1000000; further
    /// ones get 503.
    #[schemars(extend("default" = 1000))]
    length: Option<Spanned<u64>>,
    /// How long a request may wait, from 1ms to 1d; then it gets 503.
    #[schemars(extend("default" = "5s"))]
    time: Option<Spanned<config::Duration>>,
}

/// A URL or a list of URLs, for the schema alone.
#[derive(Debug)]
struct Urls;

impl<'de> Deserialize<'de> for Urls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl JsonSchema for Urls {
    fn schema_name() -> Cow<'static, str> {
        "Urls".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 }
        ] })
    }
}

/// How a request says who asks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AuthConfig {
    /// A token, sent as `Authorization: Bearer TOKEN` (RFC 6750).
    bearer: Option<String>,
    /// User name and password, sent as `Authorization: Basic ...` (RFC 7617).
    basic: Option<BasicConfig>,
    /// An API key, sent in a header or in a query parameter of its own.
    api_key: Option<ApiKeyConfig>,
    /// OAuth 2.0 (RFC 6749): a token is requested from `token_url`, by client credentials (section
    /// 4.4) or with a refresh token (section 6), and sent as `Authorization: Bearer TOKEN`.
    oauth2: Option<Oauth2Config>,
    /// AWS Signature Version 4: each request is signed.
    aws_sigv4: Option<AwsSigv4Config>,
}

/// An API key and where it is sent: in `header` or in `query`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApiKeyConfig {
    /// The name of the header, such as `X-Api-Key`.
    header: Option<Spanned<String>>,
    /// The name of the query parameter. Prefer a header where the system takes one: URLs are
    /// written to logs.
    query: Option<Spanned<String>>,
    /// The key.
    key: Spanned<String>,
}

/// A name and a password.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BasicConfig {
    /// The user name, without a colon.
    user: String,
    /// The password.
    password: String,
}

/// How a request says who asks.
#[derive(Default)]
struct Auth {
    /// A header line that stays the same.
    line: Option<(String, String)>,
    /// A parameter of the query.
    parameter: Option<QueryParameter>,
    /// What is made for each request.
    credentials: Option<Arc<dyn Credentials>>,
}

/// Reads how a request says who asks. Every problem is reported.
fn read_auth(
    auth: &Spanned<AuthConfig>,
    node: Option<&Node>,
    is_secure: bool,
    context: &mut ConnectionContext<'_>,
) -> Option<Auth> {
    let AuthConfig {
        bearer,
        basic,
        api_key,
        oauth2,
        aws_sigv4,
    } = &auth.value;
    let value = match (bearer, basic, api_key, oauth2, aws_sigv4) {
        (Some(token), None, None, None, None) => format!("Bearer {token}"),
        (None, Some(basic), None, None, None) if !basic.user.contains(':') => {
            let pair = format!("{}:{}", basic.user, basic.password);
            format!("Basic {}", Base64::encode_string(pair.as_bytes()))
        }
        (None, None, Some(config), None, None) => {
            return read_api_key(config, auth.span, context.report);
        }
        (None, None, None, Some(config), None) => {
            let node = node.and_then(|node| node.get("oauth2"));
            return Some(Auth {
                credentials: Some(oauth2::read(config, node, context)?),
                ..Auth::default()
            });
        }
        (None, None, None, None, Some(config)) => {
            return Some(Auth {
                credentials: Some(aws_sigv4::read(config, is_secure, context.report)?),
                ..Auth::default()
            });
        }
        _ => {
            let message = "`auth` is one of `bearer`, `basic` with a name without a colon, \
                           `api_key`, `oauth2` and `aws_sigv4`";
            let report = &mut *context.report;
            report.error(BAD_UPSTREAM, auth.span, message);
            return None;
        }
    };
    check_sent(&value, auth.span, context.report);
    Some(Auth {
        line: Some(("Authorization".to_owned(), value)),
        ..Auth::default()
    })
}

/// A value that goes into a header. It is not shown.
fn check_sent(value: &str, span: Span, report: &mut Report) {
    if !Headers::is_value(value.as_bytes()) {
        let message = "this cannot be sent in a header";
        report
            .error(BAD_UPSTREAM, span, message)
            .hint("is there a line break at its end?");
    }
}

fn read_api_key(config: &ApiKeyConfig, span: Span, report: &mut Report) -> Option<Auth> {
    if config.key.value.is_empty() {
        report.error(BAD_UPSTREAM, config.key.span, "the key is empty");
        return None;
    }
    match (&config.header, &config.query) {
        (Some(name), None) => {
            fields::check_name(&name.value, name.span, &fields::framing, report);
            check_sent(&config.key.value, config.key.span, report);
            Some(Auth {
                line: Some((name.value.clone(), config.key.value.clone())),
                ..Auth::default()
            })
        }
        (None, Some(name)) if !name.value.is_empty() => {
            let mut pair = String::new();
            push_encoded(&name.value, &mut pair);
            pair.push('=');
            push_encoded(&config.key.value, &mut pair);
            let name = name.value.clone();
            Some(Auth {
                parameter: Some(QueryParameter { name, pair }),
                ..Auth::default()
            })
        }
        _ => {
            let message =
                "`api_key` has either `header` or `query`, the name that it is sent under";
            report.error(BAD_UPSTREAM, span, message);
            None
        }
    }
}

fn build(node: &Node, context: &mut ConnectionContext<'_>) -> Option<Arc<dyn Any + Send + Sync>> {
    let (name, report) = (context.name, &mut *context.report);
    let config: HttpConfig = config::decode(node, report)?;
    let before = report.diagnostics().len();
    let urls = read_urls(node.get("http")?, report);
    let (first, _) = urls.first()?;
    let place = node.get("http").map_or(node.span, |http| http.span);
    let upstream = UpstreamPlan {
        name: name.into(),
        endpoints: urls.iter().map(|(url, _)| endpoint(url)).collect(),
        balance: read_balance(&config, report),
        eject: read_eject(config.eject.as_ref(), report),
        health: read_health(config.health.as_ref(), report),
        connections: read_connections(&config, report),
        retries: count(config.retries.as_ref(), 1, 0..=10, report) as u32,
        egress: EgressConfig::read(config.egress.as_ref()),
        ..single(
            first,
            config.tls.as_ref(),
            config.protocols.as_ref(),
            place,
            report,
        )
    };
    let base = first.path.trim_end_matches('/').to_owned();
    let mut fields = fields::read_set(node.get("headers"), &fields::framing, report);
    let auth = config.auth.as_ref();
    let is_secure = first.is_secure;
    let auth = auth.and_then(|auth| read_auth(auth, node.get("auth"), is_secure, context));
    let auth = auth.unwrap_or_default();
    let report = &mut *context.report;
    let place = node.get("headers").map_or(node.span, |it| it.span);
    let names = fields.iter().map(|(name, _)| name.as_str());
    let of_line = auth.line.iter().map(|(name, _)| name.as_str());
    let made = auth.credentials.iter().flat_map(|it| it.fields());
    let of_auth: Vec<&str> = of_line.chain(made.copied()).collect();
    for name in names {
        if of_auth.iter().any(|it| it.eq_ignore_ascii_case(name)) {
            let message = format!("the header `{name}` is set by `auth` too");
            report.error(BAD_UPSTREAM, place, message);
        }
    }
    fields.extend(auth.line);
    let connection = HttpConnection {
        upstream: Arc::new(upstream),
        base,
        fields,
        parameter: auth.parameter,
        credentials: auth.credentials,
    };
    (report.diagnostics().len() == before).then(|| Arc::new(connection) as _)
}

/// An upstream with the defaults that has this URL's endpoint.
pub(crate) fn single(
    url: &Url,
    tls: Option<&Spanned<TlsConfig>>,
    protocols: Option<&Spanned<Vec<Protocol>>>,
    place: Span,
    report: &mut Report,
) -> UpstreamPlan {
    if let Some(tls) = tls.filter(|_| !url.is_secure) {
        report
            .error(BAD_TLS, tls.span, "`tls` has no effect on an `http` URL")
            .hint("write `https://`, or leave `tls` out");
    }
    let settings = url.is_secure.then(|| tls::read(tls, place, report));
    let mut upstream = UpstreamPlan::single(&url.host, url.port, settings);
    if let Some(protocols) = protocols {
        check_protocols(protocols, url.is_secure, report);
        upstream.protocols.clone_from(&protocols.value);
    }
    upstream
}

fn check_protocols(protocols: &Spanned<Vec<Protocol>>, secure: bool, report: &mut Report) {
    let message = match protocols.value.as_slice() {
        [] => "`protocols` is empty",
        [first, rest @ ..] if rest.contains(first) => "a protocol is named twice",
        [_, _, ..] if !secure => "without TLS nobody can choose between protocols",
        _ => return,
    };
    report
        .error(BAD_UPSTREAM, protocols.span, message)
        .hint("write `[http/1.1]`, `[h2]`, or for `https` both");
}

fn endpoint(url: &Url) -> EndpointPlan {
    EndpointPlan {
        host: url.host.clone(),
        port: url.port,
    }
}

/// All URLs that can be read, each with its place.
fn read_urls(node: &Node, report: &mut Report) -> Vec<(Url, Span)> {
    let single = std::slice::from_ref(node);
    let nodes = match &node.value {
        Value::Sequence(items) => items.as_slice(),
        _ => single,
    };
    let mut urls: Vec<(Url, Span)> = Vec::new();
    for node in nodes {
        let Some(text) = node.as_str() else {
            report
                .error(BAD_UPSTREAM, node.span, "`http` is a URL or a list of URLs")
                .hint("write `http: https://crm.example/api`");
            continue;
        };
        match parse_url(text) {
            Ok(url) => {
                check_url(&url, node.span, &urls, report);
                urls.push((url, node.span));
            }
            Err(problems) => problems
                .into_iter()
                .for_each(|problem| problem.put(node.span, report)),
        }
    }
    urls
}

fn check_url(url: &Url, span: Span, others: &[(Url, Span)], report: &mut Report) {
    if url.is_websocket {
        report
            .error(
                BAD_WEBSOCKET,
                span,
                "a connection's scheme is `http` or `https`",
            )
            .hint("a step `forward` over it passes WebSocket handshakes on");
    }
    if url.query.is_some() {
        report
            .error(BAD_UPSTREAM, span, "the URL of a connection has no query")
            .hint("write the query where the connection is used");
    }
    let Some((first, place)) = others.first() else {
        return;
    };
    if first.is_secure != url.is_secure || first.path != url.path {
        report
            .error(
                BAD_UPSTREAM,
                span,
                "the URLs differ in more than host and port",
            )
            .also(*place, "the first one")
            .hint("give all the same scheme and path, or make two connections");
    }
    if others.iter().any(|(other, _)| other == url) {
        report.error(BAD_UPSTREAM, span, "the URL is there twice");
    }
}

fn read_balance(config: &HttpConfig, report: &mut Report) -> Balance {
    if let Some(hash) = config
        .hash
        .as_ref()
        .filter(|_| config.balance != BalanceConfig::Hash)
    {
        report
            .error(BAD_UPSTREAM, hash.span, "`hash` has no effect here")
            .hint("say `balance: hash` too");
    }
    match config.balance {
        BalanceConfig::RoundRobin => Balance::RoundRobin,
        BalanceConfig::LeastRequests => Balance::LeastRequests,
        BalanceConfig::Hash => Balance::Hash(read_hash(config.hash.as_ref(), report)),
    }
}

fn read_hash(hash: Option<&Spanned<String>>, report: &mut Report) -> HashKey {
    let Some(hash) = hash else {
        return HashKey::Client;
    };
    match hash.value.as_str() {
        "client" => HashKey::Client,
        "path" => HashKey::Path,
        text => {
            let name = text.strip_prefix("header ").unwrap_or_default();
            if !Headers::is_name(name) {
                report
                    .error(BAD_UPSTREAM, hash.span, "unknown `hash`")
                    .hint("write `client`, `path`, or `header NAME`");
            }
            HashKey::Header(name.to_owned())
        }
    }
}

fn read_eject(config: Option<&EjectConfig>, report: &mut Report) -> Eject {
    let mut eject = Eject::default();
    if let Some(config) = config {
        eject.failures = count(config.failures.as_ref(), 5, 1..=1000, report) as u32;
        eject.time = time(config.time.as_ref(), eject.time, 1, report);
    }
    eject
}

fn read_health(config: Option<&HealthConfig>, report: &mut Report) -> Option<HealthCheck> {
    let config = config?;
    if let Err(error) = check_path(&config.path.value) {
        let diagnostic = report.error(BAD_UPSTREAM, config.path.span, error.message);
        if let Some(hint) = error.hint {
            diagnostic.hint(hint);
        }
    }
    let status = config
        .status
        .as_ref()
        .map(|status| count(Some(status), 200, 200..=599, report) as u16);
    Some(HealthCheck {
        path: config.path.value.clone(),
        every: time(config.every.as_ref(), Duration::from_secs(5), 10, report),
        timeout: time(config.timeout.as_ref(), Duration::from_secs(2), 1, report),
        status,
        healthy: count(config.healthy.as_ref(), 2, 1..=1000, report) as u32,
        unhealthy: count(config.unhealthy.as_ref(), 3, 1..=1000, report) as u32,
    })
}

fn read_connections(config: &HttpConfig, report: &mut Report) -> ConnectionLimits {
    let limit = config.connections.as_ref();
    let mut limits = ConnectionLimits {
        limit: limit.map(|limit| count(Some(limit), 1, 1..=100_000, report) as usize),
        ..ConnectionLimits::default()
    };
    if let Some(queue) = &config.queue {
        if limits.limit.is_none() {
            let span = queue.length.as_ref().map(|length| length.span);
            let span = span.or(queue.time.as_ref().map(|time| time.span));
            if let Some(span) = span {
                report
                    .error(BAD_UPSTREAM, span, "`queue` has no effect here")
                    .hint("say how many `connections` there may be");
            }
        }
        let length = count(queue.length.as_ref(), 1000, 0..=1_000_000, report);
        limits.queue = length as usize;
        limits.queue_time = time(queue.time.as_ref(), limits.queue_time, 1, report);
    }
    limits.resolve = time(config.resolve.as_ref(), limits.resolve, 1000, report);
    limits
}

fn count(
    value: Option<&Spanned<u64>>,
    default: u64,
    range: std::ops::RangeInclusive<u64>,
    report: &mut Report,
) -> u64 {
    let Some(value) = value else {
        return default;
    };
    if !range.contains(&value.value) {
        let hint = format!("from {} to {}", range.start(), range.end());
        report
            .error(OUT_OF_RANGE, value.span, "the number is outside its range")
            .hint(hint);
        return default;
    }
    value.value
}

fn time(
    value: Option<&Spanned<config::Duration>>,
    default: Duration,
    least_ms: u64,
    report: &mut Report,
) -> Duration {
    let Some(value) = value else {
        return default;
    };
    let least = Duration::from_millis(least_ms);
    let range = least..=Duration::from_secs(24 * 3600);
    if !range.contains(&value.value.0) {
        let hint = format!("from {} to 1d", config::Duration(least));
        report
            .error(OUT_OF_RANGE, value.span, "the time is outside its range")
            .hint(hint);
        return default;
    }
    value.value.0
}
