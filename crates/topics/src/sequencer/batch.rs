//! One batch: events get their numbers, the store gets its records, and when it has answered
//! everything is shown and answered, or everything is as before.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use message::Fault;
use tokio::sync::oneshot;

use super::{Flight, Place, Submission};
use crate::document::{Change, Document, diff};
use crate::event::{Content, Event};
use crate::keys::{Digest, Key, Keys, Known};
use crate::log::{Counts, Log, Staged};
use crate::prepare::{Body, Item, numbered};
use crate::settings::Settings;
use crate::store::memory::now_ms;
use crate::store::{Record, RecordKind, StoreError};
use crate::topic::Receipt;

/// What is stored at once.
#[derive(Default)]
pub(super) struct Batch {
    topics: Vec<Of>,
    records: Vec<(Arc<str>, Record)>,
    size: usize,
    submissions: Vec<Answer>,
}

/// What the batch has of one topic.
struct Of {
    log: Arc<Log>,
    before: Before,
    events: Vec<Arc<Event>>,
    /// How many publications were repeated, and how many changed nothing.
    repeated: u64,
    unchanged: u64,
}

/// How a topic was before the batch.
struct Before {
    next: u64,
    document: Option<Arc<Document>>,
    patches: (u64, u64),
    at_ms: u64,
    keys: Vec<Bytes>,
}

/// Who waits for the batch.
struct Answer {
    topic: Arc<Log>,
    receipts: Vec<Receipt>,
    to: oneshot::Sender<Result<Vec<Receipt>, Fault>>,
    _place: Place,
}

impl Answer {
    fn give(self, result: Result<(), Fault>) {
        // Whoever asked may have gone away.
        let _ = self.to.send(result.map(|()| self.receipts));
    }
}

impl Batch {
    /// How many bytes it has.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many wait for it.
    pub fn count(&self) -> usize {
        self.submissions.len()
    }

    /// How many events it has.
    pub fn events(&self) -> u64 {
        let events = self.topics.iter().map(|of| of.events.len() as u64);
        events.sum()
    }

    /// The first topic that it has something of.
    pub fn first_topic(&self) -> &str {
        self.topics.first().map_or("", |of| &of.log.name)
    }

    /// Gives publications their places. Those that have nothing to wait for are answered.
    pub fn stage(&mut self, submission: Submission) {
        let Submission {
            log,
            items,
            answer,
            place,
            ..
        } = submission;
        if let Err(fault) = check_keys(&items, &log.staged().keys) {
            Counts::add(&log.slot.counts.conflicts, 1);
            let fault = fault.with_cause(format_args!("topic {}", log.name));
            // Whoever has asked may have gone.
            let _ = answer.send(Err(fault));
            return;
        }
        if let Some(fault) = refused(&log, &items) {
            // Whoever has asked may have gone.
            let _ = answer.send(Err(fault));
            return;
        }
        let at = self.topic(&log);
        let Some(of) = self.topics.get_mut(at) else {
            return;
        };
        let mut staged = log.staged();
        let settings = log.settings();
        let mut work = Staging {
            of,
            staged: &mut staged,
            settings,
            records: &mut self.records,
            size: &mut self.size,
            now: now_ms(),
        };
        let receipts: Vec<Receipt> = items.into_iter().map(|item| work.item(item)).collect();
        drop(staged);
        let of_batch = |it: &Receipt| it.id.sequence >= of.before.next;
        let waits = receipts.iter().any(of_batch);
        let answer = Answer {
            topic: log,
            receipts,
            to: answer,
            _place: place,
        };
        match waits {
            true => self.submissions.push(answer),
            false => answer.give(Ok(())),
        }
    }

    fn topic(&mut self, log: &Arc<Log>) -> usize {
        let known = |of: &Of| Arc::ptr_eq(&of.log, log);
        if let Some(at) = self.topics.iter().position(known) {
            return at;
        }
        let staged = log.staged();
        self.topics.push(Of {
            before: Before {
                next: staged.next,
                document: staged.document.clone(),
                patches: staged.patches,
                at_ms: staged.at_ms,
                keys: Vec::new(),
            },
            log: Arc::clone(log),
            events: Vec::new(),
            repeated: 0,
            unchanged: 0,
        });
        self.topics.len() - 1
    }

    /// Has the store keep it; `None` when there is nothing to keep.
    pub fn append(mut self) -> Option<Flight> {
        let store = self.topics.first().map(|of| Arc::clone(&of.log.store));
        let records = std::mem::take(&mut self.records);
        match store.filter(|_| !records.is_empty()) {
            Some(store) => {
                let answer = store.append(records);
                Some((Some(self), answer))
            }
            None => {
                self.finish(Ok(()));
                None
            }
        }
    }

    /// Shows what is durable and answers; or takes everything back.
    pub fn finish(self, result: Result<(), StoreError>) {
        match &result {
            Ok(()) => self.topics.into_iter().for_each(Of::show),
            Err(_) => self.topics.into_iter().for_each(Of::take_back),
        }
        for answer in self.submissions {
            let topic = Arc::clone(&answer.topic.name);
            answer.give(result.clone().map_err(|error| error.fault(&topic)));
        }
    }
}

/// Publications that belong together are refused together when the key of one has come before with
/// another event (draft-ietf-httpapi-idempotency-key-header, section 2.7).
fn check_keys(items: &[Item], known: &Keys) -> Result<(), Fault> {
    let is_alone = items.len() == 1;
    let mut own: HashMap<&[u8], Option<Digest>> = HashMap::new();
    for (number, item) in items.iter().enumerate() {
        let Some(key) = &item.key else {
            continue;
        };
        let is_other = known.get(key) == Some(Known::Other);
        let twice = (!is_alone).then(|| own.insert(&key.name, key.digest));
        if is_other || twice.flatten().is_some_and(|before| before != key.digest) {
            let detail = "the idempotency key has come before with another event";
            let fault = Fault::invalid(detail).with_status(422);
            return Err(match is_alone {
                true => fault,
                false => numbered(fault, number + 1),
            });
        }
    }
    Ok(())
}

/// Why these are refused: something of them is new, and nothing new may come now.
fn refused(log: &Arc<Log>, items: &[Item]) -> Option<Fault> {
    let fault = log.is_full()?;
    let staged = log.staged();
    let is_known = |key: &Key| staged.keys.get(key).is_some();
    let is_new = |item: &Item| !item.key.as_ref().is_some_and(is_known);
    if !items.iter().any(is_new) {
        return None;
    }
    Counts::add(&log.slot.counts.refused, items.len() as u64);
    Some(fault)
}

impl Of {
    fn show(self) {
        let counts = &self.log.slot.counts;
        let patches = self.events.iter().filter(|event| {
            let content = &event.content;
            matches!(content, Content::Snapshot { patch: Some(_), .. })
        });
        Counts::add(&counts.patches, patches.count() as u64);
        let bytes = self.events.iter().map(|event| match &event.content {
            Content::Event(body) => body.len() as u64,
            Content::Snapshot { whole, .. } => whole.len() as u64,
        });
        Counts::add(&counts.bytes, bytes.sum());
        Counts::add(&counts.published, self.events.len() as u64);
        Counts::add(&counts.repeated, self.repeated);
        Counts::add(&counts.unchanged, self.unchanged);
        Counts::add(&counts.batches, u64::from(!self.events.is_empty()));
        self.log.show(self.events);
    }

    fn take_back(self) {
        Counts::add(&self.log.slot.counts.refused, self.events.len() as u64);
        let mut staged = self.log.staged();
        staged.next = self.before.next;
        staged.document = self.before.document;
        staged.patches = self.before.patches;
        staged.at_ms = self.before.at_ms;
        for key in self.before.keys.iter().rev() {
            staged.keys.take_back(key);
        }
    }
}

/// Places that are given.
struct Staging<'a> {
    of: &'a mut Of,
    staged: &'a mut Staged,
    settings: Settings,
    records: &'a mut Vec<(Arc<str>, Record)>,
    size: &'a mut usize,
    now: u64,
}

impl Staging<'_> {
    fn item(&mut self, item: Item) -> Receipt {
        let known = item.key.as_ref().and_then(|key| self.staged.keys.get(key));
        if let Some(Known::Same(sequence)) = known {
            self.of.repeated += 1;
            return self.receipt(sequence, false);
        }
        let (is_new, sequence) = match item.body {
            Body::Event(text) => {
                let content = Content::Event(text.clone());
                (true, self.add(RecordKind::Event, text, &item.key, content))
            }
            Body::Snapshot(document, compared) => {
                let before = self.staged.document.as_ref();
                let compared = compared
                    .filter(|it| before.is_some_and(|before| Arc::ptr_eq(before, &it.with)));
                // Another one has come in between when it was compared with something else.
                let change = match (compared, before) {
                    (Some(compared), _) => compared.change,
                    (None, Some(before)) => diff(before, &document),
                    (None, None) => Change::Whole,
                };
                match change {
                    Change::Nothing => (false, self.staged.next - 1),
                    Change::Whole => (true, self.snapshot(document, None, &item.key)),
                    Change::Patch(patch) => (true, self.snapshot(document, Some(patch), &item.key)),
                }
            }
        };
        self.of.unchanged += u64::from(!is_new);
        if let Some(key) = item.key {
            self.of.before.keys.push(key.name.clone());
            self.staged.keys.add(key, sequence, self.now);
        }
        self.receipt(sequence, is_new)
    }

    fn receipt(&self, sequence: u64, is_new: bool) -> Receipt {
        Receipt {
            id: self.of.log.id(sequence),
            is_new,
            durability: self.of.log.durability,
        }
    }

    fn snapshot(
        &mut self,
        document: Arc<Document>,
        patch: Option<Bytes>,
        key: &Option<Key>,
    ) -> u64 {
        let whole = document.text().clone();
        self.staged.document = Some(document);
        let (count, bytes) = self.staged.patches;
        let length = patch.as_ref().map_or(0, Bytes::len) as u64;
        // What has to be kept for the last patch is bounded, whatever else is not kept any more.
        let stored = patch.clone().filter(|_| {
            count < self.settings.snapshot_every && bytes + length <= self.settings.patches_max()
        });
        let content = Content::Snapshot {
            whole: whole.clone(),
            patch,
        };
        match stored {
            Some(patch) => {
                self.staged.patches = (count + 1, bytes + length);
                self.add(RecordKind::Patch, patch, key, content)
            }
            None => {
                self.staged.patches = (0, 0);
                self.add(RecordKind::Whole, whole, key, content)
            }
        }
    }

    fn add(&mut self, kind: RecordKind, body: Bytes, key: &Option<Key>, content: Content) -> u64 {
        let sequence = self.staged.next;
        self.staged.next += 1;
        // The time of day may go back, that of a topic's events does not.
        self.staged.at_ms = self.staged.at_ms.max(self.now);
        let at_ms = self.staged.at_ms;
        *self.size += body.len() + 64;
        let record = Record {
            sequence,
            at_ms,
            kind,
            key: key.as_ref().map(Key::stored).unwrap_or_default(),
            body,
        };
        self.records
            .push((Arc::clone(&self.of.log.stored_as), record));
        self.of.events.push(Arc::new(Event {
            id: self.of.log.id(sequence),
            at_ms,
            content,
        }));
        sequence
    }
}
