//! What clients print is read right, so that nothing that failed counts as passed.

use super::bench::{Kind, Protocol};
use super::h2::Reading;
use super::report::Report;
use super::run::Ran;
use super::{CHECKS, h2, options, scripts, topics};

fn printed(text: &str, succeeded: bool) -> Ran {
    Ran {
        succeeded,
        stdout: text.into(),
        stderr: String::new(),
    }
}

#[test]
fn failures_of_h2spec_are_told() {
    let shown = Reading {
        detailed: true,
        beside_h1: false,
    };
    let good = "Finished in 1 s\n145 tests, 144 passed, 1 skipped, 0 failed\n";
    let note = h2::suites(&printed(good, true), shown).unwrap();
    assert_eq!(note, "145 tests, 144 passed, 1 skipped, 0 failed");
    assert!(h2::suites(&printed(good, false), shown).is_err());
    assert!(h2::suites(&printed("cannot connect", true), shown).is_err());
    let count = "145 tests, 135 passed, 0 skipped, 10 failed";
    let bad = printed(&format!("Failures: \n\n  x 1: Sends\n\n{count}\n"), false);
    let reason = h2::suites(&bad, shown).unwrap_err();
    assert_eq!(reason.to_string(), format!("{count}\n  x 1: Sends"));
    let reason = h2::suites(&bad, Reading::default()).unwrap_err();
    assert_eq!(reason.to_string(), format!("{count}\n"));
}

#[test]
fn only_one_failure_of_h2spec_is_excused_and_only_beside_http1() {
    let text = "Failures:\n x 2: Sends invalid connection preface\n Actual: unexpected EOF, note \
                that the frame header looked like an HTTP/1.1 header\n145 tests, 1 failed\n";
    let outcome = |text: &str, beside_h1| {
        let reading = Reading {
            detailed: true,
            beside_h1,
        };
        h2::suites(&printed(text, false), reading)
    };
    assert!(outcome(text, true).is_ok());
    assert!(outcome(text, false).is_err());
    assert!(outcome(&text.replace("1 failed", "2 failed"), true).is_err());
    assert!(outcome(&text.replace("1 failed", "11 failed"), true).is_err());
    assert!(outcome(&text.replace("preface", "frame"), true).is_err());
}

#[test]
fn h2load_must_succeed_10000_times_by_the_right_protocol() {
    let kind = Kind {
        name: "h2 TLS",
        port: 1,
        is_tls: true,
        protocol: Protocol::H2,
    };
    let text = "Application protocol: h2\nfinished in 1s, 2 req/s, 3MB/s\nrequests: 10000 total, \
                10000 succeeded, 0 failed, 0 errored, 0 timeout\nstatus codes: 10000 2xx, 0 3xx\n";
    let note = h2::load(&printed(text, true), &kind).unwrap();
    assert_eq!(note, "finished in 1s, 2 req/s, 3MB/s");
    for (good, bad) in [
        ("l: h2", "l: http/1.1"),
        ("0 errored", "1 errored"),
        ("10000 2xx", "9999 2xx"),
    ] {
        let text = text.replace(good, bad);
        assert!(h2::load(&printed(&text, true), &kind).is_err(), "{bad}");
    }
}

#[test]
fn lines_of_scripts_are_counted() {
    let count = |text: &str, succeeded| {
        let mut report = Report::default();
        scripts::lines(&mut report, "client", &printed(text, succeeded));
        (report.passed, report.failed)
    };
    assert_eq!(count("ok a\nFAILED b: why\nnoise\nok c\n", true), (2, 1));
    assert_eq!(count("ok a\n", false), (1, 1));
    assert_eq!(count("", true), (0, 1));
}

#[test]
fn the_page_tells_its_result() {
    let page = |text: &str| printed(&format!("<p id=\"result\">{text}</p>"), true);
    assert!(scripts::page_result(&page("done 20 h2"), "h2").is_ok());
    assert!(scripts::page_result(&page("done 19 h2"), "h2").is_err());
    assert!(scripts::page_result(&page("done 20 http/1.1"), "h2").is_err());
    assert!(scripts::page_result(&printed("", true), "h2").is_err());
}

#[test]
fn subscribers_are_counted_by_topic() {
    let metrics = "# TYPE intertie_topic_subscribers gauge\n\
                   intertie_topic_subscribers{flow=\"\",step=\"tenths\"} 1.0\n\
                   intertie_topic_subscribers_refused_total{flow=\"\",step=\"events\"} 7.0\n\
                   intertie_topic_subscribers{flow=\"\",step=\"events\"} 5.0\n";
    assert_eq!(topics::subscribers(metrics, "events"), Some(5.0));
    assert_eq!(topics::subscribers(metrics, "tenths"), Some(1.0));
    assert_eq!(topics::subscribers(metrics, "none"), None);
}

#[test]
fn a_receipt_says_whether_the_event_is_new() {
    let receipt = |text: &str, succeeded| topics::receipt(&printed(text, succeeded));
    assert!(receipt(r#"{"id":"3f-1","new":true}"#, true).unwrap());
    assert!(!receipt(r#"{"id":"3f-1","new":false}"#, true).unwrap());
    assert!(receipt(r#"{"id":"3f-1","new":true}"#, false).is_err());
    assert!(receipt("", true).is_err());
}

#[test]
fn unknown_checks_are_refused() {
    let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert!(options(&words(&["--haproxy", "curl"])).is_ok_and(|it| it.checks.len() == 1));
    assert!(options(&[]).is_ok_and(|it| it.checks.len() == CHECKS.len()));
    assert!(options(&words(&["wget"])).is_err());
    let sized = options(&words(&["peers", "--size", "10M"]));
    assert!(sized.is_ok_and(|it| it.extent.size == 10_000_000 && !it.extent.full));
    assert!(options(&words(&["peers", "--size"])).is_err());
    let part = |text| options(&words(&["peers", "--part", text])).map(|it| it.extent.part);
    assert!(part("2/6").is_ok_and(|it| it == (2, 6)));
    for wrong in ["", "2", "0/6", "7/6", "a/6"] {
        assert!(part(wrong).is_err(), "{wrong}");
    }
}
