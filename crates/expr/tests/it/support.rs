//! What tests of expressions share.

use bytes::Bytes;
use expr::{EvalError, Expression, Limits, Scope, Value, Variables, json};

/// Variables by their place: `$in`, `$headers` and `$n`.
pub struct World;

const NAMES: [&str; 3] = ["in", "headers", "n"];

impl Scope for World {
    fn slot(&self, name: &str) -> Option<usize> {
        NAMES.iter().position(|it| *it == name)
    }

    fn names(&self) -> Vec<String> {
        NAMES.iter().map(ToString::to_string).collect()
    }
}

impl Variables for World {
    fn get(&self, slot: usize) -> Value {
        match slot {
            0 => parsed(r#"{"path":"/a","list":[1,{"b":null}],"o":{"x":1.50}}"#),
            1 => parsed(r#"{"host":"h","accept":"*/*"}"#),
            _ => parsed("7"),
        }
    }

    fn now(&self) -> f64 {
        1_700_000_000.25
    }
}

pub fn parsed(text: &str) -> Value {
    match json::parse(&Bytes::copy_from_slice(text.as_bytes()), 512) {
        Ok(value) => value,
        Err(error) => panic!("{text}: {error}"),
    }
}

pub fn compiled(code: &str) -> Expression {
    match Expression::compile(code, &World) {
        Ok(expression) => expression,
        Err(errors) => panic!("{code}: {}", errors[0]),
    }
}

pub fn evaluated(code: &str, input: &Value, limits: &Limits) -> Result<Value, EvalError> {
    compiled(code).evaluate(input, &World, limits)
}

/// Asserts that the page of pass rates says this of a suite.
pub fn assert_published(suite: &str, pass: usize, all: usize) {
    const PAGE: &str = include_str!("../../../../docs/conformance.md");
    let row = format!("| {suite} | {pass} of {all} |");
    assert!(PAGE.contains(&row), "docs/conformance.md says not: {row}");
}
