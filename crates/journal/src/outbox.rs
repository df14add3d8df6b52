//! The journal as those see it who store messages and take them: any thread, without blocking.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use batch_channel::Sender;
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::asking::{self, Answer};
use crate::backlog::Backlog;
use crate::disk::Disk;
use crate::error::{OpenError, Refusal};
use crate::keeper::{self, Command, Keeper};

/// The most bytes that wait to be written.
const QUEUED_MAX: u64 = 256 << 20;
/// What one message takes beside its bytes while it waits.
const QUEUED_EACH: u64 = 256;

/// In which order the messages of a queue are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The one that is due first, whatever becomes of the others.
    #[default]
    None,
    /// Those of one key one after the other, as they were stored; those without a key as they come.
    ByKey,
    /// All one after the other, as they were stored.
    All,
}

/// How much a queue may have, dead messages included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How many messages.
    pub count: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// What a queue has, and what has happened to its messages since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages that are to be taken, or that somebody has.
    pub waiting: u64,
    /// Messages that nobody takes any more.
    pub dead: u64,
    /// What both take, in bytes.
    pub bytes: u64,
    /// When the oldest of those waiting was stored, in milliseconds since 1970 began.
    pub oldest: Option<u64>,
    /// Messages stored since the start.
    pub stored: u64,
    /// Messages that are done since the start.
    pub delivered: u64,
    /// Messages put back since the start.
    pub retried: u64,
    /// Messages buried since the start.
    pub buried: u64,
}

/// A message that nobody takes any more, or that waits, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub id: u64,
    /// The same as the world sees it.
    pub name: String,
    /// When it was stored, in milliseconds since 1970 began.
    pub stored: u64,
    /// When it may be taken, in milliseconds since 1970 began; 0 for at once.
    pub due: u64,
    /// How often it has been taken in vain.
    pub attempts: u32,
    /// How many bytes it has.
    pub size: u32,
    /// Why nobody takes it any more, when that is so.
    pub dead: Option<String>,
}

/// How files are kept.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How large a file gets before another one is begun, in bytes.
    pub segment_max: u64,
    /// How often it is looked whether files hold little that is needed.
    pub tidy_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_max: 16 << 20,
            tidy_every: Duration::from_secs(5),
        }
    }
}

/// The durable store of messages on their way out. Copies are the same one.
#[derive(Clone)]
pub struct Outbox(Arc<Shared>);

struct Shared {
    commands: Sender<Command>,
    /// How many bytes wait to be written.
    queued: Arc<Backlog>,
    stats: SharedStats,
    has_failed: Arc<AtomicBool>,
    epoch: u64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.commands.send(Command::Close);
    }
}

/// What the thread that writes tells everybody.
pub(crate) type SharedStats = Arc<Mutex<BTreeMap<String, Stats>>>;

impl Outbox {
    /// Opens the store and starts the thread that writes to it.
    ///
    /// # Errors
    /// When the disk fails, or when the files are not as they have been written.
    pub fn open(disk: Box<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let stats = SharedStats::default();
        let queued = Arc::new(Backlog::new(QUEUED_MAX));
        let (commands, receiver) = batch_channel::channel();
        let keeper = Keeper::open(disk, options, Arc::clone(&stats))?;
        let has_failed = keeper.has_failed();
        let epoch = keeper.epoch();
        let thread = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || keeper.run(&receiver))
            .map_err(OpenError::disk("start a thread"))?;
        Ok(Self(Arc::new(Shared {
            commands,
            queued,
            stats,
            has_failed,
            epoch,
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// Ends the thread that writes, for all copies, and waits for it: what has been asked before is
    /// done, the folder is free.
    pub fn close(&self) {
        // It may have ended already.
        let _ = self.0.commands.send(Command::Close);
        let thread = self.0.thread.lock();
        let thread = thread.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!("the store's thread has panicked");
        }
    }

    /// Stores a message. When it gives the message's number, the message is on the disk.
    ///
    /// # Errors
    /// Why it is not stored.
    pub async fn append(
        &self,
        queue: &str,
        key: Bytes,
        body: Bytes,
        room: Room,
    ) -> Result<u64, Refusal> {
        let size = body.len() as u64 + key.len() as u64 + QUEUED_EACH;
        let place = self.0.queued.take(size)?;
        let queue = queue.to_owned();
        self.ask(|answer| Command::Append {
            queue,
            key,
            body,
            room,
            place,
            answer,
        })
        .await
    }

    /// Takes up to `most` messages, as soon as there is one that is due. Whoever has one is the
    /// only one.
    ///
    /// # Errors
    /// When the store is poisoned or closed.
    pub async fn take(
        &self,
        queue: &str,
        order: Order,
        most: usize,
    ) -> Result<Vec<Delivery>, Refusal> {
        let queue = queue.to_owned();
        let commands = self.0.commands.clone();
        self.ask(|answer| Command::Take {
            queue,
            order,
            most,
            commands,
            answer,
        })
        .await
    }

    /// Whether nothing is stored or delivered any more before a restart, since the disk has failed.
    pub fn has_failed(&self) -> bool {
        self.0.has_failed.load(Ordering::Relaxed)
    }

    /// What a queue has.
    pub fn stats(&self, queue: &str) -> Stats {
        self.all_stats().get(queue).copied().unwrap_or_default()
    }

    /// What all queues have, by their names.
    pub fn all_stats(&self) -> BTreeMap<String, Stats> {
        let stats = self.0.stats.lock();
        stats.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The messages of a queue, the oldest first: the dead ones, or those that wait.
    ///
    /// # Errors
    /// When the store is closed.
    pub async fn list(&self, queue: &str, is_dead: bool) -> Result<Vec<Listed>, Refusal> {
        let queue = queue.to_owned();
        self.ask(|answer| Command::List {
            queue,
            is_dead,
            answer,
        })
        .await
    }

    /// What a message of a queue is.
    ///
    /// # Errors
    /// `Gone` when there is none, `Unreadable` when it is damaged.
    pub async fn read(&self, queue: &str, id: u64) -> Result<(Listed, Bytes), Refusal> {
        let queue = queue.to_owned();
        self.ask(|answer| Command::Read { queue, id, answer }).await
    }

    /// Has dead messages taken again, as if they were new. Gives how many there were of them.
    ///
    /// # Errors
    /// Why it has not been done.
    pub async fn revive(&self, queue: &str, ids: Vec<u64>) -> Result<usize, Refusal> {
        self.dead(queue, ids, true).await
    }

    /// Drops dead messages. Gives how many there were of them.
    ///
    /// # Errors
    /// Why it has not been done.
    pub async fn drop_dead(&self, queue: &str, ids: Vec<u64>) -> Result<usize, Refusal> {
        self.dead(queue, ids, false).await
    }

    async fn dead(&self, queue: &str, ids: Vec<u64>, revive: bool) -> Result<usize, Refusal> {
        let queue = queue.to_owned();
        self.ask(|answer| Command::Dead {
            queue,
            ids,
            revive,
            answer,
        })
        .await
    }

    /// The number of a message that this run has stored as the world sees it: no other message has
    /// it, of no other store either, nor of this one after a copy of it has been put back.
    pub fn name(&self, id: u64) -> String {
        keeper::name(self.0.epoch, id)
    }

    async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Result<T, Refusal> {
        asking::ask(&self.0.commands, command).await
    }
}

/// What becomes of a message that has been taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// It is done.
    Done,
    /// It is taken again after this time, at most a day.
    Back(Duration),
    /// Nobody takes it any more, for this reason.
    Bury(String),
}

/// A message that has been taken. Dropped without being settled, it can be taken again as if it had
/// not been.
#[derive(Debug)]
pub struct Delivery {
    /// Its number.
    pub id: u64,
    /// The same as the world sees it; whenever it is taken.
    pub name: String,
    /// How often it has been taken in vain before.
    pub attempts: u32,
    /// When it was stored, in milliseconds since 1970 began.
    pub stored: u64,
    /// What was stored, or why it cannot be read.
    pub body: Result<Bytes, Refusal>,
    lease: u64,
    commands: Sender<Command>,
    is_settled: Cell<bool>,
}

impl Delivery {
    pub(crate) fn new(
        (id, lease, name): (u64, u64, String),
        (attempts, stored): (u32, u64),
        body: Result<Bytes, Refusal>,
        commands: Sender<Command>,
    ) -> Self {
        Self {
            id,
            name,
            attempts,
            stored,
            body,
            lease,
            commands,
            is_settled: Cell::new(false),
        }
    }

    /// Says what becomes of it. It is on the disk then.
    ///
    /// # Errors
    /// Why it is not; it can be said again.
    pub async fn settle(&self, how: Settle) -> Result<(), Refusal> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Settle {
            id: self.id,
            lease: self.lease,
            how,
            answer,
        };
        self.commands.send(command).map_err(|_| Refusal::Closed)?;
        let settled = answered.await.unwrap_or(Err(Refusal::Closed));
        self.is_settled.set(settled.is_ok());
        settled
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.is_settled.get() {
            let (id, lease) = (self.id, self.lease);
            // When nobody listens any more, nobody takes messages either.
            let _ = self.commands.send(Command::Release { id, lease });
        }
    }
}
