//! How events are sent to webhooks of users, and with which headers: as endpoints of files have it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::{Response, StrictBackend};

use super::super::{Sink, id, reload, signature, text};
use super::{ANN, Ask, KEY, Managed, OTHER_KEY, kill, parsed, secret, text_of, wait_long};

/// No challenge, and expressions.
fn managed(ports: &[u16], more: &str) -> Managed {
    let manage = format!("challenge: false, {more}");
    Managed::new(ports, &manage, "allow_expressions: true")
}

fn with(url: String, more: &Value) -> Value {
    let mut body = json!({ "url": url });
    let members = body.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    body
}

impl Managed {
    fn post(&self, body: &Value) -> Response {
        let ask = Ask {
            body: Some(body),
            ..Ask::default()
        };
        self.send(ANN, ("POST", ""), ask)
    }

    fn patch(&self, id: &str, body: &Value) -> Response {
        let ask = Ask {
            body: Some(body),
            ..Ask::default()
        };
        self.send(ANN, ("PATCH", &format!("/{id}")), ask)
    }

    fn patched(&self, id: &str, body: &Value) -> Value {
        let response = self.patch(id, body);
        assert_eq!(response.status, 200, "{}", response.text());
        parsed(&response)
    }

    /// Whether a file of the data folder has this text.
    fn stores(&self, text: &str) -> bool {
        let files = std::fs::read_dir(self.folder.path().join("data")).unwrap();
        let mut files = files.map(|it| it.unwrap().path()).filter(|it| it.is_file());
        files.any(|file| {
            let bytes = std::fs::read(file).unwrap();
            bytes.windows(text.len()).any(|it| it == text.as_bytes())
        })
    }
}

#[test]
fn what_is_said_is_shown_with_its_defaults_and_outlives_a_kill() {
    let sink = Sink::good();
    let mut managed = managed(&[sink.backend.port()], "");
    let plain = managed.create(ANN, &json!({ "url": sink.url() }));
    for (name, value) in [
        ("ordered", json!(true)),
        ("key", Value::Null),
        ("concurrent", Value::Null),
        ("batch", Value::Null),
        ("throttle", Value::Null),
        ("cloudevents", Value::Null),
        ("headers", json!({})),
    ] {
        assert_eq!(plain[name], value, "{name}");
    }
    let said = json!({
        "ordered": "by-key", "key": ".meter", "throttle": { "requests": 100 },
        "cloudevents": "binary", "headers": { "X-Tenant": 7, "X-Live": true },
    });
    let keyed = managed.create(ANN, &with(sink.url(), &said));
    let batched = json!({ "batch": { "count": 2 }, "cloudevents": "structured" });
    let batched = managed.create(ANN, &with(sink.url(), &batched));
    let check = |managed: &Managed| {
        let shown = managed.get(ANN, &format!("/{}", text_of(&keyed, "id")));
        assert_eq!(shown["ordered"], "by-key");
        assert_eq!(
            (&shown["key"], &shown["concurrent"]),
            (&json!(".meter"), &json!(8))
        );
        let throttle = json!({ "requests": 100, "per": "1s", "burst": 1 });
        assert_eq!(shown["throttle"], throttle);
        assert_eq!(
            shown["headers"],
            json!({ "X-Tenant": "***", "X-Live": "***" })
        );
        let shown = managed.get(ANN, &format!("/{}", text_of(&batched, "id")));
        let batch = json!({ "count": 2, "bytes": "256KiB", "time": "1s" });
        assert_eq!(
            (&shown["batch"], &shown["concurrent"]),
            (&batch, &Value::Null)
        );
    };
    check(&managed);
    let ids = [1, 2].map(|it| managed.publish(&format!("{{\"meter\":{it}}}")));
    let taken = sink.wait_for(5);
    let binary: Vec<_> = taken
        .iter()
        .filter(|it| it.header("ce-id").is_some())
        .collect();
    assert_eq!(binary.len(), 2);
    for it in binary {
        assert_eq!(it.header("ce-id"), Some(&*id(it)));
        assert_eq!(
            (it.header("x-tenant"), it.header("x-live")),
            (Some("7"), Some("true"))
        );
    }
    let batch = taken.iter().find(|it| id(it).contains('_')).unwrap();
    assert_eq!(id(batch), format!("{}_{}", ids[0], ids[1]));
    let media_type = Some("application/cloudevents-batch+json");
    assert_eq!(batch.header("content-type"), media_type);
    kill(managed.engine.take().unwrap());
    managed.start();
    check(&managed);
    managed.publish("{\"meter\":3}");
    managed.publish("{\"meter\":4}");
    wait_long("both have the rest", || {
        let all = sink.accepted();
        let of = |part: &str| all.iter().filter(|it| text(it).contains(part)).count();
        of("\"meter\":4") >= 3 && all.iter().any(|it| it.header("x-tenant").is_some())
    });
    managed.stop();
}

/// A change and a deletion count from their answer on, also for what was published before.
#[test]
fn what_was_changed_or_deleted_stays_so_after_a_kill() {
    let (before, after) = (Sink::good(), Sink::good());
    let ports = [before.backend.port(), after.backend.port()];
    let mut managed = managed(&ports, "");
    let made = json!({ "headers": { "X-Tenant": 6, "X-Old": "o" }, "filter": ". < 100" });
    let made = managed.create(ANN, &with(before.url(), &made));
    let (hook, key) = (text_of(&made, "id").to_owned(), secret(&made).to_owned());
    let gone = managed.create(ANN, &json!({ "url": before.url() }));
    let gone = text_of(&gone, "id").to_owned();
    managed.publish("1");
    before.wait_for(2);
    let changed = json!({
        "url": after.url(), "filter": ". % 2 == 0", "description": "moved",
        "headers": { "X-Tenant": 7, "X-Old": null },
    });
    managed.patched(&hook, &changed);
    let deleted = managed.send(ANN, ("DELETE", &format!("/{gone}")), Ask::default());
    assert_eq!(deleted.status, 204);
    let shown = |managed: &Managed| {
        let one = managed.send(ANN, ("GET", &format!("/{hook}")), Ask::default());
        let tag = one.header("etag").unwrap().to_owned();
        let mut value = parsed(&one);
        // How far it has come is not what was changed.
        for name in ["cursor", "lag"] {
            value.as_object_mut().unwrap().remove(name).unwrap();
        }
        (tag, value)
    };
    let expected = shown(&managed);
    assert_eq!(expected.1["headers"], json!({ "X-Tenant": "***" }));
    kill(managed.engine.take().unwrap());
    managed.start();
    assert_eq!(shown(&managed), expected);
    let missing = managed.send(ANN, ("GET", &format!("/{gone}")), Ask::default());
    assert_eq!(missing.status, 404);
    assert_eq!(managed.get(ANN, "")["items"].as_array().unwrap().len(), 1);
    (2..5).for_each(|it| drop(managed.publish(&it.to_string())));
    let taken = after.wait_for(2);
    assert_eq!(after.bodies(), ["2", "4"]);
    for received in &taken {
        assert_eq!(received.header("x-tenant"), Some("7"));
        assert_eq!(received.header("x-old"), None);
        let expected = signature(&key, received);
        assert_eq!(received.header("webhook-signature"), Some(&*expected));
    }
    managed.stop();
    assert_eq!(before.all().len(), 2, "nothing comes to the old URL");
}

#[test]
fn what_is_refused_is_refused_in_the_words_of_files() {
    let sink = Sink::good();
    let mut managed = managed(&[sink.backend.port()], "");
    let many: serde_json::Map<String, Value> =
        (0..21).map(|it| (format!("X-{it}"), json!("v"))).collect();
    let large: serde_json::Map<String, Value> = (0..3)
        .map(|it| (format!("X-{it}"), json!("v".repeat(4000))))
        .collect();
    for (said, words) in [
        (
            json!({ "batch": { "count": 0 } }),
            "`batch.count`: `count` is 0, outside its range (from 1 to 1000)",
        ),
        (
            json!({ "batch": { "bytes": "17MiB" } }),
            "`bytes` is 17MiB, outside its range",
        ),
        (json!({ "batch": { "bytes": 5 } }), "say which unit"),
        (
            json!({ "batch": { "time": "2h" } }),
            "`time` is 2h, outside its range",
        ),
        (json!({ "batch": { "cuont": 5 } }), "did you mean `count`?"),
        (json!({ "batch": true }), "`batch`: expected"),
        (json!({ "throttle": {} }), "`requests` is missing"),
        (
            json!({ "throttle": { "requests": 5, "burst": 6 } }),
            "`burst` is 6, outside its range",
        ),
        (
            json!({ "throttle": { "requests": 5, "per": "2d" } }),
            "`per` is 2d, outside its range",
        ),
        (
            json!({ "ordered": "by-key" }),
            "`ordered: by-key` needs a `key`",
        ),
        (json!({ "ordered": "none" }), "`ordered`"),
        (json!({ "key": ".a" }), "`key` has no effect"),
        (json!({ "ordered": "by-key", "key": ". |" }), "`key`: "),
        (
            json!({ "ordered": "by-key", "key": "$auth.id" }),
            "`key` may use the event",
        ),
        (
            json!({ "ordered": "by-key", "key": ".a", "batch": {} }),
            "events of several keys",
        ),
        (
            json!({ "concurrent": 2 }),
            "in order there is one request at a time",
        ),
        (
            json!({ "ordered": false, "concurrent": 101 }),
            "`concurrent` is 101, outside its range",
        ),
        (
            json!({ "ordered": false, "concurrent": 11 }),
            "`concurrent` is at most 10",
        ),
        (json!({ "batch": { "bytes": "5MiB" } }), "at most 4MiB"),
        (
            json!({ "ordered": false, "batch": { "bytes": "1MiB" } }),
            "at most 4MiB",
        ),
        (
            json!({ "cloudevents": "binary", "batch": {} }),
            "no headers of their own",
        ),
        (json!({ "cloudevents": "both" }), "is not one of"),
        (json!({ "headers": [] }), "an object"),
        (json!({ "headers": { "A b": "c" } }), "is not a header name"),
        (
            json!({ "headers": { "X-A": "b\r\nX-B: c" } }),
            "cannot be sent in a header",
        ),
        (json!({ "headers": { "X-A": ["b"] } }), "expected a string"),
        (
            json!({ "headers": { "X-A": "b", "x-a": "c" } }),
            "stands twice",
        ),
        (json!({ "headers": { "X-A": "***" } }), "stands in place of"),
        (json!({ "headers": many }), "at most 20 lines"),
        (json!({ "headers": large }), "at most 20 lines"),
        (
            json!({ "headers": { "X-A": "v".repeat(4097) } }),
            "at most 20 lines",
        ),
        (
            json!({ "auth": { "oauth2": {} } }),
            "OAuth 2.0 is for endpoints of files",
        ),
        (json!({ "tls": {} }), "for endpoints of files"),
        (json!({ "retry": {} }), "there is no member `retry`"),
    ] {
        let refused = managed.post(&with(sink.url(), &said));
        let told = refused.text();
        assert_eq!(refused.status, 400, "{said}: {told}");
        let detail = parsed(&refused)["detail"].to_string();
        assert!(
            detail.contains(&words.replace('"', "\\\"")),
            "{said}: {detail}"
        );
    }
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Connection",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "Content-Type",
        "Content-Encoding",
        "Proxy-Authorization",
        "webhook-id",
        "Webhook-Signature",
        "webhook_signature",
        "webhook-other",
        "X-Hub-Signature-256",
        "X-Hub-Signature",
        "X-Intertie-Topic",
        "x-intertie-other",
        "ce-id",
        "CE-extension",
        "Forwarded",
        "X-Forwarded-For",
        "X_Forwarded_For",
        "X-Real-IP",
        "Via",
        "CDN-Loop",
        "Client-Cert",
    ] {
        let refused = managed.post(&with(sink.url(), &json!({ "headers": { name: "x" } })));
        assert_eq!(refused.status, 400, "{name}: {}", refused.text());
    }
    assert!(managed.get(ANN, "")["items"].as_array().unwrap().is_empty());
    // Without expressions there is no key.
    managed.write(
        &[sink.backend.port()],
        &format!("secrets_key: {KEY}, challenge: false"),
        "",
    );
    reload(managed.engine());
    let keyed = managed.post(&with(
        sink.url(),
        &json!({ "ordered": "by-key", "key": ".a" }),
    ));
    assert_eq!(keyed.status, 400, "{}", keyed.text());
    managed.stop();
}

#[test]
fn values_of_headers_are_sealed_masked_and_stay_with_their_host() {
    let (sink, other) = (
        // It shows whoever asks what it has got.
        Sink::answering(|_, received| {
            let got = received
                .header("authorization")
                .unwrap_or_default()
                .to_owned();
            (503, format!("X-Got: {got}\r\n"))
        }),
        Sink::good(),
    );
    let ports = [sink.backend.port(), other.backend.port()];
    let mut managed = managed(&ports, "");
    let headers = json!({ "Authorization": "Bearer s3cret-of-ann", "X-Literal": "${ $env.HOME }" });
    let ask = Ask {
        body: Some(&with(sink.url(), &json!({ "headers": headers }))),
        fields: "Idempotency-Key: one\r\n",
        ..Ask::default()
    };
    let made = parsed(&managed.send(ANN, ("POST", ""), ask));
    let hook = text_of(&made, "id").to_owned();
    let masked = json!({ "Authorization": "***", "X-Literal": "***" });
    assert_eq!(made["headers"], masked);
    managed.publish("1");
    wait_long("it is asked", || !sink.all().is_empty());
    let got = sink.all().remove(0).0;
    assert_eq!(got.header("authorization"), Some("Bearer s3cret-of-ann"));
    // Text of callers is not filled in.
    assert_eq!(got.header("x-literal"), Some("${ $env.HOME }"));

    // Nobody learns a value by having it sent elsewhere.
    let moved = managed.patch(&hook, &json!({ "url": other.url() }));
    assert_eq!(moved.status, 400, "{}", moved.text());
    let half = json!({ "url": other.url(), "headers": { "X-Literal": "a" } });
    assert_eq!(managed.patch(&hook, &half).status, 400);
    let same = managed.patched(&hook, &json!({ "url": format!("{}/more", sink.url()) }));
    assert_eq!(same["headers"], masked, "on the same host they stay");
    let whole = json!({
        "url": other.url(), "headers": { "authorization": "Bearer another-one", "X-Literal": null },
    });
    let moved = managed.patched(&hook, &whole);
    assert_eq!(moved["headers"], json!({ "authorization": "***" }));
    let taken = other.wait_for(1).remove(0);
    assert_eq!(taken.header("authorization"), Some("Bearer another-one"));
    assert_eq!(taken.header("x-literal"), None);

    // The key that seals them gets a successor, and goes.
    let subscribe = "allow_expressions: true";
    let rest = "challenge: false";
    managed.write(
        &ports,
        &format!("secrets_key: [{OTHER_KEY}, {KEY}], {rest}"),
        subscribe,
    );
    reload(managed.engine());
    managed.write(
        &ports,
        &format!("secrets_key: {OTHER_KEY}, {rest}"),
        subscribe,
    );
    reload(managed.engine());
    managed.publish("2");
    let taken = other.wait_for(2).remove(1);
    assert_eq!(taken.header("authorization"), Some("Bearer another-one"));
    let log = managed.stop();
    for secret in ["s3cret-of-ann", "another-one"] {
        assert!(!managed.stores(secret), "{secret} is on the disk");
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}

#[test]
fn a_changed_batch_is_finished_as_it_was_begun() {
    let (sink, is_open) = Sink::closed();
    let mut managed = managed(&[sink.backend.port()], "");
    let said = json!({ "batch": { "count": 2, "time": "1h" } });
    let hook = managed.create(ANN, &with(sink.url(), &said));
    let hook = text_of(&hook, "id").to_owned();
    let ids: Vec<String> = (1..5).map(|it| managed.publish(&it.to_string())).collect();
    wait_long("the first batch has been tried", || !sink.all().is_empty());
    let changed = managed.patched(&hook, &json!({ "batch": { "count": 3, "time": null } }));
    let batch = json!({ "count": 3, "bytes": "256KiB", "time": "1s" });
    assert_eq!(changed["batch"], batch);
    let changed = managed.patched(&hook, &json!({ "batch": null }));
    assert_eq!(changed["batch"], Value::Null);
    is_open.store(true, Ordering::Relaxed);
    let taken = sink.wait_for(3);
    assert_eq!(sink.bodies(), ["[1,2]", "3", "4"]);
    assert_eq!(id(&taken[0]), format!("{}_{}", ids[0], ids[1]));
    // And the other way: what comes now is a batch.
    managed.patched(&hook, &json!({ "batch": { "count": 2, "time": "1h" } }));
    managed.publish("5");
    managed.publish("6");
    sink.wait_for(4);
    assert_eq!(sink.bodies()[3], "[5,6]");
    managed.stop();
}

#[test]
fn a_batch_that_a_change_has_made_too_large_is_cut() {
    let (sink, is_open) = Sink::closed();
    let mut managed = managed(&[sink.backend.port()], "batch_max: 1MiB");
    let said = json!({ "select": ".n", "batch": { "count": 4, "time": "1h" } });
    let hook = managed.create(ANN, &with(sink.url(), &said));
    let hook = text_of(&hook, "id").to_owned();
    let pad = "x".repeat(400 << 10);
    let ids: Vec<String> = (0..4)
        .map(|it| managed.publish(&format!("{{\"n\":{it},\"pad\":\"{pad}\"}}")))
        .collect();
    wait_long("the batch has been tried", || !sink.all().is_empty());
    let whole = json!({ "select": null, "batch": null });
    managed.patched(&hook, &whole);
    is_open.store(true, Ordering::Relaxed);
    let taken = sink.wait_for(3);
    let came: Vec<String> = taken.iter().map(id).collect();
    assert_eq!(
        came,
        [
            format!("{}_{}", ids[0], ids[1]),
            ids[2].clone(),
            ids[3].clone()
        ]
    );
    let both: Value = serde_json::from_slice(&taken[0].body).unwrap();
    assert_eq!((&both[0]["n"], &both[1]["n"]), (&json!(0), &json!(1)));
    managed.stop();
}

#[test]
fn an_order_takes_what_belongs_to_it_along() {
    let sink = Sink::answering(|_, received| {
        if text(received).contains("slow") {
            std::thread::sleep(std::time::Duration::from_millis(600));
        }
        (200, String::new())
    });
    let mut managed = managed(&[sink.backend.port()], "concurrent_max: 5");
    let said = json!({ "ordered": "by-key", "key": ".key", "concurrent": 3 });
    let hook = managed.create(ANN, &with(sink.url(), &said));
    let hook = text_of(&hook, "id").to_owned();
    managed.publish("{\"key\":\"slow\",\"n\":0}");
    managed.publish("{\"key\":\"slow\",\"n\":1}");
    let quick: Vec<String> = (0..5)
        .map(|it| managed.publish(&format!("{{\"key\":\"quick\",\"n\":{it}}}")))
        .collect();
    let ids = || -> Vec<String> { sink.accepted().iter().map(id).collect() };
    wait_long("the others have passed", || {
        quick.iter().all(|it| ids().contains(it))
    });
    assert!(ids().len() < 7, "they did not wait");
    sink.wait_for(7);
    let none = managed.patched(&hook, &json!({ "ordered": false }));
    assert_eq!(
        (&none["key"], &none["concurrent"]),
        (&Value::Null, &json!(3))
    );
    let all = managed.patched(&hook, &json!({ "ordered": null }));
    assert_eq!(
        (&all["ordered"], &all["concurrent"]),
        (&json!(true), &Value::Null)
    );
    // Where nothing is said there are as many as the file lets callers have.
    let none = managed.patched(&hook, &json!({ "ordered": false }));
    assert_eq!(none["concurrent"], 5);
    assert_eq!(
        managed.patched(&hook, &json!({ "concurrent": 2 }))["concurrent"],
        2
    );
    let reset = managed.patched(&hook, &json!({ "concurrent": null }));
    assert_eq!(reset["concurrent"], 5);
    assert_eq!(managed.patch(&hook, &json!({ "key": ".a" })).status, 400);
    let same = managed.patched(&hook, &json!({ "description": "new" }));
    assert_eq!(same["concurrent"], 5);
    managed.publish("{\"n\":9}");
    sink.wait_for(8);
    managed.stop();
}

#[test]
fn a_throttle_spreads_requests_from_the_change_on() {
    let sink = Sink::good();
    let mut managed = managed(&[sink.backend.port()], "");
    let hook = managed.create(ANN, &json!({ "url": sink.url() }));
    let hook = text_of(&hook, "id").to_owned();
    let throttle = json!({ "throttle": { "requests": 20, "burst": 2 } });
    managed.patched(&hook, &throttle);
    let start = std::time::Instant::now();
    (0..12).for_each(|it| drop(managed.publish(&it.to_string())));
    sink.wait_for(12);
    let took = start.elapsed();
    assert!(took >= std::time::Duration::from_millis(490), "{took:?}");
    managed.stop();
}

/// A reply whose body is cut could have gone on: it answers no challenge. A test is about the
/// status, whatever becomes of the body.
#[test]
fn a_challenge_is_answered_by_a_whole_body_and_a_test_by_a_status() {
    let answer = Arc::new(Mutex::new("content-length: 0\r\n\r\n"));
    let shown = Arc::clone(&answer);
    let receiver = StrictBackend::answering(move |received| {
        let body: Value = serde_json::from_slice(&received.body).unwrap();
        let challenge = body["challenge"].as_str().unwrap_or("ok");
        let length = challenge.len();
        let mut answer = shown.lock().unwrap().to_owned();
        for (name, value) in [
            ("<challenge>", challenge),
            ("<size>", &format!("{length:x}")),
            ("<more>", &(length + 5).to_string()),
            ("<spaces>", &" ".repeat(70_000 - length)),
        ] {
            answer = answer.replace(name, value);
        }
        assert!(!answer.contains("spaces") && (length < 9 || answer.contains(challenge)));
        format!("HTTP/1.1 200 X\r\n{answer}").into_bytes()
    });
    let mut managed = Managed::new(&[receiver.port()], "timeout: 300ms", "");
    let url = format!("http://127.0.0.1:{}/hook", receiver.port());
    let too_long = "content-length: 70000\r\n\r\n<challenge><spaces>";
    let made = managed.create(ANN, &json!({ "url": url }));
    let id = text_of(&made, "id");
    for cut in [
        "content-length: <more>\r\n\r\n<challenge>",
        "transfer-encoding: chunked\r\n\r\n<size>\r\n<challenge>\r\n",
        "transfer-encoding: chunked\r\n\r\n<size>\r\n<challenge>\r\nzz\r\n",
        too_long,
    ] {
        *answer.lock().unwrap() = cut;
        let verified = managed.act(ANN, id, "verify");
        assert_eq!(verified.status, 409, "{cut}: {}", verified.text());
        assert_eq!(managed.state(ANN, id), "unverified", "{cut}");
        let shown = managed.get(ANN, &format!("/{id}/attempts"));
        let last = &shown["items"][0];
        assert_eq!(last["accepted"], false, "{cut}: {last}");
    }
    *answer.lock().unwrap() =
        "transfer-encoding: chunked\r\n\r\n<size>\r\n<challenge>\r\n0\r\n\r\n";
    assert_eq!(managed.act(ANN, id, "verify").status, 200);
    for cut in ["content-length: 9999\r\n\r\nok", too_long] {
        *answer.lock().unwrap() = cut;
        let tested = parsed(&managed.act(ANN, id, "test"));
        let accepted = (&tested["accepted"], &tested["status"]);
        assert_eq!(accepted, (&json!(true), &json!(200)), "{cut}");
    }
    managed.stop();
}
