//! Errors of a flow's own.

use super::*;
use crate::testing::{FakeServices, assert_problems, failure, sound_flow};

fn raised(yaml: &str, body: &str) -> Fault {
    let flow = sound_flow(yaml);
    flow.run(body, &FakeServices::default()).unwrap_err()
}

#[test]
fn the_reply_says_what_the_flow_says() {
    let fault = raised(
        "- raise: { type: over-limit, status: 402, title: Too much, detail: 'at most ${ .max }' }",
        "{\"max\":5}",
    );
    let reply = fault.to_reply();
    let text = String::from_utf8_lossy(reply.body.as_bytes()).into_owned();
    assert_eq!(reply.status, 402);
    assert_eq!(
        text.trim_end(),
        "{\"type\":\"over-limit\",\"title\":\"Too much\",\"status\":402,\"detail\":\"at most 5\"}"
    );
    assert_eq!(fault.step.as_deref(), Some("1.1 (raise)"));
}

#[test]
fn without_a_status_it_is_the_flows_fault() {
    let fault = raised("- raise: { type: 'https://example.org/odd' }", "1");
    assert_eq!((fault.status, fault.detail.as_ref()), (500, ""));
}

#[test]
fn a_detail_that_cannot_be_made_is_another_failure() {
    let fault = raised("- raise: { type: odd, detail: '${ . }' }", "{}");
    assert_eq!(failure(Err::<(), _>(fault)), "invalid");
}

#[test]
fn the_body_is_only_needed_for_a_detail_of_it() {
    let traits = |yaml: &str| sound_flow(yaml).traits();
    assert_eq!(
        traits("- raise: { type: odd, detail: '${ $query.a }' }"),
        (false, true)
    );
    assert_eq!(
        traits("- raise: { type: odd, detail: '${ .a }' }"),
        (true, true)
    );
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("over-limit", &["IT0256 1:1 `raise` is a mapping"]),
            ("{ status: 400 }", &["IT0113 1:1"]),
            (
                "{ type: timeout }",
                &["IT0256 1:9 `timeout` cannot be the name of an error"],
            ),
            (
                "{ type: 5xx }",
                &["IT0256 1:9 `5xx` cannot be the name of an error"],
            ),
            (
                "{ type: two words, status: 200 }",
                &[
                    "IT0256 1:9 `two words` cannot be the name of an error",
                    "IT0248 1:28 200 is not the status of an error",
                ],
            ),
            (
                "{ type: odd, detail: '${ $limit }' }",
                &["IT0230 1:22 there is no variable `$limit`"],
            ),
        ],
    );
}
