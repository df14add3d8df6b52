//! Branches of which one counts.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, flow, sound_flow};

#[test]
fn the_first_branch_that_succeeds_counts_and_the_others_are_cancelled() {
    let flow = sound_flow(
        "- first:
    - - delay: 20ms
      - map: '\"slow\"'
      - http: POST crm:/slow
    - - delay: 1ms
      - raise: { type: bad }
    - - delay: 10ms
      - map: '\"quick\"'
- delay: 1h",
    );
    let services = FakeServices::default();
    assert_eq!(flow.run("0", &services).unwrap(), "\"quick\"");
    assert!(services.sent().is_empty(), "the slow branch went on");
    assert_eq!(services.done_after(), 3_600_010);
}

#[test]
fn branches_may_have_names() {
    let flow = sound_flow("- first: { a: [ { delay: 2s } ], b: { map: 7 } }");
    assert_eq!(flow.run("0", &FakeServices::default()).unwrap(), "7");
}

#[test]
fn the_reply_of_the_branch_that_counts_is_taken_over_as_it_came() {
    let flow = sound_flow(
        "- first:
    - http: GET crm:/a
    - - delay: 1s
      - http: GET crm:/b
- map: '[$reply.status, .]'",
    );
    let services = FakeServices::scripted(|_| {
        let reply = message::Reply::with_content(203, "text/plain", b"text".to_vec());
        (std::time::Duration::from_millis(5), Ok(reply))
    });
    assert_eq!(flow.run("0", &services).unwrap(), "[203,\"text\"]");
    assert_eq!(services.calls.borrow().len(), 1);
}

#[test]
fn when_all_fail_the_last_failure_counts() {
    let flow = sound_flow(
        "- first:
    - - delay: 20ms
      - raise: { type: late }
    - raise: { type: early }",
    );
    let services = FakeServices::default();
    assert_eq!(failure(flow.run("0", &services)), "late");
    assert_eq!(services.done_after(), 20);
}

#[test]
fn a_reply_ends_the_flow() {
    let flow = sound_flow(
        "- first:
    - reply: { status: 299 }
    - delay: 1h
- raise: { type: never }",
    );
    assert_eq!(flow.run("0", &FakeServices::default()).unwrap(), "299 0");
}

#[test]
fn the_flow_ends_and_reads_the_body_as_its_branches_do() {
    let traits = |yaml: &str| sound_flow(yaml).traits();
    let ends = "- first: [ { reply: { body: a } }, { raise: { type: b } } ]";
    assert_eq!(traits(ends), (false, true));
    let goes_on = "- first: [ { reply: {} }, { delay: 1s } ]";
    assert_eq!(traits(goes_on), (true, false));
}

#[test]
fn what_a_branch_sets_is_not_there_behind() {
    let problems = flow("- first: [ { set: { a: 1 } }, { delay: 1s } ]\n- map: $a");
    let problems = problems.err().unwrap();
    assert!(problems[0].starts_with("IT0230 2:8"), "{problems:?}");
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            (
                "1",
                &["IT0255 1:1 `first` is a list of branches, not a number"],
            ),
            (
                "[ { map: 1 } ]",
                &["IT0255 1:1 `first` has at least two branches"],
            ),
            (
                "{ a: { map: 1 } }",
                &["IT0255 1:1 `first` has at least two branches"],
            ),
            (
                "[ { map: 1 }, [ { map: '.[' } ] ]",
                &["IT0230 1:24 `[` is never closed"],
            ),
        ],
    );
}
