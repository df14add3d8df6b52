//! Endpoints that are disabled or paused, and how operators see them and have them go on.

use super::*;
use crate::support::output;

fn listed(engine: &Engine, name: &str) -> Value {
    let page: Value = serde_json::from_str(&engine.get("/webhooks").text()).unwrap();
    let all = page["webhooks"].as_array().unwrap();
    let found = all.iter().find(|it| it["endpoint"] == name);
    found.cloned().unwrap_or(Value::Null)
}

fn operate(engine: &Engine, name: &str, action: &str) -> (u16, Value) {
    let path = format!("/webhooks/orders/{name}/{action}");
    let reply = post(engine.admin, &path, "text/plain", "");
    let value = serde_json::from_str(&reply.text()).unwrap_or(Value::Null);
    (reply.status, value)
}

#[test]
fn gone_disables_until_it_is_resumed_whatever_happens_in_between() {
    let is_gone = Arc::new(AtomicBool::new(true));
    let gone = Arc::clone(&is_gone);
    let sink = Sink::answering(move |_, _| match gone.load(Ordering::Relaxed) {
        true => (410, String::new()),
        false => (200, String::new()),
    });
    let other = Sink::good();
    let place = Place::new(&endpoint("shop", &sink.url(), QUICK));
    let engine = place.run();
    place.publish_all(0..3);
    wait_long("it is disabled", || {
        listed(&engine, "shop")["state"] == "disabled"
    });
    let shown = listed(&engine, "shop");
    assert_eq!(shown["reason"], "it has answered 410");
    assert_eq!(
        (&shown["topic"], &shown["lag_events"]),
        (&json!("orders"), &json!(3))
    );
    assert_eq!(measure(&engine, "state", "shop"), 3.0);
    wait_long("it is noted", || thread_sleep(150));
    kill(engine);
    let engine = place.run();
    assert_eq!(listed(&engine, "shop")["state"], "disabled");
    // Another URL under the same name is disabled, too.
    place.write("payload: event", &endpoint("shop", &other.url(), QUICK));
    reload(&engine);
    place.publish("3");
    thread::sleep(Duration::from_millis(300));
    assert_eq!((sink.all().len(), other.all().len()), (1, 0));
    is_gone.store(false, Ordering::Relaxed);
    assert_eq!(operate(&engine, "none", "resume").0, 404);
    assert_eq!(operate(&engine, "shop", "explode").0, 404);
    let (status, value) = operate(&engine, "shop", "resume");
    assert_eq!(
        (status, &value["state"]),
        (200, &json!("active")),
        "{value}"
    );
    other.wait_for(4);
    assert_eq!(other.bodies(), ["0", "1", "2", "3"]);
    let output = engine.stop();
    assert!(output.contains("resumed"), "{output}");
}

fn thread_sleep(ms: u64) -> bool {
    thread::sleep(Duration::from_millis(ms));
    true
}

#[test]
fn a_pause_is_on_the_disk_when_it_is_answered() {
    let sink = Sink::good();
    let place = Place::new(&endpoint("shop", &sink.url(), ""));
    let engine = place.run();
    place.publish("0");
    sink.wait_for(1);
    // The second one finds nothing to write, and is answered all the same.
    for _ in 0..2 {
        let (status, value) = operate(&engine, "shop", "pause");
        assert_eq!((status, &value["state"]), (200, &json!("paused")));
    }
    kill(engine);
    let engine = place.run();
    place.publish_all(1..4);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(listed(&engine, "shop")["state"], "paused");
    let before = sink.all().len();
    assert!(before <= 2, "the first at most once more");
    assert_eq!(operate(&engine, "shop", "resume").0, 200);
    sink.wait_for(before + 3);
    let last: Vec<String> = sink.bodies().split_off(before);
    assert_eq!(last, ["1", "2", "3"]);
    engine.stop();
}

/// They were kept, and shown to nobody but the REST interface of a topic with `manage`.
#[test]
fn the_last_attempts_of_an_endpoint_are_shown() {
    let sink = Sink::answering(|number, _| match number {
        0 => (503, String::new()),
        _ => (200, String::new()),
    });
    let place = Place::new(&endpoint("shop", &sink.url(), QUICK));
    let engine = place.run();
    let ids = place.publish_all(0..2);
    sink.wait_for(2);
    let attempts = |name: &str| {
        let page = engine.get(&format!("/webhooks/orders/{name}/attempts"));
        let value: Value = serde_json::from_str(&page.text()).unwrap_or(Value::Null);
        (page.status, value["attempts"].clone())
    };
    wait_long("all three are there", || {
        attempts("shop").1.as_array().map(Vec::len) == Some(3)
    });
    let (status, shown) = attempts("shop");
    assert_eq!(status, 200);
    // The newest first.
    for (at, (event, status)) in [(&ids[1], 200), (&ids[0], 200), (&ids[0], 503)]
        .into_iter()
        .enumerate()
    {
        let attempt = &shown[at];
        assert_eq!(
            (&attempt["event"], &attempt["status"]),
            (&json!(event), &json!(status)),
            "{shown}"
        );
        assert_eq!(attempt["accepted"], json!(status == 200));
        assert_eq!(attempt["reply"], "ok");
        assert!(attempt["milliseconds"].is_u64(), "{attempt}");
        assert!(attempt["time"].as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(attempts("none").0, 404);
    // It can only be read.
    let posted = operate(&engine, "shop", "attempts").0;
    assert!(matches!(posted, 404 | 405), "{posted}");
    engine.stop();
}

/// Reading the counters forgets the states that no flow has. The list of endpoints was one of them:
/// there was no webhook any more until the next reload.
#[test]
fn operators_find_webhooks_after_the_counters_have_been_read() {
    let sink = Sink::good();
    let place = Place::new(&endpoint("shop", &sink.url(), ""));
    let engine = place.run();
    for _ in 0..2 {
        assert_eq!(engine.get("/metrics").status, 200);
        assert_eq!(listed(&engine, "shop")["state"], "active");
    }
    let (status, value) = operate(&engine, "shop", "pause");
    assert_eq!((status, &value["state"]), (200, &json!("paused")));
    engine.stop();
}

#[test]
fn one_that_is_down_for_too_long_is_disabled() {
    let place = Place::new(&endpoint(
        "shop",
        &format!("http://127.0.0.1:{}/", free_port()),
        &format!("disable_after: 1s, {QUICK}"),
    ));
    let engine = place.run();
    place.publish("0");
    wait_long("it is down", || listed(&engine, "shop")["state"] == "down");
    let reason = listed(&engine, "shop")["reason"].to_string();
    assert!(reason.contains("cannot be reached"), "{reason}");
    wait_long("it is disabled", || {
        listed(&engine, "shop")["state"] == "disabled"
    });
    assert_eq!(
        listed(&engine, "shop")["reason"],
        "it was down for too long"
    );
    let output = engine.stop();
    assert!(output.contains("a webhook is disabled: it was down for too long"));
}

#[test]
fn without_operate_nobody_changes_anything() {
    let sink = Sink::good();
    let place = Place::new(&endpoint("shop", &sink.url(), ""));
    let text = fs::read_to_string(place.folder.path().join("flows/topic.yaml")).unwrap();
    let text = text.replace("engine: { admin: { operate: none } }\n---\n", "");
    place.folder.write("flows/topic.yaml", &text);
    let engine = place.run();
    assert_eq!(operate(&engine, "shop", "pause").0, 404);
    assert_eq!(listed(&engine, "shop")["state"], "active");
    engine.stop();
}

#[test]
fn a_topic_that_is_removed_takes_its_webhooks_along() {
    let sink = Sink::good();
    let place = Place::new(&endpoint("shop", &sink.url(), ""));
    let engine = place.run();
    place.publish_all(0..3);
    sink.wait_for(3);
    engine.stop();
    let data = place.folder.path().join("data").display().to_string();
    let removed = output(&["topics", "remove", "orders", "--yes", "--data", &data]);
    assert!(removed.status.success());
    let engine = place.run();
    place.publish("\"new\"");
    sink.wait_for(4);
    let kinds: Vec<Received> = sink.accepted();
    assert!(
        kinds
            .iter()
            .all(|it| it.header("x-intertie-kind") == Some("event"))
    );
    engine.stop();
}

#[test]
fn what_cannot_work_is_refused_when_it_is_loaded() {
    for (settings, endpoint, expected) in [
        ("payload: event", "url: \"http://a/\"", "there is no secret"),
        (
            "payload: event",
            "url: \"http://a/\", secret: short",
            "cannot be used",
        ),
        (
            "payload: event",
            "url: \"ws://a/\", signature: none",
            "`ws` or `wss`",
        ),
        (
            "payload: event",
            "url: \"shop:/a\", signature: none",
            "no connection `shop`",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, mode: patch",
            "does not come as",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, key: .a",
            "has no effect",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, ordered: by-key",
            "needs a `key`",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, concurrent: 4",
            "one request at a time",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, headers: { webhook-id: a }",
            "is set by the engine",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, headers: { X-A: [b] }",
            "expected a string",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, filter: .a[",
            "IT0",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, filter: $auth.id",
            "nothing else",
        ),
        (
            "payload: snapshot",
            "url: \"http://a/\", signature: none, mode: patch, ordered: false",
            "one by one",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, cloudevents: binary, batch: {}",
            "no headers of their own",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, timeout: 1h",
            "outside its range",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, tls: {}",
            "no effect on an",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, auth: x",
            "auth",
        ),
        (
            "payload: event",
            "url: \"http://a/\", signature: none, dead_letters: \"a b\"",
            "no name of a store",
        ),
    ] {
        let place = Place::with(settings, &format!("      shop: {{ {endpoint} }}\n"));
        let file = place.folder.path().join("flows").display().to_string();
        let checked = output(&["check", &file]);
        let text = String::from_utf8_lossy(&checked.stderr).into_owned();
        let text = text + &String::from_utf8_lossy(&checked.stdout);
        assert!(!checked.status.success(), "{endpoint}");
        assert!(text.contains(expected), "{endpoint}: {text}");
    }
}
