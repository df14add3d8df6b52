//! The token of all workers: whether it is used, renewed, or too early to ask again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use component::state::{Measure, State};
use message::{Fault, Kind, Origin};

use super::answer::Token;

/// How many may wait for the request for a token.
const WAITING_MAX: usize = 10_000;

/// The first and the longest time until the token server is asked again, after it has failed or
/// after its last token was refused.
const BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The part of each of these times that is random.
const JITTER: f64 = 0.5;

/// What to do for a token.
pub(super) enum Look {
    /// Use this one.
    Use(String),
    /// Ask for another one. The one that is there is still good until then, if there is one.
    Ask(Option<String>),
}

#[derive(Default)]
pub(super) struct Kept {
    /// Held by the one who asks for a token.
    pub asking: Arc<tokio::sync::Mutex<()>>,
    waiting: AtomicUsize,
    inner: Mutex<Inner>,
    asked: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct Inner {
    token: Option<Good>,
    /// How the last request has failed, if it has.
    fault: Option<Fault>,
    /// How many requests in a row have failed, or were made for a refused token.
    backoffs: u32,
    /// The token server is not asked before.
    not_before: Option<Instant>,
}

/// A token and its times; `None` where it has no end.
struct Good {
    authorization: String,
    /// Whether the system has refused it.
    is_refused: bool,
    since: Instant,
    /// When it is time to ask for the next one.
    renew_at: Option<Instant>,
    expires_at: Option<Instant>,
}

/// One that waits, for as long as this lives.
pub(super) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to do for a token.
    ///
    /// # Errors
    /// How the last request has failed, when there is no token and it is too early for another.
    pub fn look(&self, now: Instant) -> Result<Look, Fault> {
        let inner = self.lock();
        let is_early = inner.not_before.is_some_and(|at| now < at);
        let good = inner.token.as_ref();
        let good = good.filter(|it| it.expires_at.is_none_or(|at| now < at));
        let Some(good) = good else {
            return match inner.fault.as_ref().filter(|_| is_early) {
                Some(fault) => Err(fault.clone()),
                None => Ok(Look::Ask(None)),
            };
        };
        let is_refused = good.is_refused;
        let is_due = is_refused || good.renew_at.is_some_and(|at| now >= at);
        let value = good.authorization.clone();
        Ok(match is_due && !is_early {
            true => Look::Ask((!is_refused).then_some(value)),
            false => Look::Use(value),
        })
    }

    /// Puts a new token in, and gives the value of `Authorization`.
    pub fn renew(&self, token: Token, margin: Duration, now: Instant, random: f64) -> String {
        let value = token.authorization();
        let renew_after = token.life.map(|life| life - margin.min(life / 2));
        let mut inner = self.lock();
        match inner.token.as_ref().filter(|good| good.is_refused) {
            // Perhaps no token will do: do not ask for one at each refusal.
            Some(old) => {
                if now.saturating_duration_since(old.since) > BACKOFF_MAX * 2 {
                    inner.backoffs = 0;
                }
                inner.back_off(now, random);
            }
            None => (inner.backoffs, inner.not_before) = (0, None),
        }
        inner.fault = None;
        inner.token = Some(Good {
            authorization: value.clone(),
            is_refused: false,
            since: now,
            renew_at: renew_after.map(|time| now + time),
            expires_at: token.life.map(|life| now + life),
        });
        self.asked.fetch_add(1, Ordering::Relaxed);
        value
    }

    /// Notes that a system has refused this token. Others may have another one already.
    pub fn refuse(&self, authorization: &str) {
        let mut inner = self.lock();
        let token = inner.token.as_mut();
        if let Some(good) = token.filter(|good| good.authorization == authorization) {
            good.is_refused = true;
        }
    }

    /// Notes that a request has failed. A token that is there is used until it expires.
    pub fn fail(&self, fault: &Fault, now: Instant, random: f64) {
        let mut inner = self.lock();
        inner.fault = Some(fault.clone());
        inner.back_off(now, random);
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that waits for the request of another one.
    ///
    /// # Errors
    /// `unavailable` when too many wait.
    pub fn join(&self) -> Result<Waiting<'_>, Fault> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.waiting);
        if before < WAITING_MAX {
            return Ok(waiting);
        }
        let detail = "too many requests wait for a token";
        let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
        Err(fault.with_retry_after(Duration::from_secs(1)))
    }
}

impl Inner {
    fn back_off(&mut self, now: Instant, random: f64) {
        let longest = BACKOFF
            .saturating_mul(1 << self.backoffs.min(16))
            .min(BACKOFF_MAX);
        self.backoffs = self.backoffs.saturating_add(1);
        self.not_before = Some(now + longest.mul_f64(1.0 - JITTER * random));
    }
}

impl State for Kept {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![
            Measure::count("oauth2_tokens_total", "Tokens received.", &self.asked),
            Measure::count(
                "oauth2_failed_total",
                "Requests for a token that failed.",
                &self.failed,
            ),
        ]
    }
}
