//! The load of fan-out: subscribers and publishers on one thread with one `epoll`, and the instants
//! of a window.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mio::{Events, Interest, Poll, Token, Waker};

use super::books::{Books, Window};
use super::case::{Case, Feed, Mode, Transport};
use super::reader::{Reader, Tally};
use super::system::{self, System};
use super::topic::Topic;
use crate::bench::clock::{Clock, Watch};
use crate::bench::net;
use crate::bench::pacer::{Pacer, Schedule};
use crate::bench::publisher::Publisher;
use crate::stamp;

const WAKER: Token = Token(usize::MAX);
/// Tokens of publishers begin here.
const PUBLISHERS: usize = 1 << 32;
/// So many connections are made before their replies are waited for.
const PORTION: usize = 250;
/// How long replies to a portion may take.
const OPEN_MAX: Duration = Duration::from_secs(60);
/// How long a turn waits at most.
const TURN: Duration = Duration::from_millis(10);
/// How long what is on its way may take after the window.
const DRAIN_MAX: u64 = 10_000_000;
/// Between a beginning and the first event.
const LEAD: u64 = 50_000;
/// How often the end is looked for.
const LOOK: u64 = 20_000;
/// So many subscribers of a topic get an event as a burst.
const BURST: usize = 500;
/// How long nothing comes before a burst is taken to be over.
const AWAKE: Duration = Duration::from_micros(100);
/// One read takes so many bytes at most.
const ROOM: usize = 256 * 1024;

/// Subscribers and publishers of a case.
pub(super) struct Fan<'a> {
    case: &'a Case,
    poll: Poll,
    room: Vec<u8>,
    /// The tokens of subscribers and, behind them, of publishers, where they need one.
    pub tokens: Vec<String>,
    readers: Vec<Reader>,
    topics: Vec<Topic>,
    /// How many good subscribers each topic has.
    subscribers: Vec<usize>,
    publishers: Vec<Publisher>,
    pub tally: Tally,
    pub books: Books,
    /// Connections that the system ended.
    pub cut: u64,
    pub first_cut: Option<String>,
    /// Whether an event comes to many at once.
    has_bursts: bool,
    /// When something has come, unless the turn before found nothing.
    last_event: Option<Instant>,
}

/// What the clocks said at the edges of the window, and what had been delivered until then.
pub(super) struct Edges {
    pub before: Clock,
    pub after: Clock,
    pub delivered: u64,
    pub bytes: u64,
    pub published: u64,
}

/// What a measurement needs beside the load.
pub(super) struct Plan<'a> {
    pub warm_up: Duration,
    pub seconds: Duration,
    pub watch: &'a Watch,
    /// How far each document of the source is, when the system polls.
    pub ticks: &'a dyn Fn() -> anyhow::Result<Vec<u64>>,
}

impl<'a> Fan<'a> {
    /// A load without connections.
    ///
    /// # Errors
    /// When the kernel gives no `epoll`.
    pub fn new(case: &'a Case, system: System) -> anyhow::Result<Self> {
        let has_ids = system.is_intertie() && case.transport == Transport::Sse;
        let topic = |index: usize| match (case.feed, case.mode) {
            (Feed::Poll, Mode::Patch | Mode::Snapshot) => {
                let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
                Topic::of_document(case.shape(), number, has_ids)
            }
            _ => Topic::stamped(has_ids),
        };
        let period = match case.feed {
            Feed::Poll => (case.period_ms * 1e3) as u64,
            _ => 0,
        };
        Ok(Self {
            case,
            poll: Poll::new()?,
            room: vec![0; ROOM],
            tokens: Vec::new(),
            readers: Vec::new(),
            topics: (0..case.topics).map(topic).collect(),
            subscribers: vec![0; case.topics],
            publishers: Vec::new(),
            tally: Tally::default(),
            books: Books::new(case.topics, period)?,
            cut: 0,
            first_cut: None,
            has_bursts: case.users / case.topics.max(1) >= BURST,
            last_event: None,
        })
    }

    /// Connects all subscribers, those that will not read last, and the publishers.
    ///
    /// # Errors
    /// When a connection is not made, or its reply is not that of a stream.
    pub fn connect(&mut self, system: System, address: SocketAddr) -> anyhow::Result<()> {
        let all = self.case.users + self.case.stalled;
        let start = Instant::now();
        while self.readers.len() < all {
            let begin = self.readers.len();
            let end = (begin + PORTION).min(all);
            for index in begin..end {
                self.wait_turn(index, start)?;
                self.subscribe(system, address, index)?;
            }
            self.wait_open(begin)?;
        }
        for index in self.case.users..all {
            if let Some(reader) = self.readers.get_mut(index) {
                self.poll.registry().deregister(&mut reader.stream)?;
            }
        }
        if self.case.feed == Feed::Post {
            self.connect_publishers(system, address)?;
        }
        Ok(())
    }

    /// A poller begins with the first subscriber: those of several topics come one after the other,
    /// spread over a period, as a slow ramp would have it, and not all at once.
    fn wait_turn(&mut self, index: usize, start: Instant) -> anyhow::Result<()> {
        if self.case.feed != Feed::Poll || index >= self.case.topics {
            return Ok(());
        }
        let part = index as f64 / self.case.topics as f64;
        let due = start + Duration::from_secs_f64(self.case.period_ms * part / 1e3);
        let mut events = Events::with_capacity(1024);
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.turn(&mut events, left.min(TURN))?;
        }
    }

    fn subscribe(
        &mut self,
        system: System,
        address: SocketAddr,
        index: usize,
    ) -> anyhow::Result<()> {
        let topic = index % self.case.topics.max(1);
        let mut first = system::subscription(system, self.case, address, topic + 1);
        if let Some(token) = self.tokens.get(index) {
            first = system::with_field(&first, &system::bearer(token));
        }
        let stream = net::connect(address, &first);
        let stream = stream.with_context(|| format!("connection {index} was not made"))?;
        let status = match self.case.transport {
            Transport::Sse => 200,
            Transport::WebSocket => 101,
        };
        let mut reader = Reader::new(stream, topic, status);
        if self.case.transport == Transport::WebSocket {
            reader.greeting = system::greeting(system, topic + 1);
        }
        if self.case.feed == Feed::Post {
            reader.progress.next = 1;
        }
        let interest = Interest::READABLE;
        self.poll
            .registry()
            .register(&mut reader.stream, Token(index), interest)?;
        self.readers.push(reader);
        if index < self.case.users
            && let Some(count) = self.subscribers.get_mut(topic)
        {
            *count += 1;
        }
        Ok(())
    }

    fn wait_open(&mut self, begin: usize) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut events = Events::with_capacity(1024);
        loop {
            let new = self.readers.get(begin..).unwrap_or_default();
            if new.iter().all(Reader::is_open) {
                return Ok(());
            }
            if new.iter().any(Reader::is_ended) || start.elapsed() > OPEN_MAX {
                let why = self.first_cut.as_deref().unwrap_or("no reply came");
                bail!(
                    "not all of {} subscribers were let in: {why}",
                    self.readers.len()
                );
            }
            self.turn(&mut events, TURN)?;
        }
    }

    fn connect_publishers(&mut self, system: System, address: SocketAddr) -> anyhow::Result<()> {
        for topic in 0..self.case.topics {
            let stream = net::connect(address, b"").context("a publisher was not connected")?;
            let token = self.tokens.get(self.case.users + self.case.stalled + topic);
            let request = system::publication(system, address, topic + 1);
            let request = system::with_token(request, token);
            let mut publisher = Publisher::new(stream, request, self.case.bytes);
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(PUBLISHERS + topic);
            self.poll
                .registry()
                .register(publisher.stream(), token, interest)?;
            self.publishers.push(publisher);
        }
        Ok(())
    }

    /// Does nothing but read for a while.
    ///
    /// # Errors
    /// When the kernel's poll fails.
    pub fn rest(&mut self, time: Duration) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(1024);
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn(&mut events, TURN)?;
        }
        Ok(())
    }

    /// How many subscribers are there still.
    pub fn open(&self) -> usize {
        self.readers
            .iter()
            .filter(|reader| reader.is_open())
            .count()
    }

    /// Takes everything that has come.
    fn turn(&mut self, events: &mut Events, patience: Duration) -> anyhow::Result<()> {
        self.wait(events, patience)?;
        self.last_event = (!events.is_empty()).then(Instant::now);
        for event in events.iter() {
            let Token(index) = event.token();
            if event.token() == WAKER {
                continue;
            }
            match index.checked_sub(PUBLISHERS) {
                Some(publisher) => self.publisher_ready(publisher)?,
                None => self.reader_ready(index),
            }
        }
        Ok(())
    }

    /// Waits for the kernel to report something. Between the events of a burst nobody sleeps: to
    /// wake the load's core costs whoever writes more than the write, which over a network it would
    /// not.
    fn wait(&mut self, events: &mut Events, patience: Duration) -> anyhow::Result<()> {
        while let Some(last) = self.last_event.filter(|_| self.has_bursts) {
            poll(&mut self.poll, events, Duration::ZERO)?;
            if !events.is_empty() {
                return Ok(());
            }
            if last.elapsed() > AWAKE {
                break;
            }
            std::hint::spin_loop();
        }
        poll(&mut self.poll, events, patience)
    }

    fn reader_ready(&mut self, index: usize) {
        let Some(reader) = self.readers.get_mut(index) else {
            return;
        };
        if reader.is_ended() {
            return;
        }
        let subscribers = self.subscribers.get(reader.topic).copied().unwrap_or(0);
        let Some(topic) = self.topics.get_mut(reader.topic) else {
            return;
        };
        let result = reader.read(
            &mut self.room,
            topic,
            &mut self.tally,
            &mut self.books,
            subscribers,
        );
        if let Err(error) = result {
            reader.end();
            self.cut += 1;
            self.first_cut.get_or_insert_with(|| error.to_string());
        }
    }

    fn publisher_ready(&mut self, index: usize) -> anyhow::Result<()> {
        let Some(publisher) = self.publishers.get_mut(index) else {
            return Ok(());
        };
        publisher.go_on().context("a publisher's connection")?;
        let read = publisher.read(&mut self.room, &mut self.books);
        read.context("a publisher's connection")
    }

    /// Runs load for the warm-up and the window, and waits for what is on its way.
    ///
    /// # Errors
    /// When a publisher's connection fails or the source does not answer.
    pub fn run(&mut self, plan: &Plan<'_>) -> anyhow::Result<Edges> {
        let start = stamp::now() + LEAD;
        let open = start + stamp::micros(plan.warm_up);
        let close = open + stamp::micros(plan.seconds);
        self.books.window = Window { open, close };
        let mut pace = self.schedule(start);
        let waker = Arc::new(Waker::new(self.poll.registry(), WAKER)?);
        let _pacer = match pace.step() {
            Some(step) => Some(Pacer::start(start, step, waker)?),
            None => None,
        };
        let mut events = Events::with_capacity(1024);
        let mut before = None;
        loop {
            let now = stamp::now();
            if now >= open && before.is_none() {
                before = Some((plan.watch.read()?, self.tally.clone(), self.published()));
            }
            if now >= close {
                break;
            }
            self.publish_due(&mut pace, now, close)?;
            self.turn(&mut events, TURN)?;
        }
        let after = plan.watch.read()?;
        let (before, tally, published) = before.context("the window did not open")?;
        let edges = Edges {
            before,
            after,
            delivered: self.tally.delivered - tally.delivered,
            bytes: self.tally.bytes - tally.bytes,
            published: self.published() - published,
        };
        self.drain(&mut events, close, plan.ticks)?;
        Ok(edges)
    }

    /// When events are due: nothing is, where they have no period.
    fn schedule(&self, start: u64) -> Schedule {
        let has_period = self.case.feed == Feed::Post && self.case.window == 0;
        let period = match has_period {
            true => (self.case.period_ms * 1e3) as u64,
            false => 0,
        };
        Schedule::new(period, self.case.topics, start)
    }

    fn published(&self) -> u64 {
        self.publishers.iter().map(|publisher| publisher.last).sum()
    }

    fn publish_due(&mut self, pace: &mut Schedule, now: u64, close: u64) -> anyhow::Result<()> {
        if self.case.feed != Feed::Post {
            return Ok(());
        }
        let window = self.case.window as u64;
        for (index, publisher) in self.publishers.iter_mut().enumerate() {
            let readers = self.subscribers.iter().sum::<usize>() as u64;
            let result = match window {
                0 => pace
                    .due(index, now.min(close - 1))
                    .try_for_each(|at| publisher.publish(at)),
                _ => {
                    let had = self.tally.delivered / readers.max(1);
                    let may = publisher.waiting() == 0 && publisher.last < had + window;
                    if may { publisher.publish(now) } else { Ok(()) }
                }
            };
            result.context("a publisher's connection")?;
        }
        Ok(())
    }

    /// Waits until everybody has everything.
    fn drain(
        &mut self,
        events: &mut Events,
        close: u64,
        ticks: &dyn Fn() -> anyhow::Result<Vec<u64>>,
    ) -> anyhow::Result<()> {
        let polled = match self.case.feed {
            Feed::Poll => Some(ticks()?),
            _ => None,
        };
        let mut look = 0;
        loop {
            let now = stamp::now();
            if now > look {
                let last = self.last(polled.as_deref());
                let (lost, behind) = self.missing(&last);
                let waiting = self.publishers.iter().map(|it| it.waiting() as u64);
                let unanswered = waiting.sum();
                if lost + behind + unanswered == 0 || now > close + DRAIN_MAX {
                    self.tally.lost = lost;
                    self.tally.behind = behind;
                    self.tally.unanswered = unanswered;
                    return Ok(());
                }
                look = now + LOOK;
            }
            self.turn(events, TURN)?;
        }
    }

    /// The last number of each topic that everybody must have.
    fn last(&self, polled: Option<&[u64]>) -> Vec<u64> {
        match polled {
            Some(ticks) => ticks.to_vec(),
            None => self
                .publishers
                .iter()
                .map(|publisher| publisher.last)
                .collect(),
        }
    }

    /// How many events were left out, and how many are still to come, over all good subscribers.
    fn missing(&self, last: &[u64]) -> (u64, u64) {
        let good = self.readers.iter().take(self.case.users);
        good.fold((0, 0), |(lost, behind), reader| {
            let last = last.get(reader.topic).copied().unwrap_or(0);
            let progress = &reader.progress;
            (lost + progress.lost(), behind + progress.behind(last))
        })
    }

    /// How many of those that did not read have been cut off meanwhile: found by reading at last.
    pub fn stalled_cut(&mut self) -> u64 {
        use std::io::Read;
        let mut cut = 0;
        let room = &mut self.room;
        for reader in self.readers.iter_mut().skip(self.case.users) {
            let end = loop {
                match reader.stream.read(room) {
                    Ok(0) => break true,
                    Ok(_) => {}
                    Err(error) => break error.kind() != io::ErrorKind::WouldBlock,
                }
            };
            cut += u64::from(end);
        }
        cut
    }
}

fn poll(poll: &mut Poll, events: &mut Events, patience: Duration) -> anyhow::Result<()> {
    match poll.poll(events, Some(patience)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        result => result.context("poll"),
    }
}

#[cfg(test)]
mod tests;
