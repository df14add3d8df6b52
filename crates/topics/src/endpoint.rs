//! A topic as its subscribers meet it: settings, counters, and where the others of a listener are.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use component::handler::Services;
use component::state::{State, StateKey, States};
use component::trigger::ListenAddress;

use crate::branch::Branch;
use crate::channel::Pace;
use crate::counts::Counts;
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
    /// Whether it is served as server-sent events.
    pub sse: bool,
    /// How it is served over WebSocket.
    pub websocket: Option<WebSocket>,
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
}

impl Endpoint {
    /// What this worker has of the topic.
    pub fn branch(self: &Arc<Self>, services: &dyn Services) -> Rc<Branch> {
        let make = || Branch::new(Arc::clone(&self.topic), Arc::clone(&self.counts));
        services.resources().get(self, Self::identity, make)
    }

    /// All that makes a difference to a worker.
    fn identity(&self) -> String {
        let topic = self.topic.settings();
        format!("topic {} {topic:?} {:?}", self.topic.name(), self.settings)
    }
}

/// The topics that are served, to be found by their names.
#[derive(Default)]
pub(crate) struct Directory(Mutex<Vec<Weak<Endpoint>>>);

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

    /// Puts in a topic. It is found as long as a plan has it.
    pub fn put(&self, endpoint: &Arc<Endpoint>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(endpoint));
    }

    /// The topic that fits, of the newest plan that has one.
    pub fn find(
        &self,
        listen: &ListenAddress,
        fits: impl Fn(&Endpoint) -> bool,
    ) -> Option<Arc<Endpoint>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = all.iter().rev().filter_map(Weak::upgrade);
        live.find(|it| it.settings.listen == *listen && fits(it))
    }
}
