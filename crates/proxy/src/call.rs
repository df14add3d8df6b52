//! Calls from inside a flow: a request is sent and its reply read whole.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use component::egress::{Refusal, Target};
use component::failure_lines::FailureLines;
use component::handler::{Call, Callee, LocalFuture, Services, Work};
use component::limits::Admission;
use component::resources::{Resources, Share};
use component::settings::Settings;
use message::memory::Exhausted;
use message::{Fault, Kind, Origin, Reply};
use net::deadline::Deadline;
use tokio::time::Instant;

use crate::background;
use crate::client::{door, rescue};
use crate::memory;
use crate::relay::collect::Collector;
use crate::relay::failure::{Break, Failure};
use crate::relay::send::{Order, Outcome, send};
use crate::router::ForwardTargets;
use crate::upstream::{self, request_head::ForwardTarget};
use crate::worker::Worker;

/// What a worker offers to steps.
#[derive(Clone)]
pub(crate) struct Caller {
    pub worker: Rc<Worker>,
    forwards: Rc<ForwardTargets>,
    request: Option<Box<OfRequest>>,
}

/// What steps may know of the request that they work on. Most requests have none of it.
#[derive(Clone, Default)]
struct OfRequest {
    /// The plan of the caller.
    admission: Option<Admission>,
    /// Of detached work: whether the client has left that waited for it.
    has_left: Option<Rc<Cell<bool>>>,
}

impl Caller {
    /// What this worker offers to the steps of one flow.
    pub fn new(worker: &Rc<Worker>, forwards: &Rc<ForwardTargets>) -> Self {
        Self {
            worker: Rc::clone(worker),
            forwards: Rc::clone(forwards),
            request: None,
        }
    }

    /// The same for a request of a caller with this plan.
    pub fn admitted(
        worker: &Rc<Worker>,
        forwards: &Rc<ForwardTargets>,
        admission: Option<&Admission>,
    ) -> Self {
        let admitted = |admission: &Admission| {
            Box::new(OfRequest {
                admission: Some(admission.clone()),
                has_left: None,
            })
        };
        Self {
            request: admission.map(admitted),
            ..Self::new(worker, forwards)
        }
    }
}

impl Caller {
    /// The same for detached work, which goes on when its client has left.
    pub fn detached(mut self, has_left: Rc<Cell<bool>>) -> Self {
        self.request.get_or_insert_default().has_left = Some(has_left);
        self
    }
}

impl Services for Caller {
    fn call<'a>(&'a self, call: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        // Nothing of the call is made before its place is there: it would be copied there.
        Box::pin(async move {
            let target = self.forwards.get(call.plan, &self.worker.upstreams);
            OutboundCall::new(&self.worker, target).run(&call).await
        })
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

    fn random(&self) -> f64 {
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

    fn is_awaited(&self) -> bool {
        let request = self.request.as_ref();
        let has_left = request.and_then(|it| it.has_left.as_ref());
        has_left.is_none_or(|it| !it.get())
    }

    fn resources(&self) -> &Resources {
        &self.worker.resources
    }

    fn share(&self) -> Share {
        self.worker.share
    }

    fn egress(&self, url: &str) -> Result<Target, Refusal> {
        let target = self.worker.settings().egress.target(url);
        if let Err(refusal) = &target {
            upstream::note_refusal(&self.worker.metrics, refusal);
        }
        target
    }

    fn admission(&self) -> Option<&Admission> {
        self.request.as_ref()?.admission.as_ref()
    }
}

/// A call of a step to a system, with its deadline.
pub(crate) struct OutboundCall<'a> {
    worker: &'a Rc<Worker>,
    deadline: Deadline,
    settings: Rc<Settings>,
    target: Rc<ForwardTarget>,
}

impl<'a> OutboundCall<'a> {
    pub fn new(worker: &'a Rc<Worker>, target: Rc<ForwardTarget>) -> Self {
        Self {
            worker,
            deadline: worker.deadlines.add(),
            settings: worker.settings(),
            target,
        }
    }

    /// Sends the request and reads the whole reply.
    pub async fn run(&self, call: &Call<'_>) -> Result<Reply, Fault> {
        let Call {
            request, truncates, ..
        } = *call;
        if request.body.is_unread() {
            let detail = "a step calls out with a body that was not read";
            return Err(Fault::new(Kind::Internal, Origin::Engine, detail));
        }
        // All of it has one end: waiting for a connection, further attempts, and the reply's body.
        let now = Instant::now();
        self.deadline.cap(now, self.settings.timeouts.call);
        if let Some(at) = call.deadline {
            self.deadline.cap(Instant::from_std(at), Duration::ZERO);
        }
        let max = call.body_max.unwrap_or(self.settings.limits.body);
        let mut collector =
            Collector::new(self.worker, &self.deadline, &self.settings, max, request);
        collector.truncates = truncates;
        if let Some(time) = call.body_time {
            collector.bound_body(time);
        }
        let order = Order {
            target: &self.target,
            method: self.target.plan.method.as_ref().unwrap_or(&request.method),
            streams: None,
            upgrades: false,
            repeats: call.repeats,
            now,
        };
        // Boxed separately: the allocator is slower above 1 KiB (decision 0066).
        let sent = Box::pin(send(&mut collector, order));
        let outcome = sent.await.map_err(fault)?;
        let relayed = match outcome {
            Outcome::Relayed(relayed) => relayed,
            // Neither was asked for.
            Outcome::EventStream(..) | Outcome::Switched(..) => {
                return Err(broken(&"it goes on"));
            }
        };
        if truncates && !collector.is_sent && door::is_success(collector.status) {
            // Nothing but the status counts, and it speaks of a request that has not come whole.
            let detail = "the back end answered before it had got the whole request";
            return Err(Fault::new(Kind::Connection, Origin::Upstream, detail));
        }
        match relayed.cut {
            // The status has come.
            Some(_) if truncates && collector.status >= 200 => Ok(collector.into_reply()),
            None => Ok(collector.into_reply()),
            Some(_) if collector.is_refused => Err(memory::no_room_for_reply(Exhausted)),
            Some(_) if collector.is_too_large => Err(broken(&"it is larger than the limit")),
            Some(Break::Idle) => Err(fault(Failure::ReplyTimeout)),
            Some(Break::Upstream(error)) => Err(broken(&error)),
            Some(_) => Err(broken(&"it broke off")),
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

/// Tells the log about a fault: loudly when it is not the client's, and once a second when the
/// engine refuses all requests for one reason.
pub(crate) fn log_fault(fault: &Fault) {
    static LINES: FailureLines = FailureLines::new();
    let cause = fault.cause.as_deref().unwrap_or_default();
    match fault.origin {
        Origin::Client => {
            tracing::debug!(target: "proxy", kind = fault.name(), cause, "{}", fault.detail);
        }
        Origin::Upstream | Origin::Engine => {
            if let Some(count) = LINES.pass(fault) {
                tracing::warn!(
                    target: "proxy", kind = fault.name(), cause, count, "{}", fault.detail
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
