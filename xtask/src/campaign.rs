//! Campaigns: an engine under load to which bad things happen at random, for as long as one likes.
//! The seed says which, so that a run can be repeated.

mod books;
mod client;
mod damage;
mod engine;
mod faults;
mod flows;
mod hostile;
mod publishers;
mod receiver;
mod servers;

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::command::Failure;

const USAGE: &str = "cargo xtask campaign faults|hostile|doors --minutes N [--seed N] \
                     [--binary FILE] [--only NAME]";

/// What is asked for.
struct Options {
    time: Duration,
    seed: u64,
    /// The engine; it is built without.
    binary: Option<String>,
    /// Only faults or attacks whose names contain this.
    only: Option<String>,
}

/// Runs a campaign.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let usage = || Failure::new(USAGE);
    let (kind, rest) = arguments.split_first().ok_or_else(usage)?;
    let play = match kind.as_str() {
        "faults" => faults::run,
        "hostile" => hostile::run,
        "doors" => hostile::run_doors,
        // Processes that the campaign of attacks starts.
        "hostile-attacker" => return hostile::attacks::run(rest),
        "hostile-idle" => return hostile::idle::run(rest),
        _ => return Err(usage()),
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut options = Options {
        time: Duration::ZERO,
        seed: now.map_or(1, |it| it.as_secs()),
        binary: None,
        only: None,
    };
    let mut rest = rest.iter();
    while let Some(name) = rest.next() {
        let value = rest.next().ok_or_else(usage)?;
        let number = || value.parse::<u64>().map_err(|_| usage());
        match name.as_str() {
            "--minutes" => options.time = Duration::from_secs(60 * number()?),
            "--seed" => options.seed = number()?,
            "--only" => options.only = Some(value.clone()),
            "--binary" => options.binary = Some(value.clone()),
            _ => return Err(usage()),
        }
    }
    if options.time.is_zero() {
        return Err(usage());
    }
    play(root, &options)
}
