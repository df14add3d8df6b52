//! What every source does with the messages that it takes: run the flow, try again after a failure,
//! keep what fails for good as a dead letter, and only then acknowledge.
//!
//! A source takes messages from its system, runs as many [`Intake::process`] at a time as it
//! likes, and settles each message there as the [`Settlement`] says. Acknowledgement, failure,
//! retries and dead letters have the same meaning for all sources, because they are decided here.

mod counts;
mod dead_letter;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use message::{Body, Fault, Headers, Kind, Origin, Reply, Request, secret};
use tokio::sync::Notify;

pub use self::counts::IntakeCounts;
pub use self::dead_letter::{
    DeadLetter, DeadLetterConfig, DeadLetterPlace, DeadLetterTarget, OwnTarget,
};
use crate::handler::Services;
use crate::resilience::{Backoff, RetryPolicy};
use crate::source::{Started, success};

/// How long a dead letter waits that cannot be kept.
const KEEP_AGAIN: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(30));
/// So many deliveries that no consumer has settled make a message a dead letter, even where fewer
/// retries are wanted: an engine that was killed or reloaded says nothing against the messages that
/// it had. A quorum queue of RabbitMQ drops what it has delivered more than 20 times.
const UNSETTLED_MIN: u32 = 10;
/// However many retries are wanted, so many unsettled deliveries are enough.
const UNSETTLED_MAX: u32 = 100;

/// What becomes of messages whose flow fails.
#[derive(Clone, Debug)]
pub struct IntakePolicy {
    /// When the flow is run again.
    pub retry: RetryPolicy,
    /// What becomes of a message after the last try.
    pub dead_letter: DeadLetter,
    /// The longest delay for which a message is held here, unacknowledged. Before a longer one it
    /// is put back ([`Settlement::PutBack`]).
    pub hold_max: Duration,
}

/// What a source has of the intake on all workers together.
#[derive(Debug)]
pub struct IntakePlan {
    /// What becomes of messages.
    pub policy: IntakePolicy,
    counts: Arc<IntakeCounts>,
    halt: Arc<Halt>,
}

/// Whether no worker takes a further message: `dead_letter: stop`.
#[derive(Debug, Default)]
struct Halt {
    is_halted: AtomicBool,
    halted: Notify,
}

impl IntakePlan {
    /// The plan of a source. Counts go to `counts`.
    pub fn new(policy: IntakePolicy, counts: Arc<IntakeCounts>) -> Arc<Self> {
        Arc::new(Self {
            policy,
            counts,
            halt: Arc::default(),
        })
    }

    /// The same source where messages are retried so often.
    pub fn with_retries(&self, times: u32) -> Arc<Self> {
        let mut policy = self.policy.clone();
        policy.retry.times = times;
        Arc::new(Self {
            policy,
            counts: Arc::clone(&self.counts),
            halt: Arc::clone(&self.halt),
        })
    }
}

/// A message that a source has taken and not settled yet.
pub trait Incoming {
    /// What names the message in its system, for logs.
    fn id(&self) -> String;

    /// The message as the flow gets it. `attempt` is 1 for the first run.
    ///
    /// # Errors
    /// When it cannot be read; this counts as a failure of the flow.
    fn request(&mut self, attempt: u32) -> Result<Request, Fault>;

    /// Called with the result of each run, for sources that record more of it than the fault that
    /// it counts as, such as the text of an error reply.
    fn flow_ended(&mut self, _result: &Result<Reply, Fault>) {}

    /// How often it has been delivered before and not settled, as far as its system counts that.
    fn delivered_before(&self) -> u32 {
        0
    }

    /// How often its flow has failed before, where its system keeps that.
    fn failed_before(&self) -> u32 {
        0
    }

    /// Whether its system has taken it back, so that it is delivered again: then it is not tried
    /// again here, and becomes no dead letter.
    fn is_gone(&self) -> bool {
        false
    }

    /// What is kept of it as a dead letter.
    fn letter(&mut self, attempt: u32) -> Request {
        self.request(attempt)
            .unwrap_or_else(|_| Request::of_source("UNREADABLE", Headers::new(), Body::Empty))
    }
}

/// What a source has to do with a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Settlement {
    /// Acknowledge it: the flow has succeeded, or the message is durable elsewhere, or is meant to
    /// be dropped.
    Acknowledge,
    /// Refuse it: its own system keeps what was refused, or has been told not to.
    Reject {
        /// Why, without secrets.
        reason: String,
        /// How often the flow has failed with it.
        failed: u32,
    },
    /// Give it back, to be delivered again after this time.
    PutBack(Duration),
    /// Leave it unacknowledged: the source ends, and its system delivers the message again.
    Release,
}

/// What has come of a message.
#[derive(Debug)]
pub struct Processed {
    /// What to do with it.
    pub settlement: Settlement,
    /// How the flow has ended the last time; none when it has not run.
    pub result: Option<Result<Reply, Fault>>,
}

impl Processed {
    fn release() -> Self {
        Self {
            settlement: Settlement::Release,
            result: None,
        }
    }
}

/// What a source does with its messages, on one worker.
pub struct Intake {
    flow: Arc<dyn Started>,
    plan: Arc<IntakePlan>,
    is_stopping: Cell<bool>,
    /// How many dead letters cannot be kept at the moment.
    blocked: Cell<usize>,
    changed: Notify,
}

impl Intake {
    /// Of a source, for its flow.
    pub fn new(flow: &Arc<dyn Started>, plan: &Arc<IntakePlan>) -> Self {
        let intake = Self {
            flow: Arc::clone(flow),
            plan: Arc::clone(plan),
            is_stopping: Cell::new(false),
            blocked: Cell::new(0),
            changed: Notify::new(),
        };
        // A plan before this one may have been halted. A plan that is only loaded changes nothing.
        plan.counts.halted.set(intake.is_halted().into());
        intake
    }

    /// Has no further try begin: messages that wait for one are released.
    pub fn stop(&self) {
        self.is_stopping.set(true);
        self.changed.notify_waiters();
    }

    /// Whether the source has to end, or takes no further message: what it takes would be released.
    pub fn is_over(&self) -> bool {
        self.is_stopping.get() || self.is_halted()
    }

    /// Whether no worker takes a further message, since one has failed for good: its file says
    /// `dead_letter: stop`.
    pub fn is_halted(&self) -> bool {
        self.plan.halt.is_halted.load(Ordering::Acquire)
    }

    /// Waits until the source has to end or takes no further message.
    pub async fn over(&self) {
        self.until(Self::is_over).await;
    }

    /// What becomes of messages.
    pub fn policy(&self) -> &IntakePolicy {
        &self.plan.policy
    }

    /// Whether nothing is taken because a dead letter cannot be kept.
    pub fn is_blocked(&self) -> bool {
        self.blocked.get() > 0
    }

    /// Waits until the condition holds. It is looked at again after each change of this intake, and
    /// when a worker halts the source.
    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let halt = &self.plan.halt;
        let mut changed = pin!(self.changed.notified());
        let mut halted = pin!(halt.halted.notified());
        loop {
            // Before the look, so that no change in between is missed.
            changed.as_mut().enable();
            halted.as_mut().enable();
            if is_so(self) {
                return;
            }
            poll_fn(|context| match changed.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => halted.as_mut().poll(context),
            })
            .await;
            changed.set(self.changed.notified());
            halted.set(halt.halted.notified());
        }
    }

    /// Sleeps; `false` when the source has to end before the time is over.
    pub async fn pause(&self, time: Duration, services: &dyn Services) -> bool {
        let mut over = pin!(self.until(Self::is_over));
        let mut sleep = services.sleep(time);
        poll_fn(|context| {
            if over.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            sleep.as_mut().poll(context).map(|()| true)
        })
        .await
    }

    /// Repeats something until it succeeds, with growing delays; `None` when the source has to end
    /// before. `log` logs a failure: the first one, and then each tenth.
    pub async fn until_done<T, E>(
        &self,
        services: &dyn Services,
        mut work: impl AsyncFnMut() -> Result<T, E>,
        log: impl Fn(&E),
    ) -> Option<T> {
        let mut failures = 0_u32;
        loop {
            match work().await {
                Ok(done) => return Some(done),
                Err(error) => {
                    failures += 1;
                    if failures % 10 == 1 {
                        log(&error);
                    }
                    let wait = KEEP_AGAIN.delay_after(failures, 0.0);
                    if !self.pause(wait, services).await {
                        return None;
                    }
                }
            }
        }
    }

    /// As [`Intake::until_done`], to keep a dead letter: no further message is begun until it is
    /// kept.
    pub async fn until_kept<T, E>(
        &self,
        services: &dyn Services,
        mut keep: impl AsyncFnMut() -> Result<T, E>,
        log: impl Fn(&E),
    ) -> Option<T> {
        let blocked = Blocked::of(self);
        let keep = async || {
            let kept = keep().await;
            blocked.set(kept.is_err());
            kept
        };
        self.until_done(services, keep, log).await
    }

    /// Runs the flow on a message until it has succeeded, or the message is kept as a dead letter,
    /// and says how the source has to settle it. Dropped before its end, nothing is settled.
    pub async fn process(&self, message: &mut dyn Incoming, services: &dyn Services) -> Processed {
        if self.is_blocked() {
            // No message is begun whose dead letter could not be kept either.
            // What is rare is on the heap: all messages under way would pay for its size.
            Box::pin(self.until(|it| it.is_over() || !it.is_blocked())).await;
        }
        if self.is_over() || message.is_gone() {
            return Processed::release();
        }
        let retry = &self.plan.policy.retry;
        let mut failed = message.failed_before();
        let delivered = message.delivered_before();
        if delivered > UNSETTLED_MAX.min(retry.times).max(UNSETTLED_MIN) {
            let why = "it was delivered too often without an answer";
            let fault = Fault::new(Kind::Internal, Origin::Engine, why);
            return Box::pin(self.give_up(message, (delivered, fault), services)).await;
        }
        loop {
            // What a wait holds is part of each message under way: neither its request nor the
            // result of its flow.
            let request = message.request(failed.saturating_add(1));
            let running = request.map(|request| self.flow.start(request, services));
            let fault = {
                let result = match running {
                    Ok(running) => running.await,
                    Err(fault) => Err(fault),
                };
                message.flow_ended(&result);
                match success(result) {
                    Ok(reply) => {
                        self.plan.counts.succeeded.add();
                        return Processed {
                            settlement: Settlement::Acknowledge,
                            result: Some(Ok(reply)),
                        };
                    }
                    Err(fault) => fault,
                }
            };
            failed = failed.saturating_add(1);
            self.plan.counts.failed.add();
            if message.is_gone() {
                return Processed::release();
            }
            let Some(delay) = retry.delay_after(failed, &fault, services.random()) else {
                return Box::pin(self.give_up(message, (failed, fault), services)).await;
            };
            self.plan.counts.retried.add();
            if delay > self.plan.policy.hold_max {
                return Processed {
                    settlement: Settlement::PutBack(delay),
                    result: Some(Err(fault)),
                };
            }
            drop(fault);
            if !Box::pin(self.pause(delay, services)).await || message.is_gone() {
                return Processed::release();
            }
        }
    }

    /// What becomes of a message whose last try has failed.
    async fn give_up(
        &self,
        message: &mut dyn Incoming,
        (failed, fault): (u32, Fault),
        services: &dyn Services,
    ) -> Processed {
        let (flow, id) = (&**self.flow.name(), message.id());
        let reason = secret::redact(&fault.to_string()).into_owned();
        let settlement = match &self.plan.policy.dead_letter {
            DeadLetter::Keep(target) => {
                let of = (failed, &*reason, &**target);
                self.keep(message, of, services).await
            }
            DeadLetter::Reject => Settlement::Reject { reason, failed },
            DeadLetter::Drop => {
                tracing::error!(target: "flow", flow, id, failed, reason, "a message is dropped");
                self.plan.counts.dropped.add();
                Settlement::Acknowledge
            }
            DeadLetter::Stop => {
                tracing::error!(
                    target: "flow", flow, id, failed, reason,
                    "no further messages are taken: `dead_letter: stop`"
                );
                self.plan.counts.halted.set(1);
                self.plan.halt.is_halted.store(true, Ordering::Release);
                self.plan.halt.halted.notify_waiters();
                Settlement::Release
            }
        };
        Processed {
            settlement,
            result: Some(Err(fault)),
        }
    }

    /// Keeps a dead letter, as often as that takes.
    async fn keep(
        &self,
        message: &mut dyn Incoming,
        (failed, reason, target): (u32, &str, &dyn DeadLetterTarget),
        services: &dyn Services,
    ) -> Settlement {
        let (flow, id) = (&**self.flow.name(), message.id());
        let kept = self.until_kept(
            services,
            async || {
                if message.is_gone() {
                    // It comes again, and becomes a dead letter then.
                    return Ok(false);
                }
                let mut letter = message.letter(failed);
                let parameters = [
                    ("dead_letter_flow", flow.to_owned()),
                    ("dead_letter_id", id.clone()),
                    ("dead_letter_attempts", failed.to_string()),
                    ("dead_letter_reason", reason.to_owned()),
                ];
                let known = |name: &str| parameters.iter().any(|(own, _)| *own == name);
                letter.parameters.retain(|(name, _)| !known(name));
                let parameters = parameters.map(|(name, value)| (name.into(), encoded(&value)));
                letter.parameters.extend(parameters);
                target.keep(letter, services).await.map(|()| true)
            },
            |error| {
                let to = target.name();
                tracing::error!(
                    target: "flow", flow, id, to, %error,
                    "a dead letter cannot be kept: no further messages are taken until it is"
                );
            },
        );
        if kept.await != Some(true) {
            return Settlement::Release;
        }
        self.dead_letter_kept((&id, target.name()), failed, reason);
        Settlement::Acknowledge
    }

    /// Logs and counts a dead letter that is kept. Sources call this for messages that they were
    /// told to reject, once that is done.
    pub fn dead_letter_kept(&self, (id, to): (&str, &str), failed: u32, reason: &str) {
        let flow = &**self.flow.name();
        tracing::error!(target: "flow", flow, id, failed, reason, to, "a message is a dead letter");
        self.plan.counts.dead_letters.add();
    }
}

/// A text as a parameter of a path: what looks like an escape sequence is none.
fn encoded(text: &str) -> String {
    text.replace('%', "%25")
}

/// Whether a dead letter cannot be kept at the moment.
struct Blocked<'a> {
    intake: &'a Intake,
    is_counted: Cell<bool>,
}

impl<'a> Blocked<'a> {
    fn of(intake: &'a Intake) -> Self {
        Self {
            intake,
            is_counted: Cell::new(false),
        }
    }

    fn set(&self, is_blocked: bool) {
        let Intake {
            blocked,
            changed,
            plan,
            ..
        } = self.intake;
        let counts = &plan.counts;
        match (self.is_counted.replace(is_blocked), is_blocked) {
            (false, true) => {
                blocked.set(blocked.get() + 1);
                counts.blocked.add();
            }
            (true, false) => {
                blocked.set(blocked.get() - 1);
                counts.blocked.remove();
                changed.notify_waiters();
            }
            _ => {}
        }
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}
