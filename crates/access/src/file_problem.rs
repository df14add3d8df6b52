//! What is wrong with a file of credentials.

use std::fmt;

/// What is wrong with a file, and in which line, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// The line.
    pub line: usize,
    /// A sentence without a full stop, and without what is secret in the line.
    pub message: String,
}

impl fmt::Display for FileProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.message)
    }
}
