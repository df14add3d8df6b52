//! The sessions of a menu: in memory, and each in the keyed state of the data folder before its
//! answer is given. One request at a time works on a session; the others wait for it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use component::state::{Measure, State, States};
use journal::{Change, Keyed, Refusal};
use message::{Fault, Kind, Origin};
use sha2::{Digest, Sha256};
use steps::KeyedStateHandle;
use tokio::sync::{OnceCell, OwnedMutexGuard};

/// The table of all menus' sessions.
const TABLE: &str = "menu-sessions";
/// How long a session is known behind its end, so that requests that are repeated or late are told
/// from new ones.
const LINGER: Duration = Duration::from_secs(600);
/// How many sessions are read at a time.
const PAGE: usize = 1000;
/// How many sessions that are gone are looked at with each that is written.
const SWEEP: usize = 16;

/// What a session goes by: a hash of its gateway, id and number, none of which is written anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionKey([u8; 32]);

impl SessionKey {
    /// The key of a gateway's session.
    pub fn new(gateway: &str, session: &str, msisdn: &str) -> Self {
        Self(hash([gateway, session, msisdn]))
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
    /// The time under which it is listed to be forgotten: never behind the one when it is.
    listed: Duration,
}

impl Stored {
    pub fn new(until: Duration, bytes: Bytes) -> Self {
        Self {
            until,
            bytes,
            listed: until + LINGER,
        }
    }

    fn encode(&self) -> Bytes {
        let mut bytes = (self.until.as_millis() as u64).to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.bytes);
        bytes.into()
    }

    fn decode(bytes: &Bytes) -> Option<Self> {
        let until = bytes.first_chunk().map(|it| u64::from_be_bytes(*it))?;
        Some(Self::new(Duration::from_millis(until), bytes.slice(8..)))
    }
}

type Slot = Arc<tokio::sync::Mutex<Option<Stored>>>;

#[derive(Default)]
struct Inner {
    slots: HashMap<SessionKey, Slot>,
    /// When sessions can be forgotten, at the earliest.
    expiry: BTreeSet<(Duration, SessionKey)>,
}

/// The sessions of a menu.
pub(crate) struct Sessions {
    disk: KeyedStateHandle,
    /// What the keys of the menu begin with on the disk.
    scope: [u8; 32],
    inner: Mutex<Inner>,
    is_read: OnceCell<()>,
}

impl State for Sessions {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![Measure {
            name: "menu_sessions",
            help: "Sessions that are known, those included that are just over.",
            value: self.lock().expiry.len() as f64,
        }]
    }
}

/// A session that one request works on.
pub(crate) struct Entered {
    sessions: Arc<Sessions>,
    key: SessionKey,
    guard: Option<OwnedMutexGuard<Option<Stored>>>,
}

impl Sessions {
    /// Those of a menu of this name.
    pub fn new(states: &States, menu: &str) -> Self {
        Self {
            disk: KeyedStateHandle::new(states, true),
            scope: hash([menu]),
            inner: Mutex::default(),
            is_read: OnceCell::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, key: &SessionKey) -> Bytes {
        [self.scope, key.0].concat().into()
    }

    /// Reads the sessions of an earlier run, once.
    async fn read_once(&self) -> Result<(), Fault> {
        let Some(keyed) = self.disk.keyed() else {
            return Ok(());
        };
        let read = self.is_read.get_or_try_init(|| self.read(keyed));
        read.await.map(drop).map_err(|refusal| {
            let detail = "the sessions of before cannot be read";
            Fault::new(Kind::Unavailable, Origin::Engine, detail).with_cause(refusal)
        })
    }

    async fn read(&self, keyed: &Keyed) -> Result<(), Refusal> {
        let mut after: Option<Bytes> = None;
        loop {
            let page = keyed
                .scan(TABLE, &self.scope, after.as_deref(), PAGE)
                .await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            let mut inner = self.lock();
            for (name, value) in &page {
                let key = name.get(32..).and_then(|it| it.try_into().ok());
                if let (Some(key), Some(stored)) = (key, Stored::decode(value)) {
                    let key = SessionKey(key);
                    inner.expiry.insert((stored.listed, key));
                    let slot = Arc::new(tokio::sync::Mutex::new(Some(stored)));
                    inner.slots.insert(key, slot);
                }
            }
        }
    }

    /// Waits until no other request works on the session.
    ///
    /// # Errors
    /// `unavailable` when sessions of before cannot be read.
    pub async fn enter(self: &Arc<Self>, key: SessionKey) -> Result<Entered, Fault> {
        self.read_once().await?;
        let slot = Arc::clone(self.lock().slots.entry(key).or_default());
        Ok(Entered {
            sessions: Arc::clone(self),
            key,
            guard: Some(slot.lock_owned().await),
        })
    }

    /// Forgets sessions whose time is over, and gives them. When there are too many, those that
    /// have ended go before their time.
    fn sweep(&self, now: Duration, max: usize) -> Vec<SessionKey> {
        let mut inner = self.lock();
        let mut gone = Vec::new();
        for _ in 0..SWEEP {
            let Some((at, key)) = inner.expiry.first().copied() else {
                break;
            };
            let is_full = inner.expiry.len() >= max;
            if at > now && !is_full {
                break;
            }
            let Some(slot) = inner.slots.get(&key).cloned() else {
                inner.expiry.pop_first();
                continue;
            };
            // A request works on it, or is about to.
            if Arc::strong_count(&slot) > 2 {
                break;
            }
            let Ok(mut stored) = slot.try_lock() else {
                break;
            };
            let Some(stored) = stored.as_mut() else {
                inner.expiry.pop_first();
                continue;
            };
            let due = stored.until + LINGER;
            if due > at {
                stored.listed = due;
                inner.expiry.pop_first();
                inner.expiry.insert((due, key));
                continue;
            }
            if due > now && stored.until > now {
                break;
            }
            inner.expiry.pop_first();
            inner.slots.remove(&key);
            gone.push(key);
        }
        gone
    }
}

impl Entered {
    /// The session, if it is known.
    pub fn stored(&self) -> Option<&Stored> {
        self.guard.as_ref()?.as_ref()
    }

    /// Keeps the session. It is on the disk then, where there is a data folder.
    ///
    /// # Errors
    /// `unavailable` when there are too many sessions, or when the disk refuses it.
    pub async fn keep(
        &mut self,
        mut stored: Stored,
        now: Duration,
        max: usize,
    ) -> Result<(), Fault> {
        let sessions = Arc::clone(&self.sessions);
        let gone = sessions.sweep(now, max);
        let is_new = self.stored().is_none();
        if is_new && sessions.lock().expiry.len() >= max {
            let detail = "there are too many sessions";
            return Err(Fault::new(Kind::Unavailable, Origin::Engine, detail));
        }
        if let Some(keyed) = sessions.disk.keyed() {
            let forgotten = gone.iter().filter(|key| **key != self.key);
            let mut changes: Vec<Change> = forgotten
                .map(|key| Change::Delete {
                    table: TABLE.into(),
                    key: sessions.name(key),
                })
                .collect();
            changes.push(Change::Put {
                table: TABLE.into(),
                key: sessions.name(&self.key),
                value: stored.encode(),
            });
            keyed.write(changes).await.map_err(|refusal| {
                let detail = "the session cannot be kept";
                Fault::new(Kind::Unavailable, Origin::Engine, detail).with_cause(refusal)
            })?;
        }
        let before = self.stored().map(|it| it.listed);
        let mut inner = sessions.lock();
        if before.is_none_or(|before| stored.listed < before) {
            if let Some(before) = before {
                inner.expiry.remove(&(before, self.key));
            }
            inner.expiry.insert((stored.listed, self.key));
        } else if let Some(before) = before {
            // It is listed anew when its turn comes, not with each key.
            stored.listed = before;
        }
        drop(inner);
        if let Some(place) = &mut self.guard {
            **place = Some(stored);
        }
        Ok(())
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let is_known = self.stored().is_some();
        self.guard = None;
        if is_known {
            return;
        }
        let mut inner = self.sessions.lock();
        // Another request may wait for it, and has a copy then.
        let is_unused = |slot: &Slot| Arc::strong_count(slot) == 1;
        if inner.slots.get(&self.key).is_some_and(is_unused) {
            inner.slots.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
