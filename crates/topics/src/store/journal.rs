//! Events on the disk: streams of the journal.

use std::sync::Arc;

use bytes::Bytes;
use journal::{Entry, Epochs, NewEntry, ReadError, Refusal, StreamInfo, Streams};

use super::{Answer, Found, Kept, Record, RecordKind, Store, StoreError};

/// The streams of a data folder.
pub(crate) struct JournalStore(Streams);

impl JournalStore {
    pub fn new(streams: Streams) -> Self {
        Self(streams)
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        let why = refusal.to_string();
        match refusal {
            Refusal::Full | Refusal::Busy | Refusal::NoSpace(_) => Self::Full(why),
            Refusal::Unreadable(_) => Self::Damaged(why),
            _ => Self::Broken(why),
        }
    }
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        let why = error.to_string();
        match error {
            ReadError::Gone { first } => Self::Gone(first),
            ReadError::Damaged(_) => Self::Damaged(why),
            ReadError::Ahead { .. } | ReadError::Unknown | ReadError::Disk(_) => Self::Broken(why),
        }
    }
}

fn found(info: StreamInfo) -> Found {
    Found {
        epoch: info.epoch,
        first: info.first,
        next: info.next,
        bytes: info.bytes,
    }
}

fn record(entry: Entry) -> Result<Record, StoreError> {
    let unknown = || {
        let why = format!("event {} is of a kind that nobody knows", entry.sequence);
        StoreError::Damaged(why)
    };
    Ok(Record {
        kind: RecordKind::of(entry.kind).ok_or_else(unknown)?,
        sequence: entry.sequence,
        at_ms: entry.at_ms,
        key: entry.key,
        body: entry.body,
    })
}

impl Store for JournalStore {
    fn declare(&self, topic: &str, keep: Kept) -> Answer<Found> {
        let (streams, topic) = (self.0.clone(), topic.to_owned());
        let keep = journal::Keep {
            events: keep.events,
            bytes: keep.bytes,
            time: keep.time,
            from: keep.from,
        };
        Box::pin(async move { Ok(found(streams.declare(&topic, keep).await?)) })
    }

    fn find(&self, topic: &str) -> Option<Found> {
        self.0.find(topic).map(found)
    }

    fn epochs(&self, topic: &str) -> Epochs {
        self.0.epochs(topic).unwrap_or_default()
    }

    fn append(&self, records: Vec<(Arc<str>, Record)>) -> Answer<()> {
        let entries = records.into_iter().map(|(stream, record)| NewEntry {
            stream,
            sequence: record.sequence,
            at_ms: record.at_ms,
            kind: record.kind.number(),
            key: record.key,
            body: record.body,
        });
        let (streams, entries) = (self.0.clone(), entries.collect());
        Box::pin(async move { Ok(streams.append(entries).await?) })
    }

    fn read(&self, topic: &str, from: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError> {
        match self.0.read(topic, from, bytes_max) {
            Ok(entries) => entries.into_iter().map(record).collect(),
            Err(ReadError::Ahead { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    fn last_of_kind(
        &self,
        topic: &str,
        kind: RecordKind,
        at_most: u64,
    ) -> Result<Option<u64>, StoreError> {
        Ok(self.0.last_of_kind(topic, kind.number(), at_most)?)
    }

    fn keys(&self, topic: &str, since_ms: u64) -> Result<Vec<(Bytes, u64)>, StoreError> {
        let keys = self.0.keys(topic, since_ms)?;
        // They are kept for long, and not what they were read with.
        let own = |(key, sequence): (Bytes, u64)| (Bytes::copy_from_slice(&key), sequence);
        Ok(keys.into_iter().map(own).collect())
    }

    fn remove(&self, topic: &str) -> Answer<()> {
        let (streams, topic) = (self.0.clone(), topic.to_owned());
        Box::pin(async move { Ok(streams.remove(&topic).await?) })
    }

    fn close(&self) -> Answer<()> {
        let streams = self.0.clone();
        Box::pin(async move {
            streams.close().await;
            Ok(())
        })
    }
}
