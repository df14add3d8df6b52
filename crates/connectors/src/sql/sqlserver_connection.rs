//! `sqlserver` connections: unlike those of other databases they are encrypted unless a flow file
//! says otherwise.

use std::any::Any;
use std::sync::Arc;

use component::definition::{ConnectionContext, ConnectionDefinition};
use config::{Node, Spanned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codes::BAD_TLS;
use crate::sql::{self, Database, Decimals, Dialect, Given, Place, Texts, drivers, server};
use crate::tls::{self, Tls, TlsConfig};
use crate::url::Scheme;

/// The definition of `sqlserver` connections.
pub const SQLSERVER: ConnectionDefinition = ConnectionDefinition {
    name: "sqlserver",
    summary: "A Microsoft SQL Server database.",
    documentation: include_str!("sqlserver.md"),
    example: include_str!("sqlserver.yaml"),
    schema: config::schema_for::<SqlServerConfig>,
    missing: drivers::missing(Dialect::SqlServer),
    build,
    key_value: None,
};

const SCHEMES: &[Scheme] = &[("sqlserver", 1433, false), ("mssql", 1433, false)];

/// Whether everything is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Encrypt {
    /// By TLS; a server that does not speak it, or has no good certificate, is refused.
    #[default]
    On,
    /// Nothing is, the password neither.
    Off,
}

/// A database on SQL Server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SqlServerConfig {
    /// `sqlserver://user:password@host:port/database`.
    #[allow(dead_code, reason = "read from the tree, where its place is known")]
    sqlserver: String,
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
    /// How long a statement may take, from 1ms to 1d. `timeout` beside a step may end it sooner.
    #[schemars(extend("default" = "30s"))]
    statement_timeout: Option<Spanned<config::Duration>>,
    /// Whether the connection is encrypted with TLS.
    #[serde(default)]
    encrypt: Encrypt,
    /// TLS settings. `ca` is trusted in addition to the system's authorities; `cert` and `key`
    /// cannot be used.
    tls: Option<Spanned<TlsConfig>>,
    /// How exact decimal numbers, such as `numeric(12,2)` and `money`, are read: as JSON numbers or
    /// as strings.
    #[serde(default)]
    decimals: Decimals,
    /// The type that strings are bound as. An `nvarchar` argument keeps the server from using the
    /// index of a `varchar` column.
    #[serde(default)]
    texts: Texts,
}

fn build(node: &Node, context: &mut ConnectionContext<'_>) -> Option<Arc<dyn Any + Send + Sync>> {
    let config: SqlServerConfig = config::decode(node, context.report)?;
    let before = context.report.diagnostics().len();
    let tls = read_tls(&config, context);
    let (connection, measures) = (context.name.to_owned(), sql::measures(context));
    let report = &mut *context.report;
    let given = Given {
        pool: config.pool.as_ref(),
        wait: config.wait.as_ref(),
        connect_timeout: config.connect_timeout.as_ref(),
        statement_timeout: config.statement_timeout.as_ref(),
    };
    let limits = given.read(report);
    let (server, name) = server::read(node.get("sqlserver")?, SCHEMES, report)?;
    let database = Database {
        connection,
        dialect: Dialect::SqlServer,
        place: Place::Server(server),
        name,
        tls,
        decimals: config.decimals,
        texts: config.texts,
        limits,
        measures,
    };
    (report.diagnostics().len() == before).then(|| Arc::new(database) as _)
}

fn read_tls(config: &SqlServerConfig, context: &mut ConnectionContext<'_>) -> Option<Tls> {
    if config.encrypt == Encrypt::Off {
        if let Some(tls) = &config.tls {
            let message = "`tls` has no effect with `encrypt: off`";
            let hint = "leave one of them out";
            context.report.error(BAD_TLS, tls.span, message).hint(hint);
        }
        return None;
    }
    let tls = tls::read(config.tls.as_ref(), (true, ""), context);
    if let (Some(_), Some(given)) = (&tls.identity, &config.tls) {
        let message = "this connection shows no certificate of its own";
        let hint = "leave `cert` and `key` out: SQL Server asks for user and password";
        context
            .report
            .error(BAD_TLS, given.span, message)
            .hint(hint);
    }
    Some(tls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connect;

    fn tls(yaml: &str) -> bool {
        let found = connect(&SQLSERVER, yaml).unwrap();
        let found = found.downcast::<Database>().ok().unwrap();
        found.tls.is_some()
    }

    #[test]
    fn everything_is_encrypted_unless_it_is_said() {
        assert!(tls("{ sqlserver: 'mssql://db' }"));
        assert!(tls(
            "{ sqlserver: 'sqlserver://db/x', tls: { server_name: sql.example } }"
        ));
        assert!(!tls("{ sqlserver: 'mssql://db', encrypt: off }"));
    }

    #[test]
    fn what_contradicts_itself_is_told() {
        let yaml = "{ sqlserver: 'mssql://db', encrypt: off, tls: {} }";
        let found = connect(&SQLSERVER, yaml).err().unwrap_or_default();
        assert!(
            found.len() == 1 && found[0].starts_with("IT0298"),
            "{found:?}"
        );
        let found = connect(&SQLSERVER, "{ sqlserver: 'mssql://db', encrypt: maybe }");
        assert_eq!(found.err().unwrap_or_default().len(), 1);
    }
}
