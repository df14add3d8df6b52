//! `transaction`: steps whose statements on one database happen together or not at all.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use component::block::Block;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::{Node, Spanned};
use expr::Value;
use message::{Fault, Retry};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::codes::BAD_TRANSACTION;
use crate::named;
use crate::sql::error::{Class, SqlError};
use crate::sql::pool::{BrokenTransaction, Lease};
use crate::sql::session::{Done, Isolation, Sink, Statement};
use crate::sql::step::KINDS;
use crate::sql::{Database, Dialect, pool};
use component::steps::Steps;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "transaction",
    summary: "Runs steps in a database transaction.",
    documentation: include_str!("transaction.md"),
    example: include_str!("transaction.yaml"),
    schema: config::schema_for::<TransactionConfig>,
    build,
};

/// Steps in a transaction.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TransactionConfig {
    /// The connection: a `sqlserver`, `postgres`, `mysql` or `sqlite` one of `use:`.
    to: Spanned<String>,
    /// The isolation level. The default is the server's; `sqlite` has only `serializable`, `mysql`
    /// no `snapshot`.
    isolation: Option<Spanned<Isolation>>,
    /// The steps in the transaction.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    steps: Steps,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: TransactionConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let database = named::connection::<Database>(&config.to, &KINDS, context);
    if let (Some(database), Some(isolation)) = (&database, &config.isolation) {
        check_isolation(database.dialect, isolation, context);
    }
    let steps = node.get("steps")?;
    check_steps(&config.to, steps, context);
    let is_last = context.is_last;
    let is_atomic = is_atomic(&config.to.value, steps);
    let block = context.branch("transaction", steps, is_last);
    let step = TransactionStep {
        database: database?,
        isolation: config.isolation.map(|it| it.value),
        to: config.to.value,
        block: block?,
        is_atomic,
    };
    (context.problems() == before).then(|| Box::new(step) as _)
}

fn check_isolation(
    dialect: Dialect,
    isolation: &Spanned<Isolation>,
    context: &mut BuildContext<'_>,
) {
    let has = match dialect {
        Dialect::Postgres | Dialect::SqlServer => true,
        Dialect::MySql => isolation.value != Isolation::Snapshot,
        Dialect::Sqlite => isolation.value == Isolation::Serializable,
    };
    if !has {
        let level = isolation.value.sql();
        let message = format!("the database has no isolation `{level}`");
        context
            .report
            .error(BAD_TRANSACTION, isolation.span, message)
            .hint("leave `isolation` out, or write `serializable`");
    }
}

/// There is a statement for the database in it, and no other transaction of it.
fn check_steps(to: &Spanned<String>, steps: &Node, context: &mut BuildContext<'_>) {
    if let Some(inner) = find("transaction", &to.value, steps) {
        let span = inner.span;
        context
            .report
            .error(
                BAD_TRANSACTION,
                span,
                "transactions of one connection do not nest",
            )
            .also(to.span, "this one is open already")
            .hint("leave the inner one out: its steps are in the outer one");
    }
    if find("sql", &to.value, steps).is_none() {
        let shown = to.value.escape_debug();
        let message = format!("no `sql` step in the transaction uses `{shown}`");
        context
            .report
            .error(BAD_TRANSACTION, to.span, message)
            .hint("put the statements under `steps`, or name the connection that they use");
    }
}

/// Whether the steps do nothing but statements of the connection, and what changes the message
/// only.
fn is_atomic(to: &str, steps: &Node) -> bool {
    const PURE: [&str; 11] = [
        "convert", "decode", "delay", "encode", "if", "log", "map", "raise", "set", "template",
        "validate",
    ];
    let items = steps.as_sequence().unwrap_or_default();
    items.iter().all(|item| {
        let modifiers = [
            "name", "as", "timeout", "retry", "breaker", "bulkhead", "throttle",
        ];
        let entries = item.as_mapping().unwrap_or_default();
        entries.iter().all(|entry| {
            let value = &entry.value;
            let is_own = value.get("to").and_then(Node::as_str) == Some(to);
            match entry.key.as_str() {
                // A condition, not the step that holds others.
                "if" => value.as_mapping().is_none(),
                "sql" => is_own && value.get("steps").is_none(),
                key => PURE.contains(&key) || modifiers.contains(&key),
            }
        })
    })
}

/// The first step of this verb for this connection.
fn find<'a>(verb: &str, to: &str, node: &'a Node) -> Option<&'a Node> {
    if let Some(items) = node.as_sequence() {
        return items.iter().find_map(|item| find(verb, to, item));
    }
    let entries = node.as_mapping()?;
    entries.iter().find_map(|entry| {
        let named = entry.value.get("to").and_then(Node::as_str);
        let is_it = entry.key == verb && named == Some(to);
        if is_it {
            return Some(&entry.value);
        }
        find(verb, to, &entry.value)
    })
}

/// The step.
struct TransactionStep {
    database: Arc<Database>,
    isolation: Option<Isolation>,
    to: String,
    block: Block,
    /// Whether a rollback undoes all that its steps can do.
    is_atomic: bool,
}

impl TransactionStep {
    async fn perform(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        if current(exchange, &self.database).is_some() {
            let error = SqlError::new(Class::Statement, "transactions do not nest");
            return Err(error.fault(&self.to));
        }
        let transaction = Rc::new(Transaction::new(&self.database, self.isolation));
        // When this future is dropped, the transaction is left and rolled back.
        let left = Left(Rc::clone(&transaction));
        exchange.held.push(Rc::clone(&transaction) as _);
        let next = self.block.start(exchange, services).await;
        let me: Rc<dyn std::any::Any> = transaction.clone();
        exchange.held.retain(|held| !Rc::ptr_eq(held, &me));
        let ended = transaction.end(next.is_ok(), services).await;
        drop(left);
        match (next, ended) {
            (Ok(next), Ok(())) => Ok(next),
            (Ok(_), Err(error)) => {
                let fault = error.fault(&self.to);
                Err(match (fault.retry, self.is_atomic) {
                    // The other steps have been run.
                    (Retry::Yes, false) => fault.with_retry(Retry::IfRepeatable),
                    _ => fault,
                })
            }
            (Err(fault), _) => Err(match (fault.retry, self.is_atomic) {
                // Without a commit the database has done nothing.
                (Retry::IfRepeatable, true) => fault.with_retry(Retry::Yes),
                _ => fault,
            }),
        }
    }
}

impl Step for TransactionStep {
    fn is_atomic(&self) -> bool {
        self.is_atomic
    }

    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.perform(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        self.block.reads_body()
    }

    fn ends_flow(&self) -> bool {
        self.block.ends_flow()
    }

    fn waits(&self) -> bool {
        true
    }
}

/// A transaction of a message. It begins with its first statement: steps before that hold no
/// connection, and a test whose statements are all mocked needs no database.
pub(crate) struct Transaction {
    database: Arc<Database>,
    isolation: Option<Isolation>,
    /// Steps that run beside each other wait for each other.
    state: Mutex<State>,
    is_streaming: Cell<bool>,
}

enum State {
    /// No statement has been run yet.
    Waiting,
    Open(Lease),
    /// It is rolled back, or its connection is closed without a commit: why. Every further
    /// statement fails so, and its end, whatever the steps have made of the first failure.
    Failed(SqlError),
    Ended,
}

/// The transaction on this database that the message is in.
pub(crate) fn current(exchange: &Exchange, database: &Arc<Database>) -> Option<Rc<Transaction>> {
    let held = exchange.held.iter().rev();
    let mut found = held.filter_map(|it| Rc::clone(it).downcast::<Transaction>().ok());
    found.find(|it| Arc::ptr_eq(&it.database, database) && !it.is_over())
}

impl Transaction {
    fn new(database: &Arc<Database>, isolation: Option<Isolation>) -> Self {
        Self {
            database: Arc::clone(database),
            isolation,
            state: Mutex::new(State::Waiting),
            is_streaming: Cell::new(false),
        }
    }

    fn is_over(&self) -> bool {
        let state = self.state.try_lock();
        state.is_ok_and(|state| matches!(*state, State::Ended))
    }

    /// Runs a statement in it.
    ///
    /// # Errors
    /// As [`crate::sql::session::Session::run`].
    pub async fn run(
        &self,
        statement: &Statement,
        arguments: &[Value],
        sink: &mut dyn Sink,
        services: &dyn Services,
    ) -> Result<Done, SqlError> {
        if self.is_streaming.get() {
            let message = "the transaction's connection is busy with the rows of `rows: stream`";
            return Err(SqlError::new(Class::Statement, message).without_effect());
        }
        let mut state = self.state.lock().await;
        // An earlier statement may have been dropped in the middle.
        fail_if_broken(&mut state, None, services).await;
        let lease = match &mut *state {
            State::Open(lease) => lease,
            State::Waiting => {
                *state = State::Open(self.begin(services).await?);
                let State::Open(lease) = &mut *state else {
                    return Err(refused("the transaction is over"));
                };
                lease
            }
            State::Failed(error) => return Err(error.clone()),
            State::Ended => return Err(refused("the transaction is over")),
        };
        let _streaming = statement
            .is_streamed
            .then(|| Streaming::new(&self.is_streaming));
        let done = lease.run(statement, arguments, sink, services).await;
        fail_if_broken(&mut state, done.as_ref().err(), services).await;
        done
    }

    async fn begin(&self, services: &dyn Services) -> Result<Lease, SqlError> {
        let pool = pool::of(&self.database, services)?;
        let mut lease = pool.lend(services).await?;
        lease.begin(self.isolation, services).await?;
        Ok(lease)
    }

    /// Commits it, or rolls it back. A connection with which that fails is cleaned or closed.
    async fn end(&self, is_success: bool, services: &dyn Services) -> Result<(), SqlError> {
        let mut state = self.state.lock().await;
        fail_if_broken(&mut state, None, services).await;
        match std::mem::replace(&mut *state, State::Ended) {
            State::Waiting | State::Ended => Ok(()),
            State::Failed(error) if is_success => Err(error),
            State::Failed(_) => Ok(()),
            State::Open(mut lease) if is_success => lease.commit(services).await,
            State::Open(mut lease) => lease.rollback(services).await,
        }
    }
}

fn refused(message: &str) -> SqlError {
    SqlError::new(Class::Statement, message).without_effect()
}

/// Gives the transaction up when the connection, or the server, says that it cannot be committed
/// any more. `cause` is the failure of the statement that was run last.
async fn fail_if_broken(state: &mut State, cause: Option<&SqlError>, services: &dyn Services) {
    let State::Open(lease) = state else {
        return;
    };
    let Some(broken) = lease.broken_transaction() else {
        return;
    };
    let failed = State::Failed(failure(broken, cause));
    let State::Open(mut lease) = std::mem::replace(state, failed) else {
        return;
    };
    // Its locks go at once. A connection that cannot do that is recovered, or closed.
    if broken == BrokenTransaction::Aborted {
        let _ = lease.rollback(services).await;
    }
}

/// What a transaction ends with that cannot be committed: its cause when it may help to run the
/// transaction again.
fn failure(broken: BrokenTransaction, cause: Option<&SqlError>) -> SqlError {
    let error = match (cause, broken) {
        (Some(cause), _) if cause.is_transient() => cause.clone(),
        (Some(cause), _) => SqlError::new(Class::Statement, &cause.message),
        (None, BrokenTransaction::Interrupted) => {
            SqlError::new(Class::RolledBack, "a statement was given up in the middle")
        }
        (None, _) => SqlError::new(Class::Lost, "the connection was lost"),
    };
    error.rolled_back()
}

/// A statement that gives its rows while they come, for as long as this lives.
struct Streaming<'a>(&'a Cell<bool>);

impl<'a> Streaming<'a> {
    fn new(is_streaming: &'a Cell<bool>) -> Self {
        is_streaming.set(true);
        Self(is_streaming)
    }
}

impl Drop for Streaming<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Ends a transaction that was left.
struct Left(Rc<Transaction>);

impl Drop for Left {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.try_lock() {
            *state = State::Ended;
        }
    }
}

#[cfg(test)]
mod tests;
