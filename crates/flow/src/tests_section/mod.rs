//! The `tests:` of flows: read and checked when flow files are loaded, run by `intertie test`.
//!
//! They stand in the flow's document, or in documents `test: FLOW` of files beside it. A test has a
//! message that comes in, mocks of other systems and expectations. Texts with `${ }` and conditions
//! are compiled here; whoever runs the test evaluates them.

mod dialogue;
mod expect;
mod input;
mod mock;
mod names;
mod reading;
mod shape;
mod time;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use component::definition::Surroundings;
use component::scope::Scope;
use config::{Node, Report, Span};
use message::Request;
use serde_json::{Value, json};

pub use dialogue::Turn;
pub use expect::{CallExpectation, Calls, ErrorExpectation, Expectations, MessageExpectation};
pub use mock::{Answer, AnswerKind, Mock};
pub use reading::{Field, Payload, encode};

use crate::KnownSecrets;
use crate::codes::{BAD_TEST, UNKNOWN_IN_TEST};
use crate::compile::{self, Flow};
use crate::environment::Environment;
use crate::suggest::did_you_mean;
use names::Known;
use reading::{Reading, given};

/// When tests start that do not say so: 2026-01-01, midnight UTC.
const START: Duration = Duration::from_secs(1_767_225_600);

/// One test of a flow.
pub struct TestCase {
    /// Its name, unique among those of the flow.
    pub name: String,
    /// Where its name stands.
    pub span: Span,
    /// The message that starts the flow.
    pub request: Request,
    /// The turns of a dialogue, each with a message of its own in place of that one; empty when it
    /// is none.
    pub dialogue: Vec<Turn>,
    /// The time of day when it starts, as the time since 1970 began.
    pub at: Duration,
    /// Values of names of the environment.
    pub env: Vec<(String, String)>,
    /// Values of secrets.
    pub secrets: Vec<(String, String)>,
    /// What stands in for other systems.
    pub mocks: Vec<Mock>,
    /// What must be so at the end.
    pub expect: Expectations,
}

/// The schema of one test.
pub fn schema() -> Value {
    config::schema_for::<shape::Case>()
}

/// The schemas of the parts of a test that stand below names, with words for each: for the
/// reference.
pub fn parts() -> [(&'static str, Value); 3] {
    [
        ("`dialogue`, each turn", config::schema_for::<shape::Turn>()),
        ("`mock.NAME`", config::schema_for::<shape::Mock>()),
        (
            "`expect.calls.NAME`, each call",
            config::schema_for::<shape::ExpectedCall>(),
        ),
    ]
}

/// The schema of a document with tests of a flow, with anything as a test.
fn outline() -> Value {
    document_shape(json!({}))
}

/// The schema of a document with tests of a flow.
pub(crate) fn document_shape(test: Value) -> Value {
    json!({
        "type": "object",
        "description": "Tests of a flow, in a file of their own: `NAME.test.yaml`.",
        "properties": {
            "test": { "type": "string", "description": "The name of the flow." },
            "doc": { "type": "string", "description": "What the tests are about, in prose." },
            "tests": {
                "type": "array",
                "description": "The tests, run by `intertie test`.",
                "items": test,
                "minItems": 1
            }
        },
        "required": ["test", "tests"],
        "additionalProperties": false
    })
}

/// What tests are read with.
pub(crate) struct Context<'a> {
    /// The names of the environment.
    env: Vec<String>,
    /// Those of secrets; `None` when not all are known.
    secrets: Option<Vec<String>>,
    surroundings: &'a Surroundings<'a>,
}

impl<'a> Context<'a> {
    pub fn new(
        env: &Environment,
        secrets: &KnownSecrets,
        surroundings: &'a Surroundings<'a>,
    ) -> Self {
        let names = || secrets.values.names().map(str::to_owned).collect();
        Self {
            env: env.names().map(str::to_owned).collect(),
            secrets: (!secrets.is_incomplete).then(names),
            surroundings,
        }
    }
}

/// Reads the tests of all flows: those of their own documents, which are in the same order, and
/// those of documents of tests. Every problem is reported.
pub(crate) fn read_all(
    flows: &mut [Flow],
    (documents, tests): (&[Node], &[Node]),
    context: &Context<'_>,
    report: &mut Report,
) {
    let by_name = compile::by_name(flows);
    for (at, document) in documents.iter().enumerate() {
        read_list(flows, (&by_name, at), document, context, report);
    }
    for document in tests {
        config::check_kind(document, outline, report);
        let Some(node) = document.get("test") else {
            continue;
        };
        let name = node.as_str().unwrap_or_default();
        match by_name.get(name) {
            Some(at) => read_list(flows, (&by_name, *at), document, context, report),
            None => {
                let message = format!("there is no flow `{}`", name.escape_debug());
                let hint = did_you_mean(name, flows.iter().map(|flow| &*flow.name));
                let hint = hint.unwrap_or_else(|| {
                    "name a flow of the files that are loaded together".to_owned()
                });
                report.error(UNKNOWN_IN_TEST, node.span, message).hint(hint);
            }
        }
    }
}

/// Reads the tests of one document and gives them to the flow at this place.
fn read_list(
    flows: &mut [Flow],
    (by_name, at): (&HashMap<Arc<str>, usize>, usize),
    document: &Node,
    context: &Context<'_>,
    report: &mut Report,
) {
    let items = document.get("tests").and_then(Node::as_sequence);
    for node in items.unwrap_or_default() {
        let known = Known::of(flows, by_name, at);
        let Some(flow) = flows.get_mut(at) else {
            return;
        };
        let case = config::check_kind(node, schema, report)
            .then(|| read_one(node, flow, &known, context, report));
        let Some(case) = case.flatten() else { continue };
        if let Some(first) = flow.tests.iter().find(|other| other.name == case.name) {
            let message = format!("a second test named `{}`", case.name.escape_debug());
            let diagnostic = report.error(BAD_TEST, case.span, message);
            diagnostic.also(first.span, "the first one");
        }
        flow.tests.push(Arc::new(case));
    }
}

fn read_one(
    node: &Node,
    flow: &Flow,
    known: &Known,
    context: &Context<'_>,
    report: &mut Report,
) -> Option<TestCase> {
    let before = report.diagnostics().len();
    let mut reading = Reading {
        report,
        files: context.surroundings.files,
        known,
        scope: Scope::default(),
        names: flow.scope.with_all_names(),
    };
    let name = node.get("name")?;
    let request = input::read(
        node,
        (flow.trigger.as_ref(), flow.door.as_ref()),
        &mut reading,
    );
    let kind = (flow.kind.is_some(), request.as_ref());
    let dialogue = dialogue::read(node, kind, &mut reading);
    let at = given(node, "at").map_or(Some(START), |at| {
        let found = time::parse(at.as_str().unwrap_or_default());
        if found.is_none() {
            let message = "this is no point in time";
            let diagnostic = reading.report.error(BAD_TEST, at.span, message);
            diagnostic.hint("write `2026-01-31T12:00:00Z`");
        }
        found
    });
    let env = read_values(node, "env", Some(&context.env), &mut reading);
    let secrets = read_values(node, "secrets", context.secrets.as_deref(), &mut reading);
    let mocks = mock::read(node.get("mock"), &mut reading);
    let expect = expect::read(node.get("expect"), &mut reading);
    let case = TestCase {
        name: name.as_str().unwrap_or_default().to_owned(),
        span: name.span,
        request: request?,
        dialogue,
        at: at?,
        env,
        secrets,
        mocks,
        expect,
    };
    (report.diagnostics().len() == before).then_some(case)
}

/// Values of names that the `engine:` document declares under the same key.
fn read_values(
    node: &Node,
    key: &str,
    known: Option<&[String]>,
    reading: &mut Reading<'_>,
) -> Vec<(String, String)> {
    let entries = node.get(key).and_then(Node::as_mapping);
    let mut read = Vec::new();
    for entry in entries.unwrap_or_default() {
        if let Some(known) = known.filter(|known| !known.contains(&entry.key)) {
            let message = format!("`{}` is not declared", entry.key.escape_debug());
            let hint = did_you_mean(&entry.key, known.iter().map(String::as_str));
            let hint = hint
                .unwrap_or_else(|| format!("declare it in the `engine:` document, under `{key}`"));
            let report = &mut *reading.report;
            report
                .error(UNKNOWN_IN_TEST, entry.key_span, message)
                .hint(hint);
        }
        let text = reading.text(&entry.value);
        read.push((entry.key.clone(), text));
    }
    read
}
