//! The built-in steps, one file each.
//!
//! A step is its [`StepDefinition`]: a name, prose, an example, a schema, and a function that
//! checks what stands under its verb. Adding a step is one file and one line in [`ALL`]; loader,
//! schema, reference pages and `intertie list` read that table.

pub mod codes;
mod convert;
mod fields;
mod forward;
mod http;
mod json;
mod log;
mod reply;
mod target;
#[cfg(test)]
mod testing;
mod tls;

use component::definition::{ConnectionDefinition, StepDefinition};

/// Every step, in the order of the reference pages.
pub const ALL: &[StepDefinition] = &[
    forward::DEFINITION,
    convert::DEFINITION,
    reply::DEFINITION,
    log::DEFINITION,
];

/// Every kind of connection that steps of this crate use.
pub const CONNECTIONS: &[ConnectionDefinition] = &[http::DEFINITION];
