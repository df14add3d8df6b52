//! Engines that are killed while clients publish: what was acknowledged is there, in the order of
//! each client, and no id is given twice. `INTERTIE_CRASHES` says how often.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use journal::{DataFolder, StreamOptions, Streams};

use super::{Place, Sink, taker, wait_long};

const CLIENTS: usize = 8;
/// How many kills there are when nobody says.
const CRASHES: u64 = 24;

/// Publishes numbers on one connection until something fails; ids and bodies of those that were
/// acknowledged.
fn publish(
    port: u16,
    client: usize,
    next: &Mutex<u64>,
    stop: &AtomicBool,
) -> Vec<(String, String)> {
    let mut acknowledged = Vec::new();
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return acknowledged;
    };
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).unwrap();
    let mut next = next.lock().unwrap();
    while !stop.load(Ordering::Relaxed) {
        *next += 1;
        let body = format!("[{client},{next}]");
        let request = format!(
            "POST /log HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(request.as_bytes()).is_err() {
            break;
        }
        let (mut reply, mut part) = (Vec::new(), [0; 1024]);
        while !reply.ends_with(b"}\n") {
            match stream.read(&mut part) {
                Ok(0) | Err(_) => return acknowledged,
                Ok(count) => reply.extend_from_slice(&part[..count]),
            }
        }
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        let id = reply.split("\"id\":\"").nth(1).unwrap();
        acknowledged.push((id.split('"').next().unwrap().to_owned(), body));
    }
    acknowledged
}

/// What the files hold: ids and bodies.
fn stored(place: &Place) -> Vec<(String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let folder = DataFolder::take(place.data().as_ref()).unwrap();
    let streams = Streams::open(folder.topics().unwrap(), StreamOptions::default()).unwrap();
    let info = streams.find("log").unwrap();
    let epochs = streams.epochs("log").unwrap();
    let mut all = Vec::new();
    let mut at = info.first;
    while at < info.next {
        let entries = streams.read("log", at, 1 << 20).unwrap();
        for entry in entries {
            assert_eq!(entry.sequence, at, "no gap");
            at += 1;
            let body = String::from_utf8(entry.body.to_vec()).unwrap();
            all.push((
                format!("{:x}-{}", epochs.of(entry.sequence), entry.sequence),
                body,
            ));
        }
    }
    runtime.block_on(streams.close());
    all
}

/// Checks what is stored against what was acknowledged; how much more is stored.
fn check(stored: &[(String, String)], acknowledged: &[(String, String)]) -> usize {
    let by_id: HashMap<&str, &str> = stored.iter().map(|(id, body)| (&**id, &**body)).collect();
    assert_eq!(by_id.len(), stored.len());
    for (id, body) in acknowledged {
        assert_eq!(
            by_id.get(&**id),
            Some(&&**body),
            "{id} of {}",
            acknowledged.len()
        );
    }
    let ids: std::collections::HashSet<&str> = acknowledged.iter().map(|it| &*it.0).collect();
    assert_eq!(ids.len(), acknowledged.len(), "an id was given twice");
    let mut last = [0_u64; CLIENTS];
    for (_, body) in stored {
        let (client, number): (usize, u64) = serde_json::from_str(body).unwrap();
        assert!(
            number > last[client],
            "{body} comes behind {}",
            last[client]
        );
        last[client] = number;
    }
    stored.len() - acknowledged.len()
}

#[test]
fn what_was_acknowledged_is_there_after_every_crash() {
    let crashes = std::env::var("INTERTIE_CRASHES").ok();
    let crashes = crashes.map_or(CRASHES, |it| it.parse().unwrap());
    let topic = "topic: log\npayload: event\nkeep: { events: 10000000, bytes: 16GiB }\n\
                 publish: { http: \"POST PORT/log\" }\n";
    let place = Place::new(topic);
    let numbers: Vec<Arc<Mutex<u64>>> = (0..CLIENTS).map(|_| Arc::default()).collect();
    let mut acknowledged = Vec::new();
    // Other instants with every run.
    let mut random = Rng::with_seed(u64::from(std::process::id()));
    for crash in 0..crashes {
        let mut engine = place.run(&[]);
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (next, stop) = (Arc::clone(&numbers[client]), Arc::clone(&stop));
                let port = place.port;
                thread::spawn(move || publish(port, client, &next, &stop))
            })
            .collect();
        thread::sleep(Duration::from_millis(random.u64(20..220)));
        engine.process.signal("KILL");
        engine.process.wait();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            acknowledged.extend(client.join().unwrap());
        }
        if crash % 8 == 7 || crash + 1 == crashes {
            check(&stored(&place), &acknowledged);
        }
    }
    let more = check(&stored(&place), &acknowledged);
    let count = acknowledged.len();
    println!("{count} acknowledged, 0 lost, {more} more are stored after {crashes} crashes");
    assert!(count > 200, "{count}");
    assert!(more <= CLIENTS * crashes as usize, "{more}");
}

#[test]
fn a_flow_gets_every_event_across_crashes() {
    let sink = Sink::start(|_, _| false);
    let topic = "topic: log\npayload: event\npublish: { http: \"POST PORT/log\" }\n";
    let source = "{ name: log, start: earliest }";
    let place = Place::new(&format!("{topic}{}", taker(source, &sink)));
    let next: Arc<Mutex<u64>> = Arc::default();
    let mut acknowledged = Vec::new();
    for crash in 0..6 {
        let mut engine = place.run(&[]);
        let stop = Arc::new(AtomicBool::new(false));
        let (number, stopped, port) = (Arc::clone(&next), Arc::clone(&stop), place.port);
        let client = thread::spawn(move || publish(port, 0, &number, &stopped));
        thread::sleep(Duration::from_millis(60 + crash * 37));
        engine.process.signal("KILL");
        engine.process.wait();
        stop.store(true, Ordering::Relaxed);
        acknowledged.extend(client.join().unwrap());
    }
    let engine = place.run(&[]);
    let last = stored_count(&engine);
    wait_long("the flow has had the last", || {
        let taken = sink.taken.lock().unwrap();
        taken.iter().any(|it| {
            it.header("X-Id")
                .is_some_and(|id| id.ends_with(&format!("-{last}")))
        })
    });
    engine.stop();
    let bodies = sink.bodies();
    let lost = acknowledged
        .iter()
        .filter(|(_, body)| !bodies.contains(body));
    assert_eq!(lost.count(), 0, "of {}", acknowledged.len());
    // Each comes for the first time in order.
    let mut highest = 0;
    for body in &bodies {
        let (_, number): (u64, u64) = serde_json::from_str(body).unwrap();
        highest = highest.max(number);
    }
    assert!(highest as usize >= acknowledged.len());
}

fn stored_count(engine: &crate::support::Engine) -> u64 {
    super::measure(engine, "sequence", "log") as u64
}
