//! Topics on a disk that is slow or takes nothing: a store that a test holds up.

use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use message::Fault;

use super::*;
use crate::store::memory::MemoryStore;
use crate::store::{Answer, Found, Kept, Record, RecordKind, Store, StoreError};
use crate::topic::Receipt;

/// A store that appends when it is told to, or says that it does not.
#[derive(Default)]
struct Slow {
    store: MemoryStore,
    gate: Arc<Mutex<Gate>>,
    /// How many declarations it takes at once: it answers none of them before all are there.
    together: usize,
}

#[derive(Default)]
struct Gate {
    is_closed: bool,
    error: Option<StoreError>,
    waker: Option<Waker>,
    appends: usize,
    declared: usize,
    declaring: Vec<Waker>,
    /// How often it panics when it is asked for the newest record of a kind.
    panics: usize,
}

impl Slow {
    fn close_gate(&self) {
        self.gate.lock().unwrap().is_closed = true;
    }

    fn open_gate(&self, error: Option<StoreError>) {
        let mut gate = self.gate.lock().unwrap();
        gate.is_closed = false;
        gate.error = error;
        if let Some(waker) = gate.waker.take() {
            waker.wake();
        }
    }
}

impl Store for Arc<Slow> {
    fn declare(&self, topic: &str, keep: Kept) -> Answer<Found> {
        let mut declared = self.store.declare(topic, keep);
        let (store, mut number) = (Arc::clone(self), None);
        Box::pin(poll_fn(move |context| {
            let mut gate = store.gate.lock().unwrap();
            let number = *number.get_or_insert_with(|| {
                gate.declared += 1;
                gate.declared
            });
            if gate.declared < number.next_multiple_of(store.together.max(1)) {
                gate.declaring.push(context.waker().clone());
                return Poll::Pending;
            }
            gate.declaring.drain(..).for_each(Waker::wake);
            drop(gate);
            declared.as_mut().poll(context)
        }))
    }

    fn find(&self, topic: &str) -> Option<Found> {
        self.store.find(topic)
    }

    fn append(&self, records: Vec<(Arc<str>, Record)>) -> Answer<()> {
        let store = Arc::clone(self);
        let mut records = Some(records);
        Box::pin(poll_fn(move |context| {
            let mut gate = store.gate.lock().unwrap();
            if gate.is_closed {
                gate.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            gate.appends += 1;
            if let Some(error) = gate.error.clone() {
                return Poll::Ready(Err(error));
            }
            drop(gate);
            let mut appended = store.store.append(records.take().unwrap());
            appended.as_mut().poll(context)
        }))
    }

    fn read(&self, topic: &str, from: u64, bytes: usize) -> Result<Vec<Record>, StoreError> {
        self.store.read(topic, from, bytes)
    }

    fn last_of_kind(
        &self,
        topic: &str,
        kind: RecordKind,
        at_most: u64,
    ) -> Result<Option<u64>, StoreError> {
        let mut gate = self.gate.lock().unwrap();
        let panics = gate.panics > 0;
        gate.panics = gate.panics.saturating_sub(1);
        drop(gate);
        assert!(!panics, "on purpose");
        self.store.last_of_kind(topic, kind, at_most)
    }

    fn keys(&self, topic: &str, since: u64) -> Result<Vec<(Bytes, u64)>, StoreError> {
        self.store.keys(topic, since)
    }

    fn remove(&self, topic: &str) -> Answer<()> {
        self.store.remove(topic)
    }

    fn close(&self) -> Answer<()> {
        self.store.close()
    }
}

/// A topic on a disk that the test holds up, and one in memory.
async fn topics(payload: Payload) -> (Arc<Slow>, Arc<Topic>, Arc<Topic>) {
    let states = States::default();
    let (hub, slow) = (Hub::of(&states), Arc::new(Slow::default()));
    hub.set_store(Arc::new(Arc::clone(&slow)));
    let settings = Settings {
        payload,
        ..Settings::default()
    };
    let on_disk = hub.declare("disk", settings, &states);
    let memory = Settings {
        durability: Durability::Memory,
        ..settings
    };
    let in_memory = hub.declare("memory", memory, &states);
    hub.open().await.unwrap();
    (slow, on_disk, in_memory)
}

/// Lets everybody else go on.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn nobody_sees_what_is_not_durable_and_memory_does_not_wait() {
    let (slow, topic, memory) = topics(Payload::Event).await;
    let mut attached = topic.attach().await.unwrap();
    slow.close_gate();
    let publishing = |publication| {
        let topic = Arc::clone(&topic);
        tokio::spawn(async move { topic.publish(publication).await })
    };
    let first = publishing(keyed("1", "a"));
    pause().await;
    let others: Vec<_> = (2..50)
        .map(|it| publishing(publication(&it.to_string())))
        .collect();
    pause().await;
    assert!(!first.is_finished());
    assert_eq!(topic.attach().await.unwrap().next.sequence, 1);
    assert_eq!(publish(&memory, "1").await, (1, true));
    slow.open_gate(None);
    let first = first.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert_eq!((first.id.sequence, first.is_new), (1, true));
    assert_eq!(take(&mut attached.mailbox, 49).await.len(), 49);
    assert!(
        slow.gate.lock().unwrap().appends <= 3,
        "what waits goes together"
    );
}

#[tokio::test]
async fn a_key_that_comes_again_while_the_first_is_under_way_gets_its_receipt() {
    let (slow, topic, _) = topics(Payload::Event).await;
    slow.close_gate();
    let publishing = |body| {
        let topic = Arc::clone(&topic);
        tokio::spawn(async move { topic.publish(keyed(body, "a")).await })
    };
    let (first, second) = (publishing("1"), publishing("1"));
    pause().await;
    let (third, other) = (publishing("1"), publishing("2"));
    pause().await;
    slow.open_gate(None);
    let done = |it: Result<Result<Receipt, Fault>, _>| it.unwrap().unwrap();
    let (first, second) = (done(first.await), done(second.await));
    assert_eq!(first.id, second.id);
    assert_ne!(first.is_new, second.is_new);
    assert!(!done(third.await).is_new);
    assert_eq!(other.await.unwrap().unwrap_err().status, 422);
}

#[tokio::test]
async fn what_the_disk_does_not_take_has_never_been() {
    let (slow, topic, _) = topics(Payload::Snapshot).await;
    let pad = "x".repeat(200);
    let body = |value: u64| format!("{{\"pad\":\"{pad}\",\"v\":{value}}}");
    assert_eq!(publish(&topic, &body(1)).await, (1, true));
    let mut attached = topic.attach().await.unwrap();
    slow.open_gate(Some(StoreError::Full(
        "no space on /secret/folder".to_owned(),
    )));
    for _ in 0..3 {
        let fault = topic.publish(keyed(&body(2), "k")).await.unwrap_err();
        assert_eq!(
            (fault.status, &*fault.detail),
            (503, "the topic takes nothing now")
        );
        assert!(fault.retry_after.is_some());
        assert!(fault.cause.unwrap().contains("topic disk"));
    }
    // What changes nothing has nothing to wait for.
    assert_eq!(publish(&topic, &body(1)).await, (1, false));
    slow.open_gate(None);
    let receipt = topic.publish(keyed(&body(3), "k")).await.unwrap();
    assert_eq!((receipt.id.sequence, receipt.is_new), (2, true));
    let events = take(&mut attached.mailbox, 1).await;
    let expected = format!(
        "{} by [{{\"op\":\"replace\",\"path\":\"/v\",\"value\":3}}]",
        body(3)
    );
    assert_eq!(texts(&events), [expected]);
    let slot = topic.slot();
    let refused = &slot.counts.refused;
    assert_eq!(refused.load(std::sync::atomic::Ordering::Relaxed), 3);
}

#[tokio::test]
async fn too_much_that_waits_is_refused() {
    let (slow, topic, memory) = topics(Payload::Event).await;
    slow.close_gate();
    let body = format!("\"{}\"", "x".repeat((1 << 20) - 10));
    let tasks: Vec<_> = (0..80)
        .map(|_| {
            let (topic, body) = (Arc::clone(&topic), body.clone());
            tokio::spawn(async move { topic.publish(publication(&body)).await })
        })
        .collect();
    for _ in 0..5 {
        pause().await;
    }
    slow.open_gate(None);
    let mut refused = 0;
    for task in tasks {
        if let Err(fault) = task.await.unwrap() {
            assert_eq!(
                (fault.status, &*fault.detail),
                (503, "too much waits to be published")
            );
            refused += 1;
        }
    }
    assert!((5..40).contains(&refused), "{refused}");
    publish(&memory, "1").await;
    // There is room again.
    publish(&topic, "1").await;
}

/// Settings of a topic of events.
fn events_in(durability: Durability, keep_events: u64) -> Settings {
    Settings {
        payload: Payload::Event,
        durability,
        keep: Keep {
            events: keep_events,
            ..Keep::default()
        },
        ..Settings::default()
    }
}

/// Topics that are served, with three events each and one who gets more.
struct Served {
    hub: Arc<Hub>,
    states: States,
    topics: Vec<(Arc<Topic>, Mailbox)>,
}

impl Served {
    async fn start() -> Self {
        let states = States::default();
        let hub = Hub::of(&states);
        hub.set_store(Arc::new(Arc::new(Slow::default())));
        let mut topics = Vec::new();
        let all = [
            ("cut", Durability::Disk),
            ("cut in memory", Durability::Memory),
            ("other", Durability::Memory),
            ("refused", Durability::Disk),
        ];
        let declared = all.map(|(name, it)| hub.declare(name, events_in(it, 10), &states));
        hub.open().await.unwrap();
        for topic in declared {
            let mailbox = topic.attach().await.unwrap().mailbox;
            topics.push((topic, mailbox));
        }
        let mut served = Self {
            hub,
            states,
            topics,
        };
        served.publish(["1", "2", "3"]).await;
        served
    }

    async fn publish(&mut self, bodies: [&str; 3]) {
        for (topic, mailbox) in &mut self.topics {
            for body in bodies {
                publish(topic, body).await;
            }
            assert_eq!(texts(&take(mailbox, 3).await), bodies, "{}", topic.name());
        }
    }

    /// What an edit says: less is kept, and another payload. The last one as is said.
    fn edit(&self, states: &States, last: Durability) -> Vec<Arc<Topic>> {
        let other = Settings {
            payload: Payload::Snapshot,
            ..events_in(Durability::Memory, 10)
        };
        let edited = [
            ("cut", events_in(Durability::Disk, 1)),
            ("cut in memory", events_in(Durability::Memory, 1)),
            ("other", other),
            ("new", events_in(Durability::Disk, 10)),
            ("refused", events_in(last, 10)),
        ];
        let declare = |(name, settings)| self.hub.declare(name, settings, states);
        edited.map(declare).into()
    }

    /// All is as if nobody had edited anything.
    async fn check_untouched(&mut self) {
        self.publish(["4", "5", "6"]).await;
        for (topic, _) in &self.topics {
            let there = history(topic, 1).await;
            assert_eq!(
                there.as_deref(),
                Ok(&["1", "2", "3", "4", "5", "6"].map(str::to_owned)[..]),
                "{}",
                topic.name()
            );
            let log = topic.log().unwrap();
            assert_eq!(log.settings(), *topic.settings());
            let served = topic.slot().log().unwrap();
            assert!(Arc::ptr_eq(log, &served), "{}", topic.name());
        }
        assert!(self.hub.stored("new").is_none());
    }
}

/// One after the other each topic would cost two hand-overs between threads, and a write.
#[tokio::test]
async fn a_store_is_asked_for_all_topics_at_once() {
    let count = 20;
    let states = States::default();
    let hub = Hub::of(&states);
    hub.set_store(Arc::new(Arc::new(Slow {
        together: count,
        ..Slow::default()
    })));
    let declare = |states: &States| -> Vec<Arc<Topic>> {
        let settings = events_in(Durability::Disk, 10);
        let names = (0..count).map(|number| format!("topic {number}"));
        names
            .map(|name| hub.declare(&name, settings, states))
            .collect()
    };
    let open = async || {
        let opened = tokio::time::timeout(Duration::from_secs(20), hub.open()).await;
        opened.expect("it waits for one topic alone").unwrap();
    };
    let topics = declare(&states);
    open().await;
    publish(&topics[0], "1").await;
    // So does a reload.
    let topics = declare(&states.stage());
    open().await;
    assert_eq!(history(&topics[0], 1).await, Ok(vec!["1".to_owned()]));
}

#[tokio::test]
async fn topics_that_are_served_stay_as_they_are_when_another_one_is_refused() {
    let mut served = Served::start().await;
    let staged = served.states.stage();
    let edited = served.edit(&staged, Durability::Memory);
    let error = served.hub.open().await.unwrap_err().to_string();
    assert!(
        error.contains("topic refused: its events are on the disk"),
        "{error}"
    );
    drop(edited);
    served.check_untouched().await;
}

#[tokio::test]
async fn topics_that_are_served_stay_as_they_are_until_the_others_are_committed() {
    let mut served = Served::start().await;
    let staged = served.states.stage();
    let edited = served.edit(&staged, Durability::Disk);
    let prepared = served.hub.prepare().await.unwrap();
    assert!(served.hub.stored("new").is_some());
    prepared.withdraw().await;
    drop((edited, staged));
    served.check_untouched().await;

    let edited = served.edit(&served.states, Durability::Disk);
    let prepared = served.hub.prepare().await.unwrap();
    // The new plan is served on some workers, and the old one on others.
    let other = &edited[2];
    assert_eq!(publish(other, "{}").await, (1, true));
    let (before, mailbox) = &mut served.topics[2];
    assert_eq!(publish(before, "7").await, (7, true));
    assert_eq!(texts(&take(mailbox, 1).await), ["7"]);
    prepared.commit().await;
    assert!(mailbox.take(&mut Vec::new()).await.is_err());
    assert_eq!(publish(before, "8").await, (8, true));
    assert_eq!(history(other, 1).await.unwrap(), ["{}"]);
    for topic in &edited[..2] {
        let attached = topic.attach().await.unwrap();
        assert_eq!((attached.first, attached.next.sequence), (6, 7));
    }
    assert_eq!(publish(&edited[3], "1").await, (1, true));
}

/// A folder that is removed in the end.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// One run of the engine on a folder: publishes that many events and gives their ids.
async fn run(folder: &std::path::Path, count: u64) -> (Arc<Hub>, Arc<Topic>, Vec<EventId>) {
    let states = States::default();
    let hub = Hub::of(&states);
    let disk = ::journal::DataFolder::take(folder).unwrap();
    let options = ::journal::StreamOptions::default();
    let streams = ::journal::Streams::open(disk.topics().unwrap(), options).unwrap();
    hub.set_store(Arc::new(crate::store::journal::JournalStore::new(streams)));
    let settings = Settings {
        payload: Payload::Event,
        ..Settings::default()
    };
    let topic = hub.declare("a", settings, &states);
    hub.open().await.unwrap();
    let mut ids = Vec::new();
    for number in 0..count {
        let body = number.to_string();
        ids.push(topic.publish(publication(&body)).await.unwrap().id);
    }
    (hub, topic, ids)
}

#[tokio::test]
async fn whoever_knows_more_than_a_copy_that_is_put_back_is_told() {
    let name = format!("intertie-topics-restored-{}", std::process::id());
    let (folder, kept) = (std::env::temp_dir().join(&name), format!("{name}-copy"));
    let (folder, kept) = (Folder(folder), Folder(std::env::temp_dir().join(kept)));
    let (hub, _, first) = run(&folder.0, 5).await;
    hub.close().await;
    copy(&folder.0, &kept.0);
    // A start as any other: who has had events goes on, and events keep their ids.
    let (hub, topic, second) = run(&folder.0, 5).await;
    assert_ne!(first[0].epoch, second[0].epoch);
    for id in first.iter().chain(&second) {
        assert_eq!(topic.locate(*id), Ok(*id));
    }
    let History::Events(events) = topic.history(first[0], 1 << 20).await.unwrap() else {
        panic!("they are kept");
    };
    let ids: Vec<EventId> = events.iter().map(|event| event.id).collect();
    assert_eq!(ids, [first.clone(), second.clone()].concat());
    hub.close().await;
    // The copy goes on otherwise, and past the place of who knows more.
    copy(&kept.0, &folder.0);
    let (hub, topic, third) = run(&folder.0, 20).await;
    assert!(third.iter().all(|id| !second.contains(id)));
    assert!(second.iter().all(|id| topic.locate(*id).is_err()));
    assert!(first.iter().all(|id| topic.locate(*id) == Ok(*id)));
    hub.close().await;
}

/// A topic would grow until the disk is full.
#[tokio::test]
async fn old_events_are_removed_after_a_panic_too() {
    let states = States::default();
    let (hub, slow) = (Hub::of(&states), Arc::new(Slow::default()));
    hub.set_store(Arc::new(Arc::clone(&slow)));
    let settings = Settings {
        keep: Keep {
            time: Some(Duration::from_millis(1)),
            ..Keep::default()
        },
        snapshot_every: 2,
        ..Settings::default()
    };
    let topic = hub.declare("disk", settings, &states);
    hub.open().await.unwrap();
    slow.gate.lock().unwrap().panics = 2;
    let is_removed = || hub.stored("disk").is_some_and(|it| it.first > 4);
    for value in 0..1000 {
        if is_removed() {
            break;
        }
        publish(&topic, &format!("[{value}]")).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(is_removed());
    assert_eq!(slow.gate.lock().unwrap().panics, 0);
}
