//! What a browser keeps for us and must neither read nor change: sealed with AES-256-GCM.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use base64ct::{Base64UrlUnpadded, Encoding as _};

use crate::sha256::sha256;

/// Seals and opens texts with one key (AES-256-GCM with random nonces of 96 bits, NIST SP 800-38D,
/// which are good for 2^32 texts).
pub struct Sealer(RandomizedNonceKey);

/// Without the key.
impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sealer")
    }
}

impl Sealer {
    /// One with a new key; `None` when the system has no random bytes.
    #[must_use]
    pub fn random() -> Option<Self> {
        let mut key = [0; 32];
        rand::fill(&mut key).ok()?;
        RandomizedNonceKey::new(&AES_256_GCM, &key).ok().map(Self)
    }

    /// One whose key is made of a secret of at least 128 random bits; `purpose` keeps it apart from
    /// other uses of the secret.
    #[must_use]
    pub fn of_secret(purpose: &str, secret: &[u8]) -> Option<Self> {
        let mut text = purpose.as_bytes().to_vec();
        text.push(0);
        text.extend_from_slice(secret);
        let key = RandomizedNonceKey::new(&AES_256_GCM, &sha256(&text));
        key.ok().map(Self)
    }

    /// Seals a text for a context, with which alone it can be opened again. Nonce, cipher text and
    /// tag, 28 bytes more than the text.
    #[must_use]
    pub fn seal(&self, context: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = text.to_vec();
        let nonce = self
            .0
            .seal_in_place_append_tag(Aad::from(context), &mut sealed);
        let mut all = nonce.ok()?.as_ref().to_vec();
        all.append(&mut sealed);
        Some(all)
    }

    /// The text; `None` when it was not sealed by this key for this context.
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

/// 256 random bits as text of 43 characters (base64url): a state, a nonce, a code verifier, the
/// identifier of a session. `None` when the system has no randomness.
#[must_use]
pub fn random_text() -> Option<String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok()?;
    Some(Base64UrlUnpadded::encode_string(&bytes))
}
