//! The source at work: it asks for the subscription and renews it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use component::document::Entrance;
use component::handler::{LocalFuture, Services};
use component::source::{Source, SourcePage, Started};
use component::upstream::UpstreamPlan;
use steps::FixedUrl;
use websub::deliveries::Deliveries;
use websub::signature::{Method as SignedBy, Secret};
use websub::subscriber::{Lease, Mode, Step, Subscriber};
use websub::url::Url;

use super::callback::Callback;
use super::client::{Client, Order, Problem};
use super::memory::{Inner, Known, Memory, add};
use super::record::{Disk, Record};

/// How long the disk is left alone that could not be read or written.
const PAUSE: Duration = Duration::from_secs(5);

/// The source.
pub(super) struct WebSubSource {
    pub core: Arc<Core>,
    pub entrance: Entrance,
}

/// What source and callback share.
pub(super) struct Core {
    pub flow: Arc<str>,
    pub client: Client,
    /// The callback without its last segment.
    pub callback: String,
    /// The lease to ask for, in seconds.
    pub lease: u64,
    /// The secret of the file.
    pub secret: Option<Secret>,
    pub weakest: SignedBy,
    pub is_wanted: bool,
    pub memory: Arc<Memory>,
    pub disk: Disk,
}

impl Source for WebSubSource {
    fn run<'a>(
        &'a self,
        _: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            // Whatever is given up here is asked for again by the source that follows.
            or_stop(self.core.keep_subscribed(services), &mut stop).await;
        })
    }

    fn pages(&self, flow: &Arc<dyn Started>) -> Vec<SourcePage> {
        vec![SourcePage {
            entrance: self.entrance.clone(),
            handler: Arc::new(Callback {
                core: Arc::clone(&self.core),
                flow: Arc::clone(flow),
            }),
        }]
    }

    fn upstreams(&self) -> Vec<Arc<UpstreamPlan>> {
        let origins = self.core.client.origins.iter();
        origins
            .map(|it| Arc::clone(FixedUrl::upstream(&it.system)))
            .collect()
    }

    fn decode(&self) -> Option<component::content::Format> {
        self.entrance.http.decode
    }
}

/// Does work until the source has to stop; the work is dropped then.
async fn or_stop(work: impl Future<Output = ()>, stop: &mut LocalFuture<'static, ()>) {
    let mut work = pin!(work);
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        work.as_mut().poll(context)
    })
    .await;
}

impl Core {
    /// What is known, with what earlier runs have left.
    ///
    /// # Errors
    /// When that cannot be read, or the system has no random bytes.
    pub async fn known(&self) -> Result<&Known, Problem> {
        let known = self.memory.known.get_or_try_init(|| async {
            let left = self.disk.read().await;
            let left = left.map_err(|refusal| Problem(refusal.to_string()))?;
            let record = match left.record {
                Some(record) => record,
                None => Record {
                    token: websub::random::token().ok_or_else(no_randomness)?,
                    secret: match &self.secret {
                        Some(secret) => secret.clone(),
                        None => random_secret().ok_or_else(no_randomness)?,
                    },
                    lease: None,
                },
            };
            // The log shows paths of requests; whoever has this one can send us deliveries.
            message::secret::register_all([record.token.as_str(), record.secret.expose()]);
            // Before anybody is asked: the hub would call a callback that nobody knows.
            let written = self.disk.write(&record).await;
            written.map_err(|refusal| Problem(refusal.to_string()))?;
            let mut deliveries = Deliveries::default();
            for (key, at) in left.deliveries {
                deliveries.remember(key, at);
            }
            self.note_lease(record.lease.as_ref());
            let subscriber = Subscriber::new(self.lease, self.is_wanted, record.lease);
            let inner = Inner {
                subscriber,
                deliveries,
            };
            Ok(Known::new(record.token, record.secret, inner))
        });
        known.await
    }

    /// Shows when the subscription ends.
    pub fn note_lease(&self, lease: Option<&Lease>) {
        let ends = lease.map_or(0, |it| it.ends.as_millis());
        let ends = u64::try_from(ends).unwrap_or(u64::MAX);
        self.memory.ends.store(ends, Ordering::Relaxed);
    }

    async fn keep_subscribed(&self, services: &dyn Services) {
        let known = loop {
            match self.known().await {
                Ok(known) => break known,
                Err(error) => {
                    let flow = &*self.flow;
                    tracing::error!(target: "websub", flow, %error, "nothing is subscribed to");
                    services.sleep(PAUSE).await;
                }
            }
        };
        known.lock().subscriber.set(self.lease, self.is_wanted);
        let mut written = known.lock().subscriber.last_lease().cloned();
        loop {
            self.write_lease(known, &mut written, services).await;
            let now = self.memory.moment(services);
            let step = known.lock().subscriber.step(now, services.random());
            match step {
                Step::Wait(time) => self.wait(time, services).await,
                Step::Unverified => {
                    let error = Problem("the hub has not verified the request in time".to_owned());
                    self.fail(&error);
                }
                Step::Ask(mode) => self.ask(mode, known, services).await,
            }
        }
    }

    /// Waits, or until the hub says something.
    async fn wait(&self, time: Duration, services: &dyn Services) {
        let mut sleep = services.sleep(time);
        let mut woken = pin!(self.memory.woken.notified());
        poll_fn(|context| match woken.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => sleep.as_mut().poll(context),
        })
        .await;
    }

    /// Writes the lease to the disk when it is another one.
    async fn write_lease(
        &self,
        known: &Known,
        written: &mut Option<Lease>,
        services: &dyn Services,
    ) {
        let lease = known.lock().subscriber.last_lease().cloned();
        if lease == *written {
            return;
        }
        let record = Record {
            token: known.token.clone(),
            secret: known.secret.clone(),
            lease: lease.clone(),
        };
        match self.disk.write(&record).await {
            Ok(()) => *written = lease,
            Err(error) => {
                let flow = &*self.flow;
                tracing::error!(
                    target: "websub", flow, %error,
                    "the lease is not on the disk: after a restart it is asked for again"
                );
                services.sleep(PAUSE).await;
            }
        }
    }

    async fn ask(&self, mode: Mode, known: &Known, services: &dyn Services) {
        let (hub, topic) = match self.target(mode, known, services).await {
            Ok(target) => target,
            Err(error) => {
                let (now, random) = (self.memory.moment(services), services.random());
                known.lock().subscriber.not_found(now, random);
                return self.fail(&error);
            }
        };
        let callback = format!("{}/{}", self.callback, known.token);
        let order = Order {
            mode,
            hub: &hub,
            topic: &topic,
            callback: &callback,
            lease: self.lease,
            secret: &known.secret,
        };
        let target = (hub.clone(), topic.clone());
        let now = self.memory.moment(services);
        known.lock().subscriber.begin(mode, target, now);
        add(&self.memory.counts.requests);
        let asking = Asking(known);
        let sent = self.client.order(&order, services).await;
        std::mem::forget(asking);
        let (now, random) = (self.memory.moment(services), services.random());
        match sent {
            Ok(()) => known.lock().subscriber.accepted(now),
            Err(error) => {
                let counts = known.lock().subscriber.failed(now, random);
                if counts {
                    self.fail(&error);
                }
            }
        }
    }

    /// The hub to ask, and the topic as it knows it.
    async fn target(
        &self,
        mode: Mode,
        known: &Known,
        services: &dyn Services,
    ) -> Result<(Url, Url), Problem> {
        let (lease, failures) = {
            let inner = known.lock();
            let lease = inner.subscriber.last_lease().cloned();
            (lease, inner.subscriber.failures())
        };
        let lease = lease.map(|it| (it.hub, it.topic));
        if let (Mode::Unsubscribe, Some(lease)) = (mode, &lease) {
            return Ok(lease.clone());
        }
        // For each renewal: the publisher may have moved to another hub.
        match (self.client.discover(services).await, lease) {
            (Ok(found), _) => {
                let number = failures as usize % found.hubs.len().max(1);
                let hub = found.hubs.into_iter().nth(number);
                let hub = hub.ok_or_else(|| Problem("the topic names no hub".to_owned()))?;
                Ok((hub, found.topic))
            }
            (Err(_), Some(lease)) => Ok(lease),
            (Err(error), None) => Err(error),
        }
    }

    /// A failure is logged when the last attempt has not failed: a hub that is down for a day must
    /// not fill the log.
    fn fail(&self, error: &Problem) {
        add(&self.memory.counts.request_failures);
        if self.memory.set_failing(true) {
            let (flow, topic) = (&*self.flow, self.client.topic.as_str());
            tracing::warn!(target: "websub", flow, topic, %error, "the topic is not subscribed to");
        }
    }
}

/// A request whose answer is waited for. Dropped, it is made again by the source that follows.
struct Asking<'a>(&'a Known);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.lock().subscriber.abandoned();
    }
}

fn no_randomness() -> Problem {
    Problem("the system has no random bytes".to_owned())
}

fn random_secret() -> Option<Secret> {
    Secret::new(&websub::random::token()?)
}
