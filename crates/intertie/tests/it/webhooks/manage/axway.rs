//! Webhooks in the manner of Axway Streams: the same subscriptions by other paths, members and
//! headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use testkit::{RawClient, Received, Response};

use super::super::{Sink, id, reload, signature, text};
use super::{ANN, Ask, BOB, KEY, Managed, OPS, Receiver, kill, parsed, text_of, wait_long};

const BASE: &str = "/streams/subscribers/webhook/api/v1";
const PROFILE: &str = "profile: axway-streams";

/// Topics with the profile and without challenges.
fn managed(ports: &[u16]) -> Managed {
    Managed::new(ports, "challenge: false", PROFILE)
}

/// The id of a subscription as our own interface has it.
fn own_id(uuid: &str) -> String {
    format!("wh_{}", uuid.replace('-', ""))
}

impl Managed {
    fn axway(&self, who: usize, (method, path): (&str, &str), body: Option<&Value>) -> Response {
        let ask = Ask {
            body,
            ..Ask::default()
        };
        self.request(&self.keys[who], (method, &format!("{BASE}{path}")), ask)
    }

    fn subscribe(&self, topic: &str, body: &Value) -> Value {
        let path = format!("/topics/{topic}/subscriptions");
        let made = self.axway(ANN, ("POST", &path), Some(body));
        assert_eq!(made.status, 201, "{}", made.text());
        let shown = parsed(&made);
        let location = format!("{BASE}/subscriptions/{}", text_of(&shown, "id"));
        assert_eq!(made.header("location"), Some(&*location));
        shown
    }

    /// What is at a path.
    fn read(&self, who: usize, path: &str) -> Value {
        let read = self.axway(who, ("GET", path), None);
        assert_eq!(read.status, 200, "{}", read.text());
        parsed(&read)
    }

    fn axway_patch(&self, uuid: &str, body: &Value) -> Response {
        self.axway(
            ANN,
            ("PATCH", &format!("/subscriptions/{uuid}")),
            Some(body),
        )
    }

    fn status(&self, uuid: &str) -> String {
        let shown = self.read(ANN, &format!("/subscriptions/{uuid}"));
        text_of(&shown, "subscriptionStatus").to_owned()
    }

    fn exchanges(&self, uuid: &str, query: &str) -> Vec<Value> {
        let path = format!("/subscriptions/{uuid}/exchanges{query}");
        self.read(ANN, &path)["items"].as_array().unwrap().clone()
    }

    /// Serves further topics: one of snapshots, and one with nothing but the profile.
    fn add_topics(&self) {
        let file = self.folder.path().join("flows/topic.yaml");
        let text = std::fs::read_to_string(file).unwrap();
        let port = self.port;
        let more = format!(
            "---\ntopic: prices\npublish: {{ http: \"POST 127.0.0.1:{port}/prices\", auth: none \
             }}\nsubscribe:\n  listen: 127.0.0.1:{port}\n  auth: partners\n  via: []\n  \
             {PROFILE}\n  webhooks:\n    manage: {{ secrets_key: {KEY}, challenge: false \
             }}\n---\ntopic: bare\npayload: event\nsubscribe: {{ listen: \
             \"127.0.0.1:{port}\", auth: partners, via: [sse], {PROFILE} }}\n"
        );
        self.folder.write("flows/topic.yaml", &(text + &more));
        reload(self.engine());
    }

    fn publish_to(&self, path: &str, body: &str) {
        let reply = crate::support::post(self.port, path, "application/json", body);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// A stream of server-sent events of a topic in the manner of Axway Streams.
    fn stream(&self, topic: &str) -> Events {
        let mut client = RawClient::connect(self.port);
        client.send(format!(
            "GET /streams/subscribers/sse/api/v1/topics/{topic} HTTP/1.1\r\nHost: test\r\n\
             X-Api-Key: {}\r\n\r\n",
            self.keys[ANN]
        ));
        let head = String::from_utf8(client.until(b"\r\n\r\n")).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Events(client)
    }
}

/// What a stream of server-sent events brings.
struct Events(RawClient);

impl Events {
    /// The id, the type and the data of the next event; of a place without an event only the id.
    fn next(&mut self) -> (String, String, String) {
        loop {
            let block = String::from_utf8(self.0.until(b"\n\n")).unwrap();
            let field = |name: &str| {
                let mut lines = block.lines().filter_map(|it| it.strip_prefix(name));
                lines.next().unwrap_or_default().to_owned()
            };
            let id = field("id: ");
            if !id.is_empty() {
                return (id, field("event: "), field("data: "));
            }
        }
    }
}

fn header<'a>(received: &'a Received, name: &str) -> &'a str {
    let name = format!("x-axway-streams-{name}");
    received.header(&name).unwrap_or_default()
}

/// The code of a refusal, and what it says.
fn refusal(response: &Response) -> (u64, String) {
    assert_eq!(response.header("content-type"), Some("application/json"));
    let error = parsed(response);
    assert!(error["datetime"].is_string() && error["category"].is_string());
    let message = text_of(&error, "message").to_owned();
    (error["code"].as_u64().unwrap(), message)
}

#[test]
fn a_subscription_is_the_same_by_both_interfaces() {
    let sink = Sink::good();
    let mut managed = managed(&[sink.backend.port()]);
    let body = json!({
        "webhookUrl": sink.url(), "subscriptionMode": "event",
        "webhookHeaders": { "X-Tenant": "seven-seas" }, "authorization": null,
    });
    let made = managed.subscribe("orders", &body);
    let uuid = text_of(&made, "id").to_owned();
    let secret = text_of(&made, "webhookSecret").to_owned();
    assert_eq!(
        (uuid.len(), &uuid[14..15]),
        (36, "4"),
        "a UUID of version 4"
    );
    assert_eq!(made["webhookHeaders"], json!({ "X-Tenant": "***" }));
    assert_eq!(text_of(&made, "subscriptionMode"), "event");
    assert_eq!(text_of(&made, "subscriptionStatus"), "active");
    let path = format!("/subscriptions/{uuid}");
    let shown = managed.read(ANN, &path);
    let mut expected = made.clone();
    expected.as_object_mut().unwrap().remove("webhookSecret");
    assert_eq!(shown, expected, "the secret is shown once");
    let by_id = format!("/topics/{}/subscriptions", text_of(&made, "topicId"));
    for list in [&*by_id, "/topics/orders/subscriptions"] {
        assert_eq!(managed.read(ANN, list)["items"], json!([shown]), "{list}");
    }
    let own = managed.get(ANN, &format!("/{}", own_id(&uuid)));
    assert_eq!(
        (&own["url"], &own["mode"]),
        (&json!(sink.url()), &json!("event"))
    );

    managed.publish("1");
    let taken = sink.wait_for(1).remove(0);
    assert_eq!(taken.header("x-tenant"), Some("seven-seas"));
    let signed = signature(&secret, &taken);
    assert_eq!(taken.header("webhook-signature"), Some(&*signed));

    let suspended = managed.axway_patch(&uuid, &json!({ "subscriptionStatus": "suspended" }));
    assert_eq!(suspended.status, 200, "{}", suspended.text());
    assert_eq!(
        text_of(&parsed(&suspended), "subscriptionStatus"),
        "suspended"
    );
    assert_eq!(managed.state(ANN, &own_id(&uuid)), "paused");
    managed.publish("2");
    let moved = json!({
        "webhookUrl": format!("{}/moved", sink.url()), "webhookHeaders": { "X-Tenant": null },
    });
    let moved = managed.axway_patch(&uuid, &moved);
    assert_eq!(moved.status, 200, "{}", moved.text());
    assert_eq!(parsed(&moved)["webhookHeaders"], json!({}));
    assert_eq!(text_of(&parsed(&moved), "subscriptionStatus"), "suspended");
    assert_eq!(sink.accepted().len(), 1);
    let active = managed.axway_patch(&uuid, &json!({ "subscriptionStatus": "active" }));
    assert_eq!(text_of(&parsed(&active), "subscriptionStatus"), "active");
    let taken = sink.wait_for(2).remove(1);
    assert_eq!((&*taken.target, &*text(&taken)), ("/hook/moved", "2"));
    assert_eq!(taken.header("x-tenant"), None);

    // One that our own interface has made has no headers of Axway's.
    let own = managed.create(ANN, &json!({ "url": format!("{}/own", sink.url()) }));
    let all = managed.read(ANN, "/topics/orders/subscriptions");
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    managed.publish("3");
    let all = sink.wait_for(4);
    let of = |target: &str| all.iter().rfind(|it| it.target == target).unwrap();
    assert_eq!(header(of("/hook/own"), "subscription-id"), "");
    assert_eq!(header(of("/hook/moved"), "subscription-id"), uuid);
    let digits = text_of(&own, "id").strip_prefix("wh_").unwrap();
    let groups = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ];
    let other = format!("/subscriptions/{}", groups.join("-"));
    assert_eq!(managed.axway(ANN, ("DELETE", &other), None).status, 204);
    assert_eq!(managed.axway(ANN, ("DELETE", &path), None).status, 204);
    assert_eq!(managed.axway(ANN, ("GET", &path), None).status, 404);
    assert_eq!(managed.get(ANN, "")["items"], json!([]));
    managed.stop();
    assert_eq!(sink.backend.violations(), [""; 0]);
}

#[test]
fn deliveries_name_their_events_as_streams_do() {
    let sink = Sink::good();
    let mut managed = managed(&[sink.backend.port()]);
    managed.add_topics();
    let url = |name: &str| format!("{}/{name}", sink.url());
    let long = "x".repeat(80);
    let price = |tea: u32| format!("{{\"tea\":{tea},\"b\":\"{long}\"}}");
    managed.publish_to("/prices", &price(1));
    let orders = managed.subscribe("orders", &json!({ "webhookUrl": url("orders") }));
    let patches = managed.subscribe("prices", &json!({ "webhookUrl": url("patches") }));
    assert_eq!(text_of(&patches, "subscriptionMode"), "snapshot-patch");
    let only = json!({ "webhookUrl": url("only"), "subscriptionMode": "snapshot-only" });
    let only = managed.subscribe("prices", &only);
    let (mut of_orders, mut of_prices) = (managed.stream("orders"), managed.stream("prices"));
    let (place, _, _) = of_orders.next();
    assert!(place.ends_with("#0"), "{place}");
    assert_eq!(of_prices.next().1, "snapshot", "as it is now");
    managed.publish("{\"n\":1}");
    (2..=3).for_each(|it| managed.publish_to("/prices", &price(it)));
    let taken = sink.wait_for(5);
    let of = |name: &str| -> Vec<&Received> {
        let target = format!("/hook/{name}");
        taken.iter().filter(|it| it.target == target).collect()
    };
    let named = |received: &Received| {
        let names = ["event-id", "event-type"].map(|it| header(received, it).to_owned());
        let [id, kind] = names;
        (id, kind, text(received))
    };
    assert_eq!(named(of("orders")[0]), of_orders.next());
    let streamed = [of_prices.next(), of_prices.next()];
    assert_eq!((&*streamed[0].1, &*streamed[1].1), ("patch", "patch"));
    // A webhook has nothing before its first event, so that the first one is whole.
    let came: Vec<_> = of("patches").into_iter().map(named).collect();
    assert_eq!((&*came[0].0, &*came[0].1), (&*streamed[0].0, "snapshot"));
    assert_eq!(came[1], streamed[1]);
    let came: Vec<_> = of("only").into_iter().map(named).collect();
    let kinds = ["snapshot"; 2].map(str::to_owned);
    assert_eq!(
        came.iter().map(|it| it.1.clone()).collect::<Vec<_>>(),
        kinds
    );
    assert_eq!(came[1].0, streamed[1].0);
    assert_eq!(came[1].2, price(3));
    for (name, subscription) in [("orders", &orders), ("patches", &patches), ("only", &only)] {
        for it in of(name) {
            assert_eq!(header(it, "subscription-id"), text_of(subscription, "id"));
            let topic = text_of(subscription, "topicId");
            assert_eq!(header(it, "topic-id"), topic);
            assert!(header(it, "event-id").starts_with(&format!("{topic}#")));
            assert_eq!(it.header("content-type"), Some("application/json"));
        }
    }
    managed.stop();
}

#[test]
fn a_test_goes_as_it_is_and_exchanges_are_shown_by_time() {
    let sink = Sink::answering(|_, received| match &*received.body {
        b"5" => (422, String::new()),
        _ => (200, String::new()),
    });
    let mut managed = managed(&[sink.backend.port()]);
    let made = managed.subscribe("orders", &json!({ "webhookUrl": sink.url() }));
    let uuid = text_of(&made, "id").to_owned();
    let path = format!("/subscriptions/{uuid}/test");
    let spaced = "{ \"tea\" :  [1.50, \"\\u00e4\"] }";
    let send = |raw: &str, fields: &str| {
        let ask = Ask {
            raw: Some(raw),
            fields,
            ..Ask::default()
        };
        managed.request(&managed.keys[ANN], ("POST", &format!("{BASE}{path}")), ask)
    };
    let tested = send(spaced, "");
    assert_eq!((tested.status, tested.body.len()), (202, 0));
    let test = sink.wait_for(1).remove(0);
    assert_eq!(text(&test), spaced);
    assert_eq!(header(&test, "subscription-id"), uuid);
    assert_eq!(header(&test, "topic-id"), text_of(&made, "topicId"));
    assert_eq!(header(&test, "event-id"), "", "it is no event");
    let signed = signature(text_of(&made, "webhookSecret"), &test);
    assert_eq!(test.header("webhook-signature"), Some(&*signed));
    for wrong in ["", "{", "tea", "1 2"] {
        let refused = send(wrong, "");
        assert_eq!(
            (refused.status, refusal(&refused).0),
            (400, 40400),
            "{wrong}"
        );
    }
    let refused = send("1", "Content-Type: text/plain\r\n");
    assert_eq!(refused.status, 415);

    let event = managed.publish("1");
    managed.publish("5");
    wait_long("it has been refused twice", || {
        managed.exchanges(&uuid, "").len() == 4
    });
    let all = managed.exchanges(&uuid, "");
    let (failed, taken) = (&all[all.len() - 3], &all[all.len() - 2]);
    let tested = &all[all.len() - 1];
    let number = event.rsplit('-').next().unwrap();
    let event = format!("{}#{number}", text_of(&made, "topicId"));
    assert_eq!(text_of(taken, "eventId"), event);
    assert_eq!(text_of(taken, "eventType"), "event");
    assert_eq!(text_of(taken, "subscriptionId"), uuid);
    assert!(text_of(taken, "requestDuration").starts_with("PT"));
    assert_eq!(
        (&taken["responseCode"], &taken["responseBody"]),
        (&json!(200), &json!("ok"))
    );
    assert_eq!(failed["responseCode"], 422);
    assert!(tested.get("eventId").is_none() && tested.get("eventType").is_none());
    for name in [
        "pipelineId",
        "requestUrl",
        "requestRetryAttempts",
        "responseSize",
    ] {
        assert!(taken.get(name).is_none(), "{name} is not kept");
    }
    let time = text_of(tested, "requestDatetime");
    let between = managed.exchanges(&uuid, &format!("?start={time}&end={time}"));
    assert_eq!(between, std::slice::from_ref(tested));
    let before = managed.exchanges(&uuid, "?end=2026-01-01T00:00:00Z");
    let after = managed.exchanges(
        &uuid,
        "?start=2099-01-01T00%3A00%3A00Z&end=2099-01-02T00:00:00Z",
    );
    assert!(before.is_empty() && after.is_empty());
    let since = managed.exchanges(&uuid, "?start=2026-01-01T00:00:00%2B01:00&pageSize=1");
    assert_eq!(since.len(), 1, "a page of them");
    for wrong in [
        "?start=yesterday",
        "?start=2099-01-01T00:00:00Z",
        "?start=1&start=2",
        "?sort=webhookUrl",
    ] {
        let path = format!("/subscriptions/{uuid}/exchanges{wrong}");
        assert_eq!(
            managed.axway(ANN, ("GET", &path), None).status,
            400,
            "{wrong}"
        );
    }
    managed.stop();
}

#[test]
fn a_subscription_that_has_answered_410_is_suspended_until_it_is_active_again() {
    let is_gone = Arc::new(AtomicBool::new(true));
    let gone = Arc::clone(&is_gone);
    let sink = Sink::answering(move |_, _| match gone.load(Ordering::Relaxed) {
        true => (410, String::new()),
        false => (200, String::new()),
    });
    let mut managed = managed(&[sink.backend.port()]);
    let made = managed.subscribe("orders", &json!({ "webhookUrl": sink.url() }));
    let uuid = text_of(&made, "id").to_owned();
    let event = managed.publish("1");
    wait_long("it is suspended", || managed.status(&uuid) == "suspended");
    assert_eq!(managed.state(ANN, &own_id(&uuid)), "disabled");
    is_gone.store(false, Ordering::Relaxed);
    managed.stop();
    managed.start();
    assert_eq!(managed.status(&uuid), "suspended", "over a restart");
    let active = managed.axway_patch(&uuid, &json!({ "subscriptionStatus": "active" }));
    assert_eq!(active.status, 200, "{}", active.text());
    assert_eq!(text_of(&parsed(&active), "subscriptionStatus"), "active");
    assert_eq!(id(&sink.wait_for(1)[0]), event, "what it had not taken");
    managed.stop();
}

#[test]
fn a_subscription_outlives_a_kill_with_its_headers() {
    let sink = Sink::good();
    let mut managed = managed(&[sink.backend.port()]);
    let body = json!({ "webhookUrl": sink.url(), "webhookHeaders": { "X-Own": "value-of-own" } });
    let made = managed.subscribe("orders", &body);
    let uuid = text_of(&made, "id").to_owned();
    managed.publish("1");
    sink.wait_for(1);
    kill(managed.engine.take().unwrap());
    managed.start();
    // After a crash ids of events are of another epoch, and so is that of the topic. The one before
    // still names it.
    let path = format!("/topics/{}/subscriptions", text_of(&made, "topicId"));
    let shown = managed.read(ANN, &path)["items"][0].clone();
    for name in ["id", "webhookUrl", "webhookHeaders", "subscriptionStatus"] {
        assert_eq!(shown[name], made[name], "{name}");
    }
    managed.publish("2");
    wait_long("the event has come", || {
        sink.bodies().contains(&"2".to_owned())
    });
    let all = sink.accepted();
    let taken = all.iter().find(|it| text(it) == "2").unwrap();
    assert_eq!(taken.header("x-own"), Some("value-of-own"));
    assert_eq!(header(taken, "subscription-id"), uuid);
    let topic = text_of(&shown, "topicId");
    assert_eq!(header(taken, "topic-id"), topic);
    assert_eq!(header(taken, "event-id"), format!("{topic}#2"));
    managed.stop();
}

#[test]
fn others_get_what_they_would_get_if_it_did_not_exist() {
    let sink = Sink::good();
    let mut managed = managed(&[sink.backend.port()]);
    managed.add_topics();
    let made = managed.subscribe("orders", &json!({ "webhookUrl": sink.url() }));
    let uuid = text_of(&made, "id").to_owned();
    let none = "01234567-89ab-4def-8123-456789abcdef";
    let body = json!({});
    for (method, rest) in [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/test"),
        ("GET", "/exchanges"),
    ] {
        let said = matches!(method, "PATCH" | "POST").then_some(&body);
        let foreign = managed.axway(BOB, (method, &format!("/subscriptions/{uuid}{rest}")), said);
        let missing = managed.axway(BOB, (method, &format!("/subscriptions/{none}{rest}")), said);
        let odd = managed.axway(BOB, (method, &format!("/subscriptions/tea{rest}")), said);
        for (response, path) in [
            (&foreign, Some(&*uuid)),
            (&missing, Some(none)),
            (&odd, None),
        ] {
            assert_eq!(response.status, 404, "{method} {rest}");
            let (code, message) = refusal(response);
            assert_eq!((code, &*message), (40405, "there is no such subscription"));
            let id = parsed(response).get("subscriptionId").cloned();
            assert_eq!(id, path.map(Value::from), "that of the path");
        }
    }
    // Nothing else of a request is judged first.
    for (method, rest, said) in [
        ("PUT", "", Some(json!({}))),
        ("PATCH", "", Some(json!({ "nonsense": 1 }))),
        ("GET", "/exchanges?start=tea", None),
    ] {
        for id in [&*uuid, none] {
            let path = format!("/subscriptions/{id}{rest}");
            let response = managed.axway(BOB, (method, &path), said.as_ref());
            let told = (response.status, refusal(&response).0);
            assert_eq!(told, (404, 40405), "{method} {path}");
        }
    }
    // An operator sees it, but signs nothing in its owner's name.
    let test = format!("/subscriptions/{uuid}/test");
    let tried = managed.axway(OPS, ("POST", &test), Some(&body));
    assert_eq!(tried.status, 403, "{}", tried.text());
    assert_eq!(
        managed.read(BOB, "/topics/orders/subscriptions")["items"],
        json!([])
    );
    let all = managed.read(OPS, "/topics/orders/subscriptions");
    assert_eq!(
        all["items"].as_array().unwrap().len(),
        1,
        "operators see all"
    );
    assert_eq!(
        managed.read(ANN, "/topics/prices/subscriptions")["items"],
        json!([])
    );
    // The id of a topic is none of a subscription, and a topic needs `manage`.
    let topic = text_of(&made, "topicId");
    let as_topic = managed.axway(ANN, ("GET", &format!("/subscriptions/{topic}")), None);
    assert_eq!(refusal(&as_topic).0, 40405);
    for named in ["bare", "nothing", &uuid] {
        let path = format!("/topics/{named}/subscriptions");
        let missing = managed.axway(ANN, ("GET", &path), None);
        assert_eq!(
            (missing.status, refusal(&missing).0),
            (404, 40404),
            "{named}"
        );
    }
    for path in ["/topics/orders/subscriptions", "/subscriptions/x"] {
        let path = format!("{BASE}{path}");
        let nobody = managed.request("", ("GET", &path), Ask::default());
        assert_eq!((nobody.status, refusal(&nobody).0), (401, 40401));
        assert!(nobody.header("www-authenticate").is_some());
    }
    let path = "/topics/orders/subscriptions";
    let put = managed.axway(ANN, ("PUT", path), Some(&body));
    assert_eq!(
        (put.status, put.header("allow")),
        (405, Some("GET, HEAD, POST"))
    );
    managed.stop();
}

/// All of a refusal but the time and the id that its request named.
fn without_time_and_id(response: &Response) -> (u16, Vec<(String, String)>, Value) {
    let mut error = parsed(response);
    let members = error.as_object_mut().unwrap();
    members.remove("datetime");
    members.remove("subscriptionId");
    let headers = response.headers.iter();
    let headers = headers.filter(|it| !it.0.eq_ignore_ascii_case("date"));
    (response.status, headers.cloned().collect(), error)
}

#[test]
fn limits_are_told_on_a_429_and_do_not_tell_which_subscriptions_there_are() {
    let sink = Sink::good();
    let limits =
        "limits: { throttle: { by: '${ $auth.id }', requests: 9, per: 50m }, headers: true }";
    let subscribe = format!("{PROFILE}\n  {limits}");
    let mut managed = Managed::new(&[sink.backend.port()], "challenge: false", &subscribe);
    let made = managed.subscribe("orders", &json!({ "webhookUrl": sink.url() }));
    let own = format!("/subscriptions/{}", text_of(&made, "id"));
    let none = "/subscriptions/01234567-89ab-4def-8123-456789abcdef";
    let policy = Some("\"throttle\";q=9;w=3000");
    let shown = managed.axway(ANN, ("GET", &own), None);
    assert_eq!(
        (shown.status, shown.header("ratelimit-policy")),
        (200, policy)
    );
    // More often than the limit allows.
    for _ in 0..12 {
        let [foreign, missing] = [&*own, none].map(|it| managed.axway(BOB, ("GET", it), None));
        assert_eq!(missing.status, 404, "{}", missing.text());
        assert_eq!(without_time_and_id(&foreign), without_time_and_id(&missing));
    }
    let list = managed.axway(BOB, ("GET", "/topics/orders/subscriptions"), None);
    assert_eq!(list.status, 200, "these requests were not counted");
    assert_eq!(list.header("ratelimit-policy"), policy);

    let mut all = (0..10).map(|_| managed.axway(ANN, ("GET", &own), None));
    let limited = all.find(|it| it.status == 429).unwrap();
    assert_eq!(refusal(&limited).0, 40400);
    assert_eq!(limited.header("ratelimit-policy"), policy);
    let left = limited.header("ratelimit").unwrap();
    assert!(left.starts_with("\"throttle\";r=0;t="), "{left}");
    assert!(limited.header("retry-after").is_some());
    assert_eq!(managed.axway(ANN, ("GET", none), None).status, 404);
    managed.stop();
}

#[test]
fn without_the_profile_there_are_no_such_paths() {
    let mut managed = Managed::new(&[1], "challenge: false", "");
    let ask = Ask::default();
    let path = format!("{BASE}/topics/orders/subscriptions");
    let missing = managed.request(&managed.keys[ANN], ("GET", &path), ask);
    let nothing = managed.request(&managed.keys[ANN], ("GET", "/nothing"), ask);
    assert_eq!((missing.status, missing.text()), (404, nothing.text()));
    managed.stop();
}

#[test]
fn bad_requests_are_told_in_the_words_of_the_interface() {
    let sink = Sink::good();
    let mut managed = managed(&[sink.backend.port()]);
    managed.add_topics();
    let url = sink.url();
    let path = "/topics/orders/subscriptions";
    let made = managed.subscribe("orders", &json!({ "webhookUrl": url }));
    let uuid = text_of(&made, "id").to_owned();
    let one = format!("/subscriptions/{uuid}");
    let oauth2 = json!({ "type": "oauth2", "clientId": "a", "clientSecret": "b" });
    let patches = json!({ "webhookUrl": url, "subscriptionMode": "snapshot-patch" });
    for (body, status, words) in [
        (json!({}), 400, "a subscription has a `webhookUrl`"),
        (json!({ "webhookUrl": 7 }), 400, "`webhookUrl` is a text"),
        (json!({ "webhookUrl": "tea" }), 400, ""),
        (json!({ "webhookUrl": "http://10.0.0.1/" }), 403, ""),
        (
            json!({ "webhookUrl": format!("{url}#a") }),
            400,
            "a `webhookUrl` has no fragment",
        ),
        (patches.clone(), 400, "`subscriptionMode` is one of: event"),
        (
            json!({ "webhookUrl": url, "authorization": oauth2 }),
            400,
            "OAuth 2.0",
        ),
        (
            json!({ "webhookUrl": url, "webhookHeaders": [] }),
            400,
            "`webhookHeaders` is an object",
        ),
        (
            json!({ "webhookUrl": url, "webhookHeaders": { "X-Axway-Streams-Topic-Id": "a" } }),
            400,
            "is set by the engine",
        ),
        (
            json!({ "webhookUrl": url, "tea": 1 }),
            400,
            "there is no member `tea`",
        ),
        (
            json!({ "webhookUrl": url, "url": url }),
            400,
            "there is no member `url`",
        ),
        (json!([url]), 400, "the body is not a JSON object"),
    ] {
        let refused = managed.axway(ANN, ("POST", path), Some(&body));
        assert_eq!(refused.status, status, "{body}: {}", refused.text());
        let (code, message) = refusal(&refused);
        let expected = if status == 403 { 40403 } else { 40400 };
        assert_eq!(code, expected, "{body}");
        assert!(message.contains(words), "{body}: {message}");
    }
    let of_prices = managed.subscribe("prices", &patches);
    assert_eq!(text_of(&of_prices, "subscriptionMode"), "snapshot-patch");
    for (body, words) in [
        (
            json!({ "subscriptionStatus": "failed" }),
            "`active` or `suspended`",
        ),
        (
            json!({ "webhookUrl": null }),
            "a subscription has a `webhookUrl`",
        ),
        (json!({ "authorization": oauth2 }), "OAuth 2.0"),
        (json!({ "id": uuid }), "there is no member `id`"),
    ] {
        let refused = managed.axway(ANN, ("PATCH", &one), Some(&body));
        assert_eq!(refused.status, 400, "{body}");
        let message = refusal(&refused).1;
        assert!(message.contains(words), "{body}: {message}");
    }
    let ask = Ask {
        raw: Some("{\"webhookUrl\":"),
        ..Ask::default()
    };
    let cut = managed.request(&managed.keys[ANN], ("POST", &format!("{BASE}{path}")), ask);
    assert_eq!((cut.status, refusal(&cut).0), (400, 40400));
    for (url, status) in [("http://a.example/#b", 400), ("http://10.0.0.1/", 403)] {
        let both = json!({ "subscriptionStatus": "suspended", "webhookUrl": url });
        assert_eq!(managed.axway_patch(&uuid, &both).status, status);
        assert_eq!(managed.status(&uuid), "active", "all of it is refused");
    }
    let far = managed.read(ANN, &format!("{path}?page={}", usize::MAX));
    assert!(far["links"].get("next").is_none(), "{far}");
    let all = managed.read(ANN, path);
    assert_eq!(
        all["items"].as_array().unwrap().len(),
        1,
        "nothing was made"
    );
    managed.stop();
}

#[test]
fn lists_have_pages_links_and_an_order() {
    let sink = Sink::good();
    let mut managed = managed(&[sink.backend.port()]);
    for name in ["b", "c", "a"] {
        let url = format!("{}/{name}", sink.url());
        managed.subscribe("orders", &json!({ "webhookUrl": url }));
    }
    let path = "/topics/orders/subscriptions";
    let urls = |query: &str| -> Vec<String> {
        let page = managed.read(ANN, &format!("{path}{query}"));
        let items = page["items"].as_array().unwrap().iter();
        let url = |it: &Value| {
            text_of(it, "webhookUrl")
                .rsplit('/')
                .next()
                .unwrap()
                .to_owned()
        };
        items.map(url).collect()
    };
    assert_eq!(urls("?sort=webhookUrl,ASC"), ["a", "b", "c"]);
    assert_eq!(urls("?sort=webhookUrl%2CDESC&pageSize=2"), ["c", "b"]);
    assert_eq!(urls("?sort=webhookUrl,ASC&page=2&pageSize=2"), ["c"]);
    assert_eq!(urls("?sort=webhookUrl,ASC&page=9"), [""; 0]);
    let equal = managed.read(ANN, &format!("{path}?sort=subscriptionMode,DESC"));
    let equal = equal["items"].as_array().unwrap().iter();
    let equal: Vec<&str> = equal.map(|it| text_of(it, "id")).collect();
    assert!(equal.len() == 3 && equal.is_sorted(), "by id: {equal:?}");
    assert_eq!(urls("?page=9"), [""; 0]);
    // From page to page by the links.
    let mut page = managed.read(ANN, &format!("{path}?pageSize=2"));
    assert_eq!(page["links"]["self"], page["links"]["first"]);
    let mut ids = Vec::new();
    loop {
        let items = page["items"].as_array().unwrap();
        ids.extend(items.iter().map(|it| text_of(it, "id").to_owned()));
        let Some(next) = page["links"].get("next") else {
            assert_eq!(page["links"]["self"], page["links"]["last"]);
            break;
        };
        let next = next.as_str().unwrap().strip_prefix(BASE).unwrap();
        page = managed.read(ANN, next);
    }
    assert!(ids.len() == 3 && ids.is_sorted(), "{ids:?}");
    for (query, words) in [
        ("page=0", "`page` is a number from 1"),
        ("pageSize=1001", "`pageSize` is a number from 1 to 1000"),
        ("sort=id", "`sort` is"),
        ("search=webhookUrl:a", "`search` is not supported"),
        ("limit=1", "there is no parameter `limit`"),
    ] {
        let refused = managed.axway(ANN, ("GET", &format!("{path}?{query}")), None);
        assert_eq!(refused.status, 400, "{query}");
        let message = refusal(&refused).1;
        assert!(message.starts_with(words), "{query}: {message}");
    }
    managed.stop();
}

#[test]
fn a_subscription_is_suspended_until_its_url_has_answered_the_challenge() {
    let receiver = Receiver::new();
    receiver.is_willing.store(false, Ordering::Relaxed);
    let mut managed = Managed::new(&[receiver.backend.port()], "", PROFILE);
    let made = managed.subscribe("orders", &json!({ "webhookUrl": receiver.url() }));
    let uuid = text_of(&made, "id").to_owned();
    assert_eq!(text_of(&made, "subscriptionStatus"), "suspended");
    managed.publish("1");
    wait_long("it is challenged", || {
        !receiver.of_kind("challenge").is_empty()
    });
    let challenge = receiver.of_kind("challenge").remove(0);
    assert_eq!(header(&challenge, "subscription-id"), uuid);
    let active = json!({ "subscriptionStatus": "active" });
    let refused = managed.axway_patch(&uuid, &active);
    assert_eq!((refused.status, refusal(&refused).0), (409, 40400));
    receiver.is_willing.store(true, Ordering::Relaxed);
    let patched = managed.axway_patch(&uuid, &active);
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(text_of(&parsed(&patched), "subscriptionStatus"), "active");
    assert_eq!(text(&receiver.wait_for(1)[0]), "1");
    managed.stop();
}

#[test]
fn a_change_that_is_refused_late_suspends_nothing() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "", PROFILE);
    let made = managed.subscribe("orders", &json!({ "webhookUrl": receiver.url() }));
    let uuid = text_of(&made, "id").to_owned();
    wait_long("it is active", || managed.status(&uuid) == "active");
    let test = format!("/subscriptions/{uuid}/test");
    let tests = (0..30).map(|_| managed.axway(ANN, ("POST", &test), Some(&json!({}))));
    let is_limited = tests.map(|it| it.status).any(|it| it == 429);
    assert!(is_limited, "no more challenges are sent for this caller");
    // Another address is challenged.
    let moved = json!({
        "subscriptionStatus": "suspended", "webhookUrl": format!("{}/moved", receiver.url()),
    });
    assert_eq!(managed.axway_patch(&uuid, &moved).status, 429);
    assert_eq!(managed.status(&uuid), "active", "all of it is refused");
    let both = json!({ "subscriptionStatus": "suspended", "webhookHeaders": { "X-A": "b" } });
    let both = managed.axway_patch(&uuid, &both);
    assert_eq!(both.status, 200, "{}", both.text());
    let shown = parsed(&both);
    assert_eq!(text_of(&shown, "subscriptionStatus"), "suspended");
    assert_eq!(shown["webhookHeaders"], json!({ "X-A": "***" }));
    managed.stop();
}

#[test]
fn a_creation_with_a_key_makes_one_and_its_headers_are_nowhere_in_clear() {
    let sink = Sink::good();
    let mut managed = managed(&[sink.backend.port()]);
    let create = |value: &str| {
        let body = json!({
            "webhookUrl": sink.url(), "webhookHeaders": { "Authorization": value },
        });
        let ask = Ask {
            body: Some(&body),
            fields: "Idempotency-Key: one\r\n",
            ..Ask::default()
        };
        let path = format!("{BASE}/topics/orders/subscriptions");
        managed.request(&managed.keys[ANN], ("POST", &path), ask)
    };
    let first = create("Bearer of-the-first-request");
    assert_eq!(first.status, 201, "{}", first.text());
    let again = create("Bearer of-the-second-request");
    assert_eq!(
        again.status,
        200,
        "values are not compared: {}",
        again.text()
    );
    let (first, again) = (parsed(&first), parsed(&again));
    assert_eq!(first["id"], again["id"]);
    assert!(again.get("webhookSecret").is_none(), "it is shown once");
    managed.stop();
    let files = std::fs::read_dir(managed.folder.path().join("data")).unwrap();
    for file in files.map(|it| it.unwrap().path()).filter(|it| it.is_file()) {
        let bytes = std::fs::read(&file).unwrap();
        let is_there = bytes.windows(12).any(|it| it == b"of-the-first");
        assert!(!is_there, "the value is in {}", file.display());
    }
}
