//! When an issuer's keys are fetched, and how long they are good.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::KeySet;

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

/// The keys of one issuer over time. It neither fetches nor waits: [`KeySource::poll`] says when to
/// fetch, [`KeySource::fetched`] and [`KeySource::failed`] take what came of it.
#[derive(Debug)]
pub struct KeySource {
    times: Times,
    keys: Option<Current>,
    /// The fetch that is under way, and when it began.
    under_way: Option<(u64, Instant)>,
    /// How many fetches have begun.
    fetches: u64,
    /// When the last one ended.
    ended: Option<Instant>,
    is_failing: bool,
    /// A token named a key that is not among them.
    is_wanted: bool,
    waiting: usize,
    generation: u64,
}

#[derive(Debug)]
struct Current {
    set: Arc<KeySet>,
    fetched: Instant,
}

/// A fetch that has begun. One that is never reported counts as failed after [`Times::fetch`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Fetch(u64);

/// What a token whose key is not known may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Keys are on their way: wait for the end of the fetch, then look once more, and call
    /// [`KeySource::leave`].
    Wait,
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
            keys: None,
            under_way: None,
            fetches: 0,
            ended: None,
            is_failing: false,
            is_wanted: false,
            waiting: 0,
            generation: 0,
        }
    }

    /// The keys, unless there are none or the last ones are too old, and their generation: it
    /// changes when a key comes or goes.
    #[must_use]
    pub fn keys(&self, now: Instant) -> Option<(&Arc<KeySet>, u64)> {
        let current = self.keys.as_ref()?;
        let age = now.saturating_duration_since(current.fetched);
        (age < self.times.keep).then_some((&current.set, self.generation))
    }

    /// Says to begin a fetch, when it is time for one and none is under way.
    pub fn poll(&mut self, now: Instant) -> Option<Fetch> {
        let is_due = |it: &Self| it.next().is_none_or(|next| next <= now);
        if !is_due(self) {
            return None;
        }
        if self.under_way.is_some() {
            self.end(now, true);
            if !is_due(self) {
                return None;
            }
        }
        self.fetches += 1;
        self.is_wanted = false;
        self.under_way = Some((self.fetches, now));
        Some(Fetch(self.fetches))
    }

    /// When [`KeySource::poll`] is worth calling again, unless something happens before; at once
    /// when there is no such time.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        if let Some((_, began)) = self.under_way {
            return Some(began + self.times.fetch);
        }
        let is_urgent = self.is_failing || self.is_wanted;
        let pause = match is_urgent {
            true => self.times.pause,
            false => self.times.refresh,
        };
        self.ended.map(|ended| ended + pause)
    }

    /// The keys that a fetch has brought. Those of one that is given up already are not taken.
    pub fn fetched(&mut self, fetch: &Fetch, now: Instant, set: KeySet) {
        if !self.is_under_way(fetch) {
            return;
        }
        self.end(now, false);
        let is_same = self.keys.as_ref().is_some_and(|it| it.set.is_same(&set));
        self.generation += u64::from(!is_same);
        self.keys = Some(Current {
            set: Arc::new(set),
            fetched: now,
        });
    }

    /// A fetch has failed: what is known stays, and the next one begins after the pause.
    pub fn failed(&mut self, fetch: &Fetch, now: Instant) {
        if self.is_under_way(fetch) {
            self.end(now, true);
        }
    }

    /// Asks what becomes of a token whose key is not among [`KeySource::keys`], or when there are
    /// none.
    pub fn unknown_key(&mut self, now: Instant) -> Lookup {
        let is_due = match self.ended {
            _ if self.under_way.is_some() => true,
            Some(ended) => now.saturating_duration_since(ended) >= self.times.pause,
            None => true,
        };
        if !is_due || self.waiting >= WAITING_MAX {
            return Lookup::Refuse;
        }
        self.is_wanted = true;
        self.waiting += 1;
        Lookup::Wait
    }

    /// One that was told to wait no longer does, for whatever reason.
    pub fn leave(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    fn is_under_way(&self, fetch: &Fetch) -> bool {
        self.under_way.is_some_and(|(number, _)| number == fetch.0)
    }

    fn end(&mut self, now: Instant, is_failing: bool) {
        self.under_way = None;
        self.ended = Some(now);
        self.is_failing = is_failing;
    }
}
