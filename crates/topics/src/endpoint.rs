//! A topic as its subscribers meet it: settings, counters, and where the others of a listener are.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use component::audit::Audit;
use component::edge::RouteEdge;
use component::handler::Services;
use component::state::{State, StateKey, States};
use component::trigger::ListenAddress;

use crate::access::{Access, Locks, Protocol, Right};
use crate::branch::Branch;
use crate::caller_limits::CallerLimits;
use crate::channel::Pace;
use crate::counts::Counts;
use crate::expressions::{Evaluator, ExpressionLimits};
use crate::hub::Hub;
use crate::topic::Topic;
use crate::view::Mode;

/// How a topic is subscribed to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Where it is served.
    pub listen: ListenAddress,
    /// The forms in which it comes.
    pub modes: Vec<Mode>,
    /// The form without another wish.
    pub mode: Mode,
    /// Heartbeats and slow readers.
    pub pace: Pace,
    /// After which time clients come again.
    pub retry: Duration,
    /// How long a stream lasts at most.
    pub max_time: Option<Duration>,
    /// Whether events are compressed for those who ask.
    pub compression: bool,
    /// Which web pages may read it, and from where clients may come; that of the listener included.
    pub edge: Arc<RouteEdge>,
    /// The most subscribers.
    pub connections: usize,
    /// Whether subscribers may send expressions.
    pub allow_expressions: bool,
    /// What these may cost.
    pub expression_limits: ExpressionLimits,
    /// Whether it is served as server-sent events.
    pub sse: bool,
    /// How it is served over WebSocket.
    pub websocket: Option<WebSocket>,
    /// Whether it is served in the manner of Axway Streams too.
    pub is_axway: bool,
    /// Whether it has a WebSub hub.
    pub websub: bool,
}

/// How a topic is served over WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WebSocket {
    /// Whether subscribers may publish.
    pub publish: bool,
    /// How many events may be on their way that have not been acknowledged.
    pub window: Option<u64>,
}

/// A topic as its subscribers meet it.
pub(crate) struct Endpoint {
    pub topic: Arc<Topic>,
    pub settings: Settings,
    /// Who may do what.
    pub access: Access,
    pub counts: Arc<Counts>,
    /// What callers have to pass.
    pub limits: CallerLimits,
    /// The same for all plans in which nothing of this changes, so that a reload ends no stream.
    pub identity: Arc<Identity>,
    /// Told whom the topic refuses, beside its doors.
    pub audit: Arc<Audit>,
    /// Counts what comes to the directory and leaves it.
    changes: Arc<AtomicU64>,
}

/// The parameters of queries that carry credentials.
type SecretParameters = Arc<[Arc<str>]>;

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// All that makes a difference to what workers have of a topic.
pub(crate) struct Identity(String);

impl Endpoint {
    /// Whether there are callers to whom the topic does not exist.
    pub fn is_hidden(&self) -> bool {
        self.access.subscribe.is_some()
    }

    /// What this worker has of the topic.
    pub fn branch(&self, services: &dyn Services) -> Rc<Branch> {
        let make = || {
            let (topic, counts) = (Arc::clone(&self.topic), Arc::clone(&self.counts));
            let settings = &self.settings;
            let of = (settings.expression_limits, settings.pace.bytes_max);
            let evaluator = Evaluator::new(of, topic.settings(), &counts);
            Branch::new(topic, counts, evaluator)
        };
        let resources = services.resources();
        resources.get(&self.identity, |it| it.0.clone(), make)
    }
}

/// The topics that are served, to be found by their names.
#[cfg_attr(test, derive(Default))]
pub(crate) struct Directory {
    known: Mutex<Known>,
    /// Serves and withdraws the topics, and counts that: the hub that a later plan's topics belong
    /// to must be this one.
    hub: Arc<Hub>,
    audit: Arc<Audit>,
}

/// By topic: a start puts thousands of them in, and looks at none of the others for it.
#[derive(Default)]
struct Known {
    topics: HashMap<Arc<str>, OfTopic>,
    /// The locks of the topics of a listener that are served by a protocol, and after how many
    /// changes of the directory that was so: to look at all topics for each request would take
    /// long.
    locks: BTreeMap<(ListenAddress, Protocol, Right), (u64, Locks)>,
    /// The same for the parameters that carry credentials, which are asked for by each log line.
    secret_parameters: BTreeMap<ListenAddress, (u64, SecretParameters)>,
    /// How many entries have been looked at, of whichever topics.
    #[cfg(test)]
    visits: usize,
}

/// What plans have of the topics of one name.
#[derive(Default)]
struct OfTopic {
    /// Those of later plans behind those of earlier ones.
    endpoints: Vec<Weak<Endpoint>>,
    identities: Vec<Weak<Identity>>,
}

impl OfTopic {
    /// Forgets what no plan has any more. False when nothing is left.
    fn tidy(&mut self) -> bool {
        self.endpoints.retain(|it| it.strong_count() > 0);
        self.identities.retain(|it| it.strong_count() > 0);
        !self.endpoints.is_empty() || !self.identities.is_empty()
    }

    /// The identity of this text, made when there is none.
    fn identity(&mut self, text: String) -> Arc<Identity> {
        let mut there = self.identities.iter().filter_map(Weak::upgrade);
        if let Some(same) = there.find(|it| it.0 == text) {
            return same;
        }
        let made = Arc::new(Identity(text));
        self.identities.push(Arc::downgrade(&made));
        made
    }

    /// Those of a listener that are served, the newest first.
    fn served(&self, listen: &ListenAddress) -> impl Iterator<Item = Arc<Endpoint>> {
        let live = self.endpoints.iter().rev().filter_map(Weak::upgrade);
        live.filter(|it| it.settings.listen == *listen && it.topic.is_served())
    }

    /// The newest endpoint of a listener that fits.
    fn find(
        &self,
        listen: &ListenAddress,
        fits: impl Fn(&Endpoint) -> bool,
    ) -> Option<Arc<Endpoint>> {
        self.served(listen).find(|it| fits(it))
    }
}

impl Known {
    /// What there is of the topics of this name.
    fn of(&mut self, name: &Arc<str>) -> &mut OfTopic {
        // From time to time: to look at all of them for each would take long.
        let is_new = !self.topics.contains_key(name);
        if is_new && self.topics.len().is_power_of_two() {
            self.topics.retain(|_, it| {
                #[cfg(test)]
                {
                    self.visits += 1;
                }
                it.tidy()
            });
        }
        let of_topic = self.topics.entry(Arc::clone(name)).or_default();
        #[cfg(test)]
        {
            self.visits += 1 + of_topic.endpoints.len() + of_topic.identities.len();
        }
        of_topic
    }
}

impl State for Directory {}

impl Directory {
    /// The one of the process.
    pub fn of(states: &States) -> Arc<Self> {
        let key = StateKey {
            flow: "".into(),
            step: "".into(),
            kind: "topic directory",
            settings: String::new(),
        };
        let (hub, audit) = (Hub::of(states), Audit::of(states));
        let make = || Self {
            known: Mutex::default(),
            hub,
            audit,
        };
        states.get(key, make)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a topic's endpoint. It is found as long as a plan has it.
    pub fn put(
        &self,
        topic: &Arc<Topic>,
        (settings, access): (Settings, Access),
        (counts, limits): (Arc<Counts>, CallerLimits),
    ) -> Arc<Endpoint> {
        let of_topic = topic.settings();
        let name = topic.name();
        let text = format!("topic {name} {of_topic:?} {settings:?} {access:?}");
        let mut known = self.known();
        let of_topic = known.of(topic.name());
        of_topic.tidy();
        let endpoint = Arc::new(Endpoint {
            topic: Arc::clone(topic),
            settings,
            access,
            counts,
            limits,
            identity: of_topic.identity(text),
            audit: Arc::clone(&self.audit),
            changes: Arc::clone(self.hub.changes()),
        });
        self.hub.note_change();
        of_topic.endpoints.push(Arc::downgrade(&endpoint));
        endpoint
    }

    /// Looks at each topic of a listener.
    pub fn each(&self, listen: &ListenAddress, mut look: impl FnMut(&Endpoint)) {
        let known = self.known();
        let endpoints = known.topics.values().flat_map(|it| it.served(listen));
        endpoints.for_each(|it| look(&it));
    }

    /// The locks before this right that a protocol's topics of a listener have, each once.
    pub fn locks(&self, listen: &ListenAddress, protocol: Protocol, right: Right) -> Locks {
        let mut known = self.known();
        let key = (listen.clone(), protocol, right);
        // Read before looking: what changes meanwhile is looked at the next time.
        let changes = self.hub.changes().load(Ordering::Acquire);
        if let Some((at, locks)) = known.locks.get(&key)
            && *at == changes
        {
            return locks.clone();
        }
        let newest = known.topics.values();
        let newest = newest.filter_map(|it| it.find(listen, |it| protocol.serves(it)));
        let locks = Locks::all(newest.filter_map(|it| it.access.lock(right).cloned()));
        // An endpoint that is dropped here counts as a change: all are looked at once more then.
        known.locks.insert(key, (changes, locks.clone()));
        locks
    }

    /// The parameters of the query that carry credentials for one of a listener's topics.
    pub fn secret_parameters(&self, listen: &ListenAddress) -> SecretParameters {
        let changes = self.hub.changes().load(Ordering::Acquire);
        let kept = self.known().secret_parameters.get(listen).cloned();
        if let Some((at, names)) = kept
            && at == changes
        {
            return names;
        }
        let mut all = Vec::new();
        self.each(listen, |it| {
            for name in it.access.secret_parameters() {
                if !all.contains(name) {
                    all.push(Arc::clone(name));
                }
            }
        });
        let names = SecretParameters::from(all);
        let kept = (changes, Arc::clone(&names));
        let mut known = self.known();
        known.secret_parameters.insert(listen.clone(), kept);
        names
    }

    /// Whether somebody may be refused who names a topic of this listener over this protocol.
    pub fn has_locks(&self, listen: &ListenAddress, protocol: Protocol) -> bool {
        let rights = [Right::Subscribe, Right::Publish];
        let mut all = rights.iter().map(|it| self.locks(listen, protocol, *it));
        all.any(|it| !it.is_empty())
    }

    /// The topic of this name that fits, of the newest plan that has one.
    pub fn find(
        &self,
        listen: &ListenAddress,
        name: &str,
        fits: impl Fn(&Endpoint) -> bool,
    ) -> Option<Arc<Endpoint>> {
        self.known().topics.get(name)?.find(listen, fits)
    }

    /// The same for a topic that is not known by its name: looks at all of them.
    pub fn search(
        &self,
        listen: &ListenAddress,
        fits: impl Fn(&Endpoint) -> bool,
    ) -> Option<Arc<Endpoint>> {
        let known = self.known();
        let mut topics = known.topics.values();
        topics.find_map(|it| it.find(listen, &fits))
    }
}

#[cfg(test)]
mod tests;
