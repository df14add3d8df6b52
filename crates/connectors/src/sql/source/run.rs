//! The source while it runs: query, one row after the other, a note of each that is done with.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use component::handler::{LocalFuture, Services, within};
use component::source::{Source, Started, failure};
use expr::{Value, value};
use message::{Fault, Headers, Request};

use super::keep::Mark;
use super::{OnFailure, Settings};
use crate::sql::error::{Class, SqlError};
use crate::sql::session::{Done, Sink, Statement, Wants};
use crate::sql::sink::{Bounds, Collect, Ignore};
use crate::sql::{Database, pool};

/// The most bytes of a batch, and of a row as JSON.
const BYTES_MAX: u64 = 64 << 20;
/// How deep a cursor may be: it is a number or a text.
const CURSOR_DEPTH: usize = 2;

/// The source.
pub(super) struct SqlSource {
    pub connection: String,
    pub database: Arc<Database>,
    pub settings: Settings,
}

/// One run of the source.
struct Run<'a> {
    source: &'a SqlSource,
    flow: &'a Arc<dyn Started>,
    services: &'a dyn Services,
    stop: LocalFuture<'static, ()>,
    /// Where it is; loaded before the first query.
    cursor: Option<Value>,
    /// What the last row is marked by that could not be read.
    unreadable: Option<Value>,
}

/// The source has been told to stop.
struct Stopped;

impl Source for SqlSource {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        let mut run = Run {
            source: self,
            flow,
            services,
            stop,
            cursor: None,
            unreadable: None,
        };
        Box::pin(async move {
            let Stopped = run.go().await;
        })
    }
}

impl Run<'_> {
    async fn go(&mut self) -> Stopped {
        loop {
            let step = match self.batch().await {
                Ok(Found::Rows(rows)) => self.rows(rows).await,
                Ok(Found::TooLarge(row, error)) => self.too_large(Some(&row), error).await,
                Ok(Found::Unreadable(error)) => self.unreadable(error).await,
                Err(error) => {
                    self.warn("the query failed", error);
                    self.pause(self.source.settings.delay).await
                }
            };
            if let Err(stopped) = step {
                return stopped;
            }
        }
    }

    async fn rows(&mut self, rows: Vec<Value>) -> Result<(), Stopped> {
        let is_full = rows.len() >= self.source.settings.batch;
        for row in rows {
            if self.is_stopped().await {
                return Err(Stopped);
            }
            self.row(&row).await?;
        }
        match is_full {
            true => Ok(()),
            false => self.pause(self.source.settings.every).await,
        }
    }

    /// Runs the flow with a row and notes that it is done with.
    async fn row(&mut self, row: &Value) -> Result<(), Stopped> {
        loop {
            let ended = match request(row) {
                Ok(request) => self.flow.start(request, self.services).await,
                Err(fault) => Err(fault),
            };
            match failure(&ended) {
                Some(text) if self.tries_again(&text).await? => {}
                _ => return self.mark(row).await,
            }
        }
    }

    /// A row that is larger than what may be held of a batch. Of it there is what it is marked by,
    /// but for one that is not going to be passed over.
    async fn too_large(&mut self, row: Option<&Value>, error: SqlError) -> Result<(), Stopped> {
        let fault = error.fault(&self.source.connection);
        let cause = fault.cause.unwrap_or_default();
        let text = format!("a row is too large: {}: {cause}", fault.detail);
        if self.source.settings.on_failure == OnFailure::Retry {
            tracing::warn!(target: "flow", flow = &**self.flow.name(), "{text}");
        }
        match (self.tries_again(&text).await?, row) {
            (false, Some(row)) => self.mark(row).await,
            // It is read again: it may have become smaller, or the limit larger.
            _ => Ok(()),
        }
    }

    /// The next row is larger than what the driver reads at all. What it is marked by is asked for
    /// alone, where it is to be passed over: twice, with the row between, since another row may
    /// have come before it meanwhile.
    async fn unreadable(&mut self, error: SqlError) -> Result<(), Stopped> {
        if self.source.settings.on_failure != OnFailure::Skip {
            return self.too_large(None, error).await;
        }
        let row = match self.peek().await {
            Ok(row) => row,
            Err(why) => {
                self.warn("a row is too large to be read", error);
                self.warn("it cannot be passed over", why);
                return self.pause(self.source.settings.delay).await;
            }
        };
        if row.is_some() && self.unreadable == row {
            self.unreadable = None;
            return self.too_large(row.as_ref(), error).await;
        }
        self.unreadable = row;
        match self.unreadable {
            Some(_) => Ok(()),
            None => self.pause(self.source.settings.delay).await,
        }
    }

    /// What the next row is marked by, if there is one.
    async fn peek(&self) -> Result<Option<Value>, SqlError> {
        let Mark::Cursor { peek, .. } = &self.source.settings.mark else {
            let why = "with `after` it is not known which one it is; leave what is large out of \
                       the query";
            return Err(SqlError::unsupported(why));
        };
        let arguments = vec![self.cursor.clone().unwrap_or_default(); peek.names.len()];
        let bounds = Bounds {
            rows_max: 1,
            bytes_max: BYTES_MAX,
        };
        let mut found = Collect::new(bounds, 1);
        self.send(peek, &arguments, &mut found).await?;
        let row = found.into_rows().into_iter().next();
        row.map(|row| self.marks_of(&row)).transpose()
    }

    /// What becomes of a row that has failed, for this reason: whether it is tried again, now, or
    /// passed over.
    async fn tries_again(&mut self, text: &str) -> Result<bool, Stopped> {
        let flow = &**self.flow.name();
        match self.source.settings.on_failure {
            OnFailure::Retry => {
                self.pause(self.source.settings.delay).await?;
                Ok(true)
            }
            OnFailure::Skip => {
                tracing::warn!(target: "flow", flow, "{text}; the row is passed over");
                Ok(false)
            }
            OnFailure::Stop => {
                tracing::error!(target: "flow", flow, "{text}; no further rows are taken");
                self.stop.as_mut().await;
                Err(Stopped)
            }
        }
    }

    /// Notes that a row is done with. The flow is not run again for want of a note.
    async fn mark(&mut self, row: &Value) -> Result<(), Stopped> {
        while let Err(error) = self.note(row).await {
            self.warn("a row cannot be marked as done with", error);
            self.pause(self.source.settings.delay).await?;
        }
        Ok(())
    }

    async fn batch(&mut self) -> Result<Found, SqlError> {
        let settings = &self.source.settings;
        let mut arguments = Vec::new();
        if let Mark::Cursor { .. } = settings.mark {
            let cursor = match &self.cursor {
                Some(cursor) => cursor.clone(),
                None => self.load().await?,
            };
            self.cursor = Some(cursor.clone());
            arguments.resize(settings.query.names.len(), cursor);
        }
        let bounds = Bounds {
            rows_max: u64::MAX,
            bytes_max: BYTES_MAX,
        };
        let mut sink = Batch {
            rows: Collect::new(bounds, 1),
            count: 0,
            most: settings.batch,
            is_refused: false,
            first: None,
        };
        let done = self.send(&settings.query, &arguments, &mut sink).await;
        let Err(error) = done else {
            return self.check(sink.rows.into_rows()).map(Found::Rows);
        };
        let is_too_large = error.class == Class::TooLarge;
        match (sink.is_refused, sink.count) {
            (true, 1) if is_too_large && sink.first.is_some() => {
                let row = self.marks_of(&sink.first.unwrap_or_default())?;
                Ok(Found::TooLarge(row, error))
            }
            (true, 1) => Err(error),
            // The database, or its driver, does not give the first row.
            (false, 0) if is_too_large => Ok(Found::Unreadable(error)),
            (false, 0) => Err(error),
            // What has been lost on the way is asked for again. Else what has come is worked on:
            // the row behind it fails again, as the first one then.
            (false, count) if count < settings.batch && error.is_transient() => Err(error),
            _ => self.check(sink.rows.into_rows()).map(Found::Rows),
        }
    }

    /// Every row can be noted once it is done with.
    fn check(&self, rows: Vec<Value>) -> Result<Vec<Value>, SqlError> {
        for row in &rows {
            match &self.source.settings.mark {
                Mark::After(statement) => drop(named(statement, |name| column(row, name))?),
                Mark::Cursor { column, .. } => drop(cursor_of(row, column)?),
            }
        }
        Ok(rows)
    }

    /// The columns of a row that it is marked by.
    fn marks_of(&self, row: &Value) -> Result<Value, SqlError> {
        let members = match &self.source.settings.mark {
            Mark::After(statement) => {
                let values = named(statement, |name| column(row, name))?;
                statement.names.iter().cloned().zip(values).collect()
            }
            Mark::Cursor { column, .. } => vec![(column.clone(), cursor_of(row, column)?)],
        };
        Ok(value::object(members))
    }

    /// The cursor that is kept; the start is kept when there is none.
    async fn load(&self) -> Result<Value, SqlError> {
        let Mark::Cursor {
            start,
            keep,
            creates,
            ..
        } = &self.source.settings.mark
        else {
            return Ok(Value::Null);
        };
        if *creates {
            self.send(&keep.create, &[], &mut Ignore).await?;
        }
        let bounds = Bounds {
            rows_max: 1,
            bytes_max: BYTES_MAX,
        };
        let mut found = Collect::new(bounds, 1);
        let name = value::text(&**self.flow.name());
        let arguments = std::slice::from_ref(&name);
        self.send(&keep.load, arguments, &mut found).await?;
        if let Some(row) = found.into_rows().first() {
            let kept = column(row, "value").unwrap_or_default();
            let text = value::as_text(&kept).unwrap_or_default();
            let bytes = Bytes::copy_from_slice(text.as_bytes());
            let parsed = expr::json::parse(&bytes, CURSOR_DEPTH);
            return parsed.map_err(|_| SqlError::unsupported("the cursor that is kept is none"));
        }
        let kept = named(&keep.insert, |it| match it {
            "name" => Some(name.clone()),
            _ => written(start),
        })?;
        self.send(&keep.insert, &kept, &mut Ignore).await?;
        Ok(start.clone())
    }

    async fn note(&mut self, row: &Value) -> Result<(), SqlError> {
        match &self.source.settings.mark {
            Mark::After(statement) => {
                let arguments = named(statement, |name| column(row, name))?;
                self.send(statement, &arguments, &mut Ignore).await?;
            }
            Mark::Cursor {
                column: of, keep, ..
            } => {
                let cursor = cursor_of(row, of)?;
                let name = value::text(&**self.flow.name());
                let arguments = named(&keep.update, |it| match it {
                    "name" => Some(name.clone()),
                    _ => written(&cursor),
                })?;
                self.send(&keep.update, &arguments, &mut Ignore).await?;
                self.cursor = Some(cursor);
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        statement: &Statement,
        arguments: &[Value],
        sink: &mut dyn Sink,
    ) -> Result<Done, SqlError> {
        let pool = pool::of(&self.source.database, self.services)?;
        let mut lease = pool.lend(self.services).await?;
        lease.run(statement, arguments, sink, self.services).await
    }

    fn warn(&self, what: &str, error: SqlError) {
        let fault = error.fault(&self.source.connection);
        tracing::warn!(
            target: "flow",
            flow = &**self.flow.name(),
            cause = fault.cause.as_deref().unwrap_or_default(),
            "{what}: {}", fault.detail
        );
    }

    async fn pause(&mut self, time: Duration) -> Result<(), Stopped> {
        match within(time, self.services, self.stop.as_mut()).await {
            Some(()) => Err(Stopped),
            None => Ok(()),
        }
    }

    async fn is_stopped(&mut self) -> bool {
        let stop = &mut self.stop;
        poll_fn(|context| Poll::Ready(stop.as_mut().poll(context).is_ready())).await
    }
}

/// A column of a row: databases differ in how they write names in capitals.
fn column(row: &Value, name: &str) -> Option<Value> {
    if let Some(found) = value::get(row, name) {
        return Some(found.clone());
    }
    let mut members = value::members(row)?;
    let same = members.find(|(key, _)| key.eq_ignore_ascii_case(name));
    same.map(|(_, value)| value.clone())
}

/// The cursor of a row.
fn cursor_of(row: &Value, name: &str) -> Result<Value, SqlError> {
    let found = column(row, name);
    let found = found.filter(|it| matches!(it, Value::Num(_) | Value::TStr(_)));
    let missing = || {
        let message = format!("the row has no number or text `{name}` to be the cursor");
        SqlError::unsupported(message)
    };
    found.ok_or_else(missing)
}

/// The arguments of a statement, each found by its name.
fn named(
    statement: &Statement,
    find: impl Fn(&str) -> Option<Value>,
) -> Result<Vec<Value>, SqlError> {
    let found = statement.names.iter().map(|name| {
        let missing = || SqlError::argument(name, "is no column of the row");
        find(name).ok_or_else(missing)
    });
    found.collect()
}

/// A cursor as it is kept.
fn written(cursor: &Value) -> Option<Value> {
    let mut text = Vec::new();
    expr::json::write(cursor, 2000, &mut text).ok()?;
    String::from_utf8(text).ok().map(value::text)
}

/// What a flow is started with: the row as JSON.
fn request(row: &Value) -> Result<Request, Fault> {
    let mut body = Vec::with_capacity(256);
    expr::json::write(row, BYTES_MAX as usize, &mut body).map_err(Fault::expression)?;
    let mut headers = Headers::new();
    headers.append("Content-Type", "application/json");
    Ok(Request::of_source("ROW", headers, body))
}

/// What a query has found.
enum Found {
    /// These rows, or none.
    Rows(Vec<Value>),
    /// A row that is too large by itself: what it is marked by, and why it cannot be held.
    TooLarge(Value, SqlError),
    /// The same of one of which there is nothing.
    Unreadable(SqlError),
}

/// Takes the rows of a batch and no more.
struct Batch {
    rows: Collect,
    count: usize,
    most: usize,
    /// Whether the last row found no room.
    is_refused: bool,
    /// The first row, when it is the one that found no room.
    first: Option<Value>,
}

impl Sink for Batch {
    fn begin(&mut self) -> Result<(), SqlError> {
        self.rows.begin()
    }

    fn row(&mut self, row: Value, size: usize) -> Result<Wants, SqlError> {
        if self.count >= self.most {
            return Err(SqlError::new(Class::Stopped, "the batch is full"));
        }
        self.count += 1;
        let first = (self.count == 1).then(|| row.clone());
        let taken = self.rows.row(row, size);
        self.is_refused = taken.is_err();
        self.first = first.filter(|_| self.is_refused);
        taken
    }

    fn drain(&mut self) -> LocalFuture<'_, Result<(), SqlError>> {
        self.rows.drain()
    }
}
