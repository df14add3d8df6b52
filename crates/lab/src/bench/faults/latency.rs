//! Rows in which messages of a queue go to a slow service, and the engine, the broker or the
//! service fails meanwhile.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::process::Signal;

use super::super::glu::amqp::Client;
use super::super::process::Process;
use super::engine::Engine;
use super::load::Event;
use super::row::{Row, Span};
use super::servers::{Broker, QUEUE, QueueType};
use super::sink::Sink;
use super::trial::{Lab, inspect, order, recoveries};

const FLOW: &str = include_str!("../../../faults/latency.yaml");
/// How many messages may be under way, and how long the service takes for each.
const PREFETCH: u64 = 50;
const DELAY: Duration = Duration::from_millis(100);
/// How long the service hangs: longer than the flow waits for it.
const HANG: Duration = Duration::from_secs(5);
/// How long is waited for the last message.
const PATIENCE: Duration = Duration::from_secs(90);
/// How many acknowledgements a classic queue keeps in memory before it writes them down
/// (`queue_index_max_journal_entries`).
const JOURNAL: u64 = 32_768;

/// Engine, broker and service, with a relay between engine and service that can be stopped.
struct Line {
    engine: Engine,
    broker: Broker,
    relay: Process,
    sink: Sink,
    count: u64,
    begun: Instant,
    spans: Vec<Span>,
}

impl Line {
    /// Fills the queue, and then starts the engine.
    fn start(lab: &Lab, kind: QueueType) -> anyhow::Result<Self> {
        let broker = Broker::start_with(&lab.folder, &lab.cores, kind)?;
        let sink = Sink::start(DELAY)?;
        let to = sink.address().to_string();
        let (relay, address) = lab.part(&["relay", "--to", &to])?;
        // For the calm time before and after the fault.
        let rate = PREFETCH as f64 / DELAY.as_secs_f64();
        let count = (rate * lab.calm.as_secs_f64() * 3.0).ceil() as u64;
        let body = order();
        let bodies = (1..=count).map(|number| body(number));
        Client::connect(broker.address)?.publish_confirmed(QUEUE, bodies)?;
        let marks = [
            ("@SINK@", address.to_string()),
            ("@PREFETCH@", PREFETCH.to_string()),
        ];
        let engine = lab.engine(FLOW, &[("MQ_URL", broker.url())], &marks, true)?;
        Ok(Self {
            engine,
            broker,
            relay,
            sink,
            count,
            begun: Instant::now(),
            spans: Vec::new(),
        })
    }

    fn fault(
        &mut self,
        lab: &Lab,
        act: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let since = Instant::now();
        thread::sleep(lab.calm);
        ensure!(
            self.sink.arrivals() > 0,
            "nothing arrives: {}",
            self.engine.log()
        );
        let begin = Instant::now();
        act(self)?;
        let end = Instant::now();
        self.spans.push(Span { since, begin, end });
        Ok(())
    }

    /// Waits for all messages and compares.
    fn end(mut self, row: &mut Row, names: &[&str]) -> anyhow::Result<()> {
        let wanted: HashSet<u64> = (1..=self.count).collect();
        let late = Instant::now();
        while self.sink.found().compare(&wanted).lost > 0 && late.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(100));
        }
        // Copies may come behind the last one.
        thread::sleep(Duration::from_secs(2));
        row.sent = self.count;
        row.acknowledged = self.count;
        let instants = self.sink.instants();
        // The end of the queue is no failure.
        let over = instants.iter().max().copied().unwrap_or(self.begun);
        let events: Vec<Event> = instants.into_iter().map(arrival).collect();
        row.recoveries = recoveries(&self.spans, over, &events);
        row.comparison = Some(self.sink.found().compare(&wanted));
        let strange = self.sink.strange();
        row.check(
            "every body is whole",
            strange == 0,
            format!("{strange} are not"),
        );
        row.most_in_flight = Some(self.sink.most_in_flight() as u64);
        let left = Client::connect(self.broker.address)?.ready(QUEUE)?;
        row.check("the queue is empty", left == 0, format!("{left} are left"));
        inspect(row, &mut self.engine, names)
    }
}

fn arrival(at: Instant) -> Event {
    Event {
        at,
        wait: Duration::ZERO,
        is_good: true,
    }
}

fn check_flight(row: &mut Row, bound: u64) {
    let most = row.most_in_flight.unwrap_or(0);
    row.check(
        format!("at most {bound} at the service at once"),
        most <= bound,
        most.to_string(),
    );
}

fn check_copies(row: &mut Row, bound: u64, why: &str) {
    let copies = row.comparison.as_ref().map_or(0, |it| it.duplicates);
    let what = format!("at most {bound} copies: {why}");
    row.check(what, copies <= bound, format!("{copies}"));
}

pub(super) fn engine_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut line = Line::start(lab, QueueType::Classic)?;
    line.fault(lab, |line| {
        line.engine.kill();
        line.engine.start_again()
    })?;
    line.end(row, &[])?;
    // The service is still at those of the engine that was killed.
    check_flight(row, 2 * PREFETCH);
    check_copies(row, PREFETCH, "the prefetch");
    Ok(())
}

pub(super) fn broker_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    restart_broker(lab, row, QueueType::Classic)?;
    let why = "the prefetch, and acknowledgements that a classic queue had not written down";
    check_copies(row, PREFETCH + JOURNAL, why);
    Ok(())
}

pub(super) fn quorum_broker_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    restart_broker(lab, row, QueueType::Quorum)?;
    // What was acknowledged on a connection that ends before the broker has read it comes again.
    check_copies(
        row,
        2 * PREFETCH,
        "the prefetch, and what was acknowledged at that moment",
    );
    Ok(())
}

fn restart_broker(lab: &Lab, row: &mut Row, kind: QueueType) -> anyhow::Result<()> {
    let mut line = Line::start(lab, kind)?;
    line.fault(lab, |line| {
        line.broker.kill();
        line.broker.start_again()
    })?;
    line.end(row, &["orders-mq"])?;
    check_flight(row, PREFETCH);
    Ok(())
}

pub(super) fn service_hang(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut line = Line::start(lab, QueueType::Classic)?;
    line.fault(lab, |line| {
        line.relay.send(Signal::STOP);
        thread::sleep(HANG);
        line.relay.send(Signal::CONT);
        Ok(())
    })?;
    line.end(row, &["deliver-order"])?;
    // Each try that was given up may have reached the service all the same.
    let tries = HANG.as_secs() / 2 + 1;
    check_flight(row, PREFETCH * (tries + 1));
    check_copies(
        row,
        PREFETCH * tries,
        "the prefetch, for each try that was given up",
    );
    Ok(())
}
