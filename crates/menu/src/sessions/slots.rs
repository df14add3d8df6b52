//! Values in memory in two orders: by when they expire, and by how long they are needed. One that
//! is in use has a lock, and knows whether the disk may have another value than memory. All others
//! are idle, and there may be millions of them: they take as little memory as they can.

mod table;

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use component::key_value::Version;
use tokio::sync::OwnedMutexGuard;

use table::{Place, Table};

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
    /// A request uses it or waits for it, or it is not known what the disk has. `None` where there
    /// is no slot: another variant would take a word more of each.
    InUse(Option<Shared>),
}

/// Gives the time until which a value is needed. Later it may be evicted to make room for others.
pub(super) type NeededUntil = fn(&[u8]) -> Timestamp;

/// The values of one store.
pub(super) struct Slots {
    table: Mutex<Table>,
    needed_until: NeededUntil,
}

impl Slots {
    pub fn new(needed_until: NeededUntil) -> Self {
        Self {
            table: Mutex::default(),
            needed_until,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many values there are, those included that are being written.
    pub fn count(&self) -> usize {
        self.lock().listed()
    }

    /// How many keys have a slot.
    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.lock().len()
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
        let mut table = self.lock();
        let state = SlotState::Idle(held);
        let at = match table.find(&key) {
            // An earlier try to read all has not come to its end.
            Some(at) => {
                if let Some(before) = table.state_mut(at) {
                    *before = state;
                }
                at
            }
            None => table.insert(key, state),
        };
        table.list(at, None, Some(times));
    }

    /// Waits until nobody else works on a key.
    pub async fn enter(&self, key: Key) -> SlotGuard<'_> {
        let (at, slot) = {
            let mut table = self.lock();
            let at = match table.find(&key) {
                Some(at) => at,
                None => table.insert(key, SlotState::InUse(None)),
            };
            let slot = table.state_mut(at).map(|state| self.activate(state));
            (at, slot.unwrap_or_default())
        };
        self.wait(at, key, slot).await
    }

    /// The same for a key that has something.
    pub async fn enter_known(&self, key: Key) -> Option<SlotGuard<'_>> {
        let (at, slot) = {
            let mut table = self.lock();
            let at = table.find(&key)?;
            (at, self.activate(table.state_mut(at)?))
        };
        Some(self.wait(at, key, slot).await)
    }

    async fn wait(&self, at: Place, key: Key, slot: Shared) -> SlotGuard<'_> {
        // First: whoever waits may be dropped.
        let entry = Entry { slots: self, key };
        let guard = slot.lock_owned().await;
        SlotGuard { guard, at, entry }
    }

    /// The slot with its lock, for a request that uses it. The request has to drop an [`Entry`]
    /// after it, which makes the slot idle again.
    fn activate(&self, state: &mut SlotState) -> Shared {
        match state {
            SlotState::InUse(slot) => Arc::clone(slot.get_or_insert_default()),
            SlotState::Idle(held) => {
                let times = self.times(held);
                let value = mem::take(&mut held.value);
                let slot = Shared::new(tokio::sync::Mutex::new(Slot {
                    held: Some(Held { value, ..*held }),
                    unsure: None,
                    listed: Some(times),
                }));
                *state = SlotState::InUse(Some(Arc::clone(&slot)));
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
        let mut table = self.lock();
        let mut gone =
            table.take_expired(now, SWEEP, |at, key, state| self.try_enter(at, key, state));
        let left = table.listed() - gone.len();
        let surplus = match is_one_more {
            true => (left + 1).saturating_sub(most),
            false => 0,
        };
        let surplus = surplus.min(SWEEP);
        let unneeded = table.take_unneeded(now, surplus, |at, key, state| {
            self.try_enter(at, key, state)
        });
        gone.extend(unneeded);
        for guard in &mut gone {
            table.list(guard.at, guard.guard.listed.take(), None);
        }
        drop(table);
        let has_room = surplus == 0 || !gone.is_empty();
        Some(gone).filter(|_| has_room)
    }

    /// Takes a slot that nobody uses.
    fn try_enter(&self, at: Place, key: &Key, state: &mut SlotState) -> Option<SlotGuard<'_>> {
        let slot = self.activate(state);
        let guard = slot.try_lock_owned().ok()?;
        let entry = Entry {
            slots: self,
            key: *key,
        };
        Some(SlotGuard { guard, at, entry })
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
        let mut table = self.slots.lock();
        // Others may have taken it out meanwhile, and the place be another key's.
        let Some(at) = table.find(&self.key) else {
            return;
        };
        let Some(state) = table.state_mut(at) else {
            return;
        };
        let SlotState::InUse(Some(slot)) = state else {
            return;
        };
        // Whoever else uses it, or waits, has a copy.
        let Some(slot) = Arc::get_mut(slot).map(tokio::sync::Mutex::get_mut) else {
            return;
        };
        match slot {
            Slot { listed: None, .. } => {
                table.remove(at);
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
    /// Where the slot is: it stays there as long as somebody uses it.
    at: Place,
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
            slots.lock().list(self.at, self.listed, times);
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
