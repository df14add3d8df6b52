//! One sample: sink and system are started afresh, load is made, and all is stopped.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::case::{Case, Kind};
use super::hub;
use super::idle;
use super::load::{Load, Phase};
use super::results::{Figures, Idle};
use super::sink::{Sink, Wanted};
use super::system::{self, Place, Setup, System};
use crate::bench::clock::Watch;
use crate::bench::memory::{self, Memory};
use crate::bench::outcome::{Contender, RunFacts};
use crate::bench::process::{self, Cores, Process};
use crate::bench::system::Programs;
use crate::bench::tokens::{Issuer, KeyFiles};
use crate::pki::Identity;
use crate::stamp;

/// How long a system rests before its memory is read.
const SETTLE: Duration = Duration::from_millis(500);
/// So many lines of a configuration are kept with the results.
const LINES_SHOWN: usize = 30;

/// What samples have in common.
pub(super) struct Bench {
    pub programs: Programs,
    pub cores: Cores,
    pub folder: PathBuf,
    pub window: Duration,
    pub warm_up: Duration,
    /// Who signs the tokens of callers, and the files with its key.
    pub issuer: Issuer,
    pub keys: KeyFiles,
    /// Who the sink is over TLS.
    pub identity: Identity,
}

/// Everything that runs for a sample.
struct Running {
    address: SocketAddr,
    setup: Setup,
    log: PathBuf,
    sink: Sink,
    /// The sink of endpoints that fail.
    failing: Option<Sink>,
    process: Option<Process>,
}

impl Running {
    fn family(&self) -> Vec<u32> {
        self.process
            .as_ref()
            .map(Process::family)
            .unwrap_or_default()
    }
}

impl Bench {
    /// Takes one sample.
    ///
    /// # Errors
    /// When something does not start, or subscribers are not let in.
    pub fn sample(&self, system: System, case: &Case) -> anyhow::Result<(Figures, RunFacts)> {
        let folder = self.folder.join(system.name());
        if folder.exists() {
            // What an earlier sample has left there is none of this one's.
            fs::remove_dir_all(&folder)?;
        }
        let (mut running, started) = self.start(system, case, &folder)?;
        let facts = RunFacts {
            scenario: case.scenario.clone(),
            command: format!("{:?}", running.setup.command).replace('"', ""),
            config: shortened(&running.setup.config),
        };
        let figures = match case.kind {
            Kind::Idle => self.idle(case, &mut running, started),
            Kind::Webhooks | Kind::WebSub => self.deliver(case, &mut running),
        };
        let figures = figures.map_err(|error| {
            let printed = running.process.as_ref().map(Process::printed);
            match printed.filter(|it| !it.is_empty()) {
                None => error,
                Some(printed) => error.context(printed),
            }
        })?;
        Ok((figures, facts))
    }

    /// Starts sinks and system, and says how long the system took.
    fn start(
        &self,
        system: System,
        case: &Case,
        folder: &Path,
    ) -> anyhow::Result<(Running, Duration)> {
        fs::create_dir_all(folder)?;
        let sink = |case: &Case| {
            let own = &self.programs.own;
            Sink::start(own, &self.cores, case, &self.folder, Some(&self.identity))
        };
        let main_sink = sink(case)?;
        let failing = match system {
            System::Disturbed => Some(sink(&Case::default())?),
            _ => None,
        };
        let address = process::free_address()?;
        let mut setup = system::set_up(
            system,
            &Place {
                case,
                listen: address,
                sink: main_sink.address,
                failing: failing.as_ref().map(|it| it.address),
                folder,
                authority: case.is_tls.then_some(self.identity.ca.as_path()),
                keys: &self.keys,
            },
            &self.programs,
        )?;
        let log = folder.join("log");
        let (process, started) = self.start_process(&mut setup, address, &log)?;
        let running = Running {
            address,
            setup,
            log,
            sink: main_sink,
            failing,
            process: Some(process),
        };
        Ok((running, started))
    }

    fn start_process(
        &self,
        setup: &mut Setup,
        address: SocketAddr,
        log: &Path,
    ) -> anyhow::Result<(Process, Duration)> {
        let (cores, own) = ([self.cores.system], &self.cores.load);
        let begun = Instant::now();
        let process = Process::start(&mut setup.command, &cores, own, address, log)?;
        Ok((process, begun.elapsed()))
    }

    fn watch(&self, running: &Running) -> Watch {
        let failing = running.failing.as_ref().map(Sink::family);
        Watch {
            cores: self.cores.clone(),
            system: running.family(),
            stubs: [running.sink.family(), failing.unwrap_or_default()].concat(),
        }
    }

    fn deliver(&self, case: &Case, running: &mut Running) -> anyhow::Result<Figures> {
        let mut figures = Figures::default();
        if case.kind == Kind::WebSub {
            let (address, admin) = (running.address, running.setup.admin);
            let took = hub::subscribe(case, address, admin, &mut running.sink)?;
            figures.subscribed = Some(took.as_secs_f64());
        }
        let watch = self.watch(running);
        let sink = &mut running.sink;
        let mut load = Load::connect(case, running.address)?;
        let wanted = |load: &Load<'_>| load.events_each() * case.endpoints as u64;
        load.run(self.warm_up, &mut || Ok(sink.count()?.accepted))?;
        sink.wait(wanted(&load))?;
        thread::sleep(SETTLE);
        process::forget_peak(&watch.system);
        figures.memory_before = Some(process::memory(&watch.system).1);
        let (before, had) = (watch.read()?, sink.count()?);
        let phase = load.run(self.window, &mut || Ok(sink.count()?.accepted))?;
        let has = sink.wait(wanted(&load))?;
        let used = watch.read()?.since(&before);
        figures.memory_peak = Some(process::memory(&watch.system).0);
        figures.enter_used(&used, has.accepted - had.accepted, case.bytes);
        let Phase { open, close } = phase;
        figures.enter_report(&sink.report(&Wanted {
            events: load.events_each(),
            endpoints: case.endpoints,
            from: open,
            to: close,
        })?);
        figures.publish = load.replies.latency.latency();
        figures.refused = load.replies.refused;
        if let Some(refusal) = load.replies.first_refusal {
            figures.first_error = Some(refusal);
        }
        if let Some(failing) = &mut running.failing {
            figures.tries = Some(failing.count()?.posts);
        }
        thread::sleep(SETTLE);
        figures.memory_settled = Some(process::memory(&watch.system).1);
        Ok(figures)
    }

    /// Makes webhooks, looks at memory before and after and behind a restart, and sends one event
    /// to all of them.
    fn idle(
        &self,
        case: &Case,
        running: &mut Running,
        start_empty: Duration,
    ) -> anyhow::Result<Figures> {
        let (address, admin) = (running.address, running.setup.admin);
        let settled = |running: &Running| {
            thread::sleep(SETTLE);
            memory::read(&running.family())
        };
        let without = settled(running);
        let tokens = self.issuer.tokens(1, &self.cores.load)?;
        let token = tokens.first().context("there is no token")?;
        let begun = Instant::now();
        idle::make(case, address, running.sink.address, token)?;
        let made = begun.elapsed();
        idle::wait_known(admin, case.endpoints)?;
        let with = settled(running);
        let start = self.restart(case, running)?;
        let after = settled(running);
        let watch = self.watch(running);
        let before = watch.read()?;
        idle::publish(case, address)?;
        let has = running.sink.wait(case.endpoints as u64)?;
        let used = watch.read()?.since(&before);
        let mut figures = Figures {
            idle: Some(Idle {
                made: made.as_secs_f64(),
                start_empty: start_empty.as_secs_f64(),
                start: start.as_secs_f64(),
                ..each(case.endpoints, [&without, &with, &after])
            }),
            memory_before: Some(without.resident),
            memory_settled: Some(with.resident),
            memory_peak: Some(process::memory(&watch.system).0),
            ..Figures::default()
        };
        figures.enter_used(&used, has.accepted, case.bytes);
        figures.enter_report(&running.sink.report(&Wanted {
            events: 1,
            endpoints: case.endpoints,
            from: 0,
            to: stamp::now(),
        })?);
        Ok(figures)
    }

    /// Stops the system in good order and starts it again with the same data; how long it takes
    /// from there until it listens and knows all webhooks.
    fn restart(&self, case: &Case, running: &mut Running) -> anyhow::Result<Duration> {
        running.process = None;
        let (address, log) = (running.address, running.log.clone());
        let begun = Instant::now();
        let (process, _) = self.start_process(&mut running.setup, address, &log)?;
        running.process = Some(process);
        idle::wait_known(running.setup.admin, case.endpoints)?;
        Ok(begun.elapsed())
    }
}

/// Bytes for each of so many webhooks: what came to the memory without any, when they had been made
/// and after a restart.
fn each(count: usize, [without, with, after]: [&Memory; 3]) -> Idle {
    let of = |now: u64, before: u64| (now as f64 - before as f64) / count.max(1) as f64;
    Idle {
        process: of(with.proportional, without.proportional),
        resident: of(with.resident, without.resident),
        restarted: of(after.proportional, without.proportional),
        ..Idle::default()
    }
}

/// The beginning of a file of many endpoints, which are all alike.
fn shortened(config: &str) -> String {
    let lines: Vec<&str> = config.lines().collect();
    match lines.len().checked_sub(LINES_SHOWN) {
        None | Some(0) => config.to_owned(),
        Some(more) => {
            let shown = lines.get(..LINES_SHOWN).unwrap_or_default().join("\n");
            format!("{shown}\n# ... {more} lines more\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_webhook_is_what_came_divided_by_all() {
        let memory = |proportional: u64| Memory {
            proportional,
            resident: 2 * proportional,
            kernel: 0,
        };
        let idle = each(10, [&memory(1000), &memory(6000), &memory(4000)]);
        assert_eq!(
            (idle.process, idle.resident, idle.restarted),
            (500.0, 1000.0, 300.0)
        );
    }

    #[test]
    fn long_files_are_shown_in_part() {
        assert_eq!(shortened("a\nb\n"), "a\nb\n");
        let long = "line\n".repeat(LINES_SHOWN + 3);
        assert!(shortened(&long).ends_with("line\n# ... 3 lines more\n"));
    }
}
