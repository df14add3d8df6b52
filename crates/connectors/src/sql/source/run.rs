//! The source while it runs: query, one row after the other, a note of each that is done with.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::handler::{LocalFuture, Services};
use component::intake::{DeadLetter, Intake, IntakePlan, Settlement};
use component::source::{Source, Started};
use expr::{Value, value};

use super::Settings;
use super::keep::Mark;
use super::row::{BYTES_MAX, Content, Row, column, cursor_of, marks_of, named};
use crate::sql::error::{Class, SqlError};
use crate::sql::session::{Done, Sink, Statement, Wants};
use crate::sql::sink::{Bounds, Collect, Ignore};
use crate::sql::{Database, pool};

/// How deep a cursor may be: it is a number or a text.
const CURSOR_DEPTH: usize = 2;

/// The source.
pub(super) struct SqlSource {
    pub connection: String,
    pub database: Arc<Database>,
    pub settings: Settings,
    pub plan: Arc<IntakePlan>,
}

/// One run of the source.
struct Run<'a> {
    source: &'a SqlSource,
    flow: &'a Arc<dyn Started>,
    services: &'a dyn Services,
    intake: &'a Intake,
    /// Where it is; loaded before the first query.
    cursor: Option<Value>,
    /// What the last row is marked by that could not be read.
    unreadable: Option<Value>,
    /// The last row that was too large, by what it is marked by where that is known, and how often
    /// it has failed.
    too_large: Option<(Option<Value>, u32)>,
}

/// The source takes no further row: it has been told to stop, or a row has failed for good and
/// `dead_letter: stop` says so.
struct Stopped;

impl Source for SqlSource {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(self.start_all(flow, services, stop))
    }
}

impl SqlSource {
    async fn start_all(
        &self,
        flow: &Arc<dyn Started>,
        services: &dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) {
        let intake = Intake::new(flow, &self.plan);
        let mut run = Run {
            source: self,
            flow,
            services,
            intake: &intake,
            cursor: None,
            unreadable: None,
            too_large: None,
        };
        let mut work = pin!(run.go());
        let mut is_stopping = false;
        poll_fn(|context| {
            if !is_stopping && stop.as_mut().poll(context).is_ready() {
                is_stopping = true;
                intake.stop();
            }
            work.as_mut().poll(context)
        })
        .await;
        if !is_stopping {
            // A row has failed for good, and nothing is done with those behind it.
            stop.await;
        }
    }
}

impl Run<'_> {
    async fn go(&mut self) -> Stopped {
        loop {
            let step = match self.batch().await {
                Ok(Found::Rows(rows)) => self.rows(rows).await,
                Ok(Found::TooLarge(marks, error)) => self.too_large(Some(marks), error).await,
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
            if self.intake.is_over() {
                return Err(Stopped);
            }
            self.row(&row).await?;
        }
        match is_full {
            true => Ok(()),
            false => self.pause(self.source.settings.every).await,
        }
    }

    /// Runs the flow with a row until it has succeeded, or the row is a dead letter, and marks the
    /// row as done.
    async fn row(&mut self, row: &Value) -> Result<(), Stopped> {
        let mut message = Row {
            mark: &self.source.settings.mark,
            content: Content::Whole(row),
            attempts: 0,
        };
        while let Some(delay) = self.process(&mut message).await? {
            self.pause(delay).await?;
        }
        self.mark(row).await
    }

    /// Has the flow run with a row. The delay before the row is tried again; `None` when it is done
    /// with.
    async fn process(&self, row: &mut Row<'_>) -> Result<Option<Duration>, Stopped> {
        match self.intake.process(row, self.services).await.settlement {
            Settlement::Acknowledge => Ok(None),
            Settlement::PutBack(delay) => Ok(Some(delay)),
            // A source of rows has no `reject`.
            Settlement::Release | Settlement::Reject { .. } => Err(Stopped),
        }
    }

    /// A row that is larger than what may be held of a batch fails like one whose flow fails.
    /// Before each retry it is read again: it may have become smaller, or the limit larger.
    async fn too_large(&mut self, marks: Option<Value>, error: SqlError) -> Result<(), Stopped> {
        self.warn("a row is too large", error.clone());
        let before = self.too_large.take();
        let before = before.filter(|(last, _)| *last == marks);
        let mut message = Row {
            mark: &self.source.settings.mark,
            content: Content::Marks(marks.as_ref(), error.fault(&self.source.connection)),
            attempts: before.map_or(0, |(_, attempts)| attempts),
        };
        match (self.process(&mut message).await?, &marks) {
            (None, Some(row)) => self.mark(row).await,
            (delay, _) => {
                let attempts = message.attempts;
                self.too_large = Some((marks, attempts));
                let delay = delay.unwrap_or(self.source.settings.delay);
                self.pause(delay).await
            }
        }
    }

    /// The next row is larger than what the driver reads at all. What it is marked by is asked for
    /// alone: twice, with the row between, since another row may have come before it meanwhile.
    async fn unreadable(&mut self, error: SqlError) -> Result<(), Stopped> {
        let marks = match self.peek().await {
            Ok(marks) => marks,
            // What stays where it is need not be known.
            Err(_) if matches!(self.source.plan.policy.dead_letter, DeadLetter::Stop) => {
                return self.too_large(None, error).await;
            }
            Err(why) => {
                self.warn("a row is too large to be read", error);
                self.warn("it cannot be kept as a dead letter, and is read again", why);
                return self.pause(self.source.settings.delay).await;
            }
        };
        if marks.is_some() && self.unreadable == marks {
            self.unreadable = None;
            return self.too_large(marks, error).await;
        }
        self.unreadable = marks;
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
        let mark = &self.source.settings.mark;
        row.map(|row| marks_of(&row, mark)).transpose()
    }

    /// Notes that a row is done with. The flow is not run again for want of a note.
    async fn mark(&mut self, row: &Value) -> Result<(), Stopped> {
        let (intake, services) = (self.intake, self.services);
        let (source, flow) = (self.source, self.flow);
        let noted = intake.until_done(
            services,
            async || self.note(row).await,
            |error: &SqlError| {
                let what = "a row cannot be marked as done with";
                source.warn(flow, what, error.clone());
            },
        );
        noted.await.ok_or(Stopped)
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
                let row = sink.first.unwrap_or_default();
                let marks = marks_of(&row, &settings.mark)?;
                Ok(Found::TooLarge(marks, error))
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
        self.source.warn(self.flow, what, error);
    }

    /// Waits, unless the source has to end.
    async fn pause(&self, time: Duration) -> Result<(), Stopped> {
        match self.intake.pause(time, self.services).await {
            true => Ok(()),
            false => Err(Stopped),
        }
    }
}

impl SqlSource {
    fn warn(&self, flow: &Arc<dyn Started>, what: &str, error: SqlError) {
        let fault = error.fault(&self.connection);
        tracing::warn!(
            target: "flow",
            flow = &**flow.name(),
            cause = fault.cause.as_deref().unwrap_or_default(),
            "{what}: {}", fault.detail
        );
    }
}

/// A cursor as it is kept.
fn written(cursor: &Value) -> Option<Value> {
    let mut text = Vec::new();
    expr::json::write(cursor, 2000, &mut text).ok()?;
    String::from_utf8(text).ok().map(value::text)
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
