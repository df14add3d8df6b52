//! Which signed requests have been taken already.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::sha256::sha256;

/// What becomes of a request whose signature is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// It is the first of its kind and is remembered.
    New,
    /// It came before. Senders repeat what was not acknowledged in time, with the same identifier:
    /// answered with a success, they stop.
    Seen,
    /// There is no room to remember it: taking it would mean to take it again later.
    Full,
}

/// The signed requests of one sender that have been taken, for as long as their time allows another
/// one. There is one for all workers, or each would take a request once; and one for each sender,
/// or one could use up another's identifiers. A restart forgets them.
#[derive(Debug)]
pub struct Replays {
    /// Each with the second from which on it may be forgotten.
    seen: HashMap<[u8; 32], u64>,
    /// All of them in the order in which that comes, and some that are forgotten already.
    order: VecDeque<(u64, [u8; 32])>,
    keep: u64,
    count_max: usize,
    /// The latest time seen: clocks may be put back.
    now: u64,
}

impl Replays {
    /// For a scheme whose signatures are valid `tolerance` seconds before and after their time:
    /// each request is remembered for as long as it could come again.
    #[must_use]
    pub fn new(tolerance: u64, count_max: usize) -> Self {
        Self::for_seconds(Self::window(tolerance), count_max)
    }

    /// How many seconds a request could come again whose signature is valid `tolerance` seconds
    /// before and after its time.
    #[must_use]
    pub const fn window(tolerance: u64) -> u64 {
        // Both ends of the window are in it.
        tolerance.saturating_mul(2).saturating_add(1)
    }

    /// Remembers each request so many seconds at least, those too that have been taken already:
    /// they could come again for as long.
    pub fn keep_at_least(&mut self, seconds: u64) {
        let more = seconds.saturating_sub(self.keep);
        if more == 0 {
            return;
        }
        self.keep = seconds;
        let in_order = self.order.iter_mut().map(|(until, _)| until);
        for until in self.seen.values_mut().chain(in_order) {
            *until = until.saturating_add(more);
        }
    }

    /// For a scheme whose signatures have no time: each request is remembered so many seconds.
    #[must_use]
    pub fn for_seconds(keep: u64, count_max: usize) -> Self {
        Self {
            seen: HashMap::new(),
            order: VecDeque::new(),
            keep,
            count_max,
            now: 0,
        }
    }

    /// Takes a request, by what tells it from others. `now` is in seconds.
    pub fn take(&mut self, identity: &[u8], now: u64) -> Replay {
        self.now = self.now.max(now);
        while let Some((until, hash)) = self.order.front() {
            if self.now < *until {
                break;
            }
            if self.seen.get(hash) == Some(until) {
                self.seen.remove(hash);
            }
            self.order.pop_front();
        }
        let hash = sha256(identity);
        if self.seen.contains_key(&hash) {
            return Replay::Seen;
        }
        if self.seen.len() >= self.count_max {
            return Replay::Full;
        }
        if self.order.len() >= self.count_max.saturating_mul(2) {
            let seen = &self.seen;
            self.order
                .retain(|(until, hash)| seen.get(hash) == Some(until));
        }
        let until = self.now.saturating_add(self.keep);
        self.seen.insert(hash, until);
        self.order.push_back((until, hash));
        Replay::New
    }

    /// How many requests are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Forgets a request that was taken and then not acted on, so that its sender may repeat it.
    pub fn forget(&mut self, identity: &[u8]) {
        self.seen.remove(&sha256(identity));
    }
}
