//! Receivers that are odd, and do nothing that is forbidden.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::*;

/// A receiver that does with each connection what a function says; the ids of all events that have
/// come to it, in their order.
struct Receiver {
    port: u16,
    ids: Arc<Mutex<Vec<String>>>,
}

/// What a connection has brought.
struct Incoming {
    stream: BufReader<TcpStream>,
    ids: Arc<Mutex<Vec<String>>>,
}

impl Incoming {
    /// Reads a request and notes its id; false at the end.
    fn read(&mut self) -> bool {
        let Some((length, id)) = self.read_head() else {
            return false;
        };
        let mut body = vec![0; length];
        if self.stream.read_exact(&mut body).is_err() {
            return false;
        }
        self.ids.lock().unwrap().push(id);
        true
    }

    /// Reads the head of a request: the length of its body, and its id.
    fn read_head(&mut self) -> Option<(usize, String)> {
        let (mut length, mut id) = (0, String::new());
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if line == "\r\n" {
                return Some((length, id));
            }
            let (name, value) = line.trim_end().split_once(": ").unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "webhook-id" => value.clone_into(&mut id),
                _ => {}
            }
        }
    }

    fn write(&mut self, text: &str) -> bool {
        self.stream.get_mut().write_all(text.as_bytes()).is_ok()
    }
}

impl Receiver {
    fn new(serve: impl Fn(Incoming) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ids: Arc<Mutex<Vec<String>>> = Arc::default();
        let (noted, serve) = (Arc::clone(&ids), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (ids, serve) = (Arc::clone(&noted), Arc::clone(&serve));
                let stream = BufReader::new(stream.unwrap());
                thread::spawn(move || serve(Incoming { stream, ids }));
            }
        });
        Self { port, ids }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    fn wait_for(&self, count: usize) -> Vec<String> {
        let ids = || self.ids.lock().unwrap().clone();
        wait_long(&format!("{count} requests come"), || ids().len() >= count);
        ids()
    }
}

#[test]
fn a_status_counts_however_slow_the_body_of_its_reply_is() {
    let receiver = Receiver::new(|mut incoming| {
        if incoming.read() {
            incoming.write("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
            while incoming.write("x") {
                thread::sleep(Duration::from_millis(50));
            }
        }
    });
    let more = "timeout: 2s, retry: { delay: 100ms }";
    let place = Place::new(&endpoint("shop", &receiver.url(), more));
    let engine = place.run();
    let ids = place.publish_all(0..5);
    assert_eq!(receiver.wait_for(5), ids);
    wait_long("all are done", || {
        measure(&engine, "lag_events", "shop") == 0.0
    });
    assert_eq!(measure(&engine, "failed_total", "shop"), 0.0);
    engine.stop();
    assert_eq!(receiver.wait_for(5), ids, "each once");
}

/// Both sides may close a kept connection at any time: a request that meets that is no failure of
/// the receiver, which tells repetitions by their id.
#[test]
fn a_kept_connection_that_closes_under_a_request_delays_nothing() {
    let receiver = Receiver::new(|mut incoming| {
        if incoming.read() && incoming.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") {
            // Closed as soon as the next request begins.
            let _ = incoming.stream.read_exact(&mut [0]);
        }
    });
    let more = "retry: { delay: 1h }";
    let place = Place::new(&endpoint("shop", &receiver.url(), more));
    let engine = place.run();
    let ids = place.publish_all(0..10);
    assert_eq!(receiver.wait_for(10), ids);
    wait_long("all are done", || {
        measure(&engine, "lag_events", "shop") == 0.0
    });
    assert_eq!(measure(&engine, "failed_total", "shop"), 0.0);
    engine.stop();
}

/// A reply that comes before the request is complete does not acknowledge the event.
#[test]
fn a_reply_to_a_request_that_has_not_come_whole_accepts_nothing() {
    let is_first = AtomicBool::new(true);
    let receiver = Receiver::new(move |mut incoming| {
        if is_first.swap(false, Ordering::Relaxed) {
            incoming.read_head();
            incoming.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            thread::sleep(Duration::from_millis(300));
            return;
        }
        while incoming.read() {
            incoming.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let place = Place::with(
        "payload: event\nbody_max: 8MiB",
        &endpoint("shop", &receiver.url(), "retry: { delay: 50ms }"),
    );
    let engine = place.run();
    let large = format!("\"{}\"", "x".repeat(7 << 20));
    let ids = [place.publish(&large), place.publish("2")];
    assert_eq!(receiver.wait_for(2), ids);
    assert_eq!(measure(&engine, "failed_total", "shop"), 1.0);
    engine.stop();
}

/// What one attempt has sent says nothing about the next: the second one, of the same event, is
/// answered early.
#[test]
fn a_repeated_request_that_has_not_come_whole_accepts_nothing_either() {
    let connections = AtomicUsize::new(0);
    let receiver = Receiver::new(move |mut incoming| {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        match connections.fetch_add(1, Ordering::Relaxed) {
            0 => {
                incoming.read();
                incoming.write(ok);
                // The second one comes whole, and the connection is closed without an answer.
                let (length, _) = incoming.read_head().unwrap();
                let _ = incoming.stream.read_exact(&mut vec![0; length]);
            }
            1 => {
                incoming.read_head();
                incoming.write(ok);
                thread::sleep(Duration::from_millis(300));
            }
            _ => while incoming.read() && incoming.write(ok) {},
        }
    });
    let place = Place::with(
        "payload: event\nbody_max: 8MiB",
        &endpoint("shop", &receiver.url(), "retry: { delay: 50ms }"),
    );
    let engine = place.run();
    let large = format!("\"{}\"", "x".repeat(7 << 20));
    let first = place.publish("1");
    receiver.wait_for(1);
    let ids = [first, place.publish(&large), place.publish("3")];
    assert_eq!(receiver.wait_for(3), ids);
    assert_eq!(measure(&engine, "failed_total", "shop"), 1.0);
    engine.stop();
}

/// How long a request has queued for its connection does not count when that is closed under it.
#[test]
fn a_request_that_has_waited_for_its_connection_is_repeated_too() {
    let receiver = Receiver::new(|mut incoming| {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        if incoming.read() {
            // The other one waits for the only connection meanwhile.
            thread::sleep(Duration::from_millis(1500));
            incoming.write(ok);
            let _ = incoming.stream.read_exact(&mut [0]);
        }
    });
    let more = "retry: { delay: 1h }, ordered: false, concurrent: 2";
    let port = receiver.port;
    let used = format!("use: {{ sink: {{ http: \"http://127.0.0.1:{port}\", connections: 1 }} }}");
    let place = Place::with(
        &format!("payload: event\n{used}"),
        &endpoint("shop", "sink:/hook", more),
    );
    let engine = place.run();
    let ids = place.publish_all(0..2);
    assert_eq!(receiver.wait_for(2), ids);
    wait_long("both are done", || {
        measure(&engine, "lag_events", "shop") == 0.0
    });
    assert_eq!(measure(&engine, "failed_total", "shop"), 0.0);
    engine.stop();
}
