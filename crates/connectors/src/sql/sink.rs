//! Where the rows of a statement go: all into memory, within bounds, or nowhere.

use std::future::ready;

use component::handler::LocalFuture;
use expr::Value;

use crate::sql::error::{Class, SqlError};
use crate::sql::room::Room;
use crate::sql::session::{Sink, Wants};

/// What a value takes in memory beside its own bytes, about: it counts towards the bound, so that
/// many small columns cannot take many times the bytes that came.
const VALUE_COST: usize = 64;

/// How much a result may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most rows.
    pub rows_max: u64,
    /// The most bytes.
    pub bytes_max: u64,
}

/// Collects rows.
pub(crate) struct Collect {
    bounds: Bounds,
    rows: u64,
    bytes: u64,
    room: Room,
    /// One list of rows for each result set.
    pub sets: Vec<Vec<Value>>,
    sets_max: usize,
}

impl Collect {
    /// For so many result sets at most.
    pub fn new(bounds: Bounds, sets_max: usize) -> Self {
        Self {
            bounds,
            rows: 0,
            bytes: 0,
            room: Room::default(),
            sets: Vec::new(),
            sets_max,
        }
    }

    /// The rows of the only result set.
    pub fn into_rows(self) -> Vec<Value> {
        self.sets.into_iter().next().unwrap_or_default()
    }
}

impl Sink for Collect {
    fn begin(&mut self) -> Result<(), SqlError> {
        if self.sets.len() >= self.sets_max {
            let most = self.sets_max;
            let message = format!("there are more than {most} results");
            return Err(SqlError::new(Class::TooLarge, message));
        }
        self.sets.push(Vec::new());
        Ok(())
    }

    fn row(&mut self, row: Value, size: usize) -> Result<Wants, SqlError> {
        let columns = match &row {
            Value::Obj(members) => members.len(),
            _ => 0,
        };
        self.rows += 1;
        let cost = size + columns * VALUE_COST;
        self.bytes += cost as u64;
        let Bounds {
            rows_max,
            bytes_max,
        } = self.bounds;
        if self.rows > rows_max {
            let message = format!("there are more than {rows_max} rows (`rows_max`)");
            return Err(SqlError::new(Class::TooLarge, message));
        }
        if self.bytes > bytes_max {
            let message = format!("the rows take more than {bytes_max} bytes (`bytes_max`)");
            return Err(SqlError::new(Class::TooLarge, message));
        }
        let row = self.room.hold(row, cost)?;
        if let Some(rows) = self.sets.last_mut() {
            rows.push(row);
        }
        Ok(Wants::More)
    }

    fn drain(&mut self) -> LocalFuture<'_, Result<(), SqlError>> {
        Box::pin(ready(Ok(())))
    }
}

/// Wants no rows.
pub(crate) struct Ignore;

impl Sink for Ignore {
    fn begin(&mut self) -> Result<(), SqlError> {
        Ok(())
    }

    fn row(&mut self, _: Value, _: usize) -> Result<Wants, SqlError> {
        Ok(Wants::More)
    }

    fn drain(&mut self) -> LocalFuture<'_, Result<(), SqlError>> {
        Box::pin(ready(Ok(())))
    }
}

/// The rows of the first set, of which there are at most two: enough to know whether there is one.
pub(crate) struct First {
    inner: Collect,
}

impl First {
    pub fn new(bytes_max: u64) -> Self {
        let bounds = Bounds {
            rows_max: 2,
            bytes_max,
        };
        Self {
            inner: Collect::new(bounds, 1),
        }
    }

    pub fn into_rows(self) -> Vec<Value> {
        self.inner.into_rows()
    }

    /// Whether the statement was ended because there is a second row.
    pub fn has_second(&self) -> bool {
        self.inner.rows > 1
    }
}

impl Sink for First {
    fn begin(&mut self) -> Result<(), SqlError> {
        self.inner.begin()
    }

    fn row(&mut self, row: Value, size: usize) -> Result<Wants, SqlError> {
        self.inner.row(row, size)?;
        if self.has_second() {
            return Err(SqlError::new(Class::Stopped, "there is a second row"));
        }
        Ok(Wants::More)
    }

    fn drain(&mut self) -> LocalFuture<'_, Result<(), SqlError>> {
        self.inner.drain()
    }
}

#[cfg(test)]
mod tests {
    use expr::value;

    use super::*;

    #[test]
    fn bounds_hold() {
        let row = || value::object([("a".to_owned(), value::integer(1))]);
        let bounds = Bounds {
            rows_max: 2,
            bytes_max: 1000,
        };
        let mut sink = Collect::new(bounds, 1);
        sink.begin().unwrap();
        assert!(sink.row(row(), 100).is_ok() && sink.row(row(), 100).is_ok());
        assert_eq!(sink.row(row(), 1).unwrap_err().class, Class::TooLarge);
        assert!(sink.begin().is_err());
        let mut sink = Collect::new(bounds, 1);
        sink.begin().unwrap();
        assert!(sink.row(row(), 990).is_err());
        let mut first = First::new(1000);
        first.begin().unwrap();
        first.row(row(), 1).unwrap();
        assert_eq!(first.row(row(), 1).unwrap_err().class, Class::Stopped);
        assert_eq!((first.has_second(), first.into_rows().len()), (true, 2));
    }
}
