//! `menu-sessions`: dialogues that stand open, what they take of memory, how long a start takes
//! with all of them when the engine was killed, and whether each goes on at its screen.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{GATEWAYS, Turn};
use crate::bench::ask::Connection;
use crate::bench::memory;
use crate::bench::outcome::RunFacts;
use crate::bench::process::{self, Process};
use crate::bench::results::{Case, Figures, Sessions, Variant};
use crate::bench::sample::{Bench, Stubs, facts, figures};
use crate::bench::scenario::{Scenario, System};
use crate::bench::stats::Stats;
use crate::bench::system::{self, Place};
use crate::bench::tokens::KeyFiles;

/// How long a system rests before its memory is read.
const SETTLE: Duration = Duration::from_secs(2);
/// Of the sessions, the part that is there when memory is read first.
const FIRST: usize = 100;

/// What is typed in a session before the engine is killed, and the screens.
const BEFORE: [Turn; 3] = [
    (
        "",
        "CON Airtime for +254NUMBER\n1. Buy\n2. Balance\n3. Kiswahili\n0. Exit",
    ),
    ("1", "CON How much?\n#. Back"),
    (
        "1*AMOUNT",
        "CON Buy airtime for AMOUNT?\n1. Yes\n2. No\n#. Back",
    ),
];
/// And afterwards.
const AFTER: [Turn; 2] = [
    (
        "1*AMOUNT*1",
        "CON Pay by\n1. Airtime account\n2. Mobile money\n#. Back",
    ),
    (
        "1*AMOUNT*1*2",
        "END Thank you, +254NUMBER: AMOUNT by mobile money.",
    ),
];

impl Bench {
    /// Takes a sample of sessions that stand open.
    ///
    /// # Errors
    /// When the system does not start, or a screen is not the right one.
    pub(in crate::bench) fn sessions(
        &self,
        system: System,
        scenario: &Scenario,
        case: &Case,
        stubs: &Stubs,
    ) -> anyhow::Result<(Figures, RunFacts)> {
        let Variant::Sessions(count) = case.variant else {
            anyhow::bail!("a case without sessions");
        };
        let folder = self.folder.join(system.name());
        let place = Place {
            scenario,
            keys: &KeyFiles::in_folder(&self.folder),
            listen: process::free_address()?,
            backend: stubs.for_clients(),
            identity: &self.identity,
            folder: &folder,
        };
        let mut setup = system::set_up(system, &place, &self.programs)?;
        let log = self.folder.join(format!("{}.log", system.name()));
        let (cores, own) = ([self.cores.system], &self.cores.load);
        let facts = facts(
            scenario,
            &format!("{:?}", setup.command).replace('"', ""),
            &setup.config,
        );
        let address = setup.address;
        let mut running = Process::start(&mut setup.command, &cores, own, address, &log)?;
        let first = count / FIRST;
        press(address, 0..first, &BEFORE)?;
        let without = settled(&running);
        let beside = self.beside(stubs);
        let before = self.clock(&running.family(), &beside)?;
        press(address, first..count, &BEFORE)?;
        let after = self.clock(&running.family(), &beside)?;
        let with = settled(&running);
        running.kill();
        let begun = Instant::now();
        running = Process::start(&mut setup.command, &cores, own, address, &log)?;
        // Sessions are read at the first key.
        let (first_key, last_key) = AFTER.split_at(1);
        press(address, 0..1, first_key)?;
        let start = begun.elapsed();
        let restarted = settled(&running);
        press(address, 1..count, first_key)?;
        press(address, 0..count, last_key)?;
        let keys = (BEFORE.len() * (count - first)) as u64;
        let mut figures = figures(&before, &after, keys, &Stats::new()?);
        let (peak, resident) = process::memory(&running.family());
        figures.memory_peak = Some(peak);
        figures.memory_settled = Some(resident);
        let each = |now: u64| (now as f64 - without as f64) / (count - first).max(1) as f64;
        figures.sessions = Some(Sessions {
            count: count as f64,
            bytes_each: each(with),
            bytes_each_restarted: each(restarted),
            start_ms: start.as_secs_f64() * 1e3,
        });
        drop(running);
        fs::remove_dir_all(&folder).context("cannot remove the data of a sample")?;
        Ok((figures, facts))
    }
}

fn settled(running: &Process) -> u64 {
    thread::sleep(SETTLE);
    memory::read(&running.family()).proportional
}

/// Presses keys in each of some sessions, and compares the screens.
fn press(
    address: SocketAddr,
    sessions: std::ops::Range<usize>,
    turns: &[Turn],
) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let gateways: Vec<_> = (0..GATEWAYS)
            .map(|gateway| {
                let own = sessions.clone().skip(gateway).step_by(GATEWAYS);
                scope.spawn(move || press_some(address, own, turns))
            })
            .collect();
        gateways.into_iter().try_for_each(|gateway| {
            let joined = gateway.join();
            joined.map_err(|_| anyhow::anyhow!("a gateway's thread panicked"))?
        })
    })
}

fn press_some(
    address: SocketAddr,
    sessions: impl Iterator<Item = usize>,
    turns: &[Turn],
) -> anyhow::Result<()> {
    let mut connection = Connection::open(address, None)?;
    let fields = "Content-Type: application/x-www-form-urlencoded\r\n";
    for session in sessions {
        let number = (100_000_000 + session).to_string();
        let amount = (session % 500 + 1).to_string();
        let of = |text: &str| text.replace("NUMBER", &number).replace("AMOUNT", &amount);
        for (text, screen) in turns {
            let text = of(text).replace('*', "%2A");
            let sent = format!(
                "sessionId=ATUid_{number}&phoneNumber=%2B254{number}&networkCode=63902\
                 &serviceCode=%2A123%23&text={text}"
            );
            let body = connection.post("/ussd", fields, &sent)?.body_of(200)?;
            let (wanted, body) = (of(screen), String::from_utf8_lossy(&body));
            anyhow::ensure!(
                *wanted == *body,
                "session {session}: expected {wanted}, got {body}"
            );
        }
    }
    Ok(())
}
