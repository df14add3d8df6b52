//! The audit stream: who was refused, and who has changed what.
//!
//! Whoever sees such a thing hands an [`Event`] to the one [`Audit`] of the process; the
//! application takes events from it and writes them beside the workers. Nobody waits: what there is
//! no room for is counted. Refusals pass a [`limiter`] before. A request that is let in never comes
//! here, and without a stream all of this is one load of a flag.

mod event;
pub mod limiter;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use tokio::sync::Notify;

pub use self::event::{Changes, Event, EventKind, Names, Origin, timestamp};
use self::limiter::{Key, Limiter, LimiterSettings, Noted, Summary, network};
use crate::state::{Measure, State, StateKey, States};

/// The most events that wait to be written.
const WAITING_MAX: usize = 4096;
/// How many of them may be refusals and revoked credentials, which come in any number: the others
/// are left for changes.
const REFUSALS_MAX: usize = WAITING_MAX / 4 * 3;

/// An event and when it was.
pub type Dated = (SystemTime, Event);

/// A request that was refused.
#[derive(Clone, Debug)]
pub struct Refusal<'a> {
    /// The way by which the caller wanted to be known.
    pub way: Option<&'a Arc<str>>,
    /// Who it is, when the credential was good.
    pub id: Option<&'a Arc<str>>,
    /// Why: a word.
    pub reason: &'a str,
    /// The status of the reply; none where there is no reply.
    pub status: Option<u16>,
    /// What it was refused by, such as `flow orders`.
    pub target: &'a str,
}

/// The audit stream of the process, while it waits to be written.
pub struct Audit {
    is_on: AtomicBool,
    queue: Mutex<Queue>,
    wake: Notify,
    written: AtomicU64,
    suppressed: AtomicU64,
    dropped: AtomicU64,
    is_failing: AtomicBool,
}

struct Queue {
    waiting: VecDeque<Dated>,
    limiter: Limiter,
    /// Events that were dropped since that was written last.
    dropped: u64,
}

impl Default for Audit {
    fn default() -> Self {
        let limiter = Limiter::new(LimiterSettings::default(), Instant::now());
        Self {
            is_on: AtomicBool::new(false),
            queue: Mutex::new(Queue {
                waiting: VecDeque::new(),
                limiter,
                dropped: 0,
            }),
            wake: Notify::new(),
            written: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Audit")
    }
}

impl Audit {
    /// The one of the process.
    #[must_use]
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "audit"), Self::default)
    }

    /// Whether there is a stream.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Begins a stream with these bounds of refusals, or ends it. What waits stays, counts of
    /// refusals included.
    pub fn set(&self, settings: Option<LimiterSettings>) {
        let mut queue = self.queue();
        let now = SystemTime::now();
        let counts = queue.limiter.finish();
        for summary in counts {
            self.push(&mut queue, (now, of_summary(&summary)), WAITING_MAX);
        }
        if let Some(settings) = settings {
            queue.limiter = Limiter::new(settings, Instant::now());
        }
        self.is_on.store(settings.is_some(), Ordering::Relaxed);
        drop(queue);
        self.wake.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, queue: &mut Queue, event: Dated, most: usize) {
        if queue.waiting.len() < most {
            queue.waiting.push_back(event);
            return;
        }
        queue.dropped += 1;
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Has an event written. It is made only if there is a stream.
    pub fn record(&self, make: impl FnOnce() -> Event) {
        if self.is_on() {
            let event = make();
            let most = match event.kind() {
                // One change can revoke the credentials of all open streams.
                EventKind::AccessRevoked => REFUSALS_MAX,
                _ => WAITING_MAX,
            };
            self.push(&mut self.queue(), (SystemTime::now(), event), most);
            self.wake.notify_one();
        }
    }

    /// Has a refusal written or counted.
    pub fn refused(&self, refusal: &Refusal<'_>, origin: impl FnOnce() -> Origin) {
        if self.is_on() {
            self.note(refusal, origin());
        }
    }

    #[cold]
    fn note(&self, refusal: &Refusal<'_>, origin: Origin) {
        let now = SystemTime::now();
        let key = Key {
            network: network(origin.address),
            way: refusal.way.cloned(),
            id: refusal.id.cloned(),
            reason: refusal.reason.into(),
        };
        let mut queue = self.queue();
        match queue.limiter.note(key, Instant::now(), now) {
            Noted::Count => {
                self.suppressed.fetch_add(1, Ordering::Relaxed);
            }
            Noted::Write => {
                let event = Event::failure(EventKind::AccessRefused, refusal.reason);
                let event = event.by(refusal.way.cloned(), refusal.id.cloned());
                let mut event = event.with_origin(origin).with_target(refusal.target);
                if let Some(status) = refusal.status {
                    event = event.with_status(status);
                }
                self.push(&mut queue, (now, event), REFUSALS_MAX);
                drop(queue);
                self.wake.notify_one();
            }
        }
    }

    /// Waits until there may be something to write. Counts of refusals do not wake: whoever writes
    /// looks for them once a second.
    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    /// Takes what there is to write, the oldest first.
    #[must_use]
    pub fn take(&self) -> Vec<Dated> {
        let mut queue = self.queue();
        let now = SystemTime::now();
        let mut taken: Vec<Dated> = queue.waiting.drain(..).collect();
        if self.is_on() {
            let due = queue.limiter.due(Instant::now());
            taken.extend(due.iter().map(|it| (now, of_summary(it))));
        }
        let dropped = std::mem::take(&mut queue.dropped);
        if dropped > 0 {
            let event = Event::failure(EventKind::AuditDropped, "queue_full");
            taken.push((now, event.with("count", dropped)));
        }
        taken
    }

    /// Counts events that have been written.
    pub fn note_written(&self, count: u64) {
        self.written.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts events that can never be written.
    pub fn note_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes whether what was written last has failed.
    pub fn set_failing(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
    }
}

/// The event of a count.
fn of_summary(summary: &Summary) -> Event {
    let event = match &summary.key {
        None => Event::failure(EventKind::AccessSuppressed, "too_many"),
        Some(key) => {
            let event = Event::failure(EventKind::AccessRefused, &key.reason);
            let event = event.by(key.way.clone(), key.id.clone());
            event.with_origin(Origin::of_address(key.network))
        }
    };
    let event = event.with("count", summary.count);
    event.with("since", timestamp(summary.since))
}

impl State for Audit {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let written = self.written.load(Ordering::Relaxed);
        if !self.is_on() && written == 0 {
            return Vec::new();
        }
        let waiting = self.queue().waiting.len() as f64;
        let is_failing = self.is_failing.load(Ordering::Relaxed);
        vec![
            Measure::count(
                "audit_events_total",
                "Events of the audit stream that were written.",
                &self.written,
            ),
            Measure::count(
                "audit_suppressed_total",
                "Refusals that the audit stream counts together with others.",
                &self.suppressed,
            ),
            Measure::count(
                "audit_dropped_total",
                "Events that are missing in the audit stream: too many waited.",
                &self.dropped,
            ),
            Measure {
                name: "audit_waiting",
                help: "Events that wait to be written.",
                value: waiting,
            },
            Measure {
                name: "audit_failing",
                help: "Whether the audit stream cannot be written at the moment.",
                value: f64::from(u8::from(is_failing)),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(reason: &str) -> Refusal<'_> {
        Refusal {
            way: None,
            id: None,
            reason,
            status: Some(401),
            target: "flow orders",
        }
    }

    fn origin(last: u8) -> Origin {
        Origin::of_address([192, 0, 2, last].into())
    }

    fn lines(audit: &Audit) -> Vec<String> {
        let taken = audit.take().into_iter();
        taken
            .map(|(time, it)| it.to_json(time).to_string())
            .collect()
    }

    #[test]
    fn nothing_is_made_without_a_stream() {
        let audit = Audit::default();
        audit.record(|| panic!("it is made"));
        audit.refused(&refusal("expired"), || panic!("it is made"));
        assert_eq!(audit.take(), []);
        assert_eq!(audit.measures(Instant::now()), []);
    }

    #[test]
    fn refusals_are_counted_and_the_count_comes_at_the_end() {
        let audit = Audit::default();
        audit.set(Some(LimiterSettings::default()));
        for _ in 0..1000 {
            audit.refused(&refusal("expired"), || origin(1));
        }
        assert_eq!(lines(&audit).len(), 1);
        audit.set(None);
        let last = lines(&audit);
        assert_eq!(last.len(), 1);
        assert!(last[0].contains("\"count\":999,\"since\":"), "{}", last[0]);
        assert!(!last[0].contains("\"request\""), "{}", last[0]);
    }

    #[test]
    fn what_there_is_no_room_for_is_counted_and_refusals_leave_room_for_changes() {
        let audit = Audit::default();
        let settings = LimiterSettings {
            rate: 1_000_000,
            keys_max: 1_000_000,
            ..LimiterSettings::default()
        };
        audit.set(Some(settings));
        for number in 0..10_000_u32 {
            let address = std::net::Ipv4Addr::from(number).into();
            audit.refused(&refusal("expired"), || Origin::of_address(address));
        }
        for _ in 0..WAITING_MAX - REFUSALS_MAX {
            audit.record(|| Event::success(EventKind::ConfigReload));
        }
        let dropped = 10_000 - REFUSALS_MAX;
        let taken = lines(&audit);
        assert_eq!(taken.len(), WAITING_MAX + 1);
        let last = taken.last().unwrap();
        assert!(last.contains("\"event\":\"audit.dropped\""), "{last}");
        assert!(last.contains(&format!("\"count\":{dropped}")), "{last}");
        assert_eq!(lines(&audit).len(), 0);
    }

    #[test]
    fn revoked_credentials_leave_room_for_changes() {
        let audit = Audit::default();
        audit.set(Some(LimiterSettings::default()));
        for _ in 0..WAITING_MAX {
            audit.record(|| Event::success(EventKind::AccessRevoked).because("denied"));
        }
        audit.record(|| Event::success(EventKind::DenyChanged));
        let taken = lines(&audit);
        assert_eq!(taken.len(), REFUSALS_MAX + 2);
        let change = &taken[REFUSALS_MAX];
        assert!(change.contains("\"event\":\"deny.changed\""), "{change}");
        let count = format!("\"count\":{}", WAITING_MAX - REFUSALS_MAX);
        assert!(taken[REFUSALS_MAX + 1].contains(&count), "{taken:?}");
    }
}
