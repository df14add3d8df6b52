//! `sql`: runs one statement on a database, or calls a procedure.

mod arguments;
mod procedure;
mod rows;
mod stream;

use std::sync::Arc;

use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use component::steps::Steps;
use component::value_template::ValueTemplate;
use config::{AnyValue, ByteSize, Node, Span, Spanned};
use expr::{Value, value};
use message::{Fault, Reply};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::{BAD_QUERY, BAD_STATEMENT};
use crate::sql::error::SqlError;
use crate::sql::session::{Done, Sink, Statement};
use crate::sql::sink::{Bounds, Collect, First, Ignore};
use crate::sql::{Database, Dialect, pool, prepare, transaction};
use crate::{ask, bounds, named};

use arguments::{check_arguments, check_values, read_args, read_places};
pub use rows::Rows;
use stream::{Batches, Stream};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "sql",
    summary: "Runs one SQL statement on a database, or calls a procedure.",
    documentation: include_str!("step.md"),
    example: include_str!("step.yaml"),
    schema: config::schema_for::<SqlConfig>,
    build,
};

/// The kinds of connections that speak SQL.
pub(crate) const KINDS: [&str; 4] = ["sqlserver", "postgres", "mysql", "sqlite"];

/// The most result sets of a procedure.
const SETS_MAX: usize = 100;

/// A statement and its arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SqlConfig {
    /// The connection: a `sqlserver`, `postgres`, `mysql` or `sqlite` one of `use:`.
    to: Spanned<String>,
    /// The statement, the same for every message, with `:name` for each argument.
    query: Option<Spanned<String>>,
    /// The name of a stored procedure to call, instead of a statement.
    procedure: Option<Spanned<String>>,
    /// The arguments by name, with `${ }` in their strings: null, booleans, numbers, strings,
    /// bytes; for `postgres` also lists and objects.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    args: Option<AnyValue>,
    /// The output parameters of a procedure, with their types.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    out: Option<AnyValue>,
    /// The form of the result. The default is `many`.
    rows: Option<Spanned<Rows>>,
    /// The steps for each batch of `rows: stream`.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    steps: Option<Steps>,
    /// The number of rows in a batch of `rows: stream`, from 1 to 100000. A batch of more than 1MiB
    /// has fewer.
    #[schemars(extend("default" = 100))]
    batch: Option<Spanned<u64>>,
    /// The largest number of rows of a result that is held in memory, from 1 to 100000000; more are
    /// an error. Without it only `bytes_max` applies.
    rows_max: Option<Spanned<u64>>,
    /// The memory for the rows of a result, or for one row of `rows: stream`, up to 1GiB; more is
    /// an error. The default is 64MiB.
    bytes_max: Option<Spanned<ByteSize>>,
}

/// What becomes of what a statement gives.
enum Action {
    /// A result.
    Result(Rows),
    /// Batches for steps.
    Stream(Box<Stream>),
    /// What comes out of a procedure.
    Procedure,
}

/// The step.
pub struct Sql {
    database: Arc<Database>,
    statement: Statement,
    /// What tests are shown: the statement as the flow file has it.
    shown: (&'static str, String),
    action: Action,
    to: String,
    args: Option<ValueTemplate>,
    bounds: Bounds,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: SqlConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let database = named::connection::<Database>(&config.to, &KINDS, context);
    let is_postgres = database
        .as_ref()
        .is_some_and(|it| it.dialect == Dialect::Postgres);
    let args = match node.get("args") {
        Some(args) => read_args(args, is_postgres, context),
        None => None,
    };
    check_keys(&config, node, context);
    let bounds = read_bounds(&config, context);
    let action = read_action(&config, node, context);
    let (mut statement, shown) = read_statement(&config, node, database.as_deref(), context)?;
    let action = action?;
    statement.is_streamed = matches!(action, Action::Stream(_));
    let step = Sql {
        database: database?,
        statement,
        shown,
        action,
        to: config.to.value,
        args,
        bounds,
    };
    (context.problems() == before).then(|| Box::new(step) as _)
}

/// Refuses keys that say nothing about a step as it is.
fn check_keys(config: &SqlConfig, node: &Node, context: &mut BuildContext<'_>) {
    let is_call = config.procedure.is_some();
    let rows = config.rows.as_ref().map(|it| it.value);
    let is_stream = rows == Some(Rows::Stream);
    let is_collected = is_call || matches!(rows, None | Some(Rows::Many));
    let mut refuse = |key: &str, is_odd: bool, hint: &str| {
        if let Some(value) = node.get(key).filter(|_| is_odd) {
            let message = format!("`{key}` has no effect here");
            context
                .report
                .error(BAD_STATEMENT, value.span, message)
                .hint(hint.to_owned());
        }
    };
    refuse(
        "rows",
        is_call,
        "the result of a procedure is `{ out, results }`",
    );
    refuse("out", !is_call, "it belongs to `procedure`");
    refuse("steps", !is_stream, "it belongs to `rows: stream`");
    refuse("batch", !is_stream, "it belongs to `rows: stream`");
    refuse(
        "rows_max",
        !is_collected,
        "it belongs to `rows: many` and `procedure`",
    );
    let has_bytes = is_collected || is_stream || rows == Some(Rows::One);
    refuse("bytes_max", !has_bytes, "there are no rows to keep");
}

fn read_bounds(config: &SqlConfig, context: &mut BuildContext<'_>) -> Bounds {
    let rows_max = config.rows_max.as_ref();
    let bytes_max = config.bytes_max.as_ref();
    let report = &mut *context.report;
    Bounds {
        rows_max: bounds::count(rows_max, u64::MAX, 1..=100_000_000, report),
        bytes_max: bounds::size(bytes_max, 1..=1 << 30, report).unwrap_or(64 << 20),
    }
}

fn read_action(config: &SqlConfig, node: &Node, context: &mut BuildContext<'_>) -> Option<Action> {
    if config.procedure.is_some() {
        return Some(Action::Procedure);
    }
    let rows = config.rows.as_ref().map_or(Rows::Many, |it| it.value);
    if rows != Rows::Stream {
        return Some(Action::Result(rows));
    }
    let batch = bounds::count(config.batch.as_ref(), 100, 1..=100_000, context.report) as usize;
    let Some(steps) = node.get("steps") else {
        let span = config.rows.as_ref().map_or(node.span, |it| it.span);
        context
            .report
            .error(BAD_STATEMENT, span, "`rows: stream` has no `steps`")
            .hint("add the steps for each batch of rows: `steps: [...]`");
        return None;
    };
    let block = context.inner_branch("steps", steps)?;
    Some(Action::Stream(Box::new(Stream { block, batch })))
}

/// A statement, and what tests are shown of it.
type Read = (Statement, (&'static str, String));

fn read_statement(
    config: &SqlConfig,
    node: &Node,
    database: Option<&Database>,
    context: &mut BuildContext<'_>,
) -> Option<Read> {
    match (&config.query, &config.procedure) {
        (Some(query), None) => {
            let statement = read_query(query, node, database, context)?;
            Some((statement, ("query", query.value.clone())))
        }
        (None, Some(name)) => {
            let statement = procedure::read(name, node, database?, context)?;
            Some((statement, ("procedure", name.value.clone())))
        }
        (Some(_), Some(name)) => refuse_verbs(name.span, "there are two", context),
        (None, None) => refuse_verbs(node.span, "there is nothing to run", context),
    }
}

fn refuse_verbs<T>(span: Span, message: &str, context: &mut BuildContext<'_>) -> Option<T> {
    context
        .report
        .error(BAD_QUERY, span, message.to_owned())
        .hint("write either `query` or `procedure`");
    None
}

fn read_query(
    query: &Spanned<String>,
    node: &Node,
    database: Option<&Database>,
    context: &mut BuildContext<'_>,
) -> Option<Statement> {
    let hint = "write `:name` where the value belongs, and give it under `args`: it is bound";
    let is_fixed = named::is_fixed("query", hint, query, context);
    let database = database.filter(|_| is_fixed)?;
    let places = read_places(query, database, context)?;
    check_arguments(query, &places, node.get("args"), context);
    if let Some((message, hint)) = prepare::refusal(&query.value, database.dialect) {
        context
            .report
            .error(BAD_STATEMENT, query.span, message)
            .hint(hint);
    }
    Some(prepare::statement(&query.value, &places, database.dialect))
}

impl Sql {
    async fn ask(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let args = match &self.args {
            Some(args) => {
                exchange
                    .preemptible(services, |it| args.make(it, services))
                    .await?
            }
            None => value::object([]),
        };
        if self.database.dialect != Dialect::Postgres {
            check_values(&args)?;
        }
        let sent = || {
            value::object([
                (self.shown.0.to_owned(), value::text(self.shown.1.as_str())),
                ("args".to_owned(), args.clone()),
            ])
        };
        match ask::stand_in(("sql", &self.to), sent, exchange, services).await {
            Some(reply) => self.mocked(reply?, exchange, services).await,
            None => self.perform(&args, exchange, services).await,
        }
    }

    /// Makes of a test's answer what would become of the database's.
    async fn mocked(
        &self,
        reply: Reply,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        if let Some(fault) = ask::failure(&reply) {
            let named = ask::body_of(reply, exchange)?;
            let error = value::as_text(&named).and_then(SqlError::of_name);
            return Err(error.map_or(fault, |error| self.fault(error)));
        }
        let result = match &self.action {
            Action::Result(Rows::None) => return Ok(Next::Continue),
            Action::Result(rows) => rows.result(ask::body_of(reply, exchange)?)?,
            Action::Procedure => ask::body_of(reply, exchange)?,
            Action::Stream(stream) => {
                let rows = Rows::Stream.result(ask::body_of(reply, exchange)?)?;
                let max = self.bounds.bytes_max;
                let mut batches = Batches::new(stream, max, exchange, services);
                let done = batches.give_all(&rows).await;
                return self.end_stream(done, batches.end(), exchange);
            }
        };
        exchange.set_value(result);
        Ok(Next::Continue)
    }

    /// Runs the statement on the database itself.
    async fn perform(
        &self,
        args: &Value,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let result = match &self.action {
            Action::Result(Rows::One) => {
                let mut sink = First::new(self.bounds.bytes_max);
                let done = self.send(args, &mut sink, exchange, services).await;
                match done {
                    Err(error) if !sink.has_second() => return Err(self.fault(error)),
                    _ => Rows::One.result(value::array(sink.into_rows()))?,
                }
            }
            Action::Result(Rows::Count) => {
                let done = self.send(args, &mut Ignore, exchange, services).await;
                let changed = done.map_err(|error| self.fault(error))?.changed;
                value::integer(changed.try_into().unwrap_or(i64::MAX))
            }
            Action::Result(Rows::None) => {
                let done = self.send(args, &mut Ignore, exchange, services).await;
                done.map_err(|error| self.fault(error))?;
                return Ok(Next::Continue);
            }
            Action::Result(Rows::Many | Rows::Stream) => {
                let mut sink = Collect::new(self.bounds, 1);
                let done = self.send(args, &mut sink, exchange, services).await;
                done.map_err(|error| self.fault(error))?;
                value::array(sink.into_rows())
            }
            Action::Procedure => {
                let mut sink = Collect::new(self.bounds, SETS_MAX);
                let done = self.send(args, &mut sink, exchange, services).await;
                let done = done.map_err(|error| self.fault(error))?;
                procedure::result(done, sink.sets)
            }
            Action::Stream(stream) => {
                let max = self.bounds.bytes_max;
                let mut batches = Batches::new(stream, max, exchange, services);
                let mut done = self.send(args, &mut batches, exchange, services).await;
                if done.is_ok() {
                    done = batches.give().await.map(|()| Done::default());
                }
                return self.end_stream(done.map(drop), batches.end(), exchange);
            }
        };
        exchange.set_value(result);
        Ok(Next::Continue)
    }

    fn end_stream(
        &self,
        done: Result<(), SqlError>,
        (count, ended): stream::End,
        exchange: &mut Exchange,
    ) -> Result<Next, Fault> {
        if let Some(ended) = ended {
            return ended;
        }
        done.map_err(|error| self.fault(error))?;
        exchange.set_value(value::integer(count.try_into().unwrap_or(i64::MAX)));
        Ok(Next::Continue)
    }

    fn fault(&self, error: SqlError) -> Fault {
        error.fault(&self.to)
    }

    async fn send(
        &self,
        args: &Value,
        sink: &mut dyn Sink,
        exchange: &Exchange,
        services: &dyn Services,
    ) -> Result<Done, SqlError> {
        let names = self.statement.names.iter();
        let values: Vec<Value> = names
            .map(|name| value::get(args, name).cloned().unwrap_or_default())
            .collect();
        if let Some(transaction) = transaction::current(exchange, &self.database) {
            let running = transaction.run(&self.statement, &values, sink, services);
            return running.await;
        }
        let pool = pool::of(&self.database, services)?;
        let mut lease = pool.lend(services).await?;
        lease.run(&self.statement, &values, sink, services).await
    }
}

impl Step for Sql {
    fn is_repeatable(&self, _: &Exchange) -> bool {
        let runs_steps = matches!(self.action, Action::Stream(_));
        self.statement.is_read_only && !runs_steps
    }

    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.ask(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        let args = self.args.as_ref().is_some_and(ValueTemplate::reads_body);
        let steps = match &self.action {
            Action::Stream(stream) => stream.block.reads_body(),
            Action::Result(_) | Action::Procedure => false,
        };
        args || steps
    }

    fn waits(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
