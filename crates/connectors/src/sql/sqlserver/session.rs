//! One connection to SQL Server.

use std::sync::Arc;
use std::time::Duration;

use component::handler::LocalFuture;
use expr::Value;
use futures_util::TryStreamExt as _;
use tiberius::error::Error;
use tiberius::{Client, Command, CommandItem, CommandStream, Row};
use tokio::time::timeout;
use tokio_util::compat::Compat;

use crate::sql::error::{Class, SqlError};
use crate::sql::patience::Patience;
use crate::sql::session::{Columns, Doing, Done, Isolation, Session, Sink, Statement, Wants};
use crate::sql::sqlserver::arguments::Bound;
use crate::sql::sqlserver::procedure::OUT_MARK;
use crate::sql::sqlserver::stream::{Meter, Metered};
use crate::sql::sqlserver::{errors, values};
use crate::sql::{Database, Decimals, Texts};

/// The longest that stopping a statement may take, and saying good-bye.
const STOP_MAX: Duration = Duration::from_secs(2);
const CLOSE_MAX: Duration = Duration::from_millis(500);

/// The server's number for a rollback without a transaction.
const NOTHING_OPEN: &str = "3903";

/// One connection.
pub struct SqlServerSession {
    client: Client<Compat<Metered>>,
    meter: Meter,
    database: Arc<Database>,
    /// Whether a transaction has set an isolation, which would outlive it.
    is_isolated: bool,
    in_transaction: bool,
    /// Whether the server has ended the transaction, or takes its rollback only.
    is_aborted: bool,
    is_broken: bool,
}

impl SqlServerSession {
    pub fn new(client: Client<Compat<Metered>>, meter: Meter, database: Arc<Database>) -> Self {
        Self {
            client,
            meter,
            database,
            is_isolated: false,
            in_transaction: false,
            is_aborted: false,
            is_broken: false,
        }
    }

    async fn work(
        &mut self,
        statement: &Statement,
        arguments: &[Value],
        sink: &mut dyn Sink,
    ) -> Result<Done, SqlError> {
        let command = command(statement, arguments, self.database.texts)?;
        match self.read(command, statement, sink).await {
            Ok(done) => Ok(done),
            Err(Ended::Failed(error)) => Err(self.failed(error)),
            Err(Ended::Refused(error)) => {
                self.stop().await;
                Err(error)
            }
            Err(Ended::Late(error)) => {
                self.stop().await;
                // Perhaps within a row: nobody knows what the next byte means.
                self.is_broken = true;
                Err(error)
            }
        }
    }

    async fn read(
        &mut self,
        command: Command<'static>,
        statement: &Statement,
        sink: &mut dyn Sink,
    ) -> Result<Done, Ended> {
        self.meter.reset();
        let patience = Patience::new(&self.database, statement);
        let begun = command.exec(&mut self.client);
        let mut reading = Reading {
            stream: patience.wait(begun).await.map_err(Ended::Late)??,
            patience,
            meter: &self.meter,
            decimals: self.database.decimals,
            counts_results: changes_rows(&statement.text),
            set: Set::None,
            done: Done::default(),
        };
        reading.all(sink).await?;
        Ok(reading.done)
    }

    fn failed(&mut self, error: Error) -> SqlError {
        if self.meter.is_full() {
            self.is_broken = true;
            return SqlError::new(Class::TooLarge, "a row of more than 64 MiB");
        }
        let (error, is_broken) = errors::of_running(error);
        self.is_broken |= is_broken;
        error
    }

    /// Stops what runs, between two of its rows; the connection is clean then, or broken.
    async fn stop(&mut self) {
        self.meter.reset();
        let stopped = timeout(STOP_MAX, self.client.cancel_query()).await;
        self.is_broken |= !matches!(stopped, Ok(Ok(())));
    }

    /// Runs a batch of ours that gives nothing. Only here a transaction may begin or end: a
    /// statement with arguments must leave as many open as it found.
    async fn say(&mut self, text: &str) -> Result<(), SqlError> {
        self.meter.reset();
        let said = match self.client.simple_query(text).await {
            Ok(said) => said.into_results().await.map(drop),
            Err(error) => Err(error),
        };
        said.map_err(|error| self.failed(error))
    }

    /// Ends a transaction, and the isolation that it had. A connection that keeps the isolation is
    /// closed: what has been committed is so.
    async fn end(&mut self, text: &str) -> Result<(), SqlError> {
        let ended = self.say(text).await;
        if !self.is_broken && std::mem::take(&mut self.is_isolated) {
            let set = "set transaction isolation level read committed";
            self.is_broken |= self.say(set).await.is_err();
        }
        if ended.is_ok() {
            (self.in_transaction, self.is_aborted) = (false, false);
        }
        ended
    }

    /// Looks, after a failure in a transaction, whether the server still has it open: a deadlock
    /// rolls all of it back, and others leave it such that it can only be rolled back.
    async fn check_transaction(&mut self) {
        if !self.in_transaction || self.is_broken {
            return;
        }
        self.is_aborted |= match self.count_transactions().await {
            Ok(count) => count != Some(1),
            Err(error) => {
                self.failed(error);
                true
            }
        };
    }

    /// How many transactions are open, one in the other; none when they can only be rolled back.
    async fn count_transactions(&mut self) -> Result<Option<i32>, Error> {
        self.meter.reset();
        let question = "select case when xact_state() = -1 then 0 else @@trancount end";
        let row = self.client.simple_query(question).await?.into_row().await?;
        Ok(row.and_then(|row| row.try_get(0).ok().flatten()))
    }
}

/// A call of `sp_executesql`: the statement, what its parameters are, and their values.
fn command(
    statement: &Statement,
    arguments: &[Value],
    texts: Texts,
) -> Result<Command<'static>, SqlError> {
    let named = statement.names.iter().zip(arguments);
    let bound = named.map(|(name, argument)| Bound::new(name, argument));
    let bound: Vec<Bound> = bound.collect::<Result<_, _>>()?;
    let mut command = Command::new("sp_executesql");
    command.bind_param("", statement.text.clone());
    if !bound.is_empty() {
        let declared = bound.iter().enumerate();
        let declared = declared.map(|(at, it)| format!("@P{} {}", at + 1, it.sql_type(texts)));
        let declared: Vec<String> = declared.collect();
        command.bind_param("", declared.join(","));
    }
    for (at, it) in bound.into_iter().enumerate() {
        command.bind_param(format!("@P{}", at + 1), it);
    }
    Ok(command)
}

/// Whether the rows that come are rows that were changed (`output inserted.id`), so that their
/// count is one of changes.
fn changes_rows(text: &str) -> bool {
    let word = text
        .trim_start()
        .split(|it: char| !it.is_ascii_alphabetic())
        .next();
    let verbs = ["insert", "update", "delete", "merge"];
    word.is_some_and(|word| verbs.iter().any(|verb| word.eq_ignore_ascii_case(verb)))
}

/// Why reading ended early.
enum Ended {
    /// The server or the connection failed.
    Failed(Error),
    /// We want no more of it.
    Refused(SqlError),
    /// It took too long.
    Late(SqlError),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<SqlError> for Ended {
    fn from(error: SqlError) -> Self {
        Self::Refused(error)
    }
}

/// The result set that is being read.
enum Set {
    None,
    Rows(Columns),
    /// The parameters of a procedure that come out, by these names.
    Outs(Vec<String>),
}

/// Reads all that a statement gives.
struct Reading<'a> {
    stream: CommandStream<'a>,
    patience: Patience,
    meter: &'a Meter,
    decimals: Decimals,
    counts_results: bool,
    set: Set,
    done: Done,
}

impl Reading<'_> {
    async fn next(&mut self) -> Result<Option<CommandItem>, Ended> {
        let item = self.patience.wait(self.stream.try_next()).await;
        Ok(item.map_err(Ended::Late)??)
    }

    async fn all(&mut self, sink: &mut dyn Sink) -> Result<(), Ended> {
        while let Some(item) = self.next().await? {
            self.meter.reset();
            match item {
                CommandItem::Metadata(metadata) => {
                    let names = metadata.columns().iter().map(|column| column.name());
                    let outs: Option<Vec<&str>> = names
                        .clone()
                        .map(|name| name.strip_prefix(OUT_MARK))
                        .collect();
                    self.set = match outs {
                        Some(outs) if !outs.is_empty() => {
                            Set::Outs(outs.into_iter().map(str::to_owned).collect())
                        }
                        _ => {
                            let columns = Columns::new(names)?;
                            sink.begin()?;
                            Set::Rows(columns)
                        }
                    };
                }
                CommandItem::Row(row) => self.row(row, sink).await?,
                CommandItem::RowsAffected(count) => {
                    let is_of_rows =
                        !matches!(std::mem::replace(&mut self.set, Set::None), Set::None);
                    if !is_of_rows || self.counts_results {
                        self.done.changed += count;
                    }
                }
                CommandItem::ReturnStatus(_) | CommandItem::ReturnValue(_) => {}
            }
        }
        Ok(())
    }

    async fn row(&mut self, row: Row, sink: &mut dyn Sink) -> Result<(), Ended> {
        let (found, size) = self.values(row)?;
        match &self.set {
            Set::Rows(columns) => {
                if sink.row(columns.row(found), size)? == Wants::Drain {
                    sink.drain().await?;
                }
            }
            Set::Outs(names) => self.done.outs = names.iter().cloned().zip(found).collect(),
            Set::None => {}
        }
        Ok(())
    }

    fn values(&self, row: Row) -> Result<(Vec<Value>, usize), SqlError> {
        let columns = row.columns().to_vec();
        let mut size = 0;
        let found = row.into_iter().zip(&columns).map(|(data, column)| {
            size += values::size(&data);
            values::read(data, column, self.decimals)
        });
        let found = found.collect::<Result<_, _>>()?;
        Ok((found, size))
    }
}

impl Session for SqlServerSession {
    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
        arguments: &'a [Value],
        sink: &'a mut dyn Sink,
    ) -> Doing<'a, Done> {
        Box::pin(async move {
            let done = self.work(statement, arguments, sink).await;
            if done.is_err() {
                self.check_transaction().await;
            }
            done
        })
    }

    fn begin(&mut self, isolation: Option<Isolation>) -> Doing<'_, ()> {
        Box::pin(async move {
            (self.in_transaction, self.is_aborted) = (true, false);
            if let Some(isolation) = isolation {
                self.is_isolated = true;
                let level = isolation.sql();
                self.say(&format!("set transaction isolation level {level}"))
                    .await?;
            }
            self.say("begin tran").await
        })
    }

    fn commit(&mut self) -> Doing<'_, ()> {
        Box::pin(self.end("commit tran"))
    }

    fn rollback(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            match self.end("rollback tran").await {
                // Some failures have rolled it back already.
                Err(error) if error.code.as_deref() == Some(NOTHING_OPEN) => {
                    (self.in_transaction, self.is_aborted) = (false, false);
                    Ok(())
                }
                done => done,
            }
        })
    }

    fn ping(&mut self) -> Doing<'_, ()> {
        Box::pin(self.say("select 1"))
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    /// The statement is stopped; the connection is closed, for nobody knows how much of its answer
    /// has been read. The server rolls an open transaction back when it sees the end.
    fn recover(mut self: Box<Self>) -> LocalFuture<'static, Option<Box<dyn Session>>> {
        Box::pin(async move {
            self.stop().await;
            self.close().await;
            None
        })
    }

    fn close(self: Box<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            // A server that does not answer is left.
            let _ = timeout(CLOSE_MAX, self.client.close()).await;
        })
    }
}
