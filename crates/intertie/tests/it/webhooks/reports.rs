//! The operational topic: what it is told of endpoints, once, and that it cannot tell of itself.

use super::manage::Managed as ManagedTopic;
use super::*;
use crate::support::output;

/// A topic `orders` with these endpoints that reports on `ops`, whose events come to a sink.
struct Reported {
    place: Place,
    ops: Sink,
    endpoints: String,
    settings: &'static str,
}

impl Reported {
    fn new(settings: &'static str, endpoints: &str) -> Self {
        let reported = Self {
            place: Place::with(settings, endpoints),
            ops: Sink::good(),
            endpoints: endpoints.to_owned(),
            settings,
        };
        reported.write();
        reported
    }

    fn write(&self) {
        self.place.write(self.settings, &self.endpoints);
        let file = self.place.folder.path().join("flows/topic.yaml");
        let text = fs::read_to_string(file).unwrap();
        let text = text.replace("  webhooks:\n", "  webhooks:\n    report: ops\n");
        assert!(text.contains("report: ops"), "{text}");
        let port = self.place.port;
        let ops = endpoint("watch", &self.ops.url(), QUICK);
        let text = format!(
            "{text}---\ntopic: ops\npayload: event\nsubscribe:\n  listen: 127.0.0.1:{port}\n  via: \
             []\n  webhooks:\n    endpoints:\n{ops}"
        );
        self.place.folder.write("flows/topic.yaml", &text);
    }

    /// What the topic has been told, when there is so much.
    fn wait_for(&self, count: usize) -> Vec<Value> {
        let told = self.ops.wait_for(count);
        assert_eq!(told.len(), count, "{:?}", self.ops.bodies());
        let told = told
            .iter()
            .map(|it| serde_json::from_slice(&it.body).unwrap());
        told.collect()
    }
}

#[test]
fn a_disabled_endpoint_is_told_once_also_after_a_kill() {
    let gone = Sink::answering(|_, _| (410, String::new()));
    let reported = Reported::new("payload: event", &endpoint("shop", &gone.url(), QUICK));
    let engine = reported.place.run();
    let event = reported.place.publish("1");
    wait_long("it is asked", || !gone.all().is_empty());
    // Whether it has been told already or not: it is told, and once.
    kill(engine);
    let engine = reported.place.run();
    let told = reported.wait_for(1).remove(0);
    for (name, value) in [
        ("type", json!("webhook.disabled")),
        ("topic", json!("orders")),
        ("webhook", json!("shop")),
        ("managed_by", json!("file")),
        ("reason", json!("gone")),
    ] {
        assert_eq!(told[name], value, "{told}");
    }
    assert!(told["time"].as_str().unwrap().ends_with('Z'), "{told}");
    assert!(told.get("owner").is_none());
    engine.stop();
    let engine = reported.place.run();
    // An operator has it go on, and it is disabled again: that is another event.
    let resume = "/webhooks/orders/shop/resume";
    assert_eq!(post(engine.admin, resume, "text/plain", "").status, 200);
    let told = reported.wait_for(2).remove(1);
    assert_eq!(told["type"], "webhook.disabled");
    assert!(told["detail"].as_str().unwrap().contains("410"), "{told}");
    let ids: Vec<String> = gone.all().iter().map(|it| id(&it.0)).collect();
    assert!(ids.iter().all(|it| *it == event), "{ids:?}");
    engine.stop();
}

#[test]
fn an_endpoint_that_was_down_for_too_long_is_told_of() {
    let (down, _) = Sink::closed();
    let more = "retry: { delay: 50ms, backoff: 1, times: 2 }, disable_after: 1s";
    let reported = Reported::new("payload: event", &endpoint("shop", &down.url(), more));
    let engine = reported.place.run();
    reported.place.publish("1");
    let told = reported.wait_for(1).remove(0);
    assert_eq!(
        (&told["type"], &told["reason"]),
        (&json!("webhook.disabled"), &json!("down"))
    );
    assert!(told["detail"].as_str().unwrap().contains("503"), "{told}");
    reload(&engine);
    thread::sleep(Duration::from_millis(300));
    reported.wait_for(1);
    engine.stop();
}

#[test]
fn dead_letters_are_told_with_their_store() {
    let picky = Sink::answering(|_, received| match text(received).as_str() {
        "2" => (404, "X: 1\r\n".to_owned()),
        _ => (200, String::new()),
    });
    let reported = Reported::new("payload: event", &endpoint("shop", &picky.url(), QUICK));
    let engine = reported.place.run();
    let ids = reported.place.publish_all(1..4);
    let told = reported.wait_for(1).remove(0);
    for (name, value) in [
        ("type", json!("webhook.dead_letter")),
        ("event", json!(ids[1])),
        ("count", json!(1)),
        ("store", json!("webhook-dead-letters")),
        ("reason", json!("status 404: ok")),
    ] {
        assert_eq!(told[name], value, "{told}");
    }
    picky.wait_for(2);
    engine.stop();
}

#[test]
fn a_gap_is_told_when_it_is_found() {
    let (sink, is_open) = Sink::closed();
    let settings = "payload: event\nkeep: { events: 5 }";
    let reported = Reported::new(settings, &endpoint("shop", &sink.url(), QUICK));
    let engine = reported.place.run();
    let ids = reported.place.publish_all(0..40);
    wait_long("it has been tried", || !sink.all().is_empty());
    reload(&engine);
    is_open.store(true, Ordering::Relaxed);
    let told = reported.wait_for(1).remove(0);
    assert_eq!(told["type"], "webhook.gap");
    let place = |name: &str| ids.iter().position(|it| told[name] == json!(it)).unwrap();
    let (from, to) = (place("from"), place("to"));
    assert_eq!(told["count"], json!(to + 1 - from));
    engine.stop();
}

#[test]
fn webhooks_of_the_operational_topic_are_reported_nowhere() {
    let picky = Sink::answering(|_, _| (404, String::new()));
    let mut reported = Reported::new("payload: event", &endpoint("shop", &picky.url(), QUICK));
    reported.ops = Sink::answering(|_, _| (404, String::new()));
    reported.write();
    let engine = reported.place.run();
    reported.place.publish("1");
    let lettered = || {
        let line = "intertie_webhook_dead_letters_total{flow=\"ops\",step=\"watch\"} 1";
        engine.get("/metrics").text().contains(line)
    };
    wait_long("the event about it is a dead letter too", lettered);
    thread::sleep(Duration::from_millis(300));
    let ids: Vec<String> = reported.ops.all().iter().map(|it| id(&it.0)).collect();
    assert!(ids.iter().all(|it| *it == ids[0]), "one event: {ids:?}");
    engine.stop();
}

#[test]
fn a_topic_that_cannot_be_told_is_refused_at_load() {
    let topic = |name: &str, report: &str, more: &str| {
        format!(
            "---\ntopic: {name}\n{more}\nsubscribe: {{ via: [], webhooks: {{ {report} endpoints: \
             {{ a: {{ url: \"http://a/\", signature: none }} }} }} }}\n"
        )
    };
    let event = "payload: event";
    for (others, expected) in [
        (String::new(), "there is no topic `ops`"),
        (topic("opts", "", event), "did you mean `opts`?"),
        (topic("ops", "", ""), "keeps the last state only"),
        (
            topic("ops", "", "payload: event\nbody_max: 1KiB"),
            "is too small",
        ),
        (
            topic("ops", "", "payload: event\npublish: { http: POST /ops }"),
            "clients publish to `ops`",
        ),
        (
            topic("ops", "report: orders,", event),
            "its own are reported nowhere",
        ),
        (
            topic("ops", "report: ops,", event),
            "its own are reported nowhere",
        ),
    ] {
        let folder = TempDir::new();
        let text = format!("{}{others}", topic("orders", "report: ops,", event));
        folder.write("flows/topic.yaml", &text);
        let file = folder.path().join("flows").display().to_string();
        let checked = output(&["check", &file]);
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        let told = told + &String::from_utf8_lossy(&checked.stdout);
        assert!(!checked.status.success(), "{text}");
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

#[test]
fn webhooks_of_users_are_told_with_their_owner_and_seldom() {
    let (picky, ops) = (
        Sink::answering(|_, received| match text(received).as_str() {
            "9" => (410, String::new()),
            _ => (404, String::new()),
        }),
        Sink::good(),
    );
    let ports = [picky.backend.port()];
    let mut managed = ManagedTopic::new(&ports, "challenge: false", "");
    managed.report(
        &ports,
        "challenge: false",
        &endpoint("watch", &ops.url(), QUICK),
    );
    reload(managed.engine());
    let hook = managed.create(0, &json!({ "url": picky.url() }));
    let hook = hook["id"].as_str().unwrap().to_owned();
    (1..4).for_each(|it| drop(managed.publish(&it.to_string())));
    let told = ops.wait_for(1).remove(0);
    let told: Value = serde_json::from_slice(&told.body).unwrap();
    for (name, value) in [
        ("type", json!("webhook.dead_letter")),
        ("webhook", json!(hook)),
        ("managed_by", json!("api")),
        ("owner", json!({ "way": "partners", "id": "ann" })),
        ("store", json!("webhook-user-dead-letters")),
    ] {
        assert_eq!(told[name], value, "{told}");
    }
    wait_long("all are dead letters", || {
        let name = "intertie_webhook_subscriptions_dead_letters_total";
        managed.engine().measured(name, &[("flow", "orders")]) == Some(3.0)
    });
    thread::sleep(Duration::from_millis(300));
    assert_eq!(ops.all().len(), 1, "the others are counted for later");
    managed.stop();
}

#[test]
fn what_is_told_of_a_users_webhook_has_nothing_of_where_its_address_leads() {
    let (sink, ops) = (Sink::good(), Sink::good());
    let mut managed = ManagedTopic::new(&[sink.backend.port()], "challenge: false", "");
    managed.create(0, &json!({ "url": sink.url() }));
    // Its port is not allowed any more.
    managed.report(
        &[ops.backend.port()],
        "challenge: false, disable_after: 1s",
        &endpoint("watch", &ops.url(), QUICK),
    );
    reload(managed.engine());
    managed.publish("1");
    let told = ops.wait_for(1).remove(0);
    let told: Value = serde_json::from_slice(&told.body).unwrap();
    assert_eq!(told["type"], "webhook.disabled");
    assert_eq!(told["detail"], "the URL may not be called", "{told}");
    let log = managed.stop();
    assert!(log.contains("a webhook is disabled"), "{log}");
    assert!(log.contains("egress"), "the log has the rest: {log}");
}
