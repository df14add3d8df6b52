//! `bench push`: webhooks and a WebSub hub under load, beside Axway Streams' and MWARE's published
//! tables and a loop that sends and signs.

mod away;
mod case;
mod cells;
mod floor;
mod flow;
mod hub;
mod idle;
mod load;
mod results;
mod sample;
mod sink;
mod suite;
mod svix;
mod system;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;

use super::folder::Folder;
use super::outcome::{Contender, FOREIGN_MAX, Method};
use super::process::{self, Cores};
use super::suite::{self as turns, Plan};
use super::system::Programs;
use super::tokens::{Algorithm, Issuer, KeyFiles};
use crate::pki::Identity;
use crate::units;
use case::{Case, Choice, Durability, Kind, SCENARIOS};
pub(super) use floor::{PushLoopArgs, run as push_loop};
pub(super) use results::{Results, SUITE};
use sample::Bench;
pub(super) use suite::Push;
use system::{ALL, System};

/// Files of a process beside its connections.
const FILES_OTHER: u64 = 200;

/// How much is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Profile {
    /// Four of the published rows, 10,000 idle webhooks, one round, samples of 4 s.
    #[default]
    Short,
    /// All published rows, 100,000 idle webhooks, three rounds, samples of 10 s.
    Full,
}

/// Arguments of `intertie-bench push`.
#[derive(Debug, clap::Args)]
pub(super) struct PushArgs {
    /// `short` ends in a few minutes; `full` has all rows, and longer samples.
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,
    /// Only these scenarios.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(value_parser = SCENARIOS.map(|(name, _)| name))]
    scenario: Vec<String>,
    /// Where an event is before its publisher is answered; `disk` when not given.
    #[arg(long, value_enum)]
    durability: Option<Durability>,
    /// Endpoints: of the published rows those with so many, elsewhere in place of the usual.
    #[arg(long, value_name = "N", value_delimiter = ',', alias = "users")]
    endpoints: Vec<usize>,
    /// Topics: of the published rows those with so many.
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
    /// How often each system takes its turn; of the profile when not given.
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,
    /// The length of a sample; of the profile when not given.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// How long load runs before a sample.
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "1s")]
    warm_up: Duration,
    /// Only these systems; `disturbed` is Intertie with two endpoints more that fail, `floor` a
    /// loop that sends and signs, `svix` the server that INTERTIE_SVIX names.
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    system: Vec<System>,
    /// The folder for results.json and report.html.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Show the rows, and nothing else.
    #[arg(long)]
    list: bool,
}

impl PushArgs {
    fn is_full(&self) -> bool {
        self.profile == Profile::Full
    }

    fn choice(&self) -> Choice {
        let periods = self.every.iter();
        Choice {
            scenarios: self.scenario.clone(),
            is_full: self.is_full(),
            durability: self.durability,
            endpoints: self.endpoints.clone(),
            topics: self.topics.clone(),
            bytes: self.sizes.clone(),
            periods: periods.map(|every| every.as_secs_f64() * 1e3).collect(),
        }
    }

    fn rounds(&self) -> usize {
        let usual = if self.is_full() { 3 } else { 1 };
        self.rounds.map_or(usual, usize::from)
    }

    fn window(&self) -> anyhow::Result<Duration> {
        let usual = if self.is_full() { 10.0 } else { 4.0 };
        let seconds = self.seconds.unwrap_or(usual).max(0.1);
        Ok(Duration::try_from_secs_f64(seconds)?)
    }

    /// Who takes part.
    ///
    /// # Errors
    /// When somebody was asked for and is not there.
    fn systems(&self, programs: &Programs) -> anyhow::Result<Vec<System>> {
        let mut systems = Vec::new();
        for system in ALL {
            let is_wanted = match self.system.as_slice() {
                // Another build and Svix are measured when they are asked for.
                [] => !matches!(system, System::Baseline | System::Svix),
                chosen => chosen.contains(&system),
            };
            if is_wanted && system.find(programs).is_none() {
                bail!("{} was not found: {}", system.name(), system.advice());
            }
            if is_wanted {
                systems.push(system);
            }
        }
        Ok(systems)
    }
}

/// Does what the arguments say. False when Intertie could not be measured somewhere, or when
/// something was lost, doubled, out of order or not signed as it should be.
///
/// # Errors
/// When the machine has too few cores, no row is meant, or files cannot be written.
pub(super) fn run(
    args: &PushArgs,
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
    let systems = args.systems(&programs)?;
    let cores = Cores::of_machine()?.awake(programs.is_awake, &programs.own)?;
    let files = process::allow_files()?;
    cases.iter().try_for_each(|case| check(case, files))?;
    let folder = Folder::new("intertie-push")?;
    let window = args.window()?;
    let method = Method {
        rounds: args.rounds(),
        seconds: window.as_secs_f64(),
        warm_up: args.warm_up.as_secs_f64(),
        jvm_warm_up: None,
        foreign_max: FOREIGN_MAX,
    };
    let versions = systems.iter().map(|it| (*it, it.version(&programs)));
    let results = Results::new(SUITE, &cores, method, versions);
    process::pin(&cores.load)?;
    let keys = KeyFiles::in_folder(&folder);
    let bench = Bench {
        programs,
        cores,
        folder: folder.to_path_buf(),
        window,
        warm_up: args.warm_up,
        issuer: Issuer::make(Algorithm::Es256, &keys)?,
        keys,
        identity: Identity::make(&folder)?,
    };
    let plan = Plan::<Push> {
        cases,
        systems,
        missing: Vec::new(),
        rounds: args.rounds(),
        out: &args.out,
        folder: &folder,
        results,
    };
    turns::run(plan, |system, case| bench.sample(system, case))
}

/// Endpoints that have events at a time may each have a connection, which is a file on both sides.
fn check(case: &Case, files: u64) -> anyhow::Result<()> {
    let Case {
        endpoints, topics, ..
    } = case;
    anyhow::ensure!(
        *endpoints > 0 && endpoints % topics.max(&1) == 0,
        "{endpoints} endpoints cannot be spread over {topics} topics"
    );
    let needed = (endpoints + topics) as u64 + FILES_OTHER;
    anyhow::ensure!(
        matches!(case.kind, Kind::WebSub | Kind::Idle) || needed <= files,
        "{endpoints} endpoints need {needed} open files, and this machine allows {files} (ulimit \
         -Hn)"
    );
    Ok(())
}
