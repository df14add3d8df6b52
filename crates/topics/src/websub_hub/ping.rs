//! What publishers tell a hub: that a topic has changed, or its content.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use component::handler::{Call, Services};
use message::{Body, Fault, Headers, Method, Request};

use super::plan::HubTopic;
use super::subscriptions::add;
use crate::document::Document;
use crate::event::Content;
use crate::topic::{For, Publication, Receipt, Topic, in_time};
use crate::webhooks::hub::text;

/// How long after a fetch the next one begins at the earliest: whoever pings must not make the
/// engine ask the publisher without end.
const GAP: Duration = Duration::from_secs(1);

/// What is known of the fetches of a topic.
#[derive(Default)]
pub(crate) struct Pings(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    is_fetching: bool,
    /// Whether another ping has come since the fetch has begun.
    again: bool,
    /// When the last one began.
    last: Option<Instant>,
}

impl Pings {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The topic has changed, somebody says: it is fetched, once for all pings that come meanwhile.
pub(super) fn ping(hub: &Arc<HubTopic>, topic: &Arc<Topic>, services: &dyn Services) {
    {
        let mut inner = hub.pings.inner();
        if std::mem::replace(&mut inner.is_fetching, true) {
            inner.again = true;
            return;
        }
    }
    let fetching = Fetching {
        hub: Arc::clone(hub),
        is_over: false,
    };
    let topic = Arc::clone(topic);
    services.spawn(Box::new(move |services| {
        Box::pin(async move { fetching.run(&topic, services).await })
    }));
}

/// A topic that is being fetched.
struct Fetching {
    hub: Arc<HubTopic>,
    /// Whether another ping begins another one.
    is_over: bool,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if !self.is_over {
            self.hub.pings.inner().is_fetching = false;
        }
    }
}

impl Fetching {
    async fn run(mut self, topic: &Arc<Topic>, services: &dyn Services) {
        let hub = Arc::clone(&self.hub);
        let hub = &hub;
        loop {
            let last = hub.pings.inner().last;
            if let Some(last) = last {
                services.sleep_until(last + GAP).await;
            }
            {
                let mut inner = hub.pings.inner();
                inner.again = false;
                inner.last = Some(services.now());
            }
            add(&hub.subscriptions.fetches);
            if let Err(error) = fetch(hub, topic, services).await {
                add(&hub.subscriptions.fetch_failures);
                let (topic, url) = (&**topic.name(), hub.url.as_str());
                tracing::warn!(target: "websub", topic, url, error, "a topic is not fetched");
            }
            let mut inner = hub.pings.inner();
            if !inner.again {
                // Before the lock is given up: a ping that comes then begins another one.
                inner.is_fetching = false;
                self.is_over = true;
                return;
            }
        }
    }
}

/// Fetches a topic and publishes it when it has changed.
async fn fetch(hub: &HubTopic, topic: &Arc<Topic>, services: &dyn Services) -> Result<(), String> {
    let body = get(hub, topic.settings().body_max as u64, services).await?;
    if is_latest(hub, topic, &body) {
        return Ok(());
    }
    let published = publish(hub, topic, For::default(), body, services).await;
    published.map(drop).map_err(|fault| fault.to_string())
}

async fn get(hub: &HubTopic, max: u64, services: &dyn Services) -> Result<Bytes, String> {
    let target = services.egress(hub.url.as_str());
    let target = target.map_err(|refusal| refusal.to_string())?;
    let plan = Arc::new(hub.origins.plan(&target));
    let mut headers = Headers::new();
    headers.append("Accept", format!("{}, */*;q=0.1", hub.media_type));
    let request = Request {
        method: Method::Get,
        path: target.path,
        query: None,
        parameters: Vec::new(),
        headers,
        body: Body::Empty,
        peer: Ipv4Addr::UNSPECIFIED.into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    };
    let deadline = services.now() + hub.timeout;
    let call = Call {
        body_max: Some(max),
        deadline: Some(deadline),
        ..Call::new(&plan, &request, "websub")
    };
    let reply = services.call(call).await;
    let reply = reply.map_err(|fault| fault.to_string())?;
    match reply.status {
        200 => Ok(Bytes::copy_from_slice(reply.body.as_bytes())),
        status => Err(format!("it answered with status {status}")),
    }
}

/// Whether this is the newest content of the topic, whoever has published it. White space in JSON
/// does not count.
fn is_latest(hub: &HubTopic, topic: &Topic, body: &Bytes) -> bool {
    let latest = topic.log().ok().and_then(|log| log.latest());
    latest.is_some_and(|event| {
        let whole = match &event.content {
            Content::Event(body) => body,
            Content::Snapshot { whole, .. } => whole,
        };
        match hub.is_text {
            true => text(whole) == *body,
            // What is no JSON is refused when it is published.
            false => Document::parse(body).is_ok_and(|it| it.text() == whole),
        }
    })
}

/// Publishes content of the topic's media type.
///
/// # Errors
/// `invalid` when it is no JSON, or no UTF-8, and as all that is published.
pub(super) async fn publish(
    hub: &HubTopic,
    topic: &Topic,
    publisher: For<'_>,
    content: Bytes,
    services: &dyn Services,
) -> Result<Receipt, Fault> {
    let body = match hub.is_text {
        false => content,
        true => {
            let text = std::str::from_utf8(&content);
            let text = text.map_err(|_| Fault::invalid("the content is not UTF-8"))?;
            serde_json::to_vec(text).unwrap_or_default().into()
        }
    };
    let publishing = topic.publish_for(publisher, Publication { body, key: None });
    in_time(topic, services, publishing).await
}
