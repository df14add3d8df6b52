//! `sql`: runs one statement on a database.

use std::sync::Arc;

use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use component::value_template::ValueTemplate;
use config::{Node, Spanned};
use expr::{Value, value};
use message::{Fault, Kind, Origin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ask;
use crate::codes::{BAD_ARGUMENTS, BAD_QUERY};
use crate::named;
use crate::sql::Database;
use crate::sql::query::{self, Argument};
use config::AnyValue;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "sql",
    summary: "Runs one SQL statement on a database.",
    documentation: include_str!("step.md"),
    example: include_str!("step.yaml"),
    schema: config::schema_for::<SqlConfig>,
    build,
};

const KINDS: [&str; 4] = ["sqlserver", "postgres", "mysql", "sqlite"];

/// A statement and its arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SqlConfig {
    /// The connection: a `sqlserver`, `postgres`, `mysql` or `sqlite` one of `use:`.
    to: Spanned<String>,
    /// The statement, the same for every message, with `:name` where arguments belong.
    query: Spanned<String>,
    /// The arguments by name, with `${ }` in their texts: null, booleans, numbers, texts, bytes.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    args: Option<AnyValue>,
    /// What the result is.
    #[serde(default)]
    rows: Rows,
}

/// What the result of a statement is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Rows {
    /// A list of objects, one a row.
    #[default]
    Many,
    /// The object of the only row.
    One,
    /// Nothing: the body stays as it was.
    None,
    /// The number of rows that were changed.
    Count,
}

/// The step.
pub struct Sql {
    /// The database.
    pub database: Arc<Database>,
    /// The statement.
    pub query: String,
    /// Where its arguments stand.
    pub places: Vec<Argument>,
    /// What its result is.
    pub rows: Rows,
    to: String,
    args: Option<ValueTemplate>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: SqlConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let database = named::connection::<Database>(&config.to, &KINDS, context);
    let args = match node.get("args") {
        Some(args) => read_args(args, context),
        None => None,
    };
    let hint = "write `:name` where the value belongs, and give it under `args`: it is bound";
    let is_fixed = named::is_fixed("query", hint, &config.query, context);
    let database = database?;
    let places = match is_fixed {
        true => read_places(&config.query, &database, context)?,
        false => return None,
    };
    check_arguments(&config.query, &places, node.get("args"), context);
    (context.problems() == before).then(|| {
        Box::new(Sql {
            database,
            places,
            to: config.to.value,
            query: config.query.value,
            args,
            rows: config.rows,
        }) as _
    })
}

fn read_args(node: &Node, context: &mut BuildContext<'_>) -> Option<ValueTemplate> {
    let Some(entries) = node.as_mapping() else {
        let message = format!("`args` is a mapping of names, not {}", node.type_name());
        context
            .report
            .error(BAD_ARGUMENTS, node.span, message)
            .hint("write `args: { id: \"${ .id }\" }`");
        return None;
    };
    for entry in entries {
        if entry.value.as_mapping().is_some() || entry.value.as_sequence().is_some() {
            let kind = entry.value.type_name();
            let message = format!("an argument is one value, not {kind}");
            context
                .report
                .error(BAD_ARGUMENTS, entry.value.span, message)
                .hint("write it as text: `\"${ .lines | tojson }\"`");
        }
    }
    context.value(node)
}

fn read_places(
    query: &Spanned<String>,
    database: &Database,
    context: &mut BuildContext<'_>,
) -> Option<Vec<Argument>> {
    match query::arguments(&query.value, database.dialect) {
        Ok(places) => Some(places),
        Err(problem) => {
            let end = (problem.at + 1).min(query.value.len());
            context
                .report
                .error(BAD_QUERY, query.span, problem.message)
                .within(problem.at..end)
                .hint(problem.hint);
            None
        }
    }
}

/// Every argument of the statement is given, and every given one is used.
fn check_arguments(
    query: &Spanned<String>,
    places: &[Argument],
    args: Option<&Node>,
    context: &mut BuildContext<'_>,
) {
    let given = args.and_then(Node::as_mapping).unwrap_or_default();
    let mut told: Vec<&str> = Vec::new();
    for place in places {
        let name = place.name.as_str();
        if told.contains(&name) || given.iter().any(|entry| entry.key == name) {
            continue;
        }
        told.push(name);
        let near = config::suggest(name, given.iter().map(|entry| entry.key.as_str()));
        let hint = match near {
            Some(near) => format!("did you mean `:{near}`?"),
            None => format!("add it: `args: {{ {name}: \"${{ .{name} }}\" }}`"),
        };
        let message = format!("the statement's `:{name}` has no argument");
        context
            .report
            .error(BAD_ARGUMENTS, query.span, message)
            .within(place.at.clone())
            .hint(hint);
    }
    for entry in given {
        if places.iter().any(|place| place.name == entry.key) {
            continue;
        }
        let shown = entry.key.escape_debug();
        let message = format!("the statement does not use the argument `{shown}`");
        let hint = format!("write `:{shown}` where it belongs, without quotes, or leave it out");
        context
            .report
            .error(BAD_ARGUMENTS, entry.key_span, message)
            .hint(hint);
    }
}

impl Sql {
    async fn ask(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let args = match &self.args {
            Some(args) => args.make(exchange, services)?,
            None => value::object([]),
        };
        check_values(&args)?;
        let sent = value::object([
            ("query".to_owned(), value::text(self.query.as_str())),
            ("args".to_owned(), args),
        ]);
        let reply = ask::ask(("sql", &self.to), sent, exchange, services).await?;
        if let Some(fault) = ask::failure(&reply) {
            return Err(fault);
        }
        if self.rows != Rows::None {
            let result = self.rows.result(ask::body_of(reply, exchange)?)?;
            exchange.set_value(result);
        }
        Ok(Next::Continue)
    }
}

/// What can be bound: no lists and no objects.
fn check_values(args: &Value) -> Result<(), Fault> {
    for (name, argument) in value::members(args).into_iter().flatten() {
        if matches!(argument, Value::Arr(_) | Value::Obj(_)) {
            let kind = value::kind(argument);
            let cause = format_args!("the argument `{name}` is one value, not {kind}");
            return Err(Fault::expression(cause));
        }
    }
    Ok(())
}

impl Rows {
    /// What becomes of the rows that came, or of the number of those that were changed.
    ///
    /// # Errors
    /// `no-row` and `many-rows`; `connection` for something that no database says.
    pub fn result(self, found: Value) -> Result<Value, Fault> {
        let odd = |found: &Value| {
            let detail = "the database's answer is none";
            let kind = value::kind(found);
            let fault = Fault::new(Kind::Connection, Origin::Upstream, detail);
            fault.with_cause(format_args!("{kind} where `rows` wants something else"))
        };
        let is_row = |it: &Value| matches!(it, Value::Obj(_));
        match (self, &found) {
            (Self::None, _) => Ok(Value::Null),
            (Self::Many, Value::Arr(rows)) if rows.iter().all(is_row) => Ok(found),
            (Self::Count, Value::Num(_)) => Ok(found),
            (Self::One, Value::Obj(_)) => Ok(found),
            (Self::One, Value::Null) => Err(no_row()),
            (Self::One, Value::Arr(rows)) => match rows.as_slice() {
                [] => Err(no_row()),
                [row] if is_row(row) => Ok(row.clone()),
                rows if rows.iter().all(is_row) => {
                    let detail = "the database has several rows where one is wanted".to_owned();
                    Err(Fault::raised("many-rows", None, detail))
                }
                _ => Err(odd(&found)),
            },
            _ => Err(odd(&found)),
        }
    }
}

fn no_row() -> Fault {
    let detail = "the database has no such row".to_owned();
    Fault::raised("no-row", None, detail)
}

impl Step for Sql {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.ask(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        self.args.as_ref().is_some_and(ValueTemplate::reads_body)
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
