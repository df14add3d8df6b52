//! What is published, and what cannot be.

use component::step::Next;
use message::{Kind, Origin};

use super::*;
use crate::testing::{StandIn, body, build, exchange, run};

#[test]
fn a_broker_is_shown_the_message_and_the_body_stays() {
    let yaml = "{ to: mq, exchange: orders, key: 'order.${ .country }', id: '${ .id }', headers: \
                { a: 1, b: '${ .no }' }, expiration: 2s, priority: 3, content_type: a/b }";
    let step = build(&DEFINITION, yaml).unwrap();
    assert!(step.waits() && step.reads_body());
    let mut message = exchange(r#"{"country":"de","id":7}"#);
    let services = StandIn::says(200, "{}");
    let next = run(&*step, &mut message, &services);
    assert!(matches!(next, Ok(Next::Continue)), "{next:?}");
    let expected = r#"{"exchange":"orders","key":"order.de","headers":{"a":1},"body":{"country":"de","id":7},"id":"7","content_type":"a/b","expiration":"2s","priority":3}"#;
    let seen = services.seen.take();
    let expected = ("publish".to_owned(), "mq".to_owned(), expected.to_owned());
    assert_eq!(seen, [expected]);
    assert_eq!(body(&mut message), r#"{"country":"de","id":7}"#);
    assert!(message.reply.is_none());
}

#[test]
fn a_body_that_is_no_json_is_sent_all_the_same() {
    let step = build(&DEFINITION, "{ to: mq, exchange: orders }").unwrap();
    let mut message = exchange("{ broken");
    let services = StandIn::says(200, "");
    assert!(run(&*step, &mut message, &services).is_ok());
    let seen = services.seen.take();
    assert!(seen[0].2.contains(r#""body":"{ broken""#), "{seen:?}");
    assert_eq!(body(&mut message), "{ broken");
}

#[test]
fn what_the_broker_refuses_fails() {
    let step = build(&DEFINITION, "{ to: mq, exchange: orders }").unwrap();
    let services = StandIn {
        answer: Some(Err(Fault::new(Kind::Nack, Origin::Upstream, "no"))),
        ..StandIn::default()
    };
    let fault = run(&*step, &mut exchange("{}"), &services).unwrap_err();
    assert_eq!(fault.name(), "nack");
    let fault = run(&*step, &mut exchange("{}"), &StandIn::says(503, "")).unwrap_err();
    assert_eq!(fault.name(), "5xx");
}

#[test]
fn without_a_driver_nothing_is_faked() {
    let step = build(&DEFINITION, "{ to: mq, exchange: orders }").unwrap();
    let mut message = exchange("{}");
    let fault = run(&*step, &mut message, &StandIn::default()).unwrap_err();
    assert_eq!(fault.kind, Kind::Internal);
    assert_eq!(fault.detail, "this build has no driver");
    assert_eq!(body(&mut message), "{}");
}

#[test]
fn queues_get_messages_in_turn() {
    let step = build(&DEFINITION, "{ to: mq, queues: [a, b] }").unwrap();
    let services = StandIn::says(200, "");
    for _ in 0..3 {
        assert!(run(&*step, &mut exchange("{}"), &services).is_ok());
    }
    let seen = services.seen.take().into_iter().map(|(_, _, body)| body);
    let expected = ["a", "b", "a"]
        .map(|key| format!(r#"{{"exchange":"","key":"{key}","headers":{{}},"body":{{}}}}"#));
    assert_eq!(seen.collect::<Vec<_>>(), expected);
}

#[test]
fn a_key_is_short() {
    let step = build(&DEFINITION, "{ to: mq, exchange: '', key: '${ .k }' }").unwrap();
    let long = format!(r#"{{"k":"{}"}}"#, "x".repeat(256));
    let fault = run(&*step, &mut exchange(&long), &StandIn::says(200, "")).unwrap_err();
    assert_eq!(fault.kind, Kind::Invalid);
}

#[test]
fn every_problem_has_its_place() {
    let cases = [
        ("{ to: mw, exchange: a }", "IT0292 1:7 there is no"),
        ("{ to: db, exchange: a }", "IT0292 1:7 `db` is no"),
        ("{ to: mq, exchange: 'a${ .b }' }", "IT0293 1:21"),
        ("{ to: mq, exchange: '' }", "IT0294 1:21"),
        ("{ to: mq }", "IT0294 1:1"),
        ("{ to: mq, exchange: a, queue: b }", "IT0294 1:1"),
        ("{ to: mq, queues: [] }", "IT0294 1:19"),
        ("{ to: mq, queues: [a, ''] }", "IT0294 1:23"),
        ("{ to: mq, queue: a, key: b }", "IT0294 1:26"),
        (
            "{ to: mq, exchange: a, headers: { x: [1] } }",
            "IT0294 1:38",
        ),
        ("{ to: mq, exchange: a, headers: 1 }", "IT0294 1:33"),
        (
            "{ to: mq, exchange: a, mandatory: true, confirm: false }",
            "IT0294 1:35",
        ),
        ("{ to: mq, exchange: a, content_type: json }", "IT0294 1:38"),
        ("{ to: mq, exchange: a, expiration: 31d }", "IT0291 1:36"),
        ("{ to: mq, exchange: a, priority: 256 }", "IT0291 1:34"),
        (
            "{ to: mq, exchange: a, key: '${ nonsense( }' }",
            "IT0230 1:29",
        ),
    ];
    for (yaml, expected) in cases {
        let found = build(&DEFINITION, yaml).err().unwrap_or_default();
        assert_eq!(found.len(), 1, "{yaml}: {found:?}");
        assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
    }
}
