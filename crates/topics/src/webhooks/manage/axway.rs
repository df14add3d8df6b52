//! The REST interface for webhook subscriptions with the paths, members, lists and errors of Axway
//! Streams. [`operations`](super::operations) does the work, as for the own interface. All topics
//! of a listener share these routes.
//!
//! [`body`] reads what requests say of a subscription, [`list`] which part of a list they want, and
//! [`exchanges`] shows what has been sent to one.

mod body;
mod exchanges;
mod list;

use std::sync::Arc;

use bytes::Bytes;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::trigger::ListenAddress;
use message::{Fault, Kind, Method, Origin, Reply, Request};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use self::body::SubscriptionStatus;
use self::list::Query;
use super::admission::{Admission, log_failure};
use super::handler::id;
use super::operations::{Challenge, Client, Creation, Operations, UpdateOptions};
use super::{Managed, show};
use crate::access::{self, Protocol, Refused, Right};
use crate::endpoint::{Directory, Endpoint};
use crate::frame;
use crate::profile::{Profile, axway};
use crate::webhooks::state::Health;
use crate::webhooks::subscriptions::record::{id_of, uuid_of};
use crate::webhooks::subscriptions::registry::Known;

/// What all addresses begin with.
const BASE: &str = "/streams/subscribers/webhook/api/v1";

/// What is at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    List,
    One,
    Test,
    Exchanges,
}

const RESOURCES: &[(&str, Resource)] = &[
    ("/topics/{topic}/subscriptions", Resource::List),
    ("/subscriptions/{id}", Resource::One),
    ("/subscriptions/{id}/test", Resource::Test),
    ("/subscriptions/{id}/exchanges", Resource::Exchanges),
];

impl Resource {
    fn allow(self) -> &'static str {
        match self {
            Self::List => "GET, HEAD, POST",
            Self::One => "GET, HEAD, PATCH, DELETE",
            Self::Test => "POST",
            Self::Exchanges => "GET, HEAD",
        }
    }

    /// The code of the error that says that what its path names does not exist.
    fn missing_code(self) -> u32 {
        match self {
            Self::List => axway::NO_TOPIC,
            Self::One | Self::Test | Self::Exchanges => axway::NO_SUBSCRIPTION,
        }
    }

    /// What is said of what does not exist, or may not be seen.
    fn missing(self) -> Fault {
        match self {
            Self::List => axway::missing(),
            Self::One | Self::Test | Self::Exchanges => {
                Fault::invalid("there is no such subscription").with_status(404)
            }
        }
    }
}

/// The methods, the path and who takes the requests of each address.
pub(crate) fn routes(
    directory: &Arc<Directory>,
    listen: &ListenAddress,
) -> Vec<(&'static str, String, Arc<dyn Handler>)> {
    let methods = [
        ("any", "webhooks of axway-streams"),
        ("TRACE", "webhooks of axway-streams by TRACE"),
    ];
    let all = RESOURCES.iter().flat_map(|(path, resource)| {
        methods.map(|(methods, shared)| {
            let handler = AxwayHandler {
                directory: Arc::clone(directory),
                listen: listen.clone(),
                resource: *resource,
                shared,
            };
            let handler: Arc<dyn Handler> = Arc::new(handler);
            (methods, format!("{BASE}{path}"), handler)
        })
    });
    all.collect()
}

/// Takes the requests of one address, for whichever topic of the listener.
struct AxwayHandler {
    directory: Arc<Directory>,
    listen: ListenAddress,
    resource: Resource,
    shared: &'static str,
}

impl Handler for AxwayHandler {
    fn reads_body(&self) -> bool {
        true
    }

    /// What has been written has to be seen, also when the client has left.
    fn detaches(&self) -> bool {
        true
    }

    fn shares(&self) -> Option<&'static str> {
        Some(self.shared)
    }

    fn is_locked(&self) -> bool {
        true
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        self.directory.secret_parameters(&self.listen).to_vec()
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            let uuid = id(&request).to_owned();
            let reply = match self.answer(request, services).await {
                Ok(reply) => reply,
                Err(Refused::Fault(fault)) => self.explain(&fault, &uuid, services),
                Err(Refused::Reply(reply)) => {
                    let fault = access::fault_of(&reply);
                    axway::demanding(&reply, self.explain(&fault, &uuid, services))
                }
            };
            Ok(Outcome::Reply(reply))
        })
    }
}

impl AxwayHandler {
    /// The topic that a request is for: the one that its path names, or the one of the subscription
    /// that it names.
    fn find(&self, request: &Request) -> Option<Arc<Endpoint>> {
        if self.resource == Resource::List {
            let found = axway::find(&self.directory, &self.listen, axway::named(request));
            return found.filter(|it| Protocol::AxwayWebhooks.serves(it));
        }
        let id = id_of(id(request))?;
        let has_it = |it: &Endpoint| {
            let managed = it.topic.managed().filter(|_| it.settings.is_axway);
            managed.is_some_and(|managed| managed.subscriptions.get(&id).is_some())
        };
        self.directory.search(&self.listen, has_it)
    }

    async fn answer(
        &self,
        mut request: Request,
        services: &dyn Services,
    ) -> Result<Reply, Refused> {
        let (protocol, right) = (Protocol::AxwayWebhooks, Right::Subscribe);
        let locks = self.directory.locks(&self.listen, protocol, right);
        let at = (&request, services);
        let entered = access::admit(self.find(&request), &locks, right, at).await;
        let missing = || self.resource.missing();
        let entered = entered.map_err(|refusal| refusal.or(missing))?;
        let mut admission = Admission::of(entered, &mut request, missing)?;
        let managed = admission.endpoint.topic.managed().ok_or_else(missing)?;
        let client = admission.client(&managed, services);
        if !self.may_see(client.as_ref(), (&request, &managed)) {
            // Checked before the limits: they and the fields that they add to replies are those of
            // a topic, and an id that does not exist has none.
            return Err(missing().into());
        }
        admission.pass_limits(&request, services).await?;
        let of = (&*admission.endpoint, client);
        let reply = match self.serve((&request, &managed), of, services).await {
            Ok(reply) => reply,
            Err(fault) => {
                log_failure(&managed, &fault);
                self.explain(&fault, id(&request), services)
            }
        };
        Ok(admission.complete(reply))
    }

    /// Whether what the path names exists for a client. A caller without a name (see `Owner::of`)
    /// has no subscriptions; a request for a list tells it why.
    fn may_see(
        &self,
        client: Result<&Client, &Fault>,
        (request, managed): (&Request, &Managed),
    ) -> bool {
        if self.resource == Resource::List {
            return true;
        }
        let known = id_of(id(request)).and_then(|id| managed.subscriptions.get(&id));
        client.is_ok_and(|client| known.is_some_and(|it| client.sees(&it)))
    }

    /// A failure as clients read it. `uuid` is what the path has in place of a subscription.
    fn explain(&self, fault: &Fault, uuid: &str, services: &dyn Services) -> Reply {
        // What is not there and what belongs to somebody else are told in the same words.
        let missing = (fault.status == 404).then(|| self.resource.missing());
        let fault = missing.as_ref().unwrap_or(fault);
        let subscription = id_of(uuid).map(|id| uuid_of(&id));
        let what = (self.resource.missing_code(), subscription.as_deref());
        let mut reply = axway::failed_as(fault, what, services.wall());
        if fault.status == 405 {
            reply.headers.append("Allow", self.resource.allow());
        }
        reply
    }

    async fn serve(
        &self,
        (request, managed): (&Request, &Arc<Managed>),
        (endpoint, client): (&Endpoint, Result<Client, Fault>),
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let client = client?;
        let operations = Operations {
            endpoint,
            managed,
            client: &client,
            request,
            services,
        };
        let reads = matches!(request.method, Method::Get | Method::Head);
        match (self.resource, &request.method) {
            (Resource::List, _) if reads => list(&operations),
            (Resource::List, Method::Post) => create(&operations).await,
            (Resource::One, _) if reads => {
                let known = operations.subscription(&named(request)?)?;
                Ok(reply(&operations, 200, &known, None))
            }
            (Resource::One, Method::Patch) => update(&operations).await,
            (Resource::One, Method::Delete) => {
                operations.delete(&named(request)?).await?;
                Ok(Reply::new(204))
            }
            (Resource::Test, Method::Post) => test(&operations).await,
            (Resource::Exchanges, _) if reads => {
                let query = Query::of(&operations)?;
                exchanges::reply(&operations, &named(request)?, query)
            }
            _ => Err(Fault::invalid("the method is not allowed here").with_status(405)),
        }
    }
}

/// The id of the subscription that a path names.
fn named(request: &Request) -> Result<String, Fault> {
    id_of(id(request)).ok_or_else(|| Resource::One.missing())
}

/// Whether deliveries are stopped until the subscription is resumed: it is paused or disabled.
fn is_stopped(known: &Known) -> bool {
    !matches!(known.state.health().0, Health::Active | Health::Down)
}

/// A subscription as clients see it.
fn shown(managed: &Managed, known: &Known) -> Value {
    let subscription = &known.subscription;
    let is_unverified = managed.challenges && !subscription.is_verified;
    let status = match !is_stopped(known) && !is_unverified {
        true => SubscriptionStatus::Active,
        false => SubscriptionStatus::Suspended,
    };
    let topic = &managed.topic;
    let topic_id = topic.epoch().map(|it| frame::topic_uuid(topic.name(), it));
    json!({
        "id": subscription.uuid(),
        "topicId": topic_id,
        "webhookUrl": &*subscription.url,
        "webhookHeaders": show::masked(&subscription.details().headers),
        "subscriptionMode": axway::mode_name(subscription.view.mode),
        "subscriptionStatus": status.name(),
    })
}

/// The reply that shows a subscription, with its secret where that is shown.
fn reply(operations: &Operations<'_>, status: u16, known: &Known, secret: Option<&str>) -> Reply {
    let mut content = shown(operations.managed, known);
    if let (Some(secret), Some(members)) = (secret, content.as_object_mut()) {
        members.insert("webhookSecret".to_owned(), secret.into());
    }
    show::resource(status, known, &content)
}

fn list(operations: &Operations<'_>) -> Result<Reply, Fault> {
    let (query, order) = list::SortOrder::take(Query::of(operations)?)?;
    let page = query.page()?;
    let (known, total) = operations.look(|all, owner| {
        let total = all.count(owner);
        let known = match order {
            // Behind the last page: nothing has to be sorted for that.
            _ if page.skipped() >= total => Vec::new(),
            Some(order) => order.page(all.list(owner), &page),
            None => all.part(owner, page.skipped(), page.size),
        };
        (known, total)
    });
    let managed = operations.managed;
    let items: Vec<Value> = known.iter().map(|it| shown(managed, it)).collect();
    Ok(page.reply(&operations.request.path, items, total))
}

async fn create(operations: &Operations<'_>) -> Result<Reply, Fault> {
    let request = operations.request;
    let usual = operations.endpoint.settings.mode;
    let members = body::created(request, usual, operations.managed)?;
    let creation = Creation {
        members,
        start: crate::source::Start::Latest,
        key: super::body::request_key(request)?,
        profile: Some(Profile::AxwayStreams),
    };
    let (known, secret) = operations.create(creation).await?;
    let status = if secret.is_some() { 201 } else { 200 };
    let mut reply = reply(operations, status, &known, secret.as_deref());
    if secret.is_some() {
        let location = format!("{BASE}/subscriptions/{}", known.subscription.uuid());
        reply.headers.append("Location", location);
    }
    Ok(reply)
}

/// Changes a subscription. What is to be suspended gets nothing at an address that comes with the
/// same request, and what is to be active gets nothing at the address before.
async fn update(operations: &Operations<'_>) -> Result<Reply, Fault> {
    let (request, managed) = (operations.request, operations.managed);
    let (id, usual) = (named(request)?, operations.endpoint.settings.mode);
    let change = body::changed(request, usual, managed)?;
    let status = change.status;
    let patch = |members| change.apply(members, managed);
    let is_activated = status == Some(SubscriptionStatus::Active);
    let challenge = match is_activated {
        true => Challenge::Awaited,
        false => Challenge::InBackground,
    };
    let options = UpdateOptions {
        challenge,
        pauses: status == Some(SubscriptionStatus::Suspended),
    };
    operations.update(&id, patch, options).await?;
    if is_activated {
        // A URL that has not answered its challenge is asked again.
        operations.verify(&operations.subscription(&id)?).await?;
        let known = operations.subscription(&id)?;
        // Clients send the status along with other changes.
        if is_stopped(&known) {
            operations.resume(&known).await?;
        }
    }
    // As it is now.
    Ok(reply(operations, 200, &operations.subscription(&id)?, None))
}

/// Sends the body of a request to a subscription as it is.
async fn test(operations: &Operations<'_>) -> Result<Reply, Fault> {
    let request = operations.request;
    let id = named(request)?;
    super::body::check_type(request, &["application/json"])?;
    let body = request.body.as_bytes();
    let read: Result<IgnoredAny, _> = serde_json::from_slice(body);
    read.map_err(|error| Fault::invalid(format!("the body is no JSON: {error}")))?;
    let known = operations.settled(&id).await?;
    if *known.subscription.owner != operations.client.owner {
        // It would be signed with the owner's secret, and look like an event.
        let detail = "only its owner sends a body of its own to a subscription";
        return Err(Fault::new(Kind::Forbidden, Origin::Client, detail));
    }
    let body = Bytes::copy_from_slice(body);
    operations.test(&known, Some(body)).await?;
    Ok(Reply::new(202))
}
