//! An endpoint that comes back to a backlog, while others are served all the time.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::case::Case;
use super::flow;
use super::sink::Sink;
use crate::bench::ask::Connection;
use crate::stamp;

/// So many events are published with a request: half of what a batch may have.
const BATCH: u64 = 5000;

/// Publishes the events that wait for the endpoint, numbered from 1, and returns how long it took.
///
/// # Errors
/// When they are refused.
pub(super) fn publish(case: &Case, engine: SocketAddr) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let mut connection = Connection::open(engine, None)?;
    let path = flow::topic_path(1);
    let mut next = 1;
    while next <= case.backlog {
        let end = (next + BATCH).min(case.backlog + 1);
        let mut lines = Vec::new();
        for number in next..end {
            stamp::write(number, stamp::now(), case.bytes, &mut lines);
            lines.push(b'\n');
        }
        let fields = "Content-Type: application/x-ndjson\r\n";
        let answer = connection.post(&path, fields, &String::from_utf8(lines)?)?;
        answer.body_of(200)?;
        next = end;
    }
    Ok(begun.elapsed())
}

/// Waits until the disk has what was published. Each live event is on it before its publisher is
/// answered, and a disk that still writes a gigabyte of others takes seconds for that.
///
/// # Errors
/// When `sync` cannot be run.
pub(super) fn settle_disk() -> anyhow::Result<()> {
    let status = Command::new("sync").status().context("cannot run sync")?;
    anyhow::ensure!(status.success(), "sync has failed: {status}");
    Ok(())
}

/// How fast an endpoint catches up.
pub(super) struct Rate {
    begun: Instant,
    had: u64,
}

impl Rate {
    /// Begins to count.
    ///
    /// # Errors
    /// When the sink does not answer.
    pub fn begin(away: &mut Sink) -> anyhow::Result<Self> {
        let had = away.count()?.accepted;
        let begun = Instant::now();
        Ok(Self { begun, had })
    }

    /// Deliveries a second since then.
    ///
    /// # Errors
    /// When the sink does not answer, or nothing of the backlog is left: then this is no rate.
    pub fn end(self, case: &Case, away: &mut Sink) -> anyhow::Result<f64> {
        let has = away.count()?.accepted;
        let seconds = self.begun.elapsed().as_secs_f64();
        anyhow::ensure!(
            has < case.backlog,
            "the backlog of {} events was too small: it had been delivered before the sample ended",
            case.backlog
        );
        Ok((has - self.had) as f64 / seconds)
    }

    /// The rate over a time in which nothing else is done.
    ///
    /// # Errors
    /// The same.
    pub fn over(window: Duration, case: &Case, away: &mut Sink) -> anyhow::Result<f64> {
        let rate = Self::begin(away)?;
        thread::sleep(window);
        rate.end(case, away)
    }
}
