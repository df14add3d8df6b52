//! `soap` connections: a service and the WSDL file that describes it.

use std::any::Any;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use component::definition::{ConnectionContext, ConnectionDefinition, Surroundings};
use component::upstream::UpstreamPlan;
use config::{Node, Report, Spanned};
use message::{Headers, secret};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::bounds;
use crate::codes::{BAD_ADDRESS, BAD_SOAP, BAD_WSDL};
use crate::soap::problem::Problem;
use crate::soap::security::Security;
use crate::soap::wsdl::Wsdl;
use crate::tls::{self, TlsConfig};
use crate::url::{self, Endpoint};

/// The definition of the connection.
pub const DEFINITION: ConnectionDefinition = ConnectionDefinition {
    name: "soap",
    summary: "A SOAP service described by a WSDL file.",
    documentation: include_str!("connection.md"),
    example: include_str!("connection.yaml"),
    schema: config::schema_for::<SoapConfig>,
    missing: None,
    build,
    key_value: None,
};

/// A SOAP service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SoapConfig {
    /// The WSDL file, relative to the flow file.
    soap: Spanned<String>,
    /// The URL of the service. The default is the address in the WSDL file.
    endpoint: Option<Spanned<String>>,
    /// The port of the WSDL file. The default is its first one for SOAP over HTTP.
    port: Option<Spanned<String>>,
    /// TLS for an `https` URL.
    tls: Option<Spanned<TlsConfig>>,
    /// HTTP authentication, added to every request.
    auth: Option<Spanned<AuthConfig>>,
    /// The WS-Security header of every message.
    security: Option<Spanned<SecurityConfig>>,
    /// How long connecting may take, from 10ms to 5m.
    #[schemars(extend("default" = "5s"))]
    connect_timeout: Option<Spanned<config::Duration>>,
    /// The largest number of connections to the service, of all workers together, from 1 to 100000.
    /// The default is no limit.
    connections: Option<Spanned<u64>>,
}

/// How an HTTP request says who asks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AuthConfig {
    /// A token, sent as `Authorization: Bearer TOKEN` (RFC 6750).
    bearer: Option<String>,
    /// User name and password, sent as `Authorization: Basic ...` (RFC 7617).
    basic: Option<BasicConfig>,
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

/// A UsernameToken, a timestamp, or both.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SecurityConfig {
    /// The user name of the UsernameToken.
    username: Option<String>,
    /// The password of the UsernameToken.
    password: Option<String>,
    /// Whether a digest of the password is sent, with a nonce and the time, instead of the
    /// password itself. The default is false.
    digest: Option<Spanned<bool>>,
    /// How long a message is valid, from 1s to 1h: it gets a timestamp with this lifetime.
    timestamp: Option<Spanned<config::Duration>>,
}

/// A SOAP service.
pub struct Service {
    /// What describes it.
    pub wsdl: Wsdl,
    /// The port that is used; the first that can be without one.
    pub port: Option<String>,
    /// The system that is called.
    pub upstream: Arc<UpstreamPlan>,
    /// The path that is called, which begins with `/`.
    pub path: String,
    /// The query that is called, without `?`.
    pub query: Option<String>,
    /// Header lines that every request gets.
    pub fields: Vec<(String, String)>,
    /// What the security header of every message says.
    pub security: Option<Security>,
    /// The longest until a connection is made.
    pub connect_timeout: Duration,
}

fn build(node: &Node, context: &mut ConnectionContext<'_>) -> Option<Arc<dyn Any + Send + Sync>> {
    let config: SoapConfig = config::decode(node, context.report)?;
    let before = context.report.errors();
    let wsdl = read_wsdl(&config.soap, context.report, context.surroundings);
    let endpoint = read_endpoint(node, &config, wsdl.as_ref(), context);
    let fields = read_auth(config.auth.as_ref(), context.report);
    let security = read_security(config.security.as_ref(), context.report);
    let report = &mut *context.report;
    let connect_timeout = bounds::time(
        config.connect_timeout.as_ref(),
        Duration::from_secs(5),
        Duration::from_millis(10)..=Duration::from_secs(300),
        report,
    );
    let limit = config.connections.as_ref();
    let limit = limit.map(|it| bounds::count(Some(it), 1, 1..=100_000, report) as usize);
    let (wsdl, endpoint) = (wsdl?, endpoint?);
    let place = config
        .endpoint
        .as_ref()
        .map_or(config.soap.span, |it| it.span);
    let server = endpoint.server;
    let hint = "an `https` URL has TLS; leave `tls` out for others";
    let tls = tls::upstream(
        config.tls.as_ref(),
        (server.is_secure, hint),
        context,
        place,
    );
    let mut upstream = UpstreamPlan {
        name: context.name.into(),
        ..UpstreamPlan::single(&server.host, server.port, tls)
    };
    upstream.connections.limit = limit;
    let path = if server.path.is_empty() {
        "/".to_owned()
    } else {
        server.path
    };
    let service = Service {
        wsdl,
        port: config.port.map(|it| it.value),
        upstream: Arc::new(upstream),
        path,
        query: endpoint.query,
        fields,
        security,
        connect_timeout,
    };
    (context.report.errors() == before).then(|| Arc::new(service) as _)
}

/// Reads the WSDL file of a name and all that it imports. Every problem is reported.
pub(crate) fn read_wsdl(
    name: &Spanned<String>,
    report: &mut Report,
    surroundings: &Surroundings<'_>,
) -> Option<Wsdl> {
    let mut parts = Path::new(&name.value).components();
    let is_inside = parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_inside || name.value.contains("://") || name.value.is_empty() {
        report
            .error(BAD_ADDRESS, name.span, "this is no name of a WSDL file")
            .hint("write one relative to the flow file, such as `./wsdl/erp.wsdl`");
        return None;
    }
    let files = |file: &str| (surroundings.files)(name.span.source, file);
    match Wsdl::read(&name.value, &files) {
        Ok(wsdl) => Some(wsdl),
        Err(problem) => {
            put(&problem, name.span, report);
            None
        }
    }
}

/// Puts a problem of a WSDL file into the report, at the place that leads to it.
pub(crate) fn put(problem: &Problem, span: config::Span, report: &mut Report) {
    let diagnostic = report.error(BAD_WSDL, span, problem.text());
    if let Some(hint) = &problem.hint {
        diagnostic.hint(hint.clone());
    }
}

fn read_endpoint(
    node: &Node,
    config: &SoapConfig,
    wsdl: Option<&Wsdl>,
    context: &mut ConnectionContext<'_>,
) -> Option<Endpoint> {
    let wanted = config.port.as_ref();
    let port = match wsdl.map(|wsdl| wsdl.port(wanted.map(|it| it.value.as_str()))) {
        Some(Ok(port)) => Some(port),
        Some(Err(problem)) => {
            let span = wanted.map_or(config.soap.span, |it| it.span);
            put(&problem, span, context.report);
            None
        }
        None => None,
    };
    if config.endpoint.is_some() {
        let node = node.get("endpoint")?;
        return url::read_http(node, context.report);
    }
    let address = port?.address.unwrap_or_default();
    let found = url::parse_http(address);
    if found.is_none() {
        context
            .report
            .error(
                BAD_ADDRESS,
                config.soap.span,
                "the WSDL file says no URL that can be called",
            )
            .hint("say `endpoint: https://...`");
    }
    found
}

fn read_auth(config: Option<&Spanned<AuthConfig>>, report: &mut Report) -> Vec<(String, String)> {
    let Some(Spanned { value: auth, span }) = config else {
        return Vec::new();
    };
    let value = match (&auth.bearer, &auth.basic) {
        (Some(token), None) => format!("Bearer {token}"),
        (None, Some(basic)) if !basic.user.contains(':') => {
            let pair = format!("{}:{}", basic.user, basic.password);
            format!("Basic {}", Base64::encode_string(pair.as_bytes()))
        }
        _ => {
            let message = "`auth` is either `bearer`, or `basic` with a name without a colon";
            report.error(BAD_SOAP, *span, message);
            return Vec::new();
        }
    };
    if !Headers::is_value(value.as_bytes()) {
        // The value itself must not be shown.
        report
            .error(BAD_SOAP, *span, "this cannot be sent in a header")
            .hint("is there a line break at its end?");
    }
    secret::register(&value);
    vec![("Authorization".to_owned(), value)]
}

fn read_security(
    config: Option<&Spanned<SecurityConfig>>,
    report: &mut Report,
) -> Option<Security> {
    let Spanned {
        value: config,
        span,
    } = config?;
    let mut refuse = |span, message: &str, hint: &str| {
        report
            .error(BAD_SOAP, span, message.to_owned())
            .hint(hint.to_owned());
    };
    let digest = config.digest.as_ref();
    let token = match (&config.username, &config.password) {
        (Some(name), Some(password)) => {
            secret::register(password);
            let is_digest = digest.is_some_and(|it| it.value);
            Some((name.clone(), password.clone(), is_digest))
        }
        (None, None) => None,
        _ => {
            let hint = "say both, or neither";
            refuse(*span, "`username` and `password` belong together", hint);
            None
        }
    };
    if let Some(digest) = digest.filter(|_| config.username.is_none()) {
        refuse(
            digest.span,
            "`digest` has no effect here",
            "say `username` and `password` too",
        );
    }
    if config.username.is_none() && config.password.is_none() && config.timestamp.is_none() {
        refuse(
            *span,
            "`security` says nothing",
            "say `username` and `password`, or `timestamp`",
        );
    }
    let timestamp = config.timestamp.as_ref();
    let lifetime = timestamp.map(|it| {
        let range = Duration::from_secs(1)..=Duration::from_secs(3600);
        bounds::time(Some(it), Duration::from_secs(300), range, report)
    });
    Some(Security { token, lifetime })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connect;

    fn service(yaml: &str) -> Arc<Service> {
        connect(&DEFINITION, yaml).unwrap().downcast().ok().unwrap()
    }

    #[test]
    fn a_service_is_read() {
        let found = service("{ soap: ./erp.wsdl, endpoint: 'https://erp.example/ws?v=1' }");
        assert_eq!(
            (found.path.as_str(), found.query.as_deref()),
            ("/ws", Some("v=1"))
        );
        assert_eq!(found.upstream.authority(), "erp.example");
        assert!(found.upstream.tls.is_some());
        let found = service("{ soap: erp.wsdl, auth: { basic: { user: a, password: b } } }");
        assert_eq!(found.upstream.authority(), "erp.example:8080");
        assert_eq!(
            (found.path.as_str(), found.fields[0].1.as_str()),
            ("/ws/erp", "Basic YTpi")
        );
    }

    #[test]
    fn every_problem_has_its_place() {
        let cases = [
            ("{ soap: /etc/erp.wsdl }", "IT0290 1:9"),
            ("{ soap: ../erp.wsdl }", "IT0290 1:9"),
            ("{ soap: 'http://erp/x.wsdl' }", "IT0290 1:9"),
            (
                "{ soap: none.wsdl }",
                "IT0440 1:9 none.wsdl: the file cannot be read",
            ),
            ("{ soap: erp.wsdl, endpoint: 'ftp://erp' }", "IT0290 1:29"),
            (
                "{ soap: erp.wsdl, port: Erp2 }",
                "IT0440 1:25 erp.wsdl: there is no port `Erp2`",
            ),
            (
                "{ soap: erp.wsdl, endpoint: 'http://u:p@erp' }",
                "IT0290 1:29",
            ),
            ("{ soap: erp.wsdl, connect_timeout: 1ms }", "IT0291 1:36"),
            ("{ soap: erp.wsdl, connections: 0 }", "IT0291 1:32"),
            ("{ soap: erp.wsdl, tls: { server_name: a } }", "IT0298 1:24"),
            ("{ soap: erp.wsdl, auth: {} }", "IT0297 1:25"),
            ("{ soap: erp.wsdl, security: {} }", "IT0297 1:29"),
            (
                "{ soap: erp.wsdl, security: { username: a } }",
                "IT0297 1:29",
            ),
            (
                "{ soap: erp.wsdl, security: { timestamp: 5m, digest: true } }",
                "IT0297 1:54",
            ),
            (
                "{ soap: erp.wsdl, security: { timestamp: 2h } }",
                "IT0291 1:42",
            ),
        ];
        for (yaml, expected) in cases {
            let found = connect(&DEFINITION, yaml).err().unwrap_or_default();
            assert_eq!(found.len(), 1, "{yaml}: {found:?}");
            assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
        }
    }
}
