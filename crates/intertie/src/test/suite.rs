//! All flow files with their tests, and one test run from its start to its end. Each test has the
//! flows loaded anew, so that no breaker, cache or throttle knows of another test.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use component::handler::{CallerContext, LocalFuture, Services as _};
use component::plan::Plan;
use component::state::States;
use config::{Node, Report, Secrets, Sources, Span, Value};
use flow::tests_section::TestCase;
use flow::{KnownSecrets, Loaded, LoadedFlow};
use message::{Fault, Kind, Origin, Reply, Request};

use super::coverage::Coverage;
use super::diff::Line;
use super::executor;
use super::expect::{self, Ended};
use super::services::TestServices;
use crate::load::{self, Files, Parsed, Problems};
use crate::named_files::NamedFiles;

/// What came of one test.
pub(super) struct CaseResult {
    pub flow: Arc<str>,
    pub name: String,
    /// Where the test stands.
    pub span: Span,
    /// How much of the test's time the flow took.
    pub took: Duration,
    /// What was not as expected.
    pub failures: Vec<Failure>,
}

/// Something that is not as expected.
#[derive(Debug)]
pub(super) struct Failure {
    /// Where the expectation stands.
    pub span: Span,
    /// What it is about.
    pub what: String,
    /// What was expected and what was found.
    pub lines: Vec<Line>,
}

/// All flow files with their tests.
pub(super) struct Suite {
    pub sources: Sources,
    pub loaded: Loaded,
    /// The documents without their tests.
    documents: Vec<Node>,
    /// Values that tests give to names, for those that do not.
    given: Given,
}

/// Values of names.
type Values = Vec<(String, String)>;

/// What tests say of names of the environment and of secrets.
struct Given {
    env: Values,
    /// Every secret that there may be.
    secrets: Values,
}

impl Suite {
    /// Loads all files. What they name is noted in `named`.
    ///
    /// # Errors
    /// When there is a problem with them.
    pub fn open(files: &Files, named: &NamedFiles) -> Result<Self, Problems> {
        let Parsed {
            sources,
            documents,
            mut report,
        } = load::parse(files);
        let given = Given::of(&documents);
        let lookup = |name: &str| given.variable(name, &[]);
        let (states, secrets) = (States::default(), given.secrets(&[]));
        let whole = documents.clone();
        let loaded = load::load_flows(
            (whole, false),
            &sources,
            &lookup,
            &secrets,
            (&states, named),
            &mut report,
        );
        match loaded {
            Some(loaded) => Ok(Self {
                sources,
                loaded,
                documents: documents.into_iter().filter_map(without_tests).collect(),
                given,
            }),
            None => Err(Problems::new(report, sources)),
        }
    }

    /// All tests in the order of the files.
    pub fn cases(&self) -> Vec<(&LoadedFlow, &Arc<TestCase>)> {
        let flows = self.loaded.flows.iter();
        let cases = flows.flat_map(|flow| flow.tests.iter().map(move |case| (flow, case)));
        let mut cases: Vec<_> = cases.collect();
        cases.sort_by_key(|(_, case)| (case.span.source, case.span.start));
        cases
    }

    /// Runs one test.
    pub fn run(
        &self,
        flow: &LoadedFlow,
        case: &TestCase,
        coverage: &RefCell<Coverage>,
    ) -> CaseResult {
        let (took, failures) = match self.load_for(flow, case) {
            Ok(loaded) => run_loaded(&loaded, &flow.name, case, coverage),
            Err(problems) => {
                let lines = problems.lines().map(|it| Line::Note(it.to_owned()));
                let failure = Failure {
                    span: case.span,
                    what: "the flow cannot be loaded with the values of this test".to_owned(),
                    lines: lines.collect(),
                };
                (Duration::ZERO, vec![failure])
            }
        };
        CaseResult {
            flow: Arc::clone(&flow.name),
            name: case.name.clone(),
            span: case.span,
            took,
            failures,
        }
    }

    /// The flow and those that it calls, as the test wants them.
    fn load_for(&self, flow: &LoadedFlow, case: &TestCase) -> Result<Loaded, String> {
        let mut names: Vec<&str> = Vec::new();
        let mut open: Vec<&str> = vec![&flow.name];
        while let Some(name) = open.pop() {
            if names.contains(&name) {
                continue;
            }
            names.push(name);
            let mut flows = self.loaded.flows.iter();
            if let Some(flow) = flows.find(|flow| *flow.name == *name) {
                open.extend(flow.calls.iter().map(String::as_str));
            }
        }
        let kinds = load::TABLE.kinds.iter().map(|kind| kind.name);
        let keys: Vec<&str> = ["flow"].into_iter().chain(kinds).collect();
        let name = |document: &Node| keys.iter().find_map(|key| document.get(key)).cloned();
        let is_needed = |document: &&Node| match name(document) {
            Some(name) => name.as_str().is_some_and(|name| names.contains(&name)),
            None => true,
        };
        let documents = self.documents.iter().filter(is_needed).cloned().collect();
        let lookup = |name: &str| self.given.variable(name, &case.env);
        let (sources, secrets) = (&self.sources, self.given.secrets(&case.secrets));
        let (states, mut report) = (States::default(), Report::default());
        let loaded = load::load_flows(
            (documents, true),
            sources,
            &lookup,
            &secrets,
            (&states, &NamedFiles::default()),
            &mut report,
        );
        loaded.ok_or_else(|| report.render(&self.sources, false))
    }
}

impl Given {
    fn of(documents: &[Node]) -> Self {
        let env = all_values(documents, "env");
        let lookup = |name: &str| std::env::var(name).ok().or_else(|| find(&env, name));
        let declared = flow::secret_sources(documents, &lookup);
        let mut names: Vec<String> = declared.env.into_iter().map(|name| name.value).collect();
        // What a folder or file has is not looked at: it has what flows ask for.
        if declared.folder.is_some() || declared.file.is_some() {
            documents.iter().for_each(|it| secrets_of(it, &mut names));
        }
        let said = all_values(documents, "secrets");
        let secrets = names.into_iter().map(|name| {
            let value = find(&said, &name).unwrap_or_else(|| format!("secret-{name}"));
            (name, value)
        });
        Self {
            secrets: secrets.collect(),
            env,
        }
    }

    /// A name of the environment: what the test says, what is there, what another test says.
    fn variable(&self, name: &str, own: &[(String, String)]) -> Option<String> {
        let there = || std::env::var(name).ok();
        find(own, name)
            .or_else(there)
            .or_else(|| find(&self.env, name))
    }

    /// All secrets, these first.
    fn secrets(&self, own: &[(String, String)]) -> KnownSecrets {
        let mut values = BTreeMap::new();
        for (name, value) in own.iter().chain(&self.secrets) {
            values.entry(name.clone()).or_insert_with(|| value.clone());
        }
        KnownSecrets {
            values: Secrets::new(values),
            is_incomplete: false,
        }
    }
}

fn find(values: &[(String, String)], name: &str) -> Option<String> {
    let mut values = values.iter();
    values
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.clone())
}

/// What tests say under this key.
fn all_values(documents: &[Node], key: &str) -> Values {
    let lists = documents
        .iter()
        .filter_map(|document| document.get("tests"));
    let cases = lists.filter_map(Node::as_sequence).flatten();
    let entries = cases
        .filter_map(|case| case.get(key)?.as_mapping())
        .flatten();
    let values = entries.filter_map(|entry| {
        let text = match &entry.value.value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.text().to_owned(),
            Value::Bool(value) => value.to_string(),
            _ => return None,
        };
        Some((entry.key.clone(), text))
    });
    values.collect()
}

/// The secrets that texts ask for.
fn secrets_of(node: &Node, names: &mut Vec<String>) {
    match &node.value {
        Value::String(text) => {
            for behind in text.split("$secret.").skip(1) {
                let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
                let end = behind.find(|it| !is_part(it)).unwrap_or(behind.len());
                names.extend(behind.get(..end).map(str::to_owned));
            }
        }
        Value::Sequence(items) => items.iter().for_each(|item| secrets_of(item, names)),
        Value::Mapping(entries) => {
            entries
                .iter()
                .for_each(|entry| secrets_of(&entry.value, names));
        }
        _ => {}
    }
}

fn without_tests(mut document: Node) -> Option<Node> {
    if document.get("test").is_some() {
        return None;
    }
    if let Value::Mapping(entries) = &mut document.value {
        entries.retain(|entry| entry.key != "tests");
    }
    Some(document)
}

fn run_loaded(
    loaded: &Loaded,
    name: &str,
    case: &TestCase,
    coverage: &RefCell<Coverage>,
) -> (Duration, Vec<Failure>) {
    let services = TestServices::new(case, (name, &loaded.plan), coverage);
    let fails = |what: String, span: Option<Span>| Failure {
        span: span.unwrap_or(case.span),
        what,
        lines: Vec::new(),
    };
    let mut flows = loaded.flows.iter();
    let Some(flow) = flows.find(|flow| *flow.name == *name) else {
        return (
            Duration::ZERO,
            vec![fails("the flow is gone".to_owned(), None)],
        );
    };
    let main: LocalFuture<'_, _> = match case.dialogue.is_empty() {
        true => Box::pin(start(&services, flow, &loaded.plan, case.request.clone())),
        false => Box::pin(hold_dialogue(&services, flow, &loaded.plan, case)),
    };
    let ended = executor::run(&services.clock, &&services, main);
    let mut observed = services.observed.take();
    match ended {
        Ok((result, took)) => {
            if let Err(fault) = &result {
                observed.fault.get_or_insert_with(|| fault.clone());
            }
            if let Some(status) = observed.refused {
                observed.fault = Some(refusal(status));
            }
            let ended = Ended {
                result: &result,
                took,
                observed: &observed,
            };
            let mut failures = services.turns.take();
            failures.extend(expect::check(case, &ended, &services));
            (took, failures)
        }
        Err(stuck) => {
            let (message, span) = match observed.abort.take() {
                Some((message, span)) => (message, span),
                None => (stuck.message().to_owned(), None),
            };
            (services.clock.passed(), vec![fails(message, span)])
        }
    }
}

/// What a refusal by `auth` is to a test.
fn refusal(status: u16) -> Fault {
    let (kind, detail) = match status {
        401 => (
            Kind::Unauthorized,
            "this needs credentials: `in.auth` says who calls",
        ),
        _ => (
            Kind::Forbidden,
            "the caller may not do this, by `scopes` or `require` of `auth`",
        ),
    };
    Fault::new(kind, Origin::Client, detail)
}

/// Has all turns of a dialogue, the last of which is the result.
async fn hold_dialogue(
    services: &TestServices<'_>,
    flow: &LoadedFlow,
    plan: &Plan,
    case: &TestCase,
) -> Result<Reply, Fault> {
    let mut last = Ok(Reply::new(204));
    for (at, turn) in case.dialogue.iter().enumerate() {
        if !turn.after.is_zero() {
            services.sleep(turn.after).await;
        }
        let reply = start(services, flow, plan, turn.request.clone()).await?;
        expect::turn(at, turn, &reply, &mut services.turns.borrow_mut());
        last = Ok(reply);
    }
    last
}

/// Starts the flow as whatever starts it would.
async fn start(
    services: &TestServices<'_>,
    flow: &LoadedFlow,
    plan: &Plan,
    request: Request,
) -> Result<Reply, Fault> {
    let mut sources = plan.sources.iter();
    if let Some(source) = sources.find(|it| it.flow.name() == &flow.name) {
        return source.flow.start(request, services).await;
    }
    if let Some(callee) = services.flow(&flow.name) {
        return callee
            .call(request, CallerContext::default(), services)
            .await;
    }
    if let Some(door) = &flow.door
        && let Err(reply) = door.judge_known(&request, services)
    {
        services.observed.borrow_mut().refused = Some(reply.status);
        return Ok(*reply);
    }
    if let Some(gate) = flow.handler.gate() {
        let entered = gate.enter_by_value(&request, services).await?;
        entered.wait(services).await;
        entered.finish(services.now());
    }
    let outcome = flow.handler.handle(request, services).await?;
    services.finish(outcome).await
}
