//! What attackers from outside have found: disks filled by publishers, clocks that are wrong,
//! damage that holds up what is whole.

use std::time::Duration;

use bytes::Bytes;

use super::crash::{ROOM, options};
use super::sim::SimDisk;
use super::waiting::{soon, wait};
use crate::error::Refusal;
use crate::outbox::{Options, Order, Outbox, Settle};

fn open(disk: &SimDisk) -> Outbox {
    Outbox::open(disk.boxed(), options()).unwrap()
}

/// With files so large that none of them goes before all of it is delivered.
fn open_large(disk: &SimDisk) -> Outbox {
    let options = Options {
        segment_max: 1 << 20,
        ..options()
    };
    Outbox::open(disk.boxed(), options).unwrap()
}

fn put(outbox: &Outbox, text: &str) -> Result<u64, Refusal> {
    let body = Bytes::copy_from_slice(text.as_bytes());
    wait(outbox.append("q", Bytes::new(), body, ROOM))
}

/// Fills the disk, with small messages at last.
fn fill(outbox: &Outbox) -> u64 {
    let mut stored = 0;
    for size in [400, 10] {
        let text = "x".repeat(size);
        while put(outbox, &text).is_ok() {
            stored += 1;
        }
    }
    stored
}

#[test]
fn a_disk_that_publishers_fill_is_drained() {
    for restarts in [false, true] {
        let disk = SimDisk::new(3);
        let mut outbox = open_large(&disk);
        disk.world().space = Some(20_000);
        let stored = fill(&outbox);
        if restarts {
            outbox.close();
            outbox = open_large(&disk);
        }
        for at in 0..stored {
            // Whoever publishes goes on.
            let _ = put(&outbox, "new");
            let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
            assert_eq!(
                wait(taken[0].settle(Settle::Done)),
                Ok(()),
                "{at} of {stored}"
            );
        }
    }
}

/// Retries are notes too, and there may be any number of them before the first success.
#[test]
fn a_full_disk_is_drained_after_any_number_of_retries() {
    let disk = SimDisk::new(3);
    let outbox = open_large(&disk);
    disk.world().space = Some(15_000);
    let stored = fill(&outbox);
    for at in 0..1000 {
        let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
        let settled = wait(taken[0].settle(Settle::Back(Duration::ZERO)));
        assert_eq!(settled, Ok(()), "{at}");
    }
    for at in 0..stored {
        let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
        assert_eq!(
            wait(taken[0].settle(Settle::Done)),
            Ok(()),
            "{at} of {stored}"
        );
    }
}

/// A message that nobody gives up keeps its file, and all behind it.
#[test]
fn a_dead_message_does_not_keep_a_full_disk_full() {
    let disk = SimDisk::new(3);
    let outbox = open(&disk);
    put(&outbox, "dead").unwrap();
    let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
    wait(taken[0].settle(Settle::Bury("no".to_owned()))).unwrap();
    disk.world().space = Some(14_000);
    let stored = fill(&outbox);
    for _ in 0..stored {
        let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
        wait(taken[0].settle(Settle::Done)).unwrap();
    }
    super::waiting::until("there is room again", || put(&outbox, "new").is_ok());
}

/// All of it stands in the file that is written to. What is reserved is what was at the start, and
/// notes of removals take of it for good.
#[test]
fn a_drained_disk_has_room_again_though_all_was_in_one_file() {
    let options = || Options {
        segment_max: 1 << 20,
        tidy_every: Duration::from_millis(200),
    };
    for space in 15_000..15_004 {
        let disk = SimDisk::new(3);
        let outbox = Outbox::open(disk.boxed(), options()).unwrap();
        assert!(soon(5, outbox.take("q", Order::None, 1)).is_none());
        disk.world().space = Some(space);
        let stored = fill(&outbox);
        for _ in 0..stored {
            let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
            wait(taken[0].settle(Settle::Done)).unwrap();
        }
        let text = "x".repeat(400);
        super::waiting::until("there is room again", || put(&outbox, &text).is_ok());
        outbox.close();
        disk.crash();
        let outbox = Outbox::open(disk.boxed(), options()).unwrap();
        assert_eq!(outbox.stats("q").waiting, 1, "{space}");
    }
}

/// Topics on the same disk would take what a store has given up for its removals.
#[test]
fn a_log_takes_nothing_new_while_another_one_uses_its_reserve() {
    let disk = SimDisk::new(3);
    let outbox = open(&disk);
    put(&outbox, "there").unwrap();
    disk.world().low_space.begin();
    assert!(matches!(put(&outbox, "new"), Err(Refusal::NoSpace(_))));
    let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
    wait(taken[0].settle(Settle::Done)).unwrap();
    disk.world().low_space.end();
    put(&outbox, "new").unwrap();
}

#[test]
fn what_is_new_is_due_at_once_whatever_the_clock_says() {
    let disk = SimDisk::new(3);
    let outbox = open(&disk);
    put(&outbox, "new").unwrap();
    assert_eq!(wait(outbox.list("q", false)).unwrap()[0].due, 0);
}

/// The clock of a machine without a battery says 1970 until it has asked others.
#[test]
fn a_clock_that_is_behind_at_the_start_holds_nothing_up_longer_than_it_was_to_wait() {
    let due = crate::record::Due {
        at: 1_700_000_000_000,
        wait: 50,
    };
    let wait = crate::index::wait_until(due, 0);
    assert_eq!(wait, Duration::from_millis(50));
    let wait = crate::index::wait_until(due, 1_700_000_000_000 - 20);
    assert_eq!(wait, Duration::from_millis(20));
    assert_eq!(crate::index::wait_until(due, u64::MAX), Duration::ZERO);
}

#[test]
fn a_damaged_body_does_not_end_tidying_and_stays_damaged() {
    let disk = SimDisk::new(5);
    let outbox = open(&disk);
    let damaged = put(&outbox, &"y".repeat(600)).unwrap();
    let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
    wait(taken[0].settle(Settle::Bury("no".to_owned()))).unwrap();
    for (_, durable, seen) in disk.world().bytes() {
        let at = seen.iter().rposition(|byte| *byte == b'y').unwrap();
        durable[at] ^= 1;
        seen[at] ^= 1;
    }
    for _ in 0..200 {
        put(&outbox, &"z".repeat(600)).unwrap();
        let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
        wait(taken[0].settle(Settle::Done)).unwrap();
    }
    super::waiting::until("files go", || disk.all().len() < 20);
    for _ in 0..2 {
        let read = wait(outbox.read("q", damaged));
        assert!(matches!(read, Err(Refusal::Unreadable(_))), "{read:?}");
    }
    outbox.close();
    let outbox = open(&disk);
    let read = wait(outbox.read("q", damaged));
    assert!(matches!(read, Err(Refusal::Unreadable(_))), "{read:?}");
}

#[test]
fn what_is_not_noted_is_not_counted_as_delivered() {
    let disk = SimDisk::new(5);
    let outbox = open(&disk);
    put(&outbox, "first").unwrap();
    let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
    disk.world().sync_fails = Some(0);
    assert!(wait(taken[0].settle(Settle::Done)).is_err());
    assert_eq!(outbox.stats("q").delivered, 0);
}
