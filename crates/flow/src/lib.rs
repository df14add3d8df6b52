//! Flow files: YAML documents in, a checked plan out, and the flows that run by it.
//!
//! [`load`] opens nothing and knows no step but those of the table it is given. What steps remember
//! is registered in the states it is given: staged ones, which the caller commits with the plan. It
//! reports every problem of all documents at once.
//!
//! The life of a document: `document` sorts it, `environment` puts environment values in,
//! `engine` or `compile` reads it (`connections` its `use:`, `trigger` its `from:`, `blocks` its
//! `steps:` with the `modifiers` beside the verbs), `routes` looks at all flows together, and
//! `running` is what a flow is when messages come.

mod admin;
mod audit;
mod blocks;
mod bounds;
mod calls;
pub mod codes;
mod compile;
mod connections;
mod declared;
mod document;
mod egress;
mod engine;
mod enveloped;
mod environment;
mod exposure;
mod gates;
mod kinds;
mod limits;
mod listeners;
mod modifiers;
mod names;
mod plain_secrets;
mod problem;
mod public_url;
mod routes;
mod running;
pub mod schema;
mod secrets;
mod suggest;
pub mod tests_section;
mod tickets;
mod trigger;

use std::collections::HashSet;
use std::sync::Arc;

use component::access::{AccessDefinition, AccessNodes, Door, Ways};
use component::connection::Connections;
use component::definition::{ConnectionDefinition, Place, StepDefinition, Surroundings};
use component::document::{Declared, DocumentDefinition};
use component::endpoint::EndpointDefinition;
use component::flow_kind::FlowKind;
use component::handler::Handler;
use component::plan::Plan;
use component::settings::Settings;
use component::source::SourceDefinition;
use component::upstream::UpstreamPlan;
use config::{Node, Report, Secrets, Span};

pub use admin::{AdminSettings, Operate};
pub use audit::{AuditSettings, AuditTarget, Fingerprints};
pub use engine::{EngineSettings, LogFormat, LogLevel, LogSettings};
pub use secrets::{KnownSecrets, SecretSources, secret_sources};

use crate::compile::{Flow, Reader};
use crate::environment::{Environment, Places};
use crate::listeners::Listeners;
use crate::tests_section::TestCase;
use crate::trigger::Defaults;

/// Flow files that have been checked and can be run.
#[derive(Clone)]
pub struct Loaded {
    /// What listens where and what it serves.
    pub plan: Plan,
    /// Settings beside the plan's own.
    pub engine: EngineSettings,
    /// The admin port.
    pub admin: AdminSettings,
    /// Where the audit stream is written, if it is.
    pub audit: Option<AuditSettings>,
    /// The flows one by one, for tests.
    pub flows: Vec<LoadedFlow>,
    /// The connections that this build cannot open, where they stand and why: flows are not run
    /// with one of them.
    pub missing: Vec<(Span, String)>,
}

/// One flow, for tests.
#[derive(Clone)]
pub struct LoadedFlow {
    /// Its name.
    pub name: Arc<str>,
    /// What runs it.
    pub handler: Arc<dyn Handler>,
    /// What stands in front of it.
    pub door: Option<Arc<dyn Door>>,
    /// The flows that it calls.
    pub calls: Vec<String>,
    /// Its tests.
    pub tests: Vec<Arc<TestCase>>,
    /// Its places by their numbers, for coverage.
    pub places: Vec<Place>,
}

/// The parts that flow files may use.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// Kinds of steps.
    pub steps: &'a [StepDefinition],
    /// Kinds of connections.
    pub connections: &'a [ConnectionDefinition],
    /// What starts flows beside requests and other flows.
    pub sources: &'a [SourceDefinition],
    /// Triggers with a protocol of their own within HTTP.
    pub endpoints: &'a [EndpointDefinition],
    /// Kinds of documents beside flows.
    pub documents: &'a [DocumentDefinition],
    /// Kinds of documents that are flows with other keys than `steps`.
    pub kinds: &'a [FlowKind],
    /// How callers are known, and who may come in.
    pub access: AccessDefinition,
    /// Where documents have expressions beside the steps: a key of a document, such as `screens`,
    /// or one and a key of the mapping under it, such as `from.poll`.
    pub evaluated: &'a [&'a str],
    /// Where documents may have secrets beside `use`, as paths of keys with `*` for any key, such
    /// as `subscribe.webhooks.endpoints.*.secret`.
    pub secrets: &'a [&'a str],
}

/// What flow files are loaded with.
pub struct Input<'a> {
    /// All documents of all files, in order.
    pub documents: Vec<Node>,
    /// The parts that they may use.
    pub table: Table<'a>,
    /// Looks an environment variable up.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The secrets that [`secret_sources`] asks for.
    pub secrets: &'a KnownSecrets,
    /// Files that flow files name, and what steps remember.
    pub surroundings: &'a Surroundings<'a>,
    /// Whether these are only some of the documents, as for a test of one flow: then settings of
    /// the engine that nothing uses are no mistake.
    pub is_part: bool,
}

/// Makes a plan of all documents.
///
/// Every problem goes into the report. `None` when the report has errors, those that were there
/// before included.
pub fn load(input: Input<'_>, report: &mut Report) -> Option<Loaded> {
    let secrets = input.secrets;
    let mut documents = document::sort(input.documents, input.table, report);
    let plain_secrets = plain_secrets::find(&documents);
    let names = Environment::read(shared_settings(&documents), input.environment, report);
    let mut places = Places::default();
    let values = (&secrets.values, input.table.evaluated, input.table.secrets);
    let engine = read_engine(&mut documents, &names, values, &mut places, report);
    let settings = shared_settings(&documents);
    let callers = gates::read_plans(settings, engine.callers_max, input.surroundings, report);
    let connections = input.table.connections;
    let mut shared = read_shared(&documents, connections, input.surroundings, report);
    let defaults = defaults(&engine, callers);
    let evaluation = names.evaluation(&secrets.values, engine.expressions);
    let ways = read_ways(settings, input.table, input.surroundings, report);
    engine.listeners.check_auth(&*ways, &evaluation, report);
    let admin = admin::read(settings, &*ways, &evaluation, report);
    let reader = declared::Reader {
        definitions: connections,
        shared: &shared,
        defaults: &defaults,
        evaluation: &evaluation,
        ways: &*ways,
        surroundings: input.surroundings,
    };
    let read = reader.read_all(&documents.declared, report);
    shared.declarations = Arc::new(declared::declarations(&read.declared));
    let audited = (&documents, read.declared.as_slice());
    let around = (input.is_part, input.surroundings);
    let audit = read_audit(audited, &engine, around, report);
    let reader = Reader {
        table: input.table,
        shared: &shared,
        defaults: &defaults,
        evaluation: &evaluation,
        ways: &*ways,
        surroundings: input.surroundings,
    };
    let mut flows = reader.read_all(&documents.flows, report);
    let listeners = Some(&*engine.listeners).filter(|_| !input.is_part);
    if !input.is_part {
        gates::refuse_unused(settings, &documents.flows, &documents.declared, report);
    }
    routes::check((&flows, &read.declared), &*ways, listeners, report);
    let context = tests_section::Context::new(&names, secrets, input.surroundings);
    let tests = (documents.flows.as_slice(), documents.tests.as_slice());
    tests_section::read_all(&mut flows, tests, &context, report);
    drop_consequences(&places.spoiled, report);
    secrets.finish(&places.secret, report);
    refuse_nothing(&flows, &read, report);
    let upstreams = upstreams((&flows, &read), &*ways, &engine.settings, report);
    if report.has_errors() {
        return None;
    }
    if !input.is_part {
        plain_secrets::warn(&plain_secrets, report);
        exposure::warn((&flows, &read.declared), (&engine, settings), report);
        exposure::warn_admin(&admin, settings, report);
    }
    let missing = missing(connections::missing(&shared, connections), &read, &flows);
    let served = (&*ways, &*engine.listeners, engine.settings, upstreams);
    Some(Loaded {
        plan: plan((&flows, &read), served),
        engine: engine.engine,
        admin,
        audit,
        flows: flows.into_iter().filter_map(loaded).collect(),
        missing,
    })
}

/// The connections of the engine.
fn read_shared(
    documents: &document::Documents,
    definitions: &[ConnectionDefinition],
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Connections {
    let engine = documents.engine.as_ref();
    let read = |document| connections::read(document, definitions, surroundings, report);
    engine.map(read).unwrap_or_default()
}

/// The ways to know a caller, with the deny list and the identity header beside them.
fn read_ways(
    settings: Option<&Node>,
    table: Table<'_>,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Arc<dyn Ways> {
    let nodes = AccessNodes {
        ways: settings.and_then(|it| it.get("auth")),
        deny: settings.and_then(|it| it.get("deny")),
        identity: settings.and_then(|it| it.get("identity")),
    };
    (table.access.build)(nodes, surroundings, report)
}

/// The audit stream. A part of the documents may lack its topic, and writes nothing.
fn read_audit(
    (documents, declared): (&document::Documents, &[Declared]),
    engine: &engine::Engine,
    (is_part, surroundings): (bool, &Surroundings<'_>),
    report: &mut Report,
) -> Option<AuditSettings> {
    let reading = audit::Reading {
        documents,
        declared,
        listeners: &engine.listeners,
        surroundings,
    };
    let settings = shared_settings(documents).filter(|_| !is_part);
    audit::read(settings, &reading, report)
}

/// The connections that this build cannot open: these, and those of documents and flows.
fn missing(
    mut all: Vec<(Span, String)>,
    read: &declared::Read,
    flows: &[Flow],
) -> Vec<(Span, String)> {
    all.extend(read.missing.iter().cloned());
    all.extend(flows.iter().flat_map(|flow| flow.missing.iter().cloned()));
    all
}

/// Puts values in for names in all documents, and reads the settings.
fn read_engine(
    documents: &mut document::Documents,
    names: &Environment,
    values: (&Secrets, &[&str], &[&str]),
    places: &mut Places,
    report: &mut Report,
) -> engine::Engine {
    let engine = match &mut documents.engine {
        Some(document) => {
            names.expand_document(document, (values.0, &[], &[]), places, report);
            engine::read_document(document, report)
        }
        None => engine::Engine::default(),
    };
    documents.expand(names, values, places, report);
    engine
}

/// What flows have of the settings where they say nothing else.
fn defaults(engine: &engine::Engine, callers: gates::CallerLimits) -> Defaults {
    Defaults {
        listen: engine.listen.clone(),
        listeners: Arc::clone(&engine.listeners),
        public_url: engine.public_url.clone(),
        body_max: engine.settings.limits.body,
        body_memory: engine.settings.limits.body_memory,
        expressions: engine.expressions,
        callers,
    }
}

/// The value under `engine:`.
fn shared_settings(documents: &document::Documents) -> Option<&Node> {
    documents.engine.as_ref()?.get("engine")
}

fn refuse_nothing(flows: &[Flow], read: &declared::Read, report: &mut Report) {
    if flows.is_empty() && read.declared.is_empty() && !report.has_errors() {
        report
            .global(codes::NO_FLOW, "there is no flow to run")
            .hint("a flow is a YAML document that begins with `flow: NAME`");
    }
}

/// All systems that requests may be sent to. Those that the egress guard would always refuse are
/// reported.
fn upstreams(
    (flows, read): (&[Flow], &declared::Read),
    ways: &dyn Ways,
    settings: &Settings,
    report: &mut Report,
) -> Vec<Arc<UpstreamPlan>> {
    let mut upstreams = connections::gather(flows, &read.declared);
    upstreams.extend(ways.upstreams());
    egress::check(&upstreams, &settings.egress, report);
    upstreams
}

/// What listens where and what it serves.
fn plan(
    (flows, read): (&[Flow], &declared::Read),
    (ways, listeners, settings, upstreams): (
        &dyn Ways,
        &Listeners,
        Settings,
        Vec<Arc<UpstreamPlan>>,
    ),
) -> Plan {
    let own_sources = read.declared.iter().flat_map(|it| &it.sources).cloned();
    Plan {
        listeners: routes::group((flows, &read.declared), ways, listeners),
        upstreams,
        callees: calls::callees(flows),
        sources: compile::sources(flows)
            .into_iter()
            .chain(own_sources)
            .chain(ways.sources())
            .collect(),
        connections: connections::held(flows),
        settings: Settings {
            identity_field: ways.identities().map(|it| Arc::clone(it.field())),
            ..settings
        },
    }
}

fn loaded(flow: Flow) -> Option<LoadedFlow> {
    Some(LoadedFlow {
        handler: flow.running? as Arc<dyn Handler>,
        door: flow.door,
        name: flow.name,
        calls: flow.calls.into_iter().map(|it| it.flow.value).collect(),
        tests: flow.tests,
        places: flow.places,
    })
}

/// Where a `${ }` could not be put in, what else is wrong with the text follows from that.
fn drop_consequences(spoiled: &[Span], report: &mut Report) {
    let spoiled: HashSet<Span> = spoiled.iter().copied().collect();
    let causes = [
        codes::EXPRESSION,
        config::codes::ENV_UNDECLARED,
        config::codes::SECRET_UNDECLARED,
    ];
    report.retain(|problem| {
        causes.contains(&problem.code())
            || problem.span().is_none_or(|span| !spoiled.contains(&span))
    });
}

#[cfg(test)]
mod tests;
