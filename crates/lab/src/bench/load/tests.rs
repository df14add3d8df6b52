//! The generator against the stub, and against servers that answer wrongly.
#![cfg(test)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use super::{Load, Plan};
use crate::bench::body::Bodies;
use crate::bench::stats::Stats;

fn plan(address: SocketAddr, streams: &str, is_h2: bool) -> Plan {
    Plan {
        address,
        is_h2,
        tls: None,
        path: "/x".to_owned(),
        streams: streams.parse().unwrap(),
        rate: None,
        bodies: Bodies::new(50, false).unwrap(),
        dialogue: None,
        status: 200,
        ledger: None,
        tokens: None,
        cores: Vec::new(),
    }
}

/// Runs until there are replies or errors.
fn load(plan: &Plan) -> Stats {
    for milliseconds in [50, 200, 1000, 5000] {
        let load = Load::start(plan).unwrap();
        load.measure();
        thread::sleep(Duration::from_millis(milliseconds));
        let stats = load.finish().unwrap();
        let silent = stats.errors.get("no reply").copied().unwrap_or(0);
        let told = stats.errors.values().sum::<u64>();
        if silent == 0 || told > silent {
            return stats;
        }
    }
    panic!("nothing came");
}

/// A server that gives every request the same answer; the text has a length.
fn canned(reply: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
                    if stream.write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn users_get_their_replies() {
    let address = crate::stub::spawn("echo", &[]).unwrap();
    let stats = load(&plan(address, "5x1", false));
    assert!(
        stats.replies() > 5 && stats.errors.is_empty(),
        "{:?}",
        stats.first_error
    );
}

#[test]
fn streams_get_their_replies() {
    let address = crate::stub::spawn("echo", &["--protocols", "h2"]).unwrap();
    let stats = load(&plan(address, "2x10", true));
    assert!(
        stats.replies() > 20 && stats.errors.is_empty(),
        "{:?}",
        stats.first_error
    );
}

#[test]
fn a_fixed_rate_is_kept_over_both_protocols() {
    for (arguments, is_h2) in [(&[][..], false), (&["--protocols", "h2"], true)] {
        let address = crate::stub::spawn("echo", arguments).unwrap();
        let mut plan = plan(address, "2x2", is_h2);
        plan.rate = Some(500.0);
        let stats = load(&plan);
        assert!(
            stats.replies() > 0 && stats.errors.is_empty(),
            "{:?}",
            stats.first_error
        );
    }
}

#[test]
fn wrong_replies_are_errors() {
    let cases = [
        ("HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno", "status"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", "body"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "body",
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", "connection"),
        ("nonsense\r\n\r\n", "connection"),
    ];
    for (reply, kind) in cases {
        let stats = load(&plan(canned(reply), "1x1", false));
        assert_eq!(stats.replies(), 0, "{reply}");
        assert!(
            stats.errors.contains_key(kind),
            "{reply}: {:?}",
            stats.errors
        );
        assert!(stats.first_error.is_some());
    }
}

#[test]
fn what_does_not_listen_cannot_be_measured() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert!(Load::start(&plan(address, "1x1", false)).is_err());
}
