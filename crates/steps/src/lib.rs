//! The built-in steps, one file each.
//!
//! A step is its [`StepDefinition`]: a name, prose, an example, a schema, and a function that
//! checks what stands under its verb. Adding a step is one file and one line in [`ALL`]; loader,
//! schema, reference pages and `intertie list` read that table.

mod any;
mod attempt;
mod branch;
mod call;
mod choose;
pub mod codes;
mod convert;
mod fields;
mod file;
mod forward;
mod http;
mod http_call;
mod log;
mod map;
mod raise;
mod reply;
mod schedule;
mod set;
mod status;
mod target;
#[cfg(test)]
mod testing;
mod tls;
mod under_way;
mod url_template;
mod way;

use component::definition::{ConnectionDefinition, StepDefinition};
use component::source::SourceDefinition;

/// Every step, in the order of the reference pages.
pub const ALL: &[StepDefinition] = &[
    forward::DEFINITION,
    http_call::DEFINITION,
    map::DEFINITION,
    set::DEFINITION,
    convert::DEFINITION,
    choose::DEFINITION,
    branch::DEFINITION,
    attempt::DEFINITION,
    call::DEFINITION,
    reply::DEFINITION,
    raise::DEFINITION,
    log::DEFINITION,
];

/// Every kind of connection that steps of this crate use.
pub const CONNECTIONS: &[ConnectionDefinition] = &[http::DEFINITION];

/// What starts flows beside requests and other flows.
pub const SOURCES: &[SourceDefinition] = &[schedule::DEFINITION, file::DEFINITION];
