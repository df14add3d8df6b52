//! A log as the store has it at the start.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use journal::Epochs;
use tokio::sync::watch;

use super::history::Reading;
use super::{Live, Log, LogParts, Staged};
use crate::event::{Content, Event, EventId};
use crate::keys::{AGE_MAX, Key, Keys};
use crate::settings::{Payload, Settings};
use crate::store::memory::now_ms;
use crate::store::{Found, Record, RecordKind, StoreError};

/// How many bytes are read at once.
const READ_MAX: usize = 4 << 20;

/// What the store has.
#[derive(Default)]
struct Recovered {
    staged: Staged,
    latest: Option<Arc<Event>>,
}

impl Log {
    /// Makes the log of what the store has. Blocks.
    ///
    /// # Errors
    /// When it cannot be read, or it is that of a topic with another payload.
    pub fn recover(parts: LogParts, found: Found) -> Result<Self, StoreError> {
        let epochs = parts.store.epochs(&parts.stored_as);
        let recovered = recovered(&parts, found, &epochs)?;
        let Settings {
            payload,
            durability,
            ..
        } = parts.settings;
        Ok(Self {
            name: parts.name,
            stored_as: parts.stored_as,
            payload,
            durability,
            epoch: found.epoch,
            epochs,
            slot: parts.slot,
            store: parts.store,
            sequencer: parts.sequencer,
            settings: Mutex::new(parts.settings),
            held: Default::default(),
            staged: Mutex::new(recovered.staged),
            live: Mutex::new(Live {
                latest: recovered.latest,
                next: found.next,
                recent: VecDeque::new(),
                recent_bytes: 0,
                boxes: Vec::new(),
            }),
            changes: watch::Sender::new(found.next),
            is_held_up: AtomicBool::new(false),
            waiting: Arc::default(),
        })
    }
}

fn recovered(parts: &LogParts, found: Found, epochs: &Epochs) -> Result<Recovered, StoreError> {
    let mut recovered = Recovered::default();
    recovered.staged.next = found.next;
    if found.first >= found.next {
        return Ok(recovered);
    }
    let age = u64::try_from(AGE_MAX.as_millis()).unwrap_or(u64::MAX);
    let now = now_ms();
    let mut keys = Keys::default();
    for (key, sequence) in parts
        .store
        .keys(&parts.stored_as, now.saturating_sub(age))?
    {
        keys.add(Key::read(key), sequence, now);
    }
    recovered.staged.keys = keys;
    let last = read_last(parts, found)?;
    let is_event = last.kind == RecordKind::Event;
    if is_event != (parts.settings.payload == Payload::Event) {
        let kept = if is_event { "event" } else { "snapshot" };
        let why = format!(
            "what is kept of it was published with `payload: {kept}`: give the topic another name, \
             or keep its payload"
        );
        return Err(StoreError::Broken(why));
    }
    recovered.staged.at_ms = last.at_ms;
    match is_event {
        true => recovered.latest = Some(event(epochs, &last, Content::Event(last.body.clone()))),
        false => rebuild(parts, found, epochs, &mut recovered)?,
    }
    Ok(recovered)
}

fn read_last(parts: &LogParts, found: Found) -> Result<Record, StoreError> {
    let records = parts.store.read(&parts.stored_as, found.next - 1, 1)?;
    let missing = || StoreError::Damaged(format!("event {} is missing", found.next - 1));
    records.into_iter().next().ok_or_else(missing)
}

/// The last snapshot: the last whole one, and what has changed since.
fn rebuild(
    parts: &LogParts,
    found: Found,
    epochs: &Epochs,
    recovered: &mut Recovered,
) -> Result<(), StoreError> {
    let last = found.next - 1;
    let whole = parts
        .store
        .last_of_kind(&parts.stored_as, RecordKind::Whole, last)?;
    let Some(whole) = whole else {
        let why = "the last whole snapshot is missing".to_owned();
        return Err(StoreError::Damaged(why));
    };
    let mut reading = Reading::new(whole);
    while reading.at <= last {
        let records = parts.store.read(&parts.stored_as, reading.at, READ_MAX)?;
        if records.is_empty() {
            return Err(StoreError::Damaged(format!(
                "event {} is missing",
                reading.at
            )));
        }
        for record in records.iter().take_while(|it| it.sequence <= last) {
            let content = reading.take(record)?;
            if record.kind == RecordKind::Patch {
                let (count, bytes) = recovered.staged.patches;
                recovered.staged.patches = (count + 1, bytes + record.body.len() as u64);
            }
            recovered.latest = Some(event(epochs, record, content));
        }
    }
    recovered.staged.document = reading.document.map(Arc::new);
    Ok(())
}

fn event(epochs: &Epochs, record: &Record, content: Content) -> Arc<Event> {
    let sequence = record.sequence;
    let epoch = epochs.of(sequence);
    Arc::new(Event {
        id: EventId { epoch, sequence },
        at_ms: record.at_ms,
        content,
    })
}
