//! Requests that are wrong, callbacks that may not be called, and how much there may be.

use super::*;
use crate::support::output;

#[test]
fn requests_that_are_wrong_get_a_reason_in_plain_text() {
    let place = Place::new("{}");
    allow(9);
    let engine = place.run();
    let (topic, callback) = (place.topic(), "http://127.0.0.1:9/cb");
    let (mode, of, to) = (
        ("hub.mode", "subscribe"),
        ("hub.topic", topic.as_str()),
        ("hub.callback", callback),
    );
    let long = "s".repeat(200);
    for (parameters, status, reason) in [
        (vec![of, to], 400, "hub.mode is missing"),
        (vec![mode, to], 400, "hub.topic is missing"),
        (vec![mode, of], 400, "hub.callback is missing"),
        (vec![mode, of, to, to], 400, "hub.callback is there twice"),
        (
            vec![mode, of, to, ("hub.secret", &long)],
            400,
            "less than 200 bytes",
        ),
        (
            vec![mode, of, to, ("hub.lease_seconds", "-1")],
            400,
            "number of seconds",
        ),
        (
            vec![mode, of, ("hub.callback", "ftp://a/")],
            400,
            "hub.callback",
        ),
        (
            vec![mode, ("hub.topic", "http://a.example/"), to],
            404,
            "no such topic",
        ),
    ] {
        let reply = place.ask(&parameters);
        assert_eq!(reply.status, status, "{parameters:?}: {}", reply.text());
        assert!(
            reply.text().contains(reason),
            "{parameters:?}: {}",
            reply.text()
        );
        assert_eq!(
            reply.header("Content-Type"),
            Some("text/plain; charset=utf-8")
        );
    }
    let reply = post(place.port, "/hub", "application/json", "{}");
    assert_eq!(reply.status, 415);
    assert_eq!(get(place.port, "/hub").status, 405);
    engine.stop();
}

#[test]
fn settings_that_cannot_be_are_reported() {
    let folder = TempDir::new();
    let public = "engine: { public_url: \"https://api.example\" }\n---\n";
    for (engine, topic, websub, expected) in [
        ("", "payload: event", "{}", "needs `engine.public_url`"),
        (public, "payload: event", "", "websub"),
        (public, "payload: event", "{ lease: 1s }", ""),
        (
            public,
            "payload: event",
            "{ lease: 1s, lease_min: 1m }",
            "is not between",
        ),
        (
            public,
            "payload: event",
            "{ lease: 91d, lease_max: 90d }",
            "is not between",
        ),
        (
            public,
            "payload: event",
            "{ lease_max: 367d }",
            "outside its range",
        ),
        (
            public,
            "payload: event",
            "{ content_type: html }",
            "no media type",
        ),
        (
            public,
            "payload: event",
            "{ url: \"ftp://a.example/\" }",
            "no URL of a topic",
        ),
        (
            public,
            "payload: event",
            "{ retry: { times: 1001 } }",
            "is not from 0 to 1000",
        ),
        (
            public,
            "payload: event",
            "{ tls: { server_name: a.example } }",
            "all hosts",
        ),
        (
            public,
            "payload: event",
            "{ secret: abc }",
            "unknown key `secret`",
        ),
        (public, "payload: snapshot", "{}", ""),
    ] {
        let text = format!(
            "{engine}topic: news\n{topic}\npublish: {{ http: POST /news }}\nsubscribe:\n  \
             websub: {websub}\n"
        );
        let file = folder.write("flows.yaml", &text);
        let result = output(&["check", file.to_str().unwrap()]);
        let report = String::from_utf8_lossy(&result.stdout).into_owned();
        let is_refused = !result.status.success();
        assert_eq!(is_refused, !expected.is_empty(), "{websub}: {report}");
        assert!(report.contains(expected), "{websub}: {report}");
    }
}

/// What is in no file is kept in memory: the topic says so.
#[test]
fn a_topic_in_memory_has_a_hub_without_a_data_folder() {
    let place = Place::with("{}", "payload: event\ndurability: memory");
    let subscriber = Subscriber::new();
    let engine = place.run();
    place.subscribe(&subscriber.callback("/"), &[]);
    wait_for_subscriptions(&engine, 1);
    place.publish("1");
    subscriber.wait_for(1);
    engine.stop();
    assert!(!place.folder.path().join("data").exists());
    let engine = place.run();
    assert_eq!(count(&engine), 0.0);
    engine.stop();
}

#[test]
fn callbacks_are_called_behind_the_egress_guard() {
    let (place, subscriber) = (Place::new("{}"), Subscriber::new());
    allow(80);
    let file = place.folder.path().join("flows/topic.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let guarded = text.replace("allow: [127.0.0.1], ", "");
    std::fs::write(&file, guarded).unwrap();
    let engine = place.run();
    for callback in [
        subscriber.callback("/"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[::ffff:127.0.0.1]/".to_owned(),
    ] {
        let reply = place.order("subscribe", &callback, &[]);
        assert_eq!(reply.status, 403, "{callback}: {}", reply.text());
        assert!(
            reply.text().starts_with("hub.callback: "),
            "{}",
            reply.text()
        );
    }
    // A name that leads to this machine is found out when it is connected to.
    let by_name = format!("http://localhost:{}/", subscriber.backend.port());
    assert_eq!(place.order("subscribe", &by_name, &[]).status, 202);
    wait_long("it was not verified", || {
        let labels = [("flow", "news"), ("step", "websub")];
        engine.measured("intertie_websub_hub_unverified_total", &labels) == Some(1.0)
    });
    assert!(subscriber.questions().is_empty());
    engine.stop();
}

#[test]
fn callbacks_that_confirm_nothing_are_asked_so_often_and_no_more() {
    let (place, subscriber, other) = (Place::new("{}"), Subscriber::new(), Subscriber::new());
    let engine = place.run();
    subscriber.answer_verifications(404);
    let mut refused = None;
    for number in 0..40 {
        let callback = subscriber.callback(&format!("/{number}"));
        let reply = place.order("subscribe", &callback, &[]);
        if reply.status != 202 {
            refused = Some(reply);
            break;
        }
        wait_long("it is asked", || subscriber.questions().len() > number);
    }
    let refused = refused.expect("a bound");
    assert_eq!(refused.status, 429, "{}", refused.text());
    let wait: u64 = refused.header("Retry-After").unwrap().parse().unwrap();
    assert!((1..=600).contains(&wait), "{wait}");
    let asked = subscriber.questions().len();
    assert!((20..=21).contains(&asked), "{asked}");
    // Another host does not get around it: it is the caller who is out of bounds.
    assert_eq!(
        place.order("subscribe", &other.callback("/"), &[]).status,
        429
    );
    engine.stop();
}

#[test]
fn each_of_300_subscribers_gets_each_content_once_and_signed() {
    const COUNT: usize = 300;
    const EVENTS: usize = 3;
    let (place, subscriber) = (Place::new("{}"), Subscriber::new());
    let engine = place.run();
    for number in 0..COUNT {
        let secret = format!("secret of {number}");
        let callback = subscriber.callback(&format!("/{number}"));
        place.subscribe(&callback, &[("hub.secret", &secret)]);
    }
    wait_for_subscriptions(&engine, COUNT);
    let bodies: Vec<String> = (0..EVENTS)
        .map(|it| format!("\"{it}{}\"", "x".repeat(8000)))
        .collect();
    for body in &bodies {
        place.publish(body);
    }
    let all = subscriber.wait_for(COUNT * EVENTS);
    let mut by_callback: HashMap<&str, Vec<String>> = HashMap::new();
    for received in &all {
        let number = received.target.trim_start_matches('/');
        let secret = format!("secret of {number}");
        let expected = signature("sha256", &secret, &received.body);
        assert_eq!(
            received.header("X-Hub-Signature"),
            Some(&*expected),
            "{number}"
        );
        by_callback.entry(number).or_default().push(text(received));
    }
    assert_eq!((all.len(), by_callback.len()), (COUNT * EVENTS, COUNT));
    assert!(by_callback.values().all(|it| *it == bodies), "in order");
    engine.stop();
    assert_eq!(subscriber.backend.violations(), [""; 0]);
}

/// What is cut could have gone on: the challenge has to be the whole answer.
#[test]
fn a_challenge_is_no_answer_when_its_body_is_cut() {
    let callback = StrictBackend::answering(|request| {
        let question = Question::of(request);
        let challenge = question.get("hub.challenge").unwrap_or_default();
        let length = challenge.len();
        let rest = match &*question.path {
            "/long" => format!("content-length: {}\r\n\r\n{challenge}", length + 5),
            "/endless" => {
                format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n{challenge}\r\n")
            }
            "/broken" => {
                format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n{challenge}\r\nzz\r\n")
            }
            _ => format!("content-length: {length}\r\n\r\n{challenge}"),
        };
        format!("HTTP/1.1 200 X\r\n{rest}").into_bytes()
    });
    allow(callback.port());
    let place = Place::new("{ timeout: 300ms }");
    let engine = place.run();
    let unverified = || {
        let labels = [("flow", "news"), ("step", "websub")];
        engine.measured("intertie_websub_hub_unverified_total", &labels)
    };
    for (number, path) in (1..).zip(["long", "endless", "broken"]) {
        let url = format!("http://127.0.0.1:{}/{path}", callback.port());
        place.subscribe(&url, &[]);
        wait_long("it is not verified", || {
            unverified() == Some(f64::from(number))
        });
        assert_eq!(count(&engine), 0.0, "{path}");
    }
    let url = format!("http://127.0.0.1:{}/whole", callback.port());
    place.subscribe(&url, &[]);
    wait_for_subscriptions(&engine, 1);
    engine.stop();
}
