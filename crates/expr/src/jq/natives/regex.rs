//! Regular expressions. Follows jaq-std (MIT, Michael Färber) in what its definitions call;
//! searches are counted, and compiled expressions are kept.

use std::cell::RefCell;
use std::rc::Rc;

use jaq_core::Bind;
use jaq_core::ValT as _;
use jaq_core::native::{bome, v};
use jaq_std::ValT as _;

use super::{Cv, Filter};
use crate::jq::counted::{Counted, Error, Result};
use crate::jq::pattern::{self, Failed, Flags, Pattern, Search};
use crate::jq::{meter, walk};
use crate::value::{self, Value};

pub(super) fn all() -> Vec<Filter> {
    let arguments = || [Bind::Var(()), Bind::Var(())].into();
    vec![
        ("matches", arguments(), |cv| bome(search(cv, false, true))),
        ("split_matches", arguments(), |cv| {
            bome(search(cv, true, true))
        }),
        ("split_", arguments(), |cv| bome(search(cv, true, false))),
        ("test", arguments(), |cv| bome(is_match(cv))),
        ("replaced", v(0), |cv| bome(replaced(&cv.1))),
    ]
}

/// How many compiled expressions a thread keeps, and how many bytes of them.
const KEPT: usize = 32;
const KEPT_BYTES: usize = 4 << 20;

struct Compiled {
    text: String,
    flag_text: String,
    pattern: Pattern,
    flags: Flags,
}

thread_local! {
    static CACHE: RefCell<Vec<Rc<Compiled>>> = const { RefCell::new(Vec::new()) };
}

fn compiled(pattern: &str, flags: &str) -> Result<Rc<Compiled>> {
    let found = CACHE.with(|cache| {
        let mut cache = cache.try_borrow_mut().ok()?;
        let at = cache
            .iter()
            .position(|it| it.text == pattern && it.flag_text == flags)?;
        // The last one used is the last to go.
        if at + 1 < cache.len() {
            let found = cache.remove(at);
            cache.push(found);
        }
        cache.last().cloned()
    });
    if let Some(found) = found {
        meter::steps(1)?;
        return Ok(found);
    }
    let new = Rc::new(compile(pattern, flags)?);
    CACHE.with(|cache| {
        if let Ok(mut cache) = cache.try_borrow_mut() {
            let mut bytes: usize = cache.iter().map(|it| it.pattern.size()).sum();
            while !cache.is_empty() && (cache.len() >= KEPT || bytes > KEPT_BYTES) {
                bytes -= cache.remove(0).pattern.size().min(bytes);
            }
            cache.push(new.clone());
        }
    });
    Ok(new)
}

fn compile(pattern: &str, flags: &str) -> Result<Compiled> {
    let read = Flags::read(flags).map_err(Error::str)?;
    meter::steps(pattern::cost(pattern, &read))?;
    let compiled = Pattern::compile(pattern, &read).map_err(Error::str)?;
    let size = compiled.size();
    meter::steps(size / 256)?;
    meter::memory(size)?;
    Ok(Compiled {
        text: pattern.to_owned(),
        flag_text: flags.to_owned(),
        pattern: compiled,
        flags: read,
    })
}

/// A pattern and flags; both may stand in one array, as jq has it.
fn arguments(pattern: &Counted, flags: &Counted) -> Result<Rc<Compiled>> {
    let text = |value: &Value| match value {
        Value::Null => Ok(String::new()),
        other => Counted::outside(other.clone()).text().map(str::to_owned),
    };
    match (&pattern.value, &flags.value) {
        (Value::Arr(both), _) if let [pattern, rest @ ..] = both.as_slice() => {
            let pattern = Counted::outside(pattern.clone());
            let inner = rest.first().unwrap_or(&Value::Null);
            compiled(pattern.text()?, &(text(inner)? + &text(&flags.value)?))
        }
        (_, Value::Null) => compiled(pattern.text()?, ""),
        _ => compiled(pattern.text()?, flags.text()?),
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Stopped(stopped) => stopped.into(),
            Failed::Busy => Self::str("a regular expression is in use"),
        }
    }
}

/// Searches the input; gives what does not match, and what does, in turns.
fn search(mut cv: Cv<'_>, with_rest: bool, with_matches: bool) -> Result {
    let flags = cv.0.pop_var();
    let pattern = cv.0.pop_var();
    let input = cv.1;
    let compiled = arguments(&pattern, &flags)?;
    let text: &[u8] = match input.is_utf8_str() {
        true => input.string()?,
        false => return Err(input.typ("string")),
    };
    let mut found = Vec::new();
    let (mut rest_from, mut from) = (0, 0);
    let mut characters = Characters::default();
    let mut search = Search::new(&compiled.pattern, text)?;
    while from <= text.len() {
        let Some((start, end)) = search.find(from)? else {
            break;
        };
        from = match end > start {
            true => end,
            false => end + character_length(text, end),
        };
        if compiled.flags.ignores_empty && start == end {
            continue;
        }
        if with_rest {
            let rest = text.get(rest_from..start).unwrap_or_default();
            found.push(input.as_sub_str(rest));
            rest_from = end;
        }
        if with_matches {
            search.groups((start, end))?;
            let place = Place {
                input: &input,
                text,
            };
            let names = compiled.pattern.names().enumerate();
            let groups = names.map(|(at, name)| match search.group(at) {
                Some(group) => place.group(group, (at, name), &mut characters),
                None => missing(name),
            });
            found.push(groups.collect::<Result<Counted>>()?);
        }
        if !compiled.flags.is_global {
            break;
        }
    }
    if with_rest {
        found.push(input.as_sub_str(text.get(rest_from..).unwrap_or_default()));
    }
    Ok(found.into_iter().collect())
}

/// Whether the input has a match.
fn is_match(mut cv: Cv<'_>) -> Result {
    let flags = cv.0.pop_var();
    let pattern = cv.0.pop_var();
    let compiled = arguments(&pattern, &flags)?;
    let text: &[u8] = match cv.1.is_utf8_str() {
        true => cv.1.string()?,
        false => return Err(cv.1.typ("string")),
    };
    let mut search = Search::new(&compiled.pattern, text)?;
    let mut from = 0;
    while let Some((start, end)) = search.find(from)? {
        if start < end || !compiled.flags.ignores_empty {
            return Ok(true.into());
        }
        from = end + character_length(text, end);
        if from > text.len() {
            break;
        }
    }
    Ok(false.into())
}

/// How many bytes the character takes that begins there; one at the end.
fn character_length(text: &[u8], at: usize) -> usize {
    let behind = text.get(at + 1..).unwrap_or_default();
    1 + behind
        .iter()
        .take_while(|byte| **byte & 0xc0 == 0x80)
        .count()
}

struct Place<'p> {
    input: &'p Counted,
    text: &'p [u8],
}

impl Place<'_> {
    /// A group of a match; the one without number is the match itself, which has no name.
    fn group(
        &self,
        (start, end): (usize, usize),
        (number, name): (usize, Option<&str>),
        characters: &mut Characters,
    ) -> Result {
        let bytes = self.text.get(start..end).unwrap_or_default();
        let offset = characters.before(self.text, start);
        let length = walk::length_in_characters(bytes);
        walk::bytes_seen(bytes.len())?;
        let mut members = vec![
            (key("offset"), Counted::from(offset)),
            (key("length"), Counted::from(length)),
            (key("string"), self.input.as_sub_str(bytes)),
        ];
        if number > 0 {
            members.push((key("name"), name_of(name)));
        }
        Counted::from_map(members)
    }
}

fn key(name: &str) -> Counted {
    Counted::from(name.to_owned())
}

fn name_of(name: Option<&str>) -> Counted {
    name.map_or(Counted::scalar(Value::Null), key)
}

/// A group that has no part in a match.
fn missing(name: Option<&str>) -> Result {
    let members = [
        (key("offset"), Counted::from(-1_isize)),
        (key("length"), Counted::from(0_isize)),
        (key("string"), Counted::scalar(Value::Null)),
        (key("name"), name_of(name)),
    ];
    Counted::from_map(members)
}

/// Puts texts together that stand between what replaces matches: each of these has an array of
/// texts, and the results have the first ones, the second ones and so on, as far as there are any.
fn replaced(parts: &Counted) -> Result {
    let parts = parts.items()?;
    let choices = parts.iter().map(|part| match part {
        Value::Arr(choices) => choices.len(),
        _ => 0,
    });
    let count = choices.max().unwrap_or(0);
    let mut results = Vec::new();
    for number in 0..count {
        let mut pieces: Vec<&bytes::Bytes> = Vec::new();
        let mut gap = None;
        for part in parts.iter() {
            meter::steps(1)?;
            match part {
                Value::Arr(choices) => {
                    if let Some(choice) = choices.get(number) {
                        let Value::TStr(choice) = choice else {
                            let shown = value::shown(choice);
                            let message = format_args!("{shown} cannot be put into a text");
                            return Err(Error::str(message));
                        };
                        pieces.extend(gap.take());
                        pieces.push(choice);
                    }
                    gap = None;
                }
                part => gap = walk::string_bytes(part),
            }
        }
        pieces.extend(gap);
        results.push(joined(pieces.into_iter())?);
    }
    texts(results)
}

fn joined<'b>(pieces: impl Iterator<Item = &'b bytes::Bytes>) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for piece in pieces {
        meter::memory(piece.len() + 16)?;
        walk::bytes_seen(piece.len())?;
        text.extend_from_slice(piece);
    }
    Ok(text)
}

fn texts(all: impl IntoIterator<Item = Vec<u8>>) -> Result {
    let all = all.into_iter();
    Ok(all.map(|it| Counted::scalar(Value::utf8_str(it))).collect())
}

/// Offsets in characters, found from the last one on.
#[derive(Default)]
struct Characters {
    bytes: usize,
    count: usize,
}

impl Characters {
    fn before(&mut self, text: &[u8], offset: usize) -> usize {
        if offset < self.bytes {
            *self = Self::default();
        }
        let between = text.get(self.bytes..offset).unwrap_or_default();
        self.count += walk::length_in_characters(between);
        self.bytes = offset;
        self.count
    }
}
