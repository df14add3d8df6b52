//! What every store does: the same tests for each.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ::journal::{DataFolder, StreamOptions, Streams};

use super::journal::JournalStore;
use super::memory::{MemoryStore, now_ms};
use super::*;

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("intertie-topics-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self) -> JournalStore {
        let disk = DataFolder::take(&self.0).unwrap().topics().unwrap();
        JournalStore::new(Streams::open(disk, StreamOptions::default()).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn record(sequence: u64, body: &str) -> Record {
    Record {
        sequence,
        at_ms: now_ms(),
        kind: RecordKind::Event,
        key: Bytes::new(),
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

fn named(topic: &str, records: Vec<Record>) -> Vec<(Arc<str>, Record)> {
    let topic: Arc<str> = topic.into();
    records
        .into_iter()
        .map(|it| (Arc::clone(&topic), it))
        .collect()
}

async fn keeps_what_is_appended(store: &dyn Store) {
    let made = store.declare("a", Keep::default().into()).await.unwrap();
    assert_eq!((made.first, made.next, made.bytes), (1, 1, 0));
    assert_ne!(made.epoch, 0);
    assert_eq!(store.find("a"), Some(made));
    assert_eq!(store.find("b"), None);
    let mut records = vec![record(1, "one"), record(2, "two"), record(3, "three")];
    records[1].kind = RecordKind::Whole;
    records[1].key = Bytes::from_static(b"key");
    store.append(named("a", records.clone())).await.unwrap();
    assert_eq!(store.read("a", 1, 1 << 20).unwrap(), records);
    assert_eq!(store.read("a", 3, 1 << 20).unwrap(), records[2..]);
    assert_eq!(store.read("a", 1, 1).unwrap(), records[..1]);
    assert_eq!(store.read("a", 4, 100).unwrap(), []);
    let found = store.find("a").unwrap();
    assert_eq!((found.epoch, found.first, found.next), (made.epoch, 1, 4));
    assert_eq!(
        store.keys("a", 0).unwrap(),
        [(Bytes::from_static(b"key"), 2)]
    );
    assert_eq!(store.keys("a", now_ms() + 60_000).unwrap(), []);
    let last = |kind, at_most| store.last_of_kind("a", kind, at_most).unwrap();
    assert_eq!(last(RecordKind::Whole, 3), Some(2));
    assert_eq!(last(RecordKind::Whole, 1), None);
    assert_eq!(last(RecordKind::Event, 9), Some(3));
}

async fn topics_are_apart(store: &dyn Store) {
    for topic in ["a", "b"] {
        store.declare(topic, Keep::default().into()).await.unwrap();
    }
    let both = [
        named("a", vec![record(1, "a1")]),
        named("b", vec![record(1, "b1")]),
    ]
    .concat();
    store.append(both).await.unwrap();
    store
        .append(named("b", vec![record(2, "b2")]))
        .await
        .unwrap();
    let numbers = |topic| store.find(topic).map(|it| (it.first, it.next));
    assert_eq!((numbers("a"), numbers("b")), (Some((1, 2)), Some((1, 3))));
    let epoch = store.find("a").unwrap().epoch;
    store.remove("a").await.unwrap();
    assert_eq!(numbers("a"), None);
    let again = store.declare("a", Keep::default().into()).await.unwrap();
    assert_eq!((again.first, again.next), (1, 1));
    assert_ne!(again.epoch, epoch);
    assert!(store.append(named("c", vec![record(1, "")])).await.is_err());
}

async fn only_as_much_is_kept_as_is_said(store: &dyn Store) {
    let keep = |events, bytes, time| Kept {
        from: u64::MAX,
        events,
        bytes,
        time,
    };
    let append = async |topic: &str, from: u64, to: u64| {
        for number in from..=to {
            let records = named(topic, vec![record(number, &"x".repeat(1000))]);
            store.append(records).await.unwrap();
        }
        store.find(topic).map(|it| (it.first, it.next))
    };
    store
        .declare("count", keep(3, 1 << 30, None))
        .await
        .unwrap();
    assert_eq!(append("count", 1, 10).await, Some((8, 11)));
    assert_eq!(store.read("count", 7, 100), Err(StoreError::Gone(8)));
    store
        .declare("count", keep(1, 1 << 30, None))
        .await
        .unwrap();
    assert_eq!(append("count", 11, 12).await, Some((12, 13)));
    store.declare("size", keep(100, 5000, None)).await.unwrap();
    let (first, next) = append("size", 1, 20).await.unwrap();
    assert!((16..=18).contains(&first) && next == 21, "{first}");
    let second = Some(Duration::from_secs(1));
    store
        .declare("time", keep(100, 1 << 30, second))
        .await
        .unwrap();
    append("time", 1, 2).await;
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while store.find("time").unwrap().first < 2 {
        assert!(std::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(append("time", 3, 3).await.unwrap().1, 4);
}

#[tokio::test]
async fn in_memory() {
    let store = MemoryStore::default();
    keeps_what_is_appended(&store).await;
    topics_are_apart(&MemoryStore::default()).await;
    only_as_much_is_kept_as_is_said(&store).await;
}

#[tokio::test]
async fn on_the_disk() {
    let folder = Folder::new();
    let store = folder.open();
    keeps_what_is_appended(&store).await;
    only_as_much_is_kept_as_is_said(&store).await;
    let other = Folder::new();
    topics_are_apart(&other.open()).await;
    // What is there outlives the process.
    let before = store.find("a").unwrap();
    let records = store.read("a", 1, 1 << 20).unwrap();
    store.close().await.unwrap();
    assert!(matches!(
        store.append(named("a", records.clone())).await,
        Err(StoreError::Broken(_))
    ));
    drop(store);
    let store = folder.open();
    let found = store.declare("a", Keep::default().into()).await.unwrap();
    // What comes is of another epoch.
    assert_ne!(found.epoch, before.epoch);
    assert_eq!(store.epochs("a").of(3), before.epoch);
    let epoch = before.epoch;
    assert_eq!(Found { epoch, ..found }, before);
    assert_eq!(store.read("a", 1, 1 << 20).unwrap(), records);
}
