//! Rounds, how many there are and what they keep.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, flow, sound_flow};

#[test]
fn steps_run_again_as_long_as_the_condition_holds() {
    let flow = sound_flow("- while: { when: . < 5, steps: [ { map: . + 2 } ] }");
    let services = FakeServices::default();
    assert_eq!(flow.run("0", &services).unwrap(), "6");
    assert_eq!(flow.run("7", &services).unwrap(), "7");
}

#[test]
fn rounds_are_counted_and_variables_carried_on() {
    let flow = sound_flow(
        "- set: { sum: 0 }
- while:
    when: $round < 4
    steps:
      - set: { sum: '${ $sum + $round }' }
- map: $sum",
    );
    assert_eq!(flow.run("", &FakeServices::default()).unwrap(), "6");
}

#[test]
fn a_loop_within_a_loop_counts_for_itself() {
    let flow = sound_flow(
        "- while:
    when: $round < 2
    steps:
      - while: { when: $round < 3, steps: [ { map: . } ] }
      - map: . + [$round]",
    );
    assert_eq!(flow.run("[]", &FakeServices::default()).unwrap(), "[0,1]");
}

#[test]
fn what_is_only_named_within_cannot_be_used_behind() {
    for name in ["round", "seen"] {
        let steps = "steps: [ { set: { seen: 1 } } ]";
        let yaml = format!("- while: {{ when: . == 1, {steps} }}\n- map: ${name}");
        let problems = flow(&yaml).err().unwrap();
        assert!(problems[0].starts_with("IT0230 2:8"), "{problems:?}");
    }
}

#[test]
fn too_many_rounds_are_an_error() {
    let flow = sound_flow("- while: { when: 'true', max: 3, steps: [ { map: . + 1 } ] }");
    let fault = flow.run("0", &FakeServices::default()).unwrap_err();
    assert_eq!(fault.name(), "expression");
    assert_eq!(
        fault.detail,
        "the condition of a loop holds for too many rounds"
    );
    let exact = sound_flow("- while: { when: . < 3, max: 3, steps: [ { map: . + 1 } ] }");
    assert_eq!(exact.run("0", &FakeServices::default()).unwrap(), "3");
}

#[test]
fn a_wait_is_between_rounds_only() {
    let flow = sound_flow("- while: { when: . < 3, delay: 1s, steps: [ { map: . + 1 } ] }");
    let services = FakeServices::default();
    assert_eq!(flow.run("0", &services).unwrap(), "3");
    assert_eq!(services.done_after(), 2000);
}

#[test]
fn many_rounds_let_others_of_the_worker_have_their_turn() {
    let flow = sound_flow("- while: { when: $round < 1000, steps: [ { map: $round } ] }");
    let services = FakeServices::default();
    let turns = services.run_to_end(async {
        let mut work = Box::pin(flow.start("0", &services));
        let mut turns = 0;
        std::future::poll_fn(|context| {
            turns += 1;
            work.as_mut()
                .poll(context)
                .map(|result| assert!(result.is_ok()))
        })
        .await;
        turns
    });
    assert_eq!(turns, 1 + (1000 - 1) / ROW_MAX);
}

#[test]
fn a_reply_or_a_failure_ends_the_rounds() {
    let reply = "steps: [ { map: . + 1 }, { reply: { status: 299 }, if: . == 2 } ]";
    let flow = sound_flow(&format!("- while: {{ when: 'true', {reply} }}"));
    assert_eq!(flow.run("0", &FakeServices::default()).unwrap(), "299 2");
    let raise = "steps: [ { raise: { type: bad } } ]";
    let flow = sound_flow(&format!("- while: {{ when: 'true', {raise} }}"));
    assert_eq!(failure(flow.run("0", &FakeServices::default())), "bad");
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            (". < 1", &["IT0112 1:1"]),
            ("{ when: . < 1 }", &["IT0113 1:1"]),
            (
                "{ when: $rounds < 1, steps: [ { map: . } ] }",
                &["IT0230 1:9 there is no variable `$rounds`"],
            ),
            (
                "{ when: . < 1, max: 0, delay: 2d, steps: [ { map: . } ] }",
                &[
                    "IT0250 1:21 `max` is 0, outside its range",
                    "IT0250 1:31 `delay` is 2d, outside its range",
                ],
            ),
        ],
    );
}
