//! Why a document cannot be converted.

use std::fmt;

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

    pub fn unmappable(offset: usize, detail: &'static str) -> Self {
        Self::new(ConvertErrorKind::Unmappable, offset, detail)
    }
}
