//! JSON text to values and back.

mod escape;
mod parse;
mod project;
mod write;

pub use escape::decode_escape;
pub use parse::{JsonError, parse};
pub(crate) use project::{Key, Projection, Shape};
pub use write::{NotJson, write};

/// The most levels that values may be nested when they are read or written: every recursion over
/// a value is made for it.
pub(crate) const DEPTH_LIMIT: usize = 512;
