//! What of an endpoint outlives the process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::backoff::microseconds;
use super::{Flight, Health, Machine, Now, Policy, Throttled};

/// Why nothing is sent to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stopped {
    /// An operator wants it so.
    Paused,
    /// The receiver has answered 410.
    Gone,
    /// It has been down for too long.
    Down,
}

/// An endpoint that is disabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Disabled {
    /// Since when, in milliseconds since 1970; 0 when an older version has disabled it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since: u64,
    /// Whether that has been reported on the operational topic.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_reported: bool,
}

impl Disabled {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// An endpoint that takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Down {
    /// Since when, in milliseconds since 1970.
    pub since: u64,
    /// How many tries have failed.
    pub failed: u32,
}

/// What is known of the attempts to send an event, or a batch, beyond the cursor. The time of the
/// next one is in microseconds of [`Now::us`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AttemptState {
    pub last: u64,
    pub tries: u32,
    pub at: u64,
    pub is_batch: bool,
    pub is_dead_letter: bool,
    /// The version of the record that has the bounds of the batch.
    pub version: u64,
}

/// What is kept of an endpoint beside its cursor. Numbers are those of events, times milliseconds
/// since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What is done beyond the cursor: first and last of each run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<(u64, u64)>,
    /// Batches that have been begun, and events that have been refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<Begun>,
    /// Whether the receiver has the document that the next patch applies to.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_base: bool,
    /// Whether the receiver has to be told that events are missing of which nobody knows how many.
    #[serde(default, skip_serializing_if = "is_false")]
    pub misses: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<Down>,
    /// When an endpoint that is down is tried again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub until: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    #[serde(default, skip_serializing_if = "Disabled::is_default")]
    pub disabled: Disabled,
}

/// A batch that has been begun, or an event that has been refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub first: u64,
    pub last: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_batch: bool,
    #[serde(default, rename = "is_letter", skip_serializing_if = "is_false")]
    pub is_dead_letter: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Record {
    /// What is left of it in a log that is not the one that it was: an unknown number of events is
    /// missing.
    pub fn in_other_log(&self) -> Self {
        Self {
            misses: true,
            down: self.down,
            until: self.until,
            stopped: self.stopped,
            disabled: self.disabled,
            ..Self::default()
        }
    }
}

impl Now {
    /// A time of day on the clock that only goes forward. What lies further ahead than `most`
    /// microseconds does because somebody has set the clock.
    fn to_us(self, wall_ms: u64, most: u64) -> u64 {
        let ahead = wall_ms.saturating_sub(self.wall_ms).saturating_mul(1000);
        match ahead {
            0 => 0,
            ahead => self.us + ahead.min(most),
        }
    }

    /// The time of day of a time on the clock that only goes forward.
    fn to_wall(self, us: u64) -> u64 {
        match us {
            0 => 0,
            us => self.wall_ms + us.saturating_sub(self.us).div_ceil(1000),
        }
    }
}

impl Machine {
    /// The machine that has this record, behind this event.
    pub fn restore(policy: Arc<Policy>, cursor: u64, record: &Record, now: Now) -> Self {
        let longest = microseconds(policy.backoff.delay_max);
        let begun = record
            .begun
            .iter()
            .filter(|it| it.last > cursor && it.first <= it.last);
        let known = begun.map(|it| {
            let kept = AttemptState {
                last: it.last,
                tries: u32::try_from(it.tries).unwrap_or(u32::MAX),
                at: now.to_us(it.at, longest),
                is_batch: it.is_batch,
                is_dead_letter: it.is_dead_letter,
                version: 0,
            };
            (it.first.max(cursor + 1), kept)
        });
        let health = match record.down {
            Some(down) => Health::Down(down, now.to_us(record.until, longest)),
            None => Health::Up,
        };
        let mut machine = Self {
            cursor,
            end: cursor,
            last_shown: cursor,
            done: BTreeMap::new(),
            queue: VecDeque::new(),
            flights: Vec::new(),
            known: known.collect(),
            number: 0,
            health,
            stopped: record.stopped,
            disabled: record.disabled,
            disabled_version: 0,
            has_base: record.has_base,
            throttled: Throttled::default(),
            version: 0,
            noted: 0,
            is_hungry: false,
            rewinds: false,
            misses: record.misses,
            notices: Vec::new(),
            policy,
        };
        for (first, last) in &record.done {
            if first <= last {
                machine.mark_done(*first, *last);
            }
        }
        machine.end = machine.cursor;
        machine.last_shown = machine.cursor;
        machine.version = 0;
        machine
    }

    /// What has to be noted beside the cursor, and which version of it that is.
    pub fn record(&self, now: Now) -> (Record, u64) {
        let mut kept: BTreeMap<u64, AttemptState> = self.known.clone();
        let flights = self.flights.iter().map(|Flight { pending, .. }| pending);
        for pending in self.queue.iter().chain(flights) {
            if let Some(known) = pending.attempt_state() {
                kept.insert(pending.first, known);
            }
        }
        let begun = kept.into_iter().map(|(first, kept)| Begun {
            first,
            last: kept.last.max(first),
            tries: kept.tries.into(),
            at: now.to_wall(kept.at),
            is_batch: kept.is_batch,
            is_dead_letter: kept.is_dead_letter,
        });
        let (down, until) = match self.health {
            Health::Up => (None, 0),
            Health::Down(down, until) => (Some(down), now.to_wall(until)),
        };
        let record = Record {
            done: self
                .done
                .iter()
                .map(|(first, last)| (*first, *last))
                .collect(),
            begun: begun.collect(),
            has_base: self.has_base,
            misses: self.misses,
            down,
            until,
            stopped: self.stopped,
            disabled: self.disabled,
        };
        (record, self.version)
    }

    /// What it has been restored from is not on the disk: batches are sent, and a disablement is
    /// reported, only after the next note.
    pub fn owe_note(&mut self) {
        self.version += 1;
        self.disabled_version = self.version;
        for batch in self.known.values_mut().filter(|it| it.is_batch) {
            batch.version = self.version;
        }
    }

    /// Whether something has changed that has not been noted.
    pub fn is_dirty(&self) -> bool {
        self.version != self.noted
    }

    /// The record of this version is where it outlives the process.
    pub fn noted(&mut self, version: u64) {
        self.noted = self.noted.max(version);
    }
}
