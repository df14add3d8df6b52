//! What the tests of steps share: building a step from YAML and running it without a worker.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use component::block::Block;
use component::connection::{Connection, Connections, HttpConnection};
use component::definition::{BlockReader, BuildContext, StepDefinition, Surroundings};
use component::exchange::{Exchange, FlowContext};
use component::failure::Handlers;
use component::handler::{Call, Callee, LocalFuture, Services, Work};
use component::scope::Scope;
use component::state::States;
use component::step::{Next, Progress, Step};
use component::trigger::{HttpTrigger, ListenAddress, Methods, PathPattern};
use component::upstream::UpstreamPlan;
use config::{Node, Report, Sources};
use message::{Fault, Headers, Method, Reply, Request};

/// Where a built step stands.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Whether the trigger's path ends with `*`.
    pub rest: bool,
    /// Whether the step is the last.
    pub is_last: bool,
}

/// A last step of a flow whose path has no `*`.
pub(crate) const LAST: Place = Place {
    rest: false,
    is_last: true,
};

/// A step with others behind it.
pub(crate) const MIDDLE: Place = Place {
    rest: false,
    is_last: false,
};

/// Builds the step from the YAML under its verb, or tells every problem as `CODE line:column` and
/// its message.
pub(crate) fn build(
    definition: &StepDefinition,
    yaml: &str,
    place: Place,
) -> Result<Box<dyn Step>, Vec<String>> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let source = sources
        .add("test.yaml", yaml.as_bytes(), &mut report)
        .unwrap();
    let nodes = config::parse(&sources, source, &mut report);
    // `reply:` without a value is a document of nothing, which the parser leaves out.
    let nothing = || Node {
        value: config::Value::Null,
        span: config::Span {
            source,
            start: 0,
            end: 0,
        },
    };
    let node = nodes.into_iter().next().unwrap_or_else(nothing);
    let trigger = HttpTrigger {
        methods: Methods::Any,
        listen: ListenAddress {
            host: None,
            port: 80,
        },
        path: PathPattern {
            segments: Vec::new(),
            rest: place.rest,
        },
        body_max: 1024,
        decode: None,
    };
    let connections = connections();
    let (flow, states): (Arc<str>, _) = ("test".into(), States::default());
    let surroundings = Surroundings {
        files: &|_, name| Err(format!("{name} is not there")),
        states: &states,
    };
    let (mut upstreams, mut calls) = (Vec::new(), Vec::new());
    let (mut compiled, mut places) = (Vec::new(), Vec::new());
    let mut scope = Scope::default();
    let mut context = BuildContext {
        report: &mut report,
        flow: &flow,
        label: Arc::clone(&flow),
        path: "1".to_owned(),
        trigger: Some(&trigger),
        connections: &connections,
        is_last: place.is_last,
        may_stream: true,
        scope: &mut scope,
        upstreams: &mut upstreams,
        calls: &mut calls,
        compiled: &mut compiled,
        places: &mut places,
        blocks: &NoBlocks,
        surroundings: &surroundings,
    };
    let step = (definition.build)(&node, &mut context);
    let problems: Vec<String> = report
        .diagnostics()
        .iter()
        .map(|problem| {
            let start = problem.span().map_or(0, |span| span.start);
            let (line, column) = sources.position(source, start);
            let code = problem.code().as_str();
            // The words of `config` are its own matter.
            let message = if code < "IT02" { "" } else { problem.message() };
            format!("{code} {line}:{column} {message}")
                .trim_end()
                .to_owned()
        })
        .collect();
    assert_eq!(step.is_none(), !problems.is_empty(), "{yaml}: {problems:?}");
    step.ok_or(problems)
}

/// A reader for steps that hold no others.
struct NoBlocks;

impl BlockReader for NoBlocks {
    fn read_block(&self, _: &Node, _: bool, _: &mut BuildContext<'_>) -> Option<Block> {
        None
    }

    fn read_one(&self, _: &Node, _: &[&str], _: bool, _: &mut BuildContext<'_>) -> Option<Block> {
        None
    }

    fn read_handlers(&self, _: &Node, _: &mut BuildContext<'_>) -> Option<Handlers> {
        None
    }
}

/// One connection of each kind that steps may meet: `crm` is an `http` one.
fn connections() -> Connections {
    let upstream = Arc::new(UpstreamPlan::single("crm.example", 81, None));
    let base = "/api".to_owned();
    let fields = Vec::new();
    let crm = HttpConnection {
        upstream,
        base,
        fields,
    };
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let source = sources.add("engine.yaml", b"", &mut report).unwrap();
    let connection = |name: &str, kind, value| Connection {
        name: name.to_owned(),
        kind,
        span: config::Span {
            source,
            start: 0,
            end: 0,
        },
        value,
    };
    Connections(vec![
        connection("crm", "http", Arc::new(crm)),
        connection("queue", "other", Arc::new(())),
    ])
}

/// Builds a last step that has no problem.
pub(crate) fn sound(definition: &StepDefinition, yaml: &str) -> Box<dyn Step> {
    build(definition, yaml, LAST).unwrap_or_else(|problems| panic!("{yaml}: {problems:?}"))
}

/// Checks a table of broken YAML texts and the problems they have.
pub(crate) fn assert_problems(definition: &StepDefinition, cases: &[(&str, &[&str])]) {
    for (yaml, expected) in cases {
        match build(definition, yaml, LAST) {
            Ok(_) => panic!("no problem in {yaml}"),
            Err(found) => assert_eq!(found, *expected, "{yaml}"),
        }
    }
}

/// A message with these headers and this body.
pub(crate) fn exchange(lines: &[(&str, &str)], body: &[u8]) -> Exchange {
    let mut headers = Headers::new();
    for (name, value) in lines {
        headers.append(name, value);
    }
    let request = Request {
        method: Method::Post,
        path: "/orders".into(),
        query: Some("a=1".into()),
        parameters: Vec::new(),
        headers,
        body: body.to_vec().into(),
        peer: [127, 0, 0, 1].into(),
        is_secure: false,
    };
    Exchange::new(&Arc::new(FlowContext::new("test")), request)
}

/// A worker that answers every call with one reply and keeps what it was asked.
#[derive(Default)]
pub(crate) struct FakeServices {
    /// The reply; none is a connection that fails.
    pub reply: Option<Reply>,
    /// Host, body of each call.
    pub calls: RefCell<Vec<(String, Vec<u8>)>>,
}

impl Services for FakeServices {
    fn call<'a>(&'a self, call: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(async move {
            let sent = call.request.body.as_bytes().to_vec();
            let asked = (call.plan.upstream.authority(), sent);
            self.calls.borrow_mut().push(asked);
            let failed = || {
                let detail = "the upstream cannot be reached";
                Fault::new(message::Kind::Connection, message::Origin::Upstream, detail)
            };
            self.reply.clone().ok_or_else(failed)
        })
    }

    fn sleep(&self, _: Duration) -> LocalFuture<'static, ()> {
        Box::pin(async {})
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Duration {
        Duration::ZERO
    }

    fn chance(&self) -> f64 {
        0.0
    }

    fn flow(&self, _: &str) -> Option<Arc<dyn Callee>> {
        None
    }

    fn spawn(&self, _: Work) {}

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        work();
        Box::pin(async {})
    }
}

/// Runs a step to its end.
pub(crate) fn run(
    step: &dyn Step,
    exchange: &mut Exchange,
    services: &FakeServices,
) -> Result<Next, Fault> {
    match step.run(exchange, services) {
        Progress::Done(result) => result,
        Progress::Waits(future) => finish(future),
    }
}

fn finish<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the fake worker never waits"),
    }
}

/// The reply that a step ends the flow with.
pub(crate) fn reply_of(step: &dyn Step, exchange: &mut Exchange) -> Reply {
    match run(step, exchange, &FakeServices::default()) {
        Ok(Next::Reply(reply)) => reply,
        other => panic!("no reply: {other:?}"),
    }
}

/// All lines of a head as `Name: value`.
pub(crate) fn lines(headers: &Headers) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    headers
        .view()
        .iter()
        .map(|(_, name, value)| format!("{}: {}", text(name), text(value)))
        .collect()
}
