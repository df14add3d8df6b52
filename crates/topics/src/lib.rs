//! Topics: what is published to them, in which order, what is kept, and who gets it; and connections
//! of clients that stay open.

pub mod codes;
pub mod event;
pub mod websocket;

use component::document::DocumentDefinition;
use component::endpoint::EndpointDefinition;

/// The kinds of documents of this crate.
pub const DOCUMENTS: &[DocumentDefinition] = &[];

/// Every kind of trigger with a protocol of its own within HTTP.
pub const ENDPOINTS: &[EndpointDefinition] = &[websocket::trigger::DEFINITION];
