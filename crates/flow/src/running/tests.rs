//! Flows run with fake steps and a worker whose clock jumps.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::*;
use crate::enveloped::Enveloped;
use component::block::StepNode;
use component::endpoint::{Envelope, Note, Opened};
use component::failure::{Clause, Matcher};
use component::handler::{Call, Work};
use component::limits::{KeptLimits, LimiterSettings, Patience, Throttled, Who, WindowSettings};
use component::resilience::Guard;
use component::resources::Resources;
use component::state::{StateKey, States};
use component::step::{Progress, Step};
use message::{Body, Headers, Method};

/// What a fake step does.
enum Fake {
    /// Appends this text to the body, at once.
    Append(&'static str),
    /// The same, after this many milliseconds.
    AppendAfter(&'static str, u64),
    /// Ends the flow.
    Reply,
    /// Fails.
    Fail(Option<&'static str>),
    /// Forwards.
    Forward(Arc<ForwardPlan>),
    /// Appends how many milliseconds are left, `-` for no deadline, and how much is held.
    AppendLeft,
    /// Holds something, and never ends.
    HoldForever,
    /// Makes a value that is written beside the worker.
    MakeLarge,
}

fn append(exchange: &mut Exchange, text: &str) -> Result<Next, Fault> {
    let mut bytes = exchange.body()?.0.as_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    exchange.set_value(expr::value::text(String::from_utf8(bytes).unwrap()));
    Ok(Next::Continue)
}

impl Step for Fake {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        match self {
            Self::Append(text) => Progress::Done(append(exchange, text)),
            Self::AppendAfter(text, time) => Progress::Waits(Box::pin(async move {
                services.sleep(Duration::from_millis(*time)).await;
                append(exchange, text)
            })),
            Self::Reply => Progress::Done(exchange.take_reply(299).map(Next::Reply)),
            Self::Fail(cause) => {
                let fault = Fault::new(Kind::Invalid, Origin::Client, "no");
                Progress::Done(Err(match cause {
                    Some(cause) => fault.with_cause(cause),
                    None => fault,
                }))
            }
            Self::Forward(plan) => Progress::Done(Ok(Next::Forward(Arc::clone(plan)))),
            Self::AppendLeft => {
                let left = exchange
                    .deadline
                    .map(|at| (at - services.now()).as_millis());
                let left = left.map_or("-".to_owned(), |left| left.to_string());
                let text = format!("{left}/{} ", exchange.held.len());
                Progress::Done(append(exchange, &text))
            }
            Self::MakeLarge => {
                let text = expr::value::text("x".repeat(300_000));
                exchange.set_value(expr::value::array([text]));
                Progress::Done(Ok(Next::Continue))
            }
            Self::HoldForever => {
                exchange.held.push(Rc::new(()));
                let hour = services.sleep(Duration::from_secs(3600));
                Progress::Waits(Box::pin(async {
                    hour.await;
                    Ok(Next::Continue)
                }))
            }
        }
    }
}

/// Services whose clock jumps to whatever is waited for.
struct Jumping {
    start: Instant,
    passed: Rc<Cell<Duration>>,
    next: Rc<Cell<Option<Duration>>>,
    resources: Resources,
    /// How long what is done beside the worker takes.
    beside: Duration,
    /// How often something was done there.
    beside_count: Cell<usize>,
}

impl Jumping {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            passed: Rc::default(),
            next: Rc::default(),
            resources: Resources::default(),
            beside: Duration::ZERO,
            beside_count: Cell::new(0),
        }
    }

    fn finish<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            self.next.set(None);
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return value;
            }
            self.passed
                .set(self.next.get().expect("somebody waits for a time"));
        }
        panic!("the future never ends");
    }
}

impl Services for Jumping {
    fn call<'a>(&'a self, _: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(async { panic!("nobody calls out") })
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        let (passed, next) = (Rc::clone(&self.passed), Rc::clone(&self.next));
        let until = passed.get() + time;
        Box::pin(std::future::poll_fn(move |_| {
            if passed.get() >= until {
                return Poll::Ready(());
            }
            next.set(Some(next.get().map_or(until, |next| next.min(until))));
            Poll::Pending
        }))
    }

    fn now(&self) -> Instant {
        self.start + self.passed.get()
    }

    fn wall(&self) -> Duration {
        self.passed.get()
    }

    fn random(&self) -> f64 {
        0.0
    }

    fn flow(&self, _: &str) -> Option<Arc<dyn Callee>> {
        None
    }

    fn spawn(&self, _: Work) {}

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        work();
        self.beside_count.set(self.beside_count.get() + 1);
        match self.beside {
            Duration::ZERO => Box::pin(async {}),
            time => self.sleep(time),
        }
    }

    fn resources(&self) -> &Resources {
        &self.resources
    }
}

fn block(steps: Vec<Fake>) -> Block {
    let nodes = steps.into_iter().enumerate().map(|(at, step)| StepNode {
        place: 0,
        label: format!("{} (fake)", at + 1).into(),
        step: Box::new(step),
        condition: None,
        keep_as: None,
        guard: None,
        fallback: None,
        on_error: None,
    });
    Block {
        place: 0,
        steps: nodes.collect(),
    }
}

fn flow(steps: Vec<Fake>) -> RunningFlow {
    RunningFlow {
        context: Arc::new(FlowContext::new("test")),
        block: block(steps),
        on_error: None,
        limits: FlowLimits::default(),
        detaches: false,
        reads_body: true,
    }
}

fn request(body: &str) -> Request {
    let mut headers = Headers::new();
    headers.append("Content-Type", "text/plain");
    Request {
        method: Method::Post,
        path: "/".into(),
        query: None,
        parameters: Vec::new(),
        headers,
        body: body.as_bytes().to_vec().into(),
        peer: [127, 0, 0, 1].into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    }
}

fn run(flow: &RunningFlow, body: &str) -> Result<Outcome, Fault> {
    let services = Jumping::new();
    services.finish(flow.handle(request(body), &services))
}

fn reply(flow: &RunningFlow, body: &str) -> (u16, String) {
    match run(flow, body) {
        Ok(Outcome::Reply(reply)) => (
            reply.status,
            String::from_utf8_lossy(reply.body.as_bytes()).into_owned(),
        ),
        other => panic!("no reply: {other:?}"),
    }
}

#[test]
fn steps_run_in_order() {
    let steps = vec![
        Fake::Append("1"),
        Fake::AppendAfter("2", 5),
        Fake::Append("3"),
    ];
    assert_eq!(reply(&flow(steps), "0"), (200, "0123".to_owned()));
}

#[test]
fn a_flow_without_reply_answers_with_the_body_or_with_nothing() {
    let idle = flow(Vec::new());
    assert_eq!(reply(&idle, "x"), (200, "x".to_owned()));
    assert_eq!(reply(&idle, ""), (204, String::new()));
    let Ok(Outcome::Reply(reply)) = run(&idle, "x") else {
        panic!()
    };
    assert_eq!(reply.headers.get("Content-Type"), Some(&b"text/plain"[..]));
}

#[test]
fn a_reply_ends_the_flow() {
    let steps = vec![Fake::Reply, Fake::Append("never")];
    assert_eq!(reply(&flow(steps), "x"), (299, "x".to_owned()));
}

#[test]
fn a_last_step_that_forwards_hands_the_request_over_with_the_time_that_is_left() {
    let upstream = Arc::new(component::upstream::UpstreamPlan::single(
        "backend", 80, None,
    ));
    let plan = Arc::new(ForwardPlan::new(upstream, "/"));
    let mut flow = flow(vec![Fake::AppendAfter("!", 40), Fake::Forward(plan)]);
    flow.limits.time = Some(Duration::from_millis(100));
    let Ok(Outcome::Forward(plan, request, left)) = run(&flow, "x") else {
        panic!()
    };
    assert_eq!(plan.upstream.authority(), "backend");
    assert_eq!(request.body.as_bytes(), b"x!");
    assert_eq!(left, Some(Duration::from_millis(60)));
}

#[test]
fn a_fault_names_the_step_for_the_log_only() {
    let causes = [
        (None, "flow test, step 2 (fake)"),
        (Some("line 3"), "flow test, step 2 (fake): line 3"),
    ];
    for (cause, expected) in causes {
        let steps = vec![Fake::Append(""), Fake::Fail(cause), Fake::Append("never")];
        let fault = run(&flow(steps), "x").unwrap_err();
        assert_eq!(fault.cause.as_deref(), Some(expected));
        assert_eq!(fault.detail, "no");
        assert_eq!(fault.status, 400);
    }
}

#[test]
fn the_time_of_a_flow_is_one_deadline_for_all_steps() {
    let steps = || vec![Fake::AppendAfter("1", 60), Fake::AppendAfter("2", 60)];
    let mut flow = flow(steps());
    flow.limits.time = Some(Duration::from_millis(100));
    let fault = run(&flow, "").unwrap_err();
    assert_eq!((fault.name(), fault.status), ("timeout", 504));
    assert_eq!(fault.step.as_deref(), Some("2 (fake)"));
    flow.limits.time = Some(Duration::from_millis(121));
    assert_eq!(reply(&flow, "").0, 200);
}

#[test]
fn deadlines_are_nested_over_flows_and_steps() {
    let milliseconds = Duration::from_millis;
    let called = |limit, timeout, caller_left| {
        let mut flow = flow(vec![Fake::AppendLeft, Fake::AppendLeft]);
        flow.limits.time = Some(milliseconds(limit));
        flow.block.steps[0].guard = Some(Box::new(Guard {
            timeout: Some(milliseconds(timeout)),
            ..Guard::default()
        }));
        let services = Jumping::new();
        let caller = CallerContext {
            depth: 1,
            deadline: Some(services.now() + milliseconds(caller_left)),
        };
        let reply = services.finish(flow.call(request(""), caller, &services));
        String::from_utf8_lossy(reply.unwrap().body.as_bytes()).into_owned()
    };
    assert_eq!(called(100, 50, 200), "50/0 100/0 ");
    assert_eq!(called(100, 150, 200), "100/0 100/0 ");
    assert_eq!(called(100, 50, 70), "50/0 70/0 ");
    assert_eq!(called(100, 50, 20), "20/0 20/0 ");
}

#[test]
fn what_steps_held_is_let_go_when_the_time_is_over() {
    let mut flow = flow(vec![Fake::HoldForever]);
    flow.limits.time = Some(Duration::from_millis(100));
    let handler = Clause {
        on: vec![Matcher::of_name("timeout").unwrap()],
        block: block(vec![Fake::AppendLeft, Fake::Reply]),
    };
    flow.on_error = Some(Handlers(vec![handler]));
    assert_eq!(reply(&flow, ""), (299, "100/0 ".to_owned()));
}

#[test]
fn waiting_to_be_started_is_part_of_the_time() {
    let mut flow = flow(vec![Fake::Append("1")]);
    flow.limits.time = Some(Duration::from_millis(100));
    let states = States::default();
    let settings = LimiterSettings {
        windows: vec![WindowSettings {
            count: 1,
            per: Duration::from_millis(500),
            burst: 1,
        }],
        patience: Patience {
            wait: Duration::from_secs(10),
            queue: None,
        },
        callers_max: 64,
    };
    flow.limits.gate = Some(Arc::new(Gate {
        context: FlowContext::new("test").into(),
        kept: KeptLimits::of(&states),
        throttles: vec![Throttled {
            name: "throttle".into(),
            by: Who::Everybody,
            limiter: KeptLimits::limiter(&states, StateKey::shared("test", "throttle"), &settings),
        }],
        plan: None,
        headers: false,
    }));
    let services = Jumping::new();
    let run = || services.finish(flow.call(request(""), CallerContext::default(), &services));
    assert!(run().is_ok());
    let fault = run().unwrap_err();
    assert_eq!(
        (fault.name(), fault.detail.as_ref()),
        ("timeout", "the flow took too long")
    );
}

#[test]
fn handlers_have_a_time_of_their_own_and_a_problem_is_the_default_reply() {
    let clause = |name: &str, steps| Clause {
        on: vec![Matcher::of_name(name).unwrap()],
        block: block(steps),
    };
    let mut flow = flow(vec![Fake::AppendAfter("1", 200)]);
    flow.limits.time = Some(Duration::from_millis(100));
    flow.on_error = Some(Handlers(vec![
        clause("invalid", vec![Fake::Reply]),
        clause("timeout", vec![Fake::AppendAfter("", 90)]),
    ]));
    let (status, body) = reply(&flow, "");
    assert_eq!(status, 504);
    assert!(body.contains("\"status\":504"), "{body}");
    flow.on_error = Some(Handlers(vec![clause("any", vec![Fake::Reply])]));
    assert_eq!(reply(&flow, "x"), (299, "x".to_owned()));
    flow.on_error = Some(Handlers(vec![clause(
        "any",
        vec![Fake::AppendAfter("", 110)],
    )]));
    assert_eq!(run(&flow, "").unwrap_err().status, 504);
}

#[test]
fn what_a_handler_forwards_is_written_within_its_time() {
    let upstream = component::upstream::UpstreamPlan::single("backend", 80, None);
    let plan = Arc::new(ForwardPlan::new(Arc::new(upstream), "/"));
    let mut flow = flow(vec![Fake::Fail(None)]);
    flow.limits.time = Some(Duration::from_millis(100));
    let handler = Clause {
        on: vec![Matcher::of_name("any").unwrap()],
        block: block(vec![Fake::MakeLarge, Fake::Forward(plan)]),
    };
    flow.on_error = Some(Handlers(vec![handler]));
    let status = |time: u64| {
        let mut services = Jumping::new();
        services.beside = Duration::from_millis(time);
        let outcome = services.finish(flow.handle(request(""), &services));
        outcome.map(|_| 0).unwrap_or_else(|fault| fault.status)
    };
    assert_eq!((status(90), status(110)), (0, 504));
}

/// A protocol that puts a bracket on either side of a reply.
struct Brackets;

impl Envelope for Brackets {
    fn methods(&self) -> Vec<Method> {
        vec![Method::Post]
    }

    fn open(&self, request: Request) -> Opened {
        Opened::Message(Box::new(request), Arc::new(()))
    }

    fn close(&self, _: &Note, end: Result<Reply, &Fault>) -> (Reply, Option<Fault>) {
        let mut reply = end.unwrap_or_else(|_| Reply::new(500));
        let body = [b"<", reply.body.as_bytes(), b">"].concat();
        reply.body = Body::from(body);
        (reply, None)
    }
}

#[test]
fn large_replies_are_put_into_their_protocol_beside_the_worker() {
    for (steps, size, beside) in [
        (vec![Fake::Append("a")], 3, 0),
        // Once to write the value, and once to put the reply into the protocol.
        (vec![Fake::MakeLarge], 300_006, 2),
    ] {
        let enveloped = Enveloped {
            flow: Arc::new(flow(steps)),
            envelope: Arc::new(Brackets),
        };
        let services = Jumping::new();
        let end = services.finish(Handler::handle(&enveloped, request(""), &services));
        let Ok(Outcome::Reply(reply)) = end else {
            panic!("no reply");
        };
        assert_eq!(reply.body.as_bytes().len(), size);
        assert_eq!(services.beside_count.get(), beside);
    }
}
