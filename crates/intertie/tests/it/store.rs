//! Messages that are on the disk until they are delivered: engines that are killed, sinks that are
//! down, disks that are full.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Received, StrictBackend, TempDir, free_port, wait_until};

use crate::support::{Engine, command, post};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// Counts what is delivered, by body, and takes it or not.
struct Sink {
    backend: StrictBackend,
    is_up: Arc<AtomicBool>,
    taken: Arc<Mutex<Vec<Received>>>,
}

impl Sink {
    fn start() -> Self {
        let (is_up, taken) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let (up, log): (_, Arc<Mutex<Vec<Received>>>) = (Arc::clone(&is_up), Arc::clone(&taken));
        let backend = StrictBackend::answering(move |received| {
            if !up.load(Ordering::Relaxed) {
                return BUSY.to_vec();
            }
            log.lock().unwrap().push(received.clone());
            OK.to_vec()
        });
        Self {
            backend,
            is_up,
            taken,
        }
    }

    fn set_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    fn bodies(&self) -> Vec<String> {
        let taken = self.taken.lock().unwrap();
        let text = |it: &Received| String::from_utf8(it.body.clone()).unwrap();
        taken.iter().map(text).collect()
    }
}

/// A folder with flows and one with data.
struct Place {
    folder: TempDir,
    port: u16,
}

impl Place {
    /// Flows that store what comes and deliver it to a sink.
    fn new(step: &str, source: &str, sink: u16) -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let text = format!(
            "flow: take\nfrom: {{ http: \"POST 127.0.0.1:{port}/in\" }}\nsteps:\n  \
             - store: {{ in: orders{step} }}\n  \
             - reply: {{ status: 202, body: {{ id: \"${{ $stored.id }}\" }} }}\n---\n\
             flow: deliver\nfrom: {{ store: {{ name: orders{source} }} }}\nsteps:\n  \
             - http: {{ to: \"http://127.0.0.1:{sink}/sink\", method: POST, headers: \
             {{ X-Id: \"${{ $path.store_id }}\", X-Try: \"${{ $path.store_attempt }}\" }} }}\n"
        );
        folder.write("flows/flow.yaml", &text);
        Self { folder, port }
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    fn run(&self) -> Engine {
        let flows = self.folder.path().join("flows");
        let engine = Engine::run(&[&flows], &["--data", &self.data()]);
        wait_until("it listens", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
        engine
    }

    fn put(&self, body: &str) -> u16 {
        post(self.port, "/in", "text/plain", body).status
    }

    /// Runs `intertie store` on the data folder.
    fn store(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = command();
        command.arg("store").args(arguments);
        let output = command.args(["--data", &self.data()]).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }
}

fn kill(mut engine: Engine) {
    engine.process.signal("KILL");
    engine.process.wait();
}

/// The value of a measure of the store.
fn measure(engine: &Engine, name: &str) -> f64 {
    let value = engine.measured(&format!("intertie_store_{name}"), &[("step", "orders")]);
    value.unwrap_or(-1.0)
}

/// Waits for longer than most things take.
fn wait_long(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "waited in vain until {what}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends numbers on one connection until something fails. Gives those that were acknowledged.
fn load(port: u16, next: &AtomicU64, stop: &AtomicBool) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return acknowledged;
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    while !stop.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let body = number.to_string();
        let request = format!(
            "POST /in HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(request.as_bytes()).is_err() {
            break;
        }
        // The reply is short, but need not come at once.
        let mut reply = Vec::new();
        let mut part = [0; 1024];
        while !reply.ends_with(b"}") {
            match stream.read(&mut part) {
                Ok(0) | Err(_) => return acknowledged,
                Ok(count) => reply.extend_from_slice(&part[..count]),
            }
        }
        assert!(reply.starts_with(b"HTTP/1.1 202"), "{reply:?}");
        acknowledged.push(number);
    }
    acknowledged
}

#[test]
fn nothing_acknowledged_is_lost_when_the_engine_is_killed() {
    const KILLS: u64 = 22;
    const CONCURRENT: u64 = 8;
    let sink = Sink::start();
    let source = format!(", concurrent: {CONCURRENT}, retry: {{ delay: 50ms, times: 1000 }}");
    let place = Place::new("", &source, sink.backend.port());
    let next = Arc::new(AtomicU64::new(0));
    let mut acknowledged = Vec::new();
    for kill_number in 0..KILLS {
        let engine = place.run();
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..16)
            .map(|_| {
                let (next, stop, port) = (Arc::clone(&next), Arc::clone(&stop), place.port);
                thread::spawn(move || load(port, &next, &stop))
            })
            .collect();
        thread::sleep(Duration::from_millis(100 + kill_number * 17));
        kill(engine);
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            acknowledged.extend(client.join().unwrap());
        }
    }
    let engine = place.run();
    wait_long("all is delivered", || measure(&engine, "waiting") == 0.0);
    assert_eq!(measure(&engine, "dead"), 0.0);
    engine.stop();
    let mut delivered: BTreeMap<u64, u64> = BTreeMap::new();
    for body in sink.bodies() {
        *delivered.entry(body.parse().unwrap()).or_default() += 1;
    }
    let lost = acknowledged.iter().filter(|it| !delivered.contains_key(it));
    assert_eq!(lost.count(), 0, "of {}", acknowledged.len());
    let twice: u64 = delivered.values().map(|count| count - 1).sum();
    println!(
        "{} acknowledged, 0 lost, {twice} twice after {KILLS} kills",
        acknowledged.len()
    );
    assert!(acknowledged.len() > 500, "{}", acknowledged.len());
    assert!(twice <= KILLS * CONCURRENT, "{twice}");
    assert_eq!(sink.backend.violations(), Vec::<String>::new());
}

#[test]
fn a_sink_that_is_down_gets_everything_when_it_is_back() {
    let sink = Sink::start();
    sink.set_up(false);
    let source = ", retry: { delay: 100ms, delay_max: 200ms, times: 100 }";
    let place = Place::new("", source, sink.backend.port());
    let engine = place.run();
    for number in 0..50 {
        assert_eq!(place.put(&number.to_string()), 202);
    }
    wait_long("it has been tried", || {
        measure(&engine, "retried_total") > 60.0
    });
    assert_eq!(measure(&engine, "waiting"), 50.0);
    assert!(measure(&engine, "oldest_seconds") > 0.0);
    // The tries go on where they were.
    engine.stop();
    let engine = place.run();
    sink.set_up(true);
    wait_long("all is delivered", || measure(&engine, "waiting") == 0.0);
    let mut bodies = sink.bodies();
    bodies.sort_by_key(|it| it.parse::<u64>().unwrap());
    let expected: Vec<String> = (0..50).map(|it| it.to_string()).collect();
    assert_eq!(bodies, expected);
    let first = sink.taken.lock().unwrap()[0].clone();
    assert!(first.header("X-Try").unwrap().parse::<u32>().unwrap() > 1);
    assert_eq!(measure(&engine, "delivered_total"), 50.0);
    engine.stop();
}

#[test]
fn what_fails_for_good_is_a_dead_letter_that_an_operator_decides_on() {
    let sink = Sink::start();
    sink.set_up(false);
    let source = ", retry: { delay: 20ms, times: 2, backoff: 1 }";
    let place = Place::new("", source, sink.backend.port());
    let engine = place.run();
    for body in ["one", "two", "three"] {
        assert_eq!(place.put(body), 202);
    }
    wait_until("all are dead", || measure(&engine, "dead") == 3.0);
    assert_eq!(measure(&engine, "retried_total"), 6.0);
    let (is_done, text) = place.store(&["list"]);
    assert!(!is_done && text.contains("in use by process"), "{text}");
    assert!(text.contains(&engine.process.id().to_string()), "{text}");
    engine.stop();

    let (is_done, text) = place.store(&["list"]);
    assert!(is_done && text.contains("orders"), "{text}");
    let (_, text) = place.store(&["list", "orders"]);
    assert_eq!(text.matches("status 503").count(), 3, "{text}");
    let (_, text) = place.store(&["show", "orders", "1"]);
    assert!(
        text.contains("\"text\": \"one\"") && text.contains("\"tries\": 3"),
        "{text}"
    );
    let (is_done, text) = place.store(&["retry", "orders", "99"]);
    assert!(!is_done && text.contains("no dead letter 99"), "{text}");
    let (is_done, text) = place.store(&["list", "other"]);
    assert!(!is_done && text.contains("there are orders"), "{text}");
    let (_, text) = place.store(&["drop", "orders", "2"]);
    assert_eq!(text, "1 dead letter dropped\n");
    let (_, text) = place.store(&["retry", "orders", "--all"]);
    assert_eq!(text, "2 dead letters will be delivered again\n");

    sink.set_up(true);
    let engine = place.run();
    wait_until("both are delivered", || sink.bodies().len() == 2);
    assert_eq!(measure(&engine, "dead"), 0.0);
    let mut bodies = sink.bodies();
    bodies.sort();
    assert_eq!(bodies, ["one", "three"]);
    engine.stop();
}

/// What is counted of the flow that delivers.
fn counted(engine: &Engine, name: &str) -> f64 {
    let value = engine.measured(&format!("intertie_source_{name}"), &[("flow", "deliver")]);
    value.unwrap_or(-1.0)
}

#[test]
fn what_fails_for_good_goes_to_another_store_where_that_is_wanted() {
    let (sink, letters) = (Sink::start(), Sink::start());
    sink.set_up(false);
    let source = ", retry: { delay: 20ms, times: 2, backoff: 1 }, dead_letter: { store: failed }";
    let place = Place::new("", source, sink.backend.port());
    let text = format!(
        "flow: letters\nfrom: {{ store: failed }}\nsteps:\n  - http: {{ to: \
         \"http://127.0.0.1:{}/letters\", method: POST, headers: {{ \
         X-Id: \"${{ $path.dead_letter_id }}\", X-Flow: \"${{ $path.dead_letter_flow }}\", \
         X-Tries: \"${{ $path.dead_letter_attempts }}\", X-Own: \"${{ $path.store_id }}\", \
         X-Reason: \"${{ $path.dead_letter_reason }}\" }} }}\n",
        letters.backend.port()
    );
    place.folder.write("flows/letters.yaml", &text);
    let engine = place.run();
    let reply = post(place.port, "/in", "text/plain", "one");
    let id: serde_json::Value = serde_json::from_str(&reply.text()).unwrap();
    wait_until("it is a letter", || letters.bodies() == ["one"]);
    let letter = letters.taken.lock().unwrap()[0].clone();
    assert_eq!(letter.header("X-Id"), id["id"].as_str());
    assert_ne!(letter.header("X-Own"), letter.header("X-Id"));
    assert_eq!(letter.header("X-Flow"), Some("deliver"));
    assert_eq!(letter.header("X-Tries"), Some("3"));
    assert!(letter.header("X-Reason").unwrap().contains("503"));
    wait_until("it has left", || measure(&engine, "waiting") == 0.0);
    assert_eq!(measure(&engine, "dead"), 0.0);
    assert_eq!(counted(&engine, "dead_letters_total"), 1.0);
    assert_eq!(counted(&engine, "retried_total"), 2.0);
    engine.stop();
}

#[test]
fn what_fails_for_good_is_dropped_where_that_is_wanted() {
    let sink = Sink::start();
    sink.set_up(false);
    let source = ", retry: { on: [connection] }, dead_letter: drop";
    let place = Place::new("", source, sink.backend.port());
    let engine = place.run();
    for body in ["one", "two"] {
        assert_eq!(place.put(body), 202);
    }
    wait_until("both are dropped", || {
        counted(&engine, "dropped_total") == 2.0 && measure(&engine, "waiting") == 0.0
    });
    assert_eq!(measure(&engine, "dead"), 0.0);
    let log = engine.stop();
    assert_eq!(log.matches("a message is dropped").count(), 2, "{log}");
}

#[test]
fn a_message_that_fails_stops_its_flow_where_that_is_wanted() {
    let sink = Sink::start();
    sink.set_up(false);
    for ordered in ["true", "false"] {
        let source = format!(", ordered: {ordered}, retry: {{ times: 0 }}, dead_letter: stop");
        let place = Place::new("", &source, sink.backend.port());
        sink.set_up(false);
        let engine = place.run();
        assert_eq!(place.put("one"), 202);
        engine.process.wait_for("no further messages are taken");
        assert_eq!(place.put("two"), 202);
        thread::sleep(Duration::from_millis(300));
        assert_eq!(measure(&engine, "waiting"), 2.0);
        assert_eq!(measure(&engine, "dead"), 0.0);
        assert_eq!(counted(&engine, "failed_total"), 1.0, "{ordered}");
        engine.stop();
        // A restart begins again, with what was left.
        sink.set_up(true);
        sink.taken.lock().unwrap().clear();
        let engine = place.run();
        wait_until("both are delivered", || measure(&engine, "waiting") == 0.0);
        let first = sink.taken.lock().unwrap()[0].clone();
        assert_eq!(first.header("X-Try"), Some("1"), "it went back as it was");
        assert_eq!(sink.bodies().len(), 2);
        engine.stop();
    }
}

/// Puts messages of several keys while the sink refuses some of them, and gives what was taken.
fn ordered(mode: &str, key: &str) -> Vec<String> {
    let tries: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let taken: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&taken);
    let backend = StrictBackend::answering(move |received| {
        let body = String::from_utf8(received.body.clone()).unwrap();
        let mut tries = tries.lock().unwrap();
        let count = tries.entry(body.clone()).or_default();
        *count += 1;
        // Every third message fails at first.
        let number: u32 = body[1..].parse().unwrap();
        if number.is_multiple_of(3) && *count == 1 {
            return BUSY.to_vec();
        }
        log.lock().unwrap().push(body);
        OK.to_vec()
    });
    let source = format!(", ordered: {mode}, retry: {{ delay: 30ms, times: 9 }}");
    let place = Place::new(key, &source, backend.port());
    let engine = place.run();
    for number in 0..30 {
        let key = ["a", "b", "c"][number % 3 * 2 % 3];
        assert_eq!(place.put(&format!("{key}{number}")), 202);
    }
    wait_long("all is delivered", || taken.lock().unwrap().len() == 30);
    engine.stop();
    let taken = taken.lock().unwrap();
    taken.clone()
}

#[test]
fn in_order_each_message_waits_for_the_one_before() {
    let numbers: Vec<u32> = ordered("true", "")
        .iter()
        .map(|body| body[1..].parse().unwrap())
        .collect();
    assert_eq!(numbers, (0..30).collect::<Vec<u32>>());
}

#[test]
fn by_key_each_message_waits_for_the_one_before_of_its_key() {
    let taken = ordered("by-key", ", key: \"${ .[:1] }\"");
    for key in ["a", "b", "c"] {
        let of_key = taken.iter().filter(|body| body.starts_with(key));
        let numbers: Vec<u32> = of_key.map(|body| body[1..].parse().unwrap()).collect();
        assert_eq!(numbers.len(), 10);
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
}

#[test]
fn a_store_that_is_full_refuses() {
    let sink = Sink::start();
    sink.set_up(false);
    let source = ", retry: { delay: 50ms, backoff: 1, times: 1000 }";
    let place = Place::new(", max_messages: 3", source, sink.backend.port());
    let engine = place.run();
    for _ in 0..3 {
        assert_eq!(place.put("x"), 202);
    }
    let reply = post(place.port, "/in", "text/plain", "x");
    assert_eq!(
        (reply.status, reply.header("Retry-After")),
        (503, Some("5"))
    );
    assert!(
        reply.text().contains("the store is full"),
        "{}",
        reply.text()
    );
    sink.set_up(true);
    wait_until("there is room", || place.put("x") == 202);
    engine.stop();
}

#[test]
fn a_disk_that_is_full_refuses_and_recovers() {
    let sink = Sink::start();
    sink.set_up(false);
    let source = ", retry: { delay: 50ms, backoff: 1, times: 100000 }";
    let place = Place::new("", source, sink.backend.port());
    let small = SmallDisk::new(&place);
    let engine = place.run();
    let body = "x".repeat(20_000);
    let mut stored = 0;
    while place.put(&format!("{stored:04}{body}")) == 202 {
        stored += 1;
        assert!(stored < 1000, "the disk is not small");
    }
    assert!(stored > 5, "{stored}");
    let reply = post(place.port, "/in", "text/plain", &body);
    assert_eq!(
        (reply.status, reply.header("Retry-After")),
        (503, Some("5"))
    );
    engine.process.wait_for("nothing can be stored");
    // Deliveries go on, and what is delivered makes room.
    small.fill();
    sink.set_up(true);
    wait_long("all is delivered", || measure(&engine, "waiting") == 0.0);
    small.clear();
    wait_long("there is room again", || place.put("last") == 202);
    wait_long("all is delivered", || measure(&engine, "waiting") == 0.0);
    engine.stop();
    let mut numbers: Vec<String> = sink.bodies().iter().map(|it| it[..4].to_owned()).collect();
    numbers.sort();
    let mut expected: Vec<String> = (0..stored).map(|it| format!("{it:04}")).collect();
    expected.push("last".to_owned());
    assert_eq!(numbers, expected);
}

/// The data folder on a disk of 2 MiB where that can be made (as root, with its own mounts).
struct SmallDisk {
    path: std::path::PathBuf,
}

impl SmallDisk {
    fn new(place: &Place) -> Self {
        let path = place.folder.path().join("data");
        std::fs::create_dir_all(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"])
            .arg(&path)
            .status()
            .unwrap();
        assert!(
            mounted.success(),
            "a small tmpfs cannot be mounted: this test needs root"
        );
        Self { path }
    }

    fn fill(&self) {
        // As much as there is room for.
        let _ = std::fs::write(self.path.join("ballast"), vec![1; 4 << 20]);
    }

    fn clear(&self) {
        let _ = std::fs::remove_file(self.path.join("ballast"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

#[test]
fn one_folder_has_one_engine() {
    let place = Place::new("", "", free_port());
    let engine = place.run();
    let flows = place.folder.path().join("flows");
    let mut second = command();
    second
        .arg("run")
        .arg(&flows)
        .args(["--admin", "off", "--data", &place.data()]);
    let output = second.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!(
        "the data folder {} is in use by process {}",
        place.data(),
        engine.process.id()
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains(&expected), "{text}");
    engine.stop();
}

#[test]
fn a_damaged_folder_is_refused() {
    let place = Place::new("", "", free_port());
    let engine = place.run();
    assert_eq!(place.put("one"), 202);
    assert_eq!(place.put("two"), 202);
    kill(engine);
    let file = Path::new(&place.data()).join("store/000000000001.log");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let (is_done, text) = place.store(&["list"]);
    assert!(
        !is_done && text.contains("000000000001.log is damaged at byte 44"),
        "{text}"
    );
    let format = Path::new(&place.data()).join("format");
    std::fs::write(&format, "other data folder\n").unwrap();
    let (is_done, text) = place.store(&["list"]);
    assert!(!is_done && text.contains("`format` is damaged"), "{text}");
    std::fs::remove_file(&format).unwrap();
    let (is_done, text) = place.store(&["list"]);
    assert!(!is_done && text.contains("`format` is missing"), "{text}");
}

#[test]
fn checks_and_engines_without_a_store_make_no_folder() {
    let place = Place::new("", "", free_port());
    let flows = place.folder.path().join("flows");
    assert!(
        command()
            .arg("check")
            .arg(&flows)
            .status()
            .unwrap()
            .success()
    );
    assert!(!Path::new(&place.data()).exists());
    let other = TempDir::new();
    let port = free_port();
    other.write(
        "flow.yaml",
        &format!("flow: a\nfrom: {{ http: \"GET 127.0.0.1:{port}/\" }}\nsteps: [ reply: {{ body: hello }} ]\n"),
    );
    let engine = Engine::run(&[other.path()], &["--data", &place.data()]);
    assert!(!Path::new(&place.data()).exists());
    engine.stop();
}

#[test]
fn a_reload_goes_on_and_a_stop_waits_for_what_is_under_way() {
    let is_open = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&is_open);
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let taken = || count.load(Ordering::Relaxed);
    let backend = StrictBackend::answering(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        wait_until("the sink may answer", || open.load(Ordering::Relaxed));
        OK.to_vec()
    });
    let place = Place::new("", ", concurrent: 2", backend.port());
    let flows = place.folder.path().join("flows");
    let engine = Engine::run(&[&flows], &["--data", &place.data(), "--watch"]);
    for body in ["1", "2", "3"] {
        assert_eq!(place.put(body), 202);
    }
    wait_until("two are under way", || taken() == 2);
    let file = flows.join("flow.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("concurrent: 2", "concurrent: 1")).unwrap();
    engine.process.wait_for("reloaded");
    assert_eq!(place.put("4"), 202);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(taken(), 2, "the old ones are under way");
    is_open.store(true, Ordering::Relaxed);
    wait_until("all are delivered", || measure(&engine, "waiting") == 0.0);
    assert_eq!(taken(), 4, "each once");
    is_open.store(false, Ordering::Relaxed);
    assert_eq!(place.put("5"), 202);
    assert_eq!(place.put("6"), 202);
    wait_until("one is under way", || taken() == 5);
    let opener = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        is_open.store(true, Ordering::Relaxed);
    });
    engine.stop();
    opener.join().unwrap();
    let (_, text) = place.store(&["list", "orders", "--waiting"]);
    assert_eq!(
        text.lines().count(),
        2,
        "the one that was not under way waits: {text}"
    );
    assert_eq!(taken(), 5);
}

#[test]
fn files_are_for_nobody_else() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("", "", free_port());
    let engine = place.run();
    assert_eq!(place.put("one"), 202);
    engine.stop();
    let data = Path::new(&place.data()).to_owned();
    for (name, mode) in [
        ("", 0o700),
        ("store", 0o700),
        ("format", 0o600),
        ("store/000000000001.log", 0o600),
    ] {
        let found = std::fs::metadata(data.join(name)).unwrap().permissions();
        assert_eq!(found.mode() & 0o777, mode, "{name}");
    }
}
