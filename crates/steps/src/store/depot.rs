//! The store of the process: flows name it when they are loaded, whoever runs them opens it.

use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use component::state::{Measure, State, StateKey, States};
use journal::Outbox;

/// The store of the process, open or not.
#[derive(Default)]
pub struct Depot {
    outbox: OnceLock<Outbox>,
    /// One more for each flow that needs it.
    uses: Arc<()>,
}

impl Depot {
    /// The store that belongs to these states.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "stores"), Self::default)
    }

    /// Whether a flow needs it.
    pub fn is_needed(&self) -> bool {
        Arc::strong_count(&self.uses) > 1
    }

    /// Whether nothing is stored or delivered any more before a restart, since the disk has failed.
    pub fn has_failed(&self) -> bool {
        self.outbox.get().is_some_and(Outbox::has_failed)
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.outbox.get().is_some()
    }

    /// From here on messages go there. The first one stays.
    pub fn open(&self, outbox: Outbox) {
        // Whoever was faster has opened the same folder.
        let _ = self.outbox.set(outbox);
    }
}

impl State for Depot {}

/// The messages of one name. All flows that name it have the same one.
pub(super) struct Store {
    pub name: String,
    depot: Arc<Depot>,
    _use: Arc<()>,
}

impl Store {
    /// The one of this name.
    pub fn of(name: &str, states: &States) -> Arc<Self> {
        let depot = Depot::of(states);
        states.get(StateKey::shared(name, "store"), || Self {
            name: name.to_owned(),
            _use: Arc::clone(&depot.uses),
            depot,
        })
    }

    /// Where its messages are, when that has been opened.
    pub fn outbox(&self) -> Option<&Outbox> {
        self.depot.outbox.get()
    }
}

impl State for Store {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let stats = self.outbox().map(|it| it.stats(&self.name));
        let stats = stats.unwrap_or_default();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_millis());
        let oldest = stats.oldest.map_or(0, |at| now.saturating_sub(at.into()));
        let measure = |name, help, value| Measure { name, help, value };
        vec![
            measure(
                "store_stored_total",
                "Messages stored.",
                stats.stored as f64,
            ),
            measure(
                "store_delivered_total",
                "Messages delivered.",
                stats.delivered as f64,
            ),
            measure(
                "store_retried_total",
                "Deliveries that failed and are tried again.",
                stats.retried as f64,
            ),
            measure(
                "store_given_up_total",
                "Messages whose last try has failed.",
                stats.buried as f64,
            ),
            measure(
                "store_waiting",
                "Messages that wait for their delivery or are under way.",
                stats.waiting as f64,
            ),
            measure(
                "store_dead",
                "Dead letters that are kept.",
                stats.dead as f64,
            ),
            measure(
                "store_bytes",
                "What waiting messages and dead letters take.",
                stats.bytes as f64,
            ),
            measure(
                "store_oldest_seconds",
                "The age of the oldest message that waits.",
                oldest as f64 / 1000.0,
            ),
        ]
    }
}
