//! Thousands of crashes at random points, disks that fill up, `fsync`s that fail: what was
//! acknowledged is there, in order, under the number it had, as long as it is to be kept.

use std::collections::BTreeMap;

use bytes::Bytes;
use fastrand::Rng;

use super::super::sim::SimDisk;
use super::super::waiting::{wait, wait_all};
use super::{ALL, now, options};
use crate::streams::{Entry, Keep, NewEntry, Streams};
use crate::{ReadError, Refusal};

/// The streams, and how many entries are kept of each.
const NAMES: [(&str, u64); 4] = [("few", 3), ("some", 15), ("all", u64::MAX), ("made", 5)];

fn keep(name: &str) -> Keep {
    let (_, events) = NAMES.into_iter().find(|it| it.0 == name).unwrap();
    Keep { events, ..ALL }
}

/// What is known of a stream.
#[derive(Debug, Default)]
struct Known {
    /// What was acknowledged or has been seen, by its number.
    bodies: BTreeMap<u64, u64>,
    /// What may be there: it was written, but nobody was told.
    maybe: BTreeMap<u64, u64>,
    /// Whether it may be gone: it was removed, but nobody was told.
    may_be_gone: bool,
    /// Whether it may not be there yet: it was made, but nobody was told.
    may_be_missing: bool,
}

impl Known {
    fn next(&self) -> u64 {
        self.bodies.last_key_value().map_or(1, |(last, _)| last + 1)
    }
}

struct Model {
    random: Rng,
    disk: SimDisk,
    streams: BTreeMap<&'static str, Known>,
    /// What each epoch had under each number: it never has anything else there.
    ever: BTreeMap<(u64, u64), u64>,
    count: u64,
    acknowledged: u64,
    /// How often entries were there that had been moved out of a file that is gone.
    moved: u64,
}

fn body(number: u64) -> Bytes {
    let size = 8 + (number * 7919) % 400;
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(size as usize, number as u8);
    Bytes::from(bytes)
}

fn number(entry: &Entry) -> u64 {
    let number = u64::from_le_bytes(*entry.body.first_chunk().unwrap());
    assert_eq!(entry.body, body(number), "the content is what was appended");
    assert_eq!(entry.key, key(number));
    assert_eq!(entry.kind, number as u8 % 3);
    number
}

fn key(number: u64) -> Bytes {
    match number % 4 {
        0 => Bytes::from(format!("key {number}")),
        _ => Bytes::new(),
    }
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            disk: SimDisk::new(seed + 1),
            streams: BTreeMap::new(),
            ever: BTreeMap::new(),
            count: 0,
            acknowledged: 0,
            moved: 0,
        }
    }

    /// A stream; hardly ever the one that goes nowhere.
    fn name(&mut self) -> &'static str {
        match self.random.u8(..10) {
            0..4 => "few",
            4..7 => "some",
            7..9 => "made",
            _ => "all",
        }
    }

    /// Declares all streams that are not known to be there.
    fn declare(&mut self, streams: &Streams) {
        for (name, _) in NAMES {
            let made = wait(streams.declare(name, keep(name)));
            let known = self.streams.get(name);
            match (made, known) {
                (Ok(info), Some(known)) => {
                    assert_eq!(info.next, known.next());
                }
                (Ok(info), None) => {
                    let known = Known::default();
                    assert_eq!((info.first, info.next), (1, 1));
                    self.streams.insert(name, known);
                }
                (Err(_), Some(_)) => {}
                (Err(_), None) => {
                    let known = Known {
                        may_be_missing: true,
                        ..Known::default()
                    };
                    self.streams.insert(name, known);
                }
            }
        }
    }

    fn append(&mut self, streams: &Streams) -> bool {
        // Several calls that wait together, each with entries of several streams.
        let mut calls = Vec::new();
        let mut nexts = BTreeMap::new();
        for _ in 0..self.random.u8(1..=3) {
            let mut call = Vec::new();
            for _ in 0..self.random.u8(1..=4) {
                let name = self.name();
                if self.streams[name].may_be_missing {
                    continue;
                }
                let next = nexts.entry(name).or_insert(self.streams[name].next());
                self.count += 1;
                call.push((name, *next, self.count));
                *next += 1;
            }
            calls.push(call);
        }
        let entries = |call: &Vec<(&str, u64, u64)>| {
            call.iter()
                .map(|&(name, sequence, count)| NewEntry {
                    stream: name.into(),
                    sequence,
                    at_ms: now(),
                    kind: count as u8 % 3,
                    key: key(count),
                    body: body(count),
                })
                .collect()
        };
        let waiting = calls.iter().map(|call| streams.append(entries(call)));
        let results = wait_all(waiting.collect());
        let mut goes_on = true;
        for (call, result) in calls.iter().zip(results) {
            for &(name, sequence, count) in call {
                let known = self.streams.get_mut(name).unwrap();
                match &result {
                    Ok(()) => {
                        self.acknowledged += 1;
                        assert_eq!(known.next(), sequence, "one after the other");
                        known.bodies.insert(sequence, count);
                        let epoch = streams.epochs(name).unwrap().of(sequence);
                        let before = self.ever.insert((epoch, sequence), count);
                        assert_eq!(before, None, "no number is given twice");
                    }
                    // Surely not there, now or later.
                    Err(Refusal::NoSpace(_) | Refusal::OutOfOrder { .. }) => {}
                    Err(_) => drop(known.maybe.insert(sequence, count)),
                }
            }
            goes_on &= !matches!(result, Err(Refusal::Poisoned(_) | Refusal::Closed));
        }
        goes_on
    }

    fn remove(&mut self, streams: &Streams) {
        match wait(streams.remove("made")) {
            Ok(()) => {
                self.streams.remove("made");
                self.declare(streams);
            }
            Err(Refusal::NoSpace(_)) => {}
            Err(_) => self.streams.get_mut("made").unwrap().may_be_gone = true,
        }
    }

    /// Compares what is there with what is known.
    fn check(&mut self, streams: &Streams) {
        for (name, events) in NAMES {
            let Some(known) = self.streams.get_mut(name) else {
                assert_eq!(streams.find(name), None, "{name} was removed");
                continue;
            };
            let Some(info) = streams.find(name) else {
                assert!(known.may_be_gone || known.may_be_missing, "{name} is lost");
                self.streams.remove(name);
                continue;
            };
            known.may_be_missing = false;
            known.may_be_gone = false;
            let epochs = streams.epochs(name).unwrap();
            assert!(info.next >= known.next(), "acknowledged but lost: {name}");
            let first_file = self.disk.all().first().map_or(1, |it| it.0);
            self.moved += u64::from(name == "all" && info.events > 0 && first_file > 1);
            let kept = events.min(info.next - 1);
            assert!(info.events >= kept, "{name}: {info:?} but {kept} are kept");
            let mut sequence = info.first;
            while sequence < info.next {
                let read = streams.read(name, sequence, self.random.usize(1..=2000));
                for entry in read.unwrap() {
                    assert_eq!(entry.sequence, sequence);
                    let count = number(&entry);
                    let expected = known.bodies.get(&sequence);
                    let expected = expected.or(known.maybe.get(&sequence));
                    assert_eq!(Some(&count), expected, "{name} {sequence}");
                    known.bodies.insert(sequence, count);
                    let before = self.ever.insert((epochs.of(sequence), sequence), count);
                    assert!(before.is_none_or(|before| before == count), "reused");
                    sequence += 1;
                }
            }
            // Those that were dropped before anybody saw them have been there.
            assert!(info.next == known.next() || info.events == 0);
            known.maybe.clear();
            let keys = streams.keys(name, 0).unwrap();
            let expected = known.bodies.range(info.first..);
            let expected = expected.filter(|(_, count)| *count % 4 == 0);
            let expected: Vec<_> = expected.map(|(at, count)| (key(*count), *at)).collect();
            assert_eq!(keys, expected);
        }
    }

    /// What is read while others write is what was acknowledged.
    fn read(&mut self, streams: &Streams) {
        let name = self.name();
        let known = &self.streams[name];
        let from = self.random.u64(1..=known.next());
        match streams.read(name, from, 700) {
            Ok(entries) => {
                for (entry, sequence) in entries.iter().zip(from..) {
                    assert_eq!(entry.sequence, sequence);
                    assert_eq!(number(entry), known.bodies[&sequence]);
                }
            }
            Err(ReadError::Gone { first }) => assert!(first > from),
            Err(ReadError::Unknown) => assert!(known.may_be_missing || known.may_be_gone),
            // What was made or appended may not have been.
            Err(error) => assert!(known.may_be_missing, "{error}"),
        }
    }

    fn run(&mut self, steps: u64) {
        let streams = match Streams::open(self.disk.boxed(), options()) {
            Ok(streams) => streams,
            Err(error) => {
                let mut world = self.disk.world();
                assert!(world.left == Some(0) || world.has_failed, "{error}");
                world.left = None;
                return;
            }
        };
        if self.disk.world().left == Some(0) {
            // What is read is what is on the disk, but the streams cannot be told apart.
            return wait(streams.close());
        }
        self.check(&streams);
        self.declare(&streams);
        for _ in 0..steps {
            let goes_on = match self.random.u8(..10) {
                0..7 => self.append(&streams),
                7..9 => {
                    self.read(&streams);
                    true
                }
                _ if self.random.u8(..100) < 30 => {
                    self.remove(&streams);
                    true
                }
                _ => true,
            };
            let made = &self.streams;
            if !goes_on || made.values().any(|it| it.may_be_gone || it.may_be_missing) {
                break;
            }
        }
        wait(streams.close());
    }
}

#[test]
fn nothing_acknowledged_is_lost_at_any_crash() {
    let (mut crashes, mut acknowledged, mut moved, mut operations) = (0, 0, 0, 0);
    for seed in 0..300 {
        let mut model = Model::new(seed);
        for _ in 0..5 {
            let left = model.random.u64(1..=300);
            model.disk.world().left = Some(left);
            model.run(60);
            model.disk.crash();
            crashes += 1;
        }
        model.run(3);
        acknowledged += model.acknowledged;
        moved += model.moved;
        operations += model.disk.world().operations;
    }
    println!("{crashes} crashes, {operations} operations, {acknowledged} kept, {moved} moved");
    assert!(crashes >= 1500 && operations > 50_000 && acknowledged > 20_000 && moved > 200);
}

#[test]
fn nothing_acknowledged_is_lost_when_fsync_fails_or_the_disk_is_full() {
    for seed in 1000..1150 {
        let mut model = Model::new(seed);
        for _ in 0..4 {
            match model.random.u8(..3) {
                0 => model.disk.world().sync_fails = Some(model.random.u64(..60)),
                1 => {
                    let space = model.random.u64(4000..24_000);
                    model.disk.world().space = Some(space);
                }
                _ => {
                    model.disk.world().sync_fails = Some(model.random.u64(..60));
                    let left = model.random.u64(1..=200);
                    model.disk.world().left = Some(left);
                }
            }
            model.run(40);
            // The process starts again, with or without the machine.
            if model.random.bool() {
                model.disk.crash();
            }
            let mut world = model.disk.world();
            (world.left, world.sync_fails, world.space, world.has_failed) =
                (None, None, None, false);
        }
        model.run(3);
        model.disk.crash();
        model.run(0);
    }
}
