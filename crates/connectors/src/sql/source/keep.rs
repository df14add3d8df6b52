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
        /// Asks for the cursor of the next row, and nothing else of it: it may be too large to be
        /// read.
        peek: Statement,
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

/// The statement that gives the first value of the cursor's column that a query finds. It is the
/// query within another one, which not all that a dialect allows in a query can be.
pub(super) fn peek(text: &str, column: &str, dialect: Dialect) -> Statement {
    let text = text.trim_end().trim_end_matches(';');
    let lower = text.to_lowercase();
    let mut words = lower.split(|it: char| !it.is_alphanumeric() && it != '_');
    let (top, limit, order) = match dialect {
        // There `order by` stands in an inner query only with a bound (Transact-SQL, error 1033).
        Dialect::SqlServer if words.any(|it| it == "top" || it == "offset") => ("top (1) ", "", ""),
        Dialect::SqlServer => ("top (1) ", "", "\noffset 0 rows"),
        _ => ("", " limit 1", ""),
    };
    let column = name(column, dialect);
    let text = format!(
        "select {top}{column} from ({text}{order}\n) as intertie_rows order by {column}{limit}"
    );
    // The query has been read already: nothing is open in it.
    let places = query::arguments(&text, dialect).unwrap_or_default();
    prepare::statement(&text, &places, dialect)
}

/// The name of a column: as it is where it is a plain one, so that the dialect may write it in
/// capitals or not.
fn name(column: &str, dialect: Dialect) -> String {
    let is_plain = column
        .chars()
        .all(|it| it.is_ascii_alphanumeric() || it == '_')
        && !column.starts_with(|it: char| it.is_ascii_digit());
    match dialect {
        _ if is_plain => column.to_owned(),
        Dialect::SqlServer => format!("[{}]", column.replace(']', "]]")),
        Dialect::MySql => format!("`{}`", column.replace('`', "``")),
        Dialect::Postgres | Dialect::Sqlite => format!("\"{}\"", column.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_of_the_next_row_is_asked_for_alone() {
        let query = "select id, t from t where id > :cursor order by id -- all ;\n;";
        let text = |dialect| peek(query, "id", dialect).text;
        let inner = |argument: &str, more: &str| {
            format!(
                "from (select id, t from t where id > {argument} order by id -- all ;\n{more}\n) \
                 as intertie_rows order by id"
            )
        };
        let sqlite = format!("select id {} limit 1", inner("?1", ""));
        assert_eq!(text(Dialect::Sqlite), sqlite);
        let found = text(Dialect::SqlServer);
        let wanted = inner("@P1", "\noffset 0 rows");
        assert_eq!(found, format!("select top (1) id {wanted}"));
        let bounded = "select top 5 \"a b\" from t where a > :cursor order by 1";
        let found = peek(bounded, "a b", Dialect::SqlServer);
        let wanted = "select top (1) [a b] \
                      from (select top 5 \"a b\" from t where a > @P1 order by 1\n) \
                      as intertie_rows order by [a b]";
        assert_eq!(
            (&*found.text, found.names),
            (wanted, vec!["cursor".to_owned()])
        );
    }
}
