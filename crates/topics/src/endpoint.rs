//! A topic as its subscribers meet it: settings, counters, and where the others of a listener are.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use component::handler::Services;
use component::state::{State, StateKey, States};
use component::trigger::ListenAddress;

use crate::branch::Branch;
use crate::channel::Pace;
use crate::counts::Counts;
use crate::expressions::{Evaluator, ExpressionLimits};
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
    /// The origins of web pages that may read it.
    pub origins: Vec<String>,
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
    pub counts: Arc<Counts>,
    /// The same for all plans in which nothing of this changes, so that a reload ends no stream.
    pub identity: Arc<Identity>,
}

/// All that makes a difference to what workers have of a topic.
pub(crate) struct Identity(String);

impl Endpoint {
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
#[derive(Default)]
pub(crate) struct Directory(Mutex<Known>);

#[derive(Default)]
struct Known {
    endpoints: Vec<Weak<Endpoint>>,
    identities: Vec<Weak<Identity>>,
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
        states.get(key, Self::default)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a topic's endpoint. It is found as long as a plan has it.
    pub fn put(
        &self,
        topic: &Arc<Topic>,
        settings: Settings,
        counts: Arc<Counts>,
    ) -> Arc<Endpoint> {
        let of_topic = topic.settings();
        let text = format!("topic {} {of_topic:?} {settings:?}", topic.name());
        let mut known = self.known();
        known.endpoints.retain(|it| it.strong_count() > 0);
        known.identities.retain(|it| it.strong_count() > 0);
        let mut identities = known.identities.iter().filter_map(Weak::upgrade);
        let same = identities.find(|it| it.0 == text);
        drop(identities);
        let identity = same.unwrap_or_else(|| {
            let made = Arc::new(Identity(text));
            known.identities.push(Arc::downgrade(&made));
            made
        });
        let endpoint = Arc::new(Endpoint {
            topic: Arc::clone(topic),
            settings,
            counts,
            identity,
        });
        known.endpoints.push(Arc::downgrade(&endpoint));
        endpoint
    }

    /// Looks at each topic of a listener until one is wanted.
    pub fn each(&self, listen: &ListenAddress, is_wanted: impl FnMut(&Endpoint) -> bool) {
        let mut is_wanted = is_wanted;
        let known = self.known();
        let live = known.endpoints.iter().rev().filter_map(Weak::upgrade);
        let mut here = live.filter(|it| it.settings.listen == *listen);
        // Whoever asks has noted what it wanted.
        let _ = here.find(|it| is_wanted(it));
    }

    /// The topic that fits, of the newest plan that has one.
    pub fn find(
        &self,
        listen: &ListenAddress,
        fits: impl Fn(&Endpoint) -> bool,
    ) -> Option<Arc<Endpoint>> {
        let known = self.known();
        let mut live = known.endpoints.iter().rev().filter_map(Weak::upgrade);
        live.find(|it| it.settings.listen == *listen && fits(it))
    }
}
