//! Subscribers with expressions (`filter` and `select`) through the binary.

use testkit::{WebSocket, free_port, wait_until};

use super::{Stream, publish, start};
use crate::support::{Engine, get};

fn topic(port: u16, name: &str, more: &str) -> String {
    format!(
        "topic: {name}\npayload: event\ndurability: memory\n\
         publish: {{ http: \"POST 127.0.0.1:{port}/topics/{name}\" }}\n\
         subscribe: {{ listen: \"127.0.0.1:{port}\"{more} }}\n"
    )
}

fn count(engine: &Engine, name: &str, topic: &str) -> u64 {
    let value = engine.measured(&format!("intertie_topic_{name}_total"), &[("step", topic)]);
    value.unwrap() as u64
}

#[test]
fn a_topic_allows_no_expressions_unless_it_says_so() {
    let port = free_port();
    let (_folder, engine) = start(&topic(port, "plain", ""));
    for query in ["filter=.a", "select=.a"] {
        let refused = get(port, &format!("/topics/plain/sse?{query}"));
        assert_eq!(refused.status, 403, "{}", refused.text());
        let text = "the topic does not allow `filter` and `select`";
        assert!(refused.text().contains(text), "{}", refused.text());
        let several = get(port, &format!("/topics/sse?topic=plain&{query}"));
        assert_eq!(several.status, 403);
        let (refused, _) = WebSocket::ask(port, &format!("/topics/plain/ws?{query}"), "");
        assert_eq!(refused.status, 403);
    }
    let (_, mut socket) = WebSocket::connect(port, "/topics/ws", "");
    socket.text(r#"{"type":"subscribe","topic":"plain","filter":".a"}"#);
    let refused = socket.next_text();
    assert!(refused.contains("does not allow `filter`"), "{refused}");
    engine.stop();
}

#[test]
fn costly_filters_hold_up_neither_publishers_nor_others() {
    let port = free_port();
    let more = ", allow_expressions: true, expression_limits: { distinct: 200, steps: 10000000 }";
    let flow = format!(
        "flow: fine\nfrom: {{ http: \"GET 127.0.0.1:{port}/fine\" }}\n\
         steps: [ {{ map: 1 + 1 }}, {{ reply: {{}} }} ]\n"
    );
    let text = format!(
        "{}---\n{}---\n{flow}",
        topic(port, "busy", more),
        topic(port, "quiet", "")
    );
    let (_folder, engine) = start(&text);
    let mut plain = Stream::open(port, "/topics/busy/sse", "");
    let mut quiet = Stream::open(port, "/topics/quiet/sse", "");
    plain.place();
    quiet.place();
    let filter = |number: usize| format!("filter=(%5Brange(8000)%5D%7Clength)%3E{number}");
    let mut costly: Vec<Stream> = (0..200)
        .map(|number| Stream::open(port, &format!("/topics/busy/sse?{}", filter(number)), ""))
        .collect();
    costly.iter_mut().for_each(|it| drop(it.place()));
    for number in 1..=2 {
        publish(port, "busy", &number.to_string());
        publish(port, "quiet", &number.to_string());
        assert_eq!(plain.event().2, number.to_string());
        assert_eq!(quiet.event().2, number.to_string());
        for _ in 0..10 {
            assert_eq!(get(port, "/fine").text(), "2");
        }
        // All that was done while the filters had hardly begun.
        assert!(count(&engine, "expression_evaluations", "busy") < 200 * number);
    }
    for stream in &mut costly {
        for number in 1..=2 {
            assert_eq!(stream.event().0, number);
        }
    }
    // Each worker has those of its own connections, each once.
    assert_eq!(count(&engine, "expression_evaluations", "busy"), 400);
    // Equal ones are shared, also over another protocol.
    let mut equal: Vec<Stream> = (0..10)
        .map(|_| Stream::open(port, &format!("/topics/busy/sse?{}", filter(0)), ""))
        .collect();
    equal.iter_mut().for_each(|it| drop(it.place()));
    publish(port, "busy", "3");
    for stream in equal.iter_mut().chain(&mut costly) {
        assert_eq!(stream.event().0, 3);
    }
    let more = count(&engine, "expression_evaluations", "busy") - 400;
    assert!((200..=201).contains(&more), "{more}");
    drop((costly, equal));
    wait_until("all have left", || {
        let metrics = engine.get("/metrics").text();
        metrics.contains("topic_subscribers{flow=\"\",step=\"busy\"} 1")
    });
    engine.stop();
}

#[test]
fn large_results_are_bounded_for_all_who_do_not_read_them() {
    let port = free_port();
    // All steps that they want: it is memory that matters here.
    let more = ", allow_expressions: true, expression_limits: { steps: 100000000 }";
    let (_folder, engine) = start(&topic(port, "wide", more));
    let select = |number: usize| format!("select=%22y{number:03}%22*250000");
    let stalled: Vec<Stream> = (0..24)
        .map(|number| Stream::open(port, &format!("/topics/wide/sse?{}", select(number)), ""))
        .collect();
    let mut good = Stream::open(port, "/topics/wide/sse?select=%5B.%5D", "");
    good.place();
    let before = engine.process.resident_kib();
    for number in 1..=12 {
        publish(port, "wide", &number.to_string());
        assert_eq!(good.event().2, format!("[{number}]"));
    }
    wait_until("the streams of the slowest have ended", || {
        count(&engine, "slow_disconnected", "wide") > 0
    });
    // Two workers with 16 MiB each for what waits, what one evaluation takes, and what the
    // allocator has not given back yet; 24 times 12 results of a megabyte otherwise.
    let grown = engine.process.resident_kib().saturating_sub(before);
    assert!(grown < 128 << 10, "{grown} KiB");
    drop(stalled);
    engine.stop();
}
