//! Checks that really fail.
#![cfg(test)]

use super::super::unit;
use super::*;

const AT: u64 = 1_763_740_000_000_000;

fn event(id: &str, name: &str, data: &[u8]) -> Vec<u8> {
    let head = format!("id: {id}\nevent: {name}\ndata: ");
    [head.as_bytes(), data, b"\n\n"].concat()
}

fn stamped_event(number: u64) -> Vec<u8> {
    let mut data = Vec::new();
    stamp::write(number, AT + number, 100, &mut data);
    event(&format!("e-{number}"), "event", &data)
}

fn check(topic: &mut Topic, raw: &[u8], is_first: bool) -> Verdict {
    topic.check(&unit::event(raw).unwrap(), raw, is_first)
}

fn is_corrupt(verdict: &Verdict, why: &str) -> bool {
    matches!(verdict, Verdict::Corrupt(text) if text.contains(why))
}

#[test]
fn stamped_events_are_good_by_their_hashes() {
    let mut topic = Topic::stamped(true);
    for number in 1..=3 {
        let wanted = Verdict::Good {
            number,
            at: AT + number,
        };
        assert_eq!(
            check(&mut topic, &stamped_event(number), number == 1),
            wanted
        );
        assert_eq!(topic.known(number).unwrap().raw, stamped_event(number));
    }
    assert!(topic.known(4).is_none());
    let mut other = stamped_event(4);
    other[100] ^= 1;
    assert!(is_corrupt(&check(&mut topic, &other, false), "hash"));
    assert_eq!(topic.newest, 3);
    assert_eq!(check(&mut topic, b": ping\n\n", false), Verdict::Nothing);
    assert_eq!(
        check(&mut topic, b"event: gap\ndata: {}\n\n", false),
        Verdict::Gap
    );
    let other = b"event: subscribed\ndata: {\"n\":1}\n\n";
    assert_eq!(check(&mut topic, other, true), Verdict::Nothing);
    let error = check(&mut topic, b"event: error\ndata: {}\n\n", false);
    assert!(is_corrupt(&error, "an error"));
    assert_eq!(
        check(&mut topic, b"data: {\"connect\":{}}\n\n", true),
        Verdict::Nothing
    );
}

#[test]
fn an_event_that_others_have_otherwise_is_corrupt() {
    let mut topic = Topic::stamped(false);
    check(&mut topic, &stamped_event(1), true);
    let mut data = Vec::new();
    stamp::write(1, AT + 9, 100, &mut data);
    let other = event("e-1", "event", &data);
    assert!(is_corrupt(&check(&mut topic, &other, true), "differs"));
}

#[test]
fn ids_must_follow_each_other() {
    let mut topic = Topic::stamped(true);
    check(&mut topic, &stamped_event(1), true);
    let mut data = Vec::new();
    stamp::write(2, AT, 100, &mut data);
    for id in ["e-3", "f-2", "2", "e-", "e-2x", ""] {
        let verdict = check(&mut topic, &event(id, "event", &data), false);
        assert!(is_corrupt(&verdict, "id"), "{id}: {verdict:?}");
    }
    // A number that is left out is a gap of the id, too.
    let mut data = Vec::new();
    stamp::write(4, AT, 100, &mut data);
    let verdict = check(&mut topic, &event("e-4", "event", &data), false);
    assert_eq!(verdict, Verdict::Good { number: 4, at: AT });
}

/// A patch as an engine would send it.
fn patch_to(shape: Shape, tick: u64, at: u64) -> Vec<u8> {
    let object = |text: &[u8]| serde_json::from_slice::<serde_json::Map<_, _>>(text).unwrap();
    let before: serde_json::Map<String, Value> = object(&shape.text(3, tick - 1, at - 1));
    let after = object(&shape.text(3, tick, at));
    let changed = after
        .iter()
        .filter(|(name, value)| before[*name] != **value);
    let operations = changed.map(|(name, value)| {
        serde_json::json!({"op": "replace", "path": format!("/{name}"), "value": value})
    });
    let operations: Vec<Value> = operations.collect();
    serde_json::to_vec(&operations).unwrap()
}

#[test]
fn patches_must_lead_to_the_document_of_their_tick() {
    let shape = Shape::new(5000, 20);
    let mut topic = Topic::of_document(shape, 3, true);
    let first = event("e-8", "snapshot", &shape.text(3, 5, AT));
    assert_eq!(
        check(&mut topic, &first, true),
        Verdict::Whole { number: 5, at: AT }
    );
    for tick in 6..=9 {
        let raw = event(
            &format!("e-{}", tick + 3),
            "patch",
            &patch_to(shape, tick, AT + tick),
        );
        let wanted = Verdict::Good {
            number: tick,
            at: AT + tick,
        };
        assert_eq!(check(&mut topic, &raw, false), wanted);
    }
    // Somebody who is behind.
    let raw = event("e-11", "patch", &patch_to(shape, 8, AT + 8));
    assert_eq!(
        check(&mut topic, &raw, false),
        Verdict::Good {
            number: 8,
            at: AT + 8
        }
    );
    // A patch that leaves one change out.
    let mut operations: Vec<Value> = serde_json::from_slice(&patch_to(shape, 10, AT)).unwrap();
    operations.pop();
    let raw = event("e-13", "patch", &serde_json::to_vec(&operations).unwrap());
    assert!(is_corrupt(
        &check(&mut topic, &raw, false),
        "not what the source had"
    ));
}

#[test]
fn patches_across_a_gap_are_seen() {
    let shape = Shape::new(5000, 20);
    let mut topic = Topic::of_document(shape, 3, false);
    check(
        &mut topic,
        &event("", "snapshot", &shape.text(3, 5, AT)),
        true,
    );
    let raw = event("", "patch", &patch_to(shape, 7, AT + 7));
    assert!(is_corrupt(
        &check(&mut topic, &raw, false),
        "not what the source had"
    ));
}

#[test]
fn documents_must_be_those_of_the_source() {
    let shape = Shape::new(5000, 20);
    let mut topic = Topic::of_document(shape, 3, false);
    let good = shape.text(3, 5, AT);
    let mut other = good.clone();
    other[2000] ^= 1;
    for (data, why) in [
        (other, "is another"),
        (shape.text(4, 5, AT), "in topic 3"),
        (b"{}".to_vec(), "no document"),
        (b"x".to_vec(), "neither"),
        (b"[]".to_vec(), "without a tick"),
    ] {
        let verdict = check(&mut topic, &event("", "snapshot", &data), true);
        assert!(is_corrupt(&verdict, why), "{why}: {verdict:?}");
    }
    let wanted = Verdict::Whole { number: 5, at: AT };
    assert_eq!(
        check(&mut topic, &event("", "snapshot", &good), true),
        wanted
    );
    // A second subscriber's beginning leaves the first one's patches alone.
    let later = event("", "snapshot", &shape.text(3, 6, AT + 6));
    assert_eq!(
        check(&mut topic, &later, true),
        Verdict::Whole {
            number: 6,
            at: AT + 6
        }
    );
    let raw = event("", "patch", &patch_to(shape, 6, AT + 6));
    assert_eq!(
        check(&mut topic, &raw, false),
        Verdict::Good {
            number: 6,
            at: AT + 6
        }
    );
}
