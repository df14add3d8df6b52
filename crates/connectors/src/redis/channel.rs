//! The source of a channel. The server keeps nothing for it: messages that come while there is no
//! connection are lost. One that has come starts the flow, and is a dead letter if that fails.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use component::content::Format;
use component::handler::{LocalFuture, Services, within};
use component::intake::{Incoming, Settlement};
use component::resilience::Backoff;
use component::source::{Source, Started};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use message::memory::{self, FREE, Reservation};
use message::{Fault, Request};
use redis::Msg;
use redis::aio::PubSubStream;

use super::connection::Redis;
use super::delivery::{self, Counts, Intakes, Rules, count};
use super::failure;
use super::link::link;
use super::source::ChannelSettings;

/// How often the server is asked whether it is there.
const PING: Duration = Duration::from_secs(10);
/// The time from one try to connect to the next: first and longest.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(15));
/// The most bytes of messages that wait.
const WAITING_MAX: usize = 64 << 20;
/// How long a source that ends waits for dead letters that cannot be kept.
const PATIENCE: Duration = Duration::from_secs(5);

/// The source.
pub(super) struct ChannelSource {
    pub server: Arc<Redis>,
    pub settings: ChannelSettings,
    pub rules: Rules,
    pub state: Arc<Counts>,
}

impl Source for ChannelSource {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        let work = Work {
            source: self,
            flow,
            services,
            waiting: VecDeque::new(),
            memory: memory::Intake::default(),
            shared: Rc::new(Shared {
                intakes: Intakes::new(flow, &self.rules),
                small: Cell::new(0),
                is_stopping: Cell::new(false),
                lost: Cell::new(0),
            }),
            bytes: 0,
            running: FuturesUnordered::new(),
            is_full: false,
        };
        Box::pin(work.run(stop))
    }

    fn decode(&self) -> Option<Format> {
        Some(self.settings.decode)
    }
}

/// The source while it runs.
struct Work<'a> {
    source: &'a ChannelSource,
    flow: &'a Arc<dyn Started>,
    services: &'a dyn Services,
    waiting: VecDeque<(Msg, Option<Reservation>)>,
    /// Room in the budget of memory.
    memory: memory::Intake,
    shared: Rc<Shared>,
    /// Of those that wait.
    bytes: usize,
    running: FuturesUnordered<LocalFuture<'a, ()>>,
    /// Whether messages are being lost now.
    is_full: bool,
}

/// What all messages of the source share.
struct Shared {
    intakes: Intakes,
    /// The bytes of small messages, which have room together.
    small: Cell<usize>,
    /// Whether the source has been told to end.
    is_stopping: Cell<bool>,
    /// How many messages were lost because the source ended.
    lost: Cell<usize>,
}

/// A message and its flow.
struct Delivery<'a> {
    settings: &'a ChannelSettings,
    channel: String,
    /// All runs of the flow and the dead letter share it.
    body: Bytes,
    /// How often the flow has been run.
    runs: u32,
}

impl Incoming for Delivery<'_> {
    /// Messages have no ids: this is the channel's name.
    fn id(&self) -> String {
        self.channel.clone()
    }

    fn request(&mut self, attempt: u32) -> Result<Request, Fault> {
        self.runs = attempt;
        Ok(self.letter(attempt))
    }

    /// All runs have failed when it is asked for another one.
    fn failed_before(&self) -> u32 {
        self.runs
    }

    fn letter(&mut self, _: u32) -> Request {
        let parameters = [("channel", self.channel.as_str())];
        let (body, decode) = (self.body.clone(), self.settings.decode);
        delivery::request(&self.channel, body, decode, &parameters)
    }
}

/// Why the source goes on.
enum Event {
    Stop,
    Message(Msg),
    /// The connection has ended.
    Ended(Fault),
    /// A flow has ended.
    Room,
}

impl<'a> Work<'a> {
    async fn run(mut self, mut stop: LocalFuture<'static, ()>) {
        if self.take_until_over(&mut stop).await {
            return self.finish().await;
        }
        // `dead_letter: stop`.
        let lost = &self.shared.lost;
        lost.set(lost.get() + self.waiting.len());
        self.waiting.clear();
        while self.running.next().await.is_some() {}
        self.report_lost();
        stop.await
    }

    /// Runs the flow on messages until the source has to end: `true` when it has been told to,
    /// `false` when a message has met `dead_letter: stop`.
    async fn take_until_over(&mut self, stop: &mut LocalFuture<'static, ()>) -> bool {
        let failures = Cell::new(0);
        let mut connecting = Some(connect(self.source, self.services, &failures));
        let mut messages: Option<(PubSubStream, LocalFuture<'a, Fault>)> = None;
        loop {
            let event = poll_fn(|context| {
                if stop.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Event::Stop);
                }
                if let Poll::Ready(Some(())) = self.running.poll_next_unpin(context) {
                    return Poll::Ready(Event::Room);
                }
                if let Some(future) = &mut connecting
                    && let Poll::Ready(made) = future.as_mut().poll(context)
                {
                    connecting = None;
                    messages = Some(made);
                }
                let Some((stream, watch)) = &mut messages else {
                    return Poll::Pending;
                };
                if let Poll::Ready(message) = stream.poll_next_unpin(context) {
                    return Poll::Ready(match message {
                        Some(message) => Event::Message(message),
                        None => Event::Ended(self.source.unreachable("the server has hung up")),
                    });
                }
                watch.as_mut().poll(context).map(Event::Ended)
            })
            .await;
            match event {
                Event::Stop => return true,
                Event::Message(message) => self.take(message),
                Event::Ended(fault) => {
                    messages = None;
                    self.source.tell(self.flow, &fault, &failures);
                    connecting = Some(connect(self.source, self.services, &failures));
                }
                Event::Room => {}
            }
            if self.shared.intakes.is_over() {
                return false;
            }
            self.fill();
        }
    }

    /// Runs the flow on what has come and not been run; the server does not keep it for us.
    /// Messages that wait to be tried again are tried once more.
    async fn finish(&mut self) {
        self.shared.is_stopping.set(true);
        self.shared.intakes.usual.stop();
        self.fill();
        let mut patience = self.services.sleep(PATIENCE);
        loop {
            let ended = poll_fn(|context| {
                if patience.as_mut().poll(context).is_ready() {
                    let intake = &self.shared.intakes.once;
                    if intake.is_blocked() {
                        intake.stop();
                    }
                    patience = self.services.sleep(PATIENCE);
                    context.waker().wake_by_ref();
                }
                self.running.poll_next_unpin(context)
            });
            if ended.await.is_none() {
                return self.report_lost();
            }
            self.fill();
        }
    }

    fn report_lost(&self) {
        let lost = self.shared.lost.take();
        if lost == 0 {
            return;
        }
        self.source
            .state
            .dropped
            .fetch_add(lost as u64, Ordering::Relaxed);
        tracing::warn!(
            target: "redis",
            flow = &**self.flow.name(),
            connection = self.source.server.name,
            lost,
            "messages of a channel are lost: the source has ended before they were settled"
        );
    }

    /// Keeps a message until there is room for its flow.
    fn take(&mut self, message: Msg) {
        let size = message.get_payload_bytes().len();
        let settings = &self.source.settings;
        let is_full = self.waiting.len() >= settings.buffer || self.bytes + size > WAITING_MAX;
        let room = match is_full {
            true => None,
            false => self.room(size),
        };
        let is_full = room.is_none();
        match room {
            None => count(&self.source.state.dropped),
            Some(room) => {
                self.bytes += size;
                self.waiting.push_back((message, room));
            }
        }
        if is_full && !self.is_full {
            tracing::warn!(
                target: "redis",
                flow = &**self.flow.name(),
                connection = self.source.server.name,
                memory = self.memory.is_waiting(),
                "messages of a channel are lost: too many are waiting, or there is no memory \
                 (limits.body_memory)"
            );
        }
        self.is_full = is_full;
    }

    /// Room for a message, if there is any.
    fn room(&mut self, size: usize) -> Option<Option<Reservation>> {
        if size > FREE {
            return self.memory.take(size as u64).ok();
        }
        let small = self.shared.small.get() + size;
        self.memory.cover(small).ok()?;
        self.shared.small.set(small);
        Some(None)
    }

    /// Starts flows while there is room.
    fn fill(&mut self) {
        while self.running.len() < self.source.settings.concurrent {
            self.memory.uncover(self.shared.small.get());
            let Some((message, room)) = self.waiting.pop_front() else {
                return;
            };
            let size = message.get_payload_bytes().len();
            self.bytes -= size;
            let (source, services, shared) = (self.source, self.services, Rc::clone(&self.shared));
            self.running.push(Box::pin(async move {
                let is_small = room.is_none();
                source.process((message, room), &shared, services).await;
                if is_small {
                    shared.small.set(shared.small.get() - size);
                }
            }));
        }
    }
}

/// Connects and subscribes, again and again until it works.
fn connect<'a>(
    source: &'a ChannelSource,
    services: &'a dyn Services,
    failures: &Cell<u32>,
) -> LocalFuture<'a, (PubSubStream, LocalFuture<'a, Fault>)> {
    let mut tries = failures.get();
    Box::pin(async move {
        loop {
            if tries > 0 {
                services.sleep(BACKOFF.delay_after(tries, 0.0)).await;
            }
            match source.subscribe(services).await {
                Ok(made) => return made,
                Err(fault) => {
                    tries += 1;
                    count(&source.state.errors);
                    if tries == 1 {
                        let name = &source.server.name;
                        tracing::error!(
                            target: "redis", connection = name, %fault, "not subscribed"
                        );
                    }
                }
            }
        }
    })
}

impl ChannelSource {
    fn unreachable(&self, cause: &str) -> Fault {
        failure::unreachable(&self.server.name, cause)
    }

    fn tell(&self, flow: &Arc<dyn Started>, fault: &Fault, failures: &Cell<u32>) {
        count(&self.state.errors);
        failures.set(1);
        tracing::warn!(
            target: "redis",
            flow = &**flow.name(),
            %fault,
            "a subscription has ended; what is sent before the next one is lost"
        );
    }

    async fn subscribe<'a>(
        &'a self,
        services: &'a dyn Services,
    ) -> Result<(PubSubStream, LocalFuture<'a, Fault>), Fault> {
        let link = link(&self.server, services);
        let (mut sink, stream) = link.listen(services).await?.split();
        let name = self.settings.name.as_str();
        let asked = async {
            match self.settings.is_pattern {
                true => sink.psubscribe(name).await,
                false => sink.subscribe(name).await,
            }
        };
        let subscribed = within(link.timeout(), services, asked).await;
        let of_connection = &self.server.name;
        subscribed
            .ok_or_else(|| failure::late(of_connection))?
            .map_err(|error| failure::of_error(of_connection, &error))?;
        let time = link.timeout();
        let watch = Box::pin(async move {
            loop {
                services.sleep(PING).await;
                match within(time, services, sink.ping::<redis::Value>()).await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return failure::of_error(of_connection, &error),
                    None => return failure::late(of_connection),
                }
            }
        });
        Ok((stream, watch))
    }

    async fn process(
        &self,
        (message, room): (Msg, Option<Reservation>),
        shared: &Shared,
        services: &dyn Services,
    ) {
        let channel = message.get_channel_name().to_owned();
        let body = message.get_payload_bytes().to_vec();
        drop(message);
        let mut delivery = Delivery {
            settings: &self.settings,
            channel,
            body: match room {
                Some(room) => room.hold(body),
                None => Bytes::from(body),
            },
            runs: 0,
        };
        let intakes = &shared.intakes;
        let mut processed = intakes.usual.process(&mut delivery, services).await;
        let is_lost = |settlement: &Settlement| *settlement != Settlement::Acknowledge;
        // It has not run, or waited for its next run, when the source was told to end.
        let may_run = processed.result.is_none() && shared.is_stopping.get();
        if is_lost(&processed.settlement) && may_run {
            processed = intakes.once.process(&mut delivery, services).await;
        }
        if is_lost(&processed.settlement) {
            shared.lost.set(shared.lost.get() + 1);
        }
    }
}
