//! Whether a statement certainly changes nothing, so that it may be sent again after a failure that
//! leaves open whether it was run. Only what is known to be harmless is let through: a function
//! that is not listed here may change anything (`nextval`, functions of the database's users).

use crate::sql::Dialect;
use crate::sql::query::{self, Token};

/// Words that stand in statements that change something, or call what may.
const CHANGES: &[&str] = &[
    "alter",
    "backup",
    "begin",
    "bulk",
    "call",
    "checkpoint",
    "commit",
    "create",
    "dbcc",
    "deallocate",
    "declare",
    "delete",
    "deny",
    "do",
    "drop",
    "exec",
    "execute",
    "grant",
    "insert",
    "into",
    "kill",
    "lock",
    "merge",
    "nextval",
    "open",
    "raiserror",
    "receive",
    "reconfigure",
    "replace",
    "restore",
    "revoke",
    "rollback",
    "save",
    "send",
    "set",
    "shutdown",
    "throw",
    "truncate",
    "unlock",
    "update",
    "updatetext",
    "use",
    "waitfor",
    "writetext",
];

/// Words of SQL that may stand before a bracket, and types in casts.
const WORDS: &[&str] = &[
    "all",
    "and",
    "any",
    "apply",
    "as",
    "between",
    "bigint",
    "binary",
    "by",
    "case",
    "char",
    "datetime2",
    "datetimeoffset",
    "decimal",
    "distinct",
    "else",
    "except",
    "exists",
    "filter",
    "float",
    "from",
    "group",
    "having",
    "in",
    "intersect",
    "is",
    "join",
    "lateral",
    "like",
    "limit",
    "nchar",
    "not",
    "numeric",
    "nvarchar",
    "offset",
    "on",
    "or",
    "over",
    "partition",
    "select",
    "some",
    "then",
    "time",
    "timestamp",
    "timestamptz",
    "top",
    "union",
    "using",
    "values",
    "varbinary",
    "varchar",
    "when",
    "where",
    "with",
];

/// Functions that all know and that change nothing.
const FUNCTIONS: &[&str] = &[
    "abs",
    "array_agg",
    "avg",
    "cast",
    "ceil",
    "ceiling",
    "char_length",
    "coalesce",
    "concat",
    "concat_ws",
    "convert",
    "count",
    "date",
    "date_add",
    "date_format",
    "date_sub",
    "date_trunc",
    "dateadd",
    "datediff",
    "datepart",
    "day",
    "dense_rank",
    "extract",
    "first_value",
    "floor",
    "format",
    "getdate",
    "greatest",
    "group_concat",
    "hour",
    "if",
    "ifnull",
    "iif",
    "isnull",
    "json_agg",
    "json_extract",
    "json_value",
    "jsonb_agg",
    "lag",
    "last_value",
    "lead",
    "least",
    "left",
    "len",
    "length",
    "lower",
    "ltrim",
    "max",
    "min",
    "minute",
    "mod",
    "month",
    "now",
    "ntile",
    "nullif",
    "octet_length",
    "power",
    "rank",
    "right",
    "round",
    "row_number",
    "rtrim",
    "second",
    "sign",
    "sqrt",
    "string_agg",
    "substr",
    "substring",
    "sum",
    "sysdatetime",
    "sysutcdatetime",
    "to_char",
    "trim",
    "upper",
    "year",
];

/// Whether it changes nothing, whatever the database's users have defined.
pub fn is_read_only(text: &str, dialect: Dialect) -> bool {
    // MySQL runs what stands in such comments.
    if dialect == Dialect::MySql && (text.contains("/*!") || text.contains("/*M!")) {
        return false;
    }
    let tokens: Vec<Token<'_>> = query::tokens(text, dialect)
        .into_iter()
        .map(|(_, token)| token)
        .collect();
    let mut opened = tokens.iter().skip_while(|it| **it == Token::Symbol('('));
    let is_select = matches!(opened.next(), Some(Token::Word(it)) if is_word(it, "select"));
    let end = tokens.iter().rposition(|it| *it != Token::Symbol(';'));
    let places = 0..=end.unwrap_or_default();
    is_select && places.into_iter().all(|at| is_harmless(&tokens, at))
}

fn is_harmless(tokens: &[Token<'_>], at: usize) -> bool {
    let is_called = tokens.get(at + 1) == Some(&Token::Symbol('('));
    match tokens.get(at) {
        Some(Token::Word(word)) => {
            let word = word.to_ascii_lowercase();
            let is_of = |words: &[&str]| words.contains(&word.as_str());
            let is_in_schema = at > 0 && tokens.get(at - 1) == Some(&Token::Symbol('.'));
            let is_sequence = word == "next"
                && matches!(tokens.get(at + 1), Some(Token::Word(it)) if is_word(it, "value"));
            let is_known = is_of(WORDS) || (is_of(FUNCTIONS) && !is_in_schema);
            !is_of(CHANGES) && !is_sequence && (is_known || !is_called)
        }
        Some(Token::Quoted) => !is_called,
        // A second statement, or MySQL's `@a := 1`.
        Some(Token::Symbol(';')) => false,
        Some(Token::Symbol(':')) => tokens.get(at + 1) != Some(&Token::Symbol('=')),
        Some(Token::Symbol(_)) | None => true,
    }
}

fn is_word(word: &str, expected: &str) -> bool {
    word.eq_ignore_ascii_case(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_queries_change_nothing() {
        for text in [
            "/* a */ SELECT 1;",
            "(select a from t) union all (select b from u)",
            "select count(*), max(a) from t where b in (:x, 'delete') and c between 1 and (2)",
            "select cast(a as decimal(10,2)) as \"update\" from t order by a limit 5",
            "select a from t where exists (select 1 from u where u.a = t.a)",
            "select row_number() over (partition by a order by b) from t",
        ] {
            assert!(is_read_only(text, Dialect::Postgres), "{text}");
        }
        let text = "select top (5) [set] from t with (nolock)";
        assert!(is_read_only(text, Dialect::SqlServer));
    }

    #[test]
    fn whatever_may_change_something_is_no_read() {
        for text in [
            "insert into t values (1)",
            "select nextval('s')",
            "SELECT do_it()",
            "select \"do it\"()",
            "select app.lower(a) from t",
            "select a into b from t",
            "select a from t for update",
            "with x as (delete from t returning *) select * from x",
            "select next value for s",
            "",
        ] {
            assert!(!is_read_only(text, Dialect::Postgres), "{text}");
        }
        for text in [
            "select 1; delete from t",
            "select 1 delete from t",
            "select 1 exec p",
            "select a from openquery(x, 'delete from t')",
        ] {
            assert!(!is_read_only(text, Dialect::SqlServer), "{text}");
        }
        for text in [
            "select /*! nextval(s) */ 1",
            "select @a := 1",
            "select get_lock('a', 1)",
        ] {
            assert!(!is_read_only(text, Dialect::MySql), "{text}");
        }
    }
}
