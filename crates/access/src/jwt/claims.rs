//! What a token claims, and what must be true of it.

use std::sync::Arc;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Map, Value};

use super::{Compact, Key, Refused};
use crate::strict_json::{self, Json, Members};

/// The last second of the year 9999: what is later is no time but a trick.
const TIME_MAX: u64 = 253_402_300_799;

/// What is demanded of a token.
#[derive(Clone, Debug)]
pub struct Rules {
    issuers: Vec<String>,
    audience: Audience,
    types: Vec<String>,
    clock_skew: u64,
}

/// For whom a token must be.
#[derive(Clone, Debug)]
pub enum Audience {
    /// `aud` is, or has, one of these.
    OneOf(Vec<String>),
    /// `client_id` (RFC 8693, section 4.3) is one of these: for issuers whose access tokens have no
    /// `aud`, such as Amazon Cognito.
    Clients(Vec<String>),
    /// Nobody looks: every token of the issuer is taken, those for other services too.
    Any,
}

impl Rules {
    /// Rules for tokens of these issuers (`iss`, each to the letter; Google, for one, has two
    /// spellings) and for this audience. The clocks may differ by 30 s.
    #[must_use]
    pub fn new(issuers: Vec<String>, audience: Audience) -> Self {
        Self {
            issuers,
            audience,
            types: Vec::new(),
            clock_skew: 30,
        }
    }

    /// Takes only these values of `typ`, in either case, with or without `application/`. Without
    /// any it is `JWT`, `at+jwt` (RFC 9068), or none. An empty text stands for a token without
    /// `typ`.
    #[must_use]
    pub fn with_types(mut self, types: &[&str]) -> Self {
        self.types = types.iter().map(|it| plain_type(it)).collect();
        self
    }

    /// Lets the clocks of issuer and engine differ by so many seconds.
    #[must_use]
    pub fn with_clock_skew(mut self, seconds: u64) -> Self {
        self.clock_skew = seconds;
        self
    }
}

/// A type as it is compared: in lower case, without `application/` (RFC 7515, section 4.1.9).
pub(super) fn plain_type(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let short = lower.strip_prefix("application/").map(str::to_owned);
    short.unwrap_or(lower)
}

/// How a caller has presented a token, and what the connection or a proof has shown.
#[derive(Clone, Copy, Debug)]
pub enum Presented {
    /// As a bearer's (RFC 6750), over a connection whose client certificate has this SHA-256.
    Bearer {
        /// The hash of the certificate, if there is one.
        certificate: Option<[u8; 32]>,
    },
    /// With a proof that has been verified (RFC 9449), made by the key of this thumbprint.
    Dpop {
        /// The SHA-256 thumbprint of the key (RFC 7638).
        key: [u8; 32],
        /// The hash of the client certificate, if there is one.
        certificate: Option<[u8; 32]>,
    },
}

impl Presented {
    /// As a bearer's, over a connection without a client certificate.
    pub const BEARER: Self = Self::Bearer { certificate: None };
}

/// A token whose signature, times, issuer, audience and type are right, while it is being looked
/// at. Nobody may act on it before [`Holder::confirm`].
#[derive(Debug)]
pub struct Signed<'a> {
    /// What it claims.
    pub claims: &'a Members<'a>,
    /// The JSON text of the claims.
    pub payload: &'a [u8],
    /// To whom it belongs: what the caller has to show of itself.
    pub holder: Holder,
    /// When it expires, in seconds since 1970, with the clock skew: from then on it is refused.
    pub expires: u64,
    /// The key whose signature it has.
    pub key: &'a Arc<Key>,
}

/// The same to be kept. Its claims are given out only by [`Verified::confirm`], so that a token
/// that belongs to a key's holder is never taken as a bearer's.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The JSON text of the claims.
    payload: Vec<u8>,
    holder: Holder,
    expires: u64,
}

/// What a token claims, which is right if its signature is.
pub(super) struct Claimed<'a> {
    pub claims: Members<'a>,
    pub holder: Holder,
    pub expires: u64,
}

/// To whom a token belongs that is more than a bearer's (RFC 7800).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The SHA-256 of a certificate (RFC 8705, `x5t#S256`).
    pub certificate: Option<[u8; 32]>,
    /// The thumbprint of a key (RFC 9449, `jkt`).
    pub key: Option<[u8; 32]>,
}

impl Holder {
    /// Whether the caller is this one: all that `cnf` names must have been shown, and a token that
    /// names a key is neither taken as a bearer's nor one that names none with a proof (RFC 9449,
    /// section 7.2).
    ///
    /// # Errors
    /// [`Refused::Confirmation`]
    pub fn confirm(self, presented: Presented) -> Result<(), Refused> {
        let (certificate, key) = match presented {
            Presented::Bearer { certificate } => (certificate, None),
            Presented::Dpop { key, certificate } => (certificate, Some(key)),
        };
        let has_certificate = self.certificate.is_none() || self.certificate == certificate;
        match has_certificate && self.key == key {
            true => Ok(()),
            false => Err(Refused::Confirmation),
        }
    }
}

impl Verified {
    pub(super) fn new(signed: &Signed<'_>) -> Self {
        Self {
            payload: signed.payload.to_vec(),
            holder: signed.holder,
            expires: signed.expires,
        }
    }

    /// The claims, if the caller is the one to whom the token belongs ([`Holder::confirm`]).
    ///
    /// # Errors
    /// [`Refused::Confirmation`]
    pub fn confirm(&self, presented: Presented) -> Result<Members<'_>, Refused> {
        self.holder.confirm(presented)?;
        strict_json::members(&self.payload).map_err(|_| Refused::Malformed)
    }

    /// When it expires, in seconds since 1970, with the clock skew: from then on it is refused.
    #[must_use]
    pub fn expires(&self) -> u64 {
        self.expires
    }
}

/// Claims, borrowed from a token or kept.
pub trait Claims {
    /// The claim of this name, if it is a text.
    fn text(&self, name: &str) -> Option<&str>;

    /// Those items of the claim of this name that are texts, if it is a list.
    fn texts(&self, name: &str) -> impl Iterator<Item = &str>;
}

impl Claims for Map<String, Value> {
    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        let list = self.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str)
    }
}

impl Claims for Members<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.text(name)
    }

    fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        let list = self.get(name).and_then(Json::as_list);
        list.into_iter().flatten().filter_map(Json::as_str)
    }
}

/// The scopes of claims: `scope` (RFC 8693, section 4.2) and `scp`, each as one text with spaces
/// or, as many issuers have them, as a list.
pub fn scopes(claims: &impl Claims) -> impl Iterator<Item = &str> {
    ["scope", "scp"].into_iter().flat_map(|name| {
        let text = claims.text(name).unwrap_or_default();
        let words = text.split(' ').filter(|it| !it.is_empty());
        words.chain(claims.texts(name))
    })
}

impl Rules {
    /// Checks what a token claims before its signature is: who has sent an old token, or another
    /// issuer's, does not get a signature check for it. `now` is in seconds since 1970.
    pub(super) fn check<'a>(
        &self,
        token: &'a Compact<'_>,
        now: u64,
    ) -> Result<Claimed<'a>, Refused> {
        self.check_type(token.kind.as_deref())?;
        let claims = strict_json::members(&token.payload).map_err(|_| Refused::Malformed)?;
        // A logout or security event need not have a type of its own (OpenID Connect Back-Channel
        // Logout 1.0, section 2.4; RFC 8417, section 2.3).
        if claims.has("events") && self.types.is_empty() {
            return Err(Refused::Type);
        }
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
            if claims.get(name).is_some_and(|it| it.as_str().is_none()) {
                return Err(Refused::Malformed);
            }
        }
        self.check_parties(&claims)?;
        Ok(Claimed {
            holder: holder(&claims)?,
            claims,
            expires,
        })
    }

    fn check_type(&self, kind: Option<&str>) -> Result<(), Refused> {
        let is_taken = match kind {
            _ if !self.types.is_empty() => {
                self.types.iter().any(|it| it == kind.unwrap_or_default())
            }
            Some(kind) => matches!(kind, "jwt" | "at+jwt"),
            None => true,
        };
        is_taken.then_some(()).ok_or(Refused::Type)
    }

    fn check_parties(&self, claims: &Members<'_>) -> Result<(), Refused> {
        let issuer = claims.get("iss");
        if !issuer.is_some_and(|it| is_one_of(&self.issuers, it)) {
            return Err(Refused::Issuer);
        }
        let is_for_us = match (&self.audience, claims.get("aud")) {
            (Audience::Any, _) => true,
            (Audience::Clients(clients), _) => {
                let client = claims.get("client_id");
                client.is_some_and(|it| is_one_of(clients, it))
            }
            (Audience::OneOf(ours), aud) => aud.is_some_and(|it| has_one_of(ours, it)),
        };
        is_for_us.then_some(()).ok_or(Refused::Audience)
    }
}

/// Whether a value is one of these texts.
pub(crate) fn is_one_of(all: &[String], value: &Json<'_>) -> bool {
    value
        .as_str()
        .is_some_and(|value| all.iter().any(|it| value == it))
}

/// Whether `aud` is, or lists, one of these (RFC 7519, section 4.1.3).
pub(crate) fn has_one_of(ours: &[String], audience: &Json<'_>) -> bool {
    match audience {
        Json::List(all) => {
            all.iter().all(|it| it.as_str().is_some()) && all.iter().any(|it| is_one_of(ours, it))
        }
        one => is_one_of(ours, one),
    }
}

/// A time in seconds since 1970, whole or not (RFC 7519, section 2).
fn time(claims: &Members<'_>, name: &str, refused: Refused) -> Result<Option<u64>, Refused> {
    let value = claims.get(name);
    value.map(|it| seconds(it).ok_or(refused)).transpose()
}

/// A time in seconds since 1970, up to the year 9999.
pub(crate) fn seconds(value: &Json<'_>) -> Option<u64> {
    let Json::Number(value) = value else {
        return None;
    };
    let seconds = match (value.as_u64(), value.as_f64()) {
        (Some(whole), _) => whole,
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is bounded"
        )]
        (None, Some(real)) if (0.0..=TIME_MAX as f64).contains(&real) => real as u64,
        _ => return None,
    };
    (seconds <= TIME_MAX).then_some(seconds)
}

/// To whom the token belongs. What is not understood is refused: the token is no bearer's.
pub(crate) fn holder(claims: &Members<'_>) -> Result<Holder, Refused> {
    let Some(demanded) = claims.get("cnf") else {
        return Ok(Holder::default());
    };
    let members = demanded.as_object().ok_or(Refused::Confirmation)?;
    let mut holder = Holder::default();
    for (name, value) in members.iter() {
        let mut hash = [0; 32];
        let text = value.as_str().ok_or(Refused::Confirmation)?;
        let decoded = Base64UrlUnpadded::decode(text, &mut hash);
        if decoded.map(<[u8]>::len) != Ok(32) {
            return Err(Refused::Confirmation);
        }
        match name {
            "x5t#S256" => holder.certificate = Some(hash),
            "jkt" => holder.key = Some(hash),
            _ => return Err(Refused::Confirmation),
        }
    }
    match members.is_empty() {
        true => Err(Refused::Confirmation),
        false => Ok(holder),
    }
}
