//! What is logged of batches that a store refuses: the change, not each of them. A full disk
//! refuses thousands a second, and the log may be on that disk.

use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use crate::store::StoreError;

/// How long nothing is refused until the store is said to be well again: a disk that is nearly full
/// takes and refuses in turn.
const CALM: Duration = Duration::from_secs(10);

/// What has to be logged.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Batches are refused from now on, or for another reason than before.
    Refused,
    /// They are not refused any more; how many events were, beside the first batch.
    Accepted(u64),
}

/// Whether a store refuses batches.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    why: Discriminant<StoreError>,
    last: Instant,
    events: u64,
}

impl Refusals {
    /// Notes what a store has answered to a batch of events.
    pub fn note(
        &mut self,
        result: &Result<(), StoreError>,
        events: u64,
        now: Instant,
    ) -> Option<Change> {
        match (result, &mut self.current) {
            (Ok(()), Some(current)) if now.saturating_duration_since(current.last) >= CALM => {
                let refused = current.events;
                self.current = None;
                Some(Change::Accepted(refused))
            }
            (Ok(()), _) => None,
            (Err(error), Some(current)) if current.why == discriminant(error) => {
                current.last = now;
                current.events += events;
                None
            }
            (Err(error), _) => {
                self.current = Some(Current {
                    why: discriminant(error),
                    last: now,
                    events: 0,
                });
                Some(Change::Refused)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_logged() {
        let mut refusals = Refusals::default();
        let full = || Err(StoreError::Full("disk".to_owned()));
        let broken = || Err(StoreError::Broken("fsync".to_owned()));
        let mut now = Instant::now();
        assert_eq!(refusals.note(&Ok(()), 1, now), None);
        assert_eq!(refusals.note(&full(), 1, now), Some(Change::Refused));
        for _ in 0..1000 {
            now += CALM / 2;
            // A nearly full disk takes and refuses in turn.
            assert_eq!(refusals.note(&full(), 2, now), None);
            assert_eq!(refusals.note(&Ok(()), 1, now), None);
        }
        now += CALM;
        assert_eq!(refusals.note(&Ok(()), 1, now), Some(Change::Accepted(2000)));
        assert_eq!(refusals.note(&Ok(()), 1, now), None);
        assert_eq!(refusals.note(&full(), 1, now), Some(Change::Refused));
        assert_eq!(refusals.note(&broken(), 1, now), Some(Change::Refused));
        assert_eq!(refusals.note(&broken(), 1, now), None);
    }
}
