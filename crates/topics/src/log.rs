//! The log of a topic: what is ordered but not yet durable, what everybody sees, and who gets it.

mod expire;
mod held;
mod history;
mod recover;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use component::state::{Measure, State};
use journal::Epochs;
use message::{Fault, Kind, Origin, Retry};
use tokio::sync::{oneshot, watch};

use crate::document::Document;
use crate::event::{Event, EventId};
use crate::keys::Keys;
use crate::mailbox::{self, Fill, weight};
use crate::prepare::Item;
use crate::sequencer::{Sequencer, Submission};
use crate::settings::{Durability, Payload, Settings};
use crate::store::Store;
use crate::topic::{Attached, Receipt};

/// The most bytes of events that are in memory for those who come back after a short time.
const RECENT_MAX: usize = 4 << 20;

/// What all topics of one name share, whatever their settings.
#[derive(Debug)]
pub(crate) struct Slot {
    /// How many subscribers there are.
    pub listeners: watch::Sender<usize>,
    pub counts: Counts,
    /// The log, once a plan with the topic is served. The topics keep it.
    log: Mutex<Weak<Log>>,
    cursors: Mutex<Cursors>,
}

/// What flows that take events have noted.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    /// Those of a topic in memory: the last event of each.
    pub noted: HashMap<String, EventId>,
    /// Those that a flow uses now.
    pub used: HashSet<String>,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            listeners: watch::Sender::new(0),
            counts: Counts::default(),
            log: Mutex::default(),
            cursors: Mutex::default(),
        }
    }
}

impl Slot {
    /// The log that is used now.
    pub fn log(&self) -> Option<Arc<Log>> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.upgrade()
    }

    pub fn cursors(&self) -> MutexGuard<'_, Cursors> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_log(&self, log: &Arc<Log>) {
        let mut place = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::downgrade(log);
    }
}

/// What has happened since the process began.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub published: AtomicU64,
    pub bytes: AtomicU64,
    pub repeated: AtomicU64,
    pub conflicts: AtomicU64,
    pub unchanged: AtomicU64,
    pub patches: AtomicU64,
    pub batches: AtomicU64,
    pub refused: AtomicU64,
}

impl Counts {
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl Slot {
    /// What has been counted since the process began.
    fn counted(&self) -> Vec<Measure> {
        let mut measures = Vec::new();
        let mut add = |name, help, value: u64| {
            let value = value as f64;
            measures.push(Measure { name, help, value });
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        add(
            "topic_published_total",
            "Events published.",
            count(&counts.published),
        );
        add(
            "topic_published_bytes_total",
            "Bytes of events published.",
            count(&counts.bytes),
        );
        add(
            "topic_patches_total",
            "Events published that are sent as what has changed.",
            count(&counts.patches),
        );
        add(
            "topic_repeated_total",
            "Publications whose key had been there before.",
            count(&counts.repeated),
        );
        add(
            "topic_key_conflicts_total",
            "Publications whose key had been there before with another event.",
            count(&counts.conflicts),
        );
        add(
            "topic_unchanged_total",
            "Publications that were the same as the one before.",
            count(&counts.unchanged),
        );
        add(
            "topic_refused_total",
            "Publications that could not be stored.",
            count(&counts.refused),
        );
        add(
            "topic_batches_total",
            "How often events were stored together.",
            count(&counts.batches),
        );
        measures
    }
}

impl State for Slot {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let mut measures = self.counted();
        let mut add = |name, help, value: u64| {
            let value = value as f64;
            measures.push(Measure { name, help, value });
        };
        add(
            "topic_subscribers",
            "Subscribers that are there.",
            *self.listeners.borrow() as u64,
        );
        if let Some(found) = self.log().and_then(|log| log.store.find(&log.stored_as)) {
            add(
                "topic_sequence",
                "The number of the last event.",
                found.next - 1,
            );
            add(
                "topic_kept_events",
                "Events that are kept.",
                found.next - found.first,
            );
            add(
                "topic_kept_bytes",
                "Bytes of events that are kept.",
                found.bytes,
            );
        }
        measures
    }
}

/// The log of a topic.
pub(crate) struct Log {
    pub name: Arc<str>,
    /// What the store calls it: two logs of one name are there while one takes the other's place.
    pub stored_as: Arc<str>,
    pub payload: Payload,
    pub durability: Durability,
    /// The epoch of what is published now.
    pub epoch: u64,
    /// Those of what was published before.
    epochs: Epochs,
    pub slot: Arc<Slot>,
    pub store: Arc<dyn Store>,
    pub sequencer: Arc<Sequencer>,
    settings: Mutex<Settings>,
    held: held::Held,
    staged: Mutex<Staged>,
    live: Mutex<Live>,
    /// The number of the next event that everybody will see.
    changes: watch::Sender<u64>,
    /// Whether a mailbox may be full. Only the thread that orders events sets and clears it.
    is_held_up: AtomicBool,
    /// The bytes of publications that wait.
    pub waiting: Arc<AtomicUsize>,
}

/// What is ordered, durable or not. Only the thread that orders events changes it.
#[derive(Default)]
pub(crate) struct Staged {
    /// The number of the next event.
    pub next: u64,
    /// How things are, of a topic of snapshots.
    pub document: Option<Arc<Document>>,
    /// How many patches have been stored since the last whole document, and their bytes.
    pub patches: (u64, u64),
    pub keys: Keys,
    /// When the last event came: the time of day may go back.
    pub at_ms: u64,
}

/// What everybody sees: all of it is durable.
pub(crate) struct Live {
    latest: Option<Arc<Event>>,
    next: u64,
    recent: VecDeque<Arc<Event>>,
    recent_bytes: usize,
    boxes: Vec<Arc<mailbox::Sender>>,
}

/// What a log is made of.
pub(crate) struct LogParts {
    pub name: Arc<str>,
    pub stored_as: Arc<str>,
    pub settings: Settings,
    pub slot: Arc<Slot>,
    pub store: Arc<dyn Store>,
    pub sequencer: Arc<Sequencer>,
}

impl Log {
    pub fn id(&self, sequence: u64) -> EventId {
        EventId {
            epoch: self.epochs.of(sequence),
            sequence,
        }
    }

    /// The epochs of its events, the oldest first.
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// The place of somebody who has had this event, as this log names it.
    ///
    /// # Errors
    /// Why it is not known: `other-epoch`, or `ahead` when the log has been put back to an older
    /// state since.
    pub fn locate(&self, id: EventId) -> Result<EventId, &'static str> {
        match self.epochs.end_of(id.epoch) {
            Some(end) if id.sequence <= end => Ok(self.id(id.sequence)),
            Some(_) => Err("ahead"),
            None => Err("other-epoch"),
        }
    }

    pub fn settings(&self) -> Settings {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_settings(&self, settings: Settings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    pub fn staged(&self) -> MutexGuard<'_, Staged> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How things were last, durable or not yet.
    pub fn document(&self) -> Option<Arc<Document>> {
        self.staged().document.clone()
    }

    /// The number of the next event, whenever it changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// How many events are in memory for those who come back.
    #[cfg(test)]
    pub fn recent_count(&self) -> usize {
        self.live().recent.len()
    }

    /// The oldest event that is kept.
    pub fn first(&self) -> u64 {
        let next = self.live().next;
        let first = self.store.find(&self.stored_as).map(|it| it.first);
        first.map_or(next, |first| first.min(next))
    }

    /// When an event was published, or else the oldest that is kept behind it, in milliseconds
    /// since 1970. May read the disk.
    pub fn time_of(&self, sequence: u64) -> Option<u64> {
        let recent = {
            let live = self.live();
            let mut recent = live.recent.iter();
            let oldest = live.recent.front().map_or(u64::MAX, |it| it.id.sequence);
            let wanted = recent.find(|it| it.id.sequence == sequence);
            wanted.filter(|_| oldest <= sequence).map(|it| it.at_ms)
        };
        recent.or_else(|| {
            let from = sequence.max(self.first());
            let records = self.store.read(&self.stored_as, from, 1).ok()?;
            records.first().map(|it| it.at_ms)
        })
    }

    /// The last event that everybody sees.
    pub fn latest(&self) -> Option<Arc<Event>> {
        self.live().latest.clone()
    }

    /// The id of the next event that everybody will see.
    pub fn next(&self) -> EventId {
        self.id(self.live().next)
    }

    /// Hands publications to the thread that orders events, and waits for the answer.
    pub async fn submit(
        self: &Arc<Self>,
        client: Option<IpAddr>,
        items: Vec<Item>,
    ) -> Result<Vec<Receipt>, Fault> {
        let size = items.iter().map(Item::size).sum();
        let Some(place) = self.sequencer.reserve(self, size) else {
            Counts::add(&self.slot.counts.refused, items.len() as u64);
            let detail = "too much waits to be published";
            return Err(Fault::new(Kind::Unavailable, Origin::Engine, detail)
                .with_retry(Retry::Yes)
                .with_retry_after(Duration::from_secs(1))
                .with_cause(format_args!("topic {}", self.name)));
        };
        let (answer, receipts) = oneshot::channel();
        self.sequencer.submit(Submission {
            log: Arc::clone(self),
            client,
            items,
            answer,
            place,
        });
        receipts.await.unwrap_or_else(|_| {
            let detail = "the engine is stopping";
            Err(Fault::new(Kind::Unavailable, Origin::Engine, detail)
                .with_cause(format_args!("topic {}: it is closed", self.name)))
        })
    }

    pub fn attach(&self) -> Attached {
        let (sender, mailbox) = mailbox::mailbox();
        let first = self.store.find(&self.stored_as).map(|it| it.first);
        let mut live = self.live();
        live.boxes.push(Arc::new(sender));
        Attached {
            latest: live.latest.clone(),
            next: self.id(live.next),
            first: first.map_or(live.next, |first| first.min(live.next)),
            mailbox,
        }
    }

    /// Shows events to everybody: they are durable now.
    pub fn show(&self, events: Vec<Arc<Event>>) {
        let Some(last) = events.last() else {
            return;
        };
        let first = self.store.find(&self.stored_as).map_or(0, |it| it.first);
        let boxes = {
            let mut live = self.live();
            live.next = last.id.sequence + 1;
            live.latest = Some(Arc::clone(last));
            live.remember(&events, first);
            live.boxes.clone()
        };
        self.changes.send_replace(last.id.sequence + 1);
        let mut left = Vec::new();
        for sender in boxes {
            match sender.put(&events) {
                Some(true) => {}
                Some(false) => self.is_held_up.store(true, Ordering::Relaxed),
                None => left.push(sender),
            }
        }
        self.forget_boxes(&left);
    }

    fn forget_boxes(&self, gone: &[Arc<mailbox::Sender>]) {
        if !gone.is_empty() {
            let is_gone = |it: &Arc<mailbox::Sender>| gone.iter().any(|gone| Arc::ptr_eq(it, gone));
            self.live().boxes.retain(|it| !is_gone(it));
        }
    }

    /// Whether publications may wait for a worker.
    pub fn is_held_up(&self) -> bool {
        self.is_held_up.load(Ordering::Relaxed)
    }

    /// Whether publications have to wait for workers that do not take their events: when that has
    /// to be asked again at the latest. `publisher` is woken when there may be room before. A
    /// worker that has been waited for too long loses its events.
    pub fn held_until(&self, now: Instant, publisher: &Waker) -> Option<Instant> {
        if !self.is_held_up() {
            return None;
        }
        let boxes = self.live().boxes.clone();
        let (mut until, mut gone) = (None::<Instant>, Vec::new());
        for sender in boxes {
            match sender.fill(now, publisher) {
                Fill::Room => {}
                Fill::Left => gone.push(sender),
                Fill::Full(since) if since + mailbox::PATIENCE <= now => {
                    tracing::error!(
                        target: "topics",
                        topic = &*self.name,
                        "a worker does not take the events of a topic: it has to attach again"
                    );
                    sender.lose();
                    gone.push(sender);
                }
                Fill::Full(since) => {
                    let end = since + mailbox::PATIENCE;
                    until = Some(until.map_or(end, |until| until.min(end)));
                }
            }
        }
        self.forget_boxes(&gone);
        if until.is_none() {
            self.is_held_up.store(false, Ordering::Relaxed);
        }
        until
    }

    /// No more events come: whoever waits for them is told.
    pub fn end(&self) {
        self.live().boxes.clear();
    }
}

impl Live {
    /// Adds events, and drops the oldest ones beyond [`RECENT_MAX`] and those before `first`, which
    /// the topic does not keep any more: readers are told that they are gone.
    fn remember(&mut self, events: &[Arc<Event>], first: u64) {
        for event in events {
            self.recent_bytes += weight(event);
            self.recent.push_back(Arc::clone(event));
        }
        while self.recent.len() > 1
            && let Some(oldest) = self
                .recent
                .pop_front_if(|it| self.recent_bytes > RECENT_MAX || it.id.sequence < first)
        {
            self.recent_bytes -= weight(&oldest);
        }
    }
}
