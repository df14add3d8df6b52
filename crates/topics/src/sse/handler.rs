//! Requests for streams of events: what is asked for, and the head of the reply.

use std::rc::Rc;
use std::sync::Arc;

use component::access::{CACHE_FIELD, Caller};
use component::edge::RouteEdge;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::trigger::ListenAddress;
use message::{Fault, Kind, Origin, RateLimit, Reply, Request};

use super::feed::SseFeed;
use crate::access::{self, Entered, Protocol, Refused, Right};
use crate::ask::{self, Accepted, Ask, TOPICS_MAX};
use crate::branch::Branch;
use crate::caller_limits::Subscriber;
use crate::channel::{Pace, Policy};
use crate::counts::Place;
use crate::endpoint::{Directory, Endpoint};
use crate::frame::{IdForm, Wire};
use crate::profile::axway;

/// Which topics a route serves.
pub(crate) enum Of {
    /// This one.
    One(Arc<Endpoint>),
    /// Those of a listener that the query names.
    Several(Arc<Directory>, ListenAddress),
    /// The one of a listener that the path names, as the profile `axway-streams` has it.
    Axway(Arc<Directory>, ListenAddress),
}

/// Answers requests for streams of events.
pub(crate) struct SseHandler(pub Of);

impl Handler for SseHandler {
    fn reads_body(&self) -> bool {
        false
    }

    fn shares(&self) -> Option<&'static str> {
        match self.0 {
            Of::One(_) => None,
            Of::Several(..) => Some("topics as server-sent events"),
            Of::Axway(..) => Some("topics of axway-streams as server-sent events"),
        }
    }

    /// What all topics of a stream allow. Where a name can be anything nothing tells whether a
    /// topic is there that is not for everybody.
    fn edge(&self, path: &str, query: Option<&str>) -> Option<Arc<RouteEdge>> {
        match &self.0 {
            Of::One(endpoint) => Some(Arc::clone(&endpoint.settings.edge)),
            Of::Several(directory, listen) => {
                let asked = ask::topics(query).ok()?;
                let find = |name: &&str| {
                    let found = directory.find(listen, name, |it| it.settings.sse)?;
                    let is_public = !found.access.is_locked();
                    is_public.then(|| Arc::clone(&found.settings.edge))
                };
                let edges: Option<Vec<_>> = names(&asked).ok()?.iter().map(find).collect();
                RouteEdge::common(&edges?)
            }
            Of::Axway(directory, listen) => axway::edge(directory, listen, path),
        }
    }

    fn is_locked(&self) -> bool {
        match &self.0 {
            Of::One(endpoint) => endpoint.access.is_locked(),
            Of::Several(directory, listen) => directory.has_locks(listen, Protocol::Sse),
            Of::Axway(directory, listen) => directory.has_locks(listen, Protocol::Axway),
        }
    }

    fn secret_parameters(&self) -> Vec<Arc<str>> {
        match &self.0 {
            Of::One(endpoint) => endpoint.access.secret_parameters().cloned().collect(),
            Of::Several(directory, listen) | Of::Axway(directory, listen) => {
                directory.secret_parameters(listen).to_vec()
            }
        }
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            let is_axway = matches!(self.0, Of::Axway(..));
            match self.open(request, services).await {
                Ok(outcome) => Ok(outcome),
                Err(Refused::Fault(fault)) if is_axway => {
                    Ok(Outcome::Reply(axway::refused(&fault, services.wall())))
                }
                Err(Refused::Reply(reply)) if is_axway => {
                    Ok(Outcome::Reply(axway::refused_by(&reply, services.wall())))
                }
                Err(Refused::Fault(fault)) => Err(fault),
                Err(Refused::Reply(reply)) => Ok(Outcome::Reply(*reply)),
            }
        })
    }
}

impl SseHandler {
    async fn open(
        &self,
        mut request: Request,
        services: &dyn Services,
    ) -> Result<Outcome, Refused> {
        let (entered, ids) = self.admit(&request, services).await?;
        let fields = access::reply_fields(&entered);
        let (endpoints, callers) = access::enter(entered, &mut request);
        let request = &request;
        let accept = request.headers.get("Accept");
        let accepted = ask::accepted(accept, ids == IdForm::Axway)?;
        let Accepted::Events(mode) = accepted else {
            let detail = "there is only `text/event-stream` here";
            return Err(Fault::invalid(detail).with_status(406).into());
        };
        let mut ask = Ask::of(request)?;
        ask.mode = ask.mode.or(mode);
        let opening = Opening {
            endpoints: &endpoints,
            callers: &callers,
            ask: &ask,
            ids,
        };
        for endpoint in &endpoints {
            ask.mode(endpoint)?;
        }
        let subscriber = Subscriber::enter((&endpoints, &callers), request, services).await?;
        let mut feed = opening.feed(request, services).await?;
        let mut reply = head(&endpoints, feed.is_gzip());
        for (name, value) in subscriber.fields.iter().flat_map(RateLimit::fields) {
            reply.headers.append(name, value);
        }
        // The stream is stored nowhere.
        for (name, value) in fields.into_iter().filter(|it| it.0 != CACHE_FIELD) {
            reply.headers.append(name, value);
        }
        feed.limit(subscriber);
        Ok(Outcome::Stream(reply, Box::new(feed)))
    }

    /// The topics that a request is for, if it may subscribe to all of them.
    async fn admit(
        &self,
        request: &Request,
        services: &dyn Services,
    ) -> Result<(Vec<Entered>, IdForm), Refused> {
        let (right, at) = (Right::Subscribe, (request, services));
        match &self.0 {
            Of::One(endpoint) => {
                let entered = access::admit_to_one(endpoint, right, at).await;
                let entered = entered.map_err(|refusal| refusal.or(access::nothing))?;
                Ok((vec![entered], IdForm::Plain))
            }
            Of::Several(directory, listen) => {
                let asked = Ask::of(request)?.topics;
                let mut all = Vec::new();
                for name in names(&asked)? {
                    let found = directory.find(listen, name, |it| it.settings.sse);
                    let locks = directory.locks(listen, Protocol::Sse, right);
                    let entered = access::admit(found, &locks, right, at).await;
                    all.push(entered.map_err(|refusal| refusal.or(|| missing(name)))?);
                }
                Ok((all, IdForm::Composite))
            }
            Of::Axway(directory, listen) => {
                let found = axway::find(directory, listen, axway::named(request));
                let locks = directory.locks(listen, Protocol::Axway, right);
                let entered = access::admit(found, &locks, right, at).await;
                let entered = entered.map_err(|refusal| refusal.or(axway::missing))?;
                Ok((vec![entered], IdForm::Axway))
            }
        }
    }
}

/// What is said of a topic that does not exist.
fn missing(name: &str) -> Fault {
    let detail = format!("there is no topic `{}` here", name.escape_debug());
    Fault::invalid(detail).with_status(404)
}

/// The names of a stream's topics, each once.
///
/// # Errors
/// 400 when there is none or too many.
fn names(names: &[String]) -> Result<Vec<&str>, Fault> {
    if names.is_empty() {
        return Err(Fault::invalid("name the topics: `?topic=NAME&topic=NAME`"));
    }
    if names.len() > TOPICS_MAX {
        let detail = format!("a stream has at most {TOPICS_MAX} topics");
        return Err(Fault::invalid(detail));
    }
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    // One stream for all who want the same, in whichever order they say it.
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// A stream that is about to be opened.
struct Opening<'a> {
    endpoints: &'a [Arc<Endpoint>],
    callers: &'a [Option<Arc<Caller>>],
    ask: &'a Ask,
    ids: IdForm,
}

impl Opening<'_> {
    async fn feed(&self, request: &Request, services: &dyn Services) -> Result<SseFeed, Fault> {
        let places = enter(self.endpoints)?;
        let branches = ready(self.endpoints, services).await?;
        let settings = || self.endpoints.iter().map(|it| &it.settings);
        let may_gzip = settings().all(|it| it.compression);
        let encoding = request.headers.get("Accept-Encoding");
        let gzip = may_gzip && ask::accepts_gzip(encoding);
        let wire = Wire::Sse {
            chunked: false,
            gzip,
        };
        let how = (wire, self.ids);
        let views = self
            .ask
            .views((self.endpoints, self.callers), &branches, how);
        let views = views.await?;
        let starts = self.ask.starts(self.endpoints, self.ids)?;
        let max_time = settings().filter_map(|it| it.max_time).min();
        Ok(SseFeed {
            views,
            starts,
            ids: self.ids,
            gzip,
            pace: pace(settings().map(|it| it.pace)),
            retry: settings().map(|it| it.retry).max().unwrap_or_default(),
            max_time,
            ends_by_plan: false,
            validity: access::validity(self.callers),
            branches,
            places,
        })
    }
}

/// Counts a subscriber of all these topics.
///
/// # Errors
/// 503 when one has too many.
pub(crate) fn enter(endpoints: &[Arc<Endpoint>]) -> Result<Vec<Place>, Fault> {
    let mut places = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let most = endpoint.settings.connections;
        let place = endpoint
            .counts
            .enter(most, || Some(endpoint.topic.listen()));
        places.push(place.ok_or_else(|| busy("the topic has too many subscribers"))?);
    }
    Ok(places)
}

/// A refusal for now.
pub(crate) fn busy(detail: &'static str) -> Fault {
    let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
    fault.with_retry_after(std::time::Duration::from_secs(1))
}

/// Comes to all these topics.
///
/// # Errors
/// When one cannot be read.
pub(crate) async fn ready(
    endpoints: &[Arc<Endpoint>],
    services: &dyn Services,
) -> Result<Vec<Rc<Branch>>, Fault> {
    let mut branches = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let branch = endpoint.branch(services);
        branch.ready().await?;
        branches.push(branch);
    }
    Ok(branches)
}

/// The pace of a stream of topics with these: the strictest of each.
pub(crate) fn pace(paces: impl Iterator<Item = Pace>) -> Pace {
    let strictest = paces.reduce(|left, right| Pace {
        heartbeat: left.heartbeat.min(right.heartbeat),
        stalled_max: left.stalled_max.min(right.stalled_max),
        bytes_max: left.bytes_max.min(right.bytes_max),
        policy: match left.policy == right.policy {
            true => left.policy,
            false => Policy::Disconnect,
        },
    });
    strictest.unwrap_or(Pace {
        heartbeat: 15,
        stalled_max: 30,
        bytes_max: 1 << 20,
        policy: Policy::Disconnect,
    })
}

/// The head of a stream.
fn head(endpoints: &[Arc<Endpoint>], is_gzip: bool) -> Reply {
    let mut reply = Reply::new(200);
    let headers = &mut reply.headers;
    headers.append("Content-Type", "text/event-stream");
    headers.append("Cache-Control", "no-store");
    headers.append("X-Accel-Buffering", "no");
    if is_gzip {
        headers.append("Content-Encoding", "gzip");
    }
    if endpoints.iter().all(|it| it.settings.compression) {
        headers.append("Vary", "Accept-Encoding");
    }
    reply
}
