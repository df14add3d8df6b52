//! The poller at work: when it asks, and what it tells of it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use component::handler::{LocalFuture, Services};
use message::Fault;

use super::fetch::{Answer, Fetched, Fetcher};
use super::memory::{Counts, Last, Memory};
use super::sink::{Brought, Sink};

/// The longest time that a `Retry-After` is heeded.
const HOLD_MAX: Duration = Duration::from_secs(3600);

/// How often is written down what may be older than it is.
const REMEMBER: Duration = Duration::from_secs(30);

/// When requests are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub every: Duration,
    pub jitter: Duration,
}

/// A poller.
pub(super) struct Poller {
    /// What logs call it: the flow's or the topic's name.
    pub name: Arc<str>,
    pub timing: Timing,
    pub fetcher: Fetcher,
    pub memory: Arc<Memory>,
}

/// Does work until it is done or the source has to stop: `None` then, and the work is given up.
async fn or_stop<T>(
    work: impl Future<Output = T>,
    stop: &mut LocalFuture<'static, ()>,
) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

impl Poller {
    /// Polls until it has to stop. A request under way is given up then; a document that has come
    /// is handed over first.
    pub async fn run(
        &self,
        sink: &dyn Sink,
        services: &dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) {
        if or_stop(self.recall(sink), &mut stop).await.is_none() {
            return;
        }
        loop {
            if or_stop(sink.wanted(), &mut stop).await.is_none() {
                return;
            }
            let wait = self.wait(services);
            if !wait.is_zero() && or_stop(services.sleep(wait), &mut stop).await.is_none() {
                return;
            }
            if !sink.is_wanted() {
                continue;
            }
            let (last, began) = self.begin(services);
            let started = services.wall();
            let fetch = self.fetcher.fetch(&last, services);
            let Some(answer) = or_stop(fetch, &mut stop).await else {
                // Nobody knows what it would have brought: the next plan's poller asks at once.
                let mut inner = self.memory.lock();
                (inner.next, inner.began) = (None, None);
                return;
            };
            self.take(answer, (last, started), sink, services).await;
            self.end(began, services);
        }
    }

    /// Reads what was remembered over a restart, and forgets what was learnt for another place.
    async fn recall(&self, sink: &dyn Sink) {
        if !self.memory.lock().is_read {
            let last = sink.remembered().await;
            let mut inner = self.memory.lock();
            inner.is_read = true;
            if let Some(last) = last {
                inner.last = last;
            }
        }
        let place = sink.place().await;
        let mut inner = self.memory.lock();
        if inner.last.place != place {
            // The document is not there: it has to come again, and not as "not modified".
            (inner.last.validators, inner.last.digest) = (None, None);
            inner.last.place = place;
        }
    }

    /// How long until the next request.
    fn wait(&self, services: &dyn Services) -> Duration {
        let now = services.now();
        let mut inner = self.memory.lock();
        let earliest = inner.began.map_or(now, |began| began + self.timing.every);
        // When nobody wanted documents for a while, the times are counted from now on.
        let due = inner
            .next
            .filter(|next| *next >= now)
            .unwrap_or(earliest.max(now));
        inner.next = Some(due);
        drop(inner);
        let jitter = self.timing.jitter.mul_f64(services.random());
        (due + jitter).saturating_duration_since(now)
    }

    fn begin(&self, services: &dyn Services) -> (Last, Instant) {
        Counts::add(&self.memory.counts.polls);
        let mut inner = self.memory.lock();
        let now = services.now();
        let due = inner.next.unwrap_or(now);
        inner.began = Some(due);
        (inner.last.clone(), due)
    }

    /// The next request is due a multiple of the period behind the last: one that would have been
    /// due already is left out.
    fn end(&self, began: Instant, services: &dyn Services) {
        let (every, now) = (self.timing.every, services.now());
        let late = now.saturating_duration_since(began);
        let periods = late.as_nanos() / every.as_nanos().max(1);
        let skipped = u32::try_from(periods).unwrap_or(u32::MAX);
        let counts = &self.memory.counts;
        let add = std::sync::atomic::Ordering::Relaxed;
        counts.skipped.fetch_add(skipped.into(), add);
        let next = began + every.saturating_mul(skipped.saturating_add(1));
        let mut inner = self.memory.lock();
        let held = inner
            .next
            .filter(|held| *held > next && inner.failing.is_some());
        inner.next = Some(held.unwrap_or(next));
    }

    /// Hands over what a poll has brought, and notes what has become of it.
    async fn take(
        &self,
        answer: Result<Answer, Fault>,
        (mut last, started): (Last, Duration),
        sink: &dyn Sink,
        services: &dyn Services,
    ) {
        let result = match answer {
            Ok(answer) => self.hand_over(answer, &mut last, sink, services).await,
            Err(fault) => Err(fault),
        };
        match result {
            Ok(()) => {
                let time = u64::try_from(started.as_millis());
                last.success_ms = Some(time.unwrap_or(u64::MAX));
                self.remember(&last, sink, services).await;
                self.succeed(last, services);
            }
            Err(fault) => self.fail(&fault, services),
        }
    }

    /// Remembers over a restart what has changed; the time alone now and then, for it to be too old
    /// only makes the next request ask for more.
    async fn remember(&self, last: &Last, sink: &dyn Sink, services: &dyn Services) {
        let now = services.now();
        let written = self.memory.lock().written.take();
        let is_written = written.as_ref().is_some_and(|(before, at)| {
            let is_young = now.saturating_duration_since(*at) < REMEMBER;
            is_young && (sink.may_lag(last) || before.is_but_for_time(last))
        });
        if !is_written {
            sink.remember(last).await;
        }
        let written = written.filter(|_| is_written);
        self.memory.lock().written = Some(written.unwrap_or_else(|| (last.clone(), now)));
    }

    async fn hand_over(
        &self,
        answer: Answer,
        last: &mut Last,
        sink: &dyn Sink,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let counts = &self.memory.counts;
        let document = match answer.fetched {
            Fetched::NotModified => {
                Counts::add(&counts.not_modified);
                return Ok(());
            }
            Fetched::Nothing => None,
            Fetched::Document(document) => Some(document),
        };
        let brought = Brought {
            document,
            last: &mut *last,
        };
        match sink.take(brought, services).await? {
            true => Counts::add(&counts.changes),
            false => Counts::add(&counts.unchanged),
        }
        last.validators = answer.validators;
        if let Some(kept) = answer.kept {
            let mut text = Vec::new();
            let written = expr::json::write(&kept, usize::MAX, &mut text);
            written.map_err(Fault::expression)?;
            last.kept = String::from_utf8(text).ok();
        }
        Ok(())
    }

    fn succeed(&self, last: Last, services: &dyn Services) {
        let mut inner = self.memory.lock();
        inner.last = last;
        inner.succeeded = Some(services.now());
        let failing = inner.failing.take();
        drop(inner);
        if failing.is_some() {
            let (name, system) = (&*self.name, self.system());
            tracing::info!(target: "poll", name, system, "polling succeeds again");
        }
    }

    /// A failure is told when it is another one than the last: a system that is down for an hour
    /// must not fill the log.
    fn fail(&self, fault: &Fault, services: &dyn Services) {
        Counts::add(&self.memory.counts.failures);
        let kind = match fault.of {
            message::Of::Status(status) => status.to_string(),
            _ => fault.name().to_owned(),
        };
        let mut inner = self.memory.lock();
        if let Some(hold) = fault.retry_after {
            inner.next = Some(services.now() + hold.min(HOLD_MAX));
        }
        let before = inner.failing.replace(kind.clone());
        drop(inner);
        if before.as_ref() != Some(&kind) {
            let (name, system) = (&*self.name, self.system());
            let cause = fault.cause.as_deref().unwrap_or_default();
            tracing::warn!(target: "poll", name, system, kind, cause, "{}", fault.detail);
        }
    }

    fn system(&self) -> &str {
        &self.fetcher.asker.upstream().name
    }
}
