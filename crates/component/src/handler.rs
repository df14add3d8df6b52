//! A whole flow seen from outside: a request goes in, a reply or an order to forward comes out; and
//! what whoever runs it offers to its steps.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use message::{Fault, Reply, Request};

use crate::edge::RouteEdge;
use crate::egress::{Policy, Refusal, Target};
use crate::exchange::Exchange;
use crate::forward::ForwardPlan;
use crate::limits::{Admission, Gate};
use crate::resources::{Resources, Share};
use crate::stream::Feed;
use crate::stream_limits::StreamLimits;

/// A future that stays on its worker's thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Work that goes on when nobody waits for it.
pub type Work = Box<dyn for<'a> FnOnce(&'a dyn Services) -> LocalFuture<'a, ()>>;

/// What a handler decides.
#[derive(Debug)]
pub enum Outcome {
    /// Send this reply.
    Reply(Reply),
    /// Forward this request and stream the reply back, whose head comes within this time.
    Forward(Arc<ForwardPlan>, Box<Request>, Option<Duration>),
    /// Send the head of this reply (its status is 101, or one whose replies have a body; nothing
    /// says how long that is), then leave the connection to the feed.
    Stream(Reply, Box<dyn Feed>),
}

/// Something that takes requests: a flow with steps, or one of the engine's own pages. One value
/// serves all workers.
pub trait Handler: Send + Sync {
    /// Whether the body must be read into memory before [`Handler::handle`]; otherwise the
    /// request has [`message::Body::Unread`].
    fn reads_body(&self) -> bool;

    /// Whether the flow continues when the client disconnects.
    fn detaches(&self) -> bool {
        false
    }

    /// Other handlers with the same answer do the same: of those whose requests coincide the first
    /// one takes them all.
    fn shares(&self) -> Option<&'static str> {
        None
    }

    /// What holds for a request for this path and query, in place of what holds for the route:
    /// asked of handlers that [share](Handler::shares) a route.
    fn edge(&self, _path: &str, _query: Option<&str>) -> Option<Arc<RouteEdge>> {
        None
    }

    /// Whether it looks at the `Origin` of WebSocket handshakes itself.
    fn checks_origin(&self) -> bool {
        false
    }

    /// What a request has to pass before its body is read and [`Handler::handle`] is called.
    /// Whoever calls that sees to it.
    fn gate(&self) -> Option<&Arc<Gate>> {
        None
    }

    /// The parameters of the query that carry credentials which the handler judges itself: logs
    /// must not show them.
    fn secret_parameters(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// Whether it refuses some of its requests by their credentials: no open route takes a path
    /// then that may be read as one of these.
    fn is_locked(&self) -> bool {
        false
    }

    /// What its streams may take.
    fn stream_limits(&self) -> Option<&Arc<StreamLimits>> {
        None
    }

    /// Takes one request. Dropping the future cancels the work.
    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>>;
}

/// What a called flow inherits from the one that calls it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallerContext {
    /// How many flows have called each other so far.
    pub depth: u16,
    /// When the time of the calling step is over.
    pub deadline: Option<Instant>,
}

/// A flow that other flows call.
pub trait Callee: Send + Sync {
    /// Runs the flow on a request.
    fn call<'a>(
        &'a self,
        request: Request,
        caller: CallerContext,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>>;
}

/// A request to another system.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Where it goes and how.
    pub plan: &'a Arc<ForwardPlan>,
    /// The request, its body in memory.
    pub request: &'a Request,
    /// The most bytes of the reply's body; the engine's limit without one.
    pub body_max: Option<u64>,
    /// Whether only the status and the beginning of the body matter: a body that is larger than
    /// `body_max`, or that breaks off, is cut there and is no failure. The header fields of a 2xx
    /// reply are not kept. A 2xx that arrives before the whole request was sent is a failure.
    pub truncates: bool,
    /// What logs call the step that sends it.
    pub step: &'a str,
    /// How long the body is waited for once the head has come and the whole request has gone out;
    /// with `truncates` what has come then is all of it. Without one the body has the time of the
    /// call.
    pub body_time: Option<Duration>,
    /// Whether the receiver recognises a repeated request: although its method is not idempotent it
    /// is then sent again, once, when a kept connection turns out to be closed.
    pub repeats: bool,
    /// When the caller gives it up: [`Exchange::deadline`] for steps. The engine bounds each call,
    /// with or without one.
    pub deadline: Option<Instant>,
}

impl<'a> Call<'a> {
    /// This request of a step, and all of its reply.
    #[must_use]
    pub fn new(plan: &'a Arc<ForwardPlan>, request: &'a Request, step: &'a str) -> Self {
        Self {
            plan,
            request,
            step,
            body_max: None,
            truncates: false,
            body_time: None,
            repeats: false,
            deadline: None,
        }
    }
}

/// A step that is about to reach another system by other means than [`Services::call`].
#[derive(Clone, Copy, Debug)]
pub struct Outbound<'a> {
    /// The step's verb.
    pub verb: &'a str,
    /// What logs call the step.
    pub step: &'a str,
    /// The connection that it uses.
    pub connection: &'a str,
}

/// What whoever runs a flow offers to its steps: a worker, or a test.
pub trait Services {
    /// Sends a request and reads the whole reply, whatever its status.
    fn call<'a>(&'a self, call: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>>;

    /// Waits.
    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()>;

    /// Waits until this time of [`Services::now`].
    fn sleep_until(&self, at: Instant) -> LocalFuture<'static, ()> {
        self.sleep(at.saturating_duration_since(self.now()))
    }

    /// A clock that only goes forward.
    fn now(&self) -> Instant;

    /// A time of [`Services::now`] on the clock of the machine, for work that looks at that one.
    /// They are the same, but in tests.
    fn system_time(&self, at: Instant) -> Instant {
        at
    }

    /// The time of day, as the time since 1970 began (UTC).
    fn wall(&self) -> Duration;

    /// A number from 0 to just below 1, at random.
    fn random(&self) -> f64;

    /// The flow of this name, to be called.
    fn flow(&self, name: &str) -> Option<Arc<dyn Callee>>;

    /// Has work done that nobody waits for.
    fn spawn(&self, work: Work);

    /// Does work that may block, such as writing a file, where it holds nobody up.
    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()>;

    /// What connectors keep on this worker.
    fn resources(&self) -> &Resources;

    /// Reads a URL that somebody else than the author of the files has set, and checks all of it
    /// but where its name leads: that is checked for each connection.
    ///
    /// # Errors
    /// When it may not be called.
    fn egress(&self, url: &str) -> Result<Target, Refusal> {
        Policy::default().target(url)
    }

    /// The plan of the caller whose request this is, where the door has found one.
    fn admission(&self) -> Option<&Admission> {
        None
    }

    /// Which of the workers this is: limits of a connection are divided among them.
    fn share(&self) -> Share {
        Share::WHOLE
    }

    /// Whether somebody still waits for the reply to the request: false when its client has left,
    /// and the work goes on all the same.
    fn is_awaited(&self) -> bool {
        true
    }

    /// Notes that a message has reached a place of its flow, for coverage.
    fn visit(&self, _exchange: &Exchange, _place: u32) {}

    /// Notes that a failure has ended the steps of a flow; it may yet be handled. For tests.
    fn failed(&self, _exchange: &Exchange, _fault: &Fault) {}

    /// Notes that a flow has ended and how its message is then. For tests.
    fn ended(&self, _exchange: &Exchange) {}

    /// Whether somebody stands in for other systems, as in tests.
    fn stands_in(&self) -> bool {
        false
    }

    /// Stands in for another system, in tests: the reply that it would give.
    fn stand_in<'a>(
        &'a self,
        _outbound: Outbound<'a>,
        _exchange: &mut Exchange,
    ) -> Option<LocalFuture<'a, Result<Reply, Fault>>> {
        None
    }
}

/// Does work for at most this time; `None` when it takes longer. The work is dropped then.
pub async fn within<T>(
    time: Duration,
    services: &dyn Services,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut sleep = None;
    poll_fn(|context| {
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            return Poll::Ready(Some(result));
        }
        // Made only when the work has to wait at all.
        let sleep = sleep.get_or_insert_with(|| services.sleep(time));
        sleep.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// Does work until this time at the latest; `None` when the time is over. The work is dropped then,
/// even if it could go on: whatever it waited for may have been given up for the same deadline.
pub async fn until<T>(
    at: Option<Instant>,
    services: &dyn Services,
    work: impl Future<Output = T>,
) -> Option<T> {
    let Some(at) = at else {
        return Some(work.await);
    };
    let mut work = pin!(work);
    let mut sleep: Option<LocalFuture<'static, ()>> = None;
    poll_fn(|context| {
        if let Some(sleep) = &mut sleep {
            if sleep.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            return work.as_mut().poll(context).map(Some);
        }
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            return Poll::Ready(Some(result));
        }
        // Made only when the work has to wait at all.
        let sleep = sleep.insert(services.sleep_until(at));
        sleep.as_mut().poll(context).map(|()| None)
    })
    .await
}
