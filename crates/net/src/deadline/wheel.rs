//! A hierarchical timer wheel (Varghese and Lauck, 1987) with lazy moving: a deadline that is set
//! to a later time stays in its bucket and is filed again when that bucket comes up. No input or
//! output: the caller gives the time, in microseconds from an origin.
//!
//! Time is divided into ticks of [`RESOLUTION`]. A bucket of level 0 holds the deadlines of one
//! tick, one of level 1 those of 64 ticks, and so on. The level of a deadline is the highest of the
//! digits, to base 64, in which its tick differs from the present one. So a bucket of a higher
//! level comes up at its first tick, and its deadlines are filed again, at lower levels.

use std::task::Waker;

use super::slots::{Slot, Slots};
use super::{NEVER, RESOLUTION};

/// The length of a tick in microseconds.
const TICK: u64 = RESOLUTION.as_micros() as u64;

const DIGIT: u32 = 6;
const BUCKETS: u32 = 1 << DIGIT;

/// Seven levels of 64 buckets of 5 ms are 697 years.
const LEVELS: u32 = 7;
const TICK_MAX: u64 = (1 << (DIGIT * LEVELS)) - 1;

/// The bucket of what is in none.
pub(super) const UNFILED: u16 = u16::MAX;

/// Up to this many numbers, an empty bucket keeps its memory.
const KEPT: usize = 64;

pub(super) struct Wheel {
    pub slots: Slots,
    /// The numbers of the slots in each bucket, level by level.
    buckets: Vec<Vec<u32>>,
    /// Which buckets of each level are not empty.
    occupied: [u64; LEVELS as usize],
    /// The tick up to which all buckets have come up.
    elapsed: u64,
    /// No bucket comes up before this time.
    next: u64,
}

impl Wheel {
    pub fn new() -> Self {
        Self {
            slots: Slots::default(),
            buckets: (0..LEVELS * BUCKETS).map(|_| Vec::new()).collect(),
            occupied: [0; LEVELS as usize],
            elapsed: 0,
            next: NEVER,
        }
    }

    /// When the next bucket comes up, at the earliest; [`NEVER`] when all are empty.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Moves a deadline. True when it has to be filed again, by [`Wheel::file`]. One that has
    /// passed stays so unless it is moved to a later time: a peer whose bytes move it on does not
    /// put off a cap that is over.
    #[inline]
    pub fn set(&mut self, id: u32, at: u64) -> bool {
        let Some(slot) = self.slots.get_mut(id) else {
            return false;
        };
        if slot.expired && at <= slot.at {
            return false;
        }
        slot.at = at;
        slot.expired = false;
        at <= slot.filed
    }

    /// Files a deadline where its time says. True when its bucket comes up before all others.
    #[inline(never)]
    pub fn file(&mut self, id: u32, now: u64) -> bool {
        let tick = now / TICK;
        if tick > self.elapsed && tick.saturating_mul(TICK) < self.next {
            self.elapsed = tick;
        }
        self.take_out(id);
        let Some(slot) = self.slots.get_mut(id) else {
            return false;
        };
        if slot.at == NEVER {
            return false;
        }
        let tick = slot.at.div_ceil(TICK);
        let tick = tick.max(self.elapsed + 1).min(TICK_MAX);
        let differs = (tick ^ self.elapsed) | u64::from(BUCKETS - 1);
        let level = (differs.ilog2() / DIGIT).min(LEVELS - 1);
        let digit = (tick >> (level * DIGIT)) as u32 % BUCKETS;
        let bucket = level * BUCKETS + digit;
        let comes_up = (tick >> (level * DIGIT) << (level * DIGIT)) * TICK;
        let Some(numbers) = self.buckets.get_mut(bucket as usize) else {
            return false;
        };
        slot.bucket = bucket as u16;
        slot.position = numbers.len() as u32;
        slot.filed = comes_up.saturating_sub(TICK);
        numbers.push(id);
        if let Some(occupied) = self.occupied.get_mut(level as usize) {
            *occupied |= 1 << digit;
        }
        let is_first = comes_up < self.next;
        self.next = self.next.min(comes_up);
        is_first
    }

    /// Takes a deadline out of its bucket.
    fn take_out(&mut self, id: u32) {
        let Some(slot) = self.slots.get_mut(id) else {
            return;
        };
        let (bucket, position) = (u32::from(slot.bucket), slot.position as usize);
        slot.bucket = UNFILED;
        slot.filed = NEVER - 1;
        let Some(numbers) = self.buckets.get_mut(bucket as usize) else {
            return;
        };
        if position < numbers.len() {
            numbers.swap_remove(position);
        }
        if let Some(moved) = numbers.get(position)
            && let Some(slot) = self.slots.get_mut(*moved)
        {
            slot.position = position as u32;
        }
        if numbers.capacity() > KEPT && numbers.len() < numbers.capacity() / 4 {
            numbers.shrink_to((numbers.len() * 2).max(KEPT));
        }
        if numbers.is_empty()
            && let Some(occupied) = self.occupied.get_mut((bucket / BUCKETS) as usize)
        {
            *occupied &= !(1 << (bucket % BUCKETS));
        }
    }

    /// Forgets a deadline. What it gives must be dropped when the wheel is not borrowed: the last
    /// waker of a task takes the task along.
    pub fn remove(&mut self, id: u32) -> Option<Slot> {
        self.take_out(id);
        self.slots.remove(id)
    }

    /// The bucket that comes up next: its number and its tick.
    fn earliest(&self) -> Option<(usize, u64)> {
        let mut earliest = None;
        for (level, occupied) in (0..LEVELS).zip(self.occupied) {
            let shift = level * DIGIT;
            let digit = (self.elapsed >> shift) as u32 % BUCKETS;
            // All of them are still to come in this round, or come up just now.
            let ahead = occupied >> digit;
            if ahead == 0 {
                continue;
            }
            let found = digit + ahead.trailing_zeros();
            let round = self.elapsed >> shift >> DIGIT << DIGIT;
            let tick = (round + u64::from(found)) << shift;
            if earliest.is_none_or(|(_, other)| tick < other) {
                earliest = Some(((level * BUCKETS + found) as usize, tick));
            }
        }
        earliest
    }

    /// Lets the buckets come up whose time is there, until one of their deadlines has passed that a
    /// task waits for. `None` when there is no more of these.
    pub fn expire(&mut self, now: u64) -> Option<Waker> {
        let present = now / TICK;
        while let Some((bucket, tick)) = self.earliest() {
            if tick > present {
                self.next = tick.saturating_mul(TICK);
                self.elapsed = self.elapsed.max(present);
                return None;
            }
            self.elapsed = self.elapsed.max(tick);
            let id = *self.buckets.get(bucket)?.last()?;
            let slot = self.slots.get_mut(id)?;
            if slot.at > now {
                self.file(id, 0);
                continue;
            }
            slot.expired = true;
            let waker = slot.waker.take();
            self.take_out(id);
            if waker.is_some() {
                return waker;
            }
        }
        self.next = NEVER;
        self.elapsed = self.elapsed.max(present);
        None
    }

    /// For how many numbers the buckets have memory.
    #[cfg(test)]
    pub fn bucket_capacity(&self) -> usize {
        self.buckets.iter().map(Vec::capacity).sum()
    }
}
