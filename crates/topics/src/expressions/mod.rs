//! Expressions of subscribers (`filter` and `select`): what they may cost, who shares what, and in
//! which order they are evaluated. Decision 0041.
//!
//! [`Expressions`] is one combination of the two on a worker, after the operator's condition for a
//! group of callers (`only`), compiled once, with the events that
//! it has not been evaluated for yet. [`Evaluator`] is what a worker has of them for a topic, and
//! [`time_slice`] hands out the worker's time.

mod evaluator;
mod memory;
mod queue;
mod time_slice;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use expr::jq::{Limits, Scope, Variables};
use expr::{Expression, Value, json, value};

use crate::channel::Policy;
use crate::event::{Content, Event};
use crate::only::Group;
pub(crate) use evaluator::{Evaluator, combinations, too_many};
pub(crate) use memory::{Held, Memory};
pub(crate) use queue::{Item, Queue};
pub(crate) use time_slice::{Share, TimeSlice};

/// The most steps of one expression for one event: some 3 ms, which is how long others may have to
/// wait for it.
pub(crate) const STEPS_MAX: u64 = 40_000;
/// What one evaluation may cost.
pub(crate) const LIMITS: Limits = Limits {
    steps: STEPS_MAX,
    memory: 4 * 1024 * 1024,
    depth: 256,
    until: None,
    at_once: false,
};
/// The most bytes of what `select` gives.
pub(crate) const RESULT_MAX: usize = 1024 * 1024;
/// The most levels of a document.
const DEPTH_MAX: usize = 256;
/// Reading, writing or copying that many bytes counts as a step.
pub(crate) const STEP_BYTES: usize = 32;

/// What the expressions of a topic's subscribers may cost on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpressionLimits {
    /// The most different combinations of `filter` and `select`.
    pub distinct: usize,
    /// The most different groups of callers whose events a condition selects.
    pub groups: usize,
    /// The most bytes of an expression.
    pub length: usize,
    /// The steps of all of them together for one event, before they have to wait for longer.
    pub steps: u64,
    /// The most bytes that wait for subscribers, of all of them together.
    pub memory: u64,
}

impl Default for ExpressionLimits {
    fn default() -> Self {
        Self {
            distinct: 64,
            groups: 256,
            length: 1024,
            steps: 500_000,
            memory: 16 << 20,
        }
    }
}

/// Nothing but the document has a name.
struct NoNames;

impl Scope for NoNames {
    fn slot(&self, _: &str) -> Option<usize> {
        None
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

pub(crate) struct Clock(pub(crate) f64);

impl Variables for Clock {
    fn get(&self, _: usize) -> Value {
        Value::Null
    }

    fn now(&self) -> f64 {
        self.0
    }
}

/// A `filter` and a `select`.
pub(crate) type Texts<'a> = (Option<&'a str>, Option<&'a str>);

/// What an expression is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The operator's condition for a group of callers.
    Only,
    Filter,
    Select,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::Filter => "filter",
            Self::Select => "select",
        }
    }
}

/// Compiles an expression of a subscriber.
///
/// # Errors
/// What is wrong with it, for the subscriber to read.
fn compile(name: &str, text: &str) -> Result<Arc<Expression>, String> {
    let compiled = Expression::compile(text, &NoNames);
    compiled.map(Arc::new).map_err(|errors| {
        let first = errors.first().map(|it| it.message.clone());
        format!("`{name}`: {}", first.unwrap_or_default())
    })
}

/// A combination of `filter` and `select` of subscribers of a topic on a worker. All who ask for
/// the same share it; it is freed with the last of them.
#[derive(Debug)]
pub(crate) struct Expressions {
    /// For whom they are evaluated, where the topic has a condition for callers.
    only: Option<Group>,
    filter: Option<Arc<Expression>>,
    select: Option<Arc<Expression>>,
    /// How many channels show what it gives.
    channels: Cell<usize>,
    queue: RefCell<Queue>,
}

impl Expressions {
    fn new(
        only: Option<Group>,
        (filter, select): (Option<Arc<Expression>>, Option<Arc<Expression>>),
    ) -> Self {
        Self {
            only,
            filter,
            select,
            channels: Cell::new(0),
            queue: RefCell::default(),
        }
    }

    /// Whether a subscriber has sent one of them.
    pub fn is_asked_for(&self) -> bool {
        self.filter.is_some() || self.select.is_some()
    }

    fn is_of(&self, only: Option<&Group>, (filter, select): Texts<'_>) -> bool {
        let is_same_group = match (&self.only, only) {
            (Some(own), Some(other)) => own.is(other),
            (own, other) => own.is_none() && other.is_none(),
        };

        let is_same = |own: &Option<Arc<Expression>>, text: Option<&str>| {
            own.as_deref().map(Expression::text) == text
        };
        is_same_group && is_same(&self.filter, filter) && is_same(&self.select, select)
    }

    /// What comes next for it.
    pub fn take(&self) -> Option<Item> {
        self.queue.borrow_mut().take()
    }

    /// Too much waits for it: forgets the older part, as the policy says.
    pub fn fall_behind(&self, policy: Policy, bytes_max: usize) {
        let mut queue = self.queue.borrow_mut();
        match policy {
            Policy::Disconnect => queue.clear(),
            Policy::Conflate => queue.conflate(),
            // Not one gap for each event from here on.
            Policy::Drop => queue.drop_oldest(bytes_max / 2),
        }
    }

    /// Notes that a channel shows what it gives from now on.
    pub fn add_channel(&self) {
        self.channels.set(self.channels.get() + 1);
    }

    /// Notes that a channel does not any more.
    pub fn remove_channel(&self) {
        self.channels.set(self.channels.get().saturating_sub(1));
        if self.channels.get() == 0 {
            self.queue.take();
        }
    }
}

/// What an event is after its expressions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Evaluated {
    /// The filter leaves it out.
    LeftOut,
    /// This is what is shown of it.
    Document(Bytes),
    /// An expression has failed, for this reason.
    Failed(String),
}

/// An event for which expressions are evaluated, and what is known of that already: equal
/// expressions are evaluated once.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub event: Arc<Event>,
    /// What is left of the steps that all expressions together have for it.
    left: Cell<u64>,
    results: RefCell<Vec<Kept>>,
    /// How many bytes results take that are kept on this worker for others who need them.
    kept: Rc<Cell<usize>>,
}

/// A result that is kept for others.
#[derive(Debug)]
struct Kept {
    expression: Arc<Expression>,
    role: Role,
    result: Result<Outcome, String>,
}

/// What an expression has given.
#[derive(Clone, Debug)]
enum Outcome {
    /// Whether a filter holds.
    Holds(bool),
    /// What a `select` gives.
    Selected(Bytes),
}

/// The most bytes of results that are kept for others; with more they are evaluated again.
const KEPT_MAX: usize = 1024 * 1024;
/// What a kept result takes beside its bytes.
const KEPT_EACH: usize = 64;

fn size_of(result: &Result<Outcome, String>) -> usize {
    KEPT_EACH
        + match result {
            Ok(Outcome::Holds(_)) => 0,
            Ok(Outcome::Selected(bytes)) => bytes.len(),
            Err(reason) => reason.len(),
        }
}

impl Fresh {
    fn new(event: &Arc<Event>, steps: u64, kept: &Rc<Cell<usize>>) -> Self {
        Self {
            event: Arc::clone(event),
            left: Cell::new(steps),
            results: RefCell::default(),
            kept: Rc::clone(kept),
        }
    }

    /// The whole document.
    pub fn document(&self) -> &Bytes {
        document(&self.event)
    }

    /// Charges steps; tells how large a share of the worker's time its expressions have from here.
    fn spend(&self, steps: u64) -> Share {
        self.left.set(self.left.get().saturating_sub(steps));
        match self.left.get() {
            0 => Share::Eighth,
            _ => Share::Half,
        }
    }

    fn known(
        &self,
        (expression, role): (&Arc<Expression>, Role),
    ) -> Option<Result<Outcome, String>> {
        let results = self.results.borrow();
        let is_it = |it: &&Kept| it.role == role && Arc::ptr_eq(&it.expression, expression);
        results.iter().find(is_it).map(|it| it.result.clone())
    }

    /// Keeps a result when others have the same expression and there is room.
    fn keep(&self, (expression, role): (&Arc<Expression>, Role), result: &Result<Outcome, String>) {
        // One is the combination for which it has just been evaluated.
        let is_shared = Arc::strong_count(expression) > 1;
        let size = size_of(result);
        if is_shared && self.kept.get() + size <= KEPT_MAX {
            self.kept.set(self.kept.get() + size);
            self.results.borrow_mut().push(Kept {
                expression: Arc::clone(expression),
                role,
                result: result.clone(),
            });
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let results = self.results.borrow();
        let size: usize = results.iter().map(|it| size_of(&it.result)).sum();
        self.kept.set(self.kept.get().saturating_sub(size));
    }
}

/// The whole document of an event.
pub(crate) fn document(event: &Event) -> &Bytes {
    match &event.content {
        Content::Event(document) => document,
        Content::Snapshot { whole, .. } => whole,
    }
}

/// Evaluates a condition or a `select`. The steps are counted in any case.
fn run(
    (expression, role): (&Expression, Role),
    (value, variables): (&Value, &dyn Variables),
    result_max: usize,
) -> (Result<Outcome, String>, u64) {
    let (result, steps) = expression.evaluate_counted(value, variables, &LIMITS);
    let name = role.name();
    let result = result.map_err(|error| format!("{name}: {error}"));
    let result = result.and_then(|result| match role {
        Role::Only | Role::Filter => Ok(Outcome::Holds(value::is_truthy(&result))),
        Role::Select => {
            let mut out = Vec::new();
            let written = json::write(&result, result_max, &mut out);
            written.map_err(|error| format!("{name}: {error}"))?;
            Ok(Outcome::Selected(out.into()))
        }
    });
    let bytes = match &result {
        Ok(Outcome::Selected(bytes)) => bytes.len(),
        _ => 0,
    };
    (result, 1 + steps + (bytes / STEP_BYTES) as u64)
}
