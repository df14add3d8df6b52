//! Which signed requests have been taken already.

use std::collections::VecDeque;

use aws_lc_rs::digest::{SHA256, digest};
use hashbrown::HashSet;

/// What becomes of a request whose signature is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// It is the first of its kind and is remembered.
    New,
    /// It came before.
    Seen,
    /// There is no room to remember it: taking it would mean to take it again later.
    Full,
}

/// The signed requests that have been taken, for as long as their time allows another one.
#[derive(Debug)]
pub struct Replays {
    seen: HashSet<[u8; 32]>,
    /// All of them, with the second from which on they may be forgotten.
    order: VecDeque<(u64, [u8; 32])>,
    /// How many seconds each is kept.
    keep: u64,
    count_max: usize,
}

impl Replays {
    /// Remembers each request so many seconds, and at most so many of them. A signature that is
    /// valid for `tolerance` seconds before and after its time must be kept for twice as long.
    #[must_use]
    pub fn new(keep: u64, count_max: usize) -> Self {
        Self {
            seen: HashSet::new(),
            order: VecDeque::new(),
            keep,
            count_max,
        }
    }

    /// Takes a request, by what tells it from others. `now` is in seconds and never goes back.
    pub fn take(&mut self, identity: &[u8], now: u64) -> Replay {
        while let Some((until, hash)) = self.order.front() {
            if now < *until {
                break;
            }
            self.seen.remove(hash);
            self.order.pop_front();
        }
        let mut hash = [0; 32];
        for (to, from) in hash.iter_mut().zip(digest(&SHA256, identity).as_ref()) {
            *to = *from;
        }
        if self.seen.contains(&hash) {
            return Replay::Seen;
        }
        if self.seen.len() >= self.count_max {
            return Replay::Full;
        }
        self.seen.insert(hash);
        self.order.push_back((now.saturating_add(self.keep), hash));
        Replay::New
    }

    /// Forgets a request that was taken and then not acted on, so that its sender may repeat it.
    pub fn forget(&mut self, identity: &[u8]) {
        let hash = digest(&SHA256, identity);
        self.order.retain(|(_, known)| known != hash.as_ref());
        self.seen.retain(|known| known != hash.as_ref());
    }
}
