//! The load of push delivery: a publisher for each topic, all on one thread with one `epoll`.
//! Subscribers are the sink's, a process of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use mio::{Events, Interest, Poll, Token, Waker};

use super::case::Case;
use super::flow;
use crate::bench::net;
use crate::bench::pacer::{Pacer, Schedule};
use crate::bench::publisher::{Answers, Publisher, Request};
use crate::bench::stats::Stats;
use crate::stamp;

const WAKER: Token = Token(usize::MAX);
/// How long a turn waits at most.
const TURN: Duration = Duration::from_millis(10);
/// Between a beginning and the first event, in microseconds.
const LEAD: u64 = 50_000;
/// How often deliveries are counted where events follow deliveries, in microseconds.
const COUNT: u64 = 2_000;
/// How long the last answers to publishers may take, in microseconds.
const ANSWER_MAX: u64 = 30_000_000;
/// One read takes so many bytes at most.
const ROOM: usize = 64 * 1024;
/// How much of a bad answer is kept.
const SHOWN: usize = 400;

/// When load ran, in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Phase {
    /// The instant of the first event, or an earlier one.
    pub open: u64,
    /// An instant behind that of the last event.
    pub close: u64,
}

/// How publishers were answered.
pub(super) struct Replies {
    /// From when an event was due to the answer to its publisher.
    pub latency: Stats,
    pub refused: u64,
    pub first_refusal: Option<String>,
}

impl Answers for Replies {
    fn answered(&mut self, at: u64, status: u16, reply: &[u8]) {
        if (200..300).contains(&status) {
            let late = stamp::now().saturating_sub(at);
            return self.latency.reply(Duration::from_micros(late));
        }
        self.refused += 1;
        self.first_refusal.get_or_insert_with(|| {
            let start = reply.get(..reply.len().min(SHOWN)).unwrap_or_default();
            String::from_utf8_lossy(start).into_owned()
        });
    }
}

/// The publishers of a case.
pub(super) struct Load<'a> {
    case: &'a Case,
    poll: Poll,
    waker: Arc<Waker>,
    events: Events,
    room: Vec<u8>,
    publishers: Vec<Publisher>,
    pub replies: Replies,
}

impl<'a> Load<'a> {
    /// Connects the publishers of Intertie or the floor.
    ///
    /// # Errors
    /// When one is not let in.
    pub fn connect(case: &'a Case, address: SocketAddr) -> anyhow::Result<Self> {
        Self::connect_with(case, address, |topic| request(address, topic))
    }

    /// Connects the publishers; `request` says for each topic, counted from 1, how its events are
    /// published.
    ///
    /// # Errors
    /// When one is not let in.
    pub fn connect_with(
        case: &'a Case,
        address: SocketAddr,
        request: impl Fn(usize) -> Request,
    ) -> anyhow::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let mut publishers = Vec::with_capacity(case.topics);
        for topic in 0..case.topics {
            let stream = net::connect(address, b"").context("a publisher was not connected")?;
            let mut publisher = Publisher::new(stream, request(topic + 1), case.bytes);
            let interest = Interest::READABLE | Interest::WRITABLE;
            let stream = publisher.stream();
            poll.registry().register(stream, Token(topic), interest)?;
            publishers.push(publisher);
        }
        Ok(Self {
            case,
            poll,
            waker: Arc::new(waker),
            events: Events::with_capacity(1024),
            room: vec![0; ROOM],
            publishers,
            replies: Replies {
                latency: Stats::new()?,
                refused: 0,
                first_refusal: None,
            },
        })
    }

    /// Numbers the events behind those that others have published.
    pub fn begin_behind(&mut self, last: u64) {
        for publisher in &mut self.publishers {
            publisher.last = last;
        }
    }

    /// How many events each topic has had: as many as all others.
    pub fn events_each(&self) -> u64 {
        self.publishers.iter().map(|it| it.last).max().unwrap_or(0)
    }

    /// Publishes for a time, and waits until publishers have been answered. Without a period the
    /// next event is published when, by what `accepted` says, few enough are on their way.
    ///
    /// # Errors
    /// When a publisher's connection fails, or an answer does not come.
    pub fn run(
        &mut self,
        time: Duration,
        accepted: &mut dyn FnMut() -> anyhow::Result<u64>,
    ) -> anyhow::Result<Phase> {
        let open = stamp::now();
        match self.case.window {
            0 => self.run_schedule(self.case.events_in(time.as_secs_f64()), open + LEAD)?,
            window => self.run_window(open + stamp::micros(time), window as u64, accepted)?,
        }
        let end = stamp::now() + ANSWER_MAX;
        while self.publishers.iter().any(|it| it.waiting() > 0) {
            if stamp::now() > end {
                bail!("a publisher got no answer within thirty seconds");
            }
            self.turn()?;
        }
        Ok(Phase {
            open,
            close: stamp::now(),
        })
    }

    /// Publishes so many events to each topic, each when it is due.
    fn run_schedule(&mut self, count: u64, start: u64) -> anyhow::Result<()> {
        let period = (self.case.period_ms * 1e3) as u64;
        let mut schedule = Schedule::new(period, self.case.topics, start);
        let last = self.events_each() + count;
        let wakes = self.waker.clone();
        let _pacer = match schedule.step() {
            Some(step) => Some(Pacer::start(start, step, wakes)?),
            None => None,
        };
        // The period of the last event is part of the time.
        let end = start + count * period;
        loop {
            let now = stamp::now();
            for (topic, publisher) in self.publishers.iter_mut().enumerate() {
                for at in schedule.due(topic, now) {
                    if publisher.last < last {
                        publisher.publish(at).context("a publisher's connection")?;
                    }
                }
            }
            if now >= end && self.publishers.iter().all(|it| it.last == last) {
                return Ok(());
            }
            self.turn()?;
        }
    }

    /// Publishes until an instant, with so many events on their way.
    fn run_window(
        &mut self,
        close: u64,
        window: u64,
        accepted: &mut dyn FnMut() -> anyhow::Result<u64>,
    ) -> anyhow::Result<()> {
        let each = self.case.endpoints_each().max(1) as u64;
        let _pacer = Pacer::start(stamp::now(), COUNT, self.waker.clone())?;
        let mut next = 0;
        loop {
            let now = stamp::now();
            if now >= close {
                return Ok(());
            }
            if now >= next {
                let done = accepted()? / each / self.publishers.len().max(1) as u64;
                next = now + COUNT;
                for publisher in &mut self.publishers {
                    while publisher.last < done + window {
                        publisher.publish(stamp::now())?;
                    }
                }
            }
            self.turn()?;
        }
    }

    /// Takes what has come.
    fn turn(&mut self) -> anyhow::Result<()> {
        match self.poll.poll(&mut self.events, Some(TURN)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result.context("poll")?,
        }
        for event in self.events.iter() {
            let Token(topic) = event.token();
            let Some(publisher) = self.publishers.get_mut(topic) else {
                continue;
            };
            publisher.go_on().context("a publisher's connection")?;
            let read = publisher.read(&mut self.room, &mut self.replies);
            read.context("a publisher's connection")?;
        }
        Ok(())
    }
}

/// How an event is published to a topic, counted from 1.
fn request(address: SocketAddr, topic: usize) -> Request {
    let path = flow::topic_path(topic);
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: "
    );
    Box::new(move |body, out| {
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(body.len().to_string().as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(body);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub;

    fn case() -> Case {
        Case {
            topics: 3,
            endpoints: 3,
            bytes: 100,
            period_ms: 30.0,
            ..Case::default()
        }
    }

    #[test]
    fn every_topic_gets_as_many_events() {
        let case = case();
        let mut load = Load::connect(&case, stub::spawn("echo", &[]).unwrap()).unwrap();
        let mut none = || Ok(0);
        for phase in 1..=2 {
            let time = Duration::from_millis(100);
            let ran = load.run(time, &mut none).unwrap();
            assert!(ran.open < ran.close);
            assert_eq!(load.events_each(), 3 * phase);
            assert!(load.publishers.iter().all(|it| it.last == 3 * phase));
        }
        assert_eq!(
            (load.replies.latency.replies(), load.replies.refused),
            (18, 0)
        );
    }

    #[test]
    fn no_more_events_are_on_their_way_than_the_window_has() {
        let case = Case {
            topics: 1,
            endpoints: 10,
            period_ms: 0.0,
            window: 4,
            ..case()
        };
        let mut load = Load::connect(&case, stub::spawn("echo", &[]).unwrap()).unwrap();
        // Nothing more is taken than the endpoints have of the first two events.
        let mut accepted = || Ok(20);
        load.run(Duration::from_millis(50), &mut accepted).unwrap();
        assert_eq!(load.events_each(), 6);
    }

    #[test]
    fn refusals_are_counted() {
        let case = case();
        let address = stub::spawn("webhook-sink", &["--status", "503"]).unwrap();
        let mut load = Load::connect(&case, address).unwrap();
        load.run(Duration::from_millis(30), &mut || Ok(0)).unwrap();
        assert_eq!(load.replies.refused, 3);
        let first = load.replies.first_refusal.unwrap();
        assert!(first.starts_with("HTTP/1.1 503"), "{first}");
    }
}
