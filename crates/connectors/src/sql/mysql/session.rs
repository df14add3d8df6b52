//! One connection to MySQL or MariaDB.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use component::handler::LocalFuture;
use expr::Value;
use mysql_async::consts::{ColumnType, StatusFlags};
use mysql_async::prelude::Queryable;
use mysql_async::{BinaryProtocol, Column, Conn, Opts, Params, QueryResult, Row, Value as Raw};
use tokio::time::timeout;

use crate::sql::error::{Class, SqlError};
use crate::sql::mysql::procedure::{Plan, is_same};
use crate::sql::mysql::{arguments, errors, values};
use crate::sql::patience::Patience;
use crate::sql::session::{
    Columns, Doing, Done, Isolation, Procedure, Session, Sink, Statement, Wants,
};
use crate::sql::{Database, Decimals};

/// The longest that stopping a statement may take, and saying good-bye.
const STOP_MAX: Duration = Duration::from_secs(2);
const CLOSE_MAX: Duration = Duration::from_millis(500);

/// How many bytes of a result that is refused are read to keep the connection, and for how long.
const DRAIN_MAX: usize = 1 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(1);

type Results<'a> = QueryResult<'a, 'static, BinaryProtocol>;

/// One connection.
pub struct MySqlSession {
    connection: Conn,
    /// How another one is made, which stops what runs on this one.
    options: Opts,
    database: Arc<Database>,
    /// How procedures are called, by all that flow files say of them.
    plans: HashMap<String, Rc<Plan>>,
    /// What tells its server from others, when the server says so.
    server: Option<String>,
    /// The most rows that the server gives of a query.
    rows_max: Option<u64>,
    in_transaction: bool,
    /// Whether the server has ended the transaction.
    is_aborted: bool,
    is_broken: bool,
}

impl MySqlSession {
    pub fn new(
        connection: Conn,
        options: Opts,
        database: Arc<Database>,
        server: Option<String>,
    ) -> Self {
        Self {
            connection,
            options,
            database,
            plans: HashMap::new(),
            server,
            rows_max: None,
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
        self.limit_rows(statement.rows_max).await?;
        let plan = match &statement.procedure {
            Some(procedure) => Some(self.plan(procedure).await?),
            None => None,
        };
        let (text, bound, outs) = match &plan {
            Some(plan) => (
                Cow::Borrowed(plan.text.as_str()),
                plan.bind(statement, arguments)?,
                plan.outs(),
            ),
            None => {
                let moments = self.moments(statement).await?;
                let (text, bound) = arguments::bind(statement, arguments, &moments)?;
                (text, bound, Vec::new())
            }
        };
        let params = match bound.is_empty() {
            true => Params::Empty,
            false => Params::Positional(bound),
        };
        let patience = Patience::new(&self.database, statement);
        match self.read(&text, params, outs, patience, sink).await {
            Ok(done) => Ok(chosen(statement, done)),
            Err(Ended::Failed(error)) => Err(self.failed(error)),
            Err(Ended::Refused(error)) => Err(error),
            Err(Ended::Unread(error)) => {
                // What is left of the answer may be much: it is not read.
                self.stop().await;
                self.is_broken = true;
                Err(error)
            }
        }
    }

    async fn read(
        &mut self,
        text: &str,
        params: Params,
        outs: Vec<String>,
        patience: Patience,
        sink: &mut dyn Sink,
    ) -> Result<Done, Ended> {
        let begun = self.connection.exec_iter(text, params);
        let mut reading = Reading {
            results: patience.wait(begun).await.map_err(Ended::Unread)??,
            patience,
            decimals: self.database.decimals,
            outs,
            done: Done::default(),
        };
        match reading.all(sink).await {
            Ok(()) => Ok(reading.done),
            Err(Ended::Refused(error)) if !reading.drain().await => Err(Ended::Unread(error)),
            Err(ended) => Err(ended),
        }
    }

    /// Has the server give no more rows of a query than these. One with a `limit` of its own gives
    /// as many as that says.
    async fn limit_rows(&mut self, rows_max: Option<u64>) -> Result<(), SqlError> {
        if self.rows_max == rows_max {
            return Ok(());
        }
        let limit = rows_max.map_or_else(|| "default".to_owned(), |it| it.to_string());
        self.say(&format!("set sql_select_limit = {limit}")).await?;
        self.rows_max = rows_max;
        Ok(())
    }

    /// Which arguments of a statement come from columns of the type `timestamp`, of which the
    /// server is asked once on a connection.
    async fn moments(&mut self, statement: &Statement) -> Result<Vec<bool>, SqlError> {
        let Some(from) = &statement.arguments_from else {
            return Ok(Vec::new());
        };
        let prepared = self.connection.prep(from.query.as_str()).await;
        let prepared = prepared.map_err(|error| self.failed(error))?;
        let columns = prepared.columns();
        let is_moment = |name: &String| {
            let name = from.cursor.as_ref().unwrap_or(name);
            let mut columns = columns.iter();
            let column = columns.find(|it| it.name_str().eq_ignore_ascii_case(name));
            column.is_some_and(|it| {
                use ColumnType::{MYSQL_TYPE_TIMESTAMP, MYSQL_TYPE_TIMESTAMP2};
                let kind = it.column_type();
                matches!(kind, MYSQL_TYPE_TIMESTAMP | MYSQL_TYPE_TIMESTAMP2)
            })
        };
        Ok(statement.names.iter().map(is_moment).collect())
    }

    /// Looks, after a statement of a transaction, whether the server still has it open: a deadlock
    /// rolls all of it back, and statements such as `create table` commit it. The reply to a
    /// statement that succeeds says so; a failure has no room for it, so that the server is asked.
    async fn check_transaction(&mut self, done: Result<Done, SqlError>) -> Result<Done, SqlError> {
        if !self.in_transaction || self.is_broken() {
            return done;
        }
        if done.is_err()
            && let Err(error) = self.connection.ping().await
        {
            self.failed(error);
            return done;
        }
        let status = self.connection.last_ok_packet().map(|it| it.status_flags());
        let is_open = status.is_some_and(|it| it.contains(StatusFlags::SERVER_STATUS_IN_TRANS));
        self.is_aborted |= !is_open;
        match done {
            Ok(_) if !is_open => {
                let message = "the statement has committed the transaction by itself";
                Err(SqlError::new(Class::Statement, message))
            }
            done => done,
        }
    }

    /// How a procedure is called, asked for once.
    async fn plan(&mut self, procedure: &Procedure) -> Result<Rc<Plan>, SqlError> {
        let key = format!("{procedure:?}");
        if let Some(plan) = self.plans.get(&key) {
            return Ok(Rc::clone(plan));
        }
        let plan = match Plan::ask(&mut self.connection, procedure).await {
            Ok(plan) => Rc::new(plan?),
            Err(error) => return Err(self.failed(error)),
        };
        self.plans.insert(key, Rc::clone(&plan));
        Ok(plan)
    }

    fn failed(&mut self, error: mysql_async::Error) -> SqlError {
        let (error, is_broken) = errors::of_running(error);
        self.is_broken |= is_broken;
        error
    }

    async fn say(&mut self, text: &str) -> Result<(), SqlError> {
        let said = self.connection.query_drop(text).await;
        said.map_err(|error| self.failed(error))
    }

    async fn end_transaction(&mut self, text: &str) -> Result<(), SqlError> {
        self.say(text).await?;
        (self.in_transaction, self.is_aborted) = (false, false);
        Ok(())
    }

    /// Stops on the server what runs, over a connection of its own, if that has come to the same
    /// server: behind a balancer it may be another one, where the number is somebody else's.
    async fn stop(&self) {
        let id = self.connection.id();
        let options = self.options.clone();
        let work = async move {
            let mut other = Conn::new(options).await?;
            // A server counts up: a smaller number is of one that has been started since.
            let is_same = other.id() > id && self.server == server(&mut other).await;
            if is_same && self.server.is_some() {
                // The server has no other way than the number.
                other.query_drop(format!("kill query {id}")).await?;
            }
            other.disconnect().await
        };
        if let Ok(Err(error)) | Err(error) = timeout(STOP_MAX, work).await.map_err(late) {
            tracing::debug!(%error, "a statement of MySQL could not be stopped");
        }
    }

    async fn end(self) {
        // Waits for nothing that still comes; the connection is cut when the time is over.
        let _ = timeout(CLOSE_MAX, self.connection.disconnect()).await;
    }
}

/// What tells a server from others: its host, port, number and folder. `None` when it does not say.
pub async fn server(connection: &mut Conn) -> Option<String> {
    let question = "select concat_ws(' ', @@hostname, @@port, @@server_id, @@datadir)";
    connection.query_first(question).await.ok().flatten()
}

fn late(_: tokio::time::error::Elapsed) -> mysql_async::Error {
    let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
    mysql_async::Error::from(error)
}

/// What the flow file wants of what came out, under its names and in its order.
fn chosen(statement: &Statement, mut done: Done) -> Done {
    let found = std::mem::take(&mut done.outs);
    let wanted = statement.procedure.iter().flat_map(|it| &it.outs);
    let chosen = wanted.filter_map(|out| {
        let (_, value) = found.iter().find(|(name, _)| is_same(name, &out.name))?;
        Some((out.name.clone(), value.clone()))
    });
    done.outs = chosen.collect();
    done
}

/// Why reading ended early.
enum Ended {
    /// The server or the connection failed.
    Failed(mysql_async::Error),
    /// We want no more of it; all of it has been read.
    Refused(SqlError),
    /// The same, or it took too long; nobody knows what of it is still to come.
    Unread(SqlError),
}

impl From<mysql_async::Error> for Ended {
    fn from(error: mysql_async::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<SqlError> for Ended {
    fn from(error: SqlError) -> Self {
        Self::Refused(error)
    }
}

/// Reads all that a statement gives.
struct Reading<'a> {
    results: Results<'a>,
    patience: Patience,
    decimals: Decimals,
    /// The parameters of a procedure that come out. They are the last result set, of one row; the
    /// client does not show the flag that says so, but their names tell.
    outs: Vec<String>,
    done: Done,
}

impl Reading<'_> {
    async fn next(&mut self) -> Result<Option<Row>, Ended> {
        let row = self.patience.wait(self.results.next()).await;
        Ok(row.map_err(Ended::Unread)??)
    }

    /// Reads what is left of a result that is refused, when it is little. Whether it has come to
    /// its end.
    async fn drain(&mut self) -> bool {
        let mut left = DRAIN_MAX;
        let all = async {
            while self.results.columns().is_some() {
                let row = match self.results.next().await {
                    Ok(Some(row)) => row.unwrap_raw(),
                    Ok(None) => continue,
                    // What the server says so is the end of the answer.
                    Err(error) => return matches!(error, mysql_async::Error::Server(_)),
                };
                let size: usize = row.iter().flatten().map(values::size).sum();
                match left.checked_sub(size) {
                    Some(rest) => left = rest,
                    None => return false,
                }
            }
            true
        };
        timeout(DRAIN_TIME, all).await.unwrap_or(false)
    }

    async fn all(&mut self, sink: &mut dyn Sink) -> Result<(), Ended> {
        loop {
            let Some(columns) = self.results.columns() else {
                // Nothing is left, or the next part failed, which is told now.
                self.next().await?;
                return Ok(());
            };
            if columns.is_empty() {
                self.done.changed += self.results.affected_rows();
                self.next().await?;
            } else if self.has_outs(&columns) {
                self.maybe_outs(&columns, sink).await?;
            } else {
                self.set(&columns, Vec::new(), sink).await?;
            }
        }
    }

    /// A result set; rows of it that were read already come first.
    async fn set(
        &mut self,
        columns: &Arc<[Column]>,
        read: Vec<Row>,
        sink: &mut dyn Sink,
    ) -> Result<(), Ended> {
        let names = self.short(columns, read, sink).await?;
        while let Some(row) = self.next().await? {
            self.give(row, columns, &names, sink).await?;
        }
        Ok(())
    }

    async fn give(
        &self,
        row: Row,
        columns: &[Column],
        names: &Columns,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        let (values, size) = self.values(row, columns)?;
        if sink.row(names.row(values), size)? == Wants::Drain {
            sink.drain().await?;
        }
        Ok(())
    }

    fn values(&self, row: Row, columns: &[Column]) -> Result<(Vec<Value>, usize), SqlError> {
        let raws = row.unwrap_raw();
        let mut size = 0;
        let values = raws.into_iter().zip(columns).map(|(raw, column)| {
            let raw = raw.unwrap_or(Raw::NULL);
            size += values::size(&raw);
            values::read(raw, column, self.decimals)
        });
        let values = values.collect::<Result<_, _>>()?;
        Ok((values, size))
    }

    fn has_outs(&self, columns: &[Column]) -> bool {
        let names = columns.iter().map(Column::name_str);
        !self.outs.is_empty()
            && columns.len() == self.outs.len()
            && names.zip(&self.outs).all(|(name, out)| is_same(&name, out))
    }

    /// A result set that has the names of what comes out: when it is the last and of one row, it
    /// is that.
    async fn maybe_outs(
        &mut self,
        columns: &Arc<[Column]>,
        sink: &mut dyn Sink,
    ) -> Result<(), Ended> {
        let mut read = Vec::new();
        while read.len() < 2 {
            match self.next().await? {
                Some(row) => read.push(row),
                None => break,
            }
        }
        let is_last = self.results.columns().is_some_and(|next| next.is_empty());
        if read.len() != 1 || !is_last {
            // Its end has been read already unless there were two rows.
            return match read.len() {
                2 => self.set(columns, read, sink).await,
                _ => self.short(columns, read, sink).await.map(drop),
            };
        }
        for row in read {
            let (values, _) = self.values(row, columns)?;
            self.done.outs = self.outs.iter().cloned().zip(values).collect();
        }
        Ok(())
    }

    /// What has been read of a result set, and its names.
    async fn short(
        &mut self,
        columns: &Arc<[Column]>,
        read: Vec<Row>,
        sink: &mut dyn Sink,
    ) -> Result<Columns, Ended> {
        let names: Vec<_> = columns.iter().map(Column::name_str).collect();
        let names = Columns::new(names.iter().map(AsRef::as_ref))?;
        sink.begin()?;
        for row in read {
            self.give(row, columns, &names, sink).await?;
        }
        Ok(names)
    }
}

impl Session for MySqlSession {
    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
        arguments: &'a [Value],
        sink: &'a mut dyn Sink,
    ) -> Doing<'a, Done> {
        Box::pin(async move {
            let done = self.work(statement, arguments, sink).await;
            self.check_transaction(done).await
        })
    }

    fn begin(&mut self, isolation: Option<Isolation>) -> Doing<'_, ()> {
        Box::pin(async move {
            (self.in_transaction, self.is_aborted) = (true, false);
            match isolation {
                None => {}
                Some(Isolation::Snapshot) => {
                    self.say("set transaction isolation level repeatable read")
                        .await?;
                    return self.say("start transaction with consistent snapshot").await;
                }
                Some(other) => {
                    let level = other.sql();
                    self.say(&format!("set transaction isolation level {level}"))
                        .await?;
                }
            }
            self.say("start transaction").await
        })
    }

    fn commit(&mut self) -> Doing<'_, ()> {
        Box::pin(self.end_transaction("commit"))
    }

    fn rollback(&mut self) -> Doing<'_, ()> {
        Box::pin(self.end_transaction("rollback"))
    }

    fn ping(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            let answered = self.connection.ping().await;
            answered.map_err(|error| self.failed(error))
        })
    }

    fn is_broken(&self) -> bool {
        self.is_broken || self.connection.is_disconnected()
    }

    fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    /// The statement is stopped; the connection is closed, for nobody knows what of its answer has
    /// been read. The server rolls an open transaction back when it sees the end.
    fn recover(self: Box<Self>) -> LocalFuture<'static, Option<Box<dyn Session>>> {
        Box::pin(async move {
            self.stop().await;
            self.end().await;
            None
        })
    }

    fn close(self: Box<Self>) -> LocalFuture<'static, ()> {
        Box::pin((*self).end())
    }
}
