//! Has the content of a topic delivered to the subscribers of its hub.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use component::handler::{LocalFuture, Services};
use component::source::{Source, SourcePlan, Started};
use component::state::States;

use super::plan::HubTopic;
use super::subscriptions::{Make, Subscribed};
use super::verify;
use crate::hub::Hub;
use crate::poll::NoFlow;
use crate::source::Start;
use crate::topic::Topic;
use crate::webhooks::hub::{
    Arrivals, Destination, Driver, EndpointPlan, Served, Subscriber, Terms,
};

/// How long the disk is left alone that could not be read.
const PAUSE: Duration = Duration::from_secs(5);
/// How often it is looked whether a lease is over: the time of day may be set.
const LOOK: Duration = Duration::from_secs(30);

/// What delivers.
pub(super) fn source(hub: Arc<HubTopic>, topic: &Arc<Topic>, states: &States) -> SourcePlan {
    let name = format!("websub hub of topic {}", topic.name());
    let source = HubSource {
        topic: Arc::clone(topic),
        topics: Hub::of(states),
        hub,
    };
    SourcePlan {
        flow: Arc::new(NoFlow(name.into())),
        source: Arc::new(source),
    }
}

/// Delivers to subscribers. Each worker has its share of them.
struct HubSource {
    topic: Arc<Topic>,
    topics: Arc<Hub>,
    hub: Arc<HubTopic>,
}

impl Source for HubSource {
    fn run<'a>(
        &'a self,
        _: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let is_stopped = {
                let ready = self.get_ready(services);
                either(ready, &mut stop).await
            };
            if is_stopped {
                return;
            }
            let share = services.share();
            let arrivals = Arc::new(Arrivals::default());
            let served = Served {
                topic: &self.topic,
                hub: &self.topics,
                files: Vec::new(),
                managed: None,
                share,
            };
            let Some(driver) = Driver::new(served, services) else {
                let topic = &**self.topic.name();
                tracing::error!(target: "topics", topic, "nothing is sent to subscribers");
                return stop.await;
            };
            let driver = driver.receiving(&arrivals);
            let subscriptions = &self.hub.subscriptions;
            let _attached = subscriptions.attach(share, &arrivals, make(&self.hub));
            let mut delivering = pin!(driver.run(services, stop));
            if share.number > 0 {
                return delivering.await;
            }
            let mut tidying = pin!(self.tidy(services));
            poll_fn(|context| {
                if tidying.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                delivering.as_mut().poll(context)
            })
            .await;
        })
    }

    fn is_on_every_worker(&self) -> bool {
        true
    }
}

/// Waits for one of two; whether it was the second.
async fn either(first: impl Future<Output = ()>, second: &mut LocalFuture<'static, ()>) -> bool {
    let mut first = pin!(first);
    poll_fn(|context| {
        if second.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        first.as_mut().poll(context).map(|()| false)
    })
    .await
}

impl HubSource {
    /// Waits until the subscriptions of earlier runs are there.
    async fn get_ready(&self, services: &dyn Services) {
        let hub = &self.hub;
        let Ok(log) = self.topic.log() else {
            // The driver says so.
            return;
        };
        while let Err(error) = hub.state.ready((hub, log), services).await {
            let topic = &**self.topic.name();
            tracing::error!(target: "websub", topic, error, "subscriptions cannot be read");
            services.sleep(PAUSE).await;
        }
    }

    /// Ends leases in time, for as long as it is polled.
    async fn tidy(&self, services: &dyn Services) {
        let state = &self.hub.state;
        loop {
            state.expire(state.moment(services));
            // In the background: what has been taken to be written must not be dropped.
            state.apply_soon(services);
            verify::pump(state, services);
            let next = state.machine().next_end();
            let wait = next.map_or(LOOK, |end| {
                let wait = Duration::from_secs(end).saturating_sub(services.wall());
                wait.clamp(Duration::from_millis(10), LOOK)
            });
            let mut sleep = services.sleep(wait);
            let mut changed = pin!(state.changed.notified());
            poll_fn(|context| match changed.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => sleep.as_mut().poll(context),
            })
            .await;
        }
    }
}

/// Makes what the driver needs of a subscription.
fn make(hub: &Arc<HubTopic>) -> Make {
    let hub = Arc::clone(hub);
    let terms = Arc::new(Terms {
        timeout: hub.timeout,
        dead_letters: None,
        attempts: None,
        start: Start::Latest,
    });
    Arc::new(move |subscribed: &Arc<Subscribed>| {
        let secret = subscribed.secret.clone();
        Arc::new(EndpointPlan {
            state: Arc::clone(&subscribed.state),
            view: Arc::clone(&hub.view),
            policy: Arc::clone(&hub.policy),
            destination: Destination::WebSub(Box::new(Subscriber {
                terms: Arc::clone(&terms),
                origins: hub.origins.clone(),
                url: Arc::clone(subscribed.callback.text()),
                host: Arc::clone(subscribed.callback.host()),
                links: Arc::clone(&hub.links),
                media_type: Arc::clone(&hub.media_type),
                signed: secret.map(|secret| (secret, hub.method)),
                gone: gone(&hub, subscribed),
            })),
        })
    })
}

/// Ends a subscription whose callback has answered 410, unless it has been renewed meanwhile.
fn gone(hub: &Arc<HubTopic>, subscribed: &Arc<Subscribed>) -> Arc<dyn Fn() + Send + Sync> {
    let (state, subscribed) = (Arc::clone(&hub.state), Arc::clone(subscribed));
    Arc::new(move || {
        let callback = subscribed.callback.text();
        let version = subscribed.version;
        let mut machine = state.machine();
        if machine.gone(&subscribed.topic, callback, version) {
            let topic = &*subscribed.topic;
            let host = &**subscribed.callback.host();
            tracing::info!(target: "websub", topic, host, "gone");
        }
        drop(machine);
        state.changed.notify_one();
    })
}
