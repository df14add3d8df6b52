//! The campaign of attacks: each with a well-behaved client beside it, then the same on a server
//! that does nothing. The servers have one core, and everybody else the other one.

mod attacker;
pub mod attacks;
mod credentials;
mod disk;
mod flows;
mod good;
mod histogram;
pub mod idle;
mod processes;
mod report;
mod wire;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::engine::free_port;
use super::{Options, client};
use crate::command::{Failure, cargo, target};
use crate::servers::{Needed, ensure};
use attacker::Ports;
use attacks::{Attack, Sums};
use disk::Disk;
use good::{Good, Phase, Server};
use processes::{Held, Running};
use report::{Round, Verdict};

const NEEDED: &[Needed] = &[
    Needed::new("openssl", &["openssl"]),
    Needed::new("taskset", &["util-linux"]),
    Needed::new("chrt", &["util-linux"]),
];
/// The good client alone, before the attacks and after them.
const WARM_UP: Duration = Duration::from_secs(10);
const ALONE: Duration = Duration::from_secs(60);
/// What is measured of memory and descriptors is the least of such a time: the good client opens a
/// connection for some of its requests.
const LEVEL: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Attacks last so long at most, and then there is another round of all of them.
const ATTACK_MAX: Duration = Duration::from_secs(30);
/// How often a round that does not count is played again.
const AGAIN_MAX: usize = 2;
/// How long requests that an attack has held up may take to be answered.
const DRAIN: Duration = Duration::from_secs(1);
/// How long the good client may wait after an attack until all is as before.
const RECOVERY_MAX: Duration = Duration::from_secs(20);
/// As long as the engine is left alone before its memory is looked at.
const QUIET: Duration = Duration::from_secs(1);
/// How long a round takes beside the attack: the ends of both attacks, `DRAIN` twice, `QUIET`,
/// `LEVEL`.
const ROUND: Duration = Duration::from_secs(6);
/// What fills the topics before the memory is first looked at: as much as the largest `keep` of
/// hostile.yaml, in events of the largest size.
const FILLING: (usize, usize) = (10, 900_000);
/// An engine that holds more is ended before it takes the machine along.
const MEMORY_MAX_KIB: u64 = 4 << 20;
/// The end of the log of an engine that has ended.
const LOG_SHOWN: usize = 2000;

struct Campaign {
    scenario: &'static Scenario,
    binary: PathBuf,
    folder: PathBuf,
    engine: Running,
    ports: Ports,
    /// Where the server that does nothing listens.
    idle: Ports,
    good: Good,
    idle_server: Server,
    disk: Disk,
}

/// What is attacked.
struct Scenario {
    flows: &'static str,
    /// Topics to fill before.
    filled: &'static [&'static str],
    latency_max: Duration,
    has_doors: bool,
}

const HOSTILE: Scenario = Scenario {
    flows: flows::HOSTILE,
    filled: &["flooded", "state", "filtered"],
    latency_max: report::LATENCY_MAX,
    has_doors: false,
};
const DOORS: Scenario = Scenario {
    flows: flows::DOORS,
    filled: &[],
    latency_max: report::LATENCY_MAX_DOORS,
    has_doors: true,
};

/// Attacks on everything that needs no credential.
pub fn run(root: &Path, options: &Options) -> Result<(), Failure> {
    run_scenario(root, options, (&HOSTILE, attacks::all().collect()))
}

/// Attacks on access control.
pub fn run_doors(root: &Path, options: &Options) -> Result<(), Failure> {
    run_scenario(root, options, (&DOORS, attacks::doors().collect()))
}

fn run_scenario(
    root: &Path,
    options: &Options,
    (scenario, all): (&'static Scenario, Vec<&'static Attack>),
) -> Result<(), Failure> {
    println!("seed {}", options.seed);
    ensure(NEEDED)?;
    let chosen: Vec<&Attack> = all
        .into_iter()
        .filter(|it| {
            options
                .only
                .as_deref()
                .is_none_or(|only| it.name.contains(only))
        })
        .collect();
    if chosen.is_empty() {
        return Err(Failure::new("no attack has such a name"));
    }
    let binary = match &options.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => {
            cargo(root).args(["build", "-p", "intertie"]).run()?;
            target(root)?.join("debug/intertie")
        }
    };
    let name = format!("intertie-hostile-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(folder.join("flows"))?;
    processes::pin_clients()?;
    let may_run_first = thread::spawn(processes::run_first).join();
    if !may_run_first.unwrap_or_default() {
        println!("not root: the good client waits for its core as attackers do, and looks late");
    }
    let back_end = free_port()?;
    let own = std::env::current_exe()?;
    let mut back_end_server =
        Running::client(&own, &["campaign", "hostile-idle", &back_end.to_string()])?;
    back_end_server.listens(back_end)?;
    let idle = free_port()?;
    let arguments = ["campaign", "hostile-idle", &idle.to_string()];
    let mut idle_server = Running::server(&own, &arguments, &folder, &folder.join("idle.log"))?;
    idle_server.listens(idle)?;
    let start = (binary, folder.clone());
    let mut campaign = Campaign::new(root, scenario, start, (back_end, idle))?;
    let is_well = campaign.play(&chosen, options)?;
    drop(campaign);
    if is_well {
        fs::remove_dir_all(&folder)?;
        return Ok(());
    }
    let folder = folder.display();
    Err(Failure::new(format!(
        "a bound is broken: {folder} has the engine's log"
    )))
}

fn start_engine(binary: &Path, folder: &Path, ports: Ports) -> Result<Running, Failure> {
    let admin = format!("127.0.0.1:{}", ports.admin);
    let arguments = ["run", "flows", "--data", "data", "--admin", &admin];
    let mut engine = Running::server(binary, &arguments, folder, &folder.join("engine.log"))?;
    let ready = engine.is_ready(ports.admin);
    ready.map_err(|failure| Failure::new(format!("{failure}:\n{}", log_end(folder))))?;
    Ok(engine)
}

fn log_end(folder: &Path) -> String {
    let log = fs::read(folder.join("engine.log")).unwrap_or_default();
    let from = log.len().saturating_sub(LOG_SHOWN);
    String::from_utf8_lossy(log.split_at(from).1).into_owned()
}

impl Campaign {
    fn new(
        root: &Path,
        scenario: &'static Scenario,
        (binary, folder): (PathBuf, PathBuf),
        (back_end, idle): (u16, u16),
    ) -> Result<Self, Failure> {
        let ports = Ports {
            http: free_port()?,
            h2: free_port()?,
            tls: free_port()?,
            admin: free_port()?,
            back_end,
        };
        let idle = Ports {
            http: idle,
            h2: idle,
            tls: idle,
            admin: idle,
            back_end,
        };
        let to = folder.join("flows");
        flows::write(root, (scenario.flows, &to), ports)?;
        let engine = start_engine(&binary, &folder, ports)?;
        // Another address than that of the attackers, whom an engine may count by theirs.
        let address = match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
            Ok(_) => IpAddr::from(Ipv6Addr::LOCALHOST),
            Err(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
        };
        let disk = Disk::start(&folder)?;
        let good = Good::start(Server {
            address,
            ports,
            echoes: true,
            has_doors: scenario.has_doors,
            fields: match scenario.has_doors {
                true => credentials::TOKEN,
                false => "",
            },
        });
        let idle_server = Server {
            address: IpAddr::from(Ipv4Addr::LOCALHOST),
            ports: idle,
            echoes: false,
            has_doors: scenario.has_doors,
            fields: "",
        };
        Ok(Self {
            scenario,
            binary,
            folder,
            engine,
            ports,
            idle,
            good,
            idle_server,
            disk,
        })
    }

    /// Publishes to the topics that attackers may flood until they hold what they are told to keep:
    /// that they hold as much afterwards is no leak.
    fn fill_topics(&self) -> Result<(), Failure> {
        let (count, size) = FILLING;
        for topic in self.scenario.filled {
            for number in 0..count {
                let body = format!("{{\"n\":{number},\"text\":\"{}\"}}", "x".repeat(size));
                let path = format!("/topics/{topic}");
                let status = client::ask(self.ports.http, "POST", &path, &body)?.status;
                if status != 200 {
                    let why = format!("a publication to {topic} was answered with {status}");
                    return Err(Failure::new(why));
                }
            }
        }
        Ok(())
    }

    /// Whether all bounds were kept.
    fn play(&mut self, chosen: &[&'static Attack], options: &Options) -> Result<bool, Failure> {
        let start = Instant::now();
        self.fill_topics()?;
        thread::sleep(WARM_UP);
        let before = self.level()?;
        let parts_before = self.engine.memory_parts()?;
        let alone = self.good.take();
        report::print_alone("before", &alone, before);
        report::print_head();
        let left = options.time.saturating_sub(WARM_UP + LEVEL + ALONE);
        // A quarter more is for the server that does nothing.
        let slice = (left / chosen.len() as u32).saturating_sub(ROUND);
        let slice = slice.mul_f64(0.8).min(ATTACK_MAX);
        let mut random = Rng::with_seed(options.seed);
        let mut broken = Vec::new();
        let mut verdict = Verdict::default();
        let mut is_first = true;
        while is_first || start.elapsed() + slice < options.time.saturating_sub(ALONE) {
            for at in shuffled(chosen.len(), &mut random) {
                let Some(attack) = chosen.get(at) else {
                    continue;
                };
                if !is_first && start.elapsed() + slice > options.time.saturating_sub(ALONE) {
                    break;
                }
                let of = (random.u64(..), slice.max(attack.least));
                let mut round = self.round(attack, of)?;
                for _ in 0..AGAIN_MAX {
                    let Some(why) = round.void() else {
                        break;
                    };
                    round.print_void(&why);
                    verdict.void += 1;
                    round = self.round(attack, of)?;
                }
                round.print();
                verdict.add(&round);
                let name = attack.name;
                broken.extend(round.broken().into_iter().map(|it| format!("{name}: {it}")));
            }
            is_first = false;
        }
        self.good.take();
        thread::sleep(ALONE - LEVEL);
        let after = self.level()?;
        let alone = self.good.take();
        report::print_alone("a minute after", &alone, after);
        let end = report::judge_end(&alone, self.scenario.latency_max, before, after);
        broken.extend(end.into_iter().map(|it| format!("at the end: {it}")));
        if fs::read_to_string(self.folder.join("engine.log"))?.contains("panicked") {
            broken.push("the log has a panic".to_owned());
        }
        verdict.print(start.elapsed(), before, after);
        report::print_parts([parts_before, self.engine.memory_parts()?]);
        println!("seed {}: {} bounds broken", options.seed, broken.len());
        for it in &broken {
            println!("  {it}");
        }
        Ok(broken.is_empty())
    }

    /// The least that the engine holds for a while.
    fn level(&mut self) -> Result<Held, Failure> {
        let start = Instant::now();
        let mut least = self.engine.held()?;
        while start.elapsed() < LEVEL {
            thread::sleep(LOOK_EVERY);
            least = least.least(self.engine.held()?);
        }
        Ok(least)
    }

    fn log_kib(&self) -> u64 {
        fs::metadata(self.folder.join("engine.log")).map_or(0, |it| it.len() / 1024)
    }

    fn round(
        &mut self,
        attack: &'static Attack,
        (seed, time): (u64, Duration),
    ) -> Result<Round, Failure> {
        self.good.take();
        self.disk.take();
        let steal_before = processes::steal_time()?;
        let (before, log_before) = (self.engine.held()?, self.log_kib());
        let attackers = Running::new(attacks::start(attack, self.ports, seed, time)?);
        let (peak, end) = self.watch(before, time)?;
        let sums = sums(attackers);
        thread::sleep(DRAIN);
        let mut phase = self.good.take();
        let disk = self.disk.take();
        let steal = processes::steal_time()?.saturating_sub(steal_before);
        let recovery = match end {
            Some(_) => Duration::ZERO,
            None => self.recover(&mut phase),
        };
        // The other server shares the engine's core: while it is attacked the good client of the
        // engine may be late, and only an error is the engine's.
        let idle = self.attack_idle(attack, seed, time / 4)?;
        phase.add_errors(self.good.take());
        let end = match end {
            Some(end) => Some(end),
            None => self.ended()?,
        };
        let left = match end {
            Some(_) => Held::default(),
            None => self.level()?,
        };
        let log_kib = self.log_kib().saturating_sub(log_before);
        if end.is_some() {
            fs::rename(
                self.folder.join("engine.log"),
                self.folder.join(format!("engine-{}.log", attack.name)),
            )?;
            self.engine = start_engine(&self.binary, &self.folder, self.ports)?;
            self.recover(&mut Phase::default());
        }
        Ok(Round {
            attack,
            latency_max: self.scenario.latency_max,
            seconds: time.as_secs(),
            sums,
            phase,
            recovery,
            idle,
            disk,
            steal,
            before,
            peak,
            left,
            log_kib,
            end,
        })
    }

    /// Waits until the good client has its answers in time again; says how long that took. What
    /// came late until then is added to what was seen under the attack.
    fn recover(&self, attacked: &mut Phase) -> Duration {
        let start = Instant::now();
        while start.elapsed() < RECOVERY_MAX {
            thread::sleep(QUIET);
            let phase = self.good.take();
            if phase.is_in_time(QUIET) {
                return start.elapsed().saturating_sub(QUIET);
            }
            attacked.add(phase);
        }
        RECOVERY_MAX
    }

    /// Looks at what the engine holds; says why it is no more, if so.
    fn watch(&mut self, before: Held, time: Duration) -> Result<(Held, Option<String>), Failure> {
        let start = Instant::now();
        let mut peak = before;
        while start.elapsed() < time {
            thread::sleep(LOOK_EVERY);
            if let Some(why) = self.ended()? {
                return Ok((peak, Some(why)));
            }
            peak = peak.most(self.engine.held()?);
        }
        Ok((peak, None))
    }

    /// Why the engine does not go on, if so.
    fn ended(&mut self) -> Result<Option<String>, Failure> {
        if self.engine.has_ended()? {
            let end = log_end(&self.folder);
            return Ok(Some(format!("the engine has ended: {end}")));
        }
        if self.engine.held()?.memory_kib > MEMORY_MAX_KIB {
            self.engine.kill();
            return Ok(Some("more than 4 GiB of memory".to_owned()));
        }
        Ok(None)
    }

    fn attack_idle(&self, attack: &Attack, seed: u64, time: Duration) -> Result<Phase, Failure> {
        let good = Good::start(self.idle_server);
        let attackers = Running::new(attacks::start(attack, self.idle, seed, time)?);
        thread::sleep(time);
        sums(attackers);
        thread::sleep(DRAIN);
        Ok(good.take())
    }
}

/// Waits for attackers, who end by themselves.
fn sums(mut attackers: Running) -> Sums {
    const END_MAX: Duration = Duration::from_secs(5);
    let printed = attackers.printed(END_MAX).unwrap_or_default();
    // Attackers who hang are killed, and what they sent is not known.
    attacks::read(&printed).unwrap_or_default()
}

/// Numbers below this one in an order that the seed decides about.
fn shuffled(count: usize, random: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    random.shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_an_order_of_all() {
        let order = shuffled(60, &mut Rng::with_seed(7));
        assert_eq!(order, shuffled(60, &mut Rng::with_seed(7)));
        assert_ne!(order, shuffled(60, &mut Rng::with_seed(8)));
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..60).collect::<Vec<_>>());
    }
}
