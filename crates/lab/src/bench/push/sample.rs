//! One sample: sink and system are started afresh, load is made, and all is stopped.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::away::{self, Rate};
use super::case::{Case, Kind};
use super::hub;
use super::idle;
use super::load::{Load, Phase};
use super::results::{CatchUp, Figures, Idle};
use super::sink::{Sink, Wanted};
use super::svix;
use super::system::{self, Place, Setup, System};
use crate::bench::clock::Watch;
use crate::bench::glu::parts::Database;
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
    /// Where the endpoint will be that is away.
    away: Option<SocketAddr>,
    setup: Setup,
    log: PathBuf,
    sink: Sink,
    /// The sink of endpoints that fail.
    failing: Option<Sink>,
    process: Option<Process>,
    /// The application of Svix that has the endpoints of the case.
    app: Option<svix::App>,
    database: Option<Database>,
}

impl Running {
    fn family(&self) -> Vec<u32> {
        self.process
            .as_ref()
            .map(Process::family)
            .unwrap_or_default()
    }

    fn databases(&self) -> Vec<u32> {
        let family = self.database.as_ref().map(Database::family);
        family.unwrap_or_default()
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
            Kind::CatchUp => self.catch_up(system, case, &mut running),
            Kind::Webhooks | Kind::WebSub => self.deliver(system, case, &mut running),
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
        let sink = self.sink(case, process::free_address()?)?;
        let failing = match system {
            System::Disturbed => Some(self.sink(&Case::default(), process::free_address()?)?),
            _ => None,
        };
        let database = match system {
            System::Svix => Some(Database::start_empty(folder, &self.cores)?),
            _ => None,
        };
        let url = database.as_ref().map(Database::url);
        let place = Place {
            case,
            listen: process::free_address()?,
            sink: sink.address,
            failing: failing.as_ref().map(|it| it.address),
            away: match case.kind {
                Kind::CatchUp => Some(process::free_address()?),
                _ => None,
            },
            folder,
            authority: case.is_tls.then_some(self.identity.ca.as_path()),
            keys: &self.keys,
            database: url.as_deref(),
        };
        let others = match case.kind {
            // They come when everything has been published for the one that is away.
            Kind::CatchUp => 0,
            _ => case.endpoints,
        };
        let mut setup = system::set_up(
            system,
            &Place {
                case: &Case {
                    endpoints: others,
                    ..case.clone()
                },
                ..place
            },
            &self.programs,
        )?;
        let log = folder.join("log");
        let (process, started) = self.start_process(&mut setup, place.listen, &log)?;
        let app = match system {
            System::Svix => Some(self.app(case, place.listen, sink.address, folder)?),
            _ => None,
        };
        let running = Running {
            address: place.listen,
            away: place.away,
            setup,
            log,
            sink,
            failing,
            process: Some(process),
            app,
            database,
        };
        Ok((running, started))
    }

    /// Makes the endpoints of a case in a server of Svix that has been started in a folder.
    fn app(
        &self,
        case: &Case,
        address: SocketAddr,
        sink: SocketAddr,
        folder: &Path,
    ) -> anyhow::Result<svix::App> {
        let program = System::Svix.find(&self.programs);
        let token = svix::token(&program.context("svix-server is gone")?, folder)?;
        svix::wait_ready(address)?;
        svix::App::make(address, &token, case, sink)
    }

    fn sink(&self, case: &Case, address: SocketAddr) -> anyhow::Result<Sink> {
        let own = &self.programs.own;
        let identity = Some(&self.identity);
        Sink::start(address, own, &self.cores, case, &self.folder, identity)
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
            stubs: [
                running.sink.family(),
                failing.unwrap_or_default(),
                running.databases(),
            ]
            .concat(),
        }
    }

    fn deliver(
        &self,
        system: System,
        case: &Case,
        running: &mut Running,
    ) -> anyhow::Result<Figures> {
        let mut figures = Figures::default();
        if case.kind == Kind::WebSub {
            let (address, admin) = (running.address, running.setup.admin);
            let took = hub::subscribe(case, address, admin, &mut running.sink)?;
            figures.subscribed = Some(took.as_secs_f64());
        }
        let mut load = match &running.app {
            Some(app) => Load::connect_with(case, running.address, |_| app.request())?,
            None => Load::connect(case, running.address)?,
        };
        let wanted = |load: &Load<'_>| load.events_each() * case.endpoints as u64;
        let sink = &mut running.sink;
        load.run(self.warm_up, &mut || Ok(sink.count()?.accepted))?;
        sink.wait(wanted(&load))?;
        thread::sleep(SETTLE);
        // A database has a process for each connection, and these have been opened by now.
        let (watch, databases) = (self.watch(running), running.databases());
        let sink = &mut running.sink;
        process::forget_peak(&watch.system);
        figures.memory_before = Some(process::memory(&watch.system).1);
        let (before, had) = (watch.read()?, sink.count()?);
        let database = process::run_time(&databases);
        let phase = load.run(self.window, &mut || Ok(sink.count()?.accepted))?;
        let has = sink.wait(wanted(&load))?;
        let used = watch.read()?.since(&before);
        let database = process::run_time(&databases) - database;
        figures.memory_peak = Some(process::memory(&watch.system).0);
        let delivered = has.accepted - had.accepted;
        figures.enter_used(&used, delivered, case.bytes);
        if running.database.is_some() && delivered > 0 {
            figures.database = Some(database * 1e6 / delivered as f64);
        }
        let Phase { open, close } = phase;
        figures.enter_report(&sink.report(&Wanted {
            first: 1,
            last: load.events_each(),
            endpoints: case.endpoints,
            from: open,
            to: close,
        })?);
        figures.enter_replies(load.replies);
        if !system.keeps_order() {
            figures.excuse_order();
        }
        if let Some(failing) = &mut running.failing {
            figures.tries = Some(failing.count()?.posts);
        }
        thread::sleep(SETTLE);
        figures.memory_settled = Some(process::memory(&watch.system).1);
        Ok(figures)
    }

    /// Publishes events for an endpoint that is away, starts again with others beside it, and has
    /// it come back while these get events.
    fn catch_up(
        &self,
        system: System,
        case: &Case,
        running: &mut Running,
    ) -> anyhow::Result<Figures> {
        let away = running.away.context("nobody is away")?;
        let published = away::publish(case, running.address)?;
        away::settle_disk()?;
        self.restart_with_others(system, case, running)?;
        let mut load = Load::connect(case, running.address)?;
        load.begin_behind(case.backlog);
        let wanted = |load: &Load<'_>| (load.events_each() - case.backlog) * case.endpoints as u64;
        let run = |load: &mut Load<'_>, sink: &mut Sink, time: Duration| {
            let phase = load.run(time, &mut || Ok(0))?;
            sink.wait(wanted(load))?;
            anyhow::Ok(phase)
        };
        run(&mut load, &mut running.sink, self.warm_up)?;
        let before = run(&mut load, &mut running.sink, self.window)?;
        let mut figures = Figures {
            memory_before: Some(process::memory(&running.family()).1),
            ..Figures::default()
        };
        let mut returned = self.sink(case, away)?;
        let begun = Instant::now();
        returned.wait(1)?;
        let mut watch = self.watch(running);
        watch.stubs.extend(returned.family());
        let sink = &mut running.sink;
        let (used, had) = (watch.read()?, sink.count()?.accepted);
        let had = had + returned.count()?.accepted;
        let rate = Rate::begin(&mut returned)?;
        let meanwhile = run(&mut load, sink, self.window)?;
        let beside = rate.end(case, &mut returned)?;
        let has = sink.count()?.accepted + returned.count()?.accepted;
        figures.enter_used(&watch.read()?.since(&used), has - had, case.bytes);
        let alone = Rate::over(self.window, case, &mut returned)?;
        returned.wait(load.events_each())?;
        let seconds = begun.elapsed().as_secs_f64();
        let others = |phase: Phase| Wanted {
            first: case.backlog + 1,
            last: load.events_each(),
            endpoints: case.endpoints,
            from: phase.open,
            to: phase.close,
        };
        figures.enter_report(&sink.report(&others(meanwhile))?);
        figures.enter_faults(&returned.report(&Wanted {
            first: 1,
            endpoints: 1,
            ..others(meanwhile)
        })?);
        let before = sink.report(&others(before))?.latency_ms;
        figures.catch_up = Some(CatchUp {
            published: published.as_secs_f64(),
            beside,
            alone,
            seconds,
            before: before.unwrap_or_default(),
        });
        figures.memory_peak = Some(process::memory(&watch.system).0);
        figures.enter_replies(load.replies);
        Ok(figures)
    }

    /// Stops the system, and starts it with all endpoints of the case.
    fn restart_with_others(
        &self,
        system: System,
        case: &Case,
        running: &mut Running,
    ) -> anyhow::Result<()> {
        running.process = None;
        let folder = running.log.parent().context("there is no folder")?;
        let place = Place {
            case,
            listen: running.address,
            sink: running.sink.address,
            failing: None,
            away: running.away,
            folder,
            authority: None,
            keys: &self.keys,
            database: None,
        };
        running.setup = system::set_up(system, &place, &self.programs)?;
        let (address, log) = (running.address, running.log.clone());
        let (process, _) = self.start_process(&mut running.setup, address, &log)?;
        running.process = Some(process);
        Ok(())
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
            first: 1,
            last: 1,
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
