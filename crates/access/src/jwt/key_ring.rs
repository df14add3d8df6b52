//! Signing keys that are generated and rotated.
//!
//! There is always a next key, made and published when the one before it began to sign. So whoever
//! keeps the published keys for less than a period knows each key before it signs.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64ct::{Base64, Encoding as _};
use serde_json::{Map, Value, json};

use super::{PublishedKey, key_set_text};

/// How long a key signs, in seconds: 30 days.
pub const ROTATION_SECONDS: u64 = 30 * 24 * 3600;
/// How long a key stays published that signs no more, in seconds: longer than any token is good.
const RETIRED_SECONDS: u64 = 3600;

/// The keys.
pub struct KeyRing {
    signing: GeneratedKey,
    next: GeneratedKey,
    /// The public part of the key that signed before.
    retired: Option<Map<String, Value>>,
    /// When the first one began to sign, in seconds since 1970.
    since: u64,
}

/// A key that we have generated.
struct GeneratedKey {
    /// In PKCS #8.
    private: Vec<u8>,
    key: PublishedKey,
}

impl GeneratedKey {
    fn random() -> Option<Self> {
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let made = EcdsaKeyPair::generate_pkcs8(kind, &SystemRandom::new()).ok()?;
        Self::of(made.as_ref().to_vec())
    }

    fn of(private: Vec<u8>) -> Option<Self> {
        let key = PublishedKey::from_pkcs8(&private)?;
        Some(Self { private, key })
    }
}

/// Without the private keys.
impl fmt::Debug for KeyRing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = [self.signing.key.id(), self.next.key.id()];
        formatter.debug_tuple("KeyRing").field(&keys).finish()
    }
}

impl KeyRing {
    /// New keys, the first of which signs from now on; `None` when the system has no randomness.
    #[must_use]
    pub fn random(now: u64) -> Option<Self> {
        Some(Self {
            signing: GeneratedKey::random()?,
            next: GeneratedKey::random()?,
            retired: None,
            since: now,
        })
    }

    /// Reads what [`KeyRing::to_bytes`] has written; `None` when it is something else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let key = |name: &str| {
            let text = value.get(name)?.as_str()?;
            GeneratedKey::of(Base64::decode_vec(text).ok()?)
        };
        let retired = value.get("retired").and_then(Value::as_object);
        Some(Self {
            signing: key("signing")?,
            next: key("next")?,
            retired: retired.cloned(),
            since: value.get("since")?.as_u64()?,
        })
    }

    /// The keys with their private parts, to be kept.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let text = |key: &GeneratedKey| Base64::encode_string(&key.private);
        let value = json!({
            "signing": text(&self.signing),
            "next": text(&self.next),
            "retired": self.retired,
            "since": self.since,
        });
        value.to_string().into_bytes()
    }

    /// The key that signs.
    #[must_use]
    pub fn signing(&self) -> &PublishedKey {
        &self.signing.key
    }

    /// Whether the next key is to sign.
    #[must_use]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.since.saturating_add(ROTATION_SECONDS)
    }

    /// The keys after a rotation: the next one signs, there is a new next one, and the last one
    /// stays published for an hour. `None` when the system has no randomness.
    #[must_use]
    pub fn rotated(&self, now: u64) -> Option<Self> {
        Some(Self {
            signing: GeneratedKey::of(self.next.private.clone())?,
            next: GeneratedKey::random()?,
            retired: Some(self.signing.key.jwk().clone()),
            since: now,
        })
    }

    /// What is published: the key that signs, the next one, and for a while the last one.
    #[must_use]
    pub fn key_set(&self, now: u64) -> String {
        let is_fresh = now < self.since.saturating_add(RETIRED_SECONDS);
        let retired = self.retired.iter().filter(|_| is_fresh);
        let keys = [self.signing.key.jwk(), self.next.key.jwk()];
        key_set_text(keys.into_iter().chain(retired))
    }
}
