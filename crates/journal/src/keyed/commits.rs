//! The thread that commits: a commit takes as long as the disk needs, and the thread that is asked
//! goes on meanwhile.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use allocator::Release;
use batch_channel::{Receiver, Sender};
use bytes::Bytes;
use redb::Database;

use super::Change;
use super::database::{LogMark, scan, write};
use super::frames::{Values, parts};
use super::keeper::{Command, Staged};
use crate::asking::Answer;
use crate::backlog::Queued;

/// What somebody wants to know of a table.
pub(super) struct Scan {
    pub table: Arc<str>,
    pub prefix: Bytes,
    pub after: Option<Bytes>,
    pub most: usize,
    pub place: Queued,
    pub answer: Answer<Found>,
}

/// Keys with their values.
pub(super) type Found = Vec<(Bytes, Bytes)>;

/// One commit, and what is read behind it.
pub(super) struct Job {
    pub database: Arc<Database>,
    /// What it writes from the log, and what the database says of the log with it.
    pub checkpoint: Option<(Arc<Values>, LogMark)>,
    pub staged: Vec<Staged>,
    pub scans: Vec<Scan>,
}

/// What has come of it.
pub(super) struct Outcome {
    pub next: Option<LogMark>,
    pub staged: Vec<Staged>,
    pub written: Result<(), redb::Error>,
    pub scans: Vec<(Scan, Result<Found, redb::Error>)>,
    /// Whether `redb` has panicked: it may not go on.
    pub has_panicked: bool,
}

/// Works until no more can come.
pub(super) fn run(jobs: &Receiver<Job>, keeper: &Sender<Command>) {
    let release = Release::default();
    while let Ok(job) = release.receive(jobs) {
        let outcome = Command::Committed(Box::new(job.run()));
        if keeper.send(outcome).is_err() {
            return;
        }
    }
}

impl Job {
    fn run(self) -> Outcome {
        let Self {
            database,
            checkpoint,
            staged,
            scans,
        } = self;
        let mut has_panicked = false;
        let written = guarded(&mut has_panicked, || {
            commit(&database, checkpoint.as_ref(), &staged)
        });
        let mut read = |it: Scan| {
            let (table, prefix, after) = (&it.table, &it.prefix, it.after.as_deref());
            let found = || scan(&database, table, prefix, after, it.most);
            let found = guarded(&mut has_panicked, found);
            (it, found)
        };
        let scans = match &written {
            Ok(()) => scans.into_iter().map(&mut read).collect(),
            Err(_) => scans.into_iter().map(|it| (it, Ok(Found::new()))).collect(),
        };
        // The file may be opened again by whoever is told so.
        drop(database);
        Outcome {
            next: checkpoint.map(|it| it.1),
            staged,
            written,
            scans,
            has_panicked,
        }
    }
}

fn commit(
    database: &Database,
    checkpoint: Option<&(Arc<Values>, LogMark)>,
    staged: &[Staged],
) -> Result<(), redb::Error> {
    if checkpoint.is_none() && staged.is_empty() {
        return Ok(());
    }
    let values = checkpoint.into_iter().flat_map(|it| parts(&it.0));
    let changes = staged.iter().flat_map(|it| &it.changes).map(Change::parts);
    write(database, values.chain(changes), checkpoint.map(|it| it.1))
}

/// Whoever waits is answered in any case.
fn guarded<T>(
    has_panicked: &mut bool,
    work: impl FnOnce() -> Result<T, redb::Error>,
) -> Result<T, redb::Error> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        *has_panicked = true;
        Err(redb::Error::Io(io::Error::other("it panicked")))
    })
}
