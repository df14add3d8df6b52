//! The intake with flows that fail, targets that are down, and futures that are dropped at each of
//! their waits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::failure::Matcher;
use crate::handler::LocalFuture;
use crate::state::State as _;
use crate::testing::{FakeServices, poll_once};

/// A flow that fails as often as it is told, and waits for one poll before it ends.
struct Flow {
    name: Arc<str>,
    failures: AtomicUsize,
    runs: AtomicUsize,
    /// The bodies with which it has succeeded.
    done: Mutex<Vec<Vec<u8>>>,
}

impl Flow {
    fn failing(times: usize) -> Arc<Self> {
        Arc::new(Self {
            name: "orders".into(),
            failures: AtomicUsize::new(times),
            runs: AtomicUsize::new(0),
            done: Mutex::default(),
        })
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }
}

impl Started for Flow {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn start<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.runs.fetch_add(1, Ordering::Relaxed);
            let left = self.failures.load(Ordering::Relaxed);
            self.failures
                .store(left.saturating_sub(1), Ordering::Relaxed);
            match (left, &*request.path) {
                (0, _) => {
                    let body = request.body.as_bytes().to_vec();
                    self.done.lock().unwrap().push(body);
                    Ok(Reply::new(200))
                }
                (_, "/refused") => Ok(Reply::new(422)),
                _ => Err(Fault::of_status(503)),
            }
        })
    }
}

#[derive(Default)]
struct Target {
    is_down: AtomicBool,
    letters: Mutex<Vec<Request>>,
}

impl DeadLetterTarget for Target {
    fn name(&self) -> &str {
        "store tests"
    }

    fn keep<'a>(
        &'a self,
        letter: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.is_down.load(Ordering::Relaxed) {
                return Err(Fault::of_status(503));
            }
            self.letters.lock().unwrap().push(letter);
            Ok(())
        })
    }
}

struct Message {
    number: usize,
    path: &'static str,
    delivered: u32,
    failed: u32,
    /// Whether its system takes it back while its flow runs.
    is_taken_back: bool,
    is_begun: bool,
}

impl Message {
    fn new(number: usize) -> Self {
        Self {
            number,
            path: "/",
            delivered: 0,
            failed: 0,
            is_taken_back: false,
            is_begun: false,
        }
    }
}

impl Incoming for Message {
    fn id(&self) -> String {
        self.number.to_string()
    }

    fn request(&mut self, attempt: u32) -> Result<Request, Fault> {
        self.is_begun = true;
        if self.path == "/unreadable" {
            return Err(Fault::invalid("it cannot be read"));
        }
        let attempt = ("attempt".into(), attempt.to_string());
        Ok(Request {
            path: self.path.to_owned(),
            parameters: vec![attempt],
            ..Request::of_source("TEST", Headers::new(), self.number.to_string().into_bytes())
        })
    }

    fn delivered_before(&self) -> u32 {
        self.delivered
    }

    fn failed_before(&self) -> u32 {
        self.failed
    }

    fn is_gone(&self) -> bool {
        self.is_taken_back && self.is_begun
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn policy(times: u32, dead_letter: DeadLetter) -> IntakePolicy {
    IntakePolicy {
        retry: RetryPolicy {
            on: vec![Matcher::Class(5)],
            times,
            backoff: Backoff::doubling(SECOND, 60 * SECOND),
        },
        dead_letter,
        hold_max: Duration::MAX,
    }
}

fn intake(flow: &Arc<Flow>, policy: IntakePolicy) -> (Intake, Arc<IntakeCounts>) {
    let (flow, counts): (Arc<dyn Started>, Arc<IntakeCounts>) =
        (Arc::clone(flow) as _, Arc::default());
    let plan = IntakePlan::new(policy, Arc::clone(&counts));
    (Intake::new(&flow, &plan), counts)
}

/// Runs a message to its end; the clock goes on whenever it waits, for so many seconds at most.
fn run(intake: &Intake, mut message: Message, seconds: u32) -> Option<Processed> {
    let services = FakeServices::default();
    let mut work: std::pin::Pin<Box<_>> = Box::pin(intake.process(&mut message, &services));
    for _ in 0..seconds * 4 {
        // Twice: it yields once for the flow and once for what is kept.
        for _ in 0..3 {
            if let Some(processed) = poll_once(&mut work) {
                return Some(processed);
            }
        }
        services.pass(SECOND / 4);
    }
    None
}

fn count(counts: &IntakeCounts, name: &str) -> f64 {
    let measures = counts.measures(std::time::Instant::now());
    measures.iter().find(|it| it.name == name).unwrap().value
}

#[test]
fn a_message_is_acknowledged_when_its_flow_has_succeeded() {
    let flow = Flow::failing(2);
    let (intake, counts) = intake(&flow, policy(3, DeadLetter::Drop));
    let processed = run(&intake, Message::new(1), 10).unwrap();
    assert_eq!(processed.settlement, Settlement::Acknowledge);
    assert!(matches!(processed.result, Some(Ok(_))));
    assert_eq!(flow.runs(), 3);
    let counted = ["succeeded", "failed", "retried", "dropped"]
        .map(|it| count(&counts, &format!("source_{it}_total")));
    assert_eq!(counted, [1.0, 2.0, 2.0, 0.0]);
}

#[test]
fn what_fails_for_good_is_durable_before_it_is_acknowledged() {
    let target = Arc::new(Target::default());
    target.is_down.store(true, Ordering::Relaxed);
    let flow = Flow::failing(usize::MAX);
    let keep = DeadLetter::Keep(Arc::clone(&target) as _);
    let (intake, counts) = intake(&flow, policy(1, keep));
    let services = FakeServices::default();
    let (mut first, mut second) = (Message::new(1), Message::new(2));
    let mut one = Box::pin(intake.process(&mut first, &services));
    for _ in 0..40 {
        assert!(poll_once(&mut one).is_none());
        services.pass(SECOND / 4);
    }
    assert!(intake.is_blocked());
    assert_eq!((flow.runs(), count(&counts, "source_blocked")), (2, 1.0));
    // No other is begun meanwhile.
    let mut two = Box::pin(intake.process(&mut second, &services));
    assert!(poll_once(&mut two).is_none());
    assert_eq!(flow.runs(), 2);
    target.is_down.store(false, Ordering::Relaxed);
    services.pass(60 * SECOND);
    let processed = (0..3).find_map(|_| poll_once(&mut one)).unwrap();
    assert_eq!(processed.settlement, Settlement::Acknowledge);
    let letters = std::mem::take(&mut *target.letters.lock().unwrap());
    assert_eq!(letters.len(), 1);
    let parameters: Vec<_> = letters[0].parameters.iter().map(|it| &*it.1).collect();
    assert_eq!(parameters[..4], ["2", "orders", "1", "2"]);
    assert!(parameters[4].contains("503"), "{parameters:?}");
    assert_eq!(letters[0].body.as_bytes(), b"1");
    assert!(!intake.is_blocked());
    assert!((0..2).all(|_| poll_once(&mut two).is_none()));
    assert_eq!(flow.runs(), 3, "the next one goes on");
}

#[test]
fn failures_that_no_retry_helps_are_not_retried() {
    let refused = |path, dead_letter| {
        let flow = Flow::failing(usize::MAX);
        let (intake, _) = intake(&flow, policy(5, dead_letter));
        let mut message = Message::new(1);
        message.path = path;
        (run(&intake, message, 1).unwrap().settlement, flow.runs())
    };
    let reason = |text: &str| Settlement::Reject {
        reason: text.to_owned(),
        failed: 1,
    };
    let (settlement, runs) = refused("/refused", DeadLetter::Reject);
    assert_eq!(runs, 1);
    assert_eq!(settlement, reason(&Fault::of_status(422).to_string()));
    let (settlement, runs) = refused("/unreadable", DeadLetter::Reject);
    assert_eq!(runs, 0);
    assert!(matches!(settlement, Settlement::Reject { .. }));
    let (settlement, _) = refused("/refused", DeadLetter::Drop);
    assert_eq!(settlement, Settlement::Acknowledge);
}

#[test]
fn stop_takes_no_further_message_and_keeps_this_one() {
    let flow = Flow::failing(usize::MAX);
    let (intake, counts) = intake(&flow, policy(0, DeadLetter::Stop));
    assert_eq!(
        run(&intake, Message::new(1), 1).unwrap().settlement,
        Settlement::Release
    );
    assert!(intake.is_over());
    // Another plan that is loaded and refused changes nothing; one that is started does.
    let other = IntakePlan::new(policy(0, DeadLetter::Stop), Arc::clone(&counts));
    assert_eq!(count(&counts, "source_halted"), 1.0);
    let started: Arc<dyn Started> = Arc::clone(&flow) as _;
    assert!(!Intake::new(&started, &other).is_over());
    assert_eq!(count(&counts, "source_halted"), 0.0);
    let second = run(&intake, Message::new(2), 1).unwrap();
    assert_eq!(second.settlement, Settlement::Release);
    assert_eq!(flow.runs(), 1);
}

#[test]
fn a_source_that_ends_releases_what_waits() {
    let flow = Flow::failing(usize::MAX);
    let (intake, _) = intake(&flow, policy(5, DeadLetter::Drop));
    let (services, mut message) = (FakeServices::default(), Message::new(1));
    let mut work = Box::pin(intake.process(&mut message, &services));
    assert!((0..3).all(|_| poll_once(&mut work).is_none()));
    intake.stop();
    let processed = poll_once(&mut work).unwrap();
    assert_eq!(processed.settlement, Settlement::Release);
    assert_eq!(flow.runs(), 1);
}

#[test]
fn what_its_system_has_taken_back_is_neither_tried_again_nor_a_dead_letter() {
    for times in [0, 5] {
        let flow = Flow::failing(usize::MAX);
        let (intake, counts) = intake(&flow, policy(times, DeadLetter::Drop));
        let mut message = Message::new(1);
        message.is_taken_back = true;
        let processed = run(&intake, message, 1).unwrap();
        assert_eq!(processed.settlement, Settlement::Release);
        assert_eq!(
            (flow.runs(), count(&counts, "source_dropped_total")),
            (1, 0.0)
        );
    }
}

#[test]
fn longer_waits_than_a_source_can_hold_are_put_back() {
    let flow = Flow::failing(usize::MAX);
    let held = IntakePolicy {
        hold_max: SECOND,
        ..policy(5, DeadLetter::Drop)
    };
    let (intake, _) = intake(&flow, held);
    let processed = run(&intake, Message::new(1), 3).unwrap();
    assert_eq!(processed.settlement, Settlement::PutBack(2 * SECOND));
    assert_eq!(flow.runs(), 2);
    // It goes on where it was.
    let mut again = Message::new(1);
    again.failed = 5;
    let processed = run(&intake, again, 3).unwrap();
    assert_eq!(processed.settlement, Settlement::Acknowledge, "dropped");
}

#[test]
fn what_kills_the_engine_each_time_does_not_do_so_for_ever() {
    let flow = Flow::failing(0);
    let (intake, _) = intake(&flow, policy(0, DeadLetter::Reject));
    let settlement = |delivered| {
        let mut message = Message::new(1);
        message.delivered = delivered;
        run(&intake, message, 1).unwrap().settlement
    };
    assert_eq!(settlement(10), Settlement::Acknowledge);
    assert!(matches!(
        settlement(11),
        Settlement::Reject { failed: 11, .. }
    ));
    assert_eq!(flow.runs(), 1);
}

/// A system that delivers again what is not settled.
#[derive(Default)]
struct System {
    waiting: RefCell<VecDeque<usize>>,
    acknowledged: RefCell<Vec<usize>>,
}

/// Whatever is dropped, stopped or fails, in whatever order: a message is acknowledged only when
/// its flow has succeeded with it, or it is kept as a dead letter. No message waits for ever.
#[test]
fn nothing_is_lost_in_seeded_schedules() {
    for seed in 0..3000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let target = Arc::new(Target::default());
        let flow = Flow::failing(random.usize(0..30));
        let (system, services) = (Rc::new(System::default()), FakeServices::default());
        system.waiting.borrow_mut().extend(0..5);
        for _ in 0..20 {
            let keep = DeadLetter::Keep(Arc::clone(&target) as _);
            let (intake, _) = intake(&flow, policy(random.u32(0..3), keep));
            let mut under_way: Vec<LocalFuture<'_, ()>> = Vec::new();
            // A worker, until it is killed or stopped.
            for _ in 0..random.usize(1..60) {
                let next = match under_way.len() < 2 {
                    true => system.waiting.borrow_mut().pop_front(),
                    false => None,
                };
                if let Some(number) = next {
                    let (system, intake, services) = (Rc::clone(&system), &intake, &services);
                    let (flow, target) = (Arc::clone(&flow), Arc::clone(&target));
                    under_way.push(Box::pin(async move {
                        let taken = Taken { number, system };
                        let mut message = Message::new(number);
                        let processed = intake.process(&mut message, services).await;
                        if processed.settlement == Settlement::Acknowledge {
                            assert!(is_dealt_with(number, &flow, &target), "seed {seed}");
                            taken.system.acknowledged.borrow_mut().push(number);
                        }
                    }));
                }
                target
                    .is_down
                    .store(random.u8(0..3) == 0, Ordering::Relaxed);
                services.pass(Duration::from_millis(random.u64(0..2000)));
                under_way.retain_mut(|it| poll_once(it).is_none());
                if random.u8(0..40) == 0 {
                    intake.stop();
                }
            }
        }
        flow.failures.store(0, Ordering::Relaxed);
        while let Some(number) = { system.waiting.borrow_mut().pop_front() } {
            let (intake, _) = intake(&flow, policy(0, DeadLetter::Reject));
            let processed = run(&intake, Message::new(number), 5).unwrap();
            assert_eq!(processed.settlement, Settlement::Acknowledge, "{seed}");
            system.acknowledged.borrow_mut().push(number);
        }
        let mut all = system.acknowledged.borrow().clone();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4], "seed {seed}");
    }
}

/// A message that goes back when it is dropped unsettled.
struct Taken {
    number: usize,
    system: Rc<System>,
}

/// Whether a message may be acknowledged.
fn is_dealt_with(number: usize, flow: &Flow, target: &Target) -> bool {
    let body = number.to_string().into_bytes();
    let letters = target.letters.lock().unwrap();
    let is_kept = letters.iter().any(|it| it.body.as_bytes() == body);
    is_kept || flow.done.lock().unwrap().contains(&body)
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.system.acknowledged.borrow().contains(&self.number) {
            self.system.waiting.borrow_mut().push_back(self.number);
        }
    }
}
