//! `rows: stream`: the rows go through steps in batches while they come. The database waits while a
//! batch is worked on, so that memory holds one batch, however many rows there are.

use component::block::Block;
use component::exchange::Exchange;
use component::handler::{LocalFuture, Services};
use component::step::Next;
use expr::{Value, value};
use message::Fault;

use crate::sql::error::{Class, SqlError};
use crate::sql::room::Room;
use crate::sql::session::{Sink, Wants};

/// A batch is given on before it is full when its rows take so many bytes.
const BATCH_BYTES: usize = 1024 * 1024;

/// The steps for each batch.
pub(super) struct Stream {
    pub block: Block,
    pub batch: usize,
}

/// The number of rows, and how the steps have ended before the last of them.
pub(super) type End = (u64, Option<Result<Next, Fault>>);

/// How the batches of a statement fare.
pub(super) struct Batches<'a> {
    stream: &'a Stream,
    exchange: &'a Exchange,
    services: &'a dyn Services,
    row_max: u64,
    rows: Vec<Value>,
    bytes: usize,
    /// Of the batch: the next one has its own.
    room: Room,
    count: u64,
    /// Why no more batches are wanted: a failure of the steps, or that they have ended the flow.
    ended: Option<Result<Next, Fault>>,
}

impl<'a> Batches<'a> {
    pub fn new(
        stream: &'a Stream,
        row_max: u64,
        exchange: &'a Exchange,
        services: &'a dyn Services,
    ) -> Self {
        Self {
            stream,
            exchange,
            services,
            row_max,
            rows: Vec::new(),
            bytes: 0,
            room: Room::default(),
            count: 0,
            ended: None,
        }
    }

    /// How many rows there were, and how the steps have ended before the last of them.
    pub fn end(self) -> End {
        (self.count, self.ended)
    }

    /// Gives rows that are there already.
    pub async fn give_all(&mut self, rows: &Value) -> Result<(), SqlError> {
        for row in value::as_array(rows).unwrap_or_default() {
            if self.row(row.clone(), 0)? == Wants::Drain {
                self.give().await?;
            }
        }
        self.give().await
    }

    /// Runs the steps on the rows so far.
    pub async fn give(&mut self) -> Result<(), SqlError> {
        self.bytes = 0;
        self.room = Room::default();
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        let mut copy = self.exchange.clone();
        copy.set_value(value::array(rows));
        match self.stream.block.start(&mut copy, self.services).await {
            Ok(Next::Continue) => Ok(()),
            ended => {
                self.ended = Some(ended);
                Err(SqlError::new(
                    Class::Stopped,
                    "the steps of a batch have ended",
                ))
            }
        }
    }
}

impl Sink for Batches<'_> {
    fn begin(&mut self) -> Result<(), SqlError> {
        Ok(())
    }

    fn row(&mut self, row: Value, size: usize) -> Result<Wants, SqlError> {
        if size as u64 > self.row_max {
            let message = format!("a row takes more than {} bytes (`bytes_max`)", self.row_max);
            return Err(SqlError::new(Class::TooLarge, message));
        }
        self.rows.push(self.room.hold(row, size)?);
        self.count += 1;
        self.bytes += size;
        let is_full = self.rows.len() >= self.stream.batch || self.bytes >= BATCH_BYTES;
        Ok(if is_full { Wants::Drain } else { Wants::More })
    }

    fn drain(&mut self) -> LocalFuture<'_, Result<(), SqlError>> {
        Box::pin(self.give())
    }
}
