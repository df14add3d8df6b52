//! Values that their holder can neither read nor change.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use base64ct::{Base64UrlUnpadded, Encoding};

/// The bytes of a key.
pub const SEALING_KEY_BYTES: usize = 32;

/// Seals with AES-256-GCM under random nonces, of which one key has room for some four thousand
/// million (NIST SP 800-38D, section 8.3).
#[derive(Debug)]
pub struct Sealer(RandomizedNonceKey);

impl Sealer {
    /// One with this key; `None` when the library refuses it.
    #[must_use]
    pub fn new(key: &[u8; SEALING_KEY_BYTES]) -> Option<Self> {
        RandomizedNonceKey::new(&AES_256_GCM, key).ok().map(Self)
    }

    /// A new key; `None` when the system has no random bytes.
    #[must_use]
    pub fn random_key() -> Option<[u8; SEALING_KEY_BYTES]> {
        let mut key = [0; SEALING_KEY_BYTES];
        rand::fill(&mut key).ok()?;
        Some(key)
    }

    /// Seals a text for one purpose, as base64url: 38 characters more than that of the text.
    /// `None` when the system has no random bytes.
    #[must_use]
    pub fn seal(&self, purpose: &[u8], plain: &[u8]) -> Option<String> {
        let mut sealed = plain.to_vec();
        let nonce = self
            .0
            .seal_in_place_append_tag(Aad::from(purpose), &mut sealed)
            .ok()?;
        let all = [&nonce.as_ref()[..], &sealed].concat();
        Some(Base64UrlUnpadded::encode_string(&all))
    }

    /// Opens what was sealed for this purpose; `None` for anything else.
    #[must_use]
    pub fn open(&self, purpose: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(sealed).ok()?;
        let mut all = Base64UrlUnpadded::decode_vec(text).ok()?;
        let (nonce, sealed) = all.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = self.0.open_in_place(nonce, Aad::from(purpose), sealed);
        plain.ok().map(|plain| plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_sealed_is_opened() {
        let sealer = Sealer::new(&[7; 32]).unwrap();
        let sealed = sealer.seal(b"session", b"secret").unwrap();
        assert_eq!(
            sealer.open(b"session", sealed.as_bytes()).unwrap(),
            b"secret"
        );
        assert_ne!(sealer.seal(b"session", b"secret").unwrap(), sealed);
        assert!(sealer.open(b"other", sealed.as_bytes()).is_none());
        assert!(
            Sealer::new(&[8; 32])
                .unwrap()
                .open(b"session", sealed.as_bytes())
                .is_none()
        );
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(sealer.open(b"session", &changed).is_none(), "{at}");
            assert!(
                sealer.open(b"session", &sealed.as_bytes()[..at]).is_none(),
                "{at}"
            );
        }
    }
}
