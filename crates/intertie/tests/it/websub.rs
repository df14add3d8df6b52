//! `from: websub` beside a strict hub: it judges every request, verifies as the recommendation
//! says, and delivers signed content.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use testkit::{RawClient, Received, Response, StrictBackend, TempDir, free_port, wait_until};

use crate::support::{Engine, get, output};

const TOPIC: &str = "/feeds/news?lang=en";

/// A topic and its hub. It is asked on a thread of its own and verifies on that of the test.
struct Hub {
    backend: StrictBackend,
    asked: Mutex<Receiver<Order>>,
    is_up: Arc<AtomicBool>,
    challenges: AtomicU64,
}

/// What the hub has been asked for.
#[derive(Clone, Debug, PartialEq)]
struct Order {
    mode: String,
    topic: String,
    callback: String,
    lease: Option<u64>,
    secret: Option<String>,
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let pair = [rest.next().unwrap(), rest.next().unwrap()];
                let pair = std::str::from_utf8(&pair).unwrap();
                bytes.push(u8::from_str_radix(pair, 16).unwrap());
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn reply(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}\r\n{body}").into_bytes()
}

fn order(request: &Received) -> Order {
    assert_eq!(request.method, "POST");
    let content_type = request.header("Content-Type");
    assert_eq!(content_type, Some("application/x-www-form-urlencoded"));
    let body = String::from_utf8(request.body.clone()).unwrap();
    let mut order = Order {
        mode: String::new(),
        topic: String::new(),
        callback: String::new(),
        lease: None,
        secret: None,
    };
    for part in body.split('&') {
        let (name, value) = part.split_once('=').unwrap();
        let value = decode(value);
        match name {
            "hub.mode" => order.mode = value,
            "hub.topic" => order.topic = value,
            "hub.callback" => order.callback = value,
            "hub.lease_seconds" => order.lease = Some(value.parse().unwrap()),
            "hub.secret" => order.secret = Some(value),
            other => panic!("{other}"),
        }
    }
    order
}

impl Hub {
    fn start() -> Self {
        let (tell, asked): (Sender<Order>, _) = channel();
        let (tell, is_up) = (Mutex::new(tell), Arc::new(AtomicBool::new(true)));
        let up = Arc::clone(&is_up);
        let backend = StrictBackend::answering(move |request| {
            let host = request.header("Host").unwrap();
            if !up.load(Ordering::Relaxed) {
                return reply("503 Service Unavailable", "", "no");
            }
            match request.target.as_str() {
                "/hub?x=1" => {
                    let order = order(request);
                    // The test may be over.
                    let _ = tell.lock().unwrap().send(order);
                    reply("202 Accepted", "", "")
                }
                TOPIC => {
                    let links = format!(
                        "Link: <http://{host}/hub?x=1>; rel=\"hub\", <{TOPIC}>; rel=\"self\"\r\n"
                    );
                    let body = if request.method == "HEAD" { "" } else { "{}" };
                    reply("200 OK", &links, body)
                }
                other => panic!("{other}"),
            }
        });
        Self {
            backend,
            asked: Mutex::new(asked),
            is_up,
            challenges: AtomicU64::new(0),
        }
    }

    fn topic(&self) -> String {
        format!("http://127.0.0.1:{}{TOPIC}", self.backend.port())
    }

    fn next(&self) -> Order {
        let asked = self.asked.lock().unwrap();
        asked
            .recv_timeout(Duration::from_secs(10))
            .expect("the hub is asked")
    }

    fn is_asked_within(&self, time: Duration) -> bool {
        self.asked.lock().unwrap().recv_timeout(time).is_ok()
    }

    /// Asks the callback for its intent; whether it has confirmed it.
    fn verify(&self, order: &Order, lease: u64) -> bool {
        let challenge = self.challenges.fetch_add(1, Ordering::Relaxed);
        let challenge = format!("challenge {challenge} +/&");
        let encoded = challenge
            .replace(' ', "%20")
            .replace('+', "%2B")
            .replace('&', "%26");
        let topic: String = order.topic.bytes().map(|it| format!("%{it:02x}")).collect();
        let mode = &order.mode;
        let mut query = format!("hub.mode={mode}&hub.topic={topic}&hub.challenge={encoded}");
        if mode == "subscribe" {
            query += &format!("&hub.lease_seconds={lease}");
        }
        let (port, path) = callback(order);
        let reply = get(port, &format!("{path}?{query}"));
        match reply.status {
            200 => {
                assert_eq!(reply.text(), challenge);
                assert_eq!(reply.header("Content-Type"), Some("text/plain"));
                true
            }
            404 => false,
            status => panic!("{status}: {}", reply.text()),
        }
    }

    /// Takes the next request, which must be this one, and has it verified.
    fn confirm(&self, mode: &str, lease: u64) -> Order {
        let order = self.next();
        assert_eq!((order.mode.as_str(), &order.topic), (mode, &self.topic()));
        assert!(self.verify(&order, lease), "{order:?}");
        order
    }
}

fn callback(order: &Order) -> (u16, &str) {
    let rest = order.callback.strip_prefix("http://127.0.0.1:").unwrap();
    let at = rest.find('/').unwrap();
    (rest[..at].parse().unwrap(), &rest[at..])
}

fn signature(secret: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, body.as_bytes());
    let digits: String = tag.as_ref().iter().map(|it| format!("{it:02x}")).collect();
    format!("sha256={digits}")
}

/// Delivers content with these fields.
fn deliver(order: &Order, fields: &str, body: &str) -> Response {
    let (port, path) = callback(order);
    let mut client = RawClient::connect(port);
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\n\
         Link: <http://hub.example/>; rel=\"hub\", <{}>; rel=\"self\"\r\n{fields}\
         Content-Length: {}\r\n\r\n{body}",
        order.topic,
        body.len()
    ));
    client.response()
}

fn deliver_signed(order: &Order, id: &str, body: &str) -> u16 {
    let signature = signature(order.secret.as_deref().unwrap(), body);
    let mut fields = format!("X-Hub-Signature: {signature}\r\n");
    if !id.is_empty() {
        fields += &format!("webhook-id: {id}\r\n");
    }
    deliver(order, &fields, body).status
}

/// A flow that logs what it gets, and fails when that says so.
fn flow(hub: &Hub, port: u16, more: &str) -> String {
    format!(
        "flow: news\nfrom:\n  websub:\n    topic: \"{}\"\n    callback: {{ http: \"POST \
         127.0.0.1:{port}/hooks/news\", public_url: \"http://127.0.0.1:{port}\" }}\n{more}\
         steps:\n  - log: \"got ${{ .n }} of ${{ $path.topic }} as ${{ $path.delivery_id }}\"\n  - if: \
         .fail\n    raise: {{ type: no, status: 422 }}\n",
        hub.topic()
    )
}

/// Runs a flow with a data folder that is there already.
fn run(folder: &TempDir, text: &str) -> Engine {
    folder.write("flows/flow.yaml", text);
    let data = folder.path().join("data");
    std::fs::create_dir_all(&data).unwrap();
    Engine::run(
        &[&folder.path().join("flows")],
        &["--data", &data.display().to_string()],
    )
}

fn measure(engine: &Engine, name: &str) -> f64 {
    let page = engine.get("/metrics").text();
    let prefix = format!("intertie_websub_{name}{{");
    let lines = page.lines().filter(|line| line.starts_with(&prefix));
    let numbers = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    numbers.sum()
}

#[test]
fn a_topic_is_found_subscribed_to_and_delivered() {
    let (hub, folder, port) = (Hub::start(), TempDir::new(), free_port());
    let engine = run(&folder, &flow(&hub, port, "    lease: 1h\n"));
    let order = hub.confirm("subscribe", 3600);
    assert_eq!(order.lease, Some(3600));
    let prefix = format!("http://127.0.0.1:{port}/hooks/news/");
    let token = order.callback.strip_prefix(&prefix).unwrap().to_owned();
    let secret = order.secret.clone().unwrap();
    assert!(token.len() == 64 && secret.len() == 64 && token != secret);

    assert_eq!(deliver_signed(&order, "e1", "{\"n\":1}"), 204);
    assert_eq!(deliver_signed(&order, "e1", "{\"n\":1}"), 204);
    assert_eq!(deliver_signed(&order, "", "{\"n\":2}"), 204);
    for fields in [
        String::new(),
        format!("X-Hub-Signature: {}\r\n", signature(&secret, "{\"n\":4}")),
        format!("X-Hub-Signature: {}\r\n", signature(&token, "{\"n\":3}")),
    ] {
        let reply = deliver(&order, &fields, "{\"n\":3}");
        assert_eq!((reply.status, reply.text().as_str()), (204, ""));
    }
    // A flow that fails: the hub delivers again.
    assert_eq!(deliver_signed(&order, "e5", "{\"n\":5,\"fail\":true}"), 500);
    assert_eq!(deliver_signed(&order, "e5", "{\"n\":5,\"fail\":true}"), 500);
    // Somebody else's subscription.
    let mut other = order.clone();
    other.callback = format!("{prefix}{}", "0".repeat(64));
    assert_eq!(deliver_signed(&other, "e6", "{\"n\":6}"), 410);
    assert!(!hub.verify(&other, 60));
    other.callback = order.callback.clone();
    other.topic = "http://evil.example/".to_owned();
    assert!(!hub.verify(&other, 60));
    other = order.clone();
    other.mode = "unsubscribe".to_owned();
    assert!(!hub.verify(&other, 60));

    assert_eq!(measure(&engine, "events_total"), 2.0);
    assert_eq!(measure(&engine, "repeated_total"), 1.0);
    assert_eq!(measure(&engine, "unsigned_total"), 3.0);
    assert_eq!(measure(&engine, "failed_total"), 2.0);
    assert_eq!(measure(&engine, "refused_verifications_total"), 2.0);
    assert_eq!(measure(&engine, "requests_total"), 1.0);
    assert!(measure(&engine, "lease_end") > 1.7e9);
    let output = engine.stop();
    let count = |text: &str| output.lines().filter(|it| it.contains(text)).count();
    assert_eq!(
        count(&format!("got 1 of {} as e1", hub.topic())),
        1,
        "{output}"
    );
    assert_eq!(
        (count("got 2 "), count("got 3 "), count("got 5 ")),
        (1, 0, 2),
        "{output}"
    );
    assert!(
        !output.contains(&token) && !output.contains(&secret),
        "{output}"
    );
    assert!(
        !output.contains(&signature(&secret, "{\"n\":1}")),
        "{output}"
    );
    let violations = hub.backend.violations();
    assert!(violations.is_empty(), "{violations:?}");
}

#[test]
fn a_subscription_outlives_a_restart_and_a_kill() {
    let (hub, folder, port) = (Hub::start(), TempDir::new(), free_port());
    let text = flow(&hub, port, "");
    let engine = run(&folder, &text);
    let order = hub.confirm("subscribe", 3600);
    assert_eq!(order.lease, Some(864_000));
    assert_eq!(deliver_signed(&order, "e1", "{\"n\":1}"), 204);
    assert_eq!(deliver_signed(&order, "", "{\"n\":2}"), 204);
    engine.stop();

    let mut engine = run(&folder, &text);
    assert!(!hub.is_asked_within(Duration::from_millis(500)));
    assert_eq!(deliver_signed(&order, "e1", "{\"n\":1}"), 204);
    assert_eq!(deliver_signed(&order, "", "{\"n\":2}"), 204);
    assert_eq!(deliver_signed(&order, "e3", "{\"n\":3}"), 204);
    assert_eq!(measure(&engine, "repeated_total"), 2.0);
    engine.process.signal("KILL");
    engine.process.wait();

    let engine = run(&folder, &text);
    assert_eq!(deliver_signed(&order, "e3", "{\"n\":3}"), 204);
    assert_eq!(deliver_signed(&order, "e4", "{\"n\":4}"), 204);
    assert_eq!(measure(&engine, "repeated_total"), 1.0);
    assert_eq!(measure(&engine, "events_total"), 1.0);
    engine.stop();

    // Another topic is another subscription: what comes for the old one is to end.
    let other = text.replace("lang=en", "lang=de");
    let engine = run(&folder, &other);
    assert_eq!(deliver_signed(&order, "e5", "{\"n\":5}"), 410);
    engine.stop();
    let engine = run(&folder, &text);
    let new = hub.confirm("subscribe", 60);
    assert_ne!(new.callback, order.callback);
    engine.stop();
}

#[test]
fn a_subscription_is_renewed_before_its_lease_ends() {
    let (hub, folder, port) = (Hub::start(), TempDir::new(), free_port());
    let engine = run(
        &folder,
        &flow(&hub, port, "    secret: a secret of the test\n"),
    );
    let begun = Instant::now();
    let first = hub.confirm("subscribe", 3);
    assert_eq!(first.secret.as_deref(), Some("a secret of the test"));
    for number in 0..3 {
        let renewed = hub.confirm("subscribe", 3);
        assert_eq!(renewed, first);
        assert_eq!(
            deliver_signed(&first, "", &format!("{{\"n\":{number}}}")),
            204
        );
    }
    let time = begun.elapsed();
    assert!(time > Duration::from_millis(5900), "{time:?}");
    assert!(
        time < Duration::from_secs(9),
        "the lease has ended: {time:?}"
    );
    let output = engine.stop();
    assert!(!output.contains("a secret of the test"), "{output}");
}

#[test]
fn a_hub_that_is_down_is_asked_until_it_is_up_and_a_denial_is_told() {
    let (hub, folder, port) = (Hub::start(), TempDir::new(), free_port());
    hub.is_up.store(false, Ordering::Relaxed);
    let engine = run(&folder, &flow(&hub, port, ""));
    wait_until("it has failed twice", || {
        measure(&engine, "request_failures_total") >= 2.0
    });
    hub.is_up.store(true, Ordering::Relaxed);
    let order = hub.confirm("subscribe", 3600);
    let topic: String = order.topic.bytes().map(|it| format!("%{it:02x}")).collect();
    let (_, path) = callback(&order);
    let denied = format!("{path}?hub.mode=denied&hub.topic={topic}&hub.reason=not%0Ayou");
    assert_eq!(get(port, &denied).status, 204);
    assert_eq!(measure(&engine, "denied_total"), 1.0);
    assert_eq!(measure(&engine, "lease_end"), 0.0);
    assert!(!hub.is_asked_within(Duration::from_millis(500)));
    let output = engine.stop();
    let count = |text: &str| output.lines().filter(|it| it.contains(text)).count();
    assert_eq!(count("the topic is not subscribed to"), 1, "{output}");
    assert_eq!(count("the hub denies the subscription"), 1, "{output}");
    assert!(
        output.contains("not\\\\nyou") || output.contains("not\\nyou"),
        "{output}"
    );
}

#[test]
fn a_subscription_ends_when_the_file_says_so() {
    let (hub, folder, port) = (Hub::start(), TempDir::new(), free_port());
    let text = flow(&hub, port, "");
    let engine = run(&folder, &text);
    let order = hub.confirm("subscribe", 3600);
    folder.write("flows/flow.yaml", &flow(&hub, port, "    active: false\n"));
    engine.process.signal("HUP");
    let end = hub.confirm("unsubscribe", 0);
    assert_eq!(
        (end.callback, end.secret, end.lease),
        (order.callback.clone(), None, None)
    );
    wait_until("it has ended", || measure(&engine, "lease_end") == 0.0);
    assert_eq!(deliver_signed(&order, "", "{\"n\":1}"), 410);
    // A restart knows that there is nothing to end.
    engine.stop();
    let engine = run(&folder, &flow(&hub, port, "    active: false\n"));
    assert!(!hub.is_asked_within(Duration::from_millis(500)));
    engine.stop();
}

#[test]
fn a_hub_on_another_host_has_to_be_named() {
    let (hub, folder, port) = (Hub::start(), TempDir::new(), free_port());
    let backend = StrictBackend::answering({
        let hub = hub.backend.port();
        move |_| {
            let links =
                format!("Link: <http://127.0.0.1:{hub}/hub?x=1>; rel=hub, </feed>; rel=self\r\n");
            reply("200 OK", &links, "")
        }
    });
    let feed = format!("http://127.0.0.1:{}/feed", backend.port());
    let text = flow(&hub, port, "").replace(&hub.topic(), &feed);
    let engine = run(&folder, &text);
    wait_until("it has failed", || {
        measure(&engine, "request_failures_total") >= 1.0
    });
    let origin = format!("http://127.0.0.1:{}", hub.backend.port());
    let allowed = text.replace("steps:", &format!("    origins: [ \"{origin}\" ]\nsteps:"));
    folder.write("flows/flow.yaml", &allowed);
    engine.process.signal("HUP");
    let order = hub.next();
    assert_eq!(order.topic.as_str(), feed.as_str());
    wait_until("one request is noted", || hub.backend.requests().len() == 1);
    assert!(hub.verify(&order, 60));
    let output = engine.stop();
    assert!(output.contains("is of another origin"), "{output}");
}

/// A name in a file is its author's, but perhaps not the zone that it is in.
#[test]
fn with_the_egress_guard_only_what_it_allows_is_connected_to() {
    let (hub, folder, port) = (Hub::start(), TempDir::new(), free_port());
    let topic = hub.topic().replace("127.0.0.1", "localhost");
    let guarded = flow(&hub, port, "    egress: guarded\n").replace(&hub.topic(), &topic);
    let to = hub.backend.port();
    let with = |allow: &str| {
        let egress = format!("egress: {{ {allow}schemes: [http], ports: [{to}] }}");
        format!("engine: {{ {egress} }}\n---\n{guarded}")
    };
    let engine = run(&folder, &with(""));
    wait_until("it has been refused", || {
        measure(&engine, "request_failures_total") >= 1.0
    });
    assert!(engine.metric("intertie_egress_refused_total") >= 1.0);
    assert!(hub.backend.requests().is_empty(), "neither topic nor hub");
    folder.write("flows/flow.yaml", &with("allow: [127.0.0.0/8], "));
    engine.process.signal("HUP");
    let order = hub.next();
    assert_eq!(order.topic, topic);
    assert!(hub.verify(&order, 3600));
    assert_eq!(deliver_signed(&order, "", "{\"n\":1}"), 204);
    let asked = hub.backend.requests();
    assert!(asked.iter().all(|it| it.header("CDN-Loop").is_some()));
    engine.stop();
    // What it would refuse every time is told when the file is loaded.
    let inside = with("allow: [127.0.0.0/8], ").replace(
        "steps:",
        &format!("    origins: [ \"http://10.0.0.1:{to}\" ]\nsteps:"),
    );
    let file = folder.write("inside.yaml", &inside);
    let checked = output(&["check", file.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(!checked.status.success(), "{told}");
    assert!(
        told.contains("IT0740") && told.contains("does not allow 10.0.0.1, a private address"),
        "{told}"
    );
}

#[test]
fn a_listener_with_a_lock_lets_the_hub_in_and_nobody_else() {
    let (hub, folder, port) = (Hub::start(), TempDir::new(), free_port());
    let listen = format!("127.0.0.1:{port}");
    let text = format!(
        "engine:\n  auth: {{ partners: {{ api_key: {{ keys: ./partners.keys }} }} }}\n  listeners: {{ \
         \"{listen}\": {{ auth: partners }} }}\n---\nflow: locked\nfrom: {{ http: \"GET {listen}/hooks\" \
         }}\nsteps: [ reply: {{}} ]\n---\n{}",
        flow(&hub, port, "")
    );
    folder.write("flows/partners.keys", "");
    let engine = run(&folder, &text);
    let order = hub.confirm("subscribe", 60);
    assert_eq!(deliver_signed(&order, "", "{\"n\":1}"), 204);
    assert_eq!(get(port, "/hooks").status, 401);
    engine.stop();
}

#[test]
fn the_example_of_the_guide_does_what_the_guide_says() {
    let (folder, port) = (TempDir::new(), free_port());
    let example = crate::support::repository().join("examples/websub-news");
    for name in ["flows.yaml", "stand-in.yaml"] {
        let text = std::fs::read_to_string(example.join(name)).unwrap();
        folder.write(
            &format!("news/{name}"),
            &text.replace(":8080", &format!(":{port}")),
        );
    }
    let data = folder.path().join("data").display().to_string();
    let start = || Engine::run(&[&folder.path().join("news")], &["--data", &data]);
    let publish = || {
        let body = "{\"title\": \"Rain in the north\"}";
        let content_type = "application/x-www-form-urlencoded";
        crate::support::post(port, "/stand-in/publish", content_type, body).text()
    };
    let engine = start();
    engine.process.wait_for("subscribed");
    // The hub has verified it, and notes it then.
    let noted = folder.path().join("news/stand-in/subscriber.json");
    wait_until("the hub knows its subscriber", || noted.exists());
    for _ in 0..2 {
        assert_eq!(publish(), "delivered\n");
    }
    engine.process.wait_for("news: Rain in the north");
    assert_eq!(measure(&engine, "repeated_total"), 1.0);
    let output = engine.stop();
    assert_eq!(
        output.matches("news: Rain in the north").count(),
        1,
        "{output}"
    );
    let engine = start();
    assert_eq!(publish(), "delivered\n");
    assert_eq!(measure(&engine, "repeated_total"), 1.0);
    let output = engine.stop();
    assert!(!output.contains("subscribed"), "{output}");
}
