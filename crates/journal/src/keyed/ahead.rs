//! Changes that have to outlive the process, not the machine: they are answered when they are in a
//! file, without an `fsync`, and are in memory until a checkpoint: a commit that writes all of them
//! to the database.
//!
//! A commit takes as long as the disk needs, and others write meanwhile. So there are two files,
//! and the frames in them are numbered: a commit says which is the first that the database has not
//! got ([`LogMark`]), those of later changes go to the other file, and this one is emptied behind
//! it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Change;
use super::database::{LogMark, ReplayRange, Tag};
use super::frames::{Values, frame};
use crate::disk::DiskFile;

/// How many bytes of frames make it time for a commit. Tests come to it soon.
const SIZE_MAX: u64 = if cfg!(test) { 4 << 10 } else { 1 << 20 };
/// How many bytes of frames the database may lack: the disk is too slow for more, or no commit
/// succeeds.
const BEHIND_MAX: u64 = 16 * SIZE_MAX;
/// For how long changes are there only.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Where frames are: two files, of which one may not have been made.
pub(super) type Files = [Option<Box<dyn DiskFile>>; 2];

/// The log of changes that the database has not got yet.
pub(super) struct WriteAhead {
    /// Opened when something is to be written to them.
    pub files: Files,
    /// What the database says.
    pub mark: LogMark,
    /// Which file the next frame goes to.
    current: usize,
    /// Where in it.
    at: u64,
    /// The number of the next frame.
    next: u64,
    /// Whether the other file has frames that the database has not got.
    is_other_needed: bool,
    /// Whether a part of the next frame may be in the file, since writing it has failed.
    is_begun: bool,
    /// What no checkpoint has yet.
    values: Values,
    /// What the checkpoint has that is running, or of which it is not known whether it is durable.
    checkpoint: Option<Arc<Values>>,
    /// How many bytes have been appended since the last checkpoint began or failed.
    size: u64,
    /// How many bytes of frames the database lacks.
    behind: u64,
    /// How many of them are in the checkpoint.
    checkpoint_size: u64,
    /// When the oldest change was appended that no checkpoint has, or the last one failed.
    since: Option<Instant>,
}

impl Default for WriteAhead {
    fn default() -> Self {
        Self {
            files: [None, None],
            mark: LogMark::unused(),
            current: 0,
            at: 0,
            next: 1,
            is_other_needed: false,
            is_begun: false,
            values: Values::new(),
            checkpoint: None,
            size: 0,
            behind: 0,
            checkpoint_size: 0,
            since: None,
        }
    }
}

impl WriteAhead {
    /// Whether the database says that there may be frames.
    pub fn is_in_use(&self) -> bool {
        matches!(self.mark.tag, Tag::Random(_))
    }

    /// Whether there is something of a table that the database has not got.
    pub fn has(&self, table: &Arc<str>) -> bool {
        let from = (Arc::clone(table), Bytes::new());
        let is_in = |values: &Values| {
            let mut values = values.range(from.clone()..);
            values.next().is_some_and(|((first, _), _)| first == table)
        };
        is_in(&self.values) || self.checkpoint.as_deref().is_some_and(is_in)
    }

    /// What the database has not got of a key; the inner `None` says that it is taken away.
    pub fn get(&self, table: &Arc<str>, key: &Bytes) -> Option<&Option<Bytes>> {
        let checkpoint = self.checkpoint.as_deref().filter(|it| !it.is_empty());
        if self.values.is_empty() && checkpoint.is_none() {
            return None;
        }
        let name = (Arc::clone(table), key.clone());
        let newest = self.values.get(&name);
        newest.or_else(|| checkpoint.and_then(|it| it.get(&name)))
    }

    /// Whether it is time that the database gets everything.
    pub fn is_due(&self, now: Instant) -> bool {
        self.size >= SIZE_MAX || self.due().is_some_and(|due| due <= now)
    }

    /// When it is time at the latest.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + AGE_MAX)
    }

    /// Whether so much is in the files that the rest has to be committed with it.
    pub fn is_full(&self) -> bool {
        self.behind >= BEHIND_MAX
    }

    /// Has changes in a file: all of them are found in it after the process has ended, or none.
    ///
    /// # Errors
    /// When they could not be written: nothing has changed then.
    pub fn append(&mut self, changes: Vec<Change>, now: Instant) -> io::Result<()> {
        let file = self.files.get(self.current).and_then(Option::as_ref);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        let frame = frame(self.next, self.mark.tag, &changes);
        self.is_begun = true;
        file.write_at(self.at, &frame)?;
        self.is_begun = false;
        self.next += 1;
        self.at += frame.len() as u64;
        self.size += frame.len() as u64;
        self.behind += frame.len() as u64;
        self.values
            .extend(changes.into_iter().map(Change::into_value));
        self.since.get_or_insert(now);
        Ok(())
    }

    /// Begins a checkpoint: the values that it writes, and the number of the first frame that it
    /// does not have.
    pub fn begin_checkpoint(&mut self) -> (Arc<Values>, ReplayRange) {
        let values = Arc::new(std::mem::take(&mut self.values));
        self.checkpoint = Some(Arc::clone(&values));
        (self.size, self.since) = (0, None);
        self.checkpoint_size = self.behind;
        // What may be there of a frame must not stand in one file and again in the other.
        if self.at > 0 && !self.is_other_needed && !self.is_begun {
            self.current = 1 - self.current;
            self.at = 0;
            self.is_other_needed = true;
        }
        (values, ReplayRange::From(self.next))
    }

    /// The checkpoint is durable, and with it what the database says of the log.
    pub fn checkpointed(&mut self, mark: LogMark) {
        self.mark = mark;
        self.checkpoint = None;
        self.behind -= std::mem::take(&mut self.checkpoint_size);
        // Its frames are older than the checkpoint.
        self.empty(1 - self.current);
        self.is_other_needed = false;
        if mark.replayed == ReplayRange::From(self.next) {
            let is_empty = self.empty(self.current);
            // Behind a frame that was begun the next one stands in its place.
            if is_empty || !self.is_begun {
                (self.at, self.is_begun) = (0, false);
            }
        }
    }

    /// The checkpoint has failed: what it had is in the log only, as before.
    pub fn checkpoint_failed(&mut self, now: Instant) {
        if let Some(checkpoint) = self.checkpoint.take() {
            let mut values = Arc::try_unwrap(checkpoint).unwrap_or_else(|it| Values::clone(&it));
            values.append(&mut self.values);
            self.values = values;
        }
        self.put_off(now);
    }

    /// The database could not get everything: it is tried again after a while.
    pub fn put_off(&mut self, now: Instant) {
        let is_left = self.checkpoint.is_some() || !self.values.is_empty();
        (self.size, self.since) = (0, is_left.then_some(now));
    }

    fn empty(&self, file: usize) -> bool {
        let file = self.files.get(file).and_then(Option::as_ref);
        match file.map(|it| it.truncate(0)) {
            None | Some(Ok(())) => true,
            Some(Err(error)) => {
                // What stands in it counts no more.
                tracing::debug!(%error, "the log beside keyed state is not emptied");
                false
            }
        }
    }

    /// The database has everything that counts in the files, and says that no frame counts.
    pub fn begin(&mut self, files: Files) {
        *self = Self {
            files,
            ..Self::default()
        };
        self.empty(0);
        self.empty(1);
    }
}
