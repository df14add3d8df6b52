//! `publish.poll` of a topic: documents that polling brings are published.

use std::sync::Arc;

use bytes::Bytes;
use component::document::DocumentContext;
use component::handler::{LocalFuture, Services};
use component::source::{Source, SourcePlan, Started};
use component::upstream::UpstreamPlan;
use config::Node;
use message::{Fault, Kind, Origin, Reply, Request};

use super::codes::BAD_POLL;
use super::config::When;
use super::fetch::unusable;
use super::memory::{Last, digest, of_record, to_record};
use super::plan::{self, Surrounded};
use super::run::Poller;
use super::sink::{Brought, Sink};
use crate::document::Document;
use crate::event::EventId;
use crate::hub::Hub;
use crate::settings::{Durability, Payload};
use crate::topic::{Publication, Topic};

/// The keys that only the source has: a topic says itself how large its events are.
const WITHOUT: &[&str] = &["body_max"];

/// The table of the keyed state that pollers have.
pub(crate) const TABLE: &str = "poll";

/// The JSON Schema of the value under `publish.poll`.
pub(crate) fn schema() -> serde_json::Value {
    super::config::schema(WITHOUT)
}

/// Reads what stands under `publish.poll` of a topic: what polls, and the systems that it asks.
/// Every problem goes into the report; `None` when there was one.
pub(crate) fn read(
    node: &Node,
    context: &mut DocumentContext<'_>,
    topic: &Arc<Topic>,
) -> Option<(SourcePlan, Vec<Arc<UpstreamPlan>>)> {
    let config = super::config::read(node, WITHOUT, context.report)?;
    let is_snapshot = topic.settings().payload == Payload::Snapshot;
    if let Some(entry) = node.entry("changes").filter(|_| is_snapshot) {
        let message = "`changes` has no effect on a topic of snapshots";
        let diagnostic = context.report.error(BAD_POLL, entry.key_span, message);
        diagnostic.hint("one that is the same as the last is never published; leave it out");
        return None;
    }
    let mut surrounded = Surrounded {
        report: &mut *context.report,
        name: topic.name(),
        connections: context.connections,
        evaluation: context.evaluation,
        surroundings: context.surroundings,
        body_max: Some(topic.settings().body_max as u64),
    };
    let read = plan::read(node, &config, &mut surrounded)?;
    let source = TopicSource {
        poller: read.poller,
        topic: Arc::clone(topic),
        hub: Hub::of(context.surroundings.states),
        when: config.when.unwrap_or_default(),
        changes: config.changes.unwrap_or(true),
        settings: read.settings,
    };
    let plan = SourcePlan {
        flow: Arc::new(NoFlow(format!("topic {}", topic.name()).into())),
        source: Arc::new(source),
    };
    Some((plan, read.upstreams))
}

/// A topic takes the place of a flow.
pub(crate) struct NoFlow(pub(crate) Arc<str>);

impl Started for NoFlow {
    fn name(&self) -> &Arc<str> {
        &self.0
    }

    fn start<'a>(
        &'a self,
        _: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        let fault = Fault::new(Kind::Internal, Origin::Engine, "a topic is no flow");
        Box::pin(std::future::ready(Err(fault)))
    }
}

/// What polls for a topic.
struct TopicSource {
    poller: Poller,
    topic: Arc<Topic>,
    hub: Arc<Hub>,
    when: When,
    /// Whether only changes are published.
    changes: bool,
    /// What tells these settings from others.
    settings: String,
}

impl Source for TopicSource {
    fn run<'a>(
        &'a self,
        _: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(self.poller.run(self, services, stop))
    }
}

impl TopicSource {
    async fn publish(&self, document: Bytes, last: &mut Last) -> Result<bool, Fault> {
        let mut body = document;
        let mut made = None;
        if self.topic.settings().payload == Payload::Event {
            // Nobody but the poller knows whether it is the document that came last.
            let compact = Document::parse(&body).map_err(unusable)?;
            body = compact.text().clone();
            let now = digest(&body);
            if self.changes && last.digest.as_ref() == Some(&now) {
                return Ok(false);
            }
            made = Some(now);
        }
        let publication = Publication { body, key: None };
        let receipt = self.topic.publish(publication).await;
        let receipt = receipt.map_err(|fault| match fault.kind {
            Kind::Invalid => unusable(&fault.detail),
            _ => fault,
        })?;
        last.digest = made;
        last.place = Some(self.place_of(receipt.id));
        Ok(receipt.is_new)
    }

    /// A snapshot stands for its document; events have come one after the other, from others too.
    fn place_of(&self, id: EventId) -> String {
        match self.topic.settings().payload {
            Payload::Snapshot => id.to_string(),
            Payload::Event => id.epoch.to_string(),
        }
    }

    /// The disk, when the topic is on it.
    fn keyed(&self) -> Option<&journal::Keyed> {
        let is_on_disk = self.topic.settings().durability == Durability::Disk;
        self.hub.keyed().filter(|_| is_on_disk)
    }

    async fn read_record(&self) -> Option<Last> {
        let name = self.topic.name();
        match self.keyed()?.get(TABLE, name.as_bytes()).await {
            Ok(record) => of_record(&self.settings, &record?),
            Err(refusal) => {
                let topic = &**name;
                tracing::warn!(
                    target: "poll", topic, %refusal,
                    "what polling has learnt before cannot be read"
                );
                None
            }
        }
    }

    async fn write_record(&self, last: &Last) {
        let Some(keyed) = self.keyed() else {
            return;
        };
        let name = self.topic.name();
        let key = Bytes::copy_from_slice(name.as_bytes());
        let record = to_record(&self.settings, last);
        if let Err(refusal) = keyed.put(TABLE, key, record).await {
            let topic = &**name;
            tracing::warn!(
                target: "poll", topic, %refusal,
                "what polling has learnt is not on the disk: after a restart it asks for all"
            );
        }
    }
}

impl Sink for TopicSource {
    fn is_wanted(&self) -> bool {
        self.when == When::Always || self.topic.listeners().count() > 0
    }

    fn wanted(&self) -> LocalFuture<'_, ()> {
        Box::pin(async {
            let mut listeners = self.topic.listeners();
            while self.when == When::Listened && listeners.count() == 0 {
                listeners.changed().await;
            }
        })
    }

    fn place(&self) -> LocalFuture<'_, Option<String>> {
        Box::pin(async {
            let attached = self.topic.attach().await.ok()?;
            // Without an event there is nothing that could be "not modified".
            attached.latest.map(|latest| self.place_of(latest.id))
        })
    }

    fn may_lag(&self, last: &Last) -> bool {
        self.topic.settings().payload == Payload::Snapshot && last.kept.is_none()
    }

    fn remembered(&self) -> LocalFuture<'_, Option<Last>> {
        Box::pin(self.read_record())
    }

    fn remember<'a>(&'a self, last: &'a Last) -> LocalFuture<'a, ()> {
        Box::pin(self.write_record(last))
    }

    fn take<'a>(
        &'a self,
        brought: Brought<'a>,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<bool, Fault>> {
        Box::pin(async move {
            match brought.document {
                Some(document) => self.publish(document, brought.last).await,
                None => Ok(false),
            }
        })
    }
}

#[cfg(test)]
mod tests;
