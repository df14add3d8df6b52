//! Branches that run at the same time.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, flow, sound_flow};

#[test]
fn the_result_has_the_branches_in_the_order_of_the_file() {
    let flow = sound_flow(
        "- parallel:
    slow:
      - delay: 30ms
      - map: .a
    quick: { map: .b }
    middle:
      - delay: 10ms",
    );
    let services = FakeServices::default();
    let result = flow.run("{\"a\":1,\"b\":2}", &services).unwrap();
    let middle = "{\"a\":1,\"b\":2}";
    assert_eq!(
        result,
        format!("{{\"slow\":1,\"quick\":2,\"middle\":{middle}}}")
    );
    assert_eq!(services.done_after(), 30);
}

#[test]
fn the_result_can_be_a_variable() {
    let flow = sound_flow(
        "- parallel: { one: { map: 1 } }
  as: got
- map: '[., $got.one]'",
    );
    assert_eq!(flow.run("0", &FakeServices::default()).unwrap(), "[0,1]");
}

#[test]
fn what_a_branch_sets_is_not_there_for_others_nor_behind() {
    let flow_of = |behind: &str| {
        flow(&format!(
            "- parallel:
    one:
      - set: {{ seen: 1 }}
      - map: $seen
    two:
      - map: {behind}
- map: ."
        ))
    };
    assert!(flow_of("1").is_ok());
    let problems = flow_of("$seen").err().unwrap();
    assert!(problems[0].starts_with("IT0230 6:14"), "{problems:?}");
}

#[test]
fn the_first_failure_cancels_the_other_branches() {
    let flow = sound_flow(
        "- try:
    steps:
      - parallel:
          late:
            - delay: 50ms
            - http: POST crm:/late
          bad:
            - delay: 10ms
            - raise: { type: bad }
    catch:
      - { on: bad, delay: 1h }",
    );
    let services = FakeServices::default();
    assert_eq!(flow.run("1", &services).unwrap(), "1");
    assert!(services.sent().is_empty(), "the other branch went on");
    assert_eq!(services.done_after(), 3_600_010);
}

#[test]
fn the_failure_names_the_step_within() {
    let flow = sound_flow("- parallel: { a: [ { map: . }, { map: error } ] }");
    let fault = flow.run("1", &FakeServices::default()).unwrap_err();
    assert_eq!(fault.step.as_deref(), Some("1.1.a.2 (map)"));
}

#[test]
fn a_reply_in_a_branch_cancels_the_others_and_ends_the_flow() {
    let flow = sound_flow(
        "- parallel:
    one:
      - delay: 20ms
      - reply: { status: 299, body: one }
        if: 'true'
    two:
      - delay: 1h
- raise: { type: never }",
    );
    let services = FakeServices::default();
    assert_eq!(flow.run("1", &services).unwrap(), "299 one");
    assert_eq!(services.done_after(), 20);
}

#[test]
fn a_body_that_cannot_be_decoded_only_fails_branches_that_look_at_it() {
    let flow = sound_flow("- parallel: { a: { map: 1 }, b: { map: 2 } }");
    let services = FakeServices::default();
    assert_eq!(flow.run("{", &services).unwrap(), "{\"a\":1,\"b\":2}");
    let flow = sound_flow("- parallel: { a: { map: 1 }, b: { map: .b } }");
    assert_eq!(failure(flow.run("{", &services)), "invalid");
}

#[test]
fn the_flow_ends_when_a_branch_always_ends_it() {
    let ends = |yaml: &str| sound_flow(yaml).traits().1;
    assert!(ends("- parallel: { a: { map: 1 }, b: { reply: {} } }"));
    assert!(!ends("- parallel: { a: { map: 1 }, b: { map: 2 } }"));
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            (
                "[ { map: 1 } ]",
                &["IT0255 1:1 `parallel` is a mapping of branches, not a list"],
            ),
            (
                "{}",
                &["IT0255 1:1 `parallel` is a mapping of branches, not a mapping"],
            ),
            (
                "{ 'a b': { map: 1 }, c: { map: '.[' } }",
                &[
                    "IT0255 1:3 this is not a name for a branch",
                    "IT0230 1:32 `[` is never closed",
                ],
            ),
        ],
    );
}
