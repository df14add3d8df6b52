//! A client's messages as messages to a flow: each starts it, and what it ends with is sent back.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use component::content::{self, Format};
use component::endpoint;
use component::handler::{LocalFuture, Services};
use component::observe::FlowMetrics;
use component::source::Started;
use component::stream::{Client, Feed};
use message::{Body, Fault, Field, Reply, Request};
use net::websocket::{CloseCode, Kind};
use tokio::sync::oneshot;

use super::session::{Options, Session};

/// With more bytes than this waiting for the client none of its messages is begun.
const WAITING_MAX: usize = 64 * 1024;

/// A connection on which the flow has not been told yet.
pub(super) struct Conversation {
    /// What every message comes with: the request of the handshake.
    pub head: Request,
    pub options: Options,
    /// How many messages may be under way at once.
    pub concurrent: usize,
}

impl endpoint::Conversation for Conversation {
    fn with(self: Box<Self>, flow: Arc<dyn Started>) -> Box<dyn Feed> {
        Box::new(Speaking {
            conversation: *self,
            flow,
        })
    }
}

/// The same with its flow.
struct Speaking {
    conversation: Conversation,
    flow: Arc<dyn Started>,
}

impl Feed for Speaking {
    fn run<'a>(
        self: Box<Self>,
        client: Box<dyn Client>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let Self { conversation, flow } = *self;
            let metrics = client.metrics().map(Arc::clone);
            let mut session = Session::new(client, conversation.options);
            let mut talk = Talk {
                conversation: &conversation,
                flow: &flow,
                services,
                metrics,
                works: Vec::new(),
                next: None,
                is_over: false,
                is_stopping: false,
            };
            poll_fn(|context| talk.poll(&mut session, context)).await;
            if talk.is_stopping {
                match session.stop_reason().detail() {
                    Some(detail) => session.close(CloseCode::POLICY, detail),
                    None => session.close(CloseCode::GOING_AWAY, "the server stops"),
                }
            }
            drop(talk);
            session.end(services).await;
        })
    }
}

/// What the flow has made of a message.
struct Answer {
    /// The kind of the message that it answers.
    asked: Kind,
    result: Option<Result<Reply, Fault>>,
}

/// Messages of one client on their way.
struct Talk<'a> {
    conversation: &'a Conversation,
    flow: &'a Arc<dyn Started>,
    services: &'a dyn Services,
    /// Where messages are counted.
    metrics: Option<Arc<FlowMetrics>>,
    works: Vec<LocalFuture<'a, Answer>>,
    /// A message that has come and waits for a place.
    next: Option<(Kind, Bytes)>,
    /// Whether no more messages come.
    is_over: bool,
    is_stopping: bool,
}

impl Talk<'_> {
    /// Ready when all that has come is answered and nothing more comes, or the client has left:
    /// then what is under way is dropped.
    fn poll(&mut self, session: &mut Session, context: &mut Context<'_>) -> Poll<()> {
        session.begin_turn();
        let mut polled = 0;
        loop {
            // Those that were not ready in this turn have their wakers.
            let answered = self.poll_works(session, context, polled);
            polled = self.works.len();
            self.is_stopping = self.is_stopping || session.poll_stop(context).is_ready();
            if self.begin(session) {
                // What is answered at once is answered before what follows is looked at.
                continue;
            }
            let read = self.poll_next(session, context);
            // Whatever comes of it, what is over is seen below.
            let _ = session.poll_watch(context, self.services, false);
            let flushed = session.poll_flush(context).is_ready();
            if session.is_over() {
                return Poll::Ready(());
            }
            if !answered && !read {
                let is_done = self.works.is_empty() && self.next.is_none();
                let comes = !self.is_over && !self.is_stopping;
                return match is_done && flushed && !comes {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                };
            }
        }
    }

    /// Sends what has been answered of all but the first `polled`; true when something has.
    fn poll_works(
        &mut self,
        session: &mut Session,
        context: &mut Context<'_>,
        polled: usize,
    ) -> bool {
        let metrics = self.metrics.as_ref();
        let ended = self.works.extract_if(polled.., |work| {
            let Poll::Ready(answer) = work.as_mut().poll(context) else {
                return false;
            };
            let is_sent = send(session, answer);
            if let Some(metrics) = metrics.filter(|_| is_sent) {
                metrics.messages_down.add(1);
            }
            true
        });
        let has_answered = ended.count() > 0;
        if self.works.is_empty() {
            self.works = Vec::new();
        }
        has_answered
    }

    /// Begins the message that waits, when there is a place for it.
    fn begin(&mut self, session: &Session) -> bool {
        let has_place = self.works.len() < self.conversation.concurrent;
        if !has_place || session.waiting() > WAITING_MAX {
            return false;
        }
        let Some((kind, payload)) = self.next.take() else {
            return false;
        };
        let work = self.start(kind, payload);
        self.works.push(work);
        true
    }

    fn poll_next(&mut self, session: &mut Session, context: &mut Context<'_>) -> bool {
        if self.next.is_some() || self.is_over || self.is_stopping {
            return false;
        }
        match session.poll_message(context) {
            Poll::Pending => false,
            Poll::Ready(next) => {
                self.is_over = next.is_none();
                if let (Some(metrics), Some(_)) = (&self.metrics, &next) {
                    metrics.messages_up.add(1);
                }
                self.next = next;
                true
            }
        }
    }
}

impl<'a> Talk<'a> {
    fn start(&self, asked: Kind, payload: Bytes) -> LocalFuture<'a, Answer> {
        let request = self.conversation.request(asked, payload);
        let (flow, services) = (self.flow, self.services);
        if !flow.detaches() {
            let work = flow.start(request, services);
            return Box::pin(async move {
                let result = Some(work.await);
                Answer { asked, result }
            });
        }
        let (tell, told) = oneshot::channel();
        let flow = Arc::clone(flow);
        services.spawn(Box::new(move |services| {
            Box::pin(async move {
                // The client may have left.
                let _ = tell.send(flow.start(request, services).await);
            })
        }));
        Box::pin(async move {
            let result = told.await.ok();
            Answer { asked, result }
        })
    }
}

impl Conversation {
    /// A message as a request to the flow.
    fn request(&self, kind: Kind, payload: Bytes) -> Request {
        let mut request = self.head.clone();
        let media_type = match kind {
            Kind::Text => "text/plain; charset=utf-8",
            Kind::Binary => "application/octet-stream",
        };
        request.headers.append("Content-Type", media_type);
        // An empty message is a message.
        request.body = Body::Bytes(payload);
        request
    }
}

/// Sends what a flow has ended with, or tells its failure. Without content nothing is sent: whether
/// something is.
fn send(session: &mut Session, answer: Answer) -> bool {
    let reply = match answer.result {
        Some(Ok(reply)) => reply,
        Some(Err(fault)) => fault.to_reply(),
        None => return false,
    };
    match &reply.body {
        Body::Bytes(payload) => session.send(kind_of(&reply, answer.asked), payload),
        _ => false,
    }
}

/// Text when the media type is one of texts, and binary otherwise; without a media type the kind of
/// the message that is answered.
fn kind_of(reply: &Reply, asked: Kind) -> Kind {
    let headers = reply.headers.view();
    let content_type = headers.first(Field::ContentType);
    let is_encoded = headers.first(Field::ContentEncoding).is_some();
    let is_text = match content_type {
        None => asked == Kind::Text,
        Some(_) => content::format_of(content_type) != Format::Bytes,
    };
    // A text that is none would break the connection.
    let is_utf_8 = || std::str::from_utf8(reply.body.as_bytes()).is_ok();
    match is_text && !is_encoded && is_utf_8() {
        true => Kind::Text,
        false => Kind::Binary,
    }
}

#[cfg(test)]
mod tests;
