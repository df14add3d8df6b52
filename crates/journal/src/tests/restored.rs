//! Folders that are put back from an older copy: no id is given a second time, and whoever knows
//! more than the copy can tell.

use bytes::Bytes;

use super::crash::ROOM;
use super::sim::SimDisk;
use super::streams::{ALL, append, declare};
use super::waiting::wait;
use crate::outbox::{Options, Order, Outbox};
use crate::{StreamOptions, Streams};

#[test]
fn messages_get_no_id_a_second_time() {
    let disk = SimDisk::new(5);
    let open = || Outbox::open(disk.boxed(), Options::default()).unwrap();
    let put = |outbox: &Outbox| {
        let body = Bytes::from_static(b"body");
        let id = wait(outbox.append("q", Bytes::new(), body, ROOM)).unwrap();
        outbox.name(id)
    };
    let outbox = open();
    let kept = put(&outbox);
    outbox.close();
    let copy = disk.all();
    let mut names = vec![kept.clone()];
    for _ in 0..3 {
        let outbox = open();
        names.extend((0..3).map(|_| put(&outbox)));
        // One that was there before is named as it was.
        let taken = wait(outbox.take("q", Order::None, 1)).unwrap();
        assert_eq!(taken[0].name, kept);
        drop(taken);
        outbox.close();
        disk.replace(copy.clone());
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}

fn open(disk: &SimDisk) -> Streams {
    let options = StreamOptions {
        segment_max: 2000,
        ..StreamOptions::default()
    };
    Streams::open(disk.boxed(), options).unwrap()
}

/// Appends some entries to a topic; the epoch that they have.
fn publish(streams: &Streams, count: u64) -> u64 {
    let next = streams.find("a").unwrap().next;
    for number in next..next + count {
        append(streams, "a", number, &"x".repeat(100)).unwrap();
    }
    streams.find("a").unwrap().epoch
}

#[test]
fn entries_get_no_id_a_second_time_and_others_keep_theirs() {
    let disk = SimDisk::new(5);
    let streams = open(&disk);
    declare(&streams, "a", ALL);
    let first = publish(&streams, 10);
    wait(streams.close());
    let copy = disk.all();
    // Some runs, each of which publishes: what was published before keeps its ids.
    let mut runs = Vec::new();
    for at in 0..30 {
        let streams = open(&disk);
        let epoch = publish(&streams, 5);
        runs.push(epoch);
        let epochs = streams.epochs("a").unwrap();
        for (number, run) in runs.iter().enumerate() {
            let last = 15 + 5 * number as u64;
            assert_eq!((epochs.of(last - 4), epochs.of(last)), (*run, *run));
            let is_last = number == at;
            assert_eq!(
                epochs.end_of(*run),
                Some(if is_last { u64::MAX } else { last })
            );
        }
        assert_eq!((epochs.of(0), epochs.of(10)), (first, first));
        assert_eq!(epochs.end_of(first), Some(10));
        wait(streams.close());
    }
    assert!(disk.all().len() > 5, "files begin and have indexes");
    // The copy goes on otherwise: what the original has published is not known.
    disk.replace(copy);
    let streams = open(&disk);
    let other = publish(&streams, 200);
    let epochs = streams.epochs("a").unwrap();
    assert!(!runs.contains(&other));
    assert!(runs.iter().all(|run| epochs.end_of(*run).is_none()));
    assert_eq!((epochs.end_of(first), epochs.of(11)), (Some(10), other));
}

#[test]
fn a_run_that_publishes_nothing_leaves_no_epoch() {
    let disk = SimDisk::new(5);
    let streams = open(&disk);
    declare(&streams, "a", ALL);
    publish(&streams, 3);
    wait(streams.close());
    for _ in 0..20 {
        wait(open(&disk).close());
    }
    let streams = open(&disk);
    assert_eq!(streams.epochs("a").unwrap().all().count(), 2);
}

#[test]
fn few_epochs_of_entries_that_are_gone_stay_known() {
    let disk = SimDisk::new(5);
    let mut runs = Vec::new();
    for _ in 0..50 {
        let streams = open(&disk);
        declare(&streams, "a", crate::Keep { events: 4, ..ALL });
        runs.push(publish(&streams, 2));
        let epochs = streams.epochs("a").unwrap();
        // Who was away while all of its epoch went is still known.
        for (at, run) in runs.iter().enumerate().rev().take(12) {
            let end = if at + 1 == runs.len() {
                u64::MAX
            } else {
                2 * (at as u64 + 1)
            };
            assert_eq!(epochs.end_of(*run), Some(end));
        }
        assert!(epochs.all().count() <= 22);
        wait(streams.close());
    }
}
