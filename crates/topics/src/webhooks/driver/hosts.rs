//! How many requests are under way to one host. Users choose the hosts of their endpoints, and ten
//! thousand of them may be on one: those beyond the bound wait here, without a task or a buffer,
//! and one host that hangs holds up no other.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::Driver;

/// How many requests of a worker may be under way to one host: as many as it has connections for.
const REQUESTS_MAX: usize = 64;

/// What there is of a host.
#[derive(Default)]
struct Load {
    under_way: usize,
    /// The endpoints that wait for a place.
    waiting: VecDeque<usize>,
}

/// The hosts to which something is under way.
#[derive(Default)]
pub(super) struct Hosts(HashMap<Arc<str>, Load>);

impl Hosts {
    /// Whether an endpoint has to wait; it is among those that do then, unless it is already.
    fn waits(&mut self, host: &Arc<str>, (at, is_waiting): (usize, bool)) -> bool {
        let Some(load) = self.0.get_mut(host) else {
            return false;
        };
        let is_full = load.under_way >= REQUESTS_MAX;
        if is_full && !is_waiting {
            load.waiting.push_back(at);
        }
        is_full
    }

    fn begin(&mut self, host: &Arc<str>) {
        self.0.entry(Arc::clone(host)).or_default().under_way += 1;
    }

    fn end(&mut self, host: &Arc<str>) {
        if let Some(load) = self.0.get_mut(host) {
            load.under_way = load.under_way.saturating_sub(1);
        }
    }

    /// The next endpoint that waits, when there is a place for it.
    fn next(&mut self, host: &Arc<str>) -> Option<usize> {
        let load = self.0.get_mut(host)?;
        if load.under_way >= REQUESTS_MAX {
            return None;
        }
        let next = load.waiting.pop_front();
        if next.is_none() && load.under_way == 0 {
            self.0.remove(host);
        }
        next
    }

    /// An endpoint waits no more.
    fn leave(&mut self, host: &Arc<str>, at: usize) {
        if let Some(load) = self.0.get_mut(host) {
            load.waiting.retain(|it| *it != at);
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
        let waits = self.hosts.waits(&host, (at, is_waiting));
        if let Some(entry) = self.entries.get_mut(at).filter(|_| waits) {
            entry.waits_for_host = true;
            entry.is_ready = false;
        }
        waits
    }

    /// Something has been begun for an endpoint.
    pub(super) fn has_begun(&mut self, at: usize) {
        if let Some((host, _)) = self.host(at) {
            self.hosts.begin(&host);
        }
    }

    /// It has ended.
    pub(super) fn has_ended(&mut self, at: usize) {
        if let Some((host, _)) = self.host(at) {
            self.hosts.end(&host);
            self.pass_on(at);
        }
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
            assert!(!hosts.waits(&one, (at, false)));
            hosts.begin(&one);
        }
        assert!(hosts.waits(&one, (100, false)) && hosts.waits(&one, (101, false)));
        // Asked again it does not wait twice.
        assert!(hosts.waits(&one, (100, true)));
        assert!(!hosts.waits(&other, (102, false)), "another host");
        assert_eq!(hosts.next(&one), None);
        hosts.end(&one);
        assert_eq!(hosts.next(&one), Some(100));
        // It had nothing to send, and the next one gets the place.
        assert_eq!(hosts.next(&one), Some(101));
        assert_eq!(hosts.next(&one), None);
        hosts.begin(&one);
        assert!(hosts.waits(&one, (103, false)));
        hosts.leave(&one, 103);
        for _ in 0..REQUESTS_MAX {
            hosts.end(&one);
        }
        assert_eq!(hosts.next(&one), None);
        assert!(hosts.0.is_empty(), "nothing is left of it");
    }
}
