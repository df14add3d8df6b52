//! Who may do what: the ways to know a caller that `engine.auth` describes, and the doors that
//! `auth:` puts in front of flows and topics.
//!
//! [`config`] reads both. A [`way`] takes one kind of credential: [`jwt`] with the keys of an
//! issuer ([`issuer_keys`]), [`api_key`] with those of a file ([`key_file`]), [`mtls`] with the
//! certificates of clients, [`hmac`] with signed bodies; [`oidc`] logs browsers in; [`introspect`]
//! and [`ask`] have another system decide and keep its [`answers`]. [`possession`] asks whether a
//! token is its sender's. A [`door`] finds the credential of a request ([`credential`]), has its
//! way check it, and decides; [`refusal`] has the replies to refused requests. [`deny`] reads the
//! deny list, which [`revocation`] has with the credentials that have opened streams: these end
//! when one is revoked, and [`recheck`] asks about opaque tokens again. [`tickets`] are for
//! browsers that can send no credential. [`identity`] tells systems behind flows who a caller is,
//! with the keys of [`identity_keys`]. What is right and wrong about a credential is the business
//! of the crate `access`.

mod answers;
mod api_key;
mod ask;
mod basic;
mod claims;
mod clear_text;
pub mod codes;
mod config;
mod credential;
mod deny;
mod door;
mod failed_checks;
mod hmac;
mod identity;
mod identity_keys;
mod in_force;
mod introspect;
mod issuer_keys;
mod jwt;
mod key_file;
mod mtls;
mod oidc;
mod page_path;
mod possession;
mod recheck;
mod refusal;
mod revocation;
mod shown_certificate;
mod source;
#[cfg(test)]
mod testing;
mod tickets;
mod timing;
mod token_keys;
mod way;
mod ways;

use component::access::AccessDefinition;

pub use identity_keys::IdentityKeys;
pub use revocation::{
    CLOCK_SKEW_MAX, DENIED_MAX, DENIED_TABLE, Revocations, denied_key, denied_row,
};
pub use tickets::{TicketOffice, new_ticket_key};

/// How ways and doors are read.
pub const DEFINITION: AccessDefinition = AccessDefinition {
    documentation: include_str!("auth.md"),
    example: include_str!("auth.yaml"),
    ways: config::ways_schema,
    deny: deny::schema,
    identity: identity::schema,
    auth: config::auth_schema,
    build: ways::build,
};
