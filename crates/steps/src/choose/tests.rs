//! Branches and which of them is run.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, sound_flow};

fn run(yaml: &str, body: &str) -> Result<String, Fault> {
    sound_flow(yaml).run(body, &FakeServices::default())
}

#[test]
fn the_first_branch_whose_condition_holds_is_run() {
    let yaml = "- choose:
    - when: . > 10
      steps:
        - map: '\"large\"'
    - when: . > 5
      map: '\"middle\"'
    - otherwise:
        - map: '\"small\"'";
    for (body, expected) in [("11", "large"), ("6", "middle"), ("5", "small")] {
        assert_eq!(run(yaml, body).unwrap(), format!("\"{expected}\""));
    }
}

#[test]
fn without_a_branch_that_fits_nothing_is_done() {
    let yaml = "- choose: [ { when: .a, map: 1 }, { when: false, map: 2 } ]";
    for body in ["{}", "{\"a\":null}", "{\"a\":false}"] {
        assert_eq!(run(yaml, body).unwrap(), body);
    }
    assert_eq!(run(yaml, "{\"a\":0}").unwrap(), "1");
}

#[test]
fn what_a_branch_sets_is_there_behind_and_null_when_another_was_run() {
    let yaml = "- choose: [ { when: . == 1, set: { seen: one } } ]\n- map: $seen";
    assert_eq!(run(yaml, "1").unwrap(), "\"one\"");
    assert_eq!(run(yaml, "2").unwrap(), "null");
}

#[test]
fn a_condition_that_fails_fails_the_step() {
    let yaml = "- choose: [ { when: .a.b, map: 1 }, { otherwise: [ { map: 2 } ] } ]";
    let fault = run(yaml, "{\"a\":1}").unwrap_err();
    assert_eq!(fault.step.as_deref(), Some("1.1 (choose)"));
    assert_eq!(failure(Err::<(), _>(fault)), "expression");
}

#[test]
fn a_reply_in_a_branch_ends_the_flow() {
    let yaml = "- choose: [ { when: . == 1, reply: { status: 299 } } ]\n- map: 0";
    assert_eq!(run(yaml, "1").unwrap(), "299 1");
    assert_eq!(run(yaml, "2").unwrap(), "0");
}

#[test]
fn the_flow_ends_and_reads_the_body_as_its_branches_do() {
    let traits = |yaml: &str| sound_flow(yaml).traits();
    let reply = "reply: { body: a }";
    let all =
        format!("- choose: [ {{ when: true, {reply} }}, {{ otherwise: [ {{ {reply} }} ] }} ]");
    assert_eq!(traits(&all), (false, true));
    let some = format!("- choose: [ {{ when: true, {reply} }} ]");
    assert_eq!(traits(&some), (false, false));
    assert!(traits("- choose: [ { when: .a, log: a } ]").0);
    assert!(traits("- choose: [ { when: true, map: . } ]").0);
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            (
                "{ when: . }",
                &["IT0255 1:1 `choose` is a list of branches, not a mapping"],
            ),
            (
                "[]",
                &["IT0255 1:1 `choose` is a list of branches, not a list"],
            ),
            (
                "[ { map: 1 } ]",
                &["IT0255 1:3 a branch has a condition, `when`"],
            ),
            (
                "[ { otherwise: [ { map: 1 } ] } ]",
                &["IT0255 1:5 `otherwise` is the last of several branches"],
            ),
            (
                "[ { when: ., map: 1 }, { otherwise: [ { map: 1 } ], when: . } ]",
                &["IT0255 1:53 unknown key `when` beside `otherwise`"],
            ),
            (
                "[ { when: ., steps: [ { map: 1 } ], map: 2 } ]",
                &["IT0255 1:37 unknown key `map` in a branch"],
            ),
            (
                "[ { when: '.[', map: 1 } ]",
                &["IT0230 1:11 `[` is never closed"],
            ),
        ],
    );
}
