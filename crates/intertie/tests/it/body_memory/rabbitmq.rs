//! Messages of RabbitMQ.

use amqp::Value;
use testkit::wait_until;

use super::{MEGABYTE, REFUSED, Site, USED};
use crate::rabbitmq::client::{Client, json};
use crate::rabbitmq::{BROKER, name};

const DELIVERED: &str = "intertie_rabbitmq_delivered_total";

/// A queue with so many messages, which are JSON texts of this size.
fn queue(count: usize, size: usize) -> (Client, String) {
    let name = name("memory");
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&name, &[]);
    let body = format!("\"{}\"", "x".repeat(size - 2));
    for _ in 0..count {
        client.publish(&name, &json(), body.as_bytes());
    }
    (client, name)
}

fn source(queue: &str, settings: &str, steps: &str) -> String {
    let url = BROKER.url();
    format!(
        "---\nflow: in\nuse: {{ mq: {{ rabbitmq: '{url}' }} }}\nfrom:\n\
         \x20 rabbitmq: {{ connection: mq, queue: {queue}, {settings} }}\nsteps: {steps}\n"
    )
}

fn delivered(site: &Site) -> f64 {
    site.engine.metric(DELIVERED)
}

#[test]
fn messages_stay_in_the_queue_while_the_budget_is_used_up() {
    let (mut client, queue) = queue(0, 2);
    let site = Site::run(&source(&queue, "prefetch: 8", "[ { map: length } ]"));
    let held = site.fill();
    let refused = site.engine.metric(REFUSED);
    let body = format!("\"{}\"", "x".repeat(MEGABYTE));
    for _ in 0..8 {
        client.publish(&queue, &json(), body.as_bytes());
    }
    wait_until("the source waits", || site.engine.metric(REFUSED) > refused);
    assert_eq!(delivered(&site), 0.0);
    drop(held);
    wait_until("all have come", || delivered(&site) == 8.0);
    wait_until("all is given back", || site.used() == 0.0);
    let log = site.engine.stop();
    assert!(log.contains("messages wait for memory"), "{log}");
    client.consume(&queue);
    assert!(client.take_all().is_empty(), "all were acknowledged");
}

#[test]
fn a_source_takes_three_quarters_of_the_budget_at_most() {
    let (_client, queue) = queue(8, MEGABYTE);
    let steps = "[ { delay: 1h } ]";
    let site = Site::run(&source(&queue, "concurrent: 2, prefetch: 8", steps));
    wait_until("the source waits", || site.engine.metric(REFUSED) > 0.0);
    let most = 3.0 * 1024.0 * 1024.0;
    wait_until("it holds what it may", || {
        site.used() > most - MEGABYTE as f64
    });
    assert!(site.used() <= most, "{}", site.used());
    // Requests have room meanwhile.
    let body = format!("\"{}\"", "y".repeat(MEGABYTE / 2));
    let reply = crate::support::post(site.port, "/echo", "application/json", &body);
    assert_eq!(reply.status, 200);
}

#[test]
fn many_small_messages_take_room_together() {
    let (_client, queue) = queue(90, 60_000);
    let steps = "[ { delay: 1h } ]";
    let site = Site::run(&source(&queue, "prefetch: 100", steps));
    wait_until("the source waits", || site.engine.metric(REFUSED) > 0.0);
    let most = 3.0 * 1024.0 * 1024.0;
    assert!(site.used() <= most && site.used() > most / 2.0);
    assert!(delivered(&site) < 60.0, "{}", delivered(&site));
}

/// Its dead letter has no body, so the broker gets it back, which has it.
#[test]
fn a_message_above_the_whole_budget_is_a_dead_letter_here_and_in_the_broker() {
    let (queue, dead) = (name("memory"), name("dead"));
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&dead, &[]);
    let arguments = [
        ("x-dead-letter-exchange", Value::from("")),
        ("x-dead-letter-routing-key", Value::from(&*dead)),
    ];
    client.declare_queue(&queue, &arguments);
    let body = format!("\"{}\"", "x".repeat(5 * MEGABYTE));
    client.publish(&queue, &json(), body.as_bytes());
    client.publish(&queue, &json(), b"1");
    let settings = "prefetch: 1, ordered: false, retry: { times: 0 }";
    let site = Site::run(&source(&queue, settings, "[ { map: . } ]"));
    wait_until("both have come", || delivered(&site) == 2.0);
    wait_until("all is given back", || site.used() == 0.0);
    client.consume(&dead);
    assert_eq!(client.take(1).remove(0).body.len(), body.len());
    let letters = site
        .engine
        .measured("intertie_source_dead_letters_total", &[]);
    assert_eq!(letters, Some(1.0));
    let log = site.engine.stop();
    assert!(
        log.contains("too large") && log.contains("limits.body_memory"),
        "{log}"
    );
    client.consume(&queue);
    assert!(client.take_all().is_empty());
}

#[test]
fn an_answer_needs_room() {
    let (_client, queue) = queue(0, 2);
    let url = BROKER.url();
    let ask = format!(
        "---\nflow: ask\nuse: {{ mq: {{ rabbitmq: '{url}' }} }}\nfrom: {{ http: POST /ask }}\n\
         steps:\n  - request: {{ to: mq, queue: {queue}, wait: 20s }}\n  - map: length\n"
    );
    let answer = source(&queue, "reply: true", "[ { map: '\"x\" * 800000' } ]");
    let site = Site::run(&format!("{ask}{answer}"));
    wait_until("the queue is consumed", || {
        site.ask("/ask").text() == "800000"
    });
    let held = site.fill();
    let reply = site.ask("/ask");
    let found = (reply.status, reply.header("Retry-After"));
    assert_eq!(found, (503, Some("1")), "{}", reply.text());
    drop(held);
    wait_until("all is given back", || site.used() == 0.0);
    assert_eq!(site.ask("/ask").text(), "800000");
    wait_until("all is given back", || site.engine.metric(USED) == 0.0);
}
