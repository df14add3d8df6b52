//! Calls of a service, and those that cannot be.

use component::step::Next;

use super::*;
use crate::testing::{StandIn, body, build, exchange, run};

#[test]
fn a_service_is_shown_the_call_and_its_answer_is_the_result() {
    let yaml = "{ to: erp, operation: CheckStock, body: { item: '${ .sku }' }, headers: { X-A: \
                '${ .n }', X-B: '${ .no }' } }";
    let step = build(&DEFINITION, yaml).unwrap();
    assert!(step.waits() && step.reads_body());
    let mut message = exchange(r#"{"sku":"s1","n":5}"#);
    let services = StandIn::says(200, r#"{"inStock":true}"#);
    let next = run(&*step, &mut message, &services);
    assert!(matches!(next, Ok(Next::Continue)), "{next:?}");
    let expected = r#"{"operation":"CheckStock","body":{"item":"s1"},"headers":{"X-A":"5"}}"#;
    let seen = services.seen.take();
    let expected = ("soap".to_owned(), "erp".to_owned(), expected.to_owned());
    assert_eq!(seen, [expected]);
    assert_eq!(body(&mut message), r#"{"inStock":true}"#);
    assert_eq!(message.reply.map(|reply| reply.status), Some(200));
}

#[test]
fn a_failure_of_the_service_fails() {
    let step = build(&DEFINITION, "{ to: erp, operation: A }").unwrap();
    let mut message = exchange("{}");
    let fault = run(&*step, &mut message, &StandIn::says(500, "{}")).unwrap_err();
    assert_eq!(fault.name(), "5xx");
    assert_eq!(message.reply.map(|reply| reply.status), Some(500));
    let fault = run(&*step, &mut exchange("{}"), &StandIn::default()).unwrap_err();
    assert_eq!(fault.detail, "this build has no driver");
}

#[test]
fn no_line_is_added_by_a_value() {
    let yaml = "{ to: erp, operation: A, headers: { X-A: '${ .a }' } }";
    let step = build(&DEFINITION, yaml).unwrap();
    let services = StandIn::says(200, "{}");
    let fault = run(&*step, &mut exchange(r#"{"a":"b\r\nc: d"}"#), &services).unwrap_err();
    assert_eq!(fault.name(), "invalid");
}

#[test]
fn every_problem_has_its_place() {
    let cases = [
        ("{ to: erq, operation: A }", "IT0292 1:7"),
        ("{ to: mq, operation: A }", "IT0292 1:7"),
        ("{ to: erp, operation: '${ .a }' }", "IT0293 1:23"),
        ("{ to: erp, operation: 'a b' }", "IT0297 1:23"),
        ("{ to: erp, operation: A, headers: 1 }", "IT0297 1:35"),
        (
            "{ to: erp, operation: A, headers: { 'a b': 1 } }",
            "IT0297 1:37",
        ),
        (
            "{ to: erp, operation: A, headers: { soapaction: 1 } }",
            "IT0297 1:37",
        ),
        (
            "{ to: erp, operation: A, headers: { a: 1, A: 1 } }",
            "IT0297 1:43",
        ),
        (
            "{ to: erp, operation: A, headers: { a: [1] } }",
            "IT0297 1:40",
        ),
        (
            "{ to: erp, operation: A, headers: { a: \"b\\nc\" } }",
            "IT0297 1:40",
        ),
    ];
    for (yaml, expected) in cases {
        let found = build(&DEFINITION, yaml).err().unwrap_or_default();
        assert_eq!(found.len(), 1, "{yaml}: {found:?}");
        assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
    }
}
