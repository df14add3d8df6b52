//! A login in progress: from the redirect to the provider to the redirect back (OpenID Connect Core
//! 1.0, sections 3.1.2.1 to 3.1.2.7).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Serialize};

use crate::percent::{Piece, Pieces};
use crate::random;
use crate::sealer::Sealer;
use crate::sha256::sha256;

/// How many seconds a person may take to log in.
pub const LOGIN_SECONDS: u64 = 600;

/// The most bytes of a code, a state or an error.
const VALUE_MAX: usize = 4096;

/// A login in progress. The browser keeps it, sealed, in a cookie of its own.
#[derive(Debug, Serialize, Deserialize)]
pub struct Login {
    /// What comes back with the answer: binds it to this browser (RFC 6749, section 10.12).
    state: String,
    /// What the ID token must have: binds it to this login.
    nonce: String,
    /// What shows the provider that the code is ours (RFC 7636).
    verifier: String,
    /// The path and query that was asked for.
    return_to: String,
    /// Until when the answer is taken, in seconds since 1970.
    expires: u64,
}

/// Why an answer of a provider ends no login. The browser is told only that it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginProblem {
    /// A parameter is missing, or there twice.
    Malformed,
    /// This browser has not begun this login, or has ended it already, or took too long.
    State,
    /// Another provider has answered (RFC 9207), or nobody says which one.
    Issuer,
    /// The provider says no, or the person does.
    Refused,
}

impl LoginProblem {
    /// A word for the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::State => "state",
            Self::Issuer => "issuer",
            Self::Refused => "refused",
        }
    }
}

/// The parameters of a provider's answer, from the query of the callback.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Callback {
    code: Option<String>,
    state: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
}

impl Callback {
    /// Reads the query. Parameters that are not known are left alone (RFC 6749, section 4.1.2);
    /// of those that are, none may be there twice (section 3.1).
    ///
    /// # Errors
    /// [`LoginProblem::Malformed`]
    pub fn parse(query: &str) -> Result<Self, LoginProblem> {
        let mut callback = Self::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or(LoginProblem::Malformed)?;
            let place = match name.as_str() {
                "code" => &mut callback.code,
                "state" => &mut callback.state,
                "iss" => &mut callback.issuer,
                "error" => &mut callback.error,
                _ => continue,
            };
            let value = decode(value).filter(|it| it.len() <= VALUE_MAX);
            let value = value.ok_or(LoginProblem::Malformed)?;
            if place.replace(value).is_some() {
                return Err(LoginProblem::Malformed);
            }
        }
        Ok(callback)
    }

    /// The state that came back, unchecked: it chooses the cookie that has the login.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// What the provider calls its refusal, for the log (RFC 6749, section 4.1.2.1).
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// Undoes the encoding of a form.
pub(super) fn decode(text: &str) -> Option<String> {
    let bytes = Pieces(text.as_bytes()).map(|piece| match piece {
        Piece::Plain(b'+') => b' ',
        Piece::Plain(byte) | Piece::Escaped(byte) => byte,
    });
    String::from_utf8(bytes.collect()).ok()
}

impl Login {
    /// Begins a login that returns to this path and query, a [`super::local_target`]. `now` is in
    /// seconds since 1970. `None` when the system has no randomness.
    #[must_use]
    pub fn begin(return_to: String, now: u64) -> Option<Self> {
        Some(Self {
            state: random::text()?,
            nonce: random::text()?,
            verifier: random::text()?,
            return_to,
            expires: now.saturating_add(LOGIN_SECONDS),
        })
    }

    /// The `state` of the request to the provider.
    #[must_use]
    pub fn state(&self) -> &str {
        &self.state
    }

    /// The `nonce` of it.
    #[must_use]
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The `code_verifier` of the request for tokens.
    #[must_use]
    pub fn verifier(&self) -> &str {
        &self.verifier
    }

    /// The `code_challenge`, by the method `S256` (RFC 7636, section 4.2).
    #[must_use]
    pub fn challenge(&self) -> String {
        Base64UrlUnpadded::encode_string(&sha256(self.verifier.as_bytes()))
    }

    /// Where the login returns to.
    #[must_use]
    pub fn return_to(&self) -> &str {
        &self.return_to
    }

    /// The value of the cookie. `way` is who may open it: the cookie of one way is no other's.
    #[must_use]
    pub fn seal(&self, sealer: &Sealer, way: &str) -> Option<String> {
        let text = serde_json::to_vec(self).ok()?;
        sealer.seal_text(way.as_bytes(), &text)
    }

    /// The login of a cookie.
    #[must_use]
    pub fn open(sealer: &Sealer, way: &str, cookie: &str) -> Option<Self> {
        let text = sealer.open_text(way.as_bytes(), cookie)?;
        serde_json::from_slice(&text).ok()
    }

    /// The code of an answer, if it is one to this login. `requires_issuer` says that the provider
    /// names itself in each answer (RFC 9207, section 2.4).
    ///
    /// # Errors
    /// Why it is not.
    pub fn finish<'a>(
        &self,
        callback: &'a Callback,
        (issuer, requires_issuer): (&str, bool),
        now: u64,
    ) -> Result<&'a str, LoginProblem> {
        let state = callback.state.as_deref().ok_or(LoginProblem::Malformed)?;
        let is_ours = verify_slices_are_equal(state.as_bytes(), self.state.as_bytes()).is_ok();
        if !is_ours || now >= self.expires {
            return Err(LoginProblem::State);
        }
        match callback.issuer.as_deref() {
            Some(answered) if answered != issuer => return Err(LoginProblem::Issuer),
            None if requires_issuer => return Err(LoginProblem::Issuer),
            _ => {}
        }
        match (&callback.code, &callback.error) {
            (Some(code), None) if !code.is_empty() => Ok(code),
            (None, Some(_)) => Err(LoginProblem::Refused),
            _ => Err(LoginProblem::Malformed),
        }
    }
}
