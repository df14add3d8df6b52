//! Small keyed state: tables by name, in one file of `redb`. One thread has it, and another makes
//! its commits: the changes of all who wait are one, and then all are answered.
//!
//! A commit whose `fsync` fails ends all writing until a restart, as in the log. One that fails
//! before, since the disk is full, is refused, and the file is opened again: `redb` goes on only
//! then.
//!
//! What has to outlive only the process is not committed at once ([`Durability::Process`]): a log
//! beside the file has it until a commit takes it along (`ahead`).

mod ahead;
mod backend;
mod commits;
mod database;
mod frames;
mod keeper;

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use batch_channel::Sender;
use bytes::Bytes;

use crate::asking::{self, Answer};
use crate::backlog::Backlog;
use crate::disk::DiskFile;
use crate::error::{OpenError, Refusal};
use crate::folder::KeyedFile;
use commits::Scan;
use keeper::{Command, Keeper, Read, Staged};

/// The most bytes that wait to be written.
const QUEUED_MAX: u64 = 64 << 20;
/// What a request takes beside its bytes while it waits.
const QUEUED_EACH: u64 = 256;
/// The most bytes of a table's name and of a key.
const KEY_MAX: usize = 4096;
/// The most bytes of a value.
const VALUE_MAX: usize = 16 << 20;

/// The most bytes of one write, with all its changes.
const WRITE_MAX: u64 = 1 << 30;

/// What is changed in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The value of a key is this one from now on. The table is made when it is not there.
    Put {
        /// The table's name.
        table: Arc<str>,
        /// The key.
        key: Bytes,
        /// Its value.
        value: Bytes,
    },
    /// The key has no value any more.
    Delete {
        /// The table's name.
        table: Arc<str>,
        /// The key.
        key: Bytes,
    },
}

/// What changes have to outlive when they are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The machine: they have been synced to the disk.
    #[default]
    Disk,
    /// The process, however it ends. When the machine stops, those of the last second or so may be
    /// lost: the oldest are kept, up to some point.
    Process,
}

impl Change {
    /// Its table and key with the value that they have then.
    fn into_value(self) -> ((Arc<str>, Bytes), Option<Bytes>) {
        match self {
            Self::Put { table, key, value } => ((table, key), Some(value)),
            Self::Delete { table, key } => ((table, key), None),
        }
    }

    /// Its table, key and value.
    fn parts(&self) -> (&Arc<str>, &Bytes, Option<&Bytes>) {
        match self {
            Self::Put { table, key, value } => (table, key, Some(value)),
            Self::Delete { table, key } => (table, key, None),
        }
    }
}

/// Where the file is.
pub(crate) trait Place: Send {
    /// Opens the file, as often as it has to be; `None` when it is not there.
    fn open(&mut self) -> io::Result<Option<Box<dyn DiskFile>>>;

    /// Begins an empty file that is to become it.
    fn begin(&mut self) -> io::Result<Box<dyn DiskFile>>;

    /// What has been begun is the file from now on, also after a crash.
    fn finish(&mut self) -> io::Result<()>;

    /// Opens a file of the log beside it, of which there are two, by number from 0; `None` when it
    /// is not there and is not to be made. One that is there is so after a crash too.
    fn ahead(&mut self, number: usize, make: bool) -> io::Result<Option<Box<dyn DiskFile>>>;

    /// The path of that file.
    fn ahead_path(&self, number: usize) -> PathBuf {
        let extension = match number {
            0 => "log",
            _ => "log-2",
        };
        self.path().with_extension(extension)
    }

    /// Its path, for what is said about it.
    fn path(&self) -> PathBuf;

    /// Whether it has been there before.
    fn is_made(&self) -> bool;

    /// Notes that it is there, durably: from here on it is damage when it is not.
    fn made(&mut self) -> io::Result<()>;
}

/// The keyed state of a data folder. Copies are the same one.
#[derive(Clone)]
pub struct Keyed(Arc<Shared>);

struct Shared {
    commands: Sender<Command>,
    /// How many bytes wait to be written.
    queued: Arc<Backlog>,
    has_failed: Arc<AtomicBool>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.commands.send(Command::Close(None));
    }
}

impl Keyed {
    /// Opens the file, reads all of it to see that it is as it was written, and starts the thread
    /// that works on it.
    ///
    /// # Errors
    /// When the disk fails, or when the file is damaged or of something else.
    pub fn open(file: KeyedFile) -> Result<Self, OpenError> {
        Self::with(Box::new(file))
    }

    /// The same for any file.
    pub(crate) fn with(place: Box<dyn Place>) -> Result<Self, OpenError> {
        let (commands, receiver) = batch_channel::channel();
        let (jobs, to_commit) = batch_channel::channel();
        let keeper = Keeper::open(place, jobs)?;
        let has_failed = keeper.has_failed();
        let outcomes = commands.clone();
        thread::Builder::new()
            .name("keyed-commits".to_owned())
            .spawn(move || commits::run(&to_commit, &outcomes))
            .map_err(OpenError::disk("start a thread"))?;
        thread::Builder::new()
            .name("keyed".to_owned())
            .spawn({
                let has_failed = Arc::clone(&has_failed);
                move || {
                    let run = AssertUnwindSafe(|| keeper.run(&receiver));
                    if panic::catch_unwind(run).is_err() {
                        has_failed.store(true, Ordering::Relaxed);
                    }
                }
            })
            .map_err(OpenError::disk("start a thread"))?;
        Ok(Self(Arc::new(Shared {
            commands,
            queued: Arc::new(Backlog::new(QUEUED_MAX)),
            has_failed,
        })))
    }

    /// Whether nothing is written any more before a restart, since the disk has failed.
    pub fn has_failed(&self) -> bool {
        self.0.has_failed.load(Ordering::Relaxed)
    }

    /// The value of a key in a table, as it is after all that has been answered.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn get(&self, table: &str, key: &[u8]) -> Result<Option<Bytes>, Refusal> {
        let place = self.0.queued.take(QUEUED_EACH + key.len() as u64)?;
        let (table, key) = (table.into(), Bytes::copy_from_slice(key));
        self.ask(|answer| {
            Command::Get(Read {
                table,
                key,
                place,
                answer,
            })
        })
        .await
    }

    /// Gives a key of a table a value. It is on the disk then.
    ///
    /// # Errors
    /// Why it may not be.
    pub async fn put(&self, table: &str, key: Bytes, value: Bytes) -> Result<(), Refusal> {
        let table = table.into();
        self.write(vec![Change::Put { table, key, value }]).await
    }

    /// Takes the value of a key away. That is on the disk then.
    ///
    /// # Errors
    /// Why it may not be.
    pub async fn delete(&self, table: &str, key: Bytes) -> Result<(), Refusal> {
        let table = table.into();
        self.write(vec![Change::Delete { table, key }]).await
    }

    /// Makes changes, one after the other: all of them are on the disk then, or none.
    ///
    /// # Errors
    /// Why they may not be.
    pub async fn write(&self, changes: Vec<Change>) -> Result<(), Refusal> {
        self.write_with(changes, Durability::Disk).await
    }

    /// The same for changes that may have to outlive less.
    ///
    /// # Errors
    /// Why they may not be.
    pub async fn write_with(
        &self,
        changes: Vec<Change>,
        durability: Durability,
    ) -> Result<(), Refusal> {
        let mut size = QUEUED_EACH;
        for (table, key, value) in changes.iter().map(Change::parts) {
            let value = value.map_or(0, Bytes::len);
            if table.is_empty() || table.len() > KEY_MAX || key.len() > KEY_MAX {
                return Err(Refusal::TooLarge(
                    "the name of a table has 1 to 4096 bytes, a key at most 4096",
                ));
            }
            if value > VALUE_MAX {
                return Err(Refusal::TooLarge("a value has at most 16 MiB"));
            }
            size += QUEUED_EACH + (table.len() + key.len() + value) as u64;
        }
        if size > WRITE_MAX {
            return Err(Refusal::TooLarge("one write has at most 1 GiB"));
        }
        let place = self.0.queued.take(size)?;
        self.ask(|answer| {
            Command::Write(Staged {
                changes,
                durability,
                place,
                answer,
            })
        })
        .await
    }

    /// The keys of a table that begin like this, with their values, in the order of their bytes:
    /// at most so many, and at most about 16 MiB of them, behind the key `after` where one is
    /// given.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn scan(
        &self,
        table: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        most: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, Refusal> {
        let place = self.0.queued.take(QUEUED_EACH + prefix.len() as u64)?;
        let table = table.into();
        let prefix = Bytes::copy_from_slice(prefix);
        let after = after.map(Bytes::copy_from_slice);
        self.ask(|answer| {
            Command::Scan(Scan {
                table,
                prefix,
                after,
                most,
                place,
                answer,
            })
        })
        .await
    }

    /// Ends the thread that writes, for all copies, and waits for it: what has been asked before
    /// is done, the file can be opened again.
    pub async fn close(&self) {
        asking::close(&self.0.commands, Command::Close).await;
    }

    async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Result<T, Refusal> {
        asking::ask(&self.0.commands, command).await
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Keyed state as earlier versions wrote it.

    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::Change;
    use super::backend::Backend;
    use super::database::{LogMark, ReplayRange, Tag, write};
    use super::frames::frame;
    use crate::disk::DiskFile;

    /// Writes a database of version 3, or of version 4 where there is a tag, with these changes, at
    /// this generation; gives the bytes of the log beside it with these frames.
    pub fn old_folder(
        file: Box<dyn DiskFile>,
        changes: &[Change],
        (generation, tag): (u64, Option<u64>),
        frames: &[Vec<Change>],
    ) -> Vec<u8> {
        let tag = tag.map_or(Tag::Absent, Tag::Random);
        let mark = LogMark {
            replayed: ReplayRange::Generation(generation),
            tag,
        };
        let backend = Backend::new(file, Arc::new(AtomicBool::new(false)));
        let database = redb::Database::builder()
            .create_with_backend(backend)
            .unwrap();
        write(&database, changes.iter().map(Change::parts), Some(mark)).unwrap();
        frames
            .iter()
            .flat_map(|it| frame(generation, tag, it))
            .collect()
    }
}
