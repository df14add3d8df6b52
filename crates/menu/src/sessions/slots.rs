//! Values in memory, each with a lock of its own, in two orders: by when they are gone, and by how
//! long they are needed. Each knows whether the disk may have another value than memory.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use component::key_value::Version;
use tokio::sync::OwnedMutexGuard;

/// How many values are taken out at once to make room.
const SWEEP: usize = 16;

/// A value that is kept.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub value: Bytes,
    pub version: Version,
    /// When it is gone, by the time of day.
    pub expires: Duration,
}

impl Held {
    pub fn encode(&self) -> Bytes {
        let mut bytes = (self.expires.as_millis() as u64).to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.value);
        bytes.into()
    }

    pub fn decode(bytes: &Bytes, version: Version) -> Option<Self> {
        Some(Self {
            value: bytes.slice(8..),
            version,
            expires: expires(bytes)?,
        })
    }
}

/// When a value is gone that was encoded so.
pub(super) fn expires(bytes: &[u8]) -> Option<Duration> {
    let expires = bytes.first_chunk().map(|it| u64::from_be_bytes(*it))?;
    Some(Duration::from_millis(expires))
}

/// Until when a value is needed, and until when it is known, by the time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    needed: Duration,
    expires: Duration,
}

impl Times {
    /// Of no value.
    pub const NONE: Self = Self {
        needed: Duration::ZERO,
        expires: Duration::ZERO,
    };

    fn or_later(self, other: Self) -> Self {
        Self {
            needed: self.needed.max(other.needed),
            expires: self.expires.max(other.expires),
        }
    }
}

/// What there is of a key.
#[derive(Default)]
pub(super) struct Slot {
    pub held: Option<Held>,
    /// Whether the disk may have something else, since nobody has heard the end of a write: the
    /// times of what that would have made of it.
    pub unsure: Option<Times>,
    /// Where it is in the two orders.
    listed: Option<Times>,
}

type Shared = Arc<tokio::sync::Mutex<Slot>>;

#[derive(Default)]
struct Inner {
    slots: HashMap<Bytes, Shared>,
    /// When values are gone.
    by_expiry: BTreeSet<(Duration, Bytes)>,
    /// Until when they are needed, and when they are gone.
    by_need: BTreeSet<(Duration, Duration, Bytes)>,
}

impl Inner {
    fn list(&mut self, key: &Bytes, slot: &mut Slot, times: Option<Times>) {
        if slot.listed == times {
            return;
        }
        if let Some(before) = slot.listed {
            self.by_expiry.remove(&(before.expires, key.clone()));
            let entry = (before.needed, before.expires, key.clone());
            self.by_need.remove(&entry);
        }
        if let Some(times) = times {
            self.by_expiry.insert((times.expires, key.clone()));
            let entry = (times.needed, times.expires, key.clone());
            self.by_need.insert(entry);
        }
        slot.listed = times;
    }
}

/// The values of one store.
pub(super) struct Slots {
    inner: Mutex<Inner>,
    /// Until when a value is needed: behind that it may make room for others.
    needed: fn(&[u8]) -> Duration,
}

impl Slots {
    pub fn new(needed: fn(&[u8]) -> Duration) -> Self {
        Self {
            inner: Mutex::default(),
            needed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many values there are, those included that are being written.
    pub fn count(&self) -> usize {
        self.lock().by_expiry.len()
    }

    /// How many keys have a slot.
    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.lock().slots.len()
    }

    /// The times of a value.
    pub fn times(&self, held: &Held) -> Times {
        Times {
            needed: (self.needed)(&held.value),
            expires: held.expires,
        }
    }

    /// Puts in what the disk has.
    pub fn load(&self, key: Bytes, held: Held) {
        let times = self.times(&held);
        let mut slot = Slot {
            held: Some(held),
            ..Slot::default()
        };
        let mut inner = self.lock();
        inner.list(&key, &mut slot, Some(times));
        inner
            .slots
            .insert(key, Arc::new(tokio::sync::Mutex::new(slot)));
    }

    /// Waits until nobody else works on a key.
    pub async fn enter(&self, key: &[u8]) -> SlotGuard<'_> {
        let key = Bytes::copy_from_slice(key);
        let slot = Arc::clone(self.lock().slots.entry(key.clone()).or_default());
        // First: whoever waits may be dropped.
        let entry = Entry { slots: self, key };
        SlotGuard {
            guard: slot.lock_owned().await,
            entry,
        }
    }

    /// The same for a key that has something.
    pub async fn enter_known(&self, key: &[u8]) -> Option<SlotGuard<'_>> {
        let (key, slot) = {
            let inner = self.lock();
            let (key, slot) = inner.slots.get_key_value(key)?;
            (key.clone(), Arc::clone(slot))
        };
        let entry = Entry { slots: self, key };
        Some(SlotGuard {
            guard: slot.lock_owned().await,
            entry,
        })
    }

    /// Takes out values whose time is over. When one more has to find room among so many, those
    /// that are not needed any more go too, the oldest first; `None` when there is none of them.
    /// Those that somebody works on stay. Whatever is not [forgotten](SlotGuard::forget) comes back
    /// when its guard is dropped.
    pub fn make_room(
        &self,
        now: Duration,
        most: usize,
        is_one_more: bool,
    ) -> Option<Vec<SlotGuard<'_>>> {
        let (gone, has_room) = {
            let mut inner = self.lock();
            let over = inner.by_expiry.iter().take_while(|(at, _)| *at <= now);
            let over = over.filter_map(|(_, key)| self.try_enter(&inner, key));
            let mut gone: Vec<_> = over.take(SWEEP).collect();
            let left = inner.by_expiry.len() - gone.len();
            let surplus = match is_one_more {
                true => (left + 1).saturating_sub(most),
                false => 0,
            };
            let unneeded = inner.by_need.iter();
            let unneeded = unneeded.take_while(|(needed, ..)| *needed <= now);
            let unneeded = unneeded.filter_map(|(.., key)| self.try_enter(&inner, key));
            gone.extend(unneeded.take(surplus.min(SWEEP)));
            for guard in &mut gone {
                let key = guard.entry.key.clone();
                inner.list(&key, &mut guard.guard, None);
            }
            let has_room = surplus == 0 || !gone.is_empty();
            (gone, has_room)
        };
        Some(gone).filter(|_| has_room)
    }

    fn try_enter(&self, inner: &Inner, key: &Bytes) -> Option<SlotGuard<'_>> {
        let slot = Arc::clone(inner.slots.get(key)?);
        let guard = slot.try_lock_owned().ok()?;
        let entry = Entry {
            slots: self,
            key: key.clone(),
        };
        Some(SlotGuard { guard, entry })
    }
}

/// A key that somebody works on, or waits for. An empty slot goes with the last of them.
struct Entry<'a> {
    slots: &'a Slots,
    key: Bytes,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut inner = self.slots.lock();
        // Whoever else works on it, or waits, has a copy.
        let alone = inner.slots.get_mut(&self.key).and_then(Arc::get_mut);
        if alone.is_some_and(|slot| slot.get_mut().listed.is_none()) {
            inner.slots.remove(&self.key);
        }
    }
}

/// What there is of a key, for one who works on it.
pub(super) struct SlotGuard<'a> {
    guard: OwnedMutexGuard<Slot>,
    /// Dropped behind the guard.
    entry: Entry<'a>,
}

impl SlotGuard<'_> {
    pub fn key(&self) -> &Bytes {
        &self.entry.key
    }

    /// Whether it counts among the values that there are.
    pub fn is_counted(&self) -> bool {
        self.listed.is_some()
    }

    /// A write begins that makes this of it. Until [`SlotGuard::put`] or [`SlotGuard::forget`]
    /// nobody knows whether the disk has it; from here on there is room for it.
    pub fn begin(&mut self, times: Times) {
        self.unsure = Some(times);
        self.list();
    }

    /// The disk has this value.
    pub fn put(&mut self, held: Held) {
        (self.held, self.unsure) = (Some(held), None);
    }

    /// The disk has none.
    pub fn forget(&mut self) {
        (self.held, self.unsure) = (None, None);
    }

    fn list(&mut self) {
        let slots = self.entry.slots;
        let held = self.held.as_ref().map(|it| slots.times(it));
        let times = match (held, self.unsure) {
            (Some(held), Some(unsure)) => Some(held.or_later(unsure)),
            (held, unsure) => held.or(unsure),
        };
        if self.listed != times {
            let Self { guard, entry } = self;
            slots.lock().list(&entry.key, guard, times);
        }
    }
}

impl Deref for SlotGuard<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.guard
    }
}

impl DerefMut for SlotGuard<'_> {
    fn deref_mut(&mut self) -> &mut Slot {
        &mut self.guard
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        self.list();
    }
}
