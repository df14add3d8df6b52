//! Calls from inside a flow: a request is sent and its reply read whole.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use component::forward::ForwardPlan;
use component::handler::{LocalFuture, Services};
use message::{Body, Fault, Kind, Method, Origin, Reply, Request};
use net::Connection;
use net::deadline::Deadline;
use net::http1::{BodyDecoder, Framing, Piece, ResponseHead};
use tokio::time::Instant;

use crate::exchange::{Exchange, Failure};
use crate::forward::head_limits;
use crate::request_head::{self, ForwardTarget, Outgoing};
use crate::rescue;
use crate::router::ForwardTargets;
use crate::worker::Worker;

/// What a worker offers to steps.
pub(crate) struct Caller<'a> {
    pub worker: &'a Worker,
    pub forwards: &'a ForwardTargets,
}

impl Services for Caller<'_> {
    fn call<'a>(
        &'a self,
        plan: &'a Arc<ForwardPlan>,
        request: &'a Request,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(async move {
            let mut call = Call {
                worker: self.worker,
                deadline: self.worker.deadlines.add(),
                plan,
                target: self.forwards.get(plan, &self.worker.upstreams),
                response: ResponseHead::default(),
            };
            call.run(request).await
        })
    }
}

struct Call<'a> {
    worker: &'a Worker,
    deadline: Deadline,
    plan: &'a ForwardPlan,
    target: Rc<ForwardTarget>,
    response: ResponseHead,
}

impl Call<'_> {
    async fn run(&mut self, request: &Request) -> Result<Reply, Fault> {
        if request.body.is_unread() {
            let detail = "a step calls out with a body that was not read";
            return Err(Fault::new(Kind::Internal, Origin::Engine, detail));
        }
        let target = Rc::clone(&self.target);
        let method = self.plan.method.as_ref().unwrap_or(&request.method);
        let framing = match &request.body {
            Body::Bytes(bytes) => Framing::Length(bytes.len() as u64),
            Body::Empty | Body::Unread => Framing::None,
        };
        let mut out = Vec::with_capacity(1024 + request.body.as_bytes().len());
        request_head::write(&target, &Outgoing::of_message(request, framing), &mut out);
        out.extend_from_slice(request.body.as_bytes());
        let mut upstream = self.send(&target, method, &out).await.map_err(fault)?;
        let promised = self.response.keep_alive_time(upstream.input.bytes());
        let reply = self.read_reply(&mut upstream).await?;
        if self.response.keeps_alive() {
            target.upstream.keep(upstream, Instant::now(), promised);
        }
        Ok(reply)
    }

    async fn send(
        &mut self,
        target: &ForwardTarget,
        method: &Method,
        out: &[u8],
    ) -> Result<Connection, Failure> {
        let mut fresh = false;
        loop {
            let now = Instant::now();
            let kept = if fresh {
                None
            } else {
                target.upstream.take_idle(now)
            };
            let reused = kept.is_some();
            let mut upstream = match kept {
                Some(kept) => kept,
                None => self.connect(target).await?,
            };
            match self.reply_head(method, out, &mut upstream).await {
                (Ok(()), _) => return Ok(upstream),
                (Err(Failure::Closed(_)), written)
                    if reused && (written == 0 || method.is_idempotent()) =>
                {
                    self.worker.metrics.upstream_retries.add(1);
                    fresh = true;
                }
                (Err(failure), _) => return Err(failure),
            }
        }
    }

    async fn connect(&self, target: &ForwardTarget) -> Result<Connection, Failure> {
        let settings = self.worker.settings();
        let time = self
            .plan
            .timeouts
            .connect
            .unwrap_or(settings.timeouts.connect);
        let result = crate::forward::connect_within(&target.upstream, &self.deadline, time).await;
        let metrics = &self.worker.metrics;
        let counter = match &result {
            Ok(_) => &metrics.upstream_connects,
            Err(_) => &metrics.upstream_connect_failures,
        };
        counter.add(1);
        result
    }

    /// Waits for the head of the final reply, passing over interim ones.
    async fn reply_head(
        &mut self,
        method: &Method,
        out: &[u8],
        upstream: &mut Connection,
    ) -> (Result<(), Failure>, usize) {
        let settings = self.worker.settings();
        let response_time = self
            .plan
            .timeouts
            .response
            .unwrap_or(settings.timeouts.response);
        self.deadline.set(Instant::now(), response_time);
        let mut written = 0;
        loop {
            let mut exchange = Exchange {
                client: None,
                upstream,
                deadline: &self.deadline,
                out,
                written,
                response: &mut self.response,
                method,
                limits: head_limits(&settings.limits),
                body_time: response_time,
                response_time,
                write_error: None,
                seen_progress: 0,
            };
            let result = poll_fn(|context| exchange.poll(context)).await;
            written = exchange.written;
            if result.is_err() || !self.response.is_interim() {
                return (result, written);
            }
            upstream.input.consume(self.response.length);
        }
    }

    async fn read_reply(&mut self, upstream: &mut Connection) -> Result<Reply, Fault> {
        let settings = self.worker.settings();
        let head = upstream
            .input
            .bytes()
            .get(..self.response.length)
            .unwrap_or_default();
        let headers = self.response.headers(head).to_owned();
        upstream.input.consume(self.response.length);
        let limits = head_limits(&settings.limits);
        let mut decoder = BodyDecoder::new(self.response.framing, limits);
        let mut content = Vec::new();
        loop {
            let piece = decoder.next(upstream.input.bytes());
            match piece.map_err(|error| broken(error.0))? {
                Piece::End => break,
                Piece::Data(count) => {
                    let data = upstream.input.bytes().get(..count).unwrap_or_default();
                    content.extend_from_slice(data);
                    upstream.input.consume(count);
                    if content.len() as u64 > settings.limits.body {
                        return Err(broken("it is larger than the body limit"));
                    }
                }
                Piece::Overhead(count) | Piece::Skip(count) => upstream.input.consume(count),
                Piece::NeedMore => {
                    let time = self.plan.timeouts.body.unwrap_or(settings.timeouts.body);
                    if !self.fill(upstream, time).await? {
                        if decoder.may_end_with_connection() {
                            break;
                        }
                        return Err(broken("the connection ended within it"));
                    }
                }
            }
        }
        let body = Body::from(Bytes::from(content));
        Ok(Reply {
            status: self.response.status,
            headers,
            body,
        })
    }

    /// Reads once. False when the connection has ended.
    async fn fill(
        &self,
        upstream: &mut Connection,
        time: std::time::Duration,
    ) -> Result<bool, Fault> {
        self.deadline.set(Instant::now(), time);
        poll_fn(|context| match upstream.poll_fill(context) {
            Poll::Ready(Ok(count)) => Poll::Ready(Ok(count > 0)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(fault(Failure::Closed(error)))),
            Poll::Pending => self
                .deadline
                .poll(context)
                .map(|()| Err(fault(Failure::ReplyTimeout))),
        })
        .await
    }
}

fn fault(failure: Failure) -> Fault {
    rescue::fault_of(failure)
        .unwrap_or_else(|| Fault::new(Kind::Internal, Origin::Engine, "the call was given up"))
}

fn broken(reason: &'static str) -> Fault {
    let detail = "the back end sent a reply body that cannot be used";
    Fault::new(Kind::Connection, Origin::Upstream, detail).with_cause(reason)
}

/// Tells the log about a fault: loudly when it is not the client's.
pub(crate) fn log_fault(fault: &Fault) {
    let cause = fault.cause.as_deref().unwrap_or_default();
    match fault.origin {
        Origin::Client => {
            tracing::debug!(target: "proxy", kind = fault.kind.name(), cause, "{}", fault.detail);
        }
        Origin::Upstream | Origin::Engine => {
            tracing::warn!(target: "proxy", kind = fault.kind.name(), cause, "{}", fault.detail);
        }
    }
}
