//! Publishing.

use super::client::Client;
use super::{BROKER, name, run};
use crate::support::post;
use testkit::free_port;

#[test]
fn a_published_message_is_in_its_queue() {
    let (queue, port) = (name("orders"), free_port());
    let url = BROKER.url();
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let (engine, _folder) = run(&format!(
        "flow: orders\nuse: {{ mq: {{ rabbitmq: '{url}' }} }}\n\
         from: {{ http: 'POST 127.0.0.1:{port}/orders' }}\nsteps:\n\
         - publish: {{ to: mq, queue: {queue}, id: '${{ .id }}', headers: {{ a: 1, b: x }} }}\n\
         - reply: {{ status: 202 }}\n"
    ));
    let body = r#"{"id":"o7"}"#;
    let reply = post(port, "/orders", "application/json", body);
    assert_eq!(reply.status, 202, "{}", engine.process.output());
    client.consume(&queue);
    let message = client.take(1).remove(0);
    let properties = message.properties().unwrap();
    assert_eq!(message.body, body);
    assert_eq!(properties.content_type, Some(&b"application/json"[..]));
    assert_eq!(properties.message_id, Some(&b"o7"[..]));
    assert_eq!(properties.delivery_mode, Some(2));
    let headers = properties.table().unwrap();
    assert_eq!(headers.get("a"), Some(&amqp::Value::Integer(1)));
    assert_eq!(headers.get("b"), Some(&amqp::Value::from("x")));
    let metrics = engine.get("/metrics").text();
    let line = "intertie_rabbitmq_published_total{flow=\"\",step=\"mq\"} 1";
    testkit::wait_until("it is counted", || {
        engine.get("/metrics").text().contains(line)
    });
    assert!(metrics.contains("rabbitmq_connected"), "{metrics}");
    engine.stop();
}

/// A flow that publishes what is posted, with the status of a failure and its kind in the reply.
fn publisher(connection: &str, port: u16, step: &str) -> String {
    format!(
        "flow: out\nuse: {{ mq: {{ {connection} }} }}\n\
         from: {{ http: 'POST 127.0.0.1:{port}/out' }}\nsteps:\n\
         - publish: {{ to: mq, {step} }}\n- reply: {{ status: 202 }}\n\
         on_error:\n- {{ on: any, reply: {{ body: '${{ $error.kind }}' }} }}\n"
    )
}

fn to_broker() -> String {
    format!("rabbitmq: '{}'", BROKER.url())
}

/// What a flow makes of a body.
fn send(connection: &str, step: &str) -> (u16, String, String) {
    let port = free_port();
    let (engine, _folder) = run(&publisher(connection, port, step));
    let reply = post(port, "/out", "application/json", "{}");
    (reply.status, reply.text(), engine.stop())
}

#[test]
fn what_nobody_wants_is_told() {
    let queue = name("none");
    let (status, kind, _) = send(&to_broker(), &format!("queue: {queue}"));
    assert_eq!((status, &*kind), (502, "unroutable"));
    let lax = format!("queue: {queue}, mandatory: false");
    assert_eq!(send(&to_broker(), &lax).0, 202);
}

#[test]
fn an_exchange_that_is_not_there_fails_its_own_messages_alone() {
    let (queue, port, bad) = (name("q"), free_port(), name("no-such"));
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let flows = format!(
        "{}---\nflow: other\nuse: {{ mq: {{ {} }} }}\n\
         from: {{ http: 'POST 127.0.0.1:{port}/good' }}\nsteps:\n\
         - publish: {{ to: mq, queue: {queue} }}\n- reply: {{ status: 202 }}\n",
        publisher(&to_broker(), port, &format!("exchange: {bad}")),
        to_broker()
    );
    let (engine, _folder) = run(&flows);
    for _ in 0..5 {
        let reply = post(port, "/out", "application/json", "{}");
        assert_eq!((reply.status, &*reply.text()), (502, "nack"));
        assert_eq!(post(port, "/good", "application/json", "{}").status, 202);
    }
    let told = engine.stop();
    assert!(told.contains("NOT_FOUND") && told.contains(&bad), "{told}");
    client.consume(&queue);
    assert_eq!(client.take(5).len(), 5);
}

#[test]
fn a_full_queue_says_no() {
    let queue = name("full");
    let mut client = Client::connect(BROKER.port(), "/");
    let arguments = [
        ("x-max-length", amqp::Value::Integer(1)),
        ("x-overflow", amqp::Value::from("reject-publish")),
    ];
    client.declare_queue(&queue, &arguments);
    client.publish_json(&queue, "{}");
    let (status, kind, _) = send(&to_broker(), &format!("queue: {queue}"));
    assert_eq!((status, &*kind), (502, "nack"));
}

#[test]
fn whoever_may_not_is_told_without_the_secret() {
    let port = BROKER.port();
    let url = format!("rabbitmq: 'amqp://guest:wr0ng-passw0rd@127.0.0.1:{port}'");
    let (status, kind, told) = send(&url, "queue: q");
    assert_eq!((status, &*kind), (502, "connection"));
    assert!(
        told.contains("ACCESS_REFUSED") && told.contains("mq"),
        "{told}"
    );
    assert!(!told.contains("wr0ng-passw0rd"), "{told}");
    let url = format!("rabbitmq: 'amqp://127.0.0.1:{port}/no-such-vhost'");
    let (status, kind, told) = send(&url, "queue: q");
    assert_eq!((status, &*kind), (502, "connection"));
    assert!(told.contains("no-such-vhost"), "{told}");
}

#[test]
fn a_broker_that_is_not_there_is_told() {
    let url = format!("rabbitmq: 'amqp://127.0.0.1:{}'", free_port());
    let port = free_port();
    let flow = publisher(&url, port, "queue: q");
    let (flow, _) = flow.split_once("on_error").unwrap();
    let (engine, _folder) = run(flow);
    for _ in 0..5 {
        let reply = post(port, "/out", "application/json", "{}");
        assert_eq!(reply.status, 503, "{}", reply.text());
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    let told = engine.stop();
    for part in [
        "there is no connection to the broker",
        "\"kind\":\"connection\"",
        "connection mq",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn queues_get_messages_in_turn() {
    let queues = [name("a"), name("b"), name("c")];
    let mut client = Client::connect(BROKER.port(), "/");
    for queue in &queues {
        client.declare_queue(queue, &[]);
    }
    let port = free_port();
    let step = format!("queues: [{}]", queues.join(", "));
    let (engine, _folder) = run(&publisher(&to_broker(), port, &step));
    for _ in 0..9 {
        assert_eq!(post(port, "/out", "application/json", "{}").status, 202);
    }
    for queue in &queues {
        client.consume(queue);
    }
    let mut counts = std::collections::BTreeMap::new();
    for message in client.take(9) {
        let amqp::Received::Delivered(deliver) = message.received().unwrap() else {
            panic!();
        };
        *counts.entry(deliver.key.to_vec()).or_insert(0) += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [3, 3, 3]);
    engine.stop();
}

#[test]
fn what_is_declared_is_there() {
    let (exchange, queue, dead) = (name("x"), name("q"), name("d"));
    let declare = format!(
        "{}, declare: {{ exchanges: [{{ name: {exchange}, type: topic }}], queues: [\
         {{ name: {dead} }}, {{ name: {queue}, type: quorum, max_length: 5, \
         dead_letter: {{ exchange: '', key: {dead} }} }}],\
         bindings: [{{ exchange: {exchange}, queue: {queue}, key: 'order.*' }}] }}",
        to_broker()
    );
    let step = format!("exchange: {exchange}, key: order.se");
    assert_eq!(send(&declare, &step).0, 202);
    let mut client = Client::connect(BROKER.port(), "/");
    client.consume(&queue);
    assert_eq!(client.take(1).len(), 1);
    // What is there already and differs is told.
    let other = format!(
        "{}, declare: {{ queues: [{{ name: {dead}, max_length: 7 }}] }}",
        to_broker()
    );
    let (status, kind, told) = send(&other, &step);
    assert_eq!((status, &*kind), (502, "connection"));
    assert!(
        told.contains("PRECONDITION_FAILED") && told.contains(&dead),
        "{told}"
    );
}

#[test]
fn a_large_body_comes_whole() {
    let (queue, port) = (name("large"), free_port());
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let flows = publisher(&to_broker(), port, &format!("queue: {queue}"));
    let from = format!("http: 'POST 127.0.0.1:{port}/out'");
    let large =
        format!("http: {{ method: POST, listen: '127.0.0.1:{port}', path: /out, body_max: 4MiB }}");
    assert!(flows.contains(&from));
    let (engine, _folder) = run(&flows.replace(&from, &large));
    let body: String = (0..1_500_000)
        .map(|at: u32| char::from(b'a' + (at % 23) as u8))
        .collect();
    let reply = post(port, "/out", "text/plain", &body);
    assert_eq!(reply.status, 202, "{}", reply.text());
    client.consume(&queue);
    assert!(client.take(1)[0].body == body);
    engine.stop();
}

#[test]
fn tls_is_spoken_and_checked() {
    let queue = name("tls");
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let folder = testkit::TempDir::new();
    let ca = folder.write("ca.pem", BROKER.authority().pem());
    let other = testkit::Authority::new("other");
    let wrong = folder.write("other.pem", other.pem());
    let url = format!("rabbitmq: 'amqps://localhost:{}'", BROKER.tls_port());
    let with = |ca: &std::path::Path| format!("{url}, tls: {{ ca: '{}' }}", file_name(ca));
    let step = format!("queue: {queue}");
    let send_in = |connection: &str| {
        let port = free_port();
        let file = folder.write("flows.yaml", &publisher(connection, port, &step));
        let engine = crate::support::Engine::run(&[&file], &[]);
        let reply = post(port, "/out", "application/json", "{}");
        (reply.status, reply.text(), engine.stop())
    };
    assert_eq!(send_in(&with(&ca)).0, 202);
    let (status, kind, told) = send_in(&with(&wrong));
    assert_eq!((status, &*kind), (502, "connection"));
    assert!(told.contains("TLS"), "{told}");
}

fn file_name(path: &std::path::Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_reload_keeps_the_connection() {
    let (queue, port) = (name("reload"), free_port());
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let flows = publisher(&to_broker(), port, &format!("queue: {queue}"));
    let (engine, folder) = run(&flows);
    assert_eq!(post(port, "/out", "application/json", "{}").status, 202);
    let connections = || {
        engine
            .process
            .output()
            .matches("connected to the broker")
            .count()
    };
    folder.write("flows.yaml", &flows.replace("status: 202", "status: 201"));
    testkit::wait_until("the flow is the new one", || {
        post(port, "/out", "application/json", "{}").status == 201
    });
    for _ in 0..20 {
        assert_eq!(post(port, "/out", "application/json", "{}").status, 201);
    }
    // One for each of the two workers at most.
    assert!(connections() <= 2, "{}", engine.process.output());
    engine.stop();
}
