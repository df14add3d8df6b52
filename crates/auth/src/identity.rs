//! `engine.identity`: tells systems behind flows who a caller is, by a signed token in a header,
//! and serves the keys that verify it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::jwt::{PublishedKey, key_set_text};
use component::access::{AccessNodes, AccessPage, Caller};
use component::definition::Surroundings;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::identity::{Identities, Identity, IdentityField, SignedToken};
use component::text::parse_authority;
use component::trigger::{ListenAddress, Methods};
use config::{Report, Span, Spanned};
use message::{Fault, Field, Headers, Kind, Method, Origin, Reply, Request};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::codes::BAD_IDENTITY;
use crate::identity_keys::IdentityKeys;
use crate::page_path;

/// The header when the file names none.
const HEADER: &str = "X-Intertie-Identity";
/// The issuer when the file names none.
const ISSUER: &str = "intertie";
/// The path of the keys when the file names none.
const PATH: &str = "/.well-known/intertie/jwks.json";
/// The most keys of the file.
const KEYS_MAX: usize = 4;
/// The most bytes of a token: many systems take 8 KiB of header fields in all.
const TOKEN_MAX: usize = 4096;
/// The most tokens of a generation that are remembered for one audience: twice as many in all.
const SIGNED_MAX: usize = 5_000;
/// How long the keys may be kept by whoever has fetched them, in seconds: far less than a key is
/// published before it signs.
const KEYS_MAX_AGE: u64 = 300;
/// How long a token is good when the file does not say so, in seconds.
const LIFE: u64 = 60;
/// How long a token is good at least, in seconds: also when its credential expires before, as in
/// the middle of a flow that has let its caller in.
const LIFE_MIN: u64 = 5;

/// Sends the caller's identity to back ends: `identity: true` next to the target of `forward` adds
/// a header with a token (JWT) that the engine signs. The header is removed from all client
/// requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdentityConfig {
    /// The name of the header.
    #[schemars(extend("default" = HEADER))]
    header: Option<Spanned<String>>,
    /// The issuer of the tokens (`iss`).
    #[schemars(extend("default" = ISSUER))]
    issuer: Option<Spanned<String>>,
    /// The audience of the tokens (`aud`), unless `forward` sets one.
    audience: Option<Spanned<String>>,
    /// The members of `$auth.claims` to include in the tokens under `claims`. By default none.
    #[serde(default)]
    claims: Vec<Spanned<String>>,
    /// The validity of a token, from 10s to 10m; not longer than the credential, plus 5 seconds.
    #[schemars(extend("default" = "1m"))]
    life: Option<Spanned<config::Duration>>,
    /// Files with private keys in PEM format, relative to the flow file's folder: P-256 (ES256) or
    /// Ed25519 (EdDSA), 1 to 4. The first one signs, all are published. By default the engine
    /// generates ES256 keys, keeps them in the data folder and rotates them every 30 days.
    keys: Option<Spanned<Vec<Spanned<String>>>>,
    /// Where the public keys are served (JWK Set, RFC 7517).
    jwks: Option<JwksConfig>,
}

/// Where the public keys are served.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct JwksConfig {
    /// The address, such as `10.0.0.5:8090` or `:8090`. The default is every address with a flow
    /// that has `auth`. TLS is that of the flows on the address; without any there is none.
    listen: Option<Spanned<String>>,
    /// The path. It needs no credential.
    #[schemars(extend("default" = PATH))]
    path: Option<Spanned<String>>,
}

/// The schema of the value under `engine.identity`.
pub(crate) fn schema() -> Json {
    let mut schema = config::schema_for::<IdentityConfig>();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("title");
    }
    schema
}

/// What the tokens of all audiences have in common.
struct Core {
    field: Arc<IdentityField>,
    issuer: String,
    claims: Vec<String>,
    /// In seconds.
    life: u64,
    keys: Keys,
    /// Those of the process: they count what is signed, too.
    generated: Arc<IdentityKeys>,
}

/// What signs.
enum Keys {
    /// The keys of the process.
    Generated,
    /// Those of the file, the first of which signs.
    Named(Vec<PublishedKey>),
}

/// Makes what signs tokens for steps.
pub(crate) struct IdentityIssuer {
    core: Arc<Core>,
    audience: Option<Arc<str>>,
    /// One for each audience, so that flows share tokens.
    signers: Mutex<Vec<Arc<Signer>>>,
    listen: Option<ListenAddress>,
    path: String,
    span: Span,
}

impl IdentityIssuer {
    /// Reads `engine.identity`. Every problem is reported.
    pub fn read(
        nodes: AccessNodes<'_>,
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let node = nodes.identity?;
        let before = report.errors();
        let config: IdentityConfig = config::decode(node, report)?;
        if nodes.ways.is_none() {
            let message = "`identity` has no effect without `auth`: no callers are known";
            report
                .error(BAD_IDENTITY, node.span, message)
                .hint("leave it out, or describe ways to know a caller under `engine.auth`");
        }
        let life = read_life(config.life.as_ref(), report);
        let texts = [config.issuer.as_ref(), config.audience.as_ref()];
        for text in texts.into_iter().flatten().chain(&config.claims) {
            check_text(text, report);
        }
        let text = |text: &Option<Spanned<String>>, default: &str| {
            let own = text.as_ref().map(|it| it.value.as_str());
            own.unwrap_or(default).to_owned()
        };
        let jwks = config.jwks.unwrap_or_default();
        if let Some(path) = &jwks.path {
            page_path::check(path, BAD_IDENTITY, report);
        }
        let listen = read_listen(jwks.listen.as_ref(), report);
        let field = read_header(config.header.as_ref(), report);
        let keys = match &config.keys {
            None => Keys::Generated,
            Some(files) => Keys::Named(read_keys(files, surroundings, report)),
        };
        if report.errors() > before {
            return None;
        }
        let generated = IdentityKeys::of(surroundings.states);
        if matches!(keys, Keys::Generated) {
            generated.need();
        }
        Some(Self {
            core: Arc::new(Core {
                field: Arc::new(field),
                issuer: text(&config.issuer, ISSUER),
                claims: config.claims.into_iter().map(|it| it.value).collect(),
                life,
                keys,
                generated,
            }),
            audience: config.audience.map(|it| it.value.into()),
            signers: Mutex::default(),
            listen,
            path: text(&jwks.path, PATH),
            span: node.span,
        })
    }
}

fn check_text(text: &Spanned<String>, report: &mut Report) {
    if text.value.is_empty() || text.value.contains(char::is_control) {
        let message = "this is empty or has a control character";
        report.error(BAD_IDENTITY, text.span, message);
    }
}

/// How long a token is good, in seconds.
fn read_life(life: Option<&Spanned<config::Duration>>, report: &mut Report) -> u64 {
    let Some(life) = life else {
        return LIFE;
    };
    let range = Duration::from_secs(10)..=Duration::from_secs(600);
    if !range.contains(&life.value.0) {
        let message = "`life` is not from 10s to 10m";
        report
            .error(BAD_IDENTITY, life.span, message)
            .hint("tokens are for one request: whoever gets one could show it to somebody else");
    }
    life.value.0.as_secs()
}

fn read_listen(listen: Option<&Spanned<String>>, report: &mut Report) -> Option<ListenAddress> {
    let listen = listen?;
    if let Ok((host, Some(port))) = parse_authority(&listen.value) {
        return Some(ListenAddress { host, port });
    }
    let message = format!(
        "`{}` is no address to listen on",
        listen.value.escape_debug()
    );
    report
        .error(BAD_IDENTITY, listen.span, message)
        .hint("write `host:port`, or `:port` for all interfaces");
    None
}

/// The header: one that means nothing else.
fn read_header(header: Option<&Spanned<String>>, report: &mut Report) -> IdentityField {
    let Some(header) = header else {
        return IdentityField::new(HEADER);
    };
    let name = &header.value;
    let field = IdentityField::new(name);
    let is_of_websocket = name.to_ascii_lowercase().starts_with("sec-");
    let is_known = is_of_websocket
        || Field::of(name.as_bytes()) != Field::Other
        || TAKEN.iter().any(|it| field.is(it.as_bytes()));
    if !Headers::is_name(name) || is_known {
        let message = format!("`{}` cannot be the identity header", name.escape_debug());
        report
            .error(BAD_IDENTITY, header.span, message)
            .hint("a name that no other header has, such as `X-Intertie-Identity`");
    }
    field
}

/// Headers that systems need for something else: removing them from all requests would break these.
const TAKEN: [&str; 11] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "cookie",
    "dpop",
    "if-match",
    "if-none-match",
    "origin",
    "range",
    "user-agent",
];

/// The keys of the files, each once.
fn read_keys(
    files: &Spanned<Vec<Spanned<String>>>,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Vec<PublishedKey> {
    let count = files.value.len();
    if count == 0 || count > KEYS_MAX {
        let message = format!("`keys` names {count} files, not 1 to {KEYS_MAX}");
        report
            .error(BAD_IDENTITY, files.span, message)
            .hint("the first one signs; leave `keys` out for keys that the engine makes itself");
    }
    let mut keys: Vec<PublishedKey> = Vec::new();
    for file in &files.value {
        let bytes = (surroundings.files)(file.span.source, &file.value);
        let key = bytes.and_then(|bytes| {
            PublishedKey::from_pem(&bytes).map_err(|problem| problem.to_string())
        });
        let shown = file.value.escape_debug();
        match key {
            Ok(key) if keys.iter().any(|it| it.id() == key.id()) => {
                let message = format!("`{shown}` has the same key as a file before it");
                report.error(BAD_IDENTITY, file.span, message);
            }
            Ok(key) => keys.push(key),
            Err(problem) => {
                let message = format!("`{shown}` cannot be used: {problem}");
                report
                    .error(BAD_IDENTITY, file.span, message)
                    .hint("a private key of P-256 (ES256) or Ed25519 (EdDSA) in PEM format");
            }
        }
    }
    keys
}

impl Identities for IdentityIssuer {
    fn field(&self) -> &Arc<IdentityField> {
        &self.core.field
    }

    fn for_audience(&self, audience: Option<&str>) -> Option<Arc<dyn Identity>> {
        let audience = audience.map(Into::into).or_else(|| self.audience.clone())?;
        let mut signers = self.signers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = signers.iter().find(|it| it.audience == audience) {
            return Some(Arc::clone(known) as _);
        }
        let signer = Arc::new(Signer {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            core: Arc::clone(&self.core),
            audience,
            signed: Mutex::default(),
        });
        signers.push(Arc::clone(&signer));
        Some(signer)
    }

    fn page(&self) -> (Option<ListenAddress>, AccessPage) {
        let page = AccessPage {
            way: "identity".into(),
            methods: Methods::Only(vec![Method::Get]),
            path: page_path::pattern(&self.path),
            handler: Arc::new(KeyPage(Arc::clone(&self.core))),
            body_max: 0,
            span: self.span,
        };
        (self.listen.clone(), page)
    }
}

/// What tells the tokens of one signer from those of all others of the process, of plans before a
/// reload too.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Signs tokens for one audience.
struct Signer {
    number: u64,
    core: Arc<Core>,
    audience: Arc<str>,
    /// The tokens that are still handed out, by all that they say but the time: some ways make a
    /// caller for each request.
    signed: Mutex<SignedTokens>,
}

/// Tokens in two generations: when the newer one is full, the older one is forgotten. Neither a
/// look-up nor an addition goes through all of them.
#[derive(Default)]
struct SignedTokens {
    newer: HashMap<String, SignedToken>,
    older: HashMap<String, SignedToken>,
}

impl SignedTokens {
    fn get(&self, key: &str, now: u64) -> Option<&SignedToken> {
        let mut found = [&self.newer, &self.older].into_iter();
        found.find_map(|it| {
            let token = it.get(key)?;
            (token.from..token.until).contains(&now).then_some(token)
        })
    }

    /// Adds a token; gives the generation that is forgotten, so that it can be dropped without the
    /// lock.
    fn put(&mut self, key: String, token: SignedToken) -> HashMap<String, SignedToken> {
        let forgotten = match self.newer.len() >= SIGNED_MAX {
            true => std::mem::replace(&mut self.older, std::mem::take(&mut self.newer)),
            false => HashMap::new(),
        };
        self.newer.insert(key, token);
        forgotten
    }
}

/// Without the keys.
impl fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "identity for {}", self.audience)
    }
}

impl Identity for Signer {
    fn field(&self) -> &IdentityField {
        &self.core.field
    }

    fn token(&self, caller: &Caller, now: u64) -> Result<Arc<str>, Fault> {
        caller.signed_token(self.number, now, || self.sign(caller, now))
    }
}

impl Signer {
    #[cold]
    fn sign(&self, caller: &Caller, now: u64) -> Result<SignedToken, Fault> {
        if caller.id.is_empty() {
            let detail = "the caller has no name that could be passed on";
            return Err(Fault::new(Kind::Forbidden, Origin::Client, detail));
        }
        let mut claims = self.claims(caller)?;
        let key = format!("{:?} {}", caller.expires, Json::Object(claims.clone()));
        if key.len() > TOKEN_MAX {
            return Err(too_large());
        }
        if let Some(known) = self.signed().get(&key, now) {
            return Ok(known.clone());
        }
        let most = now.saturating_add(self.core.life);
        let credential = caller
            .expires
            .map(|it| it.max(now.saturating_add(LIFE_MIN)));
        let expires = credential.map_or(most, |it| it.min(most));
        claims.insert("iat".to_owned(), now.into());
        claims.insert("exp".to_owned(), expires.into());
        let token = self.core.sign(&claims)?;
        if token.len() > TOKEN_MAX {
            return Err(too_large());
        }
        let signed = SignedToken {
            token: token.into(),
            from: now,
            // Most of its time is left to whoever gets it.
            until: now + (expires - now).div_ceil(4),
        };
        let forgotten = self.signed().put(key, signed.clone());
        drop(forgotten);
        Ok(signed)
    }

    fn signed(&self) -> MutexGuard<'_, SignedTokens> {
        self.signed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that a token says but the time.
    fn claims(&self, caller: &Caller) -> Result<Map<String, Json>, Fault> {
        let mut claims = Map::new();
        let mut add = |name: &str, value: Json| claims.insert(name.to_owned(), value);
        add("iss", self.core.issuer.as_str().into());
        add("aud", (*self.audience).into());
        add("sub", (*caller.id).into());
        add("way", (*caller.way).into());
        add("scopes", caller.scopes.clone().into());
        if let Some(plan) = &caller.plan {
            add("plan", (**plan).into());
        }
        if !self.core.claims.is_empty() {
            let mut chosen = Map::new();
            for name in &self.core.claims {
                if let Some(value) = expr::value::get(caller.claims(), name) {
                    chosen.insert(name.clone(), json(value)?);
                }
            }
            add("claims", chosen.into());
        }
        Ok(claims)
    }
}

/// A claim as JSON.
fn json(value: &expr::Value) -> Result<Json, Fault> {
    let mut text = Vec::new();
    expr::json::write(value, TOKEN_MAX, &mut text).map_err(|_| too_large())?;
    serde_json::from_slice(&text).map_err(|error| {
        let detail = "a claim of the caller cannot be passed on";
        Fault::new(Kind::Internal, Origin::Engine, detail).with_cause(error)
    })
}

fn too_large() -> Fault {
    let detail = "what is known of the caller does not fit into a header";
    Fault::new(Kind::Internal, Origin::Engine, detail)
        .with_cause("the token of the identity header would have more than 4 KiB")
}

impl Core {
    fn sign(&self, claims: &Map<String, Json>) -> Result<String, Fault> {
        let ring = self.generated.ring();
        let key = match &self.keys {
            Keys::Generated => ring.as_ref().map(|it| it.signing()),
            Keys::Named(keys) => keys.first(),
        };
        let token = key.and_then(|key| key.sign(claims));
        let token = token.ok_or_else(|| {
            let detail = "it cannot be said who the caller is";
            let cause = match key {
                None => "there is no key for the identity header",
                Some(_) => "the system has no random bytes to sign the identity header with",
            };
            Fault::new(Kind::Unavailable, Origin::Engine, detail).with_cause(cause)
        })?;
        self.generated.count_signed();
        Ok(token)
    }

    /// The public keys; `None` while there are none.
    fn key_set(&self, now: u64) -> Option<String> {
        match &self.keys {
            Keys::Generated => Some(self.generated.ring()?.key_set(now)),
            Keys::Named(keys) => Some(key_set_text(keys.iter().map(PublishedKey::jwk))),
        }
    }
}

/// Serves the public keys.
struct KeyPage(Arc<Core>);

impl Handler for KeyPage {
    fn reads_body(&self) -> bool {
        false
    }

    fn handle<'a>(
        &'a self,
        _: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        let keys = self.0.key_set(services.wall().as_secs());
        let reply = keys.map(|keys| {
            let mut reply = Reply::with_content(200, "application/jwk-set+json", keys.into_bytes());
            let age = format!("public, max-age={KEYS_MAX_AGE}");
            reply.headers.append("Cache-Control", age);
            Outcome::Reply(reply)
        });
        let missing = || {
            let detail = "there are no keys yet";
            Fault::new(Kind::Unavailable, Origin::Engine, detail)
        };
        Box::pin(std::future::ready(reply.ok_or_else(missing)))
    }
}

#[cfg(test)]
mod tests;
