//! Authenticated encryption of what browsers and the data folder keep: they can neither read nor
//! change it.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64ct::{Base64UrlUnpadded, Encoding as _};

use crate::random;
use crate::sha256::sha256;

/// The bytes of a key.
pub const SEALING_KEY_BYTES: usize = 32;
/// The bytes that a sealed text has beside itself: its nonce, and a tag of 16.
pub const SEALED_OVERHEAD: usize = NONCE_LEN + 16;

/// Seals texts with AES-256-GCM under random nonces of 96 bits; one key is good for 2^32 texts
/// (NIST SP 800-38D, section 8.3).
///
/// A text is sealed for a context, the associated data: a sealed text of one purpose cannot be
/// opened as one of another purpose, even with the same key.
pub struct Sealer(RandomizedNonceKey);

/// Without the key.
impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sealer")
    }
}

impl Sealer {
    /// One with this key; `None` when the library refuses it.
    #[must_use]
    pub fn new(key: &[u8; SEALING_KEY_BYTES]) -> Option<Self> {
        RandomizedNonceKey::new(&AES_256_GCM, key).ok().map(Self)
    }

    /// One with a new key; `None` when the system has no random bytes.
    #[must_use]
    pub fn random() -> Option<Self> {
        Self::new(&Self::random_key()?)
    }

    /// A new key; `None` when the system has no random bytes.
    #[must_use]
    pub fn random_key() -> Option<[u8; SEALING_KEY_BYTES]> {
        random::bytes()
    }

    /// One whose key is derived from a secret of at least 128 random bits; `purpose` keeps it apart
    /// from other uses of the secret.
    #[must_use]
    pub fn of_secret(purpose: &str, secret: &[u8]) -> Option<Self> {
        Self::new(&sha256(&[purpose.as_bytes(), &[0], secret].concat()))
    }

    /// Seals a text for a context. The result is nonce, cipher text and tag: 28 bytes more than the
    /// text. `None` when the system has no random bytes.
    #[must_use]
    pub fn seal(&self, context: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = text.to_vec();
        let nonce = self
            .0
            .seal_in_place_append_tag(Aad::from(context), &mut sealed);
        Some([&nonce.ok()?.as_ref()[..], &sealed].concat())
    }

    /// The text; `None` when it was not sealed with this key for this context.
    #[must_use]
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = sealed.to_vec();
        let length = self.0.open_in_place(nonce, Aad::from(context), &mut text);
        let length = length.ok()?.len();
        text.truncate(length);
        Some(text)
    }

    /// [`Sealer::seal`] as text for a cookie (base64url).
    #[must_use]
    pub fn seal_text(&self, context: &[u8], text: &[u8]) -> Option<String> {
        let sealed = self.seal(context, text)?;
        Some(Base64UrlUnpadded::encode_string(&sealed))
    }

    /// [`Sealer::open`] of such a text.
    #[must_use]
    pub fn open_text(&self, context: &[u8], sealed: &str) -> Option<Vec<u8>> {
        self.open(context, &Base64UrlUnpadded::decode_vec(sealed).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_unchanged_sealed_text_is_opened() {
        let sealer = Sealer::new(&[7; 32]).unwrap();
        let sealed = sealer.seal_text(b"session", b"secret").unwrap();
        assert_eq!(sealer.open_text(b"session", &sealed).unwrap(), b"secret");
        assert_ne!(sealer.seal_text(b"session", b"secret").unwrap(), sealed);
        assert!(sealer.open_text(b"other", &sealed).is_none());
        let other = Sealer::new(&[8; 32]).unwrap();
        assert!(other.open_text(b"session", &sealed).is_none());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(sealer.open_text(b"session", &changed).is_none(), "{at}");
            assert!(sealer.open_text(b"session", &sealed[..at]).is_none());
        }
    }

    #[test]
    fn keys_derived_from_a_secret_differ_by_purpose() {
        let sealer = |purpose| Sealer::of_secret(purpose, b"id").unwrap();
        let sealed = sealer("a").seal(b"x", b"text").unwrap();
        assert_eq!(sealer("a").open(b"x", &sealed).unwrap(), b"text");
        assert!(sealer("b").open(b"x", &sealed).is_none());
        assert!(sealer("a").open(b"y", &sealed).is_none());
    }

    #[test]
    fn texts_sealed_by_released_versions_are_opened() {
        // Cookies and the data folder have such texts: another form would log everybody out. Both
        // were made with OpenSSL.
        let key: [u8; 32] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let ticket = "AAAAAAAAAAAAAAAAac7UsMHX7TMCTiOTnqDYe3NIDwKJ";
        let opened = Sealer::new(&key)
            .unwrap()
            .open_text(b"intertie ticket session 1", ticket);
        assert_eq!(opened.unwrap(), b"grant");
        let session = "AAAAAAAAAAAAAAAAbjcUoXhW9gTbeFxavOdx-yLbRQyEAU8";
        let sealer = Sealer::of_secret("intertie session", b"id").unwrap();
        assert_eq!(sealer.open_text(b"staff", session).unwrap(), b"session");
    }
}
