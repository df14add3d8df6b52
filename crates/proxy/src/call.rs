//! Calls from inside a flow: a request is sent and its reply read whole.

use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use component::handler::{self, Callee, LocalFuture, Services, Work};
use component::resources::{Resources, Share};
use component::settings::Settings;
use message::{Body, Fault, Headers, Kind, Method, Origin, Reply, Request};
use net::Connection;
use net::deadline::Deadline;
use net::http1::{BodyDecoder, Framing, ResponseHead};
use net::http2::Link;
use tokio::time::Instant;

use crate::background;
use crate::bridge::{Break, Bridge, Flow, Http1Side, ReplyHead, Side};
use crate::exchange::{Failed, Failure};
use crate::forward::{INTERIM_MAX, balance_key, head_limits};
use crate::h2_forward::{invalid, open};
use crate::request_head::{self, ForwardTarget, Http2Head, Outgoing};
use crate::rescue;
use crate::router::ForwardTargets;
use crate::upstream::{Attempt, Lease, Lent, Line, Patience};
use crate::worker::Worker;

/// The most memory that is taken for a body before it has come.
const AHEAD_MAX: u64 = 1 << 20;

/// What a worker offers to steps.
#[derive(Clone)]
pub(crate) struct Caller {
    pub worker: Rc<Worker>,
    forwards: Rc<ForwardTargets>,
}

impl Caller {
    /// What this worker offers to the steps of one flow.
    pub fn new(worker: &Rc<Worker>, forwards: &Rc<ForwardTargets>) -> Self {
        Self {
            worker: Rc::clone(worker),
            forwards: Rc::clone(forwards),
        }
    }
}

impl Services for Caller {
    fn call<'a>(&'a self, call: handler::Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        let target = self.forwards.get(call.plan, &self.worker.upstreams);
        let sending = Call {
            body_max: call.body_max,
            given_up: call.deadline.map(Instant::from_std),
            ..Call::new(&self.worker, target)
        };
        Box::pin(async move { sending.run(call.request).await })
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        Box::pin(self.worker.deadlines.sleep(time))
    }

    fn sleep_until(&self, at: std::time::Instant) -> LocalFuture<'static, ()> {
        Box::pin(self.worker.deadlines.sleep_until(Instant::from_std(at)))
    }

    fn now(&self) -> std::time::Instant {
        std::time::Instant::now()
    }

    fn wall(&self) -> Duration {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
    }

    fn chance(&self) -> f64 {
        // Each of these is seeded anew; the upper 53 bits are what a float holds.
        let random = RandomState::new().build_hasher().finish();
        (random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn flow(&self, name: &str) -> Option<Arc<dyn Callee>> {
        self.worker.callee(name)
    }

    fn spawn(&self, work: Work) {
        background::spawn(self, work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        let task = tokio::task::spawn_blocking(work);
        Box::pin(async {
            // A panic of the work has been told already; whoever waits sees no result.
            let _ = task.await;
        })
    }

    fn resources(&self) -> &Resources {
        &self.worker.resources
    }

    fn share(&self) -> Share {
        self.worker.share
    }
}

/// One call.
pub(crate) struct Call<'a> {
    worker: &'a Worker,
    deadline: Deadline,
    settings: Rc<Settings>,
    target: Rc<ForwardTarget>,
    /// The most bytes of the reply's body, when it is not the engine's limit.
    body_max: Option<u64>,
    /// When the caller gives it up.
    given_up: Option<Instant>,
}

/// A reply, or the fault of one that has begun; before that, a failure.
type Answer = Result<Result<Reply, Fault>, Failed>;

impl<'a> Call<'a> {
    pub fn new(worker: &'a Worker, target: Rc<ForwardTarget>) -> Self {
        Self {
            worker,
            deadline: worker.deadlines.add(),
            settings: worker.settings(),
            target,
            body_max: None,
            given_up: None,
        }
    }

    /// Sends the request and reads the whole reply.
    pub async fn run(&self, request: &Request) -> Result<Reply, Fault> {
        let (framing, content) = match &request.body {
            Body::Bytes(bytes) => (Framing::Length(bytes.len() as u64), bytes.clone()),
            Body::Empty => (Framing::None, Bytes::new()),
            Body::Unread => {
                let detail = "a step calls out with a body that was not read";
                return Err(Fault::new(Kind::Internal, Origin::Engine, detail));
            }
        };
        // All of it has one end: waiting for a connection, further attempts, and the reply's body.
        let now = Instant::now();
        self.deadline.cap(now, self.settings.timeouts.call);
        if let Some(at) = self.given_up {
            self.deadline.cap(at, Duration::ZERO);
        }
        let plan = &self.target.plan;
        let outgoing = Outgoing::of_message(request, framing);
        let key = balance_key(&plan.upstream.balance, request.path.as_bytes(), &outgoing);
        let exchange = Exchange {
            call: self,
            method: plan.method.as_ref().unwrap_or(&request.method),
            request: outgoing,
            upload: Flow::begin(content, true, None),
        };
        exchange.run(Attempt::new(key)).await
    }
}

/// One request of a call.
struct Exchange<'a> {
    call: &'a Call<'a>,
    /// The method that is sent.
    method: &'a Method,
    request: Outgoing<'a>,
    upload: Flow,
}

impl Exchange<'_> {
    async fn run(&self, mut attempt: Attempt) -> Result<Reply, Fault> {
        let Call {
            worker,
            deadline,
            settings,
            target,
            ..
        } = self.call;
        let connect = target.plan.timeouts.connect;
        loop {
            let patience = Patience {
                worker,
                deadline,
                connect: connect.unwrap_or(settings.timeouts.connect),
            };
            let lending = target.upstream.lend(Instant::now(), &mut attempt, patience);
            let Lent {
                line,
                reused,
                lease,
            } = lending.await.map_err(fault)?;
            let answer = match line {
                Line::Http1(connection) => self.over_http1(connection, &lease).await,
                Line::Http2(link) => self.over_http2(&link, &lease).await,
            };
            match answer {
                Ok(reply) => return reply,
                // Given up: that says nothing about the endpoint.
                Err(failed) if deadline.is_over() => {
                    lease.spare();
                    return Err(fault(failed.failure));
                }
                Err(failed) => target
                    .upstream
                    .after_failure(failed, reused, lease, &mut attempt)
                    .map_err(fault)?,
            }
            worker.metrics.upstream_retries.add(1);
        }
    }

    async fn over_http1(&self, mut connection: Connection, lease: &Lease) -> Answer {
        let limits = head_limits(&self.call.settings.limits);
        let mut head = self.call.worker.take_scratch();
        request_head::write(&self.call.target, &self.request, &mut head);
        let none = BodyDecoder::new(Framing::None, limits);
        let side = Side::Http1(Http1Side::new(&mut connection, none, head));
        let mut response = ResponseHead::default();
        let mut bridge = self.bridge(side, &mut response);
        let (reply, keeps) = self.receive(&mut bridge, lease).await?;
        let uploaded = bridge.up.finished && bridge.upload_failed.is_none();
        if let Some(promised) = keeps.filter(|_| uploaded && reply.is_ok()) {
            lease.endpoint().keep(connection, Instant::now(), promised);
        }
        Ok(reply)
    }

    async fn over_http2(&self, link: &Link, lease: &Lease) -> Answer {
        let target = &self.call.target;
        let mut head = Http2Head::default();
        request_head::write_http2(target, &self.request, &mut head);
        let stream = open(link, target, self.method, &head, &self.upload)?;
        let mut response = ResponseHead::default();
        let mut bridge = self.bridge(Side::Http2(&stream), &mut response);
        let (reply, _) = self.receive(&mut bridge, lease).await?;
        Ok(reply)
    }

    fn bridge<'b>(&'b self, upstream: Side<'b>, response: &'b mut ResponseHead) -> Bridge<'b> {
        let timeouts = &self.call.settings.timeouts;
        let own = &self.call.target.plan.timeouts;
        let response_time = own.response.unwrap_or(timeouts.response);
        Bridge {
            client: None,
            upstream,
            up: self.upload.clone(),
            down: Flow::default(),
            deadline: &self.call.deadline,
            response,
            method: self.method,
            limits: head_limits(&self.call.settings.limits),
            body_time: own.body.unwrap_or(timeouts.body),
            response_time,
            upload_failed: None,
            seen_progress: u64::MAX,
        }
    }

    /// Waits for the reply, passing over interim ones, and reads it.
    async fn receive(
        &self,
        bridge: &mut Bridge<'_>,
        lease: &Lease,
    ) -> Result<(Result<Reply, Fault>, Option<Option<Duration>>), Failed> {
        for _ in 0..INTERIM_MAX {
            let head = bridge.reply(self.call.worker).await;
            let head = head.map_err(|failure| bridge.failed(failure))?;
            let (status, headers) = match &head {
                ReplyHead::Http1 => (bridge.response.status, bridge.http1_headers()),
                ReplyHead::Http2(head) => (head.status(), head.fields.view().to_owned()),
            };
            if (100..200).contains(&status) && status != 101 {
                bridge.consume_head();
                continue;
            }
            lease.succeed();
            let keeps = bridge.keeps();
            bridge.begin_download();
            return Ok((self.read(bridge, status, headers).await, keeps));
        }
        Err(bridge.failed(invalid("too many interim replies")))
    }

    async fn read(
        &self,
        bridge: &mut Bridge<'_>,
        status: u16,
        headers: Headers,
    ) -> Result<Reply, Fault> {
        let max = self.call.body_max.unwrap_or(self.call.settings.limits.body);
        let ahead = bridge.announced().min(max).min(AHEAD_MAX);
        let mut content = Vec::with_capacity(ahead as usize);
        let read = poll_fn(|context| bridge.poll_collect(context, &mut content, max)).await;
        match read {
            Ok(()) if content.len() as u64 > max => Err(broken(&"it is larger than the limit")),
            Ok(()) => Ok(Reply {
                status,
                headers,
                body: Body::from(Bytes::from(content)),
            }),
            Err(Break::Idle) => Err(fault(Failure::ReplyTimeout)),
            Err(Break::Upstream(error)) => Err(broken(&error)),
            Err(Break::ClientGone | Break::ClientInvalid(_) | Break::Stopped) => {
                Err(broken(&"it broke off"))
            }
        }
    }
}

fn fault(failure: Failure) -> Fault {
    rescue::fault_of(failure)
        .unwrap_or_else(|| Fault::new(Kind::Internal, Origin::Engine, "the call was given up"))
}

fn broken(cause: &dyn std::fmt::Display) -> Fault {
    let detail = "the back end sent a reply body that cannot be used";
    Fault::new(Kind::Connection, Origin::Upstream, detail).with_cause(cause)
}

/// Tells the log about a fault: loudly when it is not the client's.
pub(crate) fn log_fault(fault: &Fault) {
    let cause = fault.cause.as_deref().unwrap_or_default();
    match fault.origin {
        Origin::Client => {
            tracing::debug!(target: "proxy", kind = fault.name(), cause, "{}", fault.detail);
        }
        Origin::Upstream | Origin::Engine => {
            tracing::warn!(target: "proxy", kind = fault.name(), cause, "{}", fault.detail);
        }
    }
}
