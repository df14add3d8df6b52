//! `engine.auth` and `auth:` as flow files have them.

use config::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use steps::TlsConfig;

/// One way to know a caller: exactly one of `jwt` and `api_key`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WayConfig {
    /// JSON Web Tokens in `Authorization: Bearer` (RFC 6750, RFC 7519, RFC 9068).
    pub jwt: Option<Spanned<JwtConfig>>,
    /// API keys in a header or a parameter of the query. The file has their hashes; `intertie keys`
    /// makes it.
    pub api_key: Option<Spanned<ApiKeyConfig>>,
    /// Whether the credential is passed on by `forward` and visible to steps. By default it goes no
    /// further than the door.
    #[serde(default)]
    pub pass: bool,
}

/// JSON Web Tokens (RFC 7519): who issues them, for whom they are, and where the keys come from.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JwtConfig {
    /// The issuer, as `iss` has it. Without `jwks` and `secret` it is also where the keys are found
    /// (OpenID Connect Discovery 1.0).
    pub issuer: Spanned<Texts>,
    /// For whom a token must be: one of these in `aud`. Either `audience` or `client_id` is needed.
    pub audience: Option<Spanned<Texts>>,
    /// For issuers whose tokens have no `aud`, such as Amazon Cognito: one of these in `client_id`.
    pub client_id: Option<Spanned<Texts>>,
    /// The keys: a URL, or a file relative to the flow file's folder.
    pub jwks: Option<Spanned<String>>,
    /// The secret of tokens signed with HMAC, in place of keys, with `algorithm`.
    pub secret: Option<Spanned<String>>,
    /// The algorithm of `secret` (`HS256` by default), or of RSA keys that name none (`RS256` by
    /// default).
    pub algorithm: Option<Spanned<String>>,
    /// The values of `typ` to accept, in place of `JWT`, `at+jwt` and none.
    pub types: Option<Vec<String>>,
    /// How far the clocks of issuer and engine may differ, up to 10m.
    #[schemars(extend("default" = "30s"))]
    pub clock_skew: Option<Spanned<config::Duration>>,
    /// The claim that says who calls: `$auth.id`. A token without it is refused.
    #[schemars(extend("default" = "sub"))]
    pub id: Option<String>,
    /// The claim that names the caller's plan: `$auth.plan`.
    pub plan: Option<String>,
    /// TLS for an `https` URL of the issuer or `jwks`.
    pub tls: Option<Spanned<TlsConfig>>,
}

/// API keys: where requests carry them, and the file that knows them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApiKeyConfig {
    /// The header that carries the key. The default is `X-Api-Key`, unless `query` is there.
    pub header: Option<Spanned<String>>,
    /// The parameter of the query that carries the key. Others may see URLs: prefer `header`.
    pub query: Option<Spanned<String>>,
    /// The file with the hashes of the keys, relative to the flow file's folder. A changed file is
    /// taken within a second.
    pub keys: Spanned<String>,
}

/// One text or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Texts {
    One(String),
    Several(Vec<String>),
}

impl Texts {
    pub fn to_vec(&self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text.clone()],
            Self::Several(texts) => texts.clone(),
        }
    }
}

/// The mapping form of `auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthConfig {
    /// The ways by which callers may be known, by their names under `engine.auth`. The credential
    /// that a request has decides which one is used.
    pub any: Spanned<Vec<Spanned<String>>>,
    /// The scopes that a caller must have, all of them.
    #[serde(default)]
    pub scopes: Vec<Spanned<String>>,
    /// A condition that must hold, such as `$auth.claims.tenant == $path.tenant`. It sees `$auth`
    /// and the head of the request: `$headers`, `$path`, `$query`, `$method`.
    pub require: Option<Spanned<String>>,
}

/// The schema of the value under `engine.auth`.
pub(crate) fn ways_schema() -> Json {
    json!({
        "type": "object",
        "description": "The ways to know a caller, by name. `auth:` of flows and topics uses them.",
        "additionalProperties": config::schema_for::<WayConfig>()
    })
}

/// The schema of the value under `auth`.
pub(crate) fn auth_schema() -> Json {
    let mapping = config::schema_for::<AuthConfig>();
    json!({
        "description": "Who may come in: the name of a way under `engine.auth`, `none` for everybody, \
                        or a mapping.",
        "anyOf": [{ "type": "string" }, mapping]
    })
}
