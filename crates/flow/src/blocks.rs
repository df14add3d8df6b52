//! The `steps:` of a flow and the steps within steps: one verb per step, looked up in the table of
//! definitions, with its modifiers beside it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use component::block::{Block, StepNode};
use component::definition::{BlockReader, BuildContext, StepDefinition};
use component::failure::{Clause, Handlers};
use component::step::Step;
use config::{Entry, Node, Report, Span, Value};

use crate::codes::{
    BAD_NAME, BAD_STEP, EXPRESSION, STEP_NAME_TAKEN, UNKNOWN_STEP, UNREACHABLE_STEP,
};
use crate::modifiers::{self, MODIFIERS};
use crate::names::{NAME_RULE, is_name};
use crate::suggest::did_you_mean;

/// Reads lists of steps.
pub(crate) struct StepReader<'a> {
    pub definitions: &'a [StepDefinition],
    /// The names that steps of the flow have, and where.
    pub names: RefCell<HashMap<String, Span>>,
}

/// A step that has been built, and the verb that it was built of.
struct Built {
    verb: &'static str,
    label: Arc<str>,
    step: Box<dyn Step>,
}

/// What a key of a step is.
enum Form<'d> {
    /// A verb.
    Found(&'d StepDefinition),
    /// A verb with several forms, of which it is none; the keys that they have.
    None(Vec<String>),
    /// No verb.
    Unknown,
}

/// A verb of a step: what it stands for, and where it stands.
type Verb<'d, 'n> = (&'d StepDefinition, &'n Entry);

impl BlockReader for StepReader<'_> {
    fn read_block(
        &self,
        items: &Node,
        is_last: bool,
        context: &mut BuildContext<'_>,
    ) -> Option<Block> {
        let Some(nodes) = items.as_sequence().filter(|nodes| !nodes.is_empty()) else {
            let message = match items.as_sequence() {
                Some(_) => "a list of steps is empty".to_owned(),
                None => format!("steps are a list, not {}", items.type_name()),
            };
            context
                .report
                .error(BAD_STEP, items.span, message)
                .hint("begin each step with `- `");
            return None;
        };
        let within = context.path.clone();
        let place = context.place(&within, items.span, false);
        let mut steps = Vec::new();
        let mut end: Option<(usize, &Node)> = None;
        for (at, item) in nodes.iter().enumerate() {
            if let Some((end_at, end_node)) = end.take() {
                refuse_unreachable(item, end_at, end_node, context.report);
            }
            let is_end = at + 1 == nodes.len();
            let path = self.path(context, at);
            let step = self.read_step(item, &[], (path, is_last && is_end), context);
            if let Some(step) = &step
                && step.ends_flow()
                && !is_end
            {
                end = Some((at, item));
            }
            steps.push(step);
        }
        let steps = steps.into_iter().collect::<Option<_>>()?;
        Some(Block { place, steps })
    }

    fn read_one(
        &self,
        item: &Node,
        beside: &[&str],
        is_last: bool,
        context: &mut BuildContext<'_>,
    ) -> Option<Block> {
        let path = context.path.clone();
        let place = context.place(&path, item.span, false);
        let step = self.read_step(item, beside, (path, is_last), context)?;
        Some(Block {
            place,
            steps: vec![step],
        })
    }

    fn read_handlers(&self, clauses: &Node, context: &mut BuildContext<'_>) -> Option<Handlers> {
        let Some(nodes) = clauses.as_sequence().filter(|nodes| !nodes.is_empty()) else {
            let message = match clauses.as_sequence() {
                Some(_) => "a list of clauses is empty".to_owned(),
                None => format!("clauses are a list, not {}", clauses.type_name()),
            };
            context
                .report
                .error(BAD_STEP, clauses.span, message)
                .hint("write `- { on: timeout, reply: { status: 504 } }`");
            return None;
        };
        let outer = context.scope.handle_error(true);
        let length = context.path.len();
        let mut read = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let within = if length == 0 { "on_error" } else { "" };
            context.path.push_str(&format!("{within}.{}", at + 1));
            read.push(self.read_clause(node, context));
            context.path.truncate(length);
        }
        context.scope.handle_error(outer);
        Some(Handlers(read.into_iter().collect::<Option<_>>()?))
    }
}

impl StepReader<'_> {
    fn path(&self, context: &BuildContext<'_>, at: usize) -> String {
        match context.path.as_str() {
            "" => (at + 1).to_string(),
            within => format!("{within}.{}", at + 1),
        }
    }

    /// A clause: `on` beside `steps`, beside one step, or beside both `steps` and a `reply`.
    fn read_clause(&self, node: &Node, context: &mut BuildContext<'_>) -> Option<Clause> {
        if node.as_mapping().is_none() {
            let message = format!("a clause is a mapping, not {}", node.type_name());
            let diagnostic = context.report.error(BAD_STEP, node.span, message);
            diagnostic.hint("write `- { on: timeout, reply: { status: 504 } }`");
            return None;
        }
        let on = modifiers::read_matchers(node.get("on"), node.span, context.report);
        let Some(steps) = node.get("steps") else {
            let block = self.read_one(node, &["on"], false, context);
            return Some(Clause {
                on: on?,
                block: block?,
            });
        };
        let mut block = self.read_block(steps, false, context);
        let has_reply = node.get("reply").is_some();
        if has_reply {
            let reply = self.read_one(node, &["on", "steps"], false, context);
            if let (Some(block), Some(reply)) = (&mut block, reply) {
                block.steps.extend(reply.steps);
            }
        }
        let known = |key: &str| ["on", "steps", "reply"].contains(&key);
        for entry in node.as_mapping().unwrap_or_default() {
            if !known(&entry.key) && !has_reply {
                let message = format!("unknown key `{}` in a clause", entry.key.escape_debug());
                let diagnostic = context.report.error(UNKNOWN_STEP, entry.key_span, message);
                diagnostic.hint("a clause has `on`, `steps` and `reply`, or `on` and one step");
            }
        }
        Some(Clause {
            on: on?,
            block: block?,
        })
    }

    /// Reads one step at a path. `beside` are keys that are no business of the step.
    fn read_step(
        &self,
        item: &Node,
        beside: &[&str],
        (path, is_last): (String, bool),
        context: &mut BuildContext<'_>,
    ) -> Option<StepNode> {
        let Value::Mapping(entries) = &item.value else {
            self.refuse_shape(item, context.report);
            return None;
        };
        let name = self.read_name(item, context.report);
        let verbs = self.find_verbs(item, entries, beside, context.report);
        let (definition, verb) = match verbs {
            Ok(verb) => verb,
            Err(verbs) => {
                // What is below them is told too.
                for (definition, entry) in verbs {
                    let _ = (definition.build)(&entry.value, context);
                }
                return None;
            }
        };
        let label = match &name {
            Ok(Some(name)) => (*name).to_owned(),
            _ => format!("{path} ({})", definition.name),
        };
        let label: Arc<str> = label.into();
        let has_modifiers = MODIFIERS
            .iter()
            .any(|key| !["name", "if"].contains(key) && item.get(key).is_some());
        let outer = (
            context.path.clone(),
            Arc::clone(&context.label),
            context.is_last,
        );
        context.path = path;
        context.label = Arc::clone(&label);
        context.is_last = is_last && !has_modifiers;
        let texts = context.compiled.len();
        let condition = modifiers::read_condition(item, context);
        let step = (definition.build)(&verb.value, context);
        refuse_stray_holes(&verb.value, texts, context);
        let built = step.map(|step| Built {
            verb: definition.name,
            label,
            step,
        });
        let node = self.modify(item, built, context);
        (context.path, context.label, context.is_last) = outer;
        let (Ok(_), Ok(condition), Some(mut node)) = (name, condition, node) else {
            return None;
        };
        node.condition = condition;
        Some(node)
    }

    /// Adds what stands beside the verb.
    fn modify(
        &self,
        item: &Node,
        built: Option<Built>,
        context: &mut BuildContext<'_>,
    ) -> Option<StepNode> {
        let label = built.as_ref().map_or("", |built| &built.label).to_owned();
        let place = context.place(&label, item.span, true);
        let waits = built.as_ref().is_none_or(|built| built.step.waits());
        let ends = built.as_ref().is_some_and(|built| built.step.ends_flow());
        let verb = built.as_ref().map_or("", |built| built.verb);
        let extras = modifiers::read(item, (verb, waits, ends), context);
        let (built, extras) = (built?, extras?);
        Some(StepNode {
            place,
            label: built.label,
            step: built.step,
            condition: None,
            keep_as: extras.keep_as,
            guard: extras.guard,
            fallback: extras.fallback,
            on_error: extras.on_error,
        })
    }

    /// The one verb of a step. Everything else about its keys is reported.
    fn find_verbs<'n>(
        &self,
        item: &Node,
        entries: &'n [Entry],
        beside: &[&str],
        report: &mut Report,
    ) -> Result<Verb<'_, 'n>, Vec<Verb<'_, 'n>>> {
        let mut verbs: Vec<(&StepDefinition, &Entry)> = Vec::new();
        let mut unknown: Vec<&Entry> = Vec::new();
        let is_ours = |entry: &&Entry| {
            let key = entry.key.as_str();
            !beside.contains(&key) && !MODIFIERS.contains(&key)
        };
        let mut is_formless = false;
        for entry in entries.iter().filter(is_ours) {
            match self.find_form(entry) {
                Form::Found(definition) => verbs.push((definition, entry)),
                Form::Unknown => unknown.push(entry),
                Form::None(keys) => {
                    is_formless = true;
                    refuse_form(entry, &keys, report);
                }
            }
        }
        // `if` is a verb when it holds steps, and a condition beside another one when it does not.
        for entry in entries.iter().filter(|entry| entry.key == "if") {
            let is_verb = entry.value.as_mapping().is_some();
            let definition = self.definitions.iter().find(|known| known.name == "if");
            verbs.extend(definition.filter(|_| is_verb).map(|found| (found, entry)));
        }
        for entry in &unknown {
            self.refuse_key(entry, !verbs.is_empty(), report);
        }
        if verbs.is_empty() && unknown.is_empty() && !is_formless {
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
        match verbs.as_slice() {
            [verb] if unknown.is_empty() && !is_formless => Ok(*verb),
            _ => Err(verbs),
        }
    }

    /// The definition of a verb; of several that share it, that whose key is there.
    fn find_form(&self, entry: &Entry) -> Form<'_> {
        let all = self.definitions.iter();
        let mut forms = all.filter(|known| known.name == entry.key);
        let (Some(first), more) = (forms.next(), forms.next()) else {
            return Form::Unknown;
        };
        let Some(second) = more else {
            return Form::Found(first);
        };
        let mut keys = Vec::new();
        for form in [first, second].into_iter().chain(forms) {
            let key = form.form().unwrap_or_default();
            if entry.value.get(&key).is_some() {
                return Form::Found(form);
            }
            keys.push(key);
        }
        Form::None(keys)
    }

    fn refuse_shape(&self, item: &Node, report: &mut Report) {
        let message = format!(
            "a step is a mapping with one verb, not {}",
            item.type_name()
        );
        let verb = item.as_str().and_then(|text| {
            let text = text.trim();
            self.definitions.iter().find(|known| known.name == text)
        });
        let hint = match verb {
            Some(known) => format!("write `- {}:` with a colon", known.name),
            None => self.list_verbs(),
        };
        report.error(BAD_STEP, item.span, message).hint(hint);
    }

    fn refuse_key(&self, entry: &Entry, has_verb: bool, report: &mut Report) {
        let shown = entry.key.escape_debug();
        let verbs = self.definitions.iter().map(|known| known.name);
        let hint = did_you_mean(&entry.key, verbs.chain(MODIFIERS));
        let (message, other) = if has_verb {
            let beside = format!("beside its verb a step may have {}", MODIFIERS.join(", "));
            (format!("unknown key `{shown}` in a step"), beside)
        } else {
            (format!("unknown step `{shown}`"), self.list_verbs())
        };
        report
            .error(UNKNOWN_STEP, entry.key_span, message)
            .hint(hint.unwrap_or(other));
    }

    fn list_verbs(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for known in self.definitions {
            if !names.contains(&known.name) {
                names.push(known.name);
            }
        }
        format!("this version has the steps {}", names.join(", "))
    }

    /// The step's name, if it has one that can be used.
    fn read_name<'n>(&self, item: &'n Node, report: &mut Report) -> Result<Option<&'n str>, ()> {
        let Some(entry) = item.entry("name") else {
            return Ok(None);
        };
        let Some(name) = entry.value.as_str().filter(|name| is_name(name)) else {
            report
                .error(BAD_NAME, entry.value.span, "this is not a name for a step")
                .hint(NAME_RULE);
            return Err(());
        };
        let mut names = self.names.borrow_mut();
        if let Some(first) = names.get(name) {
            let message = format!("a second step named `{name}`");
            report
                .error(STEP_NAME_TAKEN, entry.value.span, message)
                .also(*first, "the first one");
            return Err(());
        }
        names.insert(name.to_owned(), entry.value.span);
        Ok(Some(name))
    }
}

fn refuse_form(entry: &Entry, keys: &[String], report: &mut Report) {
    let verb = &entry.key;
    let message = format!("`{verb}` has one of the keys `{}`", keys.join("`, `"));
    let forms = keys.iter().map(|key| format!("`{verb}: {{ {key}: … }}`"));
    let forms: Vec<String> = forms.collect();
    report
        .error(BAD_STEP, entry.value.span, message)
        .hint(format!("write {}", forms.join(" or ")));
}

fn refuse_unreachable(item: &Node, end_at: usize, end: &Node, report: &mut Report) {
    report
        .error(UNREACHABLE_STEP, item.span, "this step is never reached")
        .also(
            end.span,
            format!("step {} always ends the flow", end_at + 1),
        )
        .hint("take it out, or put it before the step that ends the flow");
}

/// Refuses every `${ }` in a text that the step has not read as an expression: it would be passed
/// on as it stands.
fn refuse_stray_holes(node: &Node, texts: usize, context: &mut BuildContext<'_>) {
    match &node.value {
        Value::String(text) if text.contains("${") => {
            let compiled = context.compiled.get(texts..).unwrap_or_default();
            if !compiled.contains(&node.span) {
                context
                    .report
                    .error(EXPRESSION, node.span, "no expression can stand here")
                    .hint("the only `${ }` that can stand anywhere is `${ $env.NAME }`");
            }
        }
        Value::Sequence(items) => {
            items
                .iter()
                .for_each(|item| refuse_stray_holes(item, texts, context));
        }
        Value::Mapping(entries) => {
            for entry in entries {
                refuse_stray_holes(&entry.value, texts, context);
            }
        }
        _ => {}
    }
}
