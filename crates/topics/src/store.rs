//! Where the events of topics are kept: the trait, and what all stores have in common.

pub(crate) mod journal;
pub(crate) mod memory;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::journal::Epochs;
use bytes::Bytes;
use message::{Fault, Kind, Origin, Retry};

use crate::settings::Keep;

/// When it makes sense to come again after a full disk.
const COME_AGAIN: Duration = Duration::from_secs(5);

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// An event of a topic of events.
    Event,
    /// A whole snapshot.
    Whole,
    /// What has changed since the record before.
    Patch,
}

impl RecordKind {
    /// As stores keep it.
    pub fn number(self) -> u8 {
        match self {
            Self::Event => 0,
            Self::Whole => 1,
            Self::Patch => 2,
        }
    }

    /// The kind of a number.
    pub fn of(number: u8) -> Option<Self> {
        [Self::Event, Self::Whole, Self::Patch]
            .into_iter()
            .find(|it| it.number() == number)
    }
}

/// An event of a topic as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its number, from 1, one more for each.
    pub sequence: u64,
    /// When it was published, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    pub kind: RecordKind,
    /// The idempotency key; empty for none.
    pub key: Bytes,
    pub body: Bytes,
}

/// What a store has of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// That of the next record.
    pub epoch: u64,
    /// The oldest record; that of `next` when there is none.
    pub first: u64,
    /// The number of the next record.
    pub next: u64,
    /// How many bytes the records have.
    pub bytes: u64,
}

/// Why a store does not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreError {
    /// Not now: the disk is full, or too much waits.
    Full(String),
    /// Not before the next start.
    Broken(String),
    /// What is there is not what was stored.
    Damaged(String),
    /// The record is not kept any more: the oldest that is.
    Gone(u64),
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(why) | Self::Broken(why) | Self::Damaged(why) => formatter.write_str(why),
            Self::Gone(first) => write!(formatter, "records before {first} are gone"),
        }
    }
}

impl StoreError {
    /// What whoever asked is told.
    pub fn fault(&self, topic: &str) -> Fault {
        let fault = match self {
            Self::Full(_) => {
                let detail = "the topic takes nothing now";
                Fault::new(Kind::Unavailable, Origin::Engine, detail)
                    .with_retry(Retry::Yes)
                    .with_retry_after(COME_AGAIN)
            }
            Self::Broken(_) => {
                let detail = "the topic takes nothing now";
                // Only a restart helps.
                Fault::new(Kind::Unavailable, Origin::Engine, detail)
            }
            Self::Damaged(_) | Self::Gone(_) => {
                let detail = "an event that was kept cannot be read";
                Fault::new(Kind::Internal, Origin::Engine, detail)
            }
        };
        fault.with_cause(format_args!("topic {topic}: {self}"))
    }
}

/// What a store keeps of a topic. The last record always stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// At most that many records.
    pub events: u64,
    /// At most about that many bytes.
    pub bytes: u64,
    /// At most that long.
    pub time: Option<Duration>,
    /// Records from this one on, whatever the rest says; [`u64::MAX`] for none.
    pub from: u64,
}

impl From<Keep> for Kept {
    fn from(keep: Keep) -> Self {
        Self {
            events: keep.events,
            bytes: keep.bytes,
            time: keep.time,
            from: u64::MAX,
        }
    }
}

/// What comes later from a store.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Where the events of topics are kept, by the names of the topics. Only one asks it to append, and
/// only when what was to be appended before has been answered.
pub(crate) trait Store: Send + Sync {
    /// Makes a log for a topic when there is none, and says what is kept of it from now on.
    fn declare(&self, topic: &str, keep: Kept) -> Answer<Found>;

    /// What there is of a topic.
    fn find(&self, topic: &str) -> Option<Found>;

    /// The epochs of a topic, with that of the next record.
    fn epochs(&self, topic: &str) -> Epochs {
        let found = self.find(topic);
        found.map_or_else(Epochs::default, |it| Epochs::new(it.epoch))
    }

    /// Appends records to topics that have been declared: all of them or none, and in this order.
    /// They are as durable as the store makes anything when the answer comes.
    fn append(&self, records: Vec<(Arc<str>, Record)>) -> Answer<()>;

    /// The records from this number on, about that many bytes of them and at least one when there
    /// is one. May block.
    fn read(&self, topic: &str, from: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError>;

    /// The newest record of a kind up to this number. May block.
    fn last_of_kind(
        &self,
        topic: &str,
        kind: RecordKind,
        at_most: u64,
    ) -> Result<Option<u64>, StoreError>;

    /// The idempotency keys of records since a time, the oldest first, with when they came. May
    /// block.
    fn keys(&self, topic: &str, since_ms: u64) -> Result<Vec<(Bytes, u64)>, StoreError>;

    /// Forgets a topic.
    fn remove(&self, topic: &str) -> Answer<()>;

    /// Ends it in good order.
    fn close(&self) -> Answer<()>;
}
