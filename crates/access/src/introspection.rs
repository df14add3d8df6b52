//! What the issuer of a token says about it (OAuth 2.0 Token Introspection, RFC 7662).

use std::fmt;

use serde_json::{Map, Value};

use crate::jwt::{Holder, Refused, has_one_of, holder, is_one_of, seconds};
use crate::strict_json::{self, Json, Members};

/// The most bytes of an answer.
pub const ANSWER_MAX: usize = 64 * 1024;
/// How many seconds the clocks of issuer and engine may differ.
const CLOCK_SKEW: u64 = 30;

/// What is demanded of a token beside that it is active.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `aud` is, or has, one of these, when there are any.
    pub audience: Vec<String>,
    /// `iss` is one of these, when there are any.
    pub issuers: Vec<String>,
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The token is good.
    Active {
        /// All members of the answer.
        claims: Map<String, Value>,
        /// To whom it belongs: nobody may act on it before [`Holder::confirm`].
        holder: Holder,
        /// From when on the token is refused, in seconds since 1970, if the answer says so.
        expires: Option<u64>,
    },
    /// The token is not active: revoked, expired, or not the issuer's. It need not say which.
    Inactive,
    /// The token is active, and not to be taken here, for this reason.
    Refused(Refused),
}

/// An answer that is none: it says nothing about the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer(&'static str);

impl fmt::Display for NoAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl Rules {
    /// Reads an answer (RFC 7662, section 2.2). `now` is in seconds since 1970.
    ///
    /// # Errors
    /// When it is no JSON object whose `active` is a boolean.
    pub fn read(&self, answer: &[u8], now: u64) -> Result<Answer, NoAnswer> {
        if answer.len() > ANSWER_MAX {
            return Err(NoAnswer("the answer is too large"));
        }
        let object = strict_json::members(answer);
        let claims = object.map_err(|_| NoAnswer("the answer is no JSON object"))?;
        match claims.get("active") {
            Some(Json::Bool(true)) => {}
            Some(Json::Bool(false)) => return Ok(Answer::Inactive),
            _ => return Err(NoAnswer("`active` of the answer is no boolean")),
        }
        Ok(match self.check(&claims, now) {
            Ok((holder, expires)) => Answer::Active {
                claims: claims.into_map(),
                holder,
                expires,
            },
            Err(refused) => Answer::Refused(refused),
        })
    }

    /// To whom an active token belongs by what the answer says, and when it expires.
    fn check(&self, claims: &Members<'_>, now: u64) -> Result<(Holder, Option<u64>), Refused> {
        let time = |name: &str| match claims.get(name) {
            None | Some(Json::Null) => Ok(None),
            Some(value) => seconds(value).map(Some).ok_or(Refused::Malformed),
        };
        let expires = time("exp")?.map(|it| it.saturating_add(CLOCK_SKEW));
        if expires.is_some_and(|it| now >= it) {
            return Err(Refused::Expired);
        }
        if time("nbf")?.is_some_and(|it| it > now.saturating_add(CLOCK_SKEW)) {
            return Err(Refused::NotYet);
        }
        let holder = check_kind(claims)?;
        let issuer = claims.get("iss");
        if !self.issuers.is_empty() && !issuer.is_some_and(|it| is_one_of(&self.issuers, it)) {
            return Err(Refused::Issuer);
        }
        let audience = claims.get("aud");
        if !self.audience.is_empty() && !audience.is_some_and(|it| has_one_of(&self.audience, it)) {
            return Err(Refused::Audience);
        }
        Ok((holder, expires))
    }
}

/// Active are also tokens that nobody may present as a bearer's: those that belong to the holder of
/// a key or certificate (RFC 9449, section 6.2; RFC 8705, section 3.2), whom this gives. Refresh
/// tokens are refused: servers mark them by `token_use` (Ory Hydra, Amazon Cognito) or `typ`
/// (Keycloak).
fn check_kind(claims: &Members<'_>) -> Result<Holder, Refused> {
    let holder = match claims.get("cnf") {
        Some(Json::Null) => Holder::default(),
        _ => holder(claims)?,
    };
    let is = |name: &str, others: &[&str]| {
        let text = claims.text(name).unwrap_or_default();
        others.iter().any(|it| it.eq_ignore_ascii_case(text))
    };
    let has_no_key = is("token_type", &["DPoP"]) && holder.key.is_none();
    if has_no_key || is("token_type", &["PoP", "MAC"]) {
        return Err(Refused::Confirmation);
    }
    let is_other = is("token_use", &["refresh_token", "refresh", "id"])
        || is("token_type", &["refresh_token"])
        || is("typ", &["Refresh", "Offline", "ID"]);
    match is_other {
        true => Err(Refused::Type),
        false => Ok(holder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn read(answer: &str) -> Result<Answer, NoAnswer> {
        let rules = Rules {
            audience: vec!["us".to_owned()],
            issuers: vec!["id".to_owned()],
        };
        rules.read(answer.as_bytes(), NOW)
    }

    fn with(more: &str) -> Answer {
        read(&format!(
            r#"{{"active":true,"iss":"id","aud":["x","us"]{more}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn only_a_boolean_makes_a_token_active() {
        for text in [
            "",
            "[]",
            "true",
            "{}",
            r#"{"active":"true"}"#,
            r#"{"active":1}"#,
            r#"{"active":null}"#,
            r#"{"active":false,"active":true}"#,
            r#"{"active":true,"x":{"a":1,"a":2}}"#,
            r#"{"active":true} {}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(
            read(&format!(
                r#"{{"active":true,"x":"{}"}}"#,
                "x".repeat(ANSWER_MAX)
            ))
            .is_err()
        );
        let inactive = r#"{"active":false,"exp":"nonsense"}"#;
        assert_eq!(read(inactive), Ok(Answer::Inactive));
    }

    #[test]
    fn times_and_parties_are_checked() {
        let expires = |answer| match answer {
            Answer::Active { expires, .. } => expires,
            other => panic!("{other:?}"),
        };
        assert_eq!(expires(with("")), None);
        assert_eq!(expires(with(r#","exp":null,"cnf":null"#)), None);
        assert_eq!(expires(with(r#","exp":1800000010.5"#)), Some(NOW + 40));
        assert_eq!(expires(with(r#","nbf":1800000030"#)), None);
        for (more, refused) in [
            (r#","exp":1799999970"#, Refused::Expired),
            (r#","exp":"1900000000""#, Refused::Malformed),
            (r#","exp":-1"#, Refused::Malformed),
            (r#","nbf":1800000031"#, Refused::NotYet),
            (r#","nbf":[]"#, Refused::Malformed),
            (r#","cnf":{"jkt":"x"}"#, Refused::Confirmation),
            (r#","token_type":"dpop""#, Refused::Confirmation),
            (r#","token_use":"refresh_token""#, Refused::Type),
            (r#","typ":"Refresh""#, Refused::Type),
        ] {
            assert_eq!(with(more), Answer::Refused(refused), "{more}");
        }
        for (text, refused) in [
            (r#"{"active":true,"aud":"us"}"#, Refused::Issuer),
            (
                r#"{"active":true,"iss":["id"],"aud":"us"}"#,
                Refused::Issuer,
            ),
            (r#"{"active":true,"iss":"id"}"#, Refused::Audience),
            (
                r#"{"active":true,"iss":"id","aud":"we"}"#,
                Refused::Audience,
            ),
            (
                r#"{"active":true,"iss":"id","aud":["us",1]}"#,
                Refused::Audience,
            ),
        ] {
            assert_eq!(read(text), Ok(Answer::Refused(refused)), "{text}");
        }
        let free = Rules::default().read(br#"{"active":true}"#, NOW);
        assert!(matches!(free, Ok(Answer::Active { .. })));
    }
}
