//! Expressions of random tokens: none crashes, and the two ways to evaluate agree.

use expr::{EvalErrorKind, Expression, Limits, Template};
use fastrand::Rng;

use super::support::{World, parsed};

const TOKENS: &[&str] = &[
    ".",
    ".a",
    ".b",
    ".[0]",
    ".[]",
    ".[1:]",
    "..",
    "|",
    "|",
    ",",
    "+",
    "-",
    "*",
    "/",
    "%",
    "==",
    "<",
    "//",
    "and",
    "or",
    "not",
    "(",
    ")",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ":",
    "?",
    "1",
    "0",
    "-1",
    "1e3",
    "1e999",
    "\"x\"",
    "\"\\(",
    ")\"",
    "null",
    "true",
    "empty",
    "$n",
    "$in",
    ". as $x |",
    "$x",
    ". as [$x] |",
    "reduce .[] as $i (0;",
    "foreach",
    "if",
    "then",
    "else",
    "end",
    "try",
    "catch",
    "error",
    "def f:",
    "def g(h):",
    ";",
    "f",
    "g(.)",
    "h",
    "map(.)",
    "select(.)",
    "range(9)",
    "recurse",
    "limit(3;",
    "first(",
    "last(",
    "label $l |",
    "break $l",
    "path(..)",
    "=",
    "|=",
    "+=",
    "//=",
    "tojson",
    "fromjson",
    "tostring",
    "length",
    "keys",
    "sort",
    "group_by(.)",
    "add",
    "join(\"-\")",
    "test(\"a*\")",
    "gsub(\"\";\"y\")",
    "repeat(.)",
    "until(.;.)",
    "walk(.)",
    "to_entries",
    "implode",
    "explode",
    "splits(\"a\")",
    "ltrimstr(\"x\")",
    "@base64",
    "@sh",
    "@json",
    "todate",
    "infinite",
    "nan",
    "getpath([\"a\"])",
    "setpath([0];1)",
    "del(.[0])",
    "paths",
    "flatten",
    "tobytes",
    "ascii_downcase",
    "has(0)",
    "index(.)",
    "\"ab\" * 9",
];

#[test]
fn random_expressions_end_and_agree() {
    let inputs = [
        "null",
        "[1,[2,{\"a\":null}],\"x\"]",
        "{\"a\":{\"b\":[1,2]},\"b\":\"a\"}",
        "\"ab\"",
    ]
    .map(parsed);
    let limits = Limits {
        steps: 5_000,
        memory: 1 << 20,
        depth: 64,
        until: None,
        at_once: false,
    };
    let seed: u64 = match std::env::var("SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => 1,
    };
    let mut random = Rng::with_seed(seed);
    let mut compiled = 0;
    for _ in 0..30_000 {
        let length = random.u8(1..=9);
        let code: Vec<&str> = (0..length)
            .map(|_| TOKENS[random.usize(..TOKENS.len())])
            .collect();
        let code = code.join(" ");
        let _ = Template::compile(&format!("a${{{code}}}"), &World);
        let Ok(expression) = Expression::compile(&code, &World) else {
            continue;
        };
        compiled += 1;
        for input in &inputs {
            let quick = expression.evaluate(input, &World, &limits);
            let slow = expression.evaluate_slow(input, &World, &limits);
            let failures = [quick.as_ref().err(), slow.as_ref().err()];
            let mut kinds = failures.iter().flatten().map(|error| error.kind);
            if kinds.any(|kind| kind == EvalErrorKind::Budget) {
                continue;
            }
            let (quick, slow) = (
                quick.map(|it| it.to_string()),
                slow.map(|it| it.to_string()),
            );
            assert_eq!(
                quick.as_ref().ok(),
                slow.as_ref().ok(),
                "{code} of {input}: {quick:?} {slow:?}"
            );
        }
    }
    assert!(compiled > 1000, "{compiled}");
}
