//! All topics of the process: documents name them when they are loaded, whoever serves the plan
//! opens them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use component::state::{State, StateKey, States};
use journal::{Keyed, Streams};

use crate::log::{Log, LogParts, Slot};
use crate::sequencer::Sequencer;
use crate::settings::{Durability, Settings};
use crate::store::journal::JournalStore;
use crate::store::memory::MemoryStore;
use crate::store::{Store, StoreError};
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
}

/// What is on the disk: events, and how far those who take them have come.
struct Disk {
    store: Arc<dyn Store>,
    /// Absent in tests.
    keyed: Option<Keyed>,
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
        topics.retain(|it| it.strong_count() > 0);
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
        let store = Arc::new(JournalStore::new(streams)) as _;
        // Whoever was faster has opened the same folder.
        let keyed = Some(keyed);
        let _ = self.disk.set(Disk { store, keyed });
    }

    /// The same with any store.
    #[cfg(test)]
    pub(crate) fn set_store(&self, store: Arc<dyn Store>) {
        let _ = self.disk.set(Disk { store, keyed: None });
    }

    /// The keyed state of the data folder, when that is open.
    pub(crate) fn keyed(&self) -> Option<&Keyed> {
        self.disk.get()?.keyed.as_ref()
    }

    /// Opens the topics that have been declared since: from here on they take publications.
    ///
    /// # Errors
    /// When one cannot be opened. Those before it are open then.
    pub async fn open(self: &Arc<Self>) -> Result<(), OpenError> {
        for topic in self.waiting() {
            let name = topic.name().to_string();
            let log = self.log(&topic).await?;
            if log.name.as_ref() != name {
                return Err(OpenError::Topic(name, "it is another one".to_owned()));
            }
            log.set_settings(*topic.settings());
            topic.slot().set_log(&log);
            // Nobody else opens topics meanwhile.
            let _ = topic.log.set(log);
        }
        let there: Vec<Arc<Topic>> = self.topics().iter().filter_map(Weak::upgrade).collect();
        let in_memory = |it: &Arc<Topic>| it.settings().durability == Durability::Memory;
        self.memory.retain(|name| {
            let mut there = there.iter().filter(|it| in_memory(it));
            there.any(|it| **it.name() == *name)
        });
        if !self.is_tidied.swap(true, Ordering::Relaxed) {
            tokio::spawn(tidy(Arc::downgrade(self)));
        }
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

    /// The log of a topic: the one that is there, or that of the store.
    async fn log(&self, topic: &Topic) -> Result<Arc<Log>, OpenError> {
        let failed =
            |error: StoreError| OpenError::Topic(topic.name().to_string(), error.to_string());
        let settings = *topic.settings();
        let store: Arc<dyn Store> = match settings.durability {
            Durability::Memory => Arc::clone(&self.memory) as _,
            Durability::Disk => {
                let disk = self.disk.get().map(|disk| Arc::clone(&disk.store));
                disk.ok_or_else(|| OpenError::NoFolder(topic.name().to_string()))?
            }
        };
        self.check_durability(topic)?;
        let before = topic.slot().log();
        let is_same = |log: &Arc<Log>| {
            log.payload == settings.payload && log.durability == settings.durability
        };
        if let Some(log) = before.as_ref().filter(|log| is_same(log)) {
            let kept = store.declare(topic.name(), settings.kept()).await;
            kept.map_err(failed)?;
            return Ok(Arc::clone(log));
        }
        if settings.durability == Durability::Memory {
            // What another payload has left is nothing to this one.
            store.remove(topic.name()).await.map_err(failed)?;
        }
        let found = store.declare(topic.name(), settings.kept()).await;
        let found = found.map_err(failed)?;
        let parts = LogParts {
            name: Arc::clone(topic.name()),
            settings,
            slot: Arc::clone(topic.slot()),
            store,
            sequencer: self.sequencer()?,
        };
        let recovered = tokio::task::spawn_blocking(move || Log::recover(parts, found)).await;
        let log = recovered
            .map_err(|error| OpenError::Topic(topic.name().to_string(), error.to_string()))?;
        if let Some(before) = before {
            before.end();
        }
        Ok(Arc::new(log.map_err(failed)?))
    }

    /// Events on the disk are not forgotten because a document says `memory` now.
    fn check_durability(&self, topic: &Topic) -> Result<(), OpenError> {
        let on_disk = self
            .disk
            .get()
            .and_then(|disk| disk.store.find(topic.name()));
        let has_events = on_disk.is_some_and(|found| found.next > 1);
        if !has_events || topic.settings().durability == Durability::Disk {
            return Ok(());
        }
        let why = "its events are on the disk, and it says `durability: memory` now: give the \
                   topic another name, or leave its durability as it was";
        Err(OpenError::Topic(topic.name().to_string(), why.to_owned()))
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
        // It may read the disk.
        let tidied = tokio::task::spawn_blocking(move || {
            for log in logs {
                if let Err(error) = log.expire() {
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
