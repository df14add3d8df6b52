//! A hash under a key that nobody else has.

use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};

use crate::random;

/// HMAC-SHA256 under a random key that exists in this process only. Caches have it in place of
/// credentials: it can be neither turned back nor predicted, even by who knows the credential.
#[derive(Clone, Debug)]
pub struct KeyedHash(Key);

impl KeyedHash {
    /// One with a new key; `None` when the system has no random bytes.
    #[must_use]
    pub fn random() -> Option<Self> {
        let key: [u8; 32] = random::bytes()?;
        Some(Self(Key::new(HMAC_SHA256, &key)))
    }

    /// The hash of these parts, each with its length in front: no two lists of parts have one text.
    #[must_use]
    pub fn of<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
        let mut context = Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut hash = [0; 32];
        for (to, from) in hash.iter_mut().zip(context.sign().as_ref()) {
            *to = *from;
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::KeyedHash;

    #[test]
    fn parts_and_keys_make_a_difference() {
        let hash = KeyedHash::random().unwrap();
        let of = |parts: &[&str]| hash.of(parts.iter().map(|it| it.as_bytes()));
        assert_eq!(of(&["a", "bc"]), of(&["a", "bc"]));
        for other in [&["ab", "c"][..], &["abc"], &["a", "bc", ""], &[]] {
            assert_ne!(of(&["a", "bc"]), of(other), "{other:?}");
        }
        let another = KeyedHash::random().unwrap();
        assert_ne!(of(&["a"]), another.of([&b"a"[..]]));
    }
}
