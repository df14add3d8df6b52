//! Kinds of documents that are flows with other keys than `steps`, such as a menu: how one kind is
//! declared once, so that loader, schema and reference pages read the same table.

use std::sync::Arc;

use config::Node;

use crate::definition::BuildContext;
use crate::endpoint::Envelope;
use crate::source::SourceContext;
use crate::step::Step;

/// The declaration of one kind of flow. Such a document has the keys of all flows (`use`, `from`,
/// `auth`, `networks`, `security_headers`, `limits`, `tests`) and its own, but no `steps`.
#[derive(Clone, Copy)]
pub struct FlowKind {
    /// The key that such a document begins with.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Prose for the reference page, in Markdown.
    pub documentation: &'static str,
    /// A complete file that shows it; a test loads it.
    pub example: &'static str,
    /// The one trigger of this kind.
    pub trigger: KindTrigger,
    /// The JSON Schema of its own keys, the first one included. `{"$ref": "#/$defs/step"}` stands
    /// for a step.
    pub schema: fn() -> serde_json::Value,
    /// Checks the document and makes what it does with a message. Every problem goes into the
    /// report; `None` only when there was one. Opens nothing.
    pub build: fn(&Node, &mut BuildContext<'_>) -> Option<Box<dyn Step>>,
}

/// The trigger of a kind of flow: a protocol within HTTP.
#[derive(Clone, Copy)]
pub struct KindTrigger {
    /// The key under `from`.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// The JSON Schema of its keys, with any value under `http`, which is an HTTP trigger.
    pub schema: fn() -> serde_json::Value,
    /// What everybody could do who reaches it without `auth` or `networks`: beyond this machine
    /// that is refused.
    pub danger: &'static str,
    /// Checks its keys and makes the protocol. Every problem goes into the report; `None` only when
    /// there was one.
    pub build: fn(&Node, &mut SourceContext<'_>) -> Option<Arc<dyn Envelope>>,
}

/// The name by which [`Services::flow`](crate::handler::Services::flow) finds a flow of a kind. No
/// plain flow has it, for names have no colon.
#[must_use]
pub fn callee_name(kind: &str, flow: &str) -> String {
    format!("{kind}:{flow}")
}
