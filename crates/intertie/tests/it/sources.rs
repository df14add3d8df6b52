//! Flows that no request starts: schedules and files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use testkit::{Received, StrictBackend, TempDir, wait_until};

use crate::support::{Engine, output};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A back end that answers when it is let.
struct SlowBackend {
    backend: StrictBackend,
    is_open: Arc<AtomicBool>,
    /// The requests that it has taken, answered or not.
    taken: Arc<Mutex<Vec<Received>>>,
}

impl SlowBackend {
    fn start() -> Self {
        let is_open = Arc::new(AtomicBool::new(false));
        let opened = Arc::clone(&is_open);
        let taken: Arc<Mutex<Vec<Received>>> = Arc::default();
        let log = Arc::clone(&taken);
        let backend = StrictBackend::answering(move |received| {
            log.lock().unwrap().push(received.clone());
            wait_until("the back end may answer", || opened.load(Ordering::Relaxed));
            OK.to_vec()
        });
        Self {
            backend,
            is_open,
            taken,
        }
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// The bodies of all requests so far.
    fn bodies(&self) -> Vec<String> {
        bodies(&self.taken.lock().unwrap())
    }
}

fn bodies(requests: &[Received]) -> Vec<String> {
    let text = |request: &Received| String::from_utf8(request.body.clone()).unwrap();
    requests.iter().map(text).collect()
}

/// Flow files in one folder and files for them in another.
struct Place {
    flows: TempDir,
    files: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            flows: TempDir::new(),
            files: TempDir::new(),
        }
    }

    /// Writes a flow that posts each file to a back end, with a word of its own.
    fn write(&self, settings: &str, port: u16, word: &str) {
        let folder = self.path("");
        let folder = folder.display();
        let text = format!(
            "flow: files\nfrom:\n  file: {{ folder: \"{folder}\", stable: 0s, {settings} }}\n\
             steps:\n  - http: {{ to: \"http://127.0.0.1:{port}/in\", method: POST, \
             headers: {{ X-Word: {word}, X-Name: \"${{ $path.name }}\" }} }}\n"
        );
        self.flows.write("flow.yaml", &text);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join("in").join(name)
    }

    /// Puts a file there, whole.
    fn put(&self, name: &str, text: &str) {
        let written = self.files.write(&format!("in/{name}.tmp"), text);
        fs::rename(written, self.path(name)).unwrap();
    }

    fn run(&self, options: &[&str]) -> Engine {
        let engine = Engine::run(&[self.flows.path()], options);
        let watched = self.path(".processing");
        wait_until("the folders are made", || watched.is_dir());
        engine
    }
}

fn wait_for_file(path: &Path) {
    wait_until(&format!("{} is there", path.display()), || path.exists());
}

#[test]
fn a_schedule_starts_a_flow_again_and_again() {
    let folder = TempDir::new();
    let backend = StrictBackend::start();
    let port = backend.port();
    folder.write(
        "flow.yaml",
        &format!(
            "flow: calls\nfrom:\n  schedule: {{ every: 100ms, at_start: true }}\n\
             steps:\n  - http: POST http://127.0.0.1:{port}/called\n---\n\
             flow: forwards\nfrom: {{ schedule: \"* * * * * *\" }}\n\
             steps:\n  - forward: POST http://127.0.0.1:{port}/forwarded\n"
        ),
    );
    let engine = Engine::run(&[folder.path()], &[]);
    let bodies_of = |target: &str| -> Vec<serde_json::Value> {
        let requests = backend.requests().into_iter();
        let requests = requests.filter(|it| it.target == target && it.method == "POST");
        let bodies = requests.map(|it| serde_json::from_slice(&it.body).unwrap());
        bodies.collect()
    };
    wait_until("both have run", || {
        bodies_of("/called").len() >= 3 && !bodies_of("/forwarded").is_empty()
    });
    let called = bodies_of("/called");
    let runs: Vec<_> = called
        .iter()
        .map(|it| it["run"].as_u64().unwrap())
        .collect();
    assert_eq!(runs[..3], [1, 2, 3]);
    let scheduled = bodies_of("/forwarded")[0]["scheduled"].to_string();
    assert!(
        scheduled.ends_with("Z\"") && scheduled.len() == 22,
        "{scheduled}"
    );
    let page = engine.get("/metrics").text();
    for line in [
        "intertie_schedule_runs_total{flow=\"calls\",step=\"schedule\"} ",
        "intertie_schedule_failed_total{flow=\"forwards\",step=\"schedule\"} 0.0\n",
        "intertie_schedule_next_run{flow=\"forwards\",step=\"schedule\"} ",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    let output = engine.stop();
    assert!(
        output.contains("\"sources\":2") && !output.contains("listeners"),
        "{output}"
    );
    assert_eq!(backend.violations(), [""; 0]);
}

#[test]
fn a_file_is_posted_as_soon_as_it_is_put_there() {
    let place = Place::new();
    let backend = StrictBackend::answering(|received| match &*received.body {
        b"bad" => b"HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => OK.to_vec(),
    });
    place.write("every: 1h, pattern: \"*.txt\"", backend.port(), "a");
    let engine = place.run(&[]);
    // The folder is watched from the first look on, which is over when this has gone.
    place.put("a b.txt", "good");
    wait_for_file(&place.path(".done/a b.txt"));
    place.put("b.txt", "bad");
    wait_for_file(&place.path(".failed/b.txt"));
    place.put("c.json", "left alone");
    place.put("d.txt", "");
    wait_for_file(&place.path(".done/d.txt"));
    let requests = backend.requests();
    assert_eq!(bodies(&requests), ["good", "bad", ""]);
    assert_eq!(requests[0].header("x-name"), Some("a b.txt"));
    assert_eq!(requests[0].header("content-type"), Some("text/plain"));
    let why = fs::read_to_string(place.path(".failed/b.txt.error.json")).unwrap();
    let why: serde_json::Value = serde_json::from_str(&why).unwrap();
    assert_eq!((&why["kind"], &why["status"]), (&"4xx".into(), &422.into()));
    assert!(place.path("c.json").exists());
    let page = engine.get("/metrics").text();
    assert!(
        page.contains("intertie_source_succeeded_total{flow=\"files\",step=\"file\"} 2.0\n"),
        "{page}"
    );
    engine.stop();
    assert_eq!(backend.violations(), [""; 0]);
}

#[test]
fn a_failed_file_is_retried_and_kept_where_its_flow_says() {
    let place = Place::new();
    let backend = StrictBackend::answering(|received| match &*received.body {
        b"bad" => b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => OK.to_vec(),
    });
    let text = format!(
        "flow: files\nfrom:\n  file:\n    folder: \"{}\"\n    \
         retry: {{ times: 2, delay: 50ms }}\n    dead_letter: {{ store: failed-files }}\n\
         steps:\n  - http: POST http://127.0.0.1:{}/in\n---\n\
         flow: letters\nfrom: {{ store: failed-files }}\nsteps:\n  \
         - http: {{ to: \"http://127.0.0.1:{}/letters\", method: POST, body: \
         {{ name: \"${{ $path.dead_letter_id }}\", tries: \"${{ $path.dead_letter_attempts }}\" }} }}\n",
        place.path("").display(),
        backend.port(),
        backend.port()
    );
    place.flows.write("flow.yaml", &text);
    let engine = place.run(&[]);
    place.put("a.txt", "bad");
    place.put("b.txt", "good");
    // It is moved like one that is done, once it is on the disk.
    wait_for_file(&place.path(".done/a.txt"));
    wait_for_file(&place.path(".done/b.txt"));
    wait_until("the letter is there", || backend.requests().len() == 5);
    let mut bodies = bodies(&backend.requests());
    bodies.sort();
    let letter = r#"{"name":"a.txt","tries":"3"}"#;
    assert_eq!(bodies, ["bad", "bad", "bad", "good", letter]);
    assert!(!place.path(".failed").exists());
    engine.stop();
}

#[test]
fn the_old_word_for_the_folder_of_failed_files_is_refused_with_the_new_one() {
    let folder = TempDir::new();
    let text = "flow: files\nfrom: { file: { folder: ./in, failed: ./failed } }\nsteps: []\n";
    let file = folder.write("flow.yaml", text).display().to_string();
    let checked = output(&["check", &file]);
    let told = String::from_utf8_lossy(&checked.stderr).into_owned();
    let told = told + &String::from_utf8_lossy(&checked.stdout);
    assert!(!checked.status.success(), "{told}");
    let hint = "it is called `dead_letter: { folder: ... }` now";
    assert!(
        told.contains("unknown key `failed`") && told.contains(hint),
        "{told}"
    );
}

#[test]
fn a_file_is_read_as_its_flow_says() {
    let place = Place::new();
    let backend = StrictBackend::start();
    let folder = place.path("");
    let text = format!(
        "flow: files\nfrom:\n  file: {{ folder: \"{}\", decode: csv, delete: true }}\n\
         steps:\n  - map: '[.[].sku, $path.size, $in.path]'\n  \
         - http: POST http://127.0.0.1:{}/in\n",
        folder.display(),
        backend.port()
    );
    place.flows.write("flow.yaml", &text);
    let engine = place.run(&[]);
    place.put("a.txt", "sku,qty\nA1,2\nB2,3\n");
    wait_until("it is posted", || backend.requests().len() == 1);
    assert_eq!(
        bodies(&backend.requests()),
        ["[\"A1\",\"B2\",\"18\",\"/a.txt\"]"]
    );
    wait_until("it is gone", || {
        !place.path("a.txt").exists() && !place.path(".processing/a.txt").exists()
    });
    assert!(!place.path(".done").exists());
    engine.stop();
}

#[test]
fn a_reload_waits_for_a_file_that_is_under_way() {
    let place = Place::new();
    let slow = SlowBackend::start();
    place.write("every: 100ms", slow.backend.port(), "old");
    let engine = place.run(&["--watch"]);
    place.put("a", "a");
    wait_until("it is under way", || slow.bodies().len() == 1);
    place.write("every: 100ms", slow.backend.port(), "new");
    engine.process.wait_for("reloaded");
    place.put("b", "b");
    assert!(place.path(".processing/a").exists());
    slow.open();
    wait_for_file(&place.path(".done/b"));
    assert!(place.path(".done/a").exists());
    let requests = slow.taken.lock().unwrap().clone();
    let words: Vec<_> = requests.iter().map(|it| it.header("x-word")).collect();
    assert_eq!(words, [Some("old"), Some("new")]);
    assert_eq!(slow.bodies(), ["a", "b"]);
    engine.stop();
}

#[test]
fn sigterm_lets_a_file_under_way_end_and_takes_no_more() {
    let place = Place::new();
    let slow = SlowBackend::start();
    place.write("every: 100ms", slow.backend.port(), "a");
    let engine = place.run(&[]);
    place.put("a", "a");
    wait_until("it is under way", || slow.bodies().len() == 1);
    place.put("b", "b");
    engine.process.signal("TERM");
    engine.process.wait_for("stopping");
    slow.open();
    let mut process = engine.process;
    let status = process.wait();
    assert_eq!(status.code(), Some(0), "{}", process.output());
    assert!(place.path(".done/a").exists());
    assert!(place.path("b").exists());
    assert_eq!(slow.bodies(), ["a"]);
}

#[test]
fn a_file_is_taken_up_again_after_a_crash() {
    let place = Place::new();
    let slow = SlowBackend::start();
    place.write("every: 100ms", slow.backend.port(), "a");
    let engine = place.run(&[]);
    place.put("a", "a");
    wait_until("it is under way", || slow.bodies().len() == 1);
    engine.process.signal("KILL");
    let mut process = engine.process;
    process.wait();
    assert!(place.path(".processing/a").exists());
    slow.open();
    let engine = place.run(&[]);
    wait_for_file(&place.path(".done/a"));
    assert_eq!(slow.bodies(), ["a", "a"]);
    engine.stop();
}
