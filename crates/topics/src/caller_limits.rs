//! Limits per caller of a topic: `publish.limits` and `subscribe.limits`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use component::access::Caller;
use component::document::DocumentContext;
use component::handler::Services;
use component::limits::{Admission, Gate, Held, Passed};
use config::Node;
use message::{Body, Fault, RateLimit, Request};

use crate::endpoint::Endpoint;

/// What stands before a topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerLimits {
    /// Before publishing.
    pub publish: Option<Arc<Gate>>,
    /// Before subscribing.
    pub subscribe: Option<Arc<Gate>>,
}

impl CallerLimits {
    /// Reads the limits of a topic's document. Every problem is reported.
    pub fn read(document: &Node, name: &str, context: &mut DocumentContext<'_>) -> Self {
        let mut gate = |key: &str| {
            let limits = document.get(key)?.get("limits")?;
            let place = format!("{key}.limits");
            let reading = (context.evaluation, context.surroundings);
            let entrances = context.entrances;
            entrances.read_gate(limits, (name, &place), reading, context.report)
        };
        Self {
            publish: gate("publish"),
            subscribe: gate("subscribe"),
        }
    }

    /// Whether there are any.
    pub fn is_some(&self) -> bool {
        self.publish.is_some() || self.subscribe.is_some()
    }
}

/// The head of a request whose caller may subscribe or publish later.
pub(crate) fn head(request: &Request) -> Request {
    let mut head = request.clone();
    head.body = Body::Empty;
    head
}

/// The request as limits see it that are behind the door which has found out who has sent it.
pub(crate) fn seen<'a>(request: &'a Request, caller: Option<&Arc<Caller>>) -> Cow<'a, Request> {
    if caller.is_none() && request.caller.is_none() {
        return Cow::Borrowed(request);
    }
    let mut request = head(request);
    request.caller = caller.map(|it| Arc::clone(it) as _);
    Cow::Owned(request)
}

/// A connection of a caller: it has one place among those of each of the caller's plans, however
/// many of its topics have that plan.
#[derive(Clone, Default)]
pub(crate) struct OpenConnection(Rc<RefCell<Vec<PlanOfConnection>>>);

/// A plan that a connection has, and its place there.
type PlanOfConnection = (Admission, Option<Held>);

impl OpenConnection {
    fn open(&self, admission: &Admission) -> Result<(), Fault> {
        let mut plans = self.0.borrow_mut();
        if !plans.iter().any(|(known, _)| known.is_same(admission)) {
            let held = admission.connect()?;
            plans.push((admission.clone(), held));
        }
        Ok(())
    }
}

/// A caller who has been admitted to subscribe.
#[derive(Default)]
pub(crate) struct Subscriber {
    /// What the reply tells of the limits.
    pub fields: Vec<RateLimit>,
    /// The places among the caller's subscriptions.
    pub held: Vec<Held>,
    /// How long the plan lets the stream last.
    pub stream_time: Option<Duration>,
    /// The connection over which it subscribes.
    pub connection: OpenConnection,
}

impl Subscriber {
    /// One that subscribes over a connection that is open already.
    pub fn over(connection: &OpenConnection) -> Self {
        Self {
            connection: connection.clone(),
            ..Self::default()
        }
    }

    /// All places, for a stream that is its own connection.
    pub fn into_held(self) -> Vec<Held> {
        let connection = self.connection.0.take();
        let connection = connection.into_iter().filter_map(|it| it.1);
        self.held.into_iter().chain(connection).collect()
    }

    /// Subscribes to topics over one connection, to each as who has been admitted to it.
    ///
    /// # Errors
    /// `limited` when a limit is exceeded.
    pub async fn enter(
        (endpoints, callers): (&[Arc<Endpoint>], &[Option<Arc<Caller>>]),
        request: &Request,
        services: &dyn Services,
    ) -> Result<Self, Fault> {
        let mut all = Self::default();
        for (endpoint, caller) in endpoints.iter().zip(callers) {
            let request = seen(request, caller.as_ref());
            all.add(endpoint, &request, services).await?;
        }
        Ok(all)
    }

    /// Subscribes to one topic more.
    ///
    /// # Errors
    /// `limited` when a limit is exceeded.
    pub async fn add(
        &mut self,
        endpoint: &Endpoint,
        request: &Request,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        if let Some(gate) = &endpoint.limits.subscribe {
            let passed = enter(gate, request, services).await?;
            self.fields.extend(passed.fields.map(|it| *it));
            if let Some(admission) = passed.admission {
                self.take(admission)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, admission: Admission) -> Result<(), Fault> {
        self.connection.open(&admission)?;
        self.held.extend(admission.subscribe()?);
        let longest = admission.stream_time();
        let times = self.stream_time.into_iter().chain(longest);
        self.stream_time = times.min();
        Ok(())
    }
}

/// Passes a gate: at once, or after the wait that it allows.
///
/// # Errors
/// `limited` when a limit is exceeded.
pub(crate) async fn enter(
    gate: &Gate,
    request: &Request,
    services: &dyn Services,
) -> Result<Passed, Fault> {
    let entered = gate.enter_by_value(request, services).await?;
    entered.wait(services).await;
    Ok(entered.finish(services.now()))
}

/// Counts what a caller publishes over a connection that stays open.
///
/// # Errors
/// `limited` when a limit is exceeded.
pub(crate) async fn publish(
    endpoint: &Endpoint,
    (request, caller): (Option<&Request>, Option<&Arc<Caller>>),
    bytes: usize,
    services: &dyn Services,
) -> Result<(), Fault> {
    let (Some(gate), Some(request)) = (&endpoint.limits.publish, request) else {
        return Ok(());
    };
    let request = seen(request, caller);
    let passed = enter(gate, &request, services).await?;
    match passed.admission {
        Some(admission) => admission.publish(1, bytes as u64, services.now()),
        None => Ok(()),
    }
}

/// The message that tells a client that its plan ends the stream, as JSON.
pub(crate) const STREAM_TIME: &str = r#"{"type":"limit","limit":"stream_time"}"#;
