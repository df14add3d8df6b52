//! Media types, and what publishers tell the hub.

use super::*;

/// 105: content of a type that is not JSON.
#[test]
fn plain_text_is_delivered_as_it_is() {
    let settings = "{ content_type: \"text/plain; charset=utf-8\", publish: true }";
    let (place, subscriber) = (Place::new(settings), Subscriber::new());
    let engine = place.run();
    place.subscribe(&subscriber.callback("/"), &[("hub.secret", "a secret")]);
    wait_for_subscriptions(&engine, 1);
    place.publish("\"Rain in the north\\n\"");
    let path = format!(
        "/hub?{}",
        form(&[("hub.mode", "publish"), ("hub.topic", &place.topic())])
    );
    let text_of = "Sun \"in\" the s\u{fc}d\n";
    let reply = post(place.port, &path, "text/plain", text_of);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let all = subscriber.wait_for(2);
    assert_eq!(
        all.iter().map(text).collect::<Vec<_>>(),
        ["Rain in the north\n", text_of]
    );
    for received in &all {
        assert_eq!(
            received.header("Content-Type"),
            Some("text/plain; charset=utf-8")
        );
        let expected = signature("sha256", "a secret", &received.body);
        assert_eq!(received.header("X-Hub-Signature"), Some(&*expected));
    }
    let latest = get(place.port, "/topics/news");
    assert_eq!(
        latest.header("Content-Type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(latest.text(), text_of);
    let wrong = post(place.port, &path, "application/json", "{}");
    assert_eq!(wrong.status, 415, "{}", wrong.text());
    engine.stop();
}

/// 106: JSON, of a topic whose events are whole documents, sent by its publisher.
#[test]
fn json_that_publishers_send_to_the_hub_is_delivered() {
    let place = Place::with("{ publish: true }", "payload: snapshot");
    let subscriber = Subscriber::new();
    let engine = place.run();
    place.subscribe(&subscriber.callback("/"), &[]);
    wait_for_subscriptions(&engine, 1);
    let path = format!(
        "/hub?{}",
        form(&[("hub.mode", "publish"), ("hub.url", &place.topic())])
    );
    for body in ["{\"a\": 1}", "{\"a\": 1}", "{\"a\": 2}"] {
        let reply = post(place.port, &path, "application/json", body);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    // Nothing has changed between the first two.
    let all = subscriber.wait_for(2);
    assert_eq!(
        all.iter().map(text).collect::<Vec<_>>(),
        ["{\"a\":1}", "{\"a\":2}"]
    );
    assert_eq!(post(place.port, &path, "application/json", "{").status, 400);
    engine.stop();
    let place = Place::new("{}");
    allow(9);
    let engine = place.run();
    let path = format!(
        "/hub?{}",
        form(&[("hub.mode", "publish"), ("hub.url", &place.topic())])
    );
    let closed = post(place.port, &path, "application/json", "{}");
    assert_eq!(closed.status, 403, "{}", closed.text());
    engine.stop();
}

#[test]
fn a_ping_has_a_topic_fetched_and_delivered_when_it_has_changed() {
    let content = Arc::new(Mutex::new("<p>one</p>".to_owned()));
    let shown = Arc::clone(&content);
    let publisher = StrictBackend::answering(move |_| reply(200, &shown.lock().unwrap()));
    allow(publisher.port());
    let url = format!("http://127.0.0.1:{}/page?x=1", publisher.port());
    let settings = format!("{{ url: \"{url}\", content_type: text/html }}");
    let (place, subscriber) = (Place::new(&settings), Subscriber::new());
    let engine = place.run();
    let callback = subscriber.callback("/");
    let own = [
        ("hub.mode", "subscribe"),
        ("hub.topic", &*url),
        ("hub.callback", &*callback),
    ];
    assert_eq!(place.ask(&own).status, 202);
    wait_for_subscriptions(&engine, 1);
    let ping = || {
        let reply = place.ask(&[("hub.mode", "publish"), ("hub.url", &url)]);
        assert_eq!(reply.status, 204, "{}", reply.text());
    };
    ping();
    let received = subscriber.wait_for(1).remove(0);
    assert_eq!(
        (text(&received).as_str(), received.header("Content-Type")),
        ("<p>one</p>", Some("text/html"))
    );
    let links = format!("<{}/hub>; rel=\"hub\", <{url}>; rel=\"self\"", place.base());
    assert_eq!(received.header("Link"), Some(&*links));
    assert_eq!(publisher.requests()[0].target, "/page?x=1");
    let fetches = || {
        let labels = [("flow", "news"), ("step", "websub")];
        engine
            .measured("intertie_websub_hub_fetches_total", &labels)
            .unwrap()
    };
    ping();
    wait_long("it is fetched again", || fetches() >= 2.0);
    *content.lock().unwrap() = "<p>two</p>".to_owned();
    // Ten pings are a fetch or two.
    (0..10).for_each(|_| ping());
    let all = subscriber.wait_for(2);
    assert_eq!(
        all.iter().map(text).collect::<Vec<_>>(),
        ["<p>one</p>", "<p>two</p>"]
    );
    assert!(fetches() <= 5.0, "{}", fetches());
    let other = place.ask(&[("hub.mode", "publish"), ("hub.url", "http://127.0.0.1:1/")]);
    assert_eq!(other.status, 404);
    // Some publishers ping by the query.
    *content.lock().unwrap() = "<p>three</p>".to_owned();
    let query = form(&[("hub.mode", "publish"), ("hub.url", &url)]);
    let reply = post(place.port, &format!("/hub?{query}"), "text/plain", "");
    assert_eq!(reply.status, 204, "{}", reply.text());
    assert_eq!(text(&subscriber.wait_for(3)[2]), "<p>three</p>");
    let none = post(place.port, "/hub?hub.mode=publish", "text/plain", "a");
    assert_eq!(none.status, 400, "{}", none.text());
    engine.stop();
}

/// What is fetched is compared with what the topic has, whoever has published that, and not with
/// how it was spaced.
#[test]
fn a_ping_brings_back_what_others_have_replaced_and_nothing_that_is_there() {
    let content = Arc::new(Mutex::new("{ \"a\": 1 }\n".to_owned()));
    let shown = Arc::clone(&content);
    let publisher = StrictBackend::answering(move |_| reply(200, &shown.lock().unwrap()));
    allow(publisher.port());
    let url = format!("http://127.0.0.1:{}/page", publisher.port());
    let (place, subscriber) = (
        Place::new(&format!("{{ url: \"{url}\" }}")),
        Subscriber::new(),
    );
    let mut engine = place.run();
    let callback = subscriber.callback("/");
    let subscribe = [
        ("hub.mode", "subscribe"),
        ("hub.topic", &*url),
        ("hub.callback", &*callback),
    ];
    assert_eq!(place.ask(&subscribe).status, 202);
    wait_for_subscriptions(&engine, 1);
    let ping = |engine: &Engine| {
        let count = publisher.requests().len();
        let reply = place.ask(&[("hub.mode", "publish"), ("hub.url", &url)]);
        assert_eq!(reply.status, 204, "{}", reply.text());
        wait_long("it is fetched", || publisher.requests().len() > count);
        let labels = [("flow", "news"), ("step", "websub")];
        let fetches = engine.measured("intertie_websub_hub_fetches_total", &labels);
        assert!(fetches >= Some(1.0));
    };
    ping(&engine);
    subscriber.wait_for(1);
    ping(&engine);
    place.publish("{\"a\":2}");
    subscriber.wait_for(2);
    ping(&engine);
    subscriber.wait_for(3);
    engine.stop();
    engine = place.run();
    ping(&engine);
    *content.lock().unwrap() = "{\"a\":3}".to_owned();
    ping(&engine);
    let all = subscriber.wait_for(4);
    assert_eq!(
        all.iter().map(text).collect::<Vec<_>>(),
        [1, 2, 1, 3].map(|it| format!("{{\"a\":{it}}}"))
    );
    engine.stop();
}

/// Whoever pings chooses when the engine asks, and the publisher could send it on to the inside.
#[test]
fn pings_are_fetched_behind_the_egress_guard_and_redirects_not_followed() {
    let inner = StrictBackend::answering(|_| reply(200, "inner"));
    let location = format!("http://127.0.0.1:{}/inner", inner.port());
    let outer = StrictBackend::answering(move |_| {
        format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
            .into_bytes()
    });
    allow(outer.port());
    for (port, asked) in [(inner.port(), 0), (outer.port(), 1)] {
        let url = format!("http://127.0.0.1:{port}/page");
        let settings = format!("{{ url: \"{url}\", content_type: text/html }}");
        let place = Place::new(&settings);
        let engine = place.run();
        let reply = place.ask(&[("hub.mode", "publish"), ("hub.url", &url)]);
        assert_eq!(reply.status, 204, "{}", reply.text());
        let labels = [("flow", "news"), ("step", "websub")];
        let failures = || {
            let failures = "intertie_websub_hub_fetch_failures_total";
            engine.measured(failures, &labels).unwrap_or_default()
        };
        wait_long("the fetch has failed", || failures() >= 1.0);
        engine.stop();
        assert_eq!(outer.requests().len(), asked);
        assert!(inner.requests().is_empty());
    }
}

/// `from: websub` of another engine, from discovery to the end of the subscription.
#[test]
fn the_source_websub_subscribes_to_the_hub() {
    let place = Place::new("{}");
    let (folder, port) = (TempDir::new(), free_port());
    allow(port);
    let hub = place.run();
    let sink = StrictBackend::answering(|_| reply(204, ""));
    let write = |active: bool| {
        folder.write(
            "flows/flow.yaml",
            &format!(
                "engine: {{ admin: {{ operate: none }} }}\n---\nflow: reader\nfrom:\n  websub:\n    \
                 topic: {}\n    active: {active}\n    callback: {{ http: \"POST 127.0.0.1:{port}/in\", \
                 public_url: \"http://127.0.0.1:{port}\" }}\nsteps:\n  - http: {{ to: \
                 \"http://127.0.0.1:{}/\", method: POST }}\n  - reply: {{ status: 204 }}\n",
                place.topic(),
                sink.port()
            ),
        );
    };
    write(true);
    let flows = folder.path().join("flows");
    let data = folder.path().join("data").display().to_string();
    let reader = Engine::run(&[&flows], &["--data", &data]);
    wait_for_subscriptions(&hub, 1);
    for number in 0..5 {
        place.publish(&number.to_string());
    }
    wait_long("all have come", || sink.requests().len() >= 5);
    let bodies: Vec<Vec<u8>> = sink.requests().into_iter().map(|it| it.body).collect();
    assert_eq!(
        bodies,
        ["0", "1", "2", "3", "4"].map(|it| it.as_bytes().to_vec())
    );
    write(false);
    let reply = post(reader.admin, "/reload", "text/plain", "");
    assert_eq!(reply.status, 200, "{}", reply.text());
    wait_for_subscriptions(&hub, 0);
    reader.stop();
    hub.stop();
}

/// RFC 9110, section 13.1.2: who has the newest content already does not get it again.
#[test]
fn a_conditional_get_of_what_has_not_changed_is_304() {
    let place = Place::new("{}");
    allow(9);
    let engine = place.run();
    place.publish("1");
    let ask = |condition: &str| {
        let mut client = RawClient::connect(place.port);
        client.send(format!(
            "GET /topics/news HTTP/1.1\r\nHost: a\r\n{condition}Connection: close\r\n\r\n"
        ));
        client.response()
    };
    let first = ask("");
    let tag = first.header("ETag").unwrap();
    for (condition, status) in [
        (tag.to_owned(), 304),
        (format!("W/{tag}"), 304),
        (format!("\"other\", {tag}, \"more\""), 304),
        (format!("\"a, b\",{tag}"), 304),
        (format!("\"x\"\r\nIf-None-Match: {tag}"), 304),
        ("*".to_owned(), 304),
        ("\"other\"".to_owned(), 200),
        (tag.replace('"', ""), 200),
    ] {
        let reply = ask(&format!("If-None-Match: {condition}\r\n"));
        assert_eq!(reply.status, status, "{condition}");
        assert_eq!(reply.header("ETag"), Some(tag), "{condition}");
        for name in ["Link", "Cache-Control"] {
            assert_eq!(reply.header(name), first.header(name), "{condition}");
        }
        assert_eq!(reply.text().is_empty(), status == 304, "{condition}");
    }
    place.publish("2");
    let changed = ask(&format!("If-None-Match: {tag}\r\n"));
    assert_eq!((changed.status, &*changed.text()), (200, "2"));
    engine.stop();
}
