//! What the process knows of an endpoint by its name, whichever plan is served: where it is, how it
//! does, what an operator wants of it, and who serves it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use component::state::{Measure, State, StateKey, States};
use journal::Keyed;
use message::{Fault, Kind, Origin};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

use super::machine::{Disabled, Machine, Outcome, Range, Record, Stopped};
use super::replay::Wanted;
use super::reports::Reports;
use crate::event::EventId;
use crate::log::Slot;

/// The table of the keyed state that has the records of endpoints.
pub(crate) const TABLE: &str = "topic-webhooks";

/// Which kind of endpoint it is: each has its records in a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndpointKind {
    /// Webhooks.
    Webhook,
    /// Subscriptions to a hub.
    Hub,
}

impl EndpointKind {
    /// The table of the keyed state.
    pub const fn table(self) -> &'static str {
        match self {
            Self::Webhook => TABLE,
            Self::Hub => "websub-cursors",
        }
    }
}

/// What outlives the process of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// The last event that is done, and all before it.
    pub cursor: String,
    #[serde(flatten)]
    pub record: Record,
}

impl Stored {
    /// Behind this event, and nothing has been sent.
    pub fn at(cursor: EventId) -> Self {
        Self {
            cursor: cursor.to_string(),
            record: Record::default(),
        }
    }

    /// As it is written down.
    pub fn to_bytes(&self) -> Bytes {
        // Nothing in it is what JSON cannot say.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Has it asked again though it has answered 410.
    pub fn forget_gone(&mut self) {
        if self.record.stopped == Some(Stopped::Gone) {
            self.record.stopped = None;
            self.record.disabled = Disabled::default();
        }
    }

    /// What has been written down.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let stored: Self = serde_json::from_slice(bytes).ok()?;
        stored.cursor.parse::<EventId>().ok()?;
        Some(stored)
    }
}

/// What an operator wants of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send nothing until it is resumed.
    Pause,
    /// Go on, whatever it was stopped for.
    Resume,
    /// Send these events again.
    Replay(Range),
}

/// A command, and where the answer goes: it is done, and on the disk.
pub(super) type Asked = (Command, oneshot::Sender<()>);

/// How an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It takes events.
    Active,
    /// It does not take events at the moment.
    Down,
    /// An operator has paused it.
    Paused,
    /// It is disabled, since it was down for too long or has answered 410.
    Disabled,
}

impl Health {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Down => "down",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
        }
    }

    /// The number that shows it, see [`EndpointState::show`].
    fn number(self) -> u8 {
        self as u8
    }
}

/// How an endpoint is, and why nothing is sent to it.
const SHOWN: [(Health, Option<&str>); 5] = [
    (Health::Active, None),
    (Health::Down, None),
    (Health::Paused, Some("it has been paused")),
    (Health::Disabled, Some("it has answered 410")),
    (Health::Disabled, Some("it was down for too long")),
];

/// What has happened since the process began.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub delivered: AtomicU64,
    pub failed: AtomicU64,
    pub refused: AtomicU64,
    pub dead_letters: AtomicU64,
    pub gaps: AtomicU64,
}

/// Wakes whoever serves endpoints, for one of them.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<Vec<u32>>,
    changed: Mutex<Vec<Arc<str>>>,
    pub notify: Notify,
}

impl Bell {
    fn ring(&self, number: u32) {
        self.rung
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(number);
        self.notify.notify_one();
    }

    /// Wakes it for none of them.
    pub fn nudge(&self) {
        self.notify.notify_one();
    }

    /// A subscription has come, has changed or is gone.
    pub fn ring_changed(&self, id: &Arc<str>) {
        self.changed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(id));
        self.notify.notify_one();
    }

    /// Which subscriptions have come, have changed or are gone.
    pub fn take_changed(&self) -> Vec<Arc<str>> {
        let changed = self.changed.lock();
        std::mem::take(&mut *changed.unwrap_or_else(PoisonError::into_inner))
    }

    /// For which of them it has been rung.
    pub fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What endpoints of a topic have in common: all subscriptions of users, or all to its hub. One of
/// a file stands alone.
pub(crate) struct EndpointGroup {
    topic: Arc<str>,
    slot: Arc<Slot>,
    /// Which table has their records.
    kind: EndpointKind,
    /// What all of them have done, those that are gone too.
    pub counts: Counts,
}

impl EndpointGroup {
    /// Of this kind, of a topic.
    pub fn new((topic, slot): (&Arc<str>, &Arc<Slot>), kind: EndpointKind) -> Arc<Self> {
        Arc::new(Self {
            topic: Arc::clone(topic),
            slot: Arc::clone(slot),
            kind,
            counts: Counts::default(),
        })
    }
}

/// An endpoint of a topic, by its name.
pub(crate) struct EndpointState {
    pub name: Arc<str>,
    group: Arc<EndpointGroup>,
    cursor: AtomicU64,
    /// The last event that is done and noted where a start finds it; `u64::MAX` when that is not
    /// known.
    noted: AtomicU64,
    health: AtomicU8,
    /// Whether it has taken what was sent to it last.
    is_proven: AtomicBool,
    /// Whether a replay has to go on to the newest event: each applies to the one before (patches),
    /// or several become one request (batches).
    is_chain: AtomicBool,
    /// Whether `inner` has something rare: each delivery asks, and need not lock it for that.
    has_rare: AtomicBool,
    inner: Mutex<Inner>,
}

/// What is known of where an endpoint is. Most have nothing to say but their cursor.
struct Position {
    cursor: EventId,
    record: Option<Box<Record>>,
}

impl Position {
    /// None when the cursor is not that of an event, which nothing that is read from a record is.
    fn of(stored: Stored) -> Option<Self> {
        let cursor = stored.cursor.parse().ok()?;
        let record = stored.record;
        let is_default = record == Record::default();
        Some(Self {
            cursor,
            record: (!is_default).then(|| Box::new(record)),
        })
    }

    fn stored(&self) -> Stored {
        Stored {
            cursor: self.cursor.to_string(),
            record: self.record.as_deref().cloned().unwrap_or_default(),
        }
    }
}

#[derive(Default)]
struct Inner {
    /// What is known of it; absent before the topic has been opened.
    position: Option<Position>,
    /// Whether somebody serves it.
    is_taken: bool,
    /// Who is woken: the one who serves it, or wants to.
    bell: Option<Arc<Bell>>,
    /// The number that it has there.
    number: u32,
    /// What most endpoints have nothing of, see [`EndpointState::change_rare`].
    rare: Option<Box<Rare>>,
    /// Whether what is known of it is not on the disk: the last note before it was given back has
    /// failed.
    owes_note: bool,
}

#[derive(Default)]
struct Rare {
    commands: Vec<Asked>,
    /// What has not been reported of the endpoint, while no driver has it.
    reports: Option<Box<Reports>>,
    /// Why it has not got an event, until it has got the next one.
    trouble: Option<Box<str>>,
    /// Why it is down.
    failure: Option<Box<str>>,
}

impl EndpointState {
    /// The one of this name.
    pub fn of((topic, slot): (&Arc<str>, &Arc<Slot>), name: &str, states: &States) -> Arc<Self> {
        let name: Arc<str> = name.into();
        let key = StateKey {
            flow: Arc::clone(topic),
            step: Arc::clone(&name),
            kind: "webhook",
            settings: String::new(),
        };
        let state = states.get(key, || {
            let group = EndpointGroup::new((topic, slot), EndpointKind::Webhook);
            Self::new(&group, Arc::clone(&name), None)
        });
        Registry::of(states).add(&state);
        state
    }

    /// That of a subscription: operators do not see it, nor has it measures of its own. It goes on
    /// behind where it is `stored` to be.
    pub fn unlisted(group: &Arc<EndpointGroup>, name: Arc<str>, stored: Stored) -> Arc<Self> {
        Arc::new(Self::new(group, name, Some(stored)))
    }

    fn new(group: &Arc<EndpointGroup>, name: Arc<str>, stored: Option<Stored>) -> Self {
        Self {
            name,
            group: Arc::clone(group),
            cursor: AtomicU64::new(u64::MAX),
            noted: AtomicU64::new(u64::MAX),
            health: AtomicU8::new(0),
            is_proven: AtomicBool::new(false),
            is_chain: AtomicBool::new(false),
            has_rare: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                position: stored.and_then(Position::of),
                ..Inner::default()
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is rare, and frees it when nothing is left of it.
    fn change_rare<T>(&self, inner: &mut Inner, change: impl FnOnce(&mut Rare) -> T) -> T {
        let mut rare = inner.rare.take().unwrap_or_default();
        let result = change(&mut rare);
        let is_empty = rare.commands.is_empty()
            && rare.reports.is_none()
            && rare.trouble.is_none()
            && rare.failure.is_none();
        inner.rare = (!is_empty).then_some(rare);
        self.has_rare.store(!is_empty, Ordering::Release);
        result
    }

    /// The name of its topic.
    pub fn topic(&self) -> &Arc<str> {
        &self.group.topic
    }

    /// The table that has its record.
    pub fn table(&self) -> &'static str {
        self.group.kind.table()
    }

    /// What it has done, and others with it.
    pub fn counts(&self) -> &Counts {
        &self.group.counts
    }

    /// The key of its record.
    pub fn key(&self) -> Bytes {
        key(self.topic(), &self.name)
    }

    /// What is known of it.
    pub(super) fn stored(&self) -> Option<Stored> {
        self.inner().position.as_ref().map(Position::stored)
    }

    /// This is on the disk of it, as a start or its first note has found or left it.
    pub(super) fn open(&self, stored: Stored) {
        if let Ok(cursor) = stored.cursor.parse::<EventId>() {
            self.set_noted(cursor.sequence);
        }
        self.show_health(stored.record.stopped, stored.record.down.is_some());
        self.set_stored(Some(stored));
    }

    /// From here on this is known of it.
    pub(super) fn set_stored(&self, stored: Option<Stored>) {
        self.inner().position = stored.and_then(Position::of);
    }

    /// Takes it to serve it. While somebody else does, `bell` is rung when that ends; from then on
    /// when there is a command.
    pub(super) fn take(&self, bell: &Arc<Bell>, number: usize) -> bool {
        let mut inner = self.inner();
        inner.bell = Some(Arc::clone(bell));
        // There are not so many.
        inner.number = u32::try_from(number).unwrap_or(u32::MAX);
        !std::mem::replace(&mut inner.is_taken, true)
    }

    /// Gives it back, or wants it no more.
    pub(super) fn give_back(&self, own: &Arc<Bell>, has_it: bool) {
        let mut inner = self.inner();
        if has_it {
            inner.is_taken = false;
        }
        inner.bell.take_if(|bell| Arc::ptr_eq(bell, own));
        if let Some(bell) = inner.bell.as_ref().filter(|_| has_it) {
            bell.ring(inner.number);
        }
    }

    /// Leaves this to the next driver: what has not been reported of it, and whether what is stored
    /// of it is on the disk.
    pub(super) fn hand_over(&self, reports: Option<Box<Reports>>, is_noted: bool) {
        let mut inner = self.inner();
        if reports.is_some() || inner.rare.is_some() {
            self.change_rare(&mut inner, |it| it.reports = reports);
        }
        inner.owes_note = !is_noted;
    }

    /// What is known of it is not on the disk: whoever serves it next has it noted.
    pub(crate) fn owe_note(&self) {
        self.inner().owes_note = true;
    }

    /// Takes what has been left: what has not been reported, and whether a note is owed.
    pub(super) fn take_over(&self) -> (Option<Box<Reports>>, bool) {
        let mut inner = self.inner();
        let owes_note = inner.owes_note;
        let reports = match inner.rare {
            Some(_) => self.change_rare(&mut inner, |it| it.reports.take()),
            None => None,
        };
        (reports, owes_note)
    }

    /// Has whoever serves it do something; the answer comes when that is done and on the disk.
    /// None when nobody does.
    pub fn ask(&self, command: Command) -> Option<oneshot::Receiver<()>> {
        let mut inner = self.inner();
        let (bell, number) = (inner.bell.clone()?, inner.number);
        let (answer, answered) = oneshot::channel();
        self.change_rare(&mut inner, |it| it.commands.push((command, answer)));
        drop(inner);
        bell.ring(number);
        Some(answered)
    }

    /// Whether it has taken what was sent to it last.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven.load(Ordering::Relaxed)
    }

    /// It was there before the process: it counts as one that takes what is sent to it, unless it
    /// was down then.
    pub(crate) fn trust(&self) {
        let stored = self.stored();
        let was_down = stored.is_some_and(|it| it.record.down.is_some());
        self.is_proven.store(!was_down, Ordering::Relaxed);
    }

    /// This has come of something that was sent.
    pub(super) fn note_outcome(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Delivered => {
                self.is_proven.store(true, Ordering::Relaxed);
                if self.has_rare() {
                    let forget = |it: &mut Rare| (it.trouble, it.failure) = (None, None);
                    self.change_rare(&mut self.inner(), forget);
                }
            }
            Outcome::Refused => self.is_proven.store(true, Ordering::Relaxed),
            Outcome::Down { .. } | Outcome::Gone => self.is_proven.store(false, Ordering::Relaxed),
            Outcome::NotSent
            | Outcome::DeadLetterStored
            | Outcome::DeadLetterNotStored
            | Outcome::Lost
            | Outcome::TooLarge { .. }
            | Outcome::Aborted => {}
        }
    }

    /// It has not got an event, for this reason.
    pub(super) fn set_trouble(&self, why: &str) {
        self.change_rare(&mut self.inner(), |it| it.trouble = Some(why.into()));
    }

    /// It is down, for this reason.
    pub(super) fn set_failure(&self, why: &str) {
        self.change_rare(&mut self.inner(), |it| it.failure = Some(why.into()));
    }

    /// Why it is down; why it has not got an event, if it has got none since and is not down.
    pub(super) fn trouble(&self) -> Option<Box<str>> {
        let is_down = self.health().0 == Health::Down;
        let inner = self.inner();
        let rare = inner.rare.as_ref()?;
        match is_down {
            true => rare.failure.clone(),
            false => rare.trouble.clone(),
        }
    }

    /// It is noted that all up to this event is done.
    pub(super) fn set_noted(&self, sequence: u64) {
        self.noted.store(sequence, Ordering::Release);
    }

    /// Behind which event it needs all others; none when nothing is sent to it, or when it is not
    /// known where it is.
    pub(crate) fn holds_behind(&self) -> Option<u64> {
        let is_active = matches!(self.health().0, Health::Active | Health::Down);
        let noted = self.noted.load(Ordering::Acquire);
        Some(noted).filter(|it| is_active && *it != u64::MAX)
    }

    /// The last event that is done and noted.
    pub fn cursor(&self) -> Option<String> {
        let inner = self.inner();
        inner.position.as_ref().map(|it| it.cursor.to_string())
    }

    /// Whether its events apply to one another, or become one request.
    pub(super) fn set_chain(&self, is_chain: bool) {
        self.is_chain.store(is_chain, Ordering::Relaxed);
    }

    /// What it has to be asked so that these events are sent again.
    ///
    /// # Errors
    /// When there are none, or they cannot be sent alone.
    pub(super) async fn replay(&self, wanted: Wanted) -> Result<Command, Fault> {
        if wanted.has_end() && self.is_chain.load(Ordering::Relaxed) {
            let detail = "patches and batches are sent again from an event on: leave `to` out, and \
                          write `from` in place of `event`";
            return Err(Fault::invalid(detail).with_status(409));
        }
        let log = self.group.slot.log().ok_or_else(|| {
            let detail = "the topic is not open";
            Fault::new(Kind::Unavailable, Origin::Engine, detail)
        })?;
        wanted.found(&log).await.map(Command::Replay)
    }

    /// What is asked of whoever serves it.
    pub fn take_commands(&self) -> Vec<Asked> {
        if !self.has_rare() {
            return Vec::new();
        }
        self.change_rare(&mut self.inner(), |it| std::mem::take(&mut it.commands))
    }

    fn has_rare(&self) -> bool {
        self.has_rare.load(Ordering::Acquire)
    }

    /// Shows how it is.
    pub(super) fn show(&self, machine: &Machine) {
        self.cursor.store(machine.cursor(), Ordering::Relaxed);
        self.show_health(machine.stopped(), machine.down().is_some());
    }

    /// Shows that it takes events, and that all up to this one is done.
    pub(super) fn show_at(&self, cursor: u64) {
        self.cursor.store(cursor, Ordering::Relaxed);
        self.show_health(None, false);
    }

    fn show_health(&self, stopped: Option<Stopped>, is_down: bool) {
        let at = match (stopped, is_down) {
            (None, false) => 0,
            (None, true) => 1,
            (Some(Stopped::Paused), _) => 2,
            (Some(Stopped::Gone), _) => 3,
            (Some(Stopped::Down), _) => 4,
        };
        self.health.store(at, Ordering::Relaxed);
    }

    /// How it is, and why nothing is sent to it.
    pub fn health(&self) -> (Health, Option<&'static str>) {
        let at = usize::from(self.health.load(Ordering::Relaxed));
        SHOWN.get(at).copied().unwrap_or((Health::Active, None))
    }

    /// How many events are not done.
    pub fn lag_events(&self) -> u64 {
        let cursor = self.cursor.load(Ordering::Relaxed);
        let log = self.group.slot.log().filter(|_| cursor != u64::MAX);
        log.map_or(0, |log| log.next().sequence.saturating_sub(cursor + 1))
    }

    /// The same, and the age of the oldest in seconds. May read the disk.
    pub fn lag(&self) -> (u64, f64) {
        let cursor = self.cursor.load(Ordering::Relaxed);
        let Some(log) = self.group.slot.log().filter(|_| cursor != u64::MAX) else {
            return (0, 0.0);
        };
        let events = log.next().sequence.saturating_sub(cursor + 1);
        let oldest = (events > 0).then(|| log.time_of(cursor + 1)).flatten();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_millis()) as f64;
        let age = oldest.map_or(0.0, |at| (now - at as f64).max(0.0) / 1000.0);
        (events, age)
    }
}

impl State for EndpointState {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let (events, age) = self.lag();
        let gauge = |name, help, value| Measure { name, help, value };
        let counts = self.counts();
        vec![
            Measure::count(
                "webhook_delivered_total",
                "Events that the endpoint has taken.",
                &counts.delivered,
            ),
            Measure::count(
                "webhook_failed_total",
                "Requests that the endpoint could not take: no connection, time-outs, 5xx, 408, \
                 429 and redirects.",
                &counts.failed,
            ),
            Measure::count(
                "webhook_refused_total",
                "Requests that the endpoint has refused with another 4xx.",
                &counts.refused,
            ),
            Measure::count(
                "webhook_dead_letters_total",
                "Events that have become dead letters.",
                &counts.dead_letters,
            ),
            Measure::count(
                "webhook_missed_total",
                "Events that were not kept any more when the endpoint could have got them.",
                &counts.gaps,
            ),
            gauge(
                "webhook_lag_events",
                "Events that the endpoint has not got yet.",
                events as f64,
            ),
            gauge(
                "webhook_lag_seconds",
                "The age of the oldest event that the endpoint has not got yet.",
                age,
            ),
            gauge(
                "webhook_state",
                "Whether the endpoint is active (0), down (1), paused (2) or disabled (3).",
                f64::from(self.health().0.number()),
            ),
        ]
    }
}

/// The key of the record of an endpoint of a topic; how those of the topic begin, without one.
pub(crate) fn key(topic: &str, name: &str) -> Bytes {
    Bytes::from(format!("{topic}\0{name}"))
}

/// How many records are read at once.
const SCAN_MAX: usize = 1000;

/// The records of a topic in a table of the keyed state, in the order of their keys, some at a
/// time.
pub(super) struct Records<'a> {
    keyed: &'a Keyed,
    table: &'static str,
    prefix: Bytes,
    /// The key of the last one that has been read.
    after: Option<Bytes>,
}

impl<'a> Records<'a> {
    /// Those of a topic, from the first one on.
    pub fn new(keyed: &'a Keyed, table: &'static str, topic: &str) -> Self {
        Self {
            keyed,
            table,
            prefix: key(topic, ""),
            after: None,
        }
    }

    /// The next ones, with their keys; `None` at the end.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn next(&mut self) -> Result<Option<Vec<(Bytes, Bytes)>>, String> {
        let (table, after) = (self.table, self.after.as_deref());
        let found = self.keyed.scan(table, &self.prefix, after, SCAN_MAX).await;
        let found = found.map_err(|error| format!("what is noted of webhooks: {error}"))?;
        let Some((last, _)) = found.last() else {
            return Ok(None);
        };
        self.after = Some(last.clone());
        Ok(Some(found))
    }
}

/// Endpoints by topic and name.
type Known = BTreeMap<(Arc<str>, Arc<str>), Weak<EndpointState>>;

/// All endpoints of the process, for operators.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Known>);

impl State for Registry {
    /// Nobody has it between two commands. Forgotten with what no flow has, it would be made anew
    /// without the endpoints that are there.
    fn stays(&self) -> bool {
        true
    }
}

impl Registry {
    /// The one that belongs to these states.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "webhooks"), Self::default)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, state: &Arc<EndpointState>) {
        let mut known = self.known();
        let key = (Arc::clone(state.topic()), Arc::clone(&state.name));
        // A reload adds them all once more.
        if known.len().is_power_of_two() && !known.contains_key(&key) {
            known.retain(|_, it| it.strong_count() > 0);
        }
        known.insert(key, Arc::downgrade(state));
    }

    /// Those that somebody serves, by topic and name.
    pub fn all(&self) -> Vec<Arc<EndpointState>> {
        let served = |it: &Arc<EndpointState>| it.inner().bell.is_some();
        let known = self.known();
        known
            .values()
            .filter_map(Weak::upgrade)
            .filter(served)
            .collect()
    }

    /// One of them.
    pub fn find(&self, topic: &str, name: &str) -> Option<Arc<EndpointState>> {
        let found = self.known().get(&(topic.into(), name.into()))?.upgrade()?;
        let is_served = found.inner().bell.is_some();
        is_served.then_some(found)
    }
}
