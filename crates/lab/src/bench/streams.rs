//! `bench streams`: topics and WebSocket proxying under load, beside Axway Streams' and WSO2's
//! published tables and other servers.

mod books;
mod case;
mod cells;
mod echo;
mod fan;
mod floor;
mod patch;
mod reader;
mod results;
mod sample;
mod suite;
mod system;
mod topic;
mod turnover;
mod unit;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;

use super::folder::Folder;
use super::outcome::{FOREIGN_MAX, Method};
use super::process::{self, Cores};
use super::suite::{self as turns, Plan};
use super::system::Programs;
use super::tokens::{Algorithm, Issuer, KeyFiles};
use crate::units;
use case::{Case, Choice, Durability, Feed, Mode, SCENARIOS};
pub(super) use floor::{WriteLoopArgs, run as write_loop};
pub(super) use results::{Results, SUITE};
use sample::Bench;
pub(super) use suite::Streams;
use system::{ALL, System};

/// Files of a process beside its connections.
const FILES_OTHER: u64 = 200;

/// Arguments of `intertie-bench streams`.
#[derive(Debug, clap::Args)]
pub(super) struct StreamArgs {
    /// Only these scenarios.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(value_parser = SCENARIOS.map(|(name, _)| name))]
    scenario: Vec<String>,
    /// What subscribers get where documents are polled; `patch` when not given. `hot-topic` has
    /// `patch` and, beside the peers, `event`.
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Where an event is before its publisher is answered. When not given `disk` for the rows of
    /// Axway Streams, and `memory`, as the peers have it, for all others.
    #[arg(long, value_enum)]
    durability: Option<Durability>,
    /// Subscribers: of the published rows those with so many, elsewhere in place of the usual.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    users: Vec<usize>,
    /// Topics: of the published rows those with so many, elsewhere in place of one.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    topics: Vec<usize>,
    /// Bytes of an event: of the published rows those with so many, elsewhere in place of the
    /// usual.
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// The distance between events of a topic: of the published rows those with this, elsewhere in
    /// place of the usual.
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = units::duration)]
    every: Vec<Duration>,
    /// How often each system takes its turn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// The length of a sample.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,
    /// How long load runs before a sample.
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "1s")]
    warm_up: Duration,
    /// Rows that need more than so many millions of bytes a second of the one core of the load get
    /// fewer subscribers, and say so.
    #[arg(long, value_name = "MB", default_value_t = 200.0)]
    load_max: f64,
    /// Only these systems; `floor` is a bare write loop, `direct` the load without a system.
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    system: Vec<System>,
    /// Other servers beside it, or `none`; all that are found when not given.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(value_parser = ["nchan", "mercure", "centrifugo", "haproxy", "nginx", "none"])]
    peers: Vec<String>,
    /// Measure Intertie alone, with everything open and behind JWT, where each client has an ES256
    /// token of its own.
    #[arg(long, conflicts_with_all = ["system", "peers"])]
    jwt: bool,
    /// The folder for results.json and report.html.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Show the rows, and nothing else.
    #[arg(long)]
    list: bool,
}

impl StreamArgs {
    fn choice(&self) -> Choice {
        Choice {
            scenarios: self.scenario.clone(),
            mode: self.mode,
            durability: self.durability,
            users: self.users.clone(),
            topics: self.topics.clone(),
            bytes: self.sizes.clone(),
            periods: self
                .every
                .iter()
                .map(|every| every.as_secs_f64() * 1e3)
                .collect(),
            load_max: self.load_max,
        }
    }

    /// Who takes part, and who is not there though nobody said that it may be left out.
    ///
    /// # Errors
    /// When a peer was asked for and is not there.
    fn systems(&self, programs: &Programs) -> anyhow::Result<(Vec<System>, Vec<System>)> {
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for system in ALL {
            let named = self.peers.iter().any(|name| name == system.name());
            let is_asked = named || self.system.contains(&system);
            let is_open = match system {
                System::Intertie => true,
                System::IntertieJwt => self.jwt,
                _ if self.jwt => false,
                // Another build is measured when it is asked for.
                System::Baseline => false,
                _ if system.is_peer() => self.peers.is_empty() || named,
                _ => true,
            };
            let is_wanted = match self.system.as_slice() {
                [] => is_open,
                chosen => chosen.contains(&system),
            };
            match system.find(programs) {
                _ if !is_wanted => {}
                Some(_) => there.push(system),
                None if is_asked => bail!("{} was not found: {}", system.name(), system.advice()),
                None => missing.push(system),
            }
        }
        Ok((there, missing))
    }
}

/// Does what the arguments say. False when Intertie could not be measured somewhere, or when
/// something was lost, doubled or changed by it.
///
/// # Errors
/// When the machine has too few cores, no row is meant, or files cannot be written.
pub(super) fn run(
    args: &StreamArgs,
    programs: impl FnOnce() -> anyhow::Result<Programs>,
) -> anyhow::Result<bool> {
    let cases = args.choice().cases();
    if cases.is_empty() {
        bail!("no row is like that; --list shows them");
    }
    if args.list {
        for case in &cases {
            super::table::print(&format!("{}: {}\n", case.scenario, case.label()))?;
        }
        return Ok(true);
    }
    let programs = programs()?;
    let (systems, missing) = args.systems(&programs)?;
    let cores = Cores::of_machine()?.awake(programs.is_awake, &programs.own)?;
    let files = process::allow_files()?;
    cases.iter().try_for_each(|case| check_files(case, files))?;
    let folder = Folder::new("intertie-streams")?;
    let window = Duration::try_from_secs_f64(args.seconds.max(0.1))?;
    let method = Method {
        rounds: usize::from(args.rounds),
        seconds: window.as_secs_f64(),
        warm_up: args.warm_up.as_secs_f64(),
        jvm_warm_up: None,
        foreign_max: FOREIGN_MAX,
    };
    let versions = systems.iter().map(|it| (*it, it.version(&programs)));
    let results = Results::new(SUITE, &cores, method, versions);
    process::pin(&cores.load)?;
    let keys = KeyFiles::in_folder(&folder);
    let issuer = Issuer::make(Algorithm::Es256, &keys)?;
    let bench = Bench {
        programs,
        cores,
        folder: folder.to_path_buf(),
        window,
        warm_up: args.warm_up,
        files,
        issuer: Arc::new(issuer),
        keys,
    };
    let plan = Plan::<Streams> {
        cases,
        systems,
        missing,
        rounds: usize::from(args.rounds),
        out: &args.out,
        folder: &folder,
        results,
    };
    turns::run(plan, |system, case| bench.sample(system, case))
}

/// Both ends of a proxied connection are files of the proxy.
fn check_files(case: &Case, allowed: u64) -> anyhow::Result<()> {
    let each = if case.feed == Feed::Echo { 2 } else { 1 };
    let needed = (case.users + case.stalled + case.topics) as u64 * each;
    // Those whose credentials end are there for a part of a minute each.
    let needed = needed + (case.expiring + case.revoked) as u64 + FILES_OTHER;
    anyhow::ensure!(
        needed <= allowed,
        "{} connections need {needed} open files, and this machine allows {allowed} (ulimit -Hn)",
        case.users + case.stalled,
    );
    Ok(())
}
