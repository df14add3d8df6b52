//! What becomes of an event that an endpoint has refused or could not take, and of the endpoint.

use super::backoff::delay_after;
use super::queue::Content;
use super::{DeadLetterReason, Disabled, Down, Flight, Health, Machine, Notice, Now, Stopped};

impl Machine {
    pub(super) fn refused(&mut self, flight: Flight, now: Now, random: f64) {
        self.version += 1;
        let tries = flight.pending.tries + 1;
        let is_last = tries > self.policy.times;
        if is_last && flight.pending.is_gap() {
            self.notices.push(Notice::GapSkipped);
            return self.settle(&flight);
        }
        let mut pending = flight.pending;
        pending.tries = tries;
        self.notices.push(Notice::Refused { tries, is_last });
        match is_last {
            true => pending.content = Content::DeadLetter(DeadLetterReason::Refused),
            false => pending.at = now.us + delay_after(&self.policy.backoff, tries, None, random),
        }
        self.put_back(pending);
    }

    /// Whether an event that has just failed has been tried for as long as events are.
    pub(super) fn gives_up(&self, now: Now) -> bool {
        let Health::Down(down, _) = self.health else {
            return false;
        };
        self.policy.drops && now.wall_ms >= down.since.saturating_add(self.policy.disable_after)
    }

    /// Leaves an event out; the next one has as much time.
    pub(super) fn drop_event(
        &mut self,
        flight: &Flight,
        retry_after: Option<u64>,
        now: Now,
        random: f64,
    ) {
        self.has_base = false;
        self.settle(flight);
        self.notices.push(Notice::Dropped);
        if let Health::Down(down, _) = self.health {
            let failed = down.failed.saturating_add(1);
            let since = now.wall_ms;
            let wait = delay_after(&self.policy.backoff, failed, retry_after, random);
            self.health = Health::Down(Down { since, failed }, now.us + wait);
        }
    }

    /// The endpoint has not been able to take something.
    pub(super) fn has_failed(
        &mut self,
        (is_probe, retry_after): (bool, Option<u64>),
        now: Now,
        random: f64,
    ) {
        let down = match self.health {
            Health::Up => {
                self.notices.push(Notice::IsDown);
                let since = now.wall_ms;
                Down { since, failed: 1 }
            }
            Health::Down(down, _) if is_probe => {
                let failed = down.failed.saturating_add(1);
                Down { failed, ..down }
            }
            // It was under way before that was known.
            Health::Down(..) => return,
        };
        self.version += 1;
        let end = down.since.saturating_add(self.policy.disable_after);
        let left = end.saturating_sub(now.wall_ms);
        if left == 0 && !self.policy.drops {
            self.health = Health::Up;
            return self.stop(Stopped::Down, now);
        }
        let wait = delay_after(&self.policy.backoff, down.failed, retry_after, random);
        // The last try is made when the time is over.
        let wait = match left {
            0 => wait,
            left => wait.min(left.saturating_mul(1000)),
        };
        self.health = Health::Down(down, now.us + wait);
    }

    pub(super) fn stop(&mut self, stopped: Stopped, now: Now) {
        // A pause by an operator is not overwritten.
        if self.stopped.is_none() {
            self.stopped = Some(stopped);
            self.disabled = Disabled {
                since: now.wall_ms,
                is_reported: false,
            };
            self.version += 1;
            self.disabled_version = self.version;
            self.notices.push(Notice::Disabled(stopped));
        }
    }
}
