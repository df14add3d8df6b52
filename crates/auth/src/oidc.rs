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
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use access::oidc::browser::Fetch;
use access::oidc::{
    Expected, IdToken, LOGIN_SECONDS, Login, Session, SessionKey, TokenAnswer, local_target,
    with_parameters,
};
use component::access::{AccessPage, Caller, RequestHead};
use component::handler::{LocalFuture, Services, within};
use component::source::{Source, SourcePlan, Started};
use component::upstream::UpstreamPlan;
use message::{Fault, HeadersView, Kind, Method, Origin, Reply, Request};

use crate::claims;
use crate::credential::{Carrier, Credential};
use crate::failed_checks::Guesses;
use crate::issuer_keys::Refresh;
use crate::revocation::Tokens;
use crate::source::{self, wait_until};
use crate::way::{Check, Checked, Rejection, Way};
use provider::{Failure, Provider};
use replies::{Cookies, no_store, redirect};
use store::{Disk, Good, SessionStore, Times};

/// How long claims hold when the provider does not say how long its access token does.
const FRESH: u64 = 3600;
/// When a renewal is tried again that nobody has answered, and for how long the claims hold then.
const RETRY: u64 = 30;
/// How often sessions in the data folder are looked through for those that are over.
const SWEEP: Duration = Duration::from_secs(3600);

/// A way that logs browsers in.
pub(crate) struct OidcWay {
    core: Arc<Core>,
    carrier: Carrier,
    passes: bool,
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
    tokens: Arc<Tokens>,
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

    /// What becomes of a request without a session: whoever can log in is sent to do so.
    async fn without_session(&self, head: RequestHead<'_>, services: &dyn Services) -> Checked {
        let Some(request) = head.message.filter(|it| is_navigation(it)) else {
            return Err(Rejection::Invalid("no_session"));
        };
        match self.begin_login(request, services).await {
            Ok(reply) => Err(Rejection::Answered("login", Box::new(reply))),
            Err(problem) => Err(Rejection::Unavailable(problem)),
        }
    }

    /// Lets a session act, if a page of our own asks, and its claims are new enough.
    fn admit<'a>(
        self: &'a Arc<Self>,
        (id, key, found): (Cow<'a, [u8]>, SessionKey, Good),
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
                    let fresh = |it: &Good| it.session.stale_at.is_none_or(|at| now < at);
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
    fn note_use(self: &Arc<Self>, id: &[u8], found: &Good, now: u64, services: &dyn Services) {
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
                self.store.remove(&key);
                self.disk.remove(&key, services).await;
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
        let Some(caller) = self.caller(&session) else {
            self.store.remove(&key);
            self.disk.remove(&key, services).await;
            return;
        };
        if self.store.renew(&key, session.clone(), caller, now) {
            self.save(id, &session, now, services).await;
        }
    }

    /// Writes a session to the data folder, unless it has ended meanwhile.
    async fn save(&self, id: &[u8], session: &Session, now: u64, services: &dyn Services) {
        self.disk.save(id, session, now, services).await;
        let key = Session::key(id);
        if self.store.get(&key, now, self.idle).is_none() {
            self.disk.remove(&key, services).await;
        }
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

    /// Says until when the claims of a session hold, by the tokens that it was given.
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

    /// Who a session lets act; none where the claim is missing that says it.
    fn caller(&self, session: &Session) -> Option<Arc<Caller>> {
        let plan = self.plan.as_deref();
        let mut caller = claims::caller(&self.name, &[&self.id], plan, &session.claims)?;
        caller.scopes.clone_from(&session.scopes);
        caller.expires = Some(session.ends);
        caller.revocable = Some(Arc::clone(&self.tokens) as _);
        Some(Arc::new(caller))
    }

    /// Looks for a session in the data folder.
    async fn load(
        self: &Arc<Self>,
        id: &[u8],
        key: SessionKey,
        services: &dyn Services,
    ) -> Result<Option<Good>, Rejection> {
        let now = services.wall().as_secs();
        let loaded = self.disk.load(id, services).await;
        let loaded = loaded.map_err(Rejection::Unavailable)?;
        let good = loaded.and_then(|(session, seen)| {
            // The settings may have been others then: notes of ends do not outlive `lifetime`.
            let ends = session
                .ends
                .min(session.began.saturating_add(self.lifetime));
            let is_good = now < ends && now < seen.saturating_add(self.idle);
            let caller = self.caller(&session).filter(|_| is_good)?;
            let idle = self.idle;
            self.store
                .put(key, session, caller, Times { seen, now, idle });
            self.store.get(&key, now, idle)
        });
        if good.is_none() {
            self.store.miss(key);
        }
        Ok(good)
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
    fn name(&self) -> &Arc<str> {
        &self.core.name
    }

    fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    fn needs_message(&self) -> bool {
        true
    }

    fn passes(&self) -> bool {
        self.passes
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
            refresh: Refresh(Arc::clone(&self.core.provider.fetcher)),
            core: Arc::clone(&self.core),
        });
        Some(source::plan(format!("auth {}", self.core.name), upkeep))
    }

    fn upstreams(&self) -> Vec<&Arc<UpstreamPlan>> {
        let provider = &self.core.provider;
        let place = &provider.fetcher.place;
        let urls = std::iter::once(place.url()).chain(&provider.token_url);
        let urls = urls.chain(place.keys_url());
        urls.map(|it| it.upstream()).collect()
    }
}

/// Fetches the provider's keys at their times, and removes sessions that are over from the data
/// folder.
struct Upkeep {
    refresh: Refresh,
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
