//! What a test offers to the flow that it runs: mocks in place of other systems, a clock of its
//! own, and an eye on everything that happens. Nothing is ever opened.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::egress::{Refusal, Target};
use component::exchange::Exchange;
use component::forward::ForwardPlan;
use component::handler::{Call, Callee, LocalFuture, Outbound, Outcome, Services, Work, within};
use component::plan::Plan;
use component::resources::Resources;
use config::Span;
use flow::tests_section::TestCase;
use message::{Fault, Kind, Method, Origin, Reply, Request};

use super::coverage::Coverage;
use super::executor::{Clock, Supply};
use super::mock::{self, Chosen, Mocks};
use super::seen::Seen;
use super::suite::Failure;

/// A call that the flow has made.
pub(super) struct Made {
    /// The names that the system goes by: the step's, the connection's, the host's.
    pub names: Vec<String>,
    /// The request.
    pub seen: Seen,
}

/// What the flow has done.
#[derive(Default)]
pub(super) struct Observed {
    /// The calls, in order.
    pub calls: Vec<Made>,
    /// The message when the flow had ended.
    pub end: Option<Exchange>,
    /// The failure that ended the steps.
    pub fault: Option<Fault>,
    /// The status with which the `auth` of the flow has refused the message.
    pub refused: Option<u16>,
    /// Why the test cannot go on, and where that stands.
    pub abort: Option<(String, Option<Span>)>,
}

/// What a test offers to the flow that it runs.
pub(super) struct TestServices<'t> {
    case: &'t TestCase,
    flow: &'t str,
    plan: &'t Plan,
    mocks: Mocks<'t>,
    coverage: &'t RefCell<Coverage>,
    start: Instant,
    /// The time of the test.
    pub clock: Clock,
    /// What the flow has done.
    pub observed: RefCell<Observed>,
    /// What was not as the turns of a dialogue expect.
    pub turns: RefCell<Vec<Failure>>,
    spawned: RefCell<Vec<Work>>,
    /// Nothing is kept: mocks answer for all other systems.
    resources: Resources,
}

impl<'t> TestServices<'t> {
    pub fn new(
        case: &'t TestCase,
        (flow, plan): (&'t str, &'t Plan),
        coverage: &'t RefCell<Coverage>,
    ) -> Self {
        Self {
            case,
            flow,
            plan,
            mocks: Mocks::new(&case.mocks),
            coverage,
            start: Instant::now(),
            clock: Clock::default(),
            observed: RefCell::default(),
            turns: RefCell::default(),
            spawned: RefCell::default(),
            resources: Resources::default(),
        }
    }

    /// The reply that the last step of a flow streams, as the client would get it.
    pub async fn finish(&self, outcome: Outcome) -> Result<Reply, Fault> {
        let (plan, request, left) = match outcome {
            Outcome::Reply(reply) => return Ok(reply),
            Outcome::Forward(plan, request, left) => (plan, request, left),
            // No step answers so; what does has tests of its own.
            Outcome::Stream(..) => {
                let detail = "a test cannot follow a stream";
                return Err(Fault::new(Kind::Internal, Origin::Engine, detail));
            }
        };
        if plan.websocket && !is_handshake(&request) {
            return Ok(Reply::new(426));
        }
        let step = self
            .observed
            .borrow()
            .end
            .as_ref()
            .map(|end| Arc::clone(&end.at));
        let work = self.forward(&plan, &request, step.as_deref().unwrap_or_default());
        let reply = match left {
            Some(left) => within(left, self, work).await,
            None => Some(work.await),
        };
        let mut reply = reply.unwrap_or_else(|| Err(mock::failure(Kind::Timeout)))?;
        let edits = &plan.reply_fields;
        edits
            .remove
            .iter()
            .for_each(|name| reply.headers.remove(name));
        for (name, line) in &edits.set {
            reply.headers.set(name, line);
        }
        Ok(reply)
    }

    async fn forward(
        &self,
        plan: &Arc<ForwardPlan>,
        request: &Request,
        step: &str,
    ) -> Result<Reply, Fault> {
        let upstream = &plan.upstream;
        let names = vec![
            step.to_owned(),
            upstream.name.to_string(),
            upstream.authority(),
        ];
        let patience = plan.timeouts.response;
        let patience = patience.unwrap_or(self.plan.settings.timeouts.response);
        self.answer(names, Seen::of_plan(plan, request), Some(patience))
            .await
    }

    /// What the mock says that stands in for a system of these names.
    async fn answer(
        &self,
        names: Vec<String>,
        seen: Seen,
        patience: Option<Duration>,
    ) -> Result<Reply, Fault> {
        let name = names.get(1).cloned().unwrap_or_default();
        let chosen = self.mocks.choose(&names, &seen, self);
        let line = seen.line();
        let made = Made {
            names,
            seen: seen.clone(),
        };
        self.observed.borrow_mut().calls.push(made);
        let answer = match chosen {
            Ok(Chosen::Answer(answer)) => answer,
            Ok(Chosen::NoMock) => {
                let message = format!("{name} was called and the test has no mock for it: {line}");
                return self.abort(message, None).await;
            }
            Ok(Chosen::NoAnswer(mock)) => {
                let message = format!("no answer of the mock `{mock}` is left for {line}");
                return self.abort(message, None).await;
            }
            Err(fault) => {
                let message = format!("a `when` of a mock: {}", mock::explain(&fault));
                return self.abort(message, None).await;
            }
        };
        if let Some(patience) = patience.filter(|patience| answer.delay > *patience) {
            self.clock.sleep(patience).await;
            return Err(mock::failure(Kind::Timeout));
        }
        if !answer.delay.is_zero() {
            self.clock.sleep(answer.delay).await;
        }
        match mock::reply(answer, &seen, self) {
            Ok(reply) => reply,
            Err(message) => {
                let message = format!("the mock cannot answer: {message}");
                self.abort(message, Some(answer.span)).await
            }
        }
    }

    /// Ends the test: what the flow made of it would only hide the cause.
    async fn abort(&self, message: String, span: Option<Span>) -> Result<Reply, Fault> {
        self.observed
            .borrow_mut()
            .abort
            .get_or_insert((message, span));
        std::future::pending().await
    }
}

impl Services for TestServices<'_> {
    fn call<'a>(&'a self, call: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(self.forward(call.plan, call.request, call.step))
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        self.clock.sleep(time)
    }

    fn now(&self) -> Instant {
        self.start + self.clock.passed()
    }

    fn system_time(&self, at: Instant) -> Instant {
        // The clock of the test stands still while work is done, and jumps over waits.
        Instant::now() + at.saturating_duration_since(self.now())
    }

    fn wall(&self) -> Duration {
        self.case.at + self.clock.passed()
    }

    fn random(&self) -> f64 {
        0.0
    }

    fn flow(&self, name: &str) -> Option<Arc<dyn Callee>> {
        let mut callees = self.plan.callees.iter();
        let found = callees.find(|(known, _)| **known == *name);
        found.map(|(_, callee)| Arc::clone(callee))
    }

    fn spawn(&self, work: Work) {
        self.spawned.borrow_mut().push(work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        work();
        Box::pin(async {})
    }

    fn resources(&self) -> &Resources {
        &self.resources
    }

    fn egress(&self, url: &str) -> Result<Target, Refusal> {
        self.plan.settings.egress.target(url)
    }

    fn visit(&self, exchange: &Exchange, place: u32) {
        let mut coverage = self.coverage.borrow_mut();
        coverage.visit(&exchange.context.name, place);
    }

    fn failed(&self, exchange: &Exchange, fault: &Fault) {
        if exchange.depth == 0 && *exchange.context.name == *self.flow {
            let mut observed = self.observed.borrow_mut();
            observed.fault.get_or_insert_with(|| fault.clone());
        }
    }

    fn ended(&self, exchange: &Exchange) {
        if exchange.depth == 0 && *exchange.context.name == *self.flow {
            let mut observed = self.observed.borrow_mut();
            match self.case.dialogue.is_empty() {
                true => drop(observed.end.get_or_insert_with(|| exchange.clone())),
                // The last turn counts.
                false => observed.end = Some(exchange.clone()),
            }
        }
    }

    fn stands_in(&self) -> bool {
        true
    }

    fn stand_in<'a>(
        &'a self,
        outbound: Outbound<'a>,
        exchange: &mut Exchange,
    ) -> Option<LocalFuture<'a, Result<Reply, Fault>>> {
        let names = vec![outbound.step.to_owned(), outbound.connection.to_owned()];
        let has_mock = || {
            let mut mocks = self.case.mocks.iter();
            mocks.any(|mock| names.contains(&mock.name))
        };
        // A called flow, and a menu that begins a session, run for real unless a mock stands in.
        if matches!(outbound.verb, "call" | "ussd") && !has_mock() {
            return None;
        }
        let seen = Seen::of_step(outbound, exchange);
        Some(Box::pin(self.answer(names, seen, None)))
    }
}

impl<'a> Supply<'a> for &'a TestServices<'_> {
    fn spawned(&self) -> Vec<LocalFuture<'a, ()>> {
        let services: &'a TestServices<'_> = self;
        let works = services.spawned.take().into_iter();
        works.map(|work| work(services)).collect()
    }

    fn is_aborted(&self) -> bool {
        self.observed.borrow().abort.is_some()
    }
}

/// Whether a request asks for WebSocket (RFC 6455, section 4.1).
fn is_handshake(request: &Request) -> bool {
    let has = |name, wanted: &[u8]| {
        let value = request.headers.get(name).unwrap_or_default();
        let mut parts = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        parts.any(|part| part.eq_ignore_ascii_case(wanted))
    };
    request.method == Method::Get && has("Upgrade", b"websocket") && has("Connection", b"upgrade")
}
