//! A circuit breaker: after many failures a step is not tried for a while, then a few tries decide
//! whether it is well again (Nygard, "Release It!").

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use message::{Fault, Kind, Origin, Retry};

use crate::failure::Matcher;
use crate::handler::Services;
use crate::state::{Measure, State};

/// Into how many parts the window is divided.
const PARTS: u32 = 10;

/// When a breaker opens and closes.
#[derive(Clone, Debug)]
pub struct BreakerSettings {
    /// Which failures count.
    pub on: Vec<Matcher>,
    /// The part of all tries that must fail, from 0 to 1.
    pub ratio: f64,
    /// The time window in which attempts are counted.
    pub window: Duration,
    /// How many tries of the window there must be.
    pub tries_min: u32,
    /// How long it stays open.
    pub open: Duration,
    /// How many tries must succeed then to close it.
    pub probes: u32,
}

/// A circuit breaker. All workers share it.
pub struct Breaker {
    settings: BreakerSettings,
    state: Mutex<Inner>,
}

struct Inner {
    phase: Phase,
    /// The number of changes of the phase: what was let through before the last one has no say.
    changes: u64,
    parts: [Part; PARTS as usize],
    opened: u64,
    refused: u64,
}

#[derive(Clone, Copy)]
enum Phase {
    Closed,
    /// Nothing is tried before this.
    Open(Instant),
    /// A few tries are let through.
    HalfOpen {
        running: u32,
        succeeded: u32,
    },
}

/// The tries of a part of the window.
#[derive(Clone, Copy, Default)]
struct Part {
    /// The part's number since the breaker was made.
    number: u64,
    tries: u32,
    failures: u32,
}

/// A try that has been let through. Dropped without an end, it was given up: by a client that left,
/// by a faster branch, or since the flow's time was over. That says nothing about the other side.
pub(crate) struct Admission<'a> {
    breaker: &'a Breaker,
    services: &'a dyn Services,
    /// [`Inner::changes`] when it was let through.
    changes: u64,
    is_open: bool,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            state: Mutex::new(Inner {
                phase: Phase::Closed,
                changes: 0,
                parts: [Part::default(); PARTS as usize],
                opened: 0,
                refused: 0,
            }),
        }
    }

    /// Lets a try through.
    ///
    /// # Errors
    /// `unavailable` while the breaker is open.
    pub(crate) fn admit<'a>(&'a self, services: &'a dyn Services) -> Result<Admission<'a>, Fault> {
        let now = services.now();
        let mut inner = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Phase::Open(until) = inner.phase
            && now >= until
        {
            inner.change(Phase::HalfOpen {
                running: 0,
                succeeded: 0,
            });
        }
        let wait = match &mut inner.phase {
            Phase::Closed => None,
            Phase::HalfOpen { running, succeeded }
                if *running + *succeeded < self.settings.probes =>
            {
                *running += 1;
                None
            }
            Phase::HalfOpen { .. } => Some(Duration::ZERO),
            Phase::Open(until) => Some(until.saturating_duration_since(now)),
        };
        if let Some(wait) = wait {
            inner.refused += 1;
            let fault = Fault::new(Kind::Unavailable, Origin::Engine, "the circuit is open");
            let fault = fault.with_retry(Retry::Yes);
            return Err(fault.with_retry_after(wait.max(Duration::from_secs(1))));
        }
        Ok(Admission {
            breaker: self,
            services,
            changes: inner.changes,
            is_open: true,
        })
    }

    fn record(&self, end: End, changes: u64, now: Instant) {
        let mut inner = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.changes != changes {
            return;
        }
        match (inner.phase, end) {
            (Phase::Closed, End::GivenUp) | (Phase::Open(_), _) => {}
            (Phase::Closed, End::Success | End::Failure) => {
                let is_failure = matches!(end, End::Failure);
                if inner.count(is_failure, now, &self.settings) {
                    inner.open(now + self.settings.open);
                }
            }
            (Phase::HalfOpen { .. }, End::Failure) => inner.open(now + self.settings.open),
            (Phase::HalfOpen { running, succeeded }, _) => {
                let succeeded = succeeded + u32::from(matches!(end, End::Success));
                inner.phase = Phase::HalfOpen {
                    running: running.saturating_sub(1),
                    succeeded,
                };
                if succeeded >= self.settings.probes {
                    inner.change(Phase::Closed);
                    inner.parts = [Part::default(); PARTS as usize];
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum End {
    Success,
    Failure,
    GivenUp,
}

impl Inner {
    /// Counts a try, and says whether too many of the window have failed.
    fn count(&mut self, is_failure: bool, now: Instant, settings: &BreakerSettings) -> bool {
        let number = part_number(now, settings.window);
        let at = (number % u64::from(PARTS)) as usize;
        if let Some(part) = self.parts.get_mut(at) {
            if part.number != number {
                *part = Part {
                    number,
                    ..Part::default()
                };
            }
            part.tries = part.tries.saturating_add(1);
            part.failures = part.failures.saturating_add(u32::from(is_failure));
        }
        let oldest = number.saturating_sub(u64::from(PARTS) - 1);
        let in_window = self.parts.iter().filter(|part| part.number >= oldest);
        let (tries, failures) = in_window.fold((0u64, 0u64), |(tries, failures), part| {
            (
                tries + u64::from(part.tries),
                failures + u64::from(part.failures),
            )
        });
        let enough = tries >= u64::from(settings.tries_min);
        is_failure && enough && failures as f64 >= settings.ratio * tries as f64
    }

    fn change(&mut self, phase: Phase) {
        self.phase = phase;
        self.changes += 1;
    }

    fn open(&mut self, until: Instant) {
        self.change(Phase::Open(until));
        self.opened += 1;
    }
}

/// The number of a part of the window, counted from when the process first asked.
fn part_number(now: Instant, window: Duration) -> u64 {
    static ORIGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let origin = *ORIGIN.get_or_init(|| now);
    let part = (window / PARTS).as_micros().max(1);
    // One more than it is, since 0 marks a part that has never been used.
    (now.saturating_duration_since(origin).as_micros() / part) as u64 + 1
}

impl Admission<'_> {
    /// The try has ended: with this failure, or well. A time-out when the flow's own time is over
    /// was no failure of the other side.
    pub fn end(&mut self, fault: Option<&Fault>, is_out_of_time: bool) {
        let matchers = &self.breaker.settings.on;
        let counts = |fault: &Fault| matchers.iter().any(|matcher| matcher.fits(fault));
        let end = match fault {
            Some(fault) if is_out_of_time && fault.kind == Kind::Timeout => End::GivenUp,
            Some(fault) if counts(fault) => End::Failure,
            // Refused on our side: says nothing about the other.
            Some(fault) if matches!(fault.kind, Kind::Limited | Kind::Unavailable) => End::GivenUp,
            Some(_) | None => End::Success,
        };
        self.is_open = false;
        let now = self.services.now();
        self.breaker.record(end, self.changes, now);
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let now = self.services.now();
            self.breaker.record(End::GivenUp, self.changes, now);
        }
    }
}

impl State for Breaker {
    fn measures(&self, now: Instant) -> Vec<Measure> {
        let inner = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let phase = match inner.phase {
            Phase::Closed => 0.0,
            Phase::HalfOpen { .. } => 1.0,
            Phase::Open(until) if now >= until => 1.0,
            Phase::Open(_) => 2.0,
        };
        let measure = |name, help, value| Measure { name, help, value };
        vec![
            measure("breaker_state", "0 closed, 1 half open, 2 open.", phase),
            measure(
                "breaker_opened_total",
                "Times that it opened.",
                inner.opened as f64,
            ),
            measure(
                "breaker_refused_total",
                "Tries not made.",
                inner.refused as f64,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeServices;

    fn breaker() -> Breaker {
        Breaker::new(BreakerSettings {
            on: vec![Matcher::Kind(Kind::Timeout)],
            ratio: 0.5,
            window: Duration::from_secs(10),
            tries_min: 4,
            open: Duration::from_secs(5),
            probes: 2,
        })
    }

    fn attempt(breaker: &Breaker, services: &FakeServices, fails: bool) -> bool {
        let Ok(mut admission) = breaker.admit(services) else {
            return false;
        };
        let fault = Fault::new(Kind::Timeout, Origin::Upstream, "");
        admission.end(fails.then_some(&fault), false);
        true
    }

    #[test]
    fn half_of_the_tries_open_it_and_good_probes_close_it() {
        let (breaker, services) = (breaker(), FakeServices::default());
        for fails in [false, true, false, true] {
            assert!(attempt(&breaker, &services, fails));
        }
        assert!(!attempt(&breaker, &services, false));
        services.pass(Duration::from_secs(5));
        assert!(attempt(&breaker, &services, false));
        assert!(attempt(&breaker, &services, false));
        assert!(
            attempt(&breaker, &services, true),
            "closed, and the window is empty"
        );
        assert!(attempt(&breaker, &services, true));
    }

    #[test]
    fn a_bad_probe_opens_it_again() {
        let (breaker, services) = (breaker(), FakeServices::default());
        for _ in 0..4 {
            assert!(attempt(&breaker, &services, true));
        }
        services.pass(Duration::from_secs(5));
        assert!(attempt(&breaker, &services, true));
        assert!(!attempt(&breaker, &services, true));
        assert_eq!(breaker.measures(services.now())[0].value, 2.0);
    }

    #[test]
    fn a_try_that_is_given_up_does_not_count() {
        let (breaker, services) = (breaker(), FakeServices::default());
        let fault = Fault::new(Kind::Timeout, Origin::Upstream, "");
        for _ in 0..10 {
            drop(breaker.admit(&services));
            breaker.admit(&services).unwrap().end(Some(&fault), true);
        }
        for _ in 0..3 {
            assert!(attempt(&breaker, &services, true));
        }
        assert_eq!(breaker.measures(services.now())[0].value, 0.0);
    }

    #[test]
    fn a_probe_that_is_given_up_makes_room_for_another() {
        let (breaker, services) = (breaker(), FakeServices::default());
        for _ in 0..4 {
            assert!(attempt(&breaker, &services, true));
        }
        services.pass(Duration::from_secs(5));
        for _ in 0..10 {
            drop(breaker.admit(&services).unwrap());
        }
        assert!(attempt(&breaker, &services, false));
        assert!(attempt(&breaker, &services, false));
        assert_eq!(breaker.measures(services.now())[0].value, 0.0);
    }

    #[test]
    fn tries_from_before_it_opened_are_no_probes() {
        let (breaker, services) = (breaker(), FakeServices::default());
        let mut old: Vec<_> = (0..3).map(|_| breaker.admit(&services).unwrap()).collect();
        for _ in 0..4 {
            assert!(attempt(&breaker, &services, true));
        }
        services.pass(Duration::from_secs(5));
        let mut probe = breaker.admit(&services).unwrap();
        let fault = Fault::new(Kind::Timeout, Origin::Upstream, "");
        old.pop().unwrap().end(None, false);
        old.pop().unwrap().end(Some(&fault), false);
        drop(old);
        assert_eq!(breaker.measures(services.now())[0].value, 1.0);
        let second = breaker.admit(&services).unwrap();
        assert!(breaker.admit(&services).is_err(), "two probes at a time");
        drop(second);
        probe.end(None, false);
        assert!(attempt(&breaker, &services, false));
        assert_eq!(breaker.measures(services.now())[0].value, 0.0);
    }

    #[test]
    fn old_failures_are_forgotten() {
        let (breaker, services) = (breaker(), FakeServices::default());
        for _ in 0..3 {
            assert!(attempt(&breaker, &services, true));
        }
        services.pass(Duration::from_secs(11));
        for _ in 0..3 {
            assert!(attempt(&breaker, &services, true));
        }
        assert!(attempt(&breaker, &services, true));
        assert!(!attempt(&breaker, &services, true));
    }
}
