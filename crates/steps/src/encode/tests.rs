//! Tests of `encode`.

use std::io::Read as _;
use std::sync::Arc;

use component::exchange::{Exchange, FlowContext};
use message::Fault;

use super::DEFINITION;
use crate::testing::{FakeServices, assert_problems, exchange, run, sound};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn encoded(yaml: &str, body: &str) -> Result<Exchange, Fault> {
    let step = sound(&DEFINITION, yaml);
    let mut message = exchange(&[JSON], body.as_bytes());
    run(&*step, &mut message, &FakeServices::default())?;
    Ok(message)
}

#[test]
fn a_value_is_written_in_a_format_with_its_media_type() {
    let csv = "text/csv; charset=utf-8";
    let text = "text/plain; charset=utf-8";
    for (yaml, body, expected, media_type) in [
        ("json", "\"a\"", "\"a\"", "application/json"),
        ("json", "{\"n\": 1.50}", "{\"n\":1.50}", "application/json"),
        ("json", "null", "null", "application/json"),
        (
            "xml",
            "{\"a\": {\"@b\": 1}}",
            "<a b=\"1\"/>",
            "application/xml",
        ),
        (
            "{ to: xml, root: order, declaration: true }",
            "{\"id\": \"<\"}",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><order><id>&lt;</id></order>",
            "application/xml",
        ),
        (
            "form",
            "{\"a\": \"b c&\", \"l\": [1, 2], \"n\": null}",
            "a=b+c%26&l=1&l=2",
            "application/x-www-form-urlencoded",
        ),
        (
            "csv",
            "[{\"a\": 1, \"b\": \"x,\\\"\"}]",
            "a,b\r\n1,\"x,\"\"\"\r\n",
            csv,
        ),
        ("csv", "[[1, null], [true, \"\"]]", "1,\r\ntrue,\r\n", csv),
        ("csv", "[]", "", csv),
        (
            "{ to: csv, header: false }",
            "[{\"a\": 1, \"b\": 2}, {\"b\": 3}]",
            "1,2\r\n\"\",3\r\n",
            csv,
        ),
        ("text", "12.50", "12.50", text),
        ("text", "\"é\"", "é", text),
        ("base64", "{\"a\":1}", "eyJhIjoxfQ==", text),
    ] {
        let mut message = encoded(yaml, body).unwrap_or_else(|fault| panic!("{yaml}: {fault}"));
        let (found, found_type) = message.body().unwrap();
        let found = String::from_utf8_lossy(found.as_bytes()).into_owned();
        assert_eq!(found, expected, "{yaml} {body}");
        assert_eq!(found_type.as_deref(), Some(media_type.as_bytes()), "{yaml}");
    }
}

#[test]
fn what_a_format_cannot_carry_fails() {
    for (yaml, body) in [
        ("xml", "{\"a b\": 1}"),
        ("form", "[1]"),
        ("form", "{\"a\": {}}"),
        ("csv", "{}"),
        ("csv", "[1]"),
        ("csv", "[{\"a\": 1}, {\"b\": 1}]"),
        ("csv", "[{\"a\": []}]"),
        ("{ to: csv, header: false }", "[{\"a\": 1}, {\"b\": 1}]"),
        ("{ to: csv, header: false }", "[{\"a\": []}]"),
        ("{ to: csv, header: false }", "[{\"a\": 1}, [2]]"),
        ("text", "null"),
        ("text", "{}"),
    ] {
        let fault = encoded(yaml, body)
            .err()
            .unwrap_or_else(|| panic!("{yaml} {body}"));
        assert_eq!(
            (fault.name(), fault.status),
            ("expression", 500),
            "{yaml} {body}"
        );
    }
    assert_eq!(encoded("csv", "{").err().unwrap().name(), "invalid");
}

#[test]
fn a_result_is_bounded() {
    for yaml in ["json", "xml", "form", "csv", "text", "base64"] {
        let step = sound(&DEFINITION, yaml);
        let body = match yaml {
            "csv" => format!("[[\"{}\"]]", "x".repeat(2000)),
            "text" | "json" => format!("\"{}\"", "x".repeat(2000)),
            _ => format!("{{\"a\": \"{}\"}}", "x".repeat(2000)),
        };
        let mut message = exchange(&[JSON], body.as_bytes());
        let mut context = FlowContext::new("test");
        context.body_max = 1000;
        message.context = Arc::new(context);
        let fault = run(&*step, &mut message, &FakeServices::default()).unwrap_err();
        assert_eq!(fault.name(), "expression", "{yaml}");
    }
}

/// A short body that stands for a long result: a name for each entry of a list, a field for each
/// column. The result would be some hundred megabytes, which nobody has time for in a test.
#[test]
fn a_result_is_refused_while_it_is_written() {
    let name = "n".repeat(20_000);
    let list = format!("{{\"{name}\": [{}1]}}", "1,".repeat(20_000));
    let columns: Vec<String> = (0..5000).map(|at| format!("\"c{at}\":1")).collect();
    let rows = format!("[{{{}}}{}]", columns.join(","), ",{}".repeat(60_000));
    for (yaml, body) in [("xml", &list), ("form", &list), ("csv", &rows)] {
        let step = sound(&DEFINITION, yaml);
        let mut message = exchange(&[JSON], body.as_bytes());
        let services = FakeServices::default();
        let before = message.content.raw().map(<[u8]>::len);
        let fault = run(&*step, &mut message, &services).unwrap_err();
        let cause = fault.cause.unwrap();
        assert!(
            cause.starts_with("the result is too large"),
            "{yaml}: {cause}"
        );
        // First on the worker, then beside it up to the bound of the flow.
        assert_eq!(services.beside.get().0, 1, "{yaml}");
        assert_eq!(message.content.raw().map(<[u8]>::len), before, "{yaml}");
    }
}

#[test]
fn a_body_is_compressed_with_its_media_type() {
    for size in [10, 300_000] {
        let body = format!("\"{}\"", "é".repeat(size));
        let mut message = encoded("gzip", &body).unwrap();
        assert_eq!(message.content_encoding().as_deref(), Some(&b"gzip"[..]));
        let (packed, media_type) = message.body().unwrap();
        assert_eq!(media_type.as_deref(), Some(&b"application/json"[..]));
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(packed.as_bytes());
        decoder.read_to_string(&mut text).unwrap();
        assert_eq!(text, body);
        assert_eq!(message.value().unwrap_err().status, 415);
    }
    let step = sound(&DEFINITION, "gzip");
    let mut message = exchange(&[JSON, ("Content-Encoding", "br")], b"x");
    run(&*step, &mut message, &FakeServices::default()).unwrap();
    assert_eq!(
        message.content_encoding().as_deref(),
        Some(&b"br, gzip"[..])
    );
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("yaml", &["IT0114 1:1"]),
            ("{ root: a }", &["IT0113 1:1"]),
            (
                "{ to: json, root: a }",
                &["IT0272 1:13 the format has no option `root`"],
            ),
            (
                "{ to: csv, declaration: true }",
                &["IT0272 1:12 the format has no option `declaration`"],
            ),
            (
                "{ to: xml, header: true }",
                &["IT0272 1:12 the format has no option `header`"],
            ),
            (
                "{ to: xml, root: \"a b\" }",
                &["IT0272 1:18 `a b` is not an element name"],
            ),
        ],
    );
}
