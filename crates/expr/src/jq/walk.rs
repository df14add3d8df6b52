//! What walks through values: comparing, printing, searching. Values may share parts, so that a
//! small one looks endless; each node that is visited is counted.

use std::cmp::Ordering;

use bytes::Bytes;
use jaq_json::{Map, Num};

use super::meter::{self, Stopped};
use super::sort;
use crate::value::Value;

/// How many bytes one step compares or copies.
const STEP: usize = 512;

/// Counts work on that many bytes.
#[inline]
pub(super) fn bytes_seen(length: usize) -> Result<(), Stopped> {
    meter::steps(1 + length / STEP)
}

/// jq's order of values.
pub(super) fn compare(left: &Value, right: &Value) -> Result<Ordering, Stopped> {
    use Value::{Arr, BStr, Bool, Null, Num, Obj, TStr};
    meter::steps(1)?;
    Ok(match (left, right) {
        (Null, Null) => Ordering::Equal,
        (Bool(left), Bool(right)) => left.cmp(right),
        (Num(left), Num(right)) => left.cmp(right),
        (BStr(left) | TStr(left), BStr(right) | TStr(right)) => {
            bytes_seen(left.len().min(right.len()))?;
            left.cmp(right)
        }
        (Arr(left), Arr(right)) => {
            for (left, right) in left.iter().zip(right.iter()) {
                let order = compare(left, right)?;
                if order != Ordering::Equal {
                    return Ok(order);
                }
            }
            left.len().cmp(&right.len())
        }
        (Obj(left), Obj(right)) => compare_objects(left, right)?,
        _ => rank(left).cmp(&rank(right)),
    })
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Num(_) => 2,
        Value::TStr(_) | Value::BStr(_) => 3,
        Value::Arr(_) => 4,
        Value::Obj(_) => 5,
    }
}

fn compare_objects(left: &Map, right: &Map) -> Result<Ordering, Stopped> {
    let is_empty = (left.is_empty(), right.is_empty());
    if is_empty.0 || is_empty.1 {
        return Ok((!is_empty.0).cmp(&!is_empty.1));
    }
    let (left, right) = (sorted_members(left)?, sorted_members(right)?);
    for ((left, _), (right, _)) in left.iter().zip(&right) {
        let order = compare(left, right)?;
        if order != Ordering::Equal {
            return Ok(order);
        }
    }
    if left.len() != right.len() {
        return Ok(left.len().cmp(&right.len()));
    }
    for ((_, left), (_, right)) in left.iter().zip(&right) {
        let order = compare(left, right)?;
        if order != Ordering::Equal {
            return Ok(order);
        }
    }
    Ok(Ordering::Equal)
}

/// The members of an object in the order of their names.
pub(super) fn sorted_members(members: &Map) -> Result<Vec<(&Value, &Value)>, Stopped> {
    meter::memory(members.len() * 32)?;
    let all: Vec<(&Value, &Value)> = members.iter().collect();
    let order = sort::order(&all, |left, right| compare(left.0, right.0))?;
    Ok(order
        .into_iter()
        .filter_map(|at| all.get(at).copied())
        .collect())
}

/// jq's equality of values.
pub(super) fn equal(left: &Value, right: &Value) -> Result<bool, Stopped> {
    use Value::{Arr, BStr, Bool, Null, Num, Obj, TStr};
    meter::steps(1)?;
    Ok(match (left, right) {
        (Null, Null) => true,
        (Bool(left), Bool(right)) => left == right,
        (Num(left), Num(right)) => left == right,
        (BStr(left) | TStr(left), BStr(right) | TStr(right)) => {
            bytes_seen(left.len().min(right.len()))?;
            left == right
        }
        (Arr(left), Arr(right)) => equal_arrays(left, right)?,
        (Obj(left), Obj(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (key, left) in left.iter() {
                match right.get(key) {
                    Some(right) if equal(left, right)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        _ => false,
    })
}

fn equal_arrays(left: &[Value], right: &[Value]) -> Result<bool, Stopped> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (left, right) in left.iter().zip(right) {
        if !equal(left, right)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// jq's `contains`.
pub(super) fn contains(whole: &Value, part: &Value) -> Result<bool, Stopped> {
    use Value::{Arr, BStr, Obj, TStr};
    meter::steps(1)?;
    match (whole, part) {
        (BStr(whole), BStr(part)) | (TStr(whole), TStr(part)) => {
            bytes_seen(whole.len())?;
            Ok(memchr::memmem::find(whole, part).is_some())
        }
        (Arr(whole), Arr(parts)) => {
            for part in parts.iter() {
                let mut is_found = false;
                for whole in whole.iter() {
                    if contains(whole, part)? {
                        is_found = true;
                        break;
                    }
                }
                if !is_found {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Obj(whole), Obj(parts)) => {
            for (key, part) in parts.iter() {
                match whole.get(key) {
                    Some(whole) if contains(whole, part)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        _ => equal(whole, part),
    }
}

/// Where a part begins in a text (in characters), byte string or array; none for other kinds.
pub(super) fn indices(whole: &Value, part: &Value) -> Result<Option<Vec<usize>>, Stopped> {
    let mut found = Vec::new();
    match (whole, part) {
        (Value::BStr(whole), Value::BStr(part)) => text_indices(whole, part, &mut found)?,
        (Value::TStr(whole), Value::TStr(part)) => {
            text_indices(whole, part, &mut found)?;
            in_characters(whole, &mut found);
        }
        (Value::Arr(_), Value::Arr(part)) if part.is_empty() => {}
        (Value::Arr(whole), Value::Arr(part)) => {
            for (at, window) in whole.windows(part.len()).enumerate() {
                if equal_arrays(window, part)? {
                    meter::memory(32)?;
                    found.push(at);
                }
            }
        }
        (Value::Arr(whole), part) => {
            for (at, item) in whole.iter().enumerate() {
                if equal(item, part)? {
                    meter::memory(32)?;
                    found.push(at);
                }
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(found))
}

/// Where a text begins in another, overlapping or not, in bytes.
fn text_indices(whole: &[u8], part: &[u8], found: &mut Vec<usize>) -> Result<(), Stopped> {
    let Some(first) = part.first() else {
        return Ok(());
    };
    bytes_seen(whole.len())?;
    for at in memchr::memchr_iter(*first, whole) {
        bytes_seen(part.len())?;
        if whole.get(at..at + part.len()) == Some(part) {
            meter::memory(32)?;
            found.push(at);
        }
    }
    Ok(())
}

/// Turns offsets in bytes, in their order, into offsets in characters.
fn in_characters(text: &[u8], offsets: &mut [usize]) {
    let (mut bytes, mut characters) = (0, 0);
    for offset in offsets {
        let between = text.get(bytes..*offset).unwrap_or_default();
        characters += length_in_characters(between);
        bytes = *offset;
        *offset = characters;
    }
}

/// How many characters a text has; bytes that are no UTF-8 count by the maximal parts that are
/// replaced.
pub(super) fn length_in_characters(text: &[u8]) -> usize {
    match std::str::from_utf8(text) {
        Ok(text) => text.chars().count(),
        Err(_) => text
            .utf8_chunks()
            .map(|it| it.valid().chars().count() + usize::from(!it.invalid().is_empty()))
            .sum(),
    }
}

/// Writes any value as jaq does: JSON, with `NaN`, `Infinity` and `b"..."` beside.
pub(super) fn to_text(value: &Value, out: &mut Vec<u8>) -> Result<(), Stopped> {
    meter::steps(1)?;
    let before = out.len();
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Num(number) => out.extend_from_slice(number_text(number)?.as_bytes()),
        Value::TStr(text) => {
            bytes_seen(text.len())?;
            meter::memory(text.len())?;
            push_string(text, out);
        }
        Value::BStr(bytes) => {
            bytes_seen(bytes.len() * 4)?;
            meter::memory(bytes.len() * 4)?;
            out.push(b'b');
            push_bytes(bytes, out);
        }
        Value::Arr(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                to_text(item, out)?;
            }
            out.push(b']');
            return meter::memory(items.len() + 2);
        }
        Value::Obj(members) => {
            out.push(b'{');
            for (at, (key, member)) in members.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                to_text(key, out)?;
                out.push(b':');
                to_text(member, out)?;
            }
            out.push(b'}');
            return meter::memory(members.len() * 2 + 2);
        }
    }
    meter::memory(out.len() - before)
}

/// The digits of a number; those of a long one take time in proportion to their square.
pub(super) fn number_text(number: &Num) -> Result<String, Stopped> {
    if let Num::BigInt(number) = number {
        let words = number.bits() / 64;
        meter::steps((words * words / 64) as usize)?;
    }
    Ok(number.to_string())
}

fn push_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        push_byte(*byte, out, |byte, out| match byte {
            0x80.. => out.push(byte),
            _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        });
    }
    out.push(b'"');
}

fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in bytes {
        push_byte(*byte, out, |byte, out| {
            out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        });
    }
    out.push(b'"');
}

fn push_byte(byte: u8, out: &mut Vec<u8>, other: impl Fn(u8, &mut Vec<u8>)) {
    let escape: &[u8] = match byte {
        b'"' => b"\\\"",
        b'\\' => b"\\\\",
        b'\n' => b"\\n",
        b'\r' => b"\\r",
        b'\t' => b"\\t",
        8 => b"\\b",
        12 => b"\\f",
        ..0x20 | 0x7f.. => return other(byte, out),
        _ => return out.push(byte),
    };
    out.extend_from_slice(escape);
}

/// Looks whether a result can be given out: no NaN, no infinity, not too deep. Says where not.
pub(super) fn check(value: &Value, depth: usize) -> Result<Result<(), Flaw>, Stopped> {
    meter::steps(1)?;
    let flawed = |message| {
        Ok(Err(Flaw {
            message,
            path: String::new(),
        }))
    };
    match value {
        Value::Num(Num::Float(number)) if number.is_nan() => flawed("NaN is not JSON"),
        Value::Num(Num::Float(number)) if number.is_infinite() => {
            flawed("an infinite number is not JSON")
        }
        Value::Arr(_) | Value::Obj(_) if depth == 0 => flawed("the result is nested too deep"),
        Value::Arr(items) => {
            for (at, item) in items.iter().enumerate() {
                if let Err(flaw) = check(item, depth - 1)? {
                    return Ok(Err(flaw.within(&format!("[{at}]"))));
                }
            }
            Ok(Ok(()))
        }
        Value::Obj(members) => {
            for (key, member) in members.iter() {
                if let Err(flaw) = check(member, depth - 1)? {
                    let name = crate::value::as_text(key).unwrap_or_default();
                    let part = super::path_part(name.as_bytes());
                    return Ok(Err(flaw.within(&part)));
                }
            }
            Ok(Ok(()))
        }
        _ => Ok(Ok(())),
    }
}

/// What is wrong with a result, and where.
pub(super) struct Flaw {
    pub message: &'static str,
    pub path: String,
}

impl Flaw {
    fn within(mut self, part: &str) -> Self {
        // The path of the deepest place is of no use.
        if self.path.len() < 200 {
            self.path.insert_str(0, part);
        }
        self
    }
}

/// The bytes of a text or byte string.
pub(super) fn string_bytes(value: &Value) -> Option<&Bytes> {
    match value {
        Value::TStr(bytes) | Value::BStr(bytes) => Some(bytes),
        _ => None,
    }
}
