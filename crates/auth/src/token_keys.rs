//! The keys that verify an issuer's tokens, wherever they come from.

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use access::jwt::{Algorithm, Ignored, Key, KeySet, Snapshot};
use component::access::{Caller, Revocable, Validity};
use component::audit::{Audit, Changes, EventKind};
use component::handler::{LocalFuture, Services};
use component::source::SourcePlan;
use component::upstream::UpstreamPlan;

use crate::in_force::InForce;
use crate::issuer_keys::Fetcher;
use crate::key_file::{Content, WatchedFile, source_name, watch_file};
use crate::revocation::{CredentialIds, Revocations};
use crate::source::{self, Periodic, Repeated};

/// The keys of an issuer, as they are now.
#[derive(Clone)]
pub(crate) enum TokenKeys {
    /// A secret that the flow file has.
    Secret(Snapshot),
    /// A file, which is read again when it has changed.
    File(Arc<WatchedFile<KeySetFile>>),
    /// What the issuer publishes.
    Fetched(Arc<Fetcher>),
}

impl TokenKeys {
    /// The keys; none before they have been fetched.
    pub fn current(&self, now: Instant) -> Option<Snapshot> {
        match self {
            Self::Secret(keys) => Some(keys.clone()),
            Self::File(file) => Some(file.content().keys.clone()),
            Self::Fetched(fetcher) => fetcher.keys.current(now),
        }
    }

    /// The generation of the current keys.
    #[inline]
    pub fn generation(&self, services: &dyn Services) -> Option<u64> {
        match self {
            Self::Secret(keys) => Some(keys.generation()),
            Self::File(file) => Some(file.generation()),
            // Only these grow old: for others no request reads the clock.
            Self::Fetched(fetcher) => fetcher.keys.generation(services.now()),
        }
    }

    /// Whether a key has not been withdrawn. An issuer that cannot be reached withdraws none.
    fn has(&self, key: &Key) -> bool {
        match self {
            Self::Secret(keys) => keys.keys().has(key),
            Self::File(file) => file.content().keys.keys().has(key),
            Self::Fetched(fetcher) => !fetcher.keys.has_withdrawn(key),
        }
    }

    /// What keeps the keys of the way of this name current, and ends the streams of tokens whose
    /// key is withdrawn.
    pub fn source(
        &self,
        way: &str,
        in_force: &InForce<Self>,
        (revocations, audit): (&Arc<Revocations>, &Arc<Audit>),
    ) -> SourcePlan {
        let (keys, in_force) = (self.clone(), in_force.clone());
        if let Self::File(file) = self {
            let come_into_force = move |revocations: &_| in_force.set(&keys, revocations);
            return watch_file(way, file, (revocations, audit), come_into_force);
        }
        let follow = Follow {
            keys,
            in_force,
            revocations: Arc::clone(revocations),
        };
        source::plan(source_name(way), Arc::new(Repeated(follow)))
    }

    /// The systems that are asked for keys.
    pub fn upstreams(&self) -> Vec<&Arc<UpstreamPlan>> {
        match self {
            Self::Secret(_) | Self::File(_) => Vec::new(),
            Self::Fetched(fetcher) => fetcher.upstreams().collect(),
        }
    }
}

/// A file with a set of keys (RFC 7517).
pub(crate) struct KeySetFile {
    keys: Snapshot,
    ignored: Vec<Ignored>,
}

impl Content for KeySetFile {
    const CHANGED: EventKind = EventKind::KeysChanged;

    /// The algorithm of RSA keys that name none.
    type Settings = Algorithm;

    fn parse(text: &str, rsa: &Algorithm) -> Result<Self, String> {
        let parsed = KeySet::parse(text.as_bytes(), *rsa);
        let (keys, ignored) = parsed.map_err(|_| "it is no set of keys (RFC 7517)".to_owned())?;
        // Who empties the file means to have all tokens refused.
        if keys.is_empty() && !ignored.is_empty() {
            return Err("it has no key that can be used".to_owned());
        }
        Ok(Self {
            keys: Snapshot::new(keys),
            ignored,
        })
    }

    fn generation(&self) -> u64 {
        self.keys.generation()
    }

    fn is_same(&self, before: &Self) -> bool {
        self.keys.keys().is_same(before.keys.keys()) && self.ignored == before.ignored
    }

    fn warnings(&self) -> Vec<String> {
        let ignored = self.ignored.iter().map(|(id, problem)| {
            let id = id.as_deref().unwrap_or("without `kid`").escape_debug();
            format!("the key {id} is not used: {}", problem.explanation())
        });
        let none = "it has no keys: all tokens are refused".to_owned();
        let is_empty = self.keys.keys().is_empty();
        ignored.chain(is_empty.then_some(none)).collect()
    }

    fn changes(&self, before: &Self) -> Changes {
        Changes::between(before.named(), self.named())
    }
}

impl KeySetFile {
    /// The keys by names that are unique: two of different algorithms may share a `kid`, and some
    /// have none.
    fn named(&self) -> impl Iterator<Item = (String, &Arc<Key>)> {
        let keys = self.keys.keys().keys().iter().enumerate();
        keys.map(|(index, key)| {
            let algorithm = key.algorithm().name();
            let name = match key.id() {
                Some(id) => format!("{id} ({algorithm})"),
                None => format!("key {} ({algorithm})", index + 1),
            };
            (name, key)
        })
    }
}

/// Puts keys that are in no file in force, and has them fetched at their regular times.
struct Follow {
    keys: TokenKeys,
    in_force: InForce<TokenKeys>,
    revocations: Arc<Revocations>,
}

impl Periodic for Follow {
    fn turn<'a>(
        &'a self,
        is_first: bool,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Option<Instant>> {
        if is_first {
            self.in_force.set(&self.keys, &self.revocations);
        }
        match &self.keys {
            TokenKeys::Fetched(fetcher) => fetcher.turn(is_first, services),
            TokenKeys::Secret(_) | TokenKeys::File(_) => Box::pin(ready(None)),
        }
    }
}

/// Tokens that one key has signed: they are good for as long as the way has that.
pub(crate) struct TokensOfKey {
    pub revocations: Arc<Revocations>,
    pub in_force: InForce<TokenKeys>,
    pub key: Arc<Key>,
}

impl Revocable for TokensOfKey {
    fn is_denied(&self, caller: &Caller, now: &dyn Fn() -> u64) -> bool {
        let ids = || CredentialIds::of_token(caller);
        self.revocations.is_denied(ids, now)
    }

    fn validity(&self, caller: &Caller) -> Arc<Validity> {
        // Of two tokens that say the same, each has the key that has signed it.
        let ids = (
            CredentialIds::of_token(caller),
            Some(self.key.fingerprint()),
        );
        let (in_force, key) = (self.in_force.clone(), Arc::clone(&self.key));
        let is_known = Box::new(move || in_force.admits(|keys| keys.has(&key)));
        self.revocations.watch(caller, ids, Some(is_known))
    }
}
