//! The values that jaq works with: ours, with every operation counted. Follows `Val` of jaq-json
//! (MIT, Michael Färber) in what operations mean, but names of members must be text.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use bytes::Bytes;
use jaq_core::ops::Math;
use jaq_core::val::Range;
use jaq_json::{Map, Num, Rc};

use super::meter::{self, Stopped};
use super::walk::{self, bytes_seen, string_bytes};
use crate::value::{self, Value, shown};

pub(super) type Error = jaq_core::Error<Counted>;
pub(super) type Result<T = Counted> = std::result::Result<T, Error>;

/// The most levels of a value during an evaluation: what recursion over values is made for.
const DEPTH_MAX: u32 = 1024;
/// What values from outside count as, since measuring them would mean to walk through them.
const DEPTH_OUTSIDE: u32 = 512;
/// The most bits of an integer that is calculated.
const BITS_MAX: u64 = 100_000;
/// Bytes of one member of an object, about, with its name's handle.
pub(super) const MEMBER: usize = 112;
/// Bytes of one entry of an array.
pub(super) const ENTRY: usize = 16;

/// A value and an upper bound of its levels.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub value: Value,
    pub depth: u32,
}

impl From<Stopped> for Error {
    #[cold]
    fn from(stopped: Stopped) -> Self {
        Self::str(stopped.message())
    }
}

impl Counted {
    pub fn outside(value: Value) -> Self {
        Self::bounded(value, DEPTH_OUTSIDE)
    }

    /// A value of at most that many levels.
    #[inline]
    pub fn bounded(value: Value, depth: u32) -> Self {
        let depth = match value {
            Value::Arr(_) | Value::Obj(_) => depth,
            _ => 0,
        };
        Self { value, depth }
    }

    pub fn scalar(value: Value) -> Self {
        Self { value, depth: 0 }
    }

    /// A value within this one.
    #[inline]
    pub fn inner(&self, value: Value) -> Self {
        Self::bounded(value, self.depth.saturating_sub(1))
    }

    /// An array; stops when it is nested too deep.
    pub fn array(items: Vec<Value>, inner: u32) -> std::result::Result<Self, Stopped> {
        Self::nested(Value::Arr(items.into()), inner)
    }

    pub fn nested(value: Value, inner: u32) -> std::result::Result<Self, Stopped> {
        match inner < DEPTH_MAX {
            true => Ok(Self {
                value,
                depth: inner + 1,
            }),
            false => Err(meter::stop(Stopped::Depth)),
        }
    }

    pub fn typ(self, kind: &'static str) -> Error {
        Error::typ(self, kind)
    }

    /// The bytes of a string, looked at as a whole.
    pub fn string(&self) -> Result<&Bytes> {
        match string_bytes(&self.value) {
            Some(bytes) => {
                bytes_seen(bytes.len())?;
                Ok(bytes)
            }
            None => Err(Error::typ(self.clone(), "string")),
        }
    }

    /// The text of a text string that is UTF-8.
    pub fn text(&self) -> Result<&str> {
        let Value::TStr(bytes) = &self.value else {
            return Err(Error::typ(self.clone(), "string"));
        };
        bytes_seen(bytes.len())?;
        std::str::from_utf8(bytes).map_err(Error::str)
    }

    /// The entries of an array.
    pub fn items(&self) -> Result<&Rc<Vec<Value>>> {
        match &self.value {
            Value::Arr(items) => Ok(items),
            _ => Err(Error::typ(self.clone(), "array")),
        }
    }

    /// What is written in its place within a text.
    pub fn into_text(self) -> std::result::Result<Self, Stopped> {
        match self.value {
            Value::TStr(bytes) | Value::BStr(bytes) => Ok(Self::scalar(Value::TStr(bytes))),
            value => {
                let mut text = Vec::new();
                walk::to_text(&value, &mut text)?;
                Ok(Self::scalar(Value::utf8_str(text)))
            }
        }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&shown(&self.value))
    }
}

/// Where a trait leaves no room for a failure; the evaluation has been stopped then.
fn or_null(result: std::result::Result<Counted, Stopped>) -> Counted {
    result.unwrap_or(Counted::scalar(Value::Null))
}

impl From<bool> for Counted {
    fn from(truth: bool) -> Self {
        Self::scalar(Value::Bool(truth))
    }
}

impl From<isize> for Counted {
    fn from(number: isize) -> Self {
        Self::scalar(Value::Num(Num::Int(number)))
    }
}

impl From<usize> for Counted {
    fn from(number: usize) -> Self {
        Self::scalar(Value::from(number))
    }
}

impl From<f64> for Counted {
    fn from(number: f64) -> Self {
        Self::scalar(value::float(number))
    }
}

impl From<String> for Counted {
    fn from(text: String) -> Self {
        or_null(meter::memory(text.len() + 32).map(|()| Self::scalar(value::text(text))))
    }
}

impl From<Range<Self>> for Counted {
    fn from(range: Range<Self>) -> Self {
        let bounds = [("start", range.start), ("end", range.end)];
        let depth = bounds
            .iter()
            .flat_map(|(_, it)| it)
            .map(|it| it.depth)
            .max();
        let members = bounds.into_iter();
        let members = members.filter_map(|(key, it)| Some((key.to_owned(), it?.value)));
        or_null(Self::nested(value::object(members), depth.unwrap_or(0)))
    }
}

impl FromIterator<Self> for Counted {
    fn from_iter<T: IntoIterator<Item = Self>>(items: T) -> Self {
        let mut inner = 0;
        let mut values = Vec::new();
        for item in items {
            // A vector that grows has up to twice the room it needs.
            if meter::steps(1).is_err() || meter::memory(ENTRY * 2).is_err() {
                return Self::scalar(Value::Null);
            }
            inner = inner.max(item.depth);
            values.push(item.value);
        }
        or_null(Self::array(values, inner))
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        walk::equal(&self.value, &other.value).unwrap_or(false)
    }
}

impl Eq for Counted {}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        walk::compare(&self.value, &other.value).unwrap_or(Ordering::Equal)
    }
}

/// Counts what copying an array or object costs, unless it can be changed in place.
pub(super) fn copied(value: &Value) -> std::result::Result<(), Stopped> {
    match value {
        Value::Arr(items) if Rc::strong_count(items) > 1 => {
            meter::steps(1 + items.len() / 8)?;
            meter::memory(items.len() * ENTRY)
        }
        Value::Obj(members) if Rc::strong_count(members) > 1 => {
            meter::steps(1 + members.len())?;
            meter::memory(members.len() * MEMBER)
        }
        _ => meter::steps(1),
    }
}

fn bits(number: &Num) -> u64 {
    match number {
        Num::BigInt(number) => number.bits(),
        _ => 64,
    }
}

/// Counts a calculation with two numbers, which may have very many digits.
fn calculated(left: &Num, right: &Num, operation: Math) -> std::result::Result<(), Stopped> {
    meter::steps(1)?;
    let (left, right) = match (left, right) {
        (Num::BigInt(_), _) | (_, Num::BigInt(_)) => (bits(left), bits(right)),
        _ => return Ok(()),
    };
    if operation == Math::Mul && left + right > BITS_MAX || left.max(right) >= BITS_MAX {
        return Err(meter::stop(Stopped::Number));
    }
    meter::steps((left / 64 * (right / 64) / 16) as usize)?;
    meter::memory((left + right) as usize / 8)
}

impl Add for Counted {
    type Output = Result;

    fn add(self, other: Self) -> Result {
        let depth = self.depth.max(other.depth);
        match (&self.value, &other.value) {
            (Value::Null, _) | (_, Value::Null) => meter::steps(1)?,
            (Value::Num(left), Value::Num(right)) => calculated(left, right, Math::Add)?,
            (Value::TStr(left), Value::TStr(right)) | (Value::BStr(left), Value::BStr(right)) => {
                let in_place = left.is_unique();
                let copied = if in_place {
                    right.len() * 2
                } else {
                    left.len() + right.len()
                };
                bytes_seen(copied)?;
                meter::memory(copied + 64)?;
            }
            (Value::Arr(_), Value::Arr(right)) => {
                copied(&self.value)?;
                meter::steps(right.len())?;
                meter::memory(right.len() * ENTRY * 2)?;
            }
            (Value::Obj(_), Value::Obj(right)) => {
                copied(&self.value)?;
                meter::steps(right.len())?;
                meter::memory(right.len() * MEMBER)?;
            }
            _ => return Err(Error::math(self, Math::Add, other)),
        }
        match self.value + other.value {
            Ok(value) => Ok(Self::bounded(value, depth)),
            Err(_) => Err(Error::str("cannot add")),
        }
    }
}

impl Sub for Counted {
    type Output = Result;

    fn sub(self, other: Self) -> Result {
        match (self.value, other.value) {
            (Value::Num(left), Value::Num(right)) => {
                calculated(&left, &right, Math::Sub)?;
                Ok(Self::scalar(Value::Num(left - right)))
            }
            (Value::Arr(left), Value::Arr(right)) => {
                meter::memory(right.len() * 24 + left.len() * ENTRY)?;
                let order = super::sort::order(&right, walk::compare)?;
                let right: Vec<&Value> = order.iter().filter_map(|at| right.get(*at)).collect();
                let mut kept = Vec::new();
                for item in left.iter() {
                    if !has(&right, item)? {
                        kept.push(item.clone());
                    }
                }
                let value = Value::Arr(kept.into());
                Ok(Self::bounded(value, self.depth))
            }
            (left, right) => Err(Error::math(
                Self::bounded(left, self.depth),
                Math::Sub,
                Self::bounded(right, other.depth),
            )),
        }
    }
}

/// Whether sorted values have one that is equal.
fn has(sorted: &[&Value], wanted: &Value) -> std::result::Result<bool, Stopped> {
    let (mut low, mut high) = (0, sorted.len());
    while low < high {
        let middle = (low + high) / 2;
        let Some(value) = sorted.get(middle) else {
            break;
        };
        match walk::compare(value, wanted)? {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return Ok(true),
        }
    }
    Ok(false)
}

impl Mul for Counted {
    type Output = Result;

    fn mul(self, other: Self) -> Result {
        let depth = self.depth.max(other.depth);
        match (&self.value, &other.value) {
            (Value::Num(left), Value::Num(right)) => calculated(left, right, Math::Mul)?,
            (text @ (Value::TStr(_) | Value::BStr(_)), Value::Num(_)) => {
                return repeated(text, &other);
            }
            (Value::Num(_), text @ (Value::TStr(_) | Value::BStr(_))) => {
                return repeated(text, &self);
            }
            (Value::Obj(_), Value::Obj(_)) => return merge(self, other, depth),
            _ => {}
        }
        let copies = (self.clone(), other.clone());
        match self.value * other.value {
            Ok(value) => Ok(Self::bounded(value, depth)),
            Err(_) => Err(Error::math(copies.0, Math::Mul, copies.1)),
        }
    }
}

/// A text so many times; what is behind the point does not count, and less than nothing is null.
fn repeated(text: &Value, times: &Counted) -> Result {
    let float = jaq_std::ValT::as_f64(times).unwrap_or(f64::NAN);
    if float.is_nan() || float < 0.0 {
        return Ok(Counted::scalar(Value::Null));
    }
    let times = float as usize;
    let bytes: &[u8] = string_bytes(text).map_or(&[], |it| it);
    let length = bytes.len().saturating_mul(times);
    meter::memory(length.saturating_add(64))?;
    bytes_seen(length)?;
    let bytes = bytes.repeat(times);
    Ok(Counted::scalar(match text {
        Value::TStr(_) => Value::utf8_str(bytes),
        _ => Value::byte_str(bytes),
    }))
}

fn merge(left: Counted, right: Counted, depth: u32) -> Result {
    let (Value::Obj(mut left), Value::Obj(right)) = (left.value, right.value) else {
        return Err(Error::str("cannot merge"));
    };
    merge_objects(&mut left, &right)?;
    Ok(Counted::bounded(Value::Obj(left), depth))
}

fn merge_objects(left: &mut Rc<Map>, right: &Map) -> std::result::Result<(), Stopped> {
    meter::steps(1 + right.len())?;
    meter::memory(right.len() * MEMBER)?;
    if Rc::strong_count(left) > 1 {
        meter::steps(left.len())?;
        meter::memory(left.len() * MEMBER)?;
    }
    let left = Rc::make_mut(left);
    for (key, right) in right {
        match (left.get_mut(key), right) {
            (Some(Value::Obj(left)), Value::Obj(right)) => merge_objects(left, right)?,
            (Some(left), right) => *left = right.clone(),
            (None, right) => {
                left.insert(key.clone(), right.clone());
            }
        }
    }
    Ok(())
}

impl Div for Counted {
    type Output = Result;

    fn div(self, other: Self) -> Result {
        match (&self.value, &other.value) {
            (Value::Num(_), Value::Num(right)) if *right == Num::Int(0) => {
                return Err(no_divisor(&self, &other, ""));
            }
            (Value::Num(left), Value::Num(right)) => calculated(left, right, Math::Div)?,
            (Value::TStr(left), Value::TStr(right)) | (Value::BStr(left), Value::BStr(right)) => {
                bytes_seen(left.len())?;
                let pieces = match right.len() {
                    0 => left.len(),
                    _ => 1 + memchr::memmem::find_iter(left, &right[..]).count(),
                };
                meter::steps(pieces)?;
                meter::memory(pieces * 64)?;
            }
            _ => return Err(Error::math(self, Math::Div, other)),
        }
        match self.value / other.value {
            Ok(value) => Ok(Self::bounded(value, 1)),
            Err(_) => Err(Error::str("cannot divide")),
        }
    }
}

impl Rem for Counted {
    type Output = Result;

    fn rem(self, other: Self) -> Result {
        let (Value::Num(left), Value::Num(right)) = (&self.value, &other.value) else {
            return Err(Error::math(self, Math::Rem, other));
        };
        calculated(left, right, Math::Rem)?;
        let whole = |number: &Num| matches!(number, Num::Int(_) | Num::BigInt(_));
        if whole(left) && whole(right) {
            if *right == Num::Int(0) {
                return Err(no_divisor(&self, &other, " (remainder)"));
            }
            let value = Value::Num(left.clone()) % Value::Num(right.clone());
            return value
                .map(Self::scalar)
                .map_err(|_| Error::str("cannot divide"));
        }
        let float = |it: &Self| jaq_std::ValT::as_f64(it).unwrap_or(f64::NAN);
        let (dividend, divisor) = (float(&self), float(&other));
        if dividend.is_nan() || divisor.is_nan() {
            return Ok(Self::from(f64::NAN));
        }
        // As in jq, both lose what is behind the point.
        match (dividend as i64).checked_rem(divisor as i64) {
            Some(rest) => Ok(Self::from(rest as isize)),
            None if divisor as i64 == -1 => Ok(Self::from(0_usize)),
            None => Err(no_divisor(&self, &other, " (remainder)")),
        }
    }
}

/// In the words of jq; `what` says of which operation.
fn no_divisor(left: &Counted, right: &Counted, what: &str) -> Error {
    Error::str(format_args!(
        "number ({left}) and number ({right}) cannot be divided{what} because the divisor is zero"
    ))
}

impl Neg for Counted {
    type Output = Result;

    fn neg(self) -> Result {
        meter::steps(1)?;
        match self.value {
            Value::Num(number) => {
                meter::memory(bits(&number) as usize / 8)?;
                Ok(Self::scalar(Value::Num(-number)))
            }
            value => Err(Self::bounded(value, self.depth).typ("number")),
        }
    }
}
