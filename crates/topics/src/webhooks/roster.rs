//! How endpoints that are in no file come to the driver that serves them.

use std::sync::{Arc, Mutex, PoisonError};

use super::plan::EndpointPlan;
use super::state::Bell;

/// Something that a driver has to know.
pub(crate) enum Arrival {
    /// Serve this endpoint, or go on with it as it is described now.
    Put(Arc<EndpointPlan>),
    /// The endpoint of this name is gone, and what is noted of it.
    Remove(Arc<str>),
}

/// What waits for a driver.
#[derive(Default)]
pub(crate) struct Arrivals {
    waiting: Mutex<Vec<Arrival>>,
    bell: Arc<Bell>,
}

impl Arrivals {
    /// Has the driver know.
    pub fn push(&self, arrival: Arrival) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(arrival);
        drop(waiting);
        self.bell.nudge();
    }

    /// What has come since.
    pub(super) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}
