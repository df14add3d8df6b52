//! Keys that seal what is kept for long, and how one takes the place of another: the first key
//! seals, all of them open.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Serialize};

use crate::hex;
use crate::sealer::{SEALED_OVERHEAD, SEALING_KEY_BYTES, Sealer};
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

/// What a key has sealed: the key's identifier, then what [`Sealer::seal`] gives. As a text it is
/// the identifier in hexadecimal, a dot, and the rest in base64url.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sealed(Box<[u8]>);

impl Sealed {
    /// The bytes that are sealed beside those of the text.
    const OVERHEAD: usize = ID_BYTES + SEALED_OVERHEAD;

    /// How many bytes the text has.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.0.len().saturating_sub(Self::OVERHEAD)
    }

    fn new(id: &[u8; ID_BYTES], sealed: &[u8]) -> Self {
        Self([&id[..], sealed].concat().into())
    }

    fn parts(&self) -> Option<(&[u8; ID_BYTES], &[u8])> {
        self.0.split_first_chunk()
    }
}

impl fmt::Display for Sealed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((id, sealed)) = self.parts() else {
            return Ok(());
        };
        let sealed = Base64UrlUnpadded::encode_string(sealed);
        write!(formatter, "{}.{sealed}", hex::encode(id))
    }
}

impl From<Sealed> for String {
    fn from(sealed: Sealed) -> Self {
        sealed.to_string()
    }
}

impl FromStr for Sealed {
    type Err = UnsealError;

    fn from_str(text: &str) -> Result<Self, UnsealError> {
        let (id, sealed) = text.split_once('.').ok_or(UnsealError::Damaged)?;
        let id: [u8; ID_BYTES] = hex::decode(id).ok_or(UnsealError::Damaged)?;
        let sealed = Base64UrlUnpadded::decode_vec(sealed).map_err(|_| UnsealError::Damaged)?;
        Ok(Self::new(&id, &sealed))
    }
}

impl TryFrom<String> for Sealed {
    type Error = UnsealError;

    fn try_from(text: String) -> Result<Self, UnsealError> {
        text.parse()
    }
}

/// Seals texts with the first of several keys and opens those of all of them (AES-256-GCM, see
/// [`Sealer`]).
#[derive(Debug)]
pub struct SealingKeys {
    /// Each with its identifier.
    keys: Vec<([u8; ID_BYTES], Sealer)>,
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
    pub fn seal(&self, context: &[u8], text: &[u8]) -> Option<Sealed> {
        let (id, sealer) = self.keys.first()?;
        let sealed = sealer.seal(context, text)?;
        Some(Sealed::new(id, &sealed))
    }

    /// The text.
    ///
    /// # Errors
    /// When no key here has sealed it for this context.
    pub fn open(&self, context: &[u8], sealed: &Sealed) -> Result<Vec<u8>, UnsealError> {
        let (of, sealed) = sealed.parts().ok_or(UnsealError::Damaged)?;
        let known = self.keys.iter().find(|(id, _)| id == of);
        let (_, sealer) = known.ok_or(UnsealError::UnknownKey)?;
        sealer.open(context, sealed).ok_or(UnsealError::Damaged)
    }

    /// Whether the key that seals has sealed this.
    #[must_use]
    pub fn is_current(&self, sealed: &Sealed) -> bool {
        let of = sealed.parts().map(|it| it.0);
        self.keys.first().is_some_and(|(id, _)| Some(id) == of)
    }
}

fn read_key(text: &str) -> Result<([u8; ID_BYTES], Sealer), &'static str> {
    let bytes = Base64::decode_vec(text.trim()).map_err(|_| "it is not Base64")?;
    let key: [u8; SEALING_KEY_BYTES] = bytes.try_into().map_err(|_| "it does not have 32 bytes")?;
    let digest = sha256(&[&b"intertie sealing key\0"[..], &key].concat());
    let (id, _) = digest.split_first_chunk().ok_or("it has no digest")?;
    let sealer = Sealer::new(&key).ok_or("the library refuses it")?;
    Ok((*id, sealer))
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
        let text = sealed.to_string();
        assert_eq!(text.parse().as_ref(), Ok(&sealed));
        assert_eq!(sealed.text_len(), 4);
        for damaged in ["nothing", "0102.AAAA", &text[1..], &format!("{text}=")] {
            let parsed = damaged.parse::<Sealed>();
            assert_eq!(parsed, Err(UnsealError::Damaged), "{damaged}");
        }
        let cut: Sealed = text[..13].parse().unwrap();
        assert_eq!(both.open(b"of a", &cut), Err(UnsealError::Damaged));
        assert_eq!(cut.text_len(), 0);
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
