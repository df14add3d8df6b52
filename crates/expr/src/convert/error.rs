//! Why a document cannot be converted.

use std::fmt;

use crate::stop::STOPPED;

/// What kind of reason it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ConvertErrorKind {
    /// The input is not JSON (RFC 8259), or not well-formed XML 1.0.
    Syntax,
    /// The input says something that the other format cannot.
    Unmappable,
    /// More levels within each other than allowed.
    TooDeep,
    /// More output than allowed.
    TooLarge,
    /// The input has a document type declaration or refers to an entity.
    Forbidden,
    /// Nobody waits for the result any more: see [`crate::jq::stoppable`].
    Stopped,
}

/// Why a document cannot be converted, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertError {
    /// What kind of reason it is.
    pub kind: ConvertErrorKind,
    /// Where in the input, in bytes.
    pub offset: usize,
    /// The same place as a path: `$.lot.cars[1]` in JSON, `/lot/cars` in XML.
    pub path: String,
    /// The reason.
    pub detail: &'static str,
}

impl fmt::Display for ConvertError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} at {} (byte {})",
            self.detail, self.path, self.offset
        )
    }
}

impl std::error::Error for ConvertError {}

/// A reason before its path is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reason {
    pub kind: ConvertErrorKind,
    pub offset: usize,
    pub detail: &'static str,
}

impl Reason {
    /// The reason with its path, for which the input is read again up to there.
    pub fn located(self, path: impl FnOnce(usize) -> String) -> ConvertError {
        let Self {
            kind,
            offset,
            detail,
        } = self;
        ConvertError {
            kind,
            offset,
            path: match kind {
                ConvertErrorKind::Stopped => String::new(),
                _ => path(offset),
            },
            detail,
        }
    }

    pub fn new(kind: ConvertErrorKind, offset: usize, detail: &'static str) -> Self {
        Self {
            kind,
            offset,
            detail,
        }
    }

    pub fn syntax(offset: usize, detail: &'static str) -> Self {
        Self::new(ConvertErrorKind::Syntax, offset, detail)
    }

    pub fn stopped(offset: usize) -> Self {
        Self::new(ConvertErrorKind::Stopped, offset, STOPPED)
    }

    pub fn unmappable(offset: usize, detail: &'static str) -> Self {
        Self::new(ConvertErrorKind::Unmappable, offset, detail)
    }
}
