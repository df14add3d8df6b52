//! The keys that sign the identity header, when the file names none: the process has them in
//! memory, and the data folder keeps them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use access::jwt::KeyRing;
use component::state::{Measure, State, StateKey, States};

/// The keys of the process.
#[derive(Default)]
pub struct IdentityKeys {
    ring: RwLock<Option<Arc<KeyRing>>>,
    is_needed: AtomicBool,
    signed: AtomicU64,
}

impl IdentityKeys {
    /// Those of the process.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "identity"), Self::default)
    }

    /// Whether the settings ask for keys, and there are none yet.
    pub fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed) && self.ring().is_none()
    }

    /// The keys; `None` until the data folder has been read.
    pub fn ring(&self) -> Option<Arc<KeyRing>> {
        self.ring
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Signs by these keys from now on. They are on the disk already.
    pub fn set(&self, ring: KeyRing) {
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(ring));
    }

    pub(crate) fn need(&self) {
        self.is_needed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn count_signed(&self) {
        self.signed.fetch_add(1, Ordering::Relaxed);
    }
}

impl State for IdentityKeys {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![Measure::count(
            "identity_signed_total",
            "Tokens signed for the identity header.",
            &self.signed,
        )]
    }
}
