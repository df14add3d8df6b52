//! `menu-sessions`: dialogues that stand open, what they take of memory, how long a start takes
//! with all of them when the engine was killed, and whether each goes on at its screen.

use std::net::SocketAddr;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use super::{GATEWAYS, MENU, Turn, filled};
use crate::bench::ask::{Connection, side_by_side, side_by_side_then};
use crate::bench::body::FIRST;
use crate::bench::memory;
use crate::bench::outcome::RunFacts;
use crate::bench::process::{self, Process};
use crate::bench::results::{Case, Figures, OpenSessions, Variant};
use crate::bench::sample::{Bench, Stubs, figures};
use crate::bench::scenario::{Scenario, System};
use crate::bench::stats::Stats;

/// How long a system rests before its memory is read.
const SETTLE: Duration = Duration::from_secs(2);
/// Of the sessions, the part that is there when memory is read first: one of so many.
const FIRST_PART: usize = 100;

/// How many screens of [`MENU`] a session has seen when the engine is killed.
const SEEN: usize = 3;

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
        let mut setup = self.set_up(system, scenario, stubs)?;
        let mut running = self.start(system, &mut setup)?;
        let address = setup.address;
        let (seen, next) = MENU.split_at(SEEN);
        let first = count / FIRST_PART;
        press(address, 0..first, seen)?;
        let without = settled(&running);
        let beside = self.beside(stubs);
        let before = self.clock(&running.family(), &beside)?;
        let work = |_, own| press_some(address, own, seen);
        let after = side_by_side_then(GATEWAYS, first..count, work, || {
            self.clock(&running.family(), &beside)
        })??;
        let with = settled(&running);
        running.kill();
        let begun = Instant::now();
        running = self.start(system, &mut setup)?;
        // Sessions are read at the first key.
        let (first_key, last_key) = next.split_at(1);
        press(address, 0..1, first_key)?;
        let start = begun.elapsed();
        let restarted = settled(&running);
        press(address, 1..count, first_key)?;
        press(address, 0..count, last_key)?;
        let keys = (SEEN * (count - first)) as u64;
        let mut figures = figures(&before, &after, keys, &Stats::new()?);
        let (peak, resident) = process::memory(&running.family());
        figures.memory_peak = Some(peak);
        figures.memory_settled = Some(resident);
        let each = |now: u64| (now as f64 - without as f64) / (count - first).max(1) as f64;
        figures.sessions = Some(OpenSessions {
            count: count as f64,
            bytes_each: each(with),
            bytes_each_restarted: each(restarted),
            start_ms: start.as_secs_f64() * 1e3,
        });
        Ok((figures, setup.facts(scenario)))
    }
}

fn settled(running: &Process) -> u64 {
    thread::sleep(SETTLE);
    memory::read(&running.family()).proportional
}

/// Presses keys in each of some sessions, and compares the screens.
fn press(address: SocketAddr, sessions: Range<usize>, turns: &[Turn]) -> anyhow::Result<()> {
    side_by_side(GATEWAYS, sessions, |_, own| press_some(address, own, turns))
}

fn press_some(
    address: SocketAddr,
    sessions: impl Iterator<Item = usize>,
    turns: &[Turn],
) -> anyhow::Result<()> {
    let mut connection = Connection::open(address, None)?;
    let fields = "Content-Type: application/x-www-form-urlencoded\r\n";
    for session in sessions {
        let number = FIRST + session as u64;
        for turn in turns {
            let (sent, wanted) = filled(*turn, number, session % 500 + 1);
            let body = connection.post("/ussd", fields, &sent)?.body_of(200)?;
            let body = String::from_utf8_lossy(&body);
            anyhow::ensure!(
                *wanted == *body,
                "session {session}: expected {wanted}, got {body}"
            );
        }
    }
    Ok(())
}
