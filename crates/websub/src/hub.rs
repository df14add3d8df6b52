//! What a hub knows of its subscriptions (section 5 of the recommendation).
//!
//! A request changes nothing by itself: the hub asks the callback whether it is meant (verification
//! of intent), and the state of a subscription, which topic and callback name, is replaced when the
//! callback says yes. What it says otherwise, or not at all, leaves the state as it was.
//!
//! Whom a hub asks is chosen by strangers, so how often it does is bounded ([`Limits`]): by caller
//! and by host, failed requests for as long as it takes until they are forgotten. Subscriptions
//! that are active have a budget of their own, so that strangers cannot keep them from being
//! renewed.

mod budget;
mod party;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::request::{Refusal, Subscribe};
use crate::signature::Secret;
use crate::url::Url;
use party::{Callers, Hosts};
pub use verdict::{Denial, Restored, Verdict};

/// How long a callback may take to answer; then it has not.
pub const ANSWER_TIME: Duration = Duration::from_secs(30);
/// How long an active subscription is not verified again after that has failed.
const QUIET: Duration = Duration::from_secs(10);

/// When something happens: the time of day, and a clock that only goes forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time since 1970 began: leases are measured by it, since they outlive the process.
    pub wall: Duration,
    /// The time since the process began.
    pub at: Duration,
}

impl Moment {
    /// When a lease of so many seconds ends that begins now, in seconds since 1970: not before it
    /// is over.
    fn lease_end(self, lease: u64) -> u64 {
        let begun = u64::from(self.wall.subsec_nanos() > 0);
        let now = self.wall.as_secs().saturating_add(begun);
        now.saturating_add(lease)
    }
}

/// What a hub goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The lease of who names none, in seconds.
    pub lease: u64,
    /// The shortest lease, in seconds.
    pub lease_min: u64,
    /// The longest lease, in seconds.
    pub lease_max: u64,
    /// How much there may be.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        const DAY: u64 = 24 * 3600;
        Self {
            lease: 10 * DAY,
            lease_min: 60,
            lease_max: 90 * DAY,
            limits: Limits::default(),
        }
    }
}

/// How much there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Subscriptions in all.
    pub subscriptions: usize,
    /// Subscriptions of one caller.
    pub per_caller: usize,
    /// Subscriptions whose callbacks are on one host.
    pub per_host: usize,
    /// Requests that have not been verified yet, in all.
    pub pending: usize,
    /// The same of one caller.
    pub pending_per_caller: usize,
    /// The same of one host.
    pub pending_per_host: usize,
    /// Callbacks that are asked at the same time.
    pub in_flight: usize,
    /// The same of one host.
    pub in_flight_per_host: usize,
    /// Failed verifications of one caller within `failure_time`.
    pub failures_per_caller: u32,
    /// Failed verifications on one host within `failure_time` of callers that had failed before;
    /// ten times as many of those that had not, and as many again of active subscriptions.
    pub failures_per_host: u32,
    /// After which time so many failures are forgotten.
    pub failure_time: Duration,
    /// Callers, and hosts, that are known at a time.
    pub parties: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            subscriptions: 100_000,
            per_caller: 10_000,
            per_host: 100_000,
            pending: 20_000,
            pending_per_caller: 10_000,
            pending_per_host: 10_000,
            in_flight: 64,
            in_flight_per_host: 8,
            failures_per_caller: 20,
            failures_per_host: 20,
            failure_time: Duration::from_secs(600),
            parties: 100_000,
        }
    }
}

/// What is asked for a topic and a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Intent {
    Subscribe { lease: u64, secret: Option<Secret> },
    Unsubscribe,
}

impl Intent {
    fn mode(&self) -> &'static str {
        match self {
            Self::Subscribe { .. } => "subscribe",
            Self::Unsubscribe => "unsubscribe",
        }
    }
}

/// A request that has been accepted.
#[derive(Clone, Debug)]
struct Pending {
    id: u64,
    intent: Intent,
    caller: Arc<str>,
    /// Whether a place among the subscriptions is kept free for it.
    reserves: bool,
    /// What the callback has been asked to repeat, once it has been asked.
    challenge: Option<String>,
}

/// A subscription that its callback has confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Where the topic is delivered.
    pub callback: Url,
    /// What deliveries are signed with.
    pub secret: Option<Secret>,
    /// Who has asked for it.
    pub caller: Arc<str>,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
    /// Which state of the subscription this is: another one after each verification.
    pub version: u64,
}

/// What is kept of a subscription over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The topic.
    pub topic: Arc<str>,
    /// The callback.
    pub callback: Arc<str>,
    /// What deliveries are signed with.
    pub secret: Option<Secret>,
    /// Who has asked for it.
    pub caller: Arc<str>,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
}

/// What is to be written to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This is the state of a subscription.
    Put(Record),
    /// It has ended.
    Remove {
        /// The topic.
        topic: Arc<str>,
        /// The callback.
        callback: Arc<str>,
    },
}

/// A callback that is to be asked by `GET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// What [`Hub::answered`] is told.
    pub id: u64,
    /// The topic.
    pub topic: Arc<str>,
    /// The callback.
    pub callback: Url,
    /// The query of the request, in place of that of the callback.
    pub query: String,
}

/// How a callback has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// With this status and this whole body.
    Reply(u16, &'a [u8]),
    /// Not at all, or not in time.
    Nothing,
}

/// What is known of a topic and a callback.
#[derive(Debug)]
struct Entry {
    callback: Url,
    active: Option<Subscription>,
    /// The request that is being verified, or waits for it.
    pending: Option<Pending>,
    /// The last request that came while the callback was being asked.
    next: Option<Pending>,
    /// Until when the active subscription is not verified again.
    quiet: Duration,
}

/// Topic and callback.
type Key = (Arc<str>, Arc<str>);

/// The subscriptions of a hub.
#[derive(Debug)]
pub struct Hub {
    settings: Settings,
    topics: HashMap<Arc<str>, HashMap<Arc<str>, Entry>>,
    hosts: Hosts,
    callers: Callers,
    /// Requests that wait for verification or its answer.
    pending: HashMap<u64, Key>,
    /// The callbacks that are asked: their hosts, and since when.
    in_flight: HashMap<u64, (Arc<str>, Duration)>,
    /// When subscriptions end, by their versions.
    ends: BTreeMap<(u64, u64), Key>,
    /// How many subscriptions there are, and for how many places are kept free.
    active: usize,
    reserved: usize,
    last: u64,
    dropped: u64,
    changes: Vec<Change>,
}

impl Hub {
    /// A hub without subscriptions.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            topics: HashMap::new(),
            hosts: Hosts::default(),
            callers: Callers::default(),
            pending: HashMap::new(),
            in_flight: HashMap::new(),
            ends: BTreeMap::new(),
            active: 0,
            reserved: 0,
            last: 0,
            dropped: 0,
            changes: Vec::new(),
        }
    }

    /// Goes by other settings from now on. What there is stays.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Takes up a subscription that was written to the disk. One that is active is left as it is:
    /// it may have been renewed since.
    pub fn restore(&mut self, record: Record, now: Moment) -> Restored {
        if self.get(&record.topic, &record.callback).is_some() {
            return Restored::Known;
        }
        let Ok(callback) = Url::parse(&record.callback) else {
            return Restored::Over;
        };
        // Leases do not grow when the clock is put back.
        let expires = record.expires.min(now.lease_end(self.settings.lease_max));
        if expires <= now.wall.as_secs() {
            return Restored::Over;
        }
        let subscription = Subscription {
            secret: record.secret,
            caller: record.caller,
            expires,
            version: self.number(),
            callback: callback.clone(),
        };
        self.entry(&record.topic, &callback);
        self.put((record.topic, Arc::clone(callback.text())), subscription);
        Restored::Active
    }

    /// Takes a request for a subscription. Whether it comes to one is found out later.
    ///
    /// # Errors
    /// When there is no room for it, or too many requests have failed.
    pub fn subscribe(
        &mut self,
        request: Subscribe,
        caller: &Arc<str>,
        now: Moment,
    ) -> Result<(), Refusal> {
        let Settings {
            lease,
            lease_min,
            lease_max,
            ..
        } = self.settings;
        let lease = request.lease.unwrap_or(lease).min(lease_max).max(lease_min);
        let intent = Intent::Subscribe {
            lease,
            secret: request.secret,
        };
        self.accept((request.topic, request.callback), intent, caller, now)
    }

    /// Takes a request to end a subscription. One that does not exist is not asked about.
    ///
    /// # Errors
    /// When too many requests wait or have failed.
    pub fn unsubscribe(
        &mut self,
        (topic, callback): (Arc<str>, Url),
        caller: &Arc<str>,
        now: Moment,
    ) -> Result<(), Refusal> {
        if self.find(&topic, callback.text()).is_none() {
            return Ok(());
        }
        self.accept((topic, callback), Intent::Unsubscribe, caller, now)
    }

    fn accept(
        &mut self,
        (topic, callback): (Arc<str>, Url),
        intent: Intent,
        caller: &Arc<str>,
        now: Moment,
    ) -> Result<(), Refusal> {
        let subscribes = matches!(intent, Intent::Subscribe { .. });
        let reserves = self.admit((&topic, &callback), (caller, subscribes), now)?;
        let entry = self.find(&topic, callback.text());
        let waiting = entry.and_then(|it| it.pending.as_ref());
        let waiting = waiting.filter(|it| it.challenge.is_none()).cloned();
        self.callers.add(caller, reserves);
        self.hosts.add(callback.host(), reserves);
        self.reserved += usize::from(reserves);
        let mut pending = Pending {
            id: 0,
            intent,
            caller: Arc::clone(caller),
            reserves,
            challenge: None,
        };
        // What has not been asked yet does not have to be: the newest request counts.
        if let Some(waiting) = waiting {
            self.release(&waiting, callback.host());
            pending.id = waiting.id;
            self.entry(&topic, &callback).pending = Some(pending);
            return Ok(());
        }
        let id = self.number();
        pending.id = id;
        let key = (Arc::clone(&topic), Arc::clone(callback.text()));
        self.pending.insert(id, key);
        let entry = self.entry(&topic, &callback);
        if entry.pending.is_some() {
            if let Some(replaced) = entry.next.replace(pending) {
                self.forget(&replaced, callback.host());
            }
            return Ok(());
        }
        entry.pending = Some(pending);
        self.hosts.queue(callback.host(), id, &self.settings.limits);
        Ok(())
    }

    /// Whether a request can be accepted now; gives whether a place has to be kept free for it.
    fn admit(
        &mut self,
        (topic, callback): (&str, &Url),
        (caller, subscribes): (&Arc<str>, bool),
        now: Moment,
    ) -> Result<bool, Refusal> {
        let entry = self.find(topic, callback.text());
        let active = entry.and_then(|it| it.active.as_ref());
        let is_active = active.is_some();
        let is_more = subscribes && active.is_none_or(|it| it.caller != *caller);
        let reserves = subscribes && !is_active;
        let quiet = entry.map_or(Duration::ZERO, |it| it.quiet);
        if is_active && quiet > now.at {
            let seconds = (quiet - now.at).as_secs() + 1;
            return Err(Refusal::later(
                429,
                "the callback has just said no",
                seconds,
            ));
        }
        let limits = &self.settings.limits;
        let standing = self.callers.standing(caller, is_active, now.at);
        self.callers
            .admit(caller, (is_more, standing), limits, now.at)?;
        let host = callback.host();
        self.hosts
            .admit(host, (reserves, standing), limits, now.at)?;
        if reserves && self.active + self.reserved >= limits.subscriptions {
            return Err(Refusal::later(503, "there are too many subscriptions", 60));
        }
        if self.pending.len() >= limits.pending {
            return Err(Refusal::later(503, "too many requests wait", 5));
        }
        Ok(reserves)
    }

    /// The next callback to be asked, if one can be asked now. `random` gives a text that nobody
    /// can guess, or `None` when the system has none.
    pub fn next(
        &mut self,
        now: Moment,
        mut random: impl FnMut() -> Option<String>,
    ) -> Option<Verification> {
        while self.in_flight.len() < self.settings.limits.in_flight {
            let (host, id) = self.hosts.next()?;
            let asked = self.ask((&host, id), now, &mut random);
            if asked.is_some() {
                self.in_flight.insert(id, (Arc::clone(&host), now.at));
                self.hosts.begin(&host);
            }
            self.hosts.look(&host, &self.settings.limits);
            if asked.is_some() {
                return asked;
            }
        }
        None
    }

    /// Makes the question about a request whose turn it is, unless others have failed since.
    fn ask(
        &mut self,
        (host, id): (&Arc<str>, u64),
        now: Moment,
        random: &mut impl FnMut() -> Option<String>,
    ) -> Option<Verification> {
        // One that was ended with its subscription is still in the queue.
        let key = self.pending.get(&id).cloned()?;
        let limits = &self.settings.limits;
        let entry = self.topics.get_mut(&key.0)?.get_mut(&key.1)?;
        let is_active = entry.active.is_some();
        let pending = entry.pending.as_mut().filter(|it| it.id == id)?;
        let standing = self.callers.standing(&pending.caller, is_active, now.at);
        let is_spent = self
            .callers
            .is_spent(&pending.caller, standing, limits, now.at)
            || self.hosts.is_spent(host, standing, limits, now.at);
        let Some(challenge) = random().filter(|_| !is_spent) else {
            self.drop_pending(&key, host);
            return None;
        };
        let mut parameters = vec![
            ("hub.mode", pending.intent.mode()),
            ("hub.topic", &*key.0),
            ("hub.challenge", challenge.as_str()),
        ];
        let lease = match &pending.intent {
            Intent::Subscribe { lease, .. } => Some(lease.to_string()),
            Intent::Unsubscribe => None,
        };
        parameters.extend(lease.as_deref().map(|it| ("hub.lease_seconds", it)));
        let query = entry.callback.query_with(parameters);
        pending.challenge = Some(challenge);
        Some(Verification {
            id,
            topic: Arc::clone(&key.0),
            callback: entry.callback.clone(),
            query,
        })
    }

    /// Takes the answer of a callback that was asked.
    pub fn answered(&mut self, id: u64, answer: Answer<'_>, now: Moment) -> Verdict {
        let Some((host, _)) = self.in_flight.remove(&id) else {
            return Verdict::Over;
        };
        self.hosts.end(&host, &self.settings.limits);
        // invariant: a request under way is the pending one of its key, unless it was ended.
        let Some(key) = self.pending.get(&id).cloned() else {
            return Verdict::Over;
        };
        let Some(entry) = self.find_mut(&key) else {
            return Verdict::Over;
        };
        let is_active = entry.active.is_some();
        let Some(pending) = entry.pending.take_if(|it| it.id == id) else {
            return Verdict::Over;
        };
        let next = entry.next.take();
        let next_id = next.as_ref().map(|it| it.id);
        entry.pending = next;
        self.forget(&pending, &host);
        if let Some(id) = next_id {
            self.hosts.queue(&host, id, &self.settings.limits);
        }
        let challenge = pending.challenge.as_deref().unwrap_or_default();
        let is_confirmed = match answer {
            Answer::Reply(200..=299, body) => !challenge.is_empty() && body == challenge.as_bytes(),
            _ => false,
        };
        let verdict = match is_confirmed {
            true => self.apply(&key, pending, now),
            false => {
                let limits = &self.settings.limits;
                let standing = self.callers.standing(&pending.caller, is_active, now.at);
                self.callers.fail(&pending.caller, limits, now.at);
                self.hosts.fail(&host, standing, limits, now.at);
                if let Some(entry) = self.find_mut(&key).filter(|_| is_active) {
                    entry.quiet = now.at + QUIET;
                }
                Verdict::Failed
            }
        };
        self.tidy(&key);
        verdict
    }

    fn apply(&mut self, key: &Key, pending: Pending, now: Moment) -> Verdict {
        let (lease, secret) = match pending.intent {
            Intent::Unsubscribe => {
                self.end(key);
                return Verdict::Unsubscribed;
            }
            Intent::Subscribe { lease, secret } => (lease, secret),
        };
        let version = self.number();
        let limits = &self.settings.limits;
        let Some(entry) = self.topics.get(&key.0).and_then(|it| it.get(&key.1)) else {
            return Verdict::Over;
        };
        // It may have become a new one while the callback was asked. Its own place, if it had one,
        // is free again.
        let active = entry.active.as_ref();
        let host = entry.callback.host();
        let has_room = active.is_some()
            || (self.active + self.reserved < limits.subscriptions
                && !self.hosts.is_full(host, limits)
                && !self.callers.is_full(&pending.caller, limits));
        if !has_room {
            let reason = Some("there are too many subscriptions");
            return Verdict::Denied(Denial::new(&key.0, &entry.callback, reason));
        }
        // A caller without room renews what another one has.
        let owner = match active {
            Some(active) if self.callers.is_full(&pending.caller, limits) => {
                Arc::clone(&active.caller)
            }
            _ => pending.caller,
        };
        let subscription = Subscription {
            callback: entry.callback.clone(),
            secret,
            caller: owner,
            expires: now.lease_end(lease),
            version,
        };
        self.changes.push(Change::Put(Record {
            topic: Arc::clone(&key.0),
            callback: Arc::clone(&key.1),
            secret: subscription.secret.clone(),
            caller: Arc::clone(&subscription.caller),
            expires: subscription.expires,
        }));
        self.put(key.clone(), subscription);
        Verdict::Subscribed
    }

    /// Replaces the state of a subscription.
    fn put(&mut self, key: Key, subscription: Subscription) {
        self.remove(&key);
        self.callers.activate(&subscription.caller);
        self.hosts.activate(subscription.callback.host());
        self.active += 1;
        let end = (subscription.expires, subscription.version);
        if let Some(entry) = self.find_mut(&key) {
            entry.active = Some(subscription);
        }
        self.ends.insert(end, key);
    }

    /// Takes the state of a subscription away.
    fn remove(&mut self, key: &Key) -> Option<Subscription> {
        let removed = self.find_mut(key)?.active.take()?;
        self.callers.deactivate(&removed.caller);
        self.hosts.deactivate(removed.callback.host());
        self.active -= 1;
        self.ends.remove(&(removed.expires, removed.version));
        Some(removed)
    }

    /// Ends a subscription, on the disk too.
    fn end(&mut self, key: &Key) -> Option<Subscription> {
        let removed = self.remove(key)?;
        self.changes.push(Change::Remove {
            topic: Arc::clone(&key.0),
            callback: Arc::clone(&key.1),
        });
        Some(removed)
    }

    /// The callback has answered a delivery with 410: the subscription ends, unless it has been
    /// confirmed again since. Whether it has ended.
    pub fn gone(&mut self, topic: &Arc<str>, callback: &Arc<str>, version: u64) -> bool {
        let is_it = self
            .get(topic, callback)
            .is_some_and(|it| it.version == version);
        let key = (Arc::clone(topic), Arc::clone(callback));
        let has_ended = is_it && self.end(&key).is_some();
        self.tidy(&key);
        has_ended
    }

    /// Ends a subscription for a reason that the subscriber is to be told, and every request about
    /// it.
    pub fn deny(
        &mut self,
        topic: &Arc<str>,
        callback: &Arc<str>,
        reason: Option<&str>,
    ) -> Option<Denial> {
        let key = (Arc::clone(topic), Arc::clone(callback));
        let entry = self.find_mut(&key)?;
        let requests = [entry.pending.take(), entry.next.take()];
        let callback = entry.callback.clone();
        for request in requests.into_iter().flatten() {
            self.forget(&request, callback.host());
        }
        let ended = self.end(&key);
        self.tidy(&key);
        ended?;
        Some(Denial::new(topic, &callback, reason))
    }

    /// Ends what is over: leases, questions without an answer, failures that are long ago. The
    /// subscriptions that have ended, by topic and callback.
    pub fn expire(&mut self, now: Moment) -> Vec<(Arc<str>, Arc<str>)> {
        let mut ended = Vec::new();
        while let Some((&(expires, _), key)) = self.ends.first_key_value()
            && expires <= now.wall.as_secs()
        {
            let key = key.clone();
            // invariant: what is among the ends is active, so that each turn takes one away.
            self.end(&key);
            self.tidy(&key);
            ended.push(key);
        }
        let late = self.in_flight.iter();
        let late = late.filter(|(_, (_, since))| since.saturating_add(ANSWER_TIME) <= now.at);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.answered(id, Answer::Nothing, now);
        }
        self.hosts.tidy(now.at);
        self.callers.tidy(now.at);
        ended
    }

    /// When the next lease ends, in seconds since 1970.
    pub fn next_end(&self) -> Option<u64> {
        self.ends
            .first_key_value()
            .map(|((expires, _), _)| *expires)
    }

    /// What is to be written to the disk, in this order.
    pub fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The state of a subscription.
    pub fn get(&self, topic: &str, callback: &str) -> Option<&Subscription> {
        self.find(topic, callback)?.active.as_ref()
    }

    /// The subscriptions to a topic.
    pub fn subscriptions(&self, topic: &str) -> impl Iterator<Item = &Subscription> {
        let entries = self.topics.get(topic).into_iter().flat_map(HashMap::values);
        entries.filter_map(|it| it.active.as_ref())
    }

    /// How many requests have been dropped unasked since others have failed.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How many subscriptions there are, and how many requests wait to be verified.
    pub fn counts(&self) -> (usize, usize) {
        (self.active, self.pending.len())
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn find(&self, topic: &str, callback: &str) -> Option<&Entry> {
        self.topics.get(topic)?.get(callback)
    }

    fn find_mut(&mut self, (topic, callback): &Key) -> Option<&mut Entry> {
        self.topics.get_mut(topic)?.get_mut(callback)
    }

    fn entry(&mut self, topic: &Arc<str>, callback: &Url) -> &mut Entry {
        let callbacks = self.topics.entry(Arc::clone(topic)).or_default();
        let key = Arc::clone(callback.text());
        callbacks.entry(key).or_insert_with(|| Entry {
            callback: callback.clone(),
            active: None,
            pending: None,
            next: None,
            quiet: Duration::ZERO,
        })
    }

    /// A request does not wait any more.
    fn forget(&mut self, pending: &Pending, host: &Arc<str>) {
        self.pending.remove(&pending.id);
        self.release(pending, host);
    }

    /// What a request has taken of caller and host is free again.
    fn release(&mut self, pending: &Pending, host: &Arc<str>) {
        self.callers.remove(&pending.caller, pending.reserves);
        self.hosts.remove(host, pending.reserves);
        self.reserved -= usize::from(pending.reserves);
    }

    /// Drops a request that has not been asked about.
    fn drop_pending(&mut self, key: &Key, host: &Arc<str>) {
        let pending = self.find_mut(key).and_then(|it| it.pending.take());
        if let Some(pending) = pending {
            self.forget(&pending, host);
            self.dropped += 1;
        }
        self.tidy(key);
    }

    /// Forgets a topic and a callback of which nothing is known.
    fn tidy(&mut self, (topic, callback): &Key) {
        let Some(callbacks) = self.topics.get_mut(topic) else {
            return;
        };
        let is_empty =
            |it: &Entry| it.active.is_none() && it.pending.is_none() && it.next.is_none();
        if callbacks.get(callback).is_some_and(is_empty) {
            callbacks.remove(callback);
        }
        if callbacks.is_empty() {
            self.topics.remove(topic);
        }
    }
}
