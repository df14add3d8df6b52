//! Which requests were acknowledged and which of them arrived: one bit for each number that a body
//! can hold, on each side, so that the two can be compared message by message.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::super::body::{FIRST, NUMBERS};

/// A set of numbers.
struct Bits(Vec<AtomicU64>);

impl Bits {
    fn new() -> Self {
        let words = NUMBERS.div_ceil(64);
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds a number; false when it was there already.
    fn add(&self, number: u64) -> bool {
        let number = number % NUMBERS;
        let bit = 1 << (number % 64);
        let word = self.0.get((number / 64) as usize);
        word.is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|word| word.load(Ordering::Relaxed))
    }
}

/// What was acknowledged to clients, and what was found where it must be.
pub(crate) struct Ledger {
    acknowledged: Bits,
    found: Bits,
    again: AtomicU64,
    wrong: AtomicU64,
    /// How many have been found; it tells whether there is progress.
    finds: AtomicU64,
}

impl Ledger {
    pub fn new() -> Self {
        Self {
            acknowledged: Bits::new(),
            found: Bits::new(),
            again: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            finds: AtomicU64::new(0),
        }
    }

    /// The request with this number was answered as it should.
    pub fn acknowledge(&self, number: u64) {
        self.acknowledged.add(number);
    }

    /// The message with this number was found.
    pub fn find(&self, number: u64) {
        if !self.found.add(number) {
            self.again.fetch_add(1, Ordering::Relaxed);
        }
        self.finds.fetch_add(1, Ordering::Relaxed);
    }

    /// A message was found whose content is not that of any request.
    pub fn find_wrong(&self) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
        self.finds.fetch_add(1, Ordering::Relaxed);
    }

    pub fn finds(&self) -> u64 {
        self.finds.load(Ordering::Relaxed)
    }

    /// How many acknowledged requests have no place among these ids.
    pub fn missing_of(&self, ids: &[u64]) -> u64 {
        let there = Bits::new();
        for id in ids {
            there.add(id.wrapping_sub(FIRST));
        }
        let words = self.acknowledged.words().zip(there.words());
        let missing = words.map(|(acknowledged, there)| (acknowledged & !there).count_ones());
        missing.map(u64::from).sum()
    }

    /// Compares both sides.
    pub fn delivered(&self) -> Delivered {
        let mut delivered = Delivered {
            again: self.again.load(Ordering::Relaxed),
            wrong: self.wrong.load(Ordering::Relaxed),
            ..Delivered::default()
        };
        for (acknowledged, found) in self.acknowledged.words().zip(self.found.words()) {
            let ones = |word: u64| u64::from(word.count_ones());
            delivered.acknowledged += ones(acknowledged);
            delivered.missing += ones(acknowledged & !found);
            delivered.unanswered += ones(found & !acknowledged);
        }
        delivered
    }
}

/// How many messages were acknowledged and came, or did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delivered {
    /// Requests that were answered as they should, in the warm-up too.
    pub acknowledged: u64,
    /// Of these, messages that were not found: losses.
    pub missing: u64,
    /// Messages that came again.
    pub again: u64,
    /// Messages with another content.
    pub wrong: u64,
    /// Messages of requests whose connections were closed at the end before the answer.
    pub unanswered: u64,
}

impl Delivered {
    /// The sum with those of another sample.
    pub fn and(self, other: Self) -> Self {
        Self {
            acknowledged: self.acknowledged + other.acknowledged,
            missing: self.missing + other.missing,
            again: self.again + other.again,
            wrong: self.wrong + other.wrong,
            unanswered: self.unanswered + other.unanswered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_compared_number_by_number() {
        let ledger = Ledger::new();
        (0..200).for_each(|number| ledger.acknowledge(number));
        (1..201).for_each(|number| ledger.find(number));
        ledger.find(7);
        ledger.find_wrong();
        let delivered = ledger.delivered();
        let wanted = Delivered {
            acknowledged: 200,
            missing: 1,
            again: 1,
            wrong: 1,
            unanswered: 1,
        };
        assert_eq!(delivered, wanted);
        assert_eq!(ledger.finds(), 202);
        assert_eq!(delivered.and(wanted).acknowledged, 400);
        let ids: Vec<u64> = (0..199).map(|number| number + FIRST).collect();
        assert_eq!(ledger.missing_of(&ids), 1);
        // The highest number, and the one after it, which is the lowest again.
        ledger.find(NUMBERS - 1);
        ledger.find(NUMBERS);
        assert_eq!(ledger.delivered().missing, 0);
    }
}
