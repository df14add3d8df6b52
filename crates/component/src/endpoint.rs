//! Triggers that put a protocol of their own around the messages of HTTP: requests are opened
//! before the flow runs, and its end is put into what the protocol says.

use std::any::Any;
use std::sync::Arc;

use config::Node;
use message::{Fault, Method, Reply, Request};

use crate::content::Format;
use crate::source::{SourceContext, Started};
use crate::stream::Feed;

/// What a protocol notes of a request for its reply.
pub type Note = Arc<dyn Any + Send + Sync>;

/// What becomes of a request.
pub enum Opened {
    /// It is answered without the flow.
    Reply(Reply),
    /// It is a message to the flow.
    Message(Box<Request>, Note),
    /// The client's connection stays open behind this head, and messages to the flow come by it.
    Stream(Reply, Box<dyn Conversation>),
}

/// Messages to a flow that come by a client's connection that stays open.
pub trait Conversation: Send {
    /// What goes on with the connection: messages start this flow, each of which runs for itself.
    fn with(self: Box<Self>, flow: Arc<dyn Started>) -> Box<dyn Feed>;
}

/// A protocol around a flow. One value serves all workers.
pub trait Envelope: Send + Sync {
    /// The methods that are taken.
    fn methods(&self) -> Vec<Method>;

    /// The format of the bodies of its messages, when it does not go by their `Content-Type`.
    fn decode(&self) -> Option<Format> {
        None
    }

    /// The parameters of the query that logs must not show.
    fn secret_parameters(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// Whether requests open connections that stay ([`Opened::Stream`]), so that they can be
    /// limited.
    fn streams(&self) -> bool {
        false
    }

    /// Opens a request, its body in memory. A large one is opened on a thread beside the workers.
    fn open(&self, request: Request) -> Opened;

    /// Puts the end of the flow into a reply, a large one on a thread beside the workers. What
    /// failed beside the flow itself, such as a reply that the protocol cannot say, comes back for
    /// the log.
    fn close(&self, note: &Note, end: Result<Reply, &Fault>) -> (Reply, Option<Fault>);
}

/// The declaration of one kind of endpoint. Its keys under `from` stand beside those that every
/// endpoint has: `listen`, `path`, `tls` and `protocols`, and `body_max` when requests have bodies.
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
    /// Whether its requests have bodies, so that `body_max` means something.
    pub has_body: bool,
    /// Checks its own keys, which stand in a mapping without the others, and makes the endpoint.
    /// Every problem goes into the report; `None` only when there was one. Opens nothing.
    pub build: fn(&Node, &mut SourceContext<'_>) -> Option<Arc<dyn Envelope>>,
}
