//! A meter for builds with `RUSTFLAGS="--cfg tokio_unstable"`, which other builds are without: logs
//! every poll of a task that used more CPU time of its worker than `INTERTIE_SLOW_POLL_MS`
//! milliseconds (5 without it). CPU time of the thread says what a message has cost its worker on a
//! machine that is busy with other things, too.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;

const VARIABLE: &str = "INTERTIE_SLOW_POLL_MS";
const SLOW: Duration = Duration::from_millis(5);

thread_local! {
    static BEGUN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The CPU time that this thread has used.
fn used() -> Duration {
    // It counts from the start of the thread and is not negative.
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Has the tasks of a runtime measured.
pub(crate) fn measure(runtime: &mut Builder) {
    let set = std::env::var(VARIABLE).ok().and_then(|it| it.parse().ok());
    let limit = set.map_or(SLOW, Duration::from_millis);
    runtime.on_before_task_poll(|_| BEGUN.set(used()));
    runtime.on_after_task_poll(move |task| {
        let took = used().saturating_sub(BEGUN.get());
        if took > limit {
            let ms = took.as_secs_f64() * 1000.0;
            tracing::warn!(target: "proxy", ms, task = %task.spawned_at(), "slow poll");
        }
    });
}
