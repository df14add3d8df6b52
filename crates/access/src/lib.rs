//! Who calls, and may they: credentials are checked and made here, without input or output.
//!
//! [`jwt`] verifies JSON Web Tokens against the keys of their issuer, [`jwt::KeySource`] decides
//! when those keys are fetched, and [`jwt::TokenCache`] remembers tokens that have been verified.
//! [`api_keys`] knows callers by keys of our own, [`signed_body`] by the signature of what they
//! send. What we show to other systems is made here too: [`jwt::Signer`] signs tokens, and
//! [`sigv4`] requests to Amazon Web Services. Who reads requests, fetches keys and writes replies
//! is somebody else's matter; the time is an argument everywhere.

pub mod api_keys;
mod hex;
pub mod jwt;
mod sha256;
pub mod signed_body;
pub mod sigv4;
mod strict_json;
