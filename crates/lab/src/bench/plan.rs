//! What the arguments of a suite mean: cases, systems, and for how long each is measured.

pub(super) mod glu;
pub(super) mod http;
pub(super) mod map;
pub(super) mod ussd;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;

use super::results::Case;
use super::scenario::{Scenario, System};
use super::system::Programs;
use crate::units;

/// What a suite measures.
#[derive(Debug)]
pub(super) struct Plan {
    pub suite: &'static str,
    pub options: Options,
    pub parts: Vec<Part>,
    /// The systems, in the order of their turns.
    pub systems: Vec<System>,
    pub missing: Vec<Missing>,
    /// How long load runs before a sample of a system on a virtual machine that compiles.
    pub jvm_warm_up: Duration,
}

/// A system that is not there, and what to do about it.
pub(super) type Missing = (System, String);

/// A scenario and its cases.
#[derive(Debug)]
pub(super) struct Part {
    pub scenario: &'static Scenario,
    pub cases: Vec<Case>,
}

/// Arguments that all suites take.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Options {
    /// `short` ends in about two minutes; `full` has all cases, and longer samples.
    #[arg(long, value_enum, default_value_t)]
    pub profile: Profile,
    /// Users at once, each with one request at a time.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub users: Vec<usize>,
    /// How often each system takes its turn.
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// The length of a sample.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// How long load runs before a sample.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub warm_up: Option<Duration>,
    /// Requests a second whatever the replies do; latency counts from when each was due.
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// Only these systems; `direct` is stub and generator alone.
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    pub system: Vec<System>,
    /// The folder for results.json and report.html.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    pub out: PathBuf,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Profile {
    /// 100 users, one size, no delay, samples of 0.8 s.
    #[default]
    Short,
    /// All numbers of users, sizes and delays, samples of 3 s.
    Full,
}

impl Options {
    pub fn rounds(&self) -> usize {
        let default = if self.is_full() { 3 } else { 2 };
        self.rounds.unwrap_or(default).max(1)
    }

    pub fn window(&self) -> Duration {
        let default = if self.is_full() { 3.0 } else { 0.8 };
        let seconds = self.seconds.unwrap_or(default);
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(Duration::from_secs(1))
            .max(Duration::from_millis(100))
    }

    pub fn warm_up(&self) -> Duration {
        let default = if self.is_full() { 1000 } else { 250 };
        self.warm_up.unwrap_or(Duration::from_millis(default))
    }

    pub fn is_full(&self) -> bool {
        self.profile == Profile::Full
    }

    /// How often stub and generator are measured alone in a case: they vary little, and a short run
    /// has no time.
    pub fn direct_rounds(&self) -> usize {
        if self.is_full() { self.rounds() } else { 1 }
    }

    /// How often a system takes its turn.
    pub fn rounds_of(&self, system: System) -> usize {
        match system {
            System::Direct => self.direct_rounds(),
            _ => self.rounds(),
        }
    }

    /// What was given, or what the profile means.
    fn or(&self, given: &[usize], short: &[usize], long: &[usize]) -> Vec<usize> {
        match given {
            [] if self.is_full() => long.to_vec(),
            [] => short.to_vec(),
            _ => given.to_vec(),
        }
    }
}

/// Peers that take part, and those that are not there.
type Peers = (Vec<System>, Vec<Missing>);

/// The peers that take part: those that are asked for, or all that are there; and those that are
/// not there though nobody said that they may be left out.
///
/// # Errors
/// When a peer was asked for and is not there.
fn peers(all: &[System], asked: &[String], programs: &Programs) -> anyhow::Result<Peers> {
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for peer in all {
        let is_asked = asked.iter().any(|name| name == peer.name());
        if !is_asked && !asked.is_empty() {
            continue;
        }
        let advice = peer.advice();
        match programs.find(*peer) {
            Some(_) => there.push(*peer),
            None if is_asked => bail!("{} was not found: {advice}", peer.name()),
            None => missing.push((*peer, format!("not found: {advice}"))),
        }
    }
    Ok((there, missing))
}
