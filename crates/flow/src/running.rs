//! A flow that runs: its steps in order within its time, its failures handled, then a reply or an
//! order to forward.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::access::drop_ticket_cookie;
use component::block::Block;
use component::exchange::{Exchange, FlowContext};
use component::failure::{Handled, Handlers};
use component::forward::ForwardPlan;
use component::handler::{Callee, CallerContext, Handler, LocalFuture, Outcome, Services, until};
use component::limits::Gate;
use component::resilience::{Bulkhead, Permit};
use component::source::Started;
use component::step::{Entry, Next};
use component::stream_limits::StreamLimits;
use message::{Body, Fault, Kind, Origin, Reply, Request};

/// How many flows may call each other.
const DEPTH_MAX: u16 = 32;

/// A flow with steps.
pub(crate) struct RunningFlow {
    pub context: Arc<FlowContext>,
    pub block: Block,
    pub on_error: Option<Handlers>,
    pub limits: FlowLimits,
    /// Whether the flow continues when the client disconnects.
    pub detaches: bool,
    /// Whether any of it needs the body in memory.
    pub reads_body: bool,
}

/// What a flow may take.
#[derive(Default)]
pub(crate) struct FlowLimits {
    /// The longest that a message may be under way.
    pub time: Option<Duration>,
    /// How many at a time.
    pub concurrent: Option<Arc<Bulkhead>>,
    /// How often, and by whom.
    pub gate: Option<Arc<Gate>>,
    /// What the streams may take that it forwards.
    pub streams: Option<Arc<StreamLimits>>,
}

impl FlowLimits {
    /// Whether messages never wait before the flow starts, which have passed the gate or not.
    fn admits_at_once(&self, door: Door) -> bool {
        (self.gate.is_none() || door == Door::Passed) && self.concurrent.is_none()
    }
}

/// Whether a message has passed the flow's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// A request: it did so before its body was read.
    Passed,
    /// A message that no request brings.
    Ahead,
}

/// How a flow has ended.
enum End {
    Reply(Reply),
    Forward(Arc<ForwardPlan>),
}

impl RunningFlow {
    /// The places where steps of other flows may enter it.
    pub fn entries(&self) -> Vec<Entry> {
        let steps = self.block.steps.iter();
        steps.flat_map(|it| it.step.entries()).collect()
    }

    async fn run(
        &self,
        door: Door,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<End, Fault> {
        // What a calling flow allows holds for the steps; the calling flow itself sees to it.
        let inherited = exchange.deadline;
        let deadline = self.begin(inherited, exchange, services);
        let _permit = match self.limits.admits_at_once(door) {
            true => None,
            // On the heap, as all that few messages need: every message would pay for its size.
            false => Box::pin(self.admit((door, deadline), exchange, services)).await?,
        };
        let before = exchange.checkpoint();
        let ended = {
            // Pinned here: passed on by value it would be kept once for each that it passes.
            let work = pin!(async {
                let next = self.block.run(exchange, services).await?;
                Ok::<_, Fault>(self.end(next, exchange, services).await)
            });
            until(deadline, services, work).await
        };
        let fault = match ended {
            Some(Ok(end)) => return end,
            Some(Err(fault)) => fault,
            None => {
                exchange.roll_back(before);
                self.out_of_time(exchange)
            }
        };
        Box::pin(self.handle_failure(fault, inherited, exchange, services)).await
    }

    /// Has a failure of the steps handled.
    async fn handle_failure(
        &self,
        fault: Fault,
        inherited: Option<Instant>,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<End, Fault> {
        services.failed(exchange, &fault);
        let Some(handlers) = &self.on_error else {
            return Err(fault);
        };
        tracing::debug!(
            target: "flow",
            flow = &*self.context.name,
            step = fault.step.as_deref().unwrap_or_default(),
            kind = fault.name(),
            cause = fault.cause.as_deref().unwrap_or_default(),
            "{}", fault.detail
        );
        let first = fault.to_string();
        // Handlers have the same time again: the flow's own may be what has run out.
        let deadline = self.begin(inherited, exchange, services);
        let ended = {
            let work = pin!(async {
                match handlers.handle(fault, exchange, services).await? {
                    Handled::Ended(next) => self.end(next, exchange, services).await,
                    Handled::Done(fault) => Ok(End::Reply(fault.to_reply())),
                }
            });
            until(deadline, services, work).await
        };
        match ended {
            Some(Ok(end)) => Ok(end),
            Some(Err(second)) => Err(self.after(first, second)),
            None => Err(self.after(first, self.out_of_time(exchange))),
        }
    }

    /// A failure of a handler hides the one it was to handle from everybody but the log.
    fn after(&self, first: String, second: Fault) -> Fault {
        tracing::warn!(target: "flow", flow = &*self.context.name, "not handled: {first}");
        second
    }

    /// Lets the flow's time begin, within what a calling flow allows, and gives when it is over.
    fn begin(
        &self,
        inherited: Option<Instant>,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Option<Instant> {
        exchange.deadline = inherited;
        let deadline = self.limits.time.map(|time| services.now() + time);
        if let Some(at) = deadline {
            exchange.cap(at);
        }
        deadline
    }

    /// Waits until the flow may be started, within its time.
    async fn admit(
        &self,
        (door, deadline): (Door, Option<Instant>),
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Option<Permit>, Fault> {
        let head = &exchange.request;
        let admitted = async {
            if let Some(gate) = self.limits.gate.as_ref().filter(|_| door == Door::Ahead) {
                let entered = gate.enter_by_value(head, services).await?;
                entered.wait(services).await;
                entered.finish(services.now());
            }
            match &self.limits.concurrent {
                Some(concurrent) => concurrent.enter(services).await.map(Some),
                None => Ok(None),
            }
        };
        match until(deadline, services, admitted).await {
            Some(permit) => permit,
            None => Err(self.out_of_time(exchange)),
        }
    }

    fn out_of_time(&self, exchange: &mut Exchange) -> Fault {
        let time = self.limits.time.unwrap_or_default();
        let mut fault = Fault::new(Kind::Timeout, Origin::Upstream, "the flow took too long")
            .with_cause(exchange.longer_than(time));
        fault.step = Some(Arc::clone(&exchange.at));
        fault
    }

    async fn end(
        &self,
        next: Next,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<End, Fault> {
        Ok(match next {
            Next::Reply(reply) => End::Reply(reply),
            Next::Forward(plan) => {
                // A value is written now; later there is nobody left who could wait for it.
                if exchange.content.raw().is_none() {
                    let written = exchange.preemptible(services, |it| it.body().map(|_| ()));
                    written.await?;
                }
                End::Forward(plan)
            }
            Next::Continue => {
                let reply = exchange.preemptible(services, |it| it.take_reply(200));
                let mut reply = reply.await?;
                if matches!(reply.body, Body::Empty) {
                    reply.status = 204;
                }
                End::Reply(reply)
            }
        })
    }

    /// Tells the log which step of which flow failed.
    pub(crate) fn place(&self, fault: Fault) -> Fault {
        let step = fault.step.as_deref().unwrap_or_default();
        let place = match step {
            "" => format!("flow {}", self.context.name),
            step => format!("flow {}, step {step}", self.context.name),
        };
        let cause = match &fault.cause {
            Some(cause) => format!("{place}: {cause}"),
            None => place,
        };
        fault.with_cause(cause)
    }

    /// What a flow that requests start decides.
    fn outcome(
        &self,
        end: Result<End, Fault>,
        exchange: Exchange,
        services: &dyn Services,
    ) -> Result<Outcome, Fault> {
        match end.map_err(|fault| self.place(fault))? {
            End::Reply(reply) => Ok(Outcome::Reply(reply)),
            End::Forward(plan) => {
                let left = exchange.deadline;
                let left = left.map(|at| at.saturating_duration_since(services.now()));
                let mut request = exchange.into_request().map_err(|fault| self.place(fault))?;
                if self.limits.counts_messages() {
                    // Events of a compressed stream could not be told apart.
                    request.headers.remove("Accept-Encoding");
                }
                Ok(Outcome::Forward(plan, Box::new(request), left))
            }
        }
    }
}

impl Handler for RunningFlow {
    fn reads_body(&self) -> bool {
        self.reads_body
    }

    fn detaches(&self) -> bool {
        self.detaches
    }

    fn gate(&self) -> Option<&Arc<Gate>> {
        self.limits.gate.as_ref()
    }

    fn stream_limits(&self) -> Option<&Arc<StreamLimits>> {
        self.limits.streams.as_ref()
    }

    fn handle<'a>(
        &'a self,
        mut request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        drop_ticket_cookie(&mut request);
        Box::pin(async move {
            // Made here, not moved in: it is several times as large as the request.
            let mut exchange = Exchange::new(&self.context, request);
            let end = self.run(Door::Passed, &mut exchange, services).await;
            services.ended(&exchange);
            self.outcome(end, exchange, services)
        })
    }
}

impl Callee for RunningFlow {
    fn call<'a>(
        &'a self,
        request: Request,
        caller: CallerContext,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(async move {
            let mut exchange = Exchange::new(&self.context, request);
            exchange.depth = caller.depth;
            exchange.deadline = caller.deadline;
            if caller.depth > DEPTH_MAX {
                let detail = "flows call each other without end";
                return Err(Fault::new(Kind::Internal, Origin::Engine, detail));
            }
            let end = self.run(Door::Ahead, &mut exchange, services).await;
            services.ended(&exchange);
            match end? {
                End::Reply(reply) => Ok(reply),
                // Only the last step of a flow that answers requests streams.
                End::Forward(_) => {
                    let detail = "a called flow cannot stream";
                    Err(Fault::new(Kind::Internal, Origin::Engine, detail))
                }
            }
        })
    }
}

impl Started for RunningFlow {
    fn name(&self) -> &Arc<str> {
        &self.context.name
    }

    fn start<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        let work = self.call(request, CallerContext::default(), services);
        Box::pin(async move {
            work.await.map_err(|fault| {
                let fault = self.place(fault);
                tracing::warn!(
                    target: "flow",
                    kind = fault.name(),
                    cause = fault.cause.as_deref().unwrap_or_default(),
                    "{}", fault.detail
                );
                fault
            })
        })
    }

    fn detaches(&self) -> bool {
        self.detaches
    }
}

#[cfg(test)]
mod tests;
