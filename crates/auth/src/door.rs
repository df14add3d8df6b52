//! What stands in front of a flow or a topic.

use std::borrow::Cow;
use std::sync::Arc;

use access::credentials::{ACCESS_TOKEN, Problem, Source};
use component::access::{
    AccessPage, Admitted, Caller, CredentialLocation, Door, DoorContext, Judgement, RequestHead,
    SUBPROTOCOL_FIELD, TICKET_PARAMETER, TOKEN_SUBPROTOCOL,
};
use component::audit::{Audit, Origin, Refusal};
use component::definition::compile_expression;
use component::exchange::{Exchange, FlowContext};
use component::handler::{LocalFuture, Services};
use config::{Node, Spanned};
use expr::jq::Expression;
use message::{Reply, Request};

use crate::codes::BAD_AUTH;
use crate::config::AuthConfig;
use crate::credential::{Carrier, Credential, Finder, TokenSchemes, TokenSources};
use crate::possession::Dpop;
use crate::refusal::{self, Refusals};
use crate::tickets::{self, PresentedTicket, TicketDesk};
use crate::way::{Check, Checked, Known, Rejection, Way};

/// The reason of refusals of addresses that have sent too many wrong credentials.
const LIMITED: &str = "limited";

/// A door with its ways.
pub(crate) struct AccessDoor {
    /// What it stands in front of, for logs.
    name: String,
    ways: Vec<Arc<dyn Way>>,
    /// Looks where the ways have their credentials.
    finder: Finder,
    refusals: Refusals,
    secret_parameters: Vec<Arc<str>>,
    scopes: Vec<String>,
    require: Option<Condition>,
    /// Where tokens may stand beside `Authorization`, for one of the ways at least.
    sources: TokenSources,
    tickets: Option<TicketDesk>,
    /// The credentials that browsers send by themselves and that go no further.
    implied: Option<Arc<[CredentialLocation]>>,
    /// Whether tokens are for one way, which recalls them: where there is a choice, a token would
    /// have to be read first.
    has_one_that_recalls: bool,
    /// Where refusals go beside the log.
    audit: Arc<Audit>,
}

/// A credential as it was presented: which way judges it, and what is taken out of the request.
struct Entry<'a> {
    way: &'a Arc<dyn Way>,
    source: Source,
    /// Whether a token came with a DPoP proof.
    has_proof: bool,
    shown: Option<PresentedTicket>,
}

impl<'a> Entry<'a> {
    fn of(way: &'a Arc<dyn Way>, credential: &Credential<'_>) -> Self {
        Self {
            way,
            source: credential.source,
            has_proof: credential.proof.is_some(),
            shown: None,
        }
    }
}

/// A condition over `$auth` and the head of the request.
struct Condition {
    expression: Expression,
    context: Arc<FlowContext>,
}

impl AccessDoor {
    /// A door that lets everybody in whom one of the ways knows.
    ///
    /// # Errors
    /// A sentence, when there are too many places for keys.
    pub fn new(name: &str, ways: Vec<Arc<dyn Way>>) -> Result<Self, &'static str> {
        let mut carriers: Vec<Carrier> = Vec::new();
        for way in &ways {
            if !carriers.contains(way.carrier()) {
                carriers.push(way.carrier().clone());
            }
        }
        let parameter = |carrier: &Carrier| match carrier {
            Carrier::Query(name) => Some(Arc::clone(name)),
            _ => None,
        };
        let mut secret_parameters: Vec<_> = carriers.iter().filter_map(parameter).collect();
        let tokens = || ways.iter().filter(|it| *it.carrier() == Carrier::Bearer);
        let schemes = TokenSchemes {
            bearer: tokens().any(|it| it.properties().dpop != Dpop::Required),
            dpop: tokens().any(|it| it.properties().dpop != Dpop::Ignored),
        };
        let sources = tokens().map(|way| way.properties().token_sources);
        let sources = sources.fold(TokenSources::default(), TokenSources::or);
        if sources.query {
            secret_parameters.push(ACCESS_TOKEN.into());
        }
        let mut tokens = tokens();
        let has_one_that_recalls = tokens.next().is_some_and(|it| it.properties().recalls)
            && tokens.next().is_none()
            && !ways.iter().any(|it| it.properties().needs_message);
        let finder = Finder::new(carriers, schemes, sources)?;
        Ok(Self {
            name: name.to_owned(),
            ways,
            secret_parameters,
            refusals: Refusals::new(&finder)?,
            finder,
            scopes: Vec::new(),
            require: None,
            sources,
            tickets: None,
            implied: None,
            has_one_that_recalls,
            audit: Arc::default(),
        }
        .with_implied())
    }

    /// Has refusals told to the audit stream.
    pub fn with_audit(mut self, audit: &Arc<Audit>) -> Self {
        self.audit = Arc::clone(audit);
        self
    }

    /// Notes what browsers may send along beside the credential that counts.
    fn with_implied(mut self) -> Self {
        let cookies = self.ways.iter().filter(|it| !it.properties().passes);
        let cookies = cookies.filter_map(|it| match it.carrier() {
            Carrier::Cookie(name) => Some(CredentialLocation::Cookie(Arc::clone(name))),
            _ => None,
        });
        let ticket = self.tickets.as_ref().map(|_| CredentialLocation::Ticket);
        let implied: Arc<[CredentialLocation]> = cookies.chain(ticket).collect();
        self.implied = (!implied.is_empty()).then_some(implied);
        self
    }

    /// Has it take tickets, too; without one of its ways' credentials that could be presented again
    /// it takes none.
    pub fn with_tickets(mut self, desk: Option<TicketDesk>) -> Self {
        if self.ways.iter().any(|way| can_come_again(&**way)) {
            self.tickets = desk;
        }
        if self.tickets.is_some() {
            self.secret_parameters.push(TICKET_PARAMETER.into());
        }
        self.with_implied()
    }

    /// Adds what callers must have beside a credential. Every problem is reported.
    pub fn with_demands(
        mut self,
        config: &AuthConfig,
        node: &Node,
        context: &mut DoorContext<'_>,
    ) -> Option<Self> {
        let before = context.report.errors();
        for scope in &config.scopes {
            // What RFC 6749, section 3.3 lets a scope have, so that it can stand in a challenge.
            let is_sound = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
            if scope.value.is_empty() || !scope.value.bytes().all(is_sound) {
                let shown = scope.value.escape_debug();
                let message = format!("`{shown}` is no scope");
                let hint = "a scope has no spaces or quotes; write several as a list";
                context
                    .report
                    .error(BAD_AUTH, scope.span, message)
                    .hint(hint);
            }
            self.scopes.push(scope.value.clone());
        }
        if let Some(require) = &config.require {
            self.require = condition(require, context);
        } else if node.get("require").is_some() {
            return None;
        }
        (context.report.errors() == before).then_some(self)
    }

    /// The way that a credential is for: of several with one carrier the one that takes it, else
    /// the one that cannot tell, else the one that takes every request, else the first, which
    /// refuses it.
    fn way(&self, credential: &Credential<'_>, head: RequestHead<'_>) -> Option<&Arc<dyn Way>> {
        let carrier = self.finder.carriers().get(credential.carrier)?;
        let is_token = *carrier == Carrier::Bearer;
        let is_from =
            |way: &dyn Way| !is_token || way.properties().token_sources.allow(credential.source);
        let is_it = |way: &&Arc<dyn Way>| way.carrier() == carrier && is_from(&***way);
        let ways = || self.ways.iter().filter(is_it);
        let first = ways().next()?;
        // What a credential says of itself is not read where there is no choice.
        if ways().nth(1).is_none() && (self.always().is_none() || !first.properties().tells_apart) {
            return Some(first);
        }
        let told =
            ways().find(|it| it.properties().tells_apart && it.takes(&credential.value, head));
        let other = || ways().find(|it| !it.properties().tells_apart);
        Some(told.or_else(other).or(self.always()).unwrap_or(first))
    }

    /// Answers a request without a credential by the first way that can, such as one that redirects
    /// browsers to a login.
    #[cold]
    fn invite<'a>(
        &'a self,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Option<(&'a Arc<dyn Way>, Check<'a>)> {
        let mut ways = self.ways.iter();
        ways.find_map(|way| Some((way, way.invite(head, services)?)))
    }

    /// The way that takes every request that no other one takes.
    fn always(&self) -> Option<&Arc<dyn Way>> {
        let last = self.ways.last()?;
        (*last.carrier() == Carrier::Always).then_some(last)
    }

    /// Decides whether the caller that a way has found may come in.
    fn known(
        &self,
        entry: &Entry<'_>,
        checked: Checked,
        head: RequestHead<'_>,
        services: &dyn Services,
    ) -> Result<Known, Box<Reply>> {
        let Known { caller, settlement } = match checked {
            Ok(known) => known,
            Err(rejection) => return Err(self.reject(entry, rejection, None, head)),
        };
        if caller.is_denied(&|| services.wall().as_secs()) {
            let rejection = Rejection::Invalid("denied");
            return Err(self.reject(entry, rejection, Some(&caller), head));
        }
        if !caller.is_printable() {
            let rejection = Rejection::Invalid("control_character_in_id");
            return Err(self.reject(entry, rejection, None, head));
        }
        self.check_demands(&**entry.way, &caller, head, || {
            match (&self.require, head.message) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(condition), Some(message)) => {
                    let mut message = message.clone();
                    message.caller = Some(Arc::clone(&caller) as _);
                    condition.holds(message, services)
                }
            }
        })?;
        Ok(Known { caller, settlement })
    }

    fn decide(
        &self,
        entry: &Entry<'_>,
        checked: Checked,
        head: RequestHead<'_>,
        services: &dyn Services,
    ) -> Result<Admitted, Box<Reply>> {
        let way = entry.way;
        let Known { caller, settlement } = self.known(entry, checked, head, services)?;
        let mut admitted = Admitted {
            caller,
            strip: None,
            implied: self.implied.clone(),
            settlement,
            reply_fields: Vec::new(),
            successor: None,
        };
        if let Some(shown) = &entry.shown {
            admitted.strip = Some(CredentialLocation::Ticket);
            admitted.keep_private();
            let desk = self.tickets.as_ref().filter(|_| shown.is_ticket);
            let at = (head.is_secure, services);
            let cookie = desk.and_then(|desk| desk.cookie(&shown.grant, &admitted.caller, at));
            if let Some((pair, field)) = cookie {
                admitted.reply_fields.extend(field);
                admitted.successor = Some(pair.into());
            }
            return Ok(admitted);
        }
        let place = match entry.has_proof {
            true => Some(CredentialLocation::Dpop),
            false => way.carrier().place(entry.source),
        };
        if place == Some(CredentialLocation::Subprotocol) {
            let chosen = TOKEN_SUBPROTOCOL.to_owned();
            admitted.reply_fields.push((SUBPROTOCOL_FIELD, chosen));
        }
        if matches!(place, Some(CredentialLocation::Query(_))) {
            admitted.keep_private();
        }
        // A token among subprotocols is none that a back end could choose.
        let passes = way.properties().passes && place != Some(CredentialLocation::Subprotocol);
        admitted.strip = place.filter(|_| !passes);
        Ok(admitted)
    }

    /// Judges a request by what its way makes of the credential.
    fn end<'a>(
        &'a self,
        entry: Entry<'a>,
        check: Check<'a>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Judgement<'a> {
        match check {
            Check::NeedsBody => Judgement::NeedsBody,
            Check::Ready(checked) => Judgement::Ready(self.decide(&entry, checked, head, services)),
            Check::Pending(check) => Judgement::Pending(Box::pin(async move {
                let checked = check.await;
                self.decide(&entry, checked, head, services)
            })),
        }
    }

    /// Judges a request of a browser that has logged in by several of the ways: the first session
    /// that is good counts, in the order of the ways.
    #[cold]
    fn judge_cookies<'a>(
        &'a self,
        cookies: Vec<Credential<'a>>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Judgement<'a> {
        Judgement::Pending(Box::pin(async move {
            let mut refused = None;
            for cookie in cookies {
                let Some(way) = self.way(&cookie, head) else {
                    continue;
                };
                let entry = Entry::of(way, &cookie);
                let checked = match way.check(cookie, head, services) {
                    Check::Ready(checked) => checked,
                    Check::Pending(check) => check.await,
                    Check::NeedsBody => continue,
                };
                if checked.is_ok() {
                    return self.decide(&entry, checked, head, services);
                }
                refused.get_or_insert((entry, checked));
            }
            match refused {
                Some((entry, checked)) => self.decide(&entry, checked, head, services),
                None => Err(self.refuse_unknown(head)),
            }
        }))
    }

    /// Whether a request shows a credential on purpose.
    fn is_shown(&self, found: Option<&Credential<'_>>) -> bool {
        let carrier = found.and_then(|it| self.finder.carriers().get(it.carrier));
        carrier.is_some_and(|it| !it.is_implied())
    }

    /// Judges a request that shows no credential on purpose by its ticket or the cookie that
    /// follows one; `None` when it has neither.
    #[cold]
    fn judge_ticket<'a>(
        &'a self,
        (desk, ticket): (&TicketDesk, Option<&str>),
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Option<Judgement<'a>> {
        let refuse = |rejection| Some(Judgement::Ready(Err(self.refuse_ticket(rejection, head))));
        let mut shown = match desk.find(head, ticket, services) {
            Ok(shown) => shown?,
            Err(rejection) => return refuse(rejection),
        };
        let mut carriers = self.finder.carriers().iter();
        let name = Some(&shown.grant.carrier);
        let carrier = carriers.position(|it| it.ticket_name().as_ref() == name);
        let value = match shown.is_ticket {
            true => shown.grant.credential.clone(),
            false => std::mem::take(&mut shown.grant.credential),
        };
        let credential = carrier.map(|carrier| Credential {
            value: Cow::Owned(value),
            ..Credential::none(carrier)
        });
        let found = credential.and_then(|it| Some((self.way(&it, head)?, it)));
        let found = found.filter(|(way, _)| can_come_again(&***way));
        let Some((way, credential)) = found else {
            return refuse(Rejection::Invalid("ticket_of_another_way"));
        };
        let entry = Entry {
            shown: Some(shown),
            ..Entry::of(way, &credential)
        };
        let check = way.check(credential, head, services);
        Some(self.end(entry, check, head, services))
    }

    fn refuse_ticket(&self, rejection: Rejection, head: RequestHead<'_>) -> Box<Reply> {
        let (reason, reply) = match rejection {
            Rejection::Invalid(reason) => (reason, self.refusals.unknown()),
            Rejection::Answered(reason, reply) => (reason, reply),
            Rejection::Limited(wait) => (LIMITED, refusal::limited(wait)),
            Rejection::Proof(reason) | Rejection::Unavailable(reason) => {
                (reason, refusal::unavailable())
            }
        };
        self.note((None, None), reason, head, reply)
    }

    /// The reply to a request without a credential.
    #[cold]
    fn refuse_unknown(&self, head: RequestHead<'_>) -> Box<Reply> {
        let reply = self.refusals.unknown();
        self.note((None, None), "no_credential", head, reply)
    }

    /// The reply to a request with two credentials, or one that nobody can read.
    #[cold]
    fn refuse_unreadable(&self, problem: Problem, head: RequestHead<'_>) -> Box<Reply> {
        let reply = self.refusals.unreadable(problem);
        self.note((None, None), problem.name(), head, reply)
    }

    /// Gives a ticket for the credential of a request.
    async fn give_ticket(
        &self,
        head: RequestHead<'_>,
        services: &dyn Services,
    ) -> Result<Box<Reply>, Box<Reply>> {
        let Some(desk) = &self.tickets else {
            return Err(refusal::no_tickets());
        };
        let found = self.finder.find(head);
        let found = found.map_err(|problem| self.refuse_unreadable(problem, head))?;
        let found = found.ok_or_else(|| self.refuse_unknown(head))?;
        let carrier = self.finder.carriers().get(found.carrier);
        let name = carrier.and_then(Carrier::ticket_name);
        // A proof of possession is good once: the token could not be shown again.
        let name = name.filter(|_| found.proof.is_none());
        let no_tickets = || {
            self.note(
                (None, None),
                "no_ticket_for_it",
                head,
                refusal::no_tickets(),
            )
        };
        let name = name.ok_or_else(no_tickets)?;
        let way = self.way(&found, head);
        let way = way.ok_or_else(|| self.refuse_unknown(head))?;
        // One that takes every request looks at the credential itself, which is not there then.
        if !can_come_again(&**way) {
            return Err(no_tickets());
        }
        let credential = found.value.to_vec();
        let entry = Entry::of(way, &found);
        let checked = match way.check(found, head, services) {
            Check::Ready(checked) => checked,
            Check::Pending(check) => check.await,
            // Only of signatures, which have no name.
            Check::NeedsBody => return Err(no_tickets()),
        };
        let known = self.known(&entry, checked, head, services)?;
        let given = desk.give(&known.caller, (name, credential), head, services);
        given.map_err(|(reason, reply)| {
            let who = (Some(&**entry.way), Some(&*known.caller));
            self.note(who, reason, head, reply)
        })
    }

    /// Whether a caller has what is demanded beside a credential.
    fn check_demands(
        &self,
        way: &dyn Way,
        caller: &Caller,
        head: RequestHead<'_>,
        requirement: impl FnOnce() -> bool,
    ) -> Result<(), Box<Reply>> {
        let has = |scope: &String| caller.scopes.contains(scope);
        if !self.scopes.iter().all(has) {
            let reply = self.refusals.forbidden(way.carrier(), &self.scopes);
            return Err(self.note((Some(way), Some(caller)), "scope", head, reply));
        }
        if !requirement() {
            let reply = self.refusals.forbidden(way.carrier(), &[]);
            return Err(self.note((Some(way), Some(caller)), "require", head, reply));
        }
        Ok(())
    }

    #[cold]
    fn reject(
        &self,
        entry: &Entry<'_>,
        rejection: Rejection,
        caller: Option<&Caller>,
        head: RequestHead<'_>,
    ) -> Box<Reply> {
        let way = &**entry.way;
        let (reason, reply) = match rejection {
            Rejection::Invalid(reason) => {
                let reply = self.refusals.invalid(way.carrier(), entry.has_proof);
                (Cow::Borrowed(reason), reply)
            }
            Rejection::Proof(reason) => {
                (format!("proof_{reason}").into(), self.refusals.unproved())
            }
            Rejection::Unavailable(reason) => (reason.into(), refusal::unavailable()),
            Rejection::Limited(wait) => (LIMITED.into(), refusal::limited(wait)),
            Rejection::Answered(reason, reply) => (reason.into(), reply),
        };
        self.note((Some(way), caller), &reason, head, reply)
    }

    /// Logs a refusal and tells the audit stream, unless it only sends a browser to log in.
    #[cold]
    fn note(
        &self,
        (way, caller): (Option<&dyn Way>, Option<&Caller>),
        reason: &str,
        head: RequestHead<'_>,
        reply: Box<Reply>,
    ) -> Box<Reply> {
        let way = way.map(|it| it.name());
        let shown = way.map(|it| &**it);
        tracing::debug!(
            target: "auth", door = %self.name, way = shown, peer = %head.peer, reason, "refused"
        );
        if reply.status >= 400 {
            let refusal = Refusal {
                way,
                id: caller.map(|it| &it.id),
                reason,
                status: Some(reply.status),
                target: &self.name,
            };
            self.audit.refused(&refusal, || Origin::from(&head));
        }
        reply
    }
}

/// Whether credentials of a way can be presented again, so that a ticket can stand for them.
fn can_come_again(way: &dyn Way) -> bool {
    way.carrier().ticket_name().is_some() && way.properties().dpop != Dpop::Required
}

fn condition(require: &Spanned<String>, context: &mut DoorContext<'_>) -> Option<Condition> {
    let scope = context.evaluation.scope();
    let expression = compile_expression(&require.value, require.span, &scope, context.report)?;
    if expression.uses_input() || scope.uses_original() {
        let message = "`require` sees no body: it decides before one is read";
        context
            .report
            .error(BAD_AUTH, require.span, message)
            .hint("use `$auth`, `$headers`, `$path`, `$query` and `$method`");
        return None;
    }
    Some(Condition {
        context: context.evaluation.context(context.name, &scope),
        expression,
    })
}

impl Condition {
    /// Whether the condition holds for a message with its caller. One that fails does not.
    fn holds(&self, message: Request, services: &dyn Services) -> bool {
        let mut exchange = Exchange::new(&self.context, message);
        match exchange.holds(&self.expression, services) {
            Ok(holds) => holds,
            Err(fault) => {
                tracing::warn!(
                    target: "auth", door = %self.context.name, %fault, "`require` has failed"
                );
                false
            }
        }
    }
}

impl Door for AccessDoor {
    fn recalls(&self) -> bool {
        self.has_one_that_recalls && self.tickets.is_none() && self.require.is_none()
    }

    fn recall(
        &self,
        head: RequestHead<'_>,
        services: &dyn Services,
    ) -> Option<Result<Admitted, Box<Reply>>> {
        if !self.recalls() {
            return None;
        }
        let found = self.finder.locate(head).ok()??;
        let way = self.way(&found, head)?;
        let checked = way.recall(&found, head, services)?;
        Some(self.decide(&Entry::of(way, &found), checked, head, services))
    }

    fn judge<'a>(&'a self, head: RequestHead<'a>, services: &'a dyn Services) -> Judgement<'a> {
        let refuse = |problem| Judgement::Ready(Err(self.refuse_unreadable(problem, head)));
        let found = match self.finder.find(head) {
            Ok(found) => found,
            Err(problem) => return refuse(problem),
        };
        if let Some(desk) = &self.tickets {
            match (tickets::presented(head), self.is_shown(found.as_ref())) {
                (Err(problem), _) => return refuse(problem),
                (Ok(Some(_)), true) => return refuse(Problem::SeveralCredentials),
                (Ok(None), true) => {}
                (Ok(ticket), false) => {
                    let by = (desk, ticket.as_deref());
                    if let Some(judgement) = self.judge_ticket(by, head, services) {
                        return judgement;
                    }
                }
            }
        }
        let (way, credential) = match found {
            Some(found) => {
                let others = match self.finder.other_cookies(&found, head) {
                    Ok(others) => others,
                    Err(problem) => return refuse(problem),
                };
                if !others.is_empty() {
                    let all = std::iter::once(found).chain(others);
                    return self.judge_cookies(all.collect(), head, services);
                }
                (self.way(&found, head), found)
            }
            None => (self.always(), Credential::none(0)),
        };
        let (entry, check) = match way {
            Some(way) => {
                let entry = Entry::of(way, &credential);
                (entry, way.check(credential, head, services))
            }
            None => match self.invite(head, services) {
                Some((way, check)) => (Entry::of(way, &credential), check),
                None => return Judgement::Ready(Err(self.refuse_unknown(head))),
            },
        };
        // The connection has it, whoever asks: somebody without a credential of their own may log
        // in.
        if *entry.way.carrier() == Carrier::Certificate
            && matches!(check, Check::Ready(Err(Rejection::Invalid(_))))
            && let Some((way, check)) = self.invite(head, services)
        {
            let entry = Entry { way, ..entry };
            return self.end(entry, check, head, services);
        }
        self.end(entry, check, head, services)
    }

    fn pages(&self) -> Vec<AccessPage> {
        self.ways.iter().flat_map(|it| it.pages()).collect()
    }

    fn needs_message(&self) -> bool {
        self.tickets.is_some()
            || self.require.is_some()
            || self.ways.iter().any(|it| it.properties().needs_message)
    }

    fn reads_body(&self) -> bool {
        self.ways.iter().any(|it| it.properties().reads_body)
    }

    fn reads_certificate(&self) -> bool {
        let carriers = self.finder.carriers();
        carriers.contains(&Carrier::Certificate)
    }

    fn judges_once(&self) -> bool {
        self.ways
            .iter()
            .any(|it| it.properties().dpop != Dpop::Ignored)
    }

    fn rewrites_fields(&self) -> bool {
        self.tickets.is_some() || self.sources.subprotocol
    }

    fn gives_tickets(&self) -> bool {
        self.tickets.is_some()
    }

    fn passing_way(&self) -> Option<&Arc<str>> {
        let passes = |way: &&Arc<dyn Way>| way.properties().passes && can_come_again(&***way);
        self.ways.iter().find(passes).map(|way| way.name())
    }

    fn ticket<'a>(
        &'a self,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Box<Reply>, Box<Reply>>> {
        Box::pin(self.give_ticket(head, services))
    }

    fn secret_parameters(&self) -> &[Arc<str>] {
        &self.secret_parameters
    }

    fn way_names(&self) -> Vec<Arc<str>> {
        self.ways.iter().map(|it| Arc::clone(it.name())).collect()
    }

    fn takes_secrets(&self) -> bool {
        let is_secret = |it: &Carrier| !matches!(it, Carrier::Signature(_) | Carrier::Always);
        self.finder.carriers().iter().any(is_secret)
    }

    fn judge_known(&self, request: &Request, services: &dyn Services) -> Result<(), Box<Reply>> {
        let known = Caller::of(request).and_then(|caller| {
            let way = self.ways.iter().find(|it| **it.name() == *caller.way)?;
            Some((way, caller))
        });
        let Some((way, caller)) = known else {
            return Err(self.refusals.unknown());
        };
        self.check_demands(&**way, caller, RequestHead::of(request), || {
            let require = self.require.as_ref();
            require.is_none_or(|it| it.holds(request.clone(), services))
        })
    }
}
