//! Copies of messages and what becomes of them.

use super::*;
use crate::testing::{FakeServices, assert_problems, flow, sound_flow};

#[test]
fn the_flow_goes_on_at_once_and_the_copy_on_its_own() {
    let flow = sound_flow(
        "- set: { who: you }
- wiretap:
    steps:
      - delay: 5s
      - http: { to: 'crm:/seen', method: POST, body: '${ . + $who }' }
      - map: '\"of the copy\"'
- set: { who: me }
- map: '. + \" behind\"'",
    );
    let services = FakeServices::default();
    assert_eq!(flow.run("\"a\"", &services).unwrap(), "\"a behind\"");
    assert_eq!(services.done_after(), 0);
    assert_eq!(services.sent(), ["ayou"]);
    assert_eq!(services.wall(), Duration::from_secs(5));
}

#[test]
fn a_failure_is_counted_and_hidden_from_the_flow() {
    let flow = sound_flow("- wiretap: { steps: [ { raise: { type: bad }, if: . == 1 } ] }");
    let services = FakeServices::default();
    for body in ["1", "2", "1"] {
        assert_eq!(flow.run(body, &services).unwrap(), body);
    }
    let measures = flow.measures(&services);
    let expected = [
        "wiretap_running 0",
        "wiretap_dropped_total 0",
        "wiretap_failed_total 2",
    ];
    assert_eq!(measures, expected);
}

#[test]
fn beyond_the_queue_copies_are_dropped_and_counted() {
    let flow =
        sound_flow("- wiretap: { queue: 2, steps: [ { delay: 1s }, { http: POST crm:/seen } ] }");
    let services = FakeServices::default();
    services.run_to_end(async {
        for body in ["1", "2", "3"] {
            flow.start(body, &services).await.unwrap();
        }
        assert_eq!(flow.measures(&services)[0], "wiretap_running 2");
        services.sleep(Duration::from_secs(2)).await;
        flow.start("4", &services).await.unwrap();
    });
    assert_eq!(services.sent(), ["1", "2", "4"]);
    assert_eq!(flow.measures(&services)[1], "wiretap_dropped_total 1");
    assert_eq!(flow.measures(&services)[0], "wiretap_running 0");
}

#[test]
fn a_copy_has_a_time_of_its_own_and_not_the_flows() {
    let steps = "steps: [ { delay: 20s }, { http: POST crm:/seen } ]";
    for (timeout, sent, failed) in [("30s", 1, 0), ("10s", 0, 1)] {
        let flow = sound_flow(&format!("- wiretap: {{ timeout: {timeout}, {steps} }}"));
        let services = FakeServices {
            reply: Some(message::Reply::new(200)),
            ..FakeServices::default()
        };
        let mut exchange = flow.exchange("1");
        exchange.deadline = Some(services.now() + Duration::from_secs(1));
        services
            .run_to_end(flow.answer(&mut exchange, &services))
            .unwrap();
        assert_eq!(services.sent().len(), sent, "{timeout}");
        let failures = format!("wiretap_failed_total {failed}");
        assert_eq!(flow.measures(&services)[2], failures);
    }
}

#[test]
fn a_reply_of_a_copy_goes_nowhere() {
    let flow = sound_flow("- wiretap: { steps: [ { reply: { status: 299 } } ] }\n- map: 1");
    let services = FakeServices::default();
    assert_eq!(flow.run("0", &services).unwrap(), "1");
    assert_eq!(flow.measures(&services)[2], "wiretap_failed_total 0");
}

#[test]
fn what_its_steps_set_is_not_there_behind() {
    let problems = flow("- wiretap: { steps: [ { set: { a: 1 } } ] }\n- map: $a");
    let problems = problems.err().unwrap();
    assert!(problems[0].starts_with("IT0230 2:8"), "{problems:?}");
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("[ { log: a } ]", &["IT0112 1:1"]),
            ("{ queue: 1 }", &["IT0113 1:1"]),
            (
                "{ queue: 0, timeout: 2d, steps: [ { map: '.[' } ] }",
                &[
                    "IT0250 1:10 `queue` is 0, outside its range",
                    "IT0250 1:22 `timeout` is 2d, outside its range",
                    "IT0230 1:42 `[` is never closed",
                ],
            ),
        ],
    );
}
