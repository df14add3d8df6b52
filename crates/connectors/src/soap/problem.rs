//! What is wrong with a WSDL file or a schema that it uses, and where.

use std::sync::Arc;

/// A place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, relative to the flow file.
    pub file: Arc<str>,
    /// From 1.
    pub line: usize,
}

/// What is wrong at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where; a file that cannot be read has the line 0.
    pub place: Place,
    /// What.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Problem {
    /// One without a hint.
    pub fn new(place: &Place, message: impl Into<String>) -> Self {
        Self {
            place: place.clone(),
            message: message.into(),
            hint: None,
        }
    }

    /// The same with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// File, line and message.
    pub fn text(&self) -> String {
        let Place { file, line } = &self.place;
        match line {
            0 => format!("{file}: {}", self.message),
            _ => format!("{file}, line {line}: {}", self.message),
        }
    }
}
