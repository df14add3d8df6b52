//! Why a value is not what a schema wants, and where in it.

use std::fmt;

/// Why a value does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapError {
    /// The members that lead there, the innermost first.
    path: Vec<String>,
    /// What is wrong.
    what: String,
}

impl MapError {
    /// Something is wrong here.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            path: Vec::new(),
            what: what.into(),
        }
    }

    /// The same within a member, or one of its items.
    pub fn within(mut self, name: &str, item: Option<usize>) -> Self {
        self.path.push(match item {
            Some(item) => format!("{name}[{item}]"),
            None => name.to_owned(),
        });
        self
    }

    /// The members that lead there: `lines[2].qty`; empty for the value itself.
    pub fn path(&self) -> String {
        let parts: Vec<&str> = self.path.iter().rev().map(String::as_str).collect();
        parts.join(".")
    }

    /// What is wrong there.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.is_empty() {
            true => formatter.write_str(&self.what),
            false => write!(formatter, "`{}` {}", self.path(), self.what),
        }
    }
}

impl std::error::Error for MapError {}

/// A name for a message: short and without control characters.
pub fn shown(name: &str) -> String {
    let short: String = name.chars().take(60).collect();
    short.escape_debug().to_string()
}
