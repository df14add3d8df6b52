//! Which dialects this build has a driver for: each is a folder and a feature.

use crate::sql::Dialect;
use crate::sql::session::Driver;

/// The driver of a dialect; `None` when this build has none.
pub fn of(dialect: Dialect) -> Option<&'static dyn Driver> {
    match dialect {
        #[cfg(feature = "mysql")]
        Dialect::MySql => Some(crate::sql::mysql::DRIVER),
        #[cfg(not(feature = "mysql"))]
        Dialect::MySql => None,
        #[cfg(feature = "sqlserver")]
        Dialect::SqlServer => Some(crate::sql::sqlserver::DRIVER),
        #[cfg(not(feature = "sqlserver"))]
        Dialect::SqlServer => None,
        Dialect::Postgres | Dialect::Sqlite => None,
    }
}

/// Why connections of a dialect cannot be used; `None` when they can.
pub const fn missing(dialect: Dialect) -> Option<&'static str> {
    match dialect {
        #[cfg(feature = "sqlserver")]
        Dialect::SqlServer => None,
        #[cfg(not(feature = "sqlserver"))]
        Dialect::SqlServer => Some("this build has no driver for sqlserver"),
        Dialect::Postgres => Some("this build has no driver for postgres"),
        #[cfg(feature = "mysql")]
        Dialect::MySql => None,
        #[cfg(not(feature = "mysql"))]
        Dialect::MySql => Some("this build has no driver for mysql"),
        Dialect::Sqlite => Some("this build has no driver for sqlite"),
    }
}
