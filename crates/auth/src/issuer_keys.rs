//! The keys of an issuer, fetched again and again: by a source, and out of turn for a token whose
//! key is not known.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::jwt::{Algorithm, Fetch, KeySet, KeySource, Lookup, Snapshot, Times, Waiter};
use access::oidc::Description;
use component::handler::{LocalFuture, Services, within};
use component::source::{Source, Started};
use component::state::{Measure, State};
use message::{Body, Headers, Method, Reply};
use serde_json::Value as Json;
use steps::FixedUrl;
use tokio::sync::watch;

use crate::source::wait_until;

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

/// Where the keys of an issuer are.
pub(crate) enum Place {
    /// At this URL.
    Jwks(FixedUrl),
    /// Where the issuer's own description says (OpenID Connect Discovery 1.0, section 4), which
    /// has to name this issuer.
    Discovery(FixedUrl, String),
    /// At the second URL, with the description at the first one.
    DescribedJwks(FixedUrl, String, FixedUrl),
}

impl Place {
    /// The system that is asked.
    pub fn url(&self) -> &FixedUrl {
        match self {
            Self::Jwks(url) | Self::Discovery(url, _) | Self::DescribedJwks(url, ..) => url,
        }
    }
}

impl Place {
    /// Another system that has the keys, where it is another one.
    pub fn keys_url(&self) -> Option<&FixedUrl> {
        match self {
            Self::DescribedJwks(_, _, url) => Some(url),
            Self::Jwks(_) | Self::Discovery(..) => None,
        }
    }
}

/// What fetches the keys of an issuer.
pub(crate) struct Fetcher {
    /// The way's name, for logs.
    pub name: Arc<str>,
    pub keys: Arc<IssuerKeys>,
    pub place: Place,
    /// What RSA keys are used with that name no algorithm.
    pub rsa: Algorithm,
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
                let taken = self.keys.machine().fetched(fetch, now, keys);
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
        let url = match &self.place {
            Place::Jwks(url) => url,
            Place::Discovery(url, issuer) => {
                let reply = get(url, services).await?;
                let (path, query) = keys_path(&reply, issuer)?;
                self.describe(&reply, issuer);
                found = url.at(&path, query);
                &found
            }
            Place::DescribedJwks(url, issuer, jwks) => {
                let reply = get(url, services).await?;
                self.describe(&reply, issuer);
                jwks
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

/// Path and query of the keys, by the issuer's description.
fn keys_path(reply: &Reply, issuer: &str) -> Result<(String, Option<String>), String> {
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
            "the keys are at another host: write `jwks: {}`",
            uri.escape_debug()
        )
    };
    let path = same_origin(uri, issuer).ok_or_else(other)?;
    let path = path.split('#').next().unwrap_or_default();
    Ok(match path.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (path.to_owned(), None),
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

/// Fetches the keys at their regular times.
pub(crate) struct Refresh(pub Arc<Fetcher>);

impl Source for Refresh {
    fn run<'a>(
        &'a self,
        _: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let keys = &self.0.keys;
            loop {
                let due = keys.machine().poll(services.now());
                if let Some(fetch) = due {
                    self.0.fetch(&fetch, services).await;
                }
                let next = keys.machine().next().unwrap_or_else(|| services.now());
                if !wait_until(next, &mut stop, services).await {
                    return;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(body: &str) -> Result<(String, Option<String>), String> {
        let reply = Reply::with_content(200, "application/json", body.as_bytes().to_vec());
        keys_path(&reply, "https://id.example/realm")
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
