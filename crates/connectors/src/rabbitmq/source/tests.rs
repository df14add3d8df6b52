//! What is consumed, and what cannot be.

use super::ConsumeConfig;
use crate::rabbitmq::source::DEFINITION;
use crate::testing::{parse, source};

#[test]
fn sources_are_read() {
    let all = "{ connection: mq, queue: [a, b], concurrent: 65535, on_failure: requeue, \
               redeliveries: 1, delay: 0s, memory: 1GiB, reply: true, decode: json }";
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
            "{ connection: mq, queue: a, redeliveries: 2 }",
            "IT0401 1:43",
        ),
        ("{ connection: mq, queue: a, delay: 2s }", "IT0401 1:36"),
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
