//! Values by key in memory and, where there is one, in the data folder. A write that was dropped or
//! has failed may be on the disk: the next who asks for the key reads it there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use component::handler::{LocalFuture, Services};
use component::key_value::{Entry, KeyValueStore, Version, Write};
use journal::{Change, Durability, Keyed, Refusal};
use message::{Fault, Kind, Origin};
use steps::KeyedStateHandle;
use tokio::sync::OnceCell;

use super::leftovers::{Scope, Scopes};
use super::slots::{Held, Key, NeededUntil, SlotGuard, Slots, Times, Timestamp};

/// The table of the keyed state.
pub(super) const TABLE: &str = "sessions";
/// How many values are read at a time.
const PAGE: usize = 1000;

/// The data folder's keyed state, and what of it belongs to one store.
pub(super) struct Disk {
    pub state: KeyedStateHandle,
    /// What the keys begin with.
    pub scope: Scope,
}

/// The values of one scope.
pub(super) struct Embedded {
    /// Memory alone without it.
    disk: Option<Disk>,
    /// The most values.
    most: AtomicUsize,
    versions: AtomicU64,
    slots: Slots,
    is_read: OnceCell<()>,
}

impl Embedded {
    /// A store of values that may go before their time when they are not needed any more, where
    /// there are too many.
    pub fn new(disk: Option<Disk>, needed_until: NeededUntil) -> Self {
        Self {
            disk,
            most: AtomicUsize::new(usize::MAX),
            versions: AtomicU64::new(0),
            slots: Slots::new(needed_until),
            is_read: OnceCell::new(),
        }
    }

    /// Sets how many values there may be.
    pub fn bound(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// How many values there are.
    pub fn count(&self) -> usize {
        self.slots.count()
    }

    #[cfg(test)]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The keyed state, and where the keys are in it.
    fn keyed(&self) -> Option<(&Keyed, &Scope)> {
        let disk = self.disk.as_ref()?;
        Some((disk.state.keyed()?, &disk.scope))
    }

    fn next_version(&self) -> Version {
        Version(self.versions.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Reads the values of an earlier run, once.
    async fn read_once(&self, services: &dyn Services) -> Result<(), Fault> {
        let Some((keyed, scope)) = self.keyed() else {
            return Ok(());
        };
        let read = self.is_read.get_or_try_init(|| self.read(keyed, scope));
        read.await.map_err(|refusal| {
            let detail = "the sessions of before cannot be read";
            Fault::new(Kind::Unavailable, Origin::Engine, detail).with_cause(refusal)
        })?;
        Scopes::sweep_when_due(scope.scopes(), keyed, services);
        Ok(())
    }

    async fn read(&self, keyed: &Keyed, scope: &Scope) -> Result<(), Refusal> {
        // Whoever deletes what belongs to no scope has not seen this one before.
        let _turn = scope.scopes().turn().await;
        let mut after: Option<Bytes> = None;
        loop {
            let page = keyed.scan(TABLE, scope.prefix(), after.as_deref(), PAGE);
            let page = page.await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for (name, value) in &page {
                let key = name
                    .get(scope.prefix().len()..)
                    .and_then(|it| it.try_into().ok());
                let held = Held::decode(value, self.next_version());
                if let (Some(key), Some(held)) = (key, held) {
                    self.slots.load(key, held);
                }
            }
        }
    }

    /// Finds out what the disk has of a key where that is not known.
    async fn settle(&self, slot: &mut SlotGuard<'_>) -> Result<(), Fault> {
        let Some((keyed, scope)) = self.keyed().filter(|_| slot.unsure.is_some()) else {
            slot.unsure = None;
            return Ok(());
        };
        let value = keyed.get(TABLE, &scope.name(slot.key())).await;
        let value = value.map_err(|refusal| {
            let detail = "the session cannot be read";
            Fault::new(Kind::Unavailable, Origin::Engine, detail).with_cause(refusal)
        })?;
        slot.unsure = None;
        // Whoever has read it before the write knows its version.
        if slot.held.as_ref().map(Held::encode).as_deref() != value.as_deref() {
            slot.held = value.and_then(|it| Held::decode(&it, self.next_version()));
        }
        Ok(())
    }

    /// Writes to the disk, where there is one: a value or that there is none, and that others are
    /// gone.
    async fn write_out(
        &self,
        key: &Key,
        held: Option<&Held>,
        gone: &[SlotGuard<'_>],
        is_synced: bool,
    ) -> Result<(), Fault> {
        let Some((keyed, scope)) = self.keyed() else {
            return Ok(());
        };
        let table: Arc<str> = TABLE.into();
        let delete = |key: &Key| Change::Delete {
            table: Arc::clone(&table),
            key: scope.name(key),
        };
        let mut changes: Vec<Change> = gone.iter().map(|it| delete(it.key())).collect();
        changes.push(match held {
            Some(held) => Change::Put {
                table: Arc::clone(&table),
                key: scope.name(key),
                value: held.encode().into(),
            },
            None => delete(key),
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

    async fn set(
        &self,
        key: &[u8],
        write: Write,
        services: &dyn Services,
    ) -> Result<Option<Version>, Fault> {
        self.read_once(services).await?;
        let mut slot = self.slots.enter(to_key(key)?).await;
        self.settle(&mut slot).await?;
        let now = services.wall();
        if slot.at(now).map(|it| it.version) != write.expected {
            return Ok(None);
        }
        let most = self.most.load(Ordering::Relaxed);
        let gone = self.slots.make_room(now, most, !slot.is_counted());
        let Some(mut gone) = gone else {
            let detail = "there are too many sessions";
            return Err(Fault::new(Kind::Unavailable, Origin::Engine, detail));
        };
        let version = self.next_version();
        let held = Held {
            // Without what the writer had to spare.
            value: Box::from(&*write.value),
            version,
            expires: Timestamp::of(now + write.ttl),
        };
        slot.begin(self.slots.times(&held));
        gone.iter_mut().for_each(|it| it.unsure = Some(Times::NONE));
        let written = self.write_out(slot.key(), Some(&held), &gone, write.is_synced);
        written.await?;
        gone.iter_mut().for_each(SlotGuard::forget);
        slot.put(held);
        Ok(Some(version))
    }

    async fn delete(
        &self,
        key: &[u8],
        expected: Version,
        services: &dyn Services,
    ) -> Result<bool, Fault> {
        let Some(mut slot) = self.enter_known(key, services).await? else {
            return Ok(false);
        };
        let held = slot.at(services.wall());
        if held.is_none_or(|held| held.version != expected) {
            return Ok(false);
        }
        slot.begin(Times::NONE);
        let written = self.write_out(slot.key(), None, &[], false);
        written.await?;
        slot.forget();
        Ok(true)
    }

    async fn find(&self, key: &[u8], services: &dyn Services) -> Result<Option<Entry>, Fault> {
        let slot = self.enter_known(key, services).await?;
        let held = slot.as_ref().and_then(|it| it.at(services.wall()));
        Ok(held.map(|it| Entry {
            value: Bytes::copy_from_slice(&it.value),
            version: it.version,
        }))
    }

    /// The slot of a key that has something, when nobody else uses it.
    async fn enter_known(
        &self,
        key: &[u8],
        services: &dyn Services,
    ) -> Result<Option<SlotGuard<'_>>, Fault> {
        self.read_once(services).await?;
        let Some(mut slot) = self.slots.enter_known(to_key(key)?).await else {
            return Ok(None);
        };
        self.settle(&mut slot).await?;
        Ok(Some(slot))
    }
}

fn to_key(bytes: &[u8]) -> Result<Key, Fault> {
    bytes.try_into().map_err(|_| {
        let detail = "the key of a session is no hash";
        Fault::new(Kind::Internal, Origin::Engine, detail)
    })
}

impl KeyValueStore for Embedded {
    fn get<'a>(
        &'a self,
        key: &'a [u8],
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Entry>, Fault>> {
        Box::pin(self.find(key, services))
    }

    fn compare_and_set<'a>(
        &'a self,
        key: &'a [u8],
        write: Write,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Version>, Fault>> {
        Box::pin(self.set(key, write, services))
    }

    fn compare_and_delete<'a>(
        &'a self,
        key: &'a [u8],
        expected: Version,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<bool, Fault>> {
        Box::pin(self.delete(key, expected, services))
    }
}
