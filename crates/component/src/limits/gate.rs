//! What stands at the door of a flow or a topic: it is asked for each request, before the body is
//! read.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use expr::Value;
use expr::template::{Part, Template};
use message::{Body, Fault, HeadersView, Kind, Of, Origin, RateLimit, Request, Retry};

use super::fields;
use super::kept::{Id, KeptLimits};
use super::limiter::{Exceeded, Limiter};
use super::plan::{Held, Plan, Plans};
use super::table::CallerHash;
use crate::access::Caller;
use crate::exchange::{Exchange, FlowContext};
use crate::handler::Services;

/// The most throttles of one gate.
pub const THROTTLES_MAX: usize = 8;

/// What stands at the door of a flow or a topic. All workers share it.
pub struct Gate {
    /// The names of its expressions.
    pub context: Arc<FlowContext>,
    /// Makes the hashes.
    pub kept: Arc<KeptLimits>,
    /// Limits of its own, at most [`THROTTLES_MAX`].
    pub throttles: Vec<Throttled>,
    /// The plans that callers have.
    pub plan: Option<PlanChoice>,
    /// Whether every reply tells what is left, not only refusals.
    pub headers: bool,
}

impl fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "gate of {}", self.context.name)
    }
}

/// A limit, and who is counted by it.
pub struct Throttled {
    /// What replies call it.
    pub name: Box<str>,
    /// Who is counted.
    pub by: Who,
    /// The limit.
    pub limiter: Arc<Limiter>,
}

/// Who is counted, or which plan a caller has. What gives null stands for the address.
pub enum Who {
    /// All together.
    Everybody,
    /// The client's address.
    Address,
    /// The caller, by way and id: `${ $auth.id }`, which needs no evaluation.
    Caller,
    /// The caller's plan: `${ $auth.plan }`, which needs no evaluation.
    CallerPlan,
    /// The value of this header field, its name in small letters: `${ $headers.NAME }`, which needs
    /// no evaluation.
    Header(Box<str>),
    /// What this gives.
    Value(Template),
}

/// Which plan a caller has, and who is counted by it.
pub struct PlanChoice {
    /// Gives the plan's name.
    pub which: Which,
    /// Who is counted.
    pub by: Who,
    /// The plans there are.
    pub plans: Arc<Plans>,
}

/// How a plan is chosen.
pub enum Which {
    /// This one.
    Fixed(Arc<Plan>),
    /// The one whose name this gives.
    Named(Who),
}

/// A request as a gate sees it.
#[derive(Clone, Copy)]
pub struct Visit<'a> {
    /// The client's address, as trusted proxies tell it.
    pub address: IpAddr,
    /// The request's header fields.
    pub headers: HeadersView<'a>,
    /// The field in which a door has found the credential, when that goes no further: limits must
    /// not see it either.
    pub hidden: Option<&'a str>,
    /// Who has sent it, where a door has found out.
    pub caller: Option<&'a Caller>,
    /// When it came.
    pub now: Instant,
}

/// A request that has been admitted, at once or after a wait. Dropped before
/// [`Entered::finish`], it is not counted.
pub struct Entered<'a> {
    gate: &'a Gate,
    /// How long it has to wait first.
    pub wait: Duration,
    hashes: Hashes,
    plan: Option<Arc<Plan>>,
    is_finished: bool,
}

/// Who is counted by each throttle, and by the plan.
#[derive(Clone, Copy, Default)]
struct Hashes([CallerHash; THROTTLES_MAX + 1]);

/// What is known of a request that has been admitted.
#[derive(Default)]
pub struct Passed {
    /// What the reply tells of the limits.
    pub fields: Option<Box<RateLimit>>,
    /// The caller's plan.
    pub admission: Option<Admission>,
}

/// A caller's plan, and under which hash it is counted.
#[derive(Clone)]
pub struct Admission {
    plan: Arc<Plan>,
    caller: CallerHash,
}

impl Who {
    /// Who a template counts.
    pub fn of_template(template: Template) -> Self {
        match template.parts() {
            [Part::Hole(expression)] => match expression.text().trim() {
                "$auth.id" => Self::Caller,
                "$auth.plan" => Self::CallerPlan,
                text => match header_of(text) {
                    Some(name) => Self::Header(name.into()),
                    None => Self::Value(template),
                },
            },
            _ => Self::Value(template),
        }
    }

    fn needs_evaluation(&self) -> bool {
        matches!(self, Self::Value(_))
    }
}

/// The name of the header that an expression reads, when it is just `$headers.NAME` or
/// `$headers["NAME"]`.
fn header_of(expression: &str) -> Option<&str> {
    let rest = expression.trim().strip_prefix("$headers")?;
    let quoted = rest
        .strip_prefix("[\"")
        .and_then(|it| it.strip_suffix("\"]"));
    let quoted = quoted.or_else(|| rest.strip_prefix(".\"")?.strip_suffix('"'));
    let is_small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (name, is_name): (&str, &dyn Fn(u8) -> bool) = match quoted {
        Some(name) => (name, &|byte| is_small(byte) || b"-_".contains(&byte)),
        None => (rest.strip_prefix('.')?, &|byte| {
            is_small(byte) || byte == b'_'
        }),
    };
    (!name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

impl Visit<'_> {
    /// The same for a field that limits may see.
    fn with_header<R>(&self, name: &str, work: impl FnOnce(Option<&[u8]>) -> R) -> R {
        match self.hidden {
            Some(hidden) if hidden.eq_ignore_ascii_case(name) => work(None),
            _ => with_header(self.headers, name, work),
        }
    }
}

/// What a header field says; `None` without it.
fn with_header<R>(
    headers: HeadersView<'_>,
    name: &str,
    work: impl FnOnce(Option<&[u8]>) -> R,
) -> R {
    let is_it = |it: &(_, &[u8], _)| it.1.eq_ignore_ascii_case(name.as_bytes());
    let mut lines = headers.iter().filter(|it| is_it(&(it.0, it.1, it.2)));
    let first = lines.next().map(|it| it.2);
    match (first, lines.next()) {
        (Some(first), Some((_, _, second))) => {
            let mut all = [first, b", ", second].concat();
            for (_, _, line) in lines {
                all.extend_from_slice(b", ");
                all.extend_from_slice(line);
            }
            work(Some(&all))
        }
        (first, _) => work(first),
    }
}

impl Gate {
    /// Whether it can only be asked with [`Gate::enter_by_value`].
    pub fn needs_evaluation(&self) -> bool {
        let plan = self.plan.as_ref();
        let by_value = |plan: &PlanChoice| {
            let which = matches!(&plan.which, Which::Named(who) if who.needs_evaluation());
            which || plan.by.needs_evaluation()
        };
        self.throttles.iter().any(|it| it.by.needs_evaluation()) || plan.is_some_and(by_value)
    }

    /// Lets a request in, now or after [`Entered::wait`].
    ///
    /// # Errors
    /// `limited` when a limit is exceeded, `forbidden` when the caller's plan is unknown.
    pub fn enter(&self, visit: &Visit<'_>) -> Result<Entered<'_>, Fault> {
        let mut hashes = Hashes::default();
        for (throttle, hash) in self.throttles.iter().zip(&mut hashes.0) {
            *hash = self.hash(&throttle.by, visit);
        }
        let mut plan = None;
        if let Some(choice) = &self.plan {
            *hashes.of_plan() = self.hash(&choice.by, visit);
            plan = Some(match &choice.which {
                Which::Fixed(plan) => plan,
                Which::Named(Who::Header(name)) => visit.with_header(name, |name| {
                    choice
                        .plans
                        .find(name.and_then(|it| str::from_utf8(it).ok()))
                })?,
                Which::Named(Who::CallerPlan) => choice
                    .plans
                    .find(visit.caller.and_then(|it| it.plan.as_deref()))?,
                Which::Named(_) => choice.plans.find(None)?,
            });
        }
        self.take(hashes, plan, visit.now)
    }

    #[inline]
    fn hash(&self, who: &Who, visit: &Visit<'_>) -> CallerHash {
        match who {
            Who::Everybody => self.kept.hash(Id::Everybody),
            Who::Header(name) => visit.with_header(name, |value| match value {
                Some(value) => self.kept.hash(Id::Value(value)),
                None => self.kept.hash(Id::Address(visit.address)),
            }),
            Who::Caller | Who::CallerPlan => match (visit.caller, who) {
                (Some(caller), Who::Caller) => self.kept.hash(Id::Caller(&caller.way, &caller.id)),
                (
                    Some(Caller {
                        plan: Some(plan), ..
                    }),
                    _,
                ) => self.kept.hash(Id::Value(plan.as_bytes())),
                _ => self.kept.hash(Id::Address(visit.address)),
            },
            Who::Address | Who::Value(_) => self.kept.hash(Id::Address(visit.address)),
        }
    }

    /// The same for a gate with expressions, which see the head of the request.
    ///
    /// # Errors
    /// As [`Gate::enter`], and those of the expressions.
    pub async fn enter_by_value(
        &self,
        request: &Request,
        services: &dyn Services,
    ) -> Result<Entered<'_>, Fault> {
        let mut head = request.clone();
        head.body = Body::Empty;
        let mut exchange = Exchange::new(&self.context, head);
        let mut hashes = Hashes::default();
        for (throttle, hash) in self.throttles.iter().zip(&mut hashes.0) {
            *hash = self
                .hash_by_value(&throttle.by, &mut exchange, services)
                .await?;
        }
        let mut plan = None;
        if let Some(choice) = &self.plan {
            let hash = self.hash_by_value(&choice.by, &mut exchange, services);
            *hashes.of_plan() = hash.await?;
            plan = Some(match &choice.which {
                Which::Fixed(plan) => plan,
                Which::Named(who) => {
                    let value = self.value(who, &mut exchange, services).await?;
                    let name = expr::value::scalar_text(&value).filter(|_| value != Value::Null);
                    choice.plans.find(name.as_deref())?
                }
            });
        }
        self.take(hashes, plan, services.now())
    }

    async fn hash_by_value(
        &self,
        who: &Who,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<CallerHash, Fault> {
        if !who.needs_evaluation() {
            let visit = Visit {
                hidden: None,
                address: exchange.request.peer,
                headers: exchange.request.headers.view(),
                caller: Caller::of(&exchange.request),
                now: services.now(),
            };
            return Ok(self.hash(who, &visit));
        }
        let value = self.value(who, exchange, services).await?;
        if value == Value::Null {
            return Ok(self.kept.hash(Id::Address(exchange.request.peer)));
        }
        Ok(match expr::value::scalar_text(&value) {
            Some(text) => self.kept.hash(Id::Value(text.as_bytes())),
            None => self.kept.hash(Id::Value(&structured(&value)?)),
        })
    }

    async fn value(
        &self,
        who: &Who,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Value, Fault> {
        match who {
            Who::Everybody | Who::Address => Ok(Value::Null),
            Who::Caller | Who::CallerPlan => {
                let caller = Caller::of(&exchange.request);
                let text = caller.and_then(|it| match who {
                    Who::Caller => Some(&it.id),
                    _ => it.plan.as_ref(),
                });
                Ok(text.map_or(Value::Null, |it| expr::value::text(&**it)))
            }
            Who::Header(name) => Ok(with_header(
                exchange.request.headers.view(),
                name,
                |value| {
                    let text = value.map(|it| String::from_utf8_lossy(it).into_owned());
                    text.map_or(Value::Null, expr::value::text)
                },
            )),
            Who::Value(template) => {
                let evaluated = exchange.preemptible(services, |it| it.fill(template, services));
                evaluated.await
            }
        }
    }

    /// Takes one request of all limits or of none.
    #[inline]
    fn take(
        &self,
        hashes: Hashes,
        plan: Option<&Arc<Plan>>,
        now: Instant,
    ) -> Result<Entered<'_>, Fault> {
        let mut wait = Duration::ZERO;
        for (at, (throttle, hash)) in self.throttles.iter().zip(hashes.0).enumerate() {
            match throttle.limiter.take(hash, 1, now) {
                Ok(time) => wait = wait.max(time),
                Err(exceeded) => {
                    self.give_back(&hashes, at, None);
                    let told = (&*throttle.name, &*throttle.limiter, exceeded);
                    return Err(self.refusal(told, &hashes, plan, now));
                }
            }
        }
        if let Some((plan, requests)) = plan.and_then(|it| Some((it, it.requests.as_ref()?))) {
            match requests.take(hashes.plan(), 1, now) {
                Ok(time) => wait = wait.max(time),
                Err(exceeded) => {
                    self.give_back(&hashes, self.throttles.len(), None);
                    let told = (&*plan.name, &**requests, exceeded);
                    return Err(self.refusal(told, &hashes, Some(plan), now));
                }
            }
        }
        Ok(Entered {
            gate: self,
            wait,
            hashes,
            plan: plan.map(Arc::clone),
            is_finished: false,
        })
    }

    /// Gives back what the first throttles, and the plan, have counted.
    fn give_back(&self, hashes: &Hashes, throttles: usize, plan: Option<&Plan>) {
        let taken = self.throttles.iter().zip(hashes.0).take(throttles);
        for (throttle, hash) in taken {
            throttle.limiter.give_back(hash, 1);
        }
        if let Some(requests) = plan.and_then(|it| it.requests.as_ref()) {
            requests.give_back(hashes.plan(), 1);
        }
    }

    #[cold]
    fn refusal(
        &self,
        (name, limiter, exceeded): (&str, &Limiter, Exceeded),
        hashes: &Hashes,
        plan: Option<&Arc<Plan>>,
        now: Instant,
    ) -> Fault {
        let mut told = self.fields(hashes, plan, now);
        told.exceeded = Some(fields::policy_name(name, limiter, exceeded.window));
        limited("too many requests", exceeded.free_in, told)
    }

    fn fields(&self, hashes: &Hashes, plan: Option<&Arc<Plan>>, now: Instant) -> RateLimit {
        let mut told = RateLimit::default();
        for (throttle, hash) in self.throttles.iter().zip(hashes.0) {
            let unit = fields::Unit::Requests;
            fields::tell(
                &mut told,
                (&throttle.name, unit),
                (&throttle.limiter, hash),
                now,
            );
        }
        if let Some((plan, requests)) = plan.and_then(|it| Some((it, it.requests.as_ref()?))) {
            let of = (&**requests, hashes.plan());
            fields::tell(&mut told, (&plan.name, fields::Unit::Requests), of, now);
        }
        told
    }
}

/// The failure of a limit that is exceeded.
fn limited(detail: &'static str, free_in: Duration, told: RateLimit) -> Fault {
    let mut fault = Fault::new(Kind::Limited, Origin::Client, detail);
    fault.of = Of::Limit(Box::new(told));
    fault.with_retry(Retry::Yes).with_retry_after(free_in)
}

/// A value that is no text, number or boolean, as JSON.
fn structured(value: &Value) -> Result<Vec<u8>, Fault> {
    let mut content = crate::content::Content::of_value(value.clone());
    let body = content.body(CALLER_SIZE_MAX)?;
    Ok(body.as_bytes().to_vec())
}

/// The most bytes of a value by which callers are told apart.
const CALLER_SIZE_MAX: usize = 64 * 1024;

impl Hashes {
    fn plan(&self) -> CallerHash {
        let [.., plan] = self.0;
        plan
    }

    fn of_plan(&mut self) -> &mut CallerHash {
        let [.., plan] = &mut self.0;
        plan
    }
}

impl Entered<'_> {
    /// Waits until it is the request's turn.
    pub async fn wait(&self, services: &dyn Services) {
        if !self.wait.is_zero() {
            let throttles = self.gate.throttles.iter().map(|it| &it.limiter);
            let _waiting: Vec<_> = throttles.map(|it| it.wait()).collect();
            services.sleep(self.wait).await;
        }
    }

    /// The request goes on: it is counted.
    #[inline]
    pub fn finish(mut self, now: Instant) -> Passed {
        self.is_finished = true;
        let plan = self.plan.take();
        Passed {
            fields: self.gate.headers.then(|| {
                let told = self.gate.fields(&self.hashes, plan.as_ref(), now);
                Box::new(told)
            }),
            admission: plan.map(|plan| Admission {
                plan,
                caller: self.hashes.plan(),
            }),
        }
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_finished {
            let throttles = self.gate.throttles.len();
            self.gate
                .give_back(&self.hashes, throttles, self.plan.as_deref());
        }
    }
}

impl Admission {
    /// Counts published events and their bytes.
    ///
    /// # Errors
    /// `limited` when there are more than the plan allows; then none has been counted.
    pub fn publish(&self, events: u64, bytes: u64, now: Instant) -> Result<(), Fault> {
        if let Some(limiter) = &self.plan.events {
            let taken = limiter.take(self.caller, events, now);
            taken.map_err(|it| self.refusal("too many events", fields::Unit::Events, it, now))?;
        }
        if let Some(limiter) = &self.plan.bytes
            && let Err(exceeded) = limiter.take(self.caller, bytes, now)
        {
            if let Some(limiter) = &self.plan.events {
                limiter.give_back(self.caller, events);
            }
            return Err(self.refusal("too many bytes", fields::Unit::Bytes, exceeded, now));
        }
        Ok(())
    }

    #[cold]
    fn refusal(
        &self,
        detail: &'static str,
        unit: fields::Unit,
        exceeded: Exceeded,
        now: Instant,
    ) -> Fault {
        let limiter = match unit {
            fields::Unit::Bytes => &self.plan.bytes,
            fields::Unit::Events => &self.plan.events,
            fields::Unit::Requests => &self.plan.requests,
        };
        let mut told = RateLimit::default();
        if let Some(limiter) = limiter {
            fields::tell(
                &mut told,
                (&self.plan.name, unit),
                (limiter, self.caller),
                now,
            );
            let name = fields::policy_name(&self.plan.name, limiter, exceeded.window);
            told.exceeded = Some(name);
        }
        limited(detail, exceeded.free_in, told)
    }

    /// Counts a stream that is opened.
    ///
    /// # Errors
    /// `limited` when the caller has as many as the plan allows.
    pub fn connect(&self) -> Result<Option<Held>, Fault> {
        let limit = self.plan.connections.as_ref();
        limit.map(|it| it.enter(self.caller)).transpose()
    }

    /// Counts a subscription.
    ///
    /// # Errors
    /// `limited` when the caller has as many as the plan allows.
    pub fn subscribe(&self) -> Result<Option<Held>, Fault> {
        let limit = self.plan.subscriptions.as_ref();
        limit.map(|it| it.enter(self.caller)).transpose()
    }

    /// Whether it is the same plan of the same caller.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.plan, &other.plan) && self.caller == other.caller
    }

    /// How long a stream of the caller may last.
    pub fn stream_time(&self) -> Option<Duration> {
        self.plan.stream_time
    }

    /// Fails when one more stream could not be opened now.
    ///
    /// # Errors
    /// `limited` when the caller has as many as the plan allows.
    pub fn check_connect(&self) -> Result<(), Fault> {
        match &self.plan.connections {
            Some(limit) if limit.is_full(self.caller) => Err(limit.exceeded()),
            _ => Ok(()),
        }
    }
}
