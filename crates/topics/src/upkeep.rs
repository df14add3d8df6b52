//! What an operator does with the topics of a data folder while no engine has it.

use bytes::Bytes;
use journal::{Change, Keyed, Refusal, StreamInfo, Streams};

use crate::event::EventId;
use crate::poll;
use crate::topic;
use crate::webhooks;
use crate::websub_hub;

/// How many cursors are read at once.
const SCAN_MAX: usize = 1000;

/// What is on the disk of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// How many records are kept: of a topic of snapshots some more than its `keep` says.
    pub events: u64,
    /// How many bytes they take.
    pub bytes: u64,
    /// The last event, if there has been one.
    pub last: Option<EventId>,
    /// When it was published, in milliseconds since 1970 (UTC), or why that cannot be read.
    pub at_ms: Result<u64, String>,
}

/// All topics that have something on the disk, by their names. Blocks.
pub fn list(streams: &Streams) -> Vec<Listed> {
    let mut all = streams.all();
    all.sort_by(|left, right| left.0.cmp(&right.0));
    let listed = all.into_iter().map(|(name, info)| Listed {
        at_ms: last_time(streams, &name, info),
        name: name.to_string(),
        events: info.events,
        bytes: info.bytes,
        last: last_id(streams, &name, info),
    });
    listed.collect()
}

fn last_id(streams: &Streams, name: &str, info: StreamInfo) -> Option<EventId> {
    let sequence = info.next.checked_sub(1).filter(|it| *it > 0)?;
    let epoch = streams.epochs(name)?.of(sequence);
    Some(EventId { epoch, sequence })
}

fn last_time(streams: &Streams, name: &str, info: StreamInfo) -> Result<u64, String> {
    if info.events == 0 {
        return Err("-".to_owned());
    }
    let read = streams.read(name, info.next.saturating_sub(1), 1);
    let entries = read.map_err(|error| error.to_string())?;
    let last = entries.last().map(|entry| entry.at_ms);
    last.ok_or_else(|| "the last event is missing".to_owned())
}

/// Removes a topic for good: its events, how far flows and webhooks have come in it, the webhooks
/// that users have made, what polling for it has learnt, and the subscriptions to its hub. One that
/// is made later under its name is another one, which its ids tell. Gives the number of cursors of
/// flows that were there.
///
/// # Errors
/// When it is not removed, or only its events are.
pub async fn remove(streams: &Streams, keyed: &Keyed, name: &str) -> Result<usize, Refusal> {
    // First: without their events the rest says nothing, with them it says what not to take again.
    streams.remove(name).await?;
    let cursors = remove_all(keyed, (topic::CURSORS, topic::cursor_key(name, ""))).await?;
    for table in [
        // Before the cursors: a subscription without one is damage.
        webhooks::SUBSCRIPTIONS,
        webhooks::TABLE,
        websub_hub::SUBSCRIPTIONS,
        websub_hub::CURSORS,
    ] {
        remove_all(keyed, (table, webhooks::key(name, ""))).await?;
    }
    let key = Bytes::copy_from_slice(name.as_bytes());
    keyed.delete(poll::MEMORY, key).await?;
    Ok(cursors)
}

/// Removes the keys of a table that begin like this; how many there were.
async fn remove_all(keyed: &Keyed, (table, prefix): (&str, Bytes)) -> Result<usize, Refusal> {
    let mut count = 0;
    loop {
        let found = keyed.scan(table, &prefix, None, SCAN_MAX).await?;
        if found.is_empty() {
            return Ok(count);
        }
        count += found.len();
        let gone = found.into_iter().map(|(key, _)| Change::Delete {
            table: table.into(),
            key,
        });
        keyed.write(gone.collect()).await?;
    }
}
