//! The parts of the suite with the real servers.
#![cfg(test)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::body::FIRST;
use super::super::folder::Folder;
use super::super::process::Cores;
use super::amqp::Client;
use super::bodies;
use super::drain::Drain;
use super::ledger::{Delivered, Ledger};
use super::parts::{Broker, Database};

#[test]
fn a_broker_is_filled_and_drained() {
    let folder = Folder::new("lab-glu-broker").unwrap();
    let broker = Broker::start(&folder, &Cores::of_machine().unwrap()).unwrap();
    assert!(broker.family().len() > 1);
    let mut client = Client::connect(broker.address).unwrap();
    assert_eq!(client.declare("q").unwrap(), 0);
    let mut flow = bodies::straight(300).unwrap();
    let sent = &mut flow.http.sent;
    let write = |index: u64, out: &mut Vec<u8>| out.extend_from_slice(sent.with(index));
    client.publish("q", 1000, write).unwrap();
    // A broker answers before it has put away all that it has read.
    let start = Instant::now();
    while client.ready("q").unwrap() < 1000 {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    let other = |_, out: &mut Vec<u8>| out.extend_from_slice(b"{}");
    client.publish("q", 1, other).unwrap();
    let ledger = Arc::new(Ledger::new());
    (0..990).for_each(|number| ledger.acknowledge(number));
    let drain = Drain::start(broker.address, "q", flow.queued, &ledger).unwrap();
    let wanted = Delivered {
        acknowledged: 990,
        wrong: 1,
        unanswered: 10,
        ..Delivered::default()
    };
    assert_eq!(drain.finish().unwrap(), wanted);
    assert_eq!(client.ready("q").unwrap(), 0);
    client.delete("q").unwrap();
    let error = client.ready("q").unwrap_err().to_string();
    assert!(error.contains("NOT_FOUND"), "{error}");
}

#[test]
fn a_database_has_its_tables() {
    let folder = Folder::new("lab-glu-database").unwrap();
    let database = Database::start(&folder, &Cores::of_machine().unwrap()).unwrap();
    assert!(database.orders().unwrap().is_empty());
    let id = FIRST + 5;
    let insert = format!("insert into orders values ({id}, 42, 1, 'accepted')");
    database.run("lab", &insert).unwrap();
    assert_eq!(database.orders().unwrap(), [id]);
    let ledger = Ledger::new();
    (5..7).for_each(|number| ledger.acknowledge(number));
    assert_eq!(ledger.missing_of(&database.orders().unwrap()), 1);
    database.clear().unwrap();
    assert!(database.orders().unwrap().is_empty());
    let error = database
        .run("lab", "select nothing")
        .unwrap_err()
        .to_string();
    assert!(error.contains("nothing"), "{error}");
}

#[test]
fn a_stub_counts_and_holds_back() {
    use std::io::{Read, Write};
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    let stub = crate::stub::Counted::start(Duration::from_millis(1), || ()).unwrap();
    let counts = || {
        let counts = stub.counts();
        [&counts.begun, &counts.done].map(|it| it.load(Ordering::Relaxed))
    };
    let mut stream = std::net::TcpStream::connect(stub.address).unwrap();
    let request = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab";
    let mut reply = [0; 40];
    for count in 1..3 {
        stream.write_all(request).unwrap();
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(counts()[0], count);
    }
    stub.hold(true);
    stream.write_all(request).unwrap();
    while counts()[0] < 3 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(counts()[1], 2);
    stub.hold(false);
    stream.read_exact(&mut reply).unwrap();
}
