//! What a way goes by now. Streams outlive reloads, and each plan has files and keys of its own:
//! whoever has been let in by an earlier plan is judged by what the plan goes by that is in force.

use std::sync::{Arc, PoisonError, RwLock};

use component::state::{State, StateKey, States};

use crate::revocation::Revocations;

/// What admits callers by the way of some name: a file, or keys.
pub(crate) struct InForce<T>(RwLock<Option<T>>);

impl<T: Send + Sync + 'static> State for InForce<T> {}

impl<T: Clone + Send + Sync + 'static> InForce<T> {
    /// That of the way of this name in this process, whatever plan is served.
    pub fn of(way: &str, kind: &'static str, states: &States) -> Arc<Self> {
        states.get(StateKey::shared(way, kind), || Self(RwLock::new(None)))
    }

    /// A plan is in force that goes by this. Streams end of those whom it does not admit.
    pub fn set(&self, admits: &T, revocations: &Revocations) {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = inner.replace(admits.clone());
        drop(inner);
        // What it had may be large.
        drop(before);
        revocations.sweep();
    }

    /// Whether it admits somebody whom it has admitted once. A plan that is not in force yet is
    /// asked by the requests that it gets.
    pub fn admits(&self, is_admitted: impl FnOnce(&T) -> bool) -> bool {
        let inner = self
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        inner.is_none_or(|it| is_admitted(&it))
    }
}
