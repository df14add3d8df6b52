//! Topics in the manner of other systems.

pub(crate) mod axway;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The manner of another system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum Profile {
    /// Paths, media types, event names and ids of Axway Amplify Streams.
    AxwayStreams,
}
