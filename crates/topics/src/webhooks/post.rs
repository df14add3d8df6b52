//! The request that an endpoint gets.

use std::net::Ipv4Addr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use access::hmac_queue::{self, HmacKey, HmacQueue};
use bytes::Bytes;
use component::handler::LocalFuture;
use message::{Body, Headers, Method, Request};
use websub::signature::Method as SignedBy;

use super::attempts::WebhookId;
use super::axway;
use super::envelope::{self, CloudEvents};
use super::machine::Span;
use super::plan::{EndpointPlan, Outgoing, Subscriber};
use super::view::Shown;
use crate::event::EventId;
use crate::frame::Kind;

/// The header fields that the engine sets, in small letters.
pub(super) const RESERVED: &[&str] = &[
    "content-type",
    "content-encoding",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "x-hub-signature-256",
    "x-intertie-topic",
    "x-intertie-kind",
    "x-intertie-mode",
    "x-intertie-first",
    "x-intertie-last",
    "x-intertie-count",
    "ce-specversion",
    "ce-id",
    "ce-source",
    "ce-type",
    "ce-time",
];

/// How many header lines most requests have, and how many bytes.
const LINES: usize = 8;
const LINES_BYTES: usize = 320;

thread_local! {
    /// Signs the requests of this thread, those of all topics, in batches.
    static SIGNATURES: Rc<HmacQueue> = {
        if !hmac_queue::passes_self_test() {
            tracing::error!(
                target: "topics",
                "this processor computes several signatures at once wrongly: webhooks are signed \
                 one after the other; please report it"
            );
        }
        Rc::default()
    };
}

/// A request with these headers, and with this id, time and body, signed.
async fn signed_request(
    mut headers: Headers,
    (id, seconds, body): (&str, u64, Bytes),
    outgoing: &Outgoing,
) -> Request {
    headers.append("webhook-id", id);
    let timestamp = seconds.to_string();
    headers.append("webhook-timestamp", &timestamp);
    if let Some(signer) = &outgoing.signer {
        let queue = SIGNATURES.with(Rc::clone);
        let value = signer.sign((id, &timestamp), &body, &queue).await;
        headers.append(signer.field(), value);
    }
    request(headers, body, outgoing)
}

/// A request with these headers and this body.
fn request(headers: Headers, body: Bytes, outgoing: &Outgoing) -> Request {
    Request {
        method: Method::Post,
        path: outgoing.forward.path.clone(),
        query: None,
        parameters: Vec::new(),
        headers,
        body: Body::from(body),
        peer: Ipv4Addr::UNSPECIFIED.into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    }
}

/// Builds a signed request that carries no event of the topic, such as a challenge or a test, with
/// these further headers. `signed` is its id, its time in milliseconds since 1970 and its body.
pub(super) async fn probe(
    (topic, kind): (&str, &str),
    (mut headers, signed): (Headers, (&str, u64, Bytes)),
    outgoing: &Outgoing,
) -> Request {
    headers.append("Content-Type", "application/json");
    headers.append("X-Intertie-Topic", topic);
    headers.append("X-Intertie-Kind", kind);
    signed_request(headers, signed, outgoing).await
}

/// A request that is being built. Boxed to keep the task of a delivery small: it is copied when it
/// is spawned.
pub(super) enum RequestBuild<'a> {
    Ready(Box<Request>),
    /// It is signed together with others.
    Pending(LocalFuture<'a, Box<Request>>),
}

/// Several events in one request.
struct BatchBounds {
    first: EventId,
    last: EventId,
    count: usize,
}

/// What is sent, before it is signed: the same with each try.
pub(super) struct Post {
    /// What tells it from all others.
    pub id: Arc<str>,
    /// The event; the last one, where there are several.
    event: EventId,
    pub kind: Kind,
    at_ms: u64,
    pub body: Bytes,
    batch: Option<BatchBounds>,
}

impl Post {
    /// Events of an endpoint; none when its view does not show one of them any more. `bounds` are
    /// the ids of the first and the last one.
    pub fn events(
        plan: &EndpointPlan,
        (shown, is_batch): (&[Rc<Shown>], bool),
        (bounds, is_whole): ((EventId, EventId), bool),
    ) -> Option<Self> {
        let view = &plan.view;
        if is_batch {
            return Some(Self::batch(plan, shown, bounds));
        }
        let one = shown.first()?;
        let (kind, body) = one.body(view, is_whole)?;
        Some(Self {
            id: Arc::clone(one.id_text()),
            event: one.id,
            kind,
            at_ms: one.at_ms,
            body,
            batch: None,
        })
    }

    fn batch(plan: &EndpointPlan, shown: &[Rc<Shown>], (first, last): (EventId, EventId)) -> Self {
        let mut kind = Kind::Event;
        let bodies = shown.iter().filter_map(|it| {
            let (of_one, body) = it.body(&plan.view, true)?;
            kind = of_one;
            Some(body)
        });
        let bodies: Vec<Bytes> = bodies.collect();
        let size: usize = bodies.iter().map(|it| it.len() + 1).sum();
        let mut out = Vec::with_capacity(size + 1);
        out.push(b'[');
        for body in &bodies {
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(body);
        }
        out.push(b']');
        Self {
            // Which events a batch has does not change, so that its bounds name it.
            id: format!("{first}_{last}").into(),
            event: last,
            kind,
            at_ms: shown.first().map_or(0, |it| it.at_ms),
            body: out.into(),
            batch: Some(BatchBounds {
                first,
                last,
                count: bodies.len(),
            }),
        }
    }

    /// That events are missing: of which, as far as that is known.
    pub fn gap(plan: &EndpointPlan, span: Span, id: impl Fn(u64) -> EventId, now_ms: u64) -> Self {
        let (first, last, topic) = (id(span.first), id(span.last), plan.state.topic());
        // Names of topics have nothing in them that JSON escapes.
        let (key, data) = match span.count {
            0 => (
                format!("gap-{last}"),
                format!(
                    "{{\"type\":\"gap\",\"topic\":\"{topic}\",\"from\":null,\"to\":\"{last}\",\
                     \"count\":null}}"
                ),
            ),
            count => (
                format!("gap-{first}_{last}"),
                format!(
                    "{{\"type\":\"gap\",\"topic\":\"{topic}\",\"from\":\"{first}\",\
                     \"to\":\"{last}\",\"count\":{count}}}"
                ),
            ),
        };
        let body = match plan.view.cloudevents {
            Some(CloudEvents::Structured) => {
                let of = (&*key, &*plan.view.source, now_ms);
                envelope::object(of, (Kind::Gap, data.as_bytes()))
            }
            Some(CloudEvents::Binary) | None => Bytes::from(data),
        };
        Self {
            id: key.into(),
            event: last,
            kind: Kind::Gap,
            at_ms: now_ms,
            body,
            batch: None,
        }
    }

    /// Its id as attempts have it.
    pub fn webhook_id(&self) -> WebhookId {
        match (&self.batch, self.kind) {
            (Some(_), _) | (None, Kind::Gap) => WebhookId::Text(Arc::clone(&self.id)),
            (None, _) => WebhookId::Event(self.event),
        }
    }

    /// Header lines that say what it is.
    fn headers(&self, plan: &EndpointPlan) -> Headers {
        let view = &plan.view;
        let mut headers = Headers::with_capacity(LINES, LINES_BYTES);
        let media_type = match (view.cloudevents, &self.batch) {
            (Some(CloudEvents::Structured), None) => "application/cloudevents+json",
            (Some(CloudEvents::Structured), Some(_)) => "application/cloudevents-batch+json",
            (None, None) if plan.axway().is_some() => axway::MEDIA_TYPE,
            (Some(CloudEvents::Binary) | None, _) => envelope::media_type(self.kind),
        };
        headers.append("Content-Type", media_type);
        // Events of a batch have no headers of their own. One may be left from before there were
        // any.
        if view.cloudevents == Some(CloudEvents::Binary) && self.batch.is_none() {
            let of = (&*self.id, &*view.source, self.at_ms);
            envelope::add_headers(of, self.kind, &mut headers);
        }
        headers.append("X-Intertie-Topic", &**plan.state.topic());
        headers.append("X-Intertie-Kind", self.kind.name());
        headers.append("X-Intertie-Mode", view.mode.name());
        if let Some(BatchBounds { first, last, count }) = &self.batch {
            headers.append("X-Intertie-First", first.to_string());
            headers.append("X-Intertie-Last", last.to_string());
            headers.append("X-Intertie-Count", count.to_string());
        }
        if let Some(subscription) = plan.axway() {
            // As those of CloudEvents: events of a batch have no headers of their own.
            let event = (self.batch.is_none()).then_some((self.event, self.kind));
            let of = (&**plan.state.topic(), Some(self.event.epoch));
            axway::name_subscription(subscription, of, &mut headers);
            axway::name_event(of.0, event, &mut headers);
        }
        headers
    }

    /// What a subscriber of a hub is told. The id is no part of the recommendation; subscribers
    /// tell repetitions by it.
    async fn hub_headers(&self, subscriber: &Subscriber) -> Headers {
        let mut headers = Headers::with_capacity(LINES, LINES_BYTES);
        headers.append("Content-Type", &*subscriber.media_type);
        headers.append("Link", &*subscriber.links);
        headers.append("webhook-id", &*self.id);
        if let Some((secret, method)) = &subscriber.signed {
            let value = match method {
                SignedBy::Sha256 => {
                    let queue = SIGNATURES.with(Rc::clone);
                    let key = Arc::new(HmacKey::new(secret.expose().as_bytes()));
                    SignedBy::Sha256.value(&queue.sign(&key, "", &self.body).await)
                }
                _ => secret.sign(*method, &self.body),
            };
            headers.append("X-Hub-Signature", value);
        }
        headers
    }

    /// The request of a try at this time, signed.
    pub fn request<'a>(
        &'a self,
        plan: &'a EndpointPlan,
        seconds: u64,
        outgoing: &'a Outgoing,
    ) -> RequestBuild<'a> {
        if !self.is_batched(plan, outgoing) {
            let building = pin!(self.build(plan, seconds, outgoing));
            if let Poll::Ready(request) = building.poll(&mut Context::from_waker(Waker::noop())) {
                return RequestBuild::Ready(Box::new(request));
            }
            debug_assert!(false, "only a signature of a batch is waited for");
        }
        // Made where it is awaited: captured, it would take its memory twice.
        let built = async move { Box::new(self.build(plan, seconds, outgoing).await) };
        RequestBuild::Pending(Box::pin(built))
    }

    /// Whether it is signed together with others.
    fn is_batched(&self, plan: &EndpointPlan, outgoing: &Outgoing) -> bool {
        let is_signed = match plan.websub() {
            Some(subscriber) => {
                let signed = subscriber.signed.as_ref();
                signed.is_some_and(|(_, method)| *method == SignedBy::Sha256)
            }
            None => outgoing.signer.is_some(),
        };
        is_signed && HmacQueue::is_batched(&self.body)
    }

    async fn build(&self, plan: &EndpointPlan, seconds: u64, outgoing: &Outgoing) -> Request {
        let body = self.body.clone();
        match plan.websub() {
            Some(subscriber) => request(self.hub_headers(subscriber).await, body, outgoing),
            None => {
                let signed = (&*self.id, seconds, body);
                signed_request(self.headers(plan), signed, outgoing).await
            }
        }
    }

    /// The dead letter that it becomes.
    pub fn dead_letter(self, plan: &EndpointPlan, reason: &str) -> Request {
        let mut headers = self.headers(plan);
        headers.append("webhook-id", &*self.id);
        let parameters = [
            ("topic", plan.state.topic().to_string()),
            ("endpoint", plan.state.name.to_string()),
            ("event_id", self.id.to_string()),
            ("event_kind", self.kind.name().to_owned()),
            ("event_time", self.at_ms.to_string()),
            ("reason", reason.to_owned()),
        ];
        Request {
            parameters: parameters.map(|(name, value)| (name.into(), value)).into(),
            ..Request::of_source("WEBHOOK", headers, self.body)
        }
    }

    /// The dead letter of an event that an expression has failed on: the event as it is.
    pub fn failed_dead_letter(plan: &EndpointPlan, shown: &Shown) -> Option<Request> {
        let (reason, document) = shown.failed()?;
        let post = Self {
            id: Arc::clone(shown.id_text()),
            event: shown.id,
            kind: plan.view.whole_kind(),
            at_ms: shown.at_ms,
            body: document.clone(),
            batch: None,
        };
        Some(post.dead_letter(plan, reason))
    }
}
