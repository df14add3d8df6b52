//! What the hub calls: it verifies intents, denies subscriptions, and delivers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::source::{Started, failure};
use message::{Body, Fault, Headers, Kind, Method, Origin, Reply, Request};
use websub::deliveries::{Begin, Key};
use websub::subscriber::Intent;

use super::memory::{Known, add};
use super::plan::PARAMETER;
use super::run::Core;

/// Fields of a delivery that say nothing about its content.
const OWN_FIELDS: [&str; 10] = [
    "Connection",
    "Content-Length",
    "Expect",
    "Host",
    "Keep-Alive",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "X-Hub-Signature",
];

/// The callback of a subscription.
pub(super) struct Callback {
    pub core: Arc<Core>,
    pub flow: Arc<dyn Started>,
}

impl Handler for Callback {
    fn reads_body(&self) -> bool {
        true
    }

    /// The flow ends what it has begun, also when the hub has given the delivery up: it is
    /// recognised when it comes again.
    fn detaches(&self) -> bool {
        true
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move { Ok(Outcome::Reply(self.answer(request, services).await)) })
    }
}

impl Callback {
    async fn answer(&self, request: Request, services: &dyn Services) -> Reply {
        let known = match self.core.known().await {
            Ok(known) => known,
            Err(error) => {
                let flow = &*self.core.flow;
                tracing::error!(target: "websub", flow, %error, "the hub is told to come again");
                return later();
            }
        };
        let is_delivery = request.method == Method::Post;
        let mut parameters = request.parameters.iter();
        let token = parameters.find(|it| &*it.0 == PARAMETER);
        if token.is_none_or(|it| it.1 != known.token) {
            // What is delivered there was subscribed to by an engine that has forgotten it, or with
            // other settings: 410 lets the hub end it (section 7).
            return Reply::new(if is_delivery { 410 } else { 404 });
        }
        match is_delivery {
            true => self.deliver(request, known, services).await,
            false => self.verify(&request, known, services),
        }
    }

    fn verify(&self, request: &Request, known: &Known, services: &dyn Services) -> Reply {
        let (core, flow) = (&self.core, &*self.core.flow);
        let (now, random) = (core.memory.moment(services), services.random());
        let query = request.query.as_deref().unwrap_or_default();
        let (intent, lease) = {
            let mut inner = known.lock();
            let intent = inner.subscriber.intent(query, now, random);
            (intent, inner.subscriber.last_lease().cloned())
        };
        match intent {
            Intent::Refused(reason) => {
                add(&core.memory.counts.refused);
                tracing::warn!(target: "websub", flow, reason, "a verification is refused");
                Reply::new(404)
            }
            Intent::Denied(reason) => {
                add(&core.memory.counts.denied);
                core.memory.set_failing(true);
                let reason = reason.unwrap_or_default();
                let reason = reason.escape_debug();
                tracing::warn!(target: "websub", flow, %reason, "the hub denies the subscription");
                core.note_lease(None);
                core.memory.woken.notify_one();
                Reply::new(204)
            }
            Intent::Confirmed(challenge) => {
                core.memory.set_failing(false);
                core.note_lease(lease.as_ref());
                core.memory.woken.notify_one();
                match lease {
                    Some(lease) => {
                        let seconds = lease.ends.saturating_sub(lease.since).as_secs();
                        let (hub, topic) = (lease.hub.as_str(), lease.topic.as_str());
                        tracing::info!(target: "websub", flow, topic, hub, seconds, "subscribed");
                    }
                    None => tracing::info!(target: "websub", flow, "unsubscribed"),
                }
                let mut reply = Reply::with_content(200, "text/plain", challenge.into_bytes());
                // No page of a browser is made of what somebody sends.
                reply.headers.append("X-Content-Type-Options", "nosniff");
                reply
            }
        }
    }

    async fn deliver(&self, request: Request, known: &Known, services: &dyn Services) -> Reply {
        let core = &self.core;
        if !core.is_wanted {
            return Reply::new(410);
        }
        let body = match &request.body {
            Body::Bytes(bytes) => bytes.clone(),
            _ => Bytes::new(),
        };
        let signed = {
            let lines = request.headers.view();
            let is_it = |name: &[u8]| name.eq_ignore_ascii_case(b"X-Hub-Signature");
            let fields = lines.iter().filter(|it| is_it(it.1)).map(|it| it.2);
            known.secret.verify(fields, &body, core.weakest)
        };
        if let Err(unsigned) = signed {
            add(&core.memory.counts.unsigned);
            let (flow, reason) = (&*core.flow, unsigned.name());
            tracing::warn!(
                target: "websub", flow, reason, peer = %request.peer,
                "a delivery is ignored: it is not signed as it should be"
            );
            // The hub must not learn which signatures are right (section 7.1).
            return Reply::new(204);
        }
        let content_type = request.headers.get("Content-Type").unwrap_or_default();
        let id = request.headers.get("webhook-id");
        let key = Key::of(id, content_type, &body);
        let begin = known.lock().deliveries.begin(key, services.wall());
        match begin {
            Begin::Repeated => {
                add(&core.memory.counts.repeated);
                return Reply::new(204);
            }
            Begin::UnderWay => return later(),
            Begin::New => {}
        }
        let mut delivery = Delivery {
            known,
            key: Some(key),
        };
        let message = message(request, body, key, known);
        let result = self.flow.start(message, services).await;
        match failure(&result) {
            None => {
                delivery.done(core, services).await;
                Reply::new(204)
            }
            Some(error) => {
                add(&core.memory.counts.failed);
                let flow = &*core.flow;
                tracing::warn!(target: "websub", flow, error, "a delivery has failed");
                failed(&result)
            }
        }
    }
}

/// A delivery that is being dealt with: dropped without a word, it has not been.
struct Delivery<'a> {
    known: &'a Known,
    key: Option<Key>,
}

impl Delivery<'_> {
    /// It has been: that is on the disk, where there is one, before the hub hears of it.
    async fn done(&mut self, core: &Core, services: &dyn Services) {
        let Some(key) = self.key.take() else {
            return;
        };
        let at = services.wall();
        let gone = self.known.lock().deliveries.end(key, true, at);
        add(&core.memory.counts.events);
        if let Err(error) = core.disk.note(key, at, gone).await {
            let flow = &*core.flow;
            tracing::error!(
                target: "websub", flow, %error,
                "a delivery is not noted on the disk: after a restart it may come again"
            );
        }
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.known.lock().deliveries.end(key, false, Duration::ZERO);
        }
    }
}

/// What the flow gets.
fn message(request: Request, body: Bytes, key: Key, known: &Known) -> Request {
    let mut headers = Headers::new();
    for (_, name, value) in request.headers.view().iter() {
        let name = String::from_utf8_lossy(name);
        if !OWN_FIELDS.iter().any(|it| it.eq_ignore_ascii_case(&name)) {
            headers.append(&name, value);
        }
    }
    let lease = known.lock().subscriber.last_lease().cloned();
    let (hub, topic) = lease.map_or_else(Default::default, |it| {
        (it.hub.as_str().to_owned(), it.topic.as_str().to_owned())
    });
    let id = request.headers.get("webhook-id");
    let id = id.and_then(|it| std::str::from_utf8(it).ok());
    let delivery_id = match id.filter(|it| !it.is_empty()) {
        Some(id) => id.to_owned(),
        None => key.name(),
    };
    let parameters = [("topic", topic), ("hub", hub), ("delivery_id", delivery_id)];
    Request {
        parameters: parameters.map(|(name, value)| (name.into(), value)).into(),
        peer: request.peer,
        is_secure: request.is_secure,
        ..Request::of_source("WEBSUB", headers, body)
    }
}

/// What the hub is told of a delivery that has failed, so that it sends it again. Never what the
/// flow says: 410 would end the subscription.
fn failed(result: &Result<Reply, Fault>) -> Reply {
    let status = match result {
        Ok(reply) => reply.status,
        Err(fault) => fault.status,
    };
    Reply::new(if (500..600).contains(&status) {
        status
    } else {
        500
    })
}

fn later() -> Reply {
    let detail = "the delivery cannot be taken at the moment";
    let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
    fault.with_retry_after(Duration::from_secs(5)).to_reply()
}
