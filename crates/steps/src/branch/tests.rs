//! A condition and what depends on it.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, sound_flow};

const SIZES: &str = "- if: { when: . > 5, then: [ { map: '\"large\"' } ], \
                     else: [ { map: '\"small\"' } ] }";

#[test]
fn the_steps_depend_on_the_condition() {
    let run = |yaml: &str, body: &str| sound_flow(yaml).run(body, &FakeServices::default());
    assert_eq!(run(SIZES, "6").unwrap(), "\"large\"");
    assert_eq!(run(SIZES, "5").unwrap(), "\"small\"");
    let alone = "- if: { when: . > 5, then: [ { map: 1 } ] }";
    assert_eq!(run(alone, "5").unwrap(), "5");
    assert_eq!(
        failure(run("- if: { when: .a, then: [ { map: 1 } ] }", "5")),
        "expression"
    );
}

#[test]
fn what_the_steps_set_is_there_behind() {
    let flow = sound_flow("- if: { when: . == 1, then: [ { set: { a: 1 } } ] }\n- map: $a");
    assert_eq!(flow.run("1", &FakeServices::default()).unwrap(), "1");
    assert_eq!(flow.run("2", &FakeServices::default()).unwrap(), "null");
}

#[test]
fn the_flow_ends_when_both_ways_end_it() {
    let traits = |yaml: &str| sound_flow(yaml).traits();
    let reply = "[ { reply: { body: a } } ]";
    let both = format!("- if: {{ when: true, then: {reply}, else: {reply} }}");
    assert_eq!(traits(&both), (false, true));
    let one = format!("- if: {{ when: true, then: {reply} }}");
    assert_eq!(traits(&one), (false, false));
    assert!(traits(SIZES).0);
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            (". > 1", &["IT0112 1:1"]),
            ("{ when: . }", &["IT0113 1:1"]),
            (
                "{ when: ., then: [ { map: 1 } ], otherwise: [] }",
                &["IT0111 1:34"],
            ),
            (
                "{ when: '.[', then: [ { map: '.{' } ] }",
                &[
                    "IT0230 1:9 `[` is never closed",
                    "IT0230 1:30 `{` is never closed",
                ],
            ),
        ],
    );
}
