//! Bringing together what there is and who waits for it. After each change here no waiter is left
//! beside something that fits it, once pools that were woken have looked.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::permits::{Permit, Registration};
use super::{
    Connect, ConnectError, Connected, Demand, EXCLUSIVE, Grant, Kept, KeptLink, Member,
    Multiplexed, Phase, Pool, Pooled, SHARED, Waiter,
};

/// How long nothing is under way on a link before it gives memory back.
const REST: Duration = Duration::from_secs(1);

impl<C: Pooled, L: Multiplexed> Pool<C, L> {
    /// Does what has become possible: permits have been granted, streams have ended, links are
    /// going away, or another worker needs a permit that something idle holds.
    pub fn on_wake(&mut self, now: Instant) {
        self.look_at = self.look_at.filter(|at| *at > now);
        for id in self.waker.take_granted() {
            self.take_permit(id, now);
        }
        for at in 0..self.members.len() {
            self.reap(at);
            self.serve(at, now);
            self.ensure_connects(at, now);
            self.yield_idle(at, now);
        }
        self.note_wanted();
    }

    /// Reports how making a connection has ended. Where it failed, all who waited for it are told.
    pub fn connected(
        &mut self,
        at: usize,
        is_exclusive: bool,
        connected: Connected<C, L>,
        now: Instant,
    ) {
        let lane = lane(is_exclusive);
        let Some(member) = self.members.get_mut(at) else {
            return;
        };
        member.lanes[lane].connects -= 1;
        if !matches!(connected, Connected::Failed(_)) {
            member.held_since = Some(now);
            member.connect_time = member.ordered_at.map_or(Duration::ZERO, |at| now - at);
        }
        match connected {
            Connected::Http1(connection) => {
                if member.may_h2 && !is_exclusive {
                    member.spoke_h2 = Some(false);
                }
                self.put(at, connection, None, now);
            }
            Connected::Http2 { link, permit, peer } => {
                member.spoke_h2 = Some(true);
                member.links.push(KeptLink {
                    link,
                    peer,
                    permit: Some(permit),
                    reserved: 0,
                    idle_since: None,
                    is_trimmed: false,
                    draining_since: None,
                });
                let newest = member.links.len() - 1;
                self.serve_streams(at, Some(newest));
            }
            Connected::Failed(error) => self.fail(at, lane, &error),
        }
        self.serve(at, now);
        self.ensure_connects(at, now);
        self.yield_idle(at, now);
        self.note_wanted();
    }

    /// Notes whether an endpoint is well: those who wait for a permit prefer endpoints that are.
    pub fn set_well(&mut self, at: usize, is_well: bool, now: Instant) {
        let Some(member) = self.members.get_mut(at) else {
            return;
        };
        if std::mem::replace(&mut member.is_well, is_well) == is_well || self.queued == 0 {
            return;
        }
        for id in self.ids(|waiter| matches!(waiter.phase, Phase::Queued { .. })) {
            self.queue_again(id);
        }
        for at in 0..self.members.len() {
            self.serve(at, now);
        }
    }

    /// Closes what is idle for too long, dead, or going away. To be called now and then.
    pub fn prune(&mut self, now: Instant) {
        let idle_time = self.limits.idle_time;
        for at in 0..self.members.len() {
            let Some(member) = self.members.get_mut(at) else {
                continue;
            };
            member
                .idle
                .retain_mut(|kept| kept.until > now && !kept.connection.is_stale());
            member.links.retain_mut(|kept| kept.rest(now, idle_time));
            // Links that are always in use would keep other workers out for good.
            if member.permits.are_too_many() {
                member.drop_link(0);
            }
        }
        self.on_wake(now);
    }

    /// Closes the idle connections to an endpoint: one that was in use has just been cut, and a
    /// request that may not be repeated shall not find out that they are too.
    pub fn forget_idle(&mut self, at: usize) {
        if let Some(member) = self.members.get_mut(at) {
            member.idle.clear();
        }
    }

    /// Closes what is idle and ends the links, since nothing is known of them any more.
    pub fn forget_all(&mut self, at: usize) {
        self.retire(at, |_| true);
    }

    /// Closes connections to addresses that the endpoint no longer has.
    pub fn retire(&mut self, at: usize, is_gone: impl Fn(IpAddr) -> bool) {
        if let Some(member) = self.members.get_mut(at) {
            member.idle.retain(|kept| !is_gone(kept.connection.peer()));
            member.links.retain(|kept| {
                if is_gone(kept.peer) {
                    kept.link.go_away();
                }
                !is_gone(kept.peer)
            });
        }
    }

    /// Gives a connection to the first waiter that it fits, or keeps it. `kept_until` is nothing
    /// for a new one.
    pub(super) fn put(
        &mut self,
        at: usize,
        connection: C,
        kept_until: Option<Instant>,
        now: Instant,
    ) {
        let Some(member) = self.members.get_mut(at) else {
            return;
        };
        if member.permits.are_too_many() {
            // The limit has been lowered.
            drop(connection);
            return self.ensure_connects(at, now);
        }
        if (self.queued > 0 || member.has_bound())
            && let Some(id) = self.first_that_takes_connection(at, kept_until.is_none())
        {
            // Behind a reply that is over nothing may come, and the waiter's request must not meet
            // it.
            let mut connection = connection;
            if kept_until.is_some() && connection.is_stale() {
                drop(connection);
                return self.ensure_connects(at, now);
            }
            // A new one was made for the waiter, with a permit that was its turn.
            if kept_until.is_none() || !self.hands_over(at, now) {
                self.grant(
                    id,
                    Grant::Connection {
                        at,
                        connection,
                        kept_until,
                    },
                );
            }
            return;
        }
        let limits = self.limits;
        if self.members[at].idle.len() < limits.idle_count && self.may_keep(at, now) {
            self.members[at].idle.push(Kept {
                connection,
                since: now,
                until: kept_until.unwrap_or(now + limits.idle_time),
            });
        }
    }

    fn first_that_takes_connection(&self, at: usize, is_new: bool) -> Option<u64> {
        self.first(at, |demand| is_new || demand.takes_used())
    }

    /// The first waiter at an endpoint with a demand like that.
    fn first(&self, at: usize, fits: impl Fn(Demand) -> bool) -> Option<u64> {
        let mut waiters = self.waiters.iter();
        let found = waiters.find(|(_, waiter)| waiter.is_at(at) && fits(waiter.demand));
        found.map(|(id, _)| *id)
    }

    fn ids(&self, choose: impl Fn(&Waiter) -> bool) -> Vec<u64> {
        let chosen = self.waiters.iter().filter(|(_, waiter)| choose(waiter));
        chosen.map(|(id, _)| *id).collect()
    }

    /// Gives out what is there at an endpoint.
    pub(super) fn serve(&mut self, at: usize, now: Instant) {
        let Some(member) = self.members.get_mut(at) else {
            return;
        };
        if self.queued == 0 && !member.has_bound() {
            return;
        }
        self.serve_streams(at, None);
        let takes = |demand: Demand| demand.takes_used();
        while !self.members[at].idle.is_empty() && self.first(at, takes).is_some() {
            let Some(mut kept) = self.members[at].idle.pop() else {
                break;
            };
            if kept.until > now && !kept.connection.is_stale() {
                self.put(at, kept.connection, Some(kept.until), now);
            }
        }
    }

    /// Gives out streams: of one link that is new, or of all.
    fn serve_streams(&mut self, at: usize, newest: Option<usize>) {
        let takes = |demand: Demand| match newest {
            Some(_) => demand.takes_stream(),
            None => demand == Demand::Any,
        };
        while let Some(id) = self.first(at, takes) {
            let links = &mut self.members[at].links;
            let mut free = links.iter_mut().skip(newest.unwrap_or(0));
            let Some(kept) = free.find(|kept| kept.has_room()) else {
                break;
            };
            kept.reserved += 1;
            kept.idle_since = None;
            let link = kept.link.clone();
            let is_new = newest.is_some();
            self.grant(id, Grant::Stream { at, link, is_new });
        }
    }

    /// Starts the connections that waiters of an endpoint need; those for whom there is no permit
    /// are queued.
    pub(super) fn ensure_connects(&mut self, at: usize, now: Instant) {
        for lane in [SHARED, EXCLUSIVE] {
            self.ensure_lane(at, lane, now);
        }
    }

    fn ensure_lane(&mut self, at: usize, lane: usize, now: Instant) {
        let is_short = |member: &Member<C, L>| member.lanes[lane].connects < member.needed(lane);
        while self.members.get(at).is_some_and(is_short) {
            let Some(permit) = self.members[at].permits.try_acquire() else {
                break;
            };
            self.start(at, lane, permit, now);
        }
        let Some(member) = self.members.get(at).filter(|member| is_short(member)) else {
            return;
        };
        let uncovered = match member.needed(lane) < member.lanes[lane].waiters {
            true => member.lanes[lane].waiters,
            false => member.needed(lane) - member.lanes[lane].connects,
        };
        let bound = self.ids(|waiter| self.is_bound(waiter, at, lane));
        for id in bound.iter().skip(bound.len() - uncovered) {
            self.queue_up(*id, at, lane, now);
        }
    }

    fn is_bound(&self, waiter: &Waiter, at: usize, lane: usize) -> bool {
        matches!(waiter.phase, Phase::Bound(bound) if bound == at)
            && self.members[at].lane_of(waiter.demand) == lane
    }

    /// Orders a connection for the waiters of an endpoint.
    fn start(&mut self, at: usize, lane: usize, permit: Permit, now: Instant) {
        // As long as the most patient of those who wait for it does: the others give up before.
        let bound = self
            .waiters
            .values()
            .filter(|it| self.is_bound(it, at, lane));
        let time = bound.map(|waiter| waiter.connect).max().unwrap_or_default();
        let member = &mut self.members[at];
        member.lanes[lane].connects += 1;
        member.ordered_at = Some(now);
        let expects_h2 = member.expects_h2();
        self.connects.push(Connect {
            at,
            is_exclusive: lane == EXCLUSIVE,
            permit,
            time,
        });
        if lane != SHARED || !expects_h2 || self.queued == 0 {
            return;
        }
        // It will do for those too who have nowhere else to go, and they shall hear if it fails.
        let sole = |waiter: &Waiter| match &waiter.phase {
            Phase::Queued { candidates, .. } => candidates == &[at] && waiter.demand.takes_stream(),
            Phase::Bound(_) => false,
        };
        for id in self.ids(sole) {
            self.bind(id, at);
        }
    }

    /// A waiter that was bound to an endpoint needs a permit of any endpoint.
    fn queue_up(&mut self, id: u64, at: usize, lane: usize, now: Instant) {
        let max = self.limits.queue;
        let queue = Arc::clone(&self.queue);
        let Some(waiter) = self.waiters.get_mut(&id) else {
            return;
        };
        if waiter.slot.is_none() {
            waiter.slot = queue.enter(max);
        }
        if waiter.slot.is_none() {
            return self.grant(id, Grant::QueueFull);
        }
        self.members[at].lanes[lane].waiters -= 1;
        self.queued += 1;
        for at in self.register(id) {
            self.serve(at, now);
        }
    }

    /// Queues a queued waiter again, since other endpoints will do for it now.
    fn queue_again(&mut self, id: u64) {
        let Some(waiter) = self.waiters.get(&id) else {
            return;
        };
        let candidates = self.candidates(&waiter.avoid);
        if matches!(&waiter.phase, Phase::Queued { candidates: known, .. } if *known == candidates)
        {
            return;
        }
        drop(self.withdraw(id));
        self.register(id);
    }

    /// Puts a waiter in the lines of all endpoints that will do.
    fn register(&mut self, id: u64) -> Vec<usize> {
        let Some(waiter) = self.waiters.get(&id) else {
            return Vec::new();
        };
        let candidates = self.candidates(&waiter.avoid);
        let registration = Registration::new(id, &self.waker);
        for at in &candidates {
            self.members[*at].permits.register(&registration, *at);
        }
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.phase = Phase::Queued {
                candidates: candidates.clone(),
                registration,
            };
        }
        candidates
    }

    /// The endpoints that will do: those that are well and have not failed the request; where
    /// there is none, less will do.
    fn candidates(&self, avoid: &[usize]) -> Vec<usize> {
        let untried = |at: &usize| !avoid.contains(at);
        let well = |at: &usize| self.members[*at].is_well;
        let all = 0..self.members.len();
        let best: Vec<usize> = all.clone().filter(|at| untried(at) && well(at)).collect();
        if !best.is_empty() {
            return best;
        }
        let rest: Vec<usize> = all.clone().filter(untried).collect();
        match rest.is_empty() {
            true => all.collect(),
            false => rest,
        }
    }

    /// Takes a queued waiter out of all lines. Returns the permit that it was granted meanwhile.
    fn withdraw(&mut self, id: u64) -> Option<Permit> {
        let Phase::Queued {
            candidates,
            registration,
        } = &self.waiters.get(&id)?.phase
        else {
            return None;
        };
        let lines = candidates.iter().map(|at| &self.members[*at].permits);
        let granted = registration.withdraw(lines)?;
        Some(Permit::granted(&self.members[granted].permits))
    }

    /// A queued waiter waits for a connection that is being made to this endpoint.
    fn bind(&mut self, id: u64, at: usize) {
        let permit = self.withdraw(id);
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.phase = Phase::Bound(at);
            let lane = self.members[at].lane_of(waiter.demand);
            self.members[at].lanes[lane].waiters += 1;
            self.queued -= 1;
        }
        drop(permit);
    }

    /// A queued waiter has been granted a permit: a connection is made with it.
    fn take_permit(&mut self, id: u64, now: Instant) {
        let Some(waiter) = self.waiters.get_mut(&id) else {
            return;
        };
        let Phase::Queued { registration, .. } = &waiter.phase else {
            return;
        };
        let Some(at) = registration.granted() else {
            return;
        };
        let demand = waiter.demand;
        let Some(permit) = self.withdraw(id) else {
            return;
        };
        if let Some(waiter) = self.waiters.get_mut(&id) {
            waiter.phase = Phase::Bound(at);
            waiter.slot = None;
        }
        self.queued -= 1;
        let lane = self.members[at].lane_of(demand);
        self.members[at].lanes[lane].waiters += 1;
        // Otherwise one is being made already that it can have.
        if self.members[at].lanes[lane].connects < self.members[at].needed(lane) {
            self.start(at, lane, permit, now);
        }
    }

    /// Hands a waiter what it waited for.
    fn grant(&mut self, id: u64, grant: Grant<C, L>) {
        let waker = self.remove_waiter(id);
        self.granted.insert(id, grant);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn remove_waiter(&mut self, id: u64) -> Option<Waker> {
        // Dropped at the end, when the waiter is no longer here to be granted it again.
        let _permit = self.withdraw(id);
        let waiter = self.waiters.remove(&id)?;
        match waiter.phase {
            Phase::Bound(at) => {
                let lane = self.members[at].lane_of(waiter.demand);
                self.members[at].lanes[lane].waiters -= 1;
            }
            Phase::Queued { .. } => self.queued -= 1,
        }
        waiter.waker
    }

    /// Reports a failure to those who waited for that connection.
    fn fail(&mut self, at: usize, lane: usize, error: &ConnectError) {
        let member = &self.members[at];
        let bound = member.lanes[lane].waiters;
        let count = match lane == SHARED && member.expects_h2() {
            true if member.lanes[lane].connects == 0 => bound,
            true => 0,
            false => bound.saturating_sub(member.lanes[lane].connects),
        };
        let told = self.ids(|waiter| self.is_bound(waiter, at, lane));
        for id in told.into_iter().take(count) {
            let error = error.clone();
            self.grant(id, Grant::Failed { at, error });
        }
    }

    pub(super) fn unreserve(&mut self, at: usize, link: &L) {
        let Some(member) = self.members.get_mut(at) else {
            return;
        };
        let mut links = member.links.iter_mut();
        if let Some(kept) = links.find(|kept| kept.link.is_same(link)) {
            kept.reserved = kept.reserved.saturating_sub(1);
        }
    }

    /// Lets go of links that take no more streams, and of their permits. One that has recovered
    /// stays when there is a permit for it.
    fn reap(&mut self, at: usize) {
        let Some(member) = self.members.get_mut(at) else {
            return;
        };
        let permits = &member.permits;
        member.links.retain_mut(|kept| {
            if kept.link.is_finished() {
                return false;
            }
            if kept.link.is_suspected() {
                kept.permit = None;
            } else if kept.permit.is_none() {
                kept.permit = permits.try_acquire();
            }
            let stays = kept.permit.is_some() || kept.link.is_suspected();
            if !stays {
                kept.link.go_away();
            }
            stays
        });
    }

    /// Notes whether streams that end are news to anybody.
    pub(super) fn note_wanted(&self) {
        let is_wanted = !self.waiters.is_empty()
            || self
                .members
                .iter()
                .any(|member| member.permits.are_wanted());
        self.freed.set_wanted(is_wanted);
    }
}

impl<C, L: Multiplexed> Member<C, L> {
    /// Ends a link and gives its permit back.
    pub(super) fn drop_link(&mut self, index: usize) {
        if index < self.links.len() {
            self.links.remove(index).link.go_away();
        }
    }
}

impl<L: Multiplexed> KeptLink<L> {
    /// Looks whether it is idle for long. Says whether it stays.
    fn rest(&mut self, now: Instant, idle_time: Duration) -> bool {
        if self.link.is_finished() {
            return false;
        }
        if !self.is_idle() {
            (self.idle_since, self.is_trimmed) = (None, false);
            return true;
        }
        // It may have been in use between two looks.
        self.is_trimmed &= self.idle_since.is_some();
        let idle = now - *self.idle_since.get_or_insert(now);
        if idle >= REST && !std::mem::replace(&mut self.is_trimmed, true) {
            self.link.trim();
        }
        if idle >= idle_time {
            self.link.go_away();
        }
        idle < idle_time
    }
}

fn lane(is_exclusive: bool) -> usize {
    match is_exclusive {
        true => EXCLUSIVE,
        false => SHARED,
    }
}
