//! What the process knows of the subscriptions to its hub.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use component::handler::Services;
use component::state::{Measure, State, StateKey, States};
use journal::{Change as Write, Keyed};
use tokio::sync::{Mutex as Turns, Notify};
use websub::hub::{Change, Hub as Machine, Moment, Record, Restored, Settings};

use super::plan::HubTopic;
use super::record::{self, CURSORS, Left, Vault};
use super::subscriptions::{Access, Subscribed, Subscriptions, add};
use super::verify;
use crate::event::EventId;
use crate::hub::Hub;
use crate::keys;
use crate::log::Log;
use crate::settings::Durability;
use crate::webhooks::hub::{EndpointState, Stored};

/// What is said of a topic whose URL has changed.
const MOVED: &str = "the topic has another URL now";

/// The subscriptions of the process.
pub(crate) struct HubState {
    machine: Mutex<Machine>,
    began: OnceLock<Instant>,
    hub: Arc<Hub>,
    /// The topics by their URLs.
    topics: Mutex<HashMap<Arc<str>, Weak<Subscriptions>>>,
    /// Who writes to the disk: changes get there in the order in which they come.
    turns: Turns<()>,
    vault: tokio::sync::OnceCell<Vault>,
    /// Something has changed that nobody has written.
    pub changed: Notify,
}

impl HubState {
    /// The one of the process.
    pub fn of(states: &States) -> Arc<Self> {
        let hub = Hub::of(states);
        let settings = Settings {
            // Topics have bounds of their own within these.
            lease_min: 1,
            lease_max: 366 * 24 * 3600,
            ..Settings::default()
        };
        states.get(StateKey::shared("", "websub hubs"), || Self {
            machine: Mutex::new(Machine::new(settings)),
            began: OnceLock::new(),
            hub,
            topics: Mutex::default(),
            turns: Turns::new(()),
            vault: tokio::sync::OnceCell::new(),
            changed: Notify::new(),
        })
    }

    /// What is known of subscriptions.
    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What time it is.
    pub fn moment(&self, services: &dyn Services) -> Moment {
        let now = services.now();
        let began = *self.began.get_or_init(|| now);
        Moment {
            wall: services.wall(),
            at: now.saturating_duration_since(began),
        }
    }

    /// The subscriptions to the topic of this URL.
    pub fn topic(&self, url: &str) -> Option<Arc<Subscriptions>> {
        let topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.get(url)?.upgrade()
    }

    fn know(&self, url: &Arc<str>, subscriptions: &Arc<Subscriptions>) {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if topics.len().is_power_of_two() {
            topics.retain(|_, it| it.strong_count() > 0);
        }
        topics.insert(Arc::clone(url), Arc::downgrade(subscriptions));
    }

    /// Where subscriptions to this topic are kept, if they are.
    fn keyed(&self, subscriptions: &Subscriptions) -> Option<&Keyed> {
        let log = subscriptions.log()?;
        let is_on_disk = log.durability == Durability::Disk;
        self.hub.keyed().filter(|_| is_on_disk)
    }

    /// Has the subscriptions of a topic ready: those of earlier runs, those of which the topic is
    /// called otherwise now ended.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub async fn ready(
        self: &Arc<Self>,
        (topic, log): (&HubTopic, &Arc<Log>),
        services: &dyn Services,
    ) -> Result<(), String> {
        let subscriptions = &topic.subscriptions;
        subscriptions.set_log(log, true);
        self.loaded((topic, log), services).await?;
        let access = Access {
            origins: topic.origins.clone(),
            timeout: topic.timeout,
        };
        let all = subscriptions.adopt(access, topic.url.text());
        if all.is_empty() {
            return Ok(());
        }
        for moved in all {
            self.know(&moved.topic, subscriptions);
            let callback = moved.callback.text();
            let denial = self.machine().deny(&moved.topic, callback, Some(MOVED));
            if let Some(denial) = denial {
                verify::deny(self, denial, services);
            }
        }
        self.apply_soon(services);
        Ok(())
    }

    /// Has those of earlier runs ready.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub async fn loaded(
        &self,
        (topic, log): (&HubTopic, &Arc<Log>),
        services: &dyn Services,
    ) -> Result<(), String> {
        let subscriptions = &topic.subscriptions;
        subscriptions.set_log(log, false);
        self.know(topic.url.text(), subscriptions);
        let now = self.moment(services);
        let loaded = subscriptions.loaded.get_or_try_init(|| async {
            self.load(subscriptions, now).await?;
            self.take_up(topic.url.text(), subscriptions, now.wall);
            Ok(())
        });
        loaded.await.map(drop)
    }

    /// Has those delivered to that are active and on no disk: a reload has taken the topic away,
    /// and another one brought it back.
    fn take_up(&self, url: &Arc<str>, subscriptions: &Subscriptions, wall: Duration) {
        let callbacks: Vec<Arc<str>> = {
            let machine = self.machine();
            let active = machine.subscriptions(url);
            active.map(|it| Arc::clone(it.callback.text())).collect()
        };
        for callback in callbacks {
            if subscriptions.get(&callback).is_none() {
                let kept = (new_id(url, &callback, wall), latest(subscriptions));
                let subscribed = self.subscribed((url, &callback), kept, subscriptions);
                if let Some(subscribed) = subscribed {
                    subscribed.state.owe_note();
                    subscriptions.insert(&subscribed);
                }
            }
        }
    }

    async fn load(&self, subscriptions: &Arc<Subscriptions>, now: Moment) -> Result<(), String> {
        let Some(keyed) = self.keyed(subscriptions) else {
            return Ok(());
        };
        let vault = self.vault.get_or_try_init(|| Vault::open(keyed)).await?;
        let left = record::read(&subscriptions.name, keyed, vault).await?;
        let cursors: HashMap<Bytes, Bytes> = left.cursors.into_iter().collect();
        let (mut writes, mut kept) = (Vec::new(), HashSet::new());
        for Left { record, id } in left.subscriptions {
            let (topic, callback) = (Arc::clone(&record.topic), Arc::clone(&record.callback));
            if self.machine().restore(record, now) == Restored::Over {
                writes.push(record::delete(&subscriptions.name, &callback));
                continue;
            }
            let key = cursor_key(&subscriptions.name, &id);
            let stored = cursors.get(&key).and_then(|it| Stored::of_bytes(it));
            kept.insert(key);
            if subscriptions.get(&callback).is_some() {
                // An earlier try to read all has not come to its end.
                continue;
            }
            let mut stored = stored.unwrap_or_else(|| latest(subscriptions));
            stored.forget_gone();
            let subscribed = self.subscribed((&topic, &callback), (id, stored), subscriptions);
            if let Some(subscribed) = subscribed {
                subscribed.state.trust();
                subscriptions.insert(&subscribed);
            }
        }
        if left.unreadable > 0 {
            // They stay where they are, and so does what may be theirs.
            let (topic, count) = (&*subscriptions.name, left.unreadable);
            tracing::error!(
                target: "websub", topic, count,
                "subscriptions cannot be read: their subscribers get nothing until they renew them"
            );
            kept.extend(cursors.keys().cloned());
        }
        let orphans = cursors.into_keys().filter(|it| !kept.contains(it));
        writes.extend(orphans.map(|key| Write::Delete {
            table: CURSORS.into(),
            key,
        }));
        match writes.is_empty() {
            true => Ok(()),
            false => keyed
                .write(writes)
                .await
                .map_err(|refusal| refusal.to_string()),
        }
    }

    /// The subscription that the machine has there now.
    fn subscribed(
        &self,
        (topic, callback): (&Arc<str>, &Arc<str>),
        (id, stored): (Arc<str>, Stored),
        subscriptions: &Subscriptions,
    ) -> Option<Arc<Subscribed>> {
        let state = EndpointState::unlisted(&subscriptions.group, id, stored);
        self.with_state((topic, callback), state)
    }

    fn with_state(
        &self,
        (topic, callback): (&Arc<str>, &Arc<str>),
        state: Arc<EndpointState>,
    ) -> Option<Arc<Subscribed>> {
        let machine = self.machine();
        let active = machine.get(topic, callback)?;
        Some(Arc::new(Subscribed {
            topic: Arc::clone(topic),
            callback: active.callback.clone(),
            secret: active.secret.clone(),
            version: active.version,
            state,
        }))
    }

    /// Has what has changed written and delivered by, in the background.
    pub fn apply_soon(self: &Arc<Self>, services: &dyn Services) {
        let state = Arc::clone(self);
        services.spawn(Box::new(move |services| {
            Box::pin(async move { state.apply(services.wall()).await })
        }));
    }

    /// Has what has changed written, and delivered by after that. Not to be dropped.
    pub async fn apply(&self, wall: Duration) {
        let _turn = self.turns.lock().await;
        let changes = self.machine().changes();
        let mut delivered = Vec::new();
        // By topic: each has its own place.
        let mut writes: Vec<(Arc<Subscriptions>, Vec<Write>)> = Vec::new();
        for change in changes {
            let url = match &change {
                Change::Put(record) => Arc::clone(&record.topic),
                Change::Remove { topic, .. } => Arc::clone(topic),
            };
            let Some(topic) = self.topic(&url) else {
                continue;
            };
            let mut own = Vec::new();
            match change {
                Change::Put(record) => {
                    let put = self.put(&record, &topic, wall, &mut own);
                    delivered.extend(put.map(|it| (Arc::clone(&topic), it)));
                }
                Change::Remove { callback, .. } => {
                    // The callback may be subscribed by another URL of the topic meanwhile.
                    if topic.get(&callback).is_none_or(|it| it.topic == url) {
                        topic.remove(&callback);
                        own.push(record::delete(&topic.name, &callback));
                    }
                }
            }
            match writes.iter_mut().find(|it| Arc::ptr_eq(&it.0, &topic)) {
                Some((_, all)) => all.extend(own),
                None => writes.push((topic, own)),
            }
        }
        let mut is_lost = false;
        for (topic, all) in writes {
            let Some(keyed) = self.keyed(&topic).filter(|_| !all.is_empty()) else {
                continue;
            };
            if let Err(error) = keyed.write(all).await {
                is_lost = true;
                let topic = &*topic.name;
                tracing::error!(
                    target: "websub", topic, %error,
                    "changes of subscriptions are not on the disk: a restart forgets them"
                );
            }
        }
        for (topic, subscribed) in delivered {
            if is_lost {
                subscribed.state.owe_note();
            }
            topic.deliver(&subscribed);
        }
    }

    /// A subscription that has been confirmed: a new one, behind the last event of the topic, or
    /// one that has been renewed.
    fn put(
        &self,
        record: &Record,
        topic: &Arc<Subscriptions>,
        wall: Duration,
        writes: &mut Vec<Write>,
    ) -> Option<Arc<Subscribed>> {
        let of = (&record.topic, &record.callback);
        let known = topic.get(&record.callback);
        let subscribed = match known.filter(|it| it.topic == record.topic) {
            Some(known) => self.with_state(of, Arc::clone(&known.state)),
            None => {
                topic.remove(&record.callback);
                let id = new_id(&record.topic, &record.callback, wall);
                let stored = latest(topic);
                writes.push(Write::Put {
                    table: CURSORS.into(),
                    key: cursor_key(&topic.name, &id),
                    value: stored.to_bytes(),
                });
                self.subscribed(of, (id, stored), topic)
            }
        };
        // It may have ended again.
        let subscribed = subscribed?;
        topic.insert(&subscribed);
        if self.keyed(topic).is_some()
            && let Some(vault) = self.vault.get()
        {
            let put = record::put(&topic.name, &subscribed.state.name, record, vault);
            if put.is_none() {
                let topic = &*topic.name;
                tracing::error!(target: "websub", topic, "a secret cannot be sealed");
            }
            writes.extend(put);
        }
        Some(subscribed)
    }

    /// Ends what is over.
    pub fn expire(&self, now: Moment) {
        let ended = self.machine().expire(now).len();
        if ended > 0 {
            tracing::debug!(target: "websub", ended, "leases are over");
        }
    }

    /// Counts a verification and what has come of it.
    pub fn count(&self, topic: &str, is_confirmed: bool) {
        if let Some(topic) = self.topic(topic) {
            add(&topic.verifications);
            if !is_confirmed {
                add(&topic.unverified);
            }
        }
    }
}

/// The key of a subscription's place in the log.
fn cursor_key(name: &str, id: &str) -> Bytes {
    crate::webhooks::hub::key(name, id)
}

/// What nothing else was ever called: a subscription that begins anew does not go on where one
/// before it has been.
fn new_id(topic: &str, callback: &str, wall: Duration) -> Arc<str> {
    let of = format!("{topic}\0{callback}\0{}", wall.as_nanos());
    let digest = u128::from_be_bytes(keys::digest(of.as_bytes()));
    format!("{digest:032x}").into()
}

/// Behind the last event of a topic.
fn latest(subscriptions: &Subscriptions) -> Stored {
    let none = EventId {
        epoch: 0,
        sequence: 0,
    };
    let log = subscriptions.log();
    Stored::at(log.map_or(none, |log| log.id(log.next().sequence.saturating_sub(1))))
}

impl State for HubState {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let (_, waiting) = self.machine().counts();
        vec![Measure {
            name: "websub_hub_waiting_verifications",
            help: "Requests to hubs of all topics that wait for the answer of the callback.",
            value: waiting as f64,
        }]
    }
}
