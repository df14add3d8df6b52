//! Tests of `cache`.

use std::cell::Cell;
use std::time::Duration;

use message::{Fault, Kind, Origin, Reply};

use super::DEFINITION;
use crate::testing::{FakeServices, TestFlow, assert_problems, flow, sound_flow};

const SECOND: Duration = Duration::from_secs(1);

fn cached(settings: &str) -> TestFlow {
    sound_flow(&format!(
        "- cache: {{ key: \"${{ .id }}\", {settings}, steps: [{{ http: GET crm:/x }}] }}\n\
         - map: '[., $cache]'"
    ))
}

fn measure(flow: &TestFlow, services: &FakeServices, name: &str) -> f64 {
    let measures = flow.measures(services);
    let found = measures
        .iter()
        .find_map(|it| it.strip_prefix(&format!("{name} ")));
    found
        .unwrap_or_else(|| panic!("{measures:?}"))
        .parse()
        .unwrap()
}

#[test]
fn a_result_is_made_once_for_each_key_and_made_again_when_it_is_old() {
    let flow = cached("ttl: 10s");
    let services = FakeServices::counting(Duration::ZERO, |_| false);
    let run = |id: &str| flow.run(&format!("{{\"id\": {id}}}"), &services).unwrap();
    assert_eq!(run("1"), "[1,\"miss\"]");
    assert_eq!(run("1"), "[1,\"hit\"]");
    assert_eq!(run("2"), "[2,\"miss\"]");
    services.pass(10 * SECOND - Duration::from_millis(1));
    assert_eq!(run("1"), "[1,\"hit\"]");
    services.pass(Duration::from_millis(1));
    assert_eq!(run("1"), "[3,\"miss\"]");
    for (name, value) in [
        ("cache_hits_total", 2.0),
        ("cache_misses_total", 3.0),
        ("cache_entries", 2.0),
        ("cache_evicted_total", 0.0),
        ("cache_stale_total", 0.0),
    ] {
        assert_eq!(measure(&flow, &services, name), value, "{name}");
    }
}

#[test]
fn a_body_comes_back_with_its_media_type() {
    let flow = sound_flow("- cache: { key: \"${ .id }\", ttl: 1s, steps: [{ http: GET crm:/x }] }");
    let mut kept = Reply::with_content(200, "image/png", b"\xff\x00".to_vec());
    kept.headers.append("Content-Encoding", "br");
    let services = FakeServices {
        reply: Some(kept),
        ..FakeServices::default()
    };
    for _ in 0..2 {
        let mut exchange = flow.exchange("{\"id\": 1}");
        services.run_to_end(async {
            // What is left is no JSON, which is not asked for here.
            let _ = flow.answer(&mut exchange, &services).await;
        });
        let (body, media_type) = exchange.body().unwrap();
        assert_eq!(body.as_bytes(), b"\xff\x00");
        assert_eq!(media_type.as_deref(), Some(&b"image/png"[..]));
        assert_eq!(exchange.content_encoding().as_deref(), Some(&b"br"[..]));
    }
    assert_eq!(services.calls.borrow().len(), 1);
}

#[test]
fn a_kept_request_body_does_not_take_the_head_of_the_next_request() {
    let flow = sound_flow(
        "- cache: { key: \"${ $headers.\\\"x-key\\\" }\", ttl: 1s, steps: [{ log: hello }] }",
    );
    let services = FakeServices::default();
    let lines = |media_type| [("Content-Type", media_type), ("X-Key", "a")];
    let mut first = flow.exchange_of(&lines("application/json"), "[1]");
    services
        .run_to_end(flow.answer(&mut first, &services))
        .unwrap();
    let mut second = flow.exchange_of(&lines("text/plain"), "other");
    let result = services.run_to_end(flow.answer(&mut second, &services));
    assert_eq!(result.unwrap(), "[1]");
    assert_eq!(
        second.content_type().as_deref(),
        Some(&b"application/json"[..])
    );
}

#[test]
fn a_failure_is_not_kept() {
    let flow = cached("ttl: 10s");
    let services = FakeServices::counting(Duration::ZERO, |call| call == 1);
    let body = "{\"id\": 1}";
    assert_eq!(flow.run(body, &services).unwrap_err().name(), "connection");
    assert_eq!(flow.run(body, &services).unwrap(), "[2,\"miss\"]");
}

#[test]
fn an_old_result_stands_in_for_a_failure_of_the_other_system() {
    let flow = cached("ttl: 10s, stale: 1m");
    let services = FakeServices::counting(Duration::ZERO, |call| call > 1);
    let body = "{\"id\": 1}";
    assert_eq!(flow.run(body, &services).unwrap(), "[1,\"miss\"]");
    services.pass(30 * SECOND);
    assert_eq!(flow.run(body, &services).unwrap(), "[1,\"stale\"]");
    assert_eq!(services.calls.borrow().len(), 2);
    assert_eq!(measure(&flow, &services, "cache_stale_total"), 1.0);
    services.pass(40 * SECOND);
    assert_eq!(flow.run(body, &services).unwrap_err().name(), "connection");
}

#[test]
fn which_failures_an_old_result_stands_in_for() {
    let of = Fault::of_status;
    let kind = |kind| Fault::new(kind, Origin::Upstream, "");
    for (fault, is_hidden) in [
        (of(500), true),
        (of(503), true),
        (of(429), true),
        (of(404), false),
        (of(302), false),
        (kind(Kind::Timeout), true),
        (kind(Kind::Connection), true),
        (kind(Kind::Unavailable), true),
        (kind(Kind::Limited), true),
        (kind(Kind::Invalid), false),
        (kind(Kind::Expression), false),
        (kind(Kind::Internal), false),
        (Fault::raised("no", None, String::new()), false),
    ] {
        let name = fault.name().to_owned();
        let first = Cell::new(true);
        let services = FakeServices::scripted(move |_| match first.replace(false) {
            true => (Duration::ZERO, Ok(Reply::new(204))),
            false => (Duration::ZERO, Err(fault.clone())),
        });
        let flow = cached("ttl: 1s, stale: 1h");
        flow.run("{\"id\": 1}", &services).unwrap();
        services.pass(2 * SECOND);
        let result = flow.run("{\"id\": 1}", &services);
        assert_eq!(result.is_ok(), is_hidden, "{name}");
    }
}

#[test]
fn one_message_makes_the_result_and_others_wait_for_it() {
    let flow = cached("ttl: 10s");
    let services = FakeServices::counting(SECOND, |_| false);
    let body = "{\"id\": 1}";
    let (first, second, third) = services.run_to_end(async {
        join3(
            flow.start(body, &services),
            flow.start(body, &services),
            flow.start("{\"id\": 2}", &services),
        )
        .await
    });
    assert_eq!(first.unwrap(), "[1,\"miss\"]");
    assert_eq!(second.unwrap(), "[1,\"hit\"]");
    assert_eq!(third.unwrap(), "[2,\"miss\"]");
    assert_eq!(services.done_after(), 1000);
}

#[test]
fn those_who_waited_for_a_failure_go_on_at_the_same_time() {
    let flow = cached("ttl: 10s");
    let services = FakeServices::counting(SECOND, |call| call == 1);
    let body = "{\"id\": 1}";
    let (first, second, third) = services.run_to_end(async {
        join3(
            flow.start(body, &services),
            flow.start(body, &services),
            flow.start(body, &services),
        )
        .await
    });
    assert_eq!(first.unwrap_err().name(), "connection");
    assert!(second.unwrap().contains("miss") && third.unwrap().contains("miss"));
    assert_eq!(services.done_after(), 2000);
    assert_eq!(measure(&flow, &services, "cache_entries"), 1.0);
}

#[test]
fn nobody_waits_longer_than_allowed_and_one_that_is_given_up_holds_nobody_up() {
    let flow = cached("ttl: 10s, wait: 200ms");
    let services = FakeServices::counting(SECOND, |_| false);
    let body = "{\"id\": 1}";
    let start = || flow.start(body, &services);
    let (_, second, _) = services.run_to_end(async { join3(start(), start(), start()).await });
    assert!(second.unwrap().contains("miss"));
    assert_eq!(services.done_after(), 1200);

    let flow = cached("ttl: 10s");
    let body = "{\"id\": 2}";
    services.run_to_end(async {
        let given_up = flow.start(body, &services);
        let in_time = component::handler::within(SECOND / 2, &services, given_up).await;
        assert!(in_time.is_none());
    });
    let before = services.done_after();
    assert!(flow.run(body, &services).unwrap().contains("miss"));
    assert_eq!(services.done_after() - before, 1000);
}

#[test]
fn when_the_one_that_makes_a_result_is_dropped_one_other_makes_it() {
    let flow = cached("ttl: 10s");
    let services = FakeServices::counting(SECOND, |_| false);
    let start = || flow.start("{\"id\": 1}", &services);
    let (first, second, third) = services.run_to_end(async {
        let given_up = async {
            let time = component::handler::within(SECOND / 2, &services, start()).await;
            time.unwrap_or(Ok("given up".to_owned()))
        };
        join3(given_up, start(), start()).await
    });
    assert_eq!(first.unwrap(), "given up");
    assert_eq!(second.unwrap(), "[2,\"miss\"]");
    assert_eq!(third.unwrap(), "[2,\"hit\"]");
    assert_eq!(services.done_after(), 1500);
}

/// Runs three futures beside each other.
async fn join3<T>(
    first: impl Future<Output = T>,
    second: impl Future<Output = T>,
    third: impl Future<Output = T>,
) -> (T, T, T) {
    let mut futures = [
        Box::pin(first) as std::pin::Pin<Box<dyn Future<Output = T>>>,
        Box::pin(second),
        Box::pin(third),
    ];
    let mut results = [None, None, None];
    std::future::poll_fn(|context| {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *result = Some(value);
            }
        }
        match results.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    let mut results = results.into_iter().flatten();
    let mut next = || results.next().unwrap();
    (next(), next(), next())
}

#[test]
fn the_one_that_was_not_used_for_longest_makes_room() {
    let flow = cached("ttl: 1h, max: 2");
    let services = FakeServices::counting(Duration::ZERO, |_| false);
    let run = |id: u32| flow.run(&format!("{{\"id\": {id}}}"), &services).unwrap();
    for (id, expected) in [
        (1, "[1,\"miss\"]"),
        (2, "[2,\"miss\"]"),
        (1, "[1,\"hit\"]"),
        (3, "[3,\"miss\"]"),
        (1, "[1,\"hit\"]"),
        (2, "[4,\"miss\"]"),
    ] {
        assert_eq!(run(id), expected);
    }
    assert_eq!(measure(&flow, &services, "cache_evicted_total"), 2.0);
    assert_eq!(measure(&flow, &services, "cache_entries"), 2.0);
}

#[test]
fn results_are_bounded_by_their_bytes() {
    let yaml = |settings: &str| {
        format!(
            "- cache: {{ key: \"${{ .id }}\", ttl: 1h, {settings}, \
             steps: [{{ map: '{{ t: (\"x\" * 600), id: .id }}' }}] }}\n- map: $cache"
        )
    };
    let services = FakeServices::default();
    let flow = sound_flow(&yaml("memory: 10KiB"));
    for id in 0..100 {
        flow.run(&format!("{{\"id\": {id}}}"), &services).unwrap();
        assert!(measure(&flow, &services, "cache_bytes") <= 10.0 * 1024.0);
    }
    let entries = measure(&flow, &services, "cache_entries");
    assert!((2.0..=8.0).contains(&entries), "{entries}");
    let flow = sound_flow(&yaml("body_max: 500B"));
    for _ in 0..2 {
        assert_eq!(flow.run("{\"id\": 1}", &services).unwrap(), "\"miss\"");
    }
    let flow = sound_flow(&yaml("memory: 1KiB"));
    for _ in 0..2 {
        assert_eq!(flow.run("{\"id\": 1}", &services).unwrap(), "\"miss\"");
    }
    assert_eq!(measure(&flow, &services, "cache_bytes"), 0.0);
}

#[test]
fn keys_of_different_kinds_do_not_meet() {
    let flow =
        sound_flow("- cache: { key: \"${ .k }\", ttl: 1h, steps: [{ map: .k }] }\n- map: $cache");
    let services = FakeServices::default();
    for key in [
        "\"[1]\"",
        "[1]",
        "{\"a\":1}",
        "\"{\\\"a\\\":1}\"",
        "\"\\u0000\"",
        "true",
    ] {
        let result = flow.run(&format!("{{\"k\": {key}}}"), &services).unwrap();
        assert_eq!(result, "\"miss\"", "{key}");
    }
    for key in ["null", "\"\""] {
        let fault = flow
            .run(&format!("{{\"k\": {key}}}"), &services)
            .unwrap_err();
        assert_eq!((fault.name(), fault.status), ("invalid", 400), "{key}");
    }
    for long in ["\"x\"", "[\"x\"]"] {
        let long = long.replace('x', &"x".repeat(20_000));
        let fault = flow
            .run(&format!("{{\"k\": {long}}}"), &services)
            .unwrap_err();
        assert_eq!(fault.name(), "invalid");
    }
    let fault = flow.run("{", &services).unwrap_err();
    assert_eq!(fault.name(), "invalid");
}

#[test]
fn a_list_of_texts_is_a_key() {
    let flow = sound_flow(
        "- cache: { key: [\"${ .a }\", \"${ .b }\"], ttl: 1h, steps: [{ map: .a }] }\n- map: $cache",
    );
    let services = FakeServices::default();
    for (body, expected) in [
        (r#"{"a": "x", "b": "yz"}"#, "\"miss\""),
        (r#"{"a": "xy", "b": "z"}"#, "\"miss\""),
        (r#"{"a": "x", "b": "yz"}"#, "\"hit\""),
    ] {
        assert_eq!(flow.run(body, &services).unwrap(), expected, "{body}");
    }
}

#[test]
fn a_reply_within_the_steps_ends_the_flow_and_is_not_kept() {
    let flow = sound_flow(
        "- cache:\n    key: \"${ .id }\"\n    ttl: 1h\n    steps:\n      - if: { when: .end, \
         then: [{ reply: { status: 202, body: a } }] }\n      - map: 1\n- map: $cache",
    );
    let services = FakeServices::default();
    let run = |body: &str| flow.run(body, &services).unwrap();
    assert_eq!(run(r#"{"id": 1, "end": true}"#), "202 a");
    assert_eq!(run(r#"{"id": 1}"#), "\"miss\"");
    assert_eq!(run(r#"{"id": 1, "end": true}"#), "\"hit\"");
}

#[test]
fn names_of_the_steps_end_with_them() {
    let steps = "steps: [{ map: 1, as: x }]";
    let yaml = format!("- cache: {{ key: \"${{ .id }}\", ttl: 1h, {steps} }}\n- map: $x");
    assert!(flow(&yaml).is_err());
}

#[test]
fn a_cache_of_a_path_does_not_need_the_body() {
    let yaml = |key| format!("- cache: {{ key: \"{key}\", ttl: 1h, steps: [{{ http: crm:/x }}] }}");
    assert_eq!(sound_flow(&yaml("${ $path.id }")).traits(), (false, false));
    assert_eq!(sound_flow(&yaml("${ .id }")).traits(), (true, false));
}

#[test]
fn problems_are_told_at_their_places() {
    let steps = "steps: [{ map: 1 }]";
    let (ttl, key) = ("ttl: 1s", "key: \"${ .id }\"");
    let same = "the key is the same for every message";
    for (yaml, expected) in [
        (
            format!("{{ key: .id, {ttl}, {steps} }}"),
            format!("IT0273 1:8 {same}"),
        ),
        (
            format!("{{ key: [a, b], {ttl}, {steps} }}"),
            format!("IT0273 1:8 {same}"),
        ),
        (
            format!("{{ {key}, ttl: 0s, {steps} }}"),
            "IT0250 1:25 `ttl` is 0ms, outside its range".to_owned(),
        ),
        (
            format!("{{ {key}, {ttl}, max: 0, {steps} }}"),
            "IT0250 1:34 `max` is 0, outside its range".to_owned(),
        ),
        (
            format!("{{ {key}, {ttl}, memory: 1B, {steps} }}"),
            "IT0250 1:37 `memory` is 1B, outside its range".to_owned(),
        ),
        (
            format!("{{ {key}, {ttl}, wait: 2d, {steps} }}"),
            "IT0250 1:35 `wait` is 2d, outside its range".to_owned(),
        ),
        (
            format!("{{ {key}, {ttl}, steps: [{{ reply: }}] }}"),
            "IT0255 1:36 steps that always end the flow leave nothing to keep".to_owned(),
        ),
        (format!("{{ {key}, {steps} }}"), "IT0113 1:1".to_owned()),
        (
            format!("{{ {key}, {ttl}, stale: 5, {steps} }}"),
            "IT0116 1:36".to_owned(),
        ),
        (
            format!("{{ {key}, {ttl}, size: 5, {steps} }}"),
            "IT0111 1:29".to_owned(),
        ),
    ] {
        assert_problems(&DEFINITION, &[(&yaml, &[&expected])]);
    }
}
