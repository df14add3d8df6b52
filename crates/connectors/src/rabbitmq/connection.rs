//! `rabbitmq` connections: a broker, or the hosts of a cluster.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use component::definition::{ConnectionContext, ConnectionDefinition};
use component::state::StateKey;
use config::{Node, Report, Spanned, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use crate::bounds;
use crate::codes::BAD_ADDRESS;
use crate::rabbitmq::state::Figures;
use crate::rabbitmq::topology::{self, Declaration, DeclareConfig};
use crate::tls::{self, Tls, TlsConfig};
use crate::url::{self, Problem, Scheme, Server};

/// The definition of the connection.
pub const DEFINITION: ConnectionDefinition = ConnectionDefinition {
    name: "rabbitmq",
    summary: "A RabbitMQ broker, or the nodes of a cluster.",
    documentation: include_str!("connection.md"),
    example: include_str!("connection.yaml"),
    schema: config::schema_for::<RabbitmqConfig>,
    missing: None,
    build,
    key_value: None,
};

const SCHEMES: [Scheme; 2] = [("amqp", 5672, false), ("amqps", 5671, true)];
/// The most bytes of a short text (AMQP 0-9-1, section 4.2.5.3).
pub(crate) const SHORT_MAX: usize = 255;

/// A broker of AMQP 0-9-1.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RabbitmqConfig {
    /// `amqp://user:password@host:port/vhost`, or `amqps://` with TLS; or a list of such URLs that
    /// differ in host and port: the hosts of one cluster.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    rabbitmq: Urls,
    /// The connection name shown in the broker's management console. The default is the name under
    /// `use:`.
    name: Option<Spanned<String>>,
    /// The heartbeat interval, from 1s to 10m. A side that is silent for twice as long is
    /// considered gone.
    #[schemars(extend("default" = "30s"))]
    heartbeat: Option<Spanned<config::Duration>>,
    /// How long connecting may take, from 10ms to 5m.
    #[schemars(extend("default" = "5s"))]
    connect_timeout: Option<Spanned<config::Duration>>,
    /// TLS for `amqps` URLs.
    tls: Option<Spanned<TlsConfig>>,
    /// Exchanges, queues and bindings to declare on each new connection.
    declare: Option<DeclareConfig>,
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

/// A broker, or a cluster of them.
#[derive(Clone)]
pub struct Rabbitmq {
    /// The name under `use:`, for logs.
    pub label: String,
    /// The hosts, which have the same users and virtual hosts.
    pub servers: Vec<Server>,
    /// The virtual host.
    pub vhost: String,
    /// What the broker's console calls the connections.
    pub name: String,
    /// How often each side says that it is there.
    pub heartbeat: Duration,
    /// The longest until a connection is made.
    pub connect_timeout: Duration,
    /// TLS, when the URLs ask for it.
    pub tls: Tls,
    /// What is declared when a connection is made.
    pub(crate) declarations: Vec<Declaration>,
    /// What the admin port shows.
    pub(crate) figures: Arc<Figures>,
    /// All that tells one connection from another, secrets included; shown to nobody.
    pub(crate) settings: String,
}

impl Rabbitmq {
    fn describe(&self) -> String {
        let servers = self.servers.iter().map(|it| {
            let who = (&it.user, &it.password);
            format!("{:?}", (&it.host, it.port, it.is_secure, who))
        });
        let servers: Vec<String> = servers.collect();
        let tls = (&self.tls.ca, &self.tls.identity, &self.tls.server_name);
        let names = (&self.label, &self.vhost, &self.name);
        let times = (self.heartbeat, self.connect_timeout);
        format!("{:?}", (names, servers, times, tls, &self.declarations))
    }
}

fn build(node: &Node, context: &mut ConnectionContext<'_>) -> Option<Arc<dyn Any + Send + Sync>> {
    let config: RabbitmqConfig = config::decode(node, context.report)?;
    let before = context.report.diagnostics().len();
    let servers = read_servers(node.get("rabbitmq")?, context.report);
    let is_secure = servers.iter().any(|(server, _)| server.is_secure);
    let hint = "write `amqps://`, or leave `tls` out";
    let tls = match servers.is_empty() {
        true => Tls::default(),
        false => tls::read(config.tls.as_ref(), (is_secure, hint), context),
    };
    let (name, report) = (context.name, &mut *context.report);
    if let Some(given) = &config.name
        && (given.value.is_empty() || given.value.len() > SHORT_MAX)
    {
        report
            .error(BAD_ADDRESS, given.span, "this is no name for connections")
            .hint("a name has 1 to 255 bytes");
    }
    let seconds = Duration::from_secs;
    let declarations = match (&config.declare, node.get("declare")) {
        (Some(declare), Some(node)) => topology::read(declare, node, report),
        _ => Vec::new(),
    };
    let mut connection = Rabbitmq {
        label: name.to_owned(),
        vhost: servers
            .first()
            .map(|(_, vhost)| vhost.clone())
            .unwrap_or_default(),
        servers: servers.into_iter().map(|(server, _)| server).collect(),
        name: config
            .name
            .map_or_else(|| name.to_owned(), |name| name.value),
        heartbeat: bounds::time(
            config.heartbeat.as_ref(),
            seconds(30),
            seconds(1)..=seconds(600),
            report,
        ),
        connect_timeout: bounds::time(
            config.connect_timeout.as_ref(),
            seconds(5),
            Duration::from_millis(10)..=seconds(300),
            report,
        ),
        tls,
        declarations,
        figures: Arc::default(),
        settings: String::new(),
    };
    connection.settings = connection.describe();
    if report.diagnostics().len() != before {
        return None;
    }
    let key = StateKey {
        flow: "".into(),
        step: name.into(),
        kind: "rabbitmq",
        settings: connection.settings.clone(),
    };
    connection.figures = context.surroundings.states.get(key, Figures::default);
    Some(Arc::new(connection))
}

/// All hosts that can be read, each with its virtual host.
fn read_servers(node: &Node, report: &mut Report) -> Vec<(Server, String)> {
    let nodes = match &node.value {
        Value::Sequence(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut servers: Vec<(Server, String)> = Vec::new();
    for node in nodes {
        let Some(server) = url::read(node, &SCHEMES, report) else {
            continue;
        };
        let Some(vhost) = vhost(&server.path) else {
            let hint = "write one name, `/` in it as `%2F`; without any it is `/`";
            Problem::new("the URL's virtual host is none", hint).put(node.span, report);
            continue;
        };
        if let Some((first, _)) = servers.first() {
            let alike = Server {
                host: server.host.clone(),
                port: server.port,
                ..first.clone()
            };
            if alike != server {
                let hint = "the hosts of one cluster have the same scheme, user and virtual host";
                let message = "the URLs differ in more than host and port";
                Problem::new(message, hint).put(node.span, report);
            }
        }
        if servers.iter().any(|(other, _)| *other == server) {
            Problem::new("the URL is there twice", "leave one out").put(node.span, report);
        }
        servers.push((server, vhost));
    }
    servers
}

/// The virtual host of a path: a name behind `/`, and `/` itself when there is no path or no name.
/// By the letter a `/` alone names a host without a name, which nobody has and everybody writes.
fn vhost(path: &str) -> Option<String> {
    let Some(name) = path.strip_prefix('/').filter(|name| !name.is_empty()) else {
        return Some("/".to_owned());
    };
    let name = url::decode(name).filter(|_| !name.contains('/'))?;
    (name.len() <= SHORT_MAX).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connect;

    #[test]
    fn a_cluster_is_read() {
        let yaml = "{ rabbitmq: ['amqp://u:p@a/%2Fx', 'amqp://u:p@b:99/%2Fx'] }";
        let found = connect(&DEFINITION, yaml).unwrap();
        let found = found.downcast::<Rabbitmq>().ok().unwrap();
        assert_eq!(found.servers.len(), 2);
        assert_eq!(found.vhost, "/x");
        assert_eq!(found.heartbeat, Duration::from_secs(30));
        assert_eq!(found.name, "it");
    }

    #[test]
    fn every_problem_has_its_place() {
        let cases = [
            ("{ rabbitmq: 'http://a' }", "IT0290 1:13"),
            ("{ rabbitmq: ['amqp://a', 'amqps://b'] }", "IT0290 1:26"),
            ("{ rabbitmq: ['amqp://a', 'amqp://a'] }", "IT0290 1:26"),
            ("{ rabbitmq: 'amqp://a/b/c' }", "IT0290 1:13"),
            ("{ rabbitmq: 'amqp://a', heartbeat: 0s }", "IT0291 1:36"),
            ("{ rabbitmq: 'amqp://a', name: '' }", "IT0290 1:31"),
            (
                "{ rabbitmq: 'amqp://a', declare: { queues: [{ name: '' }] } }",
                "IT0400 1:53",
            ),
            (
                "{ rabbitmq: 'amqp://a', declare: { queues: [{ name: q, max_length: 1, \
                 arguments: { x-max-length: 2 } }] } }",
                "IT0400 1:84",
            ),
            (
                "{ rabbitmq: 'amqp://a', declare: { bindings: [{ exchange: x }] } }",
                "IT0400 1:59",
            ),
        ];
        for (yaml, expected) in cases {
            let found = connect(&DEFINITION, yaml).err().unwrap_or_default();
            assert_eq!(found.len(), 1, "{yaml}: {found:?}");
            assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
        }
        assert!(connect(&DEFINITION, "{ rabbitmq: 'amqp://a', colour: red }").is_err());
    }
}
