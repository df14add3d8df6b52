//! What a token claims, and what must be true of it.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Map, Value};

use super::{Compact, Refused};
use crate::strict_json;

/// The last second of the year 9999: what is later is no time but a trick.
const TIME_MAX: u64 = 253_402_300_799;

/// What is demanded of a token.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Who must have issued it (`iss`), to the letter.
    pub issuer: Option<String>,
    /// For whom it may be (`aud`): one of these. A token without `aud` is refused. `None` does not
    /// look at it.
    pub audiences: Option<Vec<String>>,
    /// The values of `typ` that are taken, in lower case and without `application/`. Empty means
    /// `jwt`, `at+jwt` (RFC 9068), and none.
    pub types: Vec<String>,
    /// Seconds by which the clocks of issuer and engine may differ.
    pub clock_skew: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            issuer: None,
            audiences: None,
            types: Vec::new(),
            clock_skew: 30,
        }
    }
}

/// To whom a token belongs that is more than a bearer's (RFC 7800).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// The holder of a certificate with this SHA-256 (RFC 8705, `x5t#S256`).
    Certificate([u8; 32]),
    /// The holder of a key with this SHA-256 thumbprint (RFC 9449, `jkt`).
    Key([u8; 32]),
}

/// A token whose signature, times, issuer, audience and type are right. Its claims are given out
/// only by [`Verified::confirm`], so that a token that belongs to a key's holder is never taken as
/// a bearer's.
#[derive(Clone, Debug)]
pub struct Verified {
    claims: Map<String, Value>,
    confirmation: Option<Confirmation>,
    expires: u64,
}

impl Verified {
    /// The claims, if the caller has shown to be the holder: `shown` is what the connection or a
    /// proof has shown.
    ///
    /// # Errors
    /// [`Refused::Confirmation`]
    pub fn confirm(&self, shown: &[Confirmation]) -> Result<&Map<String, Value>, Refused> {
        match &self.confirmation {
            Some(demanded) if !shown.contains(demanded) => Err(Refused::Confirmation),
            _ => Ok(&self.claims),
        }
    }

    /// When it expires, in seconds since 1970, with the clock skew: from then on it is refused.
    #[must_use]
    pub fn expires(&self) -> u64 {
        self.expires
    }
}

/// The scopes of claims: `scope` as one text (RFC 8693, section 4.2), or `scp` as a text or a list.
pub fn scopes(claims: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let words = |name: &str| claims.get(name).and_then(Value::as_str);
    let text = words("scope").or_else(|| words("scp")).unwrap_or_default();
    let list = claims.get("scp").and_then(Value::as_array);
    let list = list.into_iter().flatten().filter_map(Value::as_str);
    text.split(' ').filter(|it| !it.is_empty()).chain(list)
}

impl Rules {
    /// Checks the claims of a token whose signature is right. `now` is in seconds since 1970.
    pub(super) fn check(&self, token: &Compact<'_>, now: u64) -> Result<Verified, Refused> {
        self.check_type(token.kind.as_deref())?;
        let claims = strict_json::object(&token.payload).map_err(|_| Refused::Malformed)?;
        let expires = time(&claims, "exp", Refused::NoExpiry)?.ok_or(Refused::NoExpiry)?;
        let expires = expires.saturating_add(self.clock_skew);
        if now >= expires {
            return Err(Refused::Expired);
        }
        for begin in ["nbf", "iat"] {
            let begin = time(&claims, begin, Refused::Malformed)?.unwrap_or(0);
            if begin > now.saturating_add(self.clock_skew) {
                return Err(Refused::NotYet);
            }
        }
        for name in ["sub", "jti"] {
            if claims.get(name).is_some_and(|it| !it.is_string()) {
                return Err(Refused::Malformed);
            }
        }
        self.check_parties(&claims)?;
        Ok(Verified {
            confirmation: confirmation(&claims)?,
            claims,
            expires,
        })
    }

    fn check_type(&self, kind: Option<&str>) -> Result<(), Refused> {
        let is_taken = match kind {
            _ if !self.types.is_empty() => self.types.iter().any(|it| Some(&**it) == kind),
            Some(kind) => matches!(kind, "jwt" | "at+jwt"),
            None => true,
        };
        is_taken.then_some(()).ok_or(Refused::Type)
    }

    fn check_parties(&self, claims: &Map<String, Value>) -> Result<(), Refused> {
        let issuer = claims.get("iss").map(Value::as_str);
        if self.issuer.is_some() && issuer != Some(self.issuer.as_deref()) {
            return Err(Refused::Issuer);
        }
        let Some(audiences) = &self.audiences else {
            return Ok(());
        };
        let is_ours = |name: &Value| audiences.iter().any(|it| name == it);
        let is_for_us = match claims.get("aud") {
            Some(Value::Array(all)) => all.iter().all(Value::is_string) && all.iter().any(is_ours),
            Some(one) => is_ours(one),
            None => false,
        };
        is_for_us.then_some(()).ok_or(Refused::Audience)
    }
}

/// A time in seconds since 1970, whole or not (RFC 7519, section 2).
fn time(claims: &Map<String, Value>, name: &str, refused: Refused) -> Result<Option<u64>, Refused> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let seconds = match (value.as_u64(), value.as_f64()) {
        (Some(whole), _) => whole,
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is bounded"
        )]
        (None, Some(real)) if (0.0..=TIME_MAX as f64).contains(&real) => real as u64,
        _ => return Err(refused),
    };
    match seconds <= TIME_MAX {
        true => Ok(Some(seconds)),
        false => Err(refused),
    }
}

/// To whom the token belongs. What is not understood is refused: the token is no bearer's.
fn confirmation(claims: &Map<String, Value>) -> Result<Option<Confirmation>, Refused> {
    let Some(demanded) = claims.get("cnf") else {
        return Ok(None);
    };
    let members = demanded.as_object().ok_or(Refused::Confirmation)?;
    let mut members = members.iter();
    let (Some((name, value)), None) = (members.next(), members.next()) else {
        return Err(Refused::Confirmation);
    };
    let hash = value.as_str().and_then(|text| {
        let mut hash = [0; 32];
        let decoded = Base64UrlUnpadded::decode(text, &mut hash).ok()?;
        (decoded.len() == 32).then_some(hash)
    });
    match (name.as_str(), hash) {
        ("x5t#S256", Some(hash)) => Ok(Some(Confirmation::Certificate(hash))),
        ("jkt", Some(hash)) => Ok(Some(Confirmation::Key(hash))),
        _ => Err(Refused::Confirmation),
    }
}
