//! What the tests of steps share: building a step from YAML and running it without a worker.

mod blocks;
mod dropped;
mod flow;
mod long_work;
mod services;

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use component::connection::{Connection, Connections, HttpConnection};
use component::definition::{BuildContext, ConnectionContext, StepDefinition, Surroundings};
use component::exchange::{Exchange, FlowContext};
use component::scope::Scope;
use component::state::States;
use component::step::{Next, Progress, Step};
use component::trigger::{HttpTrigger, ListenAddress, Methods, PathPattern};
use component::upstream::UpstreamPlan;
use config::{Node, Report, Sources};
use message::{Fault, Headers, Method, Reply, Request};

pub(crate) use flow::{TestFlow, flow, sound_flow};
pub(crate) use services::FakeServices;

use blocks::TestBlocks;

/// The files that steps may name.
pub(crate) const FILES: &[(&str, &[u8])] = &[
    ("order.json", br#"{"type": "object", "required": ["id"]}"#),
    ("broken.json", b"{\n"),
    ("wrong.json", br#"{"properties": {"a": {"minimum": "x"}}}"#),
    ("mail.txt", b"Dear ${ .name },\nyours."),
    ("mistake.txt", b"a\nb ${ lenght }"),
    ("secret.txt", b"${ $secret.NOT_THERE }"),
    ("latin1.txt", b"\xe9"),
];

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
    let (mut scope, states) = (Scope::default(), States::default());
    let build = |node: &Node, context: &mut BuildContext<'_>| (definition.build)(node, context);
    read(yaml, place, (&mut scope, &states), build)
}

/// Reads YAML in the surroundings of a flow, or tells every problem.
fn read<T>(
    yaml: &str,
    place: Place,
    (scope, states): (&mut Scope, &States),
    build: impl FnOnce(&Node, &mut BuildContext<'_>) -> Option<T>,
) -> Result<T, Vec<String>> {
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
    let trigger = trigger(place);
    let connections = connections(states);
    let flow: Arc<str> = "test".into();
    let surroundings = Surroundings {
        files: &|_, name| match FILES.iter().find(|(known, _)| *known == name) {
            Some((_, bytes)) => Ok(Bytes::from_static(bytes)),
            None => Err(format!("{name} is not there")),
        },
        folder: &|_| std::path::PathBuf::new(),
        states,
        dead_letters: crate::store::dead_letters,
    };
    let (mut upstreams, mut calls) = (Vec::new(), Vec::new());
    let (mut compiled, mut places) = (Vec::new(), Vec::new());
    let mut context = BuildContext {
        report: &mut report,
        flow: &flow,
        label: Arc::clone(&flow),
        path: "1".to_owned(),
        trigger: Some(&trigger),
        may_have_caller: true,
        identities: None,
        connections: &connections,
        is_last: place.is_last,
        may_stream: true,
        scope,
        upstreams: &mut upstreams,
        calls: &mut calls,
        compiled: &mut compiled,
        places: &mut places,
        blocks: &TestBlocks,
        surroundings: &surroundings,
    };
    let built = build(&node, &mut context);
    let problems = problems(&sources, &report);
    assert_eq!(built.is_none(), report.has_errors(), "{yaml}: {problems:?}");
    match problems.is_empty() {
        true => built.ok_or(problems),
        false => Err(problems),
    }
}

/// Every problem as `CODE line:column` and its message.
fn problems(sources: &Sources, report: &Report) -> Vec<String> {
    let problems = report.diagnostics().iter().map(|problem| {
        let place = problem.span();
        let (line, column) = place.map_or((0, 0), |span| sources.position(span.source, span.start));
        let code = problem.code().as_str();
        // The words of `config` are its own matter.
        let message = if code < "IT02" { "" } else { problem.message() };
        let text = format!("{code} {line}:{column} {message}");
        text.trim_end().to_owned()
    });
    problems.collect()
}

fn trigger(place: Place) -> HttpTrigger {
    HttpTrigger {
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
    }
}

/// A connection whose requests have tokens.
const BANK: &str = "{ http: http://bank.example, auth: { oauth2: { token_url: \
                    http://id.example/token, client_id: me, client_secret: pa ss, scope: a b } } }";

/// A connection whose requests are signed, but for their bodies.
const SIGNED: &str = "{ http: https://files.example, auth: { aws_sigv4: { region: eu-west-1, \
                      service: s3, access_key: AKID, secret_key: s3cr3t, payload: unsigned } } }";

/// Reads an `http` connection, or tells every problem.
pub(crate) fn http_connection(
    name: &str,
    yaml: &str,
    states: &States,
) -> Result<Arc<HttpConnection>, Vec<String>> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let source = sources
        .add("use.yaml", yaml.as_bytes(), &mut report)
        .unwrap();
    let node = config::parse(&sources, source, &mut report).remove(0);
    let surroundings = Surroundings {
        files: &|_, name| Err(format!("{name} is not there")),
        folder: &|_| std::path::PathBuf::new(),
        states,
        dead_letters: crate::store::dead_letters,
    };
    let mut context = ConnectionContext {
        report: &mut report,
        name,
        surroundings: &surroundings,
    };
    let built = (crate::http::DEFINITION.build)(&node, &mut context);
    let problems = problems(&sources, &report);
    assert_eq!(
        built.is_none(),
        !problems.is_empty(),
        "{yaml}: {problems:?}"
    );
    built.map(|it| it.downcast().unwrap()).ok_or(problems)
}

/// One connection of each kind that steps may meet: `crm`, `bank` and `files` are `http` ones.
fn connections(states: &States) -> Connections {
    let upstream = Arc::new(UpstreamPlan::single("crm.example", 81, None));
    let base = "/api".to_owned();
    let fields = Vec::new();
    let crm = HttpConnection {
        upstream,
        base,
        fields,
        parameter: None,
        credentials: None,
    };
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let source = sources.add("engine.yaml", b"", &mut report).unwrap();
    let connection = |name: &str, kind, value: Arc<dyn Any + Send + Sync>| Connection {
        name: name.to_owned(),
        kind,
        span: config::Span {
            source,
            start: 0,
            end: 0,
        },
        value,
        key_value: None,
    };
    let known = vec![
        connection("crm", "http", Arc::new(crm)),
        connection(
            "bank",
            "http",
            http_connection("bank", BANK, states).unwrap(),
        ),
        connection(
            "files",
            "http",
            http_connection("files", SIGNED, states).unwrap(),
        ),
        connection("queue", "other", Arc::new(())),
    ];
    Connections::of(known)
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
    Exchange::new(&Arc::new(FlowContext::new("test")), request(lines, body))
}

/// The same as a request.
pub(crate) fn request(lines: &[(&str, &str)], body: &[u8]) -> Request {
    let mut headers = Headers::new();
    for (name, value) in lines {
        headers.append(name, value);
    }
    Request {
        method: Method::Post,
        path: "/orders".into(),
        query: Some("a=1".into()),
        parameters: Vec::new(),
        headers,
        body: body.to_vec().into(),
        peer: [127, 0, 0, 1].into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    }
}

/// Runs a step to its end, and what it leaves to be done.
pub(crate) fn run(
    step: &dyn Step,
    exchange: &mut Exchange,
    services: &FakeServices,
) -> Result<Next, Fault> {
    services.run_to_end(async {
        match step.run(exchange, services) {
            Progress::Done(result) => result,
            Progress::Waits(future) => future.await,
        }
    })
}

/// The reply that a step ends the flow with.
pub(crate) fn reply_of(step: &dyn Step, exchange: &mut Exchange) -> Reply {
    match run(step, exchange, &FakeServices::default()) {
        Ok(Next::Reply(reply)) => reply,
        other => panic!("no reply: {other:?}"),
    }
}

/// The name of the failure that a flow ends with.
pub(crate) fn failure<T: std::fmt::Debug>(result: Result<T, Fault>) -> String {
    result.unwrap_err().name().to_owned()
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
