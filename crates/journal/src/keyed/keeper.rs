//! The thread that has the file of keyed state.

use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use bytes::Bytes;
use redb::{Database, DatabaseError, StorageError};
use tokio::sync::oneshot;

use super::ahead::{LogContent, LogEnd, WriteAhead};
use super::backend::Backend;
use super::database::{LogMark, Tag, get, scan, write};
use super::{Change, Durability, Place};
use crate::asking::Answer;
use crate::backlog::Queued;
use crate::disk::DiskFile;
use crate::error::{OpenError, RESTORE, Refusal};
use crate::log::{chance, write_again};

/// The most bytes that `redb` keeps in memory of the file.
const CACHE_MAX: usize = 16 << 20;
/// The most requests that are answered together.
const ROUND_MAX: usize = 4096;

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
        let was_made = keeper.place.is_made();
        let database = keeper.open_database(true)?;
        keeper.take_along(&database, was_made)?;
        keeper.database = Some(database);
        Ok(keeper)
    }

    /// Has in the database what an earlier process has left in the log beside it. The log of a
    /// database that is new, or whose loss is accepted, may be missing.
    fn take_along(&mut self, database: &Database, was_made: bool) -> Result<(), OpenError> {
        let mark = self.mark_of(database)?;
        let file = self.place.ahead(false);
        let file = file.map_err(self.doing("open the log of"))?;
        let content = match (&file, mark.tag) {
            (_, Tag::Unused) => {
                self.ahead.file = file;
                self.ahead.begin(mark);
                return Ok(());
            }
            (None, _) => {
                self.miss_log(mark, was_made)?;
                LogContent::default()
            }
            (Some(file), _) => {
                let content = WriteAhead::read(&**file, mark);
                content.map_err(self.doing("read the log of"))?
            }
        };
        self.report(content.end);
        // Also where it has nothing: what stands in it must not follow what is written anew.
        let next = mark.next(Tag::Unused);
        let changes = content.values.iter();
        let changes = changes.map(|((table, key), value)| (table, key, value.as_ref()));
        let written = write(database, changes, Some(next));
        written.map_err(|error| self.doing("write to")(std::io::Error::other(error)))?;
        self.ahead.file = file;
        self.ahead.begin(next);
        Ok(())
    }

    /// What the database says of the log beside it.
    fn mark_of(&self, database: &Database) -> Result<LogMark, OpenError> {
        let mark = LogMark::read(database);
        mark.map_err(|error| OpenError::Keyed(self.path.clone(), error.to_string()))
    }

    /// The log is not there. Where it may have had changes that were acknowledged, that is refused,
    /// or told where loss is accepted.
    fn miss_log(&self, mark: LogMark, was_made: bool) -> Result<(), OpenError> {
        let log = self.path.with_extension("log");
        match mark.tag {
            Tag::Random(_) if was_made => {
                let why = format!("it is missing, with changes of the last second; {RESTORE}");
                return Err(OpenError::Keyed(log, why));
            }
            // Version 3 of the part did not note whether it was needed.
            Tag::Absent if mark.generation == 0 => {}
            _ => tracing::warn!(
                file = %log.display(),
                "the log beside keyed state is missing: its last changes may be lost"
            ),
        }
        Ok(())
    }

    /// Says where the log ends otherwise than it should.
    fn report(&self, end: LogEnd) {
        let file = self.path.with_extension("log");
        let file = file.display();
        match end {
            LogEnd::Whole => {}
            LogEnd::Torn(at) => tracing::warn!(
                %file, at,
                "the log beside keyed state ends with a change that is not whole, which is left \
                 out: it was being written when the process or the machine stopped"
            ),
            LogEnd::Broken(at) => tracing::error!(
                %file, at,
                "the log beside keyed state is damaged: there are changes behind the damage, \
                 which are lost"
            ),
        }
    }

    /// Opens the file. At the start all of it is written again: after a failed `fsync` the system
    /// may show what is only in memory.
    fn open_database(&mut self, is_start: bool) -> Result<Database, OpenError> {
        let opened = self.place.open().map_err(self.doing("open"))?;
        let path = self.path.clone();
        let lost = |why: &str| OpenError::Keyed(path, why.to_owned());
        let file = match opened {
            Some(file) => file,
            None if self.place.is_made() => return Err(lost(&format!("it is missing; {RESTORE}"))),
            None => self.make()?,
        };
        // It gets its name when something stands in it.
        if file.size().map_err(self.doing("read"))? == 0 {
            return Err(lost(&format!("it is empty; {RESTORE}")));
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
        let database = self.with(begun)?;
        let mark = LogMark::default().next(Tag::Unused);
        let written = write(&database, std::iter::empty(), Some(mark));
        written.map_err(|error| self.doing("make")(std::io::Error::other(error)))?;
        drop(database);
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
        if self.ahead.is_in_use() {
            // What cannot be taken along is in the log for whoever opens it next.
            let _ = self.commit(std::iter::empty(), Some(Tag::Unused));
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
            let opened = self.open_again();
            let opened = opened.map_err(|error| Refusal::NoSpace(error.to_string()));
            self.database = Some(opened?);
        }
        self.database.as_ref().ok_or(Refusal::Closed)
    }

    /// Opens the file again after a commit that has failed. Some fail when they are durable: then
    /// the database has what was taken along, and names the next generation.
    fn open_again(&mut self) -> Result<Database, OpenError> {
        let database = self.open_database(false)?;
        let (mark, before) = (self.mark_of(&database)?, self.ahead.mark);
        if mark.generation == before.generation + 1 {
            self.ahead.begin(mark);
        } else if mark != before {
            let why = "it is not the file that it was before a commit failed; restart";
            return Err(OpenError::Keyed(self.path.clone(), why.to_owned()));
        }
        Ok(database)
    }

    /// Has everything that is staged where it has to be, and answers.
    fn keep_staged(&mut self) {
        let staged = std::mem::take(&mut self.staged);
        let now = Instant::now();
        if self.ahead.is_due(now) || self.is_mixed(&staged) {
            let changes = staged.iter().flat_map(|it| &it.changes);
            let written = self.commit(changes, Some(self.ahead.mark.tag));
            if written.is_err() {
                self.ahead.put_off(now);
            }
            return answer_all(staged, &written);
        }
        let is_durable = |it: &Staged| it.durability == Durability::Disk;
        let (durable, quick): (Vec<Staged>, Vec<Staged>) = staged.into_iter().partition(is_durable);
        if !durable.is_empty() {
            let changes = durable.iter().flat_map(|it| &it.changes);
            let written = self.commit(changes, None);
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

    /// Makes changes in one commit. It takes along those that the database has not got yet where it
    /// is said which tag the log has from then on.
    fn commit<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a Change>,
        tag: Option<Tag>,
    ) -> Result<(), Refusal> {
        self.database()?;
        let Some(database) = &self.database else {
            return Err(Refusal::Closed);
        };
        let next = tag.map(|tag| self.ahead.mark.next(tag));
        let values = self.ahead.values().iter().filter(|_| next.is_some());
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
        self.use_log()?;
        let appended = self.ahead.append(changes, now);
        appended.map_err(|error| self.not_appended(&error))
    }

    /// Has the log ready. What is appended counts only when it is known what the database says of
    /// the log, and it says that there is one.
    fn use_log(&mut self) -> Result<(), Refusal> {
        self.database()?;
        if self.ahead.file.is_none() {
            let made = self.place.ahead(true);
            self.ahead.file = made.map_err(|error| self.not_appended(&error))?;
        }
        match self.ahead.is_in_use() {
            true => Ok(()),
            false => self.commit(std::iter::empty(), Some(Tag::Random(chance()))),
        }
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
                    true => self.commit(std::iter::empty(), Some(self.ahead.mark.tag)),
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
