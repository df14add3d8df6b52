//! Tests of targets with `${ }` in them.

use crate::testing::{FakeServices, LAST, MIDDLE, build, exchange};
use component::exchange::Exchange;
use component::scope::Scope;
use message::Fault;

use super::{Piece, UrlTemplate, before_path, pieces, push_encoded};
use crate::http_call::DEFINITION;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Path and query that a template makes of a JSON body.
fn filled(path: &str, query: &str, body: &str) -> Result<(String, Option<String>), Fault> {
    let template = expr::template::Template::compile(&format!("{path}?{query}"), &Scope::default());
    let template = template.unwrap();
    let mut count = 0;
    let mut marked = |text: &str| {
        let mut marked = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let (_, after) = behind.split_once('}').unwrap();
            marked.push_str(&format!("{before}{}{count}-", super::MARK));
            count += 1;
            rest = after;
        }
        marked + rest
    };
    let url = UrlTemplate {
        path: pieces(&marked(path)),
        query: pieces(&marked(query)),
        base: String::new(),
        template,
    };
    let mut message: Exchange = exchange(&[JSON], body.as_bytes());
    url.make(&mut message, &FakeServices::default())
}

#[test]
fn values_are_one_segment_or_one_query_value() {
    for (value, encoded) in [
        ("\"a/b\"", "a%2Fb"),
        ("\"a?b#c&d=e\"", "a%3Fb%23c%26d%3De"),
        ("\"%2e%2e\"", "%252e%252e"),
        ("\"..a\"", "..a"),
        ("\"é 😀\"", "%C3%A9%20%F0%9F%98%80"),
        ("\"a\\r\\nb\\u0000\"", "a%0D%0Ab%00"),
        ("\"a;b:c@d\\\\\"", "a%3Bb%3Ac%40d%5C"),
        ("1.50", "1.50"),
        ("true", "true"),
    ] {
        let body = format!("{{\"v\": {value}}}");
        let (path, query) = filled("/x/${ .v }", "q=${ .v }", &body).unwrap();
        assert_eq!(path, format!("/x/{encoded}"));
        assert_eq!(query, Some(format!("q={encoded}")));
    }
}

#[test]
fn no_value_changes_which_path_is_meant() {
    for (path, body) in [
        ("/x/${ .v }/y", r#"{"v": ".."}"#),
        ("/x/${ .v }", r#"{"v": "."}"#),
        ("/x/${ .v }${ .v }", r#"{"v": "."}"#),
        ("/x/.${ .v }", r#"{"v": "."}"#),
    ] {
        let fault = filled(path, "", body).unwrap_err();
        assert_eq!((fault.name(), fault.status), ("invalid", 400), "{path}");
    }
    let (_, query) = filled("/x", "q=${ .v }", r#"{"v": ".."}"#).unwrap();
    assert_eq!(query.as_deref(), Some("q=.."));
}

#[test]
fn what_is_no_text_cannot_stand_in_a_url() {
    for (body, named) in [
        (r#"{"v": null}"#, "null"),
        (r#"{"v": ""}"#, "an empty text"),
        (r#"{"v": []}"#, "array"),
        (r#"{"v": {}}"#, "object"),
    ] {
        let fault = filled("/x/${ .v }", "", body).unwrap_err();
        assert_eq!((fault.name(), fault.status), ("invalid", 400));
        let expected = format!("a value in a URL is a text, a number or a boolean, not {named}");
        assert_eq!(fault.detail, expected);
        assert_eq!(*fault.cause.unwrap(), *format!("`.v` gave {named}"));
    }
}

#[test]
fn a_value_cannot_decide_which_host_is_asked() {
    for target in [
        "http://${ .host }/x",
        "http://a${ .host }.example/x",
        "http://a.example:${ .port }/x",
        "http://${ .user }@a.example/x",
        "${ .scheme }://a.example/x",
        "${ .name }:/x",
        "${ .url }",
        "GET http://${ .host }/x",
        "${ .method } http://a.example/x",
        "http://a.example${ .path }",
    ] {
        let problems = build(&DEFINITION, &format!("\"{target}\""), LAST).err();
        let expected = "IT0240 1:1 a value cannot decide which host is asked";
        assert_eq!(problems.unwrap(), [expected], "{target}");
        let problems = build(&DEFINITION, &format!("to: \"{target}\""), LAST).err();
        assert!(
            problems
                .unwrap()
                .iter()
                .all(|it| !it.contains("intertie-hole")),
            "{target}"
        );
    }
    for target in [
        "http://a.example/${ .path }",
        "http://a.example?q=${ .q }",
        "GET crm:/x?back=http://${ .host }/",
        "crm:/${ .path }",
    ] {
        assert!(
            build(&DEFINITION, &format!("\"{target}\""), MIDDLE).is_ok(),
            "{target}"
        );
    }
}

#[test]
fn what_stands_before_a_path_is_known() {
    for (text, before) in [
        ("http://a:1/x?y", "http://a:1"),
        ("GET http://a:1", "GET http://a:1"),
        ("http://a?x=/y", "http://a"),
        ("crm:/x//y", "crm:"),
        ("crm", "crm"),
        ("crm:/x?u=http://b/", "crm:"),
    ] {
        assert_eq!(before_path(text), before, "{text}");
    }
}

#[test]
fn a_text_is_split_at_its_holes() {
    let found = pieces("/a-intertie-hole-0-/b-intertie-hole-12-");
    let found: Vec<String> = found
        .into_iter()
        .map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Hole(at) => at.to_string(),
        })
        .collect();
    assert_eq!(found, ["/a", "0", "/b", "12"]);
    let mut encoded = String::new();
    push_encoded("a-._~ ", &mut encoded);
    assert_eq!(encoded, "a-._~%20");
}
