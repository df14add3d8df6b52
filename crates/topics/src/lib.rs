//! Topics: what is published to them, in which order, what is kept, and who gets it; and
//! connections of clients that stay open.
//!
//! [`topic::Topic`] is what the rest has: `prepare` checks what is published on the worker,
//! `sequencer` is the thread that orders it and has a `store` keep it, `log` is what everybody sees
//! then, and [`mailbox`] how a worker gets it. [`document`] compares snapshots. [`declare`] reads
//! `topic:` documents, [`hub`] opens what they declare, `publisher` takes events by HTTP.
//!
//! `branch` is what a worker has of a topic; it hands events to `channel`s, each of which encodes
//! them once into a `ring` for all its `reader`s, whose places `seats` keeps. `join` is how a
//! subscriber comes to a channel. `sse` and `socket` are the endpoints, `subscribe` reads their
//! settings, `profile` has the manners of other systems. [`websocket`] is what every WebSocket
//! connection of a client needs. [`websub`] subscribes to topics of other hubs, `websub_hub` is the
//! hub of topics.

mod access;
mod ask;
mod bounds;
mod branch;
mod caller_limits;
pub mod changes;
mod channel;
pub mod codes;
mod counts;
pub mod declare;
pub mod document;
mod endpoint;
mod entity_tag;
pub mod event;
mod expressions;
mod frame;
mod gzip;
pub mod hub;
mod join;
mod keys;
mod log;
pub mod mailbox;
mod only;
mod origin;
mod other_methods;
pub mod poll;
mod prepare;
mod profile;
pub mod publish;
mod publisher;
mod reader;
mod ring;
mod seats;
mod sequencer;
pub mod settings;
mod socket;
pub mod source;
mod sse;
mod store;
mod stream;
mod subscribe;
mod tally;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod topic;
pub mod upkeep;
mod view;
pub mod webhooks;
pub mod websocket;
pub mod websub;
mod websub_hub;

use component::definition::StepDefinition;
use component::document::DocumentDefinition;
use component::endpoint::EndpointDefinition;
use component::source::SourceDefinition;

/// Where documents and sources of this crate have expressions.
pub const EVALUATED: &[&str] = &[
    "from.poll",
    "publish.poll",
    "publish.limits",
    "subscribe.limits",
];

/// Where documents of this crate may have secrets.
pub const SECRETS: &[&str] = &[
    "subscribe.webhooks.endpoints.*.url",
    "subscribe.webhooks.endpoints.*.secret",
    "subscribe.webhooks.endpoints.*.secrets",
    "subscribe.webhooks.endpoints.*.headers",
    "subscribe.webhooks.manage.secrets_key",
];

/// The kinds of documents of this crate.
pub const DOCUMENTS: &[DocumentDefinition] = &[declare::DEFINITION];

/// Every kind of trigger with a protocol of its own within HTTP.
pub const ENDPOINTS: &[EndpointDefinition] = &[websocket::trigger::DEFINITION];

/// The steps of this crate.
pub const STEPS: &[StepDefinition] = &[publish::DEFINITION, changes::DEFINITION];

/// The sources of this crate.
pub const SOURCES: &[SourceDefinition] = &[source::DEFINITION, poll::SOURCE, websub::SOURCE];
