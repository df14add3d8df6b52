//! A WebSocket connection to topics: its subscriptions, what the client wants, and the answers.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use component::access::Caller as Identity;
use component::handler::{LocalFuture, Services};
use component::long_work::AT_ONCE;
use component::stream::StopReason;
use component::trigger::ListenAddress;
use message::{Fault, Request};
use net::websocket::{CloseCode, Deflate, Kind};
use serde_json::{Value as Json, json};

use super::order::{self, Order, Want};
use super::subscription::{Subscription, Way, Wish};
use crate::access::{self, Client, Locks, Protocol, Refused, Right, Verdicts};
use crate::ask::TOPICS_MAX;
use crate::caller_limits::{self, OpenConnection, Subscriber};
use crate::channel::{StreamEnd, invalid_data};
use crate::endpoint::{Directory, Endpoint};
use crate::origin;
use crate::seats::Outlet;
use crate::topic::{For, Publication, Receipt, Topic, only};
use crate::websocket::session::Session;

/// How many orders of a client may be under way; with more it is not read.
const WORKS_MAX: usize = 16;

/// Which topics a connection may name.
#[derive(Clone)]
pub(super) struct Scope {
    pub directory: Arc<Directory>,
    pub listen: ListenAddress,
    /// The only one.
    pub only: Option<Arc<str>>,
    pub origin: origin::Caller,
    /// The address of the client.
    pub client: IpAddr,
    /// The head of the request that has opened the connection, where topics have limits.
    pub head: Option<Rc<Request>>,
    /// The connection among those of the caller.
    pub connection: OpenConnection,
    /// The request that has opened the connection, with its credential, where some topic is not
    /// for everybody.
    pub handshake: Option<Arc<Request>>,
    /// What doors have said of that credential.
    pub verdicts: Rc<Verdicts>,
}

/// A topic that a client may do something with, and who it is.
type Allowed = (Arc<Endpoint>, Option<Arc<Identity>>);

impl Scope {
    /// The name that a client gives, or that of the only topic.
    fn name(&self, name: Option<&str>) -> Result<Arc<str>, Fault> {
        match (name, &self.only) {
            (Some(name), None) => Ok(name.into()),
            (Some(name), Some(only)) if *name == **only => Ok(Arc::clone(only)),
            (None, Some(only)) => Ok(Arc::clone(only)),
            (None, None) => Err(Fault::invalid("`topic` is missing")),
            (Some(_), Some(_)) => Err(Fault::invalid("this address is for one topic only")),
        }
    }

    /// The topic of this name.
    fn find(&self, name: &str) -> Option<Arc<Endpoint>> {
        let fits = |it: &Endpoint| it.settings.websocket.is_some();
        let found = self.directory.find(&self.listen, name, fits);
        match self.only {
            Some(_) => found,
            None => self.origin.see(found),
        }
    }

    /// The topic of this name, unless it is not for everybody.
    fn find_open(&self, name: &str) -> Result<Allowed, Fault> {
        let found = self.find(name).filter(|it| !it.access.is_locked());
        found.map(|it| (it, None)).ok_or_else(missing)
    }

    /// The topic of this name, where the client has this right. Whether there is none or it may
    /// not see it makes no difference, not even in when the answer comes.
    async fn admit(
        &self,
        handshake: &Request,
        (name, right): (&str, Right),
        services: &dyn Services,
    ) -> Result<Allowed, Fault> {
        let found = self.find(name);
        let at = Client {
            request: handshake,
            services,
            verdicts: Some(&self.verdicts),
        };
        let locks = |right| match (&self.only, &found) {
            (None, _) => self
                .directory
                .locks(&self.listen, Protocol::WebSocket, right),
            // It is known to be there: what is refused may be told.
            (Some(_), Some(found)) => Locks::of(found.access.lock(right)),
            (Some(_), None) => Locks::default(),
        };
        let subscribe = locks(Right::Subscribe);
        let entered = match right {
            Right::Subscribe => access::admit(found, &subscribe, right, at).await,
            Right::Publish => {
                let publish = locks(Right::Publish);
                access::admit_publisher(found, [&publish, &subscribe], at).await
            }
        };
        match entered {
            Ok((endpoint, admitted)) => Ok((endpoint, admitted.map(|it| it.caller))),
            Err(refusal) => Err(Refused::into_fault(refusal.or(missing))),
        }
    }

    /// The head of the request that opens the connection, kept when one of the topics has limits
    /// that need it.
    pub fn head_of(&self, request: &Request) -> Option<Rc<Request>> {
        let mut is_limited = false;
        let look = |it: &Endpoint| {
            let only = self.only.as_ref();
            let is_ours = only.is_none_or(|only| only == it.topic.name());
            is_limited |= is_ours && it.limits.is_some();
        };
        self.directory.each(&self.listen, look);
        is_limited.then(|| Rc::new(caller_limits::head(request)))
    }

    /// The most bytes of what may be published.
    pub fn body_max(&self) -> usize {
        let mut most = 0;
        let look = |it: &Endpoint| {
            let publishes = it.settings.websocket.is_some_and(|it| it.publish);
            if publishes {
                most = most.max(it.topic.settings().body_max);
            }
        };
        self.directory.each(&self.listen, look);
        most
    }
}

/// What is said of a topic that does not exist.
fn missing() -> Fault {
    Fault::invalid("there is no such topic here").with_status(404)
}

/// What follows a publication is held until this is dropped.
struct Held(Rc<Cell<bool>>);

impl Held {
    fn new(flag: &Rc<Cell<bool>>) -> Self {
        flag.set(true);
        Self(Rc::clone(flag))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// What has come of an order.
enum Done {
    /// A subscription to this topic.
    Subscribed(Arc<str>, Box<Subscription>),
    /// No subscription, and this answer.
    NotSubscribed(String),
    /// This answer.
    Answer(String),
}

/// A WebSocket connection to topics.
pub(super) struct Connection<'a> {
    session: Session,
    scope: Scope,
    deflate: Option<Deflate>,
    services: &'a dyn Services,
    subscriptions: Vec<(Arc<str>, Subscription)>,
    /// Who has been admitted to the first of them with the connection.
    first: Option<Subscriber>,
    /// Which of them is within a frame: it goes on before all others.
    amid: Option<usize>,
    works: Vec<LocalFuture<'a, Done>>,
    /// How many of them are going to be subscriptions.
    coming: usize,
    /// Whether the last of them is a publication that is checked beside the worker: what follows
    /// must not overtake it.
    is_preparing: Rc<Cell<bool>>,
}

/// Writes bytes that are the same for many.
struct Shared<'a> {
    session: &'a mut Session,
    /// Whether a write has not gone out as a whole.
    is_amid: bool,
}

impl Outlet for Shared<'_> {
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = self.session.poll_write_shared(context, bytes);
        self.is_amid = !matches!(wrote, Poll::Ready(count) if count == bytes.len());
        wrote.map(|count| match count {
            0 => Err(io::ErrorKind::BrokenPipe.into()),
            count => Ok(count),
        })
    }

    fn records_taken(&self) -> u64 {
        self.session.records_taken()
    }
}

impl<'a> Connection<'a> {
    /// A connection without a subscription.
    pub fn new(
        session: Session,
        scope: Scope,
        deflate: Option<Deflate>,
        services: &'a dyn Services,
    ) -> Self {
        Self {
            session,
            scope,
            deflate,
            services,
            subscriptions: Vec::new(),
            first: None,
            amid: None,
            works: Vec::new(),
            coming: 0,
            is_preparing: Rc::default(),
        }
    }

    /// Begins with a subscription to the only topic.
    pub fn subscribe_first(&mut self, wish: Wish, subscriber: Subscriber) {
        self.first = Some(subscriber);
        self.put(Order {
            want: Want::Subscribe(Box::new(wish)),
            topic: None,
            reference: None,
        });
    }

    /// Serves the client until one of them ends the connection.
    pub async fn serve(&mut self) {
        poll_fn(|context| self.poll(context)).await;
    }

    /// The connection, to be ended.
    pub fn into_session(self) -> Session {
        self.session
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.session.poll_stop(context).is_ready() {
            let reason = self.session.stop_reason();
            match reason.detail() {
                None => self
                    .session
                    .close(CloseCode::GOING_AWAY, "the server stops"),
                Some(detail) => {
                    self.tell_invalid(reason);
                    self.session.close(CloseCode::POLICY, detail);
                }
            }
            return Poll::Ready(());
        }
        self.session.begin_turn();
        loop {
            let read = self.poll_messages(context);
            let was_preparing = self.is_preparing.get();
            let done = self.poll_works(context) || was_preparing && !self.is_preparing.get();
            if let Some((code, reason)) = self.poll_subscriptions(context) {
                self.session.close(code, reason);
                return Poll::Ready(());
            }
            let flushed = self.session.poll_flush(context).is_ready();
            let has_more = self.amid.is_some() || !flushed;
            let _ = self.session.poll_watch(context, self.services, has_more);
            if self.session.is_over() || read.is_none() {
                return Poll::Ready(());
            }
            if read == Some(false) && !done {
                return Poll::Pending;
            }
        }
    }

    /// Reads what the client wants. True when there was something, none when no more comes.
    fn poll_messages(&mut self, context: &mut Context<'_>) -> Option<bool> {
        let mut has_read = false;
        while self.works.len() < WORKS_MAX && !self.is_preparing.get() {
            match self.session.poll_message(context) {
                Poll::Ready(Some((Kind::Text, text))) => self.read(&text),
                Poll::Ready(Some((Kind::Binary, _))) => {
                    let text = order::failure(None, None, "invalid", "messages are JSON texts");
                    self.session.send(Kind::Text, text.as_bytes());
                }
                Poll::Ready(None) => return None,
                Poll::Pending => break,
            }
            has_read = true;
        }
        Some(has_read)
    }

    fn read(&mut self, text: &Bytes) {
        match order::read(text) {
            Ok(order) => self.put(order),
            Err(detail) => {
                let text = order::failure(None, None, "invalid", &detail);
                self.session.send(Kind::Text, text.as_bytes());
            }
        }
    }

    fn put(&mut self, order: Order) {
        let (topic, reference) = (order.topic.clone(), order.reference.clone());
        if let Err(fault) = self.try_order(order) {
            let text = shown(&fault, topic.as_deref(), reference.as_ref());
            self.session.send(Kind::Text, text.as_bytes());
        }
    }

    fn try_order(&mut self, order: Order) -> Result<(), Fault> {
        let Order {
            want,
            topic,
            reference,
        } = order;
        match want {
            Want::Pong => self.send(order::answer("pong", None, reference.as_ref(), [])),
            Want::Subscribe(wish) => self.subscribe(*wish, topic.as_deref(), reference)?,
            Want::Unsubscribe => {
                let at = self.position(topic.as_deref())?;
                let name = self.subscriptions.get(at).map(|it| Arc::clone(&it.0));
                // Others may not write before the frame that it is in has ended.
                if self.amid == Some(at) {
                    let detail = "the subscription is busy: ask again";
                    return Err(Fault::invalid(detail).with_status(409));
                }
                self.subscriptions.remove(at);
                self.amid = self.amid.map(|it| if it > at { it - 1 } else { it });
                let name = name.as_deref();
                self.send(order::answer("unsubscribed", name, reference.as_ref(), []));
            }
            Want::Acknowledge(id) => {
                let at = self.position(topic.as_deref())?;
                let id = id.parse::<crate::event::EventId>();
                let id = id.map_err(|_| Fault::invalid("`id` is no id of an event"))?;
                if let Some((_, subscription)) = self.subscriptions.get_mut(at) {
                    if subscription.branch().topic().locate(id).is_err() {
                        return Err(Fault::invalid("`id` is of another log of the topic"));
                    }
                    subscription.acknowledge(id.sequence);
                }
            }
            Want::Publish { data, key } => {
                let name = self.scope.name(topic.as_deref())?;
                let publication = Publication {
                    body: data,
                    key: key.map(|it| Bytes::from(it.into_bytes())),
                };
                self.publish((name, topic), publication, reference)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, text: String) {
        self.session.send(Kind::Text, text.as_bytes());
    }

    /// The subscription to a topic, or the only one.
    fn position(&self, topic: Option<&str>) -> Result<usize, Fault> {
        let mut all = self.subscriptions.iter();
        let found = match topic {
            Some(name) => all.position(|it| *it.0 == *name),
            None => (all.len() == 1).then_some(0),
        };
        found.ok_or_else(|| Fault::invalid("there is no such subscription").with_status(404))
    }

    fn subscribe(
        &mut self,
        wish: Wish,
        topic: Option<&str>,
        reference: Option<Json>,
    ) -> Result<(), Fault> {
        let name = self.scope.name(topic)?;
        let judged = self.judged();
        let open = match judged {
            None => Some(self.scope.find_open(&name)?),
            Some(_) => None,
        };
        if self.subscriptions.iter().any(|it| it.0 == name) {
            let detail = "the topic is subscribed to already";
            return Err(Fault::invalid(detail).with_status(409));
        }
        if self.subscriptions.len() + self.coming >= TOPICS_MAX {
            return Err(Fault::invalid("too many subscriptions on one connection"));
        }
        self.coming += 1;
        let (deflate, services) = (self.deflate, self.services);
        let first = self.first.take();
        let head = self.scope.head.clone().filter(|_| first.is_none());
        let subscriber = first.unwrap_or_else(|| Subscriber::over(&self.scope.connection));
        self.works.push(Box::pin(async move {
            let subscribed = async {
                let what = (&*name, Right::Subscribe);
                let (endpoint, caller) = allowed(open, judged, what, services).await?;
                let way = Way {
                    deflate,
                    request: head.as_deref(),
                    services,
                };
                wish.subscribe((&endpoint, &caller), subscriber, way).await
            };
            match subscribed.await {
                Ok(subscription) => Done::Subscribed(name, Box::new(subscription)),
                Err(fault) => Done::NotSubscribed(shown(&fault, Some(&name), reference.as_ref())),
            }
        }));
        Ok(())
    }

    /// What orders are judged by, where some topic is not for everybody.
    fn judged(&self) -> Option<(Scope, Arc<Request>)> {
        let handshake = self.scope.handshake.as_ref()?;
        Some((self.scope.clone(), Arc::clone(handshake)))
    }

    fn publish(
        &mut self,
        (name, given): (Arc<str>, Option<String>),
        publication: Publication,
        reference: Option<Json>,
    ) -> Result<(), Fault> {
        let judged = self.judged();
        let open = match judged {
            None => Some(publishable(self.scope.find_open(&name)?)?),
            Some(_) => None,
        };
        // What comes next must not overtake one that is judged, or checked beside the worker.
        let is_long = publication.body.len() > AT_ONCE || judged.is_some();
        let held = is_long.then(|| Held::new(&self.is_preparing));
        let publisher = For::client(self.scope.client, self.services);
        let (head, services) = (self.scope.head.clone(), self.services);
        self.works.push(Box::pin(async move {
            let what = (&*name, Right::Publish);
            let allowed = allowed(open, judged, what, services).await;
            let (endpoint, caller) = match allowed.and_then(publishable) {
                Ok(allowed) => allowed,
                Err(fault) => {
                    return Done::Answer(shown(&fault, given.as_deref(), reference.as_ref()));
                }
            };
            let published = async {
                let who = (head.as_deref(), caller.as_ref());
                caller_limits::publish(&endpoint, who, publication.body.len(), services).await?;
                let caller = caller.as_deref().filter(|_| publication.key.is_some());
                let publisher = publisher.with_keys_of(caller)?;
                publish(&endpoint.topic, publisher, publication, held).await
            };
            let published = published.await;
            Done::Answer(acknowledgement(
                &endpoint.topic,
                &published,
                reference.as_ref(),
            ))
        }));
        Ok(())
    }

    /// Goes on with what is under way; true when something is done.
    fn poll_works(&mut self, context: &mut Context<'_>) -> bool {
        let mut done = Vec::new();
        self.works
            .retain_mut(|work| match work.as_mut().poll(context) {
                Poll::Ready(it) => {
                    done.push(it);
                    false
                }
                Poll::Pending => true,
            });
        if self.works.is_empty() {
            self.works = Vec::new();
        }
        let is_any = !done.is_empty();
        for it in done {
            match it {
                Done::Answer(text) => self.send(text),
                Done::NotSubscribed(text) => {
                    self.coming -= 1;
                    self.send(text);
                }
                Done::Subscribed(name, subscription) => {
                    self.coming -= 1;
                    self.add(name, *subscription);
                }
            }
        }
        is_any
    }

    fn add(&mut self, name: Arc<str>, subscription: Subscription) {
        if self.subscriptions.iter().any(|it| it.0 == name) {
            let detail = "the topic is subscribed to already";
            let fault = Fault::invalid(detail).with_status(409);
            return self.send(shown(&fault, Some(&name), None));
        }
        self.subscriptions.push((name, subscription));
    }

    /// Tells the client that its credential is valid no more.
    fn tell_invalid(&mut self, reason: StopReason) {
        let data = invalid_data(reason);
        let name = reason.event().unwrap_or_default();
        self.send(format!(r#"{{"type":"{name}","data":{data}}}"#));
    }

    /// Writes what there is for the subscriptions; gives a reason to end the connection.
    fn poll_subscriptions(
        &mut self,
        context: &mut Context<'_>,
    ) -> Option<(CloseCode, &'static str)> {
        let first = self.amid.unwrap_or_default();
        for step in 0..self.subscriptions.len() {
            let at = (first + step) % self.subscriptions.len();
            let Some((_, subscription)) = self.subscriptions.get_mut(at) else {
                continue;
            };
            let mut shared = Shared {
                session: &mut self.session,
                is_amid: false,
            };
            let polled = subscription.poll(&mut shared, context);
            let is_amid = shared.is_amid;
            match polled {
                Poll::Ready(Ok(StreamEnd::Time)) if subscription.ends_by_plan => {
                    self.send(caller_limits::STREAM_TIME.to_owned());
                    return Some((CloseCode::POLICY, "the plan allows no more time"));
                }
                Poll::Ready(Ok(end)) => {
                    if let StreamEnd::Slow | StreamEnd::Stalled = end {
                        let counts = subscription.branch().counts();
                        counts.note_disconnected();
                    }
                    if let Some(reason) = end.credential() {
                        self.tell_invalid(reason);
                    }
                    return Some(close_code(end));
                }
                Poll::Ready(Err(_)) => return Some((CloseCode::NORMAL, "")),
                Poll::Pending if is_amid => {
                    self.amid = Some(at);
                    return None;
                }
                Poll::Pending => self.amid = None,
            }
        }
        None
    }
}

/// The topic that is open to everybody, or what comes of judging the client.
async fn allowed(
    open: Option<Allowed>,
    judged: Option<(Scope, Arc<Request>)>,
    what: (&str, Right),
    services: &dyn Services,
) -> Result<Allowed, Fault> {
    match (open, judged) {
        (Some(open), _) => Ok(open),
        (None, Some((scope, handshake))) => scope.admit(&handshake, what, services).await,
        (None, None) => Err(missing()),
    }
}

/// The topic, if it is published to over WebSocket.
fn publishable(allowed: Allowed) -> Result<Allowed, Fault> {
    match allowed.0.settings.websocket {
        Some(it) if it.publish => Ok(allowed),
        _ => {
            let detail = "the topic is not published to over WebSocket";
            Err(Fault::invalid(detail).with_status(403))
        }
    }
}

fn close_code(end: StreamEnd) -> (CloseCode, &'static str) {
    match end {
        StreamEnd::Stop => (CloseCode::GOING_AWAY, "the topic is served anew"),
        StreamEnd::Time => (CloseCode::GOING_AWAY, "the time of the connection is over"),
        StreamEnd::Expired => (CloseCode::POLICY, "the credential has expired"),
        StreamEnd::Revoked => (CloseCode::POLICY, "the credential has been revoked"),
        // "Try again later": the registry of close codes of RFC 6455, section 11.7.
        StreamEnd::Slow | StreamEnd::Stalled => (CloseCode(1013), "too slow: come again and go on"),
        StreamEnd::Failed => (CloseCode::INTERNAL, "the topic cannot be read"),
    }
}

/// Publishes. What the client sends next is held until this has its place, if so.
async fn publish(
    topic: &Topic,
    publisher: For<'_>,
    publication: Publication,
    held: Option<Held>,
) -> Result<Receipt, Fault> {
    let size = publication.body.len();
    let prepared = topic.prepare(publisher, size, || Ok(vec![publication]));
    let prepared = prepared.await;
    drop(held);
    only(topic.submit(publisher.client, prepared?).await?)
}

/// The answer to a publication.
fn acknowledgement(
    topic: &Topic,
    published: &Result<Receipt, Fault>,
    reference: Option<&Json>,
) -> String {
    let name = topic.name();
    match published {
        Ok(receipt) => order::answer(
            "ack",
            Some(name),
            reference,
            [
                ("id", json!(receipt.id.to_string())),
                ("new", json!(receipt.is_new)),
                ("durability", json!(receipt.durability.name())),
            ],
        ),
        Err(fault) => shown(fault, Some(name), reference),
    }
}

/// A failure as the client reads it.
fn shown(fault: &Fault, topic: Option<&str>, reference: Option<&Json>) -> String {
    if fault.status >= 500 {
        tracing::warn!(target: "topics", topic, %fault, "websocket");
    }
    order::failure(topic, reference, fault.name(), &fault.detail)
}

#[cfg(test)]
mod tests;
