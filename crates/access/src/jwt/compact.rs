//! Tokens in compact form (RFC 7515, section 3.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::claims::plain_type;
use super::{Algorithm, Refused};
use crate::strict_json;

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
        Self::with_header(token).map(|(compact, _)| compact)
    }

    /// As [`Compact::parse`], with all of the header: for proofs, whose key stands there.
    pub(super) fn with_header(token: &'a [u8]) -> Result<(Self, Map<String, Value>), Refused> {
        if token.len() > TOKEN_MAX {
            return Err(Refused::Malformed);
        }
        let mut parts = token.rsplitn(2, |&byte| byte == b'.');
        let (signature, signed) = (parts.next(), parts.next());
        let (Some(signature), Some(signed)) = (signature, signed) else {
            return Err(Refused::Malformed);
        };
        let mut parts = signed.split(|&byte| byte == b'.');
        let (header, payload) = (parts.next(), parts.next());
        // Five parts are an encrypted token (RFC 7516).
        let (Some(header), Some(payload), None) = (header, payload, parts.next()) else {
            return Err(Refused::Malformed);
        };
        let header = strict_json::object(&decode(header)?).map_err(|_| Refused::Malformed)?;
        check_extensions(&header)?;
        let algorithm = header.get("alg").and_then(Value::as_str);
        let compact = Self {
            signed,
            algorithm: algorithm
                .and_then(Algorithm::of)
                .ok_or(Refused::Algorithm)?,
            key_id: text(&header, "kid")?,
            kind: text(&header, "typ")?.map(|it| plain_type(&it)),
            payload: decode(payload)?,
            signature: decode(signature)?,
        };
        Ok((compact, header))
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
    let claims = strict_json::object(&payload).ok()?;
    claims.get("iss")?.as_str().map(str::to_owned)
}

/// No extension is known that would change what a token means: `crit` must not be there, and the
/// payload is always encoded (`b64` of RFC 7797).
fn check_extensions(header: &Map<String, Value>) -> Result<(), Refused> {
    let is_plain = header.get("b64").is_none_or(|it| *it == Value::Bool(true));
    match header.contains_key("crit") || !is_plain {
        true => Err(Refused::Critical),
        false => Ok(()),
    }
}

fn text(header: &Map<String, Value>, name: &str) -> Result<Option<String>, Refused> {
    match header.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Refused::Malformed),
    }
}

fn decode(part: &[u8]) -> Result<Vec<u8>, Refused> {
    // Not in constant time: a token has no secret that its sender does not know.
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Refused::Malformed)
}
