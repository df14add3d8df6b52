//! Values by key in memory and, where there is one, in the data folder.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use component::handler::{LocalFuture, Services};
use component::key_value::{Entry, KeyValueStore, Version, Write};
use journal::{Change, Durability, Keyed, Refusal};
use message::{Fault, Kind, Origin};
use steps::KeyedStateHandle;
use tokio::sync::{OnceCell, OwnedMutexGuard};

const TABLE: &str = "sessions";
/// How many values are read at a time.
const PAGE: usize = 1000;
/// How many of the values that expire first are looked at with each write.
const SWEEP: usize = 16;

/// A value that is kept.
#[derive(Clone, Debug)]
struct Held {
    value: Bytes,
    version: Version,
    /// When it is gone, by the time of day.
    expires: Duration,
    /// The time under which it is listed to be forgotten: never behind the one when it is.
    listed: Duration,
}

impl Held {
    fn encode(&self) -> Bytes {
        let mut bytes = (self.expires.as_millis() as u64).to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.value);
        bytes.into()
    }

    fn decode(bytes: &Bytes, version: Version) -> Option<Self> {
        let expires = bytes.first_chunk().map(|it| u64::from_be_bytes(*it))?;
        let expires = Duration::from_millis(expires);
        Some(Self {
            value: bytes.slice(8..),
            version,
            expires,
            listed: expires,
        })
    }
}

type Slot = Arc<tokio::sync::Mutex<Option<Held>>>;

#[derive(Default)]
struct Inner {
    slots: HashMap<Bytes, Slot>,
    /// When values can be forgotten, at the earliest.
    expiry: BTreeSet<(Duration, Bytes)>,
}

/// The values of one scope.
pub(super) struct Embedded {
    /// The data folder's keyed state; memory alone without it.
    disk: Option<KeyedStateHandle>,
    /// What the keys begin with on the disk.
    scope: [u8; 32],
    /// The most values.
    most: AtomicUsize,
    /// Whether a value may go before its time where there are too many.
    may_go: fn(&[u8], Duration) -> bool,
    versions: AtomicU64,
    inner: Mutex<Inner>,
    is_read: OnceCell<()>,
}

/// A value that one writer works on.
struct Writing<'a> {
    embedded: &'a Embedded,
    key: Bytes,
    guard: Option<OwnedMutexGuard<Option<Held>>>,
}

impl Writing<'_> {
    fn held(&self) -> Option<&Held> {
        self.guard.as_ref()?.as_ref()
    }

    fn put(&mut self, held: Option<Held>) {
        if let Some(place) = &mut self.guard {
            **place = held;
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let is_there = self.held().is_some();
        self.guard = None;
        if is_there {
            return;
        }
        let mut inner = self.embedded.lock();
        // Another one may wait for it, and has a copy then.
        let is_unused = |slot: &Slot| Arc::strong_count(slot) == 1;
        if inner.slots.get(&self.key).is_some_and(is_unused) {
            inner.slots.remove(&self.key);
        }
    }
}

impl Embedded {
    pub fn new(
        disk: Option<KeyedStateHandle>,
        scope: [u8; 32],
        may_go: fn(&[u8], Duration) -> bool,
    ) -> Self {
        Self {
            disk,
            scope,
            most: AtomicUsize::new(usize::MAX),
            may_go,
            versions: AtomicU64::new(0),
            inner: Mutex::default(),
            is_read: OnceCell::new(),
        }
    }

    /// Sets how many values there may be.
    pub fn bound(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// How many values there are.
    pub fn count(&self) -> usize {
        self.lock().expiry.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keyed(&self) -> Option<&Keyed> {
        self.disk.as_ref()?.keyed()
    }

    fn next_version(&self) -> Version {
        Version(self.versions.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn name(&self, key: &[u8]) -> Bytes {
        [&self.scope, key].concat().into()
    }

    /// Reads the values of an earlier run, once.
    async fn read_once(&self) -> Result<(), Fault> {
        let Some(keyed) = self.keyed() else {
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
                let key = name.get(self.scope.len()..).unwrap_or_default();
                // The page is one allocation: what is kept of it must not keep all of it.
                let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                if let Some(held) = Held::decode(&value, self.next_version()) {
                    inner.expiry.insert((held.listed, key.clone()));
                    let slot = Arc::new(tokio::sync::Mutex::new(Some(held)));
                    inner.slots.insert(key, slot);
                }
            }
        }
    }

    /// Waits until nobody else writes the value.
    async fn write(&self, key: &[u8]) -> Writing<'_> {
        let key = Bytes::copy_from_slice(key);
        let slot = Arc::clone(self.lock().slots.entry(key.clone()).or_default());
        Writing {
            embedded: self,
            key,
            guard: Some(slot.lock_owned().await),
        }
    }

    /// Forgets values whose time is over, and gives their keys. When there are too many, those that
    /// may go before their time do.
    fn sweep(&self, now: Duration) -> Vec<Bytes> {
        let most = self.most.load(Ordering::Relaxed);
        let mut inner = self.lock();
        let mut gone = Vec::new();
        for _ in 0..SWEEP {
            let Some((at, key)) = inner.expiry.first().cloned() else {
                break;
            };
            let is_full = inner.expiry.len() >= most;
            if at > now && !is_full {
                break;
            }
            let Some(slot) = inner.slots.get(&key).cloned() else {
                inner.expiry.pop_first();
                continue;
            };
            // Somebody writes it, or is about to.
            if Arc::strong_count(&slot) > 2 {
                break;
            }
            let Ok(mut held) = slot.try_lock() else {
                break;
            };
            let Some(held) = held.as_mut() else {
                inner.expiry.pop_first();
                continue;
            };
            if held.expires > at {
                held.listed = held.expires;
                inner.expiry.pop_first();
                inner.expiry.insert((held.expires, key));
                continue;
            }
            if held.expires > now && !(self.may_go)(&held.value, now) {
                break;
            }
            inner.expiry.pop_first();
            inner.slots.remove(&key);
            gone.push(key);
        }
        gone
    }

    /// Writes to the disk, where there is one: a value or that there is none, and that others are
    /// gone.
    async fn write_out(
        &self,
        key: &Bytes,
        held: Option<&Held>,
        gone: Vec<Bytes>,
        is_synced: bool,
    ) -> Result<(), Fault> {
        let Some(keyed) = self.keyed() else {
            return Ok(());
        };
        let forgotten = gone.iter().filter(|it| *it != key);
        let mut changes: Vec<Change> = forgotten
            .map(|key| Change::Delete {
                table: TABLE.into(),
                key: self.name(key),
            })
            .collect();
        let (table, key) = (TABLE.into(), self.name(key));
        changes.push(match held {
            Some(held) => Change::Put {
                table,
                key,
                value: held.encode(),
            },
            None => Change::Delete { table, key },
        });
        let durability = match is_synced {
            true => Durability::Disk,
            false => Durability::Process,
        };
        let written = keyed.write_with(changes, durability).await;
        written.map_err(|refusal| {
            let detail = "the session cannot be kept";
            Fault::new(Kind::Unavailable, Origin::Engine, detail).with_cause(refusal)
        })
    }

    async fn set(&self, key: &[u8], write: Write, now: Duration) -> Result<Option<Version>, Fault> {
        self.read_once().await?;
        let mut writing = self.write(key).await;
        let before = writing.held().map(|it| (it.version, it.expires, it.listed));
        let current = before.filter(|(_, expires, _)| *expires > now);
        if current.map(|(version, ..)| version) != write.expected {
            return Ok(None);
        }
        let gone = self.sweep(now);
        if before.is_none() && self.count() >= self.most.load(Ordering::Relaxed) {
            let detail = "there are too many sessions";
            return Err(Fault::new(Kind::Unavailable, Origin::Engine, detail));
        }
        let expires = now + write.ttl;
        let mut held = Held {
            value: write.value,
            version: self.next_version(),
            expires,
            listed: expires,
        };
        let is_synced = write.is_synced;
        let written = self.write_out(&writing.key, Some(&held), gone, is_synced);
        written.await?;
        let mut inner = self.lock();
        match before.map(|(.., listed)| listed) {
            // It is listed anew when its turn comes, not with each write.
            Some(listed) if listed <= expires => held.listed = listed,
            before => {
                if let Some(listed) = before {
                    inner.expiry.remove(&(listed, writing.key.clone()));
                }
                inner.expiry.insert((expires, writing.key.clone()));
            }
        }
        drop(inner);
        let version = held.version;
        writing.put(Some(held));
        Ok(Some(version))
    }

    async fn delete(&self, key: &[u8], expected: Version, now: Duration) -> Result<bool, Fault> {
        self.read_once().await?;
        let mut writing = self.write(key).await;
        let Some(held) = writing.held() else {
            return Ok(false);
        };
        let (is_it, listed) = (held.version == expected && held.expires > now, held.listed);
        if !is_it {
            return Ok(false);
        }
        let written = self.write_out(&writing.key, None, Vec::new(), false);
        written.await?;
        self.lock().expiry.remove(&(listed, writing.key.clone()));
        writing.put(None);
        Ok(true)
    }

    async fn find(&self, key: &[u8], now: Duration) -> Result<Option<Entry>, Fault> {
        self.read_once().await?;
        let slot = self.lock().slots.get(key).cloned();
        let Some(slot) = slot else { return Ok(None) };
        let held = slot.lock().await;
        let held = held.as_ref().filter(|it| it.expires > now);
        Ok(held.map(|it| Entry {
            value: it.value.clone(),
            version: it.version,
        }))
    }
}

impl KeyValueStore for Embedded {
    fn get<'a>(
        &'a self,
        key: &'a [u8],
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Entry>, Fault>> {
        Box::pin(self.find(key, services.wall()))
    }

    fn compare_and_set<'a>(
        &'a self,
        key: &'a [u8],
        write: Write,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Version>, Fault>> {
        Box::pin(self.set(key, write, services.wall()))
    }

    fn compare_and_delete<'a>(
        &'a self,
        key: &'a [u8],
        expected: Version,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<bool, Fault>> {
        Box::pin(self.delete(key, expected, services.wall()))
    }
}
