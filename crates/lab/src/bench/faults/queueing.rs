//! Rows in which clients hand messages over to a broker: directly, or by way of the engine's disk.

use std::thread;
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::row::Row;
use super::servers::Broker;
use super::trial::{Lab, Trial, drain, inspect};

const LINE: &str = include_str!("../../../faults/line.yaml");
const OUTBOX: &str = include_str!("../../../faults/outbox.yaml");
/// How long the memory alarm lasts, without what the broker's tool takes.
const ALARM: Duration = Duration::from_secs(4);
/// What the engine may take when nothing goes out.
const MEMORY_MAX: u64 = 200_000_000;

/// Engine and broker.
struct Pair {
    engine: Engine,
    broker: Broker,
}

impl Pair {
    fn start(lab: &Lab, flow: &str, has_data: bool) -> anyhow::Result<Self> {
        let broker = Broker::start(&lab.folder, &lab.cores)?;
        let secrets = [("MQ_URL", broker.url())];
        let engine = lab.engine(flow, &secrets, &[], has_data)?;
        Ok(Self { engine, broker })
    }

    /// Compares what was acknowledged with what is in the queue, and looks at what was said.
    fn end(mut self, trial: Trial, row: &mut Row, names: &[&str]) -> anyhow::Result<()> {
        let record = trial.finish(row);
        let found = drain(self.broker.address, &record.acknowledged)?;
        row.comparison = Some(found.compare(&record.acknowledged));
        check_acknowledged(row);
        inspect(row, &mut self.engine, names)
    }

    fn restart_engine(&mut self) -> anyhow::Result<()> {
        self.engine.kill();
        self.engine.start_again()
    }

    fn restart_broker(&mut self) -> anyhow::Result<()> {
        self.broker.kill();
        self.broker.start_again()
    }
}

/// A row in which nothing was acknowledged shows nothing.
pub(super) fn check_acknowledged(row: &mut Row) {
    let count = row.acknowledged;
    row.check(
        "messages were acknowledged",
        count >= 100,
        format!("{count}"),
    );
}

/// Each copy that a client did not send comes from a hand-over that was interrupted.
fn check_copies(row: &mut Row, bound: u64) {
    let copies = row.comparison.as_ref().map_or(0, |it| it.duplicates);
    row.check(
        format!("at most {bound} copies"),
        copies <= bound,
        format!("{copies}"),
    );
}

pub(super) fn line_broker_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut pair = Pair::start(lab, LINE, false)?;
    let mut trial = Trial::start(lab, lab.job(&pair.engine, "/orders"))?;
    trial.fault(|| pair.restart_broker())?;
    pair.end(trial, row, &["orders-mq"])?;
    check_copies(row, 0);
    Ok(())
}

pub(super) fn line_engine_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut pair = Pair::start(lab, LINE, false)?;
    let mut trial = Trial::start(lab, lab.job(&pair.engine, "/orders"))?;
    trial.fault(|| pair.restart_engine())?;
    pair.end(trial, row, &[])?;
    check_copies(row, 0);
    Ok(())
}

pub(super) fn line_memory_alarm(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let pair = Pair::start(lab, LINE, false)?;
    let mut trial = Trial::start(lab, lab.job(&pair.engine, "/orders"))?;
    let mut lasted = Duration::ZERO;
    trial.fault(|| {
        pair.broker.alarm(true)?;
        let begun = Instant::now();
        thread::sleep(ALARM);
        lasted = begun.elapsed();
        pair.broker.alarm(false)
    })?;
    pair.end(trial, row, &["orders-mq"])?;
    let refused = row.refused.get("503").copied().unwrap_or(0);
    let seen = format!("{refused} during {lasted:.1?}");
    row.check("clients get 503 while the alarm is on", refused > 0, seen);
    check_memory(row);
    check_copies(row, 0);
    Ok(())
}

/// The memory of the engine stays within a bound.
pub(super) fn check_memory(row: &mut Row) {
    let peak = row.memory_peak;
    let seen = format!("{} MB", peak / 1_000_000);
    row.check("memory is bounded", peak < MEMORY_MAX, seen);
}

/// Copies that each `kill -9` of the engine may leave: what was under way to the broker.
const UNDER_WAY: u64 = 64;

pub(super) fn outbox_engine_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut pair = Pair::start(lab, OUTBOX, true)?;
    let mut trial = Trial::start(lab, lab.job(&pair.engine, "/orders"))?;
    for _ in 0..3 {
        trial.fault(|| pair.restart_engine())?;
    }
    pair.end(trial, row, &[])?;
    check_marks(row, 3);
    Ok(())
}

pub(super) fn outbox_broker_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut pair = Pair::start(lab, OUTBOX, true)?;
    let mut trial = Trial::start(lab, lab.job(&pair.engine, "/orders"))?;
    trial.fault(|| pair.restart_broker())?;
    pair.end(trial, row, &["orders-mq"])?;
    let is_quiet = row.refused.is_empty();
    let seen = row.refusals();
    row.check("clients notice nothing", is_quiet, seen);
    check_copies(row, UNDER_WAY);
    Ok(())
}

pub(super) fn outbox_both_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut pair = Pair::start(lab, OUTBOX, true)?;
    let mut trial = Trial::start(lab, lab.job(&pair.engine, "/orders"))?;
    trial.fault(|| {
        pair.broker.kill();
        // Some messages wait on the disk when the engine is killed.
        thread::sleep(Duration::from_secs(1));
        pair.restart_engine()?;
        pair.broker.start_again()
    })?;
    trial.fault(|| pair.restart_engine())?;
    pair.end(trial, row, &["orders-mq"])?;
    check_marks(row, 3);
    Ok(())
}

/// Deliveries are marked as done a moment after they are, for many at once; what was done in that
/// moment comes again after a `kill -9`.
fn check_marks(row: &mut Row, kills: u64) {
    let bound = kills * UNDER_WAY;
    let copies = row.comparison.as_ref().map_or(0, |it| it.duplicates);
    let seen = format!("{copies} after {kills} interruptions");
    row.check(format!("at most {bound} copies"), copies <= bound, seen);
}
