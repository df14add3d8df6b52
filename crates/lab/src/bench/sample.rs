//! One sample: a fresh system, load with a warm-up, and what the kernel counted meanwhile.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::body::Bodies;
use super::glu::Parts;
use super::load::{Load, Plan};
use super::mapping;
use super::outcome::RunFacts;
use super::process::{self, Cores, Process};
use super::results::{Case, Figures, Variant};
use super::scenario::{Scenario, Side, System, Work};
use super::stats::Stats;
use super::system::{self, Place, Programs, Setup};
use super::tokens::{self, IN_TURN, Issuer, KeyFiles, Tokens};
use super::ussd;
use crate::pki::{self, Identity};
use crate::units;

/// How long a system rests before its settled memory is read.
pub(crate) const SETTLE: Duration = Duration::from_millis(150);

/// What samples have in common.
pub(crate) struct Bench {
    pub programs: Programs,
    pub cores: Cores,
    pub folder: PathBuf,
    pub identity: Identity,
    pub window: Duration,
    pub warm_up: Duration,
    /// The same for systems on a virtual machine that compiles.
    pub jvm_warm_up: Duration,
    /// Broker and database, for suites with them.
    pub parts: Option<Parts>,
}

/// The back ends of a case.
pub(crate) struct Stubs {
    /// What proxies forward to.
    back: (Process, SocketAddr),
    /// What clients are sent to without a proxy, where they speak otherwise than proxies.
    front: Option<(Process, SocketAddr)>,
    /// What clients present, and who has signed it.
    tokens: Option<(Issuer, Arc<Tokens>)>,
}

impl Stubs {
    fn family(&self) -> Vec<u32> {
        let mut family = self.back.0.family();
        family.extend(self.front.iter().flat_map(|(stub, _)| stub.family()));
        family
    }

    /// What clients are sent to without a proxy.
    pub fn for_clients(&self) -> SocketAddr {
        self.front
            .as_ref()
            .map_or(self.back.1, |(_, address)| *address)
    }
}

/// How long load runs.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    /// Before anything is counted.
    pub warm_up: Duration,
    pub window: Duration,
}

/// CPU time used so far, in seconds.
pub(crate) struct Clock {
    at: Instant,
    system: f64,
    /// Stub and generator.
    beside: f64,
    system_core: f64,
    beside_cores: Vec<f64>,
}

impl Bench {
    /// Starts the back ends of a case.
    ///
    /// # Errors
    /// When one does not start.
    pub fn stubs(&self, scenario: &Scenario, case: &Case) -> anyhow::Result<Stubs> {
        let delay = Duration::from_secs_f64(case.delay_ms / 1e3);
        let back = self.stub(scenario.back, delay)?;
        let front = match scenario.front == scenario.back {
            true => None,
            false => Some(self.stub(scenario.front, delay)?),
        };
        let tokens = self.tokens(scenario, case)?;
        Ok(Stubs {
            back,
            front,
            tokens,
        })
    }

    /// A new issuer, whose key the next systems get, and the tokens of a case.
    fn tokens(
        &self,
        scenario: &Scenario,
        case: &Case,
    ) -> anyhow::Result<Option<(Issuer, Arc<Tokens>)>> {
        let Some(algorithm) = scenario.work.locked() else {
            return Ok(None);
        };
        let is_cold = case.variant == Variant::Cold;
        let count = match is_cold {
            true => (self.window.as_secs_f64() * algorithm.per_second_max() as f64) as usize,
            false => IN_TURN,
        };
        let issuer = Issuer::make(algorithm, &KeyFiles::in_folder(&self.folder))?;
        let cores: Vec<usize> = self.cores.beside().into_iter().collect();
        let tokens = issuer.tokens(count, &[&cores[..], &[self.cores.system]].concat())?;
        let tokens = Arc::new(Tokens::new(&tokens, is_cold)?);
        Ok(Some((issuer, tokens)))
    }

    fn stub(&self, side: Side, delay: Duration) -> anyhow::Result<(Process, SocketAddr)> {
        let address = process::free_address()?;
        let mut command = Command::new(&self.programs.own);
        command.args(["stub", "echo", "--listen", &address.to_string()]);
        command.args(["--delay", &units::show(delay)]);
        command.args(["--protocols", &side.other_offers().join(",")]);
        if side.is_tls() {
            command.arg("--cert").arg(&self.identity.cert);
            command.arg("--key").arg(&self.identity.key);
        }
        let log = self.folder.join(format!("stub-{}.log", address.port()));
        let (cores, own) = (&self.cores.stub, &self.cores.load);
        let stub = Process::start(&mut command, cores, own, address, &log)?;
        Ok((stub, address))
    }

    /// Takes one sample.
    ///
    /// # Errors
    /// When the system does not start, or cannot be connected to.
    pub fn sample(
        &self,
        system: System,
        scenario: &Scenario,
        case: &Case,
        stubs: &Stubs,
    ) -> anyhow::Result<(Figures, RunFacts)> {
        if scenario.work.has_broker() {
            return self.glu(system, scenario, case, stubs);
        }
        if scenario.work == Work::Sessions {
            return self.sessions(system, scenario, case, stubs);
        }
        let beside = || self.beside(stubs);
        if system == System::Direct {
            let plan = self.plan(system, scenario, case, stubs)?;
            return Ok((
                self.measure(&plan, None, self.timing(system), &beside)?,
                RunFacts {
                    scenario: scenario.name.to_owned(),
                    ..RunFacts::default()
                },
            ));
        }
        let mut setup = self.set_up(system, scenario, stubs)?;
        let running = self.start(system, &mut setup)?;
        let plan = Plan {
            address: setup.address,
            ..self.plan(system, scenario, case, stubs)?
        };
        let is_locked = !matches!(system, System::Passthrough | System::Floor);
        let tokens = plan.tokens.as_ref().filter(|_| is_locked);
        if let Some(tokens) = tokens {
            tokens::ensure_checked(plan.address, &plan.path, tokens.get(0))?;
        }
        let mut figures = self.measure(&plan, Some(&running), self.timing(system), &beside)?;
        if tokens.is_some() {
            check_tokens(&plan, &figures, self.window)?;
        }
        if let Some((issuer, tokens)) = stubs.tokens.as_ref().filter(|(_, it)| it.is_cold) {
            figures.check_us = Some(issuer.check_us(tokens, Some(self.cores.system))?);
        }
        Ok((figures, setup.facts(scenario)))
    }

    /// Writes what a system needs for a scenario without a broker.
    ///
    /// # Errors
    /// When the program is not there or a file cannot be written.
    pub fn set_up(
        &self,
        system: System,
        scenario: &Scenario,
        stubs: &Stubs,
    ) -> anyhow::Result<Setup> {
        let place = Place {
            scenario,
            keys: &KeyFiles::in_folder(&self.folder),
            listen: process::free_address()?,
            backend: stubs.back.1,
            identity: &self.identity,
            folder: &self.folder.join(system.name()),
        };
        system::set_up(system, &place, &self.programs)
    }

    /// Starts a system on its core, and waits until it listens.
    ///
    /// # Errors
    /// When it does not.
    pub fn start(&self, system: System, setup: &mut Setup) -> anyhow::Result<Process> {
        let log = self.folder.join(format!("{}.log", system.name()));
        let (cores, own) = ([self.cores.system], &self.cores.load);
        Process::start(&mut setup.command, &cores, own, setup.address, &log)
    }

    /// How long load runs before a sample of a system.
    pub fn warm_up_of(&self, system: System) -> Duration {
        match system.is_jvm() {
            true => self.warm_up.max(self.jvm_warm_up),
            false => self.warm_up,
        }
    }

    /// The times of a sample of a system.
    pub fn timing(&self, system: System) -> Timing {
        Timing {
            warm_up: self.warm_up_of(system),
            window: self.window,
        }
    }

    /// The processes of generator and stubs.
    pub fn beside(&self, stubs: &Stubs) -> Vec<u32> {
        [stubs.family(), vec![std::process::id()]].concat()
    }

    fn plan(
        &self,
        system: System,
        scenario: &Scenario,
        case: &Case,
        stubs: &Stubs,
    ) -> anyhow::Result<Plan> {
        let tls = match scenario.front.is_tls() {
            true => {
                let offers = scenario.front.other_offers();
                Some(pki::client_config(&self.identity.ca, &offers)?)
            }
            false => None,
        };
        let is_plain = matches!(system, System::Direct | System::Passthrough);
        let work = if is_plain { Work::Relay } else { scenario.work };
        let (bodies, dialogue) = match work {
            Work::Menu(behind) => {
                let (first, dialogue) = ussd::dialogue(behind, case)?;
                (first, Some(dialogue))
            }
            _ if scenario.work.maps() => (mapping::bodies(work), None),
            _ => (Bodies::new(case.bytes, work == Work::ToXml)?, None),
        };
        Ok(Plan {
            address: stubs.for_clients(),
            is_h2: scenario.front.is_h2(),
            tls,
            path: scenario.path().to_owned(),
            streams: case.streams,
            rate: case.rate,
            bodies,
            dialogue,
            status: 200,
            ledger: None,
            tokens: stubs.tokens.as_ref().map(|(_, tokens)| Arc::clone(tokens)),
            cores: self.cores.load.clone(),
        })
    }

    /// Runs load against a system; `beside` tells the processes on the cores of the load.
    ///
    /// # Errors
    /// When connections cannot be made.
    pub fn measure(
        &self,
        plan: &Plan,
        system: Option<&Process>,
        Timing { warm_up, window }: Timing,
        beside: &dyn Fn() -> Vec<u32>,
    ) -> anyhow::Result<Figures> {
        let load = Load::start(plan)?;
        thread::sleep(warm_up);
        load.show_tokens()?;
        let beside = beside();
        let family = system.map(Process::family).unwrap_or_default();
        load.measure();
        let before = self.clock(&family, &beside)?;
        thread::sleep(window);
        load.stop();
        let after = self.clock(&family, &beside)?;
        let (peak, _) = process::memory(&family);
        let stats = load.finish()?;
        let mut figures = figures(&before, &after, stats.replies(), &stats);
        if system.is_some() {
            thread::sleep(SETTLE);
            figures.memory_peak = Some(peak);
            figures.memory_settled = Some(process::memory(&family).1);
        } else {
            figures.cpu = None;
            figures.core = None;
        }
        Ok(figures)
    }

    /// What the kernel has counted so far for the system and for what is beside it.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn clock(&self, system: &[u32], beside: &[u32]) -> anyhow::Result<Clock> {
        Ok(Clock {
            at: Instant::now(),
            system: process::run_time(system),
            beside: process::run_time(beside),
            system_core: self.cores.system_busy()?,
            beside_cores: self.cores.beside_busy()?,
        })
    }
}

/// Refuses a sample in which tokens were presented again that should not.
fn check_tokens(plan: &Plan, figures: &Figures, window: Duration) -> anyhow::Result<()> {
    let tokens = plan.tokens.as_ref().filter(|tokens| tokens.is_cold);
    let requests = figures.throughput * window.as_secs_f64();
    if let Some(tokens) = tokens.filter(|it| requests > it.count() as f64) {
        anyhow::bail!(
            "{requests:.0} requests in the window, and {} tokens: measure with --rate",
            tokens.count()
        );
    }
    Ok(())
}

/// The figures between two clocks, with so many good replies.
pub(crate) fn figures(before: &Clock, after: &Clock, replies: u64, stats: &Stats) -> Figures {
    let time = (after.at - before.at).as_secs_f64();
    let used = (after.system - before.system).max(0.0);
    let beside = (after.beside - before.beside).max(0.0);
    let busy: Vec<f64> = after
        .beside_cores
        .iter()
        .zip(&before.beside_cores)
        .map(|(after, before)| after - before)
        .collect();
    let foreign_beside = busy.iter().sum::<f64>() - beside;
    let foreign_system = after.system_core - before.system_core - used;
    let replies = replies as f64;
    Figures {
        throughput: replies / time,
        latency: stats.latency(),
        errors: stats.errors.values().sum(),
        errors_by_kind: stats.errors.clone(),
        first_error: stats.first_error.clone(),
        unsent: stats.unsent,
        cpu: (replies > 0.0).then(|| used * 1e6 / replies),
        core: Some(used / time),
        load_core: (busy.iter().copied().fold(0.0, f64::max) / time).min(1.0),
        foreign: foreign_beside.max(foreign_system).max(0.0) / time,
        memory_peak: None,
        memory_settled: None,
        delivered: None,
        flight: None,
        sessions: None,
        check_us: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_differences_of_clocks() {
        let start = Instant::now();
        let clock = |seconds: u64, system: f64, beside: f64, cores: [f64; 2]| Clock {
            at: start + Duration::from_secs(seconds),
            system,
            beside,
            system_core: cores[0],
            beside_cores: vec![cores[1]],
        };
        let mut stats = Stats::new().unwrap();
        (0..1000).for_each(|_| stats.reply(Duration::from_millis(1)));
        let before = clock(0, 1.0, 5.0, [10.0, 20.0]);
        let figures = figures(&before, &clock(2, 2.5, 6.0, [11.5, 21.2]), 1000, &stats);
        let near = |value: f64, wanted: f64| (value - wanted).abs() < 1e-6;
        assert!(near(figures.throughput, 500.0), "{figures:?}");
        assert!(near(figures.cpu.unwrap(), 1500.0), "{figures:?}");
        assert!(near(figures.core.unwrap(), 0.75), "{figures:?}");
        assert!(near(figures.load_core, 0.6), "{figures:?}");
        assert!(near(figures.foreign, 0.1), "{figures:?}");
    }
}
