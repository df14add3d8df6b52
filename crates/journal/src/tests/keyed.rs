//! Keyed state: what was put is there after a restart, a crash, a full disk; a file that is damaged
//! or of something else is refused.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;

use super::sim::SimDisk;
use super::waiting::{wait, wait_all};
use crate::disk::{Disk, DiskFile};
use crate::keyed::{Change, Durability, Keyed, Place};
use crate::{OpenError, Refusal};

/// The disk for one process. Its file has the number 1, that which becomes it the number 2, the
/// files of the log beside it the numbers 3 and 4.
struct SimPlace {
    disk: SimDisk,
    /// How often processes had gone when this one came.
    crashes: u64,
}

impl SimPlace {
    /// The disk, as long as the process is there.
    fn disk(&mut self) -> io::Result<&mut SimDisk> {
        let is_there = self.disk.world().crashes == self.crashes;
        match is_there {
            true => Ok(&mut self.disk),
            false => Err(io::Error::other("the process is gone")),
        }
    }

    fn open_file(&mut self, number: u64) -> io::Result<Option<Box<dyn DiskFile>>> {
        let disk = self.disk()?;
        match disk.list()?.contains(&number) {
            true => Disk::open(disk, number).map(Some),
            false => Ok(None),
        }
    }
}

impl Place for SimPlace {
    fn open(&mut self) -> io::Result<Option<Box<dyn DiskFile>>> {
        self.open_file(1)
    }

    fn begin(&mut self) -> io::Result<Box<dyn DiskFile>> {
        self.disk()?.create(2)
    }

    fn finish(&mut self) -> io::Result<()> {
        let disk = self.disk()?;
        disk.rename(2, 1)?;
        Disk::sync(disk)
    }

    fn ahead(&mut self, number: usize, make: bool) -> io::Result<Option<Box<dyn DiskFile>>> {
        let number = 3 + number as u64;
        match self.open_file(number)? {
            None if make => {
                let made = self.disk()?.create(number)?;
                Disk::sync(self.disk()?)?;
                Ok(Some(made))
            }
            None => Ok(None),
            found => {
                Disk::sync(self.disk()?)?;
                Ok(found)
            }
        }
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("data/keyed.redb")
    }

    fn is_made(&self) -> bool {
        Disk::is_made(&self.disk)
    }

    fn made(&mut self) -> io::Result<()> {
        Disk::made(self.disk()?)
    }
}

pub(super) fn try_open(disk: &SimDisk) -> Result<Keyed, OpenError> {
    let crashes = disk.world().crashes;
    let disk = disk.clone();
    Keyed::with(Box::new(SimPlace { disk, crashes }))
}

pub(super) fn open(disk: &SimDisk) -> Keyed {
    try_open(disk).unwrap()
}

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(super) fn put(keyed: &Keyed, table: &str, key: &str, value: &str) -> Result<(), Refusal> {
    wait(keyed.put(table, bytes(key), bytes(value)))
}

pub(super) fn get(keyed: &Keyed, table: &str, key: &str) -> Option<String> {
    let value = wait(keyed.get(table, key.as_bytes())).unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn keys(keyed: &Keyed, prefix: &str, after: Option<&str>, most: usize) -> Vec<String> {
    let after = after.map(str::as_bytes);
    let found = wait(keyed.scan("t", prefix.as_bytes(), after, most)).unwrap();
    let keys = found.into_iter().map(|(key, value)| {
        assert_eq!(value, key);
        String::from_utf8(key.to_vec()).unwrap()
    });
    keys.collect()
}

#[test]
fn what_was_put_is_there_after_a_restart() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    assert_eq!(get(&keyed, "t", "a"), None);
    assert!(keys(&keyed, "", None, 9).is_empty());
    put(&keyed, "t", "a", "1").unwrap();
    put(&keyed, "t", "a", "2").unwrap();
    put(&keyed, "t", "b", "3").unwrap();
    put(&keyed, "other", "a", "4").unwrap();
    wait(keyed.delete("t", bytes("b"))).unwrap();
    wait(keyed.delete("t", bytes("never"))).unwrap();
    let check = |keyed: &Keyed| {
        let got = [("t", "a"), ("t", "b"), ("other", "a"), ("none", "a")];
        let got = got.map(|(table, key)| get(keyed, table, key));
        assert_eq!(got, [Some("2".into()), None, Some("4".into()), None]);
    };
    check(&keyed);
    wait(keyed.close());
    assert_eq!(put(&keyed, "t", "a", "late"), Err(Refusal::Closed));
    disk.crash();
    check(&open(&disk));
}

#[test]
fn keys_are_found_by_what_they_begin_with() {
    let keyed = open(&SimDisk::new(1));
    for key in ["a", "a/1", "a/2", "a/3", "b/1", "", "\u{10ffff}"] {
        put(&keyed, "t", key, key).unwrap();
    }
    assert_eq!(keys(&keyed, "a/", None, 9), ["a/1", "a/2", "a/3"]);
    assert_eq!(keys(&keyed, "a/", None, 2), ["a/1", "a/2"]);
    assert_eq!(keys(&keyed, "a/", Some("a/2"), 9), ["a/3"]);
    assert_eq!(keys(&keyed, "a/", Some("a/25"), 9), ["a/3"]);
    assert_eq!(keys(&keyed, "a/", Some(""), 9).len(), 3);
    assert_eq!(keys(&keyed, "b", None, 9), ["b/1"]);
    assert_eq!(keys(&keyed, "", None, 99).len(), 7);
    assert!(keys(&keyed, "a/", Some("b"), 9).is_empty());
}

#[test]
fn many_who_write_have_one_commit() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    put(&keyed, "t", "warm", "warm").unwrap();
    let before = disk.world().operations;
    let writes: Vec<_> = (0..500)
        .map(|number| {
            let key = Bytes::from(format!("k{number}"));
            keyed.put("t", key.clone(), key)
        })
        .collect();
    assert!(wait_all(writes).into_iter().all(|it| it.is_ok()));
    let operations = disk.world().operations - before;
    assert!(operations < 1500, "{operations}");
    assert_eq!(keys(&keyed, "k", None, 1000).len(), 500);
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let keyed = keyed.clone();
            std::thread::spawn(move || {
                for number in 0..50 {
                    put(&keyed, "threads", &format!("{thread}/{number}"), "x").unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
    let found = wait(keyed.scan("threads", b"", None, 1000)).unwrap();
    assert_eq!(found.len(), 200);
}

#[test]
fn what_is_too_large_is_refused() {
    let keyed = open(&SimDisk::new(1));
    let large = "x".repeat(4097);
    for (table, key) in [("", "k"), (&large, "k"), ("t", &large)] {
        let refused = put(&keyed, table, key, "v");
        assert!(matches!(refused, Err(Refusal::TooLarge(_))), "{refused:?}");
    }
    let value = Bytes::from(vec![0; (16 << 20) + 1]);
    let refused = wait(keyed.put("t", bytes("k"), value));
    assert!(matches!(refused, Err(Refusal::TooLarge(_))));
    put(&keyed, "t", &large[1..], "v").unwrap();
}

/// What each key has, for a model of what the file has.
type Values = BTreeMap<u64, u64>;

fn values(keyed: &Keyed) -> Values {
    let found = wait(keyed.scan("t", b"", None, 1000)).unwrap();
    let number = |bytes: Bytes| u64::from_le_bytes(*bytes.first_chunk().unwrap());
    let pairs = found
        .into_iter()
        .map(|(key, value)| (number(key), number(value)));
    pairs.collect()
}

/// Some changes, and what there is with them.
fn change(random: &mut Rng, values: &Values) -> (Vec<Change>, Values) {
    let mut next = values.clone();
    let mut changes = Vec::new();
    for _ in 0..random.u8(1..=4) {
        let (table, key): (Arc<str>, u64) = ("t".into(), random.u64(..40));
        let value = random.u64(..);
        let bytes = |number: u64| {
            let mut bytes = number.to_le_bytes().to_vec();
            bytes.resize(8 + (number % 600) as usize, 1);
            Bytes::from(bytes)
        };
        let stays = random.u8(..100) < 70;
        let key_bytes = Bytes::copy_from_slice(&key.to_le_bytes());
        if stays {
            let value = bytes(value);
            changes.push(Change::Put {
                table,
                key: key_bytes,
                value,
            });
            next.insert(key, value_of(&changes));
        } else {
            changes.push(Change::Delete {
                table,
                key: key_bytes,
            });
            next.remove(&key);
        }
    }
    (changes, next)
}

/// Writes until something fails. Gives what may be there, the oldest first: what has been answered,
/// and with what has not been.
fn write(keyed: &Keyed, random: &mut Rng, mut values: Values) -> Vec<Values> {
    for _ in 0..15 {
        let (changes, next) = change(random, &values);
        match wait(keyed.write(changes)) {
            Ok(()) => values = next,
            Err(_) => return vec![values, next],
        }
    }
    vec![values]
}

fn value_of(changes: &[Change]) -> u64 {
    let Some(Change::Put { value, .. }) = changes.last() else {
        return 0;
    };
    u64::from_le_bytes(*value.first_chunk().unwrap())
}

#[test]
fn nothing_acknowledged_is_lost() {
    let mut failures = 0;
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let disk = SimDisk::new(seed + 1);
        let mut may_be = vec![Values::new()];
        for _ in 0..4 {
            match random.u8(..4) {
                0 => disk.world().sync_fails = Some(random.u64(..20)),
                1 => disk.world().left = Some(random.u64(..400)),
                2 => disk.world().write_fails = Some(random.u64(..100)),
                _ => {}
            }
            if let Ok(keyed) = try_open(&disk) {
                if let Ok(found) = wait(keyed.scan("t", b"", None, 1)) {
                    drop(found);
                    let found = values(&keyed);
                    assert!(may_be.contains(&found), "{seed}: {found:?} of {may_be:?}");
                    may_be = write(&keyed, &mut random, found);
                    failures += usize::from(may_be.len() > 1);
                }
                wait(keyed.close());
            }
            (disk.world().sync_fails, disk.world().write_fails) = (None, None);
            disk.crash();
        }
        let found = values(&open(&disk));
        assert!(may_be.contains(&found), "{seed}: {found:?} of {may_be:?}");
    }
    assert!(failures > 20, "{failures}");
}

/// Of either durability, one after the other and at the same time.
#[test]
fn what_has_to_outlive_the_process_does() {
    let mut failures = 0;
    for seed in 0..120 {
        let mut random = Rng::with_seed(seed);
        let disk = SimDisk::new(seed + 1);
        let mut may_be = vec![Values::new()];
        for _ in 0..4 {
            match random.u8(..3) {
                0 => disk.world().left = Some(random.u64(..300)),
                1 => disk.world().write_fails = Some(random.u64(..100)),
                _ => {}
            }
            if let Ok(keyed) = try_open(&disk) {
                // It is looked at key by key, or as a whole.
                let mut values = match random.bool() {
                    true => may_be[0].clone(),
                    false => Values::new(),
                };
                if values.is_empty() || may_be.len() > 1 {
                    match wait(keyed.scan("t", b"", None, 1)) {
                        Ok(_) => values = self::values(&keyed),
                        Err(_) => values = may_be[0].clone(),
                    }
                    assert!(may_be.contains(&values), "{seed}: {values:?} of {may_be:?}");
                }
                may_be = vec![values.clone()];
                for _ in 0..25 {
                    let durability = match random.u8(..100) < 80 {
                        true => Durability::Process,
                        false => Durability::Disk,
                    };
                    let (changes, next) = change(&mut random, &values);
                    if wait(keyed.write_with(changes, durability)).is_err() {
                        may_be = vec![values, next];
                        failures += 1;
                        break;
                    }
                    let key = random.u64(..40);
                    if let Ok(found) = wait(keyed.get("t", &key.to_le_bytes())) {
                        let found = found.map(|it| u64::from_le_bytes(*it.first_chunk().unwrap()));
                        assert_eq!(found, next.get(&key).copied(), "{seed}: {key}");
                    }
                    may_be = vec![next.clone()];
                    values = next;
                }
                if random.bool() {
                    wait(keyed.close());
                }
            }
            disk.kill();
        }
        let found = values(&open(&disk));
        assert!(may_be.contains(&found), "{seed}: {found:?} of {may_be:?}");
    }
    assert!(failures > 40, "{failures}");
}

/// What was asked for together: later changes of a key win, whatever they have to outlive.
#[test]
fn changes_of_either_durability_keep_their_order() {
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let disk = SimDisk::new(seed + 1);
        let keyed = open(&disk);
        let mut values = Values::new();
        let mut writes = Vec::new();
        for _ in 0..40 {
            let durability = match random.u8(..100) < 70 {
                true => Durability::Process,
                false => Durability::Disk,
            };
            let (changes, next) = change(&mut random, &values);
            writes.push(keyed.write_with(changes, durability));
            values = next;
        }
        assert!(wait_all(writes).into_iter().all(|it| it.is_ok()), "{seed}");
        match random.bool() {
            true => assert_eq!(self::values(&keyed), values, "{seed}"),
            false => {
                disk.kill();
                assert_eq!(self::values(&open(&disk)), values, "{seed}");
            }
        }
    }
}

/// The power goes: what was synced is there, and of a key nothing older than that.
#[test]
fn what_has_to_outlive_the_machine_does_beside_what_has_not() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let disk = SimDisk::new(seed + 1);
        // What each key may have.
        let mut may_have: BTreeMap<u64, Vec<Option<u64>>> = BTreeMap::new();
        for _ in 0..3 {
            let keyed = open(&disk);
            for (key, may) in &mut may_have {
                let found = wait(keyed.get("t", &key.to_le_bytes())).unwrap();
                let found = found.map(|it| u64::from_le_bytes(*it.first_chunk().unwrap()));
                assert!(may.contains(&found), "{seed}: {key} {found:?} of {may:?}");
                *may = vec![found];
            }
            for _ in 0..random.u8(..60) {
                let key = random.u64(..10);
                let value = random.u64(..);
                let change = Change::Put {
                    table: "t".into(),
                    key: Bytes::copy_from_slice(&key.to_le_bytes()),
                    value: Bytes::from([&value.to_le_bytes()[..], &[0; 200]].concat()),
                };
                let may = may_have.entry(key).or_insert_with(|| vec![None]);
                match random.u8(..100) < 80 {
                    true => wait(keyed.write_with(vec![change], Durability::Process)).unwrap(),
                    false => {
                        wait(keyed.write(vec![change])).unwrap();
                        may.clear();
                    }
                }
                may.push(Some(value));
            }
            disk.crash();
        }
    }
}

#[test]
fn a_failed_fsync_ends_all_writing_until_a_restart() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    put(&keyed, "t", "a", "1").unwrap();
    disk.world().sync_fails = Some(0);
    let poisoned = |result| matches!(result, Err(Refusal::Poisoned(_)));
    assert!(poisoned(put(&keyed, "t", "a", "2")));
    assert!(poisoned(put(&keyed, "t", "b", "3")));
    assert!(poisoned(wait(keyed.get("t", b"a")).map(drop)));
    wait(keyed.close());
    let keyed = open(&disk);
    assert!(
        ["1", "2"]
            .map(str::to_owned)
            .contains(&get(&keyed, "t", "a").unwrap())
    );
    put(&keyed, "t", "a", "4").unwrap();
    drop(keyed);
    disk.crash();
    assert_eq!(get(&open(&disk), "t", "a"), Some("4".to_owned()));
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    put(&keyed, "t", "small", "1").unwrap();
    let size: usize = disk.world().bytes().map(|it| it.1.len()).sum();
    disk.world().space = Some(size as u64 + 10_000);
    let value = "v".repeat(100_000);
    let mut stored = 0;
    let refused = loop {
        match put(&keyed, "t", &format!("{stored}"), &value) {
            Ok(()) => stored += 1,
            Err(refused) => break refused,
        }
        assert!(stored < 1000);
    };
    assert!(matches!(refused, Refusal::NoSpace(_)), "{refused}");
    assert_eq!(get(&keyed, "t", "small"), Some("1".to_owned()));
    disk.world().space = None;
    put(&keyed, "t", "more", &value).unwrap();
    drop(keyed);
    disk.crash();
    let keyed = open(&disk);
    assert_eq!(get(&keyed, "t", "more"), Some(value.clone()));
    for number in 0..stored {
        assert_eq!(get(&keyed, "t", &format!("{number}")), Some(value.clone()));
    }
}

#[test]
fn a_file_that_is_damaged_or_of_something_else_is_refused() {
    for text in ["no database at all", &"x".repeat(100_000)] {
        let disk = SimDisk::new(1);
        disk.replace(vec![(1, text.as_bytes().to_vec())]);
        let error = try_open(&disk).err().unwrap().to_string();
        assert!(error.contains("data/keyed.redb"), "{error}");
    }
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    for number in 0..200 {
        put(
            &keyed,
            "t",
            &format!("{number}"),
            &format!("value {number}"),
        )
        .unwrap();
    }
    wait(keyed.close());
    let whole = disk.all();
    let mut refused = 0;
    let mut random = Rng::with_seed(1);
    for _ in 0..60 {
        disk.replace(whole.clone());
        let at = random.usize(..whole[0].1.len());
        disk.world().flip(1, at, random.u8(..8));
        match try_open(&disk) {
            Err(error) => {
                assert!(error.to_string().contains("data/keyed.redb"), "{error}");
                refused += 1;
            }
            Ok(keyed) => {
                for number in 0..200 {
                    let value = get(&keyed, "t", &format!("{number}"));
                    assert_eq!(value, Some(format!("value {number}")), "byte {at}");
                }
            }
        }
    }
    println!("{refused} refused");
}

/// Wherever a file is cut, and whatever bit of its header is another one, it is told as damage and
/// not as the work of another version.
#[test]
fn damage_of_the_header_is_no_other_version() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    put(&keyed, "t", "a", "1").unwrap();
    wait(keyed.close());
    let whole = disk.all();
    let mut refused = 0;
    let size = whole[0].1.len();
    let flips = (0..320 * 8).map(|bit| (size, Some(bit)));
    let cuts = (1..320)
        .chain((320..size).step_by(4096))
        .map(|it| (it, None));
    for (left, bit) in flips.chain(cuts) {
        let mut files = whole.clone();
        files[0].1.truncate(left);
        if let Some(bit) = bit {
            files[0].1[bit / 8] ^= 1 << (bit % 8);
        }
        disk.replace(files);
        match try_open(&disk) {
            Err(error) => {
                let error = error.to_string();
                let is_named = error.contains("data/keyed.redb") && error.contains("damaged");
                assert!(is_named, "{left} bytes, bit {bit:?}: {error}");
                refused += 1;
            }
            Ok(keyed) => {
                assert_eq!(
                    get(&keyed, "t", "a"),
                    Some("1".to_owned()),
                    "{left}, {bit:?}"
                );
                wait(keyed.close());
            }
        }
    }
    assert!(refused > 500, "{refused}");
}
