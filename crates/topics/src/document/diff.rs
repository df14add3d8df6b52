//! What has changed from one document to the next, as JSON Patch (RFC 6902) of `add`, `remove` and
//! `replace`.

use bytes::Bytes;
use hashbrown::HashMap;

use super::apply;
use super::array;
use super::{At, Document, Kind};

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Nothing,
    /// This list of operations makes the one of the other. It has been tried.
    Patch(Bytes),
    /// So much that the whole document is shorter than any list of operations that was found.
    Whole,
}

/// What has changed from `before` to `after`. The order of members is no change; the spelling of a
/// number is one.
pub fn diff(before: &Document, after: &Document) -> Change {
    if before.text() == after.text() {
        return Change::Nothing;
    }
    let mut differ = Differ::new(after.text().len());
    if differ.value(before.root(), after.root()).is_err() {
        return Change::Whole;
    }
    if differ.out.len() == 1 {
        return Change::Nothing;
    }
    differ.out.push(b']');
    if differ.out.len() >= after.text().len() {
        return Change::Whole;
    }
    match apply::makes(before, &differ.out, after) {
        true => Change::Patch(Bytes::from(differ.out)),
        false => {
            tracing::error!(target: "topics", "a patch was wrong: the whole document is sent");
            Change::Whole
        }
    }
}

/// The patch is longer than the document.
pub(super) struct TooLong;

pub(super) struct Differ {
    out: Vec<u8>,
    limit: usize,
    /// Where the values that are compared are: a JSON Pointer (RFC 6901), escaped as in a text.
    path: Vec<u8>,
    /// How many steps the comparison of lists may still take.
    pub(super) steps: usize,
}

impl Differ {
    fn new(limit: usize) -> Self {
        Self {
            out: vec![b'['],
            limit,
            path: Vec::new(),
            steps: 4096 + 4 * limit,
        }
    }

    pub(super) fn value(&mut self, before: At<'_>, after: At<'_>) -> Result<(), TooLong> {
        if before.text() == after.text() {
            return Ok(());
        }
        match (before.kind(), after.kind()) {
            (Kind::Object, Kind::Object) => self.object(before, after),
            (Kind::Array, Kind::Array) => array::diff(self, before, after),
            _ => self.put("replace", Some(after)),
        }
    }

    fn object(&mut self, before: At<'_>, after: At<'_>) -> Result<(), TooLong> {
        for (name, before, after) in paired(before, after) {
            let length = self.path.len();
            self.enter(name);
            match (before, after) {
                (Some(before), Some(after)) => self.value(before, after)?,
                (Some(_), None) => self.put("remove", None)?,
                (None, Some(after)) => self.put("add", Some(after))?,
                (None, None) => {}
            }
            self.path.truncate(length);
        }
        Ok(())
    }

    /// Goes to a member. No escape of a name has a `~` or `/` in it.
    fn enter(&mut self, name: &[u8]) {
        self.path.push(b'/');
        for byte in name {
            match byte {
                b'~' => self.path.extend_from_slice(b"~0"),
                b'/' => self.path.extend_from_slice(b"~1"),
                byte => self.path.push(*byte),
            }
        }
    }

    /// Does something at an item of the list where the comparison is.
    pub(super) fn item(
        &mut self,
        at: usize,
        work: impl FnOnce(&mut Self) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        let length = self.path.len();
        self.path.push(b'/');
        self.path.extend_from_slice(at.to_string().as_bytes());
        let result = work(self);
        self.path.truncate(length);
        result
    }

    /// Adds an operation.
    pub(super) fn put(&mut self, operation: &str, value: Option<At<'_>>) -> Result<(), TooLong> {
        let value = value.map(At::text);
        let size = self.path.len() + value.map_or(0, <[u8]>::len) + 24;
        if self.out.len() + size > self.limit {
            return Err(TooLong);
        }
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        self.out.extend_from_slice(b"{\"op\":\"");
        self.out.extend_from_slice(operation.as_bytes());
        self.out.extend_from_slice(b"\",\"path\":\"");
        self.out.extend_from_slice(&self.path);
        self.out.push(b'"');
        if let Some(value) = value {
            self.out.extend_from_slice(b",\"value\":");
            self.out.extend_from_slice(value);
        }
        self.out.push(b'}');
        Ok(())
    }
}

type Pair<'a> = (&'a [u8], Option<At<'a>>, Option<At<'a>>);

/// The members of two objects by name: those of both, then those that are only in one.
pub(super) fn paired<'a>(left: At<'a>, right: At<'a>) -> impl Iterator<Item = Pair<'a>> {
    let (mut lefts, mut rights) = (left.members().peekable(), right.members().peekable());
    let mut rest: Option<std::vec::IntoIter<Pair<'a>>> = None;
    std::iter::from_fn(move || {
        if let Some(rest) = &mut rest {
            return rest.next();
        }
        // As long as the order is the same, nothing has to be looked up.
        if let (Some((name, left)), Some((other, right))) = (lefts.peek(), rights.peek())
            && name == other
        {
            let pair = (*name, Some(*left), Some(*right));
            lefts.next();
            rights.next();
            return Some(pair);
        }
        let pairs = by_name(&mut lefts, &mut rights);
        rest.insert(pairs.into_iter()).next()
    })
}

fn by_name<'a>(
    lefts: &mut dyn Iterator<Item = (&'a [u8], At<'a>)>,
    rights: &mut dyn Iterator<Item = (&'a [u8], At<'a>)>,
) -> Vec<Pair<'a>> {
    let mut pairs: Vec<Pair<'a>> = lefts.map(|(name, it)| (name, Some(it), None)).collect();
    let places = pairs.iter().enumerate().map(|(at, pair)| (pair.0, at));
    let places: HashMap<&[u8], usize> = places.collect();
    for (name, value) in rights {
        match places.get(name).and_then(|at| pairs.get_mut(*at)) {
            Some(pair) => pair.2 = Some(value),
            None => pairs.push((name, None, Some(value))),
        }
    }
    pairs
}
