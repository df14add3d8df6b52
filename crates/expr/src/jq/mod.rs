//! Expressions: jq as in jaq 3, with limits and without what a server must not offer.

mod counted;
mod counted_paths;
mod engine;
mod error;
mod expression;
mod fast;
mod functions;
mod guard;
mod lower;
mod meter;
mod names;
mod natives;
mod pattern;
mod scan;
mod sort;
mod syntax;
mod walk;

pub(crate) use error::path_part;
pub use error::{CompileError, EvalError, EvalErrorKind};
pub use expression::Expression;
pub use functions::function_names;
pub use meter::{count_rounds, is_stopped, rounds, set_stack, stack, stoppable};
pub(crate) use scan::{Stop, scan};

use std::time::Instant;

use crate::value::Value;

/// What one evaluation may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most steps: calls, values made or looked at.
    pub steps: u64,
    /// The most bytes that are allocated, in all.
    pub memory: usize,
    /// The most levels of the result within each other; at most 512 count.
    pub depth: usize,
    /// When it has to end at the latest, if there is such a time. The clock is looked at every
    /// thousand steps or so; an evaluation with fewer never looks at it.
    pub until: Option<Instant>,
    /// Whether it is done at one go, on a thread on which others wait: it fails with
    /// [`EvalErrorKind::Unfinished`] when it takes more than a few milliseconds, and has to be
    /// begun anew where it holds nobody up. [`Limits::until`] does not count then.
    pub at_once: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 1_000_000,
            memory: 64 * 1024 * 1024,
            depth: 512,
            until: None,
            at_once: false,
        }
    }
}

/// The variables that an expression may use.
pub trait Scope {
    /// The slot of a variable, without its `$`; none when there is no such variable.
    fn slot(&self, name: &str) -> Option<usize>;
    /// The names of all variables, for hints.
    fn names(&self) -> Vec<String>;
    /// Notes that an expression which has been compiled uses the variable in this slot.
    fn note_use(&self, _slot: usize) {}
}

/// The values of variables during one evaluation.
pub trait Variables {
    /// The value of the variable in a slot that [`Scope::slot`] gave.
    fn get(&self, slot: usize) -> Value;
    /// `$variable.key` without making the whole variable; none when that has no shorter way than
    /// [`Variables::get`].
    fn member(&self, _slot: usize, _key: &str) -> Option<Value> {
        None
    }
    /// Seconds since 1970, for `now`.
    fn now(&self) -> f64;
}
