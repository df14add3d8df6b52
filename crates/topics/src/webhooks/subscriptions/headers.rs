//! Header lines of a subscription: their names in clear, their values sealed, since they may be
//! credentials.

use access::sealing_keys::{Sealed, SealingKeys, UnsealError};
use serde::{Deserialize, Serialize};

/// A header line that all requests to a subscription have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::webhooks) struct HeaderLine {
    pub name: Box<str>,
    /// The value, sealed by [`SealingKeys`] for this topic, subscription and name.
    sealed: Sealed,
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
            sealed,
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

    /// How many bytes the value has.
    pub fn value_len(&self) -> usize {
        self.sealed.text_len()
    }

    /// Whether the first of these keys has sealed it.
    pub fn is_current(&self, keys: &SealingKeys) -> bool {
        keys.is_current(&self.sealed)
    }
}
