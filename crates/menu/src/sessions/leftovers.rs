//! What menus have left in the data folder that were renamed or removed: nobody reads it any more,
//! so it is deleted here when its time is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use component::handler::Services;
use component::state::{State, StateKey, States};
use journal::{Change, Durability, Keyed, Refusal};

use super::embedded::TABLE;
use super::slots::Timestamp;

/// What the keys of one store begin with in the data folder.
type Prefix = [u8; 32];

/// From one look at all that there is to the next.
const EVERY: Duration = Duration::from_secs(24 * 3600);
/// How many values are looked at together, and how long it takes at least to the next ones.
const PAGE: usize = 1000;
const PAUSE: Duration = Duration::from_secs(1);

/// The scopes that somebody in this process reads and writes.
#[derive(Default)]
pub(super) struct Scopes {
    /// With how many have each.
    live: Mutex<HashMap<Prefix, usize>>,
    /// The last key that has been looked at. It is held from the look at some values until those of
    /// no scope are deleted, and by whoever reads a scope that is new: so nobody writes a value of
    /// it before that is deleted.
    turn: tokio::sync::Mutex<Option<Bytes>>,
    /// When the next look is due: milliseconds of the time of day.
    due: AtomicU64,
}

impl State for Scopes {}

impl Scopes {
    /// Those of this process.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "menu scopes"), Self::default)
    }

    fn live(&self) -> MutexGuard<'_, HashMap<Prefix, usize>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A scope that somebody has until it is dropped.
    pub fn add(self: &Arc<Self>, prefix: Prefix) -> Scope {
        *self.live().entry(prefix).or_default() += 1;
        Scope {
            scopes: Arc::clone(self),
            prefix,
        }
    }

    /// Waits until nobody deletes.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, Option<Bytes>> {
        self.turn.lock().await
    }

    /// Looks for what menus have left, beside whoever asks, at the start and once a day: at some
    /// values each time, so that no shutdown waits for it.
    pub fn sweep_when_due(scopes: &Arc<Self>, keyed: &Keyed, services: &dyn Services) {
        let now = services.wall();
        let due = scopes.due.load(Ordering::Relaxed);
        let (next, order) = ((now + PAUSE).as_millis() as u64, Ordering::Relaxed);
        let is_due = due <= now.as_millis() as u64
            && scopes.due.compare_exchange(due, next, order, order).is_ok();
        if !is_due {
            return;
        }
        let (scopes, keyed) = (Arc::clone(scopes), keyed.clone());
        services.spawn(Box::new(|services| {
            Box::pin(async move {
                match scopes.sweep(&keyed, services.wall()).await {
                    Ok(true) => {}
                    Ok(false) => {
                        let next = services.wall() + EVERY;
                        scopes.due.store(next.as_millis() as u64, Ordering::Relaxed);
                    }
                    Err(refusal) => {
                        tracing::debug!(target: "menu", %refusal, "old sessions are not deleted");
                    }
                }
            })
        }));
    }

    /// Deletes what belongs to no scope and whose time is over, among the next values; whether
    /// there are more of them.
    pub async fn sweep(&self, keyed: &Keyed, now: Duration) -> Result<bool, Refusal> {
        let mut last = self.turn().await;
        let page = keyed.scan(TABLE, b"", last.as_deref(), PAGE).await?;
        let now = Timestamp::of(now);
        let is_over = |value: &[u8]| Timestamp::split(value).is_none_or(|(it, _)| it <= now);
        let left = page.iter().filter(|(_, value)| is_over(value));
        let left = left.filter(|(name, _)| !self.has(name));
        let changes: Vec<Change> = left
            .map(|(name, _)| Change::Delete {
                table: TABLE.into(),
                key: name.clone(),
            })
            .collect();
        if !changes.is_empty() {
            keyed.write_with(changes, Durability::Process).await?;
        }
        // The page is one allocation, of which the key must not keep all.
        *last = page.last().map(|(key, _)| Bytes::copy_from_slice(key));
        Ok(last.is_some())
    }

    /// Whether somebody has the scope of a key.
    fn has(&self, name: &[u8]) -> bool {
        let prefix = name.first_chunk::<32>();
        prefix.is_some_and(|it| self.live().contains_key(it))
    }
}

/// A scope that somebody has.
pub(super) struct Scope {
    scopes: Arc<Scopes>,
    prefix: Prefix,
}

impl Scope {
    pub fn scopes(&self) -> &Arc<Scopes> {
        &self.scopes
    }

    /// What its keys begin with.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// A key of it in the data folder.
    pub fn name(&self, key: &[u8]) -> Bytes {
        [&self.prefix, key].concat().into()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let mut live = self.scopes.live();
        if let Some(count) = live.get_mut(&self.prefix) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.prefix);
            }
        }
    }
}
