//! What is logged of a store that takes nothing: that this begins and that it is over, not each
//! refusal. A full disk refuses thousands a second, and the log may be on that disk.

use std::time::{Duration, Instant};

/// How long nothing must have been refused until the log says that the store takes what is written
/// again: a disk that is nearly full takes and refuses in turn.
const CALM: Duration = Duration::from_secs(10);

/// Whether a store refuses what is written, and why.
#[derive(Debug)]
pub struct Refusals<Reason = ()>(Option<Current<Reason>>);

#[derive(Debug)]
struct Current<Reason> {
    reason: Reason,
    /// When something was refused last.
    last: Instant,
    /// How much was refused since the line of the log.
    count: u64,
}

// Derived, it would ask for a default of the reason.
impl<Reason> Default for Refusals<Reason> {
    fn default() -> Self {
        Self(None)
    }
}

impl<Reason: PartialEq> Refusals<Reason> {
    /// Notes that so much has been refused. Whether it is logged: when nothing was refused before,
    /// or for another reason.
    pub fn refused(&mut self, reason: Reason, count: u64, now: Instant) -> bool {
        match &mut self.0 {
            Some(current) if current.reason == reason => {
                current.last = now;
                current.count += count;
                false
            }
            _ => {
                self.0 = Some(Current {
                    reason,
                    last: now,
                    count: 0,
                });
                true
            }
        }
    }

    /// Notes that something has been written. When that is logged, as the end of refusals, gives
    /// how much was refused beside what the log has.
    pub fn accepted(&mut self, now: Instant) -> Option<u64> {
        let is_over = |it: &mut Current<_>| now.saturating_duration_since(it.last) >= CALM;
        self.0.take_if(is_over).map(|it| it.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_logged() {
        let (mut refusals, mut now) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.accepted(now), None);
        assert!(refusals.refused("full", 1, now));
        for _ in 0..1000 {
            now += CALM / 2;
            // A nearly full disk takes and refuses in turn.
            assert!(!refusals.refused("full", 2, now));
            assert_eq!(refusals.accepted(now), None);
        }
        now += CALM;
        assert_eq!(refusals.accepted(now), Some(2000));
        assert_eq!(refusals.accepted(now), None);
        assert!(refusals.refused("full", 1, now), "again");
        assert!(refusals.refused("broken", 1, now), "for another reason");
        assert_eq!(refusals.accepted(now), None);
    }
}
