//! Which dialects this build has a driver for: each is a folder and a feature.

use crate::sql::Dialect;
use crate::sql::session::Driver;

/// The driver of a dialect; `None` when this build has none.
pub fn of(dialect: Dialect) -> Option<&'static dyn Driver> {
    match dialect {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => Some(&super::postgres::Postgres),
        #[cfg(not(feature = "postgres"))]
        Dialect::Postgres => None,
        #[cfg(feature = "mysql")]
        Dialect::MySql => Some(&super::mysql::MySql),
        #[cfg(not(feature = "mysql"))]
        Dialect::MySql => None,
        #[cfg(feature = "sqlserver")]
        Dialect::SqlServer => Some(&super::sqlserver::SqlServer),
        #[cfg(not(feature = "sqlserver"))]
        Dialect::SqlServer => None,
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => Some(&super::sqlite::driver::Sqlite),
        #[cfg(not(feature = "sqlite"))]
        Dialect::Sqlite => None,
    }
}

/// Why connections of a dialect cannot be used; `None` when they can.
pub const fn missing(dialect: Dialect) -> Option<&'static str> {
    match dialect {
        Dialect::SqlServer if cfg!(feature = "sqlserver") => None,
        Dialect::SqlServer => Some("this build has no driver for sqlserver"),
        Dialect::Postgres if cfg!(feature = "postgres") => None,
        Dialect::Postgres => Some("this build has no driver for postgres"),
        Dialect::MySql if cfg!(feature = "mysql") => None,
        Dialect::MySql => Some("this build has no driver for mysql"),
        Dialect::Sqlite if cfg!(feature = "sqlite") => None,
        Dialect::Sqlite => Some("this build has no driver for sqlite"),
    }
}
