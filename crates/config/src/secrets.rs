//! Secrets by name, whose values are never shown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Secrets by name. Cheap to clone; `{:?}` shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Arc<BTreeMap<String, String>>);

impl Secrets {
    /// These secrets. Whoever reads their values has registered them for redaction before.
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self(Arc::new(values))
    }

    /// The value of a secret.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether a text can be the name of a secret: letters, digits, `_`, `.` and `-`, at most 253
    /// of them, the first a letter or `_`.
    pub fn is_name(text: &str) -> bool {
        let is_first = |first: char| first.is_ascii_alphabetic() || first == '_';
        let is_other = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        text.len() <= 253 && text.starts_with(is_first) && text.bytes().all(is_other)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_names_only() {
        let secrets = Secrets::new([("A".to_owned(), "hidden".to_owned())].into());
        assert_eq!(format!("{secrets:?}"), "{\"A\"}");
        assert_eq!(secrets.get("A"), Some("hidden"));
        assert_eq!(secrets.get("B"), None);
    }

    #[test]
    fn names_are_plain() {
        for name in ["a", "_", "DB_URL", "tls.key", "a-b9"] {
            assert!(Secrets::is_name(name), "{name}");
        }
        for name in ["", ".a", "-a", "9a", "a b", "a/b", "ä", &"a".repeat(254)] {
            assert!(!Secrets::is_name(name), "{name}");
        }
    }
}
