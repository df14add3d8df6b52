//! Databases that speak SQL.

pub mod drivers;
pub mod error;
pub mod measures;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "mysql", feature = "sqlserver"))]
mod patience;
mod pool;
#[cfg(feature = "postgres")]
pub mod postgres;
mod prepare;
pub mod query;
mod read_only;
mod room;
pub mod server;
pub mod session;
mod sink;
pub mod source;
pub mod sqlite;
#[cfg(feature = "sqlserver")]
pub mod sqlserver;
mod sqlserver_connection;
pub mod step;
#[cfg(any(
    feature = "postgres",
    feature = "sqlite",
    feature = "mysql",
    feature = "sqlserver"
))]
mod text;
pub mod transaction;

pub use sqlserver_connection::SQLSERVER;

use std::sync::Arc;
use std::time::Duration;

use component::definition::ConnectionContext;
use component::state::StateKey;
use config::{Report, Spanned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::sql::measures::Measures;
use crate::tls::Tls;
use crate::url::Server;

/// Which SQL a database speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Microsoft SQL Server.
    SqlServer,
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    /// SQLite.
    Sqlite,
}

/// Where a database is.
#[derive(Clone)]
pub enum Place {
    /// On a server.
    Server(Server),
    /// In a file.
    File(std::path::PathBuf),
}

/// What becomes of numbers with a fraction that are exact in the database (`numeric`, `decimal`,
/// `money`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Decimals {
    /// Numbers with the database's digits: exact as long as nothing is calculated with them.
    #[default]
    Number,
    /// Texts with the database's digits.
    Text,
}

/// What texts are bound as, where a database has two kinds of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Texts {
    /// `nvarchar`, which has all characters.
    #[default]
    Nvarchar,
    /// `varchar` when they have characters of ASCII only, and else `nvarchar`.
    Varchar,
}

/// A database.
#[derive(Clone)]
pub struct Database {
    /// The connection's name under `use:`, for logs.
    pub connection: String,
    /// Which SQL it speaks.
    pub dialect: Dialect,
    /// Where it is.
    pub place: Place,
    /// The database of a server, when the URL names one.
    pub name: Option<String>,
    /// TLS to the server; without it the connection is in clear text.
    pub tls: Option<Tls>,
    /// What becomes of exact numbers with a fraction.
    pub decimals: Decimals,
    /// What texts are bound as; for SQL Server.
    pub texts: Texts,
    /// What it may take.
    pub limits: Limits,
    /// How its pools fare.
    pub measures: Arc<Measures>,
}

impl Database {
    /// All that makes a difference to its connections, for [`component::resources::Resources`].
    /// It holds the password.
    pub fn settings(&self) -> String {
        let place = match &self.place {
            Place::File(file) => format!("{file:?}"),
            Place::Server(it) => {
                let who = (&it.user, &it.password);
                format!("{:?} {} {who:?} {:?}", it.host, it.port, self.name)
            }
        };
        let tls = self.tls.as_ref().map(Tls::settings);
        let rest = (self.dialect, self.decimals, self.texts, self.limits);
        format!("{:?} {place} {tls:?} {rest:?}", self.connection)
    }
}

/// What a database may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections, of all workers together.
    pub pool: u32,
    /// The longest that a statement waits for a free connection.
    pub wait: Duration,
    /// The longest until a connection is made.
    pub connect_timeout: Duration,
    /// The longest that a statement may take.
    pub statement_timeout: Duration,
}

/// The numbers of a connection's pools, kept while its name stays.
fn measures(context: &ConnectionContext<'_>) -> Arc<Measures> {
    let key = StateKey {
        flow: "".into(),
        step: context.name.into(),
        kind: "sql",
        settings: String::new(),
    };
    context.surroundings.states.get(key, Measures::default)
}

/// The limits as a connection says them.
struct Given<'a> {
    pool: Option<&'a Spanned<u64>>,
    wait: Option<&'a Spanned<config::Duration>>,
    connect_timeout: Option<&'a Spanned<config::Duration>>,
    statement_timeout: Option<&'a Spanned<config::Duration>>,
}

impl Given<'_> {
    /// The limits with their defaults. Every problem is reported.
    fn read(&self, report: &mut Report) -> Limits {
        let seconds = Duration::from_secs;
        let (least, day) = (Duration::from_millis(1), seconds(24 * 3600));
        Limits {
            pool: bounds::count(self.pool, 10, 1..=10_000, report) as u32,
            wait: bounds::time(self.wait, seconds(5), least..=day, report),
            connect_timeout: bounds::time(
                self.connect_timeout,
                seconds(5),
                Duration::from_millis(10)..=seconds(300),
                report,
            ),
            statement_timeout: bounds::time(
                self.statement_timeout,
                seconds(30),
                least..=day,
                report,
            ),
        }
    }
}
