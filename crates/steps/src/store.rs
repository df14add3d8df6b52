//! `store`: messages on the disk until they are delivered, as a step that puts them there and a
//! source that takes them.
//!
//! Both touch nothing outside the process but the disk, through crate `journal`, so that they stand
//! here and not among the connectors. Loading flows opens nothing: whoever runs them opens the
//! [`Depot`].

mod depot;
mod envelope;
mod name;
mod run;
mod source;
mod step;
#[cfg(test)]
mod tests;
mod writer;

pub use depot::Depot;
pub use envelope::describe;
pub use writer::{StoreWriter, dead_letters};

pub(crate) use source::DEFINITION as SOURCE;
pub(crate) use step::DEFINITION as STEP;
