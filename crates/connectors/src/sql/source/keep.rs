//! How a source remembers what is done with: a cursor in a table, or a mark on each row.

use expr::Value;

use crate::sql::session::Statement;
use crate::sql::{Dialect, prepare, query};

/// How a row is noted that is done with.
pub(super) enum Mark {
    /// The cursor is kept.
    Cursor {
        /// Its column.
        column: String,
        /// Its value before the first row.
        start: Value,
        /// Where it is kept.
        keep: Box<Keep>,
        /// Whether the table is made.
        creates: bool,
    },
    /// A statement with the row's columns as arguments.
    After(Statement),
}

/// The statements on the table that keeps cursors.
pub(super) struct Keep {
    pub create: Statement,
    pub load: Statement,
    pub insert: Statement,
    pub update: Statement,
}

impl Keep {
    /// Those for a table, whose name has been checked.
    pub fn new(table: &str, dialect: Dialect) -> Self {
        let columns = "(name varchar(200) not null primary key, value varchar(2000) not null)";
        let create = match dialect {
            Dialect::SqlServer => {
                format!("if object_id(N'{table}') is null create table {table} {columns}")
            }
            _ => format!("create table if not exists {table} {columns}"),
        };
        let made = |text: String| {
            // These texts are ours: they have no open quotes.
            let places = query::arguments(&text, dialect).unwrap_or_default();
            prepare::statement(&text, &places, dialect)
        };
        Self {
            create: made(create),
            load: made(format!("select value from {table} where name = :name")),
            insert: made(format!(
                "insert into {table} (name, value) values (:name, :value)"
            )),
            update: made(format!(
                "update {table} set value = :value where name = :name"
            )),
        }
    }
}
