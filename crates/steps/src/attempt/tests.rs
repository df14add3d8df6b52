//! Failures and what is done about them.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, flow, sound_flow};

/// Raises what the body says, if it says anything, then handles some of it.
const HANDLED: &str = "- try:
    steps:
      - set: { tried: 1 }
      - map: .raise
      - raise: { type: known, detail: details }
        if: . == \"known\"
      - raise: { type: other }
        if: . == \"other\"
      - reply: { status: 299 }
        if: . == \"reply\"
    catch:
      - { on: known, map: '[.raise, $error.kind, $error.message, $tried]' }
    finally:
      - http: POST crm:/finally
        on_error: [ { on: connection, map: 0 } ]
- map: '{ behind: . }'";

fn run(body: &str) -> (Result<String, Fault>, Vec<String>) {
    let services = FakeServices::default();
    let result = sound_flow(HANDLED).run(body, &services);
    (result, services.sent())
}

#[test]
fn without_a_failure_the_flow_goes_on_with_what_the_steps_made() {
    let (result, finally) = run("{\"raise\":1}");
    assert_eq!(result.unwrap(), "{\"behind\":1}");
    assert_eq!(finally, ["1"]);
}

#[test]
fn a_clause_that_fits_sees_the_failure_and_the_body_as_it_was_before() {
    let (result, finally) = run("{\"raise\":\"known\"}");
    let handled = "[\"known\",\"known\",\"details\",1]";
    assert_eq!(result.unwrap(), format!("{{\"behind\":{handled}}}"));
    assert_eq!(finally, [handled]);
}

#[test]
fn what_no_clause_fits_fails_the_flow_after_finally() {
    let (result, finally) = run("{\"raise\":\"other\"}");
    assert_eq!(failure(result), "other");
    assert_eq!(finally.len(), 1);
}

#[test]
fn finally_is_also_run_when_the_steps_reply() {
    let (result, finally) = run("{\"raise\":\"reply\"}");
    assert_eq!(result.unwrap(), "299 reply");
    assert_eq!(finally, ["reply"]);
}

#[test]
fn a_failure_of_a_clause_or_of_finally_takes_its_place() {
    let flow = sound_flow(
        "- try:
    steps: [ { raise: { type: first } } ]
    catch: [ { on: first, raise: { type: second } } ]
    finally:
      - raise: { type: third }
        if: . == 3",
    );
    let services = FakeServices::default();
    assert_eq!(failure(flow.run("0", &services)), "second");
    assert_eq!(failure(flow.run("3", &services)), "third");
}

#[test]
fn there_is_an_error_in_clauses_only() {
    for place in ["steps", "finally"] {
        let (steps, finally) = match place {
            "steps" => ("$error", "."),
            _ => (".", "$error"),
        };
        let yaml = format!(
            "- try: {{ steps: [ {{ map: {steps} }} ], finally: [ {{ map: {finally} }} ] }}"
        );
        let problems = flow(&yaml).err().unwrap();
        assert!(problems[0].starts_with("IT0230"), "{problems:?}");
    }
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("[ { map: 1 } ]", &["IT0112 1:1"]),
            (
                "{ steps: [ { map: 1 } ] }",
                &["IT0255 1:1 `try` has `catch` or `finally`"],
            ),
            (
                "{ steps: [ { map: 1 } ], finally: [ { reply: {} } ] }",
                &["IT0255 1:35 `finally` cannot end the flow"],
            ),
            (
                "{ steps: [ { map: '.[' } ], finally: [ { map: '.{' } ] }",
                &[
                    "IT0230 1:19 `[` is never closed",
                    "IT0230 1:47 `{` is never closed",
                ],
            ),
        ],
    );
}
