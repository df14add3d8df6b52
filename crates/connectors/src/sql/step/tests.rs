//! Statements and their arguments, and what becomes of the rows.

use component::step::Next;

use super::*;
use crate::testing::{StandIn, body, build, exchange, run};

fn result(rows: &str, answer: &str) -> Result<String, String> {
    let yaml = format!("{{ to: db, query: select 1, rows: {rows} }}");
    let step = build(&DEFINITION, &yaml).unwrap();
    let mut message = exchange("[0]");
    match run(&*step, &mut message, &StandIn::says(200, answer)) {
        Ok(_) => Ok(body(&mut message)),
        Err(fault) => Err(fault.name().to_owned()),
    }
}

#[test]
fn a_database_is_shown_the_statement_and_its_arguments() {
    let yaml = "{ to: db, query: 'select a from t where id = :id::int', args: { id: '${ .c }' } }";
    let step = build(&DEFINITION, yaml).unwrap();
    assert!(step.waits() && step.reads_body());
    let mut message = exchange(r#"{"c":"x' or 1=1"}"#);
    let services = StandIn::says(200, r#"[{"a":1}]"#);
    let next = run(&*step, &mut message, &services);
    assert!(matches!(next, Ok(Next::Continue)), "{next:?}");
    let (verb, connection, seen) = services.seen.take().remove(0);
    assert_eq!((verb.as_str(), connection.as_str()), ("sql", "db"));
    let expected = r#"{"query":"select a from t where id = :id::int","args":{"id":"x' or 1=1"}}"#;
    assert_eq!(seen, expected);
    assert_eq!(body(&mut message), r#"[{"a":1}]"#);
    assert!(message.reply.is_none());
}

#[test]
fn rows_say_what_the_result_is() {
    let ok = |text: &str| Ok(text.to_owned());
    let fails = |name: &str| Err(name.to_owned());
    assert_eq!(result("many", "[]"), ok("[]"));
    assert_eq!(result("many", r#"{"a":1}"#), fails("connection"));
    assert_eq!(result("one", r#"{"a":1}"#), ok(r#"{"a":1}"#));
    assert_eq!(result("one", r#"[{"a":1}]"#), ok(r#"{"a":1}"#));
    assert_eq!(result("one", "[]"), fails("no-row"));
    assert_eq!(result("one", "null"), fails("no-row"));
    assert_eq!(result("one", "[{},{}]"), fails("many-rows"));
    assert_eq!(result("one", "3"), fails("connection"));
    assert_eq!(result("count", "3"), ok("3"));
    assert_eq!(result("count", "[]"), fails("connection"));
    assert_eq!(result("none", "3"), ok("[0]"));
}

#[test]
fn lists_and_objects_are_not_bound() {
    let yaml = "{ to: shop, query: 'select :a', args: { a: '${ . }' } }";
    let step = build(&DEFINITION, yaml).unwrap();
    let services = StandIn::says(200, "[]");
    let fault = run(&*step, &mut exchange("[1]"), &services).unwrap_err();
    assert_eq!((fault.name(), fault.status), ("invalid", 400));
    assert!(services.seen.take().is_empty());
}

#[test]
fn every_problem_has_its_place() {
    let cases: &[(&str, &[&str])] = &[
        ("{ to: mq, query: select 1 }", &["IT0292 1:7"]),
        ("{ to: db, query: 'commit' }", &["IT0420 1:18"]),
        ("{ to: db, query: 'select ${ .a }' }", &["IT0293 1:18"]),
        ("{ to: db, query: \"select 'a\" }", &["IT0295 1:"]),
        ("{ to: db, query: 'select 1; select 2' }", &["IT0295 1:"]),
        ("{ to: db, query: ' ' }", &["IT0295 1:"]),
        ("{ to: db, query: 'select :a, :a' }", &["IT0296 1:"]),
        (
            "{ to: db, query: 'select :idd', args: { id: 1 } }",
            &["IT0296 1:", "IT0296 1:41"],
        ),
        ("{ to: db, query: select 1, args: [1] }", &["IT0296 1:34"]),
        (
            "{ to: shop, query: 'select :a', args: { a: [1] } }",
            &["IT0296 1:44"],
        ),
    ];
    for (yaml, expected) in cases {
        let found = build(&DEFINITION, yaml).err().unwrap_or_default();
        assert_eq!(found.len(), expected.len(), "{yaml}: {found:?}");
        for (found, expected) in found.iter().zip(*expected) {
            assert!(found.starts_with(expected), "{yaml}: {found}");
        }
    }
    assert!(build(&DEFINITION, "{ to: db, query: select 1, rows: some }").is_err());
}

#[test]
fn keys_belong_together() {
    let cases: &[(&str, &[&str])] = &[
        ("{ to: db }", &["IT0295 1:1 "]),
        (
            "{ to: db, query: select 1, procedure: p }",
            &["IT0295 1:39"],
        ),
        ("{ to: db, query: select 1, batch: 5 }", &["IT0420 1:35"]),
        (
            "{ to: db, query: select 1, rows: stream }",
            &["IT0420 1:34"],
        ),
        (
            "{ to: db, query: select 1, rows: one, rows_max: 5 }",
            &["IT0420 1:49"],
        ),
        (
            "{ to: db, query: select 1, rows: none, bytes_max: 5B }",
            &["IT0420 1:51"],
        ),
        (
            "{ to: db, query: select 1, bytes_max: 2GiB }",
            &["IT0291 1:39"],
        ),
        (
            "{ to: db, query: select 1, out: { a: int } }",
            &["IT0420 1:33"],
        ),
        ("{ to: db, procedure: 'close day' }", &["IT0422 1:22"]),
        ("{ to: db, procedure: a.b.c.d }", &["IT0422 1:22"]),
        ("{ to: db, procedure: p, rows: one }", &["IT0420 1:31"]),
        (
            "{ to: db, procedure: p, args: { 'a b': 1 } }",
            &["IT0422 1:33"],
        ),
        (
            "{ to: db, procedure: p, out: { a: 'int; drop' } }",
            &["IT0422 1:35"],
        ),
        ("{ to: db, procedure: p, out: [a] }", &["IT0422 1:30"]),
    ];
    for (yaml, expected) in cases {
        let found = build(&DEFINITION, yaml).err().unwrap_or_default();
        assert_eq!(found.len(), expected.len(), "{yaml}: {found:?}");
        for (found, expected) in found.iter().zip(*expected) {
            assert!(found.starts_with(expected), "{yaml}: {found}");
        }
    }
    let call = "{ to: db, procedure: a.p, args: { x: 1 }, out: { y: 'numeric(12,2)' } }";
    let step = build(&DEFINITION, call).unwrap();
    let answer = r#"{"out":{"y":1.50},"results":[]}"#;
    let (mut message, services) = (exchange("[0]"), StandIn::says(200, answer));
    assert!(run(&*step, &mut message, &services).is_ok());
    assert_eq!(body(&mut message), answer);
    let (_, _, seen) = services.seen.take().remove(0);
    assert_eq!(seen, r#"{"procedure":"a.p","args":{"x":1}}"#);
}

#[test]
fn a_test_names_failures_by_their_types() {
    let step = build(&DEFINITION, "{ to: db, query: select 1 }").unwrap();
    let services = StandIn::says(409, "\"unique-violation\"");
    let fault = run(&*step, &mut exchange("[0]"), &services).unwrap_err();
    assert_eq!((fault.name(), fault.status), ("unique-violation", 409));
    let fault = run(&*step, &mut exchange("[0]"), &StandIn::says(409, "7")).unwrap_err();
    assert_eq!(fault.name(), "4xx");
}

#[test]
fn a_transaction_has_statements_and_an_isolation_that_there_is() {
    let definition = &transaction::DEFINITION;
    let sql = "sql: { to: shop, query: select 1 }";
    let cases = [
        (
            "{ to: shop, steps: [ log: { message: a } ] }".to_owned(),
            "IT0421 1:7",
        ),
        (
            format!("{{ to: shop, isolation: snapshot, steps: [ {sql} ] }}"),
            "IT0421 1:24",
        ),
        (
            format!("{{ to: shop, steps: [ transaction: {{ to: shop, steps: [ {sql} ] }} ] }}"),
            "IT0421 1:35",
        ),
    ];
    for (yaml, expected) in cases {
        let found = build(definition, &yaml).err().unwrap_or_default();
        assert_eq!(found.len(), 1, "{yaml}: {found:?}");
        assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
    }
}
