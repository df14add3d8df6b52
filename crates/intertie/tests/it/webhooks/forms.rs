//! What endpoints get: signatures, modes, expressions, batches, CloudEvents, keys and rates.

use std::sync::atomic::AtomicUsize;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

use super::*;

#[test]
fn secrets_overlap_and_other_signatures_are_possible() {
    let sink = Sink::good();
    let url = |name: &str| format!("{}/{name}", sink.url());
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    // The seed and the public key of the first test of RFC 8032, section 7.1.
    let seed = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
    let public = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    let line =
        |name: &str, more: &str| format!("      {name}: {{ url: \"{}\", {more} }}\n", url(name));
    let place = Place::new(
        &[
            line("two", &format!("secrets: [\"{other}\", \"{SECRET}\"]")),
            line(
                "hub",
                "signature: github, secret: \"It's a Secret to Everybody\"",
            ),
            line("none", "signature: none"),
            line("key", &format!("secret: \"whsk_{seed}\"")),
        ]
        .concat(),
    );
    let engine = place.run();
    place.publish("\"Hello, World!\"");
    let taken = sink.wait_for(4);
    let of = |name: &str| {
        let target = format!("/hook/{name}");
        taken.iter().find(|it| it.target == target).unwrap()
    };
    let two = of("two");
    let both = format!("{} {}", signature(other, two), signature(SECRET, two));
    assert_eq!(two.header("webhook-signature"), Some(&*both));
    let hub = of("hub");
    let expected = hmac(b"It's a Secret to Everybody", b"\"Hello, World!\"");
    let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hub.header("x-hub-signature-256"),
        Some(&*format!("sha256={expected}"))
    );
    assert_eq!(hub.header("webhook-signature"), None);
    let none = of("none");
    assert_eq!(none.header("webhook-signature"), None);
    assert_eq!(id(none), id(hub), "an id in any case");
    let key = of("key");
    let signed = key.header("webhook-signature").unwrap();
    let signed = Base64::decode_vec(signed.strip_prefix("v1a,").unwrap()).unwrap();
    let timestamp = key.header("webhook-timestamp").unwrap();
    let message = format!("{}.{timestamp}.{}", id(key), text(key));
    let public = UnparsedPublicKey::new(&ED25519, Base64::decode_vec(public).unwrap());
    public.verify(message.as_bytes(), &signed).unwrap();
    engine.stop();
}

#[test]
fn secrets_come_from_the_environment_and_are_not_shown() {
    let sink = Sink::answering(|_, _| (503, String::new()));
    let place = Place::new(&format!(
        "      shop: {{ url: \"{}\", secret: \"${{ $secret.HOOK }}\", headers: {{ Authorization: \
         \"Bearer ${{ $secret.TOKEN }}\" }} }}\n",
        sink.url()
    ));
    place.folder.write(
        "flows/secrets.yaml",
        "engine: { secrets: { folder: ../secrets } }\n",
    );
    place.folder.write("secrets/HOOK", SECRET);
    place
        .folder
        .write("secrets/TOKEN", "a-token-that-nobody-sees");
    let text = fs::read_to_string(place.folder.path().join("flows/topic.yaml")).unwrap();
    let (engine_part, topic) = text.split_once("---\n").unwrap();
    assert!(engine_part.contains("operate"));
    place.folder.write("flows/topic.yaml", topic);
    let engine = place.run();
    place.publish("1");
    wait_long("it has been tried", || !sink.all().is_empty());
    let (received, _) = sink.all().remove(0);
    assert_eq!(
        received.header("authorization"),
        Some("Bearer a-token-that-nobody-sees")
    );
    assert_eq!(
        received.header("webhook-signature"),
        Some(&*signature(SECRET, &received))
    );
    let output = engine.stop();
    assert!(
        !output.contains("a-token") && !output.contains("MfKQ9r8G"),
        "{output}"
    );
}

#[test]
fn snapshots_come_whole_or_as_patches_and_whole_after_a_dead_letter() {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let sink = Sink::answering(move |_, received| {
        let is_third = received.target == "/hook/patch" && text(received).contains("\"value\":3");
        match is_third {
            true => {
                count.fetch_add(1, Ordering::Relaxed);
                (400, String::new())
            }
            false => (200, String::new()),
        }
    });
    let long = "x".repeat(300);
    let endpoints = endpoint("whole", &format!("{}/whole", sink.url()), "")
        + &endpoint(
            "patch",
            &format!("{}/patch", sink.url()),
            &format!("mode: patch, {QUICK}"),
        )
        + &endpoint(
            "part",
            &format!("{}/part", sink.url()),
            "select: .a, filter: .a != 2",
        );
    let place = Place::with("payload: snapshot", &endpoints);
    let engine = place.run();
    for number in 1..=5 {
        place.publish(&format!("{{\"a\":{number},\"long\":\"{long}\"}}"));
    }
    wait_long("all is there", || sink.accepted().len() == 5 + 4 + 4);
    let of = |name: &str| -> Vec<(String, String, String)> {
        let target = format!("/hook/{name}");
        let taken = sink.accepted().into_iter().filter(|it| it.target == target);
        let shown = taken.map(|it| {
            let kind = it.header("x-intertie-kind").unwrap().to_owned();
            let media = it.header("content-type").unwrap().to_owned();
            (kind, media, text(&it))
        });
        shown.collect()
    };
    let whole = of("whole");
    assert!(
        whole
            .iter()
            .all(|it| it.0 == "snapshot" && it.1 == "application/json")
    );
    assert_eq!(whole.len(), 5);
    let kinds: Vec<String> = of("patch").into_iter().map(|it| it.0).collect();
    assert_eq!(kinds, ["snapshot", "patch", "snapshot", "patch"]);
    let patch = of("patch").remove(1);
    assert_eq!(patch.1, "application/json-patch+json");
    assert_eq!(
        patch.2,
        "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":2}]"
    );
    assert_eq!(refused.load(Ordering::Relaxed), 3);
    let part: Vec<String> = of("part").into_iter().map(|it| it.2).collect();
    assert_eq!(part, ["1", "3", "4", "5"]);
    engine.stop();
}

#[test]
fn cloud_events_are_structured_or_binary() {
    let sink = Sink::good();
    let line = |name: &str, more: &str| endpoint(name, &format!("{}/{name}", sink.url()), more);
    let place = Place::new(
        &[
            line("structured", "cloudevents: structured"),
            line("binary", "cloudevents: binary"),
            line(
                "batch",
                "cloudevents: structured, batch: { count: 2, time: 10s }",
            ),
        ]
        .concat(),
    );
    let engine = place.run();
    let ids = [place.publish("{\"a\":1}"), place.publish("{\"a\":2}")];
    let taken = sink.wait_for(5);
    let of = |name: &str| {
        let target = format!("/hook/{name}");
        taken.iter().find(|it| it.target == target).unwrap()
    };
    let event = |id: &str, number: u32, time: &Value| {
        json!({
            "specversion": "1.0", "id": id, "source": "/topics/orders", "type": "intertie.event",
            "time": time, "datacontenttype": "application/json", "data": { "a": number },
        })
    };
    let structured = of("structured");
    let body: Value = serde_json::from_slice(&structured.body).unwrap();
    assert_eq!(body, event(&ids[0], 1, &body["time"]));
    assert!(body["time"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        structured.header("content-type"),
        Some("application/cloudevents+json")
    );
    let binary = of("binary");
    assert_eq!(text(binary), "{\"a\":1}");
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", &*ids[0]),
        ("ce-source", "/topics/orders"),
        ("ce-type", "intertie.event"),
        ("ce-time", body["time"].as_str().unwrap()),
        ("content-type", "application/json"),
    ] {
        assert_eq!(binary.header(name), Some(value), "{name}");
    }
    let batch = of("batch");
    let events: Value = serde_json::from_slice(&batch.body).unwrap();
    let expected = [1, 2].map(|at| event(&ids[at - 1], at as u32, &events[at - 1]["time"]));
    assert_eq!(events, json!(expected));
    let media_type = Some("application/cloudevents-batch+json");
    assert_eq!(batch.header("content-type"), media_type);
    engine.stop();
}

#[test]
fn order_by_key_lets_others_pass_and_none_is_faster() {
    let sink = Sink::answering(|_, received| {
        if text(received).contains("slow") {
            thread::sleep(Duration::from_millis(600));
        }
        (200, String::new())
    });
    let line = |name: &str, more: &str| endpoint(name, &format!("{}/{name}", sink.url()), more);
    let place = Place::new(
        &[
            line("keyed", "ordered: by-key, key: .key, concurrent: 8"),
            line("all", ""),
        ]
        .concat(),
    );
    let engine = place.run();
    place.publish("{\"key\":\"slow\",\"n\":0}");
    for number in 1..6 {
        place.publish(&format!("{{\"key\":\"slow\",\"n\":{number}}}"));
        place.publish(&format!("{{\"key\":\"quick\",\"n\":{number}}}"));
    }
    let numbers = |name: &str, key: &str| -> Vec<u64> {
        let target = format!("/hook/{name}");
        let taken = sink.accepted().into_iter().filter(|it| it.target == target);
        let bodies = taken.map(|it| serde_json::from_slice::<Value>(&it.body).unwrap());
        let of_key = bodies.filter(|it| it["key"] == key);
        of_key.map(|it| it["n"].as_u64().unwrap()).collect()
    };
    wait_long("the others have passed", || {
        numbers("keyed", "quick").len() == 5
    });
    assert!(numbers("keyed", "slow").len() < 4, "they did not wait");
    wait_long("all is there", || sink.accepted().len() == 22);
    for name in ["keyed", "all"] {
        assert_eq!(numbers(name, "slow"), [0, 1, 2, 3, 4, 5]);
        assert_eq!(numbers(name, "quick"), [1, 2, 3, 4, 5]);
    }
    engine.stop();
}

#[test]
fn a_throttle_spreads_requests() {
    let sink = Sink::good();
    let throttle = "throttle: { requests: 20, per: 1s, burst: 2 }";
    let place = Place::new(&endpoint("shop", &sink.url(), throttle));
    let engine = place.run();
    let start = Instant::now();
    place.publish_all(0..12);
    sink.wait_for(12);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(490), "{took:?}");
    engine.stop();
}

#[test]
fn an_expression_that_fails_makes_a_dead_letter_and_the_next_goes_on() {
    let sink = Sink::good();
    let select = "select: '.a | keys', dead_letters: bad-events";
    let place = Place::new(&endpoint("shop", &sink.url(), select));
    let engine = place.run();
    place.publish("{\"a\":{\"b\":1}}");
    place.publish("{\"a\":1}");
    place.publish("{\"a\":{\"c\":1}}");
    sink.wait_for(2);
    assert_eq!(sink.bodies(), ["[\"b\"]", "[\"c\"]"]);
    assert_eq!(measure(&engine, "dead_letters_total", "shop"), 1.0);
    let page = engine.get("/metrics").text();
    let line = "intertie_store_waiting{flow=\"\",step=\"bad-events\"} 1";
    assert!(page.contains(line), "{page}");
    let output = engine.stop();
    assert!(output.contains("select: "), "{output}");
}

#[test]
fn a_topic_in_memory_has_webhooks_too() {
    let (sink, is_open) = Sink::closed();
    let place = Place::with(
        "payload: event\ndurability: memory",
        &endpoint("shop", &sink.url(), QUICK),
    );
    let engine = place.run();
    place.publish_all(0..3);
    wait_long("it has been tried", || !sink.all().is_empty());
    reload(&engine);
    is_open.store(true, Ordering::Relaxed);
    sink.wait_for(3);
    assert_eq!(sink.bodies(), ["0", "1", "2"]);
    engine.stop();
}

#[test]
fn connections_of_use_add_their_credentials() {
    let sink = Sink::good();
    let port = sink.backend.port();
    let place = Place::with(
        &format!(
            "payload: event\nuse: {{ shop: {{ http: \"http://127.0.0.1:{port}/base\", auth: \
             {{ bearer: \"${{ $env.HOME }}\" }} }} }}"
        ),
        &endpoint("shop", "shop:/hook?a=1", ""),
    );
    place.folder.write("flows/env.yaml", "");
    let text = fs::read_to_string(place.folder.path().join("flows/topic.yaml")).unwrap();
    let text = text.replace("engine: {", "engine: { env: [HOME],");
    place.folder.write("flows/topic.yaml", &text);
    let engine = place.run();
    place.publish("1");
    let received = sink.wait_for(1).remove(0);
    assert_eq!(received.target, "/base/hook?a=1");
    let home = std::env::var("HOME").unwrap();
    assert_eq!(
        received.header("authorization"),
        Some(&*format!("Bearer {home}"))
    );
    engine.stop();
}

#[test]
fn a_batch_that_was_begun_keeps_id_and_bounds_when_the_file_has_no_batches_any_more() {
    let (sink, is_open) = Sink::closed();
    let with = |more: &str| endpoint("shop", &sink.url(), &format!("{QUICK}{more}"));
    let place = Place::new(&with(", batch: { count: 3, time: 10s }"));
    let engine = place.run();
    let ids = place.publish_all(0..3);
    wait_long("the batch has been tried", || !sink.all().is_empty());
    place.publish("3");
    place.write("payload: event", &with(""));
    reload(&engine);
    is_open.store(true, Ordering::Relaxed);
    let taken = sink.wait_for(2);
    assert_eq!(sink.bodies(), ["[0,1,2]", "3"]);
    assert_eq!(id(&taken[0]), format!("{}_{}", ids[0], ids[2]));
    engine.stop();
}

#[test]
fn names_that_look_like_ids_of_callers_are_refused() {
    let id = format!("wh_{}", "0".repeat(32));
    for (name, is_id) in [("wh_shop", false), (&*id, true)] {
        let place = Place::new(&endpoint(name, "http://a/", ""));
        let file = place.folder.path().join("flows").display().to_string();
        let checked = crate::support::output(&["check", &file]);
        let told = String::from_utf8_lossy(&checked.stdout).into_owned();
        let told = told + &String::from_utf8_lossy(&checked.stderr);
        assert_eq!(checked.status.success(), !is_id, "{told}");
        assert_eq!(told.contains("has the form of an id"), is_id, "{told}");
    }
}
