//! Who calls, and may they: credentials are checked here, without input or output.
//!
//! [`jwt`] verifies JSON Web Tokens against the keys of their issuer, [`jwt::KeySource`] decides when
//! those keys are fetched, and [`jwt::TokenCache`] remembers tokens that have been verified. Who
//! reads requests, fetches keys and writes replies is somebody else's matter; the time is an
//! argument everywhere.

pub mod jwt;
mod strict_json;
