//! The keys that an issuer publishes (RFC 7517, section 5).

use std::sync::Arc;

use serde_json::Value;

use super::key::{Key, KeyProblem};
use super::{Algorithm, Compact, Refused};
use crate::strict_json;

/// The most bytes of a set.
pub const KEY_SET_MAX: usize = 256 * 1024;
/// The most keys of a set.
pub const KEYS_MAX: usize = 100;
/// How many public keys are tried for a token that names none: each try costs a signature check.
const TRIES_MAX: usize = 4;

/// The keys of one issuer.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    keys: Vec<Arc<Key>>,
}

/// Why a text is no set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySetError {
    /// It is not a JSON object with a list `keys`.
    Malformed,
    /// It is above [`KEY_SET_MAX`] or [`KEYS_MAX`].
    TooLarge,
}

/// What is ignored of a set: the key's `kid`, and why.
pub type Ignored = (Option<String>, KeyProblem);

impl KeySet {
    /// A set of keys made otherwise.
    #[must_use]
    pub fn of(keys: Vec<Key>) -> Self {
        let keys = keys.into_iter().map(Arc::new).collect();
        Self { keys }
    }

    /// Reads a JWKS. What cannot be used is ignored, as RFC 7517 demands, and told. `rsa` is what
    /// RSA keys are used with that name no algorithm.
    ///
    /// Two different keys of one algorithm with one `kid` are both ignored, for nobody can tell
    /// which is meant. Keys of different algorithms may share a `kid`, and at some issuers do (RFC
    /// 7517, section 4.5).
    ///
    /// # Errors
    /// When it is no set at all.
    pub fn parse(text: &[u8], rsa: Algorithm) -> Result<(Self, Vec<Ignored>), KeySetError> {
        if text.len() > KEY_SET_MAX {
            return Err(KeySetError::TooLarge);
        }
        let set = strict_json::object(text).map_err(|_| KeySetError::Malformed)?;
        let Some(Value::Array(items)) = set.get("keys") else {
            return Err(KeySetError::Malformed);
        };
        if items.len() > KEYS_MAX {
            return Err(KeySetError::TooLarge);
        }
        let (mut keys, mut ignored) = (Vec::<Key>::new(), Vec::new());
        for item in items {
            let Value::Object(jwk) = item else {
                ignored.push((None, KeyProblem::Malformed));
                continue;
            };
            match Key::of_jwk(jwk, rsa) {
                Ok(key) if keys.contains(&key) => {}
                Ok(key) => keys.push(key),
                Err(problem) => {
                    let id = jwk.get("kid").and_then(Value::as_str);
                    ignored.push((id.map(str::to_owned), problem));
                }
            }
        }
        let is_ambiguous = |key: &Key| {
            let is_like = |it: &&Key| it.id() == key.id() && it.algorithm() == key.algorithm();
            key.id().is_some() && keys.iter().filter(is_like).count() > 1
        };
        let ambiguous: Vec<bool> = keys.iter().map(is_ambiguous).collect();
        let mut flags = ambiguous.into_iter();
        keys.retain(|key| {
            let is_ambiguous = flags.next().unwrap_or(false);
            if is_ambiguous {
                ignored.push((key.id().map(str::to_owned), KeyProblem::SameId));
            }
            !is_ambiguous
        });
        Ok((Self::of(keys), ignored))
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Its keys.
    #[must_use]
    pub fn keys(&self) -> &[Arc<Key>] {
        &self.keys
    }

    /// Whether it has this key, under whatever name: one that is renamed is not withdrawn.
    #[must_use]
    pub fn has(&self, key: &Key) -> bool {
        self.keys.iter().any(|it| it.is_same(key))
    }

    /// Whether both have the same keys under the same names, in any order.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.keys.len() == other.keys.len() && self.keys.iter().all(|it| other.keys.contains(it))
    }

    /// Verifies a token's signature. A token that names a key is verified by that one only, and
    /// each key by its own algorithm only, whatever the token says. Gives the key.
    ///
    /// # Errors
    /// [`Refused::UnknownKey`] when newer keys of the issuer might help, [`Refused::Algorithm`] or
    /// [`Refused::Signature`] when they cannot.
    pub fn verify(&self, token: &Compact<'_>) -> Result<&Arc<Key>, Refused> {
        let named: Vec<&Arc<Key>> = match token.key_id() {
            Some(id) => {
                // A secret that is written in a file has no name.
                let is_it =
                    |key: &&Arc<Key>| key.id() == Some(id) || key.algorithm().is_symmetric();
                self.keys.iter().filter(is_it).collect()
            }
            None => self.keys.iter().collect(),
        };
        let fits = |key: &&&Arc<Key>| key.algorithm() == token.algorithm;
        // Secrets are few, for somebody has written them into a file.
        let tries = match token.algorithm.is_symmetric() {
            true => usize::MAX,
            false => TRIES_MAX,
        };
        let mut candidates = named.iter().filter(fits).take(tries).peekable();
        // No issuer publishes secrets, so that newer keys cannot help; nor where the key is known.
        let may_be_new = !token.algorithm.is_symmetric() && token.key_id().is_none();
        if candidates.peek().is_none() {
            let is_final = token.algorithm.is_symmetric() || !named.is_empty();
            return Err(match is_final && !may_be_new {
                true => Refused::Algorithm,
                false => Refused::UnknownKey,
            });
        }
        let signer = candidates.find(|key| key.verify(token.signed, &token.signature));
        signer.copied().ok_or(match may_be_new {
            // The issuer names no keys and may have another one by now.
            true => Refused::UnknownKey,
            false => Refused::Signature,
        })
    }
}
