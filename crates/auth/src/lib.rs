//! Who may do what: the ways to know a caller that `engine.auth` describes, and the doors that
//! `auth:` puts in front of flows and topics.
//!
//! [`config`] reads both. A [`way`] takes one kind of credential: [`jwt`] with the keys of an
//! issuer ([`issuer_keys`]), [`api_key`] with those of a file ([`key_file`]), [`hmac`] with signed
//! bodies; [`oidc`] logs browsers in; [`introspect`] and [`ask`] have another system decide and
//! keep its [`answers`]. A [`door`] finds the credential of a request ([`credential`]), has its way
//! check it, and decides; [`refusal`] is what whoever is not let in is told. What is right and
//! wrong about a credential is the business of the crate `access`.

mod answers;
mod api_key;
mod ask;
mod basic;
mod claims;
pub mod codes;
mod config;
mod credential;
mod door;
mod failed_checks;
mod hmac;
mod introspect;
mod issuer_keys;
mod jwt;
mod key_file;
mod oidc;
mod refusal;
mod source;
#[cfg(test)]
mod testing;
mod timing;
mod way;
mod ways;

use component::access::AccessDefinition;

/// How ways and doors are read.
pub const DEFINITION: AccessDefinition = AccessDefinition {
    documentation: include_str!("auth.md"),
    example: include_str!("auth.yaml"),
    ways: config::ways_schema,
    auth: config::auth_schema,
    build: ways::build,
};
