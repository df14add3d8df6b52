//! Looking into values and changing parts of them. Follows `Val` of jaq-json (MIT, Michael
//! Färber).

use bytes::{Bytes, BytesMut};
use indexmap::map::Entry;
use jaq_core::box_iter::{BoxIter, box_once};
use jaq_core::path::Opt;
use jaq_core::val::{Range, ValX};
use jaq_core::{Exn, ValT};
use jaq_json::{Num, Rc};

use super::counted::{Counted, ENTRY, Error, MEMBER, Result, copied};
use super::meter;
use super::walk::{self, bytes_seen};
use crate::value::{self, Value};

const INTEGER: &str = "integer";
const ARRAY: &str = "array";
const STRING: &str = "string";
const ITERABLE: &str = "iterable (array or object)";
const RANGEABLE: &str = "rangeable (array or string)";

/// The entries of an array or members of an object, one at a time.
struct Inside {
    whole: Counted,
    at: usize,
    end: usize,
}

impl Inside {
    fn new(whole: Counted) -> Result<Self> {
        meter::steps(1)?;
        let end = match &whole.value {
            Value::Arr(items) => items.len(),
            Value::Obj(members) => members.len(),
            _ => return Err(whole.typ(ITERABLE)),
        };
        Ok(Self { whole, at: 0, end })
    }

    fn next_pair(&mut self) -> Option<Result<(Counted, Counted)>> {
        if self.at >= self.end {
            return None;
        }
        if let Err(stopped) = meter::steps(1) {
            self.at = self.end;
            return Some(Err(stopped.into()));
        }
        let at = self.at;
        self.at += 1;
        match &self.whole.value {
            Value::Arr(items) => {
                let item = self.whole.inner(items.get(at)?.clone());
                Some(Ok((Counted::from(at), item)))
            }
            Value::Obj(members) => {
                let (key, member) = members.get_index(at)?;
                let member = self.whole.inner(member.clone());
                Some(Ok((Counted::scalar(key.clone()), member)))
            }
            _ => None,
        }
    }
}

struct Pairs(Inside);

impl Iterator for Pairs {
    type Item = Result<(Counted, Counted)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next_pair()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.end - self.0.at;
        (left, Some(left))
    }
}

struct Values(Inside);

impl Iterator for Values {
    type Item = Result;

    fn next(&mut self) -> Option<Result> {
        self.0.next_pair().map(|pair| pair.map(|(_, value)| value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.end - self.0.at;
        (left, Some(left))
    }
}

/// An integer as an index: from the start, or from the end.
#[derive(Clone, Copy)]
enum Position {
    Start(usize),
    End(usize),
}

impl Position {
    fn of(index: &Value) -> Option<Self> {
        let number = match index {
            Value::Num(number @ (Num::Int(_) | Num::BigInt(_))) => number,
            Value::Num(_) => return Self::of_float(index),
            _ => return None,
        };
        Some(match number.as_isize() {
            Some(number) => match usize::try_from(number) {
                Ok(number) => Self::Start(number),
                Err(_) => Self::End(number.unsigned_abs()),
            },
            None if number < &Num::Int(0) => Self::End(usize::MAX),
            None => Self::Start(usize::MAX),
        })
    }

    /// What is behind the point does not count.
    fn of_float(index: &Value) -> Option<Self> {
        let float = jaq_std::ValT::as_f64(index)?.trunc();
        match float {
            0.0.. => Some(Self::Start(float as usize)),
            ..0.0 => Some(Self::End(-float as usize)),
            _ => None,
        }
    }

    /// The index into that many entries.
    fn within(self, length: usize) -> Option<usize> {
        let at = match self {
            Self::Start(at) => at,
            Self::End(back) => length.checked_sub(back)?,
        };
        (at < length).then_some(at)
    }

    /// The same as a bound of a slice.
    fn bound(self, length: usize) -> usize {
        match self {
            Self::Start(at) => at.min(length),
            Self::End(back) => length.saturating_sub(back),
        }
    }
}

/// A bound of a slice that is not whole; that which is no number is none.
fn rounded(bound: Option<&Value>, round: fn(f64) -> f64) -> Option<Value> {
    let Some(bound @ Value::Num(Num::Float(_) | Num::Dec(_))) = bound else {
        return None;
    };
    let float = round(jaq_std::ValT::as_f64(bound)?);
    Some(match float.is_nan() {
        true => Value::Null,
        false => value::float(float),
    })
}

/// Where a slice begins, and how long it is.
fn slice(value: &Value, range: &Range<&Value>) -> Result<(usize, usize)> {
    let position = |bound: Option<&Value>| match bound {
        None | Some(Value::Null) => Ok(None),
        Some(bound) => match Position::of(bound) {
            Some(position) => Ok(Some(position)),
            None => Err(Counted::outside(bound.clone()).typ(INTEGER)),
        },
    };
    // A bound within an entry takes it in.
    let (start, end) = (
        rounded(range.start, f64::floor),
        rounded(range.end, f64::ceil),
    );
    let start = position(start.as_ref().or(range.start))?;
    let end = position(end.as_ref().or(range.end))?;
    let bounds = |length: usize| {
        let start = start.map_or(0, |it| it.bound(length));
        let end = end.map_or(length, |it| it.bound(length));
        (start, end.saturating_sub(start))
    };
    Ok(match value {
        Value::Arr(items) => bounds(items.len()),
        Value::BStr(bytes) => bounds(bytes.len()),
        Value::TStr(text) => {
            bytes_seen(text.len())?;
            let length = walk::length_in_characters(text);
            let (start, count) = bounds(length);
            let start_bytes = byte_offset(text, start);
            let rest = text.get(start_bytes..).unwrap_or_default();
            (start_bytes, byte_offset(rest, count))
        }
        _ => (0, 0),
    })
}

/// Which entries of an array an index or a slice means.
pub(super) fn span(items: &Value, index: &Value) -> Result<std::ops::Range<usize>> {
    let length = match items {
        Value::Arr(items) => items.len(),
        _ => 0,
    };
    match index {
        Value::Obj(bounds) => {
            let bound = |name: &str| bounds.get(&value::text(name));
            let (start, count) = slice(items, &(bound("start")..bound("end")))?;
            Ok(start..start + count)
        }
        index => match Position::of(index) {
            Some(position) => Ok(position.within(length).map_or(0..0, |at| at..at + 1)),
            None if matches!(index, Value::Num(_)) => Ok(0..0),
            None => Err(Counted::outside(index.clone()).typ(INTEGER)),
        },
    }
}

/// How many bytes a number of characters has.
fn byte_offset(text: &[u8], characters: usize) -> usize {
    let mut left = characters;
    let mut at = 0;
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if left == 0 {
                return at;
            }
            left -= 1;
            at += character.len_utf8();
        }
        if left == 0 {
            return at;
        }
        if !chunk.invalid().is_empty() {
            left -= 1;
            at += chunk.invalid().len();
        }
    }
    at
}

/// `.[index]`; none where there is nothing.
pub(super) fn lookup(whole: &Counted, index: &Counted) -> Result<Option<Counted>> {
    meter::steps(1)?;
    Ok(match (&whole.value, &index.value) {
        (Value::Null, _) => None,
        (Value::Obj(members), key @ (Value::TStr(_) | Value::BStr(_))) => {
            members.get(key).map(|it| whole.inner(it.clone()))
        }
        (Value::Arr(items), position @ Value::Num(_)) => {
            let at = Position::of(position).and_then(|it| it.within(items.len()));
            at.and_then(|at| items.get(at))
                .map(|it| whole.inner(it.clone()))
        }
        (Value::BStr(bytes), position @ Value::Num(_)) if Position::of(position).is_some() => {
            let at = Position::of(position).and_then(|it| it.within(bytes.len()));
            at.and_then(|at| bytes.get(at))
                .map(|it| Counted::from(usize::from(*it)))
        }
        (Value::Arr(_), Value::Arr(part)) => {
            let found = walk::indices(&whole.value, &Value::Arr(part.clone()))?;
            Some(
                found
                    .unwrap_or_default()
                    .into_iter()
                    .map(Counted::from)
                    .collect(),
            )
        }
        (Value::BStr(_) | Value::TStr(_) | Value::Arr(_), Value::Obj(bounds)) => {
            let bound = |name: &str| bounds.get(&value::text(name));
            Some(sliced(whole.clone(), bound("start")..bound("end"))?)
        }
        _ => return Err(Error::index(whole.clone(), index.clone())),
    })
}

fn sliced(whole: Counted, range: Range<&Value>) -> Result {
    meter::steps(1)?;
    let depth = whole.depth;
    let value = match &whole.value {
        Value::Null => Value::Null,
        Value::Arr(items) => {
            let (start, count) = slice(&whole.value, &range)?;
            meter::steps(count / 8)?;
            meter::memory(count * ENTRY)?;
            let items = items.get(start..start + count).unwrap_or_default();
            Value::Arr(items.to_vec().into())
        }
        Value::TStr(text) => {
            let (start, count) = slice(&whole.value, &range)?;
            Value::utf8_str(text.slice(start..start + count))
        }
        Value::BStr(bytes) => {
            let (start, count) = slice(&whole.value, &range)?;
            Value::byte_str(bytes.slice(start..start + count))
        }
        _ => return Err(whole.typ(RANGEABLE)),
    };
    Ok(Counted::bounded(value, depth))
}

fn key_error(key: Counted) -> Error {
    Error::typ(key, "text, which the name of a member is")
}

/// A name of a member.
fn member_name(key: Counted) -> Result<Value> {
    match key.value {
        Value::TStr(_) => Ok(key.value),
        _ => Err(key_error(key)),
    }
}

impl ValT for Counted {
    fn from_num(text: &str) -> Result {
        meter::steps(1)?;
        Ok(Self::scalar(value::number(text)))
    }

    fn from_map<I: IntoIterator<Item = (Self, Self)>>(pairs: I) -> Result {
        let mut members = jaq_json::Map::default();
        let mut inner = 0;
        for (key, member) in pairs {
            meter::steps(1)?;
            meter::memory(MEMBER)?;
            inner = inner.max(member.depth);
            members.insert(member_name(key)?, member.value);
        }
        Ok(Self::nested(Value::obj(members), inner)?)
    }

    fn key_values(self) -> BoxIter<'static, Result<(Self, Self)>> {
        match Inside::new(self) {
            Ok(inside) => Box::new(Pairs(inside)),
            Err(error) => box_once(Err(error)),
        }
    }

    fn values(self) -> Box<dyn Iterator<Item = Result>> {
        match Inside::new(self) {
            Ok(inside) => Box::new(Values(inside)),
            Err(error) => box_once(Err(error)),
        }
    }

    fn index(self, index: &Self) -> Result {
        Ok(lookup(&self, index)?.unwrap_or(Self::scalar(Value::Null)))
    }

    fn range(self, range: Range<&Self>) -> Result {
        sliced(
            self,
            range.start.map(|it| &it.value)..range.end.map(|it| &it.value),
        )
    }

    fn map_values<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        meter::steps(1).map_err(Error::from)?;
        let inner_depth = self.depth.saturating_sub(1);
        let mut inner = 0;
        match self.value {
            Value::Arr(items) => {
                let mut mapped = Vec::with_capacity(0);
                for item in items.iter() {
                    for result in f(Self::bounded(item.clone(), inner_depth)) {
                        let result = result?;
                        meter::steps(1).map_err(Error::from)?;
                        meter::memory(ENTRY * 2).map_err(Error::from)?;
                        inner = inner.max(result.depth);
                        mapped.push(result.value);
                    }
                }
                Ok(Self::array(mapped, inner).map_err(Error::from)?)
            }
            Value::Obj(members) => {
                let mut mapped = jaq_json::Map::default();
                for (key, member) in members.iter() {
                    meter::steps(1).map_err(Error::from)?;
                    meter::memory(MEMBER).map_err(Error::from)?;
                    let first = f(Self::bounded(member.clone(), inner_depth)).next();
                    if let Some(result) = first.transpose()? {
                        inner = inner.max(result.depth);
                        mapped.insert(key.clone(), result.value);
                    }
                }
                Ok(Self::nested(Value::obj(mapped), inner).map_err(Error::from)?)
            }
            value => {
                let whole = Self::bounded(value, self.depth);
                opt.fail(whole, |it| Exn::from(it.typ(ITERABLE)))
            }
        }
    }

    fn map_index<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        index: &Self,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        meter::steps(1).map_err(Error::from)?;
        let is_range = matches!(
            self.value,
            Value::BStr(_) | Value::TStr(_) | Value::Arr(_) | Value::Null
        );
        if let (true, Value::Obj(bounds)) = (is_range, &index.value) {
            let bound = |name: &str| {
                let bound = bounds.get(&value::text(name));
                bound.map(|it| Self::outside(it.clone()))
            };
            let (start, end) = (bound("start"), bound("end"));
            return self.map_range(start.as_ref()..end.as_ref(), opt, f);
        }
        match &self.value {
            Value::Obj(_) => map_member(self, index, f),
            // As in jq, and not as in jaq: what is not there yet is made.
            Value::Null if matches!(index.value, Value::TStr(_)) => {
                let empty = Self::scalar(value::object([]));
                let made = map_member(empty, index, f)?;
                Ok(match &made.value {
                    Value::Obj(members) if members.is_empty() => Self::scalar(Value::Null),
                    _ => made,
                })
            }
            Value::Null if matches!(index.value, Value::Num(_)) => {
                let made = map_entry(Self::scalar(value::array([])), index, opt, f)?;
                Ok(match &made.value {
                    Value::Arr(items) if items.is_empty() => Self::scalar(Value::Null),
                    _ => made,
                })
            }
            Value::Arr(_) => map_entry(self, index, opt, f),
            _ => opt.fail(self, |it| Exn::from(it.typ(ITERABLE))),
        }
    }

    fn map_range<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        range: Range<&Self>,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        let values = range.start.map(|it| &it.value)..range.end.map(|it| &it.value);
        if matches!(self.value, Value::Null) {
            return match f(self).next().transpose()? {
                Some(new) if !matches!(new.value, Value::Arr(_)) => Err(new.typ(ARRAY).into()),
                new => Ok(new.unwrap_or(Self::scalar(Value::Null))),
            };
        }
        if !matches!(self.value, Value::Arr(_) | Value::TStr(_) | Value::BStr(_)) {
            return opt.fail(self, |it| Exn::from(it.typ(ARRAY)));
        }
        let (start, count) = match slice(&self.value, &values) {
            Ok(found) => found,
            Err(error) => return opt.fail(self, |_| Exn::from(error)),
        };
        let part = sliced(self.clone(), values)?;
        let new = f(part).next().transpose()?;
        let end = start + count;
        let spliced = splice(self, start..end, new).map_err(Exn::from)?;
        Ok(spliced)
    }

    fn as_bool(&self) -> bool {
        value::is_truthy(&self.value)
    }

    fn into_string(self) -> Self {
        self.into_text().unwrap_or(Self::scalar(Value::Null))
    }
}

/// Puts something in the place of a slice; nothing takes it out.
fn splice(whole: Counted, range: std::ops::Range<usize>, new: Option<Counted>) -> Result {
    let depth = whole.depth.max(new.as_ref().map_or(0, |it| it.depth));
    copied(&whole.value)?;
    let value = match (whole.value, new.map(|it| it.value)) {
        (Value::Arr(mut items), new) => {
            let new = match new {
                None => Rc::default(),
                Some(Value::Arr(new)) => new,
                Some(other) => return Err(Counted::outside(other).typ(ARRAY)),
            };
            meter::steps((items.len() + new.len()) / 8)?;
            meter::memory(new.len() * ENTRY)?;
            Rc::make_mut(&mut items).splice(range, new.iter().cloned());
            Value::Arr(items)
        }
        (Value::TStr(text), None) => Value::utf8_str(spliced(&text, range, &[])?),
        (Value::TStr(text), Some(Value::TStr(new))) => {
            Value::utf8_str(spliced(&text, range, &new)?)
        }
        (Value::BStr(text), None) => Value::byte_str(spliced(&text, range, &[])?),
        (Value::BStr(text), Some(Value::BStr(new))) => {
            Value::byte_str(spliced(&text, range, &new)?)
        }
        (_, other) => return Err(Counted::outside(other.unwrap_or_default()).typ(STRING)),
    };
    Ok(Counted::bounded(value, depth))
}

fn spliced(text: &Bytes, range: std::ops::Range<usize>, new: &[u8]) -> Result<Bytes> {
    let length = text.len() + new.len();
    bytes_seen(length)?;
    meter::memory(length)?;
    let mut out = BytesMut::with_capacity(length);
    out.extend_from_slice(text.get(..range.start).unwrap_or_default());
    out.extend_from_slice(new);
    out.extend_from_slice(text.get(range.end..).unwrap_or_default());
    Ok(out.freeze())
}

fn map_member<'a, I: Iterator<Item = ValX<'a, Counted>>>(
    whole: Counted,
    key: &Counted,
    f: impl Fn(Counted) -> I,
) -> ValX<'a, Counted> {
    copied(&whole.value).map_err(Error::from)?;
    let inner = whole.depth.saturating_sub(1);
    let Value::Obj(mut members) = whole.value else {
        return Ok(whole);
    };
    let name = member_name(key.clone())?;
    let mut depth = inner;
    match Rc::make_mut(&mut members).entry(name) {
        Entry::Occupied(mut entry) => {
            let old = std::mem::take(entry.get_mut());
            match f(Counted::bounded(old, inner)).next().transpose()? {
                Some(new) => {
                    depth = depth.max(new.depth);
                    entry.insert(new.value);
                }
                None => {
                    entry.swap_remove();
                }
            }
        }
        Entry::Vacant(entry) => {
            if let Some(new) = f(Counted::scalar(Value::Null)).next().transpose()? {
                meter::memory(MEMBER).map_err(Error::from)?;
                depth = depth.max(new.depth);
                entry.insert(new.value);
            }
        }
    }
    Ok(Counted::nested(Value::Obj(members), depth).map_err(Error::from)?)
}

fn map_entry<'a, I: Iterator<Item = ValX<'a, Counted>>>(
    whole: Counted,
    index: &Counted,
    opt: Opt,
    f: impl Fn(Counted) -> I,
) -> ValX<'a, Counted> {
    let length = whole.items()?.len();
    let Some(position) = Position::of(&index.value) else {
        return opt.fail(whole, |_| Exn::from(index.clone().typ(INTEGER)));
    };
    let at = match (position.within(length), position) {
        (Some(at), _) => at,
        (None, Position::Start(at)) => return append(whole, at, f),
        (None, Position::End(_)) => {
            return opt.fail(whole, |_| {
                Exn::from(Error::str("Out of bounds negative array index"))
            });
        }
    };
    copied(&whole.value).map_err(Error::from)?;
    let inner = whole.depth.saturating_sub(1);
    let Value::Arr(mut items) = whole.value else {
        return Ok(whole);
    };
    let mut depth = inner;
    let all = Rc::make_mut(&mut items);
    let old = all.get_mut(at).map(std::mem::take).unwrap_or_default();
    match f(Counted::bounded(old, inner)).next().transpose()? {
        Some(new) => {
            depth = depth.max(new.depth);
            if let Some(place) = all.get_mut(at) {
                *place = new.value;
            }
        }
        None => {
            meter::steps(length / 8).map_err(Error::from)?;
            all.remove(at);
        }
    }
    Ok(Counted::nested(Value::Arr(items), depth).map_err(Error::from)?)
}

/// Puts an entry behind the end of an array, and null into what lies between.
fn append<'a, I: Iterator<Item = ValX<'a, Counted>>>(
    whole: Counted,
    at: usize,
    f: impl Fn(Counted) -> I,
) -> ValX<'a, Counted> {
    let Some(new) = f(Counted::scalar(Value::Null)).next().transpose()? else {
        return Ok(whole);
    };
    let depth = whole.depth.saturating_sub(1).max(new.depth);
    copied(&whole.value).map_err(Error::from)?;
    let Value::Arr(mut items) = whole.value else {
        return Ok(whole);
    };
    let added = at.saturating_sub(items.len()).saturating_add(1);
    meter::memory(added.saturating_mul(ENTRY * 2)).map_err(Error::from)?;
    meter::steps(1 + added / 64).map_err(Error::from)?;
    let all = Rc::make_mut(&mut items);
    all.resize(at, Value::Null);
    all.push(new.value);
    Ok(Counted::nested(Value::Arr(items), depth).map_err(Error::from)?)
}

impl jaq_std::ValT for Counted {
    fn into_seq<S: FromIterator<Self>>(self) -> std::result::Result<S, Self> {
        let inner = self.depth.saturating_sub(1);
        match self.value {
            Value::Arr(items) => {
                let is_paid =
                    meter::steps(items.len()).is_ok() && meter::memory(items.len() * 24).is_ok();
                let count = if is_paid { items.len() } else { 0 };
                let items = items.iter().take(count);
                Ok(items.map(|it| Self::bounded(it.clone(), inner)).collect())
            }
            _ => Err(self),
        }
    }

    fn is_int(&self) -> bool {
        matches!(self.value, Value::Num(Num::Int(_) | Num::BigInt(_)))
    }

    fn as_isize(&self) -> Option<isize> {
        match &self.value {
            Value::Num(number) => number.as_isize(),
            _ => None,
        }
    }

    fn as_f64(&self) -> Option<f64> {
        jaq_std::ValT::as_f64(&self.value)
    }

    fn is_utf8_str(&self) -> bool {
        matches!(self.value, Value::TStr(_))
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        let bytes = walk::string_bytes(&self.value)?;
        // Whether the evaluation goes on is seen at the next step.
        let _ = bytes_seen(bytes.len());
        Some(bytes)
    }

    fn as_sub_str(&self, sub: &[u8]) -> Self {
        let _ = meter::memory(32);
        Self::scalar(match &self.value {
            Value::TStr(text) => Value::utf8_str(text.slice_ref(sub)),
            Value::BStr(bytes) => Value::byte_str(bytes.slice_ref(sub)),
            _ => Value::Null,
        })
    }

    fn from_utf8_bytes(bytes: impl AsRef<[u8]> + Send + 'static) -> Self {
        let _ = meter::memory(bytes.as_ref().len() + 32);
        Self::scalar(Value::utf8_str(Bytes::from_owner(bytes)))
    }
}
