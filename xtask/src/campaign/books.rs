//! What was sent, what was acknowledged, and what has arrived: numbers in bodies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is known of one kind of thing: messages of the store, events of the topic.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Acknowledged, by its number.
    pub acknowledged: BTreeSet<u64>,
    /// Arrived at the receiver.
    pub arrived: BTreeSet<u64>,
    /// Which number an id was seen with.
    ids: BTreeMap<String, u64>,
}

impl Ledger {
    /// Whether an id was seen by then.
    pub fn has_id(&self, id: &str) -> bool {
        self.ids.contains_key(id)
    }

    pub fn missing(&self) -> Vec<u64> {
        let missing = self.acknowledged.difference(&self.arrived);
        missing.copied().collect()
    }
}

#[derive(Debug, Default)]
pub struct Books {
    next: AtomicU64,
    pub store: Mutex<Ledger>,
    pub topic: Mutex<Ledger>,
    /// What was not as it should be.
    pub lost: Mutex<Vec<String>>,
    pub silent: Mutex<Vec<String>>,
    pub wrong: Mutex<Vec<String>>,
}

pub fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books {
    /// The number of the next thing that is sent.
    pub fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// A number in a body, if it is one that was sent.
    pub fn number(&self, body: &str) -> Option<u64> {
        let rest = body.trim().strip_prefix("{\"n\":")?;
        let number = rest.split([',', '}']).next()?.trim().parse().ok()?;
        (number < self.next.load(Ordering::SeqCst)).then_some(number)
    }

    /// Notes that an id stands for a number: no other one may.
    pub fn identify(&self, ledger: &Mutex<Ledger>, id: &str, number: u64) {
        let before = lock(ledger).ids.insert(id.to_owned(), number);
        if let Some(before) = before.filter(|it| *it != number) {
            self.wrong(format!("id {id} was given to {before} and to {number}"));
        }
    }

    /// Notes what has arrived.
    pub fn arrived(&self, ledger: &Mutex<Ledger>, id: &str, body: &str) {
        let Some(number) = self.number(body) else {
            return self.wrong(format!(
                "{id} arrived with a body that nobody sent: {body:.80}"
            ));
        };
        self.identify(ledger, id, number);
        lock(ledger).arrived.insert(number);
    }

    pub fn wrong(&self, what: String) {
        eprintln!("WRONG DATA: {what}");
        lock(&self.wrong).push(what);
    }

    pub fn silent(&self, what: String) {
        eprintln!("SILENT LOSS: {what}");
        lock(&self.silent).push(what);
    }

    pub fn lost(&self, what: String) {
        eprintln!("LOST: {what}");
        lock(&self.lost).push(what);
    }
}
