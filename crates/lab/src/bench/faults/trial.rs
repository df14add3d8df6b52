//! The course of a row: users begin, a fault comes and goes, users go on, and at the end all that
//! was acknowledged is looked for where it must be.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::super::glu::amqp::Client;
use super::super::process::{self, Cores, Process};
use super::engine::{Engine, Plan};
use super::load::{Body, Job, Load, Record};
use super::row::{Recovery, Row, Span};
use super::servers::{PASSWORD, QUEUE};
use super::tally::{Found, number};

/// How long things may take to go well again.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
/// How long is waited for messages that do not come, and for late copies of those that came.
const DRAIN_MAX: Duration = Duration::from_secs(30);
const LATE: Duration = Duration::from_secs(2);

/// What all rows have.
pub(super) struct Lab {
    /// The binary under test.
    pub binary: PathBuf,
    /// This program, for stubs.
    pub own: PathBuf,
    pub cores: Cores,
    /// The folder of the row.
    pub folder: PathBuf,
    /// The time before a fault, and at least after it.
    pub calm: Duration,
    pub users: usize,
}

impl Lab {
    /// Starts an engine with this flow file.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn engine(
        &self,
        flow: &str,
        secrets: &[(&'static str, String)],
        marks: &[(&'static str, String)],
        has_data: bool,
    ) -> anyhow::Result<Engine> {
        Engine::start(Plan {
            binary: &self.binary,
            folder: &self.folder,
            cores: &self.cores,
            flow,
            marks: marks.to_vec(),
            secrets: secrets.to_vec(),
            has_data,
        })
    }

    /// Starts a part of this program.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn part(&self, arguments: &[&str]) -> anyhow::Result<(Process, SocketAddr)> {
        let address = process::free_address()?;
        let mut command = std::process::Command::new(&self.own);
        command
            .args(arguments)
            .args(["--listen", &address.to_string()]);
        let log = self.folder.join(format!("part-{}.log", address.port()));
        let (cores, own) = (&self.cores.stub, &self.cores.load);
        let part = Process::start(&mut command, cores, own, address, &log)?;
        Ok((part, address))
    }

    /// Users that send orders to a path of the engine, numbered from `first`.
    pub fn job(&self, engine: &Engine, path: &str) -> Job {
        Job {
            address: engine.listen,
            path: path.to_owned(),
            users: self.users,
            pause: Duration::from_millis(10),
            first: 1,
            body: order(),
        }
    }
}

/// The order with a number.
pub(super) fn order() -> Body {
    Arc::new(|number| {
        let customer = number % 1000 + 1;
        format!(
            "{{\"id\":{number},\"customerId\":{customer},\"note\":\"Order {number}\",\
             \"lines\":[{{\"sku\":\"KB-1042\",\"qty\":1}},{{\"sku\":\"MS-2210\",\"qty\":2}}]}}"
        )
        .into_bytes()
    })
}

/// What must show nowhere.
pub(super) fn hidden() -> Vec<String> {
    vec![PASSWORD.to_owned()]
}

/// Users at work, and the faults so far.
pub(super) struct Trial {
    load: Load,
    spans: Vec<Span>,
    calm: Duration,
}

impl Trial {
    /// Lets the users begin.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(lab: &Lab, job: Job) -> anyhow::Result<Self> {
        Ok(Self {
            load: Load::start(job, hidden())?,
            spans: Vec::new(),
            calm: lab.calm,
        })
    }

    /// Lets a calm time pass, lets a fault come and go, and waits until things go well again.
    ///
    /// # Errors
    /// When the fault cannot be made or ended.
    pub fn fault(&mut self, act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.settle();
        let since = Instant::now();
        thread::sleep(self.calm);
        let begin = Instant::now();
        act()?;
        let end = Instant::now();
        self.spans.push(Span { since, begin, end });
        while !self.load.has_success_since(end) && end.elapsed() < RECOVERY_MAX {
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until a second goes by without a failure: connections and pools are made at first use.
    fn settle(&self) {
        let begun = Instant::now();
        let second = Duration::from_secs(1);
        while begun.elapsed() < RECOVERY_MAX {
            thread::sleep(second);
            let events = self.load.events();
            let now = Instant::now();
            let mut late = events
                .iter()
                .filter(|event| event.at + second >= now)
                .peekable();
            if late.peek().is_some() && late.all(|event| event.is_good) {
                return;
            }
        }
    }

    /// Lets a last calm time pass and waits until things go steadily, ends the load, and puts what
    /// happened into the row.
    pub fn finish(self, row: &mut Row) -> Record {
        let begun = Instant::now();
        thread::sleep(self.calm);
        while !self.is_steady() && begun.elapsed() < RECOVERY_MAX {
            thread::sleep(Duration::from_millis(500));
        }
        let over = Instant::now();
        let record = self.load.finish();
        row.recoveries
            .extend(recoveries(&self.spans, over, &record.events));
        row.add(&record);
        record
    }
}

impl Trial {
    fn is_steady(&self) -> bool {
        let events = self.load.events();
        let all = recoveries(&self.spans, Instant::now(), &events);
        all.last().is_none_or(|it| it.steady_ms.is_some())
    }
}

/// The recovery from each fault, until the next or the end.
pub(super) fn recoveries(
    spans: &[Span],
    over: Instant,
    events: &[super::load::Event],
) -> Vec<Recovery> {
    let nexts = spans.iter().skip(1).map(|span| span.begin).chain([over]);
    let pairs = spans.iter().zip(nexts);
    pairs
        .map(|(span, until)| Recovery::of(*span, until, events))
        .collect()
}

/// Takes all messages out of the queue, and waits for those that are still to come.
///
/// # Errors
/// When the broker cannot be read from.
pub(super) fn drain(broker: SocketAddr, wanted: &HashSet<u64>) -> anyhow::Result<Found> {
    let client = Client::connect(broker)?;
    let mut consumer = client.consume(QUEUE, Duration::from_millis(500))?;
    let mut found = Found::default();
    let mut last = Instant::now();
    loop {
        if let Some(body) = consumer.next()? {
            found.add(number(body).context("a message without a number")?);
            last = Instant::now();
            continue;
        }
        let is_complete = found.compare(wanted).lost == 0;
        if last.elapsed() > if is_complete { LATE } else { DRAIN_MAX } {
            return Ok(found);
        }
    }
}

/// What the engine says of itself at the end: nothing secret, and the names of these connections.
///
/// # Errors
/// When the engine does not show its metrics.
pub(super) fn inspect(row: &mut Row, engine: &mut Engine, names: &[&str]) -> anyhow::Result<()> {
    let metrics = engine.metrics()?;
    row.memory_peak = engine.peak();
    let stopped = engine.stop();
    let log = engine.log();
    for secret in hidden() {
        let shown = [&log, &metrics].map(|text| text.matches(secret.as_str()).count());
        row.secrets_shown += shown.iter().sum::<usize>() as u64;
    }
    for name in names {
        let lines = log.lines().filter(|line| line.contains(name)).count();
        row.check(
            format!("the log names {name}"),
            lines > 0,
            format!("{lines} lines"),
        );
    }
    let is_quick = stopped < Duration::from_secs(3);
    row.check("it stops when told to", is_quick, format!("{stopped:.1?}"));
    let panics = log.matches("panicked").count();
    row.check("no panic", panics == 0, format!("{panics}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_hold_their_number() {
        assert_eq!(number(&order()(4711)), Some(4711));
    }

    #[test]
    fn each_fault_has_its_recovery() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let spans = [(1, 2), (5, 6)].map(|(begin, end)| Span {
            since: start,
            begin: at(begin),
            end: at(end),
        });
        let event = |seconds| super::super::load::Event {
            at: at(seconds),
            wait: Duration::ZERO,
            is_good: true,
        };
        let found = recoveries(&spans, at(9), &[event(0), event(3), event(8)]);
        let firsts: Vec<_> = found.iter().map(|it| it.first_ms).collect();
        assert_eq!(firsts, [Some(1000.0), Some(2000.0)]);
    }
}
