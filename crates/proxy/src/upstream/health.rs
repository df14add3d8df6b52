//! Active health: one worker asks every endpoint of an upstream how it is, and all workers go by
//! what it finds.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use component::forward::{ForwardPlan, ForwardTimeouts};
use component::handler::Call;
use component::plan::Plan;
use component::upstream::{HealthCheck, UpstreamPlan};
use message::{Body, Headers, Method, Request};

use tokio::time::Instant;

use crate::call::OutboundCall;
use crate::upstream::request_head::ForwardTarget;
use crate::worker::Worker;

/// Starts the checks of a plan. They end when the worker takes over the next one.
pub(crate) fn start(worker: &Rc<Worker>, plan: &Plan) {
    for upstream in &plan.upstreams {
        let Some(check) = &upstream.health else {
            continue;
        };
        for at in 0..upstream.endpoints.len() {
            let checker = Checker {
                worker: Rc::clone(worker),
                generation: worker.generation(),
                check: check.clone(),
                name: name(upstream, at),
                target: Rc::new(target(worker, upstream, check, at)),
                down: worker.engine.health.entry(upstream, at),
            };
            worker.supervise("health check", checker.run());
        }
    }
}

fn name(upstream: &UpstreamPlan, at: usize) -> String {
    let endpoint = upstream.endpoints.get(at);
    endpoint.map_or_else(String::new, |it| format!("{}:{}", it.host, it.port))
}

fn target(
    worker: &Worker,
    upstream: &Arc<UpstreamPlan>,
    check: &HealthCheck,
    at: usize,
) -> ForwardTarget {
    let probe = worker.upstreams.probe(upstream, at);
    let timeouts = ForwardTimeouts {
        connect: Some(check.timeout),
        response: Some(check.timeout),
        body: Some(check.timeout),
        total: None,
    };
    let mut plan = ForwardPlan::new(Arc::clone(&probe.plan), &*check.path);
    plan.timeouts = timeouts;
    ForwardTarget::over(&Arc::new(plan), probe)
}

/// Asks one endpoint again and again.
struct Checker {
    worker: Rc<Worker>,
    generation: u64,
    check: HealthCheck,
    name: String,
    target: Rc<ForwardTarget>,
    down: Arc<AtomicBool>,
}

impl Checker {
    async fn run(self) {
        // In a row: how often it was not as the verdict says.
        let mut against = 0;
        loop {
            let is_well = self.ask().await;
            if self.worker.generation() != self.generation {
                return;
            }
            let was_well = !self.down.load(Ordering::Relaxed);
            against = if is_well == was_well { 0 } else { against + 1 };
            let needed = match was_well {
                true => self.check.unhealthy,
                false => self.check.healthy,
            };
            if against >= needed {
                against = 0;
                self.down.store(!is_well, Ordering::Relaxed);
                self.tell(is_well);
            }
            tokio::time::sleep(self.check.every).await;
        }
    }

    fn tell(&self, is_well: bool) {
        let upstream = &*self.target.plan.upstream.name;
        let endpoint = &*self.name;
        if is_well {
            tracing::info!(target: "proxy", upstream, endpoint, "an endpoint is well again");
        } else {
            tracing::warn!(target: "proxy", upstream, endpoint, "an endpoint is down");
        }
    }

    async fn ask(&self) -> bool {
        let request = Request {
            method: Method::Get,
            path: self.check.path.clone(),
            query: None,
            parameters: Vec::new(),
            headers: Headers::new(),
            body: Body::Empty,
            peer: [0, 0, 0, 0].into(),
            proxy: None,
            is_secure: false,
            certificate: None,
            caller: None,
        };
        // Connections to addresses that are gone shall not speak for the endpoint.
        self.target.upstream.prune(Instant::now());
        let call = Call::new(&self.target.plan, &request, "health check");
        let sending = OutboundCall::new(&self.worker, Rc::clone(&self.target));
        let reply = tokio::time::timeout(self.check.timeout, sending.run(&call)).await;
        let Ok(Ok(reply)) = reply else {
            // The call may have been dropped anywhere: the next one goes over a new connection, so
            // that a dead one is not asked for ever.
            self.target.upstream.forget_connections();
            return false;
        };
        match self.check.status {
            Some(status) => reply.status == status,
            None => (200..300).contains(&reply.status),
        }
    }
}
