//! Flows that are called.

use std::sync::Arc;

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, sound_flow};

/// A worker with a flow that can be called.
fn with_flow(yaml: &str) -> FakeServices {
    FakeServices {
        flows: vec![("other", Arc::new(sound_flow(yaml)))],
        ..FakeServices::default()
    }
}

#[test]
fn the_reply_of_the_other_flow_becomes_the_body() {
    let services = with_flow("- map: '{ got: ., query: $query.a }'");
    let flow = sound_flow("- call: other\n- map: '[., $reply.status]'");
    let result = flow.run("1", &services).unwrap();
    assert_eq!(result, "[{\"got\":1,\"query\":\"1\"},200]");
}

#[test]
fn it_may_get_another_body_and_has_variables_of_its_own() {
    let services = with_flow("- set: { mine: theirs }\n- map: '[., $mine]'");
    let flow = sound_flow(
        "- set: { mine: ours }
- call: { flow: other, body: { a: '${ . }' } }
  as: got
- map: '[., $mine, $got]'",
    );
    let result = flow.run("1", &services).unwrap();
    assert_eq!(result, "[1,\"ours\",[{\"a\":1},\"theirs\"]]");
}

#[test]
fn the_body_that_came_in_is_still_read_as_what_it_is() {
    let services = with_flow("- map: 1");
    let flow = sound_flow("- call: { flow: other, body: [] }\n  as: got\n- map: .a");
    let mut exchange = flow.exchange_of(&[("Content-Type", "text/xml")], "<a>text</a>");
    let result = services.run_to_end(flow.answer(&mut exchange, &services));
    assert_eq!(result.unwrap(), "\"text\"");
}

#[test]
fn a_failure_within_is_one_of_the_caller_with_the_same_kind() {
    let services = with_flow("- raise: { type: bad, status: 418 }");
    let result = sound_flow("- call: other").run("1", &services);
    let fault = result.unwrap_err();
    assert_eq!((fault.name(), fault.status), ("bad", 418));
}

#[test]
fn a_reply_that_is_no_success_is_a_failure_with_its_status() {
    let services = with_flow("- reply: { status: 404 }");
    let flow = sound_flow("- try: { steps: [ { call: other } ], catch: [ { on: 404, map: 7 } ] }");
    assert_eq!(flow.run("1", &services).unwrap(), "7");
}

#[test]
fn a_flow_that_is_gone_is_an_error() {
    let result = sound_flow("- call: other").run("1", &FakeServices::default());
    assert_eq!(failure(result), "internal");
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("[ other ]", &["IT0112 1:1"]),
            ("{ body: 1 }", &["IT0113 1:1"]),
            ("{ flow: other, to: x }", &["IT0111 1:16"]),
            (
                "{ flow: other, body: '${ $a }' }",
                &["IT0230 1:22 there is no variable `$a`"],
            ),
        ],
    );
}
