//! Tokens that have been verified, so that the next request with one costs no signature check.

use std::collections::VecDeque;
use std::rc::Rc;

use hashbrown::HashMap;

use super::Verified;

/// The verified tokens of one worker. It compares whole tokens, and holds only such as have passed:
/// who has no token cannot put anything in. What is full forgets the tokens that were not used
/// since it last looked at them.
#[derive(Debug)]
pub struct TokenCache {
    tokens: HashMap<Rc<[u8]>, Entry>,
    /// All tokens, the next to be looked at first.
    order: VecDeque<Rc<[u8]>>,
    bytes: usize,
    bytes_max: usize,
    /// The keys that all of them were verified by.
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    verified: Rc<Verified>,
    is_used: bool,
}

impl TokenCache {
    /// An empty one, which keeps at most so many bytes of tokens.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            tokens: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            bytes_max,
            generation: 0,
        }
    }

    /// What a token has been verified to be, by the keys of this generation, when it has not
    /// expired since. With other keys it forgets everything: one of them may have been withdrawn.
    pub fn get(&mut self, token: &[u8], generation: u64, now: u64) -> Option<Rc<Verified>> {
        if generation != self.generation {
            self.clear();
            self.generation = generation;
            return None;
        }
        let entry = self.tokens.get_mut(token)?;
        entry.is_used = true;
        (now < entry.verified.expires()).then(|| Rc::clone(&entry.verified))
    }

    /// Remembers a token that has been verified by the keys of this generation.
    pub fn put(&mut self, token: &[u8], generation: u64, now: u64, verified: Rc<Verified>) {
        if generation != self.generation {
            self.clear();
            self.generation = generation;
        }
        if token.len() > self.bytes_max || self.tokens.contains_key(token) {
            return;
        }
        while self.bytes + token.len() > self.bytes_max {
            self.forget_one(now);
        }
        let key: Rc<[u8]> = token.into();
        self.bytes += key.len();
        self.order.push_back(Rc::clone(&key));
        let is_used = false;
        self.tokens.insert(key, Entry { verified, is_used });
    }

    /// Forgets everything, as after a revocation.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// How many tokens it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Forgets the first that was not used since its last turn, or has expired. Each has at most
    /// one more turn, so it comes to an end.
    fn forget_one(&mut self, now: u64) {
        while let Some(key) = self.order.pop_front() {
            let Some(entry) = self.tokens.get_mut(&key) else {
                continue;
            };
            if entry.is_used && now < entry.verified.expires() {
                entry.is_used = false;
                self.order.push_back(key);
                continue;
            }
            self.bytes -= key.len();
            self.tokens.remove(&key);
            return;
        }
    }
}
