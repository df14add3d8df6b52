//! The keyed state of the data folder: steps say that they want it when they are loaded, and
//! whoever runs them opens it.

use std::sync::{Arc, OnceLock};

use component::state::{State, StateKey, States};
use journal::Keyed;

/// The keyed state of the process, open or not.
#[derive(Default)]
pub struct KeyedState {
    keyed: OnceLock<Keyed>,
    /// One more for each step that needs it, and for each that uses it where there is one.
    required: Arc<()>,
    wanted: Arc<()>,
}

impl KeyedState {
    /// The one that belongs to these states.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "keyed"), Self::default)
    }

    /// Whether a step needs it.
    pub fn is_required(&self) -> bool {
        Arc::strong_count(&self.required) > 1
    }

    /// Whether a step uses it where there is a data folder.
    pub fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.wanted) > 1
    }

    /// The keyed state, when that has been opened.
    pub fn keyed(&self) -> Option<&Keyed> {
        self.keyed.get()
    }

    /// Whether nothing is written any more before a restart, since the disk has failed.
    pub fn has_failed(&self) -> bool {
        self.keyed().is_some_and(Keyed::has_failed)
    }

    /// From here on steps use this one. The first one stays.
    pub fn open(&self, keyed: Keyed) {
        // Whoever was faster has opened the same folder.
        let _ = self.keyed.set(keyed);
    }

    /// Finishes what waits to be written.
    pub async fn close(&self) {
        if let Some(keyed) = self.keyed() {
            keyed.close().await;
        }
    }
}

impl State for KeyedState {
    /// The folder is opened once: the deny list, which no step has, needs it too.
    fn stays(&self) -> bool {
        self.keyed.get().is_some()
    }
}

/// A user of the keyed state, counted so that the engine knows whether to open it.
pub struct KeyedStateHandle {
    state: Arc<KeyedState>,
    _use: Arc<()>,
}

impl KeyedStateHandle {
    /// For a step that needs it, or uses it where there is one.
    pub fn new(states: &States, is_required: bool) -> Self {
        let state = KeyedState::of(states);
        let counted = match is_required {
            true => &state.required,
            false => &state.wanted,
        };
        Self {
            _use: Arc::clone(counted),
            state,
        }
    }

    /// The keyed state, when that has been opened.
    pub fn keyed(&self) -> Option<&Keyed> {
        self.state.keyed()
    }
}
