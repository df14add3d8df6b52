//! Tokens that have been verified, so that the next request with one costs no signature check.

use std::collections::VecDeque;
use std::rc::Rc;

use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;

/// What a token counts for each of its bytes: its claims are kept beside it, parsed once an
/// expression has asked for them.
const BYTES_EACH: usize = 8;

/// The verified tokens of one way on one worker. It compares whole tokens, and holds only such as
/// have passed: who has no token cannot put anything in, nor push anything out. What is full
/// forgets the tokens that were not used since it last looked at them.
#[derive(Debug)]
pub(super) struct TokenCache<T> {
    tokens: HashMap<Rc<[u8]>, Entry<T>>,
    /// All tokens, the next to be looked at first.
    order: VecDeque<Rc<[u8]>>,
    bytes: usize,
    bytes_max: usize,
    /// The keys that all of them were verified by.
    generation: u64,
}

#[derive(Debug)]
struct Entry<T> {
    known: T,
    /// From when on it is refused, in seconds since 1970.
    expires: u64,
    is_used: bool,
}

impl<T: Clone> TokenCache<T> {
    /// An empty one, which keeps at most about so many bytes.
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
    /// expired since. With newer keys it forgets everything: one of the old ones may have been
    /// withdrawn.
    pub fn get(&mut self, token: &[u8], generation: u64, now: u64) -> Option<T> {
        if !self.is_of(generation) {
            return None;
        }
        let entry = self.tokens.get_mut(token)?;
        entry.is_used = true;
        (now < entry.expires).then(|| entry.known.clone())
    }

    /// Remembers a token that has been verified by the keys of this generation.
    pub fn put(
        &mut self,
        token: &[u8],
        (generation, now): (u64, u64),
        (known, expires): (&T, u64),
    ) {
        let cost = cost(token);
        if !self.is_of(generation) || cost > self.bytes_max {
            return;
        }
        while self.bytes + cost > self.bytes_max {
            self.forget_one(now);
        }
        let EntryRef::Vacant(place) = self.tokens.entry_ref(token) else {
            return;
        };
        let key: Rc<[u8]> = token.into();
        self.bytes += cost;
        self.order.push_back(Rc::clone(&key));
        let entry = Entry {
            known: known.clone(),
            expires,
            is_used: false,
        };
        place.insert_with_key(key, entry);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// How many tokens it has.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether it is about the keys of this generation. Generations only grow.
    fn is_of(&mut self, generation: u64) -> bool {
        if generation > self.generation {
            self.clear();
            self.generation = generation;
        }
        generation == self.generation
    }

    /// Forgets the first that was not used since its last turn, or has expired. Each has at most
    /// one more turn, so it comes to an end.
    fn forget_one(&mut self, now: u64) {
        while let Some(key) = self.order.pop_front() {
            let Some(entry) = self.tokens.get_mut(&key) else {
                continue;
            };
            if entry.is_used && now < entry.expires {
                entry.is_used = false;
                self.order.push_back(key);
                continue;
            }
            self.bytes -= cost(&key);
            self.tokens.remove(&key);
            return;
        }
    }
}

fn cost(token: &[u8]) -> usize {
    token.len() * BYTES_EACH
}
