//! The built-in steps, one file each.
//!
//! A step is its [`StepDefinition`]: a name, prose, an example, a schema, and a function that
//! checks what stands under its verb. Adding a step is one file and one line in [`ALL`]; loader,
//! schema, reference pages and `intertie list` read that table.

mod aggregate;
mod attempt;
mod aws_sigv4;
mod background;
mod branch;
mod branches;
mod cache;
mod call;
mod call_target;
mod choose;
pub mod codes;
mod concurrent;
mod convert;
mod dead_letter;
mod decode;
mod delay;
mod delete_file;
mod each;
mod encode;
mod fields;
mod file;
mod first;
mod fixed_url;
mod folder;
mod forward;
mod http;
mod http_call;
mod idempotent;
mod inner;
mod kept;
pub mod key;
mod keyed_state;
mod list_files;
mod log;
mod map;
mod oauth2;
mod parallel;
mod raise;
pub mod range;
mod read_file;
mod repeat;
mod reply;
mod schedule;
mod set;
mod status;
pub mod store;
mod target;
mod template;
#[cfg(test)]
mod testing;
mod tls;
mod under_way;
mod url_template;
mod validate;
mod way;
mod wiretap;
mod write_file;

pub use call_target::{CallTarget, CallTargetConfig, read_headers};
pub use fields::FieldTexts;
pub use fixed_url::FixedUrl;
pub use http_call::{Asker, CallOptions};
pub use keyed_state::{KeyedState, KeyedStateHandle};
pub use oauth2::{Assertion, PrivateKeyConfig, basic_authorization};
pub use status::status_fault;
pub use tls::{TlsConfig, read_origins};
pub use url_template::push_encoded;
pub use way::EgressConfig;

use component::definition::{ConnectionDefinition, StepDefinition};
use component::source::SourceDefinition;

/// Every step, in the order of the reference pages.
pub const ALL: &[StepDefinition] = &[
    forward::DEFINITION,
    http_call::DEFINITION,
    map::DEFINITION,
    set::DEFINITION,
    convert::DEFINITION,
    encode::DEFINITION,
    decode::DEFINITION,
    template::DEFINITION,
    validate::DEFINITION,
    choose::DEFINITION,
    branch::DEFINITION,
    attempt::DEFINITION,
    each::DEFINITION,
    repeat::DEFINITION,
    parallel::DEFINITION,
    first::DEFINITION,
    delay::DEFINITION,
    wiretap::DEFINITION,
    aggregate::DEFINITION,
    cache::DEFINITION,
    idempotent::DEFINITION,
    call::DEFINITION,
    reply::DEFINITION,
    raise::DEFINITION,
    read_file::DEFINITION,
    write_file::DEFINITION,
    list_files::DEFINITION,
    delete_file::DEFINITION,
    dead_letter::DEFINITION,
    store::STEP,
    log::DEFINITION,
];

/// Every kind of connection that steps of this crate use.
pub const CONNECTIONS: &[ConnectionDefinition] = &[http::DEFINITION];

/// What starts flows beside requests and other flows.
pub const SOURCES: &[SourceDefinition] = &[schedule::DEFINITION, file::DEFINITION, store::SOURCE];
