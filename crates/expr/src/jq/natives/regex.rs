//! Regular expressions. Follows jaq-std (MIT, Michael Färber); searches are counted, and
//! compiled expressions are kept.

use std::cell::RefCell;
use std::rc::Rc;

use jaq_core::Bind;
use jaq_core::ValT as _;
use jaq_core::native::bome;
use jaq_std::ValT as _;
use regex_bites::bytes::{Match, Regex, RegexBuilder};

use super::{Cv, Filter};
use crate::jq::counted::{Counted, Error, Result};
use crate::jq::{meter, walk};

pub(super) fn all() -> Vec<Filter> {
    let arguments = || [Bind::Var(()), Bind::Var(())].into();
    vec![
        ("matches", arguments(), |cv| bome(search(cv, false, true))),
        ("split_matches", arguments(), |cv| {
            bome(search(cv, true, true))
        }),
        ("split_", arguments(), |cv| bome(search(cv, true, false))),
    ]
}

/// Sizes of compiled expressions in bytes, and what searching a byte costs then, in eighths of a
/// step.
const SIZES: [(usize, usize); 3] = [(4 << 10, 2), (16 << 10, 64), (64 << 10, 512)];

/// How many compiled expressions a thread keeps.
const KEPT: usize = 32;

struct Compiled {
    pattern: String,
    flags: String,
    regex: Regex,
    cost: usize,
    is_global: bool,
    ignores_empty: bool,
}

thread_local! {
    static CACHE: RefCell<Vec<Rc<Compiled>>> = const { RefCell::new(Vec::new()) };
}

fn compiled(pattern: &str, flags: &str) -> Result<Rc<Compiled>> {
    let found = CACHE.with(|cache| {
        let mut cache = cache.try_borrow_mut().ok()?;
        let at = cache
            .iter()
            .position(|it| it.pattern == pattern && it.flags == flags)?;
        let found = cache.remove(at);
        cache.push(found.clone());
        Some(found)
    });
    if let Some(found) = found {
        meter::steps(1)?;
        return Ok(found);
    }
    let new = Rc::new(compile(pattern, flags)?);
    CACHE.with(|cache| {
        if let Ok(mut cache) = cache.try_borrow_mut() {
            if cache.len() >= KEPT {
                cache.remove(0);
            }
            cache.push(new.clone());
        }
    });
    Ok(new)
}

fn compile(pattern: &str, flags: &str) -> Result<Compiled> {
    meter::steps(20 + pattern.len())?;
    meter::memory(pattern.len() * 64)?;
    let mut builder = RegexBuilder::new(pattern);
    for flag in flags.chars() {
        match flag {
            'g' | 'n' => &mut builder,
            'i' => builder.case_insensitive(true),
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'l' => builder.swap_greed(true),
            'x' => builder.ignore_whitespace(true),
            'p' => builder.multi_line(true).dot_matches_new_line(true),
            other => return Err(Error::str(format_args!("invalid regex flag: {other}"))),
        };
    }
    let mut last_error = String::new();
    for (size, cost) in SIZES {
        meter::steps(cost)?;
        match builder.size_limit(size).build() {
            Ok(regex) => {
                return Ok(Compiled {
                    pattern: pattern.to_owned(),
                    flags: flags.to_owned(),
                    regex,
                    cost,
                    is_global: flags.contains('g'),
                    ignores_empty: flags.contains('n'),
                });
            }
            Err(error) => last_error = error.to_string(),
        }
    }
    Err(Error::str(format_args!("invalid regex: {last_error}")))
}

/// Searches the input; gives what does not match, and what does, in turns.
fn search(mut cv: Cv<'_>, with_rest: bool, with_matches: bool) -> Result {
    let flags = cv.0.pop_var();
    let pattern = cv.0.pop_var();
    let input = cv.1;
    let compiled = compiled(pattern.text()?, flags.text()?)?;
    let text = match input.is_utf8_str() {
        true => input.string()?,
        false => return Err(input.typ("string")),
    };
    let mut found = Vec::new();
    let mut rest_from = 0;
    let mut searched_to = 0;
    let mut characters = Characters::default();
    let mut all = compiled.regex.captures_iter(text);
    loop {
        // A search may go to the end of the text before it knows that it matched long before.
        let left = text.len() - searched_to;
        meter::steps(1 + left * compiled.cost / 8)?;
        let Some(captures) = all.next() else {
            break;
        };
        let Some(whole) = captures.get(0) else {
            break;
        };
        searched_to = whole.end();
        if compiled.ignores_empty && whole.as_bytes().is_empty() {
            continue;
        }
        if with_rest {
            let rest = text.get(rest_from..whole.start()).unwrap_or_default();
            found.push(input.as_sub_str(rest));
            rest_from = whole.end();
        }
        if with_matches {
            let names = captures.iter().zip(compiled.regex.capture_names());
            let groups = names.filter_map(|(group, name)| Some((group?, name)));
            let groups =
                groups.map(|(group, name)| one_match(&input, text, &group, name, &mut characters));
            found.push(groups.collect::<Result<Counted>>()?);
        }
        if !compiled.is_global {
            break;
        }
    }
    if with_rest {
        found.push(input.as_sub_str(text.get(rest_from..).unwrap_or_default()));
    }
    Ok(found.into_iter().collect())
}

fn one_match(
    input: &Counted,
    text: &[u8],
    group: &Match<'_>,
    name: Option<&str>,
    characters: &mut Characters,
) -> Result {
    let offset = characters.before(text, group.start());
    let length = walk::length_in_characters(group.as_bytes());
    walk::bytes_seen(group.as_bytes().len())?;
    let key = |name: &str| Counted::from(name.to_owned());
    let mut members = vec![
        (key("offset"), Counted::from(offset)),
        (key("length"), Counted::from(length)),
        (key("string"), input.as_sub_str(group.as_bytes())),
    ];
    if let Some(name) = name {
        members.push((key("name"), key(name)));
    }
    Counted::from_map(members)
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
