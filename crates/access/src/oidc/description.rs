//! What a provider says about itself (OpenID Connect Discovery 1.0, section 3).

use serde_json::{Map, Value};

use crate::strict_json;

/// The endpoints of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Where browsers log in.
    pub authorization: String,
    /// Where codes and refresh tokens become tokens.
    pub token: String,
    /// Where browsers log out (OpenID Connect RP-Initiated Logout 1.0, section 2.1).
    pub end_session: Option<String>,
    /// Whether each answer of the authorization endpoint names the provider (RFC 9207).
    pub names_issuer: bool,
}

/// Why a description is of no use for logins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptionProblem {
    /// It is no JSON object.
    Malformed,
    /// It is another issuer's (section 4.3).
    Issuer,
    /// It has no such endpoint, or not as a URL with the issuer's scheme.
    Endpoint(&'static str),
}

impl Description {
    /// Reads the description of this issuer. Endpoints of an issuer at `https` must be there, too.
    ///
    /// # Errors
    /// Why it is of no use.
    pub fn parse(text: &[u8], issuer: &str) -> Result<Self, DescriptionProblem> {
        let all = strict_json::object(text).map_err(|_| DescriptionProblem::Malformed)?;
        if all.get("issuer").and_then(Value::as_str) != Some(issuer) {
            return Err(DescriptionProblem::Issuer);
        }
        let needed = |name: &'static str| {
            let found = endpoint(&all, name, issuer)?;
            found.ok_or(DescriptionProblem::Endpoint(name))
        };
        let names_issuer = all.get("authorization_response_iss_parameter_supported");
        Ok(Self {
            authorization: needed("authorization_endpoint")?,
            token: needed("token_endpoint")?,
            end_session: endpoint(&all, "end_session_endpoint", issuer)?,
            names_issuer: names_issuer == Some(&Value::Bool(true)),
        })
    }
}

fn endpoint(
    all: &Map<String, Value>,
    name: &'static str,
    issuer: &str,
) -> Result<Option<String>, DescriptionProblem> {
    let Some(value) = all.get(name) else {
        return Ok(None);
    };
    let is_plain = issuer.starts_with("http://");
    let has_scheme =
        |url: &str| url.starts_with("https://") || (is_plain && url.starts_with("http://"));
    // It goes into a header field.
    let is_sound = |url: &&str| has_scheme(url) && url.bytes().all(|it| it.is_ascii_graphic());
    let url = value.as_str().filter(is_sound);
    match url {
        Some(url) => Ok(Some(url.to_owned())),
        None => Err(DescriptionProblem::Endpoint(name)),
    }
}
