//! Events that an operator has sent again.

use super::*;

fn replay(engine: &Engine, body: &Value) -> (u16, String) {
    let path = "/webhooks/orders/shop/replay";
    let reply = post(engine.admin, path, "application/json", &body.to_string());
    (reply.status, reply.text())
}

#[test]
fn one_a_range_or_all_come_again_with_their_ids() {
    let sink = Sink::good();
    for policy in ["", "ordered: false", "batch: { count: 1 }"] {
        let place = Place::new(&endpoint("shop", &sink.url(), policy));
        let engine = place.run();
        let before = sink.accepted().len();
        let ids = place.publish_all(0..10);
        // What is under way when it is asked for is not repeated: the sink knows before the engine
        // does that it has an event.
        let wait_for = |count: usize| {
            let all = sink.wait_for(before + count);
            wait_long("nothing is under way", || {
                measure(&engine, "lag_events", "shop") == 0.0
            });
            all
        };
        wait_for(10);
        let came = |count: usize| {
            let all = wait_for(count);
            let mut ids: Vec<String> = all[before..].iter().map(id).collect();
            ids.drain(..count - (count - 10).min(10));
            ids.sort();
            ids
        };
        let sorted = |range: std::ops::Range<usize>| {
            let mut ids = ids[range].to_vec();
            ids.sort();
            ids
        };
        if policy.contains("batch") {
            // What is one request is sent again from an event on.
            let (status, text) = replay(&engine, &json!({ "event": ids[1] }));
            assert_eq!(status, 409, "{text}");
            assert_eq!(replay(&engine, &json!({ "from": ids[9] })).0, 200);
            wait_for(11);
            engine.stop();
            continue;
        }
        assert_eq!(replay(&engine, &json!({ "event": ids[3] })).0, 200);
        assert_eq!(came(11), sorted(3..4));
        let range = json!({ "from": ids[2], "to": ids[4] });
        assert_eq!(replay(&engine, &range).0, 200);
        let all = wait_for(14);
        let mut last: Vec<String> = all[before + 11..].iter().map(id).collect();
        last.sort();
        assert_eq!(last, sorted(2..5));
        // By time: all since 1970, and none in the future.
        let range = json!({ "from": "1970-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z" });
        assert_eq!(replay(&engine, &range).0, 200);
        let all = wait_for(24);
        let mut last: Vec<String> = all[before + 14..].iter().map(id).collect();
        last.sort();
        assert_eq!(last, sorted(0..10));
        for body in [
            json!({ "from": "2100-01-01T00:00:00Z" }),
            json!({ "event": "1-1" }),
        ] {
            assert_eq!(replay(&engine, &body).0, 404, "{body}");
        }
        for body in [json!([]), json!({ "event": 3 }), json!({ "until": "x" })] {
            assert_eq!(replay(&engine, &body).0, 400, "{body}");
        }
        // What is new comes once, behind them.
        let new = place.publish("10");
        let all = wait_for(25);
        assert_eq!(all.iter().map(id).filter(|it| *it == new).count(), 1);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(sink.accepted().len(), before + 25, "{policy}");
        let output = engine.stop();
        assert!(output.contains("events are sent again"), "{output}");
    }
}

/// Also behind a restart, when the times are looked up on the disk.
#[test]
fn a_range_by_time_has_the_events_of_that_time_and_no_others() {
    let sink = Sink::good();
    // CloudEvents say when an event was published.
    let more = format!("cloudevents: binary, {QUICK}");
    let place = Place::new(&endpoint("shop", &sink.url(), &more));
    let mut engine = place.run();
    let publish = |number: u64| {
        // No two in one millisecond.
        thread::sleep(Duration::from_millis(5));
        place.publish(&number.to_string())
    };
    let ids: Vec<String> = (0..7).map(publish).collect();
    let taken = sink.wait_for(7);
    let times = taken.iter().map(|it| it.header("ce-time").unwrap());
    let times: Vec<&str> = times.collect();
    let (early, late) = (times[3], times[4]);
    assert!(early < late, "{times:?}");
    let ranges = [
        (json!({ "from": late }), 4..7),
        (json!({ "to": early }), 0..4),
        (json!({ "from": early, "to": ids[5] }), 3..6),
        (json!({ "from": ids[2], "to": late }), 2..5),
        (json!({}), 0..7),
    ];
    let mut count = 7;
    for is_restarted in [false, true] {
        if is_restarted {
            engine.stop();
            engine = place.run();
        }
        for (body, range) in &ranges {
            let (status, text) = replay(&engine, body);
            assert_eq!(status, 200, "{body}: {text}, times {times:?}");
            let begin = count;
            count += range.len();
            let all = sink.wait_for(count);
            let again: Vec<String> = all[begin..].iter().map(id).collect();
            assert_eq!(again, ids[range.clone()], "{body}");
            // What is replayed is done before the next replay begins.
            wait_long("it is noted", || {
                measure(&engine, "lag_events", "shop") == 0.0
            });
        }
    }
    engine.stop();
}

#[test]
fn a_replay_that_was_answered_outlives_a_kill() {
    let (sink, is_open) = Sink::closed();
    is_open.store(true, Ordering::Relaxed);
    let place = Place::new(&endpoint("shop", &sink.url(), QUICK));
    let engine = place.run();
    let ids = place.publish_all(0..20);
    sink.wait_for(20);
    wait_long("all are noted", || {
        let page: Value = serde_json::from_str(&engine.get("/webhooks").text()).unwrap();
        page["webhooks"][0]["cursor"] == json!(ids[19])
    });
    is_open.store(false, Ordering::Relaxed);
    let range = json!({ "from": ids[5], "to": ids[7] });
    assert_eq!(replay(&engine, &range).0, 200);
    kill(engine);
    let engine = place.run();
    is_open.store(true, Ordering::Relaxed);
    let all = sink.wait_for(23);
    let again: Vec<String> = all[20..].iter().map(id).collect();
    assert_eq!(again, ids[5..8]);
    let next = place.publish("20");
    assert_eq!(id(&sink.wait_for(24)[23]), next);
    engine.stop();
}

#[test]
fn patches_are_replayed_from_an_event_on_and_begin_with_a_whole_document() {
    let sink = Sink::good();
    let place = Place::with(
        "payload: snapshot",
        &endpoint("shop", &sink.url(), "mode: patch"),
    );
    let engine = place.run();
    let document = |value: u64| format!("{{\"pad\":\"{}\",\"v\":{value}}}", "x".repeat(200));
    let ids: Vec<String> = (0..5).map(|it| place.publish(&document(it))).collect();
    sink.wait_for(5);
    assert_eq!(replay(&engine, &json!({ "event": ids[2] })).0, 409);
    assert_eq!(replay(&engine, &json!({ "from": ids[2] })).0, 200);
    let all = sink.wait_for(8);
    assert_eq!(all[5..].iter().map(id).collect::<Vec<_>>(), ids[2..]);
    assert_eq!(text(&all[5]), document(2));
    assert_eq!(all[6].header("x-intertie-kind"), Some("patch"));
    engine.stop();
}
