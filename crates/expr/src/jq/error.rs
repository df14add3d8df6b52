//! What is wrong with an expression, and what went wrong in one.

use std::fmt;
use std::ops::Range;

/// A mistake in the text of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// What is wrong.
    pub message: String,
    /// What may have been meant.
    pub hint: Option<String>,
    /// Where, in bytes of the text.
    pub at: Range<usize>,
}

impl fmt::Display for CompileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(formatter, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CompileError {}

/// What kind of failure an evaluation met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvalErrorKind {
    /// A value is not of the kind that an operation needs.
    Type,
    /// A result within a text is no text, number or boolean.
    NoText,
    /// The expression called `error`.
    Raised,
    /// A limit of [`super::Limits`] was passed.
    Budget,
    /// It exceeds its time slice; see [`super::Limits::at_once`].
    Unfinished,
    /// The result is not JSON.
    NotJson,
    /// No result, or more than one.
    Count,
}

/// Why an expression has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError {
    /// What kind of failure it is.
    pub kind: EvalErrorKind,
    /// The reason; values in it are cut to 200 characters.
    pub message: String,
    /// The part of the expression that failed, where that is known.
    pub part: Option<String>,
}

impl EvalError {
    pub(crate) fn new(kind: EvalErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            part: None,
        }
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            Some(part) => write!(formatter, "{part}: {}", self.message),
            None => formatter.write_str(&self.message),
        }
    }
}

impl std::error::Error for EvalError {}

/// A member as part of a path: `.name` or `["odd name"]`.
pub(crate) fn path_part(name: &[u8]) -> String {
    let name: String = String::from_utf8_lossy(name).chars().take(100).collect();
    let is_plain = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
        && name
            .chars()
            .all(|it| it.is_ascii_alphanumeric() || it == '_');
    match is_plain {
        true => format!(".{name}"),
        false => format!("[\"{}\"]", name.escape_debug()),
    }
}
