//! Whole flow files: what is made of sound ones, and every problem of broken ones at its place.
//! The steps are fakes; files with the built-in steps are tested where both are known.

mod broken;
mod cases;
mod sound;

use std::sync::Arc;

use component::access::{AccessDefinition, NoWays};
use component::connection::HttpConnection;
use component::definition::{BuildContext, ConnectionDefinition, StepDefinition, Surroundings};
use component::exchange::Exchange;
use component::forward::ForwardPlan;
use component::handler::Services;
use component::state::States;
use component::step::{Next, Progress, Step};
use component::upstream::UpstreamPlan;
use config::{Node, Report, Secrets, Sources};

use serde_json::json;

use crate::{Input, KnownSecrets, Loaded, Table, load};

/// A step that does nothing but be what its verb says.
struct Fake {
    verb: &'static str,
    forward: Option<Arc<ForwardPlan>>,
    streams: bool,
}

impl Step for Fake {
    fn run<'a>(&'a self, _: &'a mut Exchange, _: &'a dyn Services) -> Progress<'a> {
        Progress::Done(Ok(Next::Continue))
    }

    fn reads_body(&self) -> bool {
        self.verb == "change" || (self.verb == "send" && !self.streams)
    }

    fn forwards(&self) -> Option<&Arc<ForwardPlan>> {
        self.forward.as_ref().filter(|_| self.streams)
    }

    fn ends_flow(&self) -> bool {
        self.verb == "stop" || self.streams
    }
}

fn build_send(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let host = text(node, context)?;
    let named = context.connections.get(&host);
    let upstream = match named.and_then(|connection| connection.as_http()) {
        Some(http) => Arc::clone(&http.upstream),
        None => Arc::new(UpstreamPlan::single(&host, 80, None)),
    };
    let plan = ForwardPlan {
        appends_rest: context.trigger.is_some_and(|trigger| trigger.path.rest),
        via: context.is_last.then(|| context.flow.to_string()),
        ..ForwardPlan::new(upstream, "/")
    };
    Some(Box::new(Fake {
        verb: "send",
        forward: Some(Arc::new(plan)),
        streams: context.is_last && context.may_stream,
    }))
}

/// The value under a fake verb, which must be a text other than `bad`.
fn text(node: &Node, context: &mut BuildContext<'_>) -> Option<String> {
    let text = node.as_str().filter(|text| *text != "bad");
    if text.is_none() {
        context
            .report
            .error(config::Code::new("FAKE"), node.span, "a bad value");
    }
    text.map(str::to_owned)
}

macro_rules! plain {
    ($verb:literal) => {{
        fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
            text(node, context).map(|_| {
                Box::new(Fake {
                    verb: $verb,
                    forward: None,
                    streams: false,
                }) as _
            })
        }
        definition($verb, build)
    }};
}

const fn definition(
    name: &'static str,
    build: fn(&Node, &mut BuildContext<'_>) -> Option<Box<dyn Step>>,
) -> StepDefinition {
    StepDefinition {
        name,
        summary: "",
        documentation: "",
        example: "",
        schema: || serde_json::json!({ "type": "string" }),
        build,
    }
}

const STEPS: &[StepDefinition] = &[
    definition("send", build_send),
    plain!("change"),
    plain!("note"),
    plain!("stop"),
];

/// A connection to the host that stands under `http`.
const CONNECTIONS: &[ConnectionDefinition] = &[ConnectionDefinition {
    name: "http",
    summary: "",
    documentation: "",
    example: "",
    schema: || serde_json::json!({ "type": "object" }),
    missing: None,
    build: |node, _| {
        let upstream = Arc::new(UpstreamPlan::single(node.get("http")?.as_str()?, 80, None));
        let base = String::new();
        let fields = Vec::new();
        Some(Arc::new(HttpConnection {
            parameter: None,
            credentials: None,
            upstream,
            base,
            fields,
        }))
    },
    key_value: None,
}];

/// The parts that the files of these tests may use.
const TABLE: Table<'static> = Table {
    steps: STEPS,
    connections: CONNECTIONS,
    sources: &[],
    endpoints: &[],
    documents: &[],
    access: NO_ACCESS,
    kinds: &[],
    evaluated: &[],
    secrets: &[],
};

/// Flows that nobody guards.
const NO_ACCESS: AccessDefinition = AccessDefinition {
    documentation: "",
    example: "",
    ways: || json!({}),
    deny: || json!({}),
    identity: || json!({}),
    auth: || json!({}),
    build: |_, _, _| Arc::new(NoWays),
};

/// The secrets `TOKEN`, and `tls.key` whose value looks like a `${ }`.
fn secrets() -> KnownSecrets {
    let values = [("TOKEN", "token-value"), ("tls.key", "${ $env.HOME_HOST }")];
    let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
    KnownSecrets {
        values: Secrets::new(values.into()),
        is_incomplete: false,
    }
}

/// Loads files (by name and text) and tells every problem as `CODE file:line:column message`.
/// The environment has `HOME_HOST=home` and nothing else.
fn load_files(files: &[(&str, &str)]) -> Result<Loaded, Vec<String>> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let mut documents = Vec::new();
    for (name, text) in files {
        let source = sources.add(*name, text.as_bytes(), &mut report).unwrap();
        documents.extend(config::parse(&sources, source, &mut report));
    }
    let environment = |name: &str| (name == "HOME_HOST").then(|| "home".to_owned());
    let input = Input {
        documents,
        table: TABLE,
        environment: &environment,
        secrets: &secrets(),
        surroundings: &Surroundings {
            files: &|_, name| Err(format!("{name} is not there")),
            folder: &|_| std::path::PathBuf::new(),
            states: &States::default(),
            dead_letters: component::testing::no_dead_letters,
        },
        is_part: false,
    };
    let loaded = load(input, &mut report);
    assert_eq!(loaded.is_none(), report.has_errors());
    loaded.ok_or_else(|| {
        report
            .diagnostics()
            .iter()
            .map(|one| shown(one, &sources))
            .collect()
    })
}

fn shown(problem: &config::Diagnostic, sources: &Sources) -> String {
    let code = problem.code().as_str();
    // The words of `config` are its own matter.
    let message = if code.starts_with("IT01") {
        ""
    } else {
        problem.message()
    };
    let Some(span) = problem.span() else {
        return format!("{code} {message}");
    };
    let (line, column) = sources.position(span.source, span.start);
    let name = sources.name(span.source);
    format!("{code} {name}:{line}:{column} {message}")
        .trim_end()
        .to_owned()
}
