//! Files of streams that are damaged or missing, a disk that is full, an `fsync` that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use fastrand::Rng;

use super::super::sim::SimDisk;
use super::super::waiting::wait;
use super::{ALL, append, declare, entry, open, options, texts};
use crate::disk::Disk;
use crate::error::OpenError;
use crate::streams::{Keep, StreamOptions, Streams};
use crate::{ReadError, Refusal};

fn text(number: u64) -> String {
    format!("{number} {}", "y".repeat(number as usize * 37 % 300))
}

/// A disk with some files of streams that are closed, and how many entries the two streams have.
fn filled() -> (SimDisk, u64) {
    let disk = SimDisk::new(5);
    let streams = open(&disk);
    for name in ["a", "b"] {
        declare(&streams, name, ALL);
    }
    for number in 1..=60 {
        append(&streams, "a", number, &text(number)).unwrap();
        append(&streams, "b", number, &text(1000 + number)).unwrap();
    }
    wait(streams.close());
    (disk, 60)
}

fn files(disk: &SimDisk) -> Vec<(u64, usize)> {
    let mut world = disk.world();
    let files = world
        .bytes()
        .map(|(number, bytes, _)| (number, bytes.len()));
    files.collect()
}

/// Where the index of a file begins.
fn index_at(disk: &SimDisk, file: u64) -> usize {
    let mut world = disk.world();
    let (_, bytes, _) = world.bytes().find(|it| it.0 == file).unwrap();
    let end = bytes.len();
    assert_eq!(bytes[end - 8..], *b"ITINDEX1");
    u64::from_le_bytes(*bytes[end - 16..].first_chunk().unwrap()) as usize
}

/// Reads everything that is there. Gives how many entries could not be read, which are in `file`.
fn damaged(streams: &Streams, count: u64, file: u64) -> usize {
    let mut damaged = 0;
    for (name, more) in [("a", 0), ("b", 1000)] {
        for number in 1..=count {
            match streams.read(name, number, 1) {
                Ok(read) => assert_eq!(read[0].body, text(more + number)),
                Err(ReadError::Damaged(what)) => {
                    assert!(
                        what.starts_with(&format!("topics/{file:012}.log")),
                        "{what}"
                    );
                    damaged += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    damaged
}

#[test]
fn damage_is_told_and_never_served() {
    let (disk, count) = filled();
    let files = files(&disk);
    assert!(files.len() > 4);
    let (last, _) = *files.last().unwrap();
    let mut found = [0; 3];
    for &(file, size) in &files {
        let index = if file == last {
            size
        } else {
            index_at(&disk, file)
        };
        for at in (0..size).step_by(19) {
            let bit = (at % 8) as u8;
            disk.world().flip(file, at, bit);
            let case = format!("byte {at} of {file}");
            match Streams::open(disk.boxed(), options()) {
                Err(OpenError::Corrupt(folder, number, place, _)) => {
                    assert_eq!((folder, number), ("topics", file), "{case}");
                    assert!(
                        place <= at as u64 && (at < 44 || file == last),
                        "{case}: {place}"
                    );
                    found[0] += 1;
                }
                Err(other) => panic!("{case}: {other}"),
                Ok(_) if file == last => panic!("{case}: it was all there at the end"),
                Ok(streams) => {
                    let damaged = damaged(&streams, count, file);
                    assert!(damaged <= 1 && (at < index || damaged == 0), "{case}");
                    wait(streams.close());
                    found[1 + usize::from(damaged == 0)] += 1;
                }
            }
            disk.world().flip(file, at, bit);
        }
    }
    assert!(found.iter().all(|it| *it > 0), "{found:?}");
}

#[test]
fn a_file_without_a_good_index_is_read_as_a_whole() {
    let (disk, count) = filled();
    let sealed = files(&disk);
    let (_, sealed) = sealed.split_last().unwrap();
    // All indexes are cut off at a random place, or overwritten.
    for seed in 0..40 {
        let mut random = Rng::with_seed(seed);
        for &(file, size) in sealed {
            let index = index_at(&disk, file);
            let mut world = disk.world();
            let (_, durable, seen) = world.bytes().find(|it| it.0 == file).unwrap();
            let at = random.usize(index..size);
            for bytes in [durable, seen] {
                match seed % 2 {
                    0 => bytes.truncate(at),
                    _ => bytes[at..].fill(seed as u8),
                }
            }
        }
        let streams = open(&disk);
        assert_eq!(damaged(&streams, count, 0), 0);
        append(&streams, "a", count + 1, "more").unwrap();
        wait(streams.close());
        disk.replace(filled().0.all());
    }
}

#[test]
fn without_an_index_damage_is_found_at_the_start() {
    let (disk, _) = filled();
    let (file, _) = files(&disk)[1];
    let index = index_at(&disk, file);
    let mut world = disk.world();
    world.flip(file, index + 30, 1);
    world.flip(file, index / 2, 1);
    drop(world);
    let opened = Streams::open(disk.boxed(), options());
    let Err(OpenError::Corrupt("topics", number, at, _)) = opened else {
        panic!("{:?}", opened.err());
    };
    assert!(number == file && at <= index as u64 / 2);
}

#[test]
fn a_missing_file_is_told() {
    for which in 0..4 {
        let (disk, _) = filled();
        let (file, _) = files(&disk)[which];
        Disk::remove(&mut disk.clone(), file).unwrap();
        let opened = Streams::open(disk.boxed(), options());
        let Err(OpenError::Missing("topics", number)) = opened else {
            panic!("{which}: {:?}", opened.err());
        };
        assert_eq!(number, file);
    }
}

#[test]
fn files_of_other_folders_are_not_taken() {
    let (disk, _) = filled();
    let (other, _) = filled();
    let (file, _) = files(&disk)[1];
    let mut all = disk.all();
    all[1] = other.all().remove(1);
    disk.replace(all);
    let opened = Streams::open(disk.boxed(), options());
    assert!(
        matches!(opened.err(), Some(OpenError::Corrupt("topics", number, 0, _)) if number == file)
    );
    // Those of a store are no streams.
    let outbox = crate::Outbox::open(disk.boxed(), crate::Options::default());
    assert!(matches!(
        outbox.err(),
        Some(OpenError::Corrupt("store", 1, 0, _))
    ));
}

#[test]
fn a_failed_fsync_ends_all_writing_until_a_restart() {
    let disk = SimDisk::new(7);
    let streams = open(&disk);
    declare(&streams, "a", ALL);
    append(&streams, "a", 1, "first").unwrap();
    disk.world().sync_fails = Some(0);
    let poisoned = |result| matches!(result, Err(Refusal::Poisoned(_)));
    assert!(poisoned(append(&streams, "a", 2, "second")));
    assert!(poisoned(append(&streams, "a", 2, "again")));
    assert!(poisoned(wait(streams.remove("a"))));
    assert!(poisoned(wait(streams.declare("a", ALL)).map(drop)));
    assert!(streams.stats().is_poisoned);
    assert_eq!(
        texts(&streams, "a"),
        ["first"],
        "nobody sees what may not be there"
    );
    wait(streams.close());
    let streams = open(&disk);
    let next = streams.find("a").unwrap().next;
    append(&streams, "a", next, "after").unwrap();
    wait(streams.close());
    disk.crash();
    let found = texts(&open(&disk), "a");
    assert!(
        found == ["first", "second", "after"] || found == ["first", "after"],
        "{found:?}"
    );
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = SimDisk::new(3);
    let streams = open(&disk);
    declare(&streams, "a", ALL);
    disk.world().space = Some(12_000);
    // What is reserved may be less after the first refusal, and something fits again.
    let (mut next, mut refusals) = (1, 0);
    while refusals < 10 {
        match append(&streams, "a", next, &text(next)) {
            Ok(()) => (next, refusals) = (next + 1, 0),
            Err(Refusal::NoSpace(_)) => refusals += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(next > 20, "{next}");
    let expected: Vec<String> = (1..next).map(text).collect();
    assert_eq!(texts(&streams, "a"), expected);
    // What is not to be kept any more gives its space back, though the disk is full.
    declare(&streams, "a", Keep { events: 5, ..ALL });
    append(&streams, "a", next, &text(next))
        .or_else(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            append(&streams, "a", next, &text(next))
        })
        .unwrap();
    wait(streams.close());
    disk.crash();
    let found = texts(&open(&disk), "a");
    assert_eq!(found.last(), Some(&text(next)));
    assert!(found.len() >= 5);
}

/// All of it stands in the file that is written to, in which hardly anything is kept any more.
#[test]
fn a_full_disk_recovers_though_all_is_in_one_file() {
    for is_removed in [false, true] {
        let disk = SimDisk::new(3);
        let options = StreamOptions {
            segment_max: 1 << 20,
            tidy_every: std::time::Duration::ZERO,
        };
        let streams = Streams::open(disk.boxed(), options).unwrap();
        declare(&streams, "a", ALL);
        disk.world().space = Some(15_000);
        let mut next = 1;
        for size in [200, 1] {
            while append(&streams, "a", next, &"x".repeat(size)).is_ok() {
                next += 1;
            }
        }
        if is_removed {
            wait(streams.remove("a")).unwrap();
            next = 1;
        } else {
            declare(&streams, "a", Keep { events: 5, ..ALL });
        }
        crate::tests::waiting::until("there is room again", || {
            wait(streams.declare("a", ALL)).is_ok() && append(&streams, "a", next, "new").is_ok()
        });
        wait(streams.close());
        disk.crash();
        let found = texts(&open(&disk), "a");
        assert_eq!(found.last().map(String::as_str), Some("new"));
    }
}

#[test]
fn what_is_damaged_does_not_hold_files_up() {
    let disk = SimDisk::new(9);
    let streams = open(&disk);
    declare(&streams, "quiet", ALL);
    for number in 1..=3 {
        append(&streams, "quiet", number, &format!("quiet {number}")).unwrap();
    }
    let at = {
        let mut world = disk.world();
        let (_, bytes, _) = world.bytes().next().unwrap();
        bytes.windows(7).position(|it| it == b"quiet 2").unwrap()
    };
    disk.world().flip(1, at, 3);
    declare(&streams, "busy", Keep { events: 5, ..ALL });
    for number in 1..=500 {
        append(&streams, "busy", number, &"b".repeat(100)).unwrap();
    }
    assert!(files(&disk)[0].0 > 1, "the first file is gone");
    for streams in [streams.clone(), {
        wait(streams.close());
        open(&disk)
    }] {
        let read = |number| streams.read("quiet", number, 1);
        assert_eq!(read(1).unwrap()[0].body, "quiet 1");
        assert!(
            matches!(read(2), Err(ReadError::Damaged(_))),
            "{:?}",
            read(2)
        );
        assert_eq!(read(3).unwrap()[0].body, "quiet 3");
        // What is before it is given, and what is wrong is told then.
        assert_eq!(streams.read("quiet", 1, 1000).unwrap().len(), 1);
    }
}

#[test]
fn reading_goes_on_while_others_write() {
    let disk = SimDisk::new(11);
    let streams = open(&disk);
    declare(&streams, "quiet", ALL);
    for number in 1..=50 {
        append(&streams, "quiet", number, &format!("quiet {number}")).unwrap();
    }
    declare(&streams, "busy", Keep { events: 20, ..ALL });
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (streams, stop) = (streams.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let (mut read, mut gone, mut from) = (0, 0, 1);
                while !stop.load(Ordering::Relaxed) {
                    let quiet = texts(&streams, "quiet");
                    assert!(quiet.len() == 50 && quiet[7] == "quiet 8");
                    match streams.read("busy", from, 1000) {
                        Ok(entries) => {
                            for entry in entries {
                                assert_eq!(entry.sequence, from);
                                assert_eq!(entry.body, Bytes::from(format!("busy {from}")));
                                (from, read) = (from + 1, read + 1);
                            }
                        }
                        Err(ReadError::Gone { first }) => {
                            assert!(first > from);
                            (from, gone) = (first, gone + 1);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                (read, gone)
            })
        })
        .collect();
    for number in 1..=3000 {
        let new = entry("busy", number, &format!("busy {number}"));
        wait(streams.append(vec![new])).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        let (read, gone) = reader.join().unwrap();
        println!("{read} read, {gone} times gone");
        assert!(read > 0);
    }
    assert!(files(&disk)[0].0 > 5);
}

#[test]
fn a_file_stays_until_the_next_one_says_what_it_said() {
    let disk = SimDisk::new(13);
    let streams = open(&disk);
    for name in ["a", "x"] {
        declare(&streams, name, ALL);
    }
    append(&streams, "x", 1, &"x".repeat(2500)).unwrap();
    wait(streams.remove("x")).unwrap();
    // An index, the header of the next file, its name, and what should stand in it.
    disk.world().write_fails = Some(3);
    let refused = append(&streams, "a", 1, &"a".repeat(2500));
    assert!(matches!(refused, Err(Refusal::NoSpace(_))), "{refused:?}");
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(files(&disk).len(), 2);
    wait(streams.close());
    disk.crash();
    let streams = open(&disk);
    append(&streams, "a", 1, "there").unwrap();
    assert_eq!(texts(&streams, "a"), ["there"]);
}
