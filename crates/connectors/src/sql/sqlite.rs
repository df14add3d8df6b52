//! `sqlite` connections: a database in a file.

#[cfg(feature = "sqlite")]
pub(crate) mod driver;

use std::any::Any;
use std::sync::Arc;

use component::definition::{ConnectionContext, ConnectionDefinition};
use config::{Node, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::BAD_ADDRESS;
use crate::sql::{self, Database, Decimals, Dialect, Given, Place, Texts, drivers};

/// The definition of the connection.
pub const DEFINITION: ConnectionDefinition = ConnectionDefinition {
    name: "sqlite",
    summary: "An SQLite database file.",
    documentation: include_str!("sqlite.md"),
    example: include_str!("sqlite.yaml"),
    schema: config::schema_for::<SqliteConfig>,
    missing: drivers::missing(Dialect::Sqlite),
    build,
    key_value: None,
};

/// A database in a file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SqliteConfig {
    /// The database file, relative to the flow file's own folder.
    sqlite: Spanned<String>,
    /// The largest number of connections, of all workers together, from 1 to 10000.
    #[schemars(extend("default" = 10))]
    pool: Option<Spanned<u64>>,
    /// How long a statement waits for a free connection, or for other writers, from 1ms to 1d; then
    /// it fails with `unavailable`.
    #[schemars(extend("default" = "5s"))]
    wait: Option<Spanned<config::Duration>>,
    /// How long a statement may take, from 1ms to 1d. `timeout` beside a step may end it sooner.
    #[schemars(extend("default" = "30s"))]
    statement_timeout: Option<Spanned<config::Duration>>,
}

fn build(node: &Node, context: &mut ConnectionContext<'_>) -> Option<Arc<dyn Any + Send + Sync>> {
    let (connection, measures) = (context.name.to_owned(), sql::measures(context));
    let report = &mut *context.report;
    let config: SqliteConfig = config::decode(node, report)?;
    let before = report.diagnostics().len();
    let file = &config.sqlite;
    let hint = if file.value.starts_with(":memory:") {
        Some("each connection would have a database of its own; name a file")
    } else if file.value.contains("://") || file.value.starts_with("file:") {
        Some("write the name of a file, such as `data/shop.db`, not a URL")
    } else if file.value.is_empty() || file.value.contains(char::is_control) {
        Some("write the name of a file, such as `data/shop.db`")
    } else {
        None
    };
    if let Some(hint) = hint {
        report
            .error(BAD_ADDRESS, file.span, "this is no name of a file")
            .hint(hint);
    }
    let given = Given {
        pool: config.pool.as_ref(),
        wait: config.wait.as_ref(),
        connect_timeout: None,
        statement_timeout: config.statement_timeout.as_ref(),
    };
    let database = Database {
        connection,
        tls: None,
        decimals: Decimals::default(),
        texts: Texts::default(),
        dialect: Dialect::Sqlite,
        limits: given.read(report),
        place: Place::File(context.surroundings.path(&config.sqlite)),
        name: None,
        measures,
    };
    (report.diagnostics().len() == before).then(|| Arc::new(database) as _)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connect;

    #[test]
    fn a_file_is_named() {
        assert!(connect(&DEFINITION, "{ sqlite: data/shop.db, pool: 2 }").is_ok());
        for yaml in [
            "{ sqlite: '' }",
            "{ sqlite: ':memory:' }",
            "{ sqlite: 'file:x' }",
            "{ sqlite: 'sqlite://x' }",
        ] {
            let found = connect(&DEFINITION, yaml).err().unwrap_or_default();
            assert_eq!(found.len(), 1, "{yaml}: {found:?}");
            assert!(found[0].starts_with("IT0290 1:11"), "{found:?}");
        }
    }
}
