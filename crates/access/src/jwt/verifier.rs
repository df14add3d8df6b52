//! One way to know callers by tokens, on one worker.

use std::rc::Rc;
use std::sync::Arc;

use super::cache::TokenCache;
use super::{Holder, Refused, Rules, Signed, Snapshot, verify_with};

/// Verifies tokens by rules that never change, and remembers those that it has verified. Each way
/// of a plan has its own on each worker: what is right by one way's rules may be wrong by
/// another's.
///
/// Beside each token it keeps what the caller makes of it once, a `T`.
#[derive(Debug)]
pub struct Verifier<T> {
    rules: Arc<Rules>,
    cache: TokenCache<CachedToken<T>>,
}

/// What is kept of a token that has been verified. It lies in the table itself: with more tokens
/// than the caches of a processor hold, each step to another place in memory is a wait.
#[derive(Clone, Debug)]
pub struct CachedToken<T> {
    /// Most tokens are those of bearers.
    holder: Option<Rc<Holder>>,
    value: T,
}

impl<T> CachedToken<T> {
    /// To whom the token belongs: what the caller has to show of itself.
    #[must_use]
    pub fn holder(&self) -> Holder {
        self.holder.as_deref().copied().unwrap_or_default()
    }

    /// What was made of the claims. Nobody may act on it before [`Holder::confirm`].
    #[must_use]
    pub fn into_value(self) -> T {
        self.value
    }
}

impl<T: Clone> Verifier<T> {
    /// One that has seen no token. It keeps at most about so many bytes of tokens.
    #[must_use]
    pub fn new(rules: Arc<Rules>, cache_bytes_max: usize) -> Self {
        Self {
            rules,
            cache: TokenCache::new(cache_bytes_max),
        }
    }

    /// Verifies a token that is not known by these keys, and makes a `T` of it. `now` is in seconds
    /// since 1970.
    ///
    /// # Errors
    /// As [`verify`](super::verify).
    pub fn verify(
        &mut self,
        token: &[u8],
        keys: &Snapshot,
        now: u64,
        make: impl FnOnce(&Signed<'_>) -> T,
    ) -> Result<CachedToken<T>, Refused> {
        let (known, expires) = verify_with(token, (keys.keys(), &self.rules), now, |signed| {
            let holder = signed.holder;
            let known = CachedToken {
                holder: (holder != Holder::default()).then(|| Rc::new(holder)),
                value: make(signed),
            };
            (known, signed.expires)
        })?;
        self.cache
            .put(token, (keys.generation(), now), (&known, expires));
        Ok(known)
    }

    /// What is known of a token that has been verified by the keys of this generation.
    pub fn known(&mut self, token: &[u8], generation: u64, now: u64) -> Option<CachedToken<T>> {
        self.cache.get(token, generation, now)
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
