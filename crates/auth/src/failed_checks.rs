//! How often credentials of one address may be wrong before they are not looked at any more.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::guessing::{Budget, FailedChecks, PendingChecks};
use component::handler::{Services, within};
use component::state::{Measure, State, StateKey, States};
use tokio::sync::Notify;

use crate::way::Rejection;

/// The failed checks of all ways and workers.
pub(crate) struct Guesses {
    checks: Mutex<FailedChecks>,
    /// The checks that ask other systems.
    pending: Mutex<PendingChecks<Arc<Notify>>>,
    /// Whether nothing has failed lately, so that nobody has to ask the table.
    is_quiet: AtomicBool,
    refused: AtomicU64,
}

impl Default for Guesses {
    fn default() -> Self {
        Self {
            checks: Mutex::new(FailedChecks::new(Budget::default(), Instant::now())),
            pending: Mutex::default(),
            is_quiet: AtomicBool::new(true),
            refused: AtomicU64::new(0),
        }
    }
}

impl Guesses {
    /// Those of the process.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "failed_checks"), Self::default)
    }

    fn checks(&self) -> MutexGuard<'_, FailedChecks> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a credential of this address may be checked.
    ///
    /// # Errors
    /// [`Rejection::Limited`], when too many have been wrong.
    pub fn look(&self, address: IpAddr, now: Instant) -> Result<(), Rejection> {
        if self.is_quiet.load(Ordering::Relaxed) {
            return Ok(());
        }
        let looked = self.checks().look(address, now);
        looked.map_err(|wait| self.limited(wait))
    }

    /// Begins a check that takes long: it counts as failed until it is given back.
    ///
    /// # Errors
    /// As [`Guesses::look`].
    pub fn take(&self, address: IpAddr, now: Instant) -> Result<(), Rejection> {
        self.try_take(address, now)
            .map_err(|wait| self.limited(wait))
    }

    fn try_take(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let taken = self.checks().take(address, now);
        self.is_quiet.store(false, Ordering::Relaxed);
        taken
    }

    #[cold]
    fn limited(&self, wait: Duration) -> Rejection {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Rejection::Limited(wait)
    }

    /// Begins a check that asks another system. Many clients may share an address, and their tokens
    /// may be good: when the budget is used up by pending checks, this waits up to `time` for one
    /// of them to be given back. The check is given back when it is dropped, too.
    ///
    /// # Errors
    /// As [`Guesses::look`], and when too many wait.
    pub async fn begin(
        self: &Arc<Self>,
        address: IpAddr,
        time: Duration,
        services: &dyn Services,
    ) -> Result<PendingCheck, Rejection> {
        let wait = match self.try_begin(address, services.now()) {
            Ok(begun) => return Ok(begun),
            Err(wait) => wait,
        };
        let Some(waiting) = Waiting::enter(self, address) else {
            return Err(self.limited(wait));
        };
        let turn = within(time, services, waiting.turn(services)).await;
        turn.unwrap_or(Err(wait)).map_err(|wait| self.limited(wait))
    }

    fn try_begin(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
    ) -> Result<PendingCheck, Duration> {
        self.try_take(address, now)?;
        self.pending().begin(address);
        Ok(PendingCheck {
            guesses: Arc::clone(self),
            address,
            since: now,
            has_failed: false,
        })
    }

    fn pending(&self) -> MutexGuard<'_, PendingChecks<Arc<Notify>>> {
        let locked = self.pending.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// A check that was begun by [`Guesses::take`] has not failed.
    pub fn give_back(&self, address: IpAddr, now: Instant) {
        self.checks().give_back(address, now);
    }

    /// Notes that a credential of this address was wrong.
    pub fn failed(&self, address: IpAddr, now: Instant) {
        self.checks().failed(address, now);
        self.is_quiet.store(false, Ordering::Relaxed);
    }
}

/// A pending check: given back when this is dropped, unless it has failed.
pub(crate) struct PendingCheck {
    guesses: Arc<Guesses>,
    address: IpAddr,
    since: Instant,
    has_failed: bool,
}

impl PendingCheck {
    /// The credential was wrong.
    pub fn fail(mut self) {
        self.has_failed = true;
    }

    /// From here on a client that leaves does not get it back: somebody is being asked already.
    pub fn count_if_dropped(&mut self) {
        self.has_failed = true;
    }

    /// The credential was not wrong, after all.
    pub fn give_back(mut self) {
        self.has_failed = false;
    }
}

impl Drop for PendingCheck {
    fn drop(&mut self) {
        if !self.has_failed {
            self.guesses.give_back(self.address, self.since);
        }
        let ended = self.guesses.pending().end(self.address);
        match ended {
            // Nobody will be woken again, so all find out whether there is room for them.
            Some((waiting, true)) => waiting.notify_waiters(),
            Some((waiting, false)) if !self.has_failed => waiting.notify_one(),
            _ => {}
        }
    }
}

/// A check that waits for pending ones of its address.
struct Waiting {
    guesses: Arc<Guesses>,
    address: IpAddr,
    wake: Arc<Notify>,
}

impl Waiting {
    /// `None` when there is nothing to wait for, or too many wait.
    fn enter(guesses: &Arc<Guesses>, address: IpAddr) -> Option<Self> {
        let wake = guesses.pending().wait(address)?;
        Some(Self {
            guesses: Arc::clone(guesses),
            address,
            wake,
        })
    }

    /// Begins the check when there is room for it.
    async fn turn(&self, services: &dyn Services) -> Result<PendingCheck, Duration> {
        loop {
            let mut woken = pin!(self.wake.notified());
            // From here on a check that ends is noticed.
            woken.as_mut().enable();
            let is_any = self.guesses.pending().is_any(self.address);
            match self.guesses.try_begin(self.address, services.now()) {
                Err(_) if is_any => woken.await,
                ended => return ended,
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.guesses.pending().leave(self.address);
    }
}

impl State for Guesses {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let addresses = self.checks().len() as f64;
        vec![
            Measure::count(
                "auth_limited_total",
                "Credentials that were not checked: too many of their address were wrong.",
                &self.refused,
            ),
            Measure {
                name: "auth_failing_addresses",
                help: "Addresses that have sent wrong credentials lately.",
                value: addresses,
            },
        ]
    }
}
