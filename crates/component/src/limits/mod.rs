//! Limits per caller: how many requests, events or bytes come in so much time, counted exactly over
//! all workers, and what stands at the door of a flow.
//!
//! [`Limiter`] is the machine: `window` is its arithmetic, `table` holds the buckets. [`Gate`] is
//! what a flow or a topic asks for each request: its throttles and the caller's [`Plan`].

mod fields;
mod gate;
mod hash;
mod kept;
mod limiter;
mod plan;
mod table;
mod window;

pub use gate::{
    Admission, Entered, Gate, Passed, PlanChoice, THROTTLES_MAX, Throttled, Visit, Which, Who,
};
pub use kept::{Id, KeptLimits};
pub use limiter::{
    CALLERS_DEFAULT, Exceeded, LONG, Limiter, LimiterSettings, Patience, Snapshot, WINDOWS_MAX,
};
pub use plan::{Concurrent, Held, Plan, Plans};
pub use table::CallerHash;
pub use window::WindowSettings;

#[cfg(test)]
mod tests;
