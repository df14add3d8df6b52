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
