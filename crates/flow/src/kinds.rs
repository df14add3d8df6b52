//! Documents that are flows with other keys than `steps`: their shape, and the one step that stands
//! for what they do.

use component::block::{Block, StepNode};
use component::definition::BuildContext;
use component::edge::RouteEdge;
use component::flow_kind::FlowKind;
use component::trigger::ListenAddress;
use config::{Node, Report, Span};
use serde_json::{Map, Value, json};
use std::sync::Arc;

use crate::codes::UNGUARDED;
use crate::compile::{self, Parts};
use crate::exposure::is_local;

/// Keys of flows that such documents do not have.
const NOT_THEIRS: [&str; 6] = ["flow", "steps", "on_error", "detach", "tickets", "cors"];

/// The kind of a document that is no plain flow.
pub(crate) fn of<'a>(document: &Node, kinds: &'a [FlowKind]) -> Option<&'a FlowKind> {
    if document.entry("flow").is_some() {
        return None;
    }
    kinds.iter().find(|it| document.entry(it.name).is_some())
}

/// Checks the keys of a document; whether they are all sound.
pub(crate) fn check(document: &Node, kind: &FlowKind, report: &mut Report) -> bool {
    let before = report.errors();
    let mut schema = shape(kind, Parts::default());
    if let Some(Value::Object(definitions)) = schema.get_mut("$defs") {
        definitions.insert("step".to_owned(), json!({}));
    }
    config::check(document, &schema, report);
    report.errors() == before
}

/// The schema of a document of a kind.
pub(crate) fn shape(kind: &FlowKind, parts: Parts) -> Value {
    let mut common = compile::shape(parts);
    let mut own = (kind.schema)();
    let mut properties = Map::new();
    if let Some(Value::Object(keys)) = own.get_mut("properties") {
        properties.append(keys);
    }
    if let Some(Value::Object(keys)) = common.get_mut("properties") {
        let mut keys = std::mem::take(keys);
        keys.retain(|key, _| !NOT_THEIRS.contains(&key.as_str()));
        properties.extend(keys);
    }
    let mut required = vec![json!("from")];
    if let Some(Value::Array(more)) = own.get_mut("required") {
        required.append(more);
    }
    let definitions = own.get("$defs").cloned().unwrap_or_else(|| json!({}));
    json!({
        "type": "object",
        "description": kind.summary,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
        "$defs": definitions
    })
}

/// Makes the one step of a document.
pub(crate) fn read_block(
    document: &Node,
    kind: &FlowKind,
    context: &mut BuildContext<'_>,
) -> Option<Block> {
    // It has been reported with the document's shape.
    if !check(document, kind, &mut Report::default()) {
        return None;
    }
    let place = context.place(kind.name, document.span, false);
    let step = (kind.build)(document, context)?;
    let own = context.place(kind.name, document.span, true);
    let step = StepNode {
        place: own,
        label: Arc::clone(context.flow),
        step,
        condition: None,
        keep_as: None,
        guard: None,
        fallback: None,
        on_error: None,
    };
    Some(Block {
        place,
        steps: vec![step],
    })
}

/// Refuses a trigger beyond this machine that nobody guards.
pub(crate) fn check_guarded(
    kind: &FlowKind,
    (listen, span): (&ListenAddress, Span),
    has_door: bool,
    edges: [&RouteEdge; 2],
    report: &mut Report,
) {
    let has_networks = edges.iter().any(|edge| edge.lists_networks());
    if has_door || has_networks || is_local(listen) {
        return;
    }
    let message = format!("whoever reaches {listen} {}", kind.trigger.danger);
    report.error(UNGUARDED, span, message).hint(
        "list the addresses of the gateway under `networks`, name a way under `auth`, or listen on \
         127.0.0.1",
    );
}
