//! What was sent, what was acknowledged, and what has arrived: numbers in bodies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The way that something takes through the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// HTTP to store to HTTP.
    Store,
    /// HTTP to topic to HTTP, and to a subscriber.
    Topic,
    /// HTTP to queue to PostgreSQL.
    Queue,
    /// HTTP to queue to store to HTTP.
    Relay,
    /// HTTP to queue to topic to MariaDB.
    Announce,
    /// HTTP to two rows of PostgreSQL in a transaction.
    Book,
}

impl Way {
    /// Those that need no server but the receiver.
    pub const ALONE: [Self; 2] = [Self::Store, Self::Topic];
    pub const ALL: [Self; 6] = [
        Self::Store,
        Self::Topic,
        Self::Queue,
        Self::Relay,
        Self::Announce,
        Self::Book,
    ];

    /// Where it begins.
    pub fn path(self) -> &'static str {
        match self {
            Self::Store => "/orders",
            Self::Topic => "/topics/prices",
            Self::Queue => "/queue",
            Self::Relay => "/relay",
            Self::Announce => "/announce",
            Self::Book => "/book",
        }
    }

    /// Where it ends, when that is the receiver.
    pub fn of_receiver(path: &str) -> Self {
        match path {
            it if it.contains("/events") => Self::Topic,
            it if it.contains("/relayed") => Self::Relay,
            _ => Self::Store,
        }
    }
}

/// What is known of all that takes one way.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Acknowledged, by its number.
    pub acknowledged: BTreeSet<u64>,
    /// Arrived at the other end.
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
    acknowledged: AtomicU64,
    ledgers: [Mutex<Ledger>; Way::ALL.len()],
    /// What was not as it should be.
    lost: Mutex<Vec<String>>,
    silent: Mutex<Vec<String>>,
    wrong: Mutex<Vec<String>>,
}

pub fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books {
    /// The number of the next thing that is sent.
    pub fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    pub fn of(&self, way: Way) -> MutexGuard<'_, Ledger> {
        let [store, topic, queue, relay, announce, book] = &self.ledgers;
        lock(match way {
            Way::Store => store,
            Way::Topic => topic,
            Way::Queue => queue,
            Way::Relay => relay,
            Way::Announce => announce,
            Way::Book => book,
        })
    }

    /// A number in a body, if it is one that was sent.
    pub fn number(&self, body: &str) -> Option<u64> {
        let rest = body.trim().strip_prefix("{\"n\":")?;
        let number = rest.split([',', '}']).next()?.trim().parse().ok()?;
        self.was_sent(number).then_some(number)
    }

    pub fn was_sent(&self, number: u64) -> bool {
        number < self.next.load(Ordering::SeqCst)
    }

    /// Notes what the engine has answered for, with the id that it gave, if any.
    pub fn acknowledge(&self, way: Way, id: &str, number: u64) {
        if !id.is_empty() {
            self.identify(way, id, number);
        }
        self.of(way).acknowledged.insert(number);
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that an id stands for a number: no other one may.
    pub fn identify(&self, way: Way, id: &str, number: u64) {
        let before = self.of(way).ids.insert(id.to_owned(), number);
        if let Some(before) = before.filter(|it| *it != number) {
            self.wrong(format!("id {id} was given to {before} and to {number}"));
        }
    }

    /// Notes what has arrived.
    pub fn arrived(&self, way: Way, id: &str, body: &str) {
        let Some(number) = self.number(body) else {
            return self.wrong(format!(
                "{id} arrived with a body that nobody sent: {body:.80}"
            ));
        };
        self.identify(way, id, number);
        self.of(way).arrived.insert(number);
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

    /// What was acknowledged so far, and what was lost, lost silently, and wrong.
    pub fn counts(&self) -> [u64; 4] {
        let count = |of: &Mutex<Vec<String>>| lock(of).len() as u64;
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        let [lost, silent, wrong] = [&self.lost, &self.silent, &self.wrong].map(count);
        [acknowledged, lost, silent, wrong]
    }
}
