//! What stands in front of a flow or a topic.

use std::borrow::Cow;
use std::sync::Arc;

use component::access::{AccessPage, Admitted, Caller, Door, DoorContext, Judgement, RequestHead};
use component::definition::compile_expression;
use component::exchange::{Exchange, FlowContext};
use component::handler::Services;
use config::{Node, Spanned};
use expr::jq::Expression;
use message::Reply;

use crate::codes::BAD_AUTH;
use crate::config::AuthConfig;
use crate::credential::{Carrier, Finder};
use crate::refusal::{self, Refusals};
use crate::way::{Check, Checked, Known, Rejection, Way};

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
        let secret_parameters = carriers.iter().filter_map(parameter).collect();
        let finder = Finder::new(carriers)?;
        Ok(Self {
            name: name.to_owned(),
            ways,
            secret_parameters,
            refusals: Refusals::new(&finder)?,
            finder,
            scopes: Vec::new(),
            require: None,
        })
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
    fn way(&self, carrier: usize, credential: &[u8]) -> Option<&Arc<dyn Way>> {
        let carrier = self.finder.carriers().get(carrier)?;
        let ways = || self.ways.iter().filter(|it| it.carrier() == carrier);
        let first = ways().next()?;
        // What a credential says of itself is not read where there is no choice.
        if ways().nth(1).is_none() && (self.always().is_none() || !first.tells_apart()) {
            return Some(first);
        }
        let told = ways().find(|it| it.tells_apart() && it.takes(credential));
        let other = || ways().find(|it| !it.tells_apart());
        Some(told.or_else(other).or(self.always()).unwrap_or(first))
    }

    /// What the first way that has an answer for it makes of a request without a credential.
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

    fn decide(
        &self,
        way: &dyn Way,
        checked: Checked,
        head: RequestHead<'_>,
        services: &dyn Services,
    ) -> Result<Admitted, Box<Reply>> {
        let Known { caller, settlement } = match checked {
            Ok(known) => known,
            Err(rejection) => return Err(self.reject(way, rejection, head)),
        };
        let has = |scope: &String| caller.scopes.contains(scope);
        if !self.scopes.iter().all(has) {
            self.log(way, "scope", head);
            return Err(self.refusals.forbidden(way.carrier(), &self.scopes));
        }
        let holds = match &self.require {
            None => true,
            Some(condition) => condition.holds(&caller, head, services),
        };
        if !holds {
            self.log(way, "require", head);
            return Err(self.refusals.forbidden(way.carrier(), &[]));
        }
        let place = || way.carrier().place();
        Ok(Admitted {
            caller,
            strip: (!way.passes()).then(place).flatten(),
            settlement,
        })
    }

    #[cold]
    fn reject(&self, way: &dyn Way, rejection: Rejection, head: RequestHead<'_>) -> Box<Reply> {
        match rejection {
            Rejection::Invalid(reason) => {
                self.log(way, reason, head);
                self.refusals.invalid(way.carrier())
            }
            Rejection::Unavailable(reason) => {
                self.log(way, reason, head);
                refusal::unavailable()
            }
            Rejection::Limited(wait) => {
                self.log(way, "limited", head);
                refusal::limited(wait)
            }
            Rejection::Answered(reason, reply) => {
                self.log(way, reason, head);
                reply
            }
        }
    }

    #[cold]
    fn log(&self, way: &dyn Way, reason: &str, head: RequestHead<'_>) {
        tracing::debug!(
            target: "auth", door = %self.name, way = %way.name(), peer = %head.peer, reason,
            "refused"
        );
    }
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
    /// Whether the condition holds. One that fails does not.
    fn holds(&self, caller: &Arc<Caller>, head: RequestHead<'_>, services: &dyn Services) -> bool {
        let Some(message) = head.message else {
            return false;
        };
        let mut message = message.clone();
        message.caller = Some(Arc::clone(caller) as _);
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
    fn judge<'a>(&'a self, head: RequestHead<'a>, services: &'a dyn Services) -> Judgement<'a> {
        let (way, credential) = match self.finder.find(head) {
            Ok(Some(found)) => (self.way(found.carrier, &found.value), found.value),
            Ok(None) => (self.always(), Cow::Borrowed(&[][..])),
            Err(problem) => return Judgement::Ready(Err(self.refusals.unreadable(problem))),
        };
        let (way, check) = match way {
            Some(way) => (way, way.check(credential, head, services)),
            None => match self.invite(head, services) {
                Some(invited) => invited,
                None => return Judgement::Ready(Err(self.refusals.unknown())),
            },
        };
        match check {
            Check::NeedsBody => Judgement::NeedsBody,
            Check::Ready(checked) => Judgement::Ready(self.decide(&**way, checked, head, services)),
            Check::Pending(check) => Judgement::Pending(Box::pin(async move {
                let checked = check.await;
                self.decide(&**way, checked, head, services)
            })),
        }
    }

    fn pages(&self) -> Vec<AccessPage> {
        self.ways.iter().flat_map(|it| it.pages()).collect()
    }

    fn needs_message(&self) -> bool {
        self.require.is_some() || self.ways.iter().any(|it| it.needs_message())
    }

    fn reads_body(&self) -> bool {
        self.ways.iter().any(|it| it.reads_body())
    }

    fn secret_parameters(&self) -> &[Arc<str>] {
        &self.secret_parameters
    }
}
