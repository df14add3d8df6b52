//! Sessions in Redis, which several engines share.

use testkit::servers::Redis;

use super::*;

/// Two engines with one menu, its sessions in one Redis server.
struct Pair {
    redis: Redis,
    _folders: [TempDir; 2],
    ports: [u16; 2],
    engines: [Engine; 2],
    _backend: StrictBackend,
    taken: Arc<Mutex<Vec<String>>>,
}

const KEYS: [&str; 5] = ["", "1", "1*50", "1*50*123456", "1*50*123456*1"];

impl Pair {
    fn new(delay: Duration) -> Self {
        let (redis, (backend, taken)) = (Redis::start(), shop(delay));
        let (folders, ports) = ([TempDir::new(), TempDir::new()], [free_port(), free_port()]);
        let engines = [0, 1].map(|at| {
            let cache = format!(
                "use: {{ cache: {{ redis: \"redis://127.0.0.1:{}\", timeout: 500ms }}, ",
                redis.port()
            );
            let text = menu(ports[at], backend.port(), "africas-talking")
                .replace("use: {", &cache)
                .replace("languages:", "sessions: { in: cache }\nlanguages:");
            let file = folders[at].write("menu.yaml", &text);
            Engine::run(&[&file], &[])
        });
        Self {
            redis,
            _folders: folders,
            ports,
            engines,
            _backend: backend,
            taken,
        }
    }

    fn send(&self, engine: usize, session: &str, text: &str) -> String {
        let head = format!("sessionId={session}&phoneNumber={NUMBER}&serviceCode=*123%23");
        let body = format!("{head}&text={text}");
        let response = post(self.ports[engine], "/ussd", FORM, &body);
        assert_eq!(response.status, 200, "{}", response.text());
        response.text()
    }

    fn bought(&self) -> usize {
        let taken = self.taken.lock().unwrap();
        taken.iter().filter(|it| it.contains("amount")).count()
    }
}

#[test]
fn two_engines_take_turns_in_one_dialogue() {
    let pair = Pair::new(Duration::ZERO);
    for session in 0..4 {
        let session = format!("s{session}");
        let shown: Vec<String> = KEYS
            .iter()
            .enumerate()
            .map(|(turn, text)| pair.send(turn % 2, &session, text))
            .collect();
        assert_eq!(shown[1], "CON How much?");
        assert_eq!(shown[3], "CON Buy for 50, +254711000001?\n1. Sure");
        assert_eq!(shown[4], "END Bought 50.");
        // A repeated request comes to the other one.
        assert_eq!(pair.send(1, &session, KEYS[4]), "END Bought 50.");
    }
    assert_eq!(pair.bought(), 4);
    // What is there expires, and has neither the number nor the PIN.
    let keys = pair.redis.ask(&["KEYS", "*"]);
    assert!(keys.contains("intertie:menu:airtime:"), "{keys}");
    for key in keys.split(['[', ',', ']', ' ']).filter(|it| !it.is_empty()) {
        let kept = pair.redis.ask(&["GET", key]);
        assert!(!kept.contains("123456"), "{kept}");
        let ttl: i64 = pair.redis.ask(&["TTL", key]).trim().parse().unwrap();
        // The lease of the last message may have been given back meanwhile (-2: no such key).
        assert!(ttl == -2 || (0..=900).contains(&ttl), "{key} {ttl}");
    }
}

#[test]
fn one_request_comes_to_both_engines_at_once_and_is_done_once() {
    let pair = Pair::new(Duration::from_millis(300));
    for text in &KEYS[..4] {
        pair.send(0, "s1", text);
    }
    let answers: Vec<String> = thread::scope(|scope| {
        let send = |engine| pair.send(engine, "s1", KEYS[4]);
        let all: Vec<_> = (0..6).map(|at| scope.spawn(move || send(at % 2))).collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert_eq!(answers, ["END Bought 50."; 6]);
    assert_eq!(pair.bought(), 1);
}

#[test]
fn another_engine_goes_on_for_one_that_was_killed_in_a_step() {
    let mut pair = Pair::new(Duration::from_secs(2));
    for text in &KEYS[..3] {
        pair.send(0, "s1", text);
    }
    let head = format!("sessionId=s1&phoneNumber={NUMBER}&serviceCode=*123%23");
    let body = format!("{head}&text={}", KEYS[3]);
    let mut client = testkit::RawClient::connect(pair.ports[0]);
    client.send(format!(
        "POST /ussd HTTP/1.1\r\nHost: a\r\nContent-Type: {FORM}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let is_asked = || !pair.taken.lock().unwrap().is_empty();
    testkit::wait_until("the shop is asked", is_asked);
    pair.engines[0].process.signal("KILL");
    pair.engines[0].process.wait();
    // The session is the dead engine's until its lease is over.
    let confirm = "CON Buy for 50, +254711000001?\n1. Sure";
    assert_eq!(pair.send(1, "s1", KEYS[3]), confirm);
    assert_eq!(pair.send(1, "s1", KEYS[4]), "END Bought 50.");
}

#[test]
fn a_store_that_is_away_loses_no_session() {
    let mut pair = Pair::new(Duration::ZERO);
    pair.send(0, "s1", KEYS[0]);
    pair.send(1, "s1", KEYS[1]);
    pair.redis.kill();
    let failed = "END The service is not available. Please try again later.";
    assert_eq!(pair.send(0, "s1", KEYS[2]), failed);
    pair.redis.again();
    // Each engine tries again after a while.
    let again = || pair.send(1, "s1", KEYS[2]) == "CON PIN for 50?";
    testkit::wait_until("the session goes on", again);
    let confirm = "CON Buy for 50, +254711000001?\n1. Sure";
    let other = || pair.send(0, "s1", KEYS[3]) == confirm;
    testkit::wait_until("it goes on with the other engine", other);
}

/// However endless sessions of one number are shared out among engines.
#[test]
fn engines_bound_the_sessions_of_one_number_together() {
    let pair = Pair::new(Duration::ZERO);
    for number in 0..20 {
        let shown = pair.send(number % 2, &format!("f{number}"), "");
        assert_eq!(shown, "CON Airtime\n1. Buy\n0. Exit");
    }
    let sessions = || {
        let keys = pair.redis.ask(&["KEYS", "intertie:menu:airtime:session:*"]);
        let keys = keys.split(['[', ',', ']', ' ']).map(str::trim);
        let keys = keys.filter(|it| !it.is_empty() && !it.ends_with(":lease"));
        keys.count()
    };
    testkit::wait_until("the oldest are forgotten", || sessions() <= 4);
    assert_eq!(pair.send(0, "last", ""), "CON Airtime\n1. Buy\n0. Exit");
    assert_eq!(pair.send(1, "last", "1"), "CON How much?");
    let over = "END The session is over. Please dial again.";
    assert_eq!(pair.send(1, "f0", "1"), over);
}

#[test]
fn only_stores_keep_sessions() {
    let sound = menu(8080, 8081, "africas-talking");
    for (sessions, message) in [
        ("{ in: shop }", "a `http` connection keeps no sessions"),
        ("{ in: shopp }", "there is no connection `shopp`"),
    ] {
        let folder = TempDir::new();
        let text = sound.replace("languages:", &format!("sessions: {sessions}\nlanguages:"));
        let file = folder.write("menu.yaml", &text);
        let (status, report) = checked(&file);
        assert_eq!(status, Some(1), "{report}");
        assert!(report.contains(message), "{report}");
    }
}
