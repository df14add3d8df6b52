//! Logins of people in browsers at an OpenID provider.
//!
//! [`provider`] is the provider as this client sees it, [`store`] the sessions, [`pages`] what is
//! served beside flows, [`reading`] makes a way of its settings.

mod pages;
mod provider;
mod reading;
mod replies;
mod store;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use access::oidc::browser::Fetch;
use access::oidc::{
    Expected, IdToken, LOGIN_SECONDS, Login, LogoutOf, Session, SessionKey, TokenAnswer,
    local_target, with_parameters,
};
use component::access::{AccessPage, Caller, RequestHead, Revocable, Validity};
use component::audit::Audit;
use component::handler::{LocalFuture, Services, within};
use component::source::{Source, SourcePlan, Started};
use component::upstream::UpstreamPlan;
use message::{Fault, HeadersView, Kind, Method, Origin, Reply, Request};
use steps::FixedUrl;

use crate::claims;
use crate::credential::Credential;
use crate::failed_checks::Guesses;
use crate::issuer_keys::Fetcher;
use crate::revocation::{CredentialIds, Revocations};
use crate::source::{self, Repeated, wait_until};
use crate::way::{Check, Checked, Properties, Rejection, Way};
use provider::{Failure, Provider};
use replies::{Cookies, no_store, redirect};
use store::{Disk, LiveSession, SessionStore, Times};

/// How long claims hold when the provider does not say how long its access token does.
const FRESH: u64 = 3600;
/// When a renewal is tried again that nobody has answered, and for how long the claims hold then.
const RETRY: u64 = 30;
/// How often sessions in the data folder are looked through for those that are over.
const SWEEP: Duration = Duration::from_secs(3600);

/// A way that logs browsers in.
pub(crate) struct OidcWay {
    core: Arc<Core>,
    properties: Properties,
    pages: Vec<AccessPage>,
}

/// What the way and its pages share.
struct Core {
    name: Arc<str>,
    provider: Provider,
    /// Scheme, host and port by which browsers reach the engine.
    origin: String,
    callback: String,
    signed_out: Option<String>,
    scope: String,
    /// The claims that make a caller.
    id: String,
    plan: Option<String>,
    idle: u64,
    lifetime: u64,
    cookies: Cookies,
    store: Arc<SessionStore>,
    disk: Disk,
    guesses: Arc<Guesses>,
    revocations: Arc<Revocations>,
    audit: Arc<Audit>,
}

/// A session as the credential of who has logged in.
struct SessionCredential {
    revocations: Arc<Revocations>,
    /// Of the callers in it, each of which has one of these.
    store: Weak<SessionStore>,
    key: SessionKey,
}

impl Revocable for SessionCredential {
    fn is_denied(&self, caller: &Caller, now: &dyn Fn() -> u64) -> bool {
        self.revocations
            .is_denied(|| CredentialIds::of_token(caller), now)
    }

    fn validity(&self, caller: &Caller) -> Arc<Validity> {
        let ids = (CredentialIds::of_token(caller), Some(self.key));
        let validity = self.revocations.watch(caller, ids, None);
        // Whoever ends the session removes it first: either that finds the validity, or this sees
        // that the session is gone.
        let store = self.store.upgrade();
        if !store.is_some_and(|it| it.has(&self.key)) {
            validity.revoke();
        }
        validity
    }
}

/// The fields by which a browser says where a request comes from.
fn fetch(headers: HeadersView<'_>) -> Fetch<'_> {
    Fetch {
        accept: headers.get("Accept"),
        mode: headers.get("Sec-Fetch-Mode"),
        site: headers.get("Sec-Fetch-Site"),
        destination: headers.get("Sec-Fetch-Dest"),
        origin: headers.get("Origin"),
        upgrade: headers.get("Upgrade"),
    }
}

impl Core {
    /// Sends a browser to the provider, with a new login in a cookie.
    async fn begin_login(
        &self,
        request: &Request,
        services: &dyn Services,
    ) -> Result<Reply, &'static str> {
        let description = self.provider.description(services).await?;
        let target = local_target(&request.path, request.query.as_deref());
        let login = Login::begin(target, services.wall().as_secs()).ok_or("no_randomness")?;
        let redirect_uri = self.redirect_uri();
        let url = with_parameters(
            &description.authorization,
            &[
                ("response_type", "code"),
                ("client_id", &self.provider.client_id),
                ("redirect_uri", &redirect_uri),
                ("scope", &self.scope),
                ("state", login.state()),
                ("nonce", login.nonce()),
                ("code_challenge", &login.challenge()),
                ("code_challenge_method", "S256"),
            ],
        );
        let sealed = login.seal(&self.store.sealer, &self.name);
        let sealed = sealed.ok_or("no_randomness")?;
        let mut reply = redirect(&url);
        self.cookies
            .bound_logins(request.headers.view(), &mut reply);
        let name = self.cookies.login(login.state());
        self.cookies.set(&name, &sealed, LOGIN_SECONDS, &mut reply);
        Ok(reply)
    }

    fn redirect_uri(&self) -> String {
        format!("{}{}", self.origin, self.callback)
    }

    /// Answers a request without a session: browsers that navigate are redirected to the login.
    async fn without_session(&self, head: RequestHead<'_>, services: &dyn Services) -> Checked {
        let Some(request) = head.message.filter(|it| is_navigation(it)) else {
            return Err(Rejection::Invalid("no_session"));
        };
        match self.begin_login(request, services).await {
            Ok(reply) => Err(Rejection::Answered("login", Box::new(reply))),
            Err(problem) => Err(Rejection::Unavailable(problem)),
        }
    }

    /// Admits a request of a session. One that may change something must come from a page of
    /// `public_url` (CSRF), and claims that are stale are renewed first.
    fn admit<'a>(
        self: &'a Arc<Self>,
        (id, key, found): (Cow<'a, [u8]>, SessionKey, LiveSession),
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a> {
        let now = services.wall().as_secs();
        if let Some(request) = head.message {
            let fetch = fetch(request.headers.view());
            let may_change = fetch.may_change(request.method.as_str());
            if may_change && !fetch.is_same_origin(&self.origin) {
                let reply = Box::new(forged());
                return Check::Ready(Err(Rejection::Answered("cross_site", reply)));
            }
        }
        self.note_use(&id, &found, now, services);
        let session = &found.session;
        if session.renew_at.is_some_and(|at| now >= at) {
            let is_stale = session.stale_at.is_none_or(|at| now >= at);
            let ended = self.renew(id.into_owned(), key, services);
            if is_stale {
                return Check::Pending(Box::pin(async move {
                    let mut ended = ended;
                    let time = self.provider.timeout * 2 + Duration::from_secs(1);
                    // It ends with an error when the other side is dropped, which is the end.
                    within(time, services, ended.changed()).await;
                    let now = services.wall().as_secs();
                    let found = self.store.get(&key, now, self.idle);
                    let fresh = |it: &LiveSession| it.session.stale_at.is_none_or(|at| now < at);
                    match found {
                        Some(found) if fresh(&found) => Ok(Arc::clone(&found.made.caller).into()),
                        Some(_) => Err(Rejection::Unavailable("not_renewed")),
                        None => self.without_session(head, services).await,
                    }
                }));
            }
        }
        Check::Ready(Ok(Arc::clone(&found.made.caller).into()))
    }

    /// Writes to the data folder from time to time that a session is in use.
    fn note_use(
        self: &Arc<Self>,
        id: &[u8],
        found: &LiveSession,
        now: u64,
        services: &dyn Services,
    ) {
        let saved = found.made.saved.load(Ordering::Relaxed);
        let is_due = found.is_noted && now >= saved.saturating_add((self.idle / 8).max(10));
        if !is_due || !self.disk.is_open() {
            return;
        }
        found.made.saved.store(now, Ordering::Relaxed);
        let (core, session) = (Arc::clone(self), Arc::clone(&found.session));
        let id = id.to_vec();
        services.spawn(Box::new(move |services| {
            Box::pin(async move { core.save(&id, &session, now, services).await })
        }));
    }

    /// Has the claims of a session renewed, to the end even when nobody waits for it any more: a
    /// refresh token may be good once only.
    fn renew(
        self: &Arc<Self>,
        id: Vec<u8>,
        key: SessionKey,
        services: &dyn Services,
    ) -> tokio::sync::watch::Receiver<()> {
        let (ended, renewal) = self.store.begin_renewal(key);
        if let Some(renewal) = renewal {
            let core = Arc::clone(self);
            services.spawn(Box::new(move |services| {
                Box::pin(async move {
                    core.renew_now(&id, key, services).await;
                    drop(renewal);
                })
            }));
        }
        ended
    }

    async fn renew_now(&self, id: &[u8], key: SessionKey, services: &dyn Services) {
        let now = services.wall().as_secs();
        // The answer may name another session at the provider, which ends meanwhile.
        let reading = self.store.begin_read();
        let Some(found) = self.store.get(&key, now, self.idle) else {
            return;
        };
        let mut session = Session::clone(&found.session);
        // Somebody else was faster.
        let is_due = session.renew_at.is_some_and(|at| now >= at);
        let Some(refresh) = session.refresh_token.clone().filter(|_| is_due) else {
            return;
        };
        match self.refreshed(&session, &refresh, services).await {
            Ok((answer, token)) => {
                if let Some(token) = token {
                    session.id_token = answer.id_token.clone().unwrap_or_default();
                    // All of them: a role that is not there any more has been taken away.
                    session.claims = token.claims;
                    session.provider_session = token.session.or(session.provider_session);
                }
                if let Some(next) = &answer.refresh_token {
                    session.refresh_token = Some(next.clone());
                }
                self.date(&mut session, &answer, services.wall().as_secs());
            }
            Err(Failure::Refused(reason)) => {
                tracing::debug!(
                    target: "auth", way = %self.name, reason, "a session is not renewed"
                );
                self.end(&key, services).await;
                return;
            }
            Err(Failure::Unavailable(problem)) => {
                tracing::debug!(
                    target: "auth", way = %self.name, problem, "a session is not renewed yet"
                );
                session.renew_at = Some(now + RETRY);
                session.stale_at = Some(now + 2 * RETRY);
            }
        }
        let Some(caller) = self.caller(&session, key) else {
            self.end(&key, services).await;
            return;
        };
        if reading.renew(&key, (session.clone(), caller), now) {
            self.save(id, &session, now, services).await;
        }
    }

    /// Ends a session and what it has opened.
    async fn end(&self, key: &SessionKey, services: &dyn Services) {
        let until = self.until(services.wall().as_secs());
        let (_, logout) = self.store.log_out(LogoutOf::One(*key), until);
        self.revocations.end_session(key);
        logout.end(self.disk.remove(key, services).await);
    }

    /// This time, and when the last session ends that has begun by then.
    fn until(&self, now: u64) -> (u64, u64) {
        (now, now.saturating_add(self.lifetime))
    }

    /// Writes a session to the data folder, unless it has ended meanwhile.
    async fn save(&self, id: &[u8], session: &Session, now: u64, services: &dyn Services) {
        let seen = (session, now);
        self.disk.save_live(id, seen, &self.store, services).await;
    }

    async fn refreshed(
        &self,
        session: &Session,
        refresh: &str,
        services: &dyn Services,
    ) -> Result<(TokenAnswer, Option<IdToken>), Failure> {
        let grant = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
        let answer = self.provider.tokens(&grant, services).await?;
        let Some(token) = &answer.id_token else {
            return Ok((answer, None));
        };
        let expected = Expected {
            nonce: &session.nonce,
            is_refreshed: true,
            subject: Some(&session.subject),
            access_token: Some(&answer.access_token),
        };
        let token = self.provider.id_token(token, expected, services).await?;
        Ok((answer, Some(token)))
    }

    /// Sets when the claims of a session are renewed and when they are stale, by the lifetime of
    /// its access token.
    fn date(&self, session: &mut Session, answer: &TokenAnswer, now: u64) {
        if let Some(scope) = &answer.scope {
            session.scopes = scope
                .split(' ')
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
                .collect();
        }
        let life = answer.lifetime.unwrap_or(FRESH).max(1);
        let is_renewed = session.refresh_token.is_some();
        session.renew_at = is_renewed.then_some(now + life - life / 5);
        session.stale_at = is_renewed.then_some(now + life);
    }

    /// The caller of a session; `None` when its claims lack the one that `id` names.
    fn caller(&self, session: &Session, key: SessionKey) -> Option<Arc<Caller>> {
        let plan = self.plan.as_deref();
        let mut caller = claims::caller(&self.name, &[&self.id], plan, &session.claims)?;
        caller.scopes.clone_from(&session.scopes);
        caller.expires = Some(session.ends);
        caller.revocable = Some(Arc::new(SessionCredential {
            revocations: Arc::clone(&self.revocations),
            store: Arc::downgrade(&self.store),
            key,
        }));
        Some(Arc::new(caller))
    }

    /// Looks for a session in the data folder.
    async fn load(
        self: &Arc<Self>,
        id: &[u8],
        key: SessionKey,
        services: &dyn Services,
    ) -> Result<Option<LiveSession>, Rejection> {
        let now = services.wall().as_secs();
        let reading = self.store.begin_read();
        let loaded = self.disk.load(id, services).await;
        let loaded = loaded.map_err(Rejection::Unavailable)?;
        let good = loaded.and_then(|(session, seen)| {
            // The settings may have been others then: notes of ends do not outlive `lifetime`.
            let ends = session
                .ends
                .min(session.began.saturating_add(self.lifetime));
            let is_good = now < ends && now < seen.saturating_add(self.idle);
            let caller = self.caller(&session, key).filter(|_| is_good)?;
            Some((session, caller, seen))
        });
        let Some((session, caller, seen)) = good else {
            self.store.miss(key);
            return Ok(None);
        };
        let idle = self.idle;
        reading.put(key, (session, caller), Times { seen, now, idle });
        // None when it was logged out meanwhile.
        Ok(self.store.get(&key, now, idle))
    }
}

/// Whether a person waits for a page.
fn is_navigation(request: &Request) -> bool {
    fetch(request.headers.view()).is_navigation(request.method == Method::Get)
}

fn forged() -> Reply {
    let detail = "a page of another site may not do this";
    let mut reply = Fault::new(Kind::Forbidden, Origin::Client, detail).to_reply();
    no_store(&mut reply);
    reply
}

impl Way for OidcWay {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn check<'a>(
        &'a self,
        credential: Credential<'a>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a> {
        let credential = credential.value;
        let core = &self.core;
        let key = Session::key(&credential);
        let now = services.wall().as_secs();
        if let Some(found) = core.store.get(&key, now, core.idle) {
            return core.admit((credential, key, found), head, services);
        }
        let pending: LocalFuture<'a, Checked> = Box::pin(async move {
            if !core.store.is_missed(&key) {
                // Each costs a look into the data folder.
                core.guesses.look(head.peer, services.now())?;
                if let Some(found) = core.load(&credential, key, services).await? {
                    return match core.admit((credential, key, found), head, services) {
                        Check::Ready(checked) => checked,
                        Check::Pending(check) => check.await,
                        Check::NeedsBody => Err(Rejection::Invalid("no_session")),
                    };
                }
                core.guesses.failed(head.peer, services.now());
            }
            core.without_session(head, services).await
        });
        Check::Pending(pending)
    }

    fn invite<'a>(
        &'a self,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Option<Check<'a>> {
        head.message.filter(|it| is_navigation(it))?;
        let core = &self.core;
        Some(Check::Pending(Box::pin(async move {
            core.without_session(head, services).await
        })))
    }

    fn pages(&self) -> Vec<AccessPage> {
        self.pages.clone()
    }

    fn source(&self) -> Option<SourcePlan> {
        let upkeep = Arc::new(Upkeep {
            refresh: Repeated(Arc::clone(&self.core.provider.fetcher)),
            core: Arc::clone(&self.core),
        });
        Some(source::plan(format!("auth {}", self.core.name), upkeep))
    }

    fn upstreams(&self) -> Vec<&Arc<UpstreamPlan>> {
        let provider = &self.core.provider;
        let token_url = provider.token_url.iter().map(FixedUrl::upstream);
        provider.fetcher.upstreams().chain(token_url).collect()
    }
}

/// Fetches the provider's keys at their times, and removes sessions that are over from the data
/// folder.
struct Upkeep {
    refresh: Repeated<Arc<Fetcher>>,
    core: Arc<Core>,
}

impl Source for Upkeep {
    fn run<'a>(
        &'a self,
        started: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let sweeping = async {
                let mut never: LocalFuture<'static, ()> = Box::pin(std::future::pending());
                loop {
                    self.core.disk.sweep(services).await;
                    let next: Instant = services.now() + SWEEP;
                    wait_until(next, &mut never, services).await;
                }
            };
            // The refresh ends when the engine stops; so does the sweeping then.
            let mut refreshing = self.refresh.run(started, services, stop);
            let mut sweeping = pin!(sweeping);
            poll_fn(|context| {
                let _: Poll<()> = sweeping.as_mut().poll(context);
                refreshing.as_mut().poll(context)
            })
            .await;
        })
    }
}
