//! Natives that walk through values, sort them or turn them into text.

use jaq_core::box_iter::box_once;
use jaq_core::native::{bome, unary, v};
use jaq_core::{Bind, Exn};
use jaq_json::Num;

use super::{Cv, Filter, Results};
use crate::jq::counted::{Counted, ENTRY, Error, Result};
use crate::jq::counted_paths::lookup;
use crate::jq::{meter, sort, walk};
use crate::json;
use crate::value::{self, Value, shown};

pub(super) fn all() -> Vec<Filter> {
    let f = || [Bind::Fun(())].into();
    vec![
        ("now", v(0), |cv| bome(Ok(cv.0.data().now()))),
        ("error_empty", v(0), |cv| {
            meter::raise(&cv.1.value);
            bome(Err(Error::new(cv.1)))
        }),
        ("fromjson", v(0), |cv| bome(from_json(&cv.1))),
        ("tojson", v(0), |cv| bome(to_json(&cv.1))),
        ("tonumber", v(0), |cv| bome(to_number(cv.1))),
        ("tobytes", v(0), |cv| bome(to_bytes(&cv.1))),
        ("length", v(0), |cv| bome(length(cv.1))),
        ("contains", v(1), |cv| {
            unary(cv, |whole, part| {
                Ok(walk::contains(&whole.value, &part.value)?.into())
            })
        }),
        ("has", v(1), |cv| {
            unary(cv, |whole, key| Ok(has(&whole, &key)?.into()))
        }),
        ("indices", v(1), |cv| {
            unary(cv, |whole, part| {
                if matches!(whole.value, Value::Null) {
                    return Ok(whole);
                }
                match walk::indices(&whole.value, &part.value)? {
                    Some(found) => Ok(found.into_iter().map(Counted::from).collect()),
                    None => Err(Error::index(whole, part)),
                }
            })
        }),
        ("bsearch", v(1), |cv| {
            unary(cv, |items, wanted| binary_search(&items, &wanted))
        }),
        ("sort", v(0), |cv| bome(sorted(&cv.1))),
        ("sort_by", f(), sort_by),
        ("group_by", f(), group_by),
    ]
}

/// Whether there is such a member or entry; counting from the end finds none.
pub(in crate::jq) fn has(whole: &Counted, key: &Counted) -> Result<bool> {
    let is_behind = match (&whole.value, &key.value) {
        (Value::Arr(_), Value::Num(number)) => number < &Num::Int(0),
        _ => false,
    };
    Ok(lookup(whole, key)?.is_some() && !is_behind)
}

fn from_json(text: &Counted) -> Result {
    let Value::TStr(bytes) = &text.value else {
        return Err(text.clone().typ("string"));
    };
    meter::steps(1 + bytes.len() / 16)?;
    // The smallest entry is two bytes of text and sixteen of memory.
    meter::memory(bytes.len().saturating_mul(8))?;
    match json::parse(bytes, usize::MAX) {
        Ok(value) => Ok(Counted::outside(value)),
        Err(error) => Err(Error::str(format_args!(
            "cannot parse {text} as JSON: {error}"
        ))),
    }
}

pub(super) fn to_json(value: &Counted) -> Result {
    let mut text = Vec::new();
    walk::to_text(&value.value, &mut text)?;
    Ok(Counted::scalar(Value::utf8_str(text)))
}

pub(super) fn to_number(value: Counted) -> Result {
    match &value.value {
        Value::Num(_) => Ok(value),
        Value::TStr(bytes) => {
            walk::bytes_seen(bytes.len())?;
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            match value::parse_number(text) {
                Some(number) => Ok(Counted::scalar(number)),
                None => Err(Error::str(format_args!("cannot parse {value} as number"))),
            }
        }
        _ => Err(Error::str(format_args!("cannot parse {value} as number"))),
    }
}

/// The bytes of texts, numbers below 256 and arrays of these.
fn to_bytes(value: &Counted) -> Result {
    let mut bytes = Vec::new();
    if let Value::TStr(text) | Value::BStr(text) = &value.value {
        return Ok(Counted::scalar(Value::BStr(text.clone())));
    }
    push_bytes(&value.value, &mut bytes)?;
    Ok(Counted::scalar(Value::byte_str(bytes)))
}

fn push_bytes(value: &Value, out: &mut Vec<u8>) -> Result<()> {
    meter::steps(1)?;
    match value {
        Value::TStr(bytes) | Value::BStr(bytes) => {
            meter::memory(bytes.len() * 2)?;
            out.extend_from_slice(bytes);
        }
        Value::Arr(items) => {
            for item in items.iter() {
                push_bytes(item, out)?;
            }
        }
        Value::Num(Num::Int(number @ 0..=255)) => {
            meter::memory(2)?;
            out.push(*number as u8);
        }
        _ => {
            let shown = shown(value);
            return Err(Error::str(format_args!("cannot convert {shown} to bytes")));
        }
    }
    Ok(())
}

pub(super) fn length(value: Counted) -> Result {
    Ok(match &value.value {
        Value::Null => Counted::from(0_usize),
        Value::Num(number) if number < &Num::Int(0) => return -value,
        Value::Num(Num::Dec(_)) | Value::Num(Num::Float(_)) => {
            Counted::from(jaq_std::ValT::as_f64(&value).unwrap_or_default().abs())
        }
        Value::Num(_) => value,
        Value::TStr(text) => {
            walk::bytes_seen(text.len())?;
            Counted::from(walk::length_in_characters(text))
        }
        Value::BStr(bytes) => Counted::from(bytes.len()),
        Value::Arr(items) => Counted::from(items.len()),
        Value::Obj(members) => Counted::from(members.len()),
        Value::Bool(_) => return Err(Error::str(format_args!("{value} has no length"))),
    })
}

fn binary_search(items: &Counted, wanted: &Counted) -> Result {
    let all = items.items()?;
    let (mut low, mut high) = (0, all.len());
    while low < high {
        let middle = (low + high) / 2;
        let Some(item) = all.get(middle) else {
            break;
        };
        match walk::compare(item, &wanted.value)? {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => return Ok(Counted::from(middle)),
        }
    }
    Ok(Counted::from(
        -1 - isize::try_from(low).unwrap_or(isize::MAX - 1),
    ))
}

pub(super) fn sorted(whole: &Counted) -> Result {
    let items = whole.items()?;
    meter::memory(items.len() * (ENTRY + 16))?;
    let order = sort::order(items, walk::compare)?;
    let sorted = order.into_iter().filter_map(|at| items.get(at).cloned());
    Ok(Counted::bounded(sorted.collect(), whole.depth))
}

/// The entries of an array in the order of what a filter gives for each.
type Keyed = Vec<(Vec<Counted>, Value)>;

fn by_keys<'a>(cv: &mut Cv<'a>) -> std::result::Result<Keyed, Exn<'a, Counted>> {
    let (filter, context) = cv.0.pop_fun();
    let inner = cv.1.depth.saturating_sub(1);
    let items = cv.1.items()?.clone();
    meter::memory(items.len() * (ENTRY + 64)).map_err(Error::from)?;
    let mut keyed = Vec::with_capacity(items.len());
    for item in items.iter() {
        meter::steps(1).map_err(Error::from)?;
        let item_counted = Counted::bounded(item.clone(), inner);
        let mut keys = Vec::new();
        for key in filter.run((context.clone(), item_counted)) {
            keys.push(key?);
            meter::memory(48).map_err(Error::from)?;
        }
        keyed.push((keys, item.clone()));
    }
    let order = sort::order(&keyed, |left, right| compare_keys(&left.0, &right.0));
    let order = order.map_err(Error::from)?;
    let mut keyed: Vec<Option<_>> = keyed.into_iter().map(Some).collect();
    let sorted = order.into_iter().filter_map(|at| keyed.get_mut(at)?.take());
    Ok(sorted.collect())
}

fn compare_keys(
    left: &[Counted],
    right: &[Counted],
) -> std::result::Result<std::cmp::Ordering, meter::Stopped> {
    for (left, right) in left.iter().zip(right) {
        let order = walk::compare(&left.value, &right.value)?;
        if order != std::cmp::Ordering::Equal {
            return Ok(order);
        }
    }
    Ok(left.len().cmp(&right.len()))
}

fn sort_by(mut cv: Cv<'_>) -> Results<'_> {
    let depth = cv.1.depth;
    box_once(by_keys(&mut cv).map(|keyed| {
        let sorted = keyed.into_iter().map(|(_, item)| item);
        Counted::bounded(sorted.collect(), depth)
    }))
}

fn group_by(mut cv: Cv<'_>) -> Results<'_> {
    let depth = cv.1.depth;
    box_once(by_keys(&mut cv).and_then(|keyed| Ok(grouped(keyed, depth)?)))
}

fn grouped(keyed: Keyed, depth: u32) -> Result {
    let mut groups: Vec<Value> = Vec::new();
    let mut group: Vec<Value> = Vec::new();
    let mut last: Option<Vec<Counted>> = None;
    for (keys, item) in keyed {
        meter::memory(ENTRY * 4)?;
        let is_new = match &last {
            None => true,
            Some(last) => compare_keys(last, &keys)? != std::cmp::Ordering::Equal,
        };
        if is_new {
            if !group.is_empty() {
                groups.push(Value::Arr(std::mem::take(&mut group).into()));
            }
            last = Some(keys);
        }
        group.push(item);
    }
    if !group.is_empty() {
        groups.push(Value::Arr(group.into()));
    }
    Ok(Counted::nested(Value::Arr(groups.into()), depth)?)
}
