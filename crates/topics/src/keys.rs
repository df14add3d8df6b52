//! The idempotency keys that a topic remembers, so that what is published twice is one event.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

/// How long a key is remembered.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// How many keys are remembered.
const COUNT_MAX: usize = 100_000;

/// The keys of a topic.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    events: HashMap<Bytes, u64>,
    /// In the order in which they came, with the time in milliseconds.
    order: VecDeque<(Bytes, u64)>,
}

impl Keys {
    /// The event of a key.
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        self.events.get(key).copied()
    }

    /// Remembers a key, and forgets old ones.
    pub fn add(&mut self, key: Bytes, sequence: u64, now_ms: u64) {
        self.forget_old(now_ms);
        if self.events.insert(key.clone(), sequence).is_none() {
            self.order.push_back((key, now_ms));
        }
    }

    /// Takes back the one that was added last.
    pub fn take_back(&mut self, key: &[u8]) {
        self.events.remove(key);
        if self.order.back().is_some_and(|last| *last.0 == *key) {
            self.order.pop_back();
        }
    }

    fn forget_old(&mut self, now_ms: u64) {
        let age = u64::try_from(AGE_MAX.as_millis()).unwrap_or(u64::MAX);
        let oldest = now_ms.saturating_sub(age);
        while let Some((key, at)) = self.order.front() {
            if *at >= oldest && self.order.len() < COUNT_MAX {
                return;
            }
            self.events.remove(key);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Bytes {
        Bytes::from(format!("key-{number}"))
    }

    #[test]
    fn a_key_is_known_until_it_is_old_or_there_are_too_many() {
        let day = u64::try_from(AGE_MAX.as_millis()).unwrap();
        let mut keys = Keys::default();
        keys.add(key(1), 1, 0);
        keys.add(key(2), 2, day);
        assert_eq!((keys.get(&key(1)), keys.get(&key(2))), (Some(1), Some(2)));
        keys.add(key(3), 3, day + 1);
        assert_eq!((keys.get(&key(1)), keys.get(&key(2))), (None, Some(2)));
        keys.take_back(&key(3));
        assert_eq!((keys.get(&key(3)), keys.order.len()), (None, 1));
        for number in 4..COUNT_MAX + 10 {
            keys.add(key(number), number as u64, day);
        }
        assert_eq!((keys.get(&key(2)), keys.order.len()), (None, COUNT_MAX));
        assert_eq!(keys.events.len(), COUNT_MAX);
    }
}
