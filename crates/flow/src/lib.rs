//! Flow files: YAML documents in, a checked plan out, and the flows that run by it.
//!
//! [`load`] is a pure function: it opens nothing and knows no step but those of the table it is
//! given. It reports every problem of all documents at once.
//!
//! The life of a document: `document` sorts it, `environment` puts environment values in,
//! `engine` or `compile` reads it (`connections` its `use:`, `trigger` its `from:`, `step_list` its
//! `steps:`), `routes` looks at all flows together, and `running` is what a flow is when requests
//! come.

mod bounds;
pub mod codes;
mod compile;
mod connections;
mod document;
mod engine;
mod environment;
mod names;
mod problem;
mod routes;
mod running;
pub mod schema;
mod secrets;
mod step_list;
mod suggest;
mod trigger;

use component::definition::{ConnectionDefinition, StepDefinition};
use component::plan::Plan;
use config::{Node, Report, Span};

pub use engine::{EngineSettings, LogFormat, LogLevel, LogSettings};
pub use secrets::{KnownSecrets, SecretSources, secret_sources};

use crate::environment::{Environment, Places};
use crate::trigger::Defaults;

/// Flow files that have been checked and can be run.
#[derive(Clone)]
pub struct Loaded {
    /// What listens where and what it serves.
    pub plan: Plan,
    /// Settings beside the plan's own.
    pub engine: EngineSettings,
}

/// The parts that flow files may use.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// Kinds of steps.
    pub steps: &'a [StepDefinition],
    /// Kinds of connections.
    pub connections: &'a [ConnectionDefinition],
}

/// Makes a plan of all documents of all files, in order. `environment` looks an environment
/// variable up; `secrets` are those of [`secret_sources`].
///
/// Every problem goes into the report. `None` when the report has errors, those that were there
/// before included.
pub fn load(
    documents: Vec<Node>,
    table: Table<'_>,
    environment: &dyn Fn(&str) -> Option<String>,
    secrets: &KnownSecrets,
    report: &mut Report,
) -> Option<Loaded> {
    let mut documents = document::sort(documents, report);
    let engine_value = documents
        .engine
        .as_ref()
        .and_then(|document| document.get("engine"));
    let names = Environment::read(engine_value, environment, report);
    let mut places = Places::default();
    let engine = match &mut documents.engine {
        Some(document) => {
            names.expand_document(document, &secrets.values, &mut places, report);
            engine::read_document(document, report)
        }
        None => engine::Engine::default(),
    };
    for document in &mut documents.flows {
        names.expand_document(document, &secrets.values, &mut places, report);
    }
    let shared = documents
        .engine
        .as_ref()
        .map(|document| connections::read(document, table.connections, report))
        .unwrap_or_default();
    let defaults = Defaults {
        listen: engine.listen.clone(),
        body_max: engine.settings.limits.body,
    };
    let flows = compile::read_all(&documents.flows, table, &shared, &defaults, report);
    routes::check(&flows, report);
    drop_consequences(&places.spoiled, report);
    secrets.finish(&places.secret, report);
    if flows.is_empty() && !report.has_errors() {
        report
            .global(codes::NO_FLOW, "there is no flow to run")
            .hint("a flow is a YAML document that begins with `flow: NAME`");
    }
    if report.has_errors() {
        return None;
    }
    let plan = Plan {
        listeners: routes::group(&flows),
        upstreams: connections::gather(&flows),
        settings: engine.settings,
    };
    Some(Loaded {
        plan,
        engine: engine.engine,
    })
}

/// Where a `${ }` could not be put in, what else is wrong with the text follows from that.
fn drop_consequences(spoiled: &[Span], report: &mut Report) {
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
