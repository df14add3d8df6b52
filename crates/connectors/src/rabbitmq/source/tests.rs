//! What is consumed, and what cannot be.

use super::ConsumeConfig;
use crate::rabbitmq::source::DEFINITION;
use crate::testing::{parse, source};

#[test]
fn sources_are_read() {
    let all = "{ connection: mq, queue: [a, b], concurrent: 65535, memory: 1GiB, reply: true, \
               retry: { on: [5xx, timeout], times: 1000, delay: 1ms, backoff: 1, jitter: 0% }, \
               dead_letter: { queue: dead }, decode: json }";
    let found = source(&DEFINITION, all).unwrap();
    assert!(found.is_on_every_worker() && found.decode().is_some());
    let ordered = source(&DEFINITION, "{ connection: mq, queue: a, ordered: true }").unwrap();
    assert!(!ordered.is_on_every_worker());
}

#[test]
fn as_many_again_are_sent_ahead() {
    for (counts, expected) in [
        ("", (100, 200)),
        (", concurrent: 1000", (1000, 2000)),
        (", concurrent: 1", (1, 2)),
        (", concurrent: 65535", (65_535, 65_535)),
        (", prefetch: 20", (20, 20)),
        (", concurrent: 10, prefetch: 40", (10, 40)),
    ] {
        let (node, _, _, mut report) = parse(&format!("{{ connection: mq, queue: a{counts} }}"));
        let config: ConsumeConfig = config::decode(&node, &mut report).unwrap();
        assert_eq!(config.counts(&mut report), expected, "{counts}");
    }
}

#[test]
fn every_problem_has_its_place() {
    let cases = [
        ("{ connection: mw, queue: a }", "IT0292 1:15"),
        ("{ connection: db, queue: a }", "IT0292 1:15"),
        ("{ connection: mq, queue: '' }", "IT0401 1:26"),
        ("{ connection: mq, queue: [a, a] }", "IT0401 1:30"),
        (
            "{ connection: mq, queue: a, dead_letter: { queue: '' } }",
            "IT0401 1:51",
        ),
        (
            "{ connection: mq, queue: [b, a], dead_letter: { queue: a } }",
            "IT0401 1:56",
        ),
        (
            "{ connection: mq, queue: a, ordered: true, prefetch: 2 }",
            "IT0401 1:54",
        ),
        (
            "{ connection: mq, queue: a, prefetch: 65536 }",
            "IT0291 1:39",
        ),
        (
            "{ connection: mq, queue: a, ordered: true, concurrent: 2 }",
            "IT0401 1:56",
        ),
        ("{ connection: mq, queue: a, concurrent: 0 }", "IT0291 1:41"),
        (
            "{ connection: mq, queue: a, concurrent: 20, prefetch: 19 }",
            "IT0401 1:55",
        ),
        ("{ connection: mq, queue: a, memory: 1KiB }", "IT0291 1:37"),
    ];
    for (yaml, expected) in cases {
        let found = source(&DEFINITION, yaml).err().unwrap_or_default();
        assert_eq!(found.len(), 1, "{yaml}: {found:?}");
        assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
    }
}

#[test]
fn failed_messages_go_where_the_file_says() {
    for dead_letter in [
        "reject",
        "drop",
        "stop",
        "{ store: failed }",
        "{ queue: b }",
    ] {
        let yaml = format!("{{ connection: mq, queue: a, dead_letter: {dead_letter} }}");
        assert!(source(&DEFINITION, &yaml).is_ok(), "{dead_letter}");
    }
    for dead_letter in ["requeue", "{}", "{ stream: b }", "{ store: a, queue: b }"] {
        let yaml = format!("{{ connection: mq, queue: a, dead_letter: {dead_letter} }}");
        assert!(source(&DEFINITION, &yaml).is_err(), "{dead_letter}");
    }
}

/// A broker takes back what is held for longer.
#[test]
fn delays_that_take_too_long_together_are_refused() {
    let found = |retry: &str| {
        let yaml = format!("{{ connection: mq, queue: a, retry: {{ {retry} }} }}");
        source(&DEFINITION, &yaml).map(drop)
    };
    for retry in [
        "times: 0",
        "times: 1, delay: 10m",
        "times: 23",
        "times: 600, delay: 1s, backoff: 1",
    ] {
        assert_eq!(found(retry), Ok(()), "{retry}");
    }
    for (retry, minutes) in [
        ("times: 24", 11),
        ("times: 1000", 499),
        ("times: 2, delay: 11m", 22),
        ("times: 10, delay: 1d", 14400),
    ] {
        let problems = found(retry).unwrap_err();
        let told = format!("IT0401 1:36 the delays of all retries take {minutes}m together");
        assert_eq!(problems.len(), 1, "{retry}: {problems:?}");
        assert!(problems[0].starts_with(&told), "{retry}: {problems:?}");
    }
    // Nobody waits in the prefetch behind those that are retried, or four times as many do.
    for (counts, is_fine) in [
        ("prefetch: 10", true),
        ("concurrent: 5, prefetch: 20", false),
    ] {
        let retry = "retry: { times: 1, delay: 20m }";
        let yaml = format!("{{ connection: mq, queue: a, {counts}, {retry} }}");
        assert_eq!(source(&DEFINITION, &yaml).is_ok(), is_fine, "{counts}");
    }
}

#[test]
fn old_words_are_refused_with_the_new_ones() {
    for (old, new) in [
        ("on_failure: reject", "dead_letter"),
        ("redeliveries: 3", "retry"),
        ("delay: 2s", "retry"),
    ] {
        let yaml = format!("{{ connection: mq, queue: a, {old} }}");
        let (node, _, _, mut report) = parse(&yaml);
        assert!(config::decode::<ConsumeConfig>(&node, &mut report).is_none());
        let problems = report.diagnostics();
        let hints: Vec<_> = problems.iter().map(|it| it.hint_text()).collect();
        assert_eq!(
            hints,
            [Some(&*format!("it is called `{new}` now"))],
            "{old}"
        );
    }
    for other in ["acknowledge: after-success", "ordered: by-key"] {
        let yaml = format!("{{ connection: mq, queue: a, {other} }}");
        assert!(source(&DEFINITION, &yaml).is_err(), "{other}");
    }
}
