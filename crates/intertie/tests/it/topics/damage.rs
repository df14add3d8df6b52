//! A bit that has changed on the disk: whoever needs what is there is told, and nobody is given it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use journal::{DataFolder, Keep, NewEntry, StreamOptions, Streams};
use testkit::RawClient;

use super::{EVENTS, PRICES, Place, wait_long};

/// The kinds of entries that topics make.
const EVENT: u8 = 0;
const WHOLE: u8 = 1;
const PATCH: u8 = 2;

/// What is kept of a topic: kind, key and body of each entry.
pub(super) type Entries<'a> = &'a [(u8, &'a str, String)];

/// Writes a data folder in which each entry fills a file of its own, so that all but the last have
/// an index: a start does not look at their entries unless it needs them.
pub(super) fn write(place: &Place, topic: &str, entries: Entries<'_>) {
    let options = StreamOptions {
        segment_max: 4096,
        ..StreamOptions::default()
    };
    let keep = Keep {
        events: 1000,
        bytes: 1 << 20,
        time: None,
        from: u64::MAX,
    };
    let folder = DataFolder::take(place.data().as_ref()).unwrap();
    let streams = Streams::open(folder.topics().unwrap(), options).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        streams.declare(topic, keep).await.unwrap();
        for (sequence, (kind, key, body)) in (1..).zip(entries) {
            let entry = NewEntry {
                stream: Arc::from(topic),
                sequence,
                at_ms: now.as_millis() as u64,
                kind: *kind,
                key: Bytes::from((*key).to_owned()),
                body: Bytes::from(body.clone()),
            };
            streams.append(vec![entry]).await.unwrap();
        }
        streams.close().await;
    });
}

/// Changes one bit in the middle of these bytes, which stand in one file; gives its name.
fn damage(place: &Place, bytes: &str) -> String {
    let folder = PathBuf::from(place.data()).join("topics");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut content = fs::read(&path).unwrap();
        let found = content
            .windows(bytes.len())
            .position(|it| it == bytes.as_bytes());
        if let Some(at) = found {
            content[at + bytes.len() / 2] ^= 1;
            fs::write(&path, content).unwrap();
            return path.file_name().unwrap().to_str().unwrap().to_owned();
        }
    }
    panic!("{bytes:.40} is in no file");
}

fn long(text: &str) -> String {
    format!("\"{}\"", text.repeat(3000 / text.len()))
}

fn check_refused(place: &Place, topic: &str, file: &str) {
    let text = place.refused();
    let expected = [
        format!("topic {topic}: "),
        format!("topics/{file} is damaged at byte "),
    ];
    for expected in expected {
        assert!(text.contains(&expected), "{expected}: {text}");
    }
}

#[test]
fn a_damaged_entry_that_the_start_needs_stops_it() {
    // Keys of the last day are read, and the last event.
    let events = |keys: [&'static str; 3]| {
        let bodies = ["first ", "second ", "third "].map(long);
        let mut keys = keys.into_iter();
        bodies.map(|body| (EVENT, keys.next().unwrap(), body))
    };
    let place = Place::new(EVENTS);
    write(&place, "events", &events(["a", "b", "c"]));
    let file = damage(&place, &long("second "));
    check_refused(&place, "events", &file);
    // It is as before once the bit is.
    damage(&place, &damaged(&long("second ")));
    let engine = place.run(&[]);
    assert!(
        place.publish("/events", "4").1["id"]
            .as_str()
            .unwrap()
            .ends_with("-4")
    );
    engine.stop();

    // A snapshot is made of the last whole one and what has changed since.
    let place = Place::new(PRICES);
    let pad = long("whole ");
    let whole = format!("{{\"pad\":{pad},\"v\":1}}");
    let patch = |value: u32| {
        let path = "/v";
        let value = format!("[{{\"op\":\"replace\",\"path\":\"{path}\",\"value\":{value}}}]");
        (PATCH, "", value)
    };
    let padded = format!(
        "[{{\"op\":\"add\",\"path\":\"/more\",\"value\":{}}}]",
        long("more ")
    );
    let entries = [(WHOLE, "", whole), (PATCH, "", padded), patch(2), patch(3)];
    write(&place, "prices", &entries);
    let file = damage(&place, &pad);
    check_refused(&place, "prices", &file);
}

/// The same with the bit that [`damage`] changes.
fn damaged(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    bytes[text.len() / 2] ^= 1;
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_damaged_entry_in_a_file_without_an_index_stops_the_start() {
    let place = Place::new(EVENTS);
    let engine = place.run(&[]);
    for body in ["\"first event\"", "\"second event\"", "\"third event\""] {
        assert_eq!(place.publish("/events", body).0, 200);
    }
    engine.stop();
    // Not the last one: what comes behind says that it is no write that was cut off.
    let file = damage(&place, "\"second event\"");
    let text = place.refused();
    let expected = format!("the file topics/{file} is damaged at byte ");
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains(&place.data()), "{text}");
}

#[test]
fn a_damaged_entry_is_never_served_and_never_passed_over() {
    let text = format!("{EVENTS}subscribe: {{ listen: PORT, retry: 10ms }}\n");
    let place = Place::new(&text);
    let bodies = ["first ", "second ", "third "].map(long);
    write(
        &place,
        "events",
        &bodies.clone().map(|body| (EVENT, "", body)),
    );
    let file = damage(&place, &bodies[1]);
    // Nothing needs it yet.
    let engine = place.run(&[]);
    assert_eq!(place.publish("/events", "4").0, 200);
    let read = |query: &str| {
        let mut client = RawClient::connect(place.port);
        client.send(format!(
            "GET /topics/events/sse?{query} HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        client.response().text()
    };
    // The stream ends behind what can be read, also for whoever comes again.
    let stream = read("from=earliest");
    assert!(stream.contains(&bodies[0]), "{stream}");
    let mut id = stream.lines().filter_map(|line| line.strip_prefix("id: "));
    let id = id.next_back().unwrap();
    let again = read(&format!("lastEventId={id}"));
    for (stream, events) in [(&stream, 1), (&again, 0)] {
        assert_eq!(stream.matches("event: event\n").count(), events, "{stream}");
        assert!(!stream.contains("third "), "{stream}");
        let last = stream.trim_end().lines().last();
        assert!(last.unwrap().starts_with("retry: "), "{stream}");
    }
    let told = format!("topics/{file} is damaged at byte ");
    wait_long("it is told", || engine.process.output().contains(&told));
    let log = engine.stop();
    let line = log.lines().find(|line| line.contains(&told)).unwrap();
    assert!(line.contains("\"topic\":\"events\""), "{line}");
}
