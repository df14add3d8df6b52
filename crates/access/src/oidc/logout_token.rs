//! Logout tokens (OpenID Connect Back-Channel Logout 1.0, section 2.4): the provider says that
//! sessions have ended.

use crate::jwt::{Audience, KeySet, Presented, Refused, Rules, verify};
use crate::strict_json::Json;

/// The event that makes a token a logout token.
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// How long after its issue a logout token is taken at most, in seconds, whatever its `exp` says:
/// for so long its identifier is remembered.
pub const LOGOUT_TOKEN_SECONDS: u64 = 600;

/// What is demanded of the logout tokens of a provider.
#[derive(Clone, Debug)]
pub struct LogoutTokenRules {
    rules: Rules,
    clock_skew: u64,
}

/// Whose sessions have ended: of this subject, or the one of this identifier, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogoutToken {
    /// The subject.
    pub subject: Option<String>,
    /// The session at the provider.
    pub session: Option<String>,
    /// What tells the token from others: it acts once.
    pub id: String,
    /// When it was issued, in seconds since 1970.
    pub issued: u64,
}

/// Why a logout token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutTokenProblem {
    /// It is no good token of this provider for this client.
    Token(Refused),
    /// It has no logout event.
    Event,
    /// It has a `nonce`, as only ID tokens have.
    Nonce,
    /// It names neither a subject nor a session.
    Nobody,
    /// It has no `jti`.
    Id,
    /// It was issued too long ago, or does not say when.
    IssuedAt,
}

impl LogoutTokenProblem {
    /// A word for the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Token(refused) => refused.name(),
            Self::Event => "event",
            Self::Nonce => "nonce",
            Self::Nobody => "nobody",
            Self::Id => "jti",
            Self::IssuedAt => "iat",
        }
    }
}

impl LogoutTokenRules {
    /// Rules for the tokens of this issuer for this client.
    #[must_use]
    pub fn new(issuer: &str, client_id: &str, clock_skew: u64) -> Self {
        let audience = Audience::OneOf(vec![client_id.to_owned()]);
        let rules = Rules::new(vec![issuer.to_owned()], audience);
        // Explicit types are recommended, not required (section 2.4): the event and the missing
        // nonce tell it from others.
        let types = ["logout+jwt", "JWT", ""];
        Self {
            rules: rules.with_types(&types).with_clock_skew(clock_skew),
            clock_skew,
        }
    }

    /// Checks a token (section 2.6), but for whether it came before. `now` is in seconds since
    /// 1970.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn check(
        &self,
        token: &[u8],
        keys: &KeySet,
        now: u64,
    ) -> Result<LogoutToken, LogoutTokenProblem> {
        let refused = LogoutTokenProblem::Token;
        let verified = verify(token, keys, &self.rules, now).map_err(refused)?;
        let claims = verified.confirm(Presented::BEARER).map_err(refused)?;
        let event = claims.get("events").and_then(Json::as_object);
        let event = event.and_then(|it| it.get(EVENT)?.as_object());
        if event.is_none() {
            return Err(LogoutTokenProblem::Event);
        }
        if claims.has("nonce") {
            return Err(LogoutTokenProblem::Nonce);
        }
        let issued = claims.get("iat").and_then(crate::jwt::seconds);
        let latest = LOGOUT_TOKEN_SECONDS.saturating_add(self.clock_skew);
        let is_new = |at: &u64| now <= at.saturating_add(latest);
        let issued = issued.filter(is_new);
        let issued = issued.ok_or(LogoutTokenProblem::IssuedAt)?;
        let text = |name: &str| {
            let text = claims.text(name);
            text.filter(|it| !it.is_empty()).map(str::to_owned)
        };
        let (subject, session) = (text("sub"), text("sid"));
        if subject.is_none() && session.is_none() {
            return Err(LogoutTokenProblem::Nobody);
        }
        Ok(LogoutToken {
            subject,
            session,
            id: text("jti").ok_or(LogoutTokenProblem::Id)?,
            issued,
        })
    }
}
