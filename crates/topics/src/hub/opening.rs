//! Topics are opened in two phases, as plans are served: first all that can fail, for all of them,
//! then what is noticed of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Hub, OpenError, tidy};
use crate::log::{Log, LogParts};
use crate::settings::Durability;
use crate::store::memory::new_epoch;
use crate::store::{Store, StoreError};
use crate::topic::Topic;

/// Topics that can take publications. What is served already stays as it is until they are
/// [committed](Self::commit).
#[must_use = "what is kept changes only on commit, and what was made stays without a withdrawal"]
pub struct PreparedTopics {
    hub: Arc<Hub>,
    topics: Vec<(Arc<Topic>, Arc<Log>)>,
    /// The last of them by their names.
    logs: HashMap<Arc<str>, Arc<Log>>,
    /// What the stores did not have before, by their names for it.
    made: Vec<(Arc<dyn Store>, Arc<str>)>,
}

impl Hub {
    /// Does everything that can fail for the topics that have been declared since. They take
    /// publications then, but nothing changes for those who have a topic of the same name.
    ///
    /// # Errors
    /// When one cannot be opened: then none is.
    pub async fn prepare(self: &Arc<Self>) -> Result<PreparedTopics, OpenError> {
        let waiting = self.waiting();
        for topic in &waiting {
            self.store(topic)?;
            self.check_durability(topic)?;
        }
        let mut prepared = PreparedTopics {
            hub: Arc::clone(self),
            topics: Vec::new(),
            logs: HashMap::new(),
            made: Vec::new(),
        };
        if let Err(error) = prepared.make_new(&waiting).await {
            prepared.withdraw().await;
            return Err(error);
        }
        for topic in waiting {
            if let Err(error) = prepared.add(topic).await {
                prepared.withdraw().await;
                return Err(error);
            }
        }
        for (topic, log) in &prepared.topics {
            // Nobody else opens topics meanwhile.
            let _ = topic.log.set(Arc::clone(log));
        }
        Ok(prepared)
    }

    /// Where the events of a topic are kept.
    fn store(&self, topic: &Topic) -> Result<Arc<dyn Store>, OpenError> {
        match topic.settings().durability {
            Durability::Memory => Ok(Arc::clone(&self.memory) as _),
            Durability::Disk => {
                let disk = self.disk.get().map(|disk| Arc::clone(&disk.store));
                disk.ok_or_else(|| OpenError::NoFolder(topic.name().to_string()))
            }
        }
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
}

impl PreparedTopics {
    /// Gets the log of a topic: the one that is served, or one of what the store has.
    async fn add(&mut self, topic: Arc<Topic>) -> Result<(), OpenError> {
        let failed =
            |error: StoreError| OpenError::Topic(topic.name().to_string(), error.to_string());
        let settings = *topic.settings();
        let store = self.hub.store(&topic)?;
        let served = self
            .log_of(&topic)
            .filter(|log| log.payload == settings.payload && log.durability == settings.durability);
        if let Some(log) = served {
            // As it is: a disk that takes nothing any more says so here.
            let declared = store.declare(&log.stored_as, log.settings().kept());
            declared.await.map_err(failed)?;
            self.push(topic, log);
            return Ok(());
        }
        let stored_as = match settings.durability {
            Durability::Disk => Arc::clone(topic.name()),
            // A log of the same name may be served, and what it has is nothing to this one.
            Durability::Memory => format!("{} {}", topic.name(), new_epoch()).into(),
        };
        let found = match store.find(&stored_as) {
            Some(found) => found,
            None => {
                let made = store.declare(&stored_as, settings.kept()).await;
                let made = made.map_err(failed)?;
                self.made.push((Arc::clone(&store), Arc::clone(&stored_as)));
                made
            }
        };
        let parts = LogParts {
            name: Arc::clone(topic.name()),
            stored_as,
            settings,
            slot: Arc::clone(topic.slot()),
            store,
            sequencer: self.hub.sequencer()?,
        };
        let recovered = tokio::task::spawn_blocking(move || Log::recover(parts, found)).await;
        let log = recovered
            .map_err(|error| OpenError::Topic(topic.name().to_string(), error.to_string()))?;
        let log = Arc::new(log.map_err(failed)?);
        self.push(topic, log);
        Ok(())
    }

    fn push(&mut self, topic: Arc<Topic>, log: Arc<Log>) {
        self.logs.insert(Arc::clone(topic.name()), Arc::clone(&log));
        self.topics.push((topic, log));
    }

    /// Makes logs on the disk for topics that have none, all at once: each alone would wait for a
    /// write of its own.
    async fn make_new(&mut self, topics: &[Arc<Topic>]) -> Result<(), OpenError> {
        let mut names = HashSet::new();
        let mut making = Vec::new();
        for topic in topics {
            let name = topic.name();
            let store = self.hub.store(topic)?;
            let settings = topic.settings();
            let is_new = settings.durability == Durability::Disk && store.find(name).is_none();
            if is_new && names.insert(Arc::clone(name)) {
                let made = tokio::spawn(store.declare(name, settings.kept()));
                making.push((store, Arc::clone(name), made));
            }
        }
        let mut result = Ok(());
        for (store, name, made) in making {
            let failed = |why: String| OpenError::Topic(name.to_string(), why);
            let made = match made.await {
                Ok(made) => made.map(drop).map_err(|error| failed(error.to_string())),
                Err(error) => Err(failed(error.to_string())),
            };
            if made.is_ok() {
                self.made.push((store, name));
            }
            result = result.and(made);
        }
        result
    }

    /// The log that topics of this name have now.
    fn log_of(&self, topic: &Topic) -> Option<Arc<Log>> {
        let prepared = self.logs.get(topic.name()).map(Arc::clone);
        prepared.or_else(|| topic.slot().log())
    }

    /// Has the new settings hold, and ends logs that are served no more: their subscribers come
    /// back to the new ones. A disk that fails now is logged, and keeps what it has kept before.
    pub async fn commit(self) {
        for (topic, log) in self.topics {
            let settings = *topic.settings();
            let kept = log.store.declare(&log.stored_as, settings.kept()).await;
            if let Err(error) = kept {
                let topic = &**topic.name();
                tracing::error!(target: "topics", topic, %error, "what is kept has not changed");
            }
            log.set_settings(settings);
            let before = topic.slot().log();
            topic.slot().set_log(&log);
            if let Some(before) = before.filter(|it| !Arc::ptr_eq(it, &log)) {
                before.end();
            }
        }
        let logs = self.hub.logs();
        let in_memory = logs.iter().filter(|it| it.durability == Durability::Memory);
        let names: HashSet<_> = in_memory.map(|it| &*it.stored_as).collect();
        self.hub.memory.retain(|name| names.contains(name));
        if !self.hub.is_tidied.swap(true, Ordering::Relaxed) {
            tokio::spawn(tidy(Arc::downgrade(&self.hub)));
        }
    }

    /// Leaves no trace, since the plan of the topics is not served.
    pub async fn withdraw(self) {
        for (store, name) in self.made {
            // Nothing that has been published is thrown away: a worker may have had the plan.
            let is_empty = store.find(&name).is_some_and(|found| found.next == 1);
            if is_empty && let Err(error) = store.remove(&name).await {
                tracing::warn!(target: "topics", topic = &*name, %error, "an empty log stays");
            }
        }
    }
}
