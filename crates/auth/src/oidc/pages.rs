//! What is served beside flows: where logins come back to, where sessions end.

use std::sync::Arc;

use access::deny::{Denied, Kind as DeniedKind, LogoutEntry};
use access::oidc::browser::Fetch;
use access::oidc::{Callback, Expected, Login, LoginProblem, LogoutOf, Session, with_parameters};
use component::access::decode_parameter;
use component::audit::{Event, EventKind, Origin, Refusal};
use component::handler::{Handler, LocalFuture, Outcome, Services};
use message::{Fault, Method, Reply, Request};

use super::provider::Failure;
use super::replies::{cookie, no_store, page, redirect};
use super::store::{EndingLogin, NotEnded, Times};
use super::{Core, fetch};
use crate::refusal;
use crate::revocation::name_at;
use crate::way::Rejection;

/// The most bytes of the form with a logout token.
pub(super) const FORM_MAX: u64 = 64 * 1024;
/// Why a logout denies something, in the deny list and in the audit stream.
const LOGGED_OUT: &str = "logged out";

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

    /// A logout that has begun ends what it names on the disk too, also when its client has left.
    fn detaches(&self) -> bool {
        match self.kind {
            Kind::Logout | Kind::Backchannel => true,
            Kind::Callback => false,
        }
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
        self.audit_refusal(&format!("login_{reason}"), &reply, request);
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
        let mut begun = begun.map_err(|rejection| match rejection {
            Rejection::Limited(wait) => LoginFailure::Limited(refusal::limited(wait)),
            _ => LoginFailure::Unavailable("limited"),
        })?;
        begun.count_if_dropped();
        // A logout at the provider that is reported from now on ends this login, too.
        let reading = self.store.begin_read();
        // A cookie that was copied brings nobody in a second time.
        let ending = self.store.end_login(login.state(), now);
        let ending = match ending {
            Err(NotEnded::Replayed) => return Err(LoginFailure::Invalid("replayed")),
            Err(NotEnded::Full) => {
                begun.give_back();
                return Err(LoginFailure::Unavailable("too_many_logins"));
            }
            Ok(ending) => ending,
        };
        let session = self.session(login, (code, ending), services).await;
        if !matches!(session, Err(LoginFailure::Invalid(_))) {
            begun.give_back();
        }
        let session = session?;
        let id = Session::new_id().ok_or(LoginFailure::Unavailable("no_randomness"))?;
        let key = Session::key(id.as_bytes());
        let caller = self.caller(&session, key);
        let caller = caller.ok_or(LoginFailure::Invalid("no_id"))?;
        // Whatever the browser had before, nobody else knows this one.
        if let Some(old) = cookie(&request.headers, &self.cookies.session) {
            self.end(&Session::key(old), services).await;
        }
        let times = Times {
            seen: now,
            now,
            idle: self.idle,
        };
        self.disk.save(id.as_bytes(), &session, now, services).await;
        let lifetime = session.ends.saturating_sub(now);
        let subject: Arc<str> = session.subject.as_str().into();
        if !reading.put(key, (session, caller), times) {
            self.disk.remove(&key, services).await;
            return Err(LoginFailure::Invalid("logged_out"));
        }
        self.store.count_login();
        self.end_surplus(&subject, request, services).await;
        Ok((id, lifetime))
    }

    /// Ends the sessions that somebody has beyond the bound, those first that stand still longest.
    async fn end_surplus(&self, subject: &Arc<str>, request: &Request, services: &dyn Services) {
        let mut count = 0;
        while let Some(key) = self.store.surplus(subject) {
            self.end(&key, services).await;
            count += 1;
        }
        if count > 0 {
            self.audit_logout((count, "too_many"), Some(Arc::clone(subject)), request);
        }
    }

    async fn session(
        &self,
        login: &Login,
        (code, ending): (&str, EndingLogin),
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
        ending.remember();
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
            let reply = page(403, "Another site cannot log you out", None);
            self.audit_refusal("logout_cross_site", &reply, request);
            return reply;
        }
        let hint = match self.end_session(request, services).await {
            Ok(hint) => hint,
            Err(reply) => return *reply,
        };
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

    /// Ends the session of a request's cookie here, and tells the audit stream; gives its ID token.
    ///
    /// # Errors
    /// The reply, when it cannot be found out whether there is one.
    async fn end_session(
        &self,
        request: &Request,
        services: &dyn Services,
    ) -> Result<Option<String>, Box<Reply>> {
        let Some(id) = cookie(&request.headers, &self.cookies.session) else {
            return Ok(None);
        };
        let key = Session::key(id);
        if !self.store.has(&key) {
            if self.store.is_missed(&key) {
                return Ok(None);
            }
            // Each costs a look into the data folder.
            if let Err(Rejection::Limited(wait)) = self.guesses.look(request.peer, services.now()) {
                let reply = refusal::limited(wait);
                self.audit_refusal("limited", &reply, request);
                return Err(reply);
            }
        }
        let until = self.until(services.wall().as_secs());
        let (known, logout) = self.store.log_out(LogoutOf::One(key), until);
        self.revocations.end_session(&key);
        let ended: Option<(String, Arc<str>)> = match known.first() {
            Some((_, session)) => Some((session.id_token.clone(), Arc::from(&*session.subject))),
            None => match self.disk.load(id, services).await {
                Ok(Some((session, _))) => Some((session.id_token, session.subject.into())),
                Ok(None) => {
                    logout.end(true);
                    self.store.miss(key);
                    self.guesses.failed(request.peer, services.now());
                    return Ok(None);
                }
                // It is removed all the same, if that can be done.
                Err(_) => None,
            },
        };
        let (id_token, subject) = ended.unzip();
        if id_token.is_some() {
            self.audit_logout((1, "by_user"), subject, request);
        }
        logout.end(self.disk.remove(&key, services).await);
        Ok(id_token)
    }

    /// Tells the audit stream that a page has refused a request.
    fn audit_refusal(&self, reason: &str, reply: &Reply, request: &Request) {
        let refusal = Refusal {
            way: Some(&self.name),
            id: None,
            reason,
            status: Some(reply.status),
            target: "login",
        };
        self.audit.refused(&refusal, || Origin::from(request));
    }

    /// Tells the audit stream that sessions were ended: how many, why, and of whom.
    fn audit_logout(
        &self,
        (count, reason): (usize, &str),
        subject: Option<Arc<str>>,
        request: &Request,
    ) {
        self.audit.record(|| {
            let event = Event::success(EventKind::SessionEnded).because(reason);
            let event = event.by(Some(Arc::clone(&self.name)), subject);
            event
                .with_origin(Origin::from(request))
                .with("count", count)
        });
    }

    /// Ends the sessions that a logout token names (OpenID Connect Back-Channel Logout 1.0).
    async fn log_out_by_provider(&self, request: &Request, services: &dyn Services) -> Reply {
        let (peer, now) = (request.peer, services.now());
        if let Err(Rejection::Limited(wait)) = self.guesses.look(peer, now) {
            let reply = *refusal::limited(wait);
            self.audit_refusal("limited", &reply, request);
            return reply;
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
                let reply = Reply::with_content(400, "application/json", error);
                self.audit_refusal(&format!("logout_{reason}"), &reply, request);
                reply
            }
            Err(Failure::Unavailable(problem)) => {
                tracing::warn!(
                    target: "auth", way = %self.name, problem, "a logout token cannot be checked"
                );
                let reply = *refusal::unavailable();
                self.audit_refusal(&format!("logout_{problem}"), &reply, request);
                reply
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
        let of = LogoutOf::Party {
            subject: logout.subject.clone(),
            session: logout.session.clone(),
        };
        let (ended, under_way) = self.store.log_out(of, self.until(now));
        for (key, _) in &ended {
            self.revocations.end_session(key);
        }
        let issuer = &self.provider.issuer;
        let [login, session] = [party.0, party.1].map(|it| Some(name_at(issuer, it?)));
        // Streams may outlive the memory of their sessions.
        self.revocations
            .end_logins(&self.name, login.as_deref(), session.as_deref());
        // They have ended here, whatever the disk says.
        let subject: Option<Arc<str>> = party.0.map(Arc::from);
        self.audit_logout((ended.len(), "by_provider"), subject.clone(), request);
        for (key, _) in &ended {
            self.disk.remove(key, services).await;
        }
        let (_, until) = self.until(now);
        let denied = match self.log_out_entry((login, session), (logout.issued, until)) {
            Ok(Some(entry)) => self.deny(entry, subject, request, services).await,
            Ok(None) => Ok(()),
            Err(problem) => Err(problem),
        };
        // One that could not be denied has ended all the same: a restart must not bring it back.
        let is_noted = self.disk.end(party, (now, until), services).await;
        under_way.end(is_noted);
        let noted = is_noted.then_some(ended.len()).ok_or("not_stored");
        denied.and(noted).map_err(|problem| {
            // The provider has to say it again, or a restart would bring sessions back.
            self.store.forget_logout(&logout.id);
            Failure::Unavailable(problem)
        })
    }

    /// The entry that denies the tokens that a session at the provider has given, or all that
    /// somebody has got there before the provider said that they have logged out. Without a deny
    /// list there is none: the logout ends the sessions and what they have opened, and that is all.
    fn log_out_entry(
        &self,
        (login, session): (Option<Arc<str>>, Option<Arc<str>>),
        (issued, until): (u64, u64),
    ) -> Result<Option<Denied>, &'static str> {
        if !self.revocations.is_on() {
            return Ok(None);
        }
        let entry = |kind, name: &str| Denied::new(kind, name, Some(until), Some(LOGGED_OUT));
        let entry = match (&session, &login) {
            (Some(session), _) => entry(DeniedKind::Session, session),
            (None, Some(login)) => {
                let entry = entry(DeniedKind::Login, login);
                entry.map(|it| it.issued_until(issued))
            }
            (None, None) => return Ok(None),
        };
        // One that is too long for the list.
        entry.map(Some).map_err(|_| "not_denied")
    }

    /// Puts an entry of a logout in force, tells the audit stream, and writes it.
    async fn deny(
        &self,
        entry: Denied,
        subject: Option<Arc<str>>,
        request: &Request,
        services: &dyn Services,
    ) -> Result<(), &'static str> {
        let _change = self.revocations.change().await;
        let now = services.wall().as_secs();
        let logged_out = self.revocations.log_out(entry, now);
        let LogoutEntry { entry, dropped } = logged_out.map_err(|_| "not_denied")?;
        self.audit.record(|| {
            let event = Event::success(EventKind::DenyAdded).because(LOGGED_OUT);
            let event = event.by(Some(Arc::clone(&self.name)), subject);
            let event = event.with_origin(Origin::from(request));
            event
                .with_target("deny list")
                .with("entry", entry.members())
        });
        if let Some(dropped) = &dropped {
            tracing::warn!(
                target: "auth", way = %self.name, kind = dropped.kind.name(), name = %dropped.name,
                "the deny list has no place left for logouts: the one that ends first is denied no \
                 more"
            );
        }
        match self.disk.deny(&entry, dropped.as_ref(), services).await {
            true => Ok(()),
            false => Err("not_stored"),
        }
    }
}

/// Whether a request may log its browser out: not one that a page of another site has caused.
fn may_log_out(fetch: &Fetch<'_>, method: &Method, origin: &str) -> bool {
    match *method == Method::Get {
        true => !fetch.is_cross_site(),
        false => fetch.is_same_origin(origin),
    }
}
