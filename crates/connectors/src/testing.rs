//! What the tests of connections and steps share: building one from YAML, and somebody who stands
//! in for the other system.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use component::block::Block;
use component::connection::{Connection, Connections};
use component::definition::{
    BlockReader, BuildContext, ConnectionContext, ConnectionDefinition, StepDefinition,
    Surroundings,
};
use component::evaluation::Evaluation;
use component::exchange::{Exchange, FlowContext};
use component::failure::Handlers;
use component::handler::{Call, Callee, LocalFuture, Outbound, Services, Work};
use component::resources::Resources;
use component::scope::Scope;
use component::source::{Source, SourceContext, SourceDefinition};
use component::state::States;
use component::step::{Next, Progress, Step};
use config::{Node, Report, SourceId, Sources};
use message::{Fault, Headers, Method, Reply, Request};

pub(crate) fn parse(yaml: &str) -> (Node, Sources, SourceId, Report) {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let source = sources.add("test.yaml", yaml.as_bytes(), &mut report);
    let source = source.unwrap();
    let mut nodes = config::parse(&sources, source, &mut report);
    (nodes.remove(0), sources, source, report)
}

/// Every problem as `CODE line:column` and its message.
fn problems(report: &Report, sources: &Sources, source: SourceId) -> Vec<String> {
    let problems = report.diagnostics().iter().map(|problem| {
        let start = problem.span().map_or(0, |span| span.start);
        let (line, column) = sources.position(source, start);
        format!("{} {line}:{column} {}", problem.code(), problem.message())
    });
    problems.collect()
}

/// Builds a connection from the YAML under its name, or tells every problem.
pub(crate) fn connect(
    definition: &ConnectionDefinition,
    yaml: &str,
) -> Result<Arc<dyn Any + Send + Sync>, Vec<String>> {
    let (node, sources, source, mut report) = parse(yaml);
    let states = States::default();
    let mut context = ConnectionContext {
        report: &mut report,
        name: "it",
        surroundings: &Surroundings {
            files: &|_, name| file(name),
            folder: &|_| std::path::PathBuf::new(),
            states: &states,
            dead_letters: component::testing::no_dead_letters,
        },
    };
    let built = (definition.build)(&node, &mut context);
    let problems = problems(&report, &sources, source);
    assert_eq!(
        built.is_none(),
        !problems.is_empty(),
        "{yaml}: {problems:?}"
    );
    built.ok_or(problems)
}

/// Builds a step from the YAML under its verb, or tells every problem. There are the connections
/// `mq`, `db` (of Postgres), `shop` (of MySQL), `erp` and `old`, `cache` and `post`.
pub(crate) fn build(definition: &StepDefinition, yaml: &str) -> Result<Box<dyn Step>, Vec<String>> {
    let (node, sources, source, mut report) = parse(yaml);
    let connections = connections(node.span);
    let (flow, states): (Arc<str>, _) = ("test".into(), States::default());
    let surroundings = Surroundings {
        files: &|_, name| Err(format!("{name} is not there")),
        folder: &|_| std::path::PathBuf::new(),
        states: &states,
        dead_letters: component::testing::no_dead_letters,
    };
    let (mut upstreams, mut calls) = (Vec::new(), Vec::new());
    let (mut compiled, mut places) = (Vec::new(), Vec::new());
    let mut scope = Scope::default();
    let mut context = BuildContext {
        report: &mut report,
        flow: &flow,
        label: Arc::clone(&flow),
        path: "1".to_owned(),
        trigger: None,
        may_have_caller: false,
        identities: None,
        connections: &connections,
        is_last: false,
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
    let problems = problems(&report, &sources, source);
    assert_eq!(step.is_none(), !problems.is_empty(), "{yaml}: {problems:?}");
    step.ok_or(problems)
}

/// The files that connections may name.
fn file(name: &str) -> Result<Bytes, String> {
    match name {
        "erp.wsdl" => Ok(Bytes::from_static(include_bytes!("soap/testdata/erp.wsdl"))),
        _ => Err(format!("{name} is not there")),
    }
}

/// Builds a source from the YAML under its key, or tells every problem.
pub(crate) fn source(
    definition: &SourceDefinition,
    yaml: &str,
) -> Result<Arc<dyn Source>, Vec<String>> {
    source_of(definition, yaml, connections)
}

/// The same with these connections.
pub(crate) fn source_of(
    definition: &SourceDefinition,
    yaml: &str,
    connections: impl FnOnce(config::Span) -> Connections,
) -> Result<Arc<dyn Source>, Vec<String>> {
    let (node, sources, source, mut report) = parse(yaml);
    let connections = connections(node.span);
    let (flow, states): (Arc<str>, _) = ("test".into(), States::default());
    let mut context = SourceContext {
        report: &mut report,
        flow: &flow,
        connections: &connections,
        read_http: &|_, _| None,
        evaluation: &Evaluation::default(),
        surroundings: &Surroundings {
            files: &|_, name| Err(format!("{name} is not there")),
            folder: &|_| std::path::PathBuf::new(),
            states: &states,
            dead_letters: component::testing::no_dead_letters,
        },
    };
    let built = (definition.build)(&node, &mut context);
    let problems = problems(&report, &sources, source);
    assert_eq!(
        built.is_none(),
        !problems.is_empty(),
        "{yaml}: {problems:?}"
    );
    built.ok_or(problems)
}

fn connections(span: config::Span) -> Connections {
    let texts = [
        ("mq", "rabbitmq", "{ rabbitmq: 'amqp://mq' }"),
        ("db", "postgres", "{ postgres: 'postgres://db' }"),
        ("shop", "mysql", "{ mysql: 'mysql://db' }"),
        ("erp", "soap", "{ soap: erp.wsdl }"),
        ("old", "soap", "{ soap: erp.wsdl, port: Legacy }"),
        ("cache", "redis", "{ redis: 'redis://cache' }"),
        ("post", "smtp", "{ smtp: 'smtp://post' }"),
    ];
    let made = texts.into_iter().map(|(name, kind, yaml)| {
        let mut definitions = crate::CONNECTIONS.iter();
        let definition = definitions.find(|it| it.name == kind).unwrap();
        Connection {
            name: name.to_owned(),
            kind,
            span,
            value: connect(definition, yaml).unwrap(),
            key_value: None,
        }
    });
    Connections::of(made.collect::<Vec<_>>())
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

/// A message with this JSON as its body.
pub(crate) fn exchange(body: &str) -> Exchange {
    let mut headers = Headers::new();
    headers.append("Content-Type", "application/json");
    let request = Request {
        method: Method::Post,
        path: "/orders".into(),
        query: None,
        parameters: Vec::new(),
        headers,
        body: body.as_bytes().to_vec().into(),
        peer: [127, 0, 0, 1].into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    };
    Exchange::new(&Arc::new(FlowContext::new("test")), request)
}

/// The body as JSON.
pub(crate) fn body(exchange: &mut Exchange) -> String {
    let (body, _) = exchange.body().unwrap();
    String::from_utf8(body.as_bytes().to_vec()).unwrap()
}

/// Somebody who stands in for all other systems, as a test of a flow does.
#[derive(Default)]
pub(crate) struct StandIn {
    /// What it says; nobody stands in without an answer.
    pub answer: Option<Result<Reply, Fault>>,
    /// What another system answers when nobody stands in for it; 500 without one.
    pub reply: Option<Reply>,
    /// How often something was done beside the worker.
    pub beside: Cell<usize>,
    /// Verb, connection and body of every call.
    pub seen: RefCell<Vec<(String, String, String)>>,
    /// What connectors keep.
    pub resources: Resources,
    /// Whether no time passes, so that nothing takes too long; else a wait is over at once.
    pub is_timeless: bool,
    /// Whether waits take as long as they do.
    pub is_timed: bool,
}

impl StandIn {
    /// One that answers with this status and JSON.
    pub fn says(status: u16, json: &str) -> Self {
        let mut reply = Reply::new(status);
        reply.headers.append("Content-Type", "application/json");
        reply.body = json.as_bytes().to_vec().into();
        Self {
            answer: Some(Ok(reply)),
            ..Self::default()
        }
    }
}

impl Services for StandIn {
    fn call<'a>(&'a self, _: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        let reply = self.reply.clone().unwrap_or_else(|| Reply::new(500));
        Box::pin(async { Ok(reply) })
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        match self.is_timeless {
            true => Box::pin(std::future::pending()),
            false if self.is_timed => Box::pin(tokio::time::sleep(time)),
            false => Box::pin(async {}),
        }
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Duration {
        Duration::ZERO
    }

    fn random(&self) -> f64 {
        0.0
    }

    fn flow(&self, _: &str) -> Option<Arc<dyn Callee>> {
        None
    }

    fn spawn(&self, _: Work) {}

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        self.beside.set(self.beside.get() + 1);
        work();
        Box::pin(async {})
    }

    fn resources(&self) -> &Resources {
        &self.resources
    }

    fn stands_in(&self) -> bool {
        true
    }

    fn stand_in<'a>(
        &'a self,
        outbound: Outbound<'a>,
        exchange: &mut Exchange,
    ) -> Option<LocalFuture<'a, Result<Reply, Fault>>> {
        let answer = self.answer.clone()?;
        let (verb, connection) = (outbound.verb.to_owned(), outbound.connection.to_owned());
        self.seen
            .borrow_mut()
            .push((verb, connection, body(exchange)));
        Some(Box::pin(async { answer }))
    }
}

/// Runs a step to its end.
pub(crate) fn run(
    step: &dyn Step,
    exchange: &mut Exchange,
    services: &StandIn,
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
        Poll::Pending => panic!("who stands in never waits"),
    }
}
