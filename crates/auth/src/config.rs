//! `engine.auth` and `auth:` as flow files have them.

use config::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use steps::{PrivateKeyConfig, TlsConfig};

use crate::possession::Dpop;

/// An authentication method: exactly one of `jwt`, `basic`, `api_key`, `mtls`, `hmac`,
/// `introspect`, `ask` and `oidc`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WayConfig {
    /// JSON Web Tokens in `Authorization: Bearer` (RFC 6750, RFC 7519, RFC 9068).
    pub jwt: Option<Spanned<JwtConfig>>,
    /// Users with passwords in `Authorization: Basic` (RFC 7617). Use it over TLS only.
    pub basic: Option<Spanned<BasicConfig>>,
    /// API keys in a header or a query parameter. The file contains their hashes; `intertie keys`
    /// manages it.
    pub api_key: Option<Spanned<ApiKeyConfig>>,
    /// Client certificates (mutual TLS). The listener needs `tls.client_ca`, or
    /// `client_cert_header` if it is behind a TLS-terminating proxy. A credential in the request
    /// takes precedence.
    pub mtls: Option<Spanned<MtlsConfig>>,
    /// HMAC-signed bodies, as the webhooks of GitHub, Stripe, Slack and Standard Webhooks have
    /// them.
    pub hmac: Option<Spanned<HmacConfig>>,
    /// Opaque tokens in `Authorization: Bearer`, verified by token introspection at their issuer
    /// (RFC 7662).
    pub introspect: Option<Spanned<IntrospectConfig>>,
    /// An external authorization service, as with nginx's `auth_request` and Envoy's `ext_authz`.
    pub ask: Option<Spanned<AskConfig>>,
    /// Browser logins at an OpenID Connect provider, with a session in the engine.
    pub oidc: Option<Spanned<OidcConfig>>,
    /// Whether `forward` sends the credential on and steps can read it. By default it is removed.
    /// HMAC signatures, and the headers that `ask` uses, are always forwarded; client certificates
    /// never.
    pub pass: Option<Spanned<bool>>,
}

/// JSON Web Tokens (RFC 7519): their issuer, audience and verification keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JwtConfig {
    /// The issuer: the value of `iss`. Without `jwks` and `secret`, the keys are found at this URL
    /// by OpenID Connect Discovery 1.0.
    pub issuer: Spanned<Texts>,
    /// The accepted audiences: `aud` must contain one of these. Either `audience` or `client_id` is
    /// required.
    pub audience: Option<Spanned<Texts>>,
    /// For issuers whose tokens have no `aud`, such as Amazon Cognito: the accepted values of
    /// `client_id`.
    pub client_id: Option<Spanned<Texts>>,
    /// The verification keys (JWK Set): a URL, or a file relative to the flow file's folder.
    pub jwks: Option<Spanned<String>>,
    /// An additional origin on which the `jwks_uri` of the issuer's metadata may be: scheme and
    /// host, such as `https://www.googleapis.com` for `https://accounts.google.com`. By default
    /// only the issuer's host is allowed.
    pub jwks_origin: Option<Spanned<String>>,
    /// The shared secret of tokens signed with HMAC, instead of keys; see `algorithm`.
    pub secret: Option<Spanned<String>>,
    /// The algorithm of `secret` (`HS256` by default), or of RSA keys without `alg` (`RS256` by
    /// default).
    pub algorithm: Option<Spanned<String>>,
    /// The accepted values of `typ`. By default `JWT`, `at+jwt` and none.
    pub types: Option<Vec<String>>,
    /// The tolerated difference between the clocks of issuer and engine, up to 10m.
    #[schemars(extend("default" = "30s"))]
    pub clock_skew: Option<Spanned<config::Duration>>,
    /// The claim that identifies the caller: `$auth.id`. A token without it is invalid.
    #[schemars(extend("default" = "sub"))]
    pub id: Option<String>,
    /// The claim with the caller's plan: `$auth.plan`.
    pub plan: Option<String>,
    /// Whether key-bound tokens are accepted with a proof of possession (DPoP, RFC 9449:
    /// `Authorization: DPoP` and the header `DPoP`). `true` accepts them in addition to bearer
    /// tokens, `required` accepts only them. By default a token with `cnf.jkt` is rejected.
    pub dpop: Option<DpopConfig>,
    /// Further places in which tokens are accepted besides `Authorization`, for browsers, whose
    /// `EventSource` and `WebSocket` cannot set headers: `query` accepts `access_token=TOKEN` (RFC
    /// 6750, section 2.3), which ends up in browser histories and logs of other systems;
    /// `subprotocol` accepts `Sec-WebSocket-Protocol: bearer, TOKEN`. Tickets need neither.
    #[serde(default)]
    pub also_in: Vec<Spanned<TokenPlace>>,
    /// TLS for an `https` URL of the issuer or `jwks`.
    pub tls: Option<Spanned<TlsConfig>>,
}

/// Where a token is accepted besides `Authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum TokenPlace {
    /// The query parameter `access_token`.
    Query,
    /// After the subprotocol `bearer` in a WebSocket handshake.
    Subprotocol,
}

/// Users with passwords.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BasicConfig {
    /// The file with a line `user:hash` for each user, relative to the flow file's folder, as
    /// written by `htpasswd -B` (bcrypt) and `intertie keys user` (Argon2id). A change applies
    /// within a second.
    pub users: Spanned<String>,
}

/// API keys: where requests carry them, and the file with their hashes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApiKeyConfig {
    /// The header with the key. The default is `X-Api-Key`, unless `query` is set.
    pub header: Option<Spanned<String>>,
    /// The query parameter with the key. URLs appear in logs: prefer `header`.
    pub query: Option<Spanned<String>>,
    /// The file with the hashes of the keys, relative to the flow file's folder. A change applies
    /// within a second.
    pub keys: Spanned<String>,
}

/// HMAC-signed bodies. The body is read into memory, up to `body_max`, before the signature can be
/// verified; a missing header and an old timestamp are rejected before.
///
/// A request that succeeded is remembered for as long as its timestamp is accepted: a duplicate
/// gets 200 and starts nothing. A duplicate of a request in progress gets 409. After any other
/// response the sender may retry. The memory is per process, has room for 100,000 requests and
/// survives a reload, but not a restart; when it is full, requests get 503, because evicting one
/// would allow a replay.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HmacConfig {
    /// The signature scheme of the sender.
    pub scheme: SignatureScheme,
    /// The shared secret; several during a rotation.
    pub secret: Spanned<Texts>,
    /// The accepted age of a signature's timestamp, in either direction, from 1s to 1d. Signatures
    /// of `github` have no timestamp: for them it is how long a request is remembered, by its
    /// content, and a recorded one can be replayed later.
    #[schemars(extend("default" = "5m"))]
    pub tolerance: Option<Spanned<config::Duration>>,
}

/// Signature schemes, all with HMAC-SHA256.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum SignatureScheme {
    /// `X-Hub-Signature-256`
    #[serde(rename = "github")]
    GitHub,
    /// `Stripe-Signature`
    Stripe,
    /// `X-Slack-Signature` and `X-Slack-Request-Timestamp`
    Slack,
    /// `webhook-signature`, `webhook-id` and `webhook-timestamp`
    StandardWebhooks,
}

/// Token introspection (RFC 7662). Results are cached in memory for all workers, by a keyed hash of
/// the token; concurrent requests with one token share one introspection request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IntrospectConfig {
    /// The introspection endpoint.
    pub url: Spanned<String>,
    /// The engine's client identifier at that server, with `client_secret` (HTTP Basic, RFC 6749,
    /// section 2.3.1).
    pub client_id: Option<Spanned<String>>,
    /// The secret of `client_id`.
    pub client_secret: Option<Spanned<String>>,
    /// A bearer token with which the engine authenticates, instead of `client_id` and
    /// `client_secret`.
    pub bearer: Option<Spanned<String>>,
    /// How long a result is cached, from 1s to 1h, and at most until the token expires: a revoked
    /// token is accepted for up to this time. An inactive token is cached for at most 5s.
    #[schemars(extend("default" = "30s"))]
    pub check: Option<Spanned<config::Duration>>,
    /// The accepted audiences: `aud` must contain one of these.
    pub audience: Option<Spanned<Texts>>,
    /// The accepted issuers: `iss` must be one of these.
    pub issuer: Option<Spanned<Texts>>,
    /// The member of the response that identifies the caller: `$auth.id`. A token without it is
    /// invalid. The default is `sub`, else `username`, else `client_id`.
    pub id: Option<String>,
    /// The member of the response with the caller's plan: `$auth.plan`.
    pub plan: Option<String>,
    /// Whether key-bound tokens are accepted with a proof of possession (DPoP), as for `jwt`.
    pub dpop: Option<DpopConfig>,
    /// The time-out of an introspection request, from 1ms to 1m.
    #[schemars(extend("default" = "5s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// Further places in which tokens are accepted besides `Authorization`, as for `jwt`: `query`,
    /// `subprotocol`.
    #[serde(default)]
    pub also_in: Vec<Spanned<TokenPlace>>,
    /// TLS for an `https` URL.
    pub tls: Option<Spanned<TlsConfig>>,
}

/// Browser logins at an OpenID provider (OpenID Connect Core 1.0): the authorization code flow with
/// PKCE (S256). A navigation without a session is redirected to the provider and returns with one;
/// every other request without a session gets 401. The browser has an opaque cookie (`HttpOnly`,
/// `SameSite=Lax`; `Secure` and `__Host-` unless `public_url` is on this machine). Sessions are
/// kept in the data folder, encrypted with a key derived from the cookie: they survive reloads and
/// restarts.
///
/// With a session, requests with side effects (all but `GET`, `HEAD` and `OPTIONS`, and WebSocket
/// handshakes) must come from a page of `public_url`, by `Sec-Fetch-Site` or `Origin`; others get
/// 403. `scopes` are those that the provider has granted.
///
/// The pages under `callback`, `logout` and `backchannel_logout` are served on the address of each
/// flow and topic whose `auth` names the method. They need no credential, and no flow may have
/// their paths.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OidcConfig {
    /// The provider: the value of `iss` in its tokens. Its endpoints and keys are found by OpenID
    /// Connect Discovery 1.0.
    pub issuer: Spanned<String>,
    /// The client identifier at the provider.
    pub client_id: Spanned<String>,
    /// The client secret (`client_secret_basic`). Without this and `private_key` it is a public
    /// client.
    pub client_secret: Option<Spanned<String>>,
    /// The key with which the client signs a token instead of sending a secret (`private_key_jwt`,
    /// RFC 7523). The token's audience is the issuer, unless `audience` is set.
    pub private_key: Option<Spanned<PrivateKeyConfig>>,
    /// The origin at which browsers reach the engine, such as `https://shop.example`: scheme, host
    /// and port. `http` only for `localhost` and loopback addresses.
    pub public_url: Spanned<String>,
    /// The path of the redirect URI, to which the provider sends browsers back. Register
    /// `public_url` followed by this path at the provider.
    #[schemars(extend("default" = "/login/callback"))]
    pub callback: Option<Spanned<String>>,
    /// The path that ends the browser's session, here and at the provider (OpenID Connect
    /// RP-Initiated Logout 1.0). By default there is none.
    pub logout: Option<Spanned<String>>,
    /// The path to return to after `logout`, served by a public flow. Register `public_url`
    /// followed by this path at the provider as the post logout redirect URI. By default the
    /// provider shows a page of its own.
    pub signed_out: Option<Spanned<String>>,
    /// The path at which the provider reports ended sessions (OpenID Connect Back-Channel Logout
    /// 1.0). By default there is none.
    pub backchannel_logout: Option<Spanned<String>>,
    /// The requested scopes, separated by spaces; `openid` must be one of them. Many providers
    /// issue a refresh token only for `offline_access`.
    #[schemars(extend("default" = "openid"))]
    pub scope: Option<Spanned<String>>,
    /// The idle time-out of a session, from 1m to 90d.
    #[schemars(extend("default" = "1h"))]
    pub idle: Option<Spanned<config::Duration>>,
    /// The maximum duration of a session, from 1m to 365d.
    #[schemars(extend("default" = "12h"))]
    pub lifetime: Option<Spanned<config::Duration>>,
    /// The claim that identifies the caller: `$auth.id`. Without it the login fails.
    #[schemars(extend("default" = "sub"))]
    pub id: Option<String>,
    /// The claim with the caller's plan: `$auth.plan`.
    pub plan: Option<String>,
    /// The token endpoint, if it is on another host than the issuer.
    pub token_url: Option<Spanned<String>>,
    /// The URL of the keys (JWKS), if it is on another host than the issuer.
    pub jwks: Option<Spanned<String>>,
    /// An additional origin on which the `jwks_uri` of the provider's metadata may be: scheme and
    /// host, such as `https://www.googleapis.com` for `https://accounts.google.com`. Use instead of
    /// `jwks`.
    pub jwks_origin: Option<Spanned<String>>,
    /// The time-out of a request to the provider, from 1ms to 1m.
    #[schemars(extend("default" = "5s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// TLS for `https` URLs of the provider.
    pub tls: Option<Spanned<TlsConfig>>,
}

/// Whether tokens may be bound to keys: `true`, or `required`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum DpopConfig {
    Switch(bool),
    Word(Required),
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Required {
    Required,
}

impl DpopConfig {
    pub fn mode(&self) -> Dpop {
        match self {
            Self::Switch(false) => Dpop::Ignored,
            Self::Switch(true) => Dpop::Taken,
            Self::Word(Required::Required) => Dpop::Required,
        }
    }
}

/// Client certificates. Without `subject`, `dns`, `uri`, `email` and `fingerprint`, every
/// certificate issued under the listener's `client_ca` is accepted; with some of them, certificates
/// that match at least one. An expired certificate is rejected, also on an open connection.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MtlsConfig {
    /// Accepted subjects in the form of RFC 4514, such as `CN=shop,O=Example`, or common names: a
    /// text without `=`.
    pub subject: Option<Spanned<Texts>>,
    /// Accepted DNS names (subject alternative names); `*.example.com` matches every name with one
    /// more label.
    pub dns: Option<Spanned<Texts>>,
    /// Accepted URIs (subject alternative names), such as SPIFFE IDs; `/*` at the end matches
    /// everything below.
    pub uri: Option<Spanned<Texts>>,
    /// Accepted mail addresses (subject alternative names).
    pub email: Option<Spanned<Texts>>,
    /// Accepted SHA-256 fingerprints: 64 hexadecimal digits, with or without colons.
    pub fingerprint: Option<Spanned<Texts>>,
    /// Accepted issuers in the form of RFC 4514; this must match in addition to the other rules.
    pub issuer: Option<Spanned<Texts>>,
    /// The part of the certificate that identifies the caller: `$auth.id`. A certificate without it
    /// is rejected. The default is the first URI, else the first DNS name, else the common name,
    /// else the fingerprint.
    pub id: Option<CertificateId>,
}

/// The part of a certificate that identifies the caller.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum CertificateId {
    /// The first URI
    Uri,
    /// The first DNS name
    Dns,
    /// The first mail address
    Email,
    /// The common name of the subject; none with a colon in it
    CommonName,
    /// The whole subject
    Subject,
    /// The SHA-256 of the certificate
    Fingerprint,
}

/// An external authorization service. It receives the method, host, path, query, protocol and
/// client address (`X-Forwarded-Method`, `-Host`, `-Uri`, `-Proto`, `-For`, and
/// `X-Original-Method`, `-URI`, `-URL`) and the headers listed under `headers`, but not the body. A
/// status of 2xx accepts the request; 401 and 403 are returned to the client with
/// `WWW-Authenticate` and the body; all others result in 503.
///
/// It handles every request, with or without a credential, so it must be the last method under
/// `any`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskConfig {
    /// The URL of the service, the same for every request.
    pub url: Spanned<String>,
    /// The request method: `GET`, `HEAD` or `POST`, without a body.
    #[schemars(extend("default" = "GET"))]
    pub method: Option<Spanned<String>>,
    /// The client's request headers that are sent to the service.
    #[schemars(extend("default" = ["Authorization", "Cookie"]))]
    pub headers: Option<Vec<Spanned<String>>>,
    /// The response headers that identify the caller, in order of preference: `$auth.id`, empty if
    /// none is present.
    #[schemars(extend("default" = ["X-Auth-Request-User", "Remote-User"]))]
    pub id: Option<Vec<Spanned<String>>>,
    /// The response header with the caller's scopes, separated by spaces or commas: `$auth.scopes`.
    pub scopes: Option<Spanned<String>>,
    /// Response headers that become `$auth.claims`, by their names in lower case.
    #[serde(default)]
    pub claims: Vec<Spanned<String>>,
    /// Whether 302, 303, 307 and 308 are returned to the client with `Location`, for browser
    /// logins.
    #[serde(default)]
    pub redirect: bool,
    /// The time-out of a request to the service, from 1ms to 1m.
    #[schemars(extend("default" = "5s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// How long a result is cached for requests that would send the service the same data, up to
    /// 1h; `0s` disables the cache. A refusal is cached for at most 5s.
    #[schemars(extend("default" = "10s"))]
    pub cache: Option<Spanned<config::Duration>>,
    /// What happens if the service is unavailable or its response is not valid: `closed` rejects
    /// the request with 503, `open` accepts it, with an empty `$auth.id`.
    #[serde(default)]
    pub fail: Fail,
    /// TLS for an `https` URL.
    pub tls: Option<Spanned<TlsConfig>>,
}

/// What happens to requests while the authorization service is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Fail {
    /// They are refused.
    #[default]
    Closed,
    /// They are let in.
    Open,
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
    /// The accepted authentication methods, by their names under `engine.auth`. The method is
    /// chosen by the credential in the request.
    pub any: Spanned<Vec<Spanned<String>>>,
    /// The required scopes; the caller must have all of them.
    #[serde(default)]
    pub scopes: Vec<Spanned<String>>,
    /// An authorization condition, such as `$auth.claims.tenant == $path.tenant`. It can use
    /// `$auth` and the head of the request: `$headers`, `$path`, `$query`, `$method`.
    pub require: Option<Spanned<String>>,
}

/// The schema of the value under `engine.auth`.
pub(crate) fn ways_schema() -> Json {
    json!({
        "type": "object",
        "description": "Authentication methods by name. `auth:` of flows, topics and listeners, \
                        and the admin port refer to them.",
        "additionalProperties": config::schema_for::<WayConfig>()
    })
}

/// The schema of the value under `auth`.
pub(crate) fn auth_schema() -> Json {
    let mapping = config::schema_for::<AuthConfig>();
    json!({
        "description": "Authentication and authorization: the name of a method under \
                        `engine.auth`, `none` for public access, or a mapping.",
        "anyOf": [{ "type": "string" }, mapping]
    })
}
