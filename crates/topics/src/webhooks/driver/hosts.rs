//! How many requests are under way to one host. Users choose the hosts of their endpoints, and ten
//! thousand of them may be on one: those beyond the bound wait here, without a task or a buffer,
//! and one host that hangs holds up no other.
//!
//! On one host, endpoints that have taken what was sent to them last go before those that have
//! not, or have got nothing yet, and these have half of the requests only. Many that hang thus do
//! not hold up those that answer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::Driver;

/// How many requests of a worker may be under way to one host: as many as it has connections for.
const REQUESTS_MAX: usize = 64;

/// How many of them may be for endpoints that have not taken what was sent to them last.
const UNPROVEN_MAX: usize = REQUESTS_MAX / 2;
/// How many of them have their turn before the others: those get it, too, that have got nothing
/// yet.
const UNPROVEN_MIN: usize = REQUESTS_MAX / 8;

/// How many of them may be further ones of endpoints that have one under way already. Order by key
/// or none lets owners have several at a time; those of one owner must not take the places of
/// others' first ones.
const FURTHER_MAX: usize = REQUESTS_MAX / 4;

/// What there is of a host.
#[derive(Default)]
struct Load {
    under_way: usize,
    /// How many of them are for endpoints that have not taken what was sent to them last.
    unproven: usize,
    /// How many of them are further ones of their endpoints.
    further: usize,
    /// The endpoints that wait for a place: those that have taken what was sent to them last, and
    /// the others.
    proven_waiting: VecDeque<usize>,
    others_waiting: VecDeque<usize>,
}

impl Load {
    fn has_room(&self, is_proven: bool) -> bool {
        self.under_way < REQUESTS_MAX && (is_proven || self.unproven < UNPROVEN_MAX)
    }
}

/// The hosts to which something is under way.
#[derive(Default)]
pub(super) struct Hosts(HashMap<Arc<str>, Load>);

impl Hosts {
    /// Whether an endpoint has to wait; it is among those that do then, unless it is already.
    fn waits(&mut self, host: &Arc<str>, at: usize, (is_waiting, is_proven): (bool, bool)) -> bool {
        let Some(load) = self.0.get_mut(host) else {
            return false;
        };
        let is_full = !load.has_room(is_proven);
        if is_full && !is_waiting {
            match is_proven {
                true => load.proven_waiting.push_back(at),
                false => load.others_waiting.push_back(at),
            }
        }
        is_full
    }

    fn begin(&mut self, host: &Arc<str>, is_proven: bool) {
        let load = self.0.entry(Arc::clone(host)).or_default();
        load.under_way += 1;
        load.unproven += usize::from(!is_proven);
    }

    /// Whether an endpoint that has a request under way may have a further one.
    fn has_room_for_further(&self, host: &Arc<str>) -> bool {
        let load = self.0.get(host);
        load.is_none_or(|it| it.further < FURTHER_MAX && it.under_way < REQUESTS_MAX)
    }

    /// What has begun is a further one.
    fn begin_further(&mut self, host: &Arc<str>) {
        if let Some(load) = self.0.get_mut(host) {
            load.further += 1;
        }
    }

    /// What ends is a further one.
    fn end_further(&mut self, host: &Arc<str>) {
        if let Some(load) = self.0.get_mut(host) {
            load.further = load.further.saturating_sub(1);
        }
    }

    /// A request has ended, which had begun as this.
    fn end(&mut self, host: &Arc<str>, was_proven: bool) {
        if let Some(load) = self.0.get_mut(host) {
            load.under_way = load.under_way.saturating_sub(1);
            load.unproven = load.unproven.saturating_sub(usize::from(!was_proven));
        }
    }

    /// The next endpoint that waits, when there is a place for it.
    fn next(&mut self, host: &Arc<str>) -> Option<usize> {
        let load = self.0.get_mut(host)?;
        if load.under_way >= REQUESTS_MAX {
            return None;
        }
        let mut next = None;
        if load.unproven < UNPROVEN_MIN {
            next = load.others_waiting.pop_front();
        }
        next = next.or_else(|| load.proven_waiting.pop_front());
        if next.is_none() && load.has_room(false) {
            next = load.others_waiting.pop_front();
        }
        if next.is_none() && load.under_way == 0 {
            self.0.remove(host);
        }
        next
    }

    /// An endpoint waits no more.
    fn leave(&mut self, host: &Arc<str>, at: usize) {
        if let Some(load) = self.0.get_mut(host) {
            load.proven_waiting.retain(|it| *it != at);
            load.others_waiting.retain(|it| *it != at);
        }
    }
}

impl Driver {
    fn host(&self, at: usize) -> Option<(Arc<str>, bool)> {
        let entry = self.entries.get(at)?;
        let host = entry.plan.host()?;
        Some((Arc::clone(host), entry.waits_for_host))
    }

    /// Whether nothing can be begun for an endpoint since too much is under way to its host.
    pub(super) fn is_held_up(&mut self, at: usize) -> bool {
        let Some((host, is_waiting)) = self.host(at) else {
            return false;
        };
        let is_proven = self.is_proven(at);
        let waits = self.hosts.waits(&host, at, (is_waiting, is_proven));
        if let Some(entry) = self.entries.get_mut(at).filter(|_| waits) {
            entry.waits_for_host = true;
            entry.is_ready = false;
        }
        waits
    }

    fn is_proven(&self, at: usize) -> bool {
        let entry = self.entries.get(at);
        entry.is_some_and(|it| it.plan.state.is_proven())
    }

    /// Something has been begun for an endpoint.
    pub(super) fn has_begun(&mut self, at: usize) {
        let Some((host, _)) = self.host(at) else {
            return;
        };
        let is_proven = self.is_proven(at);
        self.hosts.begin(&host, is_proven);
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        entry.begun_unproven += u32::from(!is_proven);
        entry.under_way += 1;
        if entry.under_way > 1 {
            self.hosts.begin_further(&host);
        }
    }

    /// Whether nothing is begun for an endpoint beside what is under way for it: it has not taken
    /// anything yet, or others on its host need the places. It is looked at again when one of its
    /// own requests has ended.
    pub(super) fn has_to_finish(&self, at: usize) -> bool {
        let Some(entry) = self.entries.get(at).filter(|it| it.under_way > 0) else {
            return false;
        };
        let host = entry.plan.host();
        host.is_some_and(|host| !self.is_proven(at) || !self.hosts.has_room_for_further(host))
    }

    /// It has ended.
    pub(super) fn has_ended(&mut self, at: usize) {
        let Some((host, _)) = self.host(at) else {
            return;
        };
        let mut was_proven = true;
        if let Some(entry) = self.entries.get_mut(at) {
            if entry.begun_unproven > 0 {
                entry.begun_unproven -= 1;
                was_proven = false;
            }
            if entry.under_way > 1 {
                self.hosts.end_further(&host);
            }
            entry.under_way = entry.under_way.saturating_sub(1);
        }
        self.hosts.end(&host, was_proven);
        self.pass_on(at);
    }

    /// Wakes the next endpoint that waits for the host of this one, which does the same: whoever is
    /// woken and needs no place must not keep others from it.
    pub(super) fn pass_on(&mut self, at: usize) {
        let Some((host, _)) = self.host(at) else {
            return;
        };
        if let Some(next) = self.hosts.next(&host) {
            if let Some(entry) = self.entries.get_mut(next) {
                entry.waits_for_host = false;
            }
            self.wake(next);
        }
    }

    /// An endpoint is gone.
    pub(super) fn leaves_host(&mut self, at: usize) {
        if let Some((host, true)) = self.host(at) {
            self.hosts.leave(&host, at);
            if let Some(entry) = self.entries.get_mut(at) {
                entry.waits_for_host = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_beyond_the_bound_wait_and_get_each_place_that_is_free() {
        let (mut hosts, one, other): (Hosts, Arc<str>, Arc<str>) =
            (Hosts::default(), "one".into(), "other".into());
        for at in 0..REQUESTS_MAX {
            assert!(!hosts.waits(&one, at, (false, true)));
            hosts.begin(&one, true);
        }
        assert!(hosts.waits(&one, 100, (false, true)) && hosts.waits(&one, 101, (false, true)));
        // Asked again it does not wait twice.
        assert!(hosts.waits(&one, 100, (true, true)));
        assert!(!hosts.waits(&other, 102, (false, true)), "another host");
        assert_eq!(hosts.next(&one), None);
        hosts.end(&one, true);
        assert_eq!(hosts.next(&one), Some(100));
        // It had nothing to send, and the next one gets the place.
        assert_eq!(hosts.next(&one), Some(101));
        assert_eq!(hosts.next(&one), None);
        hosts.begin(&one, true);
        assert!(hosts.waits(&one, 103, (false, true)));
        hosts.leave(&one, 103);
        for _ in 0..REQUESTS_MAX {
            hosts.end(&one, true);
        }
        assert_eq!(hosts.next(&one), None);
        assert!(hosts.0.is_empty(), "nothing is left of it");
    }

    #[test]
    fn further_requests_of_endpoints_leave_places_to_first_ones() {
        let (mut hosts, host): (Hosts, Arc<str>) = (Hosts::default(), "one".into());
        assert!(hosts.has_room_for_further(&host), "nothing is under way");
        hosts.begin(&host, true);
        for _ in 0..FURTHER_MAX {
            assert!(hosts.has_room_for_further(&host));
            hosts.begin(&host, true);
            hosts.begin_further(&host);
        }
        assert!(!hosts.has_room_for_further(&host));
        assert!(!hosts.waits(&host, 100, (false, true)), "a first one");
        hosts.end_further(&host);
        hosts.end(&host, true);
        assert!(hosts.has_room_for_further(&host));
        while hosts
            .0
            .get(&host)
            .is_some_and(|it| it.under_way < REQUESTS_MAX)
        {
            hosts.begin(&host, true);
        }
        assert!(!hosts.has_room_for_further(&host), "all places are taken");
    }

    #[test]
    fn those_that_hang_have_half_of_the_places_and_go_last() {
        let (mut hosts, host): (Hosts, Arc<str>) = (Hosts::default(), "one".into());
        for at in 0..UNPROVEN_MAX {
            assert!(!hosts.waits(&host, at, (false, false)));
            hosts.begin(&host, false);
        }
        assert!(
            hosts.waits(&host, 100, (false, false)),
            "one more that hangs"
        );
        for at in UNPROVEN_MAX..REQUESTS_MAX {
            assert!(!hosts.waits(&host, at, (false, true)));
            hosts.begin(&host, true);
        }
        assert!(hosts.waits(&host, 101, (false, true)));
        hosts.end(&host, true);
        assert_eq!(hosts.next(&host), Some(101), "before the one that hangs");
        assert_eq!(hosts.next(&host), None, "it has no place of these");
        hosts.begin(&host, true);
        hosts.end(&host, false);
        assert_eq!(hosts.next(&host), Some(100));
    }

    #[test]
    fn those_that_have_got_nothing_yet_have_their_turns_beside_busy_ones() {
        let (mut hosts, host): (Hosts, Arc<str>) = (Hosts::default(), "one".into());
        for _ in 0..REQUESTS_MAX {
            hosts.begin(&host, true);
        }
        assert!(hosts.waits(&host, 100, (false, true)));
        assert!(hosts.waits(&host, 101, (false, false)));
        hosts.end(&host, true);
        assert_eq!(hosts.next(&host), Some(101));
    }
}
