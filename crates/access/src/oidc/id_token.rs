//! ID tokens (OpenID Connect Core 1.0, section 2): that they are from this provider, for this
//! client, and of this login.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{self, SHA256, SHA384, SHA512};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Map, Value};

use crate::jwt::{Algorithm, Audience, Compact, KeySet, Presented, Refused, Rules, verify};
use crate::strict_json::{Json, Members};

/// The most characters of a subject (section 2).
const SUBJECT_MAX: usize = 255;

/// What is demanded of the ID tokens of a provider.
#[derive(Clone, Debug)]
pub struct IdTokenRules {
    rules: Rules,
    client_id: String,
}

/// What one ID token must match.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected<'a> {
    /// The nonce of the login.
    pub nonce: &'a str,
    /// Whether the token was had with a refresh token: it need not have a nonce then (section
    /// 12.2).
    pub is_refreshed: bool,
    /// Who has logged in: a refreshed token is for the same person.
    pub subject: Option<&'a str>,
    /// The access token that came with it.
    pub access_token: Option<&'a str>,
}

/// What a valid ID token says.
#[derive(Clone, Debug)]
pub struct IdToken {
    /// All its claims.
    pub claims: Map<String, Value>,
    /// Who has logged in.
    pub subject: String,
    /// The session at the provider, where it names it (OpenID Connect Back-Channel Logout 1.0).
    pub session: Option<String>,
}

/// Why an ID token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdTokenProblem {
    /// It is no good token of this provider for this client.
    Token(Refused),
    /// It is of another login.
    Nonce,
    /// It was issued to another client (`azp`).
    AuthorizedParty,
    /// The access token that came with it is another one (`at_hash`).
    AccessToken,
    /// It does not say who has logged in, or says that it is somebody else than before.
    Subject,
    /// It does not say when it was issued.
    IssuedAt,
}

impl IdTokenProblem {
    /// A word for the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Token(refused) => refused.name(),
            Self::Nonce => "nonce",
            Self::AuthorizedParty => "azp",
            Self::AccessToken => "at_hash",
            Self::Subject => "subject",
            Self::IssuedAt => "iat",
        }
    }
}

impl IdTokenRules {
    /// Rules for the tokens of this issuer for this client.
    #[must_use]
    pub fn new(issuer: &str, client_id: &str, clock_skew: u64) -> Self {
        let audience = Audience::OneOf(vec![client_id.to_owned()]);
        let rules = Rules::new(vec![issuer.to_owned()], audience);
        Self {
            // An access token (RFC 9068) says what it is.
            rules: rules.with_types(&["JWT", ""]).with_clock_skew(clock_skew),
            client_id: client_id.to_owned(),
        }
    }

    /// Checks a token (section 3.1.3.7). `now` is in seconds since 1970.
    ///
    /// # Errors
    /// Why it is refused. Of these, [`Refused::UnknownKey`] is worth a look for newer keys.
    pub fn check(
        &self,
        token: &str,
        keys: &KeySet,
        expected: Expected<'_>,
        now: u64,
    ) -> Result<IdToken, IdTokenProblem> {
        let refused = IdTokenProblem::Token;
        let token = token.as_bytes();
        let verified = verify(token, keys, &self.rules, now).map_err(refused)?;
        let claims = verified.confirm(Presented::BEARER).map_err(refused)?;
        if claims.has("events") {
            return Err(refused(Refused::Type));
        }
        if !claims.has("iat") {
            return Err(IdTokenProblem::IssuedAt);
        }
        check_nonce(claims.get("nonce"), expected)?;
        self.check_party(&claims)?;
        if let (Some(hash), Some(access)) = (claims.get("at_hash"), expected.access_token) {
            let algorithm = Compact::parse(token).map_err(refused)?.algorithm();
            let own = half_hash(algorithm, access.as_bytes());
            if hash.as_str() != Some(&own) {
                return Err(IdTokenProblem::AccessToken);
            }
        }
        let text = |name: &str| claims.text(name);
        let is_subject = |it: &&str| !it.is_empty() && it.len() <= SUBJECT_MAX;
        let subject = text("sub").filter(is_subject);
        let subject = subject.ok_or(IdTokenProblem::Subject)?;
        if expected.subject.is_some_and(|it| it != subject) {
            return Err(IdTokenProblem::Subject);
        }
        Ok(IdToken {
            subject: subject.to_owned(),
            session: text("sid").map(str::to_owned),
            claims: claims.into_map(),
        })
    }

    /// A token for several audiences names the one it was issued to, which must be this client
    /// (section 3.1.3.7, 4 and 5).
    fn check_party(&self, claims: &Members<'_>) -> Result<(), IdTokenProblem> {
        let several = claims.get("aud").and_then(Json::as_list);
        let is_ours = match claims.get("azp") {
            Some(party) => party.as_str() == Some(&*self.client_id),
            None => several.is_none_or(|all| all.len() == 1),
        };
        is_ours.then_some(()).ok_or(IdTokenProblem::AuthorizedParty)
    }
}

fn check_nonce(nonce: Option<&Json<'_>>, expected: Expected<'_>) -> Result<(), IdTokenProblem> {
    if nonce.is_none() && expected.is_refreshed {
        return Ok(());
    }
    let nonce = nonce.and_then(Json::as_str).ok_or(IdTokenProblem::Nonce)?;
    let same = verify_slices_are_equal(nonce.as_bytes(), expected.nonce.as_bytes());
    match same.is_ok() && !nonce.is_empty() {
        true => Ok(()),
        false => Err(IdTokenProblem::Nonce),
    }
}

/// The left half of the hash that goes with an algorithm (section 3.1.3.6), base64url.
fn half_hash(algorithm: Algorithm, text: &[u8]) -> String {
    let hash = match algorithm {
        Algorithm::Hs384 | Algorithm::Rs384 | Algorithm::Ps384 | Algorithm::Es384 => &SHA384,
        Algorithm::Hs512
        | Algorithm::Rs512
        | Algorithm::Ps512
        | Algorithm::Es512
        | Algorithm::EdDsa => &SHA512,
        _ => &SHA256,
    };
    let whole = digest::digest(hash, text);
    let (half, _) = whole.as_ref().split_at(whole.as_ref().len() / 2);
    Base64UrlUnpadded::encode_string(half)
}
