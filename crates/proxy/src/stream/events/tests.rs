//! Seeded schedules of an event stream: it comes cut anywhere, events are limited, the client takes
//! few bytes, with chunks around them or without.
//!
//! `RELAY_SCHEDULES` says how many, `RELAY_SEED` where they begin.

use std::net::IpAddr;
use std::task::Waker;

use component::stream_limits::{MessageLimit, Over, Scope, StreamLimits, StreamSettings};
use fastrand::Rng;
use net::deadline::Deadlines;
use net::http1::Framing;

use super::*;
use crate::relay::tap::tests::ScriptedSource;
use crate::relay::tests::{decoded, random_bytes, run_schedules};

const SCHEDULES: u64 = 30_000;
/// More polls than any schedule needs that does not stand still.
const POLLS_MAX: usize = 50_000;

struct ScriptedClient {
    random: Rng,
    written: Vec<u8>,
    is_chunked: bool,
}

impl Client for ScriptedClient {
    fn poll_fill(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn input(&self) -> &[u8] {
        &[]
    }

    fn consume(&mut self, _: usize) {}

    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        assert!(!bytes.is_empty());
        if self.random.u8(..3) == 0 {
            return Poll::Pending;
        }
        let most = [1, 50, 5_000, 100_000][self.random.usize(..4)];
        let count = bytes.len().min(self.random.usize(1..=most));
        self.written.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_stop(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn is_chunked(&self) -> bool {
        self.is_chunked
    }

    fn peer(&self) -> IpAddr {
        IpAddr::from([127, 0, 0, 1])
    }
}

/// Events, and where each is complete: at the line end that dispatches it.
fn events(random: &mut Rng) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..random.usize(..10) {
        let line_end = ["\n", "\r\n", "\r"][random.usize(..3)];
        let comments = random.usize(..3);
        bytes.extend(format!(": quiet{line_end}").repeat(comments).bytes());
        let length = [0, 3, 200, 5_000][random.usize(..4)];
        bytes.extend(b"data: ");
        bytes.extend(random_bytes(random, length));
        bytes.extend(line_end.bytes());
        ends.push(bytes.len());
        bytes.extend(line_end.bytes());
    }
    (bytes, ends)
}

struct Schedule {
    source: ScriptedSource,
    client: ScriptedClient,
    writer: BodyWriter,
    scanner: EventScanner,
    gate: Gate,
    tap: TapState<OverLimit>,
    counter: Counter,
    stream: Vec<u8>,
    ends: Vec<usize>,
    limit: Option<(usize, Over)>,
    breaks: bool,
}

impl Schedule {
    fn new(seed: u64, deadlines: &Deadlines) -> Self {
        let mut random = Rng::with_seed(seed);
        let (stream, ends) = events(&mut random);
        let limit = random.bool().then(|| {
            let over = [Over::Delay, Over::Close][random.usize(..2)];
            (random.usize(1..=4), over)
        });
        let limits = limit.map(|(burst, over)| {
            Arc::new(StreamLimits::new(StreamSettings {
                connections: None,
                messages: Some(MessageLimit {
                    count: 1,
                    per: Duration::from_secs(3600),
                    burst: burst as u32,
                    scope: Scope::Connection,
                    over,
                }),
            }))
        });
        let (breaks, is_chunked) = (random.u8(..3) == 0, random.bool());
        let mut writer = BodyWriter::new(Vec::new());
        writer.set_chunked(is_chunked);
        Self {
            source: ScriptedSource::new(&random, stream.clone(), breaks),
            client: ScriptedClient {
                random: random.fork(),
                written: Vec::new(),
                is_chunked,
            },
            writer,
            scanner: EventScanner::default(),
            gate: Gate::new(limits.as_ref(), deadlines),
            tap: TapState::default(),
            counter: Counter::default(),
            stream,
            ends,
            limit,
            breaks,
        }
    }

    fn run(mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..POLLS_MAX {
            let pumped = self.poll(&mut context);
            self.check_so_far();
            let is_all = self.content().len() == self.source.taken;
            match pumped {
                Poll::Ready(result) => return self.check_end(&result),
                Poll::Pending if is_all && self.waits() => return,
                Poll::Pending => {}
            }
        }
        panic!("it stands still");
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TransferError>> {
        let mut tap = EventTap {
            scanner: &mut self.scanner,
            gate: &mut self.gate,
            counter: &self.counter,
        };
        let mut from = Tapped::new(&mut self.source, &mut tap, &mut self.tap);
        let mut to = ClientSink {
            writer: &mut self.writer,
            client: &mut self.client,
        };
        pump(context, &mut from, &mut to)
    }

    /// The content that the client has got.
    fn content(&self) -> Vec<u8> {
        match self.client.is_chunked {
            true => decoded(Framing::Chunked, &self.client.written).0,
            false => self.client.written.clone(),
        }
    }

    /// Where the event is complete that is above the limit.
    fn over(&self) -> Option<usize> {
        self.ends.get(self.limit?.0).copied()
    }

    fn waits(&self) -> bool {
        matches!(self.limit, Some((_, Over::Delay))) && self.over() == Some(self.source.taken)
    }

    fn check_so_far(&self) {
        let content = self.content();
        assert!(self.stream.starts_with(&content), "other bytes");
        assert!(content.len() <= self.source.taken, "from nowhere");
        assert!(self.source.taken <= self.over().unwrap_or(usize::MAX));
        let begun = self.ends.iter().filter(|end| **end < self.source.taken);
        assert!(self.counter.get() as usize >= begun.count());
    }

    fn check_end(&mut self, result: &Result<(), TransferError>) {
        let is_stopped = self.tap.stopped().is_some();
        match result {
            Ok(()) => {
                let end = match is_stopped {
                    true => self.over().unwrap(),
                    false => self.stream.len(),
                };
                assert!(is_stopped || !self.breaks);
                assert_eq!(self.content(), self.stream[..end], "flushed at the end");
                let complete = self.ends.iter().filter(|at| **at < end).count();
                assert_eq!(self.counter.get() as usize, complete);
                self.writer.shrink(0);
                assert_eq!(self.writer.staged_mut().capacity(), 0);
            }
            Err(TransferError::Source(_)) => {
                assert!(self.breaks && self.source.taken == self.stream.len());
            }
            Err(TransferError::Sink(error)) => panic!("{error}"),
        }
    }
}

#[test]
fn no_schedule_loses_events_or_passes_those_that_may_not() {
    let deadlines = Deadlines::new();
    run_schedules(SCHEDULES, |seed| Schedule::new(seed, &deadlines).run());
}
