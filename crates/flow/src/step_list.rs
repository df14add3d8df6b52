//! The `steps:` of a flow: one verb per step, looked up in the table of definitions.

use component::connection::Connections;
use component::definition::{BuildContext, StepDefinition};
use component::step::Step;
use component::trigger::HttpTrigger;
use config::{Entry, Node, Report, Value};

use crate::codes::{
    BAD_NAME, BAD_STEP, NOT_AVAILABLE, STEP_NAME_TAKEN, UNKNOWN_STEP, UNREACHABLE_STEP,
};
use crate::names::{NAME_RULE, is_name};
use crate::suggest::did_you_mean;

/// Keys beside the verb that DESIGN's language has and this version does not.
const LATER: [&str; 9] = [
    "as", "if", "timeout", "retry", "breaker", "bulkhead", "throttle", "fallback", "on_error",
];

/// A step that is ready to run.
pub(crate) struct BuiltStep {
    /// What logs call it: its name, or its place and verb.
    pub label: String,
    /// The work.
    pub step: Box<dyn Step>,
}

/// What a list of steps is read with.
pub(crate) struct StepReader<'a> {
    pub definitions: &'a [StepDefinition],
    pub connections: &'a Connections,
    pub flow: &'a str,
    pub trigger: Option<&'a HttpTrigger>,
}

impl StepReader<'_> {
    /// Reads all steps. Every problem is reported; `None` when there was one.
    pub fn read(&self, items: &[Node], report: &mut Report) -> Option<Vec<BuiltStep>> {
        let mut built = Vec::new();
        let mut names: Vec<&Entry> = Vec::new();
        let mut sound = true;
        let mut end: Option<(usize, &Node)> = None;
        for (at, item) in items.iter().enumerate() {
            if let Some((end_at, end_node)) = end.take() {
                report
                    .error(UNREACHABLE_STEP, item.span, "this step is never reached")
                    .also(
                        end_node.span,
                        format!("step {} always ends the flow", end_at + 1),
                    )
                    .hint("take it out, or put it before the step that ends the flow");
                sound = false;
            }
            let name = read_name(item, &mut names, report);
            let step = self.read_step(item, at + 1 == items.len(), report);
            let (Ok(name), Some((verb, step))) = (name, step) else {
                sound = false;
                continue;
            };
            if step.ends_flow() && at + 1 < items.len() {
                end = Some((at, item));
            }
            let label = name.map_or_else(|| format!("{} ({verb})", at + 1), str::to_owned);
            built.push(BuiltStep { label, step });
        }
        sound.then_some(built)
    }

    fn read_step(
        &self,
        item: &Node,
        is_last: bool,
        report: &mut Report,
    ) -> Option<(&'static str, Box<dyn Step>)> {
        let Value::Mapping(entries) = &item.value else {
            self.refuse_shape(item, report);
            return None;
        };
        let mut verbs: Vec<(&StepDefinition, &Entry)> = Vec::new();
        let mut unknown: Vec<&Entry> = Vec::new();
        for entry in entries.iter().filter(|entry| entry.key != "name") {
            match self
                .definitions
                .iter()
                .find(|definition| definition.name == entry.key)
            {
                Some(definition) => verbs.push((definition, entry)),
                None => unknown.push(entry),
            }
        }
        for entry in &unknown {
            self.refuse_key(entry, !verbs.is_empty(), report);
        }
        if verbs.is_empty() && unknown.is_empty() {
            report
                .error(BAD_STEP, item.span, "a step without a verb")
                .hint(self.list_verbs());
        }
        if let [(_, first), rest @ ..] = verbs.as_slice() {
            for (_, other) in rest {
                let message = format!("a step has one verb; `{}` is a second one", other.key);
                report
                    .error(BAD_STEP, other.key_span, message)
                    .also(first.key_span, "the first verb")
                    .hint("begin another step with `- `");
            }
        }
        let mut built = Vec::new();
        for (definition, entry) in &verbs {
            let mut context = BuildContext {
                report,
                flow: self.flow,
                trigger: self.trigger,
                connections: self.connections,
                is_last,
            };
            let step = (definition.build)(&entry.value, &mut context);
            built.extend(step.map(|step| (definition.name, step)));
        }
        if verbs.len() == 1 && unknown.is_empty() {
            built.pop()
        } else {
            None
        }
    }

    fn refuse_shape(&self, item: &Node, report: &mut Report) {
        let message = format!(
            "a step is a mapping with one verb, not {}",
            item.type_name()
        );
        let verb = item.as_str().and_then(|text| {
            self.definitions
                .iter()
                .find(|known| known.name == text.trim())
        });
        let hint = match verb {
            Some(known) => format!("write `- {}:` with a colon", known.name),
            None => self.list_verbs(),
        };
        report.error(BAD_STEP, item.span, message).hint(hint);
    }

    fn refuse_key(&self, entry: &Entry, has_verb: bool, report: &mut Report) {
        let shown = entry.key.escape_debug();
        if LATER.contains(&entry.key.as_str()) {
            let message = format!("`{shown}` is not available in this version");
            report
                .error(NOT_AVAILABLE, entry.key_span, message)
                .hint("beside its verb a step may have a `name`");
            return;
        }
        let known = self
            .definitions
            .iter()
            .map(|known| known.name)
            .chain(["name"]);
        let hint = did_you_mean(&entry.key, known);
        let message = if has_verb {
            format!("unknown key `{shown}` in a step")
        } else {
            format!("unknown step `{shown}`")
        };
        let hint = hint.unwrap_or_else(|| self.list_verbs());
        report
            .error(UNKNOWN_STEP, entry.key_span, message)
            .hint(hint);
    }

    fn list_verbs(&self) -> String {
        let names: Vec<&str> = self
            .definitions
            .iter()
            .map(|definition| definition.name)
            .collect();
        format!("this version has the steps {}", names.join(", "))
    }
}

/// The step's name, if it has one that can be used.
fn read_name<'a>(
    item: &'a Node,
    taken: &mut Vec<&'a Entry>,
    report: &mut Report,
) -> Result<Option<&'a str>, ()> {
    let Some(entry) = item.entry("name") else {
        return Ok(None);
    };
    let Some(name) = entry.value.as_str().filter(|name| is_name(name)) else {
        report
            .error(BAD_NAME, entry.value.span, "this is not a name for a step")
            .hint(NAME_RULE);
        return Err(());
    };
    if let Some(first) = taken
        .iter()
        .find(|other| other.value.as_str() == Some(name))
    {
        report
            .error(
                STEP_NAME_TAKEN,
                entry.value.span,
                format!("a second step named `{name}`"),
            )
            .also(first.value.span, "the first one");
        return Err(());
    }
    taken.push(entry);
    Ok(Some(name))
}
