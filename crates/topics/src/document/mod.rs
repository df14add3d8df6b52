//! JSON documents for the comparison of one with the next: compact text, where each value lies in
//! it, JSON Patch (RFC 6902) from one to the other, and patches applied.

mod apply;
mod array;
mod diff;
mod number;
mod parse;
#[cfg(test)]
mod tests;
mod tree;

use bytes::Bytes;
use expr::json::JsonError;

pub use apply::{PatchError, apply};
pub use diff::{Change, diff};

/// The most levels of a document.
pub const DEPTH_MAX: usize = 256;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `null`, `true`, `false`: the text says which.
    Word,
    Number,
    Text,
    Array,
    Object,
}

/// Where a value lies. The values within follow it; of an object each name and its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    start: u32,
    end: u32,
    /// The number of the part behind this value and all that is within.
    next: u32,
    kind: Kind,
}

/// A JSON text (RFC 8259) without spaces between tokens, its texts escaped only where they have to
/// be, its numbers spelt as they came; and where its values are.
#[derive(Clone, Debug)]
pub struct Document {
    text: Bytes,
    parts: Vec<Part>,
}

impl Document {
    /// Reads the one value of a text.
    ///
    /// # Errors
    /// When it is not UTF-8 or not one JSON value, has more than [`DEPTH_MAX`] levels, or an object
    /// has two members of one name.
    pub fn parse(text: &[u8]) -> Result<Self, JsonError> {
        parse::parse(text)
    }

    /// The compact text. It has no line break.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// How many bytes it takes.
    pub(crate) fn size(&self) -> usize {
        self.text.len() + self.parts.capacity() * size_of::<Part>()
    }

    /// The value itself.
    pub(crate) fn root(&self) -> At<'_> {
        At {
            document: self,
            part: 0,
        }
    }

    /// Whether both say the same: members may come in another order, but `1.0` is not `1`.
    pub fn is_same(&self, other: &Self) -> bool {
        is_same(self.root(), other.root())
    }

    /// The texts of the items, when it is a list.
    pub fn items(&self) -> Option<Vec<Bytes>> {
        let root = self.root();
        (root.kind() == Kind::Array).then(|| {
            let items = root.items();
            items.map(|it| self.text.slice_ref(it.text())).collect()
        })
    }
}

/// A value of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    document: &'a Document,
    part: u32,
}

impl<'a> At<'a> {
    fn part(self) -> Part {
        let nothing = Part {
            start: 0,
            end: 0,
            next: u32::MAX,
            kind: Kind::Word,
        };
        let parts = &self.document.parts;
        parts.get(self.part as usize).copied().unwrap_or(nothing)
    }

    pub fn kind(self) -> Kind {
        self.part().kind
    }

    /// Its compact text.
    pub fn text(self) -> &'a [u8] {
        let part = self.part();
        let text = &self.document.text;
        text.get(part.start as usize..part.end as usize)
            .unwrap_or_default()
    }

    /// Of a text or a name: what is between its quotes, escaped as it is.
    pub fn inner(self) -> &'a [u8] {
        let text = self.text();
        text.get(1..text.len().saturating_sub(1))
            .unwrap_or_default()
    }

    fn at(self, part: u32) -> Self {
        Self { part, ..self }
    }

    /// The items of a list.
    pub fn items(self) -> impl Iterator<Item = At<'a>> {
        let end = match self.kind() {
            Kind::Array => self.part().next,
            _ => self.part,
        };
        let mut next = self.part + 1;
        std::iter::from_fn(move || {
            let item = self.at(next);
            (next < end).then(|| {
                next = item.part().next;
                item
            })
        })
    }

    /// The members of an object: names as [`At::inner`] has them, and values.
    pub fn members(self) -> impl Iterator<Item = (&'a [u8], At<'a>)> {
        let end = match self.kind() {
            Kind::Object => self.part().next,
            _ => self.part,
        };
        let mut next = self.part + 1;
        std::iter::from_fn(move || {
            let (name, value) = (self.at(next), self.at(next + 1));
            (next < end).then(|| {
                next = value.part().next;
                (name.inner(), value)
            })
        })
    }

    /// The member of this name.
    pub fn member(self, name: &[u8]) -> Option<At<'a>> {
        let mut members = self.members();
        members.find(|it| it.0 == name).map(|it| it.1)
    }
}

/// Whether both say the same, whatever the order of members.
pub(crate) fn is_same(left: At<'_>, right: At<'_>) -> bool {
    if left.text() == right.text() {
        return true;
    }
    match (left.kind(), right.kind()) {
        (Kind::Array, Kind::Array) => {
            let (mut left, mut right) = (left.items(), right.items());
            loop {
                match (left.next(), right.next()) {
                    (Some(left), Some(right)) if is_same(left, right) => {}
                    (None, None) => return true,
                    _ => return false,
                }
            }
        }
        (Kind::Object, Kind::Object) => {
            left.members().count() == right.members().count()
                && diff::paired(left, right).all(|(_, left, right)| match (left, right) {
                    (Some(left), Some(right)) => is_same(left, right),
                    _ => false,
                })
        }
        _ => false,
    }
}
