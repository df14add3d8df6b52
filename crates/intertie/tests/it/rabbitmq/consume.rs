//! Consuming.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use amqp::{Properties, Table, Value};
use testkit::{StrictBackend, free_port, wait_until};

use super::client::{Client, json};
use super::{BROKER, name, run};
use crate::support::{get, post};

pub(super) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
pub(super) const BROKEN: &[u8] = b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n";

/// A flow that posts each message of a queue to a back end.
pub(super) fn to_backend(queue: &str, settings: &str, port: u16) -> String {
    let url = BROKER.url();
    format!(
        "flow: out\nuse: {{ mq: {{ rabbitmq: '{url}' }} }}\n\
         from:\n  rabbitmq: {{ connection: mq, queue: {queue}, {settings} }}\nsteps:\n\
         - http: {{ to: 'http://127.0.0.1:{port}/in', method: POST, headers: {{\
         X-Id: '${{ $path.id }}', X-Queue: '${{ $path.queue }}',\
         X-Tenant: '${{ $headers.tenant }}', X-Times: '${{ $path.deliveries }}' }} }}\n"
    )
}

#[test]
fn each_message_runs_the_flow_and_is_acknowledged() {
    let queue = name("in");
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let mut table = Table::default();
    table.set("tenant", "a");
    let mut headers = Vec::new();
    table.write(&mut headers).unwrap();
    let properties = Properties {
        message_id: Some(b"m/1"),
        headers: Some(&headers[4..]),
        ..json()
    };
    client.publish(&queue, &properties, br#"{"n":1}"#);
    let backend = StrictBackend::answering(|_| OK.to_vec());
    let (engine, _folder) = run(&to_backend(&queue, "prefetch: 10", backend.port()));
    wait_until("the message has come", || backend.requests().len() == 1);
    let received = backend.requests().remove(0);
    assert_eq!(received.body, br#"{"n":1}"#);
    assert_eq!(received.header("x-id"), Some("m/1"));
    assert_eq!(received.header("x-queue"), Some(&*queue));
    assert_eq!(received.header("x-tenant"), Some("a"));
    assert_eq!(received.header("x-times"), Some("1"));
    for number in 0..200 {
        client.push(&queue, &json(), format!("{{\"n\":{number}}}").as_bytes());
    }
    client.publish_json(&queue, "{}");
    wait_until("all have come", || backend.requests().len() == 202);
    let delivered = "intertie_rabbitmq_delivered_total{flow=\"\",step=\"mq\"} 202";
    wait_until("they are counted", || {
        engine.get("/metrics").text().contains(delivered)
    });
    engine.stop();
    client.consume(&queue);
    assert!(client.take_all().is_empty(), "all were acknowledged");
}

#[test]
fn only_so_many_flows_run_beside_each_other() {
    let queue = name("in");
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    for number in 0..29 {
        client.push(&queue, &json(), format!("{{\"n\":{number}}}").as_bytes());
    }
    client.publish_json(&queue, r#"{"n":29}"#);
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let is_held = Arc::new(AtomicBool::new(true));
    let backend = {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        let is_held = Arc::clone(&is_held);
        StrictBackend::answering(move |_| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            while is_held.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            thread::sleep(Duration::from_millis(20));
            running.fetch_sub(1, Ordering::SeqCst);
            OK.to_vec()
        })
    };
    let settings = "concurrent: 3, prefetch: 8";
    let (engine, _folder) = run(&to_backend(&queue, settings, backend.port()));
    let delivered = |count: u32| {
        let line = format!("intertie_rabbitmq_delivered_total{{flow=\"\",step=\"mq\"}} {count}.");
        wait_until("messages have been delivered", || {
            engine.get("/metrics").text().contains(&line)
        });
    };
    // What may come has come, and no more than may run does.
    delivered(8);
    wait_until("three are under way", || {
        running.load(Ordering::SeqCst) == 3
    });
    is_held.store(false, Ordering::SeqCst);
    wait_until("all have come", || backend.requests().len() == 30);
    delivered(30);
    wait_until("all have ended", || running.load(Ordering::SeqCst) == 0);
    assert_eq!(most.load(Ordering::SeqCst), 3);
    // Those whose flows have not begun when the engine ends go back.
    is_held.store(true, Ordering::SeqCst);
    for number in 30..38 {
        client.publish_json(&queue, &format!("{{\"n\":{number}}}"));
    }
    delivered(38);
    wait_until("three are under way", || {
        running.load(Ordering::SeqCst) == 3
    });
    let open = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        is_held.store(false, Ordering::SeqCst);
    });
    engine.stop();
    open.join().unwrap();
    client.consume(&queue);
    let left = client.take_all().len();
    assert_eq!((left, backend.requests().len()), (5, 33));
}

#[test]
fn a_queue_that_goes_and_comes_back_is_consumed_again() {
    let queue = name("in");
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let backend = StrictBackend::answering(|_| OK.to_vec());
    let (engine, _folder) = run(&to_backend(&queue, "prefetch: 10", backend.port()));
    client.publish_json(&queue, "{}");
    wait_until("the message has come", || backend.requests().len() == 1);
    client.delete_queue(&queue);
    engine.process.wait_for("the broker has ended the consumer");
    client.declare_queue(&queue, &[]);
    client.publish_json(&queue, "{}");
    wait_until("the next one has come", || backend.requests().len() == 2);
    engine.stop();
}

/// It is held here, and then rejected; the broker moves it to the queue's dead-letter exchange.
fn retried(kind: &str) {
    let (queue, dead) = (name("in"), name("dead"));
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&dead, &[]);
    let arguments = [
        ("x-queue-type", Value::from(kind)),
        ("x-dead-letter-exchange", Value::from("")),
        ("x-dead-letter-routing-key", Value::from(&*dead)),
    ];
    client.declare_queue(&queue, &arguments);
    let backend = StrictBackend::answering(|_| BROKEN.to_vec());
    let settings = "retry: { times: 3, delay: 10ms }, dead_letter: reject";
    let (engine, _folder) = run(&to_backend(&queue, settings, backend.port()));
    client.publish_json(&queue, r#"{"n":1}"#);
    client.consume(&dead);
    let message = client.take(1).remove(0);
    assert_eq!(&*message.body, br#"{"n":1}"#);
    let received = backend.requests();
    let times: Vec<_> = received.iter().map(|it| it.header("x-times")).collect();
    assert_eq!(
        times,
        [Some("1"), Some("2"), Some("3"), Some("4")],
        "{kind}"
    );
    let redelivered = engine.measured("intertie_rabbitmq_redelivered_total", &[]);
    assert_eq!(redelivered, Some(0.0), "{kind}");
    engine.stop();
}

#[test]
fn what_fails_is_tried_again_a_limited_number_of_times() {
    retried("classic");
}

#[test]
fn messages_of_a_quorum_queue_are_tried_again_as_often() {
    retried("quorum");
}

#[test]
fn a_message_that_fails_holds_up_those_behind_it_when_they_are_ordered() {
    for kind in ["classic", "quorum"] {
        let queue = name("in");
        let mut client = Client::connect(BROKER.port(), "/");
        client.declare_queue(&queue, &[("x-queue-type", Value::from(kind))]);
        for number in 0..4 {
            client.publish_json(&queue, &format!("{{\"n\":{number}}}"));
        }
        let backend = StrictBackend::answering(|received| match &*received.body {
            br#"{"n":1}"# => BROKEN.to_vec(),
            _ => OK.to_vec(),
        });
        let settings = "ordered: true, retry: { times: 3, delay: 10ms }, dead_letter: drop";
        let (engine, _folder) = run(&to_backend(&queue, settings, backend.port()));
        wait_until("the last one has come", || {
            let last = backend.requests().pop();
            last.is_some_and(|it| it.body == br#"{"n":3}"#)
        });
        let requests = backend.requests().into_iter();
        let came: Vec<_> = requests
            .map(|it| (it.body[5] - b'0', it.header("x-times").unwrap().to_owned()))
            .collect();
        let times = |number: u8, times: &str| (number, times.to_owned());
        let expected = [
            times(0, "1"),
            times(1, "1"),
            times(1, "2"),
            times(1, "3"),
            times(1, "4"),
            times(2, "1"),
            times(3, "1"),
        ];
        assert_eq!(came, expected, "{kind}");
        engine.stop();
    }
}

#[test]
fn a_message_that_fails_keeps_its_place_when_the_engine_stops() {
    for kind in ["classic", "quorum"] {
        let queue = name("in");
        let mut client = Client::connect(BROKER.port(), "/");
        client.declare_queue(&queue, &[("x-queue-type", Value::from(kind))]);
        for number in 1..4 {
            client.publish_json(&queue, &format!("{{\"n\":{number}}}"));
        }
        let is_broken = Arc::new(AtomicBool::new(true));
        let backend = {
            let is_broken = Arc::clone(&is_broken);
            StrictBackend::answering(move |_| match is_broken.load(Ordering::SeqCst) {
                true => BROKEN.to_vec(),
                false => OK.to_vec(),
            })
        };
        let settings = "ordered: true, retry: { times: 1000, delay: 50ms, backoff: 1 }";
        let flow = to_backend(&queue, settings, backend.port());
        let (engine, _folder) = run(&flow);
        wait_until("it has failed three times", || {
            backend.requests().len() >= 3
        });
        engine.stop();
        is_broken.store(false, Ordering::SeqCst);
        let before = backend.requests().len();
        let (engine, _folder) = run(&flow);
        wait_until("all have come", || backend.requests().len() == before + 3);
        let requests = backend.requests();
        let came: Vec<_> = requests.iter().map(|it| it.body[5] - b'0').collect();
        let (first, last) = came.split_at(before);
        assert!(first.iter().all(|number| *number == 1), "{kind}: {came:?}");
        assert_eq!(last, [1, 2, 3], "{kind}");
        engine.stop();
    }
}

#[test]
fn a_failed_reply_is_no_success() {
    let (queue, port, url) = (name("ask"), free_port(), BROKER.url());
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let (engine, _folder) = run(&format!(
        "engine: {{}}\nuse: {{ mq: {{ rabbitmq: '{url}' }} }}\n---\n\
         flow: ask\nfrom: {{ http: 'POST 127.0.0.1:{port}/ask' }}\nsteps:\n\
         - request: {{ to: mq, queue: {queue} }}\n\
         - reply: {{ body: {{ is: '${{ $reply.status }}' }} }}\n\
         on_error:\n\
         - {{ on: 409, reply: {{ body: '409' }} }}\n\
         - {{ on: 5xx, reply: {{ body: '5xx' }} }}\n\
         ---\n\
         flow: answer\nfrom:\n  rabbitmq: {{ connection: mq, queue: {queue}, reply: true, \
         retry: {{ times: 1, delay: 10ms }}, dead_letter: drop }}\n\
         steps:\n\
         - if: {{ when: .n == 1, then: [{{ reply: {{ status: 201 }} }}] }}\n\
         - if: {{ when: .n == 2, then: [{{ reply: {{ status: 409 }} }}] }}\n\
         - raise: {{ type: broken, status: 500 }}\n"
    ));
    let ask = |n: u32| {
        let body = format!("{{\"n\":{n}}}");
        post(port, "/ask", "application/json", &body).text()
    };
    assert_eq!(ask(1), r#"{"is":201}"#, "{}", engine.process.output());
    assert_eq!(ask(2), "409", "{}", engine.process.output());
    assert_eq!(ask(3), "5xx", "{}", engine.process.output());
    engine.stop();
}

#[test]
fn ordered_messages_come_one_after_the_other() {
    let queue = name("in");
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let backend = StrictBackend::answering(|received| {
        // The first of each ten takes longest.
        let number = received.body[5] - b'0';
        thread::sleep(Duration::from_millis((9 - u64::from(number)) / 3));
        OK.to_vec()
    });
    for number in 10..60 {
        client.push(&queue, &json(), format!("{{\"n\":{number}}}").as_bytes());
    }
    client.publish_json(&queue, r#"{"n":99}"#);
    let (engine, _folder) = run(&to_backend(&queue, "ordered: true", backend.port()));
    wait_until("all have come", || backend.requests().len() == 51);
    let bodies = backend.requests().into_iter().map(|it| it.body);
    let bodies: Vec<_> = bodies.collect();
    assert!(bodies.is_sorted(), "{bodies:?}");
    engine.stop();
}

#[test]
fn a_question_is_answered() {
    let (queue, port, url) = (name("ask"), free_port(), BROKER.url());
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let (engine, _folder) = run(&format!(
        "engine: {{}}\nuse: {{ mq: {{ rabbitmq: '{url}' }} }}\n---\n\
         flow: ask\nfrom: {{ http: 'POST 127.0.0.1:{port}/ask' }}\nsteps:\n\
         - request: {{ to: mq, queue: {queue}, headers: {{ tenant: t }} }}\n\
         - reply: {{ body: {{ sum: '${{ .sum }}', status: '${{ $reply.status }}',\
         by: '${{ $reply.headers.status }}' }} }}\n\
         ---\n\
         flow: nobody\nfrom: {{ http: 'POST 127.0.0.1:{port}/nobody' }}\nsteps:\n\
         - request: {{ to: mq, queue: {queue}-none }}\n\
         ---\n\
         flow: answer\nfrom: {{ rabbitmq: {{ connection: mq, queue: {queue}, reply: true }} }}\n\
         steps:\n\
         - map: '{{ sum: (.a + .b) }}'\n"
    ));
    for (a, sum) in [(1, 4), (39, 42)] {
        let body = format!("{{\"a\":{a},\"b\":3}}");
        let reply = post(port, "/ask", "application/json", &body);
        let expected = format!("{{\"sum\":{sum},\"status\":200,\"by\":\"200\"}}");
        assert_eq!(reply.text(), expected, "{}", engine.process.output());
    }
    let reply = post(port, "/nobody", "application/json", "{}");
    assert_eq!(reply.status, 502);
    assert!(engine.process.output().contains("unroutable") || reply.text().contains("no queue"));
    assert_eq!(get(port, "/none").status, 404);
    engine.stop();
}
