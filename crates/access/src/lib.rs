//! Who calls, and may they: credentials are checked here, without input or output.
//!
//! [`jwt`] verifies JSON Web Tokens against the keys of their issuer, [`jwt::KeySource`] decides
//! when those keys are fetched, and [`jwt::TokenCache`] remembers tokens that have been verified.
//! [`api_keys`] knows callers by keys of our own, [`basic`] by passwords, [`signed_body`] by the
//! signature of what they send; [`introspection`] reads what the issuer of an opaque token says
//! about it. [`credentials`] finds what a request carries, and has the challenges for one that is
//! refused; [`guessing`] bounds the checks that fail. Who reads requests, fetches keys and writes
//! replies is somebody else's matter; the time is an argument everywhere.

pub mod api_keys;
pub mod basic;
pub mod credentials;
mod file_problem;
pub mod guessing;
mod hex;
pub mod introspection;
pub mod jwt;
mod keyed_hash;
mod sha256;
pub mod signed_body;
mod strict_json;

pub use file_problem::FileProblem;
pub use keyed_hash::KeyedHash;
