//! Brokers and engines that die, and brokers that have no memory left.

use std::collections::BTreeSet;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::servers::Rabbitmq;
use testkit::{StrictBackend, free_port, wait_until};

use super::client::Client;
use super::consume::{BROKEN, OK, to_backend};
use super::{BROKER, name, run};
use crate::support::post;

fn flows(url: &str, queue: &str, port: u16) -> String {
    format!(
        "flow: out\nuse: {{ mq: {{ rabbitmq: '{url}' }} }}\n\
         from: {{ http: 'POST 127.0.0.1:{port}/out' }}\nsteps:\n\
         - publish: {{ to: mq, queue: {queue} }}\n  timeout: 2s\n- reply: {{ status: 202 }}\n"
    )
}

fn numbers(messages: &[amqp::Message]) -> BTreeSet<u32> {
    let texts = messages
        .iter()
        .map(|it| String::from_utf8(it.body.to_vec()).unwrap());
    texts.map(|it| it.parse().unwrap()).collect()
}

#[test]
fn what_a_killed_broker_has_confirmed_is_there() {
    let broker = Rabbitmq::start("");
    let (queue, port) = (name("kept"), free_port());
    Client::connect(broker.port(), "/").declare_queue(&queue, &[]);
    broker.sync_declarations();
    let (engine, _folder) = run(&flows(&broker.url(), &queue, port));
    let next = Arc::new(AtomicU32::new(0));
    let sent = Arc::new(AtomicU32::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let (next, count) = (Arc::clone(&next), Arc::clone(&sent));
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let mut taken = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let body = number.to_string();
                    if post(port, "/out", "text/plain", &body).status == 202 {
                        taken.push(number);
                        count.fetch_add(1, Ordering::Relaxed);
                    } else {
                        // What is refused at once leaves the machine to the broker that starts.
                        thread::sleep(Duration::from_millis(20));
                    }
                }
                taken
            })
        })
        .collect();
    wait_until("some were sent", || sent.load(Ordering::Relaxed) > 200);
    broker.kill();
    thread::sleep(Duration::from_millis(300));
    broker.go_on();
    let back = sent.load(Ordering::Relaxed);
    wait_until("more were sent", || {
        sent.load(Ordering::Relaxed) > back + 20
    });
    is_over.store(true, Ordering::Relaxed);
    let taken: BTreeSet<u32> = senders
        .into_iter()
        .flat_map(|it| it.join().unwrap())
        .collect();
    let told = engine.stop();
    assert!(
        told.contains("the connection to the broker is lost"),
        "{told}"
    );
    let mut client = Client::connect(broker.port(), "/");
    client.consume(&queue);
    let kept = numbers(&client.take_all());
    assert!(taken.len() > 200);
    let lost: Vec<_> = taken.difference(&kept).collect();
    assert!(lost.is_empty(), "lost: {lost:?} of {}", taken.len());

    memory_alarm(&broker);
}

/// The same broker, whose start takes long.
fn memory_alarm(broker: &Rabbitmq) {
    let (queue, port) = (name("alarm"), free_port());
    Client::connect(broker.port(), "/").declare_queue(&queue, &[]);
    let (engine, _folder) = run(&flows(&broker.url(), &queue, port));
    assert_eq!(post(port, "/out", "text/plain", "1").status, 202);
    broker.set_memory_alarm(true);
    // The first message behind the alarm makes the broker tell of it; it may wait for long.
    let mut waiting = Vec::new();
    wait_until("it is told", || {
        waiting.push(thread::spawn(move || {
            post(port, "/out", "text/plain", "2").status
        }));
        thread::sleep(Duration::from_millis(200));
        engine
            .process
            .output()
            .contains("takes no messages for now")
    });
    let mut refused = None;
    for _ in 0..20 {
        // Another worker may not have heard of it yet.
        let reply = post(port, "/out", "text/plain", "3");
        if reply.status == 503 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("nobody was refused");
    assert_eq!(refused.header("retry-after"), Some("5"));
    let metrics = engine.get("/metrics").text();
    assert!(
        !metrics.contains("intertie_rabbitmq_blocked{flow=\"\",step=\"mq\"} 0"),
        "{metrics}"
    );
    broker.set_memory_alarm(false);
    wait_until("it takes messages again", || {
        post(port, "/out", "text/plain", "4").status == 202
    });
    for it in waiting {
        assert!(matches!(it.join().unwrap(), 202 | 503 | 504));
    }
    engine.stop();
}

/// What stands between an engine and a broker: it can cut all connections, and let new ones wait or
/// refuse them.
struct Relay {
    port: u16,
    to: u16,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    is_held: Arc<AtomicBool>,
    is_gone: Arc<AtomicBool>,
}

impl Relay {
    fn start(to: u16) -> Self {
        let relay = Self {
            port: free_port(),
            to,
            streams: Arc::default(),
            is_held: Arc::default(),
            is_gone: Arc::default(),
        };
        relay.listen();
        relay
    }

    fn listen(&self) {
        self.is_gone.store(false, Ordering::Relaxed);
        let listener = TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (to, streams) = (self.to, Arc::clone(&self.streams));
        let (is_held, is_gone) = (Arc::clone(&self.is_held), Arc::clone(&self.is_gone));
        thread::spawn(move || {
            while !is_gone.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
                if is_held.load(Ordering::Relaxed) {
                    continue;
                }
                if let Ok((near, _)) = listener.accept() {
                    near.set_nonblocking(false).unwrap();
                    let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
                    for (from, to) in [(&near, &far), (&far, &near)] {
                        let [mut from, mut to] = [from, to].map(|it| it.try_clone().unwrap());
                        thread::spawn(move || {
                            let _ = std::io::copy(&mut from, &mut to);
                            let _ = to.shutdown(Shutdown::Both);
                        });
                    }
                    streams.lock().unwrap().extend([near, far]);
                }
            }
        });
    }

    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_short_interruption_is_waited_for_and_a_long_one_is_told_at_once() {
    let (queue, port) = (name("blip"), free_port());
    Client::connect(BROKER.port(), "/").declare_queue(&queue, &[]);
    let relay = Relay::start(BROKER.port());
    let url = format!("amqp://127.0.0.1:{}", relay.port);
    let flow = flows(&url, &queue, port).replace("timeout: 2s", "timeout: 20s");
    let (engine, _folder) = run(&flow);
    let send = move || post(port, "/out", "text/plain", "1");
    assert_eq!(send().status, 202);
    relay.is_held.store(true, Ordering::Relaxed);
    relay.cut();
    engine
        .process
        .wait_for("the connection to the broker is lost");
    // The connection is being made: nobody fails.
    let waiting: Vec<_> = (0..4).map(|_| thread::spawn(send)).collect();
    thread::sleep(Duration::from_millis(100));
    relay.is_held.store(false, Ordering::Relaxed);
    for it in waiting {
        assert_eq!(
            it.join().unwrap().status,
            202,
            "{}",
            engine.process.output()
        );
    }
    relay.is_gone.store(true, Ordering::Relaxed);
    wait_until("nobody listens", || {
        TcpStream::connect(("127.0.0.1", relay.port)).is_err()
    });
    relay.cut();
    wait_until("it is told", || send().status == 503);
    // Far less than the step may take, and than the engine waits between tries.
    let start = Instant::now();
    for _ in 0..10 {
        let reply = send();
        assert_eq!(reply.status, 503, "{}", reply.text());
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    relay.listen();
    wait_until("it is there again", || send().status == 202);
    let told = engine.stop();
    assert!(told.contains("connection mq"), "{told}");
}

#[test]
fn what_a_killed_engine_had_under_way_comes_again() {
    let queue = name("in");
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let is_slow = Arc::new(AtomicBool::new(true));
    let slow = Arc::clone(&is_slow);
    let backend = StrictBackend::answering(move |_| {
        if slow.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(30));
        }
        OK.to_vec()
    });
    for number in 0..300 {
        let body = number.to_string();
        client.push(&queue, &super::client::json(), body.as_bytes());
    }
    client.publish_json(&queue, "300");
    let flow = format!(
        "flow: in\nuse: {{ mq: {{ rabbitmq: '{}' }} }}\n\
         from: {{ rabbitmq: {{ connection: mq, queue: {queue}, prefetch: 20 }} }}\nsteps:\n\
         - http: 'POST http://127.0.0.1:{}/in'\n",
        BROKER.url(),
        backend.port()
    );
    let (engine, _folder) = run(&flow);
    wait_until("some have come", || backend.requests().len() > 30);
    drop(engine);
    is_slow.store(false, Ordering::Relaxed);
    let came =
        || -> BTreeSet<Vec<u8>> { backend.requests().into_iter().map(|it| it.body).collect() };
    assert!(came().len() < 301, "the engine was killed too late");
    let (engine, _folder) = run(&flow);
    wait_until("all have come", || came().len() == 301);
    engine.stop();
    client.consume(&queue);
    assert!(client.take_all().is_empty());
}

/// The message that is retried comes again first, and is tried no more often than without that.
#[test]
fn an_ordered_queue_keeps_its_order_when_the_connection_is_lost_between_tries() {
    let queue = name("in");
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    for number in 1..4 {
        client.publish_json(&queue, &format!("{{\"n\":{number}}}"));
    }
    let backend = StrictBackend::answering(|received| match &*received.body {
        br#"{"n":1}"# => BROKEN.to_vec(),
        _ => OK.to_vec(),
    });
    let relay = Relay::start(BROKER.port());
    let settings = "ordered: true, dead_letter: drop, \
                    retry: { times: 7, delay: 300ms, backoff: 1, jitter: 0% }";
    let flow = to_backend(&queue, settings, backend.port());
    let flow = flow.replace(&BROKER.url(), &format!("amqp://127.0.0.1:{}", relay.port));
    let (engine, _folder) = run(&flow);
    for count in [2, 5] {
        wait_until("it has failed", || backend.requests().len() >= count);
        relay.cut();
    }
    wait_until("all have come", || backend.requests().len() == 10);
    let requests = backend.requests();
    let came: Vec<_> = requests.iter().map(|it| it.body[5] - b'0').collect();
    assert_eq!(came, [1, 1, 1, 1, 1, 1, 1, 1, 2, 3]);
    let redelivered = engine.measured("intertie_rabbitmq_redelivered_total", &[]);
    assert!(redelivered >= Some(2.0), "{redelivered:?}");
    engine.stop();
    client.consume(&queue);
    assert!(client.take_all().is_empty());
}

/// A test once left a dump of 700 kB among the sources.
#[test]
fn a_broker_that_crashes_leaves_its_dump_in_its_temporary_folder() {
    let broker = Rabbitmq::start("");
    let dump = broker.crash();
    wait_until("the dump is written", || {
        std::fs::metadata(&dump).is_ok_and(|it| it.len() > 0)
    });
    assert!(!std::path::Path::new("erl_crash.dump").exists());
}
