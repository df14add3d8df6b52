//! Tokens that some worker has verified, so that the others know them for no guesses.

use hashbrown::HashSet;

use crate::sha256::sha256;

/// What a token is noted by: whoever shares the notes makes it before taking their lock, for tokens
/// may be long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// That of a token.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        Self(sha256(token))
    }
}

/// Which tokens of a way have been right lately, by their SHA-256. It lets nobody in: whoever is in
/// it may have a token checked although its address has sent too many wrong ones.
///
/// Only holders of good tokens put something in. Two sets take turns: when the newer one is full,
/// the older one is forgotten.
#[derive(Debug)]
pub struct SeenTokens {
    newer: HashSet<TokenHash>,
    older: HashSet<TokenHash>,
    /// The most entries of a set.
    most: usize,
}

impl SeenTokens {
    /// An empty one, which remembers the last `most` tokens at least.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            newer: HashSet::new(),
            older: HashSet::new(),
            most: most.max(1),
        }
    }

    /// Notes a token that has been verified.
    pub fn note(&mut self, token: TokenHash) {
        if self.newer.len() >= self.most {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(token);
    }

    /// Whether a token has been noted lately.
    #[must_use]
    pub fn has(&self, token: TokenHash) -> bool {
        self.newer.contains(&token) || self.older.contains(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tokens_are_remembered_and_no_more_than_twice_as_many() {
        let mut seen = SeenTokens::new(10);
        let hash = |number: u8| TokenHash::of(&[number]);
        for number in 0..100_u8 {
            assert!(!seen.has(hash(number)));
            seen.note(hash(number));
            let last = number.saturating_sub(9)..=number;
            assert!(last.into_iter().all(|it| seen.has(hash(it))), "{number}");
        }
        let left = (0..100).filter(|it| seen.has(hash(*it))).count();
        assert!((10..=20).contains(&left), "{left}");
    }
}
