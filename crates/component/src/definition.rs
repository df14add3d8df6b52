//! How a step is declared once, so that loader, schema, reference pages and `intertie list` all
//! read the same table.

use std::any::Any;
use std::sync::Arc;

use config::{Node, Report};

use crate::connection::Connections;
use crate::step::Step;
use crate::trigger::HttpTrigger;

/// The declaration of one kind of step.
pub struct StepDefinition {
    /// The verb: the key under which the step is written.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Prose for the reference page, in Markdown.
    pub documentation: &'static str,
    /// A complete flow file that shows the step; a test loads it.
    pub example: &'static str,
    /// The JSON Schema of the value under the verb.
    pub schema: fn() -> serde_json::Value,
    /// Checks the value under the verb and makes the step. Every problem goes into the report;
    /// `None` only when there was one. Opens nothing.
    pub build: fn(&Node, &mut BuildContext<'_>) -> Option<Box<dyn Step>>,
}

/// What a step may know of its surroundings while it is built.
pub struct BuildContext<'a> {
    /// Where problems go.
    pub report: &'a mut Report,
    /// The flow's name.
    pub flow: &'a str,
    /// The flow's trigger; absent when the trigger itself has a problem.
    pub trigger: Option<&'a HttpTrigger>,
    /// The connections that the flow may use.
    pub connections: &'a Connections,
    /// Whether the step is the flow's last: a last step that forwards streams the reply.
    pub is_last: bool,
}

/// The declaration of one kind of connection, so that loader, schema and reference pages read the
/// same table.
pub struct ConnectionDefinition {
    /// The key under the connection's name.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Prose for the reference page, in Markdown.
    pub documentation: &'static str,
    /// A complete flow file that shows the connection; a test loads it.
    pub example: &'static str,
    /// The JSON Schema of the mapping under the connection's name.
    pub schema: fn() -> serde_json::Value,
    /// Checks the mapping under the connection's name and makes the connection. Every problem goes
    /// into the report; `None` only when there was one. Opens nothing.
    pub build: fn(&str, &Node, &mut Report) -> Option<Arc<dyn Any + Send + Sync>>,
}
