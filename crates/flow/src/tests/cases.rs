//! The tests that flow files hold: what is read of them, and every problem at its place.

use std::time::Duration;

use super::load_files;
use crate::tests_section::{AnswerKind, Calls};

/// A flow with a connection and a test (from line 6, column 3) whose keys these are.
fn with_test(keys: &str) -> String {
    format!(
        "flow: a\nuse: {{ crm: {{ http: crm.example }} }}\nfrom: {{ http: \"POST :80/o/{{id}}\" }}\n\
         steps: [ {{ send: crm, name: ask }}, {{ send: stock.example }} ]\ntests:\n  \
         - {{ name: t, {keys} }}"
    )
}

#[test]
fn a_test_is_read_with_its_defaults() {
    let text = with_test(
        "in: { path: '/o/7?b=2', query: { a: [1, x] }, headers: { X-A: y }, body: { c: 1 } }, \
         mock: { crm: { status: 201 }, ask: [ { error: timeout }, { delay: 2s } ] }, \
         expect: { calls: { ask: { times: 2 } }, took: 1s }",
    );
    let loaded = load_files(&[("f", &text)]).unwrap();
    let case = &loaded.flows[0].tests[0];
    let request = &case.request;
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/o/7")
    );
    assert_eq!(request.query.as_deref(), Some("b=2&a=1&a=x"));
    assert_eq!(request.parameters, [("id".into(), "7".to_owned())]);
    assert_eq!(
        request.headers.get("Content-Type"),
        Some(&b"application/json"[..])
    );
    assert_eq!(request.body.as_bytes(), b"{\"c\":1}");
    assert_eq!(case.at, Duration::from_secs(1_767_225_600));
    let ask = &case.mocks[1];
    assert_eq!(
        (ask.answers[0].times, ask.answers[1].times),
        (Some(1), None)
    );
    assert!(matches!(
        ask.answers[0].kind,
        AnswerKind::Fails(message::Kind::Timeout)
    ));
    assert!(matches!(case.expect.calls[0].1.value, Calls::Times(2)));
    let second = Some(Duration::from_secs(1));
    assert_eq!(case.expect.took.as_ref().unwrap().value, (second, second));
}

#[test]
fn documents_of_tests_belong_to_a_flow() {
    let flow = "flow: a\nfrom: call\nsteps: [ stop: x ]";
    let tests = "test: a\ntests: [ { name: one }, { name: two } ]";
    let loaded = load_files(&[("f", flow), ("f.test", tests)]).unwrap();
    assert_eq!(loaded.flows[0].tests.len(), 2);
    let cases: [(&str, &[&str]); 3] = [
        (
            "test: b\ntests: [ { name: one } ]",
            &["IT0229 f.test:1:7 there is no flow `b`"],
        ),
        (
            "test: a\ntest_s: []",
            &["IT0112 f.test:2:1", "IT0113 f.test:1:1"],
        ),
        ("test: a\ntests: []", &["IT0116 f.test:2:8"]),
    ];
    for (tests, expected) in cases {
        let found = load_files(&[("f", flow), ("f.test", tests)]).err().unwrap();
        assert_eq!(found.len(), expected.len(), "{tests}: {found:?}");
        assert!(
            found.iter().all(|it| it.contains("f.test:")),
            "{tests}: {found:?}"
        );
    }
}

#[test]
fn what_a_test_says_is_checked() {
    // `§` stands before the place that is told.
    let cases = [
        (
            "in: { path: §/x/7 }",
            "IT0228 the flow does not take the path `/x/7`",
        ),
        (
            "in: §{ body: 1 }",
            "IT0228 the test does not say a path for `/o/{id}`",
        ),
        (
            "in: { path: /o/7, method: §GET }",
            "IT0228 the flow does not take GET",
        ),
        (
            "in: { path: /o/7, §body: 1, file: x }",
            "IT0228 `body` beside `file`",
        ),
        (
            "in: { path: /o/7, file: §x }",
            "IT0228 `x` cannot be read: x is not there",
        ),
        (
            "in: { path: /o/7, body: §'${ . }' }",
            "IT0228 no expression can stand here",
        ),
        (
            "in: { path: /o/7 }, at: §noon",
            "IT0228 this is no point in time",
        ),
        (
            "in: { path: /o/7 }, mock: { §crn: {} }",
            "IT0229 `crn` is neither a connection, a host nor a step of the flow",
        ),
        (
            "in: { path: /o/7 }, mock: { crm: { error: nack, §status: 200 } }",
            "IT0228 `status` beside `error`",
        ),
        (
            "in: { path: /o/7 }, expect: { calls: { §nobody: 1 } }",
            "IT0229 `nobody` is neither a connection, a host nor a step of the flow",
        ),
        (
            "in: { path: /o/7 }, expect: { variables: { §total: 1 } }",
            "IT0229 the flow has no name `total`",
        ),
        (
            "in: { path: /o/7 }, env: { §A: 1 }",
            "IT0229 `A` is not declared",
        ),
        (
            "in: { path: /o/7 }, secrets: { §TOKEM: 1 }",
            "IT0229 `TOKEM` is not declared",
        ),
        ("in: { path: /o/7 }, expect: { status: §99 }", "IT01"),
        ("in: { path: /o/7 }, mock: { crm: { §boddy: 1 } }", "IT01"),
        (
            "in: { path: /o/7 }, mock: { crm: { error: §tired } }",
            "IT01",
        ),
    ];
    for (keys, expected) in cases {
        let text = with_test(keys);
        let line = text.lines().last().unwrap();
        let column = line.chars().take_while(|it| *it != '§').count() + 1;
        let text = text.replace('§', "");
        let found = load_files(&[("f", &text)]).err().unwrap_or_default();
        assert_eq!(found.len(), 1, "{keys}: {found:?}");
        let (code, rest) = found[0].split_once(' ').unwrap();
        let place = format!("f:6:{column}");
        assert!(rest.starts_with(&place), "{keys}: {found:?}");
        let message = format!("{code}{}", rest.trim_start_matches(&place));
        assert!(message.starts_with(expected), "{keys}: {found:?}");
    }
}

#[test]
fn two_tests_of_one_name() {
    let text = "flow: a\nfrom: call\nsteps: [ stop: x ]\ntests: [ { name: t }, { name: t } ]";
    let found = load_files(&[("f", text)]).err().unwrap();
    assert_eq!(found, ["IT0228 f:4:31 a second test named `t`"]);
}
