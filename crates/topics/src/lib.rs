//! Topics: what is published to them, in which order, what is kept, and who gets it.

pub mod document;
pub mod event;
pub mod poll;

use component::document::DocumentDefinition;

/// Where documents and sources of this crate have expressions.
pub const EVALUATED: &[&str] = &["from.poll", "publish.poll"];

/// The kinds of documents of this crate.
pub const DOCUMENTS: &[DocumentDefinition] = &[];
