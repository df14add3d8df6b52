//! What a way goes by now. Streams outlive reloads, and each plan has files and keys of its own:
//! whoever has been let in by an earlier plan is judged by what the plan goes by that is in force.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use component::state::{State, StateKey, States};

use crate::revocation::Revocations;

/// The file or keys that the way of some name currently goes by, for callers of one plan.
#[derive(Clone)]
pub(crate) struct InForce<T> {
    /// Counts the plans that have been loaded.
    plan: u64,
    shared: Arc<Shared<T>>,
}

/// The same for all plans of the process.
struct Shared<T> {
    loaded: AtomicU64,
    /// What is in force, and which plan has it.
    current: RwLock<Option<(u64, T)>>,
}

impl<T: Send + Sync + 'static> State for Shared<T> {}

impl<T: Clone + Send + Sync + 'static> InForce<T> {
    /// That of the way of this name, for a plan that is being loaded.
    pub fn of(way: &str, kind: &'static str, states: &States) -> Self {
        let shared = states.get(StateKey::shared(way, kind), || Shared {
            loaded: AtomicU64::new(0),
            current: RwLock::new(None),
        });
        Self {
            plan: shared.loaded.fetch_add(1, Ordering::Relaxed) + 1,
            shared,
        }
    }

    /// The plan is in force and goes by this. Streams end of those whom that does not admit.
    pub fn set(&self, admits: &T, revocations: &Revocations) {
        let inner = self.shared.current.write();
        let mut inner = inner.unwrap_or_else(PoisonError::into_inner);
        let is_newer = inner.as_ref().is_none_or(|(plan, _)| *plan < self.plan);
        // Dropped without the lock, for it may be large.
        let before = is_newer.then(|| inner.replace((self.plan, admits.clone())));
        drop(inner);
        drop(before);
        revocations.sweep();
    }

    /// Whether what is in force admits somebody whom this plan has admitted. Until the plan itself
    /// is in force, its own word counts.
    pub fn admits(&self, is_admitted: impl FnOnce(&T) -> bool) -> bool {
        let inner = self.shared.current.read();
        let current = inner.unwrap_or_else(PoisonError::into_inner).clone();
        let current = current.filter(|(plan, _)| *plan >= self.plan);
        current.is_none_or(|(_, it)| is_admitted(&it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_judged_by_itself_until_it_is_in_force() {
        let (states, revocations) = (States::default(), Revocations::default());
        let load = || InForce::<u8>::of("staff", "test", &states);
        let has = |plan: &InForce<u8>, entry: u8| plan.admits(|it| *it == entry);
        let first = load();
        assert!(has(&first, 1), "nothing is in force");
        first.set(&1, &revocations);
        assert!(has(&first, 1) && !has(&first, 2));
        let second = load();
        assert!(has(&second, 2) && !has(&first, 2));
        second.set(&2, &revocations);
        assert!(has(&second, 2) && !has(&second, 1) && !has(&first, 1) && has(&first, 2));
        // The last turn of one that is replaced comes too late.
        first.set(&1, &revocations);
        assert!(has(&second, 2) && !has(&second, 1));
        assert!(InForce::<u8>::of("other", "test", &states).admits(|_| false));
    }
}
