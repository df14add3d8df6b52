//! Topics are opened in two phases, as plans are served: first all that can fail, for all of them,
//! then what is noticed of it.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use super::{Hub, OpenError, tidy};
use crate::log::{Log, LogParts};
use crate::settings::Durability;
use crate::store::memory::new_epoch;
use crate::store::{Answer, Found, Store, StoreError};
use crate::topic::Topic;
use crate::webhooks;

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
    /// Webhooks that nobody has known before.
    webhooks: Vec<webhooks::Opened>,
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
            webhooks: Vec::new(),
        };
        if let Err(error) = prepared.make_new(&waiting).await {
            prepared.withdraw().await;
            return Err(error);
        }
        if let Err(error) = prepared.add_all(waiting).await {
            prepared.withdraw().await;
            return Err(error);
        }
        if let Err(error) = prepared.open_webhooks().await {
            prepared.withdraw().await;
            return Err(error);
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

/// A log that has entries, before they have been looked at.
struct Unread {
    topic: Arc<Topic>,
    parts: LogParts,
    found: Found,
}

impl PreparedTopics {
    /// Gets the logs of topics. Stores and the threads that may block are asked for all of them at
    /// once: a hand-over for each topic would take most of the time of a start.
    async fn add_all(&mut self, topics: Vec<Arc<Topic>>) -> Result<(), OpenError> {
        let (mut unread, mut names) = (Vec::new(), HashSet::new());
        let (mut kept, mut asked) = (Vec::new(), Vec::new());
        for topic in topics {
            // The second one of a name has the log of the first.
            if names.contains(topic.name()) {
                self.read_all(std::mem::take(&mut unread)).await?;
                names.clear();
            }
            if let Some(log) = self.served(&topic) {
                // As it is: a disk that takes nothing any more says so here.
                asked.push(log.store.declare(&log.stored_as, log.kept()));
                kept.push(Arc::clone(topic.name()));
                self.push(topic, log);
                continue;
            }
            let (parts, found) = self.parts(&topic).await?;
            if found.first < found.next {
                names.insert(Arc::clone(topic.name()));
                unread.push(Unread {
                    topic,
                    parts,
                    found,
                });
                continue;
            }
            let log = Log::recover(parts, found).map_err(failed(topic.name()))?;
            self.push(topic, Arc::new(log));
        }
        self.read_all(unread).await?;
        for (name, answer) in kept.iter().zip(all(asked).await) {
            answer.map_err(failed(name))?;
        }
        Ok(())
    }

    /// The log of a topic's name that goes on with the topic.
    fn served(&self, topic: &Topic) -> Option<Arc<Log>> {
        let settings = topic.settings();
        self.log_of(topic)
            .filter(|log| log.payload == settings.payload && log.durability == settings.durability)
    }

    /// What the log of a topic is made of, and what the store has of it.
    async fn parts(&mut self, topic: &Arc<Topic>) -> Result<(LogParts, Found), OpenError> {
        let settings = *topic.settings();
        let store = self.hub.store(topic)?;
        let stored_as = match settings.durability {
            Durability::Disk => Arc::clone(topic.name()),
            // A log of the same name may be served, and what it has is nothing to this one.
            Durability::Memory => format!("{} {}", topic.name(), new_epoch()).into(),
        };
        let found = match store.find(&stored_as) {
            Some(found) => found,
            None => {
                let made = store.declare(&stored_as, settings.kept()).await;
                let made = made.map_err(failed(topic.name()))?;
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
        Ok((parts, found))
    }

    /// Finds out where webhooks are, and notes where new ones begin.
    async fn open_webhooks(&mut self) -> Result<(), OpenError> {
        for (topic, log) in &self.topics {
            let failed = |why| OpenError::Topic(topic.name().to_string(), why);
            if let (Some(managed), Some(keyed)) = (topic.managed(), self.hub.keyed()) {
                let opened = managed.subscriptions.open(log, keyed, &managed.keys).await;
                opened.map_err(failed)?;
            }
            let endpoints = topic.webhooks();
            if endpoints.is_empty() {
                continue;
            }
            let is_on_disk = topic.settings().durability == Durability::Disk;
            let keyed = self.hub.keyed().filter(|_| is_on_disk);
            let opened = webhooks::open(log, endpoints, keyed).await;
            self.webhooks.push(opened.map_err(failed)?);
        }
        Ok(())
    }

    /// Reads what the store has of these topics.
    async fn read_all(&mut self, unread: Vec<Unread>) -> Result<(), OpenError> {
        let Some(first) = unread.first().map(|it| Arc::clone(it.topic.name())) else {
            return Ok(());
        };
        let read = move || {
            let logs = unread.into_iter().map(|it| {
                let log = Log::recover(it.parts, it.found);
                let log = log.map_err(failed(it.topic.name()))?;
                Ok((it.topic, Arc::new(log)))
            });
            logs.collect::<Result<Vec<_>, OpenError>>()
        };
        let read = tokio::task::spawn_blocking(read).await;
        let logs =
            read.map_err(|error| OpenError::Topic(first.to_string(), error.to_string()))??;
        for (topic, log) in logs {
            self.push(topic, log);
        }
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
        let (mut making, mut asked) = (Vec::new(), Vec::new());
        for topic in topics {
            let name = topic.name();
            let store = self.hub.store(topic)?;
            let settings = topic.settings();
            let is_new = settings.durability == Durability::Disk && store.find(name).is_none();
            if is_new && names.insert(Arc::clone(name)) {
                asked.push(store.declare(name, settings.kept()));
                making.push((store, Arc::clone(name)));
            }
        }
        let mut result = Ok(());
        for ((store, name), made) in making.into_iter().zip(all(asked).await) {
            let made = made.map(drop).map_err(failed(&name));
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

    /// Lets requests name the topics. To be called before workers get the plan, so that nobody is
    /// told that a topic of it does not exist; [`Self::withdraw`] takes it back.
    pub fn serve(&self) {
        self.set_served(true);
    }

    fn set_served(&self, is_served: bool) {
        for (topic, _) in &self.topics {
            topic.set_served(is_served);
        }
        self.hub.note_change();
    }

    /// Has the new settings hold, and ends logs that are served no more: their subscribers come
    /// back to the new ones. A disk that fails now is logged, and keeps what it has kept before.
    pub async fn commit(self) {
        self.serve();
        let asked = self.topics.iter().map(|(topic, log)| {
            let kept = log.kept_as(topic.settings(), &topic.holders());
            log.store.declare(&log.stored_as, kept)
        });
        let kept = all(asked.collect()).await;
        for ((topic, log), kept) in self.topics.into_iter().zip(kept) {
            let settings = *topic.settings();
            if let Err(error) = kept {
                let topic = &**topic.name();
                tracing::error!(target: "topics", topic, %error, "what is kept has not changed");
            }
            log.set_settings(settings);
            log.set_holders(topic.holders());
            let before = topic.slot().log();
            topic.slot().set_log(&log);
            if let (Some(managed), Some(keyed)) = (topic.managed(), self.hub.keyed()) {
                managed.subscriptions.set_challenges(managed.challenges());
                managed.subscriptions.reseal(keyed, &managed.keys).await;
            }
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
        self.set_served(false);
        for opened in self.webhooks {
            opened.withdraw().await;
        }
        for (store, name) in self.made {
            // Nothing that has been published is thrown away: a worker may have had the plan.
            let is_empty = store.find(&name).is_some_and(|found| found.next == 1);
            if is_empty && let Err(error) = store.remove(&name).await {
                tracing::warn!(target: "topics", topic = &*name, %error, "an empty log stays");
            }
        }
    }
}

/// What a failure of a store means for a topic.
fn failed(name: &Arc<str>) -> impl FnOnce(StoreError) -> OpenError {
    let name = name.to_string();
    move |error| OpenError::Topic(name, error.to_string())
}

/// Asks for all of these in their order, and then waits for the answers: a store that writes does
/// so once for many.
async fn all<T>(answers: Vec<Answer<T>>) -> Vec<Result<T, StoreError>> {
    let mut asked = Vec::with_capacity(answers.len());
    for mut answer in answers {
        let ready = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        asked.push((answer, ready));
    }
    let mut results = Vec::with_capacity(asked.len());
    for (answer, ready) in asked {
        results.push(match ready {
            Poll::Ready(result) => result,
            Poll::Pending => answer.await,
        });
    }
    results
}
