//! Brokers and engines that die, and brokers that have no memory left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use testkit::servers::Rabbitmq;
use testkit::{StrictBackend, free_port, wait_until};

use super::client::Client;
use super::{BROKER, name, run};
use crate::support::post;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

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
    let (engine, _folder) = run(&flows(&broker.url(), &queue, port));
    let (next, is_over) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let (next, is_over) = (Arc::clone(&next), Arc::clone(&is_over));
            thread::spawn(move || {
                let mut taken = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let body = number.to_string();
                    if post(port, "/out", "text/plain", &body).status == 202 {
                        taken.push(number);
                    }
                }
                taken
            })
        })
        .collect();
    wait_until("some were sent", || next.load(Ordering::Relaxed) > 200);
    broker.kill();
    thread::sleep(Duration::from_millis(300));
    broker.go_on();
    let back = next.load(Ordering::Relaxed);
    wait_until("more were sent", || {
        next.load(Ordering::Relaxed) > back + 100
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
