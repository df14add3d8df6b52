//! Data folders: one lock for all that is in one, formats that are told apart, and folders that
//! earlier versions have written.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::streams::{ALL, append, declare, texts};
use super::waiting::wait;
use crate::{DataFolder, Keyed, OpenError, Options, Order, Outbox, Settle, StreamOptions, Streams};

/// How many bytes a small file of `redb` has, and how many of them are kept with the tests from its
/// beginning; the rest is from its end, and between are zeros.
const KEYED: (usize, usize) = (258 * 4096, 8 * 4096);

/// An empty folder for a test, removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let name = format!("intertie-journal-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // One of a run that was killed.
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    /// A copy of a folder that is kept with the tests.
    fn copy(name: &str) -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("testdata")
            .join(name);
        let to = Self::new(name);
        copy(&from, &to.0);
        let keyed = to.0.join("keyed.redb");
        if let Ok(parts) = fs::read(&keyed) {
            let mut whole = vec![0; KEYED.0];
            whole[..KEYED.1].copy_from_slice(&parts[..KEYED.1]);
            let last = KEYED.0 - (parts.len() - KEYED.1);
            whole[last..].copy_from_slice(&parts[KEYED.1..]);
            fs::write(keyed, whole).unwrap();
        }
        to
    }

    /// What the file `format` names.
    fn parts(&self) -> String {
        let text = self.format();
        let rest = text.strip_prefix("intertie data folder, format 2\n");
        let (parts, _) = rest.unwrap().split_once("checksum ").unwrap();
        parts.to_owned()
    }

    fn format(&self) -> String {
        fs::read_to_string(self.0.join("format")).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn streams(folder: &DataFolder) -> Streams {
    Streams::open(folder.topics().unwrap(), StreamOptions::default()).unwrap()
}

fn outbox(folder: &DataFolder) -> Outbox {
    Outbox::open(folder.store().unwrap(), Options::default()).unwrap()
}

#[test]
fn all_that_is_in_a_folder_has_one_lock() {
    let path = Temporary::new("lock");
    let folder = DataFolder::take(&path.0).unwrap();
    assert_eq!(path.parts(), "");
    let store = outbox(&folder);
    assert_eq!(path.parts(), "store 2\n");
    let topics = streams(&folder);
    let keyed = Keyed::open(folder.keyed().unwrap()).unwrap();
    assert_eq!(path.parts(), "store 2\ntopics 2\nkeyed 5\n");
    let in_use = |error: Option<OpenError>| matches!(error, Some(OpenError::InUse(..)));
    assert!(in_use(folder.store().err()));
    assert!(in_use(folder.topics().err()));
    assert!(in_use(folder.keyed().err()));
    drop(folder);
    store.close();
    wait(topics.close());
    assert!(
        in_use(DataFolder::take(&path.0).err()),
        "keyed state is still open"
    );
    wait(keyed.close());
    drop(keyed);
    let folder = DataFolder::take(&path.0).unwrap();
    let topics = streams(&folder);
    wait(topics.close());
    // What is closed can be opened again.
    wait(streams(&folder).close());
}

#[test]
fn folders_of_other_versions_are_refused() {
    let refused = |format: &str, expected: &str| {
        let path = Temporary::new("other");
        fs::create_dir(&path.0).unwrap();
        fs::write(path.0.join("format"), format).unwrap();
        let error = DataFolder::take(&path.0).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(path.format(), format);
    };
    let other = "another version of intertie";
    refused(&checked("intertie data folder, format 3\n"), other);
    refused(&checked("something else\n"), other);
    refused(&checked("intertie data folder, format 2\nstore\n"), other);
    refused(&checked("intertie data folder, format 2\nstore x\n"), other);
    refused(
        &checked("intertie data folder, format 2\nstore 1\ntopics 3\n"),
        "`topics` in version 3",
    );
    let unknown = checked("intertie data folder, format 2\nsessions 1\n");
    refused(&unknown, "`sessions`");
    refused("", "is empty");
    let cut = "cut off";
    refused("intertie data folder, format 2\nstore 2\n", cut);
    refused("intertie data folder, format 3\n", cut);
    let text = "intertie data folder, format 2\nstore 2\nchecksum 00000000\n";
    refused(text, "is damaged");
    let path = Temporary::new("none");
    fs::create_dir_all(path.0.join("topics")).unwrap();
    let error = DataFolder::take(&path.0).err().unwrap().to_string();
    assert!(error.contains("`format` is missing"), "{error}");
}

/// Lines with their checksum behind them.
fn checked(lines: &str) -> String {
    format!("{lines}checksum {:08x}\n", crate::crc::of(lines.as_bytes()))
}

/// A file `format` that is cut or has another bit is never taken for one of another version, and
/// never for a whole one.
#[test]
fn a_damaged_format_is_no_other_version() {
    let path = Temporary::new("damaged-format");
    fs::create_dir(&path.0).unwrap();
    let take = |bytes: &[u8]| {
        fs::write(path.0.join("format"), bytes).unwrap();
        DataFolder::take(&path.0).err().map(|it| it.to_string())
    };
    let is_named = |error: &Option<String>| {
        let error = error.as_deref().unwrap_or_default();
        ["damaged", "empty", "cut off"]
            .iter()
            .any(|it| error.contains(it))
            && !error.contains("version")
    };
    let first = "intertie data folder, format 1\n";
    let second = "intertie data folder, format 2\n";
    for whole in [
        checked(&format!("{second}store 2\ntopics 2\nkeyed 2\n")),
        checked(second),
        format!("{second}topics 1\n"),
        first.to_owned(),
    ] {
        assert_eq!(take(whole.as_bytes()), None);
        for size in 0..whole.len() {
            let error = take(&whole.as_bytes()[..size]);
            assert!(is_named(&error), "{whole:?} cut at {size}: {error:?}");
        }
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = take(&bytes);
            assert!(is_named(&error), "{whole:?}, bit {bit}: {error:?}");
        }
    }
}

/// Whoever accepts a loss gets a folder whose `format` is gone or damaged, with all that is there;
/// one of another version nobody gets.
#[test]
fn a_damaged_format_can_be_accepted() {
    let path = Temporary::new("accepted-format");
    fill(&path.0);
    for bytes in [
        None,
        Some(""),
        Some("intertie data folder, format 2\ntopicz 2\n"),
    ] {
        match bytes {
            None => fs::remove_file(path.0.join("format")).unwrap(),
            Some(bytes) => fs::write(path.0.join("format"), bytes).unwrap(),
        }
        assert!(DataFolder::take(&path.0).is_err());
        let folder = DataFolder::take_accepting_loss(&path.0).unwrap();
        let topics = streams(&folder);
        assert_eq!(topics.find("prices").unwrap().next, 21);
        wait(topics.close());
        drop(folder);
        assert!(DataFolder::take(&path.0).is_ok());
        assert_eq!(path.parts(), "topics 2\n");
    }
    let other = checked("intertie data folder, format 3\n");
    fs::write(path.0.join("format"), other).unwrap();
    assert!(DataFolder::take_accepting_loss(&path.0).is_err());
}

/// `testdata/store-1` was written by the version before there were topics: ten messages, in files
/// of 1 KiB. One of them is done, one was put back, one is dead, one was dead and is not.
#[test]
fn a_folder_of_the_version_before_topics_is_read() {
    let path = Temporary::copy("store-1");
    let folder = DataFolder::take(&path.0).unwrap();
    let store = outbox(&folder);
    let text = |number: usize| format!("order {number} {}", "x".repeat(60 * number));
    let dead = wait(store.list("orders", true)).unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].dead.as_deref(), Some("no such customer"));
    let (_, body) = wait(store.read("orders", dead[0].id)).unwrap();
    assert_eq!(body, text(2));
    let mut bodies = Vec::new();
    let mut attempts = Vec::new();
    while bodies.len() < 7 {
        for delivery in wait(store.take("orders", Order::None, 9)).unwrap() {
            bodies.push(delivery.body.clone().unwrap());
            attempts.push(delivery.attempts);
            wait(delivery.settle(Settle::Done)).unwrap();
        }
    }
    bodies.sort();
    let expected = [1, 3, 4, 5, 6, 7, 8].map(text);
    assert_eq!(bodies, expected);
    assert_eq!(attempts.iter().sum::<u32>(), 1);
    assert_eq!(store.stats("mails").waiting, 1);
    // It is as good a folder as any other from here on.
    let topics = streams(&folder);
    declare(&topics, "prices", ALL);
    append(&topics, "prices", 1, "first").unwrap();
    assert_eq!(path.parts(), "store 2\ntopics 2\n");
    wait(topics.close());
    store.close();
    drop(folder);
    let folder = DataFolder::take(&path.0).unwrap();
    assert_eq!(texts(&streams(&folder), "prices"), ["first"]);
}

/// What `testdata/topics-1` has, written with files of 1 KiB by the test below.
fn fill(path: &Path) {
    let folder = DataFolder::take(path).unwrap();
    let options = StreamOptions {
        segment_max: 1024,
        ..StreamOptions::default()
    };
    let topics = Streams::open(folder.topics().unwrap(), options).unwrap();
    let keyed = Keyed::open(folder.keyed().unwrap()).unwrap();
    declare(&topics, "prices", ALL);
    declare(&topics, "gone", ALL);
    declare(&topics, "empty", ALL);
    declare(&topics, "few", crate::Keep { events: 3, ..ALL });
    for number in 1..=20 {
        let mut new = super::streams::entry("prices", number, &price(number));
        new.at_ms = 1_700_000_000_000 + number;
        new.kind = u8::from(number % 5 == 1);
        new.key = Bytes::from(format!("key {number}"));
        let few = super::streams::entry("few", number, &format!("few {number}"));
        wait(topics.append(vec![new, few])).unwrap();
    }
    append(&topics, "gone", 1, "gone").unwrap();
    wait(topics.remove("gone")).unwrap();
    wait(keyed.put("cursors", Bytes::from("a"), Bytes::from("17"))).unwrap();
    wait(topics.close());
    wait(keyed.close());
}

fn price(number: u64) -> String {
    format!(
        "{{\"price\":{number},\"of\":\"{}\"}}",
        "p".repeat(number as usize * 5)
    )
}

#[test]
#[ignore = "writes testdata/topics-1, which later versions have to read"]
fn write_testdata() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/topics-1");
    fs::create_dir(&path).unwrap();
    fill(&path);
    for name in ["lock", "topics/reserve"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    let keyed = fs::read(path.join("keyed.redb")).unwrap();
    let (start, rest) = keyed.split_at(KEYED.1);
    let end = rest.len() - 4096;
    assert!(keyed.len() == KEYED.0 && rest[..end].iter().all(|byte| *byte == 0));
    fs::write(path.join("keyed.redb"), [start, &rest[end..]].concat()).unwrap();
}

#[test]
fn a_folder_of_the_first_version_with_topics_is_read() {
    let path = Temporary::copy("topics-1");
    check(&path);
    // And so is one that is written now.
    let path = Temporary::new("topics-now");
    fill(&path.0);
    check(&path);
}

fn check(path: &Temporary) {
    let folder = DataFolder::take(&path.0).unwrap();
    let topics = streams(&folder);
    let info = topics.find("prices").unwrap();
    assert_eq!((info.first, info.next), (1, 21));
    assert!(topics.stats().files > 3, "there are indexes");
    let entries = topics.read("prices", 1, usize::MAX).unwrap();
    for (entry, number) in entries.iter().zip(1..) {
        assert_eq!(entry.sequence, number);
        assert_eq!(entry.at_ms, 1_700_000_000_000 + number);
        assert_eq!(entry.kind, u8::from(number % 5 == 1));
        assert_eq!(entry.key, format!("key {number}"));
        assert_eq!(entry.body, price(number));
    }
    assert_eq!(entries.len(), 20);
    assert_eq!(topics.last_of_kind("prices", 1, 15), Ok(Some(11)));
    assert_eq!(topics.keys("prices", 1_700_000_000_019).unwrap().len(), 2);
    assert_eq!(topics.find("gone"), None);
    assert_eq!(topics.find("empty").unwrap().next, 1);
    assert_eq!(texts(&topics, "few").last().unwrap(), "few 20");
    append(&topics, "prices", 21, "goes on").unwrap();
    let keyed = Keyed::open(folder.keyed().unwrap()).unwrap();
    assert_eq!(
        wait(keyed.get("cursors", b"a")),
        Ok(Some(Bytes::from("17")))
    );
}

/// A database has holes. To write them again would take space, and on a full disk there is none: a
/// start would be refused there.
#[test]
fn holes_of_a_file_take_no_space_when_it_is_written_again() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let path = Temporary::new("holes");
    fs::create_dir(&path.0).unwrap();
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).write(true).create_new(true);
    let file = options.open(path.0.join("file")).unwrap();
    file.set_len(8 << 20).unwrap();
    file.write_all_at(b"data", (5 << 20) + 4094).unwrap();
    file.sync_all().unwrap();
    let blocks = || file.metadata().unwrap().blocks();
    let before = (blocks(), fs::read(path.0.join("file")).unwrap());
    crate::log::write_again(&file, 8 << 20).unwrap();
    assert!(
        before == (blocks(), fs::read(path.0.join("file")).unwrap()),
        "{}",
        blocks()
    );
}

/// What the file system has of a folder that is stopped, one file after the other: removed, emptied
/// and cut.
#[test]
fn whatever_is_missing_of_a_folder_is_told() {
    let start = |path: &Path| -> Result<(), OpenError> {
        let folder = DataFolder::take(path)?;
        let store = Outbox::open(folder.store()?, Options::default())?;
        store.close();
        let topics = Streams::open(folder.topics()?, StreamOptions::default())?;
        wait(topics.close());
        wait(Keyed::open(folder.keyed()?)?.close());
        Ok(())
    };
    let fill = |path: &Path| {
        fill(path);
        let folder = DataFolder::take(path).unwrap();
        let store = outbox(&folder);
        let room = super::crash::ROOM;
        wait(store.append("q", Bytes::new(), Bytes::from("message"), room)).unwrap();
        store.close();
    };
    let whole = Temporary::new("whole");
    fill(&whole.0);
    let mut files = vec!["format".to_owned(), "keyed.redb".to_owned()];
    for part in ["store", "topics"] {
        for entry in fs::read_dir(whole.0.join(part)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            files.push(format!("{part}/{name}"));
        }
    }
    files.retain(|it| !it.ends_with("reserve"));
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        for left in [None, Some(0), Some(30), Some(50)] {
            let path = Temporary::new("part");
            copy(&whole.0, &path.0);
            match left {
                None => fs::remove_file(path.0.join(&file)).unwrap(),
                Some(size) => {
                    let file = fs::OpenOptions::new().write(true).open(path.0.join(&file));
                    file.unwrap().set_len(size).unwrap();
                }
            }
            let started = start(&path.0);
            let why = started.err().map(|error| error.to_string());
            assert!(why.is_some(), "{file}, {left:?}");
        }
    }
    for part in ["store", "topics"] {
        let path = Temporary::new("part");
        copy(&whole.0, &path.0);
        fs::remove_dir_all(path.0.join(part)).unwrap();
        assert!(matches!(start(&path.0), Err(OpenError::Manifest(..))));
    }
    start(&whole.0).unwrap();
}
