//! `from: poll`: starts a flow with each document that polling brings.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use component::handler::{LocalFuture, Services};
use component::source::{Source, SourceContext, SourceDefinition, Started, success};
use component::state::{State, StateKey};
use component::upstream::UpstreamPlan;
use config::Node;
use message::{Fault, Headers, Request};

use super::plan::{self, Surrounded};
use super::run::Poller;
use super::sink::{Brought, Sink};
use crate::document::Document;

/// The definition of the source.
pub const DEFINITION: SourceDefinition = SourceDefinition {
    name: "poll",
    summary: "Polls an HTTP API and starts a flow when the answer changes.",
    documentation: include_str!("source.md"),
    example: include_str!("source.yaml"),
    schema,
    build,
};

/// The keys that only polling for a topic has.
const WITHOUT: &[&str] = &["when"];

fn schema() -> serde_json::Value {
    super::config::schema(WITHOUT)
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let config = super::config::read(node, WITHOUT, context.report)?;
    let changes = config.changes.unwrap_or(true);
    let mut surrounded = Surrounded {
        report: &mut *context.report,
        name: context.flow,
        connections: context.connections,
        evaluation: context.evaluation,
        surroundings: context.surroundings,
        body_max: None,
    };
    let read = plan::read(node, &config, &mut surrounded)?;
    let key = StateKey {
        flow: Arc::clone(context.flow),
        step: "poll".into(),
        kind: "poll document",
        settings: read.settings,
    };
    let document = context.surroundings.states.get(key, LastDocument::default);
    Some(Arc::new(PollSource {
        poller: read.poller,
        upstreams: read.upstreams,
        changes,
        document,
    }))
}

/// The document that the flow was last started with.
#[derive(Default)]
struct LastDocument(Mutex<Option<Bytes>>);

impl State for LastDocument {}

/// The source.
struct PollSource {
    poller: Poller,
    upstreams: Vec<Arc<UpstreamPlan>>,
    /// Whether only changes start the flow.
    changes: bool,
    document: Arc<LastDocument>,
}

impl Source for PollSource {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let sink = FlowSink { source: self, flow };
            self.poller.run(&sink, services, stop).await;
        })
    }

    fn upstreams(&self) -> Vec<Arc<UpstreamPlan>> {
        self.upstreams.clone()
    }
}

/// A flow that takes documents.
struct FlowSink<'a> {
    source: &'a PollSource,
    flow: &'a Arc<dyn Started>,
}

impl FlowSink<'_> {
    async fn start(&self, document: Bytes, services: &dyn Services) -> Result<bool, Fault> {
        let document = Document::parse(&document);
        let document = document.map_err(super::fetch::unusable)?;
        let place = &self.source.document.0;
        let before = place.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let before = before.and_then(|it| Document::parse(&it).ok());
        let is_same = before.is_some_and(|before| before.is_same(&document));
        if is_same && self.source.changes {
            return Ok(false);
        }
        let text = document.text().clone();
        success(self.flow.start(request(text.clone()), services).await)?;
        // A flow that failed gets the document again with the next poll.
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        Ok(!is_same)
    }
}

impl Sink for FlowSink<'_> {
    fn take<'a>(
        &'a self,
        brought: Brought<'a>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<bool, Fault>> {
        Box::pin(async move {
            match brought.document {
                Some(document) => self.start(document, services).await,
                None => Ok(false),
            }
        })
    }
}

/// The message that a document is.
fn request(document: Bytes) -> Request {
    let mut headers = Headers::new();
    headers.append("Content-Type", "application/json");
    Request::of_source("POLL", headers, document)
}
