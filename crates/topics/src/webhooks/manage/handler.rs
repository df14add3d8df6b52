//! Takes the requests of our own REST interface, at addresses below the topic's own.

use std::sync::Arc;

use component::handler::{Handler, LocalFuture, Outcome, Services};
use message::{Fault, Method, Reply, Request};
use serde_json::{Value, json};

use super::admission::{Admission, log_failure};
use super::operations::{Challenge, Creation, Named, Operations, UpdateOptions};
use super::{Managed, body, openapi, show};
use crate::access::{self, Refused, Right};
use crate::endpoint::Endpoint;
use crate::webhooks::subscriptions::registry::Known;
use crate::webhooks::times::now_ms;

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

impl ManageHandler {
    async fn answer(
        &self,
        mut request: Request,
        services: &dyn Services,
    ) -> Result<Reply, Refused> {
        let at = (&request, services);
        let entered = access::admit_to_one(&self.endpoint, Right::Subscribe, at).await;
        let entered = entered.map_err(|refusal| refusal.or(access::nothing))?;
        let mut admission = Admission::of(entered, &mut request, access::nothing)?;
        admission.pass_limits(&request, services).await?;
        let reply = match self.serve(&request, &admission, services).await {
            Ok(reply) => reply,
            Err(fault) => self.explain(&fault),
        };
        Ok(admission.complete(reply))
    }

    /// A failure as the caller reads it; the log has its cause.
    fn explain(&self, fault: &Fault) -> Reply {
        log_failure(&self.managed, fault);
        let mut reply = fault.to_reply();
        if fault.status == 405 {
            reply.headers.append("Allow", self.resource.allow());
        }
        reply
    }

    async fn serve(
        &self,
        request: &Request,
        admission: &Admission,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let client = admission.client(&self.managed, services)?;
        let operations = Operations {
            endpoint: &self.endpoint,
            managed: &self.managed,
            client: &client,
            request,
            services,
        };
        let reads = matches!(request.method, Method::Get | Method::Head);
        match (self.resource, &request.method) {
            (Resource::OpenApi, _) if reads => {
                let document = self.document.as_bytes().to_vec();
                Ok(Reply::with_content(200, "application/json", document))
            }
            (Resource::List, _) if reads => self.list(&operations),
            (Resource::List, Method::Post) => create(&operations).await,
            (Resource::One, _) if reads => show_one(&operations),
            (Resource::One, Method::Patch) => update(&operations).await,
            (Resource::One, Method::Delete) => {
                operations.delete(id(request)).await?;
                Ok(Reply::new(204))
            }
            (Resource::Attempts, _) if reads => {
                let all = operations.attempts(id(request))?;
                let items: Vec<Value> = all.iter().map(show::attempt).collect();
                Ok(show::reply(200, &json!({ "items": items })))
            }
            (Resource::Action(action), Method::Post) => act(&operations, action).await,
            _ => Err(Fault::invalid("the method is not allowed here").with_status(405)),
        }
    }

    fn list(&self, operations: &Operations<'_>) -> Result<Reply, Fault> {
        let credentials = || self.endpoint.access.secret_parameters();
        let is_credential = |name: &str| credentials().any(|it| &**it == name);
        let query = operations.request.query.as_deref();
        let (after, limit) = body::page(query, is_credential)?;
        let known = operations.look(|all, owner| all.page(owner, &after, limit + 1));
        let shown = known.iter().map(|it| {
            let id = it.subscription.id.to_string();
            (id, shown(operations, it))
        });
        let mut all: Vec<(String, Value)> = shown.collect();
        let behind = operations.files().filter(|it| *it.state.name > *after);
        all.extend(behind.map(|it| (it.state.name.to_string(), show::file(it))));
        all.sort_by(|a, b| a.0.cmp(&b.0));
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
}

/// The id that the path of a request names.
pub(super) fn id(request: &Request) -> &str {
    let mut parameters = request.parameters.iter();
    let id = parameters.find(|(name, _)| &**name == "id");
    id.map_or("", |(_, value)| value.as_str())
}

/// A subscription as the client sees it.
fn shown(operations: &Operations<'_>, known: &Known) -> Value {
    let (challenges, is_operator) = (operations.managed.challenges, operations.client.is_operator);
    show::subscription(known, challenges, is_operator, now_ms(operations.services))
}

/// The reply that shows a subscription, with its secret where that is shown.
fn reply(operations: &Operations<'_>, status: u16, known: &Known, secret: Option<&str>) -> Reply {
    let mut content = shown(operations, known);
    if let (Some(secret), Some(place)) = (secret, content.pointer_mut("/secrets/0/secret")) {
        *place = json!(secret);
    }
    show::resource(status, known, &content)
}

async fn create(operations: &Operations<'_>) -> Result<Reply, Fault> {
    let request = operations.request;
    let (members, start) = body::created(request, operations.managed)?;
    let creation = Creation {
        members,
        start,
        key: body::request_key(request)?,
        profile: None,
    };
    let (known, secret) = operations.create(creation).await?;
    let Some(secret) = secret else {
        return Ok(reply(operations, 200, &known, None));
    };
    let mut reply = reply(operations, 201, &known, Some(&secret));
    let location = format!("{}/{}", request.path, known.subscription.id);
    reply.headers.append("Location", location);
    Ok(reply)
}

fn show_one(operations: &Operations<'_>) -> Result<Reply, Fault> {
    Ok(match operations.named(id(operations.request))? {
        Named::Subscription(known) => reply(operations, 200, &known, None),
        Named::File(plan) => show::reply(200, &show::file(&plan)),
    })
}

async fn update(operations: &Operations<'_>) -> Result<Reply, Fault> {
    let (request, managed) = (operations.request, operations.managed);
    let patch = |members| body::patched(request, members, managed);
    let options = UpdateOptions {
        challenge: Challenge::InBackground,
        pauses: false,
    };
    let known = operations.update(id(request), patch, options).await?;
    Ok(reply(operations, 200, &known, None))
}

async fn act(operations: &Operations<'_>, action: Action) -> Result<Reply, Fault> {
    let request = operations.request;
    let id = id(request);
    match action {
        Action::Rotate => {
            let overlap = body::overlap(request)?;
            let (known, secret) = operations.rotate(id, overlap).await?;
            return Ok(reply(operations, 200, &known, Some(&secret)));
        }
        Action::Test => {
            let known = operations.settled(id).await?;
            let attempt = operations.test(&known, None).await?;
            return Ok(show::reply(200, &show::attempt(&attempt)));
        }
        Action::Pause => operations.pause(&operations.settled(id).await?).await?,
        Action::Resume => operations.resume(&operations.settled(id).await?).await?,
        Action::Verify => operations.verify(&operations.settled(id).await?).await?,
        Action::Replay => {
            let known = operations.settled(id).await?;
            operations.replay(&known, body::replay(request)?).await?;
        }
    }
    // As it is now.
    Ok(reply(operations, 200, &operations.subscription(id)?, None))
}
