//! `engine.auth` and `auth:` as flow files have them.

use config::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use steps::{PrivateKeyConfig, TlsConfig};

use crate::possession::Dpop;

/// One way to know a caller: exactly one of `jwt`, `basic`, `api_key`, `mtls`, `hmac`,
/// `introspect`, `ask` and `oidc`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WayConfig {
    /// JSON Web Tokens in `Authorization: Bearer` (RFC 6750, RFC 7519, RFC 9068).
    pub jwt: Option<Spanned<JwtConfig>>,
    /// Users with passwords in `Authorization: Basic` (RFC 7617). Use it over TLS only.
    pub basic: Option<Spanned<BasicConfig>>,
    /// API keys in a header or a parameter of the query. The file has their hashes; `intertie keys`
    /// makes it.
    pub api_key: Option<Spanned<ApiKeyConfig>>,
    /// Certificates of clients (mutual TLS). The listener needs `tls.client_ca`, or stands behind
    /// proxies with `client_cert_header`. A request with a credential of its own is judged by that.
    pub mtls: Option<Spanned<MtlsConfig>>,
    /// Bodies that their sender has signed, as the webhooks of GitHub, Stripe, Slack and of
    /// Standard Webhooks are.
    pub hmac: Option<Spanned<HmacConfig>>,
    /// Opaque tokens in `Authorization: Bearer`, which the server that has issued them is asked
    /// about (RFC 7662).
    pub introspect: Option<Spanned<IntrospectConfig>>,
    /// An HTTP service that decides, as nginx's `auth_request` and Envoy's `ext_authz` ask one.
    pub ask: Option<Spanned<AskConfig>>,
    /// Logins of people in browsers at an OpenID provider, with a session kept here.
    pub oidc: Option<Spanned<OidcConfig>>,
    /// Whether the credential is passed on by `forward` and visible to steps. By default it goes no
    /// further than the door. Signatures, and what `ask` sends, are always passed on; certificates
    /// never.
    pub pass: Option<Spanned<bool>>,
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
    /// Another host than the issuer's on which the keys may be that its description names: scheme
    /// and host, such as `https://www.googleapis.com` for `https://accounts.google.com`. Without it
    /// the description may name no other.
    pub jwks_origin: Option<Spanned<String>>,
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
    /// Whether tokens may come with a proof that the sender has the key that they are bound to
    /// (DPoP, RFC 9449: `Authorization: DPoP` and the header `DPoP`). `true` takes them beside
    /// bearers' tokens, `required` takes nothing else. Without it a token with `cnf.jkt` is
    /// refused.
    pub dpop: Option<DpopConfig>,
    /// Where a token may stand beside `Authorization`, for browsers, whose `EventSource` and
    /// `WebSocket` set no header: `query` takes `access_token=TOKEN` (RFC 6750, section 2.3), which
    /// histories and other systems' logs keep; `subprotocol` takes `Sec-WebSocket-Protocol: bearer,
    /// TOKEN`. Tickets need neither.
    #[serde(default)]
    pub also_in: Vec<Spanned<TokenPlace>>,
    /// TLS for an `https` URL of the issuer or `jwks`.
    pub tls: Option<Spanned<TlsConfig>>,
}

/// Where a token may stand beside `Authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum TokenPlace {
    /// The parameter `access_token` of the query.
    Query,
    /// Behind the subprotocol `bearer` of a WebSocket handshake.
    Subprotocol,
}

/// Users with passwords.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BasicConfig {
    /// The file with a line `user:hash` for each, relative to the flow file's folder, as `htpasswd
    /// -B` (bcrypt) and `intertie keys user` (Argon2id) make it. A changed file is taken within a
    /// second.
    pub users: Spanned<String>,
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

/// Signed bodies. The body is read into memory, up to `body_max`, before the signature can be
/// checked; a missing field and an old time are refused before.
///
/// A request that has been answered with a success is remembered for as long as its time allows
/// another one: a repetition gets 200 and starts nothing. One that comes while the first is under
/// way gets 409. Every other answer lets the sender repeat the request. The memory is this
/// process's, has room for 100,000 requests and survives a reload, not a restart; when it is full,
/// requests get 503, for forgetting one would let it in again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HmacConfig {
    /// How the sender signs.
    pub scheme: SignatureScheme,
    /// The secret that sender and engine share; several while one is replaced.
    pub secret: Spanned<Texts>,
    /// How far the time of a signature may be from the time of day, from 1s to 1d. Signatures of
    /// `github` have no time: there it is how long a request is remembered, by its content, and a
    /// captured one can be sent again later.
    #[schemars(extend("default" = "5m"))]
    pub tolerance: Option<Spanned<config::Duration>>,
}

/// How bodies are signed, all by HMAC-SHA256.
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

/// Token introspection (RFC 7662). Answers are kept in memory for all workers, by a keyed hash of
/// the token; requests with one token share one question.
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
    /// A bearer token of the engine's own, in place of `client_id` and `client_secret`.
    pub bearer: Option<Spanned<String>>,
    /// How long an answer holds, from 1s to 1h, and at most until the token expires: a token that
    /// is revoked is taken for so long. That a token is not active is kept 5s at most.
    #[schemars(extend("default" = "30s"))]
    pub check: Option<Spanned<config::Duration>>,
    /// For whom a token must be: one of these in `aud`.
    pub audience: Option<Spanned<Texts>>,
    /// The issuer: one of these in `iss`.
    pub issuer: Option<Spanned<Texts>>,
    /// The member of the answer that says who calls: `$auth.id`. A token without it is refused. The
    /// default is `sub`, else `username`, else `client_id`.
    pub id: Option<String>,
    /// The member of the answer that names the caller's plan: `$auth.plan`.
    pub plan: Option<String>,
    /// Whether tokens may come with a proof that the sender has the key that they are bound to, as
    /// for `jwt`.
    pub dpop: Option<DpopConfig>,
    /// How long one question may take, from 1ms to 1m.
    #[schemars(extend("default" = "5s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// Where a token may stand beside `Authorization`, as for `jwt`: `query`, `subprotocol`.
    #[serde(default)]
    pub also_in: Vec<Spanned<TokenPlace>>,
    /// TLS for an `https` URL.
    pub tls: Option<Spanned<TlsConfig>>,
}

/// Logins at an OpenID provider (OpenID Connect Core 1.0): the code flow with PKCE (S256). A
/// browser that navigates without a session is sent to the provider and comes back with one; every
/// other request without one gets 401. The browser has a cookie with an identifier only
/// (`HttpOnly`, `SameSite=Lax`; `Secure` and `__Host-` unless `public_url` is of this machine).
/// Sessions are kept in the data folder, encrypted by what stands in the cookie: they survive
/// reloads and restarts.
///
/// With a session, requests that may change something (all but `GET`, `HEAD` and `OPTIONS`, and
/// WebSocket handshakes) must come from a page of `public_url`, by `Sec-Fetch-Site` or `Origin`;
/// others get 403. `scopes` are those that the provider has granted.
///
/// The pages under `callback`, `logout` and `backchannel_logout` are served on the address of each
/// flow and topic whose `auth` names the way. Nobody needs a credential for them, and no flow may
/// have their paths.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OidcConfig {
    /// The provider, as `iss` of its tokens has it. Its endpoints and keys are found by OpenID
    /// Connect Discovery 1.0.
    pub issuer: Spanned<String>,
    /// The client identifier at the provider.
    pub client_id: Spanned<String>,
    /// The client secret (`client_secret_basic`). Without this and `private_key` the client is a
    /// public one.
    pub client_secret: Option<Spanned<String>>,
    /// The key that the client signs a token with instead of sending a secret (`private_key_jwt`,
    /// RFC 7523). The token is for the issuer, unless `audience` says otherwise.
    pub private_key: Option<Spanned<PrivateKeyConfig>>,
    /// Where browsers reach the engine, such as `https://shop.example`: scheme, host and port.
    /// `http` only for `localhost` and loopback addresses.
    pub public_url: Spanned<String>,
    /// The path to which the provider sends browsers back. With `public_url` before it, it is the
    /// redirect URI to register there.
    #[schemars(extend("default" = "/login/callback"))]
    pub callback: Option<Spanned<String>>,
    /// The path that ends the session of a browser, here and at the provider (OpenID Connect
    /// RP-Initiated Logout 1.0). By default there is none.
    pub logout: Option<Spanned<String>>,
    /// The path to return to after `logout`, which a flow must serve to everybody. With
    /// `public_url` before it, it is the post logout redirect URI to register at the provider.
    /// Without it the provider shows a page of its own.
    pub signed_out: Option<Spanned<String>>,
    /// The path where the provider reports ended sessions (OpenID Connect Back-Channel Logout 1.0).
    /// By default there is none.
    pub backchannel_logout: Option<Spanned<String>>,
    /// What is asked for: names separated by spaces, `openid` among them. Many providers give a
    /// refresh token for `offline_access` only.
    #[schemars(extend("default" = "openid"))]
    pub scope: Option<Spanned<String>>,
    /// How long a session may stand still, from 1m to 90d.
    #[schemars(extend("default" = "1h"))]
    pub idle: Option<Spanned<config::Duration>>,
    /// How long a session lasts at the most, from 1m to 365d.
    #[schemars(extend("default" = "12h"))]
    pub lifetime: Option<Spanned<config::Duration>>,
    /// The claim that says who calls: `$auth.id`. Who has none is not logged in.
    #[schemars(extend("default" = "sub"))]
    pub id: Option<String>,
    /// The claim that names the caller's plan: `$auth.plan`.
    pub plan: Option<String>,
    /// The token endpoint, where it is at another host than the issuer.
    pub token_url: Option<Spanned<String>>,
    /// The URL of the keys, where they are at another host than the issuer.
    pub jwks: Option<Spanned<String>>,
    /// Another host than the issuer's on which the keys may be that its description names: scheme
    /// and host, such as `https://www.googleapis.com` for `https://accounts.google.com`. In place
    /// of `jwks`.
    pub jwks_origin: Option<Spanned<String>>,
    /// How long one request to the provider may take, from 1ms to 1m.
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

/// Certificates of clients. Without `subject`, `dns`, `uri`, `email` and `fingerprint` everybody
/// comes in who has a certificate of the listener's `client_ca`; with some of them those that match
/// one. A certificate that has expired is refused, also on a connection that is open.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MtlsConfig {
    /// Subjects as RFC 4514 writes them, such as `CN=shop,O=Example`, or common names: a text
    /// without `=`.
    pub subject: Option<Spanned<Texts>>,
    /// DNS names of the certificate; `*.example.com` is every name with one label more.
    pub dns: Option<Spanned<Texts>>,
    /// URIs of the certificate, such as SPIFFE IDs; with `/*` at the end, all below.
    pub uri: Option<Spanned<Texts>>,
    /// Mail addresses of the certificate.
    pub email: Option<Spanned<Texts>>,
    /// SHA-256 hashes of certificates: 64 hexadecimal digits, with or without colons.
    pub fingerprint: Option<Spanned<Texts>>,
    /// Issuers as RFC 4514 writes them: the certificate must be of one of these, too.
    pub issuer: Option<Spanned<Texts>>,
    /// What of a certificate says who calls: `$auth.id`. A certificate without it is refused. The
    /// default is the first URI, else the first DNS name, else the common name, else the
    /// fingerprint.
    pub id: Option<CertificateId>,
}

/// What of a certificate says who calls.
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

/// A service that decides. It is told the method, host, path, query, protocol and client
/// (`X-Forwarded-Method`, `-Host`, `-Uri`, `-Proto`, `-For`, and `X-Original-Method`, `-URI`,
/// `-URL`) and the fields under `headers`, not the body. A status of 2xx lets the request in; 401
/// and 403 are passed on with `WWW-Authenticate` and the body; everything else is answered with
/// 503.
///
/// It takes every request, with or without a credential, so it is the last under `any`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskConfig {
    /// The URL that is asked, the same for every request.
    pub url: Spanned<String>,
    /// The method of the question: `GET`, `HEAD` or `POST`, without a body.
    #[schemars(extend("default" = "GET"))]
    pub method: Option<Spanned<String>>,
    /// The fields of the request that the service sees.
    #[schemars(extend("default" = ["Authorization", "Cookie"]))]
    pub headers: Option<Vec<Spanned<String>>>,
    /// The fields of its answer that say who calls, the first that is there: `$auth.id`, empty
    /// without one.
    #[schemars(extend("default" = ["X-Auth-Request-User", "Remote-User"]))]
    pub id: Option<Vec<Spanned<String>>>,
    /// The field of its answer that lists what the caller may do, with spaces or commas between:
    /// `$auth.scopes`.
    pub scopes: Option<Spanned<String>>,
    /// Fields of its answer that are kept as `$auth.claims`, by their names in lower case.
    #[serde(default)]
    pub claims: Vec<Spanned<String>>,
    /// Whether 302, 303, 307 and 308 are passed on with `Location`, for logins of browsers.
    #[serde(default)]
    pub redirect: bool,
    /// How long one question may take, from 1ms to 1m.
    #[schemars(extend("default" = "5s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// How long an answer holds for requests about which the service would be told the same, up to
    /// 1h; `0s` asks each time. A refusal is kept 5s at most.
    #[schemars(extend("default" = "10s"))]
    pub cache: Option<Spanned<config::Duration>>,
    /// What happens when the service cannot be asked, or gives no answer that is one: `closed`
    /// refuses with 503, `open` lets everybody in, with an empty `$auth.id`.
    #[serde(default)]
    pub fail: Fail,
    /// TLS for an `https` URL.
    pub tls: Option<Spanned<TlsConfig>>,
}

/// What happens to requests when nobody can decide.
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
        "description": "The ways to know a caller, by name. `auth:` of flows, topics and listeners \
                        uses them, and the admin port.",
        "additionalProperties": config::schema_for::<WayConfig>()
    })
}

/// The schema of the value under `auth`.
pub(crate) fn auth_schema() -> Json {
    let mapping = config::schema_for::<AuthConfig>();
    json!({
        "description": "Who may come in: the name of a way under `engine.auth`, `none` for \
                        everybody, \
                        or a mapping.",
        "anyOf": [{ "type": "string" }, mapping]
    })
}
