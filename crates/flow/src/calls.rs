//! Flows that steps of other flows start: plain ones that say `from: call`, and places of other
//! kinds, such as a screen of a menu.

use std::sync::Arc;

use component::definition::{FlowCall, FlowEntry};
use component::flow_kind::callee_name;
use component::handler::Callee;
use component::plan::Callees;
use config::Report;

use crate::codes::UNKNOWN_FLOW;
use crate::compile::{Flow, by_name};
use crate::suggest::did_you_mean;
use crate::trigger::Trigger;

/// Checks that flows that are called are there.
pub(crate) fn check(flows: &[Flow], report: &mut Report) {
    let by_name = by_name(flows);
    for call in flows.iter().flat_map(|flow| &flow.calls) {
        let found = by_name.get(call.flow.value.as_str());
        let found = found.and_then(|at| flows.get(*at));
        match &call.entry {
            None => check_call(call, found, flows, report),
            Some(entry) => check_entry(call, entry, flows, report),
        }
    }
}

fn check_call(call: &FlowCall, found: Option<&Flow>, flows: &[Flow], report: &mut Report) {
    let name = call.flow.value.escape_debug();
    let Some(found) = found else {
        let message = format!("there is no flow `{name}`");
        let names = flows.iter().map(|flow| &*flow.name);
        let hint = did_you_mean(&call.flow.value, names);
        let hint = hint.unwrap_or_else(|| "a flow to be called says `from: call`".to_owned());
        let diagnostic = report.error(UNKNOWN_FLOW, call.flow.span, message);
        diagnostic.hint(hint);
        return;
    };
    if matches!(&found.trigger, Some(trigger) if !trigger.is_call()) {
        let message = format!("`{name}` is not a flow to be called");
        report
            .error(UNKNOWN_FLOW, call.flow.span, message)
            .also(found.name_span, "this flow has a trigger of its own")
            .hint("give what both do to a third flow that says `from: call`");
    }
}

fn check_entry(call: &FlowCall, entry: &FlowEntry, flows: &[Flow], report: &mut Report) {
    let kind = entry.kind;
    let same_kind = |flow: &&Flow| flow.kind == Some(kind);
    let mut found = flows.iter().filter(same_kind);
    let Some(found) = found.find(|flow| *flow.name == *call.flow.value) else {
        let message = format!("there is no {kind} `{}`", call.flow.value.escape_debug());
        let names = flows.iter().filter(same_kind).map(|flow| &*flow.name);
        let hint = did_you_mean(&call.flow.value, names);
        let hint = hint.unwrap_or_else(|| format!("a document `{kind}: NAME` declares one"));
        let diagnostic = report.error(UNKNOWN_FLOW, call.flow.span, message);
        diagnostic.hint(hint);
        return;
    };
    // What is wrong with the flow itself has been reported.
    let Some(running) = &found.running else {
        return;
    };
    let entries = running.entries();
    let Some(known) = entries.iter().find(|it| *it.name == *entry.name.value) else {
        let wanted = entry.name.value.escape_debug();
        let message = format!("{kind} `{}` cannot be entered at `{wanted}`", found.name);
        let hint = did_you_mean(&entry.name.value, entries.iter().map(|it| &*it.name));
        let hint = hint.unwrap_or_else(|| format!("list it under `{}`", entry.offered_by));
        let diagnostic = report.error(UNKNOWN_FLOW, entry.name.span, message);
        let label = format!("this {kind}");
        diagnostic.also(found.name_span, label).hint(hint);
        return;
    };
    let mut missing = known.variables.iter();
    let missing = missing.find(|name| entry.variables.iter().all(|it| it.value != ***name));
    if let Some(name) = missing {
        let message = format!("{kind} `{}` needs a value for `{name}` there", found.name);
        let diagnostic = report.error(UNKNOWN_FLOW, entry.name.span, message);
        diagnostic.also(found.name_span, format!("this {kind}"));
        diagnostic.hint(format!("write it under `set`: `{name}: …`"));
    }
    for variable in &entry.variables {
        if known.variables.iter().any(|it| **it == *variable.value) {
            continue;
        }
        let wanted = variable.value.escape_debug();
        let message = format!("{kind} `{}` takes no `{wanted}` there", found.name);
        let hint = did_you_mean(&variable.value, known.variables.iter().map(|it| &**it));
        let diagnostic = report.error(UNKNOWN_FLOW, variable.span, message);
        diagnostic.also(found.name_span, format!("this {kind}"));
        if let Some(hint) = hint {
            diagnostic.hint(hint);
        }
    }
}

/// The flows that others start, by the names under which they are found.
pub(crate) fn callees(flows: &[Flow]) -> Callees {
    let running = flows.iter().filter_map(|flow| {
        let running = Arc::clone(flow.running.as_ref()?);
        let name: Arc<str> = match flow.kind {
            Some(_) if running.entries().is_empty() => return None,
            Some(kind) => callee_name(kind, &flow.name).into(),
            None if flow.trigger.as_ref().is_some_and(Trigger::is_call) => Arc::clone(&flow.name),
            None => return None,
        };
        Some((name, running as Arc<dyn Callee>))
    });
    running.collect()
}
