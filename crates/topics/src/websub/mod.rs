//! `from: websub`: a flow subscribes to a topic of another hub, and each delivery starts it.
//!
//! `config` is what is written, `plan` makes the source of it. `run` asks for the subscription and
//! renews it, by what `client` finds out and sends; `callback` is what the hub calls. `memory` is
//! what both know, and `record` what of it is on the disk. What the recommendation says is in the
//! crate `websub`.

mod callback;
mod client;
pub mod codes;
mod config;
mod memory;
mod plan;
mod record;
mod run;
#[cfg(test)]
mod tests;

pub use plan::DEFINITION as SOURCE;
