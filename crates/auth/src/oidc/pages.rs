//! What is served beside flows: where logins come back to, where sessions end.

use std::sync::Arc;

use access::oidc::browser::Fetch;
use access::oidc::{Callback, Expected, Login, LoginProblem, Session, with_parameters};
use component::access::decode_parameter;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use message::{Fault, Method, Reply, Request};

use super::provider::Failure;
use super::replies::{cookie, no_store, page, redirect};
use super::store::Times;
use super::{Core, fetch};
use crate::refusal;
use crate::way::Rejection;

/// The most bytes of the form with a logout token.
pub(super) const FORM_MAX: u64 = 64 * 1024;

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The provider sends browsers back to it with a code.
    Callback,
    /// It ends the session of a browser.
    Logout,
    /// The provider says that sessions have ended.
    Backchannel,
}

pub(super) struct Page {
    pub core: Arc<Core>,
    pub kind: Kind,
}

impl Handler for Page {
    fn reads_body(&self) -> bool {
        self.kind == Kind::Backchannel
    }

    /// What a provider has begun to say is noted.
    fn detaches(&self) -> bool {
        self.kind == Kind::Backchannel
    }

    /// Codes are good once, but logs are read sooner.
    fn secret_parameters(&self) -> Vec<Arc<str>> {
        ["code", "state"].map(Into::into).to_vec()
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            let reply = match self.kind {
                Kind::Callback => self.core.finish_login(&request, services).await,
                Kind::Logout => self.core.log_out(&request, services).await,
                Kind::Backchannel => self.core.log_out_by_provider(&request, services).await,
            };
            Ok(Outcome::Reply(reply))
        })
    }
}

/// Why a login has failed.
enum LoginFailure {
    /// The provider or the person has said no.
    Refused,
    /// The answer is none to a login of this browser, or its tokens are wrong.
    Invalid(&'static str),
    Unavailable(&'static str),
    /// Too many answers from this address were wrong.
    Limited(Box<Reply>),
}

impl From<Failure> for LoginFailure {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(reason) => Self::Invalid(reason),
            Failure::Unavailable(problem) => Self::Unavailable(problem),
        }
    }
}

impl Core {
    /// Ends a login: the provider has sent the browser back.
    async fn finish_login(&self, request: &Request, services: &dyn Services) -> Reply {
        let query = request.query.as_deref().unwrap_or_default();
        let callback = Callback::parse(query).unwrap_or_default();
        let name = self.cookies.login(callback.state().unwrap_or_default());
        let sealed = cookie(&request.headers, &name);
        let sealed = sealed.and_then(|it| std::str::from_utf8(it).ok());
        let login = sealed.and_then(|it| Login::open(&self.store.sealer, &self.name, it));
        let finished = match &login {
            Some(login) => self.exchange(login, &callback, request, services).await,
            None => Err(LoginFailure::Invalid(LoginProblem::State.name())),
        };
        let return_to = login.as_ref().map_or("/", Login::return_to);
        let return_to = format!("{}{return_to}", self.origin);
        let mut reply = match finished {
            Ok((id, seconds)) => {
                let mut reply = redirect(&return_to);
                self.cookies
                    .set(&self.cookies.session, &id, seconds, &mut reply);
                reply
            }
            Err(failure) => self.refuse_login(failure, &return_to, (request, &callback)),
        };
        if sealed.is_some() {
            self.cookies.clear(&name, &mut reply);
        }
        reply
    }

    fn refuse_login(
        &self,
        failure: LoginFailure,
        return_to: &str,
        (request, callback): (&Request, &Callback),
    ) -> Reply {
        let (reason, reply) = match failure {
            LoginFailure::Limited(reply) => ("limited", *reply),
            LoginFailure::Refused => {
                let link = Some((return_to, "Log in again"));
                ("refused", page(403, "The login was refused", link))
            }
            LoginFailure::Invalid(reason) => {
                let link = Some((return_to, "Log in again"));
                (reason, page(400, "The login could not be completed", link))
            }
            LoginFailure::Unavailable(problem) => {
                let mut reply = page(
                    503,
                    "The login cannot be completed at the moment",
                    Some((return_to, "Try again")),
                );
                reply.headers.append("Retry-After", "5");
                (problem, reply)
            }
        };
        tracing::info!(
            target: "auth", way = %self.name, peer = %request.peer, reason,
            error = %callback.error().unwrap_or_default().escape_debug(), "a login has failed"
        );
        reply
    }

    /// Exchanges the code of an answer for a session; gives its identifier and how many seconds it
    /// lasts.
    async fn exchange(
        &self,
        login: &Login,
        callback: &Callback,
        request: &Request,
        services: &dyn Services,
    ) -> Result<(String, u64), LoginFailure> {
        let names_issuer = {
            let description = self.provider.description(services).await;
            description.map_err(LoginFailure::Unavailable)?.names_issuer
        };
        let now = services.wall().as_secs();
        let issuer = (self.provider.issuer.as_str(), names_issuer);
        let finished = login.finish(callback, issuer, now);
        let code = finished.map_err(|problem| match problem {
            LoginProblem::Refused => LoginFailure::Refused,
            problem => LoginFailure::Invalid(problem.name()),
        })?;
        let time = self.provider.timeout;
        let begun = self.guesses.begin(request.peer, time, services).await;
        let begun = begun.map_err(|rejection| match rejection {
            Rejection::Limited(wait) => LoginFailure::Limited(refusal::limited(wait)),
            _ => LoginFailure::Unavailable("limited"),
        })?;
        // A cookie that was copied brings nobody in a second time.
        if !self.store.end_login(login.state(), now) {
            begun.fail();
            return Err(LoginFailure::Invalid("replayed"));
        }
        let session = self.session(login, code, services).await;
        let session = match session {
            Err(LoginFailure::Invalid(reason)) => {
                begun.fail();
                return Err(LoginFailure::Invalid(reason));
            }
            other => other?,
        };
        let caller = self.caller(&session);
        let caller = caller.ok_or(LoginFailure::Invalid("no_id"))?;
        // Whatever the browser had before, nobody else knows this one.
        if let Some(old) = cookie(&request.headers, &self.cookies.session) {
            let old = Session::key(old);
            self.store.remove(&old);
            self.disk.remove(&old, services).await;
        }
        let id = Session::new_id().ok_or(LoginFailure::Unavailable("no_randomness"))?;
        let times = Times {
            seen: now,
            now,
            idle: self.idle,
        };
        self.disk.save(id.as_bytes(), &session, now, services).await;
        let lifetime = session.ends.saturating_sub(now);
        let key = Session::key(id.as_bytes());
        self.store.put(key, session, caller, times);
        self.store.count_login();
        Ok((id, lifetime))
    }

    async fn session(
        &self,
        login: &Login,
        code: &str,
        services: &dyn Services,
    ) -> Result<Session, LoginFailure> {
        let redirect_uri = self.redirect_uri();
        let grant = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri.as_str()),
            ("code_verifier", login.verifier()),
        ];
        let answer = self.provider.tokens(&grant, services).await?;
        let id_token = answer.id_token.as_deref();
        let id_token = id_token.ok_or(LoginFailure::Invalid("no_id_token"))?;
        let expected = Expected {
            nonce: login.nonce(),
            is_refreshed: false,
            subject: None,
            access_token: Some(&answer.access_token),
        };
        let token = self.provider.id_token(id_token, expected, services).await?;
        let now = services.wall().as_secs();
        let mut session = Session {
            claims: token.claims,
            subject: token.subject,
            provider_session: token.session,
            id_token: id_token.to_owned(),
            nonce: login.nonce().to_owned(),
            refresh_token: answer.refresh_token.clone(),
            // What was asked for was granted, unless the answer says otherwise (RFC 6749, section
            // 5.1).
            scopes: self.scope.split(' ').map(str::to_owned).collect(),
            began: now,
            ends: now.saturating_add(self.lifetime),
            renew_at: None,
            stale_at: None,
        };
        self.date(&mut session, &answer, now);
        Ok(session)
    }

    /// Ends the session of a browser, here and at the provider.
    async fn log_out(&self, request: &Request, services: &dyn Services) -> Reply {
        let fetch = fetch(request.headers.view());
        if !may_log_out(&fetch, &request.method, &self.origin) {
            return page(403, "Another site cannot log you out", None);
        }
        let hint = self.end_session(request, services).await;
        let after = self
            .signed_out
            .as_ref()
            .map(|path| format!("{}{path}", self.origin));
        // A provider that cannot be asked does not keep anybody logged in here.
        let description = self.provider.description(services).await.ok();
        let end_session = description
            .as_ref()
            .and_then(|it| it.end_session.as_deref());
        let mut reply = match (end_session, &after) {
            (Some(url), _) => {
                let mut parameters = vec![("client_id", self.provider.client_id.as_str())];
                parameters.extend(hint.as_deref().map(|it| ("id_token_hint", it)));
                parameters.extend(after.as_deref().map(|it| ("post_logout_redirect_uri", it)));
                redirect(&with_parameters(url, &parameters))
            }
            (None, Some(after)) => redirect(after),
            (None, None) => page(200, "You are logged out", Some(("/", "Log in again"))),
        };
        self.cookies.clear(&self.cookies.session, &mut reply);
        reply
    }

    /// Ends the session of a request's cookie here; gives its ID token.
    async fn end_session(&self, request: &Request, services: &dyn Services) -> Option<String> {
        let id = cookie(&request.headers, &self.cookies.session)?;
        let key = Session::key(id);
        let known = self.store.remove(&key);
        let id_token = match known {
            Some(session) => session.id_token.clone(),
            None if self.store.is_missed(&key) => return None,
            None => {
                // Each costs a look into the data folder.
                self.guesses.look(request.peer, services.now()).ok()?;
                match self.disk.load(id, services).await {
                    Ok(Some((session, _))) => session.id_token,
                    Ok(None) => {
                        self.store.miss(key);
                        self.guesses.failed(request.peer, services.now());
                        return None;
                    }
                    // It is removed all the same, if that can be done.
                    Err(_) => String::new(),
                }
            }
        };
        self.disk.remove(&key, services).await;
        Some(id_token).filter(|it| !it.is_empty())
    }

    /// Ends the sessions that a logout token names (OpenID Connect Back-Channel Logout 1.0).
    async fn log_out_by_provider(&self, request: &Request, services: &dyn Services) -> Reply {
        let (peer, now) = (request.peer, services.now());
        if let Err(Rejection::Limited(wait)) = self.guesses.look(peer, now) {
            return *refusal::limited(wait);
        }
        let reply = match self.end_by_token(request, services).await {
            Ok(count) => {
                tracing::info!(
                    target: "auth", way = %self.name, count, "the provider ended sessions"
                );
                Reply::new(200)
            }
            Err(Failure::Refused(reason)) => {
                self.guesses.failed(peer, services.now());
                tracing::warn!(
                    target: "auth", way = %self.name, %peer, reason, "a logout token is refused"
                );
                let error = br#"{"error":"invalid_request"}"#.to_vec();
                Reply::with_content(400, "application/json", error)
            }
            Err(Failure::Unavailable(problem)) => {
                tracing::warn!(
                    target: "auth", way = %self.name, problem, "a logout token cannot be checked"
                );
                *refusal::unavailable()
            }
        };
        let mut reply = reply;
        no_store(&mut reply);
        reply
    }

    async fn end_by_token(
        &self,
        request: &Request,
        services: &dyn Services,
    ) -> Result<usize, Failure> {
        let form = String::from_utf8_lossy(request.body.as_bytes());
        let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
        let mut tokens = pairs.filter(|(name, _)| *name == "logout_token");
        let (Some((_, token)), None) = (tokens.next(), tokens.next()) else {
            return Err(Failure::Refused("no_logout_token"));
        };
        let token = decode_parameter(token);
        let logout = self.provider.logout_token(&token, services).await?;
        let now = services.wall().as_secs();
        if !self.store.take_logout(&logout.id, now) {
            return Err(Failure::Refused("replayed"));
        }
        let party = (logout.subject.as_deref(), logout.session.as_deref());
        let ended = self.store.end(party.0, party.1);
        for key in &ended {
            self.disk.remove(key, services).await;
        }
        let until = now.saturating_add(self.lifetime);
        if !self.disk.end(party, (now, until), services).await {
            // The provider has to say it again, or a restart would bring sessions back.
            self.store.forget_logout(&logout.id);
            return Err(Failure::Unavailable("not_stored"));
        }
        Ok(ended.len())
    }
}

/// Whether a request may log its browser out: not one that a page of another site has caused.
fn may_log_out(fetch: &Fetch<'_>, method: &Method, origin: &str) -> bool {
    match *method == Method::Get {
        true => !fetch.is_cross_site(),
        false => fetch.is_same_origin(origin),
    }
}
