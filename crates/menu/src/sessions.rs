//! The sessions of menus: one request at a time works on a session. They are in memory and, where
//! there is one, in the data folder (`embedded`), or in a store that several engines share; there a
//! lease keeps the other engines out (`lease`).

mod embedded;
mod lease;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use component::handler::Services;
use component::key_value::{KeyValueStore, Version, Write};
use component::state::{Measure, State, States};
use message::{Fault, Kind, Origin};
use sha2::{Digest, Sha256};
use steps::KeyedStateHandle;
use tokio::sync::OwnedMutexGuard;

use embedded::Embedded;
use lease::Lease;

/// How long a session is known behind its end, so that requests that are repeated or late are told
/// from new ones.
const LINGER: Duration = Duration::from_secs(600);

/// What a session goes by: a hash of its gateway, id and number, none of which is written anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionKey([u8; 32]);

impl SessionKey {
    /// The key of a gateway's session.
    pub fn new(gateway: &str, session: &str, msisdn: &str) -> Self {
        Self(hash([gateway, session, msisdn]))
    }

    /// The name of the session in a store that others use too.
    fn shared_name(&self, menu: &str) -> Vec<u8> {
        let mut name = format!("intertie:menu:{menu}:");
        for byte in self.0 {
            name.push_str(&format!("{byte:02x}"));
        }
        name.into_bytes()
    }
}

fn hash<const N: usize>(parts: [&str; N]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A session that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Until when it lasts, by the time of day.
    pub until: Duration,
    pub bytes: Bytes,
}

impl Stored {
    pub fn new(until: Duration, bytes: Bytes) -> Self {
        Self { until, bytes }
    }

    fn encode(&self) -> Bytes {
        let mut bytes = (self.until.as_millis() as u64).to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.bytes);
        bytes.into()
    }

    fn decode(bytes: &Bytes) -> Option<Self> {
        let until = until(bytes)?;
        Some(Self::new(until, bytes.slice(8..)))
    }
}

/// Until when the session lasts that was encoded so.
fn until(bytes: &[u8]) -> Option<Duration> {
    let until = bytes.first_chunk().map(|it| u64::from_be_bytes(*it))?;
    Some(Duration::from_millis(until))
}

/// Whether a session that was encoded so has ended: it may be forgotten before its time.
fn is_over(bytes: &[u8], now: Duration) -> bool {
    until(bytes).is_none_or(|until| until <= now)
}

type Lock = Arc<tokio::sync::Mutex<()>>;

/// The sessions of a menu.
pub(crate) struct Sessions {
    menu: Arc<str>,
    embedded: Embedded,
    /// Those that requests work on.
    locks: Mutex<HashMap<SessionKey, Lock>>,
}

impl State for Sessions {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![Measure {
            name: "menu_sessions",
            help: "Sessions that this process keeps, those included that are just over.",
            value: self.embedded.count() as f64,
        }]
    }
}

impl Sessions {
    /// Those of a menu of this name: in the data folder when there are `states` to find it by.
    pub fn new(states: Option<&States>, menu: &str) -> Self {
        let disk = states.map(|states| KeyedStateHandle::new(states, true));
        Self {
            menu: menu.into(),
            embedded: Embedded::new(disk, hash([menu]), is_over),
            locks: Mutex::default(),
        }
    }

    /// Sets how many sessions there may be in memory and data folder.
    pub fn bound(&self, most: usize) {
        self.embedded.bound(most);
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<SessionKey, Lock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other request works on the session, on any engine that shares the store.
    ///
    /// # Errors
    /// When the sessions cannot be read.
    pub async fn enter<'a>(
        &'a self,
        key: SessionKey,
        shared: Option<&'a Arc<dyn KeyValueStore>>,
        services: &'a dyn Services,
    ) -> Result<Entered<'a>, Fault> {
        let lock = Arc::clone(self.locks().entry(key).or_default());
        let locked = Locked {
            sessions: self,
            key,
            guard: Some(lock.lock_owned().await),
        };
        // Whoever stands in for other systems has none of them.
        let shared = shared.filter(|_| !services.stands_in());
        let name = match shared {
            Some(_) => key.shared_name(&self.menu),
            None => key.0.to_vec(),
        };
        let (store, lease): (&dyn KeyValueStore, _) = match shared {
            Some(store) => (&**store, Some(Lease::take(store, &name, services).await?)),
            None => (&self.embedded, None),
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
}

/// Lets the next request of this engine work on a session.
struct Locked<'a> {
    sessions: &'a Sessions,
    key: SessionKey,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = self.sessions.locks();
        // Another request may wait for it, and has a copy then.
        let is_unused = |lock: &Lock| Arc::strong_count(lock) == 1;
        if locks.get(&self.key).is_some_and(is_unused) {
            locks.remove(&self.key);
        }
    }
}

/// A session that one request works on.
pub(crate) struct Entered<'a> {
    store: &'a dyn KeyValueStore,
    name: Vec<u8>,
    services: &'a dyn Services,
    found: Option<(Stored, Version)>,
    /// What keeps other engines out; given back before the lock of this one.
    _lease: Option<Lease>,
    _locked: Locked<'a>,
}

impl Entered<'_> {
    /// The session, if it is known.
    pub fn stored(&self) -> Option<&Stored> {
        self.found.as_ref().map(|(stored, _)| stored)
    }

    /// Keeps the session. It is in the data folder then, where there is one, or in the store that
    /// is shared.
    ///
    /// # Errors
    /// When the disk or the store refuses it; `unavailable` when there are too many sessions, or
    /// when another engine has changed it since: this one has not been heard of for long.
    pub async fn keep(&mut self, stored: Stored) -> Result<(), Fault> {
        let now = self.services.wall();
        let write = Write {
            expected: self.found.as_ref().map(|(_, version)| *version),
            value: stored.encode(),
            ttl: (stored.until + LINGER).saturating_sub(now),
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
}

#[cfg(test)]
mod tests;
