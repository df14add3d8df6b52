//! Commands as whoever stands in for the server sees them, and every problem with its place.

use super::step::DEFINITION;
use crate::testing::{StandIn, body, build, exchange, run};

/// What is shown of a command, and the body then.
fn shown(yaml: &str, message: &str, answer: &str) -> (String, String) {
    let step = build(&DEFINITION, yaml).unwrap();
    let mut message = exchange(message);
    let services = StandIn::says(200, answer);
    run(&*step, &mut message, &services).unwrap();
    let (verb, connection, seen) = services.seen.take().remove(0);
    assert_eq!((verb.as_str(), connection.as_str()), ("redis", "cache"));
    (seen, body(&mut message))
}

#[test]
fn commands_are_shown_with_all_that_they_do() {
    let cases = [
        (
            "get: 'a:${ .k }'",
            r#"{"command":"get","key":"a:K 1"}"#,
            "\"v\"",
        ),
        (
            "set: a, value: { n: '${ .n }' }, ttl: 5m, if: absent",
            r#"{"command":"set","key":"a","value":{"n":7},"ttl":"5m","if":"absent"}"#,
            "true",
        ),
        (
            "set: a",
            r#"{"command":"set","key":"a","value":{"k":"K 1","n":7}}"#,
            "false",
        ),
        (
            "incr: a, by: '${ .n }'",
            r#"{"command":"incr","key":"a","by":7}"#,
            "8",
        ),
        (
            "push: a, values: '${ [.n, .k] }'",
            r#"{"command":"push","key":"a","values":[7,"K 1"]}"#,
            "2",
        ),
        (
            "hset: a, field: f, value: 1",
            r#"{"command":"hset","key":"a","fields":{"f":1}}"#,
            "1",
        ),
        (
            "xadd: s, value: '${ .k }', maxlen: 10",
            r#"{"command":"xadd","stream":"s","fields":{"body":"K 1"}}"#,
            "\"1-0\"",
        ),
        (
            "publish: c, value: x",
            r#"{"command":"publish","channel":"c","value":"x"}"#,
            "0",
        ),
    ];
    for (yaml, expected, answer) in cases {
        let yaml = format!("{{ to: cache, {yaml} }}");
        let (seen, body) = shown(&yaml, r#"{"k":"K 1","n":7}"#, answer);
        assert_eq!(seen, expected, "{yaml}");
        assert_eq!(body, answer.trim_matches('"'), "{yaml}");
    }
}

#[test]
fn what_a_message_brings_may_not_fit() {
    let cases = [
        ("get: '${ .none // \"\" }'", "null", "invalid"),
        ("get: '${ . }'", "[1]", "invalid"),
        ("incr: a, by: '${ . }'", "1.5", "invalid"),
        ("incr: a, by: '${ . }'", "\"1; FLUSHALL\"", "invalid"),
        ("push: a, values: '${ . }'", "[]", "invalid"),
        ("push: a, values: '${ . }'", "7", "invalid"),
        ("hset: a, fields: '${ . }'", "7", "invalid"),
        ("hset: a, fields: '${ . }'", "{}", "invalid"),
    ];
    for (yaml, message, expected) in cases {
        let step = build(&DEFINITION, &format!("{{ to: cache, {yaml} }}")).unwrap();
        let services = StandIn::says(200, "1");
        let fault = run(&*step, &mut exchange(message), &services).unwrap_err();
        assert_eq!(fault.name(), expected, "{yaml}");
        assert!(services.seen.take().is_empty());
    }
}

#[test]
fn an_answer_that_no_command_gets_is_refused() {
    for (yaml, answer) in [("set: a", "1"), ("incr: a", "\"x\""), ("hgetall: a", "[]")] {
        let step = build(&DEFINITION, &format!("{{ to: cache, {yaml} }}")).unwrap();
        let fault = run(&*step, &mut exchange("1"), &StandIn::says(200, answer)).unwrap_err();
        assert_eq!(fault.name(), "connection", "{yaml}");
    }
}

#[test]
fn every_problem_has_its_place() {
    let cases: &[(&str, &[&str])] = &[
        ("{ to: mq, get: a }", &["IT0292 1:7"]),
        ("{ to: cache }", &["IT0460 1:1"]),
        ("{ to: cache, get: a, set: b }", &["IT0460 1:22"]),
        ("{ to: cache, get: '' }", &["IT0460 1:19"]),
        ("{ to: cache, get: a, value: 1 }", &["IT0460 1:22"]),
        ("{ to: cache, expire: a }", &["IT0460 1:1"]),
        ("{ to: cache, hget: a }", &["IT0460 1:1"]),
        ("{ to: cache, hset: a }", &["IT0460 1:1"]),
        ("{ to: cache, hset: a, fields: [1] }", &["IT0460 1:31"]),
        (
            "{ to: cache, push: a, value: 1, values: [1] }",
            &["IT0460 1:33"],
        ),
        (
            "{ to: cache, set: a, ttl: 1s, keep_ttl: true }",
            &["IT0460 1:31"],
        ),
        ("{ to: cache, incr: a, by: 1.5 }", &["IT0460 1:27"]),
        ("{ to: cache, incr: a, by: much }", &["IT0460 1:27"]),
        ("{ to: cache, set: a, ttl: 0s }", &["IT0291 1:27"]),
        ("{ to: cache, pop: a, wait: 1h }", &["IT0291 1:28"]),
        (
            "{ to: cache, range: a, start: 9999999999999 }",
            &["IT0460 1:31"],
        ),
        ("{ to: cache, xadd: a, maxlen: 0 }", &["IT0291 1:31"]),
    ];
    for (yaml, expected) in cases {
        let found = build(&DEFINITION, yaml).err().unwrap_or_default();
        assert_eq!(found.len(), expected.len(), "{yaml}: {found:?}");
        for (found, expected) in found.iter().zip(*expected) {
            assert!(found.starts_with(expected), "{yaml}: {found}");
        }
    }
    assert!(build(&DEFINITION, "{ to: cache, get: a, if: never }").is_err());
}
