//! Tests of `template`.

use super::DEFINITION;
use crate::testing::{FakeServices, assert_problems, exchange, run, sound};
use component::exchange::Exchange;
use message::Fault;

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn made(yaml: &str, body: &str) -> Result<Exchange, Fault> {
    let step = sound(&DEFINITION, yaml);
    let mut message = exchange(&[JSON], body.as_bytes());
    run(&*step, &mut message, &FakeServices::default())?;
    Ok(message)
}

/// The body and its media type.
fn text(yaml: &str, body: &str) -> (String, String) {
    let mut message = made(yaml, body).unwrap_or_else(|fault| panic!("{yaml}: {fault}"));
    let (body, media_type) = message.body().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(body.as_bytes()), text(&media_type.unwrap()))
}

#[test]
fn holes_are_filled() {
    for (yaml, expected) in [
        ("\"n ${ .n } ${ .t }${ .b }\"", "n 1.50 <é\"'&\\true"),
        ("\"${ .n }\"", "1.50"),
        ("\"\"", ""),
        ("a $${ b", "a ${ b"),
        (
            "{ text: \"${ [.l[] | tostring] | join(\\\", \\\") }\" }",
            "1, 2",
        ),
        ("{ text: \"a\\nb\\n\" }", "a\nb\n"),
    ] {
        let body = r#"{"n": 1.50, "t": "<é\"'&\\", "b": true, "l": [1, 2]}"#;
        let mut message = made(yaml, body).unwrap();
        let (body, media_type) = message.body().unwrap();
        assert_eq!(body.as_bytes(), expected.as_bytes(), "{yaml}");
        assert_eq!(
            media_type.as_deref(),
            Some(&b"text/plain; charset=utf-8"[..])
        );
    }
}

#[test]
fn a_value_stays_a_text_within_the_format_around_it() {
    let body = r#"{"t": "<a href='x' b=\"y\">&\\\n\u0007é", "x": "<&>"}"#;
    for (yaml, expected, media_type) in [
        (
            "{ text: \"<p>${ .t }</p>\", escape: html }",
            "<p>&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;\\\n\u{7}é</p>",
            "text/html; charset=utf-8",
        ),
        (
            "{ text: \"<p>${ .x }</p>\", escape: xml }",
            "<p>&lt;&amp;&gt;</p>",
            "application/xml; charset=utf-8",
        ),
        (
            "{ text: \"{\\\"a\\\": \\\"${ .t }\\\"}\", escape: json }",
            "{\"a\": \"<a href='x' b=\\\"y\\\">&\\\\\\n\\u0007é\"}",
            "application/json",
        ),
        (
            "{ text: \"${ .x }\", escape: html, content_type: application/xhtml+xml }",
            "&lt;&amp;&gt;",
            "application/xhtml+xml",
        ),
    ] {
        let (found, found_type) = text(yaml, body);
        assert_eq!((&*found, &*found_type), (expected, media_type), "{yaml}");
    }
    let fault = made("{ text: \"<p>${ .t }</p>\", escape: xml }", body).unwrap_err();
    assert_eq!((fault.name(), fault.status), ("invalid", 400));
}

#[test]
fn the_result_is_a_text_for_the_steps_behind() {
    let mut message = made("\"n ${ .n }\"", "{\"n\": 1}").unwrap();
    assert_eq!(expr::value::shown(message.value().unwrap()), "\"n 1\"");
    let mut message = made(
        "{ text: \"{\\\"n\\\": ${ .n }}\", escape: json }",
        "{\"n\": 1}",
    )
    .unwrap();
    assert_eq!(expr::value::shown(message.value().unwrap()), "{\"n\":1}");
}

#[test]
fn what_is_no_text_fails() {
    for (body, named) in [
        ("{}", "`.v` gave null, where a text is needed"),
        ("{\"v\": []}", "`.v` gave array, where a text is needed"),
        ("{\"v\": {}}", "`.v` gave object, where a text is needed"),
    ] {
        for yaml in [
            "\"a ${ .v }\"",
            "\"${ .v }\"",
            "{ text: \"${ .v }\", escape: html }",
        ] {
            let fault = made(yaml, body).err().unwrap();
            assert_eq!((fault.name(), fault.status), ("expression", 500));
            assert_eq!(fault.cause.as_deref(), Some(named), "{yaml}");
        }
    }
    assert_eq!(made("\"${ .v }\"", "{").err().unwrap().name(), "invalid");
}

#[test]
fn a_text_is_bounded() {
    let step = sound(&DEFINITION, "\"${ .v }${ .v }\"");
    let mut message = exchange(
        &[JSON],
        format!("{{\"v\": \"{}\"}}", "x".repeat(600)).as_bytes(),
    );
    let mut context = component::exchange::FlowContext::new("test");
    context.body_max = 1000;
    message.context = std::sync::Arc::new(context);
    let fault = run(&*step, &mut message, &FakeServices::default()).unwrap_err();
    assert_eq!(fault.name(), "expression");
}

#[test]
fn a_text_of_a_file_is_read_when_the_flow_is_loaded() {
    let (found, _) = text("{ file: mail.txt }", "{\"name\": \"Ann\"}");
    assert_eq!(found, "Dear Ann,\nyours.");
}

#[test]
fn only_a_text_with_the_body_in_it_reads_the_body() {
    assert!(sound(&DEFINITION, "\"${ .a }\"").reads_body());
    assert!(sound(&DEFINITION, "\"${ $in.body }\"").reads_body());
    let step = sound(&DEFINITION, "\"${ $path.a }\"");
    assert!(!step.reads_body() && !step.waits() && !step.ends_flow());
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            (
                "{ escape: html }",
                &["IT0274 1:1 a template has either `text` or `file`"],
            ),
            (
                "{ text: a, file: mail.txt }",
                &["IT0274 1:1 a template has either `text` or `file`"],
            ),
            (
                "{ file: missing.txt }",
                &["IT0271 1:9 cannot read `missing.txt`: missing.txt is not there"],
            ),
            (
                "{ file: latin1.txt }",
                &["IT0271 1:9 `latin1.txt` is not UTF-8"],
            ),
            (
                "{ file: mistake.txt }",
                &["IT0274 1:9 `mistake.txt`, line 2: there is no function `lenght`"],
            ),
            (
                "{ file: secret.txt }",
                &["IT0274 1:9 `secret.txt`: `$secret.NOT_THERE` is not declared"],
            ),
            (
                "{ text: a, content_type: html }",
                &["IT0274 1:26 `html` is not a media type"],
            ),
            (
                "{ text: a, content_type: \"text/html; charset=latin1\" }",
                &["IT0274 1:26 the text is UTF-8, whatever the media type says"],
            ),
            (
                "{ text: a, content_type: \"text/html\\r\\nX: 1\" }",
                &["IT0274 1:26 `text/html\\r\\nX: 1` is not a media type"],
            ),
            ("{ text: a, escape: url }", &["IT0114 1:20"]),
            ("7", &["IT0112 1:1"]),
            ("\"${ .a\"", &["IT0230 1:1 `${` is never closed"]),
        ],
    );
}
