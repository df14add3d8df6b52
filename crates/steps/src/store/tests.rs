//! What the step and the source take and refuse, and what is stored of a message.

use bytes::Bytes;
use component::state::States;
use message::Method;

use super::depot::Depot;
use super::{SOURCE, STEP, describe, envelope};
use crate::testing;
use crate::under_way::testing::build;

#[test]
fn what_the_step_refuses() {
    for sound in [
        "{ in: orders }",
        "{ in: orders, key: \"${ .id }\", max: 1KiB, max_messages: 1 }",
    ] {
        testing::sound(&STEP, sound);
    }
    let cases = [
        ("{}", "IT0113 1:1"),
        ("{ in: \"a b\" }", "IT0490 1:7"),
        ("{ in: \"\" }", "IT0490 1:7"),
        ("{ in: .hidden }", "IT0490 1:7"),
        ("{ in: \"${ .x }\" }", "IT0490 1:7"),
        ("{ in: orders, key: id }", "IT0273 1:20"),
        ("{ in: orders, max: 1B }", "IT0250 1:20"),
        ("{ in: orders, max_messages: 0 }", "IT0250 1:29"),
        ("{ in: orders, fsync: false }", "IT0111 1:15"),
    ];
    for (yaml, expected) in cases {
        let problems = testing::build(&STEP, yaml, testing::LAST).err();
        let problems = problems.unwrap_or_default();
        assert_eq!(problems.len(), 1, "{yaml}");
        assert!(problems[0].starts_with(expected), "{yaml}: {problems:?}");
    }
}

#[test]
fn what_the_source_refuses() {
    for sound in [
        "orders",
        "{ name: orders, ordered: by-key, concurrent: 100 }",
        "{ name: orders, ordered: true }",
        "{ name: orders, ordered: false, decode: json }",
        "{ name: orders, retry: { on: [5xx, 404, timeout, mine], times: 0 } }",
        "{ name: orders, dead_letter: { store: failed-orders } }",
        "{ name: orders, dead_letter: reject }",
        "{ name: orders, dead_letter: drop }",
        "{ name: orders, dead_letter: stop }",
    ] {
        assert!(build(&SOURCE, sound, &States::default()).is_ok(), "{sound}");
    }
    let cases = [
        ("a/b", "IT0490 1:1"),
        ("{ name: orders, concurrent: 0 }", "IT0250 1:29"),
        (
            "{ name: orders, ordered: true, concurrent: 2 }",
            "IT0491 1:44",
        ),
        ("{ name: orders, retry: { backoff: 11 } }", "IT0115 1:35"),
        ("{ name: orders, retry: { on: [] } }", "IT0492 1:30"),
        ("{ name: orders, retry: { on: [999] } }", "IT0492 1:30"),
        ("{ name: orders, retry: { delay: 2d } }", "IT0115 1:33"),
        ("{ name: orders, retry: { jitter: 200% } }", "IT0119 1:34"),
        (
            "{ name: orders, dead_letter: { store: orders } }",
            "IT0492 1:39 the dead letters of a store go to another store",
        ),
        (
            "{ name: orders, dead_letter: { store: a b } }",
            "IT0490 1:39",
        ),
        (
            "{ name: orders, dead_letter: { folder: dead } }",
            "IT0111 1:32",
        ),
    ];
    for (yaml, expected) in cases {
        let problems = build(&SOURCE, yaml, &States::default()).err();
        let problems = problems.unwrap_or_default();
        assert_eq!(problems.len(), 1, "{yaml}");
        assert!(problems[0].starts_with(expected), "{yaml}: {problems:?}");
    }
}

#[test]
fn the_depot_is_needed_as_long_as_a_flow_has_a_store() {
    let states = States::default();
    let depot = Depot::of(&states);
    assert!(!depot.is_needed() && !depot.is_open());
    let Ok(source) = build(&SOURCE, "orders", &states) else {
        panic!("it is sound");
    };
    assert!(Depot::of(&states).is_needed());
    drop(source);
    states.measures(std::time::Instant::now());
    assert!(!Depot::of(&states).is_needed());
}

#[test]
fn a_message_comes_back_as_it_was() {
    let mut request = testing::request(&[("Content-Type", "text/plain"), ("X-A", "1")], b"body");
    request.method = Method::Other("PURGE".into());
    request.query = Some("a=1&token=hush".to_owned());
    request.parameters = vec![("id".into(), "7%2F".to_owned())];
    request.headers.append("X-Bytes", [0xe4, b' ', 0xff]);
    request.headers.append("x-a", "2");
    request.headers.append("Authorization", "Bearer hush");
    request.is_secure = true;
    let bytes = Bytes::from(envelope::encode(&request));
    let back = envelope::decode(&bytes).unwrap();
    assert_eq!((back.method.as_str(), &back.path), ("PURGE", &request.path));
    assert_eq!(
        (back.query, back.parameters),
        (request.query.clone(), request.parameters.clone())
    );
    assert_eq!(
        testing::lines(&back.headers),
        testing::lines(&request.headers)
    );
    assert_eq!(back.headers.get("X-Bytes"), Some(&[0xe4, b' ', 0xff][..]));
    assert_eq!((back.body.as_bytes(), back.is_secure), (&b"body"[..], true));
    assert_eq!(back.peer, request.peer);
    let shown = describe(&bytes).unwrap().to_string();
    assert!(
        shown.contains("\"text\":\"body\"") && !shown.contains("hush"),
        "{shown}"
    );
}

#[test]
fn what_is_no_message_is_told() {
    let bytes = Bytes::from(envelope::encode(&testing::request(&[], b"body")));
    for size in 0..bytes.len() - 4 {
        let damaged = envelope::decode(&bytes.slice(..size));
        assert_eq!(damaged.err(), Some("it is not what was stored"), "{size}");
    }
    let mut other = bytes.to_vec();
    other[0] = 9;
    let error = envelope::decode(&Bytes::from(other)).err();
    assert_eq!(error, Some("it was stored by another version of intertie"));
}
