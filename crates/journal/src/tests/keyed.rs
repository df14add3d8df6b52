//! Keyed state: what was put is there after a restart, a crash, a full disk; a file that is damaged
//! or of something else is refused.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::sim::{Random, SimDisk};
use super::waiting::{wait, wait_all};
use crate::disk::{Disk, DiskFile};
use crate::keyed::{Change, Keyed, Place};
use crate::{OpenError, Refusal};

/// Its file has the number 1, that which becomes it the number 2.
impl Place for SimDisk {
    fn open(&mut self) -> io::Result<Option<Box<dyn DiskFile>>> {
        match self.list()?.contains(&1) {
            true => Disk::open(self, 1).map(Some),
            false => Ok(None),
        }
    }

    fn begin(&mut self) -> io::Result<Box<dyn DiskFile>> {
        self.create(2)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.rename(2, 1)?;
        Disk::sync(self)
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("data/keyed.redb")
    }

    fn is_made(&self) -> bool {
        Disk::is_made(self)
    }

    fn made(&mut self) -> io::Result<()> {
        Disk::made(self)
    }
}

fn try_open(disk: &SimDisk) -> Result<Keyed, OpenError> {
    Keyed::with(Box::new(disk.clone()))
}

fn open(disk: &SimDisk) -> Keyed {
    try_open(disk).unwrap()
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn put(keyed: &Keyed, table: &str, key: &str, value: &str) -> Result<(), Refusal> {
    wait(keyed.put(table, bytes(key), bytes(value)))
}

fn get(keyed: &Keyed, table: &str, key: &str) -> Option<String> {
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

/// Writes until something fails. Gives what may be there, the oldest first: what has been answered,
/// and with what has not been.
fn write(keyed: &Keyed, random: &mut Random, mut values: Values) -> Vec<Values> {
    for _ in 0..15 {
        let mut next = values.clone();
        let mut changes = Vec::new();
        for _ in 0..=random.below(4) {
            let (table, key): (Arc<str>, u64) = ("t".into(), random.below(40));
            let value = random.next();
            let bytes = |number: u64| {
                let mut bytes = number.to_le_bytes().to_vec();
                bytes.resize(8 + (number % 600) as usize, 1);
                Bytes::from(bytes)
            };
            let stays = random.holds(70);
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
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed + 1);
        let mut may_be = vec![Values::new()];
        for _ in 0..4 {
            match random.below(4) {
                0 => disk.world().sync_fails = Some(random.below(20)),
                1 => disk.world().left = Some(random.below(400)),
                2 => disk.world().write_fails = Some(random.below(100)),
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
    let mut random = Random::new(1);
    for _ in 0..60 {
        disk.replace(whole.clone());
        let at = random.below(whole[0].1.len() as u64) as usize;
        disk.world().flip(1, at, random.below(8) as u8);
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
