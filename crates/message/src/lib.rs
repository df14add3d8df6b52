//! What travels through Intertie: header fields, bodies, requests, replies and faults.
//!
//! This crate does no input or output and knows no protocol library. `net` reads these types off a
//! socket, `proxy` relays them, steps change them.

mod body;
mod certificate;
mod fault;
mod field;
mod headers;
pub mod memory;
mod method;
mod reply;
mod request;
pub mod secret;

pub use body::Body;
pub use certificate::{CertificateSource, ClientCertificate};
pub use fault::{Fault, Kind, Of, Origin, RateLimit, Retry};
pub use field::Field;
pub use headers::{Entry, FieldLine, Headers, HeadersView};
pub use method::Method;
pub use reply::{Reply, reason_phrase};
pub use request::Request;
