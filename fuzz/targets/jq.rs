//! Expressions and templates of any text over any JSON: they end within their limits, and the two
//! ways to evaluate agree.
#![no_main]

use bytes::Bytes;
use expr::{Expression, Limits, Scope, Template, Value, Variables, json};
use libfuzzer_sys::fuzz_target;

struct World;

impl Scope for World {
    fn slot(&self, name: &str) -> Option<usize> {
        (name == "in").then_some(0)
    }

    fn names(&self) -> Vec<String> {
        vec!["in".to_owned()]
    }
}

impl Variables for World {
    fn get(&self, _: usize) -> Value {
        expr::value::integer(1)
    }

    fn now(&self) -> f64 {
        1.5
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (code, input) = text.split_once('\n').unwrap_or((text, "null"));
    let input = json::parse(&Bytes::copy_from_slice(input.as_bytes()), 128).unwrap_or_default();
    let limits = Limits {
        steps: 20_000,
        memory: 1 << 22,
        depth: 64,
        until: None,
        at_once: false,
    };
    if let Ok(expression) = Expression::compile(code, &World) {
        let result = expression.evaluate(&input, &World, &limits);
        if let Ok(value) = &result {
            let _ = json::write(value, 1 << 20, &mut Vec::new());
        }
        let _ = expression.evaluate_slow(&input, &World, &limits);
    }
    if let Ok(template) = Template::compile(code, &World) {
        let _ = template.evaluate(&input, &World, &limits);
    }
});
