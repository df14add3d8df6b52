//! The source of a channel. The server keeps nothing for it: each message starts the flow at most
//! once, and those that come while there is no connection are lost.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use component::content::Format;
use component::handler::{LocalFuture, Services, within};
use component::resilience::Backoff;
use component::source::{Source, Started, has_succeeded};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use message::Fault;
use message::memory::{FREE, Intake, Reservation};
use redis::Msg;
use redis::aio::PubSubStream;

use super::connection::Redis;
use super::delivery::{self, Counts, count};
use super::failure;
use super::link::link;
use super::source::ChannelSettings;

/// How often the server is asked whether it is there.
const PING: Duration = Duration::from_secs(10);
/// The time from one try to connect to the next: first and longest.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(15));
/// The most bytes of messages that wait.
const WAITING_MAX: usize = 64 << 20;

/// The source.
pub(super) struct ChannelSource {
    pub server: Arc<Redis>,
    pub settings: ChannelSettings,
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
            intake: Intake::default(),
            small: Rc::default(),
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
    /// Room in the budget of memory, and the bytes of small messages that have it together.
    intake: Intake,
    small: Rc<Cell<usize>>,
    /// Of those that wait.
    bytes: usize,
    running: FuturesUnordered<LocalFuture<'a, ()>>,
    /// Whether messages are being lost now.
    is_full: bool,
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
                Event::Stop => break,
                Event::Message(message) => self.take(message),
                Event::Ended(fault) => {
                    messages = None;
                    self.source.tell(self.flow, &fault, &failures);
                    connecting = Some(connect(self.source, self.services, &failures));
                }
                Event::Room => {}
            }
            self.fill();
        }
        // What has come is run to its end; the server does not keep it for us.
        drop((connecting, messages));
        self.fill();
        while self.running.next().await.is_some() {
            self.fill();
        }
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
                memory = self.intake.is_waiting(),
                "messages of a channel are lost: too many are waiting, or there is no memory \
                 (limits.body_memory)"
            );
        }
        self.is_full = is_full;
    }

    /// Room for a message, if there is any.
    fn room(&mut self, size: usize) -> Option<Option<Reservation>> {
        if size > FREE {
            return self.intake.take(size as u64).ok();
        }
        let small = self.small.get() + size;
        self.intake.cover(small).ok()?;
        self.small.set(small);
        Some(None)
    }

    /// Starts flows while there is room.
    fn fill(&mut self) {
        while self.running.len() < self.source.settings.concurrent {
            self.intake.uncover(self.small.get());
            let Some((message, room)) = self.waiting.pop_front() else {
                return;
            };
            let size = message.get_payload_bytes().len();
            self.bytes -= size;
            let (source, flow, services) = (self.source, self.flow, self.services);
            let small = room.is_none().then(|| Rc::clone(&self.small));
            self.running.push(Box::pin(async move {
                source.process((message, room), flow, services).await;
                if let Some(small) = small {
                    small.set(small.get() - size);
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
        flow: &Arc<dyn Started>,
        services: &dyn Services,
    ) {
        let channel = message.get_channel_name().to_owned();
        let body = message.get_payload_bytes().to_vec();
        drop(message);
        let body = match room {
            Some(room) => room.hold(body),
            None => Bytes::from(body),
        };
        let parameters = [("channel", channel.as_str())];
        let request = delivery::request(&channel, body, self.settings.decode, &parameters);
        let result = flow.start(request, services).await;
        count(match has_succeeded(&result) {
            true => &self.state.done,
            false => &self.state.failed,
        });
    }
}
