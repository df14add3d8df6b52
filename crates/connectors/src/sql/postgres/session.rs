//! One connection to PostgreSQL.

use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use component::handler::LocalFuture;
use expr::Value;
use futures_util::StreamExt;
use tokio::time::timeout;
use tokio_postgres::{Client, Error, Row, RowStream};

use super::bind::Bound;
use super::prepared::{Cache, Prepared};
use super::read::Reader;
use super::{Connector, failure};
use crate::sql::Database;
use crate::sql::error::{Class, SqlError};
use crate::sql::session::{Doing, Done, Isolation, Session, Sink, Statement, Wants};

/// How long the server may take to stop a statement.
const STOP: Duration = Duration::from_secs(5);

/// One connection.
pub(super) struct PgSession {
    client: Client,
    connector: Connector,
    database: Arc<Database>,
    prepared: Cache,
    in_transaction: bool,
    /// Whether the server waits for the end of a transaction that has failed.
    is_aborted: bool,
    is_broken: bool,
}

impl PgSession {
    pub async fn start(
        client: Client,
        connector: Connector,
        database: Arc<Database>,
    ) -> Result<Self, SqlError> {
        let session = Self {
            client,
            connector,
            database,
            prepared: Cache::default(),
            in_transaction: false,
            is_aborted: false,
            is_broken: false,
        };
        let set = session.client.batch_execute(&session.time_limit()).await;
        set.map_err(|error| failure::of_connecting(&error))?;
        Ok(session)
    }

    /// Has the server end statements that take too long. It counts from 1 ms.
    fn time_limit(&self) -> String {
        let limit = self.database.limits.statement_timeout.as_millis().max(1);
        format!("set statement_timeout = {limit}")
    }

    /// What a failure means for the connection, and for whoever asked.
    fn failed(&mut self, error: &Error, names: &[String]) -> SqlError {
        self.is_broken |= failure::is_fatal(error);
        self.is_aborted |= self.in_transaction;
        failure::of_statement(error, names)
    }

    async fn simple(&mut self, text: &str) -> Result<(), SqlError> {
        let done = self.client.batch_execute(text).await;
        done.map_err(|error| self.failed(&error, &[]))
    }

    async fn prepare(&mut self, text: &str) -> Result<Rc<Prepared>, SqlError> {
        if let Some(found) = self.prepared.get(text) {
            return Ok(found);
        }
        let made = self.client.prepare(text).await;
        let made = made.map_err(|error| self.failed(&error, &[]).without_effect())?;
        let made = Rc::new(Prepared::new(made)?);
        self.prepared.put(text, &made);
        Ok(made)
    }

    /// Binds and starts a statement; prepared again when the server's mind has changed since.
    async fn start_statement(
        &mut self,
        statement: &Statement,
        arguments: &[Value],
    ) -> Result<(Rc<Prepared>, RowStream), SqlError> {
        let mut is_first = true;
        loop {
            let prepared = self.prepare(&statement.text).await?;
            let kinds = prepared.statement.params();
            let pairs = statement.names.iter().zip(arguments).zip(kinds);
            let bound: Result<Vec<Bound>, SqlError> = pairs
                .map(|((name, argument), kind)| Bound::new(name, argument, kind))
                .collect();
            let bound = bound?;
            if bound.len() != kinds.len() {
                let message = "the statement has other parameters than the flow says";
                return Err(SqlError::new(Class::Statement, message).without_effect());
            }
            match self.client.query_raw(&prepared.statement, bound).await {
                Ok(stream) => return Ok((prepared, stream)),
                Err(error) if is_first && !self.in_transaction && failure::is_stale(&error) => {
                    self.prepared.forget(&statement.text);
                    self.client.clear_type_cache();
                    is_first = false;
                }
                Err(error) => return Err(self.failed(&error, &statement.names)),
            }
        }
    }

    async fn perform(
        &mut self,
        statement: &Statement,
        arguments: &[Value],
        sink: &mut dyn Sink,
    ) -> Result<Done, SqlError> {
        let (prepared, stream) = self.start_statement(statement, arguments).await?;
        let mut stream = pin!(stream);
        let mut done = Done::default();
        let gives_rows = !prepared.statement.columns().is_empty();
        let read = if statement.procedure.is_some() {
            self.read_outs(&prepared, statement, stream.as_mut(), &mut done)
                .await
        } else {
            let begun = if gives_rows { sink.begin() } else { Ok(()) };
            match begun {
                Ok(()) => {
                    self.read_rows(&prepared, statement, stream.as_mut(), sink)
                        .await
                }
                Err(error) => Err(Ended::ByUs(error)),
            }
        };
        match read {
            Ok(()) => {
                done.changed = stream.rows_affected().unwrap_or(0);
                Ok(done)
            }
            Err(Ended::ByServer(error)) => Err(self.failed(&error, &statement.names)),
            Err(Ended::ByUs(error)) => {
                self.stop(stream).await;
                Err(error)
            }
        }
    }

    async fn read_rows(
        &self,
        prepared: &Prepared,
        statement: &Statement,
        mut stream: Pin<&mut RowStream>,
        sink: &mut dyn Sink,
    ) -> Result<(), Ended> {
        while let Some(row) = self.next(stream.as_mut(), statement.is_streamed).await? {
            let size = row.raw_size_bytes();
            let row = prepared.columns.row(self.values(&row)?);
            if sink.row(row, size).map_err(Ended::ByUs)? == Wants::Drain {
                sink.drain().await.map_err(Ended::ByUs)?;
            }
        }
        Ok(())
    }

    /// What comes out of a procedure is the only row.
    async fn read_outs(
        &self,
        prepared: &Prepared,
        statement: &Statement,
        mut stream: Pin<&mut RowStream>,
        done: &mut Done,
    ) -> Result<(), Ended> {
        let wanted = statement.procedure.iter().flat_map(|it| &it.outs);
        while let Some(row) = self.next(stream.as_mut(), false).await? {
            let mut values = self.values(&row)?;
            let columns = prepared.statement.columns();
            for out in wanted.clone() {
                let same = |name: &str| name.eq_ignore_ascii_case(&out.name);
                let at = columns.iter().position(|column| same(column.name()));
                let Some(value) = at.and_then(|at| values.get_mut(at)) else {
                    let message = format!("the procedure has no `{}` that comes out", out.name);
                    return Err(Ended::ByUs(SqlError::unsupported(message)));
                };
                done.outs.push((out.name.clone(), std::mem::take(value)));
            }
        }
        Ok(())
    }

    async fn next(
        &self,
        mut stream: Pin<&mut RowStream>,
        is_streamed: bool,
    ) -> Result<Option<Row>, Ended> {
        let limit = self.database.limits.statement_timeout;
        let row = match is_streamed {
            false => stream.next().await,
            true => match timeout(limit, stream.next()).await {
                Ok(row) => row,
                Err(_) => {
                    let message = format!("no further row within {limit:?}");
                    return Err(Ended::ByUs(SqlError::new(Class::Timeout, message)));
                }
            },
        };
        row.transpose().map_err(Ended::ByServer)
    }

    fn values(&self, row: &Row) -> Result<Vec<Value>, Ended> {
        let reader = Reader {
            decimals: self.database.decimals,
        };
        let columns = row.columns().iter().enumerate();
        let values = columns.map(|(at, column)| {
            let raw: Raw<'_> = row.try_get(at).map_err(|error| error.to_string())?;
            reader
                .value(column.type_(), raw.0)
                .map_err(|why| format!("column `{}`: {why}", column.name().escape_debug()))
        });
        let values: Result<Vec<Value>, String> = values.collect();
        values.map_err(|why| Ended::ByUs(SqlError::unsupported(why)))
    }

    /// Stops a statement on the server and waits until it has.
    async fn stop(&mut self, mut stream: Pin<&mut RowStream>) {
        self.is_aborted |= self.in_transaction;
        let asked = self.connector.cancel(self.client.cancel_token());
        let stopped = timeout(STOP, async {
            asked.await;
            while let Some(Ok(_)) = stream.next().await {}
        });
        self.is_broken |= stopped.await.is_err();
    }

    /// Gets the connection to a known state, whatever was under way.
    async fn clean(&mut self) -> Result<(), Error> {
        self.connector.cancel(self.client.cancel_token()).await;
        let mut texts = vec![self.time_limit()];
        if self.in_transaction {
            texts.insert(0, "rollback".to_owned());
        }
        for text in texts {
            let mut done = self.client.batch_execute(&text).await;
            // The order to stop may have come only now.
            if let Err(error) = &done
                && error.code().is_some_and(|code| code.code() == "57014")
            {
                done = self.client.batch_execute(&text).await;
            }
            done?;
        }
        Ok(())
    }
}

/// Why no more rows are read.
enum Ended {
    ByServer(Error),
    ByUs(SqlError),
}

/// The bytes of a value; `None` for null.
struct Raw<'a>(Option<&'a [u8]>);

impl<'a> tokio_postgres::types::FromSql<'a> for Raw<'a> {
    fn from_sql(
        _: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(Some(raw)))
    }

    fn from_sql_null(
        _: &tokio_postgres::types::Type,
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &tokio_postgres::types::Type) -> bool {
        true
    }
}

impl Session for PgSession {
    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
        arguments: &'a [Value],
        sink: &'a mut dyn Sink,
    ) -> Doing<'a, Done> {
        Box::pin(async move {
            if !statement.is_streamed {
                return self.perform(statement, arguments, sink).await;
            }
            self.simple("set statement_timeout = 0").await?;
            let done = self.perform(statement, arguments, sink).await;
            // The end of a failed transaction takes the setting back by itself.
            if !self.is_aborted && !self.is_broken {
                let text = self.time_limit();
                self.simple(&text).await?;
            }
            done
        })
    }

    fn begin(&mut self, isolation: Option<Isolation>) -> Doing<'_, ()> {
        Box::pin(async move {
            (self.in_transaction, self.is_aborted) = (true, false);
            let text = match isolation {
                // It is what PostgreSQL calls repeatable read.
                Some(Isolation::Snapshot) => "begin isolation level repeatable read".to_owned(),
                Some(level) => format!("begin isolation level {}", level.sql()),
                None => "begin".to_owned(),
            };
            let begun = self.simple(&text).await;
            begun.map_err(SqlError::without_effect)
        })
    }

    fn commit(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            if self.is_aborted {
                // The server would roll back and call that a success.
                self.rollback().await?;
                let message = "a statement of the transaction has failed: it is rolled back";
                return Err(SqlError::new(Class::Statement, message).without_effect());
            }
            self.simple("commit").await?;
            self.in_transaction = false;
            self.is_aborted = false;
            Ok(())
        })
    }

    fn rollback(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            self.simple("rollback").await?;
            self.in_transaction = false;
            self.is_aborted = false;
            Ok(())
        })
    }

    fn ping(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            let done = self.client.check_connection().await;
            done.map_err(|error| self.failed(&error, &[]).without_effect())
        })
    }

    fn is_broken(&self) -> bool {
        self.is_broken || self.client.is_closed()
    }

    /// After every failure within a transaction the server takes its end only (`ReadyForQuery` with
    /// `E`), whatever the failure was.
    fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    fn recover(mut self: Box<Self>) -> LocalFuture<'static, Option<Box<dyn Session>>> {
        Box::pin(async move {
            if self.is_broken() || self.clean().await.is_err() {
                return None;
            }
            (self.in_transaction, self.is_aborted) = (false, false);
            Some(self as Box<dyn Session>)
        })
    }

    fn close(self: Box<Self>) -> LocalFuture<'static, ()> {
        // The task of the connection says farewell when nobody holds the client any more.
        drop(self);
        Box::pin(std::future::ready(()))
    }
}
