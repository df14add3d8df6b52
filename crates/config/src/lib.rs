//! YAML documents with positions, checked against schemas, with every problem told at once.
//!
//! The only home of YAML. It does no input or output: bytes come in ([`Sources`]), trees of
//! [`Node`]s with their places come out ([`parse`]), are checked against a JSON Schema
//! ([`check`]), become plain structs ([`decode`]), and what is wrong is collected in a [`Report`]
//! that shows file, line, column, the line itself and a hint.

mod check;
pub mod codes;
mod decode;
pub mod describe;
mod environment;
mod node;
mod parse;
mod render;
mod report;
mod scalar;
mod schema;
mod secrets;
mod source;
mod spanned;
mod suggest;
mod units;
mod within;

pub use check::{check, check_kind};
pub use codes::{Code, CodeInfo};
pub use decode::decode;
pub use environment::{EnvLookup, Hole, expand_env, expand_names};
pub use node::{Entry, Node, Number, Value};
pub use parse::parse;
pub use report::{Diagnostic, Report, Severity};
pub use schema::{AnyValue, schema_for};
pub use secrets::Secrets;
pub use source::{SourceId, Sources, Span};
pub use spanned::Spanned;
pub use suggest::suggest;
pub use units::{ByteSize, Duration, Percentage};
