//! What the step `changes` remembers: the last body of each key, of all workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use component::state::{Measure, State};
use lru::LruCache;

/// What an entry takes beside its key and body.
const ENTRY: usize = 128;

/// The last body of each key.
pub(super) struct Table {
    max: usize,
    memory: usize,
    inner: Mutex<Inner>,
    changed: AtomicU64,
    unchanged: AtomicU64,
    forgotten: AtomicU64,
}

struct Inner {
    entries: LruCache<String, Bytes>,
    bytes: usize,
}

fn weight(key: &str, body: &Bytes) -> usize {
    key.len() + body.len() + ENTRY
}

impl Table {
    /// One for so many keys and so many bytes.
    pub fn new(max: usize, memory: usize) -> Self {
        Self {
            max,
            memory,
            inner: Mutex::new(Inner {
                entries: LruCache::unbounded(),
                bytes: 0,
            }),
            changed: AtomicU64::new(0),
            unchanged: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last body of a key.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.lock().entries.get(key).cloned()
    }

    /// Makes a body the last one of a key; which one was it before.
    pub fn swap(&self, key: &str, body: &Bytes) -> Option<Bytes> {
        self.put(&mut self.lock(), key, body)
    }

    /// The same unless another body has come since `before`: that one is newer.
    pub fn remember(&self, key: &str, before: Option<&Bytes>, body: &Bytes) {
        let mut inner = self.lock();
        if inner.entries.peek(key) == before {
            self.put(&mut inner, key, body);
        }
    }

    fn put(&self, inner: &mut Inner, key: &str, body: &Bytes) -> Option<Bytes> {
        inner.bytes += weight(key, body);
        let before = inner.entries.put(key.to_owned(), body.clone());
        if let Some(before) = &before {
            inner.bytes -= weight(key, before);
        }
        while inner.entries.len() > self.max || inner.bytes > self.memory {
            let Some((key, body)) = inner.entries.pop_lru() else {
                break;
            };
            inner.bytes -= weight(&key, &body);
            self.forgotten.fetch_add(1, Ordering::Relaxed);
        }
        before
    }

    /// Counts a comparison.
    pub fn count(&self, has_changed: bool) {
        let count = match has_changed {
            true => &self.changed,
            false => &self.unchanged,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl State for Table {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let measure = |name, help, value| Measure { name, help, value };
        let inner = self.lock();
        let (entries, bytes) = (inner.entries.len() as f64, inner.bytes as f64);
        vec![
            measure(
                "changes_changed_total",
                "Bodies that differed from the one before, or were the first.",
                count(&self.changed),
            ),
            measure(
                "changes_unchanged_total",
                "Bodies that were the same as the one before.",
                count(&self.unchanged),
            ),
            measure(
                "changes_forgotten_total",
                "Keys that had to make room.",
                count(&self.forgotten),
            ),
            measure("changes_entries", "Keys that are remembered.", entries),
            measure("changes_bytes", "What they take.", bytes),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn the_key_that_has_not_come_for_the_longest_time_is_forgotten() {
        let table = Table::new(2, 1 << 20);
        for key in ["a", "b", "a", "c"] {
            table.swap(key, &body("1"));
        }
        let known = ["a", "b", "c"].map(|key| table.get(key).is_some());
        assert_eq!(known, [true, false, true]);
        assert_eq!(table.lock().bytes, 2 * (1 + 1 + ENTRY));
    }

    #[test]
    fn what_takes_too_much_memory_is_forgotten() {
        let table = Table::new(100, 2 * (1 + 100 + ENTRY));
        let large = Bytes::from("x".repeat(100));
        for key in ["a", "b", "c"] {
            table.swap(key, &large);
        }
        assert_eq!(table.lock().entries.len(), 2);
        assert_eq!(table.forgotten.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_body_that_has_come_meanwhile_stays() {
        let table = Table::new(2, 1 << 20);
        table.remember("a", None, &body("1"));
        table.remember("a", None, &body("2"));
        assert_eq!(table.get("a"), Some(body("1")));
        table.remember("a", Some(&body("1")), &body("3"));
        assert_eq!(table.get("a"), Some(body("3")));
    }
}
