//! Taking parts out of values, and putting entries together, as jq does.

use std::cmp::Ordering;

use jaq_core::box_iter::box_once;
use jaq_core::native::{Fun, bome, unary, v};
use jaq_core::val::ValT as _;
use jaq_core::{Bind, Exn, Native};
use jaq_json::Rc;

use super::{Cv, Filter, Results};
use crate::jq::counted::{Counted, ENTRY, Error, MEMBER, Result, copied};
use crate::jq::counted_paths::{lookup, span};
use crate::jq::engine::{self, Kind};
use crate::jq::lower::LAST;
use crate::jq::{meter, sort, walk};
use crate::value::{self, Value, shown};

pub(super) fn all() -> Vec<Filter> {
    vec![
        ("delpaths", v(1), |cv| unary(cv, delete_paths)),
        ("from_entries", v(0), |cv| bome(from_entries(&cv.1))),
        ("nan", v(0), |_| bome(Ok(Counted::from(f64::NAN)))),
        ("infinite", v(0), |_| bome(Ok(Counted::from(f64::INFINITY)))),
        ("range", v(3), range),
        ("builtins", v(0), |_| {
            bome(Ok(engine::builtins().map(Counted::from).collect()))
        }),
    ]
}

/// Numbers from one bound up or down to before another.
fn range(mut cv: Cv<'_>) -> Results<'_> {
    let (by, to, from) = (cv.0.pop_var(), cv.0.pop_var(), cv.0.pop_var());
    let is_number = |it: &&Counted| matches!(it.value, Value::Num(_));
    if [&from, &to, &by].iter().filter(|it| is_number(it)).count() < 3 {
        return bome(Err(Error::str("the bounds of a range are numbers")));
    }
    let zero = Counted::from(0_usize);
    let direction = by.cmp(&zero);
    let mut next = Some(from);
    Box::new(std::iter::from_fn(move || {
        let here = next.take()?;
        let goes_on = match direction {
            Ordering::Greater => here < to,
            Ordering::Less => here > to,
            Ordering::Equal => here != to,
        };
        if !goes_on {
            return None;
        }
        match here.clone() + by.clone() {
            Ok(behind) => next = Some(behind),
            Err(error) => return Some(Err(Exn::from(error))),
        }
        Some(Ok(here))
    }))
}

/// The last result of a filter, or null when it has none.
pub(super) fn last() -> Fun<Kind> {
    let native = Native::<Kind>::new(|mut cv| {
        let (filter, context) = cv.0.pop_fun();
        let mut last = Counted::scalar(Value::Null);
        for result in filter.run((context, cv.1)) {
            match result.and_then(|it| meter::steps(1).map(|()| it).map_err(stopped)) {
                Ok(result) => last = result,
                failed => return box_once(failed),
            }
        }
        box_once(Ok(last))
    });
    let native = native.with_paths(|mut cv| {
        let (filter, context) = cv.0.pop_fun();
        let mut last = (Counted::scalar(Value::Null), cv.1.1.clone());
        for result in filter.paths((context, cv.1)) {
            match result.and_then(|it| meter::steps(1).map(|()| it).map_err(stopped)) {
                Ok(result) => last = result,
                failed => return box_once(failed),
            }
        }
        box_once(Ok(last))
    });
    let native = native.with_update(|mut cv, update| {
        let (filter, context) = cv.0.pop_fun();
        filter.update((context, cv.1), update)
    });
    (LAST, Box::new([Bind::Fun(())]), native)
}

fn stopped<'a>(stopped: meter::Stopped) -> Exn<'a, Counted> {
    Exn::from(Error::from(stopped))
}

/// The first of these members that is neither null nor false.
fn first_of<'v>(entry: &'v jaq_json::Map, names: &[&str]) -> Option<&'v Value> {
    let mut found = names.iter().filter_map(|it| entry.get(&value::text(*it)));
    found.find(|it| value::is_truthy(it))
}

fn from_entries(entries: &Counted) -> Result {
    let mut made = jaq_json::Map::default();
    let inner = entries.depth.saturating_sub(2);
    for entry in entries.clone().values() {
        let entry = entry?;
        meter::steps(1)?;
        meter::memory(MEMBER)?;
        let Value::Obj(members) = &entry.value else {
            return Err(Error::index(entry, Counted::scalar(value::text("key"))));
        };
        let key = first_of(members, &["key", "Key", "name", "Name"]);
        let key = key.unwrap_or(&Value::Null);
        if !matches!(key, Value::TStr(_)) {
            let key = shown(key);
            let message = format_args!("cannot use {key} as the name of a member");
            return Err(Error::str(message));
        }
        let found = members.get(&value::text("value"));
        let found = found.or_else(|| members.get(&value::text("Value")));
        made.insert(key.clone(), found.cloned().unwrap_or(Value::Null));
    }
    Ok(Counted::nested(Value::obj(made), inner)?)
}

/// Takes out what is at the paths, all of them as they are before.
fn delete_paths(whole: Counted, paths: Counted) -> Result {
    let Ok(all) = paths.items() else {
        return Err(Error::str("Paths must be specified as an array"));
    };
    meter::memory(all.len() * 2 * ENTRY)?;
    let order = sort::order(all, walk::compare)?;
    let mut sorted: Vec<&[Value]> = Vec::with_capacity(order.len());
    for path in order.into_iter().filter_map(|at| all.get(at)) {
        match path {
            Value::Arr(path) => sorted.push(path),
            other => return Err(Counted::outside(other.clone()).typ("array")),
        }
    }
    match sorted.first() {
        None => Ok(whole),
        Some([]) => Ok(Counted::scalar(Value::Null)),
        Some(_) => delete(whole, &sorted, 0),
    }
}

/// Takes out what is at sorted paths, behind their first `level` keys.
fn delete(mut whole: Counted, mut paths: &[&[Value]], level: usize) -> Result {
    let mut keys = Vec::new();
    while let Some(key) = paths.first().and_then(|it| it.get(level)) {
        let mut count = 1;
        while let Some(other) = paths.get(count).and_then(|it| it.get(level)) {
            if !walk::equal(key, other)? {
                break;
            }
            count += 1;
        }
        let (same, rest) = paths.split_at(count);
        paths = rest;
        meter::steps(count)?;
        // Paths are sorted, so the shortest one is the first.
        if same.first().is_some_and(|it| it.len() == level + 1) {
            keys.push(key);
            continue;
        }
        let index = Counted::outside(key.clone());
        let inner = lookup(&whole, &index)?.unwrap_or(Counted::scalar(Value::Null));
        if !matches!(inner.value, Value::Null) {
            let changed = delete(inner, same, level + 1)?;
            whole = replaced(whole, &index, changed)?;
        }
    }
    delete_keys(whole, &keys)
}

/// The same with another value at an index where there is one.
fn replaced(whole: Counted, index: &Counted, value: Counted) -> Result {
    let put = |_| std::iter::once(Ok(value.clone()));
    let changed = whole.map_index(index, jaq_core::path::Opt::Essential, put);
    changed.map_err(|error: Exn<'_, Counted>| match error.get_err() {
        Ok(error) => error,
        Err(_) => Error::str("cannot delete"),
    })
}

fn delete_keys(whole: Counted, keys: &[&Value]) -> Result {
    if keys.is_empty() {
        return Ok(whole);
    }
    let depth = whole.depth;
    copied(&whole.value)?;
    let value = match whole.value {
        Value::Null => Value::Null,
        Value::Obj(mut members) => {
            let wanted = Rc::make_mut(&mut members);
            for key in keys {
                let Value::TStr(_) = key else {
                    let key = shown(key);
                    let message = format_args!("cannot delete {key} of an object");
                    return Err(Error::str(message));
                };
                meter::steps(1 + wanted.len() / 64)?;
                wanted.shift_remove(*key);
            }
            Value::Obj(members)
        }
        Value::Arr(mut items) => {
            let gone = gone(&Value::Arr(items.clone()), keys)?;
            meter::steps(items.len() / 8)?;
            let mut at = 0..;
            Rc::make_mut(&mut items).retain(|_| {
                let at = at.next().unwrap_or_default();
                !gone.get(at).copied().unwrap_or_default()
            });
            Value::Arr(items)
        }
        other => {
            let shown = shown(&other);
            return Err(Error::str(format_args!("cannot delete a part of {shown}")));
        }
    };
    Ok(Counted::bounded(value, depth))
}

/// Which items of an array go.
fn gone(items: &Value, keys: &[&Value]) -> Result<Vec<bool>> {
    let Value::Arr(all) = items else {
        return Ok(Vec::new());
    };
    meter::memory(all.len())?;
    let mut gone = vec![false; all.len()];
    for key in keys {
        let range = span(items, key)?;
        meter::steps(1 + range.len() / 64)?;
        gone.get_mut(range).unwrap_or_default().fill(true);
    }
    Ok(gone)
}
