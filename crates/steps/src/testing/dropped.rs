//! Flows that are dropped at each of their awaits, by a client that leaves, a faster branch or a
//! time-out: nothing is left behind, and the next message gets what it would have got.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use component::handler::Services as _;
use message::Reply;
use testkit::{TempDir, drop_at_every_await};

use crate::testing::{FakeServices, TestFlow, sound_flow};

const BODY: &str = "{\"id\":1}";

/// Systems that each take a moment, give tokens, and answer with a number.
fn systems() -> FakeServices {
    FakeServices::scripted(|request| {
        let body: &[u8] = match request.path.as_str() {
            "/token" => br#"{"access_token":"1","expires_in":3600}"#,
            _ => b"7",
        };
        let reply = Reply::with_content(200, "application/json", body.to_vec());
        (Duration::from_millis(1), Ok(reply))
    })
}

fn measure(flow: &TestFlow, services: &FakeServices, name: &str) -> Option<String> {
    let measures = flow.measures(services);
    let start = format!("{name} ");
    let found = measures.iter().find_map(|it| it.strip_prefix(&start));
    found.map(str::to_owned)
}

/// Drops a flow at each await. Behind each drop its next message gets what is expected, at once.
fn assert_nothing_is_left(yaml: &str, expected: &str) {
    assert_nothing_is_left_by(&systems(), yaml, expected);
}

fn assert_nothing_is_left_by(services: &FakeServices, yaml: &str, expected: &str) {
    let current = RefCell::new(Rc::new(sound_flow(yaml)));
    let check = |polls: usize| {
        // Each drop has a flow of its own, whose states nobody has touched before.
        let flow = current.replace(Rc::new(sound_flow(yaml)));
        services.run_to_end(async {});
        assert_eq!(services.clock.timers(), 0, "{yaml} after {polls}");
        let before = services.now();
        let result = flow.run(BODY, services);
        assert_eq!(result.unwrap(), expected, "{yaml} after {polls}");
        let took = services.now() - before;
        assert!(
            took < Duration::from_secs(1),
            "{took:?} after {polls}: {yaml}"
        );
        for name in ["cache_entries", "idempotent_keys"] {
            let entries = measure(&flow, services, name);
            assert!(entries.is_none_or(|it| it == "1"), "{yaml} after {polls}");
        }
        let groups = measure(&flow, services, "aggregate_groups");
        assert!(groups.is_none_or(|it| it == "0"), "{yaml} after {polls}");
    };
    let polls = drop_at_every_await(
        || {
            let flow = Rc::clone(&current.borrow());
            async move { flow.start(BODY, services).await.unwrap() }
        },
        || {
            if services.clock.timers() > 0 {
                services.clock.advance();
            }
        },
        check,
    );
    assert!(polls > 2, "{yaml} waits too seldom");
}

const TWO: &str = "{ http: GET crm:/a }, { http: GET crm:/b }";

#[test]
fn calls_and_tokens() {
    assert_nothing_is_left(&format!("[{TWO}]"), "7");
    assert_nothing_is_left("[{ http: GET bank:/a }, { http: GET bank:/b }]", "7");
}

#[test]
fn other_flows_and_delays() {
    let inner = sound_flow(&format!("- delay: 2ms\n- parallel: {{ a: [{TWO}] }}"));
    let services = FakeServices {
        flows: vec![("inner", Arc::new(inner))],
        ..systems()
    };
    let yaml = "- call: inner\n- delay: 2ms\n- http: GET crm:/b";
    assert_nothing_is_left_by(&services, yaml, "7");
}

#[test]
fn steps_within_steps() {
    for (yaml, expected) in [
        (
            format!("- first: [[{TWO}], [{{ delay: 9ms }}, {TWO}]]"),
            "7",
        ),
        (
            format!("- parallel: {{ a: [{TWO}], b: [{TWO}] }}"),
            "{\"a\":7,\"b\":7}",
        ),
        (
            format!("- try: {{ steps: [{TWO}], finally: [{TWO}] }}"),
            "7",
        ),
        (
            format!("- while: {{ when: $round < 3, steps: [{TWO}] }}"),
            "7",
        ),
        (
            format!("- each: {{ in: '[1, 2, 3]', steps: [{TWO}] }}"),
            "[7,7,7]",
        ),
        (
            format!("- each: {{ in: '[1, 2, 3]', parallel: 2, steps: [{TWO}] }}"),
            "[7,7,7]",
        ),
        (format!("- if: {{ when: 'true', then: [{TWO}] }}"), "7"),
        (
            format!("- wiretap: {{ steps: [{TWO}] }}\n- http: GET crm:/c\n- http: GET crm:/d"),
            "7",
        ),
    ] {
        assert_nothing_is_left(&yaml, expected);
    }
}

#[test]
fn keys_that_only_one_may_hold() {
    for yaml in [
        format!("- cache: {{ key: '${{ .id }}', ttl: 10s, steps: [{TWO}] }}\n- map: '[., $cache]'"),
        format!("- idempotent: {{ key: '${{ .id }}', steps: [{TWO}] }}\n- map: '[., $duplicate]'"),
    ] {
        let expected = match yaml.contains("cache") {
            true => "[7,\"miss\"]",
            false => "[7,false]",
        };
        assert_nothing_is_left(&yaml, expected);
    }
}

/// A group that was begun by a message that is dropped then is complete when its time is over.
#[test]
fn groups_of_messages() {
    let group = format!("{{ key: '1', count: 2, time: 100ms, steps: [{TWO}] }}");
    assert_nothing_is_left(
        &format!(
            "- each: {{ in: '[1, 2]', steps: [{{ http: GET crm:/a }}, {{ aggregate: {group} }}] }}"
        ),
        "[7,7]",
    );
}

/// Systems of which the worker has a moment of waiting for whatever is done beside it.
fn slow_systems() -> FakeServices {
    FakeServices {
        beside_time: Cell::new(Duration::from_millis(1)),
        ..systems()
    }
}

/// Bodies so large that they are read, written and checked beside the worker.
#[test]
fn work_beside_the_worker() {
    let large = "\"x\" * 300000";
    for (steps, expected) in [
        (
            "- map: '[LARGE]'\n- validate: { schema: { type: array } }\n- map: length",
            "1",
        ),
        (
            "- map: '[LARGE]'\n- encode: json\n- decode: json\n- map: .[0] | length",
            "300000",
        ),
        (
            "- map: 'LARGE'\n- encode: gzip\n- decode: gzip\n- map: length",
            "300000",
        ),
        (
            // What it becomes is no larger than the trigger takes.
            "- map: '\"<r><!--\" + (LARGE) + \"--><a>1</a></r>\"'\n- encode: text\n\
             - convert: { from: xml, to: json }\n- map: .r.a",
            "\"1\"",
        ),
    ] {
        let steps = steps.replace("LARGE", large);
        let yaml = format!("- http: GET crm:/a\n{steps}");
        assert_nothing_is_left_by(&slow_systems(), &yaml, expected);
    }
}

#[test]
fn files_and_dead_letters() {
    let folder = TempDir::new();
    let path = folder.path().display();
    let files = format!(
        "- write-file: {{ folder: '{path}', name: a.json, mode: replace }}\n\
         - http: GET crm:/a\n\
         - read-file: {{ folder: '{path}', name: a.json, decode: json }}\n\
         - set: {{ read: '${{ .id }}' }}\n\
         - list-files: {{ folder: '{path}' }}\n\
         - map: '[$read, length]'\n\
         - delete-file: {{ folder: '{path}', name: a.json }}"
    );
    assert_nothing_is_left_by(&slow_systems(), &files, "[1,1]");
    assert_eq!(names(&folder), Vec::<String>::new());
    let letters = format!(
        "- http: GET crm:/a\n- raise: {{ type: bad }}\n  \
         on_error: [ {{ on: bad, dead-letter: {{ folder: '{path}' }} }} ]\n\
         - http: GET crm:/b"
    );
    assert_nothing_is_left_by(&slow_systems(), &letters, "7");
    let names = names(&folder);
    let is_whole = |name: &String| name.ends_with(".json");
    assert!(!names.is_empty() && names.iter().all(is_whole), "{names:?}");
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// Those who wait for the result of another message are dropped; then that one is.
#[test]
fn waiting_for_another_message() {
    let yaml = "- cache: { key: '${ .id }', ttl: 10s, steps: [{ http: GET crm:/x }] }";
    let (services, flow) = (systems(), sound_flow(yaml));
    let first = Cell::new(None);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let polls = drop_at_every_await(
        || {
            let mut leader = Box::pin(flow.start(BODY, &services));
            if leader.as_mut().poll(&mut context).is_pending() {
                first.set(Some(leader));
            }
            flow.start(BODY, &services)
        },
        || match first.take() {
            Some(leader) => drop(leader),
            None if services.clock.timers() > 0 => services.clock.advance(),
            None => {}
        },
        |_| {
            drop(first.take());
            assert_eq!(services.clock.timers(), 0);
        },
    );
    assert!(polls > 1);
}
