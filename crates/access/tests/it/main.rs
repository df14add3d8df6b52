//! Tests of the whole crate, by what its users see.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks;
mod basic;
mod cache;
mod credentials;
mod guessing;
mod issuer;
mod key_source;
mod keys;
mod random;
mod signed_body;
mod wycheproof;
