//! Keys that seal what is kept for long, and how one takes the place of another: the first key
//! seals, all of them open.

use std::fmt;

use base64ct::{Base64, Encoding as _};

use crate::hex;
use crate::sealer::{SEALING_KEY_BYTES, Sealer};
use crate::sha256::sha256;

/// The most keys at a time.
const KEYS_MAX: usize = 10;
/// The bytes of a key's identifier, which stands in front of what the key has sealed.
const ID_BYTES: usize = 4;

/// Why a sealed text cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsealError {
    /// It was sealed with a key that is not among these.
    UnknownKey,
    /// It has been changed, or was sealed for another context.
    Damaged,
}

impl fmt::Display for UnsealError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::UnknownKey => "it was sealed with a key that is not there",
            Self::Damaged => "it is damaged",
        })
    }
}

impl std::error::Error for UnsealError {}

/// Seals texts with the first of several keys and opens those of all of them (AES-256-GCM, see
/// [`Sealer`]).
#[derive(Debug)]
pub struct SealingKeys {
    /// Each with its identifier in hexadecimal.
    keys: Vec<(String, Sealer)>,
}

impl SealingKeys {
    /// Reads keys: each is 32 bytes in Base64, as `openssl rand -base64 32` makes them.
    ///
    /// # Errors
    /// A sentence about the first that cannot be used.
    pub fn read(texts: &[&str]) -> Result<Self, &'static str> {
        if texts.is_empty() || texts.len() > KEYS_MAX {
            return Err("there are 1 to 10 keys");
        }
        let keys = texts.iter().map(|text| read_key(text));
        Ok(Self {
            keys: keys.collect::<Result<_, _>>()?,
        })
    }

    /// Seals a text for a context. `None` when the system has no random bytes.
    #[must_use]
    pub fn seal(&self, context: &[u8], text: &[u8]) -> Option<String> {
        let (id, sealer) = self.keys.first()?;
        Some(format!("{id}.{}", sealer.seal_text(context, text)?))
    }

    /// The text.
    ///
    /// # Errors
    /// When no key here has sealed it for this context.
    pub fn open(&self, context: &[u8], sealed: &str) -> Result<Vec<u8>, UnsealError> {
        let (of, sealed) = sealed.split_once('.').ok_or(UnsealError::Damaged)?;
        let known = self.keys.iter().find(|(id, _)| id == of);
        let (_, sealer) = known.ok_or(UnsealError::UnknownKey)?;
        sealer
            .open_text(context, sealed)
            .ok_or(UnsealError::Damaged)
    }

    /// Whether the key that seals has sealed this.
    #[must_use]
    pub fn is_current(&self, sealed: &str) -> bool {
        let of = sealed.split_once('.').map(|it| it.0);
        self.keys.first().is_some_and(|(id, _)| Some(&**id) == of)
    }
}

fn read_key(text: &str) -> Result<(String, Sealer), &'static str> {
    let bytes = Base64::decode_vec(text.trim()).map_err(|_| "it is not Base64")?;
    let key: [u8; SEALING_KEY_BYTES] = bytes.try_into().map_err(|_| "it does not have 32 bytes")?;
    let digest = sha256(&[&b"intertie sealing key\0"[..], &key].concat());
    let id = hex::encode(digest.get(..ID_BYTES).unwrap_or_default());
    let sealer = Sealer::new(&key).ok_or("the library refuses it")?;
    Ok((id, sealer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> String {
        Base64::encode_string(&[byte; 32])
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let (old, new) = (key(1), key(2));
        let before = SealingKeys::read(&[&old]).unwrap();
        let sealed = before.seal(b"of a", b"text").unwrap();
        assert!(before.is_current(&sealed));
        let both = SealingKeys::read(&[&new, &old]).unwrap();
        assert_eq!(both.open(b"of a", &sealed).unwrap(), b"text");
        assert!(!both.is_current(&sealed));
        let again = both.seal(b"of a", b"text").unwrap();
        assert!(both.is_current(&again));
        assert_eq!(before.open(b"of a", &again), Err(UnsealError::UnknownKey));
        assert_eq!(both.open(b"of b", &again), Err(UnsealError::Damaged));
        assert_eq!(both.open(b"of a", "nothing"), Err(UnsealError::Damaged));
        let after = SealingKeys::read(&[&new]).unwrap();
        assert_eq!(after.open(b"of a", &sealed), Err(UnsealError::UnknownKey));
    }

    #[test]
    fn keys_that_are_none_are_refused() {
        let short = Base64::encode_string(&[1; 31]);
        for (texts, why) in [
            (vec![], "there are 1 to 10 keys"),
            (vec!["?"], "it is not Base64"),
            (vec![&*short], "it does not have 32 bytes"),
        ] {
            assert_eq!(SealingKeys::read(&texts).unwrap_err(), why);
        }
        let text = format!(
            "{:?}",
            SealingKeys::read(&[&Base64::encode_string(&[7; 32])]).unwrap()
        );
        assert!(!text.contains(&key(7)), "{text}");
    }
}
