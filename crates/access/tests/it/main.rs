//! Tests of the whole crate, by what its users see.

mod attacks;
mod cache;
mod issuer;
mod key_source;
mod keys;
mod signed_body;
mod wycheproof;
