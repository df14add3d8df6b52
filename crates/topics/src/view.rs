//! What a subscriber wants to see of a topic: which form of the documents, which of them, and what
//! of each.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use bytes::Bytes;
use expr::jq::{Limits, Scope, Variables};
use expr::{Expression, Value, json, value};

use crate::document::{self, Change, Document};
use crate::event::{Content, Event};
use crate::frame::Kind;

/// What an expression of a subscriber may cost for each event: a worker waits for it.
const LIMITS: Limits = Limits {
    steps: 100_000,
    memory: 16 * 1024 * 1024,
    depth: 256,
    until: None,
    at_once: false,
};
/// The most bytes of what an expression gives.
const SIZE_MAX: usize = 4 * 1024 * 1024;
/// The most levels of a document.
const DEPTH_MAX: usize = 256;
/// The longest expression.
const TEXT_MAX: usize = 4096;

/// In which form documents come.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    serde::Deserialize,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Mode {
    /// The whole document whenever it has changed.
    Snapshot,
    /// The whole document once, then what has changed in it.
    Patch,
    /// What was published, each event by itself.
    Event,
}

impl Mode {
    /// Its name in queries and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Patch => "patch",
            Self::Event => "event",
        }
    }

    /// The mode of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        let all = [Self::Snapshot, Self::Patch, Self::Event];
        all.into_iter().find(|mode| mode.name() == name)
    }
}

/// What a subscriber wants to see.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The form.
    pub mode: Mode,
    /// Which documents.
    pub filter: Option<Arc<Expression>>,
    /// What of each.
    pub select: Option<Arc<Expression>>,
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        let same = |left: &Option<Arc<Expression>>, right: &Option<Arc<Expression>>| {
            left.as_deref().map(Expression::text) == right.as_deref().map(Expression::text)
        };
        self.mode == other.mode
            && same(&self.filter, &other.filter)
            && same(&self.select, &other.select)
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

struct Clock(f64);

impl Variables for Clock {
    fn get(&self, _: usize) -> Value {
        Value::Null
    }

    fn now(&self) -> f64 {
        self.0
    }
}

/// Compiles an expression of a subscriber.
///
/// # Errors
/// What is wrong with it, for the subscriber to read.
pub(crate) fn compile(name: &str, text: &str) -> Result<Arc<Expression>, String> {
    if text.len() > TEXT_MAX {
        return Err(format!("`{name}` is longer than {TEXT_MAX} bytes"));
    }
    let compiled = Expression::compile(text, &NoNames);
    compiled.map(Arc::new).map_err(|errors| {
        let first = errors.first().map(|it| it.message.clone());
        format!("`{name}`: {}", first.unwrap_or_default())
    })
}

/// An event whose document is read once, whatever the number of expressions that look at it.
pub(crate) struct Fresh<'a> {
    pub event: &'a Event,
    value: OnceCell<Option<Value>>,
}

impl<'a> Fresh<'a> {
    pub fn new(event: &'a Event) -> Self {
        Self {
            event,
            value: OnceCell::new(),
        }
    }

    /// The whole document.
    pub fn document(&self) -> &'a Bytes {
        match &self.event.content {
            Content::Event(document) => document,
            Content::Snapshot { whole, .. } => whole,
        }
    }

    fn value(&self) -> Option<&Value> {
        let read = || json::parse(self.document(), DEPTH_MAX).ok();
        self.value.get_or_init(read).as_ref()
    }
}

/// What an event looks like in a view.
pub(crate) enum Shown<'a> {
    /// It is left out.
    Nothing,
    /// It is this.
    Part(Kind, Cow<'a, [u8]>),
    /// An expression has failed, for this reason.
    Failed(String),
}

impl View {
    /// Whether every event is shown just as it is in the topic.
    pub fn is_plain(&self) -> bool {
        self.filter.is_none() && self.select.is_none()
    }

    /// The document of an event as a subscriber who comes now would get it.
    pub fn whole<'a>(&self, fresh: &Fresh<'a>) -> Shown<'a> {
        let kind = match self.mode {
            Mode::Event => Kind::Event,
            Mode::Snapshot | Mode::Patch => Kind::Snapshot,
        };
        match self.document(fresh) {
            Ok(Some(document)) => Shown::Part(kind, document),
            Ok(None) => Shown::Nothing,
            Err(reason) => Shown::Failed(reason),
        }
    }

    /// An event as it is shown to those who have the one before. `before` is the document that
    /// these have, where the view makes patches of its own; it becomes the new one.
    pub fn next<'a>(&self, fresh: &Fresh<'a>, before: &mut Option<Document>) -> Shown<'a> {
        if self.mode != Mode::Patch {
            return self.whole(fresh);
        }
        if self.select.is_none() {
            return match &fresh.event.content {
                Content::Snapshot {
                    patch: Some(patch), ..
                } => Shown::Part(Kind::Patch, Cow::Borrowed(patch)),
                _ => self.whole(fresh),
            };
        }
        match self.whole(fresh) {
            Shown::Part(kind, document) => changed(kind, document, before),
            other => {
                *before = None;
                other
            }
        }
    }

    fn document<'a>(&self, fresh: &Fresh<'a>) -> Result<Option<Cow<'a, [u8]>>, String> {
        if self.is_plain() {
            return Ok(Some(Cow::Borrowed(fresh.document())));
        }
        let value = fresh
            .value()
            .ok_or_else(|| "the document cannot be read".to_owned())?;
        let clock = Clock(fresh.event.at_ms as f64 / 1000.0);
        if let Some(filter) = &self.filter {
            let kept = filter.evaluate(value, &clock, &LIMITS);
            let kept = kept.map_err(|error| format!("filter: {error}"))?;
            if !value::is_truthy(&kept) {
                return Ok(None);
            }
        }
        let Some(select) = &self.select else {
            return Ok(Some(Cow::Borrowed(fresh.document())));
        };
        let selected = select.evaluate(value, &clock, &LIMITS);
        let selected = selected.map_err(|error| format!("select: {error}"))?;
        let mut out = Vec::new();
        json::write(&selected, SIZE_MAX, &mut out).map_err(|error| format!("select: {error}"))?;
        Ok(Some(Cow::Owned(out)))
    }
}

/// The selected document as what has changed in it.
fn changed<'a>(kind: Kind, document: Cow<'a, [u8]>, before: &mut Option<Document>) -> Shown<'a> {
    let Ok(after) = Document::parse(&document) else {
        *before = None;
        return Shown::Part(kind, document);
    };
    let change = before.as_ref().map(|before| document::diff(before, &after));
    *before = Some(after);
    match change {
        Some(Change::Nothing) => Shown::Nothing,
        Some(Change::Patch(patch)) => Shown::Part(Kind::Patch, Cow::Owned(patch.to_vec())),
        Some(Change::Whole) | None => Shown::Part(kind, document),
    }
}
