//! What waits to be sent to an endpoint.

use super::record::Kept;
use super::{Span, Why};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Events,
    /// That events are missing.
    Gap,
    /// That nobody knows how many are.
    Unknown,
    /// Nothing: it becomes a dead letter.
    Letter(Why),
}

/// Events that are sent in one request, or a gap, or a dead letter.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub first: u64,
    pub last: u64,
    pub count: usize,
    pub bytes: usize,
    /// Those with the same key wait for each other.
    pub key: Option<u64>,
    pub content: Content,
    /// How often it has been refused.
    pub tries: u32,
    /// When it may be sent at the earliest, in microseconds.
    pub at: u64,
    /// When it was offered.
    pub since: u64,
    /// Whether it is a batch whose bounds stay as they are.
    pub is_fixed: bool,
    /// The version of the record that has its bounds.
    pub version: u64,
}

/// When something may be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    At(u64),
    /// Not before the rest of its events has been offered.
    Incomplete,
}

impl Pending {
    pub fn one(number: u64, (content, key, bytes): (Content, Option<u64>, usize)) -> Self {
        Self {
            first: number,
            last: number,
            count: 1,
            bytes,
            key,
            content,
            tries: 0,
            at: 0,
            since: 0,
            is_fixed: false,
            version: 0,
        }
    }

    pub fn span(&self) -> Span {
        Span {
            first: self.first,
            last: self.last,
            count: self.count,
        }
    }

    pub fn is_letter(&self) -> bool {
        matches!(self.content, Content::Letter(_))
    }

    /// Whether it tells of missing events.
    pub fn is_gap(&self) -> bool {
        matches!(self.content, Content::Gap | Content::Unknown)
    }

    /// Whether it may become a part of a batch.
    pub fn can_join(&self) -> bool {
        !self.is_fixed && self.content == Content::Events
    }

    /// What has to be remembered of it, if anything.
    pub fn kept(&self) -> Option<Kept> {
        let is_letter = self.content == Content::Letter(Why::Refused);
        let is_plain = self.tries == 0 && !self.is_fixed && !is_letter;
        (!is_plain && !self.is_gap()).then_some(Kept {
            last: self.last,
            tries: self.tries,
            at: self.at,
            is_batch: self.is_fixed,
            is_letter,
            version: self.version,
        })
    }
}
