//! Users whose password has been checked, so that the next request with it costs no slow hash.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use hashbrown::HashMap;

use super::{User, Users, identify};
use crate::credentials::UserPassword;
use crate::random;

/// The same user with the same password: their HMAC-SHA256 by a key that this process has made.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity([u8; 32]);

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity")
    }
}

/// Passwords that were right lately, without the passwords. Only these are in it, so that whoever
/// has none can neither fill nor empty it. There is one for each file.
pub struct VerifiedUsers {
    key: hmac::Key,
    users: HashMap<Identity, (Arc<User>, Instant)>,
    /// All of them, the one that was checked first in front.
    order: VecDeque<(Identity, Instant)>,
    count_max: usize,
    keep: Duration,
    /// The users that all of them are of.
    generation: u64,
}

impl fmt::Debug for VerifiedUsers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = formatter.debug_struct("VerifiedUsers");
        text.field("len", &self.len()).finish_non_exhaustive()
    }
}

impl VerifiedUsers {
    /// How long a password need not be checked again.
    pub const KEEP: Duration = Duration::from_secs(5 * 60);

    /// An empty one for at most so many passwords, each of which is forgotten `keep` after its
    /// check. `None` when the system has no random bytes.
    #[must_use]
    pub fn new(count_max: usize, keep: Duration) -> Option<Self> {
        let secret: [u8; 32] = random::bytes()?;
        Some(Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            users: HashMap::new(),
            order: VecDeque::new(),
            count_max,
            keep,
            generation: 0,
        })
    }

    /// What to look a user and password up by, here and in [`super::CheckQueue`].
    #[must_use]
    pub fn identity(&self, presented: UserPassword<'_>) -> Identity {
        Identity(identify(&self.key, presented))
    }

    /// The user whose password this is, when that was checked a short time ago and the file is the
    /// same.
    pub fn get(&mut self, identity: &Identity, users: &Users, now: Instant) -> Option<Arc<User>> {
        if !self.is_of(users.generation()) {
            return None;
        }
        let (user, until) = self.users.get(identity)?;
        (now < *until).then(|| Arc::clone(user))
    }

    /// Remembers a user whose password was right when it was checked at the time `now`, by the
    /// users of this generation. The result of a check that began before the file was changed is
    /// not kept.
    pub fn put(&mut self, identity: Identity, user: &Arc<User>, generation: u64, now: Instant) {
        if !self.is_of(generation) || self.count_max == 0 {
            return;
        }
        let needs_room = !self.users.contains_key(&identity);
        while let Some(&(first, until)) = self.order.front()
            && (until <= now || needs_room && self.users.len() >= self.count_max)
        {
            self.order.pop_front();
            // It may have been checked again since.
            if self.users.get(&first).is_some_and(|(_, it)| *it == until) {
                self.users.remove(&first);
            }
        }
        let until = now + self.keep;
        let known = self.users.insert(identity, (Arc::clone(user), until));
        if known.is_none_or(|(_, before)| before != until) {
            self.order.push_back((identity, until));
        }
        if self.order.len() > self.count_max.saturating_mul(2) {
            let users = &self.users;
            self.order
                .retain(|(it, until)| users.get(it).is_some_and(|known| known.1 == *until));
        }
    }

    /// Forgets everything, as after a revocation.
    pub fn clear(&mut self) {
        self.users.clear();
        self.order.clear();
    }

    /// How many it remembers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether it remembers none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether it is about the users of this generation. Generations only grow.
    fn is_of(&mut self, generation: u64) -> bool {
        if generation > self.generation {
            self.clear();
            self.generation = generation;
        }
        generation == self.generation
    }
}
