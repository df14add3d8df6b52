//! Topics and what brings their events to people: connections that stay open.

pub mod websocket;

use component::endpoint::EndpointDefinition;

/// Every kind of trigger with a protocol of its own within HTTP.
pub const ENDPOINTS: &[EndpointDefinition] = &[websocket::trigger::DEFINITION];
