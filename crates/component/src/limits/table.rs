//! The buckets of all callers of a limit: a hash table in shards, each behind a lock of its own.
//!
//! A bucket is the caller's 128-bit hash and one arrival time for each window, side by side in one
//! array. A shard is filled to four fifths and rebuilt to two thirds, so a caller takes at most
//! 1.5 x (16 + 8 x windows) bytes: 72 with four windows. Rebuilding forgets buckets that are full
//! again: a new one says the same.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many locks there are: two workers rarely want the same one.
const SHARDS: usize = 64;
/// The slots of a shard that has just been made.
const SLOTS_MIN: usize = 8;
/// After a search for full buckets in vain, the next one comes so many ticks later (10 ms).
const SWEEP_PAUSE: u64 = 64 * 10_000_000;

/// The hash of a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallerHash(pub(crate) u64, pub(crate) u64);

/// The buckets of all callers of a limit.
pub(crate) struct Table {
    shards: Vec<Mutex<Shard>>,
    /// The most callers of a shard.
    shard_max: usize,
}

/// One shard. Aligned, so that the locks of two shards are in different cache lines.
#[repr(align(64))]
struct Shard {
    /// For each slot the two words of the hash, both 0 in a free one, and the arrival times.
    words: Vec<u64>,
    slots: usize,
    stride: usize,
    used: usize,
    /// Before this time no bucket will be full: a search is in vain.
    sweep_at: u64,
    /// Whether something has changed since the last snapshot.
    is_changed: bool,
}

impl Table {
    /// For at most so many callers, rounded up to the shards.
    pub fn new(windows: usize, callers_max: usize) -> Self {
        let shard = || {
            Mutex::new(Shard {
                words: Vec::new(),
                slots: 0,
                stride: 2 + windows,
                used: 0,
                sweep_at: 0,
                is_changed: false,
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            shard_max: callers_max.div_ceil(SHARDS).max(1),
        }
    }

    fn shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        // invariant: `number` is below the number of shards, by a mask or a loop over them.
        let shard = &self.shards[number % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `work` at the arrival times of a caller. Gives it back when there is no place for a
    /// caller that is not known yet.
    #[inline]
    pub fn with<R, F: FnOnce(&mut [u64]) -> R>(
        &self,
        caller: CallerHash,
        now: u64,
        work: F,
    ) -> Result<R, F> {
        let mut shard = self.shard(caller.0 as usize);
        match shard.place(caller, now, self.shard_max) {
            Some(arrivals) => Ok(work(arrivals)),
            None => Err(work),
        }
    }

    /// The arrival times of a caller that is known.
    pub fn get<R>(&self, caller: CallerHash, work: impl FnOnce(&mut [u64]) -> R) -> Option<R> {
        let mut shard = self.shard(caller.0 as usize);
        let at = shard.find(caller).ok()?;
        shard.is_changed = true;
        let range = at + 2..at + shard.stride;
        shard.words.get_mut(range).map(work)
    }

    /// How many callers are known, and how many bytes they take.
    pub fn size(&self) -> (usize, usize) {
        let shards = (0..SHARDS).map(|number| {
            let shard = self.shard(number);
            (shard.used, shard.words.capacity() * size_of::<u64>())
        });
        shards.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    }

    /// The buckets of each shard that has changed since the last time: hash and arrival times one
    /// behind the other, those that are full left out.
    pub fn take_changed(&self, now: u64) -> Vec<(usize, Vec<u64>)> {
        let changed = (0..SHARDS).filter_map(|number| {
            let mut shard = self.shard(number);
            if !std::mem::take(&mut shard.is_changed) {
                return None;
            }
            let live = shard.live(now).flatten().copied().collect();
            Some((number, live))
        });
        changed.collect()
    }

    /// Notes that these shards are yet to be written.
    pub fn mark_changed(&self, shards: impl Iterator<Item = usize>) {
        for number in shards {
            self.shard(number).is_changed = true;
        }
    }
}

impl Shard {
    /// The place of a caller, or the free slot where it would be; `usize::MAX` when there are no
    /// slots at all. As an index of its first word.
    #[inline(always)]
    fn find(&self, caller: CallerHash) -> Result<usize, usize> {
        let slots = self.slots;
        if slots == 0 {
            return Err(usize::MAX);
        }
        // The upper half of the product is even over all slots, without a division.
        let first = ((u128::from(caller.1) * slots as u128) >> 64) as usize;
        let mut at = first * self.stride;
        loop {
            match self.words.get(at..at + 2) {
                Some(&[low, high]) if low == caller.0 && high == caller.1 => return Ok(at),
                Some(&[0, 0]) => return Err(at),
                Some(_) => at += self.stride,
                // Slots are never all used: the search ends.
                None => at = 0,
            }
        }
    }

    #[inline(always)]
    fn place(&mut self, caller: CallerHash, now: u64, most: usize) -> Option<&mut [u64]> {
        let at = match self.find(caller) {
            Ok(at) => at,
            Err(free) => self.add(caller, free, now, most)?,
        };
        self.is_changed = true;
        self.words.get_mut(at + 2..at + self.stride)
    }

    #[cold]
    fn add(&mut self, caller: CallerHash, free: usize, now: u64, most: usize) -> Option<usize> {
        let mut at = free;
        if self.used >= most || (self.used + 1) * 5 > self.slots * 4 {
            self.make_room(now, most)?;
            at = self.find(caller).err()?;
        }
        let words = self.words.get_mut(at..at + 2)?;
        words.copy_from_slice(&[caller.0, caller.1]);
        self.used += 1;
        Some(at)
    }

    /// The words of each bucket that is not full again.
    fn live(&self, now: u64) -> impl Iterator<Item = &[u64]> {
        let slots = self.words.chunks_exact(self.stride);
        slots.filter(move |slot| {
            let (hash, arrivals) = slot.split_at(2);
            hash != [0, 0] && arrivals.iter().any(|&it| it > now)
        })
    }

    /// Forgets full buckets and makes the array as large as those need that are left; `None` when
    /// there are as many as may be.
    fn make_room(&mut self, now: u64, most: usize) -> Option<()> {
        if self.used >= most && now < self.sweep_at {
            return None;
        }
        let full_at = |slot: &[u64]| slot.iter().skip(2).copied().max();
        let soonest = self.live(now).filter_map(full_at).min();
        let count = self.live(now).count();
        if count >= most {
            let soonest = soonest.unwrap_or(now);
            self.sweep_at = soonest.max(now.saturating_add(SWEEP_PAUSE));
            return None;
        }
        let slots = ((count + 1) * 3 / 2).max(SLOTS_MIN);
        let mut words = vec![0; slots * self.stride];
        let old = std::mem::take(&mut self.words);
        (self.used, self.slots) = (0, slots);
        std::mem::swap(&mut self.words, &mut words);
        for slot in old.chunks_exact(self.stride) {
            let is_live = slot.iter().skip(2).any(|&it| it > now);
            if let [low, high, ..] = *slot
                && is_live
                && let Err(at) = self.find(CallerHash(low, high))
                && let Some(place) = self.words.get_mut(at..at + self.stride)
            {
                place.copy_from_slice(slot);
                self.used += 1;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(number: u64) -> CallerHash {
        let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        CallerHash(
            mixed.rotate_left(11),
            mixed.rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9),
        )
    }

    fn put(table: &Table, number: u64, now: u64, arrival: u64) -> bool {
        let put = table.with(caller(number), now, |arrivals| arrivals.fill(arrival));
        put.is_ok()
    }

    #[test]
    fn a_caller_takes_at_most_a_hundred_bytes() {
        for windows in [1, 4] {
            let table = Table::new(windows, 1_000_000);
            for number in 0..100_000 {
                assert!(put(&table, number, 0, 1));
                if [100, 5_000, 50_000, 99_999].contains(&number) {
                    let (callers, bytes) = table.size();
                    assert_eq!(callers as u64, number + 1);
                    let most = if number == 100 { 600 } else { 100 };
                    assert!(bytes <= callers * most, "{windows}: {bytes} of {callers}");
                }
            }
            let (callers, bytes) = table.size();
            println!("{windows} windows: {} bytes a caller", bytes / callers);
        }
    }

    #[test]
    fn a_full_table_forgets_only_buckets_that_are_full_again() {
        let table = Table::new(1, 640);
        let all = |from: u64, now, arrival| {
            let put = (from..from + 100_000).filter(|it| put(&table, *it, now, arrival));
            put.count()
        };
        let first = all(0, 0, 100);
        assert_eq!(first, 640);
        let arrivals = |number| table.get(caller(number), |arrivals| arrivals[0]);
        let known: Vec<u64> = (0..100_000).filter(|it| arrivals(*it).is_some()).collect();
        assert_eq!(known.len(), 640);
        assert_eq!(all(200_000, 99, 500), 0, "none is full yet");
        assert!(known.iter().all(|it| arrivals(*it) == Some(100)));
        let later = 100 + SWEEP_PAUSE;
        assert_eq!(all(300_000, later, later + 5), 640);
        assert!(known.iter().all(|it| arrivals(*it).is_none()));
    }

    #[test]
    fn what_has_changed_is_given_once() {
        let table = Table::new(2, 1000);
        assert!(put(&table, 7, 10, 50) && put(&table, 8, 10, 5));
        let changed = table.take_changed(10);
        let words: Vec<u64> = changed.into_iter().flat_map(|it| it.1).collect();
        let CallerHash(low, high) = caller(7);
        assert_eq!(words, [low, high, 50, 50], "the other one is full");
        assert!(table.take_changed(10).is_empty());
        table.mark_changed(std::iter::once(3));
        assert_eq!(table.take_changed(10).len(), 1);
    }
}
