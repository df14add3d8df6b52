//! Files in real folders, by a clock that the test moves.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use component::content::Format;
use component::source::{Source, Started};
use component::state::States;
use journal::{DataFolder, Options, Outbox};
use message::{Fault, Reply, Request};
use testkit::{TempDir, wait_until};

use super::DEFINITION;
use crate::store::Depot;
use crate::under_way::testing::{Clock, FakeFlow, Running, assert_problems, build, measure};

const SECOND: Duration = Duration::from_secs(1);

/// A folder with a source on it and a clock that the test moves.
struct Place {
    folder: TempDir,
    states: States,
    clock: Clock,
    settings: String,
    /// Sources, which keep their states.
    kept: RefCell<Vec<Arc<dyn Source>>>,
}

impl Place {
    /// `settings` stand behind the folder's name.
    fn new(settings: &str) -> Self {
        Self {
            folder: TempDir::new(),
            states: States::default(),
            clock: Clock::at("2026-01-02T03:04:05Z"),
            settings: format!("watch: false{settings}"),
            kept: RefCell::default(),
        }
    }

    fn source(&self) -> Arc<dyn Source> {
        let folder = self.path("").display().to_string();
        let folder = folder.trim_end_matches('/');
        let yaml = format!("{{ folder: \"{folder}\", {} }}", self.settings);
        let source = build(&DEFINITION, &yaml, &self.states);
        let source = source.unwrap_or_else(|problems| panic!("{yaml}: {problems:?}"));
        self.kept.borrow_mut().push(Arc::clone(&source));
        source
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("in").join(name)
    }

    fn put(&self, name: &str, text: &str) {
        self.folder.write(&format!("in/{name}"), text);
    }

    /// The names in a folder, hidden ones left out.
    fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else {
            return Vec::new();
        };
        let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn measure(&self, name: &str) -> f64 {
        measure(&self.states, name)
    }
}

fn parameter(request: &Request, name: &str) -> String {
    let mut parameters = request.parameters.iter();
    let found = parameters.find(|(known, _)| **known == *name);
    found.map(|(_, text)| text.clone()).unwrap_or_default()
}

fn names(flow: &FakeFlow) -> Vec<String> {
    flow.told(|request| parameter(request, "name"))
}

/// Runs a source on its folder for a while and stops it.
fn run(place: &Place, flow: &Arc<FakeFlow>, time: Duration) {
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    running.advance(time);
    running.stop();
    assert!(running.has_ended);
}

#[test]
fn a_file_becomes_a_message_and_goes_to_done() {
    let place = Place::new("");
    let flow = FakeFlow::good();
    place.put("å b.json", "{}");
    let file = File::options().append(true).open(place.path("å b.json"));
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_268_925);
    file.unwrap().set_modified(time).unwrap();
    run(&place, &flow, 3 * SECOND);
    let requests = flow.requests.lock().unwrap();
    let request = &requests[0];
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("FILE", "/%C3%A5%20b.json")
    );
    assert_eq!(parameter(request, "name"), "%C3%A5%20b.json");
    assert_eq!(parameter(request, "size"), "2");
    assert_eq!(parameter(request, "modified"), "2026-01-01T12:02:05Z");
    assert_eq!(
        request.headers.get("content-type"),
        Some(&b"application/json"[..])
    );
    assert_eq!(request.body.as_bytes(), b"{}");
    assert_eq!(requests.len(), 1);
    assert_eq!(place.names(""), [""; 0]);
    assert_eq!(place.names(".done"), ["å b.json"]);
    assert_eq!(place.names(".processing"), [""; 0]);
}

#[test]
fn a_flow_that_fails_sends_its_file_to_failed_and_says_why() {
    let place = Place::new("");
    let flow = FakeFlow::new(|request| match request.body.as_bytes() {
        b"fault" => {
            let mut fault = Fault::invalid("no order").with_cause("line 7");
            fault.step = Some("2 (http)".into());
            Err(fault)
        }
        b"reply" => Ok(Reply::with_content(409, "text/plain", b"taken\n".to_vec())),
        _ => Ok(Reply::new(399)),
    });
    for text in ["fault", "reply", "good"] {
        place.put(&format!("{text}.txt"), text);
    }
    run(&place, &flow, 3 * SECOND);
    assert_eq!(place.names(".done"), ["good.txt"]);
    let failed = [
        "fault.txt",
        "fault.txt.error.json",
        "reply.txt",
        "reply.txt.error.json",
    ];
    assert_eq!(place.names(".failed"), failed);
    let why = |name: &str| -> serde_json::Value {
        serde_json::from_str(&place.text(&format!(".failed/{name}.error.json"))).unwrap()
    };
    assert_eq!(
        why("fault.txt"),
        serde_json::json!({
            "kind": "invalid", "status": 400, "step": "2 (http)",
            "message": "no order", "cause": "line 7", "attempts": 1
        })
    );
    assert_eq!(
        why("reply.txt"),
        serde_json::json!({
            "kind": "4xx", "status": 409, "step": null,
            "message": "the flow replied with status 409", "cause": "taken", "attempts": 1
        })
    );
    assert_eq!(place.measure("source_succeeded_total"), 1.0);
    assert_eq!(place.measure("source_dead_letters_total"), 2.0);
    assert_eq!(place.measure("file_errors_total"), 0.0);
}

/// A flow that fails so many times.
fn failing(times: usize) -> Arc<FakeFlow> {
    let left = AtomicUsize::new(times);
    FakeFlow::new(move |_| {
        let failures = left.load(Ordering::Relaxed);
        left.store(failures.saturating_sub(1), Ordering::Relaxed);
        match failures {
            0 => Ok(Reply::new(200)),
            _ => Err(Fault::of_status(503)),
        }
    })
}

#[test]
fn a_file_is_retried_where_that_is_wanted() {
    let place = Place::new(", retry: { times: 2, delay: 10s, backoff: 1, jitter: 0% }");
    let flow = failing(2);
    place.put("a", "1");
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    running.advance(15 * SECOND);
    assert_eq!(flow.begun(), 2);
    assert_eq!(place.names(".processing"), ["a"]);
    running.advance(10 * SECOND);
    assert_eq!(flow.begun(), 3);
    assert_eq!(place.names(".done"), ["a"]);
    let counted = ["succeeded", "failed", "retried", "dead_letters"]
        .map(|it| place.measure(&format!("source_{it}_total")));
    assert_eq!(counted, [1.0, 2.0, 2.0, 0.0]);
}

#[test]
fn a_failed_file_goes_to_the_folder_that_is_named() {
    let place = Place::new("");
    let elsewhere = TempDir::new();
    let failed = elsewhere.path().join("failed");
    let settings = format!(
        "{}, retry: {{ times: 1, delay: 1s }}, dead_letter: {{ folder: \"{}\" }}",
        place.settings,
        failed.display()
    );
    let place = Place { settings, ..place };
    place.put("a", "1");
    run(&place, &failing(9), 5 * SECOND);
    assert_eq!(fs::read_to_string(failed.join("a")).unwrap(), "1");
    let why = fs::read_to_string(failed.join("a.error.json")).unwrap();
    assert!(why.contains("\"attempts\": 2"), "{why}");
    assert!(!place.path(".failed").exists());
}

#[test]
fn a_failed_file_is_dropped_where_that_is_wanted() {
    let place = Place::new(", dead_letter: drop");
    place.put("a", "1");
    run(&place, &failing(9), 3 * SECOND);
    assert_eq!(place.names(".done"), ["a"]);
    assert!(!place.path(".failed").exists());
    assert_eq!(place.measure("source_dropped_total"), 1.0);
    assert_eq!(place.measure("source_dead_letters_total"), 0.0);
}

#[test]
fn a_failed_file_stops_a_source_that_is_to_stop() {
    let place = Place::new(", dead_letter: stop");
    let flow = failing(1);
    place.put("a", "1");
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    running.advance(2 * SECOND);
    place.put("b", "2");
    running.advance(600 * SECOND);
    assert_eq!(flow.begun(), 1);
    assert_eq!(place.names(".processing"), ["a"]);
    assert_eq!(place.names(""), ["b"]);
    assert!(!running.has_ended, "it waits until it is stopped");
    running.stop();
    assert!(running.has_ended);
    drop(running);
    run(&place, &flow, 3 * SECOND);
    assert_eq!(names(&flow), ["a", "a", "b"]);
    assert_eq!(place.names(".done"), ["a", "b"]);
}

#[test]
fn a_file_that_waits_for_a_retry_does_not_hold_up_a_stop() {
    let place = Place::new(", retry: { times: 9, delay: 1h }");
    let flow = failing(1);
    place.put("a", "1");
    run(&place, &flow, 3 * SECOND);
    assert_eq!(place.names(".processing"), ["a"]);
    run(&place, &flow, 3 * SECOND);
    assert_eq!(names(&flow), ["a", "a"]);
    assert_eq!(place.names(".done"), ["a"]);
}

#[test]
fn a_failed_file_is_moved_on_when_it_is_durable_in_a_store() {
    let place = Place::new(", dead_letter: { store: failed-files }");
    let flow = failing(1);
    place.put("a", "1");
    place.put("b", "2");
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    // The store is not open yet.
    running.advance(60 * SECOND);
    assert_eq!(names(&flow), ["a"], "no other is begun meanwhile");
    assert_eq!(place.names(".processing"), ["a"]);
    assert_eq!(place.measure("source_blocked"), 1.0);
    let data = TempDir::new();
    let folder = DataFolder::take(&data.path().join("data")).unwrap();
    let outbox = Outbox::open(folder.store().unwrap(), Options::default()).unwrap();
    Depot::of(&place.states).open(outbox.clone());
    wait_until("both are done", || {
        running.advance(SECOND / 10);
        place.names(".done") == ["a", "b"]
    });
    assert_eq!(names(&flow), ["a", "b"]);
    assert_eq!(outbox.stats("failed-files").waiting, 1);
    assert_eq!(place.measure("source_blocked"), 0.0);
    assert_eq!(place.measure("source_dead_letters_total"), 1.0);
    running.stop();
    assert!(running.has_ended);
    outbox.close();
}

#[test]
fn nothing_is_written_over_another_file() {
    let place = Place::new("");
    let flow = FakeFlow::new(|request| match request.body.as_bytes() {
        b"bad" => Err(Fault::invalid("no")),
        _ => Ok(Reply::new(200)),
    });
    for (name, text) in [
        (".done/a.json", "old"),
        (".done/a.20260102T030405Z.json", "old too"),
        (".failed/b.error.json", "old"),
        (".failed/b.json.error.json", "not ours"),
        ("a.json", "new"),
        ("b.json", "bad"),
    ] {
        place.put(name, text);
    }
    run(&place, &flow, 2 * SECOND);
    assert_eq!(place.text(".done/a.json"), "old");
    assert_eq!(place.text(".done/a.20260102T030405Z.json"), "old too");
    let third = place
        .names(".done")
        .into_iter()
        .find(|it| it.contains("-2"))
        .unwrap();
    assert_eq!(place.text(&format!(".done/{third}")), "new");
    assert_eq!(place.text(".failed/b.json.error.json"), "not ours");
    let names = place.names(".failed");
    let moved: Vec<&String> = names.iter().filter(|it| it.starts_with("b.2026")).collect();
    assert_eq!(moved.len(), 2, "{names:?}");
    assert_eq!(place.text(&format!(".failed/{}", moved[0])), "bad");
}

#[test]
fn a_file_is_taken_when_it_has_stayed_the_same() {
    let place = Place::new(", stable: 2s, every: 500ms");
    let flow = FakeFlow::good();
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    place.put("a.txt", "1");
    for text in ["12", "123", "1234"] {
        running.advance(Duration::from_millis(1600));
        place.put("a.txt", text);
    }
    running.advance(Duration::from_millis(1900));
    assert_eq!((flow.begun(), place.measure("file_waiting")), (0, 1.0));
    running.advance(SECOND);
    assert_eq!(flow.told(|it| it.body.as_bytes().to_vec()), [b"1234"]);
    assert_eq!(place.measure("file_waiting"), 0.0);
}

#[test]
fn some_names_and_all_that_is_no_file_are_left_alone() {
    let place = Place::new(", pattern: \"*.{json,part,TMP}\", stable: 0s");
    let flow = FakeFlow::good();
    let left = [
        ".hidden.json",
        "a.part",
        "a.TMP",
        "a.xml",
        "folder.json/a.json",
    ];
    for name in left {
        place.put(name, "");
    }
    place.folder.write("elsewhere.json", "secret");
    let elsewhere = place.folder.path().join("elsewhere.json");
    std::os::unix::fs::symlink(elsewhere, place.path("link.json")).unwrap();
    place.put("taken.json", "1");
    run(&place, &flow, 5 * SECOND);
    assert_eq!(names(&flow), ["taken.json"]);
    for name in left {
        assert!(place.path(name).exists(), "{name}");
    }
    assert!(place.path("link.json").is_symlink());
}

#[test]
fn a_thousand_files_come_in_order() {
    let place = Place::new(", delete: true");
    let flow = FakeFlow::good();
    let expected: Vec<String> = (0..1000).map(|number| format!("{number:04}.txt")).collect();
    for name in expected.iter().rev() {
        place.put(name, name);
    }
    run(&place, &flow, 3 * SECOND);
    assert_eq!(names(&flow), expected);
    assert_eq!(place.measure("source_succeeded_total"), 1000.0);
    assert!(!place.path(".done").exists(), "they are deleted");
    assert_eq!(place.names(""), [""; 0]);
}

#[test]
fn the_oldest_comes_first_when_time_decides() {
    let place = Place::new(", order: time");
    let flow = FakeFlow::good();
    for (name, seconds) in [("a", 30), ("b", 10), ("c", 20)] {
        place.put(name, "");
        let file = File::options().append(true).open(place.path(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + seconds * SECOND)
            .unwrap();
    }
    run(&place, &flow, 3 * SECOND);
    assert_eq!(names(&flow), ["b", "c", "a"]);
}

#[test]
fn so_many_files_are_under_way_and_a_stop_waits_for_them() {
    let place = Place::new(", concurrent: 3");
    let flow = FakeFlow::good();
    flow.allow(0);
    for number in 0..5 {
        place.put(&format!("{number}"), "");
    }
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    running.advance(5 * SECOND);
    assert_eq!((flow.under_way(), place.measure("file_waiting")), (3, 2.0));
    assert_eq!(place.names(".processing"), ["0", "1", "2"]);
    flow.allow(1);
    running.advance(SECOND);
    assert_eq!((flow.under_way(), flow.begun()), (3, 4));
    running.stop();
    running.advance(60 * SECOND);
    assert!(!running.has_ended);
    flow.allow(9);
    running.poll();
    assert!(running.has_ended);
    assert_eq!(place.names(".done"), ["0", "1", "2", "3"]);
    assert_eq!(place.names(""), ["4"]);
}

#[test]
fn what_a_crash_has_left_is_taken_up_again_and_what_others_work_on_is_not() {
    let place = Place::new("");
    let flow = FakeFlow::good();
    place.put(".processing/left.txt", "left");
    place.put(".processing/other.txt", "other");
    place.put("new.txt", "new");
    let other = File::open(place.path(".processing/other.txt")).unwrap();
    other.lock().unwrap();
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    running.advance(5 * SECOND);
    assert_eq!(names(&flow), ["left.txt", "new.txt"]);
    drop(other);
    running.advance(3 * SECOND);
    assert_eq!(
        names(&flow)[2..],
        ["other.txt"],
        "its engine has crashed since"
    );
    assert_eq!(place.names(".done").len(), 3);
    assert_eq!(place.measure("file_errors_total"), 0.0);
}

#[test]
fn two_engines_share_a_folder() {
    let place = Place::new(", concurrent: 2");
    let (one, two) = (FakeFlow::good(), FakeFlow::good());
    let all: Vec<String> = (0..50).map(|number| format!("{number:02}")).collect();
    all.iter().for_each(|name| place.put(name, name));
    let (source, other) = (place.source(), place.source());
    let (a, b): (Arc<dyn Started>, Arc<dyn Started>) = (one.clone(), two.clone());
    one.allow(0);
    two.allow(0);
    let mut first = Running::start(&source, &a, &place.clock);
    let mut second = Running::start(&other, &b, &place.clock);
    for round in 1..=40 {
        first.advance(SECOND);
        second.advance(SECOND);
        one.allow(round);
        two.allow(round);
    }
    let mut found = [names(&one), names(&two)].concat();
    assert!(
        one.begun() > 5 && two.begun() > 5,
        "{} {}",
        one.begun(),
        two.begun()
    );
    found.sort();
    assert_eq!(found, all);
    assert_eq!(place.names(".done"), all);
}

#[test]
fn a_second_file_of_a_name_waits_for_the_first() {
    let place = Place::new(", concurrent: 4");
    let flow = FakeFlow::good();
    flow.allow(0);
    place.put("a", "first");
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    running.advance(2 * SECOND);
    place.put("a", "second");
    running.advance(5 * SECOND);
    assert_eq!(flow.begun(), 1);
    assert_eq!(place.text(".processing/a"), "first");
    flow.allow(9);
    running.advance(5 * SECOND);
    assert_eq!(
        flow.told(|it| it.body.as_bytes().to_vec()),
        [&b"first"[..], b"second"]
    );
    assert_eq!(place.names(".done").len(), 2);
}

#[test]
fn a_file_that_cannot_be_moved_on_is_kept_and_its_flow_does_not_run_again() {
    let place = Place::new("");
    let done = place.path(".done");
    let block = done.clone();
    let is_first = AtomicBool::new(true);
    let flow = FakeFlow::new(move |_| {
        // A file in the place of the folder: nothing can be moved there.
        if is_first.swap(false, Ordering::Relaxed) {
            fs::remove_dir(&block).unwrap();
            fs::write(&block, "").unwrap();
        }
        Ok(Reply::new(200))
    });
    place.put("a", "");
    place.put("b", "");
    run(&place, &flow, 20 * SECOND);
    assert_eq!(names(&flow), ["a"], "it holds its place");
    assert_eq!(place.names(".processing"), ["a"]);
    let errors = place.measure("file_errors_total");
    assert!((3.0..40.0).contains(&errors), "{errors}");
    // After a reload: the state is the same.
    fs::remove_file(&done).unwrap();
    run(&place, &flow, 5 * SECOND);
    assert_eq!(names(&flow), ["a", "b"]);
    assert_eq!(place.names(".done"), ["a", "b"]);
    assert_eq!(place.measure("source_succeeded_total"), 2.0);
}

#[test]
fn a_file_that_is_too_large_stays_and_is_looked_at_less_and_less_often() {
    let place = Place::new(", body_max: 4B");
    let flow = FakeFlow::good();
    place.put("large", "12345");
    place.put("small", "1234");
    run(&place, &flow, Duration::from_secs(3600));
    assert_eq!(names(&flow), ["small"]);
    assert_eq!(place.names(""), ["large"]);
    let errors = place.measure("file_errors_total");
    assert!((10.0..30.0).contains(&errors), "{errors}");
    place.put("large", "1");
    run(&place, &flow, 5 * SECOND);
    assert_eq!(names(&flow)[1..], ["large"]);
}

#[test]
fn a_folder_that_cannot_be_read_is_tried_again() {
    let place = Place::new("");
    let flow = FakeFlow::good();
    // A file in its place.
    place.folder.write("in", "");
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    running.advance(10 * SECOND);
    let errors = place.measure("file_errors_total");
    assert!((9.0..13.0).contains(&errors), "{errors}");
    fs::remove_file(place.path("")).unwrap_or_else(|_| {
        fs::remove_file(place.folder.path().join("in")).unwrap();
    });
    running.advance(2 * SECOND);
    assert!(place.path("").is_dir(), "made when it is missing");
    place.put("a", "");
    running.advance(3 * SECOND);
    assert_eq!(names(&flow), ["a"]);
    fs::remove_dir_all(place.path("")).unwrap();
    running.advance(2 * SECOND);
    place.put("b", "");
    running.advance(3 * SECOND);
    assert_eq!(names(&flow), ["a", "b"]);
}

#[test]
fn a_file_that_vanishes_is_no_error() {
    let place = Place::new("");
    let flow = FakeFlow::new({
        let under_way = place.path(".processing/b");
        move |_| {
            let _ = fs::remove_file(&under_way);
            Ok(Reply::new(200))
        }
    });
    place.put("a", "");
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    running.advance(Duration::from_millis(200));
    fs::remove_file(place.path("a")).unwrap();
    place.put("b", "");
    running.advance(3 * SECOND);
    assert_eq!(names(&flow), ["b"]);
    assert_eq!(place.measure("file_errors_total"), 0.0);
}

#[test]
fn a_change_is_noticed_before_the_next_look() {
    let place = Place::new(", every: 1h, stable: 0s");
    let mut settings = place.settings.clone();
    settings = settings.replace("watch: false", "watch: true");
    let place = Place { settings, ..place };
    let flow = FakeFlow::good();
    let source = place.source();
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &place.clock);
    running.advance(SECOND);
    place.put("a", "1");
    wait_until("it is noticed", || {
        running.advance(Duration::from_millis(100));
        flow.begun() == 1
    });
}

#[test]
fn a_source_says_how_its_files_are_read() {
    let place = Place::new(", decode: csv");
    assert_eq!(place.source().decode(), Some(Format::Csv));
    let flow = FakeFlow::good();
    place.put("a.txt", "x\n1\n");
    run(&place, &flow, 3 * SECOND);
    let types = flow.told(|it| it.headers.get("content-type").map(<[u8]>::to_vec));
    assert_eq!(types, [Some(b"text/csv".to_vec())]);
    assert_eq!(Place::new("").source().decode(), None);
}

#[test]
fn files_go_to_folders_elsewhere() {
    let place = Place::new("");
    let elsewhere = TempDir::new();
    let done = elsewhere.path().join("a/b");
    let settings = format!("{}, done: \"{}\"", place.settings, done.display());
    let place = Place { settings, ..place };
    let flow = FakeFlow::good();
    place.put("a", "1");
    run(&place, &flow, 3 * SECOND);
    assert_eq!(fs::read_to_string(done.join("a")).unwrap(), "1");
}

#[test]
fn files_go_to_another_file_system() {
    let elsewhere = TempDir::elsewhere();
    let other = elsewhere.path();
    let place = Place::new("");
    let settings = format!("{}, done: \"{}\"", place.settings, other.display());
    let place = Place { settings, ..place };
    let flow = FakeFlow::good();
    fs::write(other.join("a"), "old").unwrap();
    place.put("a", "new");
    run(&place, &flow, 3 * SECOND);
    let mut names: Vec<_> = fs::read_dir(other)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    names.sort();
    let texts: Vec<String> = names
        .iter()
        .map(|it| fs::read_to_string(it).unwrap())
        .collect();
    assert_eq!(texts, ["old", "new"], "{names:?}");
    assert_eq!(place.names(".processing"), [""; 0]);
}

#[test]
fn what_cannot_be_is_refused() {
    assert_problems(
        &DEFINITION,
        &[
            ("5", &["IT0112 1:1"]),
            ("\"\"", &["IT0284 1:1 `folder` is empty"]),
            (
                "{ folder: a, done: ./b/../a/. }",
                &["IT0284 1:20 `done` is the folder itself"],
            ),
            (
                "{ folder: a, dead_letter: { folder: a/.processing/x } }",
                &["IT0284 1:37 `dead_letter.folder` is where files are while flows run on them"],
            ),
            (
                "{ folder: a, dead_letter: { folder: ./b/../a } }",
                &["IT0284 1:37 `dead_letter.folder` is the folder itself"],
            ),
            ("{ folder: a, failed: b }", &["IT0111 1:14"]),
            (
                "{ folder: a, dead_letter: { store: a b } }",
                &["IT0490 1:36 `a b` is no name of a store"],
            ),
            (
                "{ folder: a, retry: { on: [] } }",
                &["IT0492 1:27 no failure is named"],
            ),
            ("{ folder: a, retry: { times: 1000001 } }", &["IT0115 1:30"]),
            (
                "{ folder: a, done: b, delete: true }",
                &["IT0283 1:20 `done` has no effect: `delete` is true"],
            ),
            (
                "{ folder: a, pattern: \"*.part\" }",
                &["IT0285 1:23 `*.part` fits no file that is taken"],
            ),
            (
                "{ folder: a, every: 10ms, stable: 2h, concurrent: 0, body_max: 2GiB }",
                &[
                    "IT0282 1:21 `every` is 10ms, out of its range",
                    "IT0282 1:35 `stable` is 2h, out of its range",
                    "IT0282 1:51 `concurrent` is 0, out of its range",
                    "IT0282 1:64 `body_max` is 2GiB, out of its range",
                ],
            ),
        ],
    );
}
