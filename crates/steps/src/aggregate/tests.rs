//! Groups of messages and what makes them complete.

use super::*;
use crate::testing::{FakeServices, TestFlow, assert_problems, failure, flow, sound_flow};

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// Groups of two, or what has come after ten seconds.
fn pairs() -> TestFlow {
    sound_flow(
        "- aggregate:
    key: .key
    count: 2
    time: 10s
    steps:
      - http: { to: 'crm:/group', body: '${ [$key, map(.value)] }' }
        on_error: [ { on: connection, map: map(.value) } ]
- map: '[., $aggregate.complete, $aggregate.count, $aggregate.key]'",
    )
}

fn body(key: &str, value: u32) -> String {
    format!("{{\"key\":\"{key}\",\"value\":{value}}}")
}

#[test]
fn the_last_message_of_a_group_runs_the_steps_and_goes_on_with_their_result() {
    let (flow, services) = (pairs(), FakeServices::default());
    services.run_to_end(async {
        let run = async |key, value| flow.start(&body(key, value), &services).await.unwrap();
        let first = run("a", 1).await;
        assert_eq!(first, format!("[{},false,1,\"a\"]", body("a", 1)));
        let other = run("b", 2).await;
        assert_eq!(other, format!("[{},false,1,\"b\"]", body("b", 2)));
        assert_eq!(run("a", 3).await, "[[1,3],true,2,\"a\"]");
        assert_eq!(services.sent(), ["[\"a\",[1,3]]"]);
        assert_eq!(flow.measures(&services)[0], "aggregate_groups 1");
        assert_eq!(run("b", 4).await, "[[2,4],true,2,\"b\"]");
    });
    // The timers have gone with their groups.
    assert_eq!(services.wall(), Duration::ZERO);
    assert_eq!(services.sent().len(), 2);
}

#[test]
fn a_group_is_complete_some_time_after_its_first_message() {
    let flow = sound_flow(
        "- set: { sender: '${ .value }' }
- aggregate:
    key: .key
    time: 10s
    steps:
      - http: { to: 'crm:/group', body: '${ [$key, $sender, map(.value)] }' }",
    );
    let services = FakeServices {
        reply: Some(message::Reply::new(200)),
        ..FakeServices::default()
    };
    services.run_to_end(async {
        for value in [1, 2, 3] {
            let body = body("a", value);
            assert_eq!(flow.start(&body, &services).await.unwrap(), body);
            services.sleep(seconds(4)).await;
        }
        assert_eq!(services.sent(), ["[\"a\",1,[1,2,3]]"]);
        flow.start(&body("a", 4), &services).await.unwrap();
        assert_eq!(services.sent().len(), 1);
    });
    assert_eq!(services.sent().last().unwrap(), "[\"a\",4,[4]]");
    assert_eq!(services.wall(), seconds(22));
    let measures = flow.measures(&services);
    assert_eq!(measures[0], "aggregate_groups 0");
    assert_eq!(measures[2], "aggregate_timed_out_total 2");
}

#[test]
fn the_timer_of_a_complete_group_does_not_end_the_next_one_of_its_key() {
    let (flow, services) = (pairs(), FakeServices::default());
    services.run_to_end(async {
        for value in [1, 2] {
            flow.start(&body("a", value), &services).await.unwrap();
            services.sleep(seconds(4)).await;
        }
        flow.start(&body("a", 3), &services).await.unwrap();
        services.sleep(seconds(9)).await;
        assert_eq!(services.sent().len(), 1);
        services.sleep(seconds(2)).await;
        assert_eq!(services.sent()[1], "[\"a\",[3]]");
    });
}

#[test]
fn steps_that_fail_fail_the_message_that_completed_the_group() {
    let flow = sound_flow(
        "- aggregate: { key: '1', count: 2, time: 1s, steps: [ { raise: { type: bad } } ] }",
    );
    let services = FakeServices::default();
    services.run_to_end(async {
        assert!(flow.start("1", &services).await.is_ok());
        assert_eq!(failure(flow.start("2", &services).await), "bad");
        assert!(flow.start("3", &services).await.is_ok());
    });
    let measures = flow.measures(&services);
    let expected = [
        "aggregate_groups 0",
        "aggregate_completed_total 1",
        "aggregate_timed_out_total 1",
        "aggregate_failed_total 2",
        "aggregate_refused_total 0",
    ];
    assert_eq!(measures, expected);
}

#[test]
fn steps_that_reply_end_the_flow_of_the_message_that_completed_the_group() {
    let flow = sound_flow(
        "- aggregate: { key: '1', count: 2, time: 1s, steps: [ { reply: { status: 299 } } ] }
- reply: { status: 202, body: '' }",
    );
    let services = FakeServices::default();
    services.run_to_end(async {
        assert_eq!(flow.start("1", &services).await.unwrap(), "202 ");
        assert_eq!(flow.start("2", &services).await.unwrap(), "299 [1,2]");
    });
}

#[test]
fn there_is_a_bound_on_groups() {
    let flow = sound_flow(
        "- aggregate: { key: ., count: 2, time: 1s, groups_max: 2, steps: [ { map: . } ] }",
    );
    let services = FakeServices::default();
    services.run_to_end(async {
        assert!(flow.start("1", &services).await.is_ok());
        assert!(flow.start("2", &services).await.is_ok());
        let fault = flow.start("3", &services).await.unwrap_err();
        assert_eq!((fault.name(), fault.status), ("unavailable", 503));
        assert_eq!(fault.retry_after, Some(seconds(1)));
        assert_eq!(flow.start("1", &services).await.unwrap(), "[1,1]");
        assert!(flow.start("3", &services).await.is_ok());
    });
    assert_eq!(flow.measures(&services)[4], "aggregate_refused_total 1");
}

#[test]
fn a_message_without_a_key_or_with_a_huge_one_fails() {
    let flow = sound_flow("- aggregate: { key: .key, time: 1s, steps: [ { map: . } ] }");
    let services = FakeServices::default();
    let huge = format!("{{\"key\":\"{}\"}}", "x".repeat(KEY_MAX));
    for body in ["{}", &huge] {
        assert_eq!(failure(flow.run(body, &services)), "invalid");
    }
    assert_eq!(flow.measures(&services)[0], "aggregate_groups 0");
}

#[test]
fn the_result_is_there_behind_and_the_key_within_only() {
    for (name, is_there) in [("aggregate", true), ("key", false), ("seen", false)] {
        let steps = "steps: [ { set: { seen: '${ $key }' } } ]";
        let yaml = format!("- aggregate: {{ key: ., time: 1s, {steps} }}\n- map: ${name}");
        assert_eq!(flow(&yaml).is_ok(), is_there, "{name}");
    }
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("{ key: . }", &["IT0113 1:1"]),
            (
                "{ key: ., steps: [ { map: . } ] }",
                &["IT0260 1:1 `aggregate` has `count`, `time` or both"],
            ),
            (
                "{ key: '.[', count: 1, time: 0s, groups_max: 0, steps: [ { map: . } ] }",
                &[
                    "IT0250 1:21 `count` is 1, outside its range",
                    "IT0250 1:30 `time` is 0ms, outside its range",
                    "IT0250 1:46 `groups_max` is 0, outside its range",
                    "IT0230 1:8 `[` is never closed",
                ],
            ),
        ],
    );
}

#[test]
fn a_count_without_a_time_is_a_warning() {
    let problems = flow(
        "- choose:
    - { when: 'true', aggregate: { key: ., count: 2, steps: [ { map: . } ] } }",
    );
    let warning = "IT0260 2:51 a group that does not reach this count stays for ever";
    assert_eq!(problems.err().unwrap(), [warning]);
}
