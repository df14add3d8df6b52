//! Values in memory in two orders: by when they expire, and by how long they are needed. One that
//! is in use has a lock, and knows whether the disk may have another value than memory. All others
//! are idle, and there may be millions of them: they take as little memory as they can.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use component::key_value::Version;
use tokio::sync::OwnedMutexGuard;

/// How many values are taken out at once to make room.
const SWEEP: usize = 16;

/// What a value goes by: a hash.
pub(super) type Key = [u8; 32];

/// Milliseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timestamp(u64);

impl Timestamp {
    pub fn of(time: Duration) -> Self {
        Self(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub fn time(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// These bytes with the time in front, as they are stored.
    pub fn prepend(self, bytes: &[u8]) -> Vec<u8> {
        [&self.0.to_be_bytes(), bytes].concat()
    }

    /// The time in front of stored bytes, and those behind it.
    pub fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (time, rest) = bytes.split_first_chunk()?;
        Some((Self(u64::from_be_bytes(*time)), rest))
    }
}

/// A value that is kept.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub value: Box<[u8]>,
    pub version: Version,
    /// When it is gone.
    pub expires: Timestamp,
}

impl Held {
    pub fn encode(&self) -> Vec<u8> {
        self.expires.prepend(&self.value)
    }

    pub fn decode(bytes: &[u8], version: Version) -> Option<Self> {
        let (expires, value) = Timestamp::split(bytes)?;
        Some(Self {
            value: value.into(),
            version,
            expires,
        })
    }
}

/// Until when a value is needed, and until when it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    needed: Timestamp,
    expires: Timestamp,
}

impl Times {
    /// Of no value.
    pub const NONE: Self = Self {
        needed: Timestamp(0),
        expires: Timestamp(0),
    };

    fn or_later(self, other: Self) -> Self {
        Self {
            needed: self.needed.max(other.needed),
            expires: self.expires.max(other.expires),
        }
    }
}

/// What there is of a key that is in use.
#[derive(Default)]
pub(super) struct Slot {
    pub held: Option<Held>,
    /// Whether the disk may have something else, since nobody has heard the end of a write: the
    /// times of what that would have made of it.
    pub unsure: Option<Times>,
    /// Where it is in the two orders.
    listed: Option<Times>,
}

impl Slot {
    /// The value that there is at a time of day.
    pub fn at(&self, now: Duration) -> Option<&Held> {
        let held = self.held.as_ref();
        held.filter(|it| it.expires > Timestamp::of(now))
    }
}

type Shared = Arc<tokio::sync::Mutex<Slot>>;

enum SlotState {
    /// No request uses the value, and the disk has the same one. It stands in the two orders.
    Idle(Held),
    /// A request uses it or waits for it, or it is not known what the disk has.
    InUse(Shared),
}

/// Gives the time until which a value is needed. Later it may be evicted to make room for others.
pub(super) type NeededUntil = fn(&[u8]) -> Timestamp;

#[derive(Default)]
struct Inner {
    slots: HashMap<Key, SlotState>,
    /// When values expire.
    by_expiry: BTreeSet<(Timestamp, Key)>,
    /// Until when they are needed, and when they expire.
    by_need: BTreeSet<(Timestamp, Timestamp, Key)>,
}

impl Inner {
    /// Moves a key in the two orders.
    fn list(&mut self, key: &Key, before: Option<Times>, times: Option<Times>) {
        if let Some(before) = before {
            self.by_expiry.remove(&(before.expires, *key));
            let entry = (before.needed, before.expires, *key);
            self.by_need.remove(&entry);
        }
        if let Some(times) = times {
            self.by_expiry.insert((times.expires, *key));
            let entry = (times.needed, times.expires, *key);
            self.by_need.insert(entry);
        }
    }
}

/// The values of one store.
pub(super) struct Slots {
    inner: Mutex<Inner>,
    needed_until: NeededUntil,
}

impl Slots {
    pub fn new(needed_until: NeededUntil) -> Self {
        Self {
            inner: Mutex::default(),
            needed_until,
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
            needed: (self.needed_until)(&held.value),
            expires: held.expires,
        }
    }

    /// Puts in what the disk has.
    pub fn load(&self, key: Key, held: Held) {
        let times = self.times(&held);
        let mut inner = self.lock();
        inner.list(&key, None, Some(times));
        inner.slots.insert(key, SlotState::Idle(held));
    }

    /// Waits until nobody else works on a key.
    pub async fn enter(&self, key: Key) -> SlotGuard<'_> {
        let slot = {
            let mut inner = self.lock();
            let state = inner.slots.entry(key);
            self.activate(state.or_insert_with(|| SlotState::InUse(Shared::default())))
        };
        // First: whoever waits may be dropped.
        let entry = Entry { slots: self, key };
        SlotGuard {
            guard: slot.lock_owned().await,
            entry,
        }
    }

    /// The same for a key that has something.
    pub async fn enter_known(&self, key: Key) -> Option<SlotGuard<'_>> {
        let slot = self.activate(self.lock().slots.get_mut(&key)?);
        let entry = Entry { slots: self, key };
        Some(SlotGuard {
            guard: slot.lock_owned().await,
            entry,
        })
    }

    /// The slot with its lock, for a request that uses it. The request has to drop an [`Entry`]
    /// after it, which makes the slot idle again.
    fn activate(&self, state: &mut SlotState) -> Shared {
        match state {
            SlotState::InUse(slot) => Arc::clone(slot),
            SlotState::Idle(held) => {
                let times = self.times(held);
                let value = mem::take(&mut held.value);
                let slot = Shared::new(tokio::sync::Mutex::new(Slot {
                    held: Some(Held { value, ..*held }),
                    unsure: None,
                    listed: Some(times),
                }));
                *state = SlotState::InUse(Arc::clone(&slot));
                slot
            }
        }
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
        let now = Timestamp::of(now);
        let mut inner = self.lock();
        let Inner {
            slots,
            by_expiry,
            by_need,
        } = &mut *inner;
        let over = by_expiry.iter().take_while(|(at, _)| *at <= now);
        let over = over.filter_map(|(_, key)| self.try_enter(slots, key));
        let mut gone: Vec<_> = over.take(SWEEP).collect();
        let left = by_expiry.len() - gone.len();
        let surplus = match is_one_more {
            true => (left + 1).saturating_sub(most),
            false => 0,
        };
        let unneeded = by_need.iter();
        let unneeded = unneeded.take_while(|(needed, ..)| *needed <= now);
        let unneeded = unneeded.filter_map(|(.., key)| self.try_enter(slots, key));
        gone.extend(unneeded.take(surplus.min(SWEEP)));
        for guard in &mut gone {
            inner.list(&guard.entry.key, guard.guard.listed.take(), None);
        }
        drop(inner);
        let has_room = surplus == 0 || !gone.is_empty();
        Some(gone).filter(|_| has_room)
    }

    fn try_enter(&self, slots: &mut HashMap<Key, SlotState>, key: &Key) -> Option<SlotGuard<'_>> {
        let slot = self.activate(slots.get_mut(key)?);
        let guard = slot.try_lock_owned().ok()?;
        let entry = Entry {
            slots: self,
            key: *key,
        };
        Some(SlotGuard { guard, entry })
    }
}

/// A key that a request uses or waits for. When the last of them is dropped, the slot is idle
/// again, or goes if it has no value.
struct Entry<'a> {
    slots: &'a Slots,
    key: Key,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut inner = self.slots.lock();
        let Some(state) = inner.slots.get_mut(&self.key) else {
            return;
        };
        let SlotState::InUse(slot) = state else {
            return;
        };
        // Whoever else uses it, or waits, has a copy.
        let Some(slot) = Arc::get_mut(slot).map(tokio::sync::Mutex::get_mut) else {
            return;
        };
        match slot {
            Slot { listed: None, .. } => {
                inner.slots.remove(&self.key);
            }
            Slot {
                held, unsure: None, ..
            } => {
                if let Some(held) = held.take() {
                    *state = SlotState::Idle(held);
                }
            }
            // The next one who asks for it finds out what the disk has.
            _ => {}
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
    pub fn key(&self) -> &Key {
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
            slots.lock().list(&self.entry.key, self.listed, times);
            self.listed = times;
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
