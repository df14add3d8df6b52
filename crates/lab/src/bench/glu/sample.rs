//! One sample of a scenario of the suite: the system beside broker, database and services, load or
//! full queues, and a look for every message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::super::load::Plan;
use super::super::outcome::RunFacts;
use super::super::process::{self, Process};
use super::super::results::{Case, Figures, Flight, Variant};
use super::super::sample::{Bench, SETTLE, Stubs, Timing, figures};
use super::super::scenario::{Behind, Scenario, System, Work};
use super::super::stats::Stats;
use super::super::ussd;
use super::amqp::Client;
use super::bodies::{self, Flow};
use super::drain::Drain;
use super::ledger::{Delivered, Ledger};
use super::parts::Parts;
use super::setup::{self, Place};
use crate::stub::Counted;

/// How long the flight may take to fill.
const FILL_MAX: Duration = Duration::from_secs(60);
/// Of what may be in flight, the part that must be for the window to open.
const FULL: f64 = 0.97;
/// How often it is looked how much is in flight.
const LOOK: Duration = Duration::from_millis(50);
/// How long after the window the queues may take to run dry.
const DRY_MAX: Duration = Duration::from_secs(60);
/// How many messages go through each queue before memory is looked at.
const FIRST: u64 = 5;
/// Bytes of a message that waits for the slow service.
const MESSAGE: usize = 256;

/// A system that has been started, and what it was started with.
struct Running {
    process: Process,
    facts: RunFacts,
}

impl Bench {
    /// Takes a sample of a scenario with a broker.
    ///
    /// # Errors
    /// When the system does not start, or broker or database fail.
    pub fn glu(
        &self,
        system: System,
        scenario: &Scenario,
        case: &Case,
        stubs: &Stubs,
    ) -> anyhow::Result<(Figures, RunFacts)> {
        let parts = self.parts.as_ref().context("there is no broker")?;
        let names = queues(case);
        let mut client = Client::connect(parts.broker.address)?;
        for name in &names {
            client.declare(name)?;
        }
        let result = match scenario.work {
            Work::Await => self.waiting(system, scenario, case, parts, &names, &mut client),
            _ => self.driven(system, scenario, case, stubs, parts, &names),
        };
        for name in &names {
            client.delete(name)?;
        }
        result
    }

    fn begin(
        &self,
        system: System,
        scenario: &Scenario,
        case: &Case,
        backend: std::net::SocketAddr,
        queues: &[String],
    ) -> anyhow::Result<(Running, std::net::SocketAddr)> {
        let folder = self.folder.join(system.name());
        let parts = self.parts.as_ref().context("there is no broker")?;
        let place = Place {
            scenario,
            case,
            listen: process::free_address()?,
            backend,
            addresses: parts.addresses(),
            queues,
            folder: &folder,
        };
        let mut setup = setup::set_up(system, &place, &self.programs)?;
        let process = self.start(system, &mut setup)?;
        let facts = setup.facts(scenario);
        Ok((Running { process, facts }, setup.address))
    }

    /// A sample under load over HTTP, after which every acknowledged message is looked for.
    fn driven(
        &self,
        system: System,
        scenario: &Scenario,
        case: &Case,
        stubs: &Stubs,
        parts: &Parts,
        queues: &[String],
    ) -> anyhow::Result<(Figures, RunFacts)> {
        let is_complex = scenario.work.is_complex();
        let mut flow = match is_complex {
            true => bodies::order(),
            false => bodies::straight(case.bytes)?,
        };
        let (mut dialogue, mut is_drained) = (None, true);
        if let Work::Menu(behind) = scenario.work {
            let (first, rest) = ussd::dialogue(behind, case)?;
            flow.http = first;
            dialogue = Some(rest);
            // The system itself takes what it puts into its queues.
            is_drained = behind != Behind::Await;
        }
        let database = parts.database.as_ref().filter(|_| is_complex);
        database.map_or(Ok(()), |database| database.clear())?;
        let ledger = Arc::new(Ledger::new());
        let queue = queues.first().context("no queue")?;
        let drain = match is_drained {
            true => {
                let queued = flow.queued.clone();
                Some(Drain::start(parts.broker.address, queue, queued, &ledger)?)
            }
            false => None,
        };
        let backend = stubs.for_clients();
        let (running, address) = self.begin(system, scenario, case, backend, queues)?;
        let plan = Plan {
            dialogue,
            ..self.http_plan(scenario, case, address, flow, &ledger)
        };
        let beside = || [self.beside(stubs), parts.family()].concat();
        let delay = Duration::from_secs_f64(case.delay_ms / 1e3);
        let timing = self.timing(system);
        let timing = Timing {
            // Everybody has begun, and has waited once.
            warm_up: timing.warm_up.max(2 * delay),
            window: whole_waits(timing.window, delay),
        };
        let mut figures = self.measure(&plan, Some(&running.process), timing, &beside)?;
        let Some(drain) = drain else {
            return Ok((figures, running.facts));
        };
        let mut delivered = drain.finish()?;
        if let Some(database) = database {
            delivered.missing += ledger.missing_of(&database.orders()?);
        }
        count_losses(&mut figures, delivered);
        Ok((figures, running.facts))
    }

    fn http_plan(
        &self,
        scenario: &Scenario,
        case: &Case,
        address: std::net::SocketAddr,
        flow: Flow,
        ledger: &Arc<Ledger>,
    ) -> Plan {
        Plan {
            address,
            is_h2: false,
            tls: None,
            path: scenario.path().to_owned(),
            streams: case.streams,
            rate: case.rate,
            bodies: flow.http,
            dialogue: None,
            status: if scenario.work == Work::Enqueue {
                202
            } else {
                200
            },
            ledger: Some(Arc::clone(ledger)),
            tokens: None,
            cores: self.cores.load.clone(),
        }
    }

    /// A sample with queues that never run empty, in front of a service that counts.
    fn waiting(
        &self,
        system: System,
        scenario: &Scenario,
        case: &Case,
        parts: &Parts,
        queues: &[String],
        client: &mut Client,
    ) -> anyhow::Result<(Figures, RunFacts)> {
        let delay = Duration::from_secs_f64(case.delay_ms / 1e3);
        let cores = self.cores.stub.clone();
        // Where it cannot be pinned, the sample's notes tell by the core's use.
        let stub = Counted::start(delay, move || drop(process::pin(&cores)))?;
        let (running, _) = self.begin(system, scenario, case, stub.address, queues)?;
        thread::sleep(SETTLE.max(Duration::from_millis(500)));
        let family = running.process.family();
        let mut feed = Feed::new(client, queues, case)?;
        let idle = at_rest(&mut feed, &stub, &family)?;
        let warm_up = self.warm_up_of(system);
        let window = whole_waits(self.window, delay);
        warm(&mut feed, &stub, warm_up)?;
        fill(&mut feed, &stub, delay, window)?;
        let beside = [vec![std::process::id()], parts.family()].concat();
        let done = || stub.counts().done.load(Ordering::Relaxed);
        let (before, done_before) = (self.clock(&family, &beside)?, done());
        let (reached, full) = watch(&stub, &family, window);
        let (done_after, after) = (done(), self.clock(&family, &beside)?);
        let (peak, _) = process::memory(&family);
        let replies = done_after.saturating_sub(done_before);
        let mut figures = figures(&before, &after, replies, &Stats::new()?);
        let wanted = case.streams.users() as f64;
        figures.memory_peak = Some(peak);
        figures.flight = Some(Flight {
            wanted,
            reached,
            of_ideal: figures.throughput / (wanted / delay.as_secs_f64()),
            bytes_each: full.saturating_sub(idle) as f64 / reached.max(1.0),
        });
        count_losses(&mut figures, run_dry(&stub, feed.published));
        figures.memory_settled = Some(process::memory(&family).1);
        Ok((figures, running.facts))
    }
}

/// Names of their own, so that what an earlier sample left cannot disturb.
fn queues(case: &Case) -> Vec<String> {
    static SAMPLE: AtomicU64 = AtomicU64::new(1);
    let sample = SAMPLE.fetch_add(1, Ordering::Relaxed);
    let count = match case.variant {
        Variant::Queues(count) => count,
        _ => 1,
    };
    let name = |queue: usize| format!("lab-{sample}-{queue}");
    (1..=count).map(name).collect()
}

/// The window as a multiple of the delay, for what waits comes back in waves.
fn whole_waits(window: Duration, delay: Duration) -> Duration {
    let waits = (window.as_secs_f64() / delay.as_secs_f64().max(1e-3)).ceil();
    delay.mul_f64(waits.max(2.0)).max(window)
}

fn count_losses(figures: &mut Figures, delivered: Delivered) {
    let losses = [("missing", delivered.missing), ("wrong", delivered.wrong)];
    for (kind, count) in losses.into_iter().filter(|(_, count)| *count > 0) {
        figures.errors += count;
        *figures.errors_by_kind.entry(kind.to_owned()).or_default() += count;
        let first = || format!("{count} messages {kind}");
        figures.first_error.get_or_insert_with(first);
    }
    figures.delivered = Some(delivered);
}

/// Keeps queues filled, all alike.
struct Feed<'a> {
    client: &'a mut Client,
    queues: &'a [String],
    bodies: super::super::body::Numbered,
    in_flight: u64,
    /// What the service lets through in a second.
    rate: f64,
    published: u64,
}

impl<'a> Feed<'a> {
    fn new(client: &'a mut Client, queues: &'a [String], case: &Case) -> anyhow::Result<Self> {
        let in_flight = case.streams.users() as u64;
        Ok(Self {
            client,
            queues,
            bodies: bodies::straight(MESSAGE)?.http.sent,
            in_flight,
            rate: in_flight as f64 / (case.delay_ms / 1e3).max(1e-3),
            published: 0,
        })
    }

    /// Publishes what lasts for so long, beside what is in flight.
    fn top_up(&mut self, stub: &Counted, time: Duration) -> anyhow::Result<()> {
        let begun = stub.counts().begun.load(Ordering::Relaxed);
        let wanted = begun + self.in_flight + (self.rate * time.as_secs_f64()) as u64;
        let missing = wanted.saturating_sub(self.published);
        self.publish(missing.div_ceil(self.queues.len().max(1) as u64))
    }

    /// Publishes so many messages to each queue.
    fn publish(&mut self, each: u64) -> anyhow::Result<()> {
        for queue in self.queues {
            let first = self.published;
            let bodies = &mut self.bodies;
            let body = |index: u64, out: &mut Vec<u8>| {
                out.extend_from_slice(bodies.with(first + index));
            };
            self.client.publish(queue, each, body)?;
            self.published += each;
        }
        Ok(())
    }
}

/// The memory of a system that waits for messages. A few have gone through each queue before, so
/// that its connections are there and what comes with the first message has come.
fn at_rest(feed: &mut Feed<'_>, stub: &Counted, family: &[u32]) -> anyhow::Result<u64> {
    let start = Instant::now();
    feed.publish(FIRST)?;
    while stub.counts().done.load(Ordering::Relaxed) < feed.published {
        ensure!(
            start.elapsed() < FILL_MAX,
            "the first messages do not come through"
        );
        thread::sleep(LOOK);
    }
    thread::sleep(SETTLE);
    Ok(process::memory(family).1)
}

/// Feeds for as long as the warm-up lasts.
fn warm(feed: &mut Feed<'_>, stub: &Counted, warm_up: Duration) -> anyhow::Result<()> {
    let start = Instant::now();
    while start.elapsed() < warm_up {
        feed.top_up(stub, Duration::from_millis(1500))?;
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Fills the queues for the window while the service answers nobody, so that they need not be
/// filled beside it, then has as much in flight as may be and lets it go.
fn fill(
    feed: &mut Feed<'_>,
    stub: &Counted,
    delay: Duration,
    window: Duration,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let wanted = feed.in_flight as f64 * FULL;
    let settle = SETTLE.max(2 * delay);
    stub.hold(true);
    feed.top_up(stub, settle + window + Duration::from_secs(1))?;
    while in_flight(stub) < wanted {
        let reached = in_flight(stub);
        ensure!(
            start.elapsed() < FILL_MAX,
            "only {reached} of {} messages are in flight",
            feed.in_flight
        );
        thread::sleep(LOOK);
    }
    stub.hold(false);
    thread::sleep(settle);
    Ok(())
}

fn in_flight(stub: &Counted) -> f64 {
    let counts = stub.counts();
    let done = counts.done.load(Ordering::Relaxed);
    let begun = counts.begun.load(Ordering::Relaxed);
    begun.saturating_sub(done) as f64
}

/// Lets a window pass: what was in flight on average, and the most memory.
fn watch(stub: &Counted, family: &[u32], window: Duration) -> (f64, u64) {
    let start = Instant::now();
    let (mut sum, mut looks, mut memory) = (0.0, 0_u32, 0);
    while let Some(left) = window.checked_sub(start.elapsed()) {
        thread::sleep(left.min(LOOK));
        sum += in_flight(stub);
        looks += 1;
        memory = process::memory(family).1.max(memory);
    }
    (sum / f64::from(looks.max(1)), memory)
}

/// Waits until the service has had every message: what is missing, or came again.
fn run_dry(stub: &Counted, published: u64) -> Delivered {
    let start = Instant::now();
    let done = || stub.counts().done.load(Ordering::Relaxed);
    let mut seen = (done(), Instant::now());
    while seen.0 < published && start.elapsed() < DRY_MAX {
        thread::sleep(LOOK);
        let now = done();
        if now != seen.0 {
            seen = (now, Instant::now());
        } else if seen.1.elapsed() > DRY_MAX / 4 {
            break;
        }
    }
    // What comes again would come soon.
    thread::sleep(SETTLE);
    let done = done();
    Delivered {
        acknowledged: published,
        missing: published.saturating_sub(done),
        again: done.saturating_sub(published),
        ..Delivered::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_whole_waits() {
        let whole = |window: u64, delay: u64| {
            let [window, delay] = [window, delay].map(Duration::from_millis);
            whole_waits(window, delay).as_millis()
        };
        assert_eq!(whole(800, 100), 800);
        assert_eq!(whole(820, 100), 900);
        assert_eq!(whole(800, 3000), 6000);
        assert_eq!(whole(10_000, 3000), 12_000);
    }

    #[test]
    fn losses_are_errors_and_repetitions_are_not() {
        let mut figures = Figures::default();
        let delivered = Delivered {
            acknowledged: 9,
            missing: 2,
            again: 5,
            ..Delivered::default()
        };
        count_losses(&mut figures, delivered);
        assert_eq!((figures.errors, figures.errors_by_kind["missing"]), (2, 2));
        assert_eq!(figures.first_error.as_deref(), Some("2 messages missing"));
        assert_eq!(figures.delivered, Some(delivered));
    }

    #[test]
    fn each_sample_has_queues_of_its_own() {
        let mut case = super::super::super::results::testing::row(System::Intertie, &[]).case;
        let first = queues(&case);
        case.variant = Variant::Queues(3);
        let second = queues(&case);
        assert_eq!((first.len(), second.len()), (1, 3));
        assert!(!second.contains(&first[0]));
    }
}
