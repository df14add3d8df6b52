//! The URL of a topic with a hub: its content, and where its hub is.

use std::sync::Arc;

use component::access::CACHE_FIELD;
use component::edge::RouteEdge;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use message::{Fault, Reply, Request};

use crate::access::{self, Refused, Right};
use crate::endpoint::Endpoint;
use crate::entity_tag::{Comparison, is_listed};
use crate::event::{Content, Event};
use crate::keys;
use crate::webhooks::hub::text;

use super::plan::HubTopic;

/// Answers `GET` with the newest content of a topic.
pub(crate) struct ContentHandler(pub Arc<Endpoint>);

impl Handler for ContentHandler {
    fn reads_body(&self) -> bool {
        false
    }

    fn edge(&self, _: &str, _: Option<&str>) -> Option<Arc<RouteEdge>> {
        Some(Arc::clone(&self.0.settings.edge))
    }

    fn is_locked(&self) -> bool {
        self.0.access.is_locked()
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        self.0.access.secret_parameters().cloned().collect()
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            match self.answer(request, services).await {
                Ok(reply) => Ok(Outcome::Reply(reply)),
                Err(Refused::Fault(fault)) => Err(fault),
                Err(Refused::Reply(reply)) => Ok(Outcome::Reply(*reply)),
            }
        })
    }
}

impl ContentHandler {
    async fn answer(
        &self,
        mut request: Request,
        services: &dyn Services,
    ) -> Result<Reply, Refused> {
        let at = (&request, services);
        let entered = access::admit_to_one(&self.0, Right::Subscribe, at).await;
        let entered = entered.map_err(|refusal| refusal.or(access::nothing))?;
        let all = vec![entered];
        let fields = access::reply_fields(&all);
        let (endpoints, _) = access::enter(all, &mut request);
        let hub = endpoints.first().and_then(|it| it.topic.websub());
        let hub = hub.ok_or_else(access::nothing)?;
        let latest = self.0.topic.log()?.latest();
        let mut reply = match &latest {
            Some(event) => {
                let tag = entity_tag(hub, event);
                let known = is_listed(&request.headers, "If-None-Match", &tag, Comparison::Weak);
                let mut reply = match known {
                    Some(true) => Reply::new(304),
                    None | Some(false) => content(hub, event),
                };
                reply.headers.append("ETag", tag);
                reply
            }
            // Subscribers find the hub before there is anything.
            None => Reply::new(204),
        };
        reply.headers.append("Link", &*hub.links);
        // Each event is another content, and that of a locked topic is for its caller alone.
        let cached = match self.0.is_hidden() {
            true => "private, no-cache",
            false => "no-cache",
        };
        reply.headers.append(CACHE_FIELD, cached);
        for (name, value) in fields.into_iter().filter(|it| it.0 != CACHE_FIELD) {
            reply.headers.append(name, value);
        }
        Ok(reply)
    }
}

fn content(hub: &HubTopic, event: &Event) -> Reply {
    let whole = match &event.content {
        Content::Event(body) => body,
        Content::Snapshot { whole, .. } => whole,
    };
    let body = match hub.is_text {
        true => text(whole),
        false => whole.clone(),
    };
    Reply::with_content(200, &hub.media_type, body)
}

/// The entity tag of a topic's content: a reload may give the same event another media type.
fn entity_tag(hub: &HubTopic, event: &Event) -> String {
    let [a, b, c, d, ..] = keys::digest(hub.media_type.as_bytes());
    let of_type = u32::from_be_bytes([a, b, c, d]);
    format!("\"{}-{of_type:08x}\"", event.id)
}
