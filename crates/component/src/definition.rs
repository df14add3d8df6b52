//! How a step is declared once, so that loader, schema, reference pages and `intertie list` all
//! read the same table; and what a step is given while it is built.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use config::{Code, Node, Report, SourceId, Span, Spanned};
use expr::jq::{CompileError, Expression};
use expr::template::Template;

use crate::block::Block;
use crate::codes::{BAD_EXPRESSION, UNKNOWN_NAME};
use crate::connection::Connections;
use crate::failure::Handlers;
use crate::identity::Identities;
use crate::intake::DeadLetterTarget;
use crate::key_value::AsKeyValueStore;
use crate::scope::{self, Scope};
use crate::state::{State, StateKey, States};
use crate::step::Step;
use crate::trigger::HttpTrigger;
use crate::upstream::UpstreamPlan;
use crate::value_template::ValueTemplate;

/// The declaration of one kind of step.
///
/// Several may share a verb: they are its forms, and the first key that each requires
/// ([`StepDefinition::form`]) tells them apart.
#[derive(Clone, Copy)]
pub struct StepDefinition {
    /// The verb: the key under which the step is written.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Prose for the reference page, in Markdown.
    pub documentation: &'static str,
    /// A complete flow file that shows the step; a test loads it.
    pub example: &'static str,
    /// The JSON Schema of the value under the verb.
    pub schema: fn() -> serde_json::Value,
    /// Checks the value under the verb and makes the step. Every problem goes into the report;
    /// `None` only when there was one. Opens nothing.
    pub build: fn(&Node, &mut BuildContext<'_>) -> Option<Box<dyn Step>>,
}

impl StepDefinition {
    /// The first key that the step requires, by which forms of one verb are told apart.
    pub fn form(&self) -> Option<String> {
        let schema = (self.schema)();
        let first = schema.get("required")?.get(0)?.as_str()?;
        Some(first.to_owned())
    }
}

/// Reads steps within a step: the loader.
pub trait BlockReader {
    /// Reads a list of steps. Every problem goes into the report; `None` when there was one.
    fn read_block(
        &self,
        items: &Node,
        is_last: bool,
        context: &mut BuildContext<'_>,
    ) -> Option<Block>;

    /// Reads one step, its verb among the keys of a mapping beside those named here.
    fn read_one(
        &self,
        item: &Node,
        beside: &[&str],
        is_last: bool,
        context: &mut BuildContext<'_>,
    ) -> Option<Block>;

    /// Reads clauses for failures.
    fn read_handlers(&self, clauses: &Node, context: &mut BuildContext<'_>) -> Option<Handlers>;
}

/// What the loader knows beside the files themselves.
pub struct Surroundings<'a> {
    /// Reads a file that a flow file names, by that file and the name in it.
    pub files: &'a dyn Fn(SourceId, &str) -> Result<Bytes, String>,
    /// The folder that a flow file lies in, as seen from the working directory.
    pub folder: &'a dyn Fn(SourceId) -> PathBuf,
    /// What steps remember.
    pub states: &'a States,
    /// The store of this name, for dead letters of sources.
    pub dead_letters: DeadLetterStores,
}

/// Finds a store for dead letters by its name. What is no name is reported.
pub type DeadLetterStores =
    fn(&Spanned<String>, (&States, &mut Report)) -> Option<Arc<dyn DeadLetterTarget>>;

impl Surroundings<'_> {
    /// A path in a flow file. Relative ones start at the folder of the file that has them, wherever
    /// the process was started.
    pub fn path(&self, written: &Spanned<String>) -> PathBuf {
        (self.folder)(written.span.source).join(&written.value)
    }
}

/// A place of a flow that a message can reach, for coverage.
#[derive(Clone, Debug)]
pub struct Place {
    /// What the step is called, or the step that the list belongs to.
    pub label: String,
    /// Where it stands.
    pub span: Span,
    /// Whether it is a step; else it is the beginning of a list of steps.
    pub is_step: bool,
}

/// That a step calls a flow.
#[derive(Clone, Debug)]
pub struct FlowCall {
    /// The flow's name, and where it stands.
    pub flow: Spanned<String>,
    /// The place where a flow of another kind is entered; without it the flow is a plain one with
    /// `from: call`.
    pub entry: Option<FlowEntry>,
}

/// A place of a flow of another kind at which a step enters it.
#[derive(Clone, Debug)]
pub struct FlowEntry {
    /// The kind, such as `menu`.
    pub kind: &'static str,
    /// The place's name: one of [`Step::entries`].
    pub name: Spanned<String>,
    /// The variables that get values there.
    pub variables: Vec<Spanned<String>>,
    /// How a flow of the kind says which places it has, for a hint.
    pub offered_by: &'static str,
}

/// What a step may know of its surroundings while it is built.
pub struct BuildContext<'a> {
    /// Where problems go.
    pub report: &'a mut Report,
    /// The flow's name.
    pub flow: &'a Arc<str>,
    /// What logs call the step.
    pub label: Arc<str>,
    /// Where the step stands: the numbers of the steps that it is within and its own, with points
    /// between.
    pub path: String,
    /// The flow's trigger; absent when it is not HTTP or has a problem itself.
    pub trigger: Option<&'a HttpTrigger>,
    /// Whether somebody may be known who has sent the message.
    pub may_have_caller: bool,
    /// What can tell other systems who that is, if anything can.
    pub identities: Option<&'a dyn Identities>,
    /// The connections that the flow may use.
    pub connections: &'a Connections,
    /// Whether the flow ends with the step and nothing stands beside it that looks at its result: a
    /// step that forwards then sends the reply on as it is.
    pub is_last: bool,
    /// Whether nobody handles the flow's failures, so that a last step that forwards can leave the
    /// reply to be streamed.
    pub may_stream: bool,
    /// The names that expressions may use.
    pub scope: &'a mut Scope,
    /// The systems that steps send to.
    pub upstreams: &'a mut Vec<Arc<UpstreamPlan>>,
    /// The flows that steps call.
    pub calls: &'a mut Vec<FlowCall>,
    /// The texts that have been read as expressions: a `${ }` in any other is a mistake.
    pub compiled: &'a mut Vec<Span>,
    /// The places of the flow so far.
    pub places: &'a mut Vec<Place>,
    /// Reads steps within the step.
    pub blocks: &'a dyn BlockReader,
    /// What the loader knows beside the files.
    pub surroundings: &'a Surroundings<'a>,
}

impl BuildContext<'_> {
    /// Reads one of the lists of steps within the step: its name is a part of what logs call its
    /// steps. Every problem goes into the report; `None` when there was one.
    pub fn branch(&mut self, name: &str, items: &Node, is_last: bool) -> Option<Block> {
        let blocks = self.blocks;
        self.below(name, |context| blocks.read_block(items, is_last, context))
    }

    /// The same for one step whose keys stand in a mapping beside those named here.
    pub fn single(
        &mut self,
        name: &str,
        item: &Node,
        beside: &[&str],
        is_last: bool,
    ) -> Option<Block> {
        let blocks = self.blocks;
        self.below(name, |context| {
            blocks.read_one(item, beside, is_last, context)
        })
    }

    /// Reads clauses for failures. Every problem goes into the report; `None` when there was one.
    pub fn handlers(&mut self, name: &str, clauses: &Node) -> Option<Handlers> {
        let blocks = self.blocks;
        self.below(name, |context| blocks.read_handlers(clauses, context))
    }

    /// Reads something that lies below the step's path under a name.
    fn below<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        // A document of another kind than a flow has no step above its lists.
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let result = read(self);
        self.path.truncate(length);
        result
    }

    /// The same for steps that run beside others or many times: names that they declare are not
    /// usable behind them.
    pub fn inner_branch(&mut self, name: &str, items: &Node) -> Option<Block> {
        let mark = self.scope.enter();
        let block = self.branch(name, items, false);
        self.scope.leave(mark);
        block
    }

    /// Compiles a bare expression. Every problem goes into the report.
    pub fn expression(&mut self, text: &Spanned<String>) -> Option<Expression> {
        self.compiled.push(text.span);
        compile_expression(&text.value, text.span, self.scope, self.report)
    }

    /// Compiles a text with `${ }` in it. Every problem goes into the report.
    pub fn template(&mut self, text: &Spanned<String>) -> Option<Template> {
        self.compiled.push(text.span);
        compile_text(&text.value, text.span, self.scope, self.report)
    }

    /// Compiles a YAML value with `${ }` in its texts. Every problem goes into the report.
    pub fn value(&mut self, node: &Node) -> Option<ValueTemplate> {
        note_texts(node, self.compiled);
        ValueTemplate::read(node, self.scope, self.report)
    }

    /// Makes a name a variable from here on and says where its value goes. A name that cannot be
    /// one is reported under this code.
    pub fn declare(&mut self, name: &str, span: Span, code: Code) -> Option<usize> {
        if !scope::is_variable(name) {
            self.report
                .error(code, span, "this is not a name for a variable")
                .hint(
                    "a name has letters, digits and `_`, does not begin with a digit, and has no \
                     `$`",
                );
            return None;
        }
        let slot = self.scope.declare(name);
        if slot.is_none() {
            let message = format!("`${name}` is there already: every flow has it");
            self.report
                .error(code, span, message)
                .hint("choose another name");
        }
        slot
    }

    /// What the step remembers from one message to the next, made when it is not there yet.
    pub fn state<T: State>(
        &self,
        kind: &'static str,
        settings: impl std::fmt::Debug,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let key = StateKey {
            flow: Arc::clone(self.flow),
            step: Arc::clone(&self.label),
            kind,
            settings: format!("{settings:?}"),
        };
        self.surroundings.states.get(key, make)
    }

    /// The number of a new place of the flow: a step, or the beginning of a list of steps.
    pub fn place(&mut self, label: &str, span: Span, is_step: bool) -> u32 {
        self.places.push(Place {
            label: label.to_owned(),
            span,
            is_step,
        });
        self.places.len() as u32 - 1
    }

    /// How many problems there are so far that a flow cannot run with.
    pub fn problems(&self) -> usize {
        self.report.errors()
    }
}

fn note_texts(node: &Node, texts: &mut Vec<Span>) {
    match &node.value {
        config::Value::String(_) => texts.push(node.span),
        config::Value::Sequence(items) => {
            items.iter().for_each(|item| note_texts(item, texts));
        }
        config::Value::Mapping(entries) => {
            entries
                .iter()
                .for_each(|entry| note_texts(&entry.value, texts));
        }
        _ => {}
    }
}

/// Compiles a bare expression that stands at a place of a file.
pub fn compile_expression(
    text: &str,
    span: Span,
    scope: &Scope,
    report: &mut Report,
) -> Option<Expression> {
    match Expression::compile(text, scope) {
        Ok(expression) => {
            check_members(text, expression.variables(), span, scope, report).then_some(expression)
        }
        Err(errors) => {
            refuse(errors, span, report);
            None
        }
    }
}

/// Compiles a text with `${ }` in it that stands at a place of a file.
pub fn compile_text(
    text: &str,
    span: Span,
    scope: &Scope,
    report: &mut Report,
) -> Option<Template> {
    match Template::compile(text, scope) {
        Ok(template) => {
            check_members(text, template.variables(), span, scope, report).then_some(template)
        }
        Err(errors) => {
            refuse(errors, span, report);
            None
        }
    }
}

fn refuse(errors: Vec<CompileError>, span: Span, report: &mut Report) {
    for error in errors {
        let diagnostic = report
            .error(BAD_EXPRESSION, span, error.message)
            .within(error.at);
        if let Some(hint) = error.hint {
            diagnostic.hint(hint);
        }
    }
}

/// `$secret` and `$env` are asked for one name, which is declared.
fn check_members(
    text: &str,
    variables: &[usize],
    span: Span,
    scope: &Scope,
    report: &mut Report,
) -> bool {
    let before = report.diagnostics().len();
    for (slot, variable) in [(scope::SECRET, "$secret"), (scope::ENV, "$env")] {
        if !variables.contains(&slot) {
            continue;
        }
        for (at, _) in text.match_indices(variable) {
            let behind = text.get(at + variable.len()..).unwrap_or_default();
            let is_longer = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if behind.starts_with(is_longer) {
                continue;
            }
            let quoted = behind.strip_prefix(".\"").or(behind.strip_prefix("[\""));
            let name = match quoted {
                Some(name) => name.split('"').next().unwrap_or_default(),
                None => {
                    let name = behind.strip_prefix('.').unwrap_or_default();
                    let end = name.find(|c| !is_longer(c)).unwrap_or(name.len());
                    name.get(..end).unwrap_or_default()
                }
            };
            let known = scope.members(slot);
            if known.iter().any(|known| known == name) {
                continue;
            }
            let range = at..at + variable.len() + 1 + name.len();
            let (message, hint) = if name.is_empty() {
                let message = format!("`{variable}` is asked for one name");
                (message, format!("write `{variable}.NAME`"))
            } else {
                let what = variable.trim_start_matches('$');
                let hint = match config::suggest(name, known.iter().map(String::as_str)) {
                    Some(near) => format!("did you mean `{variable}.{near}`?"),
                    None => format!("declare it in the `engine:` document, under `{what}`"),
                };
                (format!("`{variable}.{name}` is not declared"), hint)
            };
            report
                .error(UNKNOWN_NAME, span, message)
                .within(range)
                .hint(hint);
        }
    }
    report.diagnostics().len() == before
}

/// What a connection may know of its surroundings while it is built.
pub struct ConnectionContext<'a> {
    /// Where problems go.
    pub report: &'a mut Report,
    /// The connection's name.
    pub name: &'a str,
    /// What the loader knows beside the files.
    pub surroundings: &'a Surroundings<'a>,
}

/// The declaration of one kind of connection, so that loader, schema and reference pages read the
/// same table.
#[derive(Clone, Copy)]
pub struct ConnectionDefinition {
    /// The key under the connection's name.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Prose for the reference page, in Markdown.
    pub documentation: &'static str,
    /// A complete flow file that shows the connection; a test loads it.
    pub example: &'static str,
    /// The JSON Schema of the mapping under the connection's name.
    pub schema: fn() -> serde_json::Value,
    /// Why this build cannot run flows that have such a connection; `None` when it can. They are
    /// checked and tested all the same.
    pub missing: Option<&'static str>,
    /// Checks the mapping under the connection's name and makes the connection. Every problem goes
    /// into the report; `None` only when there was one. Opens nothing.
    pub build: fn(&Node, &mut ConnectionContext<'_>) -> Option<Arc<dyn Any + Send + Sync>>,
    /// How such a connection is used as a store of values by key, when it can be.
    pub key_value: Option<AsKeyValueStore>,
}
