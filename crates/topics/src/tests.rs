//! Topics as a whole: order, receipts, what is seen when, repetitions, history.

mod delivery;
mod disk;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::state::States;

use crate::event::{Content, Event, EventId};
use crate::hub::Hub;
use crate::mailbox::Mailbox;
use crate::settings::{Durability, Keep, Payload, Settings};
use crate::testing::{memory, publication, with};
use crate::topic::{For, History, Publication, Topic};

fn text(event: &Event) -> String {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    match &event.content {
        Content::Event(body) => text(body),
        Content::Snapshot { whole, patch: None } => text(whole),
        Content::Snapshot {
            whole,
            patch: Some(patch),
        } => format!("{} by {}", text(whole), text(patch)),
    }
}

fn texts(events: &[Arc<Event>]) -> Vec<String> {
    events.iter().map(|event| text(event)).collect()
}

/// Takes events until there are that many.
async fn take(mailbox: &mut Mailbox, count: usize) -> Vec<Arc<Event>> {
    let mut events = Vec::new();
    while events.len() < count {
        mailbox.take(&mut events).await.unwrap();
    }
    events
}

async fn publish(topic: &Topic, body: &str) -> (u64, bool) {
    let receipt = topic.publish(publication(body)).await.unwrap();
    (receipt.id.sequence, receipt.is_new)
}

fn keyed(body: &str, key: &str) -> Publication {
    Publication {
        key: Some(Bytes::from(key.to_owned())),
        ..publication(body)
    }
}

async fn history(topic: &Topic, sequence: u64) -> Result<Vec<String>, String> {
    let epoch = topic.attach().await.unwrap().next.epoch;
    let from = EventId { epoch, sequence };
    match topic.history(from, 1 << 20).await.unwrap() {
        History::Events(events) => {
            let numbers: Vec<u64> = events.iter().map(|it| it.id.sequence).collect();
            let expected: Vec<u64> = (sequence.max(1)..).take(numbers.len()).collect();
            assert_eq!(numbers, expected);
            Ok(texts(&events))
        }
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test]
async fn everybody_gets_the_same_events_in_the_same_order() {
    let topic = memory(Payload::Event).await;
    let mut early = topic.attach().await.unwrap();
    assert!(early.latest.is_none());
    assert_eq!((early.next.sequence, early.first), (1, 1));
    assert_eq!(publish(&topic, " { \"a\" : 1 } ").await, (1, true));
    assert_eq!(publish(&topic, "{\"a\":1}").await, (2, true));
    let mut late = topic.attach().await.unwrap();
    assert_eq!((late.next.sequence, late.first), (3, 1));
    assert_eq!(late.latest.as_ref().map(|it| it.id.sequence), Some(2));
    let both = vec![publication("[3]"), publication("4")];
    let receipts = topic.publish_all(For::default(), both).await.unwrap();
    let numbers: Vec<u64> = receipts.iter().map(|it| it.id.sequence).collect();
    assert_eq!(numbers, [3, 4]);
    assert_eq!(receipts[0].id.epoch, early.next.epoch);
    let events = take(&mut early.mailbox, 4).await;
    assert_eq!(texts(&events), ["{\"a\":1}", "{\"a\":1}", "[3]", "4"]);
    let later = take(&mut late.mailbox, 2).await;
    assert!(Arc::ptr_eq(&later[1], &events[3]), "one event for all");
    assert_eq!(history(&topic, 3).await.unwrap(), ["[3]", "4"]);
}

#[tokio::test]
async fn a_snapshot_is_shown_with_what_has_changed() {
    let topic = memory(Payload::Snapshot).await;
    let pad = "x".repeat(200);
    let body = |value: &str| format!("{{\"pad\":\"{pad}\",\"v\":{value}}}");
    let mut attached = topic.attach().await.unwrap();
    assert_eq!(publish(&topic, &body("1")).await, (1, true));
    assert_eq!(publish(&topic, &body("1 ")).await, (1, false));
    assert_eq!(publish(&topic, &body("1.0")).await, (2, true));
    let swapped = format!("{{\"v\":1.0,\"pad\":\"{pad}\"}}");
    assert_eq!(publish(&topic, &swapped).await, (2, false));
    assert_eq!(publish(&topic, "[]").await, (3, true));
    let events = take(&mut attached.mailbox, 3).await;
    let patch = "[{\"op\":\"replace\",\"path\":\"/v\",\"value\":1.0}]";
    let second = format!("{} by {patch}", body("1.0"));
    assert_eq!(texts(&events), [body("1"), second.clone(), "[]".to_owned()]);
    assert_eq!(history(&topic, 2).await.unwrap(), [second, "[]".to_owned()]);
}

#[tokio::test]
async fn what_was_published_with_a_key_is_not_published_again() {
    let topic = memory(Payload::Event).await;
    let first = topic.publish(keyed("[1]", "a")).await.unwrap();
    let again = topic.publish(keyed(" [ 1 ]", "a")).await.unwrap();
    assert_eq!((first.id, first.is_new), (again.id, true));
    assert!(!again.is_new);
    // While the first is under way, and within one batch.
    let (left, right) = tokio::join!(
        topic.publish(keyed("3", "b")),
        topic.publish(keyed("3", "b"))
    );
    let (left, right) = (left.unwrap(), right.unwrap());
    assert_eq!(
        (left.id, left.is_new, right.is_new),
        (right.id, true, false)
    );
    let batch = vec![keyed("5", "c"), keyed("5", "c"), keyed("[1]", "a")];
    let receipts = topic.publish_all(For::default(), batch).await.unwrap();
    let told: Vec<_> = receipts
        .iter()
        .map(|it| (it.id.sequence, it.is_new))
        .collect();
    assert_eq!(told, [(3, true), (3, false), (1, false)]);
    assert_eq!(history(&topic, 1).await.unwrap(), ["[1]", "3", "5"]);
}

#[tokio::test]
async fn a_key_with_another_event_is_refused_and_nothing_of_its_batch_is_there() {
    for payload in [Payload::Event, Payload::Snapshot] {
        let topic = memory(payload).await;
        topic.publish(keyed("[1]", "a")).await.unwrap();
        let fault = topic.publish(keyed("[2]", "a")).await.unwrap_err();
        let detail = "the idempotency key has come before with another event";
        assert_eq!((fault.status, &*fault.detail), (422, detail));
        for batch in [
            vec![keyed("[3]", "b"), keyed("[2]", "a")],
            vec![keyed("[3]", "b"), keyed("[4]", "b")],
        ] {
            let fault = topic.publish_all(For::default(), batch).await.unwrap_err();
            let detail = format!("event 2: {detail}");
            assert_eq!((fault.status, &*fault.detail), (422, &*detail));
        }
        // Its other keys have not been used up.
        let receipt = topic.publish(keyed("[5]", "b")).await.unwrap();
        assert_eq!((receipt.id.sequence, receipt.is_new), (2, true));
        assert!(!topic.publish(keyed("[1]", "a")).await.unwrap().is_new);
        let conflicts = &topic.slot().counts.conflicts;
        assert_eq!(conflicts.load(std::sync::atomic::Ordering::Relaxed), 3);
    }
}

#[tokio::test]
async fn a_batch_is_published_whole_or_not_at_all() {
    let topic = memory(Payload::Event).await;
    let batch = vec![publication("1"), publication("{\"a\":}")];
    let fault = topic.publish_all(For::default(), batch).await.unwrap_err();
    let expected = "event 2: the event is not JSON: a value was expected at line 1, column 6";
    assert_eq!((fault.status, &*fault.detail), (400, expected));
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    let fault = topic.publish(publication(&large)).await.unwrap_err();
    assert_eq!(
        (fault.status, &*fault.detail),
        (413, "an event of this topic has at most 1MiB")
    );
    let key = "k".repeat(257);
    let fault = topic.publish(keyed("1", &key)).await.unwrap_err();
    assert_eq!(fault.status, 400);
    assert_eq!(history(&topic, 1).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn history_tells_what_is_not_there() {
    let topic = with(Settings {
        payload: Payload::Event,
        durability: Durability::Memory,
        keep: Keep {
            events: 3,
            ..Keep::default()
        },
        ..Settings::default()
    })
    .await;
    for number in 0..5 {
        publish(&topic, &number.to_string()).await;
    }
    assert_eq!(history(&topic, 3).await.unwrap(), ["2", "3", "4"]);
    assert_eq!(
        history(&topic, 2).await.unwrap_err(),
        "Gone { first: 3, next: 6 }"
    );
    assert_eq!(history(&topic, 6).await.unwrap(), [""; 0]);
    assert_eq!(history(&topic, 7).await.unwrap_err(), "Ahead");
    let from = EventId {
        epoch: 1,
        sequence: 3,
    };
    let other = topic.history(from, 100).await.unwrap();
    assert!(matches!(other, History::OtherEpoch));
    assert_eq!(topic.attach().await.unwrap().first, 3);
}

/// A topic of small events had all of them that fitted into four megabytes.
#[tokio::test]
async fn events_that_are_not_kept_are_not_in_memory() {
    let topic = with(Settings {
        payload: Payload::Event,
        durability: Durability::Memory,
        keep: Keep {
            events: 10,
            ..Keep::default()
        },
        ..Settings::default()
    })
    .await;
    for number in 0..100 {
        publish(&topic, &number.to_string()).await;
    }
    let log = topic.log().unwrap();
    assert_eq!(log.next().sequence - log.first(), 10);
    assert_eq!(log.recent_count(), 10);
}

#[tokio::test]
async fn snapshots_that_are_not_in_memory_are_made_again() {
    let topic = with(Settings {
        durability: Durability::Memory,
        keep: Keep {
            events: 200,
            ..Keep::default()
        },
        snapshot_every: 10,
        ..Settings::default()
    })
    .await;
    let pad = "x".repeat(100_000);
    let body = |value: u64| format!("{{\"pad\":\"{pad}\",\"v\":{value}}}");
    for value in 1..=150 {
        assert_eq!(publish(&topic, &body(value)).await, (value, true));
    }
    for from in [1, 11, 12, 57] {
        let events = history(&topic, from).await.unwrap();
        assert!(events.len() >= 5, "{}", events.len());
        for (value, event) in (from..).zip(&events) {
            assert!(event.starts_with(&body(value)), "{from} {value}");
        }
    }
}

#[tokio::test]
async fn publishers_of_many_threads_are_put_in_one_order() {
    let topic = memory(Payload::Event).await;
    let mut attached = topic.attach().await.unwrap();
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let topic = Arc::clone(&topic);
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let mut last = 0;
                    for number in 0..200 {
                        let body = format!("[{thread},{number}]");
                        let (sequence, is_new) = publish(&topic, &body).await;
                        assert!(is_new && sequence > last);
                        last = sequence;
                    }
                });
            })
        })
        .collect();
    let events = take(&mut attached.mailbox, 1600).await;
    threads.into_iter().for_each(|it| it.join().unwrap());
    let mut next = [0; 8];
    for (number, event) in (1..).zip(&events) {
        assert_eq!(event.id.sequence, number);
        let body: (usize, u64) = serde_json::from_str(&text(event)).unwrap();
        assert_eq!(body.1, next[body.0], "the order of each publisher is kept");
        next[body.0] += 1;
    }
}

#[tokio::test]
async fn a_worker_that_takes_nothing_is_told_that_it_has_lost_something() {
    let topic = memory(Payload::Event).await;
    let mut stuck = topic.attach().await.unwrap();
    let body = format!("\"{}\"", "x".repeat(1 << 19));
    let mut done = 0;
    while done < 40 {
        let batch = vec![publication(&body); 8];
        topic.publish_all(For::default(), batch).await.unwrap();
        done += 8;
    }
    let mut events = Vec::new();
    assert!(stuck.mailbox.take(&mut events).await.is_err());
    assert!(topic.attach().await.unwrap().next.sequence > 40);
}

#[tokio::test]
async fn topics_close_and_others_of_the_process_go_on() {
    let states = States::default();
    let hub = Hub::of(&states);
    let settings = Settings {
        payload: Payload::Event,
        durability: Durability::Memory,
        ..Settings::default()
    };
    let topic = hub.declare("a", settings, &states);
    assert_eq!(
        topic.publish(publication("1")).await.unwrap_err().status,
        500
    );
    hub.open().await.unwrap();
    publish(&topic, "1").await;
    let other = memory(Payload::Event).await;
    hub.close().await;
    let fault = topic.publish(publication("1")).await.unwrap_err();
    assert_eq!(
        (fault.status, &*fault.detail),
        (503, "the engine is stopping")
    );
    publish(&other, "1").await;
}

#[tokio::test]
async fn a_topic_of_the_same_name_is_the_same_one_whatever_its_limits() {
    let states = States::default();
    let hub = Hub::of(&states);
    let mut settings = Settings {
        payload: Payload::Event,
        durability: Durability::Memory,
        ..Settings::default()
    };
    let first = hub.declare("a", settings, &states);
    hub.open().await.unwrap();
    let mut attached = first.attach().await.unwrap();
    publish(&first, "1").await;
    settings.body_max = 64;
    settings.keep.events = 1;
    let second = hub.declare("a", settings, &states);
    hub.open().await.unwrap();
    assert_eq!(publish(&second, "2").await, (2, true));
    let long = publication(&format!("\"{}\"", "x".repeat(70)));
    assert_eq!(second.publish(long).await.unwrap_err().status, 413);
    assert_eq!(texts(&take(&mut attached.mailbox, 2).await), ["1", "2"]);
    assert_eq!(
        history(&second, 1).await.unwrap_err(),
        "Gone { first: 2, next: 3 }"
    );
    // Of another payload it is another one, and whoever waits for the old one is told.
    settings.payload = Payload::Snapshot;
    let third = hub.declare("a", settings, &states);
    hub.open().await.unwrap();
    assert_eq!(publish(&third, "3").await, (1, true));
    let mut events = Vec::new();
    assert!(attached.mailbox.take(&mut events).await.is_err());
    assert_ne!(
        third.attach().await.unwrap().next.epoch,
        attached.next.epoch
    );
}

#[tokio::test]
async fn snapshots_go_when_they_are_old_but_never_what_others_are_made_of() {
    let topic = with(Settings {
        durability: Durability::Memory,
        keep: Keep {
            time: Some(Duration::from_millis(400)),
            ..Keep::default()
        },
        snapshot_every: 4,
        ..Settings::default()
    })
    .await;
    let pad = "x".repeat(300);
    let start = std::time::Instant::now();
    let mut value = 0;
    while topic.attach().await.unwrap().first < 11 {
        value += 1;
        publish(&topic, &format!("{{\"pad\":\"{pad}\",\"v\":{value}}}")).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    let first = topic.attach().await.unwrap().first;
    let events = history(&topic, first).await.unwrap();
    assert_eq!(events.len() as u64, value + 1 - first);
    // The last one stays, however old it gets.
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let attached = topic.attach().await.unwrap();
    let latest = text(&attached.latest.unwrap());
    assert!(latest.contains(&format!("\"v\":{value}}}")), "{latest}");
    assert!(attached.first + 5 > value, "{} {value}", attached.first);
    assert!(history(&topic, value).await.is_ok());
    publish(&topic, "[]").await;
}

#[tokio::test]
async fn who_listens_is_counted_and_awaited() {
    let topic = memory(Payload::Event).await;
    let mut watch = topic.listeners();
    assert_eq!(watch.count(), 0);
    let one = topic.listen();
    let two = topic.listen();
    watch.changed().await;
    assert_eq!(watch.count(), 2);
    drop((one, two));
    watch.changed().await;
    assert_eq!(watch.count(), 0);
    let waited = tokio::time::timeout(Duration::from_millis(20), watch.changed()).await;
    assert!(waited.is_err());
}

#[test]
fn nothing_is_left_of_a_topic_whose_streams_could_be_revoked() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let topic = memory(Payload::Event).await;
        let tasks = || {
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks()
        };
        let before = tasks();
        let branches = [(); 3].map(|()| crate::testing::branch(&topic));
        for branch in &branches {
            branch.watch_revocations();
            branch.watch_revocations();
        }
        assert_eq!(tasks(), before + 3);
        drop(branches);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(tasks(), before);
    });
}
