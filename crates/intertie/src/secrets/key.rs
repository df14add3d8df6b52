//! The key of the encrypted file.

use std::path::{Path, PathBuf};

use message::secret;

use super::{Environment, FILE_MAX, Problem, without_newline};
use crate::regular_file;

/// The variable that holds the key.
pub(super) const KEY: &str = "INTERTIE_SECRETS_KEY";
/// The variable that names a file with the key.
pub(super) const KEY_FILE: &str = "INTERTIE_SECRETS_KEY_FILE";
/// The fewest bytes of a key that something is encrypted with.
const LENGTH_MIN: usize = 16;

/// The key, or a passphrase, of the encrypted file.
pub(crate) struct Key {
    text: String,
    path: Option<PathBuf>,
}

impl Key {
    /// Takes the key from where the environment says, and registers it for redaction.
    pub fn find(environment: Environment<'_>) -> Result<Self, Problem> {
        let (text, path) = match (environment(KEY), environment(KEY_FILE)) {
            (Some(_), Some(_)) => {
                let message = format!("both {KEY} and {KEY_FILE} are set");
                return Err(Problem::new(message, "unset one of them"));
            }
            (Some(text), None) => (text, None),
            (None, Some(name)) => {
                let path = PathBuf::from(name);
                let bytes = regular_file::read(&path, FILE_MAX);
                let text = bytes.map(String::from_utf8);
                let cannot = |reason: String| {
                    let message =
                        format!("the file that {KEY_FILE} names cannot be read: {reason}");
                    Problem::new(message, "check its name, its rights and its content")
                };
                let text = text
                    .map_err(|error| cannot(error.to_string()))?
                    .map_err(|_| cannot("it is not UTF-8".to_owned()))?;
                (without_newline(&text).to_owned(), Some(path))
            }
            (None, None) => {
                let message = format!("its key is missing: set {KEY} or {KEY_FILE}");
                let hint = "`openssl rand -base64 32` makes a key";
                return Err(Problem::new(message, hint));
            }
        };
        secret::register(&text);
        if text.is_empty() {
            return Err(Problem::new("its key is empty", "give it its key"));
        }
        Ok(Self { text, path })
    }

    /// Refuses a key that is too short to encrypt with.
    pub fn check(&self) -> Result<(), Problem> {
        if self.text.len() < LENGTH_MIN {
            let message = format!("the key has fewer than {LENGTH_MIN} characters");
            let hint = "`openssl rand -base64 32` makes a key";
            return Err(Problem::new(message, hint));
        }
        Ok(())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// The file that it was read from.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    #[cfg(test)]
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            path: None,
        }
    }
}
