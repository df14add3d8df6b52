//! What is asked, and what cannot be.

use component::step::Next;

use super::*;
use crate::testing::{StandIn, body, build, exchange, run};

#[test]
fn an_answer_becomes_the_body() {
    let yaml = "{ to: mq, exchange: prices, key: 'p.${ .id }', headers: { a: '${ .id }' } }";
    let step = build(&DEFINITION, yaml).unwrap();
    assert!(step.waits() && step.reads_body());
    let mut message = exchange(r#"{"id":7}"#);
    let services = StandIn::says(200, r#"{"price":3}"#);
    let next = run(&*step, &mut message, &services);
    assert!(matches!(next, Ok(Next::Continue)), "{next:?}");
    let expected = r#"{"exchange":"prices","key":"p.7","headers":{"a":7},"body":{"id":7}}"#;
    let expected = ("request".to_owned(), "mq".to_owned(), expected.to_owned());
    assert_eq!(services.seen.take(), [expected]);
    assert_eq!(body(&mut message), r#"{"price":3}"#);
    assert_eq!(message.reply.unwrap().status, 200);
}

#[test]
fn what_fails_is_told() {
    let step = build(&DEFINITION, "{ to: mq, queue: q }").unwrap();
    let services = StandIn {
        answer: Some(Err(Fault::new(Kind::Unroutable, Origin::Upstream, "no"))),
        ..StandIn::default()
    };
    let fault = run(&*step, &mut exchange("{}"), &services).unwrap_err();
    assert_eq!(fault.name(), "unroutable");
    let fault = run(&*step, &mut exchange("{}"), &StandIn::says(500, "")).unwrap_err();
    assert_eq!(fault.name(), "5xx");
}

#[test]
fn an_answer_has_the_status_that_its_sender_gave_it() {
    let of = |status: amqp::Value| {
        let mut headers = Table::default();
        headers.set("status", status);
        status_of(&headers)
    };
    for status in [200, 204, 302, 404, 500, 599] {
        assert_eq!(of(i64::from(status).into()), status);
    }
    for other in [-1, 0, 7, 100, 600, 65_736, i64::MAX] {
        assert_eq!(of(other.into()), 200, "{other}");
    }
    assert_eq!(of("500".into()), 200);
    assert_eq!(status_of(&Table::default()), 200);
}

#[test]
fn every_problem_has_its_place() {
    let cases = [
        ("{ to: mw, queue: a }", "IT0292 1:7"),
        ("{ to: mq }", "IT0294 1:1"),
        ("{ to: mq, queue: a, exchange: b, key: c }", "IT0294 1:1"),
        ("{ to: mq, queue: a, key: c }", "IT0294 1:26"),
        ("{ to: mq, queue: '' }", "IT0294 1:18"),
        ("{ to: mq, queue: 'a${ .b }' }", "IT0293 1:18"),
        ("{ to: mq, queue: a, content_type: json }", "IT0294 1:35"),
        ("{ to: mq, queue: a, wait: 1ms }", "IT0291 1:27"),
    ];
    for (yaml, expected) in cases {
        let found = build(&DEFINITION, yaml).err().unwrap_or_default();
        assert_eq!(found.len(), 1, "{yaml}: {found:?}");
        assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
    }
}
