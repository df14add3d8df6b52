//! Subscriptions of users: what they have made by REST, durable in the keyed state.
//!
//! [`record`] is one of them, its secrets and the values of its [`headers`] sealed. [`registry`]
//! knows all of a topic, without input or output. [`Subscriptions`] is the registry of the process
//! beside the disk: a change is written first and then seen, and the drivers are notified of it.

pub(super) mod headers;
mod loading;
pub(super) mod record;
pub(super) mod registry;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use access::sealing_keys::SealingKeys;
use bytes::Bytes;
use component::state::{Measure, State, StateKey, States};
use journal::{Change, Keyed, Refusal as NotWritten};

use self::loading::{Cursors, Shared};
pub(crate) use self::record::SUBSCRIPTIONS;
use self::record::Subscription;
use self::registry::{Known, Registry, Reserved};
use super::state::{
    Bell, Counts, EndpointGroup, EndpointKind, EndpointState, Health, Records, Stored, TABLE, key,
};
use crate::log::{Log, Slot};

/// How often secrets are looked for that another key has sealed, and how long is in between.
const RESEAL_ROUNDS: u32 = 100;
const RESEAL_PAUSE: Duration = Duration::from_millis(10);
/// How many records are written at once.
const AT_ONCE: usize = 1000;

/// The subscriptions of a topic, whichever plan is served.
pub(crate) struct Subscriptions {
    topic: Arc<str>,
    inner: Mutex<Inner>,
    group: Arc<EndpointGroup>,
    /// Whether URLs have to answer a challenge, by the last plan.
    challenges: AtomicBool,
}

#[derive(Default)]
struct Inner {
    registry: Registry,
    is_open: bool,
    /// The drivers that are notified of changes.
    bells: Vec<Weak<Bell>>,
}

impl Subscriptions {
    /// Those of a topic.
    pub fn of((topic, slot): (&Arc<str>, &Arc<Slot>), states: &States) -> Arc<Self> {
        let key = StateKey {
            flow: Arc::clone(topic),
            step: "".into(),
            kind: "webhook subscriptions",
            settings: String::new(),
        };
        states.get(key, || Self::new(topic, slot))
    }

    fn new(topic: &Arc<str>, slot: &Arc<Slot>) -> Self {
        Self {
            topic: Arc::clone(topic),
            inner: Mutex::default(),
            group: EndpointGroup::new((topic, slot), EndpointKind::Webhook),
            challenges: AtomicBool::new(true),
        }
    }

    /// Whether URLs have to answer a challenge from here on.
    pub fn set_challenges(&self, challenges: bool) {
        self.challenges.store(challenges, Ordering::Relaxed);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the registry, or changes what is only in memory.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Registry) -> T) -> T {
        look(&mut self.inner().registry)
    }

    /// The one of this id.
    pub(super) fn get(&self, id: &str) -> Option<Known> {
        self.inner().registry.get(id).cloned()
    }

    /// Has this bell rung for each change from now on, and gives all that there are.
    pub(super) fn watch(&self, bell: &Arc<Bell>) -> Vec<Known> {
        let mut inner = self.inner();
        inner.bells.retain(|it| it.strong_count() > 0);
        inner.bells.push(Arc::downgrade(bell));
        inner.registry.all().cloned().collect()
    }

    fn tell(inner: &Inner, id: &Arc<str>) {
        for bell in inner.bells.iter().filter_map(Weak::upgrade) {
            bell.ring_changed(id);
        }
    }

    fn put(&self, subscription: &Subscription) -> Change {
        Change::Put {
            table: SUBSCRIPTIONS.into(),
            key: key(&self.topic, &subscription.id),
            value: subscription.to_bytes(),
        }
    }

    /// What is known of the delivery of a new one.
    fn state(&self, id: &Arc<str>, stored: Stored) -> Arc<EndpointState> {
        EndpointState::unlisted(&self.group, Arc::clone(id), stored)
    }

    /// Writes a new one down that has been reserved, with where it begins. It is there then.
    ///
    /// # Errors
    /// When it may not be on the disk.
    pub(super) async fn create(
        self: &Arc<Self>,
        reserved: Reserving,
        (subscription, start): (Subscription, Stored),
        keyed: &Keyed,
    ) -> Result<Known, NotWritten> {
        let cursor = Change::Put {
            table: TABLE.into(),
            key: key(&self.topic, &subscription.id),
            value: start.to_bytes(),
        };
        keyed.write(vec![self.put(&subscription), cursor]).await?;
        let state = self.state(&subscription.id, start);
        let id = Arc::clone(&subscription.id);
        let known = Known {
            subscription: Arc::new(subscription),
            state,
        };
        reserved.finish(known.clone());
        Self::tell(&self.inner(), &id);
        Ok(self.get(&id).unwrap_or(known))
    }

    /// Writes a change down. It is seen then.
    ///
    /// # Errors
    /// When it may not be on the disk.
    pub(super) async fn change(
        &self,
        changing: &Changing,
        subscription: Subscription,
        keyed: &Keyed,
    ) -> Result<Known, NotWritten> {
        keyed.write(vec![self.put(&subscription)]).await?;
        let id = Arc::clone(&subscription.id);
        let known = Known {
            subscription: Arc::new(subscription),
            state: Arc::clone(&changing.known.state),
        };
        let mut inner = self.inner();
        inner.registry.put(known.clone());
        Self::tell(&inner, &id);
        Ok(inner.registry.get(&id).cloned().unwrap_or(known))
    }

    /// Deletes one, with its cursor.
    ///
    /// # Errors
    /// When that may not be on the disk.
    pub(super) async fn delete(
        &self,
        changing: &Changing,
        keyed: &Keyed,
    ) -> Result<(), NotWritten> {
        let id = &changing.known.subscription.id;
        let key = key(&self.topic, id);
        let delete = |table: &str| Change::Delete {
            table: table.into(),
            key: key.clone(),
        };
        keyed
            .write(vec![delete(SUBSCRIPTIONS), delete(TABLE)])
            .await?;
        let mut inner = self.inner();
        inner.registry.remove(id);
        Self::tell(&inner, id);
        Ok(())
    }

    /// Takes one to change it, as it is now. None when somebody else changes it.
    pub(super) fn begin_change(self: &Arc<Self>, id: &str) -> Result<Option<Changing>, Missing> {
        let mut inner = self.inner();
        let known = inner.registry.get(id).cloned().ok_or(Missing)?;
        let is_free = inner.registry.begin_change(&known.subscription.id);
        drop(inner);
        Ok(is_free.then(|| Changing {
            all: Arc::clone(self),
            known,
        }))
    }

    /// Reads what is on the disk, unless that is done, and sees to it that all secrets can be
    /// opened with these keys.
    ///
    /// # Errors
    /// When something cannot be read, is missing or cannot be opened.
    pub async fn open(&self, log: &Log, keyed: &Keyed, keys: &SealingKeys) -> Result<(), String> {
        let is_open = self.inner().is_open;
        if !is_open {
            self.load(log, keyed).await?;
        }
        for known in self.sealed_otherwise(keys) {
            let mut subscription = Subscription::clone(&known.subscription);
            let opened = subscription.reseal(&self.topic, keys);
            opened.map_err(|why| {
                let id = &subscription.id;
                format!("the secret of the webhook {id} cannot be opened with `secrets_key`: {why}")
            })?;
        }
        Ok(())
    }

    /// Those with secrets that another key than the first of these has sealed.
    fn sealed_otherwise(&self, keys: &SealingKeys) -> Vec<Known> {
        let inner = self.inner();
        let all = inner.registry.all();
        let others = all.filter(|it| !it.subscription.is_current(keys));
        others.cloned().collect()
    }

    async fn load(&self, log: &Log, keyed: &Keyed) -> Result<(), String> {
        let mut cursors = Cursors::new(keyed, &self.topic);
        let mut records = Records::new(keyed, SUBSCRIPTIONS, &self.topic);
        let mut all = Vec::new();
        let mut shared = Shared::default();
        while let Some(some) = records.next().await? {
            for (key, value) in some {
                let cursor = cursors.find(&key).await?;
                let mut known = self.read((&key, &value), cursor)?;
                shared.share(Arc::make_mut(&mut known.subscription));
                all.push(known);
            }
        }
        let left = cursors.orphans().await?;
        if !left.is_empty() {
            let written = keyed.write(left).await;
            written
                .map_err(|error| format!("old cursors of webhooks cannot be deleted: {error}"))?;
        }
        let count = all.len();
        let mut inner = self.inner();
        all.into_iter().for_each(|it| inner.registry.put(it));
        inner.is_open = true;
        drop(inner);
        let topic = &*log.name;
        tracing::debug!(target: "topics", topic, count, "webhook subscriptions have been read");
        Ok(())
    }

    /// One that is on the disk, and where it is.
    fn read(&self, (key, value): (&[u8], &[u8]), cursor: Option<Bytes>) -> Result<Known, String> {
        let id = key.get(self.topic.len() + 1..).unwrap_or_default();
        let id = std::str::from_utf8(id).map_err(|error| error.to_string())?;
        let subscription = Subscription::of_bytes(id, value)
            .map_err(|error| format!("the webhook subscription {id} cannot be read: {error}"))?;
        let stored = cursor.as_deref().and_then(Stored::of_bytes);
        // Both are written at once.
        let stored = stored.ok_or_else(|| format!("where the webhook {id} is, is not noted"))?;
        let state = self.state(&subscription.id, stored);
        state.trust();
        Ok(Known {
            subscription: Arc::new(subscription),
            state,
        })
    }

    /// Seals secrets with the first of these keys that are sealed with another one, so that the
    /// others can be given up. The plan with these keys is served.
    pub async fn reseal(self: &Arc<Self>, keyed: &Keyed, keys: &SealingKeys) {
        let (topic, mut count) = (&*self.topic, 0);
        for _ in 0..RESEAL_ROUNDS {
            let all = self.sealed_otherwise(keys);
            if all.is_empty() {
                break;
            }
            for part in all.chunks(AT_ONCE) {
                match self.reseal_part(part, keyed, keys).await {
                    Ok(done) => count += done,
                    Err(error) => {
                        tracing::error!(
                            target: "topics", topic, error,
                            "secrets of webhooks are not sealed with the first `secrets_key`: \
                             keep the others"
                        );
                        return;
                    }
                }
            }
            // Those that are being changed are taken in the next round.
            tokio::time::sleep(RESEAL_PAUSE).await;
        }
        if count > 0 {
            tracing::info!(
                target: "topics", topic, count,
                "secrets of webhooks are sealed with the first `secrets_key` now"
            );
        }
    }

    /// Seals the secrets of some with the first of these keys; of how many.
    async fn reseal_part(
        self: &Arc<Self>,
        part: &[Known],
        keyed: &Keyed,
        keys: &SealingKeys,
    ) -> Result<usize, String> {
        let (mut taken, mut resealed) = (Vec::new(), Vec::new());
        for known in part {
            // What somebody else changes, or has deleted, is not written over.
            let Ok(Some(changing)) = self.begin_change(&known.subscription.id) else {
                continue;
            };
            let mut subscription = Subscription::clone(&changing.known.subscription);
            if subscription.reseal(&self.topic, keys)? {
                resealed.push(subscription);
            }
            taken.push(changing);
        }
        if resealed.is_empty() {
            return Ok(0);
        }
        let changes = resealed.iter().map(|it| self.put(it)).collect();
        let written = keyed.write(changes).await;
        written.map_err(|refusal| refusal.to_string())?;
        let count = resealed.len();
        let mut inner = self.inner();
        for subscription in resealed {
            if let Some(known) = inner.registry.get(&subscription.id).cloned() {
                let subscription = Arc::new(subscription);
                inner.registry.put(Known {
                    subscription,
                    ..known
                });
            }
        }
        // The right to change them is given back without this lock, which that needs.
        drop(inner);
        drop(taken);
        Ok(count)
    }
}

/// There is no such subscription.
#[derive(Debug)]
pub(super) struct Missing;

/// The right to create a subscription, until this is dropped.
pub(super) struct Reserving {
    all: Arc<Subscriptions>,
    pub reserved: Option<Reserved>,
}

impl Reserving {
    /// Holds what has been reserved.
    pub fn new(all: &Arc<Subscriptions>, reserved: Reserved) -> Self {
        Self {
            all: Arc::clone(all),
            reserved: Some(reserved),
        }
    }

    fn finish(mut self, known: Known) {
        if let Some(reserved) = self.reserved.take() {
            self.all.with(|it| it.finish(&reserved, Some(known)));
        }
    }
}

impl Drop for Reserving {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.all.with(|it| it.finish(&reserved, None));
        }
    }
}

/// The right to change a subscription, until this is dropped.
pub(super) struct Changing {
    all: Arc<Subscriptions>,
    /// As it was when this began: nobody else changes it.
    pub known: Known,
}

impl Drop for Changing {
    fn drop(&mut self) {
        let id = &self.known.subscription.id;
        self.all.with(|it| it.end_change(id));
    }
}

impl State for Subscriptions {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let counts = &self.group.counts;
        let mut numbers = [0.0; 4];
        let (mut unverified, mut behind) = (0.0, 0);
        let challenges = self.challenges.load(Ordering::Relaxed);
        let inner = self.inner();
        for known in inner.registry.all() {
            behind = behind.max(known.state.lag_events());
            match known.subscription.is_verified || !challenges {
                true => numbers[known.state.health().0 as usize] += 1.0,
                false => unverified += 1.0,
            }
        }
        drop(inner);
        let of = |health: Health| numbers[health as usize];
        measures(
            counts,
            [of(Health::Active), of(Health::Down), of(Health::Paused)],
        )
        .into_iter()
        .chain([
            gauge(
                "webhook_subscriptions_disabled",
                "Subscriptions that are disabled.",
                of(Health::Disabled),
            ),
            gauge(
                "webhook_subscriptions_unverified",
                "Subscriptions whose URL has not answered a challenge.",
                unverified,
            ),
            gauge(
                "webhook_subscriptions_lag_events",
                "Events that the subscription has not got yet that is furthest behind.",
                behind as f64,
            ),
        ])
        .collect()
    }
}

fn gauge(name: &'static str, help: &'static str, value: f64) -> Measure {
    Measure { name, help, value }
}

fn measures(counts: &Counts, [active, down, paused]: [f64; 3]) -> Vec<Measure> {
    let count = |name, help, counter: &AtomicU64| {
        let value = counter.load(Ordering::Relaxed) as f64;
        gauge(name, help, value)
    };
    vec![
        gauge(
            "webhook_subscriptions_active",
            "Subscriptions that take events.",
            active,
        ),
        gauge(
            "webhook_subscriptions_down",
            "Subscriptions that take no events at the moment.",
            down,
        ),
        gauge(
            "webhook_subscriptions_paused",
            "Subscriptions that are paused.",
            paused,
        ),
        count(
            "webhook_subscriptions_delivered_total",
            "Events that subscriptions have taken.",
            &counts.delivered,
        ),
        count(
            "webhook_subscriptions_failed_total",
            "Requests that subscriptions could not take.",
            &counts.failed,
        ),
        count(
            "webhook_subscriptions_refused_total",
            "Requests that subscriptions have refused.",
            &counts.refused,
        ),
        count(
            "webhook_subscriptions_dead_letters_total",
            "Events of subscriptions that have become dead letters.",
            &counts.dead_letters,
        ),
        count(
            "webhook_subscriptions_missed_total",
            "Events that were not kept any more when subscriptions could have got them.",
            &counts.gaps,
        ),
    ]
}
