//! The quick way to evaluate against jaq: the same results, and failures where jaq fails.

use expr::{Limits, Value};

use super::support::{World, compiled, parsed};

const INPUTS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-7",
    "1.50",
    "1e3",
    "-0",
    "12345678901234567890123",
    "\"\"",
    "\"Text é😀\"",
    "\"12\"",
    "[]",
    "[1,2,3]",
    "[null,false,\"x\",[1],{\"a\":1}]",
    "[[1,2],[3]]",
    "[\"b\",\"a\",\"c\"]",
    "{}",
    "{\"a\":1}",
    "{\"a\":null,\"b\":[1,2]}",
    "{\"a\":{\"b\":{\"c\":\"deep\"}},\"x\":\"1\"}",
    "{\"a\":[{\"b\":1,\"c\":true},{\"b\":2},{\"b\":null}],\"b\":2,\"n\":10}",
    "{\"b\":\"é\",\"a\":\"A\",\"n\":-1.5,\"x y\":1e2}",
    "[{\"a\":1,\"b\":\"x\"},{\"a\":2,\"b\":\"y\"}]",
    "{\"n\":12345678901234567890,\"a\":0.1,\"b\":0.2}",
];

/// Expressions of one operand; each stands alone and within the others.
const ATOMS: &[&str] = &[
    ".",
    ".a",
    ".b",
    ".n",
    ".a.b",
    ".a.b.c",
    ".a?",
    ".a.b?",
    ".a?.b",
    ".[\"a\"]",
    ".\"x y\"",
    ".[\"x y\"]?",
    ".[0]",
    ".[-1]",
    ".[5]",
    ".[-9]",
    ".[0].a",
    ".a[0].b",
    ".a[0]?",
    ".[1]?",
    ".[1.5]",
    ".[99999999999999999999]",
    "$in",
    "$in.path",
    "$in.list[1].b",
    "$n",
    "$n.a?",
    "$in.o.x",
    "1",
    "-1",
    "0",
    "1.5",
    "1e3",
    "\"t\"",
    "\"\"",
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[1, 2]",
    "{a: 1}",
    "12345678901234567890",
    "empty",
    "now",
    "\"\\(.)\"",
    "\"a\\(.a)b\\(.b)\"",
    "\"\\u00e9\\n\\(1)\"",
    "not",
    "length",
    "keys",
    "keys_unsorted",
    "tostring",
    "tonumber",
    "tojson",
    "type",
    "ascii_downcase",
    "ascii_upcase",
    "first",
    "last",
    "add",
    "sort",
    "has(\"a\")",
    "has(0)",
    "join(\",\")",
    "join(\"\")",
    "map(.)",
    "map(.a)",
    "map(.a?)",
    "map(select(. != null))",
    "[.[]]",
    "[.[].a]",
    "[.[]?]",
    "[.a[]]",
    "[.a[].b]",
    "[.[][]]",
    "[.[] | select(.a)]",
    "[.[] , 1]",
    "[., .]",
    "[.a, .b]",
    "[empty]",
    "[1, empty, 2]",
    "{a}",
    "{a, b}",
    "{a: .b, b: .a}",
    "{\"x y\": .a}",
    "{$n}",
    "{a: .a.b}",
    "{(.b): 1}",
    "{(\"k\"): .a}",
    "{\"\\(.b)\": 1}",
    "{a: 1, a: 2}",
    "{a: empty}",
    "{a: .a.b.c, b: empty}",
    "select(.a)",
    "select(true)",
    "select(.a == 1)",
    "(.a)?",
    "try .a",
    "try error(\"x\")",
    "-.",
    "-.a",
    "-(.n)",
    "if . then 1 else 2 end",
    "if .a then .a end",
    "if .a == 1 then \"x\" elif .b then \"y\" else . end",
    "if empty then 1 else 2 end",
    ". == .",
    ".a // .b",
    ".a // empty",
    "(.a | not)",
    ".a and .b",
    ".a or .b",
    "list",
    "startswith(\"T\")",
    "endswith(\"2\")",
    "contains(\"x\")",
    "contains([1])",
    "@json",
    "@base64",
    "(.a, .b)",
    "[limit(2; .[])]",
    "to_entries",
    ". as $x | $x",
    "reduce .[] as $x (0; . + 1)",
    "map(. + 1)",
    "map(length)",
    "map({a: .a, n: $n})",
    "[.[] | .a | select(. != null) | . + 1]",
    "map(if . then . else \"d\" end)",
];

/// How two are put together.
const PAIRS: &[&str] = &[
    "A | B",
    "A + B",
    "A - B",
    "A * B",
    "A / B",
    "A % B",
    "A == B",
    "A != B",
    "A < B",
    "A <= B",
    "A > B",
    "A >= B",
    "A // B",
    "A and B",
    "A or B",
    "[A, B]",
    "{x: A, y: B}",
    "\"\\(A)-\\(B)\"",
    "if A then B else 0 end",
    "(A)? | B",
    "[A | B]",
    "{(\"k\"): A} | .k | B",
    "map(A) | B",
];

fn outcome(result: Result<Value, expr::EvalError>) -> Result<String, bool> {
    // What kind of failure it is may differ: which of two fails first.
    match result {
        Ok(value) => Ok(value.to_string()),
        Err(error) => Err(error.kind == expr::EvalErrorKind::Budget),
    }
}

fn compare(code: &str, inputs: &[Value]) -> bool {
    let expression = compiled(code);
    if !expression.is_fast() {
        return false;
    }
    let limits = Limits::default();
    for input in inputs {
        let quick = outcome(expression.evaluate(input, &World, &limits));
        let slow = outcome(expression.evaluate_slow(input, &World, &limits));
        assert_eq!(quick, slow, "{code} of {input}");
    }
    true
}

#[test]
fn the_quick_way_gives_what_jaq_gives() {
    let inputs: Vec<Value> = INPUTS.iter().map(|it| parsed(it)).collect();
    let mut fast: usize = ATOMS
        .iter()
        .map(|it| usize::from(compare(it, &inputs)))
        .sum();
    assert!(fast > ATOMS.len() * 8 / 10, "{fast} of {}", ATOMS.len());
    for (at, pair) in PAIRS.iter().enumerate() {
        for (left_at, left) in ATOMS.iter().enumerate() {
            // Each pair of atoms would take minutes; this meets each atom on both sides.
            for step in [1, 17, 40] {
                let right = ATOMS[(left_at * 7 + at * 13 + step) % ATOMS.len()];
                let code = pair
                    .replace('B', "\u{1}")
                    .replace('A', &format!("({left})"));
                let code = code.replace('\u{1}', &format!("({right})"));
                fast += usize::from(compare(&code, &inputs));
            }
        }
    }
    assert!(fast > 3000, "{fast}");
}

#[test]
fn failures_of_paths_name_the_path() {
    let limits = Limits::default();
    let failure = |code: &str, input: &str| {
        let result = compiled(code).evaluate(&parsed(input), &World, &limits);
        result.unwrap_err().to_string()
    };
    assert_eq!(
        failure(".a.b.c", "{\"a\":{\"b\":7}}"),
        ".a.b.c: cannot index number 7 with \"c\""
    );
    assert_eq!(
        failure(".[\"x y\"][0]", "{\"x y\":1}"),
        ".[\"x y\"][0]: cannot index number 1 with 0"
    );
    assert_eq!(failure(".a?", "1"), "gave no result");
    assert_eq!(failure(".a, .b", "{}"), "gave more than one result");
    assert_eq!(failure("{a: (1 | nan)}", "null"), ".a: NaN is not JSON");
}

#[test]
fn much_is_quick() {
    for code in [
        "{ orderId, lines, customer: $in.path, acceptedAt: .a }",
        "$in.o.x < ([.lines[] | .qty * .price] | add)",
        "{id: .order.id, items: [.lines[] | {sku, n: (.qty // 1)}], note: \"n \\(.note)\"}",
    ] {
        assert!(compiled(code).is_fast(), "{code}");
    }
}

#[test]
fn projections_give_what_evaluation_gives() {
    let texts = [
        r#"{"a":{"b":{"c":1.50,"d":"x\n"}},"l":[1,{"x":[]},3],"n":null}"#,
        r#" { "a" : { "b" : { "c" : [ 1 , 2 ] } } , "l" : [ ] } "#,
        r#"{"a":{"b":{"c":1}},"a":{"b":{}}}"#,
        r#"{"a":{"b":{"c":1}},"a":null}"#,
        r#"{"a":{"b":{"c":{"x":1,"x":2}}}}"#,
        r#"{"\u0061":{"b":{"c":1}}}"#,
        r#"{"a":{"b":7}}"#,
        r#"{"a":[1]}"#,
        "null",
        "7",
        "[]",
        "{}",
        r#"{"a":{"b":{"c":1}},}"#,
        r#"{"a":01}"#,
        r#"{"z":"\ud800"}"#,
        r#"{"a":1} x"#,
        "[[[[[[[[[[[[1]]]]]]]]]]]]",
        "\"\u{1}\"",
        r#"{"l":[1,{"x":null}],"a":{"b":null}}"#,
        "",
        r#"{"l":{"0":1}}"#,
        r#"{"z":[1,2"#,
        r#"{"z" 1}"#,
        r#"{"l":[0,{"x":{"y":"z"}},"\""]}"#,
    ];
    let codes = [
        ".",
        ".a",
        ".a.b.c",
        "{x: .a.b.c, y: .a.b, z: .l[1].x, k: 1, s: \"q\\\"\"}",
        "[.a, [.l[0]], {}]",
        "[]",
        "{a, l, n}",
        "{x: {y: {z: .l[2]}}}",
        ".l[1].x",
        "{a: .a, b: .a.b, c: .a.b.c}",
        "{x: .l[0], y: .l.x}",
    ];
    let limits = Limits::default();
    let mut done = 0;
    for code in codes {
        let expression = compiled(code);
        for text in texts {
            let body = bytes::Bytes::copy_from_slice(text.as_bytes());
            let mut out = b"-".to_vec();
            let is_done = expression.project(&body, 10, &limits, &mut out);
            let value = expr::json::parse(&body, 10).ok();
            let result = value.and_then(|it| expression.evaluate(&it, &World, &limits).ok());
            let projected =
                is_done.then(|| parsed(std::str::from_utf8(&out[1..]).unwrap()).to_string());
            match projected {
                Some(projected) => assert_eq!(
                    Some(projected),
                    result.map(|it| it.to_string()),
                    "{code} of {text}"
                ),
                None => assert_eq!(out, b"-"),
            }
            done += usize::from(is_done);
        }
    }
    assert!(done > 60, "{done}");
    assert!(!compiled(".a + 1").project(
        &bytes::Bytes::from_static(b"{}"),
        10,
        &limits,
        &mut Vec::new()
    ));
}
