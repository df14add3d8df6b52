//! What tests of topics share.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::state::States;
use component::trigger::ListenAddress;

use crate::access::Access;
use crate::branch::Branch;
use crate::channel::{Pace, Policy};
use crate::counts::Counts;
use crate::endpoint::{self, Directory, Endpoint};
use crate::expressions::{Evaluator, ExpressionLimits};
use crate::hub::Hub;
use crate::settings::{Durability, Payload, Settings};
use crate::topic::{Publication, Topic};
use crate::view::Mode;

/// A topic in memory that is open.
pub(crate) async fn memory(payload: Payload) -> Arc<Topic> {
    with(Settings {
        payload,
        durability: Durability::Memory,
        ..Settings::default()
    })
    .await
}

/// A topic of these settings that is open.
pub(crate) async fn with(settings: Settings) -> Arc<Topic> {
    let states = States::default();
    let hub = Hub::of(&states);
    let topic = hub.declare("test", settings, &states);
    hub.open().await.unwrap();
    topic
}

/// How a topic of events is subscribed to.
pub(crate) fn endpoint_settings(listen: &ListenAddress) -> endpoint::Settings {
    endpoint::Settings {
        listen: listen.clone(),
        modes: vec![Mode::Event],
        mode: Mode::Event,
        pace: Pace {
            heartbeat: 100,
            stalled_max: 100,
            bytes_max: 1 << 20,
            policy: Policy::Disconnect,
        },
        retry: Duration::from_secs(1),
        max_time: None,
        compression: false,
        edge: Arc::default(),
        connections: 10,
        allow_expressions: false,
        expression_limits: Default::default(),
        sse: true,
        websocket: Some(endpoint::WebSocket {
            publish: true,
            window: None,
        }),
        is_axway: false,
        websub: false,
    }
}

/// A branch of a topic whose subscribers have expressions of the usual cost.
pub(crate) fn branch(topic: &Arc<Topic>) -> Rc<Branch> {
    branch_with(topic, (ExpressionLimits::default(), 1 << 20))
}

/// A branch with these limits and this `slow.buffer`.
pub(crate) fn branch_with(topic: &Arc<Topic>, limits: (ExpressionLimits, u64)) -> Rc<Branch> {
    let counts = Arc::new(Counts::default());
    let evaluator = Evaluator::new(limits, topic.settings(), &counts);
    Branch::new(Arc::clone(topic), counts, evaluator)
}

/// A topic as subscribers with expressions meet it.
pub(crate) fn endpoint(topic: &Arc<Topic>) -> Arc<Endpoint> {
    let settings = endpoint::Settings {
        listen: ListenAddress {
            host: None,
            port: 1,
        },
        modes: vec![Mode::Event, Mode::Snapshot],
        mode: Mode::Event,
        pace: Pace {
            heartbeat: 1,
            stalled_max: 1000,
            bytes_max: 16 * 1024,
            policy: Policy::Disconnect,
        },
        retry: Duration::from_secs(1),
        max_time: None,
        compression: true,
        edge: Arc::default(),
        connections: 100,
        allow_expressions: true,
        expression_limits: ExpressionLimits::default(),
        sse: true,
        websocket: None,
        is_axway: false,
        websub: false,
    };
    Directory::default().put(topic, (settings, Access::default()), Default::default())
}

/// What is published, without a key.
pub(crate) fn publication(body: &str) -> Publication {
    Publication {
        body: Bytes::copy_from_slice(body.as_bytes()),
        key: None,
    }
}
