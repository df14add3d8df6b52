//! Evaluates the tree.

use std::borrow::Cow;

use jaq_json::Map;

use super::{Context, Fast, Outcome, Piece, Step, Stop, Stream};
use crate::jq::counted::{Counted, Error, MEMBER};
use crate::jq::counted_paths::lookup;
use crate::jq::error::{EvalError, EvalErrorKind, path_part};
use crate::jq::meter::{self, Stopped};
use crate::jq::natives::has;
use crate::jq::{engine, walk};
use crate::value::{self, Value, shown};

impl From<Stopped> for Stop {
    #[cold]
    fn from(stopped: Stopped) -> Self {
        Self::Fail(EvalError::new(EvalErrorKind::Budget, stopped.message()))
    }
}

impl From<Error> for Stop {
    #[cold]
    fn from(error: Error) -> Self {
        Self::Fail(engine::failure_of(error))
    }
}

fn owned<'i>(value: Value) -> Outcome<'i> {
    Ok(Cow::Owned(value))
}

fn boolean<'i>(truth: bool) -> Outcome<'i> {
    owned(Value::Bool(truth))
}

/// Two results of which each is needed: that one is missing counts more than that one failed, as
/// jaq combines each left one with each right one.
fn both<'i>(
    left: Outcome<'i>,
    right: impl FnOnce() -> Outcome<'i>,
) -> Result<(Cow<'i, Value>, Cow<'i, Value>), Stop> {
    if matches!(left, Err(Stop::Empty)) {
        return Err(Stop::Empty);
    }
    match right() {
        Err(Stop::Empty) => Err(Stop::Empty),
        right => Ok((left?, right?)),
    }
}

impl Fast {
    pub fn run<'i>(&'i self, input: &'i Value, context: &'i Context<'i>) -> Outcome<'i> {
        meter::steps(1)?;
        match self {
            Self::Input => Ok(Cow::Borrowed(input)),
            Self::Constant(value) => Ok(Cow::Borrowed(value)),
            Self::Variable(place) => Ok(Cow::Borrowed(context.variable(*place))),
            Self::Path(head, steps) => path(head, steps, input, context),
            Self::Text(pieces) => text(pieces, input, context),
            Self::Object(members) => object(members, input, context),
            Self::Array(stream) => array(stream, input, context),
            Self::Math(left, operator, right) => {
                let left = left.run(input, context);
                let (left, right) = both(left, || right.run(input, context))?;
                let (left, right) = (counted(left), counted(right));
                let result: Result<Counted, Error> = operator.run(left, right);
                owned(result?.value)
            }
            Self::Compare(left, operator, right) => {
                let left = left.run(input, context);
                let (left, right) = both(left, || right.run(input, context))?;
                compare(&left, *operator, &right)
            }
            Self::And(left, right) => logic(left, right, false, input, context),
            Self::Or(left, right) => logic(left, right, true, input, context),
            Self::Alternative(left, right) => match left.run(input, context) {
                Ok(found) if value::is_truthy(&found) => Ok(found),
                Ok(_) | Err(Stop::Empty) => right.run(input, context),
                failed => failed,
            },
            Self::If(branches, last) => {
                for (condition, then) in branches {
                    if value::is_truthy(&*condition.run(input, context)?) {
                        return then.run(input, context);
                    }
                }
                last.run(input, context)
            }
            Self::Pipe(left, right) => match left.run(input, context)? {
                Cow::Borrowed(value) => right.run(value, context),
                Cow::Owned(value) => owned(right.run(&value, context)?.into_owned()),
            },
            Self::Select(condition) => match value::is_truthy(&*condition.run(input, context)?) {
                true => Ok(Cow::Borrowed(input)),
                false => Err(Stop::Empty),
            },
            Self::Try(tried) => tried.run(input, context).map_err(|_| Stop::Empty),
            Self::Not => boolean(!value::is_truthy(input)),
            Self::Empty => Err(Stop::Empty),
            Self::Now => owned(value::float(context.variables.now())),
            Self::Neg(inner) => owned((-counted(inner.run(input, context)?))?.value),
            Self::Call(function) => owned(function(Counted::outside(input.clone()))?.value),
            Self::Call1(function, argument) => {
                let argument = argument.run(input, context)?;
                owned(function(input, &argument)?.value)
            }
            Self::Has(key) => {
                let key = counted(key.run(input, context)?);
                boolean(has(&Counted::outside(input.clone()), &key)?)
            }
            Self::Join(separator) => {
                let separator = separator.run(input, context)?;
                join(input, &separator)
            }
        }
    }
}

fn counted(value: Cow<'_, Value>) -> Counted {
    Counted::outside(value.into_owned())
}

impl Context<'_> {
    fn variable(&self, place: usize) -> &Value {
        static NULL: Value = Value::Null;
        match (self.cells.get(place), self.slots.get(place)) {
            (Some(cell), Some(slot)) => cell.get_or_init(|| self.variables.get(*slot)),
            _ => &NULL,
        }
    }

    /// A member of a variable that has not been made as a whole.
    fn member(&self, place: usize, key: &Value) -> Option<Value> {
        let (cell, slot) = (self.cells.get(place)?, self.slots.get(place)?);
        if cell.get().is_some() {
            return None;
        }
        self.variables.member(*slot, value::as_text(key)?)
    }
}

fn compare<'i>(left: &Value, operator: jaq_core::ops::Cmp, right: &Value) -> Outcome<'i> {
    use jaq_core::ops::Cmp;
    boolean(match operator {
        Cmp::Eq => walk::equal(left, right)?,
        Cmp::Ne => !walk::equal(left, right)?,
        Cmp::Lt => walk::compare(left, right)?.is_lt(),
        Cmp::Le => walk::compare(left, right)?.is_le(),
        Cmp::Gt => walk::compare(left, right)?.is_gt(),
        Cmp::Ge => walk::compare(left, right)?.is_ge(),
    })
}

fn logic<'i>(
    left: &'i Fast,
    right: &'i Fast,
    stop: bool,
    input: &'i Value,
    context: &'i Context<'i>,
) -> Outcome<'i> {
    if value::is_truthy(&*left.run(input, context)?) == stop {
        return boolean(stop);
    }
    boolean(value::is_truthy(&*right.run(input, context)?))
}

static NULL: Value = Value::Null;

/// Up to so many names are compared one by one, which is cheaper than to hash the wanted one.
const COMPARED_MAX: usize = 8;

/// The member of this name, which is given as a value and as its bytes.
fn member<'i>(members: &'i Map, key: &Value, name: &[u8]) -> Option<&'i Value> {
    if members.len() > COMPARED_MAX {
        return members.get(key);
    }
    // Text and bytes are equal as names, too.
    let is_wanted = |it: &Value| matches!(it, Value::TStr(it) | Value::BStr(it) if **it == *name);
    members
        .iter()
        .find(|(it, _)| is_wanted(it))
        .map(|(_, value)| value)
}

/// One part of a path, by reference; none when the value has no such parts.
fn found<'i>(whole: &'i Value, key: &Value) -> Option<&'i Value> {
    Some(match (whole, key) {
        (Value::Obj(members), Value::TStr(name)) => member(members, key, name).unwrap_or(&NULL),
        (Value::Null, _) => &NULL,
        (Value::Arr(items), Value::Num(jaq_json::Num::Int(at))) => {
            let at = match usize::try_from(*at) {
                Ok(at) => Some(at),
                Err(_) => items.len().checked_sub(at.unsigned_abs()),
            };
            at.and_then(|at| items.get(at)).unwrap_or(&NULL)
        }
        _ => return None,
    })
}

fn path<'i>(
    head: &'i Fast,
    steps: &'i [Step],
    input: &'i Value,
    context: &'i Context<'i>,
) -> Outcome<'i> {
    if let (Fast::Variable(place), [first, rest @ ..]) = (head, steps)
        && let Some(member) = context.member(*place, &first.key)
    {
        let failed = |step: &Step, value: &Value| index_error(head, steps, step, value);
        return owned(steps_from(&member, rest, failed)?.into_owned());
    }
    let failed = |step: &Step, value: &Value| index_error(head, steps, step, value);
    match head.run(input, context)? {
        Cow::Borrowed(whole) => steps_from(whole, steps, failed),
        Cow::Owned(whole) => owned(steps_from(&whole, steps, failed)?.into_owned()),
    }
}

fn steps_from<'i>(
    whole: &'i Value,
    steps: &'i [Step],
    failed: impl Fn(&Step, &Value) -> Stop,
) -> Outcome<'i> {
    let mut at = whole;
    for (number, step) in steps.iter().enumerate() {
        match found(at, &step.key) {
            Some(value) => at = value,
            None => {
                // Bytes and very large indices are rare.
                let key = Counted::scalar(step.key.clone());
                let value = match lookup(&Counted::outside(at.clone()), &key) {
                    Ok(found) => found.map_or(Value::Null, |it| it.value),
                    Err(_) if step.is_optional => return Err(Stop::Empty),
                    Err(_) => return Err(failed(step, at)),
                };
                let rest = steps.get(number + 1..).unwrap_or_default();
                return owned(steps_from(&value, rest, failed)?.into_owned());
            }
        }
    }
    Ok(Cow::Borrowed(at))
}

#[cold]
fn index_error(head: &Fast, steps: &[Step], failed: &Step, value: &Value) -> Stop {
    let mut part = match head {
        Fast::Input => ".".to_owned(),
        Fast::Variable(_) => "$".to_owned(),
        _ => "(..)".to_owned(),
    };
    for step in steps {
        match &step.key {
            Value::TStr(name) => {
                let name = path_part(name);
                let name = if part == "." {
                    name.trim_start_matches('.')
                } else {
                    &name
                };
                part.push_str(name);
            }
            key => part.push_str(&format!("[{}]", shown(key))),
        }
        if std::ptr::eq(step, failed) {
            break;
        }
    }
    let (kind, key, shown) = (value::kind(value), shown(&failed.key), shown(value));
    let message = format!("cannot index {kind} {shown} with {key}");
    let part = Some(part);
    Stop::Fail(EvalError {
        kind: EvalErrorKind::Type,
        message,
        part,
    })
}

fn push_text(value: &Value, out: &mut Vec<u8>) -> Result<(), Stopped> {
    match value {
        Value::TStr(text) | Value::BStr(text) => {
            meter::memory(text.len())?;
            out.extend_from_slice(text);
            Ok(())
        }
        value => walk::to_text(value, out),
    }
}

fn text<'i>(pieces: &'i [Piece], input: &'i Value, context: &'i Context<'i>) -> Outcome<'i> {
    let mut out = Vec::new();
    let mut failed = None;
    for piece in pieces {
        match piece {
            Piece::Plain(plain) => {
                meter::memory(plain.len())?;
                out.extend_from_slice(plain.as_bytes());
            }
            Piece::Hole(hole) => match hole.run(input, context) {
                Ok(value) => push_text(&value, &mut out)?,
                Err(Stop::Empty) => return Err(Stop::Empty),
                Err(stop) => failed = failed.or(Some(stop)),
            },
        }
    }
    match failed {
        Some(stop) => Err(stop),
        None => owned(Value::utf8_str(out)),
    }
}

fn object<'i>(
    members: &'i [(Fast, Fast)],
    input: &'i Value,
    context: &'i Context<'i>,
) -> Outcome<'i> {
    meter::memory(members.len() * MEMBER)?;
    let mut made = Map::with_capacity_and_hasher(members.len(), Default::default());
    let mut failed = None;
    for (key, member) in members {
        let key = key.run(input, context);
        match both(key, || member.run(input, context)) {
            Ok((key, member)) if matches!(*key, Value::TStr(_)) => {
                made.insert(key.into_owned(), member.into_owned());
            }
            Ok((key, _)) => {
                let shown = shown(&key);
                let message = format!("cannot use {shown} as the name of a member");
                let error = EvalError::new(EvalErrorKind::Type, message);
                failed = failed.or(Some(Stop::Fail(error)));
            }
            Err(Stop::Empty) => return Err(Stop::Empty),
            Err(stop) => failed = failed.or(Some(stop)),
        }
    }
    match failed {
        Some(stop) => Err(stop),
        None => owned(Value::obj(made)),
    }
}

fn array<'i>(stream: &'i Stream, input: &'i Value, context: &'i Context<'i>) -> Outcome<'i> {
    let mut items = Vec::new();
    stream.run(input, context, &mut |item| {
        meter::memory(32)?;
        items.push(item.into_owned());
        Ok(())
    })?;
    owned(Value::Arr(items.into()))
}

type Accept<'f> = dyn FnMut(Cow<'_, Value>) -> Result<(), Stop> + 'f;

impl Stream {
    fn run<'i>(
        &'i self,
        input: &'i Value,
        context: &'i Context<'i>,
        accept: &mut Accept<'_>,
    ) -> Result<(), Stop> {
        meter::steps(1)?;
        match self {
            Self::Nothing => Ok(()),
            Self::One(one) => match one.run(input, context) {
                Ok(value) => accept(value),
                Err(Stop::Empty) => Ok(()),
                Err(stop) => Err(stop),
            },
            Self::Many(parts) => parts
                .iter()
                .try_for_each(|it| it.run(input, context, accept)),
            Self::Each => match input {
                Value::Arr(items) => items.iter().try_for_each(|it| accept(Cow::Borrowed(it))),
                Value::Obj(members) => {
                    let mut values = members.values();
                    values.try_for_each(|it| accept(Cow::Borrowed(it)))
                }
                other => {
                    let (kind, shown) = (value::kind(other), shown(other));
                    let message = format!("cannot iterate over {kind} {shown}");
                    Err(Stop::Fail(EvalError::new(EvalErrorKind::Type, message)))
                }
            },
            Self::Pipe(left, right) => left.run(input, context, &mut |item| {
                meter::steps(1)?;
                right.run(&item, context, accept)
            }),
        }
    }
}

/// `join` with a text: scalars as texts, and null as none.
fn join<'i>(input: &Value, separator: &Value) -> Outcome<'i> {
    let mut out = Vec::new();
    let mut parts: Box<dyn Iterator<Item = &Value>> = match input {
        Value::Arr(items) => Box::new(items.iter()),
        Value::Obj(members) => Box::new(members.values()),
        _ => {
            let (kind, shown) = (value::kind(input), shown(input));
            let message = format!("cannot join {kind} {shown}");
            return Err(Stop::Fail(EvalError::new(EvalErrorKind::Type, message)));
        }
    };
    if let Some(first) = parts.next() {
        push_part(first, &mut out)?;
    }
    for part in parts {
        meter::steps(1)?;
        push_text(separator, &mut out)?;
        push_part(part, &mut out)?;
    }
    owned(Value::utf8_str(out))
}

fn push_part(part: &Value, out: &mut Vec<u8>) -> Result<(), Stop> {
    match part {
        Value::Null => Ok(()),
        Value::Arr(_) | Value::Obj(_) => {
            let (kind, shown) = (value::kind(part), shown(part));
            let message = format!("cannot join {kind} {shown}");
            Err(Stop::Fail(EvalError::new(EvalErrorKind::Type, message)))
        }
        scalar => Ok(push_text(scalar, out)?),
    }
}
