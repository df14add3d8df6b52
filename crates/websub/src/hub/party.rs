//! Who makes a hub ask somebody, and who is asked: callers and hosts, with how much of each there
//! is.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Limits;
use super::budget::{Allowed, Failures};
use crate::request::Refusal;

/// How long a table that is full is not looked through again for room.
const TIDY: Duration = Duration::from_secs(1);
/// How many more failures a host may have of active subscriptions, and of callers that have not
/// failed themselves.
const GOOD_SHARE: u32 = 10;

/// Who asks for something on a host. What each of them may fail is counted apart, so that whoever
/// has callbacks asked in vain closes a host to itself and not to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is about an active subscription.
    Active,
    /// A caller of whom no request has failed lately.
    Clean,
    /// A caller of whom one has.
    Failing,
}

/// What there is of a caller or a host.
#[derive(Debug, Default)]
struct Counts {
    active: usize,
    /// Requests that wait to be verified or for the answer.
    pending: usize,
    /// Places that are kept free for those of them that make a new subscription.
    reserved: usize,
}

impl Counts {
    fn add(&mut self, reserves: bool) {
        self.pending += 1;
        self.reserved += usize::from(reserves);
    }

    fn remove(&mut self, reserves: bool) {
        self.pending -= 1;
        self.reserved -= usize::from(reserves);
    }

    /// Places that are taken or kept free.
    fn taken(&self) -> usize {
        self.active + self.reserved
    }

    fn is_empty(&self) -> bool {
        self.active == 0 && self.pending == 0
    }
}

fn too_many_failures(wait: Duration) -> Refusal {
    let reason = "too many callbacks have not confirmed what was asked for them";
    Refusal::later(429, reason, wait.as_secs() + 1)
}

fn full_table() -> Refusal {
    Refusal::later(503, "the hub is busy", 10)
}

fn too_many(what: &str) -> Refusal {
    Refusal {
        status: 403,
        reason: format!("there are too many subscriptions {what}"),
        retry_after: None,
    }
}

/// The callers that something is known of.
#[derive(Debug, Default)]
pub(super) struct Callers {
    known: HashMap<Arc<str>, Caller>,
    tidied: Duration,
}

#[derive(Debug, Default)]
struct Caller {
    counts: Counts,
    failures: Failures,
}

impl Callers {
    fn allowed(limits: &Limits) -> Allowed {
        Allowed {
            failures: limits.failures_per_caller,
            time: limits.failure_time,
        }
    }

    /// Whether a request of a caller can be accepted, which may get it one subscription more.
    ///
    /// An active subscription can always be renewed: its callback has agreed before, and otherwise
    /// a subscriber would lose it because of failing callers behind the same address.
    pub fn admit(
        &mut self,
        name: &Arc<str>,
        (is_more, standing): (bool, Standing),
        limits: &Limits,
        now: Duration,
    ) -> Result<(), Refusal> {
        let Some(caller) = self.known.get(name) else {
            return self.make_room(limits, now);
        };
        let wait = caller.failures.wait(Self::allowed(limits), now);
        if standing != Standing::Active && !wait.is_zero() {
            return Err(too_many_failures(wait));
        }
        let counts = &caller.counts;
        if counts.pending >= limits.pending_per_caller {
            return Err(Refusal::later(429, "too many requests wait", 5));
        }
        if is_more && counts.taken() >= limits.per_caller {
            return Err(too_many("of the caller"));
        }
        Ok(())
    }

    fn make_room(&mut self, limits: &Limits, now: Duration) -> Result<(), Refusal> {
        if self.known.len() >= limits.parties && now >= self.tidied.saturating_add(TIDY) {
            self.tidy(now);
        }
        match self.known.len() < limits.parties {
            true => Ok(()),
            false => Err(full_table()),
        }
    }

    /// Forgets those of whom there is nothing.
    pub fn tidy(&mut self, now: Duration) {
        self.tidied = now;
        self.known
            .retain(|_, it| !it.counts.is_empty() || !it.failures.is_over(now));
    }

    pub fn is_spent(&self, name: &str, standing: Standing, limits: &Limits, now: Duration) -> bool {
        let caller = self.known.get(name);
        standing != Standing::Active
            && caller.is_some_and(|it| !it.failures.wait(Self::allowed(limits), now).is_zero())
    }

    /// How a caller stands that asks about a subscription that is active or is not.
    pub fn standing(&self, name: &str, is_active: bool, now: Duration) -> Standing {
        let caller = self.known.get(name);
        match is_active {
            true => Standing::Active,
            false if caller.is_none_or(|it| it.failures.is_over(now)) => Standing::Clean,
            false => Standing::Failing,
        }
    }

    pub fn is_full(&self, name: &str, limits: &Limits) -> bool {
        let caller = self.known.get(name);
        caller.is_some_and(|it| it.counts.taken() >= limits.per_caller)
    }

    pub fn add(&mut self, name: &Arc<str>, reserves: bool) {
        self.get(name).counts.add(reserves);
    }

    pub fn remove(&mut self, name: &Arc<str>, reserves: bool) {
        self.get(name).counts.remove(reserves);
    }

    pub fn activate(&mut self, name: &Arc<str>) {
        self.get(name).counts.active += 1;
    }

    pub fn deactivate(&mut self, name: &Arc<str>) {
        self.get(name).counts.active -= 1;
    }

    pub fn fail(&mut self, name: &Arc<str>, limits: &Limits, now: Duration) {
        self.get(name).failures.add(Self::allowed(limits), now);
    }

    fn get(&mut self, name: &Arc<str>) -> &mut Caller {
        self.known.entry(Arc::clone(name)).or_default()
    }
}

/// The hosts of callbacks that something is known of.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    known: HashMap<Arc<str>, Host>,
    /// Those that can be asked something, each once, in turns.
    ready: VecDeque<Arc<str>>,
    tidied: Duration,
}

#[derive(Debug, Default)]
struct Host {
    counts: Counts,
    in_flight: usize,
    queue: VecDeque<u64>,
    is_ready: bool,
    /// By the standing of those who had asked.
    failures: [Failures; 3],
}

impl Host {
    fn failures(&mut self, standing: Standing) -> &mut Failures {
        let [active, clean, failing] = &mut self.failures;
        match standing {
            Standing::Active => active,
            Standing::Clean => clean,
            Standing::Failing => failing,
        }
    }

    fn is_empty(&self, now: Duration) -> bool {
        self.counts.is_empty()
            && self.in_flight == 0
            && self.queue.is_empty()
            && self.failures.iter().all(|it| it.is_over(now))
    }
}

impl Hosts {
    fn allowed(limits: &Limits, standing: Standing) -> Allowed {
        let share = match standing {
            Standing::Active | Standing::Clean => GOOD_SHARE,
            Standing::Failing => 1,
        };
        Allowed {
            failures: limits.failures_per_host.saturating_mul(share),
            time: limits.failure_time,
        }
    }

    /// Whether a request about a callback on a host can be accepted, which may need a new place.
    pub fn admit(
        &mut self,
        name: &Arc<str>,
        (reserves, standing): (bool, Standing),
        limits: &Limits,
        now: Duration,
    ) -> Result<(), Refusal> {
        let Some(host) = self.known.get_mut(name) else {
            return self.make_room(limits, now);
        };
        let allowed = Self::allowed(limits, standing);
        let wait = host.failures(standing).wait(allowed, now);
        if !wait.is_zero() {
            return Err(too_many_failures(wait));
        }
        let counts = &host.counts;
        if counts.pending >= limits.pending_per_host {
            return Err(Refusal::later(
                429,
                "too many requests wait for the host",
                5,
            ));
        }
        if reserves && counts.taken() >= limits.per_host {
            return Err(too_many("on the host of the callback"));
        }
        Ok(())
    }

    fn make_room(&mut self, limits: &Limits, now: Duration) -> Result<(), Refusal> {
        if self.known.len() >= limits.parties && now >= self.tidied.saturating_add(TIDY) {
            self.tidy(now);
        }
        match self.known.len() < limits.parties {
            true => Ok(()),
            false => Err(full_table()),
        }
    }

    /// Forgets those of which there is nothing.
    pub fn tidy(&mut self, now: Duration) {
        self.tidied = now;
        self.known.retain(|_, it| !it.is_empty(now));
    }

    pub fn is_spent(
        &mut self,
        name: &Arc<str>,
        standing: Standing,
        limits: &Limits,
        now: Duration,
    ) -> bool {
        let allowed = Self::allowed(limits, standing);
        !self
            .get(name)
            .failures(standing)
            .wait(allowed, now)
            .is_zero()
    }

    pub fn is_full(&self, name: &str, limits: &Limits) -> bool {
        let host = self.known.get(name);
        host.is_some_and(|it| it.counts.taken() >= limits.per_host)
    }

    pub fn add(&mut self, name: &Arc<str>, reserves: bool) {
        self.get(name).counts.add(reserves);
    }

    pub fn remove(&mut self, name: &Arc<str>, reserves: bool) {
        self.get(name).counts.remove(reserves);
    }

    pub fn activate(&mut self, name: &Arc<str>) {
        self.get(name).counts.active += 1;
    }

    pub fn deactivate(&mut self, name: &Arc<str>) {
        self.get(name).counts.active -= 1;
    }

    pub fn fail(&mut self, name: &Arc<str>, standing: Standing, limits: &Limits, now: Duration) {
        let allowed = Self::allowed(limits, standing);
        self.get(name).failures(standing).add(allowed, now);
    }

    /// A request waits for its turn.
    pub fn queue(&mut self, name: &Arc<str>, id: u64, limits: &Limits) {
        self.get(name).queue.push_back(id);
        self.look(name, limits);
    }

    /// The next host that can be asked, and what about. Whoever takes it looks at the host again.
    pub fn next(&mut self) -> Option<(Arc<str>, u64)> {
        loop {
            let name = self.ready.pop_front()?;
            let host = self.get(&name);
            host.is_ready = false;
            if let Some(id) = host.queue.pop_front() {
                return Some((name, id));
            }
        }
    }

    /// A host is asked.
    pub fn begin(&mut self, name: &Arc<str>) {
        self.get(name).in_flight += 1;
    }

    /// A host has answered, or does not.
    pub fn end(&mut self, name: &Arc<str>, limits: &Limits) {
        self.get(name).in_flight -= 1;
        self.look(name, limits);
    }

    /// Puts a host among those that can be asked, if it can.
    pub fn look(&mut self, name: &Arc<str>, limits: &Limits) {
        let host = self.get(name);
        let may = host.in_flight < limits.in_flight_per_host && !host.queue.is_empty();
        if may && !host.is_ready {
            host.is_ready = true;
            self.ready.push_back(Arc::clone(name));
        }
    }

    fn get(&mut self, name: &Arc<str>) -> &mut Host {
        self.known.entry(Arc::clone(name)).or_default()
    }
}

#[cfg(test)]
impl Callers {
    /// How many subscriptions, requests and reserved places there are of a caller.
    pub fn counts(&self, name: &str) -> [usize; 3] {
        let counts = self.known.get(name).map(|it| &it.counts);
        counts.map_or([0; 3], |it| [it.active, it.pending, it.reserved])
    }
}

#[cfg(test)]
impl Hosts {
    /// The same of a host, and how many requests are under way to it.
    pub fn counts(&self, name: &str) -> [usize; 4] {
        let host = self.known.get(name);
        host.map_or([0; 4], |it| {
            let counts = &it.counts;
            [counts.active, counts.pending, counts.reserved, it.in_flight]
        })
    }
}
