//! The thread of one SQLite connection: it takes one order after the other, and gives rows on in
//! small batches, waiting while nobody takes them.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, InterruptHandle, OpenFlags, ToSql};
use tokio::sync::{mpsc as rows, oneshot};

use super::failure;
use crate::sql::error::{Class, SqlError};

/// How many rows are given on at once, and about how many bytes.
const BATCH: (usize, usize) = (64, 256 * 1024);

/// An argument; texts and bytes as they are.
#[derive(Clone)]
pub(super) struct Cell(pub Value);

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

/// What comes back from a statement.
pub(super) enum Part {
    /// The names of the columns; first, when it has any.
    Columns(Vec<String>),
    /// Rows.
    Rows(Vec<Vec<Raw>>),
    /// The end: how many rows have changed, or what is wrong; and whether no transaction is open.
    End(Result<u64, SqlError>, bool),
}

/// A value of a row.
pub(super) enum Raw {
    Null,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

/// Something to be done by the thread.
pub(super) struct Order {
    pub text: String,
    pub arguments: Vec<Cell>,
    pub parts: rows::Sender<Part>,
}

/// The thread, seen from its worker. It ends when this is dropped.
pub(super) struct Thread {
    pub orders: mpsc::Sender<Order>,
    pub interrupt: InterruptHandle,
}

/// Opens a file on a thread of its own. `wait` is how long a statement waits for others that write.
///
/// # Errors
/// When the file cannot be opened.
pub(super) async fn start(file: PathBuf, wait: Duration) -> Result<Thread, SqlError> {
    let (orders, inbox) = mpsc::channel();
    let (opened, outcome) = oneshot::channel();
    let work = move || match open(&file, wait) {
        Ok(connection) => {
            let handle = connection.get_interrupt_handle();
            if opened.send(Ok(handle)).is_ok() {
                serve(&connection, &inbox);
            }
        }
        Err(error) => drop(opened.send(Err(failure::of_opening(&error)))),
    };
    let builder = std::thread::Builder::new().name("sqlite".to_owned());
    if let Err(error) = builder.spawn(work) {
        return Err(SqlError::new(
            Class::Busy,
            format_args!("no thread: {error}"),
        ));
    }
    let lost = |_| SqlError::new(Class::Unreachable, "the thread has ended");
    let interrupt = outcome.await.map_err(lost)??;
    Ok(Thread { orders, interrupt })
}

fn open(file: &Path, wait: Duration) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(wait)?;
    // Readers and one writer do not hold each other up.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

fn serve(connection: &Connection, inbox: &mpsc::Receiver<Order>) {
    while let Ok(order) = inbox.recv() {
        // It was given up before its turn: an interrupt only stops what runs already.
        if order.parts.is_closed() {
            continue;
        }
        let done = match run(connection, &order) {
            Ok(Some(changed)) => Ok(changed),
            // Nobody wants the rest.
            Ok(None) => continue,
            Err(error) => Err(failure::of_statement(&error)),
        };
        // Whoever has asked may have gone.
        let end = Part::End(done, connection.is_autocommit());
        let _ = order.parts.blocking_send(end);
    }
}

/// Runs a statement to its end; `None` when nobody wants its rows any more.
fn run(connection: &Connection, order: &Order) -> rusqlite::Result<Option<u64>> {
    let mut statement = connection.prepare_cached(&order.text)?;
    let names = statement.column_names();
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let columns = names.len();
    if columns > 0 && order.parts.blocking_send(Part::Columns(names)).is_err() {
        return Ok(None);
    }
    for (at, argument) in order.arguments.iter().enumerate() {
        statement.raw_bind_parameter(at + 1, argument)?;
    }
    let is_read_only = statement.readonly();
    let mut rows = statement.raw_query();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let mut raws = Vec::with_capacity(columns);
        for at in 0..columns {
            let (raw, size) = copy(row.get_ref(at)?);
            raws.push(raw);
            bytes += size;
        }
        batch.push(raws);
        if batch.len() >= BATCH.0 || bytes >= BATCH.1 {
            bytes = 0;
            let full = std::mem::take(&mut batch);
            if order.parts.blocking_send(Part::Rows(full)).is_err() {
                return Ok(None);
            }
        }
    }
    drop(rows);
    if !batch.is_empty() && order.parts.blocking_send(Part::Rows(batch)).is_err() {
        return Ok(None);
    }
    Ok(Some(if is_read_only {
        0
    } else {
        connection.changes()
    }))
}

fn copy(value: ValueRef<'_>) -> (Raw, usize) {
    match value {
        ValueRef::Null => (Raw::Null, 1),
        ValueRef::Integer(number) => (Raw::Integer(number), 8),
        ValueRef::Real(number) => (Raw::Real(number), 8),
        ValueRef::Text(text) => (Raw::Text(text.to_vec()), text.len()),
        ValueRef::Blob(bytes) => (Raw::Blob(bytes.to_vec()), bytes.len()),
    }
}
