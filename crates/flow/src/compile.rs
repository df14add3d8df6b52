//! One `flow:` document: its name, its trigger and what happens to its requests.

use std::sync::Arc;

use component::connection::Connections;
use component::plan::RouteTarget;
use component::upstream::UpstreamPlan;
use config::{Entry, Node, Report, Span, Value};
use serde_json::json;

use crate::Table;
use crate::codes::{BAD_NAME, FLOW_NAME_TAKEN, NO_EFFECT, NOT_AVAILABLE};
use crate::connections;
use crate::names::{NAME_RULE, is_name};
use crate::running::RunningFlow;
use crate::step_list::{BuiltStep, StepReader};
use crate::trigger::{self, Defaults, Trigger};

/// Keys of DESIGN's language that this version does not have.
const LATER: [&str; 3] = ["limits", "on_error", "tests"];

/// A flow as far as it could be read.
pub(crate) struct Flow {
    pub name: Arc<str>,
    /// Where its name stands.
    pub name_span: Span,
    /// What starts it; absent when that has a problem.
    pub trigger: Option<Trigger>,
    /// What happens to its requests; absent when a step has a problem.
    pub target: Option<RouteTarget>,
    /// The systems that it sends to.
    pub upstreams: Vec<Arc<UpstreamPlan>>,
}

/// Reads all flows. What has a problem is reported and left out.
pub(crate) fn read_all(
    documents: &[Node],
    table: Table<'_>,
    shared: &Connections,
    defaults: &Defaults,
    report: &mut Report,
) -> Vec<Flow> {
    let mut flows: Vec<Flow> = Vec::new();
    for document in documents {
        let flow = read(document, table, shared, defaults, report);
        if let Some(first) = flows.iter().find(|other| other.name == flow.name) {
            let message = format!("a second flow named `{}`", flow.name);
            report
                .error(FLOW_NAME_TAKEN, flow.name_span, message)
                .also(first.name_span, "the first one")
                .hint("every flow needs a name of its own");
        }
        flows.push(flow);
    }
    flows
}

fn read(
    document: &Node,
    table: Table<'_>,
    shared: &Connections,
    defaults: &Defaults,
    report: &mut Report,
) -> Flow {
    check_shape(document, report);
    let (name, name_span) = read_name(document, report);
    let trigger = document
        .get("from")
        .and_then(|from| trigger::read(from, defaults, report));
    let mut connections = connections::read(document, table.connections, report);
    let mut upstreams = connections::upstreams(&connections);
    connections.0.extend(shared.0.iter().cloned());
    let reader = StepReader {
        definitions: table.steps,
        connections: &connections,
        flow: &name,
        trigger: trigger.as_ref().map(|trigger| &trigger.http),
    };
    let steps = document
        .get("steps")
        .and_then(Node::as_sequence)
        .and_then(|items| reader.read(items, report));
    let name: Arc<str> = name.as_str().into();
    let built = steps.iter().flatten();
    upstreams.extend(built.filter_map(|built| Some(Arc::clone(&built.step.forwards()?.upstream))));
    let target = match (&trigger, steps) {
        (Some(trigger), Some(steps)) => Some(make_target(&name, trigger, steps, report)),
        _ => None,
    };
    Flow {
        name,
        name_span,
        trigger,
        target,
        upstreams,
    }
}

/// Checks which keys there are and of which type. What is below `from` and `steps` is checked by
/// those who read it.
fn check_shape(document: &Node, report: &mut Report) {
    let Value::Mapping(entries) = &document.value else {
        return;
    };
    let is_later = |entry: &&Entry| LATER.contains(&entry.key.as_str());
    for entry in entries.iter().filter(is_later) {
        let message = format!("`{}` is not available in this version", entry.key);
        report.error(NOT_AVAILABLE, entry.key_span, message);
    }
    let known = entries
        .iter()
        .filter(|entry| !is_later(entry))
        .cloned()
        .collect();
    let document = Node {
        value: Value::Mapping(known),
        span: document.span,
    };
    config::check(&document, &shape(json!({}), json!({}), json!({})), report);
}

/// The schema of a flow document with these schemas for `use`, `from` and each step.
pub(crate) fn shape(
    connections: serde_json::Value,
    from: serde_json::Value,
    step: serde_json::Value,
) -> serde_json::Value {
    json!({
        "type": "object",
        "description": "A flow: what starts it and what happens then.",
        "properties": {
            "flow": { "type": "string", "description": "The flow's name, unique in all files." },
            "doc": { "type": "string", "description": "What the flow is for, in prose." },
            "use": connections,
            "from": from,
            "steps": {
                "type": "array",
                "description": "What happens to each message, in order.",
                "items": step,
                "minItems": 1
            }
        },
        "required": ["flow", "from", "steps"],
        "additionalProperties": false
    })
}

/// The flow's name as far as it can be told, and where it stands.
fn read_name(document: &Node, report: &mut Report) -> (String, Span) {
    let Some(node) = document.get("flow") else {
        return (String::new(), document.span);
    };
    match node.as_str() {
        Some(name) if is_name(name) => return (name.to_owned(), node.span),
        Some(name) => {
            let message = format!("`{}` is not a name for a flow", name.escape_debug());
            report.error(BAD_NAME, node.span, message).hint(NAME_RULE);
        }
        None => {}
    }
    // Told apart by place, so that two flows without a name are not two of one name.
    (format!("#{}", node.span.start), node.span)
}

/// A flow whose only step forwards is left to the forward path; any other becomes a handler.
fn make_target(
    name: &Arc<str>,
    trigger: &Trigger,
    steps: Vec<BuiltStep>,
    report: &mut Report,
) -> RouteTarget {
    let only_forward = match steps.as_slice() {
        [only] => only.step.forwards().map(Arc::clone),
        _ => None,
    };
    let (target, reads_body) = match only_forward {
        Some(plan) => (RouteTarget::Forward(plan), false),
        None => {
            let flow = RunningFlow::new(Arc::clone(name), steps);
            let reads_body = flow.reads_body;
            let body_max = trigger.http.body_max;
            (
                RouteTarget::Handle {
                    handler: Arc::new(flow),
                    body_max,
                },
                reads_body,
            )
        }
    };
    if let Some(span) = trigger.body_max_span.filter(|_| !reads_body) {
        report
            .error(
                NO_EFFECT,
                span,
                "`body_max` has no effect: no step of the flow reads the body",
            )
            .hint("leave it out: the body is streamed and never held in memory");
    }
    target
}
