//! `from: sql`: starts a flow with each row that a query finds, in the order of the query.

mod keep;
mod row;
mod run;

use std::any::Any;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use component::intake::{
    DeadLetterConfig, DeadLetterPlace, IntakeCounts, IntakePlan, IntakePolicy, OwnTarget,
};
use component::resilience::{RetryConfig, RetryDefaults};
use component::source::{Source, SourceContext, SourceDefinition};
use config::{AnyValue, Node, Report, Spanned};
use expr::Value;
use expr::template::Template;
use expr::value;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::bounds;
use crate::codes::{BAD_SOURCE, NO_CONNECTION};
use crate::sql::session::{ArgumentsFrom, Statement};
use crate::sql::step::KINDS;
use crate::sql::{Database, prepare, query};

use keep::{Keep, Mark};
use run::SqlSource;

/// The definition of the source.
pub const DEFINITION: SourceDefinition = SourceDefinition {
    name: "sql",
    summary: "Starts a flow with each row that a query finds.",
    documentation: include_str!("source.md"),
    example: include_str!("source.yaml"),
    schema: config::schema_for::<SourceConfig>,
    build,
};

/// The table that keeps cursors.
const TABLE: &str = "intertie_cursor";

/// Rows that start a flow.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-renamed" = { "on_failure": "dead_letter", "delay": "retry" }))]
struct SourceConfig {
    /// The connection: a `sqlserver`, `postgres`, `mysql` or `sqlite` one of `use:`.
    connection: Spanned<String>,
    /// The query that finds rows, the oldest first. With `cursor` it must contain `:cursor`, the
    /// value of that column in the last processed row, and an `order by` for it.
    query: Spanned<String>,
    /// The column whose values increase from row to row. Either this or `after`.
    cursor: Option<Spanned<String>>,
    /// The initial cursor: a number or a string.
    #[schemars(extend("default" = 0))]
    #[allow(dead_code, reason = "read from the tree, which knows the place")]
    start: Option<AnyValue>,
    /// The table of the same database in which the cursor is stored.
    #[schemars(extend("default" = "intertie_cursor"))]
    table: Option<Spanned<String>>,
    /// Whether the table is created if it is missing.
    create: Option<Spanned<bool>>,
    /// A statement that marks a row as processed, so that the query does not find it again. Its
    /// arguments are the row's columns: `:id`. Either this or `cursor`.
    after: Option<Spanned<String>>,
    /// The interval between queries that find fewer rows than `batch`, from 50ms to 1d.
    #[schemars(extend("default" = "5s"))]
    every: Option<Spanned<config::Duration>>,
    /// The largest number of rows to use of one query, from 1 to 10000.
    #[schemars(extend("default" = 100))]
    batch: Option<Spanned<u64>>,
    /// How failed runs of the flow are retried. Later rows wait meanwhile.
    #[serde(default)]
    retry: RetryConfig<OfSql>,
    dead_letter: Option<DeadLetterConfig<OfSql>>,
    /// The delay before a failed query is repeated, from 10ms to 1h. Failed runs of the flow wait
    /// as `retry` says.
    #[schemars(extend("default" = "10s"))]
    query_delay: Option<Spanned<config::Duration>>,
}

/// `retry:` and `dead_letter:` of a flow that takes rows.
#[derive(Debug)]
struct OfSql;

impl RetryDefaults for OfSql {
    const SUMMARY: &'static str =
        "How failed runs of the flow are retried. Later rows wait meanwhile.";
    const ON: Option<(&'static [&'static str], &'static str)> = Some((
        &["any"],
        "The failures to retry: kinds, `4xx`, `5xx`, statuses, `any` (the default). After any \
         other the row becomes a dead letter at once.",
    ));
    const TIMES: (RangeInclusive<u32>, u32, &'static str) = (
        0..=1_000_000,
        20,
        "The number of retries after the first attempt; then the row becomes a dead letter.",
    );
}

impl DeadLetterPlace for OfSql {
    const REJECT: Option<&'static str> = None;
    const OWN: Option<OwnTarget> = None;
    const REJECTS: bool = false;
}

/// What the source is told.
struct Settings {
    query: Statement,
    mark: Mark,
    every: Duration,
    batch: usize,
    /// How long to wait after a query that has failed.
    delay: Duration,
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let mut config: SourceConfig = config::decode(node, context.report)?;
    let before = context.report.errors();
    let database = find(&config.connection, context);
    let retry = config.retry.policy(BAD_SOURCE, context.report);
    let dead_letter = DeadLetterConfig::read(config.dead_letter.take(), node.span, context);
    let report = &mut *context.report;
    let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
    let day = seconds(24 * 3600);
    let every = bounds::time(config.every.as_ref(), seconds(5), millis(50)..=day, report);
    let hour = seconds(3600);
    let delay = bounds::time(
        config.query_delay.as_ref(),
        seconds(10),
        millis(10)..=hour,
        report,
    );
    let batch = bounds::count(config.batch.as_ref(), 100, 1..=10_000, report) as usize;
    let database = database?;
    let mut query = read_statement(&config.query, &database, report)?;
    query.rows_max = Some(batch as u64);
    query.arguments_from = config.cursor.as_ref().map(|cursor| ArgumentsFrom {
        query: query.text.clone(),
        cursor: Some(cursor.value.clone()),
    });
    let mark = read_mark(&config, node, &query, &database, report)?;
    let settings = Settings {
        query,
        mark,
        every,
        batch,
        delay,
    };
    let (dead_letter, _) = dead_letter?;
    let policy = IntakePolicy {
        retry,
        dead_letter,
        // The source waits itself, so that it can read a row again that was too large.
        hold_max: Duration::ZERO,
    };
    let key = (&config.connection.value, &config.query.value);
    let source = SqlSource {
        plan: IntakePlan::new(policy, IntakeCounts::of("sql", &key, context)),
        connection: config.connection.value,
        database,
        settings,
    };
    (context.report.errors() == before).then(|| Arc::new(source) as _)
}

fn find(name: &Spanned<String>, context: &mut SourceContext<'_>) -> Option<Arc<Database>> {
    let shown = name.value.escape_debug();
    let found = context.connections.get(&name.value);
    let value: Option<Arc<dyn Any + Send + Sync>> = found.map(|it| Arc::clone(&it.value));
    let database = value.and_then(|it| it.downcast::<Database>().ok());
    if database.is_none() {
        let kinds = KINDS.join("`, `");
        let message = format!("`{shown}` is no connection to a database");
        context
            .report
            .error(NO_CONNECTION, name.span, message)
            .hint(format!("declare it under `use:`, as one of `{kinds}`"));
    }
    database
}

fn refuse<T>(span: config::Span, message: &str, hint: &str, report: &mut Report) -> Option<T> {
    report
        .error(BAD_SOURCE, span, message.to_owned())
        .hint(hint.to_owned());
    None
}

fn read_statement(
    text: &Spanned<String>,
    database: &Database,
    report: &mut Report,
) -> Option<Statement> {
    if Template::has_holes(&text.value) {
        let message = "a statement is the same for every row: it has no `${ }`";
        return refuse(text.span, message, "write `:name` for a value", report);
    }
    if let Some((message, hint)) = prepare::refusal(&text.value, database.dialect) {
        return refuse(text.span, message, hint, report);
    }
    match query::arguments(&text.value, database.dialect) {
        Ok(places) => Some(prepare::statement(&text.value, &places, database.dialect)),
        Err(problem) => refuse(text.span, problem.message, problem.hint, report),
    }
}

fn read_mark(
    config: &SourceConfig,
    node: &Node,
    query: &Statement,
    database: &Database,
    report: &mut Report,
) -> Option<Mark> {
    let span = config.query.span;
    match (&config.cursor, &config.after) {
        (Some(cursor), None) => {
            if !query.names.iter().all(|it| it == "cursor") || query.names.is_empty() {
                let hint = "write such as `where id > :cursor order by id`";
                return refuse(span, "the query has one argument: `:cursor`", hint, report);
            }
            if !config.query.value.to_lowercase().contains("order by") {
                let message = "the query has no `order by`: rows would be passed over";
                return refuse(
                    span,
                    message,
                    "add `order by` and the cursor's column",
                    report,
                );
            }
            let start = read_start(node, report)?;
            let keep = Keep::new(read_table(config, report)?, database.dialect);
            let mut peek = keep::peek(&config.query.value, &cursor.value, database.dialect);
            peek.arguments_from = query.arguments_from.clone();
            Some(Mark::Cursor {
                column: cursor.value.clone(),
                start,
                keep: Box::new(keep),
                creates: config.create.as_ref().is_some_and(|it| it.value),
                peek,
            })
        }
        (None, Some(after)) => {
            if !query.names.is_empty() {
                let hint = "the query finds the rows that are not marked yet";
                return refuse(
                    span,
                    "the query has no arguments with `after`",
                    hint,
                    report,
                );
            }
            for key in ["start", "table", "create"] {
                if let Some(value) = node.get(key) {
                    let message = format!("`{key}` has no effect with `after`");
                    return refuse(value.span, &message, "it belongs to `cursor`", report);
                }
            }
            let mut after = read_statement(after, database, report)?;
            after.arguments_from = Some(ArgumentsFrom {
                query: query.text.clone(),
                cursor: None,
            });
            Some(Mark::After(after))
        }
        (Some(cursor), Some(_)) => {
            let hint = "`cursor` remembers the last row, `after` marks each";
            refuse(cursor.span, "there are `cursor` and `after`", hint, report)
        }
        (None, None) => {
            let hint = "add `cursor: id`, or `after: update ... where id = :id`";
            let message = "nothing keeps the source from taking the same rows again";
            refuse(node.span, message, hint, report)
        }
    }
}

fn read_start(node: &Node, report: &mut Report) -> Option<Value> {
    let Some(start) = node.get("start") else {
        return Some(value::integer(0));
    };
    let text = start.as_str().map(value::text);
    let number = match &start.value {
        config::Value::Number(number) => number.json_text().map(|text| value::number(&text)),
        _ => None,
    };
    match text.or(number) {
        Some(value) => Some(value),
        None => {
            let hint = "write what stands before the first row: `start: 0`";
            refuse(start.span, "`start` is a number or a text", hint, report)
        }
    }
}

fn read_table<'a>(config: &'a SourceConfig, report: &mut Report) -> Option<&'a str> {
    let Some(table) = &config.table else {
        return Some(TABLE);
    };
    let is_name = |part: &str| {
        let is_fine = |it: char| it.is_ascii_alphanumeric() || it == '_';
        part.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
            && part.chars().all(is_fine)
    };
    if table.value.split('.').count() > 2 || !table.value.split('.').all(is_name) {
        let hint = "write letters, digits and `_`, with the schema before it";
        return refuse(table.span, "this is no name of a table", hint, report);
    }
    Some(&table.value)
}

#[cfg(test)]
mod tests;
