//! What starts flows without a request: a schedule, a watched folder, later a broker.

use std::sync::Arc;

use config::{Node, Report};
use message::{Fault, Reply, Request};

use crate::connection::Connections;
use crate::content::Format;
use crate::definition::Surroundings;
use crate::document::Entrance;
use crate::evaluation::Evaluation;
use crate::handler::{Handler, LocalFuture, Services};
use crate::upstream::UpstreamPlan;

/// A flow that a source starts.
pub trait Started: Send + Sync {
    /// The flow's name.
    fn name(&self) -> &Arc<str>;

    /// Runs the flow on one message. What fails and is not handled is the source's to decide on;
    /// it has been logged.
    fn start<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>>;

    /// Whether the work goes on when whoever has sent the message leaves.
    fn detaches(&self) -> bool {
        false
    }
}

/// Whether a flow has succeeded with a message: it has neither failed nor replied with an error.
/// What counts as a failure is decided here for all sources.
pub fn has_succeeded(result: &Result<Reply, Fault>) -> bool {
    result.as_ref().is_ok_and(|reply| reply.status < 400)
}

/// The reply of a flow that has succeeded.
///
/// # Errors
/// The failure; an error reply is a failure with its status.
pub fn success(result: Result<Reply, Fault>) -> Result<Reply, Fault> {
    result.and_then(|reply| match reply.status < 400 {
        true => Ok(reply),
        false => Err(Fault::of_status(reply.status)),
    })
}

/// Why a flow has not succeeded with a message, for people, when it has not.
pub fn failure(result: &Result<Reply, Fault>) -> Option<String> {
    match result {
        _ if has_succeeded(result) => None,
        Ok(reply) => Some(format!("the flow replied with status {}", reply.status)),
        Err(fault) => Some(format!("{}: {}", fault.name(), fault.detail)),
    }
}

/// An address that a source serves, such as one that another system calls back.
#[derive(Clone)]
pub struct SourcePage {
    /// Where its requests come in.
    pub entrance: Entrance,
    /// Who takes them. Whoever may not call it is its own matter: neither `auth` of the listener
    /// nor
    /// that of the flow stands in front of it.
    pub handler: Arc<dyn Handler>,
}

/// Something that starts a flow by itself. It runs on one worker, whichever that is, unless it says
/// otherwise.
pub trait Source: Send + Sync {
    /// Starts the flow again and again. When `stop` is ready no more may be started, and the source
    /// ends when what is under way has ended; a reload starts the source of the new plan then.
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()>;

    /// Whether it runs on every worker at once, each with its share ([`Services::share`]).
    fn is_on_every_worker(&self) -> bool {
        false
    }

    /// What it serves; requests may start the flow, too, on whichever worker they come to.
    fn pages(&self, _flow: &Arc<dyn Started>) -> Vec<SourcePage> {
        Vec::new()
    }

    /// The systems that it sends requests to.
    fn upstreams(&self) -> Vec<Arc<UpstreamPlan>> {
        Vec::new()
    }

    /// The format of the bodies of its messages, when it does not go by their `Content-Type`.
    fn decode(&self) -> Option<Format> {
        None
    }
}

/// Reads what stands under `http:` of a trigger: the short text or the mapping. Every problem goes
/// into the report; `None` when there was one.
pub type ReadHttp<'a> = &'a dyn Fn(&Node, &mut Report) -> Option<Entrance>;

/// What a source may know of its surroundings while it is built.
pub struct SourceContext<'a> {
    /// Where problems go.
    pub report: &'a mut Report,
    /// The flow's name.
    pub flow: &'a Arc<str>,
    /// The connections that the flow may use.
    pub connections: &'a Connections,
    /// Reads the `http` of an address that it serves.
    pub read_http: ReadHttp<'a>,
    /// What its expressions may use, if it has any.
    pub evaluation: &'a Evaluation,
    /// What the loader knows beside the files.
    pub surroundings: &'a Surroundings<'a>,
}

/// The declaration of one kind of source, so that loader, schema and reference pages read the same
/// table.
#[derive(Clone, Copy)]
pub struct SourceDefinition {
    /// The key under `from`.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Prose for the reference page, in Markdown.
    pub documentation: &'static str,
    /// A complete flow file that shows the source; a test loads it.
    pub example: &'static str,
    /// The JSON Schema of the value under the key.
    pub schema: fn() -> serde_json::Value,
    /// Checks the value under the key and makes the source. Every problem goes into the report;
    /// `None` only when there was one. Opens nothing.
    pub build: fn(&Node, &mut SourceContext<'_>) -> Option<Arc<dyn Source>>,
}

/// A source and the flow that it starts.
#[derive(Clone)]
pub struct SourcePlan {
    /// The flow.
    pub flow: Arc<dyn Started>,
    /// What starts it.
    pub source: Arc<dyn Source>,
}
