//! When an issuer's keys are fetched, and how long they are good.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Key, KeySet};

/// How the keys of an issuer are kept.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Between two regular fetches. An issuer that publishes a key at least this long before it
    /// signs with it has no token refused.
    pub refresh: Duration,
    /// Between the end of a fetch and the next one that a token with an unknown key causes, and
    /// after one that has failed: tokens are anybody's, so they must not cause more.
    pub pause: Duration,
    /// How old keys may become while the issuer cannot be reached.
    pub keep: Duration,
    /// How long one fetch may take; after that it counts as failed, even if nobody says so.
    pub fetch: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(10 * 60),
            pause: Duration::from_secs(5),
            keep: Duration::from_secs(24 * 60 * 60),
            fetch: Duration::from_secs(10),
        }
    }
}

/// How many requests wait for one fetch; more are refused.
const WAITING_MAX: usize = 1000;

/// Keys as they were at one time. No other keys of the process have its generation, and newer ones
/// have a greater one.
#[derive(Clone, Debug)]
pub struct Snapshot {
    keys: Arc<KeySet>,
    generation: u64,
}

impl Snapshot {
    /// Keys that no other snapshot has.
    #[must_use]
    pub fn new(keys: KeySet) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            keys: Arc::new(keys),
            generation: LAST.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// What tells these keys from all others of the process.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// The keys of one issuer over time. It neither fetches nor waits: [`KeySource::poll`] and
/// [`KeySource::unknown_key`] say when to fetch, [`KeySource::fetched`] and [`KeySource::failed`]
/// take what came of it.
#[derive(Debug)]
pub struct KeySource {
    times: Times,
    current: Option<Current>,
    /// The fetch that is under way, and when it began.
    under_way: Option<(u64, Instant)>,
    /// How many fetches have begun.
    fetches: u64,
    /// When the last one ended.
    ended: Option<Instant>,
    is_failing: bool,
    /// How many wait for the fetch that is under way.
    waiting: usize,
}

#[derive(Debug)]
struct Current {
    snapshot: Snapshot,
    fetched: Instant,
}

/// A fetch that has begun. One that is never reported counts as failed after [`Times::fetch`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Fetch(u64);

/// One that waits for the end of a fetch.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Waiter(u64);

/// What a token whose key is not known may do.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    /// There are other keys by now: look once more.
    Retry,
    /// Fetch the keys, and look once more.
    Fetch(Fetch),
    /// Somebody fetches them: wait for the end, then look once more. Whoever gives up before, calls
    /// [`KeySource::leave`].
    Wait(Waiter),
    /// The issuer was asked a moment ago, or too many wait: the token is refused, or, where there
    /// are no keys at all, the request is answered with 503.
    Refuse,
}

impl KeySource {
    /// One that has no keys yet; the first [`KeySource::poll`] says to fetch them.
    #[must_use]
    pub fn new(times: Times) -> Self {
        Self {
            times,
            current: None,
            under_way: None,
            fetches: 0,
            ended: None,
            is_failing: false,
            waiting: 0,
        }
    }

    /// The keys, unless there are none or the last ones are too old.
    #[must_use]
    pub fn keys(&self, now: Instant) -> Option<Snapshot> {
        self.current(now).cloned()
    }

    /// The generation of the keys, unless there are none or the last ones are too old.
    #[must_use]
    pub fn generation(&self, now: Instant) -> Option<u64> {
        self.current(now).map(Snapshot::generation)
    }

    /// The generation of the keys that were fetched last, however long ago.
    #[must_use]
    pub fn last_generation(&self) -> Option<u64> {
        self.current.as_ref().map(|it| it.snapshot.generation)
    }

    /// Whether the issuer has published keys without this one, however long ago.
    #[must_use]
    pub fn has_withdrawn(&self, key: &Key) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|it| !it.snapshot.keys.has(key))
    }

    fn current(&self, now: Instant) -> Option<&Snapshot> {
        let current = self.current.as_ref()?;
        let age = now.saturating_duration_since(current.fetched);
        (age < self.times.keep).then_some(&current.snapshot)
    }

    /// Says to begin the next regular fetch, when it is time for it and none is under way.
    pub fn poll(&mut self, now: Instant) -> Option<Fetch> {
        self.give_up_late(now);
        let is_due = self.next().is_none_or(|next| next <= now);
        (is_due && self.under_way.is_none()).then(|| self.begin(now))
    }

    /// When [`KeySource::poll`] is worth calling again, unless something happens before; at once
    /// when there is no such time.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        if let Some((_, began)) = self.under_way {
            return Some(began + self.times.fetch);
        }
        let pause = match self.is_failing {
            true => self.times.pause,
            false => self.times.refresh,
        };
        self.ended.map(|ended| ended + pause)
    }

    /// The keys that a fetch has brought. Those of one that is given up already are not taken, and
    /// none at all count as a failure: an issuer that publishes nothing usable must not lock all
    /// its callers out. Whether they were taken.
    pub fn fetched(&mut self, fetch: &Fetch, now: Instant, keys: KeySet) -> bool {
        self.give_up_late(now);
        if !self.is_under_way(fetch) {
            return false;
        }
        self.end(now, keys.is_empty());
        if keys.is_empty() {
            return false;
        }
        match &mut self.current {
            Some(current) if current.snapshot.keys.is_same(&keys) => current.fetched = now,
            other => {
                *other = Some(Current {
                    snapshot: Snapshot::new(keys),
                    fetched: now,
                });
            }
        }
        true
    }

    /// A fetch has failed: what is known stays, and the next one begins after the pause.
    pub fn failed(&mut self, fetch: &Fetch, now: Instant) {
        self.give_up_late(now);
        if self.is_under_way(fetch) {
            self.end(now, true);
        }
    }

    /// Asks what becomes of a token whose key is not among the keys of this generation, or when
    /// there were none. One caller must not take all places of those who wait: that is for whoever
    /// asks to bound.
    pub fn unknown_key(&mut self, seen: Option<u64>, now: Instant) -> Lookup {
        self.give_up_late(now);
        let current = self.generation(now);
        if current.is_some() && current != seen {
            return Lookup::Retry;
        }
        if let Some((number, _)) = self.under_way {
            if self.waiting >= WAITING_MAX {
                return Lookup::Refuse;
            }
            self.waiting += 1;
            return Lookup::Wait(Waiter(number));
        }
        let pause = self.times.pause;
        let has_paused = |ended| now.saturating_duration_since(ended) >= pause;
        match self.ended.is_none_or(has_paused) {
            true => Lookup::Fetch(self.begin(now)),
            false => Lookup::Refuse,
        }
    }

    /// One that was told to wait no longer does. Those who wait for a fetch that has ended are no
    /// longer counted anyway.
    pub fn leave(&mut self, waiter: &Waiter) {
        if self.under_way.is_some_and(|(number, _)| number == waiter.0) {
            self.waiting = self.waiting.saturating_sub(1);
        }
    }

    fn begin(&mut self, now: Instant) -> Fetch {
        self.fetches += 1;
        self.under_way = Some((self.fetches, now));
        Fetch(self.fetches)
    }

    /// A fetch that has taken too long has failed, whether or not somebody still works on it.
    fn give_up_late(&mut self, now: Instant) {
        if let Some((_, began)) = self.under_way
            && now.saturating_duration_since(began) >= self.times.fetch
        {
            self.end(began + self.times.fetch, true);
        }
    }

    fn is_under_way(&self, fetch: &Fetch) -> bool {
        self.under_way.is_some_and(|(number, _)| number == fetch.0)
    }

    fn end(&mut self, now: Instant, is_failing: bool) {
        self.under_way = None;
        self.waiting = 0;
        self.ended = Some(now);
        self.is_failing = is_failing;
    }
}
