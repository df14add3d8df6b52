//! What is wrong in the text of an expression, and what failures look like.

use expr::{EvalErrorKind, Expression, Limits, Value};

use super::support::{World, compiled, evaluated, parsed};

fn mistake(code: &str) -> String {
    match Expression::compile(code, &World) {
        Ok(_) => panic!("{code} compiles"),
        Err(errors) => {
            let shown = errors.iter().map(|it| format!("{:?} {it}", it.at));
            shown.collect::<Vec<_>>().join("; ")
        }
    }
}

#[test]
fn unknown_names_are_found_with_their_place() {
    let cases = [
        (
            "lenght",
            "0..6 there is no function `lenght` (did you mean `length`?)",
        ),
        (
            ".a | mpa(.b)",
            "5..8 there is no function `mpa` (did you mean `map`?)",
        ),
        (
            "$headrs.a",
            "0..7 there is no variable `$headrs` (did you mean `$headers`?)",
        ),
        (
            ". as $xyz | $xyy",
            "12..16 there is no variable `$xyy` (did you mean `$xyz`?)",
        ),
        (
            "map(.a; .b)",
            "0..3 `map` takes 1 arguments, not 2 (arguments stand in parentheses, with `;` between)",
        ),
        (
            "env",
            "0..3 `env` is not available (the environment is in `$env`, as far as `engine.env` names it)",
        ),
        (
            "$ENV.X",
            "0..4 `$ENV` is not available (the environment is in `$env`, as far as `engine.env` names it)",
        ),
        (
            "input, 1",
            "0..5 `input` is not available (the one input is `.`)",
        ),
        ("break $x", "6..8 there is no `label $x` around this"),
        ("a::b", "0..4 modules are not available"),
        ("$__prog_args", "0..12 there is no variable `$__prog_args`"),
        ("@main", "0..5 there is no function `@main`"),
    ];
    for (code, expected) in cases {
        assert_eq!(mistake(code), expected, "{code}");
    }
    for code in [
        "halt",
        "halt_error",
        "halt_error(1)",
        "inputs",
        "debug",
        "debug(1)",
        "stderr",
        "input_filename",
        "input_line_number",
        "get_search_list",
        "include \"a\"; 1",
        "import \"a\" as a; 1",
    ] {
        mistake(code);
    }
}

#[test]
fn syntax_is_explained() {
    let cases = [
        (".a.b.", "5..5 key expected, found the end"),
        ("{a: }", "4..5 term expected, found `}`"),
        ("[1, 2", "0..1 `[` is never closed"),
        ("\"abc", "0..1 `\\\"` is never closed"),
        (
            "'a'",
            "0..1 `'` begins nothing (texts stand in double quotes)",
        ),
        ("if . then 1", "11..11 else or end expected, found the end"),
        (". ; 1", "2..3 `;` does not belong here"),
        ("", "0..0 term expected, found the end"),
    ];
    for (code, expected) in cases {
        assert_eq!(mistake(code), expected, "{code}");
    }
}

#[test]
fn what_an_expression_uses_is_known() {
    let uses = |code: &str| {
        let expression = compiled(code);
        (expression.variables().to_vec(), expression.uses_input())
    };
    assert_eq!(uses("$n + $in.a + $n"), (vec![2, 0], false));
    assert_eq!(uses("$headers | .host"), (vec![1], false));
    assert_eq!(uses("{a: $n, b}"), (vec![2], true));
    assert_eq!(uses(".a as $n | $n"), (vec![], true));
    assert_eq!(uses("now | todate"), (vec![], false));
    assert!(uses("[1, 2] | map(. + $n)").0 == [2]);
    assert_eq!(
        compiled("\"a\\u0041\"")
            .constant()
            .map(ToString::to_string)
            .unwrap(),
        "\"aA\""
    );
    assert!(compiled("now").constant().is_none());
    fn is_shared<T: Send + Sync>(_: &T) {}
    is_shared(&compiled("."));
}

#[test]
fn failures_have_kinds() {
    let limits = Limits::default();
    let kind = |code: &str| evaluated(code, &parsed("{}"), &limits).unwrap_err().kind;
    assert_eq!(kind("error(\"x\")"), EvalErrorKind::Raised);
    assert_eq!(kind("error({a: 1})"), EvalErrorKind::Raised);
    assert_eq!(kind("try error(\"x\") catch . | .a"), EvalErrorKind::Type);
    assert_eq!(kind("1 + {}"), EvalErrorKind::Type);
    assert_eq!(kind("empty"), EvalErrorKind::Count);
    assert_eq!(kind("1, 2"), EvalErrorKind::Count);
    assert_eq!(kind("nan"), EvalErrorKind::NotJson);
    assert_eq!(kind("[infinite]"), EvalErrorKind::NotJson);
    assert_eq!(kind("last(repeat(1))"), EvalErrorKind::Budget);
    let long = evaluated("(\"x\" * 100000) | .a", &Value::Null, &limits).unwrap_err();
    assert!(long.message.chars().count() < 300, "{}", long.message);
    assert_eq!(
        evaluated("now", &Value::Null, &limits).unwrap().to_string(),
        "1700000000.25"
    );
    assert_eq!(
        evaluated("null | .a.b = 1", &Value::Null, &limits)
            .unwrap()
            .to_string(),
        "{\"a\":{\"b\":1}}"
    );
}
