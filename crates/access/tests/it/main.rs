//! Tests of the whole crate, by what its users see.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks;
mod basic;
mod cache;
mod certificate;
mod credentials;
mod deny;
mod dpop;
mod guessing;
mod issuer;
mod key_source;
mod keys;
mod logouts;
mod oidc;
mod signed_body;
mod signer;
mod sigv4;
mod tickets;
mod wycheproof;
