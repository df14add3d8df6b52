//! An event of a topic and its id.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

/// Which event of a topic: what `Last-Event-ID` says. Written `EPOCH-SEQUENCE`, the epoch in hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    /// Made at random when the topic's log is made: ids of another log are of another epoch.
    pub epoch: u64,
    /// From 1, one more for each event.
    pub sequence: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x}-{}", self.epoch, self.sequence)
    }
}

/// The text is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl FromStr for EventId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let (epoch, sequence) = text.split_once('-').ok_or(NotAnId)?;
        let is_number = |text: &str| {
            let starts = !text.starts_with('+') && !text.is_empty();
            starts && (text == "0" || !text.starts_with('0'))
        };
        if !is_number(epoch) || !is_number(sequence) {
            return Err(NotAnId);
        }
        Ok(Self {
            epoch: u64::from_str_radix(epoch, 16).map_err(|_| NotAnId)?,
            sequence: sequence.parse().map_err(|_| NotAnId)?,
        })
    }
}

/// An event of a topic. It is durable, as far as the topic promises that.
#[derive(Clone, Debug)]
pub struct Event {
    /// Which one.
    pub id: EventId,
    /// When it was published, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// What happened.
    pub content: Content,
}

/// What an event says, as JSON without line breaks or spaces between tokens.
#[derive(Clone, Debug)]
pub enum Content {
    /// What was published, of a topic of events.
    Event(Bytes),
    /// How things are now, of a topic of snapshots.
    Snapshot {
        /// All of it.
        whole: Bytes,
        /// What has changed since the event before: a list of operations of JSON Patch (RFC 6902),
        /// when there is one and it is shorter.
        patch: Option<Bytes>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written_and_in_no_other_way() {
        let id = EventId {
            epoch: 0x3f9a_0c11_d2b4,
            sequence: 17,
        };
        assert_eq!(id.to_string(), "3f9a0c11d2b4-17");
        assert_eq!("3f9a0c11d2b4-17".parse(), Ok(id));
        for text in [
            "", "-", "1-", "-1", "1", "g-1", "1-01", "+1-1", "1-+1", "1-1-1", "1-a",
        ] {
            assert_eq!(text.parse::<EventId>(), Err(NotAnId), "{text}");
        }
    }
}
