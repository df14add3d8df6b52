//! One sample: stub and system are started afresh, load is made, and all is stopped.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::case::{Case, Feed, RENEWED};
use super::echo::Echo;
use super::fan::{Edges, Fan, Plan};
use super::results::{Figures, Idle};
use super::system::{self, Place, System};
use super::turnover::{ApiKeys, Setup, Turnover};
use crate::bench::clock::Watch;
use crate::bench::http;
use crate::bench::memory::{self, Memory};
use crate::bench::outcome::RunFacts;
use crate::bench::process::{self, Cores, Process};
use crate::bench::stats::Latency;
use crate::bench::system::Programs;
use crate::bench::tokens::{Issuer, KeyFiles};

/// How long a system rests before its settled memory is read.
const SETTLE: Duration = Duration::from_millis(300);
/// How long idle connections are looked at.
const IDLE: Duration = Duration::from_secs(3);
const ASK_MAX: Duration = Duration::from_secs(5);
/// Beside window and warm-up a sample has so long a time in which keys are revoked.
const MARGIN: Duration = Duration::from_secs(5);

/// What samples have in common.
pub(super) struct Bench {
    pub programs: Programs,
    pub cores: Cores,
    pub folder: PathBuf,
    pub window: Duration,
    pub warm_up: Duration,
    /// How many files a process may open.
    pub files: u64,
    /// Who signs the tokens of clients, and the files with its key.
    pub issuer: Arc<Issuer>,
    pub keys: KeyFiles,
}

/// Everything that runs for a sample.
struct Running {
    /// Where clients are sent to.
    address: SocketAddr,
    system: Option<Process>,
    stub: Option<Process>,
    stub_address: SocketAddr,
    facts: RunFacts,
    /// The keys of clients that have them instead of tokens.
    api_keys: Option<ApiKeys>,
}

impl Bench {
    /// Takes one sample.
    ///
    /// # Errors
    /// When something does not start, or subscribers are not let in.
    pub fn sample(&self, system: System, case: &Case) -> anyhow::Result<(Figures, RunFacts)> {
        let floor = case.for_floor();
        let case = match system {
            System::Floor if case.feed != Feed::Echo => &floor,
            _ => case,
        };
        let mut running = self.start(system, case)?;
        let figures = match case.feed {
            Feed::Echo => self.echo(system, case, &running),
            Feed::Nothing => self.idle(system, case, &running),
            Feed::Poll | Feed::Post => self.fan(system, case, &running),
        };
        let figures = figures.map_err(|error| match &running.system {
            Some(process) => {
                let printed = process.printed();
                if printed.is_empty() {
                    error
                } else {
                    error.context(printed)
                }
            }
            None => error,
        })?;
        let facts = std::mem::take(&mut running.facts);
        drop(running);
        // The next sample gets a folder of its own; what cannot be removed is in the one for
        // temporary files.
        let _ = fs::remove_dir_all(self.folder.join(system.name()));
        Ok((figures, facts))
    }

    fn start(&self, system: System, case: &Case) -> anyhow::Result<Running> {
        let stub_address = process::free_address()?;
        let stub = match case.feed {
            Feed::Poll | Feed::Echo => Some(self.stub(case, stub_address)?),
            Feed::Post | Feed::Nothing => None,
        };
        let mut running = Running {
            address: stub_address,
            system: None,
            stub,
            stub_address,
            facts: RunFacts {
                scenario: case.scenario.clone(),
                ..RunFacts::default()
            },
            api_keys: None,
        };
        if system == System::Direct {
            return Ok(running);
        }
        let folder = self.folder.join(system.name());
        running.address = process::free_address()?;
        running.api_keys = self.api_keys(system, case)?;
        let place = Place {
            case,
            listen: running.address,
            backend: stub_address,
            folder: &folder,
            files: self.files,
            keys: system.is_locked(case).then_some(&self.keys),
            has_api_keys: running.api_keys.is_some(),
        };
        let mut setup = system::set_up(system, &place, &self.programs)?;
        let log = self.folder.join(format!("{}.log", system.name()));
        running.facts.command = format!("{:?}", setup.command).replace('"', "");
        running.facts.config = setup.config;
        let (cores, own) = ([self.cores.system], &self.cores.load);
        let process = Process::start(&mut setup.command, &cores, own, running.address, &log)?;
        running.system = Some(process);
        Ok(running)
    }

    fn api_keys(&self, system: System, case: &Case) -> anyhow::Result<Option<ApiKeys>> {
        let program = system.find(&self.programs);
        let folder = self.folder.join(system.name());
        fs::create_dir_all(&folder)?;
        let file = folder.join(system::API_KEYS);
        // One of a sample that failed.
        if file.exists() {
            fs::remove_file(&file)?;
        }
        match program.filter(|_| system.is_locked(case)) {
            Some(program) => {
                ApiKeys::make(program, file, case, self.warm_up + self.window + MARGIN)
            }
            None => Ok(None),
        }
    }

    /// A token for each subscriber and each publisher, where they need one.
    fn tokens(&self, system: System, case: &Case) -> anyhow::Result<Vec<String>> {
        if !system.is_locked(case) {
            return Ok(Vec::new());
        }
        let count = case.users + case.stalled + case.topics;
        self.issuer.tokens(count, &self.cores.load)
    }

    /// Starts what stands behind the system, on its core.
    fn stub(&self, case: &Case, address: SocketAddr) -> anyhow::Result<Process> {
        let mut command = Command::new(&self.programs.own);
        command.arg("stub");
        match case.feed {
            Feed::Poll => {
                command.args(["renewing-json", "--renew", "call"]);
                command.args(["--size", &case.bytes.to_string()]);
                command.args(["--percent", &RENEWED.to_string()]);
            }
            _ => {
                command.arg("ws-reverse");
            }
        }
        command.args(["--listen", &address.to_string()]);
        let log = self.folder.join("stub.log");
        let (cores, own) = (&self.cores.stub, &self.cores.load);
        Process::start(&mut command, cores, own, address, &log)
    }

    fn watch(&self, running: &Running) -> Watch {
        let family =
            |process: &Option<Process>| process.as_ref().map(Process::family).unwrap_or_default();
        Watch {
            cores: self.cores.clone(),
            system: family(&running.system),
            stubs: family(&running.stub),
        }
    }

    fn fan(&self, system: System, case: &Case, running: &Running) -> anyhow::Result<Figures> {
        let mut fan = Fan::new(case, system)?;
        fan.tokens = self.tokens(system, case)?;
        let begun = Instant::now();
        fan.connect(system, running.address)?;
        let connected = begun.elapsed();
        let watch = self.watch(running);
        let (_, memory_before) = process::memory(&watch.system);
        let ticks = || ticks(running.stub_address, case.topics);
        let turnover = Turnover::start(Setup {
            case: case.clone(),
            address: running.address,
            issuer: Arc::clone(&self.issuer),
            keys: running.api_keys.clone(),
        })?;
        let edges = fan.run(&Plan {
            warm_up: self.warm_up,
            seconds: self.window,
            watch: &watch,
            ticks: &ticks,
        })?;
        let mut figures = Figures {
            latency: fan.books.latency.latency(),
            burst: fan.books.burst.latency(),
            publish: fan.books.publish.latency(),
            late: match case.feed {
                Feed::Poll => fan.books.late.latency(),
                _ => Latency::default(),
            },
            refused: fan.books.refused + fan.tally.unanswered,
            cut: fan.cut,
            connected: Some(connected.as_secs_f64()),
            turnover: turnover.map(Turnover::finish).transpose()?,
            ..Figures::default()
        };
        if case.stalled > 0 {
            figures.stalled_cut = Some(fan.stalled_cut());
        }
        count(&mut figures, &fan.tally, &edges, running.system.is_some());
        let errors = [
            &fan.tally.first_error,
            &fan.books.first_refusal,
            &fan.first_cut,
        ];
        figures.first_error = errors.into_iter().find_map(Clone::clone);
        memory_of(&mut figures, &watch, memory_before);
        Ok(figures)
    }

    fn echo(&self, system: System, case: &Case, running: &Running) -> anyhow::Result<Figures> {
        let mut echo = Echo::new(case)?;
        echo.tokens = self.tokens(system, case)?;
        let begun = Instant::now();
        echo.connect(system, running.address)?;
        let connected = begun.elapsed();
        let watch = self.watch(running);
        let (_, memory_before) = process::memory(&watch.system);
        let edges = echo.run(&Plan {
            warm_up: self.warm_up,
            seconds: self.window,
            watch: &watch,
            ticks: &|| Ok(Vec::new()),
        })?;
        let mut figures = Figures {
            latency: echo.books.latency.latency(),
            failed: echo.failed,
            cut: echo.cut,
            connected: Some(connected.as_secs_f64()),
            ..Figures::default()
        };
        count(&mut figures, &echo.tally, &edges, running.system.is_some());
        let errors = [&echo.tally.first_error, &echo.first_cut];
        figures.first_error = errors.into_iter().find_map(Clone::clone);
        if running.system.is_some() {
            memory_of(&mut figures, &watch, memory_before);
        }
        Ok(figures)
    }

    /// Makes connections on which nothing happens, and looks at memory before and after.
    fn idle(&self, system: System, case: &Case, running: &Running) -> anyhow::Result<Figures> {
        let watch = self.watch(running);
        let mut fan = Fan::new(case, system)?;
        fan.tokens = self.tokens(system, case)?;
        fan.rest(SETTLE)?;
        let before = memory::read(&watch.system);
        fan.connect(system, running.address)?;
        fan.rest(SETTLE)?;
        let begin = watch.read()?;
        fan.rest(IDLE.max(self.window))?;
        let used = watch.read()?.since(&begin);
        let after = memory::read(&watch.system);
        let mut figures = Figures {
            failed: (case.users - fan.open().min(case.users)) as u64,
            first_error: fan.first_cut.clone(),
            core: Some(used.system / used.seconds),
            load_core: used.load_core,
            foreign: used.foreign,
            idle: Some(idle(
                &before,
                &after,
                case.users,
                used.system / used.seconds,
            )),
            ..Figures::default()
        };
        drop(fan);
        let (peak, _) = process::memory(&watch.system);
        thread::sleep(SETTLE);
        figures.memory_before = Some(before.resident);
        figures.memory_peak = Some(peak);
        figures.memory_settled = Some(process::memory(&watch.system).1);
        Ok(figures)
    }
}

fn count(figures: &mut Figures, tally: &super::reader::Tally, edges: &Edges, has_system: bool) {
    let used = edges.after.since(&edges.before);
    figures.enter(&used, edges.delivered, has_system);
    figures.published = edges.published as f64 / used.seconds;
    figures.megabytes = edges.bytes as f64 / used.seconds / 1e6;
    figures.delivered = tally.delivered;
    figures.lost = tally.lost;
    figures.behind = tally.behind;
    figures.duplicates = tally.duplicates;
    figures.disordered = tally.disordered;
    figures.corrupt = tally.corrupt;
    figures.gaps = tally.gaps;
    figures.skipped = tally.skipped;
}

fn memory_of(figures: &mut Figures, watch: &Watch, before: u64) {
    let (peak, _) = process::memory(&watch.system);
    thread::sleep(SETTLE);
    figures.memory_before = Some(before);
    figures.memory_peak = Some(peak);
    figures.memory_settled = Some(process::memory(&watch.system).1);
}

fn idle(before: &Memory, after: &Memory, connections: usize, core: f64) -> Idle {
    let each = |figure: fn(&Memory) -> u64| {
        (figure(after) as f64 - figure(before) as f64) / connections.max(1) as f64
    };
    Idle {
        process: each(|it| it.proportional),
        resident: each(|it| it.resident),
        kernel: each(|it| it.kernel),
        core,
    }
}

/// How far each document of the source is, in the order of topics.
fn ticks(source: SocketAddr, topics: usize) -> anyhow::Result<Vec<u64>> {
    let mut stream = TcpStream::connect(source).context("the source of documents")?;
    stream.set_read_timeout(Some(ASK_MAX))?;
    stream.write_all(b"GET /ticks HTTP/1.1\r\nConnection: close\r\n\r\n")?;
    let (mut reply, start) = (Vec::new(), Instant::now());
    stream.read_to_end(&mut reply)?;
    let head = http::head(&reply)?.context("the source of documents did not answer")?;
    anyhow::ensure!(start.elapsed() < ASK_MAX, "the source of documents is slow");
    let body = reply.get(head.size..).unwrap_or_default();
    let known: std::collections::BTreeMap<usize, u64> = serde_json::from_slice(body)?;
    Ok((1..=topics)
        .map(|topic| known.get(&topic).copied().unwrap_or(0))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub;

    #[test]
    fn the_source_tells_how_far_it_is() {
        let address = stub::spawn("renewing-json", &["--renew", "call"]).unwrap();
        assert_eq!(ticks(address, 2).unwrap(), [0, 0]);
        let mut stream = TcpStream::connect(address).unwrap();
        let request = "GET /documents/2 HTTP/1.1\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(ticks(address, 2).unwrap(), [0, 1]);
    }

    #[test]
    fn memory_of_connections_is_what_came() {
        let before = Memory {
            proportional: 1000,
            resident: 2000,
            kernel: 500,
        };
        let after = Memory {
            proportional: 5000,
            resident: 8000,
            kernel: 700,
        };
        let idle = idle(&before, &after, 2, 0.1);
        assert_eq!(
            (idle.process, idle.resident, idle.kernel),
            (2000.0, 3000.0, 100.0)
        );
    }
}
