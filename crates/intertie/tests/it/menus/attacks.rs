//! What an attacker, or a gateway that is broken, can do to sessions; and a disk that is full.

use std::time::Instant;

use super::*;
use crate::support::library;

const START: &str = "CON Airtime\n1. Buy\n0. Exit";
const OVER: &str = "END The session is over. Please dial again.";

impl Place {
    /// One whose menu has these `sessions`.
    fn with_sessions(sessions: &str) -> Self {
        let place = Self::new("africas-talking", Duration::ZERO);
        let text = menu(place.port, place.backend.port(), "africas-talking");
        let text = text.replace("languages:", &format!("sessions: {sessions}\nlanguages:"));
        place.folder.write("flows/menu.yaml", &text);
        place
    }
}

#[test]
fn endless_sessions_of_one_number_leave_room_for_others() {
    let place = Place::with_sessions("{ max: 10 }");
    let engine = place.run();
    let other = "%2B254711000002";
    assert_eq!(place.send("s1", other, ""), START);
    for number in 0..30 {
        place.send(&format!("f{number}"), NUMBER, "");
    }
    // One of the other number, and as many of this one as there may be.
    let count = || engine.measured("intertie_menu_sessions", &[]);
    let are_forgotten = || count().is_some_and(|it| it <= 5.0);
    testkit::wait_until("the oldest are forgotten", are_forgotten);
    assert_eq!(place.send("s1", other, "1"), "CON How much?");
    assert_eq!(place.send("s1", "%2B254711000003", ""), START);
    assert_eq!(place.send("f0", NUMBER, "1"), OVER);
    assert_eq!(place.send("last", NUMBER, ""), START);
    assert_eq!(place.send("last", NUMBER, "1"), "CON How much?");
    engine.stop();
}

/// More of them begin than can be noted one by one.
#[test]
fn a_flood_of_dials_of_one_number_is_noted_as_it_comes() {
    let place = Place::with_sessions("{ max: 1000 }");
    let engine = place.run();
    let other = "%2B254711000002";
    assert_eq!(place.send("s1", other, ""), START);
    thread::scope(|scope| {
        for thread in 0..8 {
            let place = &place;
            scope.spawn(move || {
                for number in 0..50 {
                    let session = format!("f{thread}-{number}");
                    assert_eq!(place.send(&session, NUMBER, ""), START);
                }
            });
        }
    });
    let count = || engine.measured("intertie_menu_sessions", &[]);
    let are_forgotten = || count().is_some_and(|it| it <= 5.0);
    testkit::wait_until("the oldest are forgotten", are_forgotten);
    assert_eq!(place.send("s1", other, "1"), "CON How much?");
    engine.stop();
}

#[test]
fn a_dial_ends_the_session_before_where_there_may_be_one() {
    let place = Place::with_sessions("{ per_subscriber: 1 }");
    let mut engine = place.run();
    place.send("s1", NUMBER, "");
    assert_eq!(place.send("s1", NUMBER, "1"), "CON How much?");
    assert_eq!(place.send("s2", NUMBER, ""), START);
    let is_over = |session: &str| place.send(session, NUMBER, "1*50") == OVER;
    testkit::wait_until("the first one is forgotten", || is_over("s1"));
    assert_eq!(place.send("s2", NUMBER, "1"), "CON How much?");
    // Which sessions there are is known after a crash, too.
    engine.process.signal("KILL");
    engine.process.wait();
    engine = place.run();
    assert_eq!(place.send("s3", NUMBER, ""), START);
    testkit::wait_until("the second one is forgotten", || is_over("s2"));
    assert_eq!(place.send("s3", NUMBER, "1"), "CON How much?");
    engine.stop();
    for sessions in ["{ per_subscriber: 0 }", "{ per_subscriber: 101 }"] {
        let place = Place::with_sessions(sessions);
        let (status, report) = checked(&place.folder.path().join("flows/menu.yaml"));
        assert_eq!(status, Some(1), "{sessions}\n{report}");
    }
}

/// A text may hold a `*`, which also stands between inputs: that of a PIN must not become part of
/// the text that was asked for before it.
#[test]
fn a_pin_behind_a_request_that_was_lost_becomes_no_text() {
    let place = Place::new("africas-talking", Duration::ZERO);
    let text = format!(
        r##"
menu: names
from: {{ ussd: {{ http: "POST 127.0.0.1:{}/ussd", gateway: africas-talking, codes: {{ "*123#": name }} }} }}
languages: [en]
screens:
  name:
    text: Name?
    input: {{ as: name, text: {{ max: 40 }}, tries: 2 }}
    go: pin
  pin:
    text: "PIN, ${{ $name }}?"
    input: {{ as: pin, pin: {{ digits: 6 }} }}
    go: done
  done: {{ text: "Thanks, ${{ $name }}.", end: true }}
"##,
        place.port
    );
    place.folder.write("flows/menu.yaml", &text);
    let engine = place.run();
    let send = |text: &str| place.send("s1", NUMBER, text);
    assert_eq!(send(""), "CON Name?");
    // What the phone showed in between was of a request that the engine does not know of.
    let again = "CON Please try again.\nName?";
    assert_eq!(send("Anna*918273"), again);
    assert_eq!(send("Anna*918273"), again, "the request again");
    // The screen has refused nothing: there are two tries left.
    assert_eq!(send("Anna*918273*Anna*918273"), again);
    assert_eq!(send("Anna*918273*Anna*918273*"), again, "an empty name");
    let typed = "Anna*918273*Anna*918273**Anna";
    assert_eq!(send(typed), "CON PIN, Anna?");
    let end = format!("{typed}*918273");
    assert_eq!(send(&end), "END Thanks, Anna.");
    assert_eq!(send(&end), "END Thanks, Anna.", "the last request again");
    assert_eq!(place.files_with("918273"), Vec::<PathBuf>::new());
    let log = engine.stop();
    assert!(!log.contains("918273"), "{log}");
    assert_eq!(place.files_with("918273"), Vec::<PathBuf>::new());
    assert_ne!(place.files_with("Anna"), Vec::<PathBuf>::new());
}

/// What an expression fails on is part of its message.
#[test]
fn a_condition_that_fails_on_a_pin_does_not_show_it() {
    let place = Place::new("africas-talking", Duration::ZERO);
    let text = format!(
        r##"
menu: pins
from: {{ ussd: {{ http: "POST 127.0.0.1:{}/ussd", gateway: africas-talking, codes: {{ "*123#": pin }} }} }}
languages: [en]
screens:
  pin:
    text: PIN?
    input: {{ as: pin, pin: {{ digits: 6 }}, where: 'if . == "111111" then false else .x == 1 end' }}
    go: done
  done: {{ text: "Thanks.", end: true }}
"##,
        place.port
    );
    place.folder.write("flows/menu.yaml", &text);
    let engine = place.run();
    assert_eq!(place.send("s1", NUMBER, ""), "CON PIN?");
    assert_eq!(
        place.send("s1", NUMBER, "111111"),
        "CON Please try again.\nPIN?"
    );
    let reply = place.send("s1", NUMBER, "111111*918273");
    assert!(reply.starts_with("END "), "{reply}");
    let log = engine.stop();
    assert!(log.contains("cannot index"), "{log}");
    assert!(!log.contains("918273"), "{log}");
    assert_eq!(place.files_with("918273"), Vec::<PathBuf>::new());
}

/// Where nothing is secret, a text may hold a `*`.
#[test]
fn texts_with_a_star_are_taken_by_menus_without_a_pin() {
    let place = Place::new("africas-talking", Duration::ZERO);
    let text = format!(
        r##"
menu: names
from: {{ ussd: {{ http: "POST 127.0.0.1:{}/ussd", gateway: africas-talking, codes: {{ "*123#": name }} }} }}
languages: [en]
screens:
  name:
    text: Name?
    input: {{ as: name, text: {{ max: 40 }} }}
    go: done
  done: {{ text: "Thanks, ${{ $name }}.", end: true }}
"##,
        place.port
    );
    place.folder.write("flows/menu.yaml", &text);
    let engine = place.run();
    assert_eq!(place.send("s1", NUMBER, ""), "CON Name?");
    assert_eq!(place.send("s1", NUMBER, "A*B"), "END Thanks, A*B.");
    engine.stop();
}

/// As long as the file `$FULL` is there, nothing is written to the files of keyed state.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
static int is_full(int fd) {
  char *full = getenv("FULL"), link[64], name[4096];
  if (!full || access(full, F_OK)) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, name, sizeof name - 1);
  if (length <= 0) return 0;
  name[length] = 0;
  return strstr(name, "/keyed.") != 0;
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  if (is_full(fd)) { errno = ENOSPC; return -1; }
  return syscall(SYS_pwrite64, fd, bytes, count, at);
}
"#;

#[test]
fn a_full_disk_does_not_fill_the_log() {
    let place = Place::new("africas-talking", Duration::ZERO);
    let library = library(&place.folder, SHIM);
    let [flows, data, full] = ["flows", "data", "full"].map(|it| place.folder.path().join(it));
    let text = |path: &Path| path.display().to_string();
    let variables = [("LD_PRELOAD", text(&library)), ("FULL", text(&full))];
    let variables = variables.each_ref().map(|it| (it.0, it.1.as_str()));
    let engine = Engine::run_in(&[&flows], &["--data", &text(&data)], &variables);
    place.send("s1", NUMBER, "");
    place.send("s1", NUMBER, "1");
    fs::write(&full, "").unwrap();
    let start = Instant::now();
    let failed = "END The service is not available. Please try again later.";
    for _ in 0..100 {
        assert_eq!(place.send("s1", NUMBER, "1*50"), failed);
    }
    let seconds = start.elapsed().as_secs() as usize;
    engine.process.wait_for("the session cannot be kept");
    let log = engine.process.output();
    // A line a second for each reason: it cannot be kept, or be read.
    let lines = log.matches("the session cannot be").count();
    assert!(lines <= 2 * (seconds + 2), "{lines} in {seconds} s\n{log}");
    let of_disk = log
        .matches("cannot be written; more failures are counted")
        .count();
    assert!((1..=2).contains(&of_disk), "{log}");
    fs::remove_file(&full).unwrap();
    let goes_on = || place.send("s1", NUMBER, "1*50") == "CON PIN for 50?";
    testkit::wait_until("the session goes on", goes_on);
    engine.stop();
}

/// 64 KiB are those of the values, however they are escaped where they are kept.
#[test]
fn variables_may_be_as_large_as_is_said() {
    let place = Place::new("africas-talking", Duration::ZERO);
    let text = format!(
        r##"
menu: sizes
from: {{ ussd: {{ http: "POST 127.0.0.1:{}/ussd", gateway: africas-talking, codes: {{ "*123#": size }} }} }}
languages: [en]
screens:
  size:
    text: Size?
    input: {{ as: size, number: {{ max: 100000 }} }}
    go: made
  made:
    do: [ {{ set: {{ quotes: '${{ "\"" * ($size | tonumber) }}' }} }} ]
    text: "Made."
    options: [ {{ text: Count, go: counted }} ]
  counted: {{ text: "${{ $quotes | length }}", end: true }}
"##,
        place.port
    );
    place.folder.write("flows/menu.yaml", &text);
    let engine = place.run();
    assert_eq!(place.send("s1", NUMBER, ""), "CON Size?");
    // Each is two bytes as JSON.
    assert_eq!(place.send("s1", NUMBER, "32000"), "CON Made.\n1. Count");
    assert_eq!(place.send("s1", NUMBER, "32000*1"), "END 32000");
    assert_eq!(place.send("s2", NUMBER, ""), "CON Size?");
    let failed = place.send("s2", NUMBER, "33000");
    assert!(failed.starts_with("END"), "{failed}");
    let log = engine.stop();
    assert!(
        log.contains("64 KiB") || log.contains("cannot be kept"),
        "{log}"
    );
}
