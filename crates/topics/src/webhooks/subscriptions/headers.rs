//! Header lines of a subscription: their names in clear, their values sealed, since they may be
//! credentials.

use access::sealing_keys::{SealingKeys, UnsealError};
use serde::{Deserialize, Serialize};

/// The bytes that a sealed value has beside itself: a nonce of 12, a tag of 16, and about 7 of what
/// names the key.
const OVERHEAD: usize = 35;

/// A header line that all requests to a subscription have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::webhooks) struct HeaderLine {
    pub name: Box<str>,
    /// The value, sealed by [`SealingKeys`] for this topic, subscription and name.
    sealed: Box<str>,
}

/// What a value is sealed for: that of one line cannot stand for that of another.
fn context((topic, id): (&str, &str), name: &str) -> Vec<u8> {
    format!("webhook header\0{topic}\0{id}\0{name}").into_bytes()
}

impl HeaderLine {
    /// Seals a line for the subscription of this topic and id. None when the system has no random
    /// bytes.
    pub fn seal(of: (&str, &str), (name, value): (&str, &str), keys: &SealingKeys) -> Option<Self> {
        let sealed = keys.seal(&context(of, name), value.as_bytes())?;
        Some(Self {
            name: name.into(),
            sealed: sealed.into(),
        })
    }

    /// The value.
    ///
    /// # Errors
    /// When it cannot be opened with these keys.
    pub fn open(&self, of: (&str, &str), keys: &SealingKeys) -> Result<String, UnsealError> {
        let value = keys.open(&context(of, &self.name), &self.sealed)?;
        // It was a text when it was sealed.
        Ok(String::from_utf8_lossy(&value).into_owned())
    }

    /// About how many bytes the value has.
    pub fn value_len(&self) -> usize {
        // Base64 of the value, its nonce and its tag, behind the identifier of the key.
        (self.sealed.len() * 3 / 4).saturating_sub(OVERHEAD)
    }

    /// Whether the first of these keys has sealed it.
    pub fn is_current(&self, keys: &SealingKeys) -> bool {
        keys.is_current(&self.sealed)
    }
}
