//! The thread that has the file of keyed state.

use std::collections::{BTreeMap, HashSet};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use bytes::Bytes;
use redb::{
    Database, DatabaseError, ReadableDatabase, StorageError, Table, TableDefinition, TableError,
};
use tokio::sync::oneshot;

use super::ahead::WriteAhead;
use super::backend::Backend;
use super::{Change, Durability, Place};
use crate::asking::Answer;
use crate::backlog::Queued;
use crate::disk::DiskFile;
use crate::error::{OpenError, Refusal};
use crate::log::write_again;

/// The most bytes that `redb` keeps in memory of the file.
const CACHE_MAX: usize = 16 << 20;
/// The most requests that are answered together.
const ROUND_MAX: usize = 4096;
/// About how many bytes are given at once.
const SCAN_MAX: usize = 16 << 20;

/// What is said of a file that has lost all that stood in it.
const MISSING: &str = "it is missing; put the data folder back from a copy, or accept the loss \
                       with `--accept-data-loss`";
const EMPTY: &str = "it is empty; put the data folder back from a copy, or accept the \
                     loss with `--accept-data-loss`";

/// The table that says which generation of the log beside the file counts, and its only key.
const GENERATIONS: &str = "write-ahead";
const GENERATION: &[u8] = b"generation";

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

/// What is asked of the thread.
pub(super) enum Command {
    Write {
        write: Staged,
    },
    Get {
        table: Arc<str>,
        key: Bytes,
        place: Queued,
        answer: Answer<Option<Bytes>>,
    },
    Scan {
        table: Arc<str>,
        prefix: Bytes,
        after: Option<Bytes>,
        most: usize,
        place: Queued,
        answer: Answer<Vec<(Bytes, Bytes)>>,
    },
    Close(Option<oneshot::Sender<()>>),
}

/// Changes of one who waits until they are kept.
pub(super) struct Staged {
    pub changes: Vec<Change>,
    pub durability: Durability,
    pub place: Queued,
    pub answer: Answer<()>,
}

/// What the thread has.
pub(super) struct Keeper {
    path: PathBuf,
    place: Box<dyn Place>,
    /// Not there when it has to be opened again.
    database: Option<Database>,
    /// Whether an `fsync` has failed.
    has_failed: Arc<AtomicBool>,
    /// What the database has not got yet.
    ahead: WriteAhead,
    staged: Vec<Staged>,
    closing: Option<Option<oneshot::Sender<()>>>,
}

impl Keeper {
    pub fn open(place: Box<dyn Place>) -> Result<Self, OpenError> {
        let mut keeper = Self {
            path: place.path(),
            place,
            database: None,
            has_failed: Arc::new(AtomicBool::new(false)),
            ahead: WriteAhead::default(),
            staged: Vec::new(),
            closing: None,
        };
        let database = keeper.open_database(true)?;
        keeper.take_along(&database)?;
        keeper.database = Some(database);
        Ok(keeper)
    }

    /// Has in the database what an earlier process has left in the log beside it.
    fn take_along(&mut self, database: &Database) -> Result<(), OpenError> {
        let lost = |error: redb::Error| OpenError::Keyed(self.path.clone(), error.to_string());
        let generation = get(database, GENERATIONS, GENERATION).map_err(lost)?;
        let generation =
            generation.and_then(|it| it.first_chunk().map(|it| u64::from_le_bytes(*it)));
        let generation = generation.unwrap_or_default();
        let file = self
            .place
            .ahead(false)
            .map_err(self.doing("open the log of"))?;
        let Some(file) = file else {
            self.ahead.begin(generation);
            return Ok(());
        };
        let values = WriteAhead::read(&*file, generation);
        let values = values.map_err(self.doing("read the log of"))?;
        // Also where it has nothing: what stands in it must not follow what is written anew.
        let next = generation + 1;
        let changes = values.iter();
        let changes = changes.map(|((table, key), value)| (table, key, value.as_ref()));
        let written = write(database, changes, Some(next));
        written.map_err(|error| self.doing("write to")(std::io::Error::other(error)))?;
        self.ahead.file = Some(file);
        self.ahead.begin(next);
        Ok(())
    }

    /// Opens the file. At the start all of it is written again: after a failed `fsync` the system
    /// may show what is only in memory.
    fn open_database(&mut self, is_start: bool) -> Result<Database, OpenError> {
        let opened = self.place.open().map_err(self.doing("open"))?;
        let path = self.path.clone();
        let lost = |why: &str| OpenError::Keyed(path, why.to_owned());
        let file = match opened {
            Some(file) => file,
            None if self.place.is_made() => return Err(lost(MISSING)),
            None => self.make()?,
        };
        // It gets its name when something stands in it.
        if file.size().map_err(self.doing("read"))? == 0 {
            return Err(lost(EMPTY));
        }
        if is_start {
            let size = file.size().map_err(self.doing("read"))?;
            write_again(&*file, size).map_err(self.doing("write to"))?;
        }
        let database = self.with(file)?;
        // Also when an older version has noted it, which would not look into the log beside it.
        if is_start || !self.place.is_made() {
            self.place.made().map_err(self.doing("make"))?;
        }
        Ok(database)
    }

    /// Makes the file. It has its name only when it is a database: one that is there in part is
    /// then never taken for one that is damaged.
    fn make(&mut self) -> Result<Box<dyn DiskFile>, OpenError> {
        let begun = self.place.begin().map_err(self.doing("make"))?;
        drop(self.with(begun)?);
        self.place.finish().map_err(self.doing("make"))?;
        let made = self.place.open().map_err(self.doing("open"))?;
        made.ok_or_else(|| self.doing("open")(std::io::ErrorKind::NotFound.into()))
    }

    fn doing(&self, what: &str) -> impl FnOnce(std::io::Error) -> OpenError + use<> {
        OpenError::disk(format!("{what} {}", self.path.display()))
    }

    fn with(&self, file: Box<dyn DiskFile>) -> Result<Database, OpenError> {
        let backend = Backend::new(file, Arc::clone(&self.has_failed));
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_MAX);
        builder.set_check_integrity_on_open(true);
        // Builds for development stop where others say that a file is damaged.
        let create = AssertUnwindSafe(|| builder.create_with_backend(backend));
        let created = panic::catch_unwind(create);
        match created {
            Ok(Ok(database)) => Ok(database),
            Ok(Err(DatabaseError::Storage(StorageError::Io(error)))) if !is_content(&error) => {
                Err(self.doing("open")(error))
            }
            Ok(Err(error)) => Err(OpenError::Keyed(self.path.clone(), damage(&error))),
            Err(_) => {
                let why = "it is damaged".to_owned();
                Err(OpenError::Keyed(self.path.clone(), why))
            }
        }
    }

    /// Whether the disk has failed, for everybody.
    pub fn has_failed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_failed)
    }

    /// Works until nobody can ask any more.
    pub fn run(mut self, commands: &Receiver<Command>) {
        while self.closing.is_none() {
            let first = match self.ahead.due() {
                None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => commands.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            let first = match first {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let more: Vec<Command> = commands.try_iter().take(ROUND_MAX).collect();
            let mut reads = Vec::new();
            for command in first.into_iter().chain(more) {
                match command {
                    // What comes behind the end is not answered.
                    _ if self.closing.is_some() => {}
                    Command::Write { write } => self.staged.push(write),
                    Command::Close(answer) => self.closing = Some(answer),
                    read => reads.push(read),
                }
            }
            self.keep_staged();
            reads.into_iter().for_each(|read| self.read(read));
        }
        if self.ahead.due().is_some() {
            // What cannot be taken along is in the log for whoever opens it next.
            let _ = self.commit(std::iter::empty(), true);
        }
        let closing = self.closing.take().flatten();
        // Whoever is told so may open the file at once.
        drop(self);
        if let Some(answer) = closing {
            let _ = answer.send(());
        }
    }

    /// The database, opened again when that is needed.
    fn database(&mut self) -> Result<&Database, Refusal> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(Refusal::Poisoned("fsync failed".to_owned()));
        }
        if self.database.is_none() {
            let opened = self.open_database(false);
            let opened = opened.map_err(|error| Refusal::NoSpace(error.to_string()));
            self.database = Some(opened?);
        }
        self.database.as_ref().ok_or(Refusal::Closed)
    }

    /// Has everything that is staged where it has to be, and answers.
    fn keep_staged(&mut self) {
        let staged = std::mem::take(&mut self.staged);
        let now = Instant::now();
        if self.ahead.is_due(now) || self.is_mixed(&staged) {
            let changes = staged.iter().flat_map(|it| &it.changes);
            let written = self.commit(changes, true);
            if written.is_err() {
                self.ahead.put_off(now);
            }
            return answer_all(staged, &written);
        }
        let is_durable = |it: &Staged| it.durability == Durability::Disk;
        let (durable, quick): (Vec<Staged>, Vec<Staged>) = staged.into_iter().partition(is_durable);
        if !durable.is_empty() {
            let changes = durable.iter().flat_map(|it| &it.changes);
            let written = self.commit(changes, false);
            answer_all(durable, &written);
        }
        if !quick.is_empty() {
            let changes = quick.iter().flat_map(|it| it.changes.iter().cloned());
            let written = self.append(changes.collect(), now);
            answer_all(quick, &written);
        }
    }

    /// Whether a change that has to be on the disk meets one of the same key that has not: then all
    /// of them are one commit, in their order.
    fn is_mixed(&self, staged: &[Staged]) -> bool {
        let of = |durability| {
            let staged = staged.iter().filter(move |it| it.durability == durability);
            staged.flat_map(|it| it.changes.iter().map(Change::parts))
        };
        let mut durable = of(Durability::Disk).peekable();
        if durable.peek().is_none() {
            return false;
        }
        let quick: HashSet<_> = of(Durability::Process).map(|it| (it.0, it.1)).collect();
        durable.any(|it| quick.contains(&(it.0, it.1)) || self.ahead.get(it.0, it.1).is_some())
    }

    /// Makes changes in one commit, behind those that the database has not got yet where it takes
    /// those along.
    fn commit<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a Change>,
        takes_along: bool,
    ) -> Result<(), Refusal> {
        self.database()?;
        let Some(database) = &self.database else {
            return Err(Refusal::Closed);
        };
        let next = takes_along.then_some(self.ahead.generation + 1);
        let values = self.ahead.values().iter().filter(|_| takes_along);
        let values = values.map(|((table, key), value)| (table, key, value.as_ref()));
        let changes = changes.map(|it| it.parts());
        let written = write(database, values.chain(changes), next);
        written.map_err(|error| self.failed(&error))?;
        if let Some(next) = next {
            self.ahead.begin(next);
        }
        Ok(())
    }

    /// Has changes in the log beside the database.
    fn append(&mut self, changes: Vec<Change>, now: Instant) -> Result<(), Refusal> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(Refusal::Poisoned("fsync failed".to_owned()));
        }
        if self.ahead.file.is_none() {
            let made = self.place.ahead(true);
            self.ahead.file = made.map_err(|error| self.not_appended(&error))?;
        }
        let appended = self.ahead.append(changes, now);
        appended.map_err(|error| self.not_appended(&error))
    }

    fn not_appended(&self, error: &std::io::Error) -> Refusal {
        let file = self.path.display();
        tracing::error!(%error, %file, "the log beside keyed state cannot be written");
        Refusal::NoSpace(error.to_string())
    }

    /// What comes of a commit that has failed.
    fn failed(&mut self, error: &redb::Error) -> Refusal {
        let has_failed = self.has_failed.load(Ordering::Relaxed);
        let file = self.path.display();
        match has_failed {
            true => tracing::error!(
                %error, %file,
                "keyed state is not written to any more: what is on the disk is not known; restart"
            ),
            false => tracing::error!(%error, %file, "keyed state cannot be written"),
        }
        // It takes nothing more before it is opened again.
        self.database = None;
        match has_failed {
            true => Refusal::Poisoned(error.to_string()),
            false => Refusal::NoSpace(error.to_string()),
        }
    }

    fn value(&mut self, table: &Arc<str>, key: &Bytes) -> Result<Option<Bytes>, Refusal> {
        // Whether it can be read at all comes first.
        self.database()?;
        if let Some(value) = self.ahead.get(table, key) {
            return Ok(value.clone());
        }
        get(self.database()?, table, key).map_err(unreadable)
    }

    fn read(&mut self, command: Command) {
        match command {
            Command::Get {
                table,
                key,
                place,
                answer,
            } => {
                let value = self.value(&table, &key);
                drop(place);
                // Whoever asked may have gone away.
                let _ = answer.send(value);
            }
            Command::Scan {
                table,
                prefix,
                after,
                most,
                place,
                answer,
            } => {
                let ready = match self.ahead.has(&table) {
                    true => self.commit(std::iter::empty(), true),
                    false => Ok(()),
                };
                let found = ready.and_then(|()| {
                    let found = scan(self.database()?, &table, &prefix, after.as_deref(), most);
                    found.map_err(unreadable)
                });
                drop(place);
                let _ = answer.send(found);
            }
            Command::Write { .. } | Command::Close(_) => {}
        }
    }
}

/// A table, a key, and the value that it gets; `None` where it has none from then on.
type Parts<'a> = (&'a Arc<str>, &'a Bytes, Option<&'a Bytes>);

/// Whether an error of reading is one of what stands in the file: one that is cut ends too early,
/// and one that begins otherwise is said to have invalid data.
fn is_content(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    matches!(error.kind(), InvalidData | UnexpectedEof)
}

/// What is wrong with a file that `redb` refuses. Other versions of intertie are told apart by the
/// file `format`, so a version that `redb` does not know is damage too.
fn damage(error: &DatabaseError) -> String {
    match error {
        DatabaseError::UpgradeRequired(version) => {
            format!("it is damaged: it names version {version}, which was never written")
        }
        DatabaseError::Storage(StorageError::Io(_)) => {
            "it is damaged: it does not begin as it should, or is cut off".to_owned()
        }
        error => format!("it is damaged: {error}"),
    }
}

fn unreadable(error: redb::Error) -> Refusal {
    Refusal::Unreadable(error.to_string())
}

fn answer_all(staged: Vec<Staged>, written: &Result<(), Refusal>) {
    for Staged { place, answer, .. } in staged {
        drop(place);
        // Whoever asked may have gone away.
        let _ = answer.send(written.clone());
    }
}

/// Makes all changes in one commit, from which on this generation of the log counts.
fn write<'a>(
    database: &Database,
    changes: impl Iterator<Item = Parts<'a>>,
    generation: Option<u64>,
) -> Result<(), redb::Error> {
    let mut of_tables: BTreeMap<&str, Vec<Parts<'a>>> = BTreeMap::new();
    for change in changes {
        of_tables.entry(change.0).or_default().push(change);
    }
    let transaction = database.begin_write()?;
    for (name, changes) in of_tables {
        let mut table: Table<&[u8], &[u8]> = transaction.open_table(Definition::new(name))?;
        for (_, key, value) in changes {
            match value {
                Some(value) => drop(table.insert(&**key, &**value)?),
                None => drop(table.remove(&**key)?),
            }
        }
    }
    if let Some(generation) = generation {
        let mut table = transaction.open_table(Definition::new(GENERATIONS))?;
        table.insert(GENERATION, &generation.to_le_bytes()[..])?;
    }
    transaction.commit()?;
    Ok(())
}

fn get(database: &Database, table: &str, key: &[u8]) -> Result<Option<Bytes>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(Definition::new(table)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let value = table.get(key)?;
    Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
}

fn scan(
    database: &Database,
    table: &str,
    prefix: &[u8],
    after: Option<&[u8]>,
    most: usize,
) -> Result<Vec<(Bytes, Bytes)>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(Definition::new(table)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let start = after.map_or(prefix, |after| after.max(prefix));
    let mut found = Vec::new();
    let mut size = 0;
    for pair in table.range(start..)? {
        let (key, value) = pair?;
        let (key, value) = (key.value(), value.value());
        if !key.starts_with(prefix) || found.len() >= most || size >= SCAN_MAX {
            break;
        }
        if after.is_none_or(|after| key > after) {
            size += key.len() + value.len();
            found.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
        }
    }
    Ok(found)
}
