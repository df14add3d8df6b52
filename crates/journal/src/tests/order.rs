//! Who gets which message when.

use std::time::Duration;

use bytes::Bytes;

use super::crash::{ROOM, options};
use super::sim::SimDisk;
use super::waiting::{soon, wait};
use crate::outbox::{Delivery, Order, Outbox, Settle};

fn filled(messages: &[(&'static str, &'static str)]) -> Outbox {
    let outbox = Outbox::open(SimDisk::new(1).boxed(), options()).unwrap();
    for (key, body) in messages {
        let (key, body) = (
            Bytes::from_static(key.as_bytes()),
            Bytes::from_static(body.as_bytes()),
        );
        wait(outbox.append("q", key, body, ROOM)).unwrap();
    }
    outbox
}

fn take(outbox: &Outbox, order: Order) -> Vec<Delivery> {
    let taken = soon(50, outbox.take("q", order, 10));
    taken.map(|it| it.unwrap()).unwrap_or_default()
}

fn texts(taken: &[Delivery]) -> Vec<&str> {
    taken
        .iter()
        .map(|it| std::str::from_utf8(it.body.as_ref().unwrap()).unwrap())
        .collect()
}

#[test]
fn without_order_all_are_taken_at_once_and_once() {
    let outbox = filled(&[("", "1"), ("", "2"), ("", "3")]);
    let taken = take(&outbox, Order::None);
    assert_eq!(texts(&taken), ["1", "2", "3"]);
    assert!(take(&outbox, Order::None).is_empty());
    drop(taken);
    assert_eq!(take(&outbox, Order::None).len(), 3);
}

#[test]
fn by_key_one_of_each_key_is_taken() {
    let outbox = filled(&[
        ("a", "a1"),
        ("a", "a2"),
        ("b", "b1"),
        ("", "x"),
        ("", "y"),
        ("a", "a3"),
    ]);
    let mut taken = take(&outbox, Order::ByKey);
    assert_eq!(texts(&taken), ["a1", "b1", "x", "y"]);
    let first = taken.remove(0);
    wait(first.settle(Settle::Back(Duration::from_millis(150)))).unwrap();
    // The one that is tried again holds the others of its key up.
    assert!(take(&outbox, Order::ByKey).is_empty());
    let again = wait(outbox.take("q", Order::ByKey, 10)).unwrap();
    assert_eq!((texts(&again), again[0].attempts), (vec!["a1"], 1));
    wait(again[0].settle(Settle::Done)).unwrap();
    let next = take(&outbox, Order::ByKey);
    assert_eq!(texts(&next), ["a2"]);
    wait(next[0].settle(Settle::Bury("no".to_owned()))).unwrap();
    assert_eq!(texts(&take(&outbox, Order::ByKey)), ["a3"]);
}

#[test]
fn in_order_one_is_taken_at_a_time() {
    let outbox = filled(&[("a", "1"), ("b", "2"), ("", "3")]);
    for text in ["1", "2", "3"] {
        let taken = take(&outbox, Order::All);
        assert_eq!(texts(&taken), [text]);
        assert!(take(&outbox, Order::All).is_empty());
        wait(taken[0].settle(Settle::Done)).unwrap();
    }
}

#[test]
fn another_order_holds_from_the_next_message_on() {
    let outbox = filled(&[("a", "1"), ("a", "2"), ("b", "3")]);
    let taken = take(&outbox, Order::None);
    assert_eq!(taken.len(), 3);
    drop(taken);
    let taken = take(&outbox, Order::ByKey);
    assert_eq!(texts(&taken), ["1", "3"]);
    // Somebody has some of them: no other one is taken.
    assert!(take(&outbox, Order::All).is_empty());
    drop(taken);
    assert_eq!(texts(&take(&outbox, Order::All)), ["1"]);
}

#[test]
fn somebody_who_waits_gets_what_comes() {
    let outbox = filled(&[]);
    let other = outbox.clone();
    let thread = std::thread::spawn(move || {
        let taken = wait(other.take("q", Order::None, 10)).unwrap();
        texts(&taken).join(",")
    });
    std::thread::sleep(Duration::from_millis(30));
    wait(outbox.append("q", Bytes::new(), Bytes::from_static(b"late"), ROOM)).unwrap();
    assert_eq!(thread.join().unwrap(), "late");
}

#[test]
fn a_lease_that_is_over_settles_nothing() {
    let outbox = filled(&[("", "1")]);
    let taken = take(&outbox, Order::None);
    wait(taken[0].settle(Settle::Back(Duration::ZERO))).unwrap();
    let again = take(&outbox, Order::None);
    assert_eq!(
        wait(taken[0].settle(Settle::Done)),
        Err(crate::Refusal::Gone)
    );
    wait(again[0].settle(Settle::Done)).unwrap();
    assert_eq!(outbox.stats("q").waiting, 0);
}
