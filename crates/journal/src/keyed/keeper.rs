//! The thread that has the file of keyed state. It commits on another one (`commits`), one commit
//! at a time, so that what goes to the log beside the file does not wait for the disk meanwhile.

use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

use allocator::Release;
use batch_channel::{Receiver, Sender};
use bytes::Bytes;
use redb::{Database, DatabaseError, StorageError};
use tokio::sync::oneshot;

use super::ahead::{Files, WriteAhead};
use super::backend::Backend;
use super::commits::{Job, Outcome, Scan};
use super::database::{LogMark, ReplayRange, Tag, get, write};
use super::frames::{self, LogContent, LogEnd};
use super::{Change, Durability, Place};
use crate::asking::Answer;
use crate::backlog::Queued;
use crate::disk::DiskFile;
use crate::error::{OpenError, RESTORE, Refusal};
use crate::log::{random, write_again};
use crate::refusals::Refusals;

/// The most bytes that `redb` keeps in memory of the file. The system's page cache has more.
const CACHE_MAX: usize = 4 << 20;
/// The most requests that are answered together.
const ROUND_MAX: usize = 4096;

/// What is asked of the thread.
pub(super) enum Command {
    Write(Staged),
    Get(Read),
    Scan(Scan),
    Close(Option<oneshot::Sender<()>>),
    /// The commit that was under way is over.
    Committed(Box<Outcome>),
}

/// A value that somebody asks for.
pub(super) struct Read {
    pub table: Arc<str>,
    pub key: Bytes,
    pub place: Queued,
    pub answer: Answer<Option<Bytes>>,
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
    /// Not there when it has to be opened again. It ends before its place is given up.
    database: Option<Arc<Database>>,
    place: Box<dyn Place>,
    /// Whether an `fsync` has failed.
    has_failed: Arc<AtomicBool>,
    /// What the database has not got yet.
    ahead: WriteAhead,
    /// The mark that the database has if the commit that failed turns out to be durable.
    unsure: Option<LogMark>,
    /// Where commits are made.
    jobs: Sender<Job>,
    is_committing: bool,
    /// What the next commit has, in the order in which it was asked for, and its keys.
    staged: Vec<Staged>,
    keys: HashSet<(Arc<str>, Bytes)>,
    /// What is read behind the next commit.
    scans: Vec<Scan>,
    /// What could not be read while a commit was failing: again behind it.
    reads: Vec<Read>,
    /// What the disk has refused of the log, and of commits.
    log_refusals: Refusals,
    commit_refusals: Refusals,
    closing: Option<Option<oneshot::Sender<()>>>,
}

impl Keeper {
    pub fn open(place: Box<dyn Place>, jobs: Sender<Job>) -> Result<Self, OpenError> {
        let mut keeper = Self {
            path: place.path(),
            place,
            database: None,
            has_failed: Arc::new(AtomicBool::new(false)),
            ahead: WriteAhead::default(),
            unsure: None,
            jobs,
            is_committing: false,
            staged: Vec::new(),
            keys: HashSet::new(),
            scans: Vec::new(),
            reads: Vec::new(),
            log_refusals: Refusals::default(),
            commit_refusals: Refusals::default(),
            closing: None,
        };
        let was_made = keeper.place.is_made();
        let database = keeper.open_database(true)?;
        keeper.recover(&database, was_made)?;
        keeper.database = Some(Arc::new(database));
        Ok(keeper)
    }

    /// Has in the database what an earlier process has left in the log beside it. The log of a
    /// database that is new, or whose loss is accepted, may be missing.
    fn recover(&mut self, database: &Database, was_made: bool) -> Result<(), OpenError> {
        let mark = self.mark_of(database)?;
        let mut files: Files = [None, None];
        for (number, file) in files.iter_mut().enumerate() {
            let opened = self.place.ahead(number, false);
            *file = opened.map_err(self.doing("open the log of"))?;
        }
        if mark == LogMark::unused() {
            self.ahead.begin(files);
            return Ok(());
        }
        let content = match mark.tag {
            Tag::Unused => LogContent::default(),
            _ => {
                self.miss_log(mark, &files, was_made)?;
                let content = frames::read(&files, mark);
                content.map_err(self.doing("read the log of"))?
            }
        };
        self.report(content.end);
        // Also where it has nothing: what stands in it must not follow what is written anew.
        let changes = frames::parts(&content.values);
        let written = write(database, changes, Some(LogMark::unused()));
        written.map_err(|error| self.doing("write to")(std::io::Error::other(error)))?;
        self.ahead.begin(files);
        Ok(())
    }

    /// What the database says of the log beside it.
    fn mark_of(&self, database: &Database) -> Result<LogMark, OpenError> {
        let mark = LogMark::read(database);
        mark.map_err(|error| OpenError::Keyed(self.path.clone(), error.to_string()))
    }

    /// A file of the log may be missing. Where it may have had changes that were acknowledged, that
    /// is refused, or told where loss is accepted.
    fn miss_log(&self, mark: LogMark, files: &Files, was_made: bool) -> Result<(), OpenError> {
        // Version 4 of the part had one file.
        let needed = match mark.replayed {
            ReplayRange::From(_) => 2,
            ReplayRange::Generation(_) => 1,
        };
        let Some(number) = files.iter().take(needed).position(Option::is_none) else {
            return Ok(());
        };
        let log = self.place.ahead_path(number);
        match (mark.tag, mark.replayed) {
            (Tag::Random(_), _) if was_made => {
                let why = format!("it is missing, with changes of the last second; {RESTORE}");
                return Err(OpenError::Keyed(log, why));
            }
            // Version 3 of the part did not note whether it was needed.
            (Tag::Absent, ReplayRange::Generation(0)) => {}
            _ => tracing::warn!(
                file = %log.display(),
                "the log beside keyed state is missing: its last changes may be lost"
            ),
        }
        Ok(())
    }

    /// Says where the log ends otherwise than it should.
    fn report(&self, end: LogEnd) {
        let path = |number| self.place.ahead_path(number);
        match end {
            LogEnd::Whole => {}
            LogEnd::Torn(position) => tracing::warn!(
                file = %path(position.file).display(), at = position.at,
                "the log beside keyed state ends with a change that is not whole, which is left \
                 out: it was being written when the process or the machine stopped"
            ),
            LogEnd::Broken(position) => tracing::error!(
                file = %path(position.file).display(), at = position.at,
                "the log beside keyed state is damaged: there are changes behind the damage, \
                 which are lost"
            ),
            LogEnd::Missing(number) => tracing::error!(
                file = %path(0).display(), number,
                "the log beside keyed state lacks a change: there are changes behind it, which are \
                 lost"
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
        let written = write(&database, std::iter::empty(), Some(LogMark::unused()));
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
        let release = Release::default();
        while self.closing.is_none() {
            let due = self.ahead.due().filter(|_| !self.is_committing);
            let first = match due {
                None => {
                    let next = release.receive(commands);
                    next.map_err(|_| RecvTimeoutError::Disconnected)
                }
                Some(due) => {
                    release.look();
                    commands.recv_timeout(due.saturating_duration_since(Instant::now()))
                }
            };
            let first = match first {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let more: Vec<Command> = commands.try_iter().take(ROUND_MAX).collect();
            self.take_round(first.into_iter().chain(more));
            self.start_commit();
        }
        self.end(commands);
    }

    /// Does what was asked, but for what a commit has to do.
    fn take_round(&mut self, commands: impl Iterator<Item = Command>) {
        let (mut quick, mut reads) = (Vec::new(), Vec::new());
        for command in commands {
            match command {
                Command::Committed(outcome) => self.committed(*outcome),
                // What comes behind the end is not answered.
                _ if self.closing.is_some() => {}
                Command::Write(write) if self.has_to_wait(&write) => self.stage(write),
                Command::Write(write) => quick.push(write),
                Command::Scan(scan) => self.scans.push(scan),
                Command::Close(answer) => self.closing = Some(answer),
                Command::Get(read) => reads.push(read),
            }
        }
        if !quick.is_empty() {
            let changes = quick.iter().flat_map(|it| it.changes.iter().cloned());
            let written = self.append(changes.collect());
            answer_all(quick, &written);
        }
        reads.into_iter().for_each(|read| self.read(read));
    }

    fn read(&mut self, read: Read) {
        let value = self.value(&read.table, &read.key);
        if matches!(value, Err(Refusal::Unreadable(_))) {
            // The database reads nothing more once a write of it has failed.
            if self.is_committing {
                return self.reads.push(read);
            }
            self.database = None;
        }
        let Read { place, answer, .. } = read;
        drop(place);
        // Whoever asked may have gone away.
        let _ = answer.send(value);
    }

    /// Whether changes are to be in the next commit: since they have to be on the disk, or stand
    /// behind others of the same key that have to, or since the log takes none now.
    fn has_to_wait(&self, write: &Staged) -> bool {
        let log_has_to = self.ahead.is_full() || self.is_committing && !self.ahead.is_in_use();
        let follows = |it: &Change| {
            let (table, key, _) = it.parts();
            self.keys.contains(&(Arc::clone(table), key.clone()))
        };
        write.durability == Durability::Disk
            || log_has_to
            || !self.keys.is_empty() && write.changes.iter().any(follows)
    }

    fn stage(&mut self, write: Staged) {
        let keys = write.changes.iter().map(Change::parts);
        self.keys
            .extend(keys.map(|it| (Arc::clone(it.0), it.1.clone())));
        self.staged.push(write);
    }

    /// Starts the next commit, with all changes and scans that wait for one, unless one is running.
    fn start_commit(&mut self) {
        let now = Instant::now();
        let is_due = self.ahead.is_due(now);
        if self.is_committing || !is_due && self.staged.is_empty() && self.scans.is_empty() {
            return;
        }
        let database = match self.database() {
            Ok(database) => Arc::clone(database),
            Err(refusal) => {
                self.ahead.put_off(now);
                return self.refuse(&refusal);
            }
        };
        // Later changes of a key must not be behind those that stand in the log only.
        let is_mixed = self
            .keys
            .iter()
            .any(|it| self.ahead.get(&it.0, &it.1).is_some());
        let is_scanned = self.scans.iter().any(|it| self.ahead.has(&it.table));
        let tag = self.tag_of_commit();
        let is_begun = tag != self.ahead.mark.tag;
        let is_checkpoint = is_due || is_mixed || is_scanned || is_begun || self.ahead.is_full();
        let checkpoint = is_checkpoint.then(|| {
            let (values, replayed) = self.ahead.begin_checkpoint();
            (values, LogMark { replayed, tag })
        });
        self.keys.clear();
        let job = Job {
            database,
            checkpoint,
            staged: std::mem::take(&mut self.staged),
            scans: std::mem::take(&mut self.scans),
        };
        // The thread is there as long as this one: it catches what panics.
        self.is_committing = self.jobs.send(job).is_ok();
    }

    /// The log's tag after the next commit. A log that is not in use yet is taken into use by a
    /// commit with changes that were meant for it: while commits follow each other without a pause,
    /// changes could otherwise never be appended.
    fn tag_of_commit(&mut self) -> Tag {
        let is_quick = |it: &Staged| it.durability == Durability::Process;
        let is_wanted = !self.ahead.is_in_use() && self.staged.iter().any(is_quick);
        match is_wanted && self.make_log().is_ok() {
            true => Tag::Random(random()),
            false => self.ahead.mark.tag,
        }
    }

    /// Nothing can be committed now.
    fn refuse(&mut self, refusal: &Refusal) {
        self.keys.clear();
        answer_all(std::mem::take(&mut self.staged), &Err(refusal.clone()));
        for Scan { place, answer, .. } in std::mem::take(&mut self.scans) {
            drop(place);
            let _ = answer.send(Err(refusal.clone()));
        }
    }

    /// The commit that was under way is over.
    fn committed(&mut self, outcome: Outcome) {
        self.is_committing = false;
        if outcome.has_panicked {
            self.has_failed.store(true, Ordering::Relaxed);
            let database = AssertUnwindSafe(self.database.take());
            // It may panic again.
            let _ = panic::catch_unwind(move || drop(database));
        }
        let has_changes = outcome.next.is_some() || !outcome.staged.is_empty();
        let written = outcome.written.map_err(|error| self.failed(&error));
        if written.is_ok() && has_changes {
            self.tell_committed();
        }
        match (outcome.next, &written) {
            (None, _) => {}
            (Some(next), Ok(())) => self.ahead.checkpointed(next),
            (Some(next), Err(_)) => {
                self.unsure = Some(next);
                self.ahead.put_off(Instant::now());
            }
        }
        answer_all(outcome.staged, &written);
        for (Scan { place, answer, .. }, found) in outcome.scans {
            drop(place);
            let found = written.clone().and_then(|()| found.map_err(unreadable));
            let _ = answer.send(found);
        }
        let reads = std::mem::take(&mut self.reads);
        reads.into_iter().for_each(|read| self.read(read));
    }

    /// Everything that was asked for before the end is done, and the database has what is in the
    /// log.
    fn end(mut self, commands: &Receiver<Command>) {
        loop {
            self.start_commit();
            if !self.is_committing {
                break;
            }
            match commands.recv() {
                Ok(Command::Committed(outcome)) => self.committed(*outcome),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        if self.ahead.is_in_use() {
            // What cannot be taken along is in the log for whoever opens it next.
            let _ = self.commit_now(Tag::Unused);
        }
        let closing = self.closing.take().flatten();
        // Whoever is told so may open the file at once.
        drop(self);
        if let Some(answer) = closing {
            let _ = answer.send(());
        }
    }

    /// The database, opened again when that is needed.
    fn database(&mut self) -> Result<&Arc<Database>, Refusal> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(Refusal::Poisoned("a commit has failed; restart".to_owned()));
        }
        if self.database.is_none() {
            let opened = self.open_again();
            let opened = opened.map_err(|error| Refusal::NoSpace(error.to_string()));
            self.database = Some(Arc::new(opened?));
        }
        self.database.as_ref().ok_or(Refusal::Closed)
    }

    /// Opens the file again after a commit that has failed. Some fail when they are durable: then
    /// the database has the checkpoint, and says so.
    fn open_again(&mut self) -> Result<Database, OpenError> {
        let database = self.open_database(false)?;
        let mark = self.mark_of(&database)?;
        if self.unsure == Some(mark) {
            self.ahead.checkpointed(mark);
        } else if mark == self.ahead.mark {
            self.ahead.checkpoint_failed(Instant::now());
        } else {
            let why = "it is not the file that it was before a commit failed; restart";
            return Err(OpenError::Keyed(self.path.clone(), why.to_owned()));
        }
        self.unsure = None;
        Ok(database)
    }

    /// Commits what is in the log, on this thread, and the database says that it has this tag from
    /// then on. No other commit is under way.
    fn commit_now(&mut self, tag: Tag) -> Result<(), Refusal> {
        let database = Arc::clone(self.database()?);
        let (values, replayed) = self.ahead.begin_checkpoint();
        let mark = match tag {
            Tag::Unused => LogMark::unused(),
            _ => LogMark { replayed, tag },
        };
        let written = write(&database, frames::parts(&values), Some(mark));
        drop(database);
        match written {
            Ok(()) => {
                self.ahead.checkpointed(mark);
                self.tell_committed();
                Ok(())
            }
            Err(error) => {
                self.unsure = Some(mark);
                Err(self.failed(&error))
            }
        }
    }

    /// Has changes in the log beside the database.
    fn append(&mut self, changes: Vec<Change>) -> Result<(), Refusal> {
        self.use_log()?;
        let appended = self.ahead.append(changes, Instant::now());
        appended.map_err(|error| self.not_appended(&error))?;
        if let Some(refused) = self.log_refusals.accepted(Instant::now()) {
            tracing::info!(refused, "the log beside keyed state is written again");
        }
        Ok(())
    }

    /// Has the log ready. What is appended counts only when it is known what the database says of
    /// the log, and it says that there is one.
    fn use_log(&mut self) -> Result<(), Refusal> {
        self.database()?;
        self.make_log()?;
        match self.ahead.is_in_use() {
            true => Ok(()),
            false => self.commit_now(Tag::Random(random())),
        }
    }

    /// Makes the files of the log that are not there.
    fn make_log(&mut self) -> Result<(), Refusal> {
        for number in 0..self.ahead.files.len() {
            let file = self.ahead.files.get_mut(number).filter(|it| it.is_none());
            let Some(file) = file else { continue };
            match self.place.ahead(number, true) {
                Ok(made) => *file = made,
                Err(error) => return Err(self.not_appended(&error)),
            }
        }
        Ok(())
    }

    fn not_appended(&mut self, error: &std::io::Error) -> Refusal {
        if self.log_refusals.refused((), 1, Instant::now()) {
            let file = self.path.display();
            tracing::error!(
                %error, %file,
                "the log beside keyed state cannot be written; more failures are counted, not \
                 logged"
            );
        }
        Refusal::NoSpace(error.to_string())
    }

    /// Tells the log that the disk takes commits again, when it did not.
    fn tell_committed(&mut self) {
        if let Some(refused) = self.commit_refusals.accepted(Instant::now()) {
            tracing::info!(refused, "keyed state is written again");
        }
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
            false if !self.commit_refusals.refused((), 1, Instant::now()) => {}
            false => tracing::error!(
                %error, %file,
                "keyed state cannot be written; more failures are counted, not logged"
            ),
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
