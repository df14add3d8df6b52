//! `intertie topics`: what is on the disk, and how it goes away.

use std::process::Stdio;

use serde_json::json;

use super::{EVENTS, PRICES, Place, Sink, taker};
use crate::support::command;

impl Place {
    /// Whether `intertie topics` has done it, and what it says.
    fn topics(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = command();
        command
            .arg("topics")
            .args(arguments)
            .args(["--data", &self.data()]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

#[test]
fn topics_on_the_disk_are_listed_and_removed() {
    let sink = Sink::start(|_, _| false);
    let source = "{ name: events, start: earliest }";
    let text = format!("{EVENTS}---\n{PRICES}{}", taker(source, &sink));
    let place = Place::new(&text);
    let (is_done, told) = place.topics(&["list"]);
    assert!(
        !is_done && told.contains("there are no topics in "),
        "{told}"
    );
    let engine = place.run(&[]);
    let id = |number: u32| place.publish("/events", &number.to_string()).1["id"].clone();
    let ids = [id(1), id(2)];
    place.publish("/prices", "{}");
    assert_eq!(sink.wait(2), ["1", "2"]);
    for arguments in [&["list"][..], &["remove", "events", "--yes"]] {
        let (is_done, told) = place.topics(arguments);
        assert!(!is_done && told.contains("in use by process"), "{told}");
    }
    engine.stop();

    // Those too that nobody declares any more.
    place.write(PRICES);
    place.run(&[]).stop();
    let (is_done, told) = place.topics(&["list"]);
    assert!(is_done, "{told}");
    let lines: Vec<Vec<&str>> = told
        .lines()
        .map(|it| it.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["TOPIC", "EVENTS", "BYTES", "LAST", "PUBLISHED"]);
    assert_eq!((lines[1][0], lines[1][1]), ("events", "2"));
    assert_eq!(lines[1][3], ids[1].as_str().unwrap());
    assert!(
        lines[1][4].starts_with("20") && lines[1][4].ends_with('Z'),
        "{told}"
    );
    assert_eq!((lines[2][0], lines[2][1], lines.len()), ("prices", "1", 3));

    for (arguments, expected) in [
        (
            &["remove", "event", "--yes"][..],
            "there is no topic `event`; there are events, prices",
        ),
        (&["remove", "events"], "say --yes"),
    ] {
        let (is_done, told) = place.topics(arguments);
        assert!(!is_done && told.contains(expected), "{told}");
        assert_eq!(place.topics(&["list"]).1.lines().count(), 3);
    }
    let (is_done, told) = place.topics(&["remove", "events", "--yes"]);
    assert!(is_done, "{told}");
    assert!(
        told.starts_with("topic events removed: events 2, bytes "),
        "{told}"
    );
    assert!(told.ends_with(", cursors of flows 1\n"), "{told}");
    let (_, told) = place.topics(&["list"]);
    assert!(
        told.contains("prices") && !told.contains("events "),
        "{told}"
    );

    // It is another one from now on, and its flow begins anew.
    place.write(&text);
    let engine = place.run(&[]);
    let new = id(3);
    assert!(new.as_str().unwrap().ends_with("-1"), "{new}");
    assert!(ids.iter().all(|old| *old != new));
    assert_eq!(sink.wait(3), ["1", "2", "3"]);
    assert_eq!(sink.header(2, "X-Missed"), "0");
    assert_eq!(place.publish("/prices", "{}").1["new"], json!(false));
    engine.stop();
}
