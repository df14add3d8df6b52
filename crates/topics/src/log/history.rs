//! What was published before: from memory when it was just now, else from the store.

use std::sync::Arc;

use bytes::Bytes;
use message::{Fault, Kind, Origin};

use super::Log;
use crate::document::{Document, apply};
use crate::event::{Content, Event, EventId};
use crate::mailbox::weight;
use crate::settings::Payload;
use crate::store::{Record, RecordKind, StoreError};
use crate::topic::History;

/// How many bytes are read of the store at once.
const READ_MAX: usize = 1 << 20;

impl Log {
    /// See [`crate::topic::Topic::history`].
    pub async fn history(self: &Arc<Self>, from: EventId, bytes: usize) -> Result<History, Fault> {
        let before = EventId {
            sequence: from.sequence.saturating_sub(1),
            ..from
        };
        match self.locate(before) {
            Ok(_) => {}
            Err("ahead") => return Ok(History::Ahead),
            Err(_) => return Ok(History::OtherEpoch),
        }
        let from = from.sequence.max(1);
        if let Some(known) = self.recent(from, bytes) {
            return Ok(known);
        }
        let log = Arc::clone(self);
        let _turn = self.sequencer.reading().await;
        let read = tokio::task::spawn_blocking(move || log.read(from, bytes));
        let read = read
            .await
            .map_err(|_| Fault::new(Kind::Unavailable, Origin::Engine, "the engine is stopping"))?;
        match read {
            Ok(events) => Ok(History::Events(events)),
            Err(StoreError::Gone(first)) => Ok(History::Gone {
                first,
                next: self.live().next,
            }),
            Err(error) => {
                tracing::error!(target: "topics", topic = &*self.name, %error, "history");
                Err(error.fault(&self.name))
            }
        }
    }

    /// What can be told without the store.
    fn recent(&self, from: u64, bytes: usize) -> Option<History> {
        let live = self.live();
        if from > live.next {
            return Some(History::Ahead);
        }
        if from == live.next {
            return Some(History::Events(Vec::new()));
        }
        let oldest = live.recent.front()?.id.sequence;
        let at = usize::try_from(from.checked_sub(oldest)?).ok()?;
        // What is not kept any more is not there, even when it is in memory.
        let first = self.store.find(&self.stored_as)?.first;
        if from < first {
            let next = live.next;
            return (self.payload == Payload::Event).then_some(History::Gone { first, next });
        }
        let mut size = 0;
        let wanted = live.recent.iter().skip(at).take_while(|event| {
            let is_wanted = size < bytes;
            size += weight(event);
            is_wanted
        });
        Some(History::Events(wanted.cloned().collect()))
    }

    /// Reads events of the store. Blocks.
    fn read(&self, from: u64, bytes: usize) -> Result<Vec<Arc<Event>>, StoreError> {
        let next = self.live().next;
        let mut reading = match self.payload {
            Payload::Event => Reading::new(from),
            Payload::Snapshot => Reading::new(self.whole_before(from)?),
        };
        let (mut events, mut size) = (Vec::new(), 0);
        while size < bytes && reading.at < next {
            let records = self
                .store
                .read(&self.stored_as, reading.at, READ_MAX.min(bytes));
            let records = match records {
                // What is before it is given; whoever asks for what follows is told.
                Err(_) if !events.is_empty() => return Ok(events),
                records => records?,
            };
            if records.is_empty() {
                break;
            }
            for record in records {
                if record.sequence >= next || size >= bytes {
                    return Ok(events);
                }
                let content = reading.take(&record)?;
                if record.sequence >= from {
                    let event = Event {
                        id: self.id(record.sequence),
                        at_ms: record.at_ms,
                        content,
                    };
                    size += weight(&event);
                    events.push(Arc::new(event));
                }
            }
        }
        Ok(events)
    }

    /// The whole snapshot that those from this number on go back to.
    fn whole_before(&self, from: u64) -> Result<u64, StoreError> {
        let whole = self
            .store
            .last_of_kind(&self.stored_as, RecordKind::Whole, from)?;
        if let Some(whole) = whole {
            return Ok(whole);
        }
        let found = self.store.find(&self.stored_as);
        let mut at = found.map_or(from, |found| found.first);
        loop {
            let records = self.store.read(&self.stored_as, at, READ_MAX)?;
            let Some(last) = records.last() else {
                return Err(StoreError::Gone(at));
            };
            at = last.sequence + 1;
            let first = records.iter().find(|it| it.kind == RecordKind::Whole);
            if let Some(first) = first {
                return Err(StoreError::Gone(first.sequence));
            }
        }
    }
}

/// Records that become events, one after the other.
pub(super) struct Reading {
    /// The number of the next one.
    pub at: u64,
    pub document: Option<Document>,
}

impl Reading {
    pub fn new(at: u64) -> Self {
        Self { at, document: None }
    }

    /// What a record says.
    pub fn take(&mut self, record: &Record) -> Result<Content, StoreError> {
        if record.sequence != self.at {
            let why = format!("event {} is missing", self.at);
            return Err(StoreError::Damaged(why));
        }
        self.at += 1;
        let damaged =
            |why: String| StoreError::Damaged(format!("event {}: {why}", record.sequence));
        let (document, patch): (Document, Option<Bytes>) = match record.kind {
            RecordKind::Event => return Ok(Content::Event(record.body.clone())),
            RecordKind::Whole => {
                let document = Document::parse(&record.body);
                (document.map_err(|error| damaged(error.to_string()))?, None)
            }
            RecordKind::Patch => {
                let before = self.document.as_ref();
                let before = before.ok_or_else(|| damaged("a patch of nothing".to_owned()))?;
                let made = apply(before, &record.body, usize::MAX);
                let made = made.map_err(|error| damaged(error.to_string()))?;
                (made, Some(record.body.clone()))
            }
        };
        let whole = document.text().clone();
        self.document = Some(document);
        Ok(Content::Snapshot { whole, patch })
    }
}
