//! The log beside keyed state: it is missed, its frames count once and for one database only, and
//! what a commit has that failed when it was durable is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use fastrand::Rng;

use super::keyed::{bytes, get, open, put, try_open};
use super::sim::SimDisk;
use super::waiting::{soon, wait};
use crate::keyed::testing::old_folder;
use crate::keyed::{Change, Durability, Keyed};
use crate::{OpenError, Refusal};

/// The numbers of the database and of the log on the disk.
const DATABASE: u64 = 1;
const LOG: u64 = 3;

fn change(table: &str, key: &str, value: &str) -> Change {
    Change::Put {
        table: table.into(),
        key: bytes(key),
        value: bytes(value),
    }
}

/// Writes what has to outlive the process only.
fn put_quick(keyed: &Keyed, key: &str, value: &str) -> Result<(), Refusal> {
    let changes = vec![change("t", key, value)];
    wait(keyed.write_with(changes, Durability::Process))
}

/// A file of the disk, as the process sees it.
fn seen(disk: &SimDisk, number: u64) -> Vec<u8> {
    let mut world = disk.world();
    let mut files = world.bytes().filter(|it| it.0 == number);
    files.next().unwrap().2.clone()
}

/// Puts other bytes into a file.
fn set(disk: &SimDisk, number: u64, bytes: &[u8]) {
    let mut world = disk.world();
    for (file, durable, seen) in world.bytes() {
        if file == number {
            *durable = bytes.to_vec();
            *seen = bytes.to_vec();
        }
    }
}

/// A commit may fail behind its last `fsync`: the end of a file that is to be smaller is cut then.
#[test]
fn commit_that_fails_when_it_is_durable_loses_nothing_behind_it() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    let large = "v".repeat(60_000);
    for number in 0..100 {
        put(&keyed, "t", &format!("{number}"), &large).unwrap();
    }
    put_quick(&keyed, "quick", "1").unwrap();
    let deletions = (0..100).map(|number| Change::Delete {
        table: Arc::from("t"),
        key: Bytes::from(format!("{number}")),
    });
    wait(keyed.write(deletions.collect())).unwrap();
    // It takes along what is in the log, since it has something of the same key.
    disk.world().cut_fails = true;
    let failed = put(&keyed, "t", "quick", "2");
    assert!(matches!(failed, Err(Refusal::NoSpace(_))), "{failed:?}");
    assert!(!disk.world().cut_fails);
    put_quick(&keyed, "quick", "3").unwrap();
    put_quick(&keyed, "other", "4").unwrap();
    disk.kill();
    let keyed = open(&disk);
    assert_eq!(get(&keyed, "t", "quick"), Some("3".to_owned()));
    assert_eq!(get(&keyed, "t", "other"), Some("4".to_owned()));
}

/// Commits what is in the log.
fn take_along(keyed: &Keyed) {
    wait(keyed.scan("t", b"", None, 1)).unwrap();
}

#[test]
fn database_of_a_copy_takes_no_old_frames_for_its_own() {
    for is_made_anew in [false, true] {
        let disk = SimDisk::new(1);
        let keyed = open(&disk);
        put_quick(&keyed, "a", "1").unwrap();
        let copy = seen(&disk, DATABASE);
        for _ in 0..4 {
            put_quick(&keyed, "a", "1").unwrap();
            take_along(&keyed);
        }
        for value in ["0", "1", "2"] {
            put_quick(&keyed, "a", value).unwrap();
        }
        disk.kill();
        let log = seen(&disk, LOG);
        assert!(!log.is_empty());
        match is_made_anew {
            true => {
                disk.replace(vec![(LOG, log.clone())]);
                disk.world().is_made = false;
            }
            false => set(&disk, DATABASE, &copy),
        }
        // As many generations come and go as the frames may be of.
        for _ in 0..12 {
            let keyed = open(&disk);
            put_quick(&keyed, "a", "0").unwrap();
            disk.kill();
            // What an emptied file has after the machine stopped.
            let mut now = seen(&disk, LOG);
            let behind = log.get(now.len()..).unwrap_or_default();
            now.extend_from_slice(behind);
            set(&disk, LOG, &now);
            let keyed = open(&disk);
            assert_eq!(get(&keyed, "t", "a"), Some("0".to_owned()));
            wait(keyed.close());
            disk.kill();
        }
    }
}

#[test]
fn missing_log_is_reported_where_it_may_have_had_something() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    put_quick(&keyed, "a", "1").unwrap();
    take_along(&keyed);
    put_quick(&keyed, "a", "2").unwrap();
    disk.kill();
    let database = seen(&disk, DATABASE);
    let remove_log = |disk: &SimDisk, is_made| {
        disk.replace(vec![(DATABASE, database.clone())]);
        disk.world().is_made = is_made;
    };
    remove_log(&disk, true);
    let error = try_open(&disk).err().unwrap();
    assert!(matches!(error, OpenError::Keyed(..)), "{error}");
    let error = error.to_string();
    assert!(error.contains("data/keyed.log"), "{error}");
    assert!(error.contains("--accept-data-loss"), "{error}");
    // Where loss is accepted.
    remove_log(&disk, false);
    let keyed = open(&disk);
    assert_eq!(get(&keyed, "t", "a"), Some("1".to_owned()));
    put_quick(&keyed, "a", "3").unwrap();
    wait(keyed.close());
    // Behind its end the database has everything.
    let database = seen(&disk, DATABASE);
    disk.replace(vec![(DATABASE, database)]);
    disk.world().is_made = true;
    let keyed = open(&disk);
    assert_eq!(get(&keyed, "t", "a"), Some("3".to_owned()));
}

#[test]
fn earlier_versions_are_read_with_their_log() {
    let frames = [vec![change("t", "a", "2")], vec![change("t", "b", "3")]];
    // Version 3 had no tag, and did not know whether there was a log.
    for (tag, with_log) in [(None, true), (None, false), (Some(17), true)] {
        let disk = SimDisk::new(1);
        let database = crate::disk::Disk::create(&mut disk.clone(), DATABASE).unwrap();
        let changes = [change("t", "a", "1")];
        let mut log = old_folder(database, &changes, (7, tag), &frames);
        // What an earlier generation has left.
        log.extend_from_slice(b"left");
        let mut files = vec![(DATABASE, seen(&disk, DATABASE))];
        if with_log {
            files.push((LOG, log));
        }
        disk.replace(files);
        disk.world().is_made = true;
        let expected = match with_log {
            true => [Some("2".to_owned()), Some("3".to_owned())],
            false => [Some("1".to_owned()), None],
        };
        for _ in 0..2 {
            let keyed = open(&disk);
            let found = ["a", "b"].map(|key| get(&keyed, "t", key));
            assert_eq!(found, expected);
            put_quick(&keyed, "c", "4").unwrap();
            assert_eq!(get(&keyed, "t", "c"), Some("4".to_owned()));
            disk.kill();
        }
    }
}

#[test]
fn what_has_to_outlive_the_process_does_not_wait_for_a_commit() {
    for is_killed in [false, true] {
        let disk = SimDisk::new(1);
        let keyed = open(&disk);
        put_quick(&keyed, "a", "1").unwrap();
        disk.world().is_sync_held = true;
        // It takes along what is in the log.
        let scan = keyed.scan("t", b"", None, 9);
        let mut scan = Box::pin(scan);
        assert!(soon(20, &mut scan).is_none());
        put_quick(&keyed, "a", "2").unwrap();
        put_quick(&keyed, "b", "3").unwrap();
        let found = ["a", "b"].map(|key| get(&keyed, "t", key).unwrap());
        assert_eq!(found, ["2", "3"]);
        // What follows a change that waits, waits too.
        let mut synced = Box::pin(keyed.put("t", bytes("b"), bytes("4")));
        assert!(soon(20, &mut synced).is_none());
        let later = keyed.write_with(vec![change("t", "b", "5")], Durability::Process);
        let mut later = Box::pin(later);
        assert!(soon(20, &mut later).is_none());
        if is_killed {
            disk.kill();
        }
        disk.world().is_sync_held = false;
        let done = (wait(synced).is_ok(), wait(later).is_ok());
        assert_eq!(done, (!is_killed, !is_killed));
        assert_eq!(wait(scan).is_ok(), !is_killed);
        disk.kill();
        let keyed = open(&disk);
        let found = ["a", "b"].map(|key| get(&keyed, "t", key).unwrap());
        let last = if is_killed { "3" } else { "5" };
        assert_eq!(found, ["2", last]);
    }
}

/// What each key may have.
type MayHave = BTreeMap<String, Vec<Option<String>>>;

fn found_of(keyed: &Keyed, may_have: &mut MayHave, seed: u64) {
    for (key, may) in may_have {
        let found = get(keyed, "t", key);
        assert!(may.contains(&found), "{seed}: {key} {found:?} of {may:?}");
        *may = vec![found];
    }
}

/// Writes what has to outlive the process while commits take their time, fail, or fail when they
/// are durable.
#[test]
fn nothing_is_lost_or_comes_back_while_commits_are_under_way() {
    let mut failures = 0;
    for seed in 0..150 {
        let mut random = Rng::with_seed(seed);
        let disk = SimDisk::new(seed + 1);
        let mut may_have = MayHave::new();
        for _ in 0..4 {
            let keyed = open(&disk);
            found_of(&keyed, &mut may_have, seed);
            put_quick(&keyed, "first", "1").unwrap();
            match random.u8(..4) {
                0 => disk.world().write_fails = Some(random.u64(..80)),
                1 => disk.world().cut_fails = true,
                _ => {}
            }
            let mut beside = Vec::new();
            for _ in 0..random.u8(..60) {
                let value = format!("{}{}", random.u64(..), "v".repeat(150));
                match random.u8(..12) {
                    0 => disk.world().is_sync_held = true,
                    1 | 2 => disk.world().is_sync_held = false,
                    3 | 4 => {
                        let (keyed, key) = (keyed.clone(), format!("synced{}", beside.len()));
                        may_have.entry(key.clone()).or_insert(vec![None]);
                        beside.push(thread::spawn(move || {
                            let written = put(&keyed, "t", &key, &value);
                            (key, value, written.is_ok())
                        }));
                    }
                    5 => {
                        let keyed = keyed.clone();
                        drop(thread::spawn(move || wait(keyed.scan("t", b"", None, 9))));
                    }
                    _ => {
                        let key = format!("quick{}", random.u8(..8));
                        let may = may_have.entry(key.clone()).or_insert(vec![None]);
                        may.push(Some(value.clone()));
                        let changes = vec![change("t", &key, &value)];
                        let write = keyed.write_with(changes, Durability::Process);
                        // It waits where a commit has failed and the file is opened again.
                        match soon(300, write) {
                            Some(Ok(())) => {
                                *may = vec![Some(value.clone())];
                                // A file that is opened again makes it wait.
                                let found = soon(300, keyed.get("t", key.as_bytes()));
                                if let Some(Ok(found)) = found {
                                    assert_eq!(found, Some(bytes(&value)), "{seed}: {key}");
                                }
                            }
                            _ => {
                                disk.world().is_sync_held = false;
                                failures += 1;
                            }
                        }
                    }
                }
            }
            if random.u8(..100) < 30 {
                disk.kill();
            }
            disk.world().is_sync_held = false;
            for written in beside {
                let (key, value, is_ok) = written.join().unwrap();
                let may = may_have.get_mut(&key).unwrap();
                if is_ok {
                    may.clear();
                }
                may.push(Some(value));
            }
            match random.bool() {
                true => wait(keyed.close()),
                false => drop(keyed),
            }
            disk.kill();
            disk.world().cut_fails = false;
        }
        found_of(&open(&disk), &mut may_have, seed);
    }
    println!("{failures} failures");
}

/// The power goes at any time, also during a commit: of what has to outlive the process the oldest
/// changes are there, up to some point, and all that a commit has taken along.
#[test]
fn oldest_changes_outlive_the_machine_without_a_gap() {
    let (mut all, mut lost) = (0, 0);
    for seed in 0..150 {
        let mut random = Rng::with_seed(seed);
        let disk = SimDisk::new(seed + 1);
        let keyed = open(&disk);
        // What comes first waits for the disk.
        put_quick(&keyed, "0", "").unwrap();
        let (mut written, mut committed) = (1, 0);
        let mut commit = None;
        for _ in 0..random.u8(1..=50) {
            match random.u8(..8) {
                0 if commit.is_none() => {
                    disk.world().is_sync_held = true;
                    let mut scan = Box::pin(keyed.scan("t", b"", None, 1));
                    match soon(2, &mut scan) {
                        // The database had everything.
                        Some(found) => drop(found.unwrap()),
                        None => commit = Some((scan, written)),
                    }
                }
                1 => {
                    disk.world().is_sync_held = false;
                    if let Some((scan, taken)) = commit.take() {
                        wait(scan).unwrap();
                        committed = taken;
                    }
                }
                _ => {
                    let value = "v".repeat(random.usize(..200));
                    put_quick(&keyed, &format!("{written}"), &value).unwrap();
                    written += 1;
                }
            }
        }
        disk.crash();
        disk.world().is_sync_held = false;
        drop(commit);
        drop(keyed);
        let keyed = open(&disk);
        let is_there = |number: &usize| get(&keyed, "t", &format!("{number}")).is_some();
        let found = (0..written).take_while(is_there).count();
        assert!(found >= committed, "{seed}: {found} of {committed}");
        let later = (found..written).find(is_there);
        assert_eq!(later, None, "{seed}: {found} of {written}");
        all += usize::from(found == written);
        lost += usize::from(found < written);
    }
    assert!(all > 10 && lost > 10, "{all} {lost}");
}

#[test]
fn log_is_bounded_while_no_commit_succeeds() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    put_quick(&keyed, "first", "1").unwrap();
    disk.world().broken = Some(DATABASE);
    let value = "v".repeat(1000);
    let mut kept = 0;
    let refused = loop {
        match put_quick(&keyed, &format!("{kept}"), &value) {
            Ok(()) => kept += 1,
            Err(refused) => break refused,
        }
        assert!(kept < 1000);
    };
    assert!(matches!(refused, Refusal::NoSpace(_)), "{refused}");
    assert!(kept > 0, "{kept}");
    let sizes = [LOG, LOG + 1].map(|it| seen(&disk, it).len());
    assert!(sizes.iter().sum::<usize>() < 100_000, "{sizes:?}");
    disk.world().broken = None;
    put_quick(&keyed, "last", "2").unwrap();
    disk.kill();
    let keyed = open(&disk);
    assert_eq!(get(&keyed, "t", "last"), Some("2".to_owned()));
    for number in 0..kept {
        assert_eq!(get(&keyed, "t", &format!("{number}")), Some(value.clone()));
    }
}

#[test]
fn log_is_bounded_while_the_disk_is_slow() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    put_quick(&keyed, "first", "1").unwrap();
    disk.world().is_sync_held = true;
    let value = "v".repeat(1000);
    let mut kept = 0;
    let write = |number: usize| {
        let changes = vec![change("t", &format!("{number}"), &value)];
        Box::pin(keyed.write_with(changes, Durability::Process))
    };
    let mut waiting = loop {
        let mut written = write(kept);
        match soon(50, &mut written) {
            Some(written) => written.unwrap(),
            None => break written,
        }
        kept += 1;
        assert!(kept < 1000);
    };
    assert!(kept > 20, "{kept}");
    let sizes = [LOG, LOG + 1].map(|it| seen(&disk, it).len());
    assert!(sizes.iter().sum::<usize>() < 100_000, "{sizes:?}");
    disk.world().is_sync_held = false;
    wait(&mut waiting).unwrap();
    wait(write(kept + 1)).unwrap();
    disk.kill();
    let keyed = open(&disk);
    for number in 0..kept + 2 {
        assert_eq!(get(&keyed, "t", &format!("{number}")), Some(value.clone()));
    }
}

#[test]
fn log_comes_into_use_though_there_is_always_a_commit() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    let hold = |is_held| disk.world().is_sync_held = is_held;
    hold(true);
    let mut synced = Box::pin(keyed.put("t", bytes("a"), bytes("1")));
    assert!(soon(20, &mut synced).is_none());
    let quick = keyed.write_with(vec![change("t", "b", "2")], Durability::Process);
    let mut quick = Box::pin(quick);
    assert!(soon(20, &mut quick).is_none());
    hold(false);
    wait(quick).unwrap();
    wait(synced).unwrap();
    hold(true);
    let mut synced = Box::pin(keyed.put("t", bytes("a"), bytes("3")));
    assert!(soon(20, &mut synced).is_none());
    put_quick(&keyed, "b", "4").unwrap();
    hold(false);
    wait(synced).unwrap();
    disk.kill();
    let keyed = open(&disk);
    assert_eq!(get(&keyed, "t", "b"), Some("4".to_owned()));
}

#[test]
fn log_is_emptied_behind_a_change_that_could_not_be_written() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    put_quick(&keyed, "a", "1").unwrap();
    disk.world().write_fails = Some(0);
    assert!(put_quick(&keyed, "b", "2").is_err());
    take_along(&keyed);
    put_quick(&keyed, "c", "3").unwrap();
    let sizes = [LOG, LOG + 1].map(|it| seen(&disk, it).len());
    assert!(sizes.iter().sum::<usize>() < 50, "{sizes:?}");
    disk.kill();
    let keyed = open(&disk);
    let found = ["a", "c"].map(|key| get(&keyed, "t", key).unwrap());
    assert_eq!(found, ["1", "3"]);
}

#[test]
fn library_that_panics_ends_all_writing_until_a_restart() {
    let disk = SimDisk::new(1);
    let keyed = open(&disk);
    put_quick(&keyed, "a", "1").unwrap();
    disk.world().write_panics = true;
    assert!(put(&keyed, "t", "b", "2").is_err());
    assert!(keyed.has_failed());
    disk.world().write_panics = false;
    assert!(put(&keyed, "t", "b", "3").is_err());
    assert!(put_quick(&keyed, "a", "4").is_err());
    wait(keyed.close());
    disk.kill();
    let keyed = open(&disk);
    assert_eq!(get(&keyed, "t", "a"), Some("1".to_owned()));
}
