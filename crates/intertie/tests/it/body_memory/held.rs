//! What is read from disks (files, stored messages, events that a subscriber has missed), and
//! messages of WebSocket connections.

use std::fs;

use testkit::{RawClient, WebSocket, wait_until};

use super::{MEGABYTE, REFUSED, Site};
use crate::support::post;

const DONE: &str = "intertie_source_succeeded_total";

/// A file's folder is that of the flows.
fn put(site: &Site, name: &str, size: usize) {
    let folder = site.folder.path().join("in");
    fs::create_dir_all(&folder).unwrap();
    let whole = site.folder.path().join("whole");
    fs::write(&whole, "x".repeat(size)).unwrap();
    fs::rename(whole, folder.join(name)).unwrap();
}

const FILES: &str = "---\nflow: files\nfrom:\n\
     \x20 file: { folder: FOLDER/in, stable: 0s, every: 100ms, concurrent: 9, delete: true }\n\
     steps: [ { map: length } ]\n";

/// RFC 6455, section 7.4.1, and its registry: 1013 is "try again later".
#[test]
fn a_message_of_a_websocket_that_finds_no_room_ends_its_connection() {
    let site = Site::run(
        "---\nflow: sizes\nfrom: { websocket: { path: /sizes, message_max: 2MiB } }\n\
         steps: [ { map: length } ]\n",
    );
    let text = "y".repeat(500_000);
    let (_, mut early) = WebSocket::connect(site.port, "/sizes", "");
    early.text(&text);
    assert_eq!(early.next_text(), "500000");
    wait_until("all is given back", || site.used() == 0.0);
    let held = site.fill();
    let before = site.engine.metric(REFUSED);
    // Short ones are not counted.
    early.text("short");
    assert_eq!(early.next_text(), "5");
    early.text(&text);
    assert_eq!(early.next_close(), 1013);
    assert!(early.is_closed());
    assert!(site.engine.metric(REFUSED) > before);
    drop(held);
    wait_until("all is given back", || site.used() == 0.0);
    let (_, mut late) = WebSocket::connect(site.port, "/sizes", "");
    late.text(&text);
    assert_eq!(late.next_text(), "500000");
}

#[test]
fn files_wait_in_their_folder_while_the_budget_is_used_up() {
    let site = Site::run(FILES);
    let held = site.fill();
    let refused = site.engine.metric(REFUSED);
    for number in 0..8 {
        put(&site, &format!("{number}.txt"), MEGABYTE / 2);
    }
    put(&site, "small.txt", 10);
    wait_until("the source waits", || site.engine.metric(REFUSED) > refused);
    wait_until("a small one passes", || site.engine.metric(DONE) == 1.0);
    assert!(site.folder.path().join("in/0.txt").exists());
    drop(held);
    wait_until("all are done", || site.engine.metric(DONE) == 9.0);
    wait_until("all is given back", || site.used() == 0.0);
    let log = site.engine.stop();
    assert!(log.contains("files wait for memory"), "{log}");
}

#[test]
fn sources_of_files_leave_a_quarter_of_the_budget() {
    let site = Site::run(&FILES.replace("map: length", "delay: 1h"));
    for number in 0..8 {
        put(&site, &format!("{number}.txt"), MEGABYTE / 2);
    }
    wait_until("the source waits", || site.engine.metric(REFUSED) > 0.0);
    let most = 3.0 * 1024.0 * 1024.0;
    assert!(site.used() <= most && site.used() > most / 2.0);
}

#[test]
fn a_file_above_the_whole_budget_stays_where_it_is() {
    let site = Site::run(FILES);
    put(&site, "large.txt", 5 * MEGABYTE);
    put(&site, "small.txt", 10);
    wait_until("the small one is done", || site.engine.metric(DONE) == 1.0);
    wait_until("the log tells", || {
        let told = site.engine.process.output();
        told.contains("larger than `limits.body_memory`, 4MiB")
    });
    assert!(site.folder.path().join("in/large.txt").exists());
    assert_eq!(site.used(), 0.0);
}

#[test]
fn a_step_that_reads_a_file_needs_room() {
    let site = Site::run(
        "---\nflow: read\nfrom: { http: \"POST /read/{name}\" }\nsteps:\n\
         \x20 - read-file: { folder: FOLDER/in, name: \"${ $path.name }\" }\n\
         \x20 - map: length\n",
    );
    put(&site, "a.txt", MEGABYTE);
    put(&site, "large.txt", 5 * MEGABYTE);
    assert_eq!(site.ask("/read/a.txt").text(), "1000000");
    let held = site.fill();
    let refused = site.ask("/read/a.txt");
    assert_eq!(
        (refused.status, refused.header("Retry-After")),
        (503, Some("1"))
    );
    drop(held);
    wait_until("all is given back", || site.used() == 0.0);
    assert_eq!(site.ask("/read/a.txt").text(), "1000000");
    let refused = site.ask("/read/large.txt");
    assert_eq!(refused.status, 500, "{}", refused.text());
    assert!(refused.text().contains("too-large"), "{}", refused.text());
    wait_until("all is given back", || site.used() == 0.0);
}

#[test]
fn stored_messages_wait_on_the_disk_while_the_budget_is_used_up() {
    let site = Site::run(
        "---\nflow: in\nfrom: { http: \"POST /in\" }\nsteps:\n\
         \x20 - map: \"\\\"x\\\" * 500000\"\n\
         \x20 - store: { in: kept }\n  - reply: { status: 202, body: ok }\n\
         ---\nflow: out\nfrom: { store: { name: kept, concurrent: 8 } }\n\
         steps: [ { map: length } ]\n",
    );
    let delivered = || site.engine.metric("intertie_store_delivered_total");
    assert!(site.ask("/in").status < 300);
    wait_until("it is delivered", || delivered() == 1.0);
    wait_until("all is given back", || site.used() == 0.0);
    let held = site.fill();
    // A taker that waits already may have one more.
    assert!(site.ask("/in").status < 300);
    let refused = site.engine.metric(REFUSED);
    for _ in 0..4 {
        assert!(site.ask("/in").status < 300);
    }
    wait_until("the source waits", || site.engine.metric(REFUSED) > refused);
    assert!(delivered() < 6.0);
    drop(held);
    wait_until("all are delivered", || delivered() == 6.0);
    wait_until("all is given back", || site.used() == 0.0);
    let log = site.engine.stop();
    assert!(log.contains("stored messages wait for memory"), "{log}");
}

#[test]
fn subscribers_wait_for_room_for_what_they_have_missed() {
    let site = Site::run(
        "---\ntopic: prices\ndurability: memory\npublish: { http: \"POST /topics/prices\" }\n\
         subscribe: {}\n\
         ---\ntopic: orders\npayload: event\ndurability: memory\n\
         publish: { http: \"POST /topics/orders\" }\nsubscribe: {}\n",
    );
    let body = format!("{{\"text\": \"{}\"}}", "x".repeat(MEGABYTE / 2));
    for (topic, count) in [("prices", 1), ("orders", 3)] {
        for _ in 0..count {
            let path = format!("/topics/{topic}");
            let reply = post(site.port, &path, "application/json", &body);
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
    }
    wait_until("all is given back", || site.used() == 0.0);
    let held = site.fill();
    let refused = site.engine.metric(REFUSED);
    let subscribe = |target: &str| {
        let mut client = RawClient::connect(site.port);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"));
        let head = client.until(b"\r\n\r\n");
        assert!(head.starts_with(b"HTTP/1.1 200 "));
        client
    };
    let newest = subscribe("/topics/prices/sse");
    let past = subscribe("/topics/orders/sse?from=earliest");
    wait_until("both wait", || site.engine.metric(REFUSED) >= refused + 2.0);
    drop(held);
    for (mut client, count) in [(newest, 1), (past, 3)] {
        for _ in 0..count {
            client.until(b"\ndata: ");
            client.until(b"xxxx\"}");
        }
    }
    wait_until("all is given back", || site.used() == 0.0);
}
