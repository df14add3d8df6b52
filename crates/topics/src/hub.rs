//! All topics of the process: documents name them when they are loaded, whoever serves the plan
//! opens them.

mod opening;

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use component::state::{State, StateKey, States};
use journal::{Keyed, Streams};

pub use self::opening::PreparedTopics;
use crate::log::{Log, Slot};
use crate::sequencer::Sequencer;
use crate::settings::{Durability, Settings};
use crate::store::Store;
use crate::store::journal::JournalStore;
use crate::store::memory::MemoryStore;
use crate::topic::Topic;

/// How often it is looked whether snapshots are too old.
const TIDY_EVERY: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5000 });

/// Why topics cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// There is no thread for them.
    Thread(std::io::Error),
    /// A topic on the disk, and no data folder.
    NoFolder(String),
    /// One of them cannot be opened: its name, and why.
    Topic(String, String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(formatter, "no thread for topics: {error}"),
            Self::NoFolder(name) => write!(formatter, "topic {name}: there is no data folder"),
            Self::Topic(name, why) => write!(formatter, "topic {name}: {why}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// All topics of the process.
#[derive(Default)]
pub struct Hub {
    sequencer: OnceLock<Arc<Sequencer>>,
    memory: Arc<MemoryStore>,
    disk: OnceLock<Disk>,
    /// Those that a plan names.
    topics: Mutex<Vec<Weak<Topic>>>,
    /// Whether somebody looks for what is too old.
    is_tidied: AtomicBool,
    /// Counts the changes of which topics can be named.
    changes: Arc<AtomicU64>,
}

/// What is on the disk: events, and how far those who take them have come.
struct Disk {
    store: Arc<dyn Store>,
    /// Absent in tests.
    keyed: Option<Keyed>,
    streams: Option<Streams>,
}

impl State for Hub {}

impl Hub {
    /// The one that belongs to these states.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "topics"), Self::default)
    }

    /// A topic as a document declares it. Opens nothing.
    pub fn declare(
        self: &Arc<Self>,
        name: &str,
        settings: Settings,
        states: &States,
    ) -> Arc<Topic> {
        let slot = states.get(StateKey::shared(name, "topic"), Slot::default);
        let topic = Arc::new(Topic::new(name, settings, slot, Arc::clone(self)));
        let mut topics = self.topics();
        // From time to time: to look at all of them for each would take long.
        if topics.len().is_power_of_two() {
            topics.retain(|it| it.strong_count() > 0);
        }
        topics.push(Arc::downgrade(&topic));
        topic
    }

    fn topics(&self) -> MutexGuard<'_, Vec<Weak<Topic>>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that have to be opened.
    fn waiting(&self) -> Vec<Arc<Topic>> {
        let topics = self.topics();
        let there = topics.iter().filter_map(Weak::upgrade);
        there.filter(|it| it.log.get().is_none()).collect()
    }

    /// Counts the changes of which topics can be named, so that what is gathered of all of them is
    /// gathered again after one.
    pub(crate) fn changes(&self) -> &Arc<AtomicU64> {
        &self.changes
    }

    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether there are topics that have to be opened.
    pub fn has_topics(&self) -> bool {
        !self.waiting().is_empty()
    }

    /// Whether one of them needs the data folder.
    pub fn needs_disk(&self) -> bool {
        let waiting = self.waiting();
        let on_disk = |it: &Arc<Topic>| it.settings().durability == Durability::Disk;
        waiting.iter().any(on_disk)
    }

    /// Whether the data folder is open.
    pub fn has_disk(&self) -> bool {
        self.disk.get().is_some()
    }

    /// From here on topics can be on the disk. The first one stays.
    pub fn set_disk(&self, streams: Streams, keyed: Keyed) {
        let store = Arc::new(JournalStore::new(streams.clone())) as _;
        let streams = Some(streams);
        // Whoever was faster has opened the same folder.
        let keyed = Some(keyed);
        let _ = self.disk.set(Disk {
            store,
            keyed,
            streams,
        });
    }

    /// The same with any store.
    #[cfg(test)]
    pub(crate) fn set_store(&self, store: Arc<dyn Store>) {
        let _ = self.disk.set(Disk {
            store,
            keyed: None,
            streams: None,
        });
    }

    /// Whether the disk has failed: topics on it take nothing any more before a restart.
    pub fn has_failed(&self) -> bool {
        self.disk.get().is_some_and(|disk| {
            let streams = disk.streams.as_ref();
            let keyed = disk.keyed.as_ref();
            streams.is_some_and(Streams::has_failed) || keyed.is_some_and(Keyed::has_failed)
        })
    }

    /// What the disk has of a topic.
    #[cfg(test)]
    pub(crate) fn stored(&self, topic: &str) -> Option<crate::store::Found> {
        self.disk.get()?.store.find(topic)
    }

    /// The keyed state of the data folder, when that is open.
    pub(crate) fn keyed(&self) -> Option<&Keyed> {
        self.disk.get()?.keyed.as_ref()
    }

    /// Opens the topics that have been declared since, at once.
    #[cfg(test)]
    pub(crate) async fn open(self: &Arc<Self>) -> Result<(), OpenError> {
        self.prepare().await?.commit().await;
        Ok(())
    }

    /// The logs of topics that are open.
    fn logs(&self) -> Vec<Arc<Log>> {
        let topics = self.topics();
        let there = topics.iter().filter_map(Weak::upgrade);
        there
            .filter_map(|it| it.log.get().map(Arc::clone))
            .collect()
    }

    fn sequencer(&self) -> Result<Arc<Sequencer>, OpenError> {
        if let Some(sequencer) = self.sequencer.get() {
            return Ok(Arc::clone(sequencer));
        }
        let started = Arc::new(Sequencer::start().map_err(OpenError::Thread)?);
        Ok(Arc::clone(self.sequencer.get_or_init(|| started)))
    }

    /// Finishes what waits and closes the stores: whoever publishes later is refused.
    pub async fn close(&self) {
        if let Some(sequencer) = self.sequencer.get().map(Arc::clone) {
            let closed = tokio::task::spawn_blocking(move || sequencer.close()).await;
            if let Err(error) = closed {
                tracing::error!(target: "topics", %error, "topics are not closed");
            }
        }
        if let Some(disk) = self.disk.get() {
            if let Err(error) = disk.store.close().await {
                tracing::error!(target: "topics", %error, "topics are not closed");
            }
            if let Some(keyed) = &disk.keyed {
                keyed.close().await;
            }
        }
    }
}

/// Has snapshots removed that are too old, as long as the hub is there.
async fn tidy(hub: Weak<Hub>) {
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        let Some(hub) = hub.upgrade() else {
            return;
        };
        let logs = hub.logs();
        drop(hub);
        // It may read the disk. One piece of work for all topics: each wakes another thread, which
        // stays for a while after it.
        let tidied = tokio::task::spawn_blocking(move || {
            for log in logs {
                // A panic is told and counted where it happens. Other topics, and later this one,
                // must not grow for ever after it.
                let expire = AssertUnwindSafe(|| log.expire());
                if let Ok(Err(error)) = panic::catch_unwind(expire) {
                    let topic = &*log.name;
                    tracing::warn!(target: "topics", topic, %error, "old events are not removed");
                }
            }
        });
        if tidied.await.is_err() {
            return;
        }
    }
}
