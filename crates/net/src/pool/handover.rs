//! When a pool gives up a connection because a waiter of another worker needs its permit.
//!
//! A connection cannot change its worker: the other one makes a new connection with the permit. So
//! that this does not happen for every few requests, a pool serves its own waiters for a *tenure*
//! first, and an idle connection is given up only when it has been idle for [`IDLE_HOLD`]. Decision
//! 0028 has the reasons.

use std::time::Duration;

use tokio::time::Instant;

use super::permits::NextInLine;
use super::{KeptLink, Member, Multiplexed, Pool, Pooled};

/// How long a pool keeps a connection at least that it needs itself.
const TENURE: Duration = Duration::from_millis(100);
/// Where connections take long to be made, the tenure is so many times that.
const TENURE_CONNECTS: u32 = 10;
/// How long an idle connection is kept for a request of the same worker within the tenure.
const IDLE_HOLD: Duration = Duration::from_millis(10);

/// Whom something idle has to be closed for.
#[derive(Clone, Copy)]
enum Claim {
    /// A waiter of the same worker that cannot use it, or a limit that has been lowered.
    AtOnce,
    /// A waiter of another worker.
    Another {
        tenure: Duration,
        /// When this worker's tenure is over; it may be already.
        due: Instant,
    },
}

impl Claim {
    /// When something is closed that has been idle for so long.
    fn closes_at(self, idle_since: Instant, now: Instant) -> Instant {
        match self {
            Self::AtOnce => now,
            Self::Another { due, .. } => due.min(idle_since + IDLE_HOLD),
        }
    }
}

impl<C: Pooled, L: Multiplexed> Pool<C, L> {
    /// When the pool has to be looked after ([`Pool::on_wake`]) although nobody wakes it.
    pub fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    fn claim(&self, at: usize, now: Instant) -> Option<Claim> {
        let member = self.members.get(at)?;
        if member.permits.are_too_many() {
            return Some(Claim::AtOnce);
        }
        let pools = match member.permits.next_in_line(&self.waker)? {
            NextInLine::Own => return Some(Claim::AtOnce),
            NextInLine::Another { pools } => pools,
        };
        // All pools have their turn within half the time that a waiter has.
        let longest = self.limits.queue_time / 2 / u32::try_from(pools.max(1)).unwrap_or(u32::MAX);
        let tenure = TENURE.max(member.connect_time * TENURE_CONNECTS);
        let tenure = tenure.min(longest);
        let due = member.held_since.map_or(now, |since| since + tenure);
        Some(Claim::Another { tenure, due })
    }

    /// Whether a connection that has been freed goes to a waiter of another worker although one of
    /// this worker could use it.
    pub(super) fn hands_over(&mut self, at: usize, now: Instant) -> bool {
        let hands_over =
            matches!(self.claim(at, now), Some(Claim::Another { due, .. }) if due <= now);
        if hands_over {
            self.members[at].held_since = Some(now);
        }
        hands_over
    }

    /// Whether a connection that has been freed may stay idle here for now.
    pub(super) fn may_keep(&mut self, at: usize, now: Instant) -> bool {
        let Some(claim) = self.claim(at, now) else {
            return true;
        };
        let closes_at = claim.closes_at(now, now);
        if closes_at > now {
            self.look_by(closes_at);
        }
        closes_at > now
    }

    /// Closes what is idle while somebody needs its permit, and has an HTTP/2 connection that is
    /// never idle take no more streams when the tenure is over.
    pub(super) fn yield_idle(&mut self, at: usize, now: Instant) {
        loop {
            let claim = self.claim(at, now);
            let Some(member) = self.members.get_mut(at) else {
                return;
            };
            if !matches!(claim, Some(Claim::Another { .. })) && member.stop_draining() {
                self.serve(at, now);
                continue;
            }
            let Some(claim) = claim else {
                return;
            };
            if member.close_idle(claim, now) {
                continue;
            }
            if let Claim::Another { tenure, due } = claim {
                member.drain_one(tenure, due, now);
                if let Some(time) = member.next_look(claim, now) {
                    self.look_by(time);
                }
            }
            return;
        }
    }

    fn look_by(&mut self, time: Instant) {
        if self.look_at.is_none_or(|known| known > time) {
            self.look_at = Some(time);
            self.waker.wake();
        }
    }
}

impl<C, L: Multiplexed> Member<C, L> {
    /// Closes one connection that has been idle for long enough, if there is one.
    fn close_idle(&mut self, claim: Claim, now: Instant) -> bool {
        let closes = |since: Instant| claim.closes_at(since, now) <= now;
        // Those in front have been idle for the longest time.
        if self.idle.first().is_some_and(|kept| closes(kept.since)) {
            drop(self.idle.remove(0));
        } else {
            let mut links = self.links.iter_mut();
            let index = links.position(|kept| kept.is_idle() && closes(kept.idle_from(now)));
            let Some(index) = index else {
                return false;
            };
            self.drop_link(index);
        }
        if let Claim::Another { due, .. } = claim
            && due <= now
        {
            self.held_since = Some(now);
        }
        true
    }

    /// Has one link come to its end for another worker's waiter: when its streams have ended, or
    /// after another tenure with those that are open.
    fn drain_one(&mut self, tenure: Duration, due: Instant, now: Instant) {
        let mut links = self.links.iter();
        if let Some(index) = links.position(|kept| kept.draining_since.is_some()) {
            let since = self.links[index].draining_since;
            if since.is_some_and(|since| since + tenure <= now) {
                self.drop_link(index);
                self.held_since = Some(now);
            }
        } else if due <= now {
            let mut links = self.links.iter_mut();
            if let Some(kept) = links.find(|kept| kept.permit.is_some()) {
                kept.draining_since = Some(now);
            }
        }
    }

    /// When something of what is here has to be given up.
    fn next_look(&mut self, claim: Claim, now: Instant) -> Option<Instant> {
        let Claim::Another { tenure, due } = claim else {
            return None;
        };
        let idle = self.idle.first();
        let idle = idle.map(|kept| claim.closes_at(kept.since, now));
        let links = self.links.iter_mut().filter_map(|kept| {
            if kept.is_idle() {
                return Some(claim.closes_at(kept.idle_from(now), now));
            }
            let draining = kept.draining_since.map(|since| since + tenure);
            draining.or(kept.permit.is_some().then_some(due))
        });
        idle.into_iter().chain(links).filter(|at| *at > now).min()
    }

    /// Nobody needs the permit any more. Says whether a link takes streams again.
    fn stop_draining(&mut self) -> bool {
        let mut has_stopped = false;
        for kept in &mut self.links {
            has_stopped |= kept.draining_since.take().is_some();
        }
        has_stopped
    }
}

impl<L: Multiplexed> KeptLink<L> {
    /// Since when it has been idle, as far as somebody has looked.
    fn idle_from(&mut self, now: Instant) -> Instant {
        *self.idle_since.get_or_insert(now)
    }
}
