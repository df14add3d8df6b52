//! How often credentials of one address may be wrong before they are not looked at any more.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use access::guessing::{Budget, FailedChecks};
use component::state::{Measure, State, StateKey, States};

use crate::way::Rejection;

/// The failed checks of all ways and workers.
pub(crate) struct Guesses {
    checks: Mutex<FailedChecks>,
    /// Whether nothing has failed lately, so that nobody has to ask the table.
    is_quiet: AtomicBool,
    refused: AtomicU64,
}

impl Default for Guesses {
    fn default() -> Self {
        Self {
            checks: Mutex::new(FailedChecks::new(Budget::default(), Instant::now())),
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
        looked.map_err(|wait| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            Rejection::Limited(wait)
        })
    }

    /// Begins a check that takes long: it counts as failed until it is given back.
    ///
    /// # Errors
    /// As [`Guesses::look`].
    pub fn take(&self, address: IpAddr, now: Instant) -> Result<(), Rejection> {
        let taken = self.checks().take(address, now);
        self.is_quiet.store(false, Ordering::Relaxed);
        taken.map_err(|wait| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            Rejection::Limited(wait)
        })
    }

    /// The same for a check that may be dropped before its end: it is given back then, too.
    ///
    /// # Errors
    /// As [`Guesses::look`].
    pub fn begin(self: &Arc<Self>, address: IpAddr, now: Instant) -> Result<Begun, Rejection> {
        self.take(address, now)?;
        Ok(Begun {
            guesses: Arc::clone(self),
            address,
            since: now,
            has_failed: false,
        })
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

/// A check under way: given back when this is dropped, unless it has failed.
pub(crate) struct Begun {
    guesses: Arc<Guesses>,
    address: IpAddr,
    since: Instant,
    has_failed: bool,
}

impl Begun {
    /// The credential was wrong.
    pub fn fail(mut self) {
        self.has_failed = true;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.has_failed {
            self.guesses.give_back(self.address, self.since);
        }
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
