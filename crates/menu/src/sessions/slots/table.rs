//! Slots by their keys, and in two orders: by when their values expire, and by how long these are
//! needed. There may be millions of slots, so each key is stored once; the index and the two orders
//! refer to a slot by its place, which takes four bytes.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::{Key, SlotState, Times, Timestamp};

/// Where a slot is, as long as it is there.
pub(super) type Place = u32;

struct Row {
    key: Key,
    state: SlotState,
}

/// The slots.
#[derive(Default)]
pub(super) struct Table {
    hash: RandomState,
    /// Places by the keys there.
    index: HashTable<Place>,
    rows: Vec<Row>,
    /// Places without a slot.
    free: Vec<Place>,
    /// When values expire.
    by_expiry: BTreeSet<(Timestamp, Place)>,
    /// Until when they are needed, and when they expire.
    by_need: BTreeSet<(Timestamp, Timestamp, Place)>,
}

impl Table {
    /// How many slots there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// How many of them are in the two orders.
    pub fn listed(&self) -> usize {
        self.by_expiry.len()
    }

    /// Where the slot of a key is, if there is one.
    pub fn find(&self, key: &Key) -> Option<Place> {
        let is_it = |at: &Place| {
            let row = self.rows.get(*at as usize);
            row.is_some_and(|it| it.key == *key)
        };
        self.index.find(self.hash.hash_one(key), is_it).copied()
    }

    /// Adds a slot for a key that has none.
    pub fn insert(&mut self, key: Key, state: SlotState) -> Place {
        let row = Row { key, state };
        let free = self.free.pop();
        let at = match free.and_then(|it| Some((it, self.rows.get_mut(it as usize)?))) {
            Some((at, place)) => {
                *place = row;
                at
            }
            None => {
                self.rows.push(row);
                // No memory has room for four billion of them.
                (self.rows.len() - 1) as Place
            }
        };
        let Self {
            hash, index, rows, ..
        } = self;
        let hash_of = |at: &Place| {
            let row = rows.get(*at as usize);
            row.map_or(0, |it| hash.hash_one(it.key))
        };
        index.insert_unique(hash.hash_one(key), at, hash_of);
        at
    }

    /// Takes a slot out, which is in neither order.
    pub fn remove(&mut self, at: Place) {
        let Some(row) = self.rows.get_mut(at as usize) else {
            return;
        };
        row.state = SlotState::InUse(None);
        let hash = self.hash.hash_one(row.key);
        if let Ok(found) = self.index.find_entry(hash, |it| *it == at) {
            found.remove();
            self.free.push(at);
        }
    }

    /// The slot at a place.
    pub fn state_mut(&mut self, at: Place) -> Option<&mut SlotState> {
        Some(&mut self.rows.get_mut(at as usize)?.state)
    }

    /// Moves a slot in the two orders.
    pub fn list(&mut self, at: Place, before: Option<Times>, times: Option<Times>) {
        if let Some(before) = before {
            self.by_expiry.remove(&(before.expires, at));
            self.by_need.remove(&(before.needed, before.expires, at));
        }
        if let Some(times) = times {
            self.by_expiry.insert((times.expires, at));
            self.by_need.insert((times.needed, times.expires, at));
        }
    }

    /// What `take` makes of slots whose values have expired by then, the oldest first.
    pub fn take_expired<T>(
        &mut self,
        now: Timestamp,
        most: usize,
        take: impl FnMut(Place, &Key, &mut SlotState) -> Option<T>,
    ) -> Vec<T> {
        let expired = self.by_expiry.iter().take_while(|it| it.0 <= now);
        take_some(&mut self.rows, expired.map(|it| it.1), most, take)
    }

    /// The same of slots whose values are not needed any more by then.
    pub fn take_unneeded<T>(
        &mut self,
        now: Timestamp,
        most: usize,
        take: impl FnMut(Place, &Key, &mut SlotState) -> Option<T>,
    ) -> Vec<T> {
        let unneeded = self.by_need.iter().take_while(|it| it.0 <= now);
        take_some(&mut self.rows, unneeded.map(|it| it.2), most, take)
    }
}

fn take_some<T>(
    rows: &mut [Row],
    places: impl Iterator<Item = Place>,
    most: usize,
    mut take: impl FnMut(Place, &Key, &mut SlotState) -> Option<T>,
) -> Vec<T> {
    let taken = places.filter_map(|at| {
        let row = rows.get_mut(at as usize)?;
        take(at, &row.key, &mut row.state)
    });
    taken.take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_no_tag_of_its_own() {
        assert_eq!(size_of::<Row>(), 64);
    }

    /// Against a plain map.
    #[test]
    fn slots_are_found_by_their_keys_and_places_are_used_again() {
        let mut random = fastrand::Rng::with_seed(20);
        let (mut table, mut model) = (Table::default(), std::collections::HashMap::new());
        for _ in 0..20_000 {
            let key: Key = [random.u8(..200); 32];
            match (table.find(&key), model.get(&key)) {
                (Some(at), Some(known)) => {
                    assert_eq!(at, *known);
                    assert!(matches!(
                        table.state_mut(at),
                        Some(SlotState::InUse(Some(_)))
                    ));
                    if random.bool() {
                        table.remove(at);
                        model.remove(&key);
                    }
                }
                (None, None) => {
                    let at = table.insert(key, SlotState::InUse(Some(Default::default())));
                    assert!(model.values().all(|it| *it != at));
                    model.insert(key, at);
                }
                (found, known) => panic!("{found:?} for {known:?}"),
            }
            assert_eq!(table.len(), model.len());
        }
        assert!(table.rows.len() <= 200);
    }
}
