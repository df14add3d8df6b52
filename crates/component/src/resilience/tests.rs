//! What is left when a try is dropped at any of its awaits, or given up: nothing.

use std::cell::Cell;
use std::time::Instant;

use testkit::drop_at_every_await;

use super::*;
use crate::exchange::FlowContext;
use crate::failure::Matcher;
use crate::state::{Measure, State};
use crate::step::{Progress, Step};
use crate::testing::{FakeServices, poll_once};

const MOMENT: Duration = Duration::from_millis(10);

/// A step that waits three times, each for a moment, and then ends as it is told.
struct Slow {
    /// How many of its first tries fail.
    failures: u32,
    tries: std::sync::atomic::AtomicU32,
}

impl Slow {
    fn failing(failures: u32) -> Self {
        Self {
            failures,
            tries: Default::default(),
        }
    }

    async fn work(&self, services: &dyn Services) -> Result<Next, Fault> {
        let number = self
            .tries
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        for _ in 0..3 {
            services.sleep(MOMENT).await;
        }
        match number < self.failures {
            true => Err(Fault::new(Kind::Connection, Origin::Upstream, "no")),
            false => Ok(Next::Continue),
        }
    }
}

impl Step for Slow {
    fn run<'a>(&'a self, _: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.work(services)))
    }
}

fn node(step: Slow) -> StepNode {
    StepNode {
        place: 0,
        label: "1".into(),
        step: Box::new(step),
        condition: None,
        keep_as: None,
        guard: None,
        fallback: None,
        on_error: None,
    }
}

fn exchange() -> Exchange {
    let request = message::Request {
        method: message::Method::Get,
        path: "/".into(),
        query: None,
        parameters: Vec::new(),
        headers: message::Headers::new(),
        body: message::Body::Empty,
        peer: [127, 0, 0, 1].into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    };
    Exchange::new(&Arc::new(FlowContext::new("test")), request)
}

fn throttle() -> Throttle {
    Throttle::new(ThrottleSettings {
        requests: 1,
        per: Duration::from_secs(3600),
        burst: 1,
        queue: 1,
        wait: Duration::from_secs(3600),
    })
}

fn bulkhead() -> Bulkhead {
    Bulkhead::new(BulkheadSettings {
        concurrent: 1,
        queue: 1,
        wait: MOMENT * 2,
    })
}

fn breaker() -> Breaker {
    Breaker::new(BreakerSettings {
        on: vec![
            Matcher::Kind(Kind::Connection),
            Matcher::Kind(Kind::Timeout),
        ],
        ratio: 0.1,
        window: Duration::from_secs(3600),
        tries_min: 2,
        open: MOMENT,
        probes: 1,
    })
}

fn value(state: &dyn State, name: &str, now: Instant) -> f64 {
    let measures: Vec<Measure> = state.measures(now);
    measures.iter().find(|it| it.name == name).unwrap().value
}

#[test]
fn a_turn_is_free_again() {
    let services = FakeServices::default();
    let throttle = throttle();
    poll_once(&mut Box::pin(throttle.pass(&services)))
        .unwrap()
        .unwrap();
    let waiting = || value(&throttle, "throttle_waiting", services.now());
    let polls = drop_at_every_await(
        || throttle.pass(&services),
        || services.pass(MOMENT),
        |polls| {
            assert_eq!(waiting(), 0.0, "after {polls}");
            // The queue is of one: it has room.
            let mut other = Box::pin(throttle.pass(&services));
            assert!(poll_once(&mut other).is_none());
            assert_eq!(waiting(), 1.0);
            services.pass(MOMENT * 200);
        },
    );
    assert!(polls > 10, "{polls}");
}

#[test]
fn a_permit_is_free_again_and_nobody_waits() {
    let services = FakeServices::default();
    let bulkhead = bulkhead();
    let held = Cell::new(None);
    let make = || {
        held.set(poll_once(&mut Box::pin(bulkhead.enter(&services))));
        bulkhead.enter(&services)
    };
    let polls = drop_at_every_await(
        make,
        // The waiter is handed the permit, whether or not it comes to take it.
        || drop(held.take()),
        |polls| {
            drop(held.take());
            let now = services.now();
            assert_eq!(
                value(&bulkhead, "bulkhead_running", now),
                0.0,
                "after {polls}"
            );
            assert_eq!(
                value(&bulkhead, "bulkhead_waiting", now),
                0.0,
                "after {polls}"
            );
        },
    );
    assert_eq!(polls, 2);
}

/// A step with every guard there is, dropped at each await: tries that fail by themselves count,
/// those that are dropped do not.
#[test]
fn a_guarded_step_leaves_nothing_behind() {
    for failures in [0, 1] {
        let services = FakeServices::default();
        let guard = Guard {
            retry: Some(Retry {
                policy: RetryPolicy {
                    on: vec![Matcher::Kind(Kind::Connection)],
                    times: 1,
                    backoff: Backoff::doubling(MOMENT, MOMENT),
                },
                only_safe: false,
                counts: Arc::default(),
            }),
            breaker: Some(Arc::new(breaker())),
            throttle: None,
            bulkhead: Some(Arc::new(bulkhead())),
            timeout: Some(MOMENT * 10),
        };
        let polls = drop_at_every_await(
            || {
                let (mut exchange, node) = (exchange(), node(Slow::failing(failures)));
                let (guard, services) = (&guard, &services);
                async move {
                    let before = exchange.content.clone();
                    let next = guard.run(&node, &before, &mut exchange, services).await;
                    assert_eq!(exchange.deadline, None);
                    next.unwrap();
                }
            },
            || services.pass(MOMENT),
            |polls| {
                let now = services.now();
                let bulkhead = guard.bulkhead.as_ref().unwrap();
                assert_eq!(
                    value(&**bulkhead, "bulkhead_running", now),
                    0.0,
                    "after {polls}"
                );
                let breaker = guard.breaker.as_ref().unwrap();
                let opened = value(&**breaker, "breaker_opened_total", now);
                assert!(failures > 0 || opened == 0.0, "after {polls}");
                services.pass(MOMENT);
                // A probe that was dropped has made room for another one.
                breaker.admit(&services).expect("room").end(None, false);
                assert_eq!(
                    value(&**breaker, "breaker_state", now),
                    0.0,
                    "after {polls}"
                );
            },
        );
        assert!(polls > 3, "{polls}");
    }
}

/// A step whose time, or whose flow's time, is over.
fn outcome_of(timeout: Option<Duration>, deadline: Option<Duration>) -> (f64, String) {
    let services = FakeServices::default();
    let guard = Guard {
        breaker: Some(Arc::new(breaker())),
        timeout,
        ..Guard::default()
    };
    let mut name = String::new();
    for _ in 0..3 {
        let (mut exchange, node) = (exchange(), node(Slow::failing(0)));
        exchange.deadline = deadline.map(|time| services.now() + time);
        let before = exchange.content.clone();
        let mut work = Box::pin(guard.run(&node, &before, &mut exchange, &services));
        for _ in 0..3 {
            match poll_once(&mut work) {
                None => services.pass(MOMENT),
                Some(result) => {
                    name =
                        result.map_or_else(|fault| fault.name().to_owned(), |_| "done".to_owned());
                    break;
                }
            }
        }
        drop(work);
        exchange.deadline = None;
    }
    let breaker = guard.breaker.as_ref().unwrap();
    (
        value(&**breaker, "breaker_opened_total", services.now()),
        name,
    )
}

#[test]
fn the_flows_own_time_is_no_failure_of_the_other_side() {
    // The step's own time-out says that the other side is slow.
    let (opened, name) = outcome_of(Some(MOMENT), None);
    assert_eq!((opened > 0.0, name.as_str()), (true, "unavailable"));
    // That of the flow, or of a step around it, says nothing.
    assert_eq!(outcome_of(Some(MOMENT * 2), Some(MOMENT)).0, 0.0);
    assert_eq!(outcome_of(None, Some(MOMENT)).0, 0.0);
}

#[test]
fn what_holds_within_a_step_is_taken_back_when_its_time_is_over() {
    struct Holding;
    impl Step for Holding {
        fn run<'a>(&'a self, exchange: &'a mut Exchange, _: &'a dyn Services) -> Progress<'a> {
            exchange.held.push(std::rc::Rc::new(1));
            let fault = Fault::new(Kind::Connection, Origin::Upstream, "no");
            exchange.fault = Some(std::rc::Rc::new(fault));
            Progress::Waits(Box::pin(std::future::pending()))
        }
    }
    let services = FakeServices::default();
    let guard = Guard {
        timeout: Some(MOMENT),
        ..Guard::default()
    };
    let mut node = node(Slow::failing(0));
    node.step = Box::new(Holding);
    let mut exchange = exchange();
    exchange.held.push(std::rc::Rc::new(0));
    let before = exchange.content.clone();
    let mut work = Box::pin(guard.run(&node, &before, &mut exchange, &services));
    assert!(poll_once(&mut work).is_none());
    services.pass(MOMENT);
    let fault = poll_once(&mut work).unwrap().unwrap_err();
    drop(work);
    assert_eq!(fault.kind, Kind::Timeout);
    assert_eq!((exchange.held.len(), exchange.fault.is_none()), (1, true));
    assert_eq!(exchange.deadline, None);
}

/// A step that fails at once, and says how.
struct Fails {
    retry: Repeat,
    is_of_inner_step: bool,
    is_repeatable: bool,
    is_atomic: bool,
    tries: std::sync::atomic::AtomicU32,
}

impl Step for Arc<Fails> {
    fn run<'a>(&'a self, _: &'a mut Exchange, _: &'a dyn Services) -> Progress<'a> {
        self.tries
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut fault = Fault::new(Kind::Connection, Origin::Upstream, "no");
        fault.step = self.is_of_inner_step.then(|| "2.1".into());
        Progress::Done(Err(fault.with_retry(self.retry)))
    }

    fn is_repeatable(&self, _: &Exchange) -> bool {
        self.is_repeatable
    }

    fn is_atomic(&self) -> bool {
        self.is_atomic
    }
}

/// How often a step is tried with two further tries.
fn tries(fails: Fails, only_safe: bool) -> u32 {
    let fails = Arc::new(fails);
    let guard = Guard {
        retry: Some(Retry {
            policy: RetryPolicy {
                on: vec![Matcher::Kind(Kind::Connection)],
                times: 2,
                backoff: Backoff::doubling(Duration::ZERO, Duration::ZERO),
            },
            only_safe,
            counts: Arc::default(),
        }),
        ..Guard::default()
    };
    let mut node = node(Slow::failing(0));
    node.step = Box::new(Arc::clone(&fails));
    let (mut exchange, services) = (exchange(), FakeServices::default());
    let before = exchange.content.clone();
    let mut work = Box::pin(guard.run(&node, &before, &mut exchange, &services));
    assert!(poll_once(&mut work).is_some_and(|it| it.is_err()));
    fails.tries.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn a_plain_retry_repeats_only_what_cannot_happen_twice() {
    use Repeat::{IfRepeatable, No, Yes};
    // What the failure says, whether it is one of a step within, whether the step may be repeated,
    // and whether it undoes what it has done; then the number of tries.
    for (retry, is_of_inner_step, is_repeatable, is_atomic, expected) in [
        (Yes, false, false, false, 3),
        (IfRepeatable, false, false, false, 1),
        (IfRepeatable, false, true, false, 3),
        (No, false, true, true, 1),
        (Yes, true, false, false, 1),
        (Yes, true, false, true, 3),
        (IfRepeatable, true, true, true, 1),
    ] {
        let fails = || Fails {
            retry,
            is_of_inner_step,
            is_repeatable,
            is_atomic,
            tries: Default::default(),
        };
        let case = (retry, is_of_inner_step, is_repeatable, is_atomic);
        assert_eq!(tries(fails(), true), expected, "{case:?}");
        // The file names the failure.
        assert_eq!(tries(fails(), false), 3, "{case:?}");
    }
}
