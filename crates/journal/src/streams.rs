//! Streams of entries that are kept for a while: what topics stand on. Any thread appends and
//! waits without blocking; whoever reads does so on its own thread, beside the one that writes.
//!
//! What is known of an entry without reading the disk takes 24 bytes of memory.

mod epochs;
mod index;
mod read;
mod record;
mod slots;
mod state;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

use batch_channel::Sender;
use bytes::Bytes;

use crate::asking::{self, Answer};
use crate::backlog::Backlog;
use crate::disk::Disk;
use crate::error::{OpenError, ReadError, Refusal};
pub use epochs::Epochs;
use state::State;
use writer::{Command, Writer};

/// The most bytes that wait to be written.
const QUEUED_MAX: u64 = 256 << 20;
/// The most bytes of the entries of one call.
const APPEND_MAX: u64 = 64 << 20;
/// The most entries of one call.
const ENTRIES_MAX: usize = 1 << 20;
/// What an entry takes beside its bytes while it waits.
const QUEUED_EACH: u64 = 128;
/// The most bytes of a stream's name.
const NAME_MAX: usize = 512;
/// The most streams there may be.
const STREAMS_MAX: usize = 100_000;

/// How files are kept.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// How large a file gets before another one is begun, in bytes; at most 1 GiB.
    pub segment_max: u64,
    /// How often it is looked whether entries are too old, and whether files hold little that is
    /// needed.
    pub tidy_every: Duration,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            segment_max: 64 << 20,
            tidy_every: Duration::from_secs(1),
        }
    }
}

/// How much of a stream is kept. The last entry always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// At most so many entries.
    pub events: u64,
    /// At most so many bytes, with 32 for each entry beside its key and body.
    pub bytes: u64,
    /// Entries not older than this.
    pub time: Option<Duration>,
    /// Entries from this one on are kept whatever the rest says: somebody needs them.
    /// [`u64::MAX`] when nobody does.
    pub from: u64,
}

/// What is there of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// A random number: the epoch of the next entry.
    pub epoch: u64,
    /// The number of the oldest entry that is kept; the same as `next` when there is none.
    pub first: u64,
    /// The number of the next entry.
    pub next: u64,
    /// How many entries are kept.
    pub events: u64,
    /// What they take, in bytes, with 32 for each beside its key and body.
    pub bytes: u64,
}

/// An entry that is to be kept.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// The stream's name.
    pub stream: Arc<str>,
    /// The number that comes next in the stream.
    pub sequence: u64,
    /// When it came, in milliseconds since 1970 began.
    pub at_ms: u64,
    /// What whoever appends makes of it.
    pub kind: u8,
    /// At most 65,535 bytes, such as what tells a message that comes twice.
    pub key: Bytes,
    /// What it says.
    pub body: Bytes,
}

/// An entry as it was appended. Those of one call of [`Streams::read`] share their memory: whoever
/// keeps one for long copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub sequence: u64,
    /// When it came, in milliseconds since 1970 began.
    pub at_ms: u64,
    /// What was said when it was appended.
    pub kind: u8,
    /// What was said when it was appended.
    pub key: Bytes,
    /// What it says.
    pub body: Bytes,
}

/// What the files of all streams have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// How many streams there are.
    pub streams: u64,
    /// How many files there are.
    pub files: u64,
    /// How many bytes the files have.
    pub file_bytes: u64,
    /// How many bytes of them are of entries that are kept.
    pub kept_bytes: u64,
    /// How often something has been written since the start, each time with one `fsync`.
    pub writes: u64,
    /// How long all these writes took, in microseconds.
    pub write_micros: u64,
    /// Whether nothing is written any more before a restart.
    pub is_poisoned: bool,
}

/// The durable store of streams. Copies are the same one.
#[derive(Clone)]
pub struct Streams(Arc<Shared>);

struct Shared {
    commands: Sender<Command>,
    state: SharedState,
    /// How many bytes wait to be written.
    queued: Arc<Backlog>,
    counts: Arc<Counts>,
    /// A random number that all files have.
    tag: u64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.commands.send(Command::Close(None));
    }
}

/// What those who read and the one who writes know.
#[derive(Clone, Default)]
struct SharedState(Arc<RwLock<State>>);

impl SharedState {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread that writes counts for everybody.
#[derive(Default)]
struct Counts {
    file_bytes: AtomicU64,
    writes: AtomicU64,
    write_micros: AtomicU64,
    is_poisoned: AtomicU64,
}

impl Streams {
    /// Opens the store and starts the thread that writes to it.
    ///
    /// # Errors
    /// When the disk fails, or when the files are not as they have been written.
    pub fn open(disk: Box<dyn Disk>, options: StreamOptions) -> Result<Self, OpenError> {
        let state = SharedState::default();
        let counts = Arc::new(Counts::default());
        let (commands, receiver) = batch_channel::channel();
        let writer = Writer::open(disk, options, state.clone(), Arc::clone(&counts))?;
        let tag = writer.tag();
        thread::Builder::new()
            .name("topics-disk".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(OpenError::disk("start a thread"))?;
        Ok(Self(Arc::new(Shared {
            commands,
            state,
            queued: Arc::new(Backlog::new(QUEUED_MAX)),
            counts,
            tag,
        })))
    }

    /// What is there of a stream.
    pub fn find(&self, name: &str) -> Option<StreamInfo> {
        let state = self.0.state.read();
        state.stream(name).map(|(_, stream)| stream.info())
    }

    /// The epochs of a stream, with the one that the next entry has.
    pub fn epochs(&self, name: &str) -> Option<Epochs> {
        let state = self.0.state.read();
        state.stream(name).map(|(_, stream)| stream.epochs())
    }

    /// Whether nothing is written any more before a restart, since the disk has failed.
    pub fn has_failed(&self) -> bool {
        self.0.counts.is_poisoned.load(Ordering::Relaxed) > 0
    }

    /// All streams by their names, those too that nobody has declared since the start.
    pub fn all(&self) -> Vec<(Arc<str>, StreamInfo)> {
        let state = self.0.state.read();
        let streams = state.streams.values();
        let streams = streams.map(|stream| (Arc::clone(&stream.name), stream.info()));
        streams.collect()
    }

    /// What the files have come to.
    pub fn stats(&self) -> StreamStats {
        let counts = &self.0.counts;
        let state = self.0.state.read();
        StreamStats {
            streams: state.streams.len() as u64,
            files: state.segments.len() as u64,
            file_bytes: counts.file_bytes.load(Ordering::Relaxed),
            kept_bytes: state.live(),
            writes: counts.writes.load(Ordering::Relaxed),
            write_micros: counts.write_micros.load(Ordering::Relaxed),
            is_poisoned: counts.is_poisoned.load(Ordering::Relaxed) > 0,
        }
    }

    /// Makes the stream when it is not there, which is durable then, and says what is kept of it
    /// from now on. What is kept of a stream that nobody declares stays as it is.
    ///
    /// # Errors
    /// Why it is not made.
    pub async fn declare(&self, name: &str, keep: Keep) -> Result<StreamInfo, Refusal> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Refusal::TooLarge("a stream's name has 1 to 512 bytes"));
        }
        let place = self.0.queued.take(QUEUED_EACH + name.len() as u64)?;
        let name = name.into();
        self.ask(|answer| Command::Declare {
            name,
            keep,
            place,
            answer,
        })
        .await
    }

    /// Has entries on the disk: all of them, or none. What else waits goes with them in one write
    /// and one `fsync`. The entries of a stream have the numbers that come next.
    ///
    /// # Errors
    /// Why none is there.
    pub async fn append(&self, entries: Vec<NewEntry>) -> Result<(), Refusal> {
        let sizes = entries
            .iter()
            .map(|entry| (entry.key.len(), (entry.key.len() + entry.body.len()) as u64));
        let mut size = 0_u64;
        for (key, bytes) in sizes {
            size = size.saturating_add(bytes);
            if key > usize::from(u16::MAX) {
                return Err(Refusal::TooLarge("a key has at most 65,535 bytes"));
            }
        }
        if size > APPEND_MAX || entries.len() > ENTRIES_MAX {
            return Err(Refusal::TooLarge(
                "at most 64 MiB and 1,048,576 entries are appended at once",
            ));
        }
        if entries.is_empty() {
            return Ok(());
        }
        let place = self
            .0
            .queued
            .take(size + QUEUED_EACH * entries.len() as u64)?;
        self.ask(|answer| Command::Append {
            entries,
            place,
            answer,
        })
        .await
    }

    /// The entries of a stream from this number on, the oldest first: as many as have about so
    /// many bytes, but at least one where there is one. None when the number is the next one.
    ///
    /// It blocks: call it off the workers. Every entry is checked against its checksum. When one
    /// that is not the first is damaged, those before it are given; the next call tells.
    ///
    /// # Errors
    /// When the first one is not there, not there any more, or cannot be read.
    pub fn read(&self, name: &str, from: u64, bytes_max: usize) -> Result<Vec<Entry>, ReadError> {
        read::entries(&self.0.state, self.0.tag, name, from, bytes_max)
    }

    /// The newest entry of this kind at or before a number; `None` when none is kept. It does not
    /// read the disk, but may look at all entries.
    ///
    /// # Errors
    /// When there is no such stream.
    pub fn last_of_kind(
        &self,
        name: &str,
        kind: u8,
        at_most: u64,
    ) -> Result<Option<u64>, ReadError> {
        read::last_of_kind(&self.0.state, name, kind, at_most)
    }

    /// The keys of entries that came at or after a time, in milliseconds since 1970 began, and are
    /// kept, with their numbers, the oldest first. It blocks.
    ///
    /// # Errors
    /// When there is no such stream, or an entry cannot be read.
    pub fn keys(&self, name: &str, since_ms: u64) -> Result<Vec<(Bytes, u64)>, ReadError> {
        read::keys(&self.0.state, self.0.tag, name, since_ms)
    }

    /// Removes a stream with all its entries. One that is made later under its name has another
    /// epoch. Nothing happens when there is none.
    ///
    /// # Errors
    /// Why it is not removed.
    pub async fn remove(&self, name: &str) -> Result<(), Refusal> {
        let place = self.0.queued.take(QUEUED_EACH + name.len() as u64)?;
        let name = name.to_owned();
        self.ask(|answer| Command::Remove {
            name,
            place,
            answer,
        })
        .await
    }

    /// Ends the thread that writes, for all copies, and waits for it: what has been asked before
    /// is done, the files can be opened again.
    pub async fn close(&self) {
        asking::close(&self.0.commands, Command::Close).await;
    }

    async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Result<T, Refusal> {
        asking::ask(&self.0.commands, command).await
    }
}
