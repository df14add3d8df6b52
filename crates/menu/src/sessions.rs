//! The sessions of menus, and what is kept of their subscribers: one request at a time works on
//! each. They are in memory and, where there is one, in the data folder (`embedded`), or in a store
//! that several engines share; there a lease keeps the other engines out (`lease`). What menus have
//! left that are gone is deleted (`leftovers`).

mod embedded;
mod lease;
mod leftovers;
mod slots;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use component::handler::{Services, within};
use component::key_value::{KeyValueStore, Version, Write};
use component::state::{Measure, State, States};
use message::{Fault, Kind, Origin};
use sha2::{Digest, Sha256};
use steps::KeyedStateHandle;
use tokio::sync::{OwnedMutexGuard, watch};

use crate::in_use::{InUse, Used};
use crate::new_sessions::NewSessions;
use crate::outbox::Outbox;
use crate::pushing::Pushing;
use embedded::{Disk, Embedded};
use lease::Lease;
use leftovers::Scopes;
use slots::Timestamp;

/// How long a session is known behind its end, so that requests that are repeated or late are told
/// from new ones.
pub(crate) const LINGER: Duration = Duration::from_secs(600);
/// The least time for which a record is kept.
const TTL_MIN: Duration = Duration::from_millis(1);
/// How often it is asked whether an action of another engine is over.
const ELSEWHERE: Duration = Duration::from_millis(200);

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RecordKind {
    Session,
    Subscriber,
}

/// What a session or a subscriber goes by: a hash of what the gateway says, none of which is
/// written anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RecordKey(RecordKind, [u8; 32]);

impl RecordKey {
    /// The key of a gateway's session.
    pub fn session(gateway: &str, session: &str, msisdn: &str) -> Self {
        Self(RecordKind::Session, hash([gateway, session, msisdn]))
    }

    /// The key of a subscriber.
    pub fn subscriber(msisdn: &str) -> Self {
        Self(RecordKind::Subscriber, hash([msisdn]))
    }

    /// A session's key, as [`RecordKey::to_text`] gives it.
    pub fn session_of_text(text: &str) -> Option<Self> {
        let mut key = [0; 32];
        read_digits(text, &mut key)?;
        Some(Self(RecordKind::Session, key))
    }

    /// The key as hexadecimal digits.
    pub fn to_text(self) -> String {
        self.1.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The name of the record in a store that others use too.
    fn shared_name(self, menu: &str) -> Vec<u8> {
        let kind = match self.0 {
            RecordKind::Session => "session",
            RecordKind::Subscriber => "subscriber",
        };
        format!("intertie:menu:{menu}:{kind}:{}", self.to_text()).into_bytes()
    }
}

/// Reads hexadecimal digits.
fn read_digits(text: &str, bytes: &mut [u8; 32]) -> Option<()> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(())
}

fn hash<const N: usize>(parts: [&str; N]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A session or subscriber that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Until when it is needed, by the time of day: a session lasts so long. Behind that it makes
    /// room for others.
    pub until: Duration,
    /// Until when it is known, where there is room.
    pub known: Duration,
    pub bytes: Bytes,
    /// Whether it has to outlive the machine when it is kept, not only the process.
    pub is_synced: bool,
}

impl Stored {
    /// A session that lasts until this time. It is known for longer, so that requests that are
    /// repeated or late are told from new ones, and for so long behind its end that it can be
    /// resumed.
    pub fn session(until: Duration, resume: Duration, bytes: Bytes) -> Self {
        Self {
            until,
            known: until + LINGER.max(resume),
            bytes,
            is_synced: false,
        }
    }

    fn encode(&self) -> Bytes {
        Timestamp::of(self.until).prepend(&self.bytes).into()
    }

    fn decode(bytes: &Bytes) -> Option<Self> {
        let (until, rest) = Timestamp::split(bytes)?;
        Some(Self {
            until: until.time(),
            known: until.time(),
            bytes: bytes.slice_ref(rest),
            is_synced: false,
        })
    }
}

/// Until when the record is needed that was encoded so: it may go before its time then.
fn needed_until(bytes: &[u8]) -> Timestamp {
    Timestamp::split(bytes).map_or_else(Timestamp::default, |(until, _)| until)
}

/// The sessions of a menu.
pub(crate) struct Sessions {
    menu: Arc<str>,
    sessions: Embedded,
    subscribers: Embedded,
    /// Those that requests work on.
    locks: Arc<InUse<tokio::sync::Mutex<()>>>,
    /// The actions whose steps run, by their subscribers: until their senders are dropped.
    running: Mutex<HashMap<RecordKey, watch::Receiver<()>>>,
    /// The screens that are to be sent.
    pub outbox: Outbox,
    /// The sessions that flows begin.
    pub pushing: Pushing,
    /// Those that have yet to be noted with their subscribers.
    pub new: NewSessions,
}

impl State for Sessions {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![Measure {
            name: "menu_sessions",
            help: "Sessions that this process keeps, those included that are just over.",
            value: self.sessions.count() as f64,
        }]
    }
}

impl Sessions {
    /// Those of a menu of this name: in the data folder when there are `states` to find it by.
    pub fn new(states: Option<&States>, menu: &str) -> Self {
        let embedded = |prefix| {
            let disk = states.map(|states| Disk {
                state: KeyedStateHandle::new(states, true),
                scope: Scopes::of(states).add(prefix),
            });
            Embedded::new(disk, needed_until)
        };
        Self {
            menu: menu.into(),
            sessions: embedded(hash([menu])),
            subscribers: embedded(hash([menu, "subscribers"])),
            locks: Arc::default(),
            running: Mutex::default(),
            outbox: Outbox::default(),
            pushing: Pushing::default(),
            new: NewSessions::default(),
        }
    }

    /// Sets how many sessions and how many subscribers there may be in memory and data folder.
    pub fn bound(&self, most: usize) {
        self.sessions.bound(most);
        self.subscribers.bound(most);
    }

    fn running(&self) -> MutexGuard<'_, HashMap<RecordKey, watch::Receiver<()>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a record is, and its name there.
    fn place<'a>(
        &'a self,
        key: RecordKey,
        shared: Option<&'a Arc<dyn KeyValueStore>>,
    ) -> (&'a dyn KeyValueStore, Vec<u8>) {
        match (shared, key.0) {
            (Some(store), _) => (&**store, key.shared_name(&self.menu)),
            (None, RecordKind::Session) => (&self.sessions, key.1.to_vec()),
            (None, RecordKind::Subscriber) => (&self.subscribers, key.1.to_vec()),
        }
    }

    /// Waits until no other request works on the record, on any engine that shares the store.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn enter<'a>(
        &'a self,
        key: RecordKey,
        shared: Option<&'a Arc<dyn KeyValueStore>>,
        services: &'a dyn Services,
    ) -> Result<Entered<'a>, Fault> {
        let lock = self.locks.of(key);
        let locked = Locked {
            _guard: Arc::clone(&lock.value).lock_owned().await,
            _lock: lock,
        };
        // Whoever stands in for other systems has none of them.
        let shared = shared.filter(|_| !services.stands_in());
        let (store, name) = self.place(key, shared);
        let lease = match shared {
            Some(store) => Some(Lease::take(store, &name, services).await?),
            None => None,
        };
        let entry = store.get(&name, services).await?;
        let found = entry.and_then(|it| Some((Stored::decode(&it.value)?, it.version)));
        Ok(Entered {
            store,
            name,
            services,
            found,
            _lease: lease,
            _locked: locked,
        })
    }

    /// A record as it is now, whoever works on it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn peek(
        &self,
        key: RecordKey,
        shared: Option<&Arc<dyn KeyValueStore>>,
        services: &dyn Services,
    ) -> Result<Option<Stored>, Fault> {
        let shared = shared.filter(|_| !services.stands_in());
        let (store, name) = self.place(key, shared);
        let entry = store.get(&name, services).await?;
        Ok(entry.and_then(|it| Stored::decode(&it.value)))
    }

    /// Notes that the action of a subscriber runs, on any engine, until what this gives is dropped;
    /// `None` when one runs.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn begin(
        self: &Arc<Self>,
        subscriber: RecordKey,
        shared: Option<&Arc<dyn KeyValueStore>>,
        services: &dyn Services,
    ) -> Result<Option<ActionRun>, Fault> {
        if self.running().contains_key(&subscriber) {
            return Ok(None);
        }
        let shared = shared.filter(|_| !services.stands_in());
        let lease = match shared {
            None => None,
            Some(store) => {
                let name = [&*subscriber.shared_name(&self.menu), b":action"].concat();
                match Lease::take_now(store, &name, services).await? {
                    Some(lease) => Some(lease),
                    None => return Ok(None),
                }
            }
        };
        let (sender, receiver) = watch::channel(());
        self.running().insert(subscriber, receiver);
        Ok(Some(ActionRun {
            sessions: Arc::clone(self),
            subscriber,
            _lease: lease,
            _sender: sender,
        }))
    }

    /// Waits for at most this time until the action of a subscriber runs no more.
    pub async fn wait(&self, subscriber: RecordKey, time: Duration, services: &dyn Services) {
        let running = self.running().get(&subscriber).cloned();
        match running {
            // It is over when its sender is dropped.
            Some(mut running) => {
                within(time, services, running.changed()).await;
            }
            None => services.sleep(time.min(ELSEWHERE)).await,
        }
    }
}

/// The action of a subscriber, as long as it runs.
pub(crate) struct ActionRun {
    sessions: Arc<Sessions>,
    subscriber: RecordKey,
    /// What other engines see of it.
    _lease: Option<Lease>,
    _sender: watch::Sender<()>,
}

impl Drop for ActionRun {
    fn drop(&mut self) {
        self.sessions.running().remove(&self.subscriber);
    }
}

/// Lets the next request of this engine work on a record when it is dropped.
struct Locked {
    _guard: OwnedMutexGuard<()>,
    _lock: Used<tokio::sync::Mutex<()>>,
}

/// A record that one request works on.
pub(crate) struct Entered<'a> {
    store: &'a dyn KeyValueStore,
    name: Vec<u8>,
    services: &'a dyn Services,
    found: Option<(Stored, Version)>,
    /// What keeps other engines out; given back before the lock of this one.
    _lease: Option<Lease>,
    _locked: Locked,
}

impl Entered<'_> {
    /// The record, if there is one.
    pub fn stored(&self) -> Option<&Stored> {
        self.found.as_ref().map(|(stored, _)| stored)
    }

    /// Keeps the record. It is in the data folder then, where there is one, and synced to the disk
    /// where it says so; or in the store that is shared.
    ///
    /// # Errors
    /// When the disk or the store refuses it; `unavailable` when there are too many sessions, or
    /// when another engine has changed it since: this one has not been heard of for long.
    pub async fn keep(&mut self, stored: Stored) -> Result<(), Fault> {
        let now = self.services.wall();
        let write = Write {
            expected: self.found.as_ref().map(|(_, version)| *version),
            value: stored.encode(),
            ttl: stored.known.saturating_sub(now).max(TTL_MIN),
            is_synced: stored.is_synced,
        };
        let (store, services) = (self.store, self.services);
        let written = store.compare_and_set(&self.name, write, services).await?;
        let Some(version) = written else {
            let detail = "another engine has changed the session meanwhile";
            return Err(Fault::new(Kind::Unavailable, Origin::Engine, detail));
        };
        self.found = Some((stored, version));
        Ok(())
    }

    /// Deletes the record, if there is one that no other engine has changed since.
    ///
    /// # Errors
    /// When the disk or the store refuses it.
    pub async fn delete(&mut self) -> Result<(), Fault> {
        let Some((_, version)) = self.found.take() else {
            return Ok(());
        };
        let (store, services) = (self.store, self.services);
        let deleted = store.compare_and_delete(&self.name, version, services);
        deleted.await.map(drop)
    }
}

#[cfg(test)]
mod tests;
