//! The schedule at work: it waits, starts runs, and ends when they have ended.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use component::handler::{LocalFuture, Services};
use component::source::{Source, Started, success};
use jiff::{SignedDuration, Timestamp};
use message::{Headers, Request};

use super::state::ScheduleState;
use super::timing::{Due, Moment};
use super::{Missed, Overlap, Settings};
use crate::under_way::UnderWay;

/// The longest time without a look at the clock, which may be put forward or back meanwhile.
const LOOK: Duration = Duration::from_secs(60);

/// The most runs beside each other.
const BESIDE_MAX: usize = 100;

/// The source.
pub(super) struct Schedule {
    pub settings: Settings,
    pub state: Arc<ScheduleState>,
}

impl Source for Schedule {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        let work = Work {
            schedule: self,
            flow,
            services,
            runs: UnderWay::new(),
            queued: None,
            is_stopping: Rc::default(),
        };
        Box::pin(work.run(stop))
    }
}

/// Why the schedule goes on.
enum Event {
    Stop,
    /// A run has ended.
    Ended,
    /// It is time to look at the clock.
    Time,
}

/// The schedule while it runs.
struct Work<'a> {
    schedule: &'a Schedule,
    flow: &'a Arc<dyn Started>,
    services: &'a dyn Services,
    runs: UnderWay<'a, ()>,
    /// The time of a run that waits for the end of another.
    queued: Option<Timestamp>,
    /// Whether no retry may begin.
    is_stopping: Rc<Cell<bool>>,
}

impl Work<'_> {
    async fn run(mut self, mut stop: LocalFuture<'static, ()>) {
        let (schedule, services) = (self.schedule, self.services);
        if poll_fn(|context| Poll::Ready(stop.as_mut().poll(context).is_ready())).await {
            return;
        }
        let is_first = !std::mem::replace(&mut schedule.state.memory().has_begun, true);
        // The position is taken before the first run, which may take its time.
        let _ = self.wait(Duration::ZERO);
        if is_first && schedule.settings.at_start {
            self.start(wall(services));
        }
        let mut jitter = self.jitter();
        loop {
            let wait = self.wait(jitter);
            if wait.is_zero() {
                self.take(jitter);
                jitter = self.jitter();
                continue;
            }
            let mut sleep = services.sleep(wait.min(LOOK));
            let runs = &mut self.runs;
            let event = poll_fn(|context| {
                if stop.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Event::Stop);
                }
                if runs.poll(context).is_ready() {
                    return Poll::Ready(Event::Ended);
                }
                sleep.as_mut().poll(context).map(|()| Event::Time)
            });
            match event.await {
                Event::Stop => break,
                Event::Time => {}
                Event::Ended => {
                    if let Some(scheduled) = self.queued.take() {
                        self.start(scheduled);
                    }
                }
            }
        }
        self.end().await;
    }

    /// Waits for what is under way.
    async fn end(mut self) {
        self.is_stopping.set(true);
        let state = &self.schedule.state;
        if self.queued.take().is_some() {
            state.skipped.fetch_add(1, Ordering::Relaxed);
        }
        state.set_next_run(None);
        while !self.runs.is_empty() {
            let runs = &mut self.runs;
            poll_fn(|context| runs.poll(context)).await;
        }
    }

    fn jitter(&self) -> Duration {
        let longest = self.schedule.settings.jitter;
        match longest.is_zero() {
            true => longest,
            false => longest.mul_f64(self.services.random().clamp(0.0, 1.0)),
        }
    }

    /// The time until the next run, put off by this much.
    fn wait(&self, jitter: Duration) -> Duration {
        let state = &self.schedule.state;
        let moment = moment(self.services);
        let mut memory = state.memory();
        let timing = &self.schedule.settings.timing;
        let early = put_back(moment, jitter);
        // Seen from as much earlier, the wait is as much longer.
        let wait = timing.wait(early.unwrap_or(moment), &mut memory.position);
        drop(memory);
        let next = SignedDuration::try_from(wait).ok();
        let next = next.and_then(|wait| moment.wall.checked_add(wait).ok());
        state.set_next_run(next);
        wait
    }

    /// Starts the run whose time has come, or leaves it out.
    fn take(&mut self, jitter: Duration) {
        let Settings { timing, missed, .. } = &self.schedule.settings;
        let state = &self.schedule.state;
        let moment = moment(self.services);
        let early = put_back(moment, jitter).unwrap_or(moment);
        let due = timing.take(early, &mut state.memory().position);
        let Some(Due {
            scheduled,
            count,
            is_late,
        }) = due
        else {
            return;
        };
        let is_made = !is_late || *missed == Missed::Once;
        let left_out = count - u64::from(is_made);
        if left_out > 0 {
            state.skipped.fetch_add(left_out, Ordering::Relaxed);
            tracing::warn!(
                target: "flow",
                flow = &**self.flow.name(),
                count = left_out,
                scheduled = timing.show(scheduled),
                "runs of the schedule were missed"
            );
        }
        if is_made {
            self.begin(scheduled);
        }
    }

    /// Starts a run unless another one is in its way.
    fn begin(&mut self, scheduled: Timestamp) {
        let state = &self.schedule.state;
        let is_free = match self.schedule.settings.overlap {
            Overlap::Skip | Overlap::Queue => self.runs.is_empty(),
            Overlap::Allow => self.runs.len() < BESIDE_MAX,
        };
        let may_wait = self.schedule.settings.overlap == Overlap::Queue && self.queued.is_none();
        if is_free {
            self.start(scheduled);
        } else if may_wait {
            self.queued = Some(scheduled);
        } else {
            state.skipped.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(
                target: "flow",
                flow = &**self.flow.name(),
                "a run of the schedule was left out: the last one is under way"
            );
        }
    }

    fn start(&mut self, scheduled: Timestamp) {
        let (flow, services, state) = (self.flow, self.services, &self.schedule.state);
        let started = wall(services);
        state.set_last_run(started);
        let number = state.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let timing = &self.schedule.settings.timing;
        let body = serde_json::json!({
            "scheduled": timing.show(scheduled),
            "started": timing.show(started),
            "run": number,
        });
        let request = request(body.to_string());
        let retry = &self.schedule.settings.retry;
        let is_stopping = Rc::clone(&self.is_stopping);
        self.runs.push(Box::pin(async move {
            let mut failed = 0;
            // A failure has been logged by the flow.
            while let Err(fault) = success(flow.start(request.clone(), services).await) {
                failed += 1;
                let delay = retry.delay_after(failed, &fault, services.random());
                let is_over = match delay {
                    Some(delay) => !pause(delay, &is_stopping, services).await,
                    None => true,
                };
                if is_over {
                    state.failed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }));
    }
}

/// Waits for this time; `false` when the schedule has to end before.
async fn pause(time: Duration, is_stopping: &Cell<bool>, services: &dyn Services) -> bool {
    let mut sleep = services.sleep(time);
    // The schedule polls its runs when it has been told to end.
    poll_fn(|context| match is_stopping.get() {
        true => Poll::Ready(false),
        false => sleep.as_mut().poll(context).map(|()| true),
    })
    .await
}

fn request(body: String) -> Request {
    let mut headers = Headers::new();
    headers.append("Content-Type", "application/json");
    Request::of_source("SCHEDULE", headers, body.into_bytes())
}

/// The time of day to the millisecond.
fn wall(services: &dyn Services) -> Timestamp {
    let milliseconds = i64::try_from(services.wall().as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX)
}

fn moment(services: &dyn Services) -> Moment {
    Moment {
        now: services.now(),
        wall: wall(services),
    }
}

/// A moment so much earlier.
fn put_back(moment: Moment, time: Duration) -> Option<Moment> {
    Some(Moment {
        now: moment.now.checked_sub(time)?,
        wall: moment
            .wall
            .checked_sub(SignedDuration::try_from(time).ok()?)
            .ok()?,
    })
}
