//! `keep: { for: webhooks }`: what an endpoint has not got stays, and publishers are refused when
//! that is as much as may be kept.

use super::*;
use testkit::{RawClient, Response};

use crate::support::output;

/// Publishes large events, from this number on, until one is refused: how many were taken.
fn publish_until_refused(place: &Place, from: u64) -> u64 {
    for number in from..from + 200 {
        let reply = publish(place, number);
        match reply.status {
            200 => {}
            503 => {
                assert_eq!(reply.header("retry-after"), Some("5"));
                assert!(reply.text().contains("webhooks"), "{}", reply.text());
                return number - from;
            }
            status => panic!("{status}: {}", reply.text()),
        }
    }
    panic!("nothing is refused");
}

fn body(number: u64) -> String {
    format!("{{\"number\":{number},\"pad\":\"{}\"}}", pad(number))
}

/// Something else for each, so that a snapshot is no small patch.
fn pad(number: u64) -> String {
    let digit = char::from(b'a' + (number % 26) as u8);
    digit.to_string().repeat(4000)
}

fn publish(place: &Place, number: u64) -> Response {
    let body = body(number);
    let head = format!(
        "POST /orders HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Idempotency-Key: key-{number}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = RawClient::connect(place.port);
    client.send(head);
    client.response()
}

fn numbers(sink: &Sink) -> Vec<u64> {
    let number = |it: &String| {
        let value: Value = serde_json::from_str(it).unwrap();
        value["number"].as_u64().unwrap_or_else(|| panic!("{it}"))
    };
    sink.bodies().iter().map(number).collect()
}

const HELD: &str = "keep: { for: webhooks, events: 5, bytes: 64KiB }";

#[test]
fn nothing_is_lost_and_publishers_are_refused_at_the_bound() {
    for settings in ["payload: event", "payload: snapshot\nsnapshot_every: 2"] {
        let (sink, is_open) = Sink::closed();
        let place = Place::with(
            &format!("{settings}\n{HELD}"),
            &endpoint("shop", &sink.url(), QUICK),
        );
        let engine = place.run();
        let taken = publish_until_refused(&place, 0);
        assert!((15..60).contains(&taken), "{taken}");
        // What is there already is said to be there.
        assert_eq!(publish(&place, 1).status, 200);
        assert_eq!(publish(&place, taken).status, 503);
        kill(engine);
        let engine = place.run();
        assert_eq!(publish(&place, taken).status, 503);
        is_open.store(true, Ordering::Relaxed);
        wait_long("publishers are accepted", || {
            publish(&place, taken).status == 200
        });
        sink.wait_for(taken as usize + 1);
        let expected: Vec<u64> = (0..=taken).collect();
        assert_eq!(
            numbers(&sink),
            expected,
            "{settings}: all, in order, no gap"
        );
        let output = engine.stop();
        assert!(output.contains("publishers are refused"), "{output}");
        assert!(output.contains("publishers are accepted again"), "{output}");
        // What all have got is kept as long as it was said.
        let engine = place.run();
        let kept = engine
            .measured("intertie_topic_kept_events", &[("step", "orders")])
            .unwrap();
        assert!(kept < 10.0, "{kept}");
        engine.stop();
    }
}

#[test]
fn an_endpoint_that_is_paused_holds_nothing_and_is_told_of_the_gap() {
    let (sink, is_open) = Sink::closed();
    let other = Sink::good();
    let endpoints = endpoint("shop", &sink.url(), QUICK) + &endpoint("fast", &other.url(), "");
    let place = Place::with(&format!("payload: event\n{HELD}"), &endpoints);
    let engine = place.run();
    let taken = publish_until_refused(&place, 0);
    let pause = post(
        engine.admin,
        "/webhooks/orders/shop/pause",
        "text/plain",
        "",
    );
    assert_eq!(pause.status, 200);
    wait_long("publishers are accepted", || {
        publish(&place, taken).status == 200
    });
    for number in taken + 1..taken + 50 {
        // The other one needs some time to take and note them.
        wait_long("it is taken", || publish(&place, number).status == 200);
    }
    other.wait_for(taken as usize + 50);
    assert!(numbers(&other).is_sorted(), "the other one has got all");
    // What only happens to be in memory is not.
    engine.stop();
    let engine = place.run();
    is_open.store(true, Ordering::Relaxed);
    let resume = post(
        engine.admin,
        "/webhooks/orders/shop/resume",
        "text/plain",
        "",
    );
    assert_eq!(resume.status, 200);
    wait_long("the last one has come", || {
        sink.bodies().last() == Some(&body(taken + 49))
    });
    let is_gap = |it: &String| it.contains("\"type\":\"gap\"");
    let gaps: Vec<String> = sink.bodies().into_iter().filter(is_gap).collect();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    engine.stop();
}

#[test]
fn in_memory_events_are_held_too() {
    let (sink, is_open) = Sink::closed();
    let settings = format!("payload: event\ndurability: memory\n{HELD}");
    let place = Place::with(&settings, &endpoint("shop", &sink.url(), QUICK));
    let engine = place.run();
    let taken = publish_until_refused(&place, 0);
    // A reload changes nothing.
    reload(&engine);
    assert_eq!(publish(&place, taken).status, 503);
    is_open.store(true, Ordering::Relaxed);
    wait_long("publishers are accepted", || {
        publish(&place, taken).status == 200
    });
    sink.wait_for(taken as usize + 1);
    assert_eq!(numbers(&sink), (0..=taken).collect::<Vec<_>>());
    engine.stop();
}

#[test]
fn there_has_to_be_an_endpoint_that_events_are_kept_for() {
    let folder = TempDir::new();
    folder.write(
        "topic.yaml",
        "topic: orders\nkeep: { for: webhooks }\npublish: { http: POST 127.0.0.1:8080/orders }\n",
    );
    let file = folder.path().join("topic.yaml").display().to_string();
    let checked = output(&["check", &file]);
    let text = String::from_utf8_lossy(&checked.stdout);
    assert!(!checked.status.success(), "{text}");
    assert!(
        text.contains("IT0663") && text.contains("`for` has no effect"),
        "{text}"
    );
}
