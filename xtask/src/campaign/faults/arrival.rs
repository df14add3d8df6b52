//! What has been acknowledged is looked for where it has to arrive: at the receiver, in the tables,
//! and at a subscriber that comes and goes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Campaign, DRAIN_MAX, wait};
use crate::campaign::books::Way;
use crate::campaign::client::{self, SseEvent};
use crate::campaign::receiver::Mode;
use crate::command::Failure;

/// A stream in which nothing comes for so long has nothing more.
pub(super) const QUIET: Duration = Duration::from_millis(2500);
pub(super) const STREAM: &str = "/topics/prices/sse";
/// How long to wait before a table is looked at again.
const LOOK: Duration = Duration::from_millis(200);

impl Campaign {
    /// Waits until all that was acknowledged has arrived.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        self.receiver.set(Mode::Up);
        let books = Arc::clone(&self.books);
        for way in [Way::Store, Way::Topic, Way::Relay] {
            wait(DRAIN_MAX, || books.of(way).missing().is_empty());
            self.give_up(way);
        }
        for way in [Way::Queue, Way::Announce, Way::Book] {
            let start = Instant::now();
            while !self.look(way)? && start.elapsed() < DRAIN_MAX {
                thread::sleep(LOOK);
            }
            self.give_up(way);
        }
        self.check_rows()?;
        self.catch_up(false)
    }

    /// Counts as lost, once, what has not arrived.
    fn give_up(&self, way: Way) {
        let missing = self.books.of(way).missing();
        if missing.is_empty() {
            return;
        }
        let few: Vec<_> = missing.iter().take(5).collect();
        let log = self.engine.log();
        let tail: Vec<&str> = log.lines().rev().take(5).collect();
        let count = missing.len();
        self.books.lost(format!(
            "{count} by {way:?}, such as {few:?}; the log ends: {tail:?}"
        ));
        let mut ledger = self.books.of(way);
        let arrived = ledger.arrived.clone();
        ledger.acknowledged.retain(|it| arrived.contains(it));
    }

    /// Reads from its table what is missing of a way; true when nothing is.
    fn look(&mut self, way: Way) -> Result<bool, Failure> {
        let Some(first) = self.books.of(way).missing().first().copied() else {
            return Ok(true);
        };
        let rows = match way {
            Way::Queue => self
                .servers
                .postgres
                .sql(&format!("select n from worked where n >= {first}")),
            Way::Announce => self
                .servers
                .mariadb
                .sql(&format!("select n from announced where n >= {first}")),
            _ => self.servers.postgres.sql(&format!(
                "select n from entries where n >= {first} and side = 2"
            )),
        };
        let rows: BTreeSet<u64> = rows?.lines().filter_map(|it| it.parse().ok()).collect();
        let mut ledger = self.books.of(way);
        ledger.arrived.extend(rows);
        Ok(ledger.missing().is_empty())
    }

    /// Looks for rows that are not as they were sent: other texts, numbers that nobody sent, and
    /// halves of transactions.
    fn check_rows(&mut self) -> Result<(), Failure> {
        let next = self.books.next();
        let is_other = |text: &str| format!("p <> {text} or n >= {next}");
        let postgres = is_other("'p' || n");
        let mariadb = is_other("concat('p', n)");
        let looks = [
            (true, format!("select n, p from worked where {postgres}")),
            (true, format!("select n, p from entries where {postgres}")),
            (
                true,
                "select n, count(*) from entries group by n having count(*) <> 2".to_owned(),
            ),
            (false, format!("select n, p from announced where {mariadb}")),
        ];
        for (is_postgres, look) in looks {
            let server = match is_postgres {
                true => &mut self.servers.postgres,
                false => &mut self.servers.mariadb,
            };
            let rows = server.sql(&format!("{look} limit 5"))?;
            if !rows.trim().is_empty() {
                self.books.wrong(format!("{look}: {rows}"));
            }
        }
        Ok(())
    }

    /// Has the subscriber come back, who must get every event once and in order, or a `reset`.
    pub(super) fn catch_up(&mut self, may_reset: bool) -> Result<(), Failure> {
        let port = self.engine.port;
        let mut left = self.books.of(Way::Topic).acknowledged.clone();
        left.retain(|it| !self.seen.contains(it));
        if left.is_empty() && !may_reset {
            return Ok(());
        }
        let last = self.last.clone();
        let books = Arc::clone(&self.books);
        let (mut seen, mut newest) = (std::mem::take(&mut self.seen), last.clone());
        let (mut resets, mut twice) = (0, 0);
        let is_new = last.is_none();
        client::subscribe(port, STREAM, last.as_deref(), QUIET, |event: SseEvent| {
            if event.kind == "reset" {
                resets += 1;
                seen.clear();
                return false;
            }
            if !event.id.is_empty() {
                newest = Some(event.id.clone());
            }
            if let Some(number) = books.number(&event.data) {
                books.identify(Way::Topic, &event.id, number);
                twice += u64::from(!seen.insert(number));
                left.remove(&number);
            }
            left.is_empty()
        })
        .map_err(|error| Failure::new(format!("the topic cannot be read: {error}")))?;
        self.resets += resets;
        (self.seen, self.last) = (seen, newest);
        if !left.is_empty() {
            let count = left.len();
            books.silent(format!(
                "{count} events do not come to a subscriber at {last:?}"
            ));
            self.seen.extend(left);
        }
        if twice > 0 && !is_new {
            books.wrong(format!(
                "{twice} events came twice to a subscriber at {last:?}"
            ));
        }
        if resets > 0 && !may_reset {
            books.wrong(format!(
                "a reset without a reason for a subscriber at {last:?}"
            ));
        }
        Ok(())
    }
}
