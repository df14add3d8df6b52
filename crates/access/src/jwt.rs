//! JSON Web Tokens: [`verify`] takes a token apart, finds the key of its issuer, checks the
//! signature, and then what the token claims (RFC 7519, RFC 7515, RFC 8725). A [`Signer`] makes
//! tokens of our own; a [`PublishedKey`] is one whose public key others fetch, and a [`KeyRing`]
//! has such keys that are rotated.

mod algorithm;
mod cache;
mod claims;
mod compact;
mod dpop;
mod key;
mod key_ring;
mod key_set;
mod key_source;
mod published_key;
mod roca;
mod seen;
mod signer;
mod verifier;

pub use algorithm::Algorithm;
pub use claims::{Audience, Claims, Holder, Presented, Rules, Signed, Verified, scopes};
pub(crate) use claims::{has_one_of, holder, is_one_of, seconds};
pub use compact::{Compact, TOKEN_MAX, claimed_issuer};
pub use dpop::{BadProof, Proof, Target, verify_proof};
pub use key::{Key, KeyProblem};
pub use key_ring::{KeyRing, ROTATION_SECONDS};
pub use key_set::{Ignored, KEY_SET_MAX, KEYS_MAX, KeySet, KeySetError};
pub use key_source::{Fetch, KeySource, Lookup, Snapshot, Times, Waiter};
pub use published_key::{PublishedKey, key_set_text};
pub use seen::{SeenTokens, TokenHash};
pub use signer::{Signer, SignerProblem, unique_id};
pub use verifier::{CachedToken, Verifier};

/// Why a token is refused. The caller is told only that it is invalid; this is for the log and for
/// counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// It is no token in compact form, or above [`TOKEN_MAX`].
    Malformed,
    /// Its header demands an extension that is not known (RFC 7515, section 4.1.11).
    Critical,
    /// No key may be used with its algorithm.
    Algorithm,
    /// The issuer has no such key.
    UnknownKey,
    /// The signature is not the key's.
    Signature,
    /// It is another kind of token (RFC 8725, section 3.11).
    Type,
    /// It has no `exp`, or that is no time.
    NoExpiry,
    /// It has expired.
    Expired,
    /// It is not valid yet: `nbf`, or `iat`, is in the future.
    NotYet,
    /// Somebody else has issued it.
    Issuer,
    /// It is meant for somebody else.
    Audience,
    /// It belongs to the holder of a key or certificate, which the caller has not shown (RFC 7800).
    Confirmation,
}

impl Refused {
    /// A word for the log and for labels of metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Critical => "critical",
            Self::Algorithm => "algorithm",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "signature",
            Self::Type => "type",
            Self::NoExpiry => "no_expiry",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::Confirmation => "confirmation",
        }
    }
}

/// Verifies a token in compact form. `now` is in seconds since 1970.
///
/// # Errors
/// The first reason to refuse it. [`Refused::UnknownKey`] is worth asking the issuer for newer keys
/// ([`KeySource::unknown_key`]); everything else is final.
pub fn verify(token: &[u8], keys: &KeySet, rules: &Rules, now: u64) -> Result<Verified, Refused> {
    verify_with(token, (keys, rules), now, Verified::new)
}

/// The same for whoever makes something else of the token.
///
/// # Errors
/// As [`verify`].
fn verify_with<T>(
    token: &[u8],
    (keys, rules): (&KeySet, &Rules),
    now: u64,
    make: impl FnOnce(&Signed<'_>) -> T,
) -> Result<T, Refused> {
    let compact = Compact::parse(token)?;
    // The signature last, for it costs most; until then nothing is said but no.
    let claimed = rules.check(&compact, now)?;
    let key = keys.verify(&compact)?;
    Ok(make(&Signed {
        claims: &claimed.claims,
        payload: &compact.payload,
        holder: claimed.holder,
        expires: claimed.expires,
        key,
    }))
}
