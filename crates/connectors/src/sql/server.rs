//! `postgres` and `mysql` connections: a database on a server.

use std::any::Any;
use std::sync::Arc;

use component::definition::{ConnectionContext, ConnectionDefinition};
use config::{Node, Report, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::sql::{self, Database, Decimals, Dialect, Given, Place, Texts, drivers};
use crate::tls::{self, TlsConfig};
use crate::url::{self, Problem, Scheme, Server};

/// The connection of one kind of server.
macro_rules! server {
    ($definition:ident, $config:ident, $key:ident, $build:ident, $dialect:ident,
     $summary:literal, $url:literal, $schemes:expr) => {
        #[doc = concat!("The definition of `", stringify!($key), "` connections.")]
        pub const $definition: ConnectionDefinition = ConnectionDefinition {
            name: stringify!($key),
            summary: $summary,
            documentation: include_str!(concat!(stringify!($key), ".md")),
            example: include_str!(concat!(stringify!($key), ".yaml")),
            schema: config::schema_for::<$config>,
            missing: drivers::missing(Dialect::$dialect),
            build: $build,
            key_value: None,
        };

        /// A database on a server.
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        struct $config {
            #[doc = $url]
            #[allow(dead_code, reason = "read from the tree, where its place is known")]
            $key: String,
            /// The largest number of connections, of all workers together, from 1 to 10000.
            #[schemars(extend("default" = 10))]
            pool: Option<Spanned<u64>>,
            /// How long a statement waits for a free connection, from 1ms to 1d; then it fails with
            /// `unavailable`.
            #[schemars(extend("default" = "5s"))]
            wait: Option<Spanned<config::Duration>>,
            /// How long connecting may take, from 10ms to 5m.
            #[schemars(extend("default" = "5s"))]
            connect_timeout: Option<Spanned<config::Duration>>,
            /// How long a statement may take, from 1ms to 1d. `timeout` beside a step may end it
            /// sooner.
            #[schemars(extend("default" = "30s"))]
            statement_timeout: Option<Spanned<config::Duration>>,
            /// TLS: the server must present a valid certificate; `{}` trusts the system's
            /// authorities. Without this key the connection is in clear text.
            tls: Option<Spanned<TlsConfig>>,
            /// How exact decimal numbers, such as `numeric(12,2)`, are read: as JSON numbers or as
            /// strings.
            #[serde(default)]
            decimals: Decimals,
        }

        fn $build(
            node: &Node,
            context: &mut ConnectionContext<'_>,
        ) -> Option<Arc<dyn Any + Send + Sync>> {
            let config: $config = config::decode(node, context.report)?;
            let before = context.report.diagnostics().len();
            let tls = config.tls.is_some().then(|| {
                let asked = (true, "");
                tls::read(config.tls.as_ref(), asked, context)
            });
            let (connection, measures) = (context.name.to_owned(), sql::measures(context));
            let report = &mut *context.report;
            let given = Given {
                pool: config.pool.as_ref(),
                wait: config.wait.as_ref(),
                connect_timeout: config.connect_timeout.as_ref(),
                statement_timeout: config.statement_timeout.as_ref(),
            };
            let limits = given.read(report);
            let url = node.get(stringify!($key))?;
            let (server, name) = read(url, $schemes, report)?;
            let database = Database {
                connection,
                dialect: Dialect::$dialect,
                place: Place::Server(server),
                name,
                tls,
                decimals: config.decimals,
                texts: Texts::default(),
                limits,
                measures,
            };
            (report.diagnostics().len() == before).then(|| Arc::new(database) as _)
        }
    };
}

server!(
    POSTGRES,
    PostgresConfig,
    postgres,
    build_postgres,
    Postgres,
    "A PostgreSQL database.",
    "`postgres://user:password@host:port/database`.",
    &[("postgres", 5432, false), ("postgresql", 5432, false)]
);

server!(
    MYSQL,
    MysqlConfig,
    mysql,
    build_mysql,
    MySql,
    "A MySQL or MariaDB database.",
    "`mysql://user:password@host:port/database`.",
    &[("mysql", 3306, false), ("mariadb", 3306, false)]
);

/// The server of a URL, and the database when it names one.
pub(super) fn read(
    node: &Node,
    schemes: &[Scheme],
    report: &mut Report,
) -> Option<(Server, Option<String>)> {
    let server = url::read(node, schemes, report)?;
    let path = server.path.strip_prefix('/').unwrap_or_default();
    let name = url::decode(path).filter(|_| !path.contains('/'));
    let Some(name) = name else {
        let hint = "write one name behind the host: `//host/shop`";
        Problem::new("the URL's database is none", hint).put(node.span, report);
        return None;
    };
    Some((server, Some(name).filter(|name| !name.is_empty())))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::connect;

    #[test]
    fn databases_are_read() {
        let yaml = "{ postgres: 'postgresql://u:p%20w@db/shop', pool: 20, statement_timeout: 2s }";
        let found = connect(&POSTGRES, yaml).unwrap();
        let found = found.downcast::<Database>().ok().unwrap();
        assert_eq!(found.name.as_deref(), Some("shop"));
        assert_eq!(found.limits.pool, 20);
        assert_eq!(found.limits.statement_timeout, Duration::from_secs(2));
        let Place::Server(server) = &found.place else {
            panic!("it is on a server");
        };
        assert_eq!((server.host.as_str(), server.port), ("db", 5432));
        assert_eq!(server.password.as_deref(), Some("p w"));
        assert!(connect(&MYSQL, "{ mysql: 'mariadb://db:1/x' }").is_ok());
    }

    #[test]
    fn every_problem_has_its_place() {
        let cases = [
            ("{ mysql: 'postgres://db' }", "IT0290 1:10"),
            ("{ mysql: 'mysql://db/a/b' }", "IT0290 1:10"),
            ("{ mysql: 'mysql://db?ssl=true' }", "IT0290 1:10"),
            ("{ mysql: 'mysql://db', pool: 0 }", "IT0291 1:30"),
            ("{ mysql: 'mysql://db', wait: 2d }", "IT0291 1:30"),
        ];
        for (yaml, expected) in cases {
            let found = connect(&MYSQL, yaml).err().unwrap_or_default();
            assert_eq!(found.len(), 1, "{yaml}: {found:?}");
            assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
        }
    }
}
