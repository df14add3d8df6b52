//! One way to know callers by tokens, on one worker.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::cache::TokenCache;
use super::{Refused, Rules, Snapshot, Verified, verify};

/// Verifies tokens by rules that never change, and remembers those that it has verified. Each way
/// of a plan has its own on each worker: what is right by one way's rules may be wrong by
/// another's.
///
/// Beside each token it keeps what the caller makes of it once, a `T`.
#[derive(Debug)]
pub struct Verifier<T> {
    rules: Arc<Rules>,
    cache: TokenCache<(Verified, T)>,
}

impl<T> Verifier<T> {
    /// One that has seen no token. It keeps at most about so many bytes of tokens.
    #[must_use]
    pub fn new(rules: Arc<Rules>, cache_bytes_max: usize) -> Self {
        Self {
            rules,
            cache: TokenCache::new(cache_bytes_max),
        }
    }

    /// Verifies a token by these keys, and makes a `T` of the claims and the expiry of one that was
    /// not known. Nobody may act on it before [`Verified::confirm`]. `now` is in seconds since
    /// 1970.
    ///
    /// # Errors
    /// As [`verify`].
    pub fn verify(
        &mut self,
        token: &[u8],
        keys: &Snapshot,
        now: u64,
        make: impl FnOnce(&Map<String, Value>, u64) -> T,
    ) -> Result<Rc<(Verified, T)>, Refused> {
        let generation = keys.generation();
        if let Some(known) = self.cache.get(token, generation, now) {
            return Ok(known);
        }
        let verified = verify(token, keys.keys(), &self.rules, now)?;
        let expires = verified.expires();
        let made = make(verified.claims(), expires);
        let known = Rc::new((verified, made));
        self.cache.put(token, (generation, now), (&known, expires));
        Ok(known)
    }

    /// Forgets all tokens, as after a revocation.
    pub fn forget(&mut self) {
        self.cache.clear();
    }

    /// How many tokens it remembers.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.cache.len()
    }
}
