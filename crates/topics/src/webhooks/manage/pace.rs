//! How many challenges and tests a caller may have sent: nobody can use the engine to flood others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use component::state::{State, StateKey, States};
use message::{Fault, Kind, Origin};

use crate::webhooks::subscriptions::record::Owner;

/// How many may come at once.
const BURST: u32 = 20;
/// How long it takes until there may be one more.
const EACH: Duration = Duration::from_secs(3);

/// How many challenges and tests callers may have sent, of all topics together.
#[derive(Default)]
pub(super) struct Pace(Mutex<HashMap<Owner, Instant>>);

impl State for Pace {}

impl Pace {
    /// That of the process.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "webhook challenges"), Self::default)
    }

    /// Takes the right to send one (generic cell rate algorithm).
    ///
    /// # Errors
    /// `limited` when the caller has had too many sent.
    pub fn take(&self, owner: &Owner, now: Instant) -> Result<(), Fault> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len().is_power_of_two() && !known.contains_key(owner) {
            known.retain(|_, due| *due > now);
        }
        let due = known.get(owner).map_or(now, |due| (*due).max(now));
        let ahead = due.saturating_duration_since(now);
        let most = EACH * (BURST - 1);
        if ahead > most {
            let detail = "the caller has had too many challenges and tests sent";
            let wait = ahead.saturating_sub(most);
            return Err(Fault::new(Kind::Limited, Origin::Client, detail).with_retry_after(wait));
        }
        known.insert(owner.clone(), due + EACH);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_burst_and_then_one_at_a_time_and_others_are_not_concerned() {
        let pace = Pace::default();
        let owner = |id: &str| Owner {
            way: "keys".into(),
            id: id.into(),
        };
        let start = Instant::now();
        let taken = |id: &str, after: u64| {
            let at = start + Duration::from_secs(after);
            pace.take(&owner(id), at)
                .map_err(|fault| (fault.status, fault.retry_after.unwrap()))
        };
        for _ in 0..BURST {
            assert_eq!(taken("a", 0), Ok(()));
        }
        assert_eq!(taken("a", 0), Err((429, EACH)));
        assert_eq!(taken("a", 1), Err((429, Duration::from_secs(2))));
        assert_eq!(taken("b", 0), Ok(()));
        assert_eq!(taken("a", 3), Ok(()));
        assert!(taken("a", 3).is_err());
        for id in 0..100 {
            assert_eq!(taken(&format!("c{id}"), 1000), Ok(()));
        }
        assert!(
            !pace.0.lock().unwrap().contains_key(&owner("b")),
            "forgotten"
        );
    }
}
