//! The keys of an issuer, fetched again and again: by a source, and out of turn for a token whose
//! key is not known.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::jwt::{Algorithm, Fetch, Key, KeySet, KeySource, Lookup, Snapshot, Times, Waiter};
use access::oidc::Description;
use component::handler::{LocalFuture, Services, within};
use component::state::{Measure, State, StateKey, States};
use component::upstream::UpstreamPlan;
use config::{Report, Spanned};
use message::{Body, Headers, Method, Reply};
use serde_json::Value as Json;
use steps::FixedUrl;
use tokio::sync::watch;

use crate::codes::BAD_WAY;
use crate::revocation::Revocations;
use crate::source::Periodic;

/// The most bytes of an answer: twice what a set of keys may have, for blanks.
const ANSWER_MAX: u64 = 2 * access::jwt::KEY_SET_MAX as u64;
/// How long a request waits for a fetch at most.
const WAIT: Duration = Duration::from_secs(12);

/// The keys of one issuer in this process, whatever plan is served.
pub(crate) struct IssuerKeys {
    machine: Mutex<KeySource>,
    /// What the issuer says about itself, where it was asked and has endpoints for logins.
    description: Mutex<Option<Arc<Description>>>,
    /// Changes when a fetch ends.
    ended: watch::Sender<()>,
    counts: Mutex<Counts>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    fetched: u64,
    failed: u64,
}

/// What of an issuer is fetched, and where.
pub(crate) enum KeysLocation {
    /// The keys at this URL; the issuer's description is not asked for.
    Jwks(FixedUrl),
    /// The issuer's description (OpenID Connect Discovery 1.0, section 4), which has to name this
    /// issuer, and the keys.
    Discovery {
        description: FixedUrl,
        issuer: String,
        keys: DescribedKeys,
    },
}

/// Where the keys of an issuer are that describes itself.
pub(crate) enum DescribedKeys {
    /// Where the description says, on the host of the issuer.
    Own,
    /// Where the description says, on the host of the issuer or on this one.
    OnOrigin(KeysOrigin),
    /// At this URL, whatever the description says.
    At(FixedUrl),
}

impl DescribedKeys {
    /// The URL of the keys, by the description of an issuer, which was found at `own`.
    fn url(&self, description: &Reply, issuer: &str, own: &FixedUrl) -> Result<FixedUrl, String> {
        let other = match self {
            Self::Own => None,
            Self::OnOrigin(other) => Some(other),
            Self::At(url) => return Ok(url.clone()),
        };
        let uri = keys_uri(description, issuer, other.map(|it| &*it.origin))?;
        let host = other.filter(|_| uri.is_elsewhere);
        let host = host.map_or(own, |it| &it.url);
        Ok(host.at(&uri.path, uri.query))
    }
}

/// Another host on which an issuer may have its keys.
pub(crate) struct KeysOrigin {
    /// Scheme and authority, as the file has them.
    origin: String,
    /// The system there.
    url: FixedUrl,
}

impl KeysOrigin {
    /// Reads `jwks_origin`; `url` reads a URL. Every problem is reported.
    pub fn read(
        origin: &Spanned<String>,
        url: impl FnOnce(&Spanned<String>, &mut Report) -> Option<FixedUrl>,
        report: &mut Report,
    ) -> Option<Self> {
        let bare = origin.value.trim_end_matches('/');
        let (_, host) = bare.split_once("://").unwrap_or_default();
        if host.is_empty() || host.contains(['/', '?', '#']) {
            let message = format!("`{}` is no scheme and host", origin.value.escape_debug());
            report
                .error(BAD_WAY, origin.span, message)
                .hint("write `https://HOST`");
            return None;
        }
        let root = Spanned {
            value: format!("{bare}/"),
            span: origin.span,
        };
        Some(Self {
            origin: bare.to_owned(),
            url: url(&root, report)?,
        })
    }
}

/// The URL at which an issuer describes itself.
pub(crate) fn description_url(issuer: &Spanned<String>) -> Spanned<String> {
    let base = issuer.value.trim_end_matches('/');
    Spanned {
        value: format!("{base}/.well-known/openid-configuration"),
        span: issuer.span,
    }
}

impl KeysLocation {
    /// The system that is asked first.
    pub fn url(&self) -> &FixedUrl {
        match self {
            Self::Jwks(url)
            | Self::Discovery {
                description: url, ..
            } => url,
        }
    }

    /// The other system that may have the keys.
    fn keys_url(&self) -> Option<&FixedUrl> {
        match self {
            Self::Discovery { keys, .. } => match keys {
                DescribedKeys::Own => None,
                DescribedKeys::OnOrigin(other) => Some(&other.url),
                DescribedKeys::At(url) => Some(url),
            },
            Self::Jwks(_) => None,
        }
    }

    /// The keys in this process: all that they depend on tells them from others.
    fn state_key(&self, name: &str, rsa: Algorithm) -> StateKey {
        let (kind, issuer) = match self {
            Self::Jwks(_) => ("jwks", None),
            Self::Discovery { issuer, .. } => ("discovery", Some(issuer)),
        };
        let (url, keys_url) = (self.url(), self.keys_url());
        StateKey {
            settings: format!("{url:?} {issuer:?} {rsa:?} {keys_url:?}"),
            ..StateKey::shared(name, kind)
        }
    }
}

/// What fetches the keys of an issuer.
pub(crate) struct Fetcher {
    /// The way's name, for logs.
    pub name: Arc<str>,
    pub keys: Arc<IssuerKeys>,
    pub location: KeysLocation,
    /// The algorithm of RSA keys that name none.
    rsa: Algorithm,
    /// Streams end when the issuer withdraws the key that has signed their token.
    revocations: Arc<Revocations>,
}

impl Default for IssuerKeys {
    fn default() -> Self {
        Self {
            machine: Mutex::new(KeySource::new(Times::default())),
            description: Mutex::default(),
            ended: watch::Sender::new(()),
            counts: Mutex::default(),
        }
    }
}

impl IssuerKeys {
    fn machine(&self) -> MutexGuard<'_, KeySource> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self, description: Option<Description>) {
        let inner = self.description.lock();
        *inner.unwrap_or_else(PoisonError::into_inner) = description.map(Arc::new);
    }

    /// The endpoints of the issuer, unless they are not known, or are not all there.
    pub fn description(&self) -> Option<Arc<Description>> {
        let inner = self.description.lock();
        inner.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys, unless there are none.
    pub fn current(&self, now: Instant) -> Option<Snapshot> {
        self.machine().keys(now)
    }

    /// The generation of the keys, unless there are none.
    pub fn generation(&self, now: Instant) -> Option<u64> {
        self.machine().generation(now)
    }

    /// Whether the issuer has published keys without this one.
    pub fn has_withdrawn(&self, key: &Key) -> bool {
        self.machine().has_withdrawn(key)
    }
}

impl State for IssuerKeys {
    fn measures(&self, now: Instant) -> Vec<Measure> {
        let Counts { fetched, failed } = *self.counts();
        let keys = self.current(now).map_or(0, |it| it.keys().keys().len());
        let measure = |name, help, value| Measure { name, help, value };
        vec![
            measure(
                "auth_key_fetches_total",
                "Fetches of an issuer's keys that brought keys.",
                fetched as f64,
            ),
            measure(
                "auth_key_fetches_failed_total",
                "Fetches of an issuer's keys that failed.",
                failed as f64,
            ),
            measure(
                "auth_keys",
                "Keys of the issuer that are known.",
                keys as f64,
            ),
        ]
    }
}

/// One that waits for a fetch, for as long as this lives.
struct Waiting<'a>(&'a IssuerKeys, Waiter);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.machine().leave(&self.1);
    }
}

impl Fetcher {
    /// One for the way of this name.
    pub fn new(name: &Arc<str>, location: KeysLocation, rsa: Algorithm, states: &States) -> Self {
        let key = location.state_key(name, rsa);
        Self {
            name: Arc::clone(name),
            keys: states.get(key, IssuerKeys::default),
            location,
            rsa,
            revocations: Revocations::of(states),
        }
    }

    /// The systems that it asks.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<UpstreamPlan>> {
        let urls = std::iter::once(self.location.url()).chain(self.location.keys_url());
        urls.map(FixedUrl::upstream)
    }

    /// Waits for other keys than those of this generation, if it makes sense to. Whether there may
    /// be others now.
    pub async fn newer(self: &Arc<Self>, seen: Option<u64>, services: &dyn Services) -> bool {
        loop {
            let mut ended = self.keys.ended.subscribe();
            let lookup = self.keys.machine().unknown_key(seen, services.now());
            match lookup {
                Lookup::Retry => return true,
                Lookup::Refuse => return false,
                Lookup::Wait(waiter) => {
                    let _waiting = Waiting(&self.keys, waiter);
                    let ended = within(WAIT, services, ended.changed()).await;
                    return ended.is_some();
                }
                // Not in this request's time: it may be given up.
                Lookup::Fetch(fetch) => {
                    let fetcher = Arc::clone(self);
                    services.spawn(Box::new(move |services| {
                        Box::pin(async move { fetcher.fetch(&fetch, services).await })
                    }));
                }
            }
        }
    }

    /// Fetches the keys.
    async fn fetch(&self, fetch: &Fetch, services: &dyn Services) {
        let fetched = self.ask(services).await;
        let now = services.now();
        let name = &self.name;
        let taken = match fetched {
            Ok(keys) => {
                let count = keys.keys().len();
                let before = self.keys.machine().last_generation();
                let taken = self.keys.machine().fetched(fetch, now, keys);
                if self.keys.machine().last_generation() != before {
                    self.revocations.sweep();
                }
                if !taken {
                    tracing::warn!(
                        target: "auth", way = %name, count,
                        "the issuer's keys came too late, or none can be used"
                    );
                }
                taken
            }
            Err(problem) => {
                tracing::warn!(
                    target: "auth", way = %name, problem, "the issuer's keys could not be fetched"
                );
                self.keys.machine().failed(fetch, now);
                false
            }
        };
        {
            let mut counts = self.keys.counts();
            match taken {
                true => counts.fetched += 1,
                false => counts.failed += 1,
            }
        }
        self.keys.ended.send_replace(());
    }

    /// Keeps the endpoints of the issuer. One that only signs tokens has none.
    fn describe(&self, reply: &Reply, issuer: &str) {
        let description = Description::parse(reply.body.as_bytes(), issuer);
        if let Err(problem) = &description {
            tracing::debug!(
                target: "auth", way = %self.name, ?problem, "the issuer has no endpoints for logins"
            );
        }
        self.keys.describe(description.ok());
    }

    async fn ask(&self, services: &dyn Services) -> Result<KeySet, String> {
        let found;
        let url = match &self.location {
            KeysLocation::Jwks(url) => url,
            KeysLocation::Discovery {
                description,
                issuer,
                keys,
            } => {
                let reply = get(description, services).await?;
                found = keys.url(&reply, issuer, description)?;
                self.describe(&reply, issuer);
                &found
            }
        };
        let reply = get(url, services).await?;
        let (keys, ignored) = KeySet::parse(reply.body.as_bytes(), self.rsa)
            .map_err(|_| "the answer is no set of keys (RFC 7517)".to_owned())?;
        for (id, problem) in ignored {
            let id = id.unwrap_or_default();
            tracing::debug!(
                target: "auth", way = %self.name, kid = %id.escape_debug(),
                problem = problem.explanation(), "a key of the issuer is ignored"
            );
        }
        Ok(keys)
    }
}

/// Fetches the keys at their regular times.
impl Periodic for Arc<Fetcher> {
    fn turn<'a>(&'a self, _: bool, services: &'a dyn Services) -> LocalFuture<'a, Option<Instant>> {
        Box::pin(async move {
            let due = self.keys.machine().poll(services.now());
            if let Some(fetch) = due {
                self.fetch(&fetch, services).await;
            }
            let next = self.keys.machine().next();
            Some(next.unwrap_or_else(|| services.now()))
        })
    }
}

async fn get(url: &FixedUrl, services: &dyn Services) -> Result<Reply, String> {
    let mut headers = Headers::new();
    headers.append("Accept", "application/json");
    let reply = url.ask(Method::Get, headers, Body::Empty, ANSWER_MAX, services);
    let reply = reply.await.map_err(|fault| fault.to_string())?;
    match reply.status {
        200 => Ok(reply),
        status => Err(format!("{} answered with status {status}", url.path())),
    }
}

/// Where an issuer says that its keys are.
#[derive(Debug, PartialEq, Eq)]
struct KeysUri {
    path: String,
    query: Option<String>,
    /// Whether they are on the other host.
    is_elsewhere: bool,
}

/// Where the keys are, by the issuer's description: on its own host or this other one.
fn keys_uri(reply: &Reply, issuer: &str, elsewhere: Option<&str>) -> Result<KeysUri, String> {
    let description: Json = serde_json::from_slice(reply.body.as_bytes())
        .map_err(|_| "the issuer's description is no JSON".to_owned())?;
    let text = |name: &str| description.get(name).and_then(Json::as_str);
    // Or one issuer could speak for another (section 4.3).
    if text("issuer") != Some(issuer) {
        return Err("the description is another issuer's".to_owned());
    }
    let uri = text("jwks_uri").ok_or("the description has no `jwks_uri`")?;
    let other = || {
        format!(
            "the keys are at another host, `{}`: allow it by `jwks_origin`",
            uri.escape_debug()
        )
    };
    let own = same_origin(uri, issuer);
    let is_elsewhere = own.is_none();
    let path = own.or_else(|| same_origin(uri, elsewhere?));
    let path = path.ok_or_else(other)?;
    let path = path.split('#').next().unwrap_or_default();
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (path, None),
    };
    Ok(KeysUri {
        path: path.to_owned(),
        query,
        is_elsewhere,
    })
}

/// What stands behind scheme and authority of a URL, when they are the other's.
pub(crate) fn same_origin<'a>(url: &'a str, other: &str) -> Option<&'a str> {
    let origin = |url: &str| -> Option<usize> {
        let start = url.find("://")? + 3;
        let end = url.get(start..)?.find('/').map(|at| start + at);
        Some(end.unwrap_or(url.len()))
    };
    let (own, others) = (origin(url)?, origin(other)?);
    let is_same = url.get(..own)?.eq_ignore_ascii_case(other.get(..others)?);
    let path = url.get(own..)?;
    (is_same && path.starts_with('/')).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(body: &str) -> Result<(String, Option<String>), String> {
        let uri = uri(body, None)?;
        assert!(!uri.is_elsewhere);
        Ok((uri.path, uri.query))
    }

    fn uri(body: &str, elsewhere: Option<&str>) -> Result<KeysUri, String> {
        let reply = Reply::with_content(200, "application/json", body.as_bytes().to_vec());
        keys_uri(&reply, "https://id.example/realm", elsewhere)
    }

    #[test]
    fn keys_may_be_on_one_other_host_that_the_file_names() {
        let found = |at: &str| {
            let issuer = "https://id.example/realm";
            let body = format!(r#"{{"issuer":"{issuer}","jwks_uri":"{at}"}}"#);
            uri(&body, Some("https://keys.example"))
        };
        let elsewhere = found("https://keys.example/k").unwrap();
        assert!(elsewhere.is_elsewhere && elsewhere.path == "/k");
        assert!(!found("https://id.example/k").unwrap().is_elsewhere);
        for other in [
            "http://keys.example/k",
            "https://keys.example:444/k",
            "https://keys.example.evil/k",
            "https://evil/k",
        ] {
            assert!(found(other).is_err(), "{other}");
        }
    }

    #[test]
    fn keys_are_where_the_issuer_says_on_its_own_host() {
        let found = |uri: &str| {
            path(&format!(
                r#"{{"issuer":"https://id.example/realm","jwks_uri":"{uri}"}}"#
            ))
        };
        assert_eq!(found("https://id.example/k"), Ok(("/k".to_owned(), None)));
        let query = Some("a=1".to_owned());
        assert_eq!(
            found("HTTPS://ID.example/k?a=1#x"),
            Ok(("/k".to_owned(), query))
        );
        for other in [
            "https://keys.example/k",
            "http://id.example/k",
            "https://id.example:8443/k",
            "https://id.example.evil.example/k",
            "https://id.example@evil.example/k",
            "/k",
        ] {
            assert!(
                found(other).unwrap_err().contains("another host"),
                "{other}"
            );
        }
        let stranger = r#"{"issuer":"https://id.example/","jwks_uri":"https://id.example/k"}"#;
        assert!(path(stranger).unwrap_err().contains("another issuer"));
        assert!(path("[]").is_err() && path("{").is_err());
    }
}
