//! Calls of a service, and those that cannot be.

use component::step::Next;
use message::Reply;

use super::*;
use crate::testing::{StandIn, body, build, exchange, run};

#[test]
fn a_service_is_shown_the_call_and_its_answer_is_the_result() {
    let yaml = "{ to: erp, operation: CheckStock, body: '${ .b }', headers: { X-A: '${ .n }', \
                X-B: '${ .no }' } }";
    let step = build(&DEFINITION, yaml).unwrap();
    assert!(step.waits() && step.reads_body());
    let mut message = exchange(r#"{"b":{"item":{"@sku":"s1","qty":2}},"n":5}"#);
    let services = StandIn::says(200, r#"{"inStock":true}"#);
    let next = run(&*step, &mut message, &services);
    assert!(matches!(next, Ok(Next::Continue)), "{next:?}");
    let expected =
        r#"{"operation":"CheckStock","body":{"item":{"@sku":"s1","qty":2}},"headers":{"X-A":"5"}}"#;
    let seen = services.seen.take();
    let expected = ("soap".to_owned(), "erp".to_owned(), expected.to_owned());
    assert_eq!(seen, [expected]);
    assert_eq!(body(&mut message), r#"{"inStock":true}"#);
    assert_eq!(message.reply.map(|reply| reply.status), Some(200));
}

#[test]
fn a_failure_of_the_service_fails() {
    let step = build(&DEFINITION, "{ to: erp, operation: CheckStock }").unwrap();
    let mut message = exchange("{}");
    let fault = run(&*step, &mut message, &StandIn::says(500, "{}")).unwrap_err();
    assert_eq!(fault.name(), "5xx");
    assert_eq!(message.reply.as_ref().map(|reply| reply.status), Some(500));
    let says = r#"{"fault":"OutOfStock","code":"Client","detail":{"OutOfStock":{"sku":"s"}}}"#;
    let fault = run(&*step, &mut message, &StandIn::says(500, says)).unwrap_err();
    assert_eq!((fault.name(), fault.status), ("OutOfStock", 400));
}

#[test]
fn no_line_is_added_by_a_value() {
    let yaml = "{ to: erp, operation: CheckStock, headers: { X-A: '${ .a }' } }";
    let step = build(&DEFINITION, yaml).unwrap();
    let services = StandIn::says(200, "{}");
    let fault = run(&*step, &mut exchange(r#"{"a":"b\r\nc: d"}"#), &services).unwrap_err();
    assert_eq!(fault.name(), "invalid");
}

/// What a service answers, with so many bytes of a comment in it.
fn answer(padding: usize) -> Reply {
    let padding = " ".repeat(padding);
    let text = format!(
        "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><!--{padding}--><e:Body>\
         <CheckStockResponse xmlns='urn:example:erp:types'><inStock>true</inStock>\
         </CheckStockResponse></e:Body></e:Envelope>"
    );
    Reply::with_content(200, "text/xml", text.into_bytes())
}

#[test]
fn large_envelopes_are_written_and_read_beside_the_worker() {
    let step = build(&DEFINITION, "{ to: erp, operation: CheckStock }").unwrap();
    for (request, reply, beside) in [(10, 10, 0), (300_000, 10, 1), (10, 300_000, 1)] {
        let sku = "s".repeat(request);
        let mut message = exchange(&format!("{{\"item\":{{\"@sku\":\"{sku}\",\"qty\":2}}}}"));
        // What has been decoded is not counted here.
        assert!(message.value().is_ok());
        let services = StandIn {
            reply: Some(answer(reply)),
            ..StandIn::default()
        };
        let next = run(&*step, &mut message, &services);
        assert!(matches!(next, Ok(Next::Continue)), "{next:?}");
        assert_eq!(body(&mut message), "{\"inStock\":true}");
        assert_eq!(services.beside.get(), beside, "{request} {reply}");
    }
}

#[test]
fn a_message_above_its_limit_is_refused_beside_the_worker_too() {
    let step = build(&DEFINITION, "{ to: erp, operation: CheckStock }").unwrap();
    let mut message = exchange("{}");
    let sku = "s".repeat(message.context.body_max);
    let item = value::object([
        ("@sku".to_owned(), value::text(sku)),
        ("qty".to_owned(), value::integer(2)),
    ]);
    message.set_value(value::object([("item".to_owned(), item)]));
    let fault = run(&*step, &mut message, &StandIn::default()).unwrap_err();
    let shown: String = fault.to_string().chars().take(200).collect();
    assert!(shown.contains("too large"), "{shown}");
}

#[test]
fn every_problem_has_its_place() {
    let cases = [
        ("{ to: erq, operation: CheckStock }", "IT0292 1:7"),
        ("{ to: mq, operation: CheckStock }", "IT0292 1:7"),
        ("{ to: erp, operation: '${ .a }' }", "IT0293 1:23"),
        (
            "{ to: erp, operation: CheckStok }",
            "IT0440 1:23 erp.wsdl, line 99: there is no operation",
        ),
        (
            "{ to: old, operation: Old }",
            "IT0440 1:23 erp.wsdl, line 139: `use=\"encoded\"` is not",
        ),
        (
            "{ to: erp, operation: CheckStock, body: { itm: 1 } }",
            "IT0441 1:43 `itm` is not declared",
        ),
        (
            "{ to: erp, operation: CheckStock, body: { item: { qty: 0, '@sku': a } } }",
            "IT0441 1:56 is at least 1",
        ),
        (
            "{ to: erp, operation: CheckStock, body: { item: [{ qty: '${ .q }' }] } }",
            "IT0441 1:50 `@sku` is missing",
        ),
        (
            "{ to: erp, operation: Ping, body: a }",
            "IT0441 1:35 is an integer",
        ),
        (
            "{ to: erp, operation: Add, body: { a: 1 } }",
            "IT0441 1:34 `b` is missing",
        ),
        (
            "{ to: erp, operation: CheckStock, header: { Trace: 1, X: 1 }, body: {} }",
            "IT0441 1:69 `X` is not declared",
        ),
        (
            "{ to: erp, operation: CheckStock, headers: 1 }",
            "IT0297 1:44",
        ),
        (
            "{ to: erp, operation: CheckStock, headers: { 'a b': 1 } }",
            "IT0297 1:46",
        ),
        (
            "{ to: erp, operation: CheckStock, headers: { soapaction: 1 } }",
            "IT0297 1:46",
        ),
        (
            "{ to: erp, operation: CheckStock, headers: { a: 1, A: 1 } }",
            "IT0297 1:52",
        ),
        (
            "{ to: erp, operation: CheckStock, headers: { a: [1] } }",
            "IT0297 1:49",
        ),
        (
            "{ to: erp, operation: CheckStock, headers: { a: \"b\\nc\" } }",
            "IT0297 1:49",
        ),
    ];
    for (yaml, expected) in cases {
        let found = build(&DEFINITION, yaml).err().unwrap_or_default();
        assert_eq!(found.len(), 1, "{yaml}: {found:?}");
        assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
    }
}
