//! The quick way to evaluate: expressions that give at most one result, as a tree of our own that
//! works on references. What it means is what jaq means; the tests compare the two.

mod build;
mod run;
mod shape;

use std::borrow::Cow;
use std::cell::OnceCell;

use jaq_core::ops::{Cmp, Math};

use super::Variables;
use super::counted::{Counted, Result as CountedResult};
use super::error::EvalError;
use crate::value::Value;

pub(super) use build::build;
pub(super) use shape::projection;

/// A node that gives one result, or none.
#[derive(Debug)]
pub(super) enum Fast {
    Input,
    Constant(Value),
    /// A variable, by its place among those that the expression uses.
    Variable(usize),
    Path(Box<Fast>, Vec<Step>),
    Text(Vec<Piece>),
    Object(Vec<(Fast, Fast)>),
    Array(Box<Stream>),
    Neg(Box<Fast>),
    Math(Box<Fast>, Math, Box<Fast>),
    Compare(Box<Fast>, Cmp, Box<Fast>),
    And(Box<Fast>, Box<Fast>),
    Or(Box<Fast>, Box<Fast>),
    Alternative(Box<Fast>, Box<Fast>),
    If(Vec<(Fast, Fast)>, Box<Fast>),
    Pipe(Box<Fast>, Box<Fast>),
    Select(Box<Fast>),
    Try(Box<Fast>),
    Not,
    Empty,
    Now,
    Call(fn(Counted) -> CountedResult),
    Call1(fn(&Value, &Value) -> CountedResult, Box<Fast>),
    Has(Box<Fast>),
    Join(Box<Fast>),
}

/// A node that gives any number of results.
#[derive(Debug)]
pub(super) enum Stream {
    Nothing,
    One(Fast),
    Many(Vec<Stream>),
    Each,
    Pipe(Box<Stream>, Box<Stream>),
}

/// One part of a path.
#[derive(Debug)]
pub(super) struct Step {
    key: Value,
    is_optional: bool,
}

#[derive(Debug)]
pub(super) enum Piece {
    Plain(String),
    Hole(Fast),
}

/// Why there is no result.
pub(super) enum Stop {
    /// There is none, which is no failure.
    Empty,
    Fail(EvalError),
}

type Outcome<'i> = Result<Cow<'i, Value>, Stop>;

/// What an evaluation works with.
pub(super) struct Context<'a> {
    pub variables: &'a dyn Variables,
    pub slots: &'a [usize],
    pub cells: &'a [OnceCell<Value>],
}

impl Fast {
    /// Whether a result may hold what JSON does not have although the input does not.
    pub fn makes_numbers(&self) -> bool {
        match self {
            Self::Input
            | Self::Constant(_)
            | Self::Variable(_)
            | Self::Text(_)
            | Self::Compare(..)
            | Self::And(..)
            | Self::Or(..)
            | Self::Not
            | Self::Empty
            | Self::Has(_) => false,
            Self::Path(head, _) | Self::Try(head) => head.makes_numbers(),
            Self::Object(members) => members.iter().any(|(_, value)| value.makes_numbers()),
            Self::Array(stream) => stream.makes_numbers(),
            Self::Alternative(left, right) => left.makes_numbers() || right.makes_numbers(),
            Self::Pipe(left, right) => left.makes_numbers() || right.makes_numbers(),
            Self::If(branches, last) => {
                last.makes_numbers() || branches.iter().any(|(_, then)| then.makes_numbers())
            }
            Self::Select(_) => false,
            Self::Neg(_) | Self::Math(..) | Self::Now => true,
            Self::Call(_) | Self::Call1(..) | Self::Join(_) => true,
        }
    }
}

impl Stream {
    fn makes_numbers(&self) -> bool {
        match self {
            Self::Nothing | Self::Each => false,
            Self::One(one) => one.makes_numbers(),
            Self::Many(parts) => parts.iter().any(Self::makes_numbers),
            Self::Pipe(left, right) => left.makes_numbers() || right.makes_numbers(),
        }
    }
}
