//! Polling: another system is asked again and again, and each document that differs from the last
//! one goes to a topic or starts a flow.
//!
//! `config` is what is written, `plan` makes a poller of it; `fetch` is one poll with its `pages`,
//! `run` says when, `memory` is what is known of the last one, `sink` who takes the documents:
//! a topic here, a flow in `source`.

pub mod codes;
mod config;
mod fetch;
mod link;
mod memory;
mod pages;
mod plan;
mod pointer;
mod run;
mod sink;
mod source;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod topic;

pub use source::DEFINITION as SOURCE;
pub(crate) use topic::{NoFlow, TABLE as MEMORY, read, schema};
