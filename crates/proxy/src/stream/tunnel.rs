//! After `101 Switching Protocols`: the frames of WebSocket go both ways as they are, are counted
//! on their way, and both sides learn properly why it ends.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use component::handler::{LocalFuture, Services};
use component::observe::FlowMetrics;
use component::stream::{Client, Feed};
use net::Connection;
use net::deadline::Deadline;
use net::http1::Framing;
use tokio::time::Instant;

use crate::call::Caller;
use crate::client::response_head::{self, ClientSide};
use crate::client::session::{Served, Session};
use crate::relay::UpstreamExchange;
use crate::relay::upstream_http1::Http1Upstream;
use crate::stream::byte_stream::ByteStream;
use crate::stream::direction::{Direction, Stop};
use crate::stream::frames;
use crate::stream::gate::Gate;
use crate::stream::h1_client::Way;
use crate::stream::{Begun, Streams};
use crate::upstream::Lease;
use crate::upstream::request_head::ForwardTarget;

/// How long an ending connection is given: for the frames under way to end, and for the other
/// sides to close.
const GRACE: Duration = Duration::from_secs(2);

/// Codes of RFC 6455, section 7.4.1, and of its registry at IANA.
const GOING_AWAY: u16 = 1001;
const PROTOCOL_ERROR: u16 = 1002;
const POLICY_VIOLATION: u16 = 1008;
const INTERNAL_ERROR: u16 = 1011;

/// Passes the switching reply on and leaves the connections to a tunnel.
pub(crate) async fn begin(
    session: &mut Session,
    target: &ForwardTarget,
    (up, lease): (Http1Upstream, Lease),
    streams: Streams<'_>,
) -> Served {
    let open = match streams.open() {
        Ok(open) => open,
        Err(fault) => return session.answer_fault(&fault, true).await,
    };
    let client = ClientSide {
        version: session.head.version,
        closes: false,
    };
    let mut out = Vec::new();
    let reply = response_head::Relayed {
        head: &up.head(),
        framing: Framing::None,
        client,
        method: &session.head.method,
        edits: &target.plan.reply_fields,
        added_fields: session.added_fields.as_deref(),
        date: None,
    };
    reply.write(&mut out);
    let Http1Upstream { exchange, head } = up;
    let mut upstream = *exchange.into_transport();
    upstream.input.consume(head.length);
    if session.write_all(&out).await.is_err() {
        return session.after_reply(101, true, Err(io::ErrorKind::BrokenPipe.into()));
    }
    let worker = &session.worker;
    let tunnel = Tunnel {
        upstream,
        _lease: lease,
        down: Direction::default(),
        up: Direction::default(),
        gate: Gate::new(streams.limits, &worker.deadlines),
        metrics: Arc::clone(&open.metrics),
        deadline: worker.deadlines.add(),
        idle_time: session.settings.timeouts.stream,
        seen_progress: u64::MAX,
    };
    let begun = Begun {
        feed: Box::new(tunnel),
        caller: Caller::new(worker, &Rc::default()),
        open,
    };
    session.hand_over(101, (begun, Way::Plain))
}

/// Two connections whose frames go to each other.
pub(crate) struct Tunnel {
    upstream: Connection,
    /// The exchange with the endpoint, which lasts as long.
    _lease: Lease,
    down: Direction,
    up: Direction,
    gate: Gate,
    metrics: Arc<FlowMetrics>,
    /// Bounds how long nothing moves, then how long the end takes.
    deadline: Deadline,
    idle_time: Duration,
    seen_progress: u64,
}

/// Why a tunnel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    ClientLeft,
    UpstreamLeft,
    /// Nothing has moved for too long, or the engine stops.
    Over,
    /// The client's credential has expired or been revoked, as this says.
    Invalid(&'static str),
    OverLimit,
    Malformed,
}

impl Why {
    /// What is told to the client and to the upstream, where somebody is left to be told.
    fn codes(self) -> (Option<u16>, Option<u16>) {
        match self {
            Self::ClientLeft => (None, Some(GOING_AWAY)),
            Self::UpstreamLeft => (Some(INTERNAL_ERROR), None),
            Self::Over => (Some(GOING_AWAY), Some(GOING_AWAY)),
            Self::OverLimit | Self::Invalid(_) => (Some(POLICY_VIOLATION), Some(GOING_AWAY)),
            Self::Malformed => (Some(PROTOCOL_ERROR), Some(PROTOCOL_ERROR)),
        }
    }
}

impl Feed for Tunnel {
    fn run<'a>(
        self: Box<Self>,
        client: Box<dyn Client>,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, ()> {
        Box::pin(self.serve(client))
    }
}

impl Tunnel {
    async fn serve(mut self: Box<Self>, mut client: Box<dyn Client>) {
        let why = poll_fn(|context| self.poll(context, &mut *client)).await;
        tracing::debug!(target: "proxy", ?why, "a WebSocket connection ends");
        self.deadline.set(Instant::now(), GRACE);
        // Boxed, for all that stay open would carry its room.
        Box::pin(self.leave(&mut *client, why)).await;
    }

    /// Ready when it ends.
    fn poll(&mut self, context: &mut Context<'_>, client: &mut dyn Client) -> Poll<Why> {
        let (down, up) = self.poll_both(context, client);
        if let Poll::Ready(stop) = down {
            return Poll::Ready(match stop {
                Stop::Source => Why::UpstreamLeft,
                Stop::Sink => Why::ClientLeft,
                stop => why(stop),
            });
        }
        if let Poll::Ready(stop) = up {
            return Poll::Ready(match stop {
                Stop::Source => Why::ClientLeft,
                Stop::Sink => Why::UpstreamLeft,
                stop => why(stop),
            });
        }
        if client.poll_stop(context).is_ready() {
            let detail = client.stop_reason().detail();
            return Poll::Ready(detail.map_or(Why::Over, Why::Invalid));
        }
        let records = client.records_taken() + self.upstream.records_taken();
        let progress = self.down.moved + self.up.moved + records;
        if progress != self.seen_progress {
            self.seen_progress = progress;
            self.deadline.set(Instant::now(), self.idle_time);
        }
        self.deadline.poll(context).map(|()| Why::Over)
    }

    fn poll_both(
        &mut self,
        context: &mut Context<'_>,
        client: &mut dyn Client,
    ) -> (Poll<Stop>, Poll<Stop>) {
        let (gate, metrics) = (&mut self.gate, &*self.metrics);
        let ends = (&mut self.upstream, &mut *client);
        let down = self.down.poll(context, ends, gate, &metrics.messages_down);
        let ends = (client, &mut self.upstream);
        let up = self.up.poll(context, ends, gate, &metrics.messages_up);
        (down, up)
    }

    /// Takes leave of whoever is left.
    async fn leave(&mut self, client: &mut dyn Client, why: Why) {
        let (to_client, to_upstream) = why.codes();
        if to_client.is_some() && to_upstream.is_some() {
            // Frames under way end first.
            self.down.hold();
            self.up.hold();
            poll_fn(|context| match self.poll_both(context, client) {
                (Poll::Ready(_), Poll::Ready(_)) => Poll::Ready(()),
                _ => self.deadline.poll(context),
            })
            .await;
        }
        if let Some(code) = to_upstream.filter(|_| self.up.takes_a_frame()) {
            let frame = frames::close(code, "", Some(net::websocket::masking_key()));
            say(&self.deadline, &mut self.upstream, &frame).await;
        }
        let is_cut = to_client.is_some() && !self.down.is_between();
        if let Some(code) = to_client.filter(|_| self.down.takes_a_frame()) {
            let reason = match why {
                Why::Invalid(detail) => detail,
                _ => "",
            };
            let frame = frames::close(code, reason, None);
            say(&self.deadline, client, &frame).await;
        }
        if why == Why::ClientLeft {
            return self.let_upstream_end(client).await;
        }
        if is_cut {
            return;
        }
        let mut upstream_left = to_upstream.is_none();
        let mut client_left = false;
        poll_fn(|context| {
            upstream_left = upstream_left || self.poll_upstream_end(context).is_ready();
            client_left = client_left || client.poll_finish(context).is_ready();
            match upstream_left && client_left {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// The client has said its last; what the upstream says to that still goes to it.
    async fn let_upstream_end(&mut self, client: &mut dyn Client) {
        let deadline = &self.deadline;
        let upstream = &mut self.upstream;
        let finished = poll_fn(|context| match upstream.poll_finish(context) {
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
            Poll::Pending => deadline.poll(context).map(|()| false),
        });
        if !finished.await {
            return;
        }
        poll_fn(|context| {
            let ends = (&mut self.upstream, &mut *client);
            let counter = &self.metrics.messages_down;
            match self.down.poll(context, ends, &mut self.gate, counter) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => self.deadline.poll(context),
            }
        })
        .await;
        // It has left, or is about to.
        let _ = poll_fn(|context| client.poll_finish(context)).await;
    }

    /// Ready when the upstream has closed too, or has had time for that.
    fn poll_upstream_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.upstream.poll_finish(context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            Poll::Pending => return self.deadline.poll(context),
        }
        loop {
            let waiting = self.upstream.input.len();
            self.upstream.input.consume(waiting);
            match self.upstream.poll_fill(context) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.deadline.poll(context),
            }
        }
    }
}

fn why(stop: Stop) -> Why {
    match stop {
        Stop::OverLimit => Why::OverLimit,
        Stop::Malformed => Why::Malformed,
        Stop::Source | Stop::Sink | Stop::Held => Why::Over,
    }
}

/// Writes a frame of our own. One that cannot be written has nobody to read it.
async fn say(deadline: &Deadline, end: &mut (impl ByteStream + ?Sized), frame: &[u8]) {
    let mut rest = frame;
    poll_fn(|context| {
        while !rest.is_empty() {
            match end.poll_write(context, rest) {
                Poll::Ready(Ok(count)) => rest = rest.get(count..).unwrap_or_default(),
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return deadline.poll(context),
            }
        }
        Poll::Ready(())
    })
    .await;
}
