//! Lines as a subscriber gets them.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::testing::{FakeServices, assert_problems, exchange, run, sound};

/// Keeps every line as text.
#[derive(Clone)]
struct Lines {
    kept: Arc<Mutex<Vec<String>>>,
    least: tracing::Level,
}

struct LineText(String);

impl Visit for LineText {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, " {}={value}", field.name());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.least
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = LineText(format!("{} {}", metadata.level(), metadata.target()));
        event.record(&mut line);
        self.kept.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn line(yaml: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<String> {
    let step = sound(&DEFINITION, yaml);
    let lines = Lines {
        kept: Arc::default(),
        least: tracing::Level::INFO,
    };
    tracing::subscriber::with_default(lines.clone(), || {
        let next = run(
            &*step,
            &mut exchange(headers, body),
            &FakeServices::default(),
        );
        assert!(matches!(next, Ok(Next::Continue)));
    });
    lines.kept.lock().unwrap().pop()
}

#[test]
fn a_line_has_what_was_asked_for() {
    let cases = [
        ("hello", "INFO flow message=hello flow=test"),
        (
            "\"a\\nb\\e[31m\"",
            "INFO flow message=a\\nb\\u{1b}[31m flow=test",
        ),
        (
            "{ message: m, level: warn, with: [peer, query, path, method] }",
            "WARN flow message=m flow=test method=POST path=/orders query=a=1 peer=127.0.0.1",
        ),
        (
            "{ level: error, with: [body] }",
            "ERROR flow message= flow=test body=x\\u{0}\u{fffd}",
        ),
    ];
    for (yaml, expected) in cases {
        assert_eq!(
            line(yaml, &[], b"x\0\xff").as_deref(),
            Some(expected),
            "{yaml}"
        );
    }
    assert_eq!(line("{ message: m, level: debug }", &[], b""), None);
}

#[test]
fn secrets_are_not_shown() {
    let headers = [
        ("Accept", "a\"b"),
        ("authorization", "Bearer s3cret"),
        ("Cookie", "s3cret"),
        ("Proxy-Authorization", "s3cret"),
        ("SET-COOKIE", "s3cret"),
        ("X-Api-Key", "s3cret"),
        ("X-Amz-Security-Token", "s3cret"),
    ];
    let line = line("{ message: m, with: [headers] }", &headers, b"").unwrap();
    assert!(!line.contains("s3cret"), "{line}");
    let shown = r#"headers=Accept: "a\"b", authorization: "***", Cookie: "***", "#;
    assert!(line.contains(shown), "{line}");
}

#[test]
fn what_is_long_is_cut() {
    let line_of_body = line("{ with: [body] }", &[], "é".repeat(5000).as_bytes()).unwrap();
    assert!(line_of_body.len() < SHOWN_MAX + 100);
    assert!(
        line_of_body.ends_with("... (10000 bytes)"),
        "{line_of_body}"
    );
    let long = "é".repeat(5000);
    let line_of_headers = line("{ with: [headers] }", &[("A", &long)], b"").unwrap();
    assert!(line_of_headers.len() < SHOWN_MAX + 100);
}

#[test]
fn only_a_line_with_the_body_reads_it() {
    assert!(sound(&DEFINITION, "{ with: [path, body] }").reads_body());
    assert!(!sound(&DEFINITION, "{ with: [path, headers] }").reads_body());
    assert!(!sound(&DEFINITION, "text").reads_body());
}

#[test]
fn every_problem_is_told_at_its_place() {
    let cases: &[(&str, &[&str])] = &[
        ("5", &["IT0112 1:1"]),
        (
            "{ level: loud, with: [boddy] }",
            &["IT0114 1:10", "IT0114 1:23"],
        ),
    ];
    assert_problems(&DEFINITION, cases);
}
