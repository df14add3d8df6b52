//! Schedules by a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use component::source::{Source, Started};
use component::state::States;
use message::{Fault, Reply, Request};

use super::DEFINITION;
use crate::under_way::testing::{Clock, FakeFlow, Running, assert_problems, build, measure};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn sound(yaml: &str, states: &States) -> Arc<dyn Source> {
    build(&DEFINITION, yaml, states).unwrap_or_else(|problems| panic!("{yaml}: {problems:?}"))
}

fn member(request: &Request, name: &str) -> String {
    let body: serde_json::Value = serde_json::from_slice(request.body.as_bytes()).unwrap();
    match &body[name] {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn scheduled(flow: &FakeFlow) -> Vec<String> {
    flow.told(|request| member(request, "scheduled"))
}

/// Runs a schedule from a time of day for a while: the times it was due at.
fn times(yaml: &str, from: &str, time: Duration) -> Vec<String> {
    let (states, clock, flow) = (States::default(), Clock::at(from), FakeFlow::good());
    let source = sound(yaml, &states);
    let started: Arc<dyn Started> = flow.clone();
    Running::start(&source, &started, &clock).advance(time);
    assert!(clock.longest.get() <= MINUTE, "the clock is looked at");
    let late = flow.told(|it| member(it, "started") != member(it, "scheduled"));
    assert!(!late.contains(&true), "all in time");
    scheduled(&flow)
}

#[test]
fn equal_times_are_counted_from_the_start() {
    let found = times("5m", "2026-01-01T12:01:30Z", 16 * MINUTE);
    let expected = [
        "2026-01-01T12:06:30Z",
        "2026-01-01T12:11:30Z",
        "2026-01-01T12:16:30Z",
    ];
    assert_eq!(found, expected);
    assert_eq!(times("100ms", "2026-01-01T12:00:00Z", SECOND).len(), 10);
    assert_eq!(
        times("{ every: 2h }", "2026-01-01T12:00:00Z", 7 * HOUR).len(),
        3
    );
}

#[test]
fn a_message_tells_of_its_run() {
    let (states, clock) = (States::default(), Clock::at("2026-01-01T12:00:00Z"));
    let flow = FakeFlow::good();
    let source = sound("{ every: 1m, jitter: 10s }", &states);
    let started: Arc<dyn Started> = flow.clone();
    clock.random.set(0.5);
    Running::start(&source, &started, &clock).advance(3 * MINUTE);
    let requests = flow.requests.lock().unwrap();
    let second = &requests[1];
    assert_eq!(
        (second.method.as_str(), second.path.as_str()),
        ("SCHEDULE", "/")
    );
    assert_eq!(
        second.headers.get("content-type"),
        Some(&b"application/json"[..])
    );
    let expected = "{\"scheduled\":\"2026-01-01T12:02:00Z\",\
                    \"started\":\"2026-01-01T12:02:05Z\",\"run\":2}";
    assert_eq!(String::from_utf8_lossy(second.body.as_bytes()), expected);
    assert_eq!(measure(&states, "schedule_runs_total"), 2.0);
    let last = measure(&states, "schedule_last_run");
    assert_eq!(last, 1_767_268_925.0, "2026-01-01T12:02:05Z");
    assert_eq!(measure(&states, "schedule_next_run"), last + 60.0);
}

#[test]
fn cron_goes_by_the_clock() {
    let found = times("\"*/5 * * * *\"", "2026-01-01T12:01:30Z", 10 * MINUTE);
    assert_eq!(found, ["2026-01-01T12:05:00Z", "2026-01-01T12:10:00Z"]);
    let found = times("\"*/20 59 23 31 12 *\"", "2026-12-31T20:00:00Z", 5 * HOUR);
    let expected = [
        "2026-12-31T23:59:00Z",
        "2026-12-31T23:59:20Z",
        "2026-12-31T23:59:40Z",
    ];
    assert_eq!(found, expected);
    let found = times("\"@daily\"", "2026-01-01T00:00:00Z", 49 * HOUR);
    assert_eq!(found, ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]);
    let found = times("\"0 9 * * MON-FRI\"", "2026-01-02T10:00:00Z", 72 * HOUR);
    assert_eq!(found, ["2026-01-05T09:00:00Z"]);
}

#[test]
fn a_zone_moves_the_times_of_day() {
    let stockholm = |cron: &str, from, hours| {
        let yaml = format!("{{ cron: \"{cron}\", zone: Europe/Stockholm }}");
        times(&yaml, from, hours * HOUR)
    };
    assert_eq!(
        stockholm("0 2 * * *", "2026-01-01T00:00:00Z", 24),
        ["2026-01-01T02:00:00+01:00"]
    );
    // On 29 March the clocks go from 2:00 to 3:00: what is skipped comes right behind.
    assert_eq!(
        stockholm("30 2 * * *", "2026-03-28T00:00:00Z", 72),
        [
            "2026-03-28T02:30:00+01:00",
            "2026-03-29T03:00:00+02:00",
            "2026-03-30T02:30:00+02:00"
        ]
    );
    assert_eq!(
        stockholm("*/30 * * * *", "2026-03-29T00:10:00Z", 1),
        ["2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00"]
    );
    // On 25 October they go from 3:00 to 2:00: what is there twice comes once.
    assert_eq!(
        stockholm("30 2 * * *", "2026-10-24T12:00:00Z", 48),
        ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]
    );
    assert_eq!(
        stockholm("*/30 2 * * *", "2026-10-24T12:00:00Z", 24),
        [
            "2026-10-25T02:00:00+02:00",
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T02:00:00+01:00",
            "2026-10-25T02:30:00+01:00"
        ]
    );
}

/// A schedule of one run a minute whose runs end when the test says so.
struct Slow {
    states: States,
    clock: Clock,
    flow: Arc<FakeFlow>,
    started: Arc<dyn Started>,
    source: Arc<dyn Source>,
}

impl Slow {
    fn new(overlap: &str) -> Self {
        let (states, flow) = (States::default(), FakeFlow::good());
        flow.allow(0);
        let yaml = format!("{{ every: 1m, overlap: {overlap} }}");
        let source = sound(&yaml, &states);
        Self {
            states,
            clock: Clock::at("2026-01-01T00:00:00Z"),
            started: flow.clone(),
            flow,
            source,
        }
    }

    fn run(&self) -> Running<'_> {
        Running::start(&self.source, &self.started, &self.clock)
    }

    fn skipped(&self) -> f64 {
        measure(&self.states, "schedule_skipped_total")
    }
}

#[test]
fn a_run_that_is_due_too_early_is_left_out() {
    let slow = Slow::new("skip");
    let mut running = slow.run();
    running.advance(3 * MINUTE + SECOND);
    assert_eq!((slow.flow.begun(), slow.skipped()), (1, 2.0));
    slow.flow.allow(1);
    running.poll();
    assert_eq!(slow.flow.begun(), 1, "nothing was kept");
    running.advance(MINUTE);
    assert_eq!(scheduled(&slow.flow)[1], "2026-01-01T00:04:00Z");
}

#[test]
fn one_run_may_be_queued() {
    let slow = Slow::new("queue");
    let mut running = slow.run();
    running.advance(4 * MINUTE + SECOND);
    assert_eq!((slow.flow.begun(), slow.skipped()), (1, 2.0));
    slow.flow.allow(1);
    running.poll();
    assert_eq!(scheduled(&slow.flow)[1], "2026-01-01T00:02:00Z");
    slow.flow.allow(2);
    running.poll();
    assert_eq!(slow.flow.under_way(), 0);
    running.advance(MINUTE);
    running.advance(MINUTE);
    assert_eq!(slow.flow.under_way(), 1, "and one is queued");
    running.stop();
    assert!(!running.has_ended);
    slow.flow.allow(9);
    running.poll();
    assert!(running.has_ended);
    assert_eq!(slow.flow.begun(), 3, "what was queued is left out");
}

#[test]
fn runs_may_be_beside_each_other_up_to_a_hundred() {
    let slow = Slow::new("allow");
    let mut running = slow.run();
    running.advance(103 * MINUTE);
    assert_eq!((slow.flow.under_way(), slow.skipped()), (100, 3.0));
    slow.flow.allow(50);
    running.advance(MINUTE);
    assert_eq!(slow.flow.under_way(), 51);
    running.stop();
    running.advance(HOUR);
    assert_eq!((slow.flow.under_way(), running.has_ended), (51, false));
    slow.flow.allow(1000);
    running.poll();
    assert!(running.has_ended);
}

/// What happens when the clock is put forward over some times: how many runs, how many left out.
fn missed(settings: &str, from: &str, forward: i64) -> (Vec<String>, f64) {
    let (states, clock, flow) = (States::default(), Clock::at(from), FakeFlow::good());
    let source = sound(settings, &states);
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &clock);
    running.advance(SECOND);
    clock.put(forward);
    running.advance(MINUTE);
    (scheduled(&flow), measure(&states, "schedule_skipped_total"))
}

#[test]
fn runs_that_are_missed_are_left_out_or_made_up_for_by_one() {
    let noon = "2026-01-01T12:00:30Z";
    let skip = "{ cron: \"0 * * * *\" }";
    let once = "{ cron: \"0 * * * *\", missed: once }";
    assert_eq!(missed(skip, noon, 3 * 3600 + 900), (vec![], 3.0));
    let three = vec!["2026-01-01T15:00:00Z".to_owned()];
    assert_eq!(missed(once, noon, 3 * 3600 + 900), (three.clone(), 2.0));
    // The last one is not late yet.
    assert_eq!(missed(skip, noon, 3 * 3600 - 60), (three, 2.0));
    let (runs, left_out) = missed("\"* * * * * *\"", noon, 86_400);
    assert_eq!(
        (runs.len(), left_out),
        (61, 999.0),
        "counted up to a thousand"
    );
}

#[test]
fn a_worker_that_stood_still_makes_one_run() {
    let (states, clock) = (States::default(), Clock::at("2026-01-01T00:00:00Z"));
    let flow = FakeFlow::good();
    let source = sound("1s", &states);
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &clock);
    clock.pass(Duration::from_millis(10_500));
    running.poll();
    assert_eq!(scheduled(&flow), ["2026-01-01T00:00:10Z"]);
    assert_eq!(measure(&states, "schedule_skipped_total"), 9.0);
    running.advance(Duration::from_millis(500));
    assert_eq!(scheduled(&flow)[1], "2026-01-01T00:00:11Z");
    // By the clock that goes on, nothing has happened.
    clock.put(7200);
    running.advance(SECOND);
    assert_eq!(flow.begun(), 3);
    assert_eq!(measure(&states, "schedule_skipped_total"), 9.0);
}

#[test]
fn no_time_comes_twice_when_the_clock_is_put_back() {
    let (states, clock) = (States::default(), Clock::at("2026-01-10T11:59:00Z"));
    let flow = FakeFlow::good();
    let source = sound("\"0 * * * *\"", &states);
    let started: Arc<dyn Started> = flow.clone();
    let mut running = Running::start(&source, &started, &clock);
    running.advance(2 * MINUTE);
    clock.put(-1800);
    running.advance(HOUR);
    assert_eq!(scheduled(&flow), ["2026-01-10T12:00:00Z"]);
    running.advance(HOUR);
    assert_eq!(scheduled(&flow)[1..], ["2026-01-10T13:00:00Z"]);
    // So much was no correction of the clock: it was wrong.
    clock.put(-5 * 86_400);
    running.advance(HOUR);
    assert_eq!(scheduled(&flow)[2..], ["2026-01-05T14:00:00Z"]);
}

#[test]
fn a_reload_goes_on_where_the_schedule_was() {
    let (states, clock) = (States::default(), Clock::at("2026-01-01T00:00:00Z"));
    let flow = FakeFlow::good();
    let started: Arc<dyn Started> = flow.clone();
    let mut kept = Vec::new();
    for minute in 1..=12 {
        let source = sound("{ every: 5m, at_start: true }", &states);
        let mut running = Running::start(&source, &started, &clock);
        running.advance(MINUTE);
        running.stop();
        assert!(running.has_ended, "{minute}");
        kept.push(Arc::clone(&source));
    }
    let expected = [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:05:00Z",
        "2026-01-01T00:10:00Z",
    ];
    assert_eq!(scheduled(&flow), expected);
    assert_eq!(flow.told(|it| member(it, "run")), ["1", "2", "3"]);
    let changed = sound("{ every: 6m, at_start: true }", &states);
    let mut running = Running::start(&changed, &started, &clock);
    running.stop();
    assert_eq!(flow.begun(), 4, "another schedule begins anew");
}

#[test]
fn a_source_that_is_stopped_before_it_begins_does_nothing() {
    let (states, clock) = (States::default(), Clock::at("2026-01-01T00:00:00Z"));
    let flow = FakeFlow::good();
    let started: Arc<dyn Started> = flow.clone();
    let source = sound("{ every: 5m, at_start: true }", &states);
    let stop = Box::pin(std::future::ready(()));
    let mut future = source.run(&started, &clock, stop);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_ready());
    assert_eq!(flow.begun(), 0);
}

#[test]
fn runs_that_fail_are_counted_and_change_nothing() {
    let (states, clock) = (States::default(), Clock::at("2026-01-01T00:00:00Z"));
    let count = std::sync::atomic::AtomicU32::new(0);
    let flow =
        FakeFlow::new(
            move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => Err(Fault::invalid("no")),
                1 => Ok(Reply::new(503)),
                _ => Ok(Reply::new(200)),
            },
        );
    let started: Arc<dyn Started> = flow.clone();
    let source = sound("1m", &states);
    Running::start(&source, &started, &clock).advance(4 * MINUTE);
    assert_eq!(flow.begun(), 4);
    assert_eq!(measure(&states, "schedule_failed_total"), 2.0);
    assert_eq!(measure(&states, "schedule_runs_total"), 4.0);
}

#[test]
fn runs_that_fail_are_retried_where_that_is_wanted() {
    let (states, clock) = (States::default(), Clock::at("2026-01-01T00:00:00Z"));
    let is_down = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    let flow = FakeFlow::new(
        move |_| match down.load(std::sync::atomic::Ordering::Relaxed) {
            true => Ok(Reply::new(503)),
            false => Ok(Reply::new(200)),
        },
    );
    let started: Arc<dyn Started> = flow.clone();
    let retry = "retry: { on: [5xx], times: 3, delay: 25s, backoff: 1, jitter: 0% }";
    let source = sound(&format!("{{ every: 1m, {retry} }}"), &states);
    let mut running = Running::start(&source, &started, &clock);
    running.advance(MINUTE + 30 * SECOND);
    assert_eq!(flow.begun(), 2);
    is_down.store(false, std::sync::atomic::Ordering::Relaxed);
    running.advance(20 * SECOND);
    assert_eq!(flow.told(|it| member(it, "run")), ["1", "1", "1"]);
    assert_eq!(measure(&states, "schedule_failed_total"), 0.0);
    is_down.store(true, std::sync::atomic::Ordering::Relaxed);
    // It is in progress while it is retried: the next run is left out.
    running.advance(90 * SECOND);
    assert_eq!(flow.told(|it| member(it, "run"))[3..], ["2"; 4]);
    assert_eq!(measure(&states, "schedule_failed_total"), 1.0);
    assert_eq!(measure(&states, "schedule_skipped_total"), 1.0);
    // One that waits for a retry does not hold up a stop.
    running.advance(MINUTE);
    assert_eq!(flow.begun(), 8);
    running.stop();
    assert!(running.has_ended);
    assert_eq!(measure(&states, "schedule_failed_total"), 2.0);
}

#[test]
fn runs_are_put_off_by_chance() {
    let (states, clock) = (States::default(), Clock::at("2026-01-01T11:59:00Z"));
    let flow = FakeFlow::good();
    let started: Arc<dyn Started> = flow.clone();
    let source = sound("{ cron: \"0 * * * *\", jitter: 10m }", &states);
    clock.random.set(0.9);
    let mut running = Running::start(&source, &started, &clock);
    running.advance(10 * MINUTE - SECOND);
    assert_eq!(flow.begun(), 0);
    running.advance(SECOND);
    assert_eq!(scheduled(&flow), ["2026-01-01T12:00:00Z"]);
    assert_eq!(
        flow.told(|it| member(it, "started")),
        ["2026-01-01T12:09:00Z"]
    );
    clock.random.set(0.0);
    running.advance(2 * HOUR);
    assert_eq!(flow.begun(), 3);
}

#[test]
fn what_is_no_schedule_is_refused() {
    assert_problems(
        &DEFINITION,
        &[
            ("soon", &["IT0280 1:1 `soon` is not a schedule"]),
            ("5", &["IT0112 1:1"]),
            (
                "\"* * *\"",
                &["IT0280 1:1 `* * *` is not a cron expression: it has 3 fields"],
            ),
            (
                "\"@noon\"",
                &["IT0280 1:1 `@noon` is not a cron expression: there is no such name"],
            ),
            ("\"0 0 30 2 *\"", &["IT0280 1:1 `0 0 30 2 *` never comes"]),
            ("{}", &["IT0280 1:1 the schedule says no time"]),
            (
                "{ every: 5m, cron: \"* * * * *\" }",
                &["IT0280 1:20 a schedule has `every` or `cron`, not both"],
            ),
            (
                "{ cron: \"* * * * *\", zone: Europe/Stokholm }",
                &["IT0281 1:28 there is no time zone `Europe/Stokholm`"],
            ),
            ("10ms", &["IT0282 1:1 `every` is 10ms, out of its range"]),
            (
                "{ every: 5s, jitter: 6s }",
                &["IT0282 1:22 `jitter` is 6s, out of its range"],
            ),
            (
                "{ every: 5s, zone: UTC }",
                &["IT0283 1:20 `zone` has no effect on `every`"],
            ),
            ("{ every: 5s, overlap: maybe }", &["IT0114 1:23"]),
            (
                "{ every: 5s, retry: { on: [] } }",
                &["IT0492 1:27 no failure is named"],
            ),
        ],
    );
}
