//! Makes a statement ready for its driver when a flow is loaded: placeholders instead of names, and
//! what can be told from its first word.

use crate::sql::Dialect;
use crate::sql::query::{self, Argument};
use crate::sql::read_only;
use crate::sql::session::Statement;

/// The statement as the dialect's driver gets it. `places` are its arguments in their order.
pub(crate) fn statement(text: &str, places: &[Argument], dialect: Dialect) -> Statement {
    let mut made = String::with_capacity(text.len());
    let mut names: Vec<String> = Vec::new();
    let mut at = 0;
    for place in places {
        made.push_str(text.get(at..place.at.start).unwrap_or_default());
        at = place.at.end;
        let known = names.iter().position(|name| *name == place.name);
        let number = match known.filter(|_| dialect != Dialect::MySql) {
            Some(known) => known + 1,
            None => {
                names.push(place.name.clone());
                names.len()
            }
        };
        match dialect {
            Dialect::Postgres => made.push_str(&format!("${number}")),
            Dialect::SqlServer => made.push_str(&format!("@P{number}")),
            Dialect::Sqlite => made.push_str(&format!("?{number}")),
            Dialect::MySql => made.push('?'),
        }
    }
    made.push_str(text.get(at..).unwrap_or_default());
    // What follows the end of a single statement is of no use to anybody.
    if dialect != Dialect::SqlServer {
        let end = made.trim_end().trim_end_matches(';').len();
        made.truncate(end);
    }
    Statement {
        is_read_only: read_only::is_read_only(text, dialect),
        text: made,
        names,
        ..Statement::default()
    }
}

/// Why a statement cannot be run by itself on a connection that is lent for it alone: what is wrong
/// and what to do.
pub(crate) fn refusal(text: &str, dialect: Dialect) -> Option<(&'static str, &'static str)> {
    let word = query::first_word(text, dialect)?;
    let is_begin = word == "begin" && dialect != Dialect::SqlServer;
    let ends = [
        "commit",
        "rollback",
        "savepoint",
        "release",
        "abort",
        "start",
    ];
    let is_begin = is_begin || (word == "prepare" && dialect == Dialect::Postgres);
    if is_begin || ends.contains(&word.as_str()) || word == "end" {
        return Some((
            "a statement cannot begin or end a transaction: the next one has another connection",
            "put the steps into a `transaction`",
        ));
    }
    if dialect == Dialect::Postgres && word == "copy" {
        return Some((
            "`copy` is not a statement that takes arguments and gives rows",
            "use \
            `insert`, or `select` with `rows: stream`",
        ));
    }
    if dialect == Dialect::Postgres && (word == "listen" || word == "unlisten") {
        return Some((
            "nobody hears what a connection listens for",
            "read a table by `from: sql`",
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str, dialect: Dialect) -> (String, Vec<String>) {
        let places = query::arguments(text, dialect).unwrap();
        let statement = statement(text, &places, dialect);
        (statement.text, statement.names)
    }

    #[test]
    fn names_become_placeholders() {
        let text = "select ':x', :b, :a, :b ; -- :c";
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let is = |text: &str, of: &[&str]| (text.to_owned(), names(of));
        let found = made(text, Dialect::Postgres);
        assert_eq!(found, is("select ':x', $1, $2, $1 ; -- :c", &["b", "a"]));
        let found = made("select :b, :a, :b ;", Dialect::MySql);
        assert_eq!(found, is("select ?, ?, ? ", &["b", "a", "b"]));
        let found = made("select :a", Dialect::SqlServer);
        assert_eq!(found, is("select @P1", &["a"]));
        let found = made("select :a, :a;", Dialect::Sqlite);
        assert_eq!(found, is("select ?1, ?1", &["a"]));
    }

    #[test]
    fn statements_that_cannot_be_run_are_refused() {
        for text in [
            "-- x\nBEGIN",
            "commit;",
            "copy t from stdin",
            "start transaction",
        ] {
            assert!(refusal(text, Dialect::Postgres).is_some(), "{text}");
        }
        assert!(refusal("begin try select 1 end try", Dialect::SqlServer).is_none());
        assert!(refusal("update t set a = 1", Dialect::Postgres).is_none());
    }
}
