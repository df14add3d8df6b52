//! The campaign of faults: rounds of one kind of fault each, under load. What was acknowledged
//! arrives, or it is told that it is gone.

mod arrival;
mod clocks;
mod disks;
mod folders;
mod kills;
mod report;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::Options;
use super::books::{Books, Way};
use super::engine::Engine;
use super::publishers::Publishers;
use super::receiver::Receiver;
use super::servers::Servers;
use crate::command::{Failure, cargo, target};
use crate::servers::{FOR_TESTS, ensure};
use report::Tally;

/// How long what is there may take to arrive.
const DRAIN_MAX: Duration = Duration::from_secs(90);

type Round = fn(&mut Campaign) -> Result<(), Failure>;

const ROUNDS: [(&str, Round); 10] = [
    ("engine killed", Campaign::engine_killed),
    ("receiver away", Campaign::receiver_away),
    ("broker killed", Campaign::broker_killed),
    ("database killed", Campaign::database_killed),
    ("all killed", Campaign::all_killed),
    ("full disk", Campaign::full_disk),
    ("failing disk", Campaign::failing_disk),
    ("restored folder", Campaign::restored),
    ("damaged folder", Campaign::damaged),
    ("clock and reloads", Campaign::clock_and_reloads),
];

struct Campaign {
    folder: PathBuf,
    books: Arc<Books>,
    receiver: Receiver,
    servers: Servers,
    engine: Engine,
    /// Of the round: what it draws depends on nothing that was drawn before.
    random: Rng,
    /// The last event that the subscriber has had.
    last: Option<String>,
    /// What it has had since it was last told that something is missing.
    seen: BTreeSet<u64>,
    resets: u64,
    tally: Tally,
    versions: u64,
}

pub fn run(root: &Path, options: &Options) -> Result<(), Failure> {
    println!("seed {}", options.seed);
    ensure(FOR_TESTS)?;
    let target = target(root)?;
    let binary = match &options.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => {
            cargo(root).args(["build", "-p", "intertie"]).run()?;
            target.join("debug/intertie")
        }
    };
    let name = format!("intertie-campaign-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder)?;
    let books = Arc::new(Books::default());
    let receiver = Receiver::start(&books)?;
    let log = fs::File::create(folder.join("servers.log"))?;
    let servers = Servers::start(root, &target, &log)?;
    let engine = Engine::new(binary, &folder, receiver.port, &servers)?;
    let mut campaign = Campaign {
        folder: folder.clone(),
        books,
        receiver,
        servers,
        engine,
        random: Rng::with_seed(options.seed),
        last: None,
        seen: BTreeSet::new(),
        resets: 0,
        tally: Tally::default(),
        versions: 0,
    };
    let played = campaign.play(options);
    campaign.engine.kill();
    let is_well = campaign.tally.report(options.seed, campaign.books.counts());
    if played.is_ok() && is_well {
        fs::remove_dir_all(&folder)?;
        return Ok(());
    }
    played?;
    let folder = folder.display();
    Err(Failure::new(format!(
        "not all is well: {folder} has the engine's folder"
    )))
}

impl Campaign {
    fn play(&mut self, options: &Options) -> Result<(), Failure> {
        let chosen: Vec<_> = ROUNDS
            .iter()
            .filter(|it| {
                options
                    .only
                    .as_deref()
                    .is_none_or(|only| it.0.contains(only))
            })
            .collect();
        let start = Instant::now();
        self.engine.must_start()?;
        let mut number = 0;
        // All kinds at least once.
        while start.elapsed() < options.time || number < chosen.len() as u64 {
            self.random = Rng::with_seed(options.seed.wrapping_add(number << 32));
            let next = chosen.get(number as usize);
            let Some((name, round)) = next.or_else(|| self.random.choice(&chosen)) else {
                return Err(Failure::new("no round has such a name"));
            };
            println!("{:4} s  {name}", start.elapsed().as_secs());
            self.tally.begin(name, self.books.counts());
            let played = round(self).and_then(|()| self.settle());
            self.tally.end(self.books.counts());
            played?;
            number += 1;
        }
        Ok(())
    }

    /// Has clients work until what is given is dropped or stopped.
    fn publish(&self, ways: &'static [Way], padding: usize) -> Publishers {
        Publishers::start(&self.books, self.engine.port, ways, padding)
    }

    fn pause(&mut self, least: u64, most: u64) {
        let wait = self.random.u64(least..most);
        thread::sleep(Duration::from_millis(wait));
    }

    /// Kills the engine, and starts it again.
    fn kill_engine(&mut self) -> Result<(), Failure> {
        self.engine.kill();
        self.tally.fault();
        self.engine.must_start()
    }
}

/// Looks until something holds; false when the time is over.
fn wait(most: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < most {
        if holds() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}
