//! Tests of `idempotent`.

use std::cell::Cell;
use std::time::Duration;

use component::handler::within;
use message::Reply;

use super::DEFINITION;
use crate::testing::{FakeServices, TestFlow, assert_problems, flow, sound_flow};

const SECOND: Duration = Duration::from_secs(1);

fn once(settings: &str) -> TestFlow {
    sound_flow(&format!(
        "- idempotent: {{ key: \"${{ .id }}\", {settings} steps: [{{ http: GET crm:/x }}] }}\n\
         - map: '[., $duplicate]'"
    ))
}

fn measures(flow: &TestFlow, services: &FakeServices) -> Vec<String> {
    flow.measures(services)
}

#[test]
fn steps_are_run_once_for_each_key_until_its_window_is_over() {
    let flow = once("window: 10s,");
    let services = FakeServices::counting(Duration::ZERO, |_| false);
    let run = |body: &str| flow.run(body, &services).unwrap();
    assert_eq!(run("{\"id\": 1}"), "[1,false]");
    assert_eq!(run("{\"id\": 1}"), "[{\"id\":1},true]");
    assert_eq!(run("{\"id\": 2}"), "[2,false]");
    services.pass(10 * SECOND - Duration::from_millis(1));
    assert_eq!(run("{\"id\": 1}"), "[{\"id\":1},true]");
    services.pass(Duration::from_millis(1));
    assert_eq!(run("{\"id\": 1}"), "[3,false]");
    let expected = [
        "idempotent_firsts_total 3",
        "idempotent_duplicates_total 2",
        "idempotent_refused_total 0",
        "idempotent_keys 1",
        "idempotent_bytes 0",
        "idempotent_evicted_total 0",
        "idempotent_unwritten_total 0",
    ];
    assert_eq!(measures(&flow, &services), expected);
}

#[test]
fn a_failed_key_can_be_tried_again() {
    let flow = once("");
    let services = FakeServices::counting(Duration::ZERO, |call| call == 1);
    let body = "{\"id\": 1}";
    assert_eq!(flow.run(body, &services).unwrap_err().name(), "connection");
    assert_eq!(flow.run(body, &services).unwrap(), "[2,false]");
    assert_eq!(flow.run(body, &services).unwrap(), "[{\"id\":1},true]");
}

#[test]
fn a_key_that_was_given_up_can_be_tried_again() {
    let flow = once("");
    let services = FakeServices::counting(SECOND, |_| false);
    let body = "{\"id\": 1}";
    services.run_to_end(async {
        let given_up = flow.start(body, &services);
        assert!(within(SECOND / 2, &services, given_up).await.is_none());
    });
    assert_eq!(flow.run(body, &services).unwrap(), "[2,false]");
}

#[test]
fn a_key_whose_steps_have_succeeded_is_known_when_nobody_waits_for_its_result() {
    // The result is written beside the worker, which takes a second.
    let steps = "steps: [{ http: POST crm:/x }, { map: '[\"x\" * 300000]' }]";
    let flow = sound_flow(&format!(
        "- idempotent: {{ key: \"${{ .id }}\", replay: true, {steps} }}\n- map: $duplicate"
    ));
    let services = FakeServices::counting(Duration::ZERO, |_| false);
    services.beside_time.set(SECOND);
    services.run_to_end(async {
        let given_up = flow.start("{\"id\": 1}", &services);
        assert!(within(SECOND / 2, &services, given_up).await.is_none());
    });
    assert_eq!(services.beside.get().0, 1, "it was given up there");
    let fault = flow.run("{\"id\": 1}", &services).unwrap_err();
    assert_eq!((fault.name(), fault.status), ("not-kept", 409));
    assert_eq!(services.calls.borrow().len(), 1);
}

#[test]
fn a_key_under_way_is_refused() {
    let flow = once("replay: true,");
    let services = FakeServices::counting(SECOND, |_| false);
    let body = "{\"id\": 1}";
    services.run_to_end(async {
        let mut first = Box::pin(flow.start(body, &services));
        assert!(within(SECOND / 2, &services, &mut first).await.is_none());
        let fault = flow.start(body, &services).await.unwrap_err();
        assert_eq!((fault.name(), fault.status), ("in-progress", 409));
        assert_eq!(fault.retry_after, Some(SECOND));
        assert_eq!(first.await.unwrap(), "[1,false]");
    });
    assert_eq!(flow.run(body, &services).unwrap(), "[1,true]");
    assert!(measures(&flow, &services).contains(&"idempotent_refused_total 1".to_owned()));
}

#[test]
fn a_duplicate_gets_what_the_first_got_when_the_step_says_so() {
    let flow = once("replay: true,");
    let services = FakeServices::counting(Duration::ZERO, |_| false);
    for expected in ["[1,false]", "[1,true]", "[1,true]"] {
        assert_eq!(flow.run("{\"id\": 1}", &services).unwrap(), expected);
    }
    let flow = sound_flow(
        "- idempotent:\n    key: \"${ .id }\"\n    replay: true\n    steps:\n      \
         - http: POST crm:/x\n      - reply: { status: 201, headers: { X-A: b } }",
    );
    assert_eq!(flow.traits(), (true, true));
    for _ in 0..2 {
        assert_eq!(flow.run("{\"id\": 1}", &services).unwrap(), "201 2");
    }
}

#[test]
fn a_result_without_room_is_not_kept_and_its_duplicate_fails() {
    for settings in ["body_max: 100B", "memory: 1KiB"] {
        let flow = sound_flow(&format!(
            "- idempotent: {{ key: \"${{ .id }}\", replay: true, {settings}, \
             steps: [{{ map: '\"x\" * 2000' }}] }}"
        ));
        let services = FakeServices::default();
        flow.run("{\"id\": 1}", &services).unwrap();
        let fault = flow.run("{\"id\": 1}", &services).unwrap_err();
        assert_eq!(
            (fault.name(), fault.status),
            ("not-kept", 409),
            "{settings}"
        );
        let flow = sound_flow(&format!(
            "- idempotent: {{ key: \"${{ .id }}\", replay: true, {settings}, \
             steps: [{{ reply: {{ body: \"${{ \\\"x\\\" * 2000 }}\" }} }}] }}"
        ));
        flow.run("{\"id\": 1}", &services).unwrap();
        let fault = flow.run("{\"id\": 1}", &services).unwrap_err();
        assert_eq!(fault.name(), "not-kept", "{settings}");
    }
}

#[test]
fn memory_is_free_again_when_keys_are_over() {
    let flow = sound_flow(
        "- idempotent: { key: \"${ .id }\", replay: true, window: 1s, memory: 4KiB, \
         steps: [{ map: '\"x\" * 900' }] }",
    );
    let services = FakeServices::default();
    for round in 0..3 {
        for id in 0..10 {
            let body = format!("{{\"id\": \"{round}-{id}\"}}");
            flow.run(&body, &services).unwrap();
            let result = flow.run(&body, &services);
            assert_eq!(result.is_ok(), id == 0, "{body}");
        }
        services.pass(SECOND);
    }
}

#[test]
fn other_steps_are_run_for_duplicates() {
    let flow = sound_flow(
        "- idempotent:\n    key: \"${ .id }\"\n    steps: [{ map: 1 }]\n    \
         on_duplicate: [{ map: '[\"again\", .id]' }]\n- map: '[., $duplicate]'",
    );
    let services = FakeServices::default();
    assert_eq!(flow.run("{\"id\": 1}", &services).unwrap(), "[1,false]");
    assert_eq!(
        flow.run("{\"id\": 1}", &services).unwrap(),
        "[[\"again\",1],true]"
    );
}

#[test]
fn the_flow_ends_here_only_when_it_ends_for_all() {
    let yaml = |more: &str| {
        format!(
            "- idempotent: {{ key: \"${{ $path.id }}\", steps: [{{ reply: {{ body: a }} }}]{more} }}"
        )
    };
    assert_eq!(sound_flow(&yaml("")).traits(), (false, false));
    assert_eq!(sound_flow(&yaml(", replay: true")).traits(), (false, true));
    let replies = ", on_duplicate: [{ reply: { status: 409, body: b } }]";
    assert_eq!(sound_flow(&yaml(replies)).traits(), (false, true));
    let goes_on = ", on_duplicate: [{ log: again }]";
    assert!(!sound_flow(&yaml(goes_on)).traits().1);
}

#[test]
fn a_message_without_a_key_is_invalid() {
    let flow = once("");
    let services = FakeServices::default();
    for body in ["{}", "{\"id\": \"\"}", "{\"id\": null}", "{"] {
        let fault = flow.run(body, &services).unwrap_err();
        assert_eq!((fault.name(), fault.status), ("invalid", 400), "{body}");
    }
    let fault = flow.run("[]", &services).unwrap_err();
    assert_eq!(fault.name(), "expression");
}

#[test]
fn a_result_that_cannot_be_written_does_not_forget_the_key() {
    let flow = sound_flow(
        "- idempotent:\n    key: \"${ .id }\"\n    replay: true\n    steps:\n      \
         - http: POST crm:/x\n      - map: '(\"x\" * 1048576) as $x | [range(70) | $x]'\n\
         - map: $duplicate",
    );
    let calls = std::rc::Rc::new(Cell::new(0));
    let counted = std::rc::Rc::clone(&calls);
    let services = FakeServices::scripted(move |_| {
        counted.set(counted.get() + 1);
        (Duration::ZERO, Ok(Reply::new(200)))
    });
    let body = "{\"id\": 1}";
    assert_eq!(flow.run(body, &services).unwrap(), "false");
    let fault = flow.run(body, &services).unwrap_err();
    assert_eq!((fault.name(), calls.get()), ("not-kept", 1));
}

#[test]
fn the_oldest_key_makes_room_but_none_that_is_under_way() {
    let flow = once("max: 2,");
    let services = FakeServices::counting(Duration::ZERO, |_| false);
    let run = |id: u32| flow.run(&format!("{{\"id\": {id}}}"), &services).unwrap();
    for id in 1..=3 {
        assert!(run(id).contains("false"));
    }
    assert!(run(3).contains("true") && run(2).contains("true"));
    assert!(run(1).contains("false"), "forgotten");
    assert!(measures(&flow, &services).contains(&"idempotent_evicted_total 2".to_owned()));

    let flow = once("max: 2,");
    let services = FakeServices::counting(SECOND, |_| false);
    services.run_to_end(async {
        let mut first = Box::pin(flow.start("{\"id\": 1}", &services));
        let mut second = Box::pin(flow.start("{\"id\": 2}", &services));
        assert!(within(SECOND / 4, &services, &mut first).await.is_none());
        assert!(within(SECOND / 4, &services, &mut second).await.is_none());
        let fault = flow.start("{\"id\": 3}", &services).await.unwrap_err();
        assert_eq!((fault.name(), fault.status), ("unavailable", 503));
        assert!(first.await.is_ok());
        assert!(flow.start("{\"id\": 4}", &services).await.is_ok());
        assert!(second.await.is_ok());
    });
    assert!(flow.run("{\"id\": 2}", &services).unwrap().contains("true"));
}

#[test]
fn names_of_the_steps_end_with_them() {
    let yaml = "- idempotent: { key: \"${ .id }\", steps: [{ map: 1, as: x }] }\n- map: $x";
    assert!(flow(yaml).is_err());
}

#[test]
fn problems_are_told_at_their_places() {
    let (key, steps) = ("key: \"${ .id }\"", "steps: [{ map: 1 }]");
    for (yaml, expected) in [
        (
            format!("{{ key: $headers.a, {steps} }}"),
            "IT0273 1:8 the key is the same for every message",
        ),
        (
            format!("{{ {key}, window: 0s, {steps} }}"),
            "IT0250 1:28 `window` is 0ms, outside its range",
        ),
        (
            format!("{{ {key}, max: 0, {steps} }}"),
            "IT0250 1:25 `max` is 0, outside its range",
        ),
        (
            format!("{{ {key}, body_max: 1KiB, {steps} }}"),
            "IT0245 1:20 `body_max` has no effect without `replay`",
        ),
        (
            format!("{{ {key}, {steps}, replay: true, on_duplicate: [{{ map: 1 }}] }}"),
            "IT0255 1:55 `replay` and `on_duplicate` both say what a duplicate gets",
        ),
        (format!("{{ {key} }}"), "IT0113 1:1"),
        (format!("{{ {steps} }}"), "IT0113 1:1"),
    ] {
        assert_problems(&DEFINITION, &[(&yaml, &[expected])]);
    }
}
