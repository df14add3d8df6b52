//! Topics: what is published to them, in which order, what is kept, and who gets it.
//!
//! [`topic::Topic`] is what the rest has: `prepare` checks what is published on the worker,
//! `sequencer` is the thread that orders it and has a `store` keep it, `log` is what everybody sees
//! then, and [`mailbox`] how a worker gets it. [`document`] compares snapshots. [`declare`] reads
//! `topic:` documents, [`hub`] opens what they declare, `publisher` takes events by HTTP.

mod bounds;
pub mod changes;
pub mod codes;
pub mod declare;
pub mod document;
pub mod event;
pub mod hub;
mod keys;
mod log;
pub mod mailbox;
pub mod poll;
mod prepare;
pub mod publish;
mod publisher;
mod sequencer;
pub mod settings;
pub mod source;
mod store;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod topic;

use component::definition::StepDefinition;
use component::document::DocumentDefinition;
use component::source::SourceDefinition;

/// Where documents and sources of this crate have expressions.
pub const EVALUATED: &[&str] = &["from.poll", "publish.poll"];

/// The kinds of documents of this crate.
pub const DOCUMENTS: &[DocumentDefinition] = &[declare::DEFINITION];

/// The steps of this crate.
pub const STEPS: &[StepDefinition] = &[publish::DEFINITION, changes::DEFINITION];

/// The sources of this crate.
pub const SOURCES: &[SourceDefinition] = &[source::DEFINITION, poll::SOURCE];
