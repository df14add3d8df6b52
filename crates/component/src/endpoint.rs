//! Triggers that put a protocol of their own around the messages of HTTP: requests are opened
//! before the flow runs, and its end is put into what the protocol says.

use std::any::Any;
use std::sync::Arc;

use config::Node;
use message::{Fault, Method, Reply, Request};

use crate::source::SourceContext;

/// What a protocol notes of a request for its reply.
pub type Note = Box<dyn Any>;

/// What becomes of a request.
pub enum Opened {
    /// It is answered without the flow.
    Reply(Reply),
    /// It is a message to the flow.
    Message(Box<Request>, Note),
}

/// A protocol around a flow. One value serves all workers.
pub trait Envelope: Send + Sync {
    /// The methods that are taken.
    fn methods(&self) -> Vec<Method>;

    /// Opens a request, its body in memory.
    fn open(&self, request: Request) -> Opened;

    /// Puts the end of the flow into a reply. What failed beside the flow itself, such as a reply
    /// that the protocol cannot say, comes back for the log.
    fn close(&self, note: &Note, end: Result<Reply, &Fault>) -> (Reply, Option<Fault>);
}

/// The declaration of one kind of endpoint. Its keys under `from` stand beside those that every
/// endpoint has: `listen`, `path`, `body_max`, `tls` and `protocols`.
#[derive(Clone, Copy)]
pub struct EndpointDefinition {
    /// The key under `from`.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Prose for the reference page, in Markdown.
    pub documentation: &'static str,
    /// A complete flow file that shows the endpoint; a test loads it.
    pub example: &'static str,
    /// The JSON Schema of its own keys.
    pub schema: fn() -> serde_json::Value,
    /// Checks its own keys, which stand in a mapping without the others, and makes the endpoint.
    /// Every problem goes into the report; `None` only when there was one. Opens nothing.
    pub build: fn(&Node, &mut SourceContext<'_>) -> Option<Arc<dyn Envelope>>,
}
