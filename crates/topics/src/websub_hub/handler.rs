//! Requests to the hub: subscriptions, pings and content.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use component::access::Caller;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::trigger::ListenAddress;
use message::{Body, Fault, RateLimit, Reply, Request};
use websub::form::Form;
use websub::request::{HubRequest, REQUEST_MAX, Refusal, Subscribe};
use websub::url::Url;

use super::ping;
use super::plan::HubTopic;
use super::verify;
use crate::access::{self, Entered, Protocol, Refused, Right};
use crate::caller_limits::{self, Subscriber};
use crate::endpoint::{Directory, Endpoint};
use crate::log::Log;
use crate::publisher;
use crate::topic::{For, Topic};

/// Takes requests for the topics of a listener.
pub(crate) struct HubHandler {
    pub directory: Arc<Directory>,
    pub listen: ListenAddress,
}

impl Handler for HubHandler {
    fn reads_body(&self) -> bool {
        true
    }

    fn shares(&self) -> Option<&'static str> {
        Some("the WebSub hub")
    }

    fn is_locked(&self) -> bool {
        self.directory.has_locks(&self.listen, Protocol::WebSub)
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        self.directory.secret_parameters(&self.listen).to_vec()
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            match self.answer(request, services).await {
                Ok(reply) => Ok(Outcome::Reply(reply)),
                Err(Failure::Refused(Refused::Fault(fault))) => Err(fault),
                Err(Failure::Refused(Refused::Reply(reply))) => Ok(Outcome::Reply(*reply)),
                Err(Failure::Refusal(refusal)) => Ok(Outcome::Reply(plain(&refusal))),
            }
        })
    }
}

/// Why a request is refused: by a door or a limit, or by the hub, with a plain text.
enum Failure {
    Refused(Refused),
    Refusal(Refusal),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault.into())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

fn refusal(status: u16, reason: impl Into<String>) -> Refusal {
    Refusal {
        status,
        reason: reason.into(),
        retry_after: None,
    }
}

/// A refusal as section 5.1.1 of the recommendation wants it.
fn plain(refusal: &Refusal) -> Reply {
    let text = format!("{}\n", refusal.reason);
    let media_type = "text/plain; charset=utf-8";
    let mut reply = Reply::with_content(refusal.status, media_type, text.into_bytes());
    // It repeats what was sent: no browser is to make a page of it.
    reply.headers.append("X-Content-Type-Options", "nosniff");
    if let Some(seconds) = refusal.retry_after {
        reply.headers.append("Retry-After", seconds.to_string());
    }
    reply
}

fn missing() -> Fault {
    Fault::invalid("there is no such topic at this hub").with_status(404)
}

/// Who asks, for what is bounded by caller: by name, or by the network that one client has.
fn scope(caller: Option<&Arc<Caller>>, peer: IpAddr) -> Result<Arc<str>, Fault> {
    if let Some(caller) = caller {
        return Ok(caller.scope()?.into());
    }
    Ok(match peer.to_canonical() {
        IpAddr::V4(address) => format!("ip {address}"),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("ip {a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
    .into())
}

fn body(request: &Request) -> Bytes {
    match &request.body {
        Body::Bytes(bytes) => bytes.clone(),
        Body::Empty | Body::Unread => Bytes::new(),
    }
}

/// The topics that the query of a publisher names: `?hub.mode=publish&hub.topic=URL`.
fn published(request: &Request) -> Option<Vec<String>> {
    let query = request.query.as_deref()?;
    let form = Form::parse(query.as_bytes()).ok()?;
    if form.one("hub.mode").ok()? != Some("publish") {
        return None;
    }
    let topics = form.all("hub.topic").chain(form.all("hub.url"));
    Some(topics.map(str::to_owned).collect())
}

impl HubHandler {
    async fn answer(&self, request: Request, services: &dyn Services) -> Result<Reply, Failure> {
        let form = b"application/x-www-form-urlencoded";
        let is_form = essence(request.headers.get("Content-Type").unwrap_or_default()) == form;
        let has_body = !body(&request).is_empty();
        match published(&request).as_deref() {
            Some([topic]) if has_body && !is_form => {
                return self.take_content(topic, request, services).await;
            }
            Some([topic]) if !has_body => {
                let topics = [topic.clone()];
                return self.ping(&topics, &request, services).await;
            }
            Some(_) if !is_form => return Err(refusal(400, "hub.topic names one topic").into()),
            _ => {}
        }
        let body = body(&request);
        if body.len() as u64 > REQUEST_MAX {
            return Err(refusal(413, "the request is too large").into());
        }
        let content_type = request.headers.get("Content-Type");
        match HubRequest::read(content_type, &body)? {
            HubRequest::Subscribe(subscribe) => {
                self.subscribe(Wish::Subscribe(subscribe), request, services)
                    .await
            }
            HubRequest::Unsubscribe { topic, callback } => {
                let wish = Wish::Unsubscribe(topic, callback);
                self.subscribe(wish, request, services).await
            }
            HubRequest::Publish(topics) => self.ping(&topics, &request, services).await,
        }
    }

    fn find(&self, url: &str) -> Option<Arc<Endpoint>> {
        let is_it = |it: &Endpoint| it.topic.websub().is_some_and(|hub| hub.url.as_str() == url);
        self.directory.search(&self.listen, is_it)
    }

    /// Takes a request for a subscription or for its end.
    async fn subscribe(
        &self,
        wish: Wish,
        mut request: Request,
        services: &dyn Services,
    ) -> Result<Reply, Failure> {
        let found = self.find(wish.topic());
        let locks = self
            .directory
            .locks(&self.listen, Protocol::WebSub, Right::Subscribe);
        let at = (&request, services);
        let entered = access::admit(found, &locks, Right::Subscribe, at).await;
        let entered = entered.map_err(|refusal| refusal.or(missing));
        let entered = plain_if_missing(entered)?;
        let (endpoints, callers) = access::enter(vec![entered], &mut request);
        let (Some(endpoint), caller) = (endpoints.first(), callers.first()) else {
            return Err(missing().into());
        };
        // Its places are free again at once: it is how often somebody asks that is counted.
        let limits = Subscriber::enter((&endpoints, &callers), &request, services).await?;
        let hub = endpoint.topic.websub().ok_or_else(missing)?;
        if let Err(refused) = services.egress(wish.callback().as_str()) {
            let reason = format!("hub.callback: {}", refused.detail());
            return Err(refusal(403, reason).into());
        }
        let caller = scope(caller.and_then(Option::as_ref), request.peer)?;
        let log = endpoint.topic.log()?;
        accept((hub, log), wish, &caller, services).await?;
        verify::pump(&hub.state, services);
        let mut reply = Reply::new(202);
        for (name, value) in limits.fields.iter().flat_map(RateLimit::fields) {
            reply.headers.append(name, value);
        }
        Ok(reply)
    }

    /// Whether a publisher may publish to a topic.
    async fn admit_publisher(
        &self,
        url: &str,
        (request, services): (&Request, &dyn Services),
    ) -> Result<Entered, Failure> {
        let (listen, protocol) = (&self.listen, Protocol::WebSub);
        let locks = [Right::Publish, Right::Subscribe];
        let locks = locks.map(|right| self.directory.locks(listen, protocol, right));
        let at = (request, services);
        let entered = access::admit_publisher(self.find(url), locks.each_ref(), at).await;
        plain_if_missing(entered.map_err(|refusal| refusal.or(missing)))
    }

    /// Takes a ping: topics have changed.
    async fn ping(
        &self,
        topics: &[String],
        request: &Request,
        services: &dyn Services,
    ) -> Result<Reply, Failure> {
        let mut all = Vec::new();
        for url in topics {
            let (endpoint, admitted) = self.admit_publisher(url, (request, services)).await?;
            let caller = admitted.map(|it| it.caller);
            caller_limits::publish(&endpoint, (Some(request), caller.as_ref()), 0, services)
                .await?;
            all.push(endpoint);
        }
        for endpoint in all {
            let hub = endpoint.topic.websub().ok_or_else(missing)?;
            // What is published here is delivered without a ping.
            if hub.is_followed {
                ping::ping(hub, &endpoint.topic, services);
            }
        }
        Ok(Reply::new(204))
    }

    /// Takes content of a topic.
    async fn take_content(
        &self,
        url: &str,
        mut request: Request,
        services: &dyn Services,
    ) -> Result<Reply, Failure> {
        let entered = self.admit_publisher(url, (&request, services)).await?;
        let (endpoints, callers) = access::enter(vec![entered], &mut request);
        let (Some(endpoint), caller) = (endpoints.first(), callers.first()) else {
            return Err(missing().into());
        };
        let hub = endpoint.topic.websub().ok_or_else(missing)?;
        if !hub.publish {
            return Err(refusal(403, "this topic takes no content from publishers").into());
        }
        let (own, sent) = (
            essence(hub.media_type.as_bytes()),
            request.headers.get("Content-Type"),
        );
        if essence(sent.unwrap_or_default()) != own {
            let reason = format!("the content of this topic is {}", hub.media_type);
            return Err(refusal(415, reason).into());
        }
        let content = body(&request);
        let caller = caller.and_then(Option::as_ref);
        let limited = (Some(&request), caller);
        caller_limits::publish(endpoint, limited, content.len(), services).await?;
        let receipt = publish(hub, &endpoint.topic, (&request, content), services).await?;
        Ok(publisher::answer(&receipt))
    }
}

async fn publish(
    hub: &HubTopic,
    topic: &Topic,
    (request, content): (&Request, Bytes),
    services: &dyn Services,
) -> Result<crate::topic::Receipt, Fault> {
    let publisher = For::client(request.peer, services);
    ping::publish(hub, topic, publisher, content, services).await
}

fn essence(media_type: &[u8]) -> Vec<u8> {
    let essence = media_type.split(|it| *it == b';').next();
    essence
        .unwrap_or_default()
        .trim_ascii()
        .to_ascii_lowercase()
}

/// A topic that is not there is told in plain text, as all that the hub itself says.
fn plain_if_missing(entered: Result<Entered, Refused>) -> Result<Entered, Failure> {
    entered.map_err(|refused| match refused {
        Refused::Fault(fault) if fault.status == 404 => {
            refusal(404, fault.detail.into_owned()).into()
        }
        other => other.into(),
    })
}

/// What somebody wants.
enum Wish {
    Subscribe(Subscribe),
    Unsubscribe(Arc<str>, Url),
}

impl Wish {
    fn topic(&self) -> &str {
        match self {
            Self::Subscribe(subscribe) => &subscribe.topic,
            Self::Unsubscribe(topic, _) => topic,
        }
    }

    fn callback(&self) -> &Url {
        match self {
            Self::Subscribe(subscribe) => &subscribe.callback,
            Self::Unsubscribe(_, callback) => callback,
        }
    }
}

/// Has a wish verified.
async fn accept(
    (hub, log): (&HubTopic, &Arc<Log>),
    wish: Wish,
    caller: &Arc<str>,
    services: &dyn Services,
) -> Result<(), Failure> {
    let state = &hub.state;
    if let Err(error) = state.loaded((hub, log), services).await {
        let topic = &*hub.subscriptions.name;
        tracing::error!(target: "websub", topic, error, "subscriptions cannot be read");
        let refusal = Refusal {
            retry_after: Some(5),
            ..refusal(503, "subscriptions cannot be taken at the moment")
        };
        return Err(refusal.into());
    }
    let now = state.moment(services);
    let mut machine = state.machine();
    match wish {
        Wish::Subscribe(mut subscribe) => {
            subscribe.lease = Some(hub.leases.grant(subscribe.lease));
            machine.subscribe(subscribe, caller, now)?;
        }
        Wish::Unsubscribe(topic, callback) => {
            machine.unsubscribe((topic, callback), caller, now)?;
        }
    }
    Ok(())
}
