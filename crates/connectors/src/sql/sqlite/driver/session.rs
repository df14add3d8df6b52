//! One connection to SQLite, seen from its worker.

use std::time::Duration;

use component::handler::LocalFuture;
use expr::Value;
use expr::value;
use rusqlite::types::Value as Bound;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::thread::{Cell, Order, Part, Raw, Thread};
use crate::sql::error::{Class, SqlError};
use crate::sql::session::{Columns, Doing, Done, Isolation, Session, Sink, Statement, Wants};
use crate::sql::sink::Ignore;
use crate::sql::text::{base64, float};

/// One connection.
pub(super) struct SqliteSession {
    thread: Thread,
    statement_timeout: Duration,
    in_transaction: bool,
    /// Whether SQLite has ended the transaction by itself after a failure.
    is_aborted: bool,
    is_broken: bool,
}

impl SqliteSession {
    pub fn new(thread: Thread, statement_timeout: Duration) -> Self {
        Self {
            thread,
            statement_timeout,
            in_transaction: false,
            is_aborted: false,
            is_broken: false,
        }
    }

    fn order(&mut self, text: &str, arguments: Vec<Cell>) -> Result<Parts, SqlError> {
        let (parts, inbox) = mpsc::channel(1);
        let order = Order {
            text: text.to_owned(),
            arguments,
            parts,
        };
        if self.thread.orders.send(order).is_err() {
            self.is_broken = true;
            return Err(lost().without_effect());
        }
        Ok(inbox)
    }

    async fn perform(
        &mut self,
        statement: &Statement,
        arguments: &[Value],
        sink: &mut dyn Sink,
    ) -> Result<Done, SqlError> {
        let pairs = statement.names.iter().zip(arguments);
        let bound: Result<Vec<Cell>, SqlError> =
            pairs.map(|(name, value)| bind(name, value)).collect();
        let mut parts = self.order(&statement.text, bound?)?;
        let limit = self.statement_timeout;
        let read = match statement.is_streamed {
            true => read(&mut parts, sink, Some(limit)).await,
            false => match timeout(limit, read(&mut parts, sink, None)).await {
                Ok(read) => read,
                Err(_) => Err(Ended::ByUs(too_long(limit))),
            },
        };
        match read {
            Ok((changed, is_over)) => {
                self.note(is_over);
                Ok(Done {
                    changed,
                    ..Done::default()
                })
            }
            Err(Ended::BySqlite(error, is_over)) => {
                self.note(is_over);
                Err(error)
            }
            Err(Ended::Lost) => {
                self.is_broken = true;
                Err(lost())
            }
            Err(Ended::ByUs(error)) => {
                drop(parts);
                self.thread.interrupt.interrupt();
                // In a transaction what the statement has done so far is undone with it.
                self.is_aborted |= self.in_transaction;
                self.settle().await;
                Err(error)
            }
        }
    }

    /// Waits until the thread has come to the end of what it was told.
    async fn settle(&mut self) {
        let done = match self.order("select 1", Vec::new()) {
            Ok(mut parts) => read(&mut parts, &mut Ignore, None).await.is_ok(),
            Err(_) => false,
        };
        self.is_broken |= !done;
    }

    fn note(&mut self, is_over: bool) {
        self.is_aborted |= self.in_transaction && is_over;
    }

    /// Runs a statement without rows. Whether no transaction is open then.
    async fn simple(&mut self, text: &str) -> Result<bool, SqlError> {
        let mut parts = self.order(text, Vec::new())?;
        match read(&mut parts, &mut Ignore, None).await {
            Ok((_, is_over)) => Ok(is_over),
            Err(Ended::BySqlite(_, true)) if text == "rollback" => Ok(true),
            Err(Ended::BySqlite(error, _) | Ended::ByUs(error)) => Err(error),
            Err(Ended::Lost) => {
                self.is_broken = true;
                Err(lost())
            }
        }
    }
}

type Parts = mpsc::Receiver<Part>;

/// Why there are no more rows.
enum Ended {
    /// What SQLite says, and whether no transaction is open.
    BySqlite(SqlError, bool),
    ByUs(SqlError),
    Lost,
}

fn lost() -> SqlError {
    SqlError::new(Class::Lost, "the thread has ended")
}

fn too_long(limit: Duration) -> SqlError {
    SqlError::new(Class::Timeout, format_args!("longer than {limit:?}"))
}

/// Reads a statement to its end: how many rows it has changed, and whether no transaction is open.
async fn read(
    parts: &mut Parts,
    sink: &mut dyn Sink,
    limit: Option<Duration>,
) -> Result<(u64, bool), Ended> {
    let mut columns = None;
    loop {
        let part = match limit {
            None => parts.recv().await,
            Some(limit) => match timeout(limit, parts.recv()).await {
                Ok(part) => part,
                Err(_) => return Err(Ended::ByUs(too_long(limit))),
            },
        };
        match part {
            Some(Part::Columns(names)) => {
                let made = Columns::new(names.iter().map(String::as_str));
                columns = Some(made.map_err(Ended::ByUs)?);
                sink.begin().map_err(Ended::ByUs)?;
            }
            Some(Part::Rows(rows)) => {
                for raws in rows {
                    let Some(columns) = &columns else {
                        return Err(Ended::Lost);
                    };
                    let (row, size) = row(columns, raws).map_err(Ended::ByUs)?;
                    if sink.row(row, size).map_err(Ended::ByUs)? == Wants::Drain {
                        sink.drain().await.map_err(Ended::ByUs)?;
                    }
                }
            }
            Some(Part::End(Ok(changed), is_over)) => return Ok((changed, is_over)),
            Some(Part::End(Err(error), is_over)) => return Err(Ended::BySqlite(error, is_over)),
            None => return Err(Ended::Lost),
        }
    }
}

fn row(columns: &Columns, raws: Vec<Raw>) -> Result<(Value, usize), SqlError> {
    let mut size = 0;
    let mut values = Vec::with_capacity(raws.len());
    for raw in raws {
        values.push(match raw {
            Raw::Null => Value::Null,
            Raw::Integer(number) => value::integer(number),
            Raw::Real(number) => float(number),
            Raw::Text(text) => {
                size += text.len();
                let text = String::from_utf8(text);
                value::text(text.map_err(|_| SqlError::unsupported("a text is no UTF-8"))?)
            }
            Raw::Blob(bytes) => {
                size += bytes.len();
                value::text(base64(&bytes))
            }
        });
        size += 8;
    }
    Ok((columns.row(values), size))
}

/// A value as SQLite keeps it: 64 bits for integers, a double for others.
fn bind(name: &str, argument: &Value) -> Result<Cell, SqlError> {
    let bound = match argument {
        Value::Null => Bound::Null,
        Value::Bool(truth) => Bound::Integer((*truth).into()),
        Value::Num(_) => number(name, argument)?,
        Value::TStr(text) => match std::str::from_utf8(text) {
            Ok(text) => Bound::Text(text.to_owned()),
            Err(_) => return Err(SqlError::argument(name, "is no UTF-8")),
        },
        Value::BStr(bytes) => Bound::Blob(bytes.to_vec()),
        Value::Arr(_) | Value::Obj(_) => {
            return Err(SqlError::argument(name, "is no single value"));
        }
    };
    Ok(Cell(bound))
}

fn number(name: &str, argument: &Value) -> Result<Bound, SqlError> {
    let text = value::scalar_text(argument).unwrap_or_default();
    if let Ok(whole) = text.parse() {
        return Ok(Bound::Integer(whole));
    }
    let is_whole = text.bytes().all(|it| it.is_ascii_digit() || it == b'-');
    match text.parse::<f64>() {
        Ok(number) if !is_whole && number.is_finite() => Ok(Bound::Real(number)),
        _ => {
            let why = "is a number that SQLite does not keep: bind it as a text";
            Err(SqlError::argument(name, why))
        }
    }
}

impl Session for SqliteSession {
    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
        arguments: &'a [Value],
        sink: &'a mut dyn Sink,
    ) -> Doing<'a, Done> {
        Box::pin(self.perform(statement, arguments, sink))
    }

    fn begin(&mut self, _: Option<Isolation>) -> Doing<'_, ()> {
        Box::pin(async move {
            (self.in_transaction, self.is_aborted) = (true, false);
            // Whoever begins by reading and writes later would fail when another has written.
            self.simple("begin immediate").await.map(drop)
        })
    }

    fn commit(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            if self.is_aborted {
                self.rollback().await?;
                let message = "a statement of the transaction has failed: it is rolled back";
                return Err(SqlError::new(Class::Statement, message).without_effect());
            }
            self.simple("commit").await?;
            self.in_transaction = false;
            Ok(())
        })
    }

    fn rollback(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            let done = self.simple("rollback").await;
            self.is_broken |= !matches!(done, Ok(true));
            done?;
            (self.in_transaction, self.is_aborted) = (false, false);
            Ok(())
        })
    }

    fn ping(&mut self) -> Doing<'_, ()> {
        Box::pin(async move { self.simple("select 1").await.map(drop) })
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    fn recover(mut self: Box<Self>) -> LocalFuture<'static, Option<Box<dyn Session>>> {
        Box::pin(async move {
            self.thread.interrupt.interrupt();
            self.settle().await;
            if self.in_transaction {
                self.rollback().await.ok()?;
            }
            (!self.is_broken).then_some(self as Box<dyn Session>)
        })
    }

    fn close(self: Box<Self>) -> LocalFuture<'static, ()> {
        drop(self);
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_or_refused() {
        let bound = |text: &str| number("a", &value::number(text)).map_err(|it| it.message);
        assert_eq!(bound("9223372036854775807"), Ok(Bound::Integer(i64::MAX)));
        assert_eq!(bound("1.5"), Ok(Bound::Real(1.5)));
        let refused = bound("9223372036854775808").unwrap_err();
        assert!(
            refused.starts_with("the argument `a` is a number"),
            "{refused}"
        );
        assert!(bound("1e400").is_err());
    }
}
