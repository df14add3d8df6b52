//! What the token endpoint answers (OpenID Connect Core 1.0, sections 3.1.3.3 and 12.2; RFC 6749,
//! sections 5.1 and 5.2).

use serde_json::{Map, Value};

use crate::jwt::TOKEN_MAX;
use crate::strict_json;

/// The longest lifetime of an access token that is heeded, in seconds.
const LIFETIME_MAX: u64 = 366 * 24 * 3600;

/// The tokens of an answer.
#[derive(Clone)]
pub struct TokenAnswer {
    /// The ID token; always there for a code.
    pub id_token: Option<String>,
    /// The access token: only its hash is of interest.
    pub access_token: String,
    /// What gets the next tokens.
    pub refresh_token: Option<String>,
    /// The scopes that were granted, where the answer says it.
    pub scope: Option<String>,
    /// For how many seconds the access token is good.
    pub lifetime: Option<u64>,
}

/// Without the tokens.
impl std::fmt::Debug for TokenAnswer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TokenAnswer")
    }
}

/// Why there are no tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenProblem {
    /// The code or refresh token is not good (any more): `invalid_grant`.
    Grant,
    /// Another error, by its name.
    Error(String),
    /// The answer cannot be read.
    Malformed,
}

impl TokenAnswer {
    /// Reads an answer by its status.
    ///
    /// # Errors
    /// Why there are no tokens.
    pub fn read(status: u16, body: &[u8]) -> Result<Self, TokenProblem> {
        let all = strict_json::object(body).map_err(|_| TokenProblem::Malformed)?;
        if let Some(error) = all.get("error").and_then(Value::as_str) {
            return Err(match error {
                "invalid_grant" => TokenProblem::Grant,
                other => TokenProblem::Error(other.chars().take(80).collect()),
            });
        }
        if status != 200 {
            return Err(TokenProblem::Malformed);
        }
        let access_token = text(&all, "access_token")?.ok_or(TokenProblem::Malformed)?;
        let lifetime = all.get("expires_in").and_then(|value| match value {
            // Some servers write it as text.
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        });
        Ok(Self {
            id_token: text(&all, "id_token")?,
            access_token,
            refresh_token: text(&all, "refresh_token")?,
            scope: text(&all, "scope")?,
            lifetime: lifetime.map(|it: u64| it.min(LIFETIME_MAX)),
        })
    }
}

fn text(all: &Map<String, Value>, name: &str) -> Result<Option<String>, TokenProblem> {
    match all.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() && text.len() <= TOKEN_MAX => {
            Ok(Some(text.clone()))
        }
        Some(_) => Err(TokenProblem::Malformed),
    }
}
