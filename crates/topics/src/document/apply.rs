//! JSON Patch applied (RFC 6902): all six operations.

use std::borrow::Cow;
use std::fmt;

use expr::json::JsonError;

use super::number;
use super::tree::Value;
use super::{At, Document, Kind};

/// The most values that copies of one patch may make.
const COPIES_MAX: usize = 1 << 20;

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// It is not JSON.
    NotJson(JsonError),
    /// It is no list of operations; the number of the first that is none, from 0.
    Malformed(usize),
    /// An operation does not fit the document; its number, from 0.
    Misfit(usize),
    /// What comes of it is larger than that.
    TooLarge(usize),
}

impl fmt::Display for PatchError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(error) => write!(formatter, "the patch is not JSON: {error}"),
            Self::Malformed(number) => write!(formatter, "operation {number} is none"),
            Self::Misfit(number) => {
                write!(formatter, "operation {number} does not fit the document")
            }
            Self::TooLarge(limit) => write!(formatter, "the result has more than {limit} bytes"),
        }
    }
}

impl std::error::Error for PatchError {}

/// The document that a patch makes of another, of at most `limit` bytes.
///
/// # Errors
/// When the text is no patch or does not fit; then nothing of it is applied.
pub fn apply(document: &Document, patch: &[u8], limit: usize) -> Result<Document, PatchError> {
    let patch = Document::parse(patch).map_err(PatchError::NotJson)?;
    let value = patched(document, &patch)?;
    let mut text = Vec::with_capacity(document.text().len());
    let written = value.write(limit, &mut text);
    written.ok_or(PatchError::TooLarge(limit))?;
    Document::parse(&text).map_err(PatchError::NotJson)
}

/// Whether a patch makes one document of the other.
pub(super) fn makes(before: &Document, patch: &[u8], after: &Document) -> bool {
    let Ok(patch) = Document::parse(patch) else {
        return false;
    };
    let same = |left: At<'_>, right: At<'_>| left.text() == right.text();
    patched(before, &patch).is_ok_and(|made| made.is_same(&Value::Raw(after.root()), same))
}

fn patched<'a>(document: &'a Document, patch: &'a Document) -> Result<Value<'a>, PatchError> {
    let mut work = Work {
        value: Value::Raw(document.root()),
        copies: COPIES_MAX,
    };
    if patch.root().kind() != Kind::Array {
        return Err(PatchError::Malformed(0));
    }
    for (number, operation) in patch.root().items().enumerate() {
        let operation = Operation::read(operation).ok_or(PatchError::Malformed(number))?;
        work.run(operation).ok_or(PatchError::Misfit(number))?;
    }
    Ok(work.value)
}

/// A JSON Pointer (RFC 6901): its tokens.
type Pointer<'a> = Vec<Cow<'a, [u8]>>;

enum Operation<'a> {
    Add(Pointer<'a>, At<'a>),
    Remove(Pointer<'a>),
    Replace(Pointer<'a>, At<'a>),
    Move(Pointer<'a>, Pointer<'a>),
    Copy(Pointer<'a>, Pointer<'a>),
    Test(Pointer<'a>, At<'a>),
}

impl<'a> Operation<'a> {
    fn read(operation: At<'a>) -> Option<Self> {
        let pointer = |name: &str| pointer(operation.member(name.as_bytes())?);
        let value = || operation.member(b"value");
        let name = operation.member(b"op")?;
        let path = pointer("path")?;
        if name.kind() != Kind::Text {
            return None;
        }
        Some(match name.inner() {
            b"add" => Self::Add(path, value()?),
            b"remove" => Self::Remove(path),
            b"replace" => Self::Replace(path, value()?),
            b"move" => Self::Move(pointer("from")?, path),
            b"copy" => Self::Copy(pointer("from")?, path),
            b"test" => Self::Test(path, value()?),
            _ => return None,
        })
    }
}

fn pointer(text: At<'_>) -> Option<Pointer<'_>> {
    if text.kind() != Kind::Text {
        return None;
    }
    let text = text.inner();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let tokens = text.strip_prefix(b"/")?.split(|it| *it == b'/');
    tokens.map(token).collect()
}

fn token(token: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !token.contains(&b'~') {
        return Some(Cow::Borrowed(token));
    }
    let mut out = Vec::with_capacity(token.len());
    let mut bytes = token.iter();
    while let Some(byte) = bytes.next() {
        match (byte, *byte == b'~') {
            (byte, false) => out.push(*byte),
            _ => match bytes.next()? {
                b'0' => out.push(b'~'),
                b'1' => out.push(b'/'),
                _ => return None,
            },
        }
    }
    Some(Cow::Owned(out))
}

/// The place in a list that a token names, of at most that many.
fn index(token: &[u8], most: usize) -> Option<usize> {
    let is_number = token.iter().all(u8::is_ascii_digit) && !token.is_empty();
    let is_plain = is_number && (token == b"0" || !token.starts_with(b"0"));
    let number: usize = std::str::from_utf8(token).ok()?.parse().ok()?;
    (is_plain && number <= most).then_some(number)
}

struct Work<'a> {
    value: Value<'a>,
    copies: usize,
}

impl<'a> Work<'a> {
    fn run(&mut self, operation: Operation<'a>) -> Option<()> {
        match operation {
            Operation::Add(path, value) => self.add(path, Value::Raw(value)),
            Operation::Remove(path) => self.remove(&path).map(drop),
            Operation::Replace(path, value) => {
                *self.find(&path)? = Value::Raw(value);
                Some(())
            }
            Operation::Move(from, path) => {
                let is_within = path.len() > from.len() && path.starts_with(&from);
                if is_within {
                    return None;
                }
                let value = self.remove(&from)?;
                self.add(path, value)
            }
            Operation::Copy(from, path) => {
                let weight = self.find(&from)?.weight();
                self.copies = self.copies.checked_sub(weight)?;
                let value = self.find(&from)?.clone();
                self.add(path, value)
            }
            Operation::Test(path, value) => {
                let found = self.find(&path)?;
                found.is_same(&Value::Raw(value), alike).then_some(())
            }
        }
    }

    /// The value at a place.
    fn find(&mut self, path: &[Cow<'a, [u8]>]) -> Option<&mut Value<'a>> {
        let mut value = &mut self.value;
        for token in path {
            value.open();
            value = match value {
                Value::Object(members) => members.get_mut(token)?,
                Value::Array(items) => {
                    let at = index(token, items.len())?;
                    items.get_mut(at)?
                }
                Value::Raw(_) => return None,
            };
        }
        Some(value)
    }

    fn add(&mut self, mut path: Pointer<'a>, value: Value<'a>) -> Option<()> {
        let Some(last) = path.pop() else {
            self.value = value;
            return Some(());
        };
        let parent = self.find(&path)?;
        parent.open();
        match parent {
            Value::Object(members) => members.set(last, value),
            Value::Array(items) => {
                let at = match &*last {
                    b"-" => items.len(),
                    last => index(last, items.len())?,
                };
                items.insert(at, value);
            }
            Value::Raw(_) => return None,
        }
        Some(())
    }

    fn remove(&mut self, path: &[Cow<'a, [u8]>]) -> Option<Value<'a>> {
        let (last, path) = path.split_last()?;
        let parent = self.find(path)?;
        parent.open();
        match parent {
            Value::Object(members) => members.remove(last),
            Value::Array(items) => {
                let at = index(last, items.len())?;
                (at < items.len()).then(|| items.remove(at))
            }
            Value::Raw(_) => None,
        }
    }
}

/// Whether `test` finds two scalars alike: numbers by their value (RFC 6902, section 4.6).
fn alike(left: At<'_>, right: At<'_>) -> bool {
    match (left.kind(), right.kind()) {
        (Kind::Number, Kind::Number) => number::is_equal(left.text(), right.text()),
        _ => left.text() == right.text(),
    }
}
