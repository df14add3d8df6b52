//! The `use:` of a flow or of the engine: connections to other systems, by name.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use component::connection::{Connection, Connections, HttpConnection};
use component::definition::{ConnectionContext, ConnectionDefinition, Surroundings};
use component::document::Declared;
use component::upstream::UpstreamPlan;
use config::{Entry, Node, Report, Span};

use crate::codes::{BAD_NAME, UNKNOWN_CONNECTION};
use crate::compile::Flow;
use crate::names::{NAME_RULE, is_name};
use crate::suggest::did_you_mean;

/// Reads the `use:` of a document. Every problem is reported, and what has one is left out.
pub(crate) fn read(
    document: &Node,
    definitions: &[ConnectionDefinition],
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Connections {
    let mut own = Vec::new();
    let Some(node) = document.get("use") else {
        return Connections::default();
    };
    let Some(entries) = node.as_mapping() else {
        let message = format!("`use` is a mapping of names, not {}", node.type_name());
        report
            .error(UNKNOWN_CONNECTION, node.span, message)
            .hint("write `use:` and below it, indented, `crm: { http: https://crm.example }`");
        return Connections::default();
    };
    for entry in entries {
        if !is_name(&entry.key) {
            let message = format!("`{}` is not a name", entry.key.escape_debug());
            report
                .error(BAD_NAME, entry.key_span, message)
                .hint(NAME_RULE);
        }
        own.extend(read_one(entry, definitions, surroundings, report));
    }
    Connections::of(own)
}

fn read_one(
    entry: &Entry,
    definitions: &[ConnectionDefinition],
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Option<Connection> {
    let found = definitions
        .iter()
        .find(|definition| entry.value.get(definition.name).is_some());
    let Some(definition) = found else {
        refuse(entry, definitions, report);
        return None;
    };
    let mut context = ConnectionContext {
        report,
        name: &entry.key,
        surroundings,
    };
    let value = (definition.build)(&entry.value, &mut context)?;
    Some(Connection {
        name: entry.key.clone(),
        kind: definition.name,
        span: entry.key_span,
        key_value: definition.key_value.and_then(|as_store| as_store(&value)),
        value,
    })
}

fn refuse(entry: &Entry, definitions: &[ConnectionDefinition], report: &mut Report) {
    let keys = entry.value.as_mapping().unwrap_or_default();
    let names = || definitions.iter().map(|definition| definition.name);
    let near = keys
        .iter()
        .find_map(|key| Some((key.key_span, did_you_mean(&key.key, names())?)));
    let (span, hint): (Span, String) = near.unwrap_or_else(|| {
        let names: Vec<&str> = names().collect();
        let hint = format!("this version has the kinds: {}", names.join(", "));
        (entry.value.span, hint)
    });
    let message = format!("connection `{}` is of no kind", entry.key.escape_debug());
    report.error(UNKNOWN_CONNECTION, span, message).hint(hint);
}

/// The connections that this build cannot open, each with the reason.
pub(crate) fn missing(
    connections: &Connections,
    definitions: &[ConnectionDefinition],
) -> Vec<(Span, String)> {
    let missing = connections.own.iter().filter_map(|connection| {
        let mut definitions = definitions.iter();
        let definition = definitions.find(|it| it.name == connection.kind)?;
        let message = format!("connection `{}`: {}", connection.name, definition.missing?);
        Some((connection.span, message))
    });
    missing.collect()
}

/// The systems behind these connections.
pub(crate) fn upstreams(connections: &Connections) -> Vec<Arc<UpstreamPlan>> {
    let http = connections.own.iter().filter_map(Connection::as_http);
    let systems = http.flat_map(|http: &HttpConnection| {
        let others = http.credentials.as_ref().and_then(|it| it.upstream());
        std::iter::once(&http.upstream).chain(others)
    });
    systems.map(Arc::clone).collect()
}

/// The connections that flows may use, each once.
pub(crate) fn held(flows: &[Flow]) -> Vec<Arc<dyn Any + Send + Sync>> {
    let own = flows.iter().flat_map(|flow| flow.connections.own.iter());
    // All flows have the same ones of the engine.
    let shared = flows.first().into_iter();
    let shared = shared.flat_map(|flow| flow.connections.shared.iter());
    let mut known = HashSet::new();
    let mut is_new = |it: &&Connection| known.insert(Arc::as_ptr(&it.value).cast::<()>());
    let all = own.chain(shared).filter(|it| is_new(it));
    all.map(|it| Arc::clone(&it.value)).collect()
}

/// All systems that flows and other documents send to, each once.
pub(crate) fn gather(flows: &[Flow], declared: &[Declared]) -> Vec<Arc<UpstreamPlan>> {
    let declared = declared.iter().flat_map(|it| &it.upstreams);
    let of_flows = flows.iter().flat_map(|flow| &flow.upstreams);
    let mut known = HashSet::new();
    let mut is_new = |it: &&Arc<UpstreamPlan>| known.insert(Arc::as_ptr(it));
    let all = of_flows.chain(declared).filter(|it| is_new(it));
    all.map(Arc::clone).collect()
}
