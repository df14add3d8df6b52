//! `redis` connections: one server.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use component::definition::{ConnectionContext, ConnectionDefinition};
use component::key_value::AsKeyValueStore;
use config::{AnyValue, Node, Spanned, Value};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::bounds;
use crate::tls::{self, Tls, TlsConfig};
use crate::url::{self, Problem, Scheme, Server};

/// The definition of the connection.
pub const DEFINITION: ConnectionDefinition = ConnectionDefinition {
    name: "redis",
    summary: "A Redis server.",
    documentation: include_str!("connection.md"),
    example: include_str!("connection.yaml"),
    schema: config::schema_for::<RedisConfig>,
    missing: match cfg!(feature = "redis") {
        true => None,
        false => Some("this build has no driver for redis"),
    },
    build,
    key_value: AS_KEY_VALUE_STORE,
};

#[cfg(feature = "redis")]
const AS_KEY_VALUE_STORE: Option<AsKeyValueStore> = Some(super::key_value::of);
#[cfg(not(feature = "redis"))]
const AS_KEY_VALUE_STORE: Option<AsKeyValueStore> = None;

const SCHEMES: [Scheme; 2] = [("redis", 6379, false), ("rediss", 6379, true)];
/// The most databases that a server can have.
const DATABASES: i64 = 1 << 20;

/// A Redis server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RedisConfig {
    /// `redis://user:password@host:port/database`, or `rediss://` with TLS. The default port is
    /// 6379, the default database 0.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    #[schemars(with = "String")]
    redis: AnyValue,
    /// How long connecting may take, from 10ms to 5m.
    #[schemars(extend("default" = "5s"))]
    connect_timeout: Option<Spanned<config::Duration>>,
    /// How long a command may take, from 1ms to 5m.
    #[schemars(extend("default" = "5s"))]
    timeout: Option<Spanned<config::Duration>>,
    /// TLS for a `rediss` URL.
    tls: Option<Spanned<TlsConfig>>,
}

/// A Redis server.
#[derive(Clone)]
pub struct Redis {
    /// The connection's name, for the log.
    pub name: String,
    /// The server.
    pub server: Server,
    /// The number of the database.
    pub database: i64,
    /// The longest until a connection is made.
    pub connect_timeout: Duration,
    /// The longest until a command is answered.
    pub timeout: Duration,
    /// TLS, when the URL asks for it.
    pub tls: Tls,
}

fn build(node: &Node, context: &mut ConnectionContext<'_>) -> Option<Arc<dyn Any + Send + Sync>> {
    // A list is refused here, with a better reason than that it is no text.
    if let Some(list) = node.get("redis")
        && matches!(list.value, Value::Sequence(_))
    {
        let message = "clusters and sentinels are not supported: a connection is one server";
        let hint = "write one URL, such as `redis://host:6379`; a proxy or a service address can \
                    stand before several servers";
        Problem::new(message, hint).put(list.span, context.report);
        return None;
    }
    let config: RedisConfig = config::decode(node, context.report)?;
    let before = context.report.diagnostics().len();
    let address = node.get("redis")?;
    let server = url::read(address, &SCHEMES, context.report);
    let database = server.as_ref().map(|it| database(&it.path));
    if let Some(None) = database {
        let hint = "write its number behind the host, such as `/0`, or nothing";
        Problem::new("the URL's database is none", hint).put(address.span, context.report);
    }
    let is_secure = server.as_ref().is_none_or(|server| server.is_secure);
    let hint = "write `rediss://`, or leave `tls` out";
    let tls = tls::read(config.tls.as_ref(), (is_secure, hint), context);
    let (name, report) = (context.name.to_owned(), &mut *context.report);
    let most = Duration::from_secs(300);
    let seconds = Duration::from_secs(5);
    let least = Duration::from_millis(10);
    let connect_timeout = config.connect_timeout.as_ref();
    let connect_timeout = bounds::time(connect_timeout, seconds, least..=most, report);
    let least = Duration::from_millis(1);
    let timeout = bounds::time(config.timeout.as_ref(), seconds, least..=most, report);
    let (server, database) = (server?, database??);
    (report.diagnostics().len() == before).then(|| {
        Arc::new(Redis {
            name,
            server,
            database,
            connect_timeout,
            timeout,
            tls,
        }) as _
    })
}

/// The number of the database that a URL's path names; 0 without one.
fn database(path: &str) -> Option<i64> {
    let number = path.strip_prefix('/').unwrap_or(path);
    if number.is_empty() {
        return Some(0);
    }
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_number)?;
    (0..DATABASES).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connect;

    #[test]
    fn a_server_is_read() {
        let yaml = "{ redis: 'rediss://me:pass%2Fword@r:99/3', timeout: 200ms }";
        let found = connect(&DEFINITION, yaml).unwrap();
        let found = found.downcast::<Redis>().ok().unwrap();
        assert_eq!((found.server.port, found.database), (99, 3));
        assert!(found.server.is_secure);
        assert_eq!(found.server.password.as_deref(), Some("pass/word"));
        assert_eq!(found.timeout, Duration::from_millis(200));
        assert_eq!(found.connect_timeout, Duration::from_secs(5));
    }

    #[test]
    fn every_problem_has_its_place() {
        let cases = [
            ("{ redis: 'http://a' }", "IT0290 1:10"),
            ("{ redis: ['redis://a', 'redis://b'] }", "IT0290 1:10"),
            ("{ redis: 'redis://a/x' }", "IT0290 1:10"),
            ("{ redis: 'redis://a/+1' }", "IT0290 1:10"),
            ("{ redis: 'redis://a/0/1' }", "IT0290 1:10"),
            ("{ redis: 'redis://a', timeout: 0ms }", "IT0291 1:32"),
            ("{ redis: 'redis://a', connect_timeout: 1h }", "IT0291 1:40"),
            ("{ redis: 'redis://a', tls: {} }", "IT0298 1:28"),
        ];
        for (yaml, expected) in cases {
            let found = connect(&DEFINITION, yaml).err().unwrap_or_default();
            assert_eq!(found.len(), 1, "{yaml}: {found:?}");
            assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
        }
        assert!(connect(&DEFINITION, "{ redis: 'redis://a', colour: red }").is_err());
    }
}
