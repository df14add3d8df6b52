//! New bodies of expressions and of values.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, sound_flow};

fn run(yaml: &str, body: &str) -> Result<String, Fault> {
    sound_flow(yaml).run(body, &FakeServices::default())
}

#[test]
fn an_expression_makes_the_body() {
    assert_eq!(run("- map: .a + 1", "{\"a\":1}").unwrap(), "2");
    assert_eq!(run("- map: 1.50", "").unwrap(), "1.50");
    assert_eq!(run("- map: true", "").unwrap(), "true");
    let long = "- map: |\n    { id: .a,\n      of: $query.a }";
    assert_eq!(run(long, "{\"a\":7}").unwrap(), "{\"id\":7,\"of\":\"1\"}");
}

#[test]
fn a_value_with_holes_makes_the_body() {
    let yaml = "- map: { id: '${ .a }', text: 'no ${ .a }', list: [1, '${ .b }'] }";
    let made = run(yaml, "{\"a\":7,\"b\":null}").unwrap();
    assert_eq!(made, "{\"id\":7,\"text\":\"no 7\",\"list\":[1,null]}");
}

#[test]
fn the_new_body_is_described_anew() {
    for (yaml, content_type) in [
        ("- map: '{}'", Some("application/json")),
        ("- map: '\"text\"'", Some("text/plain; charset=utf-8")),
        ("- map: 'null'", None),
    ] {
        let (flow, services) = (sound_flow(yaml), FakeServices::default());
        let mut exchange = flow.exchange_of(&[("Content-Type", "text/xml")], "<a/>");
        let result = services.run_to_end(flow.answer(&mut exchange, &services));
        assert!(result.is_ok());
        let found = exchange.content_type();
        assert_eq!(found.as_deref(), content_type.map(str::as_bytes), "{yaml}");
    }
}

#[test]
fn with_a_name_the_result_is_a_variable_and_the_body_stays() {
    let yaml = "- map: .a\n  as: was\n- map: '[., $was]'";
    assert_eq!(run(yaml, "{\"a\":1}").unwrap(), "[{\"a\":1},1]");
}

#[test]
fn an_expression_that_fails_or_gives_no_single_result_is_an_error() {
    for yaml in ["- map: error", "- map: empty", "- map: 1, 2"] {
        assert_eq!(failure(run(yaml, "1")), "expression", "{yaml}");
    }
    assert_eq!(failure(run("- map: .a", "{")), "invalid");
}

#[test]
fn the_body_is_only_needed_when_it_is_asked_for() {
    let reads = |yaml: &str| sound_flow(yaml).traits().0;
    assert!(!reads("- map: $query"));
    assert!(!reads("- map: { a: '${ $query }' }"));
    assert!(reads("- map: .a"));
    assert!(reads("- map: $in"));
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("'.['", &["IT0230 1:1 `[` is never closed"]),
            ("$nothing", &["IT0230 1:1 there is no variable `$nothing`"]),
            (
                "{ a: .a, b: [ $b, '${ . }' ] }",
                &[
                    "IT0253 1:6 this text is not evaluated",
                    "IT0253 1:15 this text is not evaluated",
                ],
            ),
        ],
    );
}
