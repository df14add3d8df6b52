//! Variables and their values.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, sound_flow};

#[test]
fn each_variable_may_use_those_before_it_and_keeps_its_type() {
    let flow = sound_flow(
        "- set:
    one: '${ .a }'
    two: '${ $one + 1 }'
    text: 'is ${ $two }'
    list: [1.50, '${ $two }', { deep: '${ . }' }, null, yes]
- map: '[., $two, $text, $list]'",
    );
    let result = flow.run("{\"a\":1}", &FakeServices::default()).unwrap();
    let list = "[1.50,2,{\"deep\":{\"a\":1}},null,\"yes\"]";
    assert_eq!(result, format!("[{{\"a\":1}},2,\"is 2\",{list}]"));
}

#[test]
fn a_variable_can_be_given_another_value() {
    let flow = sound_flow("- set: { a: 1 }\n- set: { a: '${ $a + 1 }' }\n- map: $a");
    assert_eq!(flow.run("", &FakeServices::default()).unwrap(), "2");
}

#[test]
fn a_value_that_cannot_be_made_fails_the_step() {
    let flow = sound_flow("- set: { a: '${ .a.b }' }");
    let result = flow.run("{\"a\":1}", &FakeServices::default());
    assert_eq!(failure(result), "expression");
}

#[test]
fn the_body_is_only_needed_for_values_of_it() {
    let reads = |yaml: &str| sound_flow(yaml).traits().0;
    assert!(!reads(
        "- set: { a: 1, b: '${ $a }', c: [ '${ $query.x }' ] }"
    ));
    assert!(reads("- set: { a: 1, b: [ '${ .x }' ] }"));
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("a", &["IT0112 1:1"]),
            (
                "{ $a: 1, 1b: 2, c d: 3 }",
                &[
                    "IT0254 1:3 this is not a name for a variable",
                    "IT0254 1:10 this is not a name for a variable",
                    "IT0254 1:17 this is not a name for a variable",
                ],
            ),
            (
                "{ headers: 1 }",
                &["IT0254 1:3 `$headers` is there already: every flow has it"],
            ),
            (
                "{ a: '${ $b }', b: 1 }",
                &["IT0230 1:6 there is no variable `$b`"],
            ),
        ],
    );
}
