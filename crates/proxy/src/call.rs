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
use crate::forward::{balance_key, head_limits};
use crate::request_head::{self, ForwardTarget, Outgoing};
use crate::rescue;
use crate::router::ForwardTargets;
use crate::upstream::{Attempt, Lease, Lent, Patience};
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
            let target = self.forwards.get(plan, &self.worker.upstreams);
            Call::new(self.worker, target).run(request).await
        })
    }
}

/// One call.
pub(crate) struct Call<'a> {
    worker: &'a Worker,
    deadline: Deadline,
    plan: Arc<ForwardPlan>,
    target: Rc<ForwardTarget>,
    response: ResponseHead,
}

impl<'a> Call<'a> {
    pub fn new(worker: &'a Worker, target: Rc<ForwardTarget>) -> Self {
        Self {
            worker,
            deadline: worker.deadlines.add(),
            plan: Arc::clone(&target.plan),
            target,
            response: ResponseHead::default(),
        }
    }

    /// Sends the request and reads the whole reply.
    pub async fn run(&mut self, request: &Request) -> Result<Reply, Fault> {
        if request.body.is_unread() {
            let detail = "a step calls out with a body that was not read";
            return Err(Fault::new(Kind::Internal, Origin::Engine, detail));
        }
        let target = Rc::clone(&self.target);
        let plan = Arc::clone(&self.plan);
        let method = plan.method.as_ref().unwrap_or(&request.method);
        let framing = match &request.body {
            Body::Bytes(bytes) => Framing::Length(bytes.len() as u64),
            Body::Empty | Body::Unread => Framing::None,
        };
        let mut out = Vec::with_capacity(1024 + request.body.as_bytes().len());
        let outgoing = Outgoing::of_message(request, framing);
        let balance = &self.plan.upstream.balance;
        let key = balance_key(balance, request.path.as_bytes(), &outgoing);
        request_head::write(&target, &outgoing, &mut out);
        out.extend_from_slice(request.body.as_bytes());
        let sending = self.send(&target, method, key, &out);
        let (mut upstream, lease) = sending.await.map_err(fault)?;
        let promised = self.response.keep_alive_time(upstream.input.bytes());
        let reply = self.read_reply(&mut upstream).await?;
        if self.response.keeps_alive() {
            lease.endpoint().keep(upstream, Instant::now(), promised);
        }
        Ok(reply)
    }

    async fn send(
        &mut self,
        target: &ForwardTarget,
        method: &Method,
        key: u64,
        out: &[u8],
    ) -> Result<(Connection, Lease), Failure> {
        let mut attempt = Attempt::new(key);
        let settings = self.worker.settings();
        let connect = self.plan.timeouts.connect;
        loop {
            let patience = Patience {
                deadline: &self.deadline,
                connect: connect.unwrap_or(settings.timeouts.connect),
                metrics: &self.worker.metrics,
            };
            let lending = target.upstream.lend(Instant::now(), &mut attempt, patience);
            let Lent {
                mut connection,
                reused,
                lease,
            } = lending.await?;
            let (result, written) = self.reply_head(method, out, &mut connection).await;
            let repeatable = written == 0 || method.is_idempotent();
            match result {
                Ok(()) => {
                    lease.succeed();
                    return Ok((connection, lease));
                }
                Err(Failure::Closed(_)) if reused && repeatable => {
                    lease.spare();
                    attempt.fresh = true;
                }
                Err(failure @ (Failure::Closed(_) | Failure::Invalid(_))) if repeatable => {
                    lease.avoid(&mut attempt);
                    if !target.upstream.allows_another(&attempt) {
                        return Err(failure);
                    }
                }
                Err(failure) => return Err(failure),
            }
            self.worker.metrics.upstream_retries.add(1);
        }
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
