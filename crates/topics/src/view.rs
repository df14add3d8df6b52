//! What a subscriber wants to see of a topic: in which form, and after which expressions.

use std::borrow::Cow;
use std::rc::Rc;

use crate::document::{self, Change, Document};
use crate::event::{Content, Event};
use crate::expressions::{self, Evaluated, Expressions};
use crate::frame::Kind;

/// The largest result of a `select` of which patches are made. A larger one is sent as a whole, for
/// the one before it would have to be kept.
const PATCHED_MAX: usize = 64 * 1024;

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
    /// What it wants to see instead of the documents, if it does.
    pub expressions: Option<Rc<Expressions>>,
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        let is_same = match (&self.expressions, &other.expressions) {
            // Of equal ones there is one on a worker.
            (Some(left), Some(right)) => Rc::ptr_eq(left, right),
            (None, None) => true,
            _ => false,
        };
        self.mode == other.mode && is_same
    }
}

/// What an event looks like in a view.
pub(crate) enum Shown<'a> {
    /// It is left out.
    Nothing,
    /// It is this.
    Part(Kind, Cow<'a, [u8]>),
    /// An expression has failed, for this reason.
    Failed(&'a str),
}

impl View {
    /// Whether every event is shown just as it is in the topic.
    pub fn is_plain(&self) -> bool {
        self.expressions.is_none()
    }

    /// What a whole document is called.
    fn kind(&self) -> Kind {
        match self.mode {
            Mode::Event => Kind::Event,
            Mode::Snapshot | Mode::Patch => Kind::Snapshot,
        }
    }

    /// The document of an event as a subscriber without expressions who comes now would get it.
    pub fn whole<'a>(&self, event: &'a Event) -> Shown<'a> {
        let document = expressions::document(event);
        Shown::Part(self.kind(), Cow::Borrowed(document))
    }

    /// An event as it is shown to those without expressions who have the one before.
    pub fn next<'a>(&self, event: &'a Event) -> Shown<'a> {
        match &event.content {
            Content::Snapshot {
                patch: Some(patch), ..
            } if self.mode == Mode::Patch => Shown::Part(Kind::Patch, Cow::Borrowed(patch)),
            _ => self.whole(event),
        }
    }

    /// What expressions have made of an event, as a subscriber who comes now gets it.
    pub fn whole_of<'a>(&self, evaluated: &'a Evaluated) -> Shown<'a> {
        match evaluated {
            Evaluated::LeftOut => Shown::Nothing,
            Evaluated::Document(document) => Shown::Part(self.kind(), Cow::Borrowed(document)),
            Evaluated::Failed(reason) => Shown::Failed(reason),
        }
    }

    /// What expressions have made of an event, as it is shown to those who have the one before.
    /// `before` is the document that these have, where patches are made; it becomes the new one.
    pub fn next_of<'a>(
        &self,
        evaluated: &'a Evaluated,
        before: &mut Option<Document>,
    ) -> Shown<'a> {
        match (self.mode, self.whole_of(evaluated)) {
            (Mode::Patch, Shown::Part(kind, document)) => changed(kind, document, before),
            (_, shown) => {
                *before = None;
                shown
            }
        }
    }
}

/// A document that patches may be made from, unless it is too large.
pub(crate) fn patched(document: &[u8]) -> Option<Document> {
    let is_small = document.len() <= PATCHED_MAX;
    is_small.then(|| Document::parse(document).ok()).flatten()
}

/// The selected document as what has changed in it.
fn changed<'a>(kind: Kind, document: Cow<'a, [u8]>, before: &mut Option<Document>) -> Shown<'a> {
    let Some(after) = patched(&document) else {
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
