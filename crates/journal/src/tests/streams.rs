//! Streams: what is appended is read, kept as long as it should be, and no longer.

mod crash;
mod faults;
mod speed;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::sim::SimDisk;
use super::waiting::{wait, wait_all};
use crate::streams::{Keep, NewEntry, StreamInfo, StreamOptions, Streams};
use crate::{ReadError, Refusal};

pub const ALL: Keep = Keep {
    events: u64::MAX,
    bytes: u64::MAX,
    time: None,
    from: u64::MAX,
};

pub fn options() -> StreamOptions {
    StreamOptions {
        segment_max: 3000,
        tidy_every: Duration::ZERO,
    }
}

pub fn open(disk: &SimDisk) -> Streams {
    Streams::open(disk.boxed(), options()).unwrap()
}

pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_millis() as u64
}

pub fn entry(stream: &str, sequence: u64, body: &str) -> NewEntry {
    NewEntry {
        stream: stream.into(),
        sequence,
        at_ms: now(),
        kind: 0,
        key: Bytes::new(),
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

pub fn append(streams: &Streams, stream: &str, sequence: u64, body: &str) -> Result<(), Refusal> {
    wait(streams.append(vec![entry(stream, sequence, body)]))
}

pub fn declare(streams: &Streams, name: &str, keep: Keep) -> StreamInfo {
    wait(streams.declare(name, keep)).unwrap()
}

/// All entries of a stream that are kept, read a few at a time.
pub fn texts(streams: &Streams, name: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut from = streams.find(name).unwrap().first;
    loop {
        let read = streams.read(name, from, 300).unwrap();
        if read.is_empty() {
            assert_eq!(from, streams.find(name).unwrap().next);
            return texts;
        }
        for entry in read {
            assert_eq!(entry.sequence, from);
            from += 1;
            texts.push(String::from_utf8(entry.body.to_vec()).unwrap());
        }
    }
}

#[test]
fn what_is_appended_is_read_also_after_a_restart() {
    let disk = SimDisk::new(1);
    let streams = open(&disk);
    assert_eq!(streams.find("a"), None);
    let made = declare(&streams, "a", ALL);
    assert_eq!(
        (made.first, made.next, made.events, made.bytes),
        (1, 1, 0, 0)
    );
    assert_ne!(declare(&streams, "b", ALL).epoch, made.epoch);
    for number in 1..=100 {
        append(&streams, "a", number, &format!("a{number}")).unwrap();
        append(&streams, "b", number, &format!("b{number}")).unwrap();
    }
    let check = |streams: &Streams| {
        let expected: Vec<String> = (1..=100).map(|it| format!("a{it}")).collect();
        assert_eq!(texts(streams, "a"), expected);
        let info = streams.find("a").unwrap();
        let epoch = streams.epochs("a").unwrap().of(100);
        assert_eq!((info.first, info.next, epoch), (1, 101, made.epoch));
        assert_eq!(info.bytes, 100 * 32 + expected.concat().len() as u64);
        assert_eq!(
            streams.read("a", 102, 9),
            Err(ReadError::Ahead { next: 101 })
        );
        assert_eq!(streams.read("a", 0, 9), Err(ReadError::Gone { first: 1 }));
        assert_eq!(streams.read("c", 1, 9), Err(ReadError::Unknown));
    };
    check(&streams);
    wait(streams.close());
    assert_eq!(append(&streams, "a", 101, "late"), Err(Refusal::Closed));
    let streams = open(&disk);
    check(&streams);
    // What this run appends is of another epoch.
    assert_ne!(declare(&streams, "a", ALL).epoch, made.epoch);
    append(&streams, "a", 101, "on").unwrap();
    assert!(disk.world().bytes().count() > 3, "there are several files");
}

#[test]
fn all_entries_of_a_call_are_there_or_none() {
    let streams = open(&SimDisk::new(1));
    declare(&streams, "a", ALL);
    declare(&streams, "b", ALL);
    let append = |entries: &[(&str, u64)]| {
        let entries = entries
            .iter()
            .map(|(name, number)| entry(name, *number, "x"));
        wait(streams.append(entries.collect()))
    };
    append(&[("a", 1), ("b", 1), ("a", 2)]).unwrap();
    let out_of_order = |stream: &str, next| Refusal::OutOfOrder {
        stream: stream.to_owned(),
        next,
    };
    assert_eq!(append(&[("b", 2), ("a", 4)]), Err(out_of_order("a", 3)));
    assert_eq!(append(&[("a", 3), ("b", 1)]), Err(out_of_order("b", 2)));
    assert_eq!(
        append(&[("a", 3), ("c", 1)]),
        Err(Refusal::Unknown("c".to_owned()))
    );
    assert_eq!(
        (texts(&streams, "a").len(), texts(&streams, "b").len()),
        (2, 1)
    );
    // Those that wait together are in order too.
    let calls = (3..200).map(|number| streams.append(vec![entry("a", number, "y")]));
    let results = wait_all(calls.collect());
    assert!(results.iter().all(Result::is_ok));
    assert!(streams.stats().writes < 150, "{:?}", streams.stats());
    assert_eq!(append(&[]), Ok(()));
}

#[test]
fn what_is_too_large_is_refused() {
    let streams = open(&SimDisk::new(1));
    declare(&streams, "a", ALL);
    let mut large = entry("a", 1, "");
    large.key = Bytes::from(vec![0; 65_536]);
    let refused = wait(streams.append(vec![large]));
    assert!(matches!(refused, Err(Refusal::TooLarge(_))));
    let mut large = entry("a", 1, "");
    large.body = Bytes::from(vec![0; (64 << 20) + 1]);
    let refused = wait(streams.append(vec![large]));
    assert!(matches!(refused, Err(Refusal::TooLarge(_))));
    for name in ["", &"n".repeat(513)] {
        let refused = wait(streams.declare(name, ALL));
        assert!(matches!(refused, Err(Refusal::TooLarge(_))));
    }
    let mut large = entry("a", 1, "");
    large.key = Bytes::from(vec![7; 65_535]);
    large.body = Bytes::from(vec![8; 100_000]);
    wait(streams.append(vec![large.clone()])).unwrap();
    append(&streams, "a", 2, "small").unwrap();
    let read = streams.read("a", 1, 0).unwrap();
    assert_eq!(
        (read.len(), &read[0].key, &read[0].body),
        (1, &large.key, &large.body)
    );
}

#[test]
fn as_much_is_kept_as_was_said() {
    let disk = SimDisk::new(1);
    let streams = open(&disk);
    let keep = |events, bytes, time| Keep {
        events,
        bytes,
        time,
        from: u64::MAX,
    };
    declare(&streams, "count", keep(10, u64::MAX, None));
    declare(&streams, "bytes", keep(u64::MAX, 500, None));
    declare(&streams, "none", keep(0, 0, None));
    for number in 1..=200 {
        for name in ["count", "bytes", "none"] {
            append(&streams, name, number, "0123456789").unwrap();
        }
    }
    let check = |streams: &Streams| {
        let first = |name| streams.find(name).unwrap().first;
        assert_eq!(
            (first("count"), first("bytes"), first("none")),
            (191, 190, 200)
        );
        assert_eq!(streams.find("bytes").unwrap().bytes, 11 * 42);
        assert_eq!(
            streams.read("count", 190, 9),
            Err(ReadError::Gone { first: 191 })
        );
        assert_eq!(streams.read("count", 191, 9).unwrap()[0].sequence, 191);
    };
    check(&streams);
    assert!(disk.world().bytes().count() < 4, "files are given back");
    wait(streams.close());
    let streams = open(&disk);
    // What had gone stays away, also before it is said again how much is kept.
    check(&streams);
    declare(&streams, "count", keep(10, u64::MAX, None));
    declare(&streams, "bytes", keep(u64::MAX, 500, None));
    declare(&streams, "none", keep(0, 0, None));
    check(&streams);
    // Less is kept from now on.
    assert_eq!(
        declare(&streams, "count", keep(3, u64::MAX, None)).first,
        198
    );
}

#[test]
fn what_somebody_needs_stays_whatever_else_is_kept() {
    let disk = SimDisk::new(1);
    let streams = open(&disk);
    let time = Some(Duration::from_millis(1));
    let keep = |from| Keep {
        events: 3,
        bytes: 100,
        time,
        from,
    };
    declare(&streams, "a", keep(5));
    for number in 1..=20 {
        append(&streams, "a", number, "0123456789").unwrap();
    }
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(streams.find("a").unwrap().first, 5);
    assert_eq!(streams.read("a", 5, 9).unwrap()[0].sequence, 5);
    assert_eq!(declare(&streams, "a", keep(11)).first, 11);
    wait(streams.close());
    let streams = open(&disk);
    append(&streams, "a", 21, "x").unwrap();
    assert_eq!(
        streams.find("a").unwrap().first,
        11,
        "nothing goes before it is said how much"
    );
    assert_eq!(declare(&streams, "a", keep(12)).first, 12);
    assert_eq!(declare(&streams, "a", keep(u64::MAX)).first, 21);
}

#[test]
fn old_entries_go_when_nothing_is_appended() {
    let streams = open(&SimDisk::new(1));
    let time = Some(Duration::from_millis(300));
    declare(&streams, "a", Keep { time, ..ALL });
    for number in 1..=5 {
        append(&streams, "a", number, "x").unwrap();
    }
    let mut tries = 0;
    while streams.find("a").unwrap().first < 5 {
        tries += 1;
        assert!(tries < 1000, "{:?}", streams.find("a"));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(streams.find("a").unwrap().events, 1, "the last one stays");
}

#[test]
fn kinds_and_keys_are_found() {
    let disk = SimDisk::new(1);
    let streams = open(&disk);
    declare(&streams, "a", Keep { events: 50, ..ALL });
    for number in 1..=100 {
        let mut new = entry("a", number, "body");
        new.kind = u8::from(number % 20 == 0);
        new.at_ms = number;
        if number % 3 == 0 {
            new.key = Bytes::from(format!("key{number}"));
        }
        wait(streams.append(vec![new])).unwrap();
    }
    let check = |streams: &Streams| {
        let last = |at_most| streams.last_of_kind("a", 1, at_most).unwrap();
        let at_most = [u64::MAX, 100, 99, 80, 79, 60, 59, 1, 0];
        let expected = [
            Some(100),
            Some(100),
            Some(80),
            Some(80),
            Some(60),
            Some(60),
            None,
        ];
        let found: Vec<_> = at_most.into_iter().map(last).collect();
        assert_eq!(found[..7], expected);
        assert_eq!(found[7..], [None, None]);
        assert_eq!(streams.last_of_kind("a", 9, 100), Ok(None));
        assert_eq!(streams.last_of_kind("b", 1, 100), Err(ReadError::Unknown));
        let keys = |since| {
            let keys = streams.keys("a", since).unwrap();
            let numbers = keys.into_iter().map(|(key, number)| {
                assert_eq!(key, format!("key{number}"));
                number
            });
            numbers.collect::<Vec<_>>()
        };
        assert_eq!(
            keys(0),
            (51..=100).filter(|it| it % 3 == 0).collect::<Vec<_>>()
        );
        assert_eq!(keys(90), [90, 93, 96, 99]);
        assert!(keys(101).is_empty());
    };
    check(&streams);
    wait(streams.close());
    let streams = open(&disk);
    declare(&streams, "a", Keep { events: 50, ..ALL });
    check(&streams);
}

#[test]
fn a_stream_that_is_made_again_is_another_one() {
    let disk = SimDisk::new(1);
    let streams = open(&disk);
    let before = declare(&streams, "a", ALL);
    append(&streams, "a", 1, "old").unwrap();
    declare(&streams, "b", ALL);
    append(&streams, "b", 1, "stays").unwrap();
    wait(streams.remove("a")).unwrap();
    wait(streams.remove("never")).unwrap();
    assert_eq!(streams.find("a"), None);
    assert_eq!(streams.read("a", 1, 9), Err(ReadError::Unknown));
    let after = declare(&streams, "a", ALL);
    assert_ne!((before.epoch, 2), (after.epoch, after.next));
    append(&streams, "a", 1, "new").unwrap();
    wait(streams.close());
    let streams = open(&disk);
    assert_eq!(streams.epochs("a").unwrap().of(1), after.epoch);
    assert_eq!(
        (texts(&streams, "a"), texts(&streams, "b")),
        (vec!["new".into()], vec!["stays".into()])
    );
    let names: Vec<Arc<str>> = streams.all().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["b".into(), "a".into()]);
}

#[test]
fn files_are_given_back_while_a_quiet_stream_stays() {
    let disk = SimDisk::new(1);
    let streams = open(&disk);
    let quiet = declare(&streams, "quiet", ALL);
    declare(&streams, "empty", ALL);
    for number in 1..=20 {
        append(&streams, "quiet", number, &format!("q{number}")).unwrap();
    }
    declare(&streams, "busy", Keep { events: 5, ..ALL });
    for number in 1..=1000 {
        append(&streams, "busy", number, &"b".repeat(100)).unwrap();
    }
    wait(streams.close());
    let size: usize = disk.world().bytes().map(|(_, bytes, _)| bytes.len()).sum();
    assert!(size < 8 * 3000, "{size}");
    let first = disk.world().bytes().next().unwrap().0;
    assert!(first > 10, "{first}");
    disk.crash();
    let streams = open(&disk);
    let expected: Vec<String> = (1..=20).map(|it| format!("q{it}")).collect();
    assert_eq!(texts(&streams, "quiet"), expected);
    assert_eq!(streams.epochs("quiet").unwrap().of(20), quiet.epoch);
    assert_eq!(streams.find("empty").unwrap().next, 1);
    append(&streams, "quiet", 21, "goes on").unwrap();
}
