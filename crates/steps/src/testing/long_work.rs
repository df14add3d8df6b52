//! Tests of what takes long on one message, whichever step does it: the worker does only a part of
//! it, and the result is the same.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use crate::testing::{FakeServices, sound_flow};

/// More rounds than any of these may take on the worker: two time slices.
const WORKER_ROUNDS: u64 = 400;

/// Runs steps on a body. The result, how often something was done beside the worker, and the
/// rounds that its expressions took on the worker.
fn run(steps: &str, content_type: &str, body: &[u8]) -> (String, usize, u64) {
    let services = FakeServices::default();
    let flow = sound_flow(steps);
    let before = expr::jq::rounds();
    let mut exchange = flow.exchange_of_bytes(&[("Content-Type", content_type)], body);
    let result = services.run_to_end(flow.answer(&mut exchange, &services));
    let (count, beside) = services.beside.get();
    let result = result.unwrap_or_else(|fault| format!("{fault}"));
    (result, count, expr::jq::rounds() - before - beside)
}

fn assert_beside(steps: &str, content_type: &str, body: &[u8], expected: &str) {
    let (result, count, rounds) = run(steps, content_type, body);
    let shown: String = result.chars().take(300).collect();
    assert!(result.contains(expected), "{steps}: {shown}");
    assert!(count > 0, "{steps}: nothing was done beside the worker");
    assert!(rounds < WORKER_ROUNDS, "{steps}: {rounds} rounds on it");
}

const JSON: &str = "application/json";
/// 300,000 steps and more: above what a time slice has.
const DEAR: &str = "last(range(300000)) + 1";

#[test]
fn costly_expressions_leave_the_worker() {
    for (steps, expected) in [
        (
            "- set: { a: 1 }\n- set: { a: \"${ $a + 1 }\", b: \"${ DEAR }\" }\n\
             - map: \"[$a, $b]\"",
            "[2,300000]",
        ),
        ("- map: DEAR", "300000"),
        ("- map: { n: \"${ DEAR }\" }", "{\"n\":300000}"),
        (
            "- map: { n: \"${ DEAR }\", m: \"${ DEAR }\" }",
            "{\"n\":300000,\"m\":300000}",
        ),
        ("- set: { a: \"${ DEAR }\" }\n- map: $a", "300000"),
        (
            "- reply: { status: 201, body: { n: \"${ DEAR }\" } }",
            "201 {\"n\":300000}",
        ),
        (
            "- if: { when: (DEAR) > 0, then: [ map: 1 ], else: [ map: 2 ] }",
            "1",
        ),
        (
            "- choose: [ { when: (DEAR) < 0, map: 1 }, { otherwise: [ map: 2 ] } ]",
            "2",
        ),
        (
            "- while: { when: (DEAR) < $round, steps: [ map: 1 ] }",
            "[]",
        ),
        (
            "- each: { in: \"[DEAR]\", steps: [ map: . + 1 ] }",
            "[300001]",
        ),
        (
            "- each: { in: \"[1, 2]\", steps: [ map: (DEAR) + . ] }",
            "[300001,300002]",
        ),
        (
            "- parallel: { a: [ map: DEAR ], b: [ map: 1 ] }",
            "{\"a\":300000,\"b\":1}",
        ),
        ("- log: \"${ DEAR }\"", "[]"),
        (
            "- raise: { type: lost, detail: \"${ DEAR }\" }",
            "lost: 300000",
        ),
    ] {
        let steps = steps.replace("DEAR", DEAR);
        assert_beside(&steps, JSON, b"[]", expected);
    }
}

#[test]
fn what_fails_beside_the_worker_fails_with_its_own_words() {
    let steps = format!("- map: ({DEAR}) | error(\"no\")");
    assert_beside(&steps, JSON, b"[]", "`: no)");
    // All the steps that the engine allows.
    assert_beside(
        "- map: last(range(1e18))",
        JSON,
        b"[]",
        "`last(range(1e18))`: takes too many steps",
    );
}

#[test]
fn short_work_stays_on_the_worker() {
    for (steps, expected) in [
        ("- map: .a", "1"),
        ("- map: { b: \"${ .a }\" }", "{\"b\":1}"),
        ("- map: \"[range(1000)] | length\"", "1000"),
        ("- encode: json\n- decode: json", "{\"a\":1}"),
        (
            "- convert: { from: json, to: xml }\n- convert: { from: xml, to: json }",
            "{\"a\":\"1\"}",
        ),
        ("- encode: gzip\n- decode: gzip", "{\"a\":1}"),
        ("- validate: { schema: { type: object } }", "{\"a\":1}"),
    ] {
        let (result, count, _) = run(steps, JSON, b"{\"a\":1}");
        assert_eq!((result.as_str(), count), (expected, 0), "{steps}");
    }
}

/// Some 600 kB of JSON: a list of small objects.
fn rows() -> String {
    let mut text = String::from("[");
    for at in 0..30_000 {
        let _ = write!(text, "{{\"id\":{at},\"a\":\"x\"}},");
    }
    text + "{\"id\":-1,\"a\":\"x\"}]"
}

/// The same in an object.
fn object(rows: &str) -> String {
    format!("{{\"a\":1,\"rows\":{rows}}}")
}

/// Some 330 kB of XML.
fn xml() -> String {
    format!("<r>{}</r>", "<a>text</a>".repeat(30_000))
}

#[test]
fn large_bodies_are_read_beside_the_worker() {
    let rows = rows();
    let object = object(&rows);
    let xml = xml();
    for (steps, content_type, body, expected) in [
        ("- map: length", JSON, rows.as_bytes(), "30001"),
        ("- map: \"{ a: .a }\"", JSON, object.as_bytes(), "{\"a\":1}"),
        (
            "- set: { n: \"${ length }\" }\n- map: $n",
            JSON,
            rows.as_bytes(),
            "30001",
        ),
        (
            "- parallel: { a: [ map: length ], b: [ map: length ] }",
            JSON,
            rows.as_bytes(),
            "{\"a\":30001,\"b\":30001}",
        ),
        ("- map: .r.a | length", "text/xml", xml.as_bytes(), "30000"),
        (
            "- validate: { schema: { type: array } }\n- map: 1",
            JSON,
            rows.as_bytes(),
            "1",
        ),
    ] {
        assert_beside(steps, content_type, body, expected);
    }
}

#[test]
fn large_bodies_are_decoded_beside_the_worker() {
    let (rows, xml) = (rows(), xml());
    let csv = format!("a,b\r\n{}", "1,2\r\n".repeat(60_000));
    let bomb = gzip(&vec![b'['; 3_000_000]);
    let base64 = "QUJD".repeat(100_000);
    for (steps, content_type, body, expected) in [
        (
            "- decode: csv\n- map: length",
            "text/plain",
            csv.as_bytes(),
            "60000",
        ),
        (
            "- decode: json\n- map: length",
            "text/plain",
            rows.as_bytes(),
            "30001",
        ),
        (
            "- decode: xml\n- map: .r.a | length",
            "text/plain",
            xml.as_bytes(),
            "30000",
        ),
        (
            "- decode: base64\n- map: length",
            "text/plain",
            base64.as_bytes(),
            "300000",
        ),
        ("- decode: gzip\n- map: 1", "text/plain", &bomb, "1"),
        (
            "- decode: { from: gzip, max: 1MiB }",
            "text/plain",
            &bomb,
            "invalid: the body is too large",
        ),
    ] {
        assert_beside(steps, content_type, body, expected);
    }
}

#[test]
fn large_bodies_are_converted_beside_the_worker() {
    let (object, xml) = (object(&rows()), xml());
    let text = "x".repeat(300_000);
    for (steps, content_type, body, expected) in [
        (
            "- convert: { from: json, to: xml }\n- map: 1",
            JSON,
            object.as_bytes(),
            "the result is too large",
        ),
        (
            "- convert: { from: xml, to: json }\n- map: 1",
            "text/xml",
            xml.as_bytes(),
            "the result is too large",
        ),
        (
            "- encode: gzip\n- map: 1",
            "text/plain",
            text.as_bytes(),
            "1",
        ),
    ] {
        assert_beside(steps, content_type, body, expected);
    }
}

#[test]
fn large_bodies_are_written_beside_the_worker() {
    let long = "\"x\" * 300000";
    for (steps, expected) in [
        (
            "- map: '{ a: 1 }'\n- reply: { body: { a: '${ .a }', b: '${ LONG }' } }",
            "200 {\"a\":1,\"b\":\"xxx",
        ),
        ("- map: '[LONG]'\n- reply: { status: 200 }", "200 [\"xxx"),
        ("- map: '[LONG]'\n- encode: json\n- map: 1", "1"),
        ("- map: '{ a: [LONG] }'\n- encode: xml\n- map: 1", "1"),
        ("- map: '{ a: (LONG) }'\n- encode: form\n- map: 1", "1"),
        ("- map: '[[LONG]]'\n- encode: csv\n- map: 1", "1"),
        ("- map: 'LONG'\n- encode: base64\n- map: 1", "1"),
        ("- map: 'LONG'\n- encode: text\n- map: 1", "1"),
        // There is no other system in this test.
        (
            "- http: { to: crm:/x, headers: { Content-Type: application/xml }, \
             body: { a: '${ LONG }' } }",
            "the upstream cannot be reached",
        ),
        (
            "- http: { to: crm:/x, body: { a: '${ LONG }' }, \
             headers: { Content-Type: application/x-www-form-urlencoded } }",
            "the upstream cannot be reached",
        ),
        ("- map: '[LONG]'\n- encode: gzip\n- map: 1", "1"),
        (
            "- map: '[LONG]'\n\
             - cache: { key: '${ .[0][0:1] }', ttl: 1m, steps: [ map: . ] }\n- map: 1",
            "1",
        ),
    ] {
        let steps = steps.replace("LONG", long);
        assert_beside(&steps, JSON, b"[]", expected);
    }
}

#[test]
fn many_steps_of_some_length_give_way() {
    // Some rounds each: far less than a time slice.
    let map = "map: last(range(3000))";
    for steps in [
        format!("- {map}\n").repeat(40),
        format!("- if: {{ when: true, then: [ {map}, {map} ] }}\n").repeat(20),
        // They wait for something else behind it.
        format!(
            "- each: {{ in: \"[range(100)]\", parallel: 100, steps: [ {map}, http: GET crm:/x ] }}"
        ),
        format!("- each: {{ in: \"[range(100)]\", parallel: 100, steps: [ {map} ] }}"),
    ] {
        let services = FakeServices::counting(Duration::from_secs(1), |_| false);
        let before = expr::jq::rounds();
        sound_flow(&steps).run("[]", &services).unwrap();
        let all = expr::jq::rounds() - before;
        let most = services.most_rounds.get();
        assert!(all >= 80 && most < 32, "{most} of {all} rounds: {steps}");
    }
}

#[test]
fn a_large_value_is_not_copied_on_the_worker_to_be_checked() {
    let steps = "- map: '[\"x\" * 300000]'\n";
    let end = "- map: 1";
    let (_, count, _) = run(&format!("{steps}{end}"), JSON, b"[]");
    assert_eq!(count, 0, "it is made on the worker");
    let checked = format!("{steps}- validate: {{ schema: {{ type: array }} }}\n{end}");
    assert_beside(&checked, JSON, b"[]", "1");
    let refused = format!("{steps}- validate: {{ schema: {{ type: object }} }}\n{end}");
    assert_beside(&refused, JSON, b"[]", "invalid: ");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
