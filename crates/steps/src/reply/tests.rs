//! Replies as YAML makes them.

use super::*;
use crate::testing::{assert_problems, exchange, lines, reply_of, sound};

fn shown(yaml: &str) -> String {
    let step = sound(&DEFINITION, yaml);
    assert!(step.ends_flow());
    let mut exchange = exchange(
        &[
            ("Content-Type", "text/html"),
            ("Content-Encoding", "br"),
            ("X-Secret", "1"),
        ],
        b"<p>",
    );
    let reply = reply_of(&*step, &mut exchange);
    let body = String::from_utf8_lossy(reply.body.as_bytes()).into_owned();
    format!(
        "{} {} {body}",
        reply.status,
        lines(&reply.headers).join("; ")
    )
}

#[test]
fn replies_are_made() {
    let message = "Content-Type: text/html; Content-Encoding: br <p>";
    let json = "Content-Type: application/json";
    let cases = [
        ("", format!("200 {message}")),
        ("{}", format!("200 {message}")),
        ("status: 404", format!("404 {message}")),
        ("status: 204", "204  ".to_owned()),
        ("status: 304", "304  ".to_owned()),
        ("body: null", "200  ".to_owned()),
        ("body:", "200  ".to_owned()),
        ("{ status: 204, body: null }", "204  ".to_owned()),
        (
            "body: hi",
            "200 Content-Type: text/plain; charset=utf-8 hi".to_owned(),
        ),
        ("body: ''", "200  ".to_owned()),
        ("body: 1.50", format!("200 {json} 1.50")),
        ("body: 0x10", format!("200 {json} 16")),
        ("body: .5", format!("200 {json} 0.5")),
        ("body: +7", format!("200 {json} 7")),
        (
            "body: 123456789012345678901234567890",
            format!("200 {json} 123456789012345678901234567890"),
        ),
        ("body: true", format!("200 {json} true")),
        ("body: []", format!("200 {json} []")),
        (
            "body: { a: [1, null, \"x\\n\\\"\", { b: false }], 2: é }",
            format!("200 {json} {{\"a\":[1,null,\"x\\n\\\"\",{{\"b\":false}}],\"2\":\"é\"}}"),
        ),
        (
            "{ headers: { content-type: text/css, Retry-After: 5 }, body: hi }",
            "200 content-type: text/css; Retry-After: 5 hi".to_owned(),
        ),
        (
            "{ headers: { content-type: text/css, X-A: b } }",
            "200 Content-Encoding: br; content-type: text/css; X-A: b <p>".to_owned(),
        ),
        (
            "{ status: 599, headers: { Location: /a } , body: x }",
            "599 Content-Type: text/plain; charset=utf-8; Location: /a x".to_owned(),
        ),
    ];
    for (yaml, expected) in cases {
        assert_eq!(shown(yaml), expected, "{yaml}");
    }
}

#[test]
fn the_body_is_read_only_to_be_sent() {
    let cases = [
        ("{}", true),
        ("status: 404", true),
        ("status: 204", false),
        ("body: x", false),
    ];
    for (yaml, reads) in cases {
        assert_eq!(sound(&DEFINITION, yaml).reads_body(), reads, "{yaml}");
    }
}

#[test]
fn every_problem_is_told_at_its_place() {
    let cases: &[(&str, &[&str])] = &[
        ("text", &["IT0112 1:1"]),
        (
            "status: 100",
            &["IT0248 1:9 100 is not the status of a reply"],
        ),
        (
            "status: 600",
            &["IT0248 1:9 600 is not the status of a reply"],
        ),
        (
            "{ status: 204, body: x }",
            &["IT0249 1:16 a reply of status 204 has no body"],
        ),
        (
            "{ status: 304, body: [] }",
            &["IT0249 1:16 a reply of status 304 has no body"],
        ),
        ("stauts: 200", &["IT0111 1:1"]),
        (
            "{ status: 0, headers: { a b: 1, Transfer-Encoding: x, Connection: close } }",
            &[
                "IT0248 1:11 0 is not the status of a reply",
                "IT0242 1:25 `a b` is not a header name",
                "IT0243 1:33 the header `Transfer-Encoding` belongs to the engine",
                "IT0243 1:55 the header `Connection` belongs to the engine",
            ],
        ),
    ];
    assert_problems(&DEFINITION, cases);
}
