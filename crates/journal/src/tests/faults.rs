//! A disk that is full, an `fsync` that fails, files that are damaged.

use std::time::Duration;

use bytes::Bytes;

use super::crash::{ROOM, options};
use super::sim::SimDisk;
use super::waiting::{soon, wait};
use crate::error::{OpenError, Refusal};
use crate::outbox::{Order, Outbox, Room, Settle};

fn open(disk: &SimDisk) -> Outbox {
    Outbox::open(disk.boxed(), options()).unwrap()
}

fn put(outbox: &Outbox, text: &str) -> Result<u64, Refusal> {
    let body = Bytes::copy_from_slice(text.as_bytes());
    wait(outbox.append("q", Bytes::new(), body, ROOM))
}

fn texts(outbox: &Outbox) -> Vec<String> {
    let listed = wait(outbox.list("q", false)).unwrap();
    let read = |id| wait(outbox.read("q", id)).unwrap().1;
    let texts = listed
        .iter()
        .map(|it| String::from_utf8(read(it.id).to_vec()).unwrap());
    texts.collect()
}

#[test]
fn a_failed_fsync_ends_all_writing_until_a_restart() {
    for crashes in [false, true] {
        let disk = SimDisk::new(7);
        let outbox = open(&disk);
        put(&outbox, "first").unwrap();
        let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
        disk.world().sync_fails = Some(0);
        assert!(matches!(put(&outbox, "second"), Err(Refusal::Poisoned(_))));
        assert!(matches!(put(&outbox, "third"), Err(Refusal::Poisoned(_))));
        let settled = wait(taken[0].settle(Settle::Done));
        assert!(matches!(settled, Err(Refusal::Poisoned(_))));
        let taken_then = wait(outbox.take("q", Order::None, 1));
        assert!(matches!(taken_then, Err(Refusal::Poisoned(_))));
        drop(taken);
        outbox.close();
        if crashes {
            disk.crash();
        }
        let outbox = open(&disk);
        put(&outbox, "fourth").unwrap();
        outbox.close();
        // What the failed fsync has left must not be needed any more.
        disk.crash();
        let found = texts(&open(&disk));
        let without: Vec<&str> = found
            .iter()
            .map(String::as_str)
            .filter(|it| *it != "second")
            .collect();
        assert_eq!(without, ["first", "fourth"]);
    }
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = SimDisk::new(3);
    let outbox = open(&disk);
    disk.world().space = Some(12_000);
    let text = "x".repeat(500);
    let mut stored = 0;
    while put(&outbox, &text).is_ok() {
        stored += 1;
    }
    assert!(stored > 10, "{stored}");
    assert!(matches!(put(&outbox, &text), Err(Refusal::NoSpace(_))));
    assert_eq!(texts(&outbox).len(), stored);
    // What is there can be delivered, which gives space back.
    for at in 0..stored {
        let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
        assert_eq!(wait(taken[0].settle(Settle::Done)), Ok(()), "{at}");
    }
    put(&outbox, &text).unwrap();
    disk.world().space = None;
    put(&outbox, &text).unwrap();
    outbox.close();
    disk.crash();
    assert_eq!(texts(&open(&disk)), [text.clone(), text]);
}

#[test]
fn a_queue_has_as_much_as_it_may() {
    let outbox = open(&SimDisk::new(1));
    let append = |room| wait(outbox.append("q", Bytes::new(), Bytes::from_static(b"0123"), room));
    let room = |count, bytes| Room { count, bytes };
    append(room(1, 1000)).unwrap();
    assert_eq!(append(room(1, 1000)), Err(Refusal::Full));
    assert_eq!(append(room(2, 70)), Err(Refusal::Full));
    append(room(2, 1000)).unwrap();
}

#[test]
fn damage_is_told_and_never_passed_over() {
    let disk = SimDisk::new(5);
    let outbox = open(&disk);
    for number in 0..12 {
        put(&outbox, &format!("{number}{}", "y".repeat(600))).unwrap();
    }
    outbox.close();
    let files: Vec<(u64, usize)> = disk
        .world()
        .bytes()
        .map(|(number, bytes, _)| (number, bytes.len()))
        .collect();
    assert!(files.len() > 2);
    let flip = |file: u64, at: usize| {
        let mut world = disk.world();
        for (number, durable, seen) in world.bytes().filter(|it| it.0 == file) {
            assert_eq!(number, file);
            durable[at] ^= 0x10;
            seen[at] ^= 0x10;
        }
    };
    for &(file, length) in &files {
        for at in (0..length).step_by(13) {
            flip(file, at);
            let opened = Outbox::open(disk.boxed(), options());
            match opened {
                Err(OpenError::Corrupt(_, number, ..)) => assert_eq!(number, file),
                Err(other) => panic!("{other}"),
                Ok(_) => panic!("byte {at} of {file}"),
            }
            flip(file, at);
        }
    }
}

#[test]
fn a_missing_file_is_told() {
    let disk = SimDisk::new(5);
    let outbox = open(&disk);
    for _ in 0..20 {
        put(&outbox, &"y".repeat(600)).unwrap();
    }
    outbox.close();
    let second = disk.world().bytes().nth(1).unwrap().0;
    crate::disk::Disk::remove(&mut disk.clone(), second).unwrap();
    let opened = Outbox::open(disk.boxed(), options());
    assert!(matches!(opened.err(), Some(OpenError::Missing(..))));
}

#[test]
fn messages_that_are_damaged_later_are_not_handed_out_as_if_they_were_not() {
    let disk = SimDisk::new(5);
    let outbox = open(&disk);
    put(&outbox, &"y".repeat(600)).unwrap();
    for (_, _, seen) in disk.world().bytes() {
        let end = seen.len() - 5;
        seen[end] ^= 1;
    }
    let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
    assert!(matches!(taken[0].body, Err(Refusal::Unreadable(_))));
}

#[test]
fn a_wait_goes_on_after_a_restart() {
    let disk = SimDisk::new(5);
    let outbox = open(&disk);
    put(&outbox, "later").unwrap();
    let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
    let hour = Duration::from_secs(3600);
    wait(taken[0].settle(Settle::Back(hour))).unwrap();
    drop(taken);
    outbox.close();
    let outbox = open(&disk);
    assert!(soon(50, outbox.take("q", Order::None, 1)).is_none());
    let listed = wait(outbox.list("q", false)).unwrap();
    assert_eq!(listed[0].attempts, 1);
    assert!(listed[0].due >= listed[0].stored + 3_590_000);
}

#[test]
fn the_dead_are_revived_or_dropped() {
    let disk = SimDisk::new(5);
    let outbox = open(&disk);
    for text in ["a", "b", "c"] {
        put(&outbox, text).unwrap();
    }
    for delivery in wait(outbox.take("q", Order::None, 3)).unwrap() {
        wait(delivery.settle(Settle::Bury("because".to_owned()))).unwrap();
    }
    assert!(soon(50, outbox.take("q", Order::None, 3)).is_none());
    let dead = wait(outbox.list("q", true)).unwrap();
    assert_eq!(dead[1].dead.as_deref(), Some("because"));
    assert_eq!(wait(outbox.revive("q", vec![dead[0].id, 99])), Ok(1));
    assert_eq!(wait(outbox.drop_dead("q", vec![dead[1].id])), Ok(1));
    outbox.close();
    disk.crash();
    let outbox = open(&disk);
    assert_eq!(wait(outbox.list("q", true)).unwrap().len(), 1);
    let taken = wait(outbox.take("q", Order::None, 3)).unwrap();
    assert_eq!((taken.len(), taken[0].attempts), (1, 0));
}
