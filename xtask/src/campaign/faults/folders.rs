//! Rounds in which the data folder is put back from a copy, or is damaged.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use super::arrival::{QUIET, STREAM};
use super::{Campaign, wait};
use crate::campaign::books::{Ledger, Way};
use crate::campaign::receiver::Mode;
use crate::campaign::{client, damage};
use crate::command::Failure;

/// How long what a damaged folder still has may take to arrive.
const HARMLESS_MAX: Duration = Duration::from_secs(8);
/// One of these stands in what is said of damage, which is not taken for the work of another
/// version.
const DAMAGE: [&str; 4] = ["missing", "damaged", "empty", "cut off"];
const OTHER_VERSION: &str = "another version";

impl Campaign {
    /// An older copy of the folder is put back: what came after it is gone, which subscribers are
    /// told, and no id is given twice.
    pub(super) fn restored(&mut self) -> Result<(), Failure> {
        let publishers = self.publish(&Way::ALONE, 0);
        self.pause(200, 800);
        publishers.stop();
        self.settle()?;
        match self.random.u8(..2) {
            0 => self.engine.stop()?,
            _ => self.engine.kill(),
        }
        let copy = self.folder.join("copy");
        damage::copy(&self.engine.data, &copy)?;
        let before = Way::ALONE.map(|way| self.books.of(way).clone());
        self.engine.must_start()?;
        let publishers = self.publish(&Way::ALONE, 0);
        self.pause(300, 1000);
        publishers.stop();
        self.settle()?;
        let newest = self.last.clone();
        self.engine.kill();
        damage::copy(&copy, &self.engine.data)?;
        self.tally.fault();
        self.forget(&before);
        self.engine.must_start()?;
        // The log grows past the place of the subscriber.
        let publishers = self.publish(&Way::ALONE, 0);
        self.pause(100, 2500);
        publishers.stop();
        let resets = self.resets;
        self.catch_up(true)?;
        let [_, topic] = &before;
        let has_more = newest.as_ref().is_some_and(|id| !topic.has_id(id));
        if has_more && self.resets == resets {
            self.books.silent(format!(
                "a subscriber at {newest:?} is not told of the older copy"
            ));
        }
        Ok(())
    }

    /// What was acknowledged after a copy is not there.
    fn forget(&mut self, before: &[Ledger; 2]) {
        for (way, before) in Way::ALONE.into_iter().zip(before) {
            self.books
                .of(way)
                .acknowledged
                .clone_from(&before.acknowledged);
        }
        self.seen.clear();
    }

    /// Each file in turn is removed, emptied, cut, or has another bit, and so are whole parts: the
    /// engine refuses to start, or says what is missing, or nothing is.
    pub(super) fn damaged(&mut self) -> Result<(), Failure> {
        self.receiver.set(Mode::Refuses);
        let publishers = self.publish(&Way::ALONE, 200);
        self.pause(300, 1000);
        publishers.stop();
        self.engine.stop()?;
        let whole = self.folder.join("whole");
        damage::copy(&self.engine.data, &whole)?;
        for file in damage::files(&whole)? {
            let inside = file.strip_prefix(&whole).unwrap_or(&file).to_owned();
            for how in damage::ATTACKS {
                damage::copy(&whole, &self.engine.data)?;
                let at = self.engine.data.join(&inside);
                let what = damage::attack(&at, how, &mut self.random)?;
                self.judge(&what)?;
            }
        }
        for part in damage::PARTS {
            damage::copy(&whole, &self.engine.data)?;
            fs::remove_dir_all(self.engine.data.join(part))?;
            self.judge(&format!("{part} removed"))?;
        }
        damage::copy(&whole, &self.engine.data)?;
        self.receiver.set(Mode::Up);
        self.last = None;
        self.seen.clear();
        self.engine.must_start()
    }

    /// Starts on a folder that is damaged.
    fn judge(&mut self, what: &str) -> Result<(), Failure> {
        self.tally.fault();
        if !self.engine.start()? {
            let log = self.engine.log();
            let is_told = DAMAGE.iter().any(|it| log.contains(it)) && !log.contains(OTHER_VERSION);
            match is_told {
                true => self.tally.told(),
                false => {
                    let said = format!("{what}: refused, and damage is not what is said: {log}");
                    self.books.silent(said);
                }
            }
            return Ok(());
        }
        let arrived = Way::ALONE.map(|way| {
            let mut ledger = self.books.of(way);
            // What waits has to arrive from this folder.
            let waiting: BTreeSet<u64> = ledger.missing().into_iter().collect();
            let not_waiting = ledger.acknowledged.difference(&waiting).copied().collect();
            std::mem::replace(&mut ledger.arrived, not_waiting)
        });
        self.receiver.set(Mode::Up);
        let books = Arc::clone(&self.books);
        let missing = || Way::ALONE.map(|way| books.of(way).missing().len());
        let is_harmless = wait(HARMLESS_MAX, || missing() == [0, 0]) && self.has_all_events();
        self.receiver.set(Mode::Refuses);
        let log = self.engine.log();
        let is_told = ["WARN", "ERROR"].iter().any(|it| log.contains(it));
        match (is_harmless, is_told) {
            (true, _) => self.tally.harmless(),
            (false, true) => self.tally.told(),
            (false, false) => {
                let counts = missing();
                self.books
                    .silent(format!("{what}: messages and events missing: {counts:?}"));
            }
        }
        self.engine.kill();
        for (way, arrived) in Way::ALONE.into_iter().zip(arrived) {
            self.books.of(way).arrived = arrived;
        }
        Ok(())
    }

    /// Whether all events are there for somebody who begins with the oldest.
    fn has_all_events(&self) -> bool {
        let mut left = self.books.of(Way::Topic).acknowledged.clone();
        let read = client::subscribe(self.engine.port, STREAM, None, QUIET, |event| {
            let number = self.books.number(&event.data);
            if let Some(number) = number {
                left.remove(&number);
            }
            left.is_empty()
        });
        read.is_ok() && left.is_empty()
    }
}
