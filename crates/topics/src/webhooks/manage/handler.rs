//! Takes the requests that manage webhooks. A webhook belongs to the caller that has made it: to
//! others it does not exist.

mod change;

use std::sync::Arc;
use std::time::Duration;

use component::access::Caller;
use component::audit::{Event as AuditEvent, EventKind};
use component::handler::{Handler, LocalFuture, Outcome, Services};
use journal::Refusal as NotWritten;
use message::{Fault, Kind, Method, Origin, RateLimit, Reply, Request};
use serde_json::{Value, json};

use super::probe::now_ms;
use super::{Managed, body, openapi, show};
use crate::access::{self, Refused, Right};
use crate::caller_limits::{self, seen};
use crate::endpoint::Endpoint;
use crate::webhooks::plan::EndpointPlan;
use crate::webhooks::subscriptions::Changing;
use crate::webhooks::subscriptions::record::Owner;
use crate::webhooks::subscriptions::registry::Known;

/// The most bytes of a request's body.
pub(crate) const BODY_MAX: u64 = 64 << 10;

/// What is at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    List,
    OpenApi,
    One,
    Attempts,
    Action(Action),
}

/// What is done with a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Pause,
    Resume,
    Verify,
    Test,
    Replay,
    Rotate,
}

/// The addresses below `PATH/webhooks`.
const RESOURCES: &[(&str, Resource)] = &[
    ("", Resource::List),
    ("/openapi.json", Resource::OpenApi),
    ("/{id}", Resource::One),
    ("/{id}/attempts", Resource::Attempts),
    ("/{id}/pause", Resource::Action(Action::Pause)),
    ("/{id}/resume", Resource::Action(Action::Resume)),
    ("/{id}/verify", Resource::Action(Action::Verify)),
    ("/{id}/test", Resource::Action(Action::Test)),
    ("/{id}/replay", Resource::Action(Action::Replay)),
    ("/{id}/rotate-secret", Resource::Action(Action::Rotate)),
];

impl Resource {
    fn allow(self) -> &'static str {
        match self {
            Self::List => "GET, HEAD, POST",
            Self::OpenApi | Self::Attempts => "GET, HEAD",
            Self::One => "GET, HEAD, PATCH, DELETE",
            Self::Action(_) => "POST",
        }
    }
}

/// The paths below the topic's own, and who takes their requests.
pub(crate) fn routes(
    endpoint: &Arc<Endpoint>,
    (managed, base): (&Arc<Managed>, &str),
) -> Vec<(String, Arc<dyn Handler>)> {
    let document: Arc<str> = openapi::document(managed.topic.name(), base).into();
    let routes = RESOURCES.iter().map(|(path, resource)| {
        let handler = ManageHandler {
            endpoint: Arc::clone(endpoint),
            managed: Arc::clone(managed),
            document: Arc::clone(&document),
            resource: *resource,
        };
        let path = format!("{base}/webhooks{path}");
        (path, Arc::new(handler) as Arc<dyn Handler>)
    });
    routes.collect()
}

/// Takes the requests of one address.
struct ManageHandler {
    endpoint: Arc<Endpoint>,
    managed: Arc<Managed>,
    /// What describes all addresses.
    document: Arc<str>,
    resource: Resource,
}

impl Handler for ManageHandler {
    fn reads_body(&self) -> bool {
        true
    }

    /// What has been written has to be seen, also when the client has left.
    fn detaches(&self) -> bool {
        true
    }

    fn is_locked(&self) -> bool {
        true
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        self.endpoint.access.secret_parameters().cloned().collect()
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            match self.answer(request, services).await {
                Ok(reply) => Ok(Outcome::Reply(reply)),
                Err(Refused::Reply(reply)) => Ok(Outcome::Reply(*reply)),
                Err(Refused::Fault(fault)) => Err(fault),
            }
        })
    }
}

/// Who calls.
struct Client {
    owner: Owner,
    is_operator: bool,
}

/// What somebody has named.
enum Named {
    Subscription(Known),
    File(Arc<EndpointPlan>),
}

/// What is said of a webhook that does not exist, or that belongs to somebody else.
fn missing() -> Fault {
    Fault::invalid("there is no such webhook").with_status(404)
}

/// What is said where the state of a webhook does not allow something.
fn conflict(detail: &'static str) -> Fault {
    Fault::invalid(detail).with_status(409)
}

fn not_written(refusal: &NotWritten) -> Fault {
    let detail = "the change may not be on the disk";
    Fault::new(Kind::Unavailable, Origin::Engine, detail)
        .with_cause(refusal)
        .with_retry_after(Duration::from_secs(5))
}

impl ManageHandler {
    async fn answer(
        &self,
        mut request: Request,
        services: &dyn Services,
    ) -> Result<Reply, Refused> {
        let at = (&request, services);
        let entered = access::admit_to_one(&self.endpoint, Right::Subscribe, at).await;
        let entered = vec![entered.map_err(|refusal| refusal.or(access::nothing))?];
        let fields = access::reply_fields(&entered);
        let (_, callers) = access::enter(entered, &mut request);
        let caller = callers.into_iter().next().flatten();
        // The file has been refused when there is no lock.
        let caller = caller.ok_or_else(access::nothing)?;
        let mut limits = Vec::new();
        if let Some(gate) = &self.endpoint.limits.subscribe {
            let seen = seen(&request, Some(&caller));
            let passed = caller_limits::enter(gate, &seen, services).await?;
            limits.extend(passed.fields);
        }
        let mut reply = match self.serve(&request, &caller, services).await {
            Ok(reply) => reply,
            Err(fault) => self.explain(&fault),
        };
        for (name, value) in limits.iter().flat_map(|it| RateLimit::fields(it)) {
            reply.headers.append(name, value);
        }
        for (name, value) in fields {
            if reply.headers.get(name).is_none() {
                reply.headers.append(name, value);
            }
        }
        Ok(reply)
    }

    /// A failure as the caller reads it; the log has its cause.
    fn explain(&self, fault: &Fault) -> Reply {
        let (topic, error) = (&**self.managed.topic.name(), fault.to_string());
        match fault.origin {
            Origin::Client => {
                tracing::debug!(target: "topics", topic, error, "a request is refused");
            }
            Origin::Upstream | Origin::Engine => {
                tracing::warn!(target: "topics", topic, error, "a request for webhooks has failed");
            }
        }
        let mut reply = fault.to_reply();
        if fault.status == 405 {
            reply.headers.append("Allow", self.resource.allow());
        }
        reply
    }

    /// Tells the audit stream who has done what with a webhook.
    fn audit(&self, kind: EventKind, request: &Request, id: &str) {
        self.endpoint.audit.record(|| {
            let entry = json!({ "topic": &**self.managed.topic.name(), "endpoint": id });
            let event = AuditEvent::success(kind).of_request(request);
            event.with("entry", entry)
        });
    }

    async fn serve(
        &self,
        request: &Request,
        caller: &Caller,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let now = services.wall().as_secs_f64();
        let operators = self.managed.operators.as_ref();
        let client = Client {
            owner: Owner::of(caller)?,
            is_operator: operators.is_some_and(|it| it.has(caller, now)),
        };
        let reads = matches!(request.method, Method::Get | Method::Head);
        match (self.resource, &request.method) {
            (Resource::OpenApi, _) if reads => {
                let document = self.document.as_bytes().to_vec();
                Ok(Reply::with_content(200, "application/json", document))
            }
            (Resource::List, _) if reads => self.list(request, &client, services),
            (Resource::List, Method::Post) => self.create(request, &client, services).await,
            (Resource::One, _) if reads => self.show(request, &client, services),
            (Resource::One, Method::Patch) => self.update(request, &client, services).await,
            (Resource::One, Method::Delete) => self.delete(request, &client).await,
            (Resource::Attempts, _) if reads => self.attempts(request, &client),
            (Resource::Action(action), Method::Post) => {
                self.act(action, request, &client, services).await
            }
            _ => Err(Fault::invalid("the method is not allowed here").with_status(405)),
        }
    }

    /// A subscription as this client sees it.
    fn shown(&self, known: &Known, client: &Client, services: &dyn Services) -> Value {
        let managed = &self.managed;
        show::subscription(
            known,
            managed.challenges,
            client.is_operator,
            now_ms(services),
        )
    }

    fn list(
        &self,
        request: &Request,
        client: &Client,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let credentials = || self.endpoint.access.secret_parameters();
        let is_credential = |name: &str| credentials().any(|it| &**it == name);
        let (after, limit) = body::page(request.query.as_deref(), is_credential)?;
        let owner = (!client.is_operator).then_some(&client.owner);
        let known = self
            .managed
            .subscriptions
            .with(|it| it.page(owner, &after, limit + 1));
        let shown = known.iter().map(|it| {
            let id = it.subscription.id.to_string();
            (id, self.shown(it, client, services))
        });
        let mut all: Vec<(String, Value)> = shown.collect();
        if client.is_operator {
            let files = self.managed.files.iter();
            let behind = files.filter(|it| *it.state.name > *after);
            all.extend(behind.map(|it| (it.state.name.to_string(), show::file(it))));
            all.sort_by(|a, b| a.0.cmp(&b.0));
        }
        let has_more = all.len() > limit;
        all.truncate(limit);
        let next = all.last().filter(|_| has_more).map(|it| it.0.clone());
        let items: Vec<Value> = all.into_iter().map(|it| it.1).collect();
        let mut reply = show::reply(200, &json!({ "items": items, "next": next }));
        if let Some(next) = next {
            let link = format!("<?after={next}&limit={limit}>; rel=\"next\"");
            reply.headers.append("Link", link);
        }
        Ok(reply)
    }

    /// What a request names, if its client may see it.
    fn named(&self, request: &Request, client: &Client) -> Result<Named, Fault> {
        let mut parameters = request.parameters.iter();
        let id = parameters.find(|(name, _)| &**name == "id");
        let id = id.map_or("", |(_, value)| value.as_str());
        if let Some(known) = self.managed.subscriptions.get(id) {
            let is_own = *known.subscription.owner == client.owner;
            return match is_own || client.is_operator {
                true => Ok(Named::Subscription(known)),
                false => Err(missing()),
            };
        }
        let mut files = self.managed.files.iter().filter(|_| client.is_operator);
        let file = files.find(|it| &*it.state.name == id);
        file.map(|it| Named::File(Arc::clone(it)))
            .ok_or_else(missing)
    }

    /// A subscription that is about to be changed.
    async fn changing(&self, request: &Request, client: &Client) -> Result<Changing, Fault> {
        let known = match self.named(request, client)? {
            Named::Subscription(known) => known,
            Named::File(_) => {
                let detail = "the webhook is described in a file, and changed there";
                return Err(Fault::new(Kind::Forbidden, Origin::Client, detail));
            }
        };
        let changing = change::begin(&self.managed, &known.subscription.id).await?;
        check_match(request, &changing.known)?;
        Ok(changing)
    }

    fn show(
        &self,
        request: &Request,
        client: &Client,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        Ok(match self.named(request, client)? {
            Named::Subscription(known) => {
                let content = self.shown(&known, client, services);
                show::resource(200, &known, &content)
            }
            Named::File(plan) => show::reply(200, &show::file(&plan)),
        })
    }

    fn attempts(&self, request: &Request, client: &Client) -> Result<Reply, Fault> {
        let state = match self.named(request, client)? {
            Named::Subscription(known) => known.state,
            Named::File(plan) => Arc::clone(&plan.state),
        };
        let all = self.managed.attempts.list(&state.topic, &state.name);
        let items: Vec<Value> = all.iter().map(show::attempt).collect();
        Ok(show::reply(200, &json!({ "items": items })))
    }
}

/// Compares the entity tags of `If-Match` (RFC 9110, section 13.1.1), where a request has it.
fn check_match(request: &Request, known: &Known) -> Result<(), Fault> {
    let view = request.headers.view();
    let lines = view
        .iter()
        .filter(|it| it.1.eq_ignore_ascii_case(b"If-Match"));
    let lines: Vec<&[u8]> = lines.map(|it| it.2).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let own = show::entity_tag(&known.subscription);
    let mut tags = lines.iter().flat_map(|it| it.split(|byte| *byte == b','));
    let is_match = tags.any(|tag| {
        let tag = tag.trim_ascii();
        tag == b"*" || tag == own.as_bytes()
    });
    match is_match {
        true => Ok(()),
        false => {
            let detail = "the webhook has been changed since: read it again";
            Err(Fault::invalid(detail).with_status(412))
        }
    }
}
