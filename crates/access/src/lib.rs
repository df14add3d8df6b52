//! Who calls, and may they: credentials are checked here, without input or output.
//!
//! [`jwt`] verifies JSON Web Tokens against the keys of their issuer, [`jwt::KeySource`] decides
//! when those keys are fetched, and [`jwt::TokenCache`] remembers tokens that have been verified.
//! [`api_keys`] knows callers by keys of our own, [`signed_body`] by the signature of what they
//! send. [`introspection`] reads what the issuer of an opaque token says about it. Who reads requests, fetches keys and writes replies is somebody else's matter; the time is
//! an argument everywhere.

pub mod api_keys;
mod hex;
pub mod introspection;
pub mod jwt;
mod keyed_hash;
mod sha256;
pub mod signed_body;
mod strict_json;

pub use keyed_hash::KeyedHash;
