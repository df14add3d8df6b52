//! Topics in the manner of other systems.

pub(crate) mod axway;
