//! Values in memory in two orders: by when they are gone, and by how long they are needed. One that
//! somebody works on has a lock, and knows whether the disk may have another value than memory. All
//! others, of which there may be millions, rest: they take as little room as they can.

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

/// A time of day in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

impl Moment {
    pub fn of(time: Duration) -> Self {
        Self(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A value that is kept.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub value: Box<[u8]>,
    pub version: Version,
    /// When it is gone.
    pub expires: Moment,
}

impl Held {
    pub fn encode(&self) -> Vec<u8> {
        [&self.expires.0.to_be_bytes(), &*self.value].concat()
    }

    pub fn decode(bytes: &[u8], version: Version) -> Option<Self> {
        Some(Self {
            value: bytes.get(8..)?.into(),
            version,
            expires: expires(bytes)?,
        })
    }
}

/// When a value is gone that was encoded so.
pub(super) fn expires(bytes: &[u8]) -> Option<Moment> {
    let expires = bytes.first_chunk();
    expires.map(|it| Moment(u64::from_be_bytes(*it)))
}

/// Until when a value is needed, and until when it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    needed: Moment,
    expires: Moment,
}

impl Times {
    /// Of no value.
    pub const NONE: Self = Self {
        needed: Moment(0),
        expires: Moment(0),
    };

    fn or_later(self, other: Self) -> Self {
        Self {
            needed: self.needed.max(other.needed),
            expires: self.expires.max(other.expires),
        }
    }
}

/// What there is of a key that somebody works on.
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
        held.filter(|it| it.expires > Moment::of(now))
    }
}

type Shared = Arc<tokio::sync::Mutex<Slot>>;

/// Where a value is.
enum Place {
    /// Nobody works on it, and the disk has the same. It is listed with its times.
    Resting(Held),
    /// Somebody works on it, or nobody knows what the disk has.
    Open(Shared),
}

/// Until when a value is needed: behind that it may make room for others.
type Needed = fn(&[u8]) -> Duration;

struct Inner {
    places: HashMap<Key, Place>,
    /// When values are gone.
    by_expiry: BTreeSet<(Moment, Key)>,
    /// Until when they are needed, and when they are gone.
    by_need: BTreeSet<(Moment, Moment, Key)>,
}

impl Inner {
    fn list(&mut self, key: &Key, slot: &mut Slot, times: Option<Times>) {
        if slot.listed == times {
            return;
        }
        if let Some(before) = slot.listed {
            self.by_expiry.remove(&(before.expires, *key));
            let entry = (before.needed, before.expires, *key);
            self.by_need.remove(&entry);
        }
        if let Some(times) = times {
            self.by_expiry.insert((times.expires, *key));
            let entry = (times.needed, times.expires, *key);
            self.by_need.insert(entry);
        }
        slot.listed = times;
    }
}

/// The values of one store.
pub(super) struct Slots {
    inner: Mutex<Inner>,
    needed: Needed,
}

impl Slots {
    pub fn new(needed: Needed) -> Self {
        Self {
            inner: Mutex::new(Inner {
                places: HashMap::new(),
                by_expiry: BTreeSet::new(),
                by_need: BTreeSet::new(),
            }),
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

    /// How many keys have a place.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.lock().places.len()
    }

    /// The times of a value.
    pub fn times(&self, held: &Held) -> Times {
        Times {
            needed: Moment::of((self.needed)(&held.value)),
            expires: held.expires,
        }
    }

    /// Puts in what the disk has.
    pub fn load(&self, key: Key, held: Held) {
        let times = self.times(&held);
        let mut inner = self.lock();
        inner.list(&key, &mut Slot::default(), Some(times));
        inner.places.insert(key, Place::Resting(held));
    }

    /// Waits until nobody else works on a key.
    pub async fn enter(&self, key: Key) -> SlotGuard<'_> {
        let slot = {
            let mut inner = self.lock();
            let place = inner.places.entry(key);
            self.open(place.or_insert_with(|| Place::Open(Shared::default())))
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
        let slot = self.open(self.lock().places.get_mut(&key)?);
        let entry = Entry { slots: self, key };
        Some(SlotGuard {
            guard: slot.lock_owned().await,
            entry,
        })
    }

    /// A value rests no more. Whoever gets this has to drop an [`Entry`] behind it.
    fn open(&self, place: &mut Place) -> Shared {
        match place {
            Place::Open(slot) => Arc::clone(slot),
            Place::Resting(held) => {
                let times = self.times(held);
                let value = mem::take(&mut held.value);
                let slot = Shared::new(tokio::sync::Mutex::new(Slot {
                    held: Some(Held { value, ..*held }),
                    unsure: None,
                    listed: Some(times),
                }));
                *place = Place::Open(Arc::clone(&slot));
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
        let now = Moment::of(now);
        let mut inner = self.lock();
        let Inner {
            places,
            by_expiry,
            by_need,
        } = &mut *inner;
        let over = by_expiry.iter().take_while(|(at, _)| *at <= now);
        let over = over.filter_map(|(_, key)| self.try_enter(places, key));
        let mut gone: Vec<_> = over.take(SWEEP).collect();
        let left = by_expiry.len() - gone.len();
        let surplus = match is_one_more {
            true => (left + 1).saturating_sub(most),
            false => 0,
        };
        let unneeded = by_need.iter();
        let unneeded = unneeded.take_while(|(needed, ..)| *needed <= now);
        let unneeded = unneeded.filter_map(|(.., key)| self.try_enter(places, key));
        gone.extend(unneeded.take(surplus.min(SWEEP)));
        for guard in &mut gone {
            let key = guard.entry.key;
            inner.list(&key, &mut guard.guard, None);
        }
        let has_room = surplus == 0 || !gone.is_empty();
        Some(gone).filter(|_| has_room)
    }

    fn try_enter(&self, places: &mut HashMap<Key, Place>, key: &Key) -> Option<SlotGuard<'_>> {
        let slot = self.open(places.get_mut(key)?);
        let guard = slot.try_lock_owned().ok()?;
        let entry = Entry {
            slots: self,
            key: *key,
        };
        Some(SlotGuard { guard, entry })
    }
}

/// A key that somebody works on, or waits for. With the last of them its value rests again, or its
/// place goes if it has none.
struct Entry<'a> {
    slots: &'a Slots,
    key: Key,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut inner = self.slots.lock();
        let Some(place) = inner.places.get_mut(&self.key) else {
            return;
        };
        let Place::Open(slot) = place else { return };
        // Whoever else works on it, or waits, has a copy.
        let Some(slot) = Arc::get_mut(slot).map(tokio::sync::Mutex::get_mut) else {
            return;
        };
        match slot {
            Slot { listed: None, .. } => {
                inner.places.remove(&self.key);
            }
            Slot {
                held, unsure: None, ..
            } => {
                if let Some(held) = held.take() {
                    *place = Place::Resting(held);
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
