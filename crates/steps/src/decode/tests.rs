//! Tests of `decode`.

use std::io::Write as _;

use component::content::Content;
use component::exchange::Exchange;
use message::Fault;

use super::DEFINITION;
use crate::testing::{FakeServices, assert_problems, exchange, run, sound};

fn read(yaml: &str, lines: &[(&str, &str)], body: &[u8]) -> Result<Exchange, Fault> {
    let step = sound(&DEFINITION, yaml);
    let mut message = exchange(lines, body);
    run(&*step, &mut message, &FakeServices::default())?;
    Ok(message)
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_body_is_read_whatever_its_media_type_says() {
    for (yaml, body, expected) in [
        ("json", &b"[1.50]"[..], "[1.50]"),
        (
            "xml",
            b"<a b=\"1\">t</a>",
            r##"{"a":{"@b":"1","#content":"t"}}"##,
        ),
        ("form", b"a=1&a=2&b=", r#"{"a":["1","2"],"b":""}"#),
        ("form", b"", "{}"),
        ("csv", b"a,b\n1,\"x,y\"\n", r#"[{"a":"1","b":"x,y"}]"#),
        ("csv", b"", "[]"),
        (
            "{ from: csv, header: false }",
            b"a,b\n1,2",
            r#"[["a","b"],["1","2"]]"#,
        ),
        ("text", b"\xef\xbb\xbf{}", "\"{}\""),
        ("text", b"", "\"\""),
        ("bytes", b"{}", "b\"{}\""),
        ("base64", b"eyJh\r\nIjoxfQ==\n", "b\"{\\\"a\\\":1}\""),
        ("base64", b"eyJhIjoxfQ", "b\"{\\\"a\\\":1}\""),
    ] {
        for lines in [&[][..], &[("Content-Type", "image/png")]] {
            let mut message =
                read(yaml, lines, body).unwrap_or_else(|fault| panic!("{yaml}: {fault}"));
            assert_eq!(
                expr::value::shown(message.value().unwrap()),
                expected,
                "{yaml}"
            );
        }
    }
}

#[test]
fn a_text_that_an_expression_made_is_read_too() {
    let step = sound(&DEFINITION, "json");
    let mut message = exchange(&[], b"");
    message.set_value(expr::value::text("{\"a\": [1]}"));
    run(&*step, &mut message, &FakeServices::default()).unwrap();
    assert_eq!(expr::value::shown(message.value().unwrap()), "{\"a\":[1]}");
    let (_, media_type) = message.body().unwrap();
    assert_eq!(media_type.as_deref(), Some(&b"application/json"[..]));
}

#[test]
fn what_is_not_of_the_format_is_invalid() {
    for (yaml, body, named) in [
        ("json", &b"{"[..], "not JSON"),
        ("json", b"", "not JSON"),
        ("xml", b"<a>", "not XML"),
        (
            "xml",
            b"<!DOCTYPE a [<!ENTITY e SYSTEM \"file:///etc/passwd\">]><a>&e;</a>",
            "not XML",
        ),
        ("form", b"a=%ff", "not a form"),
        ("csv", b"a,b\n1", "not CSV"),
        ("csv", b"\"a", "not CSV"),
        ("text", b"\xff", "not UTF-8"),
        ("base64", b"a$", "not Base64"),
        ("gzip", b"", "not gzip"),
        ("gzip", b"plain", "not gzip"),
    ] {
        let fault = read(yaml, &[], body)
            .err()
            .unwrap_or_else(|| panic!("{yaml}"));
        assert_eq!((fault.name(), fault.status), ("invalid", 400), "{yaml}");
        assert!(fault.detail.contains(named), "{yaml}: {}", fault.detail);
    }
}

#[test]
fn a_body_with_a_coding_is_unpacked_first() {
    for yaml in ["json", "text", "csv", "base64"] {
        let fault = read(yaml, &[("Content-Encoding", "gzip")], b"1234")
            .err()
            .unwrap();
        assert_eq!((fault.name(), fault.status), ("invalid", 415), "{yaml}");
        assert!(
            read(yaml, &[("Content-Encoding", "identity")], b"1234").is_ok(),
            "{yaml}"
        );
    }
    assert!(read("bytes", &[("Content-Encoding", "gzip")], b"1234").is_ok());
    let fault = read("gzip", &[("Content-Encoding", "br")], &packed(b"1"))
        .err()
        .unwrap();
    assert_eq!(fault.status, 415);
}

#[test]
fn gzip_leaves_the_media_type_and_takes_its_coding_away() {
    let json = ("Content-Type", "application/json");
    for (coding, left) in [
        (None, None),
        (Some("gzip"), None),
        (Some("X-GZIP"), None),
        (Some("br, gzip"), Some(&b"br"[..])),
    ] {
        let mut lines = vec![json];
        lines.extend(coding.map(|coding| ("Content-Encoding", coding)));
        let mut message = read("gzip", &lines, &packed(b"{\"a\": 1}")).unwrap();
        assert_eq!(message.content_encoding().as_deref(), left, "{coding:?}");
        if left.is_none() {
            assert_eq!(expr::value::shown(message.value().unwrap()), "{\"a\":1}");
        }
    }
    let mut both = packed(b"[1,");
    both.extend(packed(b"2]"));
    let mut message = read("gzip", &[json], &both).unwrap();
    assert_eq!(expr::value::shown(message.value().unwrap()), "[1,2]");
}

#[test]
fn a_broken_gzip_is_invalid() {
    let whole = packed(&b"some text ".repeat(100));
    for at in [whole.len() - 1, whole.len() - 8, 12] {
        assert!(read("gzip", &[], &whole[..at]).is_err(), "{at}");
    }
    let mut damaged = whole.clone();
    let checksum = damaged.len() - 6;
    damaged[checksum] ^= 1;
    assert!(read("gzip", &[], &damaged).is_err());
    let mut trailed = whole;
    trailed.extend(b"garbage");
    assert!(read("gzip", &[], &trailed).is_err());
}

#[test]
fn a_bomb_is_refused_before_it_takes_memory() {
    let bomb = packed(&vec![0; 100 << 20]);
    assert!(bomb.len() < 200_000);
    let fault = read("gzip", &[], &bomb).err().unwrap();
    assert_eq!((fault.name(), fault.status), ("invalid", 413));
    let small = packed(&vec![0; 1001]);
    let fault = read("{ from: gzip, max: 1000B }", &[], &small)
        .err()
        .unwrap();
    assert_eq!(fault.status, 413);
    assert!(read("{ from: gzip, max: 1001B }", &[], &small).is_ok());
}

#[test]
fn hostile_bodies_are_refused_in_time() {
    let deep_xml = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
    let deep_json = "[".repeat(100_000);
    let rows = format!("{}\n", ",".repeat(10_000)).repeat(200);
    let form = "a=1&".repeat(10_001);
    for (yaml, body, status) in [
        ("xml", deep_xml, 400),
        ("json", deep_json, 400),
        ("csv", rows, 413),
        ("form", form, 413),
    ] {
        let fault = read(yaml, &[], body.as_bytes()).err().unwrap();
        assert_eq!((fault.name(), fault.status), ("invalid", status), "{yaml}");
    }
    let names: Vec<String> = (0..10_000).map(|at| format!("c{at}")).collect();
    let table = format!("{0}\n{0}\n", names.join(","));
    let mut message = read("csv", &[], table.as_bytes()).unwrap();
    let rows = expr::value::as_array(message.value().unwrap()).unwrap();
    assert_eq!(expr::value::members(&rows[0]).unwrap().count(), 10_000);
}

#[test]
fn a_charset_is_heeded() {
    let lines = [("Content-Type", "text/csv; charset=ISO-8859-1")];
    let mut message = read("csv", &lines, b"a\n\xe9\n").unwrap();
    assert_eq!(
        expr::value::shown(message.value().unwrap()),
        "[{\"a\":\"é\"}]"
    );
    let lines = [("Content-Type", "application/xml")];
    let latin1 = b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>";
    let mut message = read("xml", &lines, latin1).unwrap();
    assert_eq!(
        expr::value::shown(message.value().unwrap()),
        "{\"a\":\"é\"}"
    );
    let lines = [("Content-Type", "text/plain; charset=klingon")];
    assert_eq!(read("text", &lines, b"a").err().unwrap().status, 415);
}

#[test]
fn the_body_of_a_reply_can_be_unpacked() {
    let mut reply = message::Reply::with_content(200, "text/plain", packed(b"hello"));
    reply.headers.append("Content-Encoding", "gzip");
    let step = sound(&DEFINITION, "gzip");
    let mut message = exchange(&[], b"");
    message.content = Content::of_reply(&reply);
    run(&*step, &mut message, &FakeServices::default()).unwrap();
    assert_eq!(expr::value::shown(message.value().unwrap()), "\"hello\"");
    assert!(step.reads_body() && !step.ends_flow());
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("yaml", &["IT0114 1:1"]),
            ("{ header: true }", &["IT0113 1:1"]),
            (
                "{ from: json, header: true }",
                &["IT0272 1:15 the format has no option `header`"],
            ),
            (
                "{ from: csv, max: 1MiB }",
                &["IT0272 1:14 the format has no option `max`"],
            ),
            (
                "{ from: gzip, max: 2GiB }",
                &["IT0250 1:20 `max` is 2GiB, outside its range"],
            ),
        ],
    );
}
