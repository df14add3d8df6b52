//! A back end that is killed and started again under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::{Process, RawClient, TempDir, free_port};

use crate::support::{Engine, command};

const CLIENTS: usize = 8;

fn start_stub(port: u16) -> Process {
    let address = format!("127.0.0.1:{port}");
    let mut stub = Process::start(command().args(["stub", "echo", "--listen", &address]));
    stub.wait_for_port(port);
    stub
}

fn kill(mut stub: Process) {
    stub.signal("KILL");
    stub.wait();
}

/// Clients that send one request after the other, each with a body of its own.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<(Instant, u16)>>>,
}

impl Load {
    fn start(port: u16, method: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicUsize::new(0));
        let clients = (0..CLIENTS).map(|number| {
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            std::thread::spawn(move || run(port, method, number, &stop, &done))
        });
        let clients = clients.collect();
        Self {
            stop,
            done,
            clients,
        }
    }

    /// Waits until so many more requests have been answered.
    fn goes_on(&self, count: usize) {
        let goal = self.done.load(Ordering::SeqCst) + count;
        testkit::wait_until("the load goes on", || {
            self.done.load(Ordering::SeqCst) >= goal
        });
    }

    /// The failures: when, and with which status.
    fn finish(self) -> Vec<(Instant, u16)> {
        self.stop.store(true, Ordering::SeqCst);
        let clients = self.clients.into_iter();
        clients.flat_map(|client| client.join().unwrap()).collect()
    }
}

fn run(
    port: u16,
    method: &str,
    number: usize,
    stop: &AtomicBool,
    done: &AtomicUsize,
) -> Vec<(Instant, u16)> {
    let mut failures = Vec::new();
    let mut client = RawClient::connect(port);
    let mut at = 0_u64;
    while !stop.load(Ordering::SeqCst) {
        at += 1;
        let body = format!("{number}-{at}");
        client.send(format!(
            "{method} /x HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let response = client.response();
        match response.status {
            // A reply to another request would have another body.
            200 => assert_eq!(response.text(), body),
            status => failures.push((Instant::now(), status)),
        }
        done.fetch_add(1, Ordering::SeqCst);
        if response.header("connection") == Some("close") {
            client = RawClient::connect(port);
        }
    }
    failures
}

fn engine(folder: &TempDir, ports: &[u16]) -> (Engine, u16) {
    let port = free_port();
    let urls: Vec<String> = ports
        .iter()
        .map(|port| format!("http://127.0.0.1:{port}"))
        .collect();
    folder.write(
        "flow.yaml",
        &format!(
            "flow: a\nuse:\n  back:\n    http: [{}]\n    eject: {{ failures: 3, time: 200ms }}\n\
             from: {{ http: any 127.0.0.1:{port}/x }}\nsteps: [ forward: back:/x ]\n",
            urls.join(", ")
        ),
    );
    (Engine::run(&[folder.path()], &[]), port)
}

#[test]
fn only_requests_in_flight_fail_when_one_of_two_back_ends_dies() {
    let ports = [free_port(), free_port()];
    let (first, _second) = (start_stub(ports[0]), start_stub(ports[1]));
    let folder = TempDir::new();
    let (engine, port) = engine(&folder, &ports);
    let load = Load::start(port, "POST");
    load.goes_on(500);
    kill(first);
    load.goes_on(2000);
    let again = start_stub(ports[0]);
    std::thread::sleep(Duration::from_millis(400));
    load.goes_on(1000);
    let failures = load.finish();
    // Each connection to it fails one request at most, for the system closes them one by one while
    // the process dies; each of the two workers had at most one for each client.
    assert!(failures.len() <= 2 * CLIENTS, "{failures:?}");
    assert!(
        failures.iter().all(|(_, status)| *status == 502),
        "{failures:?}"
    );
    let load = Load::start(port, "PUT");
    load.goes_on(500);
    kill(again);
    load.goes_on(2000);
    assert_eq!(load.finish(), [], "what is safe to repeat is repeated");
    engine.stop();
}

#[test]
fn service_is_back_within_a_second_of_the_back_end() {
    let back = free_port();
    let stub = start_stub(back);
    let folder = TempDir::new();
    let (engine, port) = engine(&folder, &[back]);
    let load = Load::start(port, "POST");
    load.goes_on(500);
    kill(stub);
    load.goes_on(500);
    let _again = start_stub(back);
    let started = Instant::now();
    std::thread::sleep(Duration::from_millis(1500));
    load.goes_on(500);
    let failures = load.finish();
    assert!(!failures.is_empty(), "nobody can answer meanwhile");
    let late = |at: &Instant| *at > started + Duration::from_secs(1);
    assert!(
        !failures.iter().any(|(at, _)| late(at)),
        "it takes too long"
    );
    engine.stop();
}
