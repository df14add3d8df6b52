//! Files that are missing, emptied or cut while nobody has the folder: it is told, and never taken
//! for a shorter log.

use bytes::Bytes;

use super::crash::{ROOM, options};
use super::sim::SimDisk;
use super::streams::{ALL, append, declare};
use super::waiting::wait;
use crate::error::OpenError;
use crate::outbox::Outbox;
use crate::{StreamOptions, Streams};

/// What is done to files that are there.
type Attack = (&'static str, fn(&mut Vec<(u64, Vec<u8>)>));

const ATTACKS: &[Attack] = &[
    ("the first is removed", |files| drop(files.remove(0))),
    ("the last is removed", |files| drop(files.pop())),
    ("all are removed", |files| files.clear()),
    ("all but the last are removed", |files| {
        drop(files.drain(..files.len() - 1))
    }),
    ("the first is emptied", |files| files[0].1.clear()),
    ("the last is emptied", |files| last(files).clear()),
    ("the last is cut to nothing but a header", |files| {
        last(files).truncate(44)
    }),
    ("the last is cut within its header", |files| {
        last(files).truncate(20)
    }),
    ("the last is cut in half", |files| {
        let size = last(files).len();
        last(files).truncate(size / 2);
    }),
    ("the last is cut by a byte", |files| {
        let size = last(files).len();
        last(files).truncate(size - 1);
    }),
    ("a bit of the end is another one", |files| {
        if let Some(byte) = last(files).last_mut() {
            *byte ^= 4;
        }
    }),
];

fn last(files: &mut [(u64, Vec<u8>)]) -> &mut Vec<u8> {
    &mut files.last_mut().unwrap().1
}

/// Does this to the files of a log, but not to its manifest.
fn attack(disk: &SimDisk, work: fn(&mut Vec<(u64, Vec<u8>)>)) {
    let (mut files, manifest): (Vec<_>, Vec<_>) =
        disk.all().into_iter().partition(|it| it.0 != u64::MAX);
    work(&mut files);
    files.extend(manifest);
    disk.replace(files);
}

fn store(messages: u64) -> SimDisk {
    let disk = SimDisk::new(5);
    let outbox = Outbox::open(disk.boxed(), options()).unwrap();
    for _ in 0..messages {
        let body = Bytes::from(vec![b'y'; 600]);
        wait(outbox.append("q", Bytes::new(), body, ROOM)).unwrap();
    }
    outbox.close();
    disk
}

fn open_store(disk: &SimDisk) -> Option<OpenError> {
    Outbox::open(disk.boxed(), options()).err()
}

fn topics(entries: u64) -> SimDisk {
    let disk = SimDisk::new(5);
    let streams = Streams::open(disk.boxed(), stream_options()).unwrap();
    declare(&streams, "a", ALL);
    for number in 1..=entries {
        append(&streams, "a", number, &"y".repeat(300)).unwrap();
    }
    wait(streams.close());
    disk
}

fn stream_options() -> StreamOptions {
    StreamOptions {
        segment_max: 3000,
        ..StreamOptions::default()
    }
}

fn open_topics(disk: &SimDisk) -> Option<OpenError> {
    Streams::open(disk.boxed(), stream_options()).err()
}

#[test]
fn files_that_are_missing_emptied_or_cut_are_told() {
    for count in [2, 20] {
        for (name, work) in ATTACKS {
            for (part, disk, open) in [
                ("store", store(count), open_store as fn(&SimDisk) -> _),
                ("topics", topics(count), open_topics),
            ] {
                let is_harmless = name.starts_with("all but") && count == 2;
                attack(&disk, *work);
                let refused = open(&disk);
                assert_eq!(refused.is_none(), is_harmless, "{part}, {count}: {name}");
                // And again.
                assert_eq!(
                    open(&disk).is_none(),
                    is_harmless,
                    "{part}, {count}: {name}"
                );
            }
        }
    }
}

#[test]
fn a_manifest_that_is_missing_or_damaged_is_told() {
    for open in [
        (|disk| open_store(disk)) as fn(&SimDisk) -> Option<OpenError>,
        |disk| open_topics(disk),
    ] {
        for size in [None, Some(0), Some(60), Some(5000)] {
            let disk = store(20);
            let is_store = open(&disk).is_none();
            let disk = if is_store { store(20) } else { topics(20) };
            let mut files = disk.all();
            let (_, manifest) = files.last_mut().unwrap();
            match size {
                Some(size) => {
                    manifest.truncate(size);
                    manifest.iter_mut().for_each(|byte| *byte ^= 1);
                }
                None => drop(files.pop()),
            }
            disk.replace(files);
            disk.world().is_made = true;
            let refused = open(&disk);
            assert!(
                matches!(refused, Some(OpenError::Manifest(..))),
                "{size:?}: {refused:?}"
            );
        }
    }
}

/// Whatever bit of the manifest is another one: the other slot, which is older, will do.
#[test]
fn a_bit_of_the_manifest_is_told_or_harmless() {
    for at in (0..8192).step_by(7) {
        let disk = store(20);
        let mut files = disk.all();
        files.last_mut().unwrap().1[at] ^= 2;
        disk.replace(files);
        if open_store(&disk).is_none() {
            let outbox = Outbox::open(disk.boxed(), options()).unwrap();
            assert_eq!(outbox.stats("q").waiting, 20, "byte {at}");
        }
    }
}

/// After a crash too, whatever was written since the last file was begun.
#[test]
fn files_that_are_missing_after_a_crash_are_told() {
    for which in [0, 1] {
        let disk = SimDisk::new(5);
        let outbox = Outbox::open(disk.boxed(), options()).unwrap();
        for _ in 0..20 {
            let body = Bytes::from(vec![b'y'; 600]);
            wait(outbox.append("q", Bytes::new(), body, ROOM)).unwrap();
        }
        let files = disk.all();
        outbox.close();
        disk.replace(files);
        attack(
            &disk,
            match which {
                0 => |files| drop(files.remove(0)),
                _ => |files| drop(files.pop()),
            },
        );
        assert!(open_store(&disk).is_some(), "{which}");
    }
}
