//! What callers may not have: too much, what is not allowed, and the engine as a weapon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::Sink;
use super::{ANN, Ask, BOB, Managed, OPS, Receiver, parsed, text_of, wait_long};
use crate::support::at_port;

#[test]
fn urls_that_the_guard_refuses_and_bodies_that_are_none_make_nothing() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "", "");
    let create = |body: &serde_json::Value| {
        let ask = Ask {
            body: Some(body),
            ..Ask::default()
        };
        managed.send(ANN, ("POST", ""), ask).status
    };
    for (url, status) in [
        ("https://127.0.0.1/", 403),
        ("http://127.0.0.1:1/", 403),
        ("http://10.0.0.1/", 403),
        ("http://169.254.169.254/latest/meta-data", 403),
        ("ftp://127.0.0.1/", 403),
        ("no url", 400),
        ("http://user:pass@127.0.0.1/", 400),
        ("", 400),
    ] {
        assert_eq!(create(&json!({ "url": url })), status, "{url}");
    }
    let url = receiver.url();
    for wrong in [
        json!({}),
        json!({ "url": url, "secret": "x" }),
        json!({ "url": url, "filter": ".a" }),
        json!({ "url": url, "mode": "snapshot" }),
        json!({ "url": url, "start": "now" }),
        json!({ "url": url, "description": "x".repeat(501) }),
        json!({ "url": format!("{url}/{}", "x".repeat(2048)) }),
        json!({ "url": format!("{url}#part") }),
        json!({ "url": url, "description": "a\u{0}b" }),
        json!({ "url": url, "description": "a\u{202E}b" }),
        json!({ "url": [url] }),
        json!([url, "a"]),
        json!(url),
    ] {
        assert_eq!(create(&wrong), 400, "{wrong}");
    }
    assert_eq!(
        create(&json!({ "url": url, "description": "x".repeat(70_000) })),
        413
    );
    let twice = format!("{{\"url\":\"{url}\",\"url\":\"{url}/other\"}}");
    let ask = Ask {
        raw: Some(&twice),
        ..Ask::default()
    };
    let refused = managed.send(ANN, ("POST", ""), ask);
    assert_eq!(refused.status, 400);
    assert!(
        refused.text().contains("`url` comes twice"),
        "{}",
        refused.text()
    );
    for (query, status) in [
        ("", 200),
        ("?", 200),
        ("?limit=1&after=x", 200),
        ("?afer=x", 400),
    ] {
        let reply = managed.send(ANN, ("GET", query), Ask::default());
        assert_eq!(reply.status, status, "{query}");
    }
    assert!(managed.get(OPS, "")["items"].as_array().unwrap().is_empty());
    managed.stop();
}

/// Deliveries do not follow redirects, whatever spelling of an address a receiver names: here with
/// a port at which something listens, and which the settings let through.
#[test]
fn no_spelling_of_the_list_gets_through_by_a_redirect() {
    let inner = Sink::good();
    let addresses = testkit::egress_spellings().into_iter();
    let addresses = addresses.filter(|it| it.verdict == "address");
    let locations = addresses.map(|it| at_port(&it.url, inner.backend.port()));
    let locations: Vec<String> = locations.collect();
    let count = locations.len();
    assert!(count >= 60, "{count}");
    let sink = Sink::answering(move |number, _| match locations.get(number) {
        Some(location) => (307, format!("Location: {location}\r\n")),
        None => (200, String::new()),
    });
    let ports = [sink.backend.port(), inner.backend.port()];
    let mut managed = Managed::new(&ports, "challenge: false", "");
    managed.create(ANN, &json!({ "url": sink.url() }));
    managed.publish("1");
    sink.wait_for(1);
    managed.stop();
    assert_eq!(sink.all().len(), count + 1, "each is a failure");
    assert!(inner.all().is_empty());
}

#[test]
fn challenges_and_tests_of_a_caller_are_limited() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "", "");
    let url = json!({ "url": receiver.url() });
    let hook = text_of(&managed.create(ANN, &url), "id").to_owned();
    managed.wait_until(&hook, "active");
    let tests: Vec<u16> = (0..30)
        .map(|_| managed.act(ANN, &hook, "test").status)
        .collect();
    assert_eq!(tests[0], 200);
    let limited = managed.act(ANN, &hook, "test");
    assert_eq!(limited.status, 429, "{tests:?}");
    assert!(limited.header("retry-after").is_some());
    // No webhook is made whose URL would never be asked.
    let body = json!({ "url": format!("{}/more", receiver.url()) });
    let ask = Ask {
        body: Some(&body),
        ..Ask::default()
    };
    let limited = managed.send(ANN, ("POST", ""), ask);
    assert_eq!(limited.status, 429, "{}", limited.text());
    assert!(limited.header("retry-after").is_some());
    assert_eq!(managed.get(ANN, "")["items"].as_array().unwrap().len(), 1);
    let hook = text_of(&managed.create(BOB, &url), "id").to_owned();
    managed.wait_until(&hook, "active");
    assert_eq!(managed.act(BOB, &hook, "test").status, 200);
    managed.stop();
}

#[test]
fn webhooks_of_a_caller_and_of_a_topic_are_bounded() {
    let receiver = Receiver::new();
    let bounds = "challenge: false, per_caller: 2, total: 3";
    let mut managed = Managed::new(&[receiver.backend.port()], bounds, "");
    let create = |who| {
        let body = json!({ "url": receiver.url() });
        let ask = Ask {
            body: Some(&body),
            ..Ask::default()
        };
        managed.send(who, ("POST", ""), ask)
    };
    assert_eq!([ANN, ANN, ANN].map(|it| create(it).status), [201, 201, 403]);
    assert_eq!(create(BOB).status, 201);
    let full = create(BOB);
    assert_eq!((full.status, full.header("retry-after")), (503, Some("60")));
    let hook = text_of(&managed.get(ANN, "")["items"][0], "id").to_owned();
    let deleted = managed.send(ANN, ("DELETE", &format!("/{hook}")), Ask::default());
    assert_eq!(deleted.status, 204);
    assert_eq!(create(BOB).status, 201, "there is room again");
    managed.stop();
}

#[test]
fn expressions_are_bounded_as_those_of_subscribers_are() {
    let receiver = Receiver::new();
    let settings = "allow_expressions: true\n  expression_limits: { distinct: 2, length: 16B }";
    let mut managed = Managed::new(&[receiver.backend.port()], "challenge: false", settings);
    let create = |filter: &str| {
        let body = json!({ "url": receiver.url(), "filter": filter });
        let ask = Ask {
            body: Some(&body),
            ..Ask::default()
        };
        managed.send(ANN, ("POST", ""), ask)
    };
    for (filter, status) in [
        (". == 1", 201),
        (". == 2", 201),
        (". == 2", 201),
        (". == 3", 503),
        (". ==", 400),
        ("$auth.id == 1", 400),
        (". == 111111111111111", 400),
    ] {
        let reply = create(filter);
        assert_eq!(reply.status, status, "{filter}: {}", reply.text());
    }
    (1..4).for_each(|it| drop(managed.publish(&it.to_string())));
    receiver.wait_for(3);
    let first = managed.get(ANN, "?limit=1");
    let first = text_of(&first["items"][0], "id").to_owned();
    let shown = managed.get(ANN, &format!("/{first}"));
    assert!(text_of(&shown, "filter").starts_with(". == "));
    wait_long("all are up to date", || {
        let all = managed.get(ANN, "");
        let all = all["items"].as_array().unwrap();
        all.iter().all(|it| it["lag"] == 0)
    });
    let tag = managed.send(ANN, ("DELETE", &format!("/{first}")), Ask::default());
    assert_eq!(tag.status, 204);
    managed.stop();
}

#[test]
fn a_filter_that_fails_is_told_to_its_owner_and_concerns_nobody_else() {
    let receiver = Receiver::new();
    let settings = "allow_expressions: true";
    let mut managed = Managed::new(&[receiver.backend.port()], "challenge: false", settings);
    let create = |who, body: serde_json::Value| {
        let made = managed.create(who, &body);
        text_of(&made, "id").to_owned()
    };
    let failing = create(ANN, json!({ "url": receiver.url(), "filter": ".a > 1" }));
    let fine = create(BOB, json!({ "url": receiver.url() }));
    (1..=60).for_each(|it| drop(managed.publish(&it.to_string())));
    receiver.wait_for(60);
    wait_long("all are done", || {
        managed.get(ANN, &format!("/{failing}"))["lag"] == 0
    });
    let shown = managed.get(ANN, &format!("/{failing}"));
    assert_eq!(text_of(&shown, "state"), "active");
    assert!(text_of(&shown, "reason").contains("filter: .a"), "{shown}");
    let attempts = managed.get(ANN, &format!("/{failing}/attempts"));
    let attempts = attempts["items"].as_array().unwrap().clone();
    assert_eq!(attempts.len(), 50);
    assert_eq!(
        (&attempts[0]["status"], &attempts[0]["accepted"]),
        (&json!(null), &json!(false))
    );
    assert_eq!(managed.get(BOB, &format!("/{fine}"))["reason"], json!(null));
    // An event on which it does not fail ends that.
    managed.publish("{\"a\":2}");
    wait_long("it is well", || {
        managed.get(ANN, &format!("/{failing}"))["reason"] == json!(null)
    });
    let metrics = managed.engine().get("/metrics").text();
    let name = "intertie_webhook_subscriptions_dead_letters_total";
    let letters = metrics.lines().find(|it| it.starts_with(name)).unwrap();
    assert!(letters.ends_with(" 60.0"), "{letters}");
    let output = managed.stop();
    assert!(!output.contains("ERROR"), "no line for each: {output}");
    let data = managed.folder.path().join("data").display().to_string();
    let listed = crate::support::output(&["store", "list", "--data", &data]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(!listed.contains("dead-letters"), "{listed}");
}

#[test]
fn an_owner_has_events_sent_again() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "challenge: false", "");
    let made = managed.create(ANN, &json!({ "url": receiver.url() }));
    let path = format!("/{}/replay", text_of(&made, "id"));
    let ids: Vec<String> = (0..4).map(|it| managed.publish(&it.to_string())).collect();
    receiver.wait_for(4);
    let replay = |who, body: serde_json::Value| {
        let ask = Ask {
            body: Some(&body),
            ..Ask::default()
        };
        managed.send(who, ("POST", &path), ask).status
    };
    assert_eq!(replay(ANN, json!({ "event": ids[1] })), 200);
    receiver.wait_for(5);
    assert_eq!(replay(ANN, json!({ "from": ids[2] })), 200);
    let all = receiver.wait_for(7);
    let came: Vec<&str> = all
        .iter()
        .map(|it| it.header("webhook-id").unwrap())
        .collect();
    let again = [0, 1, 2, 3, 1, 2, 3].map(|it| ids[it].as_str());
    assert_eq!(came, again);
    assert_eq!(replay(ANN, json!({})), 200);
    let all = receiver.wait_for(11);
    let last = all[7..].iter().map(super::id).collect::<Vec<_>>();
    assert_eq!(last, ids, "all that are kept");
    assert_eq!(replay(BOB, json!({})), 404);
    assert_eq!(replay(OPS, json!({ "event": "1-1" })), 404);
    assert_eq!(replay(ANN, json!({ "event": "x" })), 400);
    let limited: Vec<u16> = (0..30).map(|_| replay(ANN, json!({}))).collect();
    assert!(limited.contains(&429), "{limited:?}");
    managed.stop();
}

#[test]
fn a_patch_without_a_change_changes_nothing() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "challenge: false", "");
    let body = json!({ "url": receiver.url(), "description": "a" });
    let path = format!("/{}", text_of(&managed.create(ANN, &body), "id"));
    let before = managed.send(ANN, ("GET", &path), Ask::default());
    for body in ["{}", "{\"description\":\"a\"}"] {
        let ask = Ask {
            raw: Some(body),
            ..Ask::default()
        };
        let same = managed.send(ANN, ("PATCH", &path), ask);
        assert_eq!(
            (same.status, same.header("etag")),
            (200, before.header("etag"))
        );
        assert_eq!(parsed(&same)["updated"], parsed(&before)["updated"]);
    }
    for body in [
        "{\"description\":\"b\",\"description\":\"c\"}",
        "[]",
        "[1]",
        "{\"url\":1}",
        "{",
    ] {
        let ask = Ask {
            raw: Some(body),
            ..Ask::default()
        };
        assert_eq!(
            managed.send(ANN, ("PATCH", &path), ask).status,
            400,
            "{body}"
        );
    }
    managed.stop();
}

#[test]
fn each_operation_of_the_document_is_served() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "", "");
    let paths = managed.document["paths"].as_object().unwrap().clone();
    let mut count = 0;
    for (path, item) in &paths {
        let path = path.strip_prefix("/topics/orders/webhooks").unwrap();
        let path = path.replace("{id}", "wh_none");
        for method in ["GET", "POST", "PATCH", "DELETE", "PUT", "OPTIONS"] {
            let reply = managed.send(ANN, (method, &path), Ask::default());
            let is_described = item.get(method.to_lowercase()).is_some();
            assert_eq!(reply.status == 405, !is_described, "{method} {path}");
            if reply.status == 405 {
                assert!(reply.header("allow").is_some());
                assert_eq!(parsed(&reply)["status"], 405);
            }
            count += usize::from(is_described);
        }
    }
    assert_eq!(count, 13);
    managed.stop();
}

#[test]
fn webhooks_that_wait_for_a_place_at_their_host_are_paused_at_once() {
    let is_over = Arc::new(AtomicBool::new(false));
    let begun = Arc::new(AtomicUsize::new(0));
    let (over, count) = (Arc::clone(&is_over), Arc::clone(&begun));
    let sink = Sink::answering(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        let start = Instant::now();
        while !over.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(15) {
            thread::sleep(Duration::from_millis(10));
        }
        (200, String::new())
    });
    let manage = "challenge: false, per_caller: 100";
    let mut managed = Managed::new(&[sink.backend.port()], manage, "");
    // More than may be asked at a time of those that have not taken anything.
    let hooks: Vec<String> = (0..80)
        .map(|_| {
            let made = managed.create(ANN, &json!({ "url": sink.url() }));
            text_of(&made, "id").to_owned()
        })
        .collect();
    managed.publish("1");
    wait_long("the places are taken", || {
        begun.load(Ordering::Relaxed) >= 32
    });
    thread::sleep(Duration::from_millis(200));
    assert!(begun.load(Ordering::Relaxed) < hooks.len(), "some wait");
    for hook in &hooks {
        assert_eq!(managed.act(ANN, hook, "pause").status, 200);
    }
    is_over.store(true, Ordering::Relaxed);
    managed.stop();
}
