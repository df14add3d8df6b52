//! Options as YAML makes them, and what a conversion means to the message. What corresponds to
//! what is `expr`'s and tested there.

use super::*;
use crate::testing::{FakeServices, assert_problems, exchange, lines, run, sound};

/// Runs one conversion; the new body and headers, or status and detail of the fault.
fn converted(
    yaml: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<(String, Vec<String>), (u16, String)> {
    let step = sound(&DEFINITION, yaml);
    assert!(step.reads_body() && !step.ends_flow());
    let mut exchange = exchange(headers, body);
    match run(&*step, &mut exchange, &FakeServices::default()) {
        Ok(_) => {
            let request = exchange.take_request().unwrap();
            let body = String::from_utf8(request.body.as_bytes().to_vec()).unwrap();
            Ok((body, lines(&request.headers)))
        }
        Err(fault) => {
            // A body that cannot be converted goes nowhere, but it is not lost either.
            assert_eq!(exchange.body().unwrap().0.as_bytes(), body);
            Err((fault.status, fault.detail.into_owned()))
        }
    }
}

const TO_XML: &str = "{ from: json, to: xml }";
const TO_JSON: &str = "{ from: xml, to: json }";

#[test]
fn bodies_are_converted() {
    let cases = [
        (
            TO_XML,
            r#"{"a":[1,2.50]}"#,
            "<root><a>1</a><a>2.50</a></root>",
        ),
        (
            TO_XML,
            r##"{"a":{"@b":"c","#content":"d"}}"##,
            r#"<a b="c">d</a>"#,
        ),
        (
            "{ from: json, to: xml, root: order }",
            r#"{"a":1}"#,
            "<order><a>1</a></order>",
        ),
        (
            "{ from: json, to: xml, item: entry }",
            "[1]",
            "<root><entry>1</entry></root>",
        ),
        (
            "{ from: json, to: xml, attribute_prefix: _, text_key: t }",
            r#"{"a":{"_b":"c","t":"d"}}"#,
            r#"<a b="c">d</a>"#,
        ),
        (
            "{ from: json, to: xml, declaration: true }",
            r#"{"a":1}"#,
            r#"<?xml version="1.0" encoding="UTF-8"?><a>1</a>"#,
        ),
        (
            TO_JSON,
            r#"<a b="c">d</a>"#,
            r##"{"a":{"@b":"c","#content":"d"}}"##,
        ),
        (
            "{ from: xml, to: json, root: keep }",
            "<a><b>1</b></a>",
            r#"{"a":{"b":"1"}}"#,
        ),
        (
            "{ from: xml, to: json, root: drop }",
            "<a><b>1</b></a>",
            r#"{"b":"1"}"#,
        ),
        (
            "{ from: xml, to: json, arrays: [b] }",
            "<a><b>1</b></a>",
            r#"{"a":{"b":["1"]}}"#,
        ),
        (
            "{ from: xml, to: json, numbers: true }",
            "<a><b>1</b></a>",
            r#"{"a":{"b":1}}"#,
        ),
    ];
    for (yaml, body, expected) in cases {
        let (found, headers) = converted(yaml, &[], body.as_bytes()).expect(yaml);
        assert_eq!(found, expected, "{yaml}");
        let media_type = if yaml.contains("to: xml") {
            "application/xml"
        } else {
            "application/json"
        };
        assert_eq!(headers, [format!("Content-Type: {media_type}")], "{yaml}");
    }
}

#[test]
fn the_new_body_has_its_own_description() {
    let headers = [
        ("Content-Type", "application/json; Charset=\"UTF-8\""),
        ("Content-Encoding", "identity"),
        ("Content-MD5", "x"),
        ("Accept", "y"),
    ];
    let (_, headers) = converted(TO_XML, &headers, b"{}").unwrap();
    assert_eq!(headers, ["Accept: y", "Content-Type: application/xml"]);
}

#[test]
fn xml_of_older_systems_is_read_in_its_encoding() {
    let type_is = |value| [("Content-Type", value)];
    let latin1 = b"<a>\xe4</a>";
    let declared = b"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe4</a>";
    let utf16: Vec<u8> = "\u{feff}<a>ä</a>"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [u8]);
    let cases: &[Case<'_>] = &[
        (
            &type_is("text/xml ; a=b ; CHARSET = \"iso-8859-1\""),
            latin1,
        ),
        (&type_is("application/xml"), declared),
        (&[], declared),
        (&type_is("text/xml; charset=utf-16"), &utf16),
        (&[], &utf16),
    ];
    for (headers, body) in cases {
        let (found, _) = converted(TO_JSON, headers, body).unwrap();
        assert_eq!(found, r#"{"a":"ä"}"#, "{headers:?}");
    }
}

#[test]
fn what_cannot_be_converted_has_its_status() {
    let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
    // The trigger of the test takes 1024 bytes, so 16 KiB may come out.
    let growing = format!("[{}1]", "1,".repeat(2000));
    let type_is = |value| [("Content-Type", value)];
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, u16);
    let cases: &[Case<'_>] = &[
        (TO_XML, &[], "", 400),
        (TO_JSON, &[], "", 400),
        (TO_XML, &[], "{\"a\":", 400),
        (TO_JSON, &[], "<a>", 400),
        (TO_XML, &[], "{\"a b\":1}", 422),
        (TO_XML, &[], &nested, 422),
        ("{ from: json, to: xml, depth_max: 2 }", &[], "[[[1]]]", 422),
        (TO_JSON, &[], "<!DOCTYPE a><a/>", 422),
        (TO_XML, &[], &growing, 413),
        (TO_XML, &[("Content-Encoding", "gzip")], "{}", 415),
        (TO_XML, &[("content-encoding", "identity, br")], "{}", 415),
        (
            TO_XML,
            &type_is("application/json;charset=utf-16"),
            "{}",
            415,
        ),
        (
            TO_JSON,
            &type_is("text/xml ; a=b ; CHARSET = \"klingon\""),
            "<a/>",
            415,
        ),
        (
            TO_JSON,
            &[],
            "<?xml version='1.0' encoding='utf-32'?><a/>",
            415,
        ),
        (TO_JSON, &type_is("text/xml; charset=utf-16"), "<a/>!", 400),
    ];
    for (yaml, headers, body, status) in cases {
        let (found, detail) = converted(yaml, headers, body.as_bytes()).expect_err(body);
        assert_eq!(found, *status, "{yaml} {headers:?} {body} {detail}");
        assert!(!detail.is_empty());
    }
    let (_, detail) = converted(TO_XML, &[], br#"{"lot":{"a b":1}}"#).unwrap_err();
    assert!(detail.contains("$.lot"), "{detail}");
}

#[test]
fn every_problem_is_told_at_its_place() {
    let cases: &[(&str, &[&str])] = &[
        ("json", &["IT0112 1:1"]),
        ("{ from: json }", &["IT0113 1:1"]),
        (
            "{ from: csv, to: xml }",
            &["IT0246 1:9 no conversion from `csv` to `xml`"],
        ),
        (
            "{ from: json, to: json }",
            &["IT0246 1:9 no conversion from `json` to `json`"],
        ),
        ("{ from: json, to: xml, form: x }", &["IT0111 1:24"]),
        (
            "{ from: json, to: xml, root: a b, item: 1a, arrays: [x], numbers: true }",
            &[
                "IT0247 1:53 a conversion to XML has no option `arrays`",
                "IT0247 1:67 a conversion to XML has no option `numbers`",
                "IT0247 1:30 `a b` is not an element name",
                "IT0247 1:41 `1a` is not an element name",
            ],
        ),
        (
            "{ from: xml, to: json, root: a, item: x, declaration: false, depth_max: 513 }",
            &[
                "IT0247 1:73 `depth_max` is outside its range",
                "IT0247 1:39 a conversion to JSON has no option `item`",
                "IT0247 1:55 a conversion to JSON has no option `declaration`",
                "IT0247 1:30 `a` is not a `root` of JSON",
            ],
        ),
        (
            "{ from: xml, to: json, attribute_prefix: '', text_key: ' ' }",
            &[
                "IT0247 1:42 `attribute_prefix` is empty",
                "IT0247 1:56 `text_key` is empty",
            ],
        ),
    ];
    assert_problems(&DEFINITION, cases);
}
