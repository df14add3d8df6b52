//! Who calls, and may they: credentials are checked and made here, without input or output.
//!
//! [`jwt`] verifies JSON Web Tokens against the keys of their issuer, [`jwt::KeySource`] decides
//! when those keys are fetched, and [`jwt::TokenCache`] remembers tokens that have been verified.
//! [`api_keys`] knows callers by keys of our own, [`basic`] by passwords, [`certificate`] by
//! certificates, [`signed_body`] by the signature of what they send. [`introspection`] reads what
//! the issuer of an opaque token says about it, [`oidc`] logs browsers in. [`credentials`] finds
//! what a request carries, and has the challenges for one that is refused; [`guessing`] bounds the
//! checks that fail, [`deny`] lists what is refused although it is good. [`tickets`] stand for a
//! credential where a browser can send none, [`sealer`] encrypts what browsers and the data folder
//! keep. Credentials for other systems are made here too: [`jwt::Signer`] signs tokens,
//! [`sigv4`] requests to Amazon Web Services, and [`webhook_signer`] those to webhooks, several at
//! once with a [`hmac_queue`]. Callers read requests, fetch keys and write replies; the time is an
//! argument everywhere.

pub mod api_keys;
pub mod basic;
pub mod certificate;
pub mod credentials;
pub mod deny;
mod file_problem;
pub mod guessing;
mod hex;
pub mod hmac_queue;
pub mod introspection;
pub mod jwt;
mod keyed_hash;
pub mod oidc;
mod percent;
mod random;
pub mod sealer;
pub mod sealing_keys;
mod sha256;
pub mod signed_body;
pub mod sigv4;
mod strict_json;
pub mod tickets;
pub mod webhook_signer;

pub use file_problem::FileProblem;
pub use keyed_hash::KeyedHash;
