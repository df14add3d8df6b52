//! Tokens in compact form (RFC 7515, section 3.1).

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::claims::plain_type;
use super::{Algorithm, Refused};
use crate::strict_json::{self, Json, Members};

/// The most bytes of a token. Heads of requests have bounds of their own.
pub const TOKEN_MAX: usize = 16 * 1024;

/// A token taken apart. Nothing of it is verified.
#[derive(Debug)]
pub struct Compact<'a> {
    /// What the signature covers.
    pub(super) signed: &'a [u8],
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    /// `typ`, without `application/`, in lower case.
    pub(super) kind: Option<String>,
    pub(super) payload: Vec<u8>,
    pub(super) signature: Vec<u8>,
}

impl<'a> Compact<'a> {
    /// Takes a token apart. Each part is base64url without padding, line breaks or bits that no
    /// byte has, so that bytes have one spelling. (A token may still have several: of a signature
    /// by ECDSA there is a second one that fits. Never know a token by its hash; know it by `jti`.)
    ///
    /// Keys that a header brings along (`jwk`, `jku`, `x5u`, `x5c`) are never looked at.
    ///
    /// # Errors
    /// [`Refused::Malformed`], [`Refused::Critical`] or [`Refused::Algorithm`].
    pub fn parse(token: &'a [u8]) -> Result<Self, Refused> {
        Self::with_header(token, |_| ()).map(|(compact, ())| compact)
    }

    /// As [`Compact::parse`], with something of the header: for proofs, whose key stands there.
    pub(super) fn with_header<T>(
        token: &'a [u8],
        take: impl FnOnce(Members<'_>) -> T,
    ) -> Result<(Self, T), Refused> {
        if token.len() > TOKEN_MAX {
            return Err(Refused::Malformed);
        }
        // Five parts are an encrypted token (RFC 7516).
        let mut dots = memchr::memchr_iter(b'.', token);
        let (Some(first), Some(second), None) = (dots.next(), dots.next(), dots.next()) else {
            return Err(Refused::Malformed);
        };
        let part = |range: Range<usize>| token.get(range).ok_or(Refused::Malformed);
        let (header, payload) = (part(0..first)?, part(first + 1..second)?);
        let (signed, signature) = (part(0..second)?, part(second + 1..token.len())?);
        let header = decode(header)?;
        let header = strict_json::members(&header).map_err(|_| Refused::Malformed)?;
        check_extensions(&header)?;
        let algorithm = header.text("alg");
        let compact = Self {
            signed,
            algorithm: algorithm
                .and_then(Algorithm::of)
                .ok_or(Refused::Algorithm)?,
            key_id: text(&header, "kid")?.map(str::to_owned),
            kind: text(&header, "typ")?.map(plain_type),
            payload: decode(payload)?,
            signature: decode(signature)?,
        };
        Ok((compact, take(header)))
    }

    /// The algorithm that it names.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The identifier of the key that has signed it, as it says.
    #[must_use]
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }
}

/// The issuer that a token names, unverified: to choose the rules by which it is verified.
#[must_use]
pub fn claimed_issuer(token: &[u8]) -> Option<String> {
    let payload = Compact::parse(token).ok()?.payload;
    let claims = strict_json::members(&payload).ok()?;
    claims.text("iss").map(str::to_owned)
}

/// No extension is known that would change what a token means: `crit` must not be there, and the
/// payload is always encoded (`b64` of RFC 7797).
fn check_extensions(header: &Members<'_>) -> Result<(), Refused> {
    let is_plain = header.get("b64").is_none_or(|it| *it == Json::Bool(true));
    match header.has("crit") || !is_plain {
        true => Err(Refused::Critical),
        false => Ok(()),
    }
}

fn text<'a>(header: &'a Members<'_>, name: &str) -> Result<Option<&'a str>, Refused> {
    match header.get(name) {
        None => Ok(None),
        Some(Json::Text(text)) => Ok(Some(text)),
        Some(_) => Err(Refused::Malformed),
    }
}

fn decode(part: &[u8]) -> Result<Vec<u8>, Refused> {
    // Not in constant time: a token has no secret that its sender does not know.
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Refused::Malformed)
}
