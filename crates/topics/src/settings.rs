//! What a topic is, as its document says.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::Kept;

/// What is published to a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Payload {
    /// How things are now: what is the same as before is no event, and subscribers may get what has
    /// changed as JSON Patch (RFC 6902).
    #[default]
    Snapshot,
    /// Something that has happened: each is an event of its own.
    Event,
}

/// When a publisher is told that an event is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Durability {
    /// When it is on the disk.
    #[default]
    Disk,
    /// At once: events are lost with the process.
    Memory,
}

impl Durability {
    /// The name that documents and receipts use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
        }
    }
}

impl Payload {
    /// The name that documents use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Event => "event",
        }
    }
}

/// How much of a topic is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keep {
    /// At most that many events.
    pub events: u64,
    /// At most about that many bytes.
    pub bytes: u64,
    /// At most that long.
    pub time: Option<Duration>,
    /// Whether what an endpoint of its webhooks has not got stays beyond that: at `bytes`
    /// publishers are refused then.
    pub for_webhooks: bool,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            events: 10_000,
            bytes: 64 << 20,
            time: None,
            for_webhooks: false,
        }
    }
}

/// What a topic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// What is published.
    pub payload: Payload,
    /// When publishers are answered.
    pub durability: Durability,
    /// How much is kept.
    pub keep: Keep,
    /// The most bytes of an event.
    pub body_max: usize,
    /// How many patches are stored between whole documents at most.
    pub snapshot_every: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            payload: Payload::default(),
            durability: Durability::default(),
            keep: Keep::default(),
            body_max: 1 << 20,
            snapshot_every: 100,
        }
    }
}

impl Settings {
    /// How many bytes of patches are stored between whole documents at most.
    pub(crate) fn patches_max(&self) -> u64 {
        self.keep.bytes / 4
    }

    /// What the store has to keep so that everything that is promised can be made again: a patch
    /// needs the whole document before it.
    pub(crate) fn kept(&self) -> Kept {
        match self.payload {
            Payload::Event => self.keep.into(),
            Payload::Snapshot => Kept {
                events: self.keep.events + self.snapshot_every + 1,
                bytes: self.keep.bytes + self.patches_max() + 2 * self.body_max as u64,
                time: None,
                from: u64::MAX,
            },
        }
    }
}
