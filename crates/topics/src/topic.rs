//! A topic as the rest of the process has it: publish, attach, history.

use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use component::access::Caller;
use component::handler::{Services, within};
use component::long_work::{AT_ONCE, beside};
use message::{Fault, Kind, Origin};
use tokio::sync::watch;

use crate::event::{Event, EventId};
use crate::hub::Hub;
use crate::keys::{self, Digest};
use crate::log::{Log, Slot};
use crate::mailbox::Mailbox;
use crate::prepare::{self, Item};
use crate::settings::{Durability, Settings};
use crate::source::Start;
use crate::webhooks::{EndpointState, Managed};
use crate::websub_hub::HubTopic;

/// The most bytes of an idempotency key.
pub const KEY_MAX: usize = 256;
/// The most events that are published at once.
pub const BATCH_EVENTS_MAX: usize = 10_000;
/// The most bytes of events that are published at once, unless one event may have more.
pub const BATCH_BYTES_MAX: usize = 8 << 20;

/// How long a publisher waits for the disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// The table of the keyed state that says how far flows have come.
pub(crate) const CURSORS: &str = "topic-cursors";

/// What is published.
#[derive(Clone, Debug)]
pub struct Publication {
    /// A JSON text.
    pub body: Bytes,
    /// What tells the publication from others, so that it can be sent again: 1 to 256 bytes.
    pub key: Option<Bytes>,
}

/// For whom something is published.
#[derive(Clone, Copy, Default)]
pub struct For<'a> {
    /// The address of the client; none for the engine itself. Publications wait by turns of
    /// clients, so that one who floods a topic delays nobody else for long.
    pub client: Option<IpAddr>,
    /// Has large publications checked beside the worker. Without, whoever publishes does it.
    pub services: Option<&'a dyn Services>,
    /// Whose idempotency keys the publications have.
    caller: Option<Digest>,
}

impl<'a> For<'a> {
    /// For a client of a worker.
    pub fn client(address: IpAddr, services: &'a dyn Services) -> Self {
        Self {
            client: Some(address),
            services: Some(services),
            caller: None,
        }
    }

    /// The same with idempotency keys of this caller's own, if there is one.
    ///
    /// # Errors
    /// As [`Caller::scope`].
    pub fn with_keys_of(mut self, caller: Option<&Caller>) -> Result<Self, Fault> {
        let scope = caller.map(Caller::scope).transpose()?;
        self.caller = scope.map(|scope| keys::digest(scope.as_bytes()));
        Ok(self)
    }
}

/// What a publisher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The event.
    pub id: EventId,
    /// Whether it has come of this publication: not when its key has been there before, nor when it
    /// is the same as the last one of a topic of snapshots.
    pub is_new: bool,
    /// Where it is.
    pub durability: Durability,
}

/// A topic from some moment on.
#[derive(Debug)]
pub struct Attached {
    /// The last event before that.
    pub latest: Option<Arc<Event>>,
    /// The id of the first event that comes into the mailbox.
    pub next: EventId,
    /// The number of the oldest event that is kept; that of `next` when there is none.
    pub first: u64,
    /// What comes from then on.
    pub mailbox: Mailbox,
}

/// What there is from some event on.
#[derive(Clone, Debug)]
pub enum History {
    /// The events from there on, the oldest first; empty when there are none yet.
    Events(Vec<Arc<Event>>),
    /// It is not kept any more.
    Gone {
        /// The oldest event that there is.
        first: u64,
        /// The next that will be there.
        next: u64,
    },
    /// The id is one of another log: the topic has been made anew.
    OtherEpoch,
    /// The id is one that has not been given yet: the log has been put back to an older state.
    Ahead,
}

/// How many subscribers a topic has.
#[derive(Clone, Debug)]
pub struct Watch(watch::Receiver<usize>);

impl Watch {
    /// How many there are now.
    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits until the number changes.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody is there who could change it.
            std::future::pending::<()>().await;
        }
    }
}

/// A subscriber is there as long as this is.
#[derive(Debug)]
pub struct Listener(Arc<Slot>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.listeners.send_modify(|count| *count -= 1);
    }
}

/// A topic as a document declares it. Those of one name share events, subscribers and state.
pub struct Topic {
    name: Arc<str>,
    settings: Settings,
    slot: Arc<Slot>,
    /// There once the plan of the document is served.
    pub(crate) log: OnceLock<Arc<Log>>,
    /// The endpoints of its webhooks, and where new ones begin.
    webhooks: OnceLock<Vec<(Arc<EndpointState>, Start)>>,
    /// Its WebSub hub.
    websub: OnceLock<Arc<HubTopic>>,
    /// How users manage webhooks, which has the topic itself.
    managed: OnceLock<Weak<Managed>>,
    /// Whether it names a topic that is told of its webhooks, and that topic.
    names_report: AtomicBool,
    reports_to: OnceLock<Arc<Topic>>,
    /// Whether the plan of the document is served: until then nobody finds the topic by its name.
    is_served: AtomicBool,
    /// Keeps the thread that orders events.
    hub: Arc<Hub>,
}

impl Topic {
    pub(crate) fn new(name: &str, settings: Settings, slot: Arc<Slot>, hub: Arc<Hub>) -> Self {
        Self {
            name: name.into(),
            settings,
            slot,
            log: OnceLock::new(),
            webhooks: OnceLock::new(),
            websub: OnceLock::new(),
            managed: OnceLock::new(),
            names_report: AtomicBool::new(false),
            reports_to: OnceLock::new(),
            is_served: AtomicBool::new(false),
            hub,
        }
    }

    /// Whether requests may name the topic: not while its plan is being loaded or when it was
    /// refused.
    pub(crate) fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Acquire)
    }

    pub(crate) fn set_served(&self, is_served: bool) {
        self.is_served.store(is_served, Ordering::Release);
    }

    /// The topic's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What it is.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// From here on it has these webhooks.
    pub(crate) fn set_webhooks(
        &self,
        endpoints: Vec<(Arc<EndpointState>, Start)>,
        managed: Option<Arc<Managed>>,
    ) {
        // A document is read once.
        let _ = self.webhooks.set(endpoints);
        if let Some(managed) = managed {
            let _ = self.managed.set(Arc::downgrade(&managed));
        }
    }

    /// How users manage webhooks, if they do.
    pub(crate) fn managed(&self) -> Option<Arc<Managed>> {
        self.managed.get()?.upgrade()
    }

    /// Whether it names a topic that is told of its webhooks.
    pub(crate) fn names_report(&self) -> bool {
        self.names_report.load(Ordering::Relaxed)
    }

    /// It names one. Which one is known when all documents have been read.
    pub(crate) fn set_names_report(&self) {
        self.names_report.store(true, Ordering::Relaxed);
    }

    /// The topic that is told of its webhooks. That one has none itself, so that no event is about
    /// another one.
    pub(crate) fn reports_to(&self) -> Option<&Arc<Self>> {
        self.reports_to.get()
    }

    pub(crate) fn set_reports_to(&self, target: Arc<Self>) {
        // A document is read once.
        let _ = self.reports_to.set(target);
    }

    pub(crate) fn webhooks(&self) -> &[(Arc<EndpointState>, Start)] {
        self.webhooks.get().map_or(&[], Vec::as_slice)
    }

    /// The endpoints that events are kept for, if they are.
    pub(crate) fn holders(&self) -> Arc<[Arc<EndpointState>]> {
        let endpoints = self.webhooks().iter().map(|(state, _)| Arc::clone(state));
        endpoints.collect()
    }

    /// From here on it has this hub.
    pub(crate) fn set_websub(&self, hub: Arc<HubTopic>) {
        // A document is read once.
        let _ = self.websub.set(hub);
    }

    pub(crate) fn websub(&self) -> Option<&Arc<HubTopic>> {
        self.websub.get()
    }

    pub(crate) fn log(&self) -> Result<&Arc<Log>, Fault> {
        self.log.get().ok_or_else(|| {
            Fault::new(Kind::Internal, Origin::Engine, "the topic is not open")
                .with_cause(format_args!("topic {}", self.name))
        })
    }

    /// Publishes for the engine itself, from any thread. The answer comes when the event is as
    /// durable as the topic promises.
    ///
    /// # Errors
    /// `invalid` when the body is no JSON (400) or too large (413), or the key is none;
    /// `unavailable` when the disk does not take it or too much waits.
    pub async fn publish(&self, publication: Publication) -> Result<Receipt, Fault> {
        let prepared = prepare::all(self.log()?, &self.settings, (vec![publication], None))?;
        only(self.submit(None, prepared).await?)
    }

    /// Publishes for somebody.
    ///
    /// # Errors
    /// As [`Topic::publish`].
    pub async fn publish_for(
        &self,
        publisher: For<'_>,
        publication: Publication,
    ) -> Result<Receipt, Fault> {
        only(self.publish_all(publisher, vec![publication]).await?)
    }

    /// Publishes several events at once, one directly after the other: all or none.
    ///
    /// # Errors
    /// As [`Topic::publish`].
    pub async fn publish_all(
        &self,
        publisher: For<'_>,
        publications: Vec<Publication>,
    ) -> Result<Vec<Receipt>, Fault> {
        let size = publications.iter().map(|it| it.body.len()).sum();
        let made = || Ok(publications);
        let prepared = self.prepare(publisher, size, made).await?;
        self.submit(publisher.client, prepared).await
    }

    /// Makes and checks publications: beside the worker when they have many bytes.
    pub(crate) async fn prepare(
        &self,
        publisher: For<'_>,
        size: usize,
        make: impl FnOnce() -> Result<Vec<Publication>, Fault> + Send + 'static,
    ) -> Result<Vec<Item>, Fault> {
        let (log, settings) = (self.log()?, self.settings);
        match publisher.services.filter(|_| size > AT_ONCE) {
            None => prepare::all(log, &settings, (make()?, publisher.caller.as_ref())),
            Some(services) => {
                let log = Arc::clone(log);
                let caller = publisher.caller;
                let work =
                    move |_: &AtomicBool| prepare::all(&log, &settings, (make()?, caller.as_ref()));
                beside(services, work).await?
            }
        }
    }

    /// Publishes what has been prepared. It has its place among others as soon as this is polled.
    pub(crate) async fn submit(
        &self,
        client: Option<IpAddr>,
        prepared: Vec<Item>,
    ) -> Result<Vec<Receipt>, Fault> {
        match prepared.is_empty() {
            true => Ok(Vec::new()),
            false => self.log()?.submit(client, prepared).await,
        }
    }

    /// From here on every event comes in the mailbox; what was before is what [`Attached`] says.
    ///
    /// # Errors
    /// When the topic is not open.
    pub async fn attach(&self) -> Result<Attached, Fault> {
        Ok(self.log()?.attach())
    }

    /// The id of the next event: all before it have been seen by somebody, though not yet by every
    /// worker.
    ///
    /// # Errors
    /// When the topic is not open.
    pub fn next(&self) -> Result<EventId, Fault> {
        Ok(self.log()?.next())
    }

    /// Events from this one on that are kept, the oldest first, about that many bytes of them at
    /// most, and at least one when there is one.
    ///
    /// # Errors
    /// When the disk cannot be read, or what is on it is damaged.
    pub async fn history(&self, from: EventId, bytes: usize) -> Result<History, Fault> {
        Log::history(self.log()?, from, bytes).await
    }

    /// The epoch of its ids, once it is open.
    pub fn epoch(&self) -> Option<u64> {
        self.log.get().map(|log| log.epoch)
    }

    /// The epochs of its ids, the oldest first.
    pub(crate) fn epochs(&self) -> Vec<u64> {
        let log = self.log.get();
        log.map(|log| log.epochs().all().collect())
            .unwrap_or_default()
    }

    /// The id of an event, or of the place behind it.
    pub(crate) fn id(&self, sequence: u64) -> EventId {
        let none = EventId { epoch: 0, sequence };
        self.log.get().map_or(none, |log| log.id(sequence))
    }

    /// The place of somebody who has had this event: see [`Log::locate`].
    pub(crate) fn locate(&self, id: EventId) -> Result<EventId, &'static str> {
        let log = self.log.get();
        log.map_or(Err("other-epoch"), |log| log.locate(id))
    }

    /// The last event that the flow with this cursor is done with.
    pub(crate) async fn read_cursor(&self, cursor: &str) -> Result<Option<EventId>, String> {
        if self.settings.durability == Durability::Memory {
            return Ok(self.slot.cursors().noted.get(cursor).copied());
        }
        let keyed = self.hub.keyed().ok_or("the data folder is not open")?;
        let noted = keyed.get(CURSORS, &cursor_key(&self.name, cursor)).await;
        let Some(noted) = noted.map_err(|refusal| refusal.to_string())? else {
            return Ok(None);
        };
        let id = std::str::from_utf8(&noted)
            .ok()
            .and_then(|id| id.parse().ok());
        id.map(Some)
            .ok_or_else(|| "what is noted of a cursor is no id".to_owned())
    }

    /// Has it noted which event the flow with this cursor is done with.
    pub(crate) async fn write_cursor(&self, cursor: &str, done: EventId) -> Result<(), String> {
        if self.settings.durability == Durability::Memory {
            self.slot.cursors().noted.insert(cursor.to_owned(), done);
            return Ok(());
        }
        let keyed = self.hub.keyed().ok_or("the data folder is not open")?;
        let value = Bytes::from(done.to_string());
        let written = keyed
            .put(CURSORS, cursor_key(&self.name, cursor), value)
            .await;
        written.map_err(|refusal| refusal.to_string())
    }

    /// How many subscribers there are.
    pub fn listeners(&self) -> Watch {
        Watch(self.slot.listeners.subscribe())
    }

    /// Counts a subscriber as long as what is returned is there.
    pub fn listen(&self) -> Listener {
        self.slot.listeners.send_modify(|count| *count += 1);
        Listener(Arc::clone(&self.slot))
    }
}

/// The key of a cursor of a topic; how those of the topic begin, without one.
pub(crate) fn cursor_key(topic: &str, cursor: &str) -> Bytes {
    Bytes::from(format!("{topic}\0{cursor}"))
}

/// The receipt of one publication.
pub(crate) fn only(receipts: Vec<Receipt>) -> Result<Receipt, Fault> {
    let missing = || Fault::new(Kind::Internal, Origin::Engine, "there is no receipt");
    receipts.into_iter().next().ok_or_else(missing)
}

/// What comes of a publication, unless that takes too long.
///
/// # Errors
/// As the publication, and `timeout`: the event may be there or not.
pub(crate) async fn in_time<T>(
    topic: &Topic,
    services: &dyn Services,
    publishing: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let result = within(PATIENCE, services, publishing).await;
    result.unwrap_or_else(|| {
        let fault = Fault::new(Kind::Timeout, Origin::Engine, "the disk took too long");
        let name = &topic.name;
        Err(fault.with_cause(format_args!("topic {name}: longer than {PATIENCE:?}")))
    })
}
