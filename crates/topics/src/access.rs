//! Who may subscribe to topics and publish to them, where several topics are behind one address: a
//! topic that a caller may not see is answered like one that does not exist.

use std::fmt;
use std::sync::Arc;

use component::access::{Admitted, Caller, Door, DoorContext, RequestHead};
use component::document::DocumentContext;
use component::handler::Services;
use config::Node;
use message::{Fault, Kind, Origin, Reply, Request};

use crate::endpoint::{Endpoint, Settings};
use crate::only::Only;

/// A door with what the file says of it, so that equal ones are known.
#[derive(Clone)]
pub(crate) struct Lock {
    door: Arc<dyn Door>,
    /// The value of `auth` as JSON.
    text: Arc<str>,
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Lock {
    /// Reads the value of `auth` of something that has this name in logs. Every problem is
    /// reported; there is no lock when it is `none`.
    pub fn read(auth: &Node, name: &str, context: &mut DocumentContext<'_>) -> Option<Self> {
        let ways = context.ways;
        let mut context = DoorContext {
            report: &mut *context.report,
            name,
            evaluation: context.evaluation,
        };
        let door = ways.door(auth, &mut context)?;
        let text = auth.to_json().to_string().into();
        Some(Self { door, text })
    }

    /// The door.
    pub fn door(&self) -> &Arc<dyn Door> {
        &self.door
    }

    /// Whether the file says the same of both.
    pub fn is_like(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Who may do what with a topic that is subscribed to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// Who may subscribe; everybody without.
    pub subscribe: Option<Lock>,
    /// Who may publish over WebSocket and in the manner of Axway Streams.
    pub publish: Option<Lock>,
    /// Which events each caller gets.
    pub only: Option<Arc<Only>>,
}

impl Access {
    /// The parameters of the query that carry credentials.
    pub fn secret_parameters(&self) -> impl Iterator<Item = &Arc<str>> {
        let locks = self.subscribe.iter().chain(&self.publish);
        locks.flat_map(|it| it.door.secret_parameters())
    }

    /// Whether somebody may be refused.
    pub fn is_locked(&self) -> bool {
        self.subscribe.is_some() || self.publish.is_some()
    }

    /// What stands before this right.
    pub fn lock(&self, right: Right) -> Option<&Lock> {
        match right {
            Right::Subscribe => self.subscribe.as_ref(),
            Right::Publish => self.publish.as_ref(),
        }
    }
}

/// What somebody wants to do with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    Subscribe,
    Publish,
}

/// The protocols with addresses for all topics of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Sse,
    WebSocket,
    Axway,
}

impl Protocol {
    /// Whether a topic of these settings is served by it.
    pub fn serves(self, settings: &Settings) -> bool {
        match self {
            Self::Sse => settings.sse,
            Self::WebSocket => settings.websocket.is_some(),
            Self::Axway => settings.is_axway,
        }
    }
}

/// What the locks of all topics of a listener have in common.
#[derive(Clone, Debug)]
pub(crate) enum Common {
    /// None has one.
    Open,
    /// All that are locked have this one: names that do not exist are judged by it, too.
    One(Lock),
    /// There are different ones: refusals tell nothing.
    Mixed,
}

impl Common {
    /// The same with one topic more.
    pub fn with(self, lock: &Lock) -> Self {
        match self {
            Self::Open => Self::One(lock.clone()),
            Self::One(known) if known.is_like(lock) => Self::One(known),
            Self::One(_) | Self::Mixed => Self::Mixed,
        }
    }
}

/// A topic for which somebody has been admitted.
pub(crate) type Entered = (Arc<Endpoint>, Option<Admitted>);

/// Why somebody is not admitted.
pub(crate) enum Refusal {
    /// Nothing may be told: the answer is that of a name that does not exist. The door's own reply
    /// is for those who may see the topic in another way.
    Missing(Option<Box<Reply>>),
    /// This reply.
    Reply(Box<Reply>),
}

/// A refusal as it goes to the client.
pub(crate) enum Refused {
    Fault(Fault),
    Reply(Box<Reply>),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Refusal {
    /// The refusal as it goes to the client, where this is what is said of names that do not exist.
    pub fn or(self, missing: impl FnOnce() -> Fault) -> Refused {
        match self {
            Self::Missing(_) => Refused::Fault(missing()),
            Self::Reply(reply) => Refused::Reply(reply),
        }
    }
}

impl Refused {
    /// The same where answers are no replies of HTTP.
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::Reply(reply) => fault_of(&reply),
        }
    }
}

/// What the reply of a door says, in protocols with answers of their own.
pub(crate) fn fault_of(reply: &Reply) -> Fault {
    match reply.status {
        401 => Fault::new(
            Kind::Unauthorized,
            Origin::Client,
            "the topic needs valid credentials",
        ),
        403 => Fault::new(
            Kind::Forbidden,
            Origin::Client,
            "the caller may not do this",
        ),
        400..=499 => Fault::invalid("a request has one credential"),
        _ => {
            let detail = "credentials cannot be checked at the moment";
            Fault::new(Kind::Unavailable, Origin::Engine, detail)
                .with_retry_after(std::time::Duration::from_secs(5))
        }
    }
}

/// Judges a request for a topic that was named, whether there is one or not. `common` is what the
/// topics have in common that could have been named.
pub(crate) async fn admit(
    found: Option<Arc<Endpoint>>,
    common: Common,
    right: Right,
    (request, services): (&Request, &dyn Services),
) -> Result<Entered, Refusal> {
    let own = found.as_ref().map(|it| it.access.lock(right).cloned());
    let lock = match (own, &common) {
        (Some(None), _) => return found.map(|it| (it, None)).ok_or(Refusal::Missing(None)),
        (Some(Some(lock)), _) => lock,
        (None, Common::One(lock)) => lock.clone(),
        (None, _) => return Err(Refusal::Missing(None)),
    };
    let judgement = lock.door.judge(RequestHead::of(request), services);
    match (judgement.end().await, &common) {
        (Ok(admitted), _) => found
            .map(|it| (it, Some(admitted)))
            .ok_or(Refusal::Missing(None)),
        (Err(reply), Common::One(_)) if reply.status != 403 => Err(Refusal::Reply(reply)),
        (Err(reply), _) => Err(Refusal::Missing(Some(reply))),
    }
}

/// Judges a request at an address that is for this topic alone.
pub(crate) async fn admit_to_one(
    endpoint: &Arc<Endpoint>,
    right: Right,
    at: (&Request, &dyn Services),
) -> Result<Entered, Refusal> {
    let lock = endpoint.access.lock(right);
    let common = lock.map_or(Common::Open, |it| Common::One(it.clone()));
    admit(Some(Arc::clone(endpoint)), common, right, at).await
}

/// The same for a publisher at an address of several topics: who may subscribe knows that the topic
/// exists, and is told why it may not publish.
pub(crate) async fn admit_publisher(
    found: Option<Arc<Endpoint>>,
    common: Common,
    at: (&Request, &dyn Services),
) -> Result<Entered, Refusal> {
    let refusal = match admit(found.clone(), common, Right::Publish, at).await {
        Err(Refusal::Missing(Some(reply))) => reply,
        other => return other,
    };
    // What is in common makes no difference to those who may see it.
    match admit(found, Common::Mixed, Right::Subscribe, at).await {
        Ok(_) => Err(Refusal::Reply(refusal)),
        Err(_) => Err(Refusal::Missing(None)),
    }
}

/// Takes credentials out of a request that has been admitted to all of these; gives the topics and
/// who calls.
pub(crate) fn enter(
    entered: Vec<Entered>,
    request: &mut Request,
) -> (Vec<Arc<Endpoint>>, Vec<Option<Arc<Caller>>>) {
    let mut callers = Vec::with_capacity(entered.len());
    let mut endpoints = Vec::with_capacity(entered.len());
    for (endpoint, admitted) in entered {
        callers.push(admitted.as_ref().map(|it| Arc::clone(&it.caller)));
        endpoints.push(endpoint);
        if let Some(admitted) = admitted {
            admitted.enter(request);
        }
    }
    (endpoints, callers)
}

/// When the first credential of these callers expires, in seconds since 1970.
pub(crate) fn expires(callers: &[Option<Arc<Caller>>]) -> Option<u64> {
    let callers = callers.iter().flatten();
    callers.filter_map(|it| it.expires).min()
}
