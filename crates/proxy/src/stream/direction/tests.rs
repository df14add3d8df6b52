//! Seeded schedules of one direction of a tunnel: frames come cut anywhere, the sink takes few
//! bytes or keeps them for a while, messages are limited, and it is asked to hold at any time.
//!
//! `RELAY_SCHEDULES` says how many, `RELAY_SEED` where they begin.

use std::io;
use std::sync::Arc;
use std::task::{Waker, ready};
use std::time::Duration;

use component::stream_limits::{MessageLimit, Over, Scope, StreamLimits, StreamSettings};
use fastrand::Rng;
use net::deadline::Deadlines;

use super::*;
use crate::relay::tests::{random_bytes, run_schedules};

const SCHEDULES: u64 = 30_000;
/// More polls than any schedule needs that does not stand still.
const POLLS_MAX: usize = 20_000;
const CLOSE: u8 = 8;

/// One side of a tunnel.
struct Peer {
    random: Rng,
    incoming: Vec<u8>,
    arrived: usize,
    consumed: usize,
    written: Vec<u8>,
    /// What waits here as TLS records would.
    records: Vec<u8>,
    has_records: bool,
    /// It takes no more than this, then it breaks.
    capacity: usize,
}

impl Peer {
    fn new(random: &mut Rng, incoming: Vec<u8>) -> Self {
        Self {
            random: random.fork(),
            incoming,
            arrived: 0,
            consumed: 0,
            written: Vec::new(),
            records: Vec::new(),
            has_records: random.bool(),
            capacity: usize::MAX,
        }
    }

    fn accepted(&self) -> Vec<u8> {
        [&self.written[..], &self.records].concat()
    }
}

impl ByteStream for Peer {
    fn poll_fill(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        assert!(self.arrived - self.consumed < 14, "it reads ahead");
        if self.random.u8(..3) == 0 {
            return Poll::Pending;
        }
        let most = [1, 2, 7, 300, 100_000][self.random.usize(..5)];
        let rest = self.incoming.len() - self.arrived;
        let count = rest.min(self.random.usize(1..=most));
        self.arrived += count;
        Poll::Ready(Ok(count))
    }

    fn input(&self) -> &[u8] {
        &self.incoming[self.consumed..self.arrived]
    }

    fn consume(&mut self, count: usize) {
        self.consumed += count;
        assert!(self.consumed <= self.arrived);
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        assert!(!bytes.is_empty());
        if self.written.len() >= self.capacity {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.has_records {
            ready!(self.poll_flush(context))?;
            self.records.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        if self.random.u8(..3) == 0 {
            return Poll::Pending;
        }
        let most = [1, 5, 900][self.random.usize(..3)];
        let count = bytes.len().min(self.random.usize(1..=most));
        self.written.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let count = self.random.usize(..400).min(self.records.len());
        self.written.extend(self.records.drain(..count));
        match self.records.is_empty() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}

/// The frames of one direction, and where they begin.
struct Sent {
    bytes: Vec<u8>,
    /// Where each frame begins, whether it carries data, and whether it closes.
    frames: Vec<(usize, u8)>,
    /// Where the bytes are frames no more.
    malformed: Option<usize>,
}

impl Sent {
    fn new(random: &mut Rng) -> Self {
        let (mut bytes, mut frames) = (Vec::new(), Vec::new());
        for _ in 0..random.usize(..10) {
            let opcode = [0, 1, 2, 9, 10, CLOSE][random.usize(..6)];
            frames.push((bytes.len(), opcode));
            bytes.extend(frame(random, opcode));
        }
        let malformed = (random.u8(..6) == 0).then_some(bytes.len());
        if malformed.is_some() {
            bytes.extend([0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0]);
        } else if random.bool() {
            let length = random.usize(..=bytes.len());
            bytes.truncate(length);
        }
        Self {
            bytes,
            frames,
            malformed,
        }
    }

    /// How many frames with data begin in so many bytes.
    fn data_in(&self, length: usize) -> usize {
        let begun = self.frames.iter().filter(|(at, _)| *at < length);
        begun.filter(|(_, opcode)| *opcode < 8).count()
    }

    /// Where a frame begins that is above the limit.
    fn over(&self, most: usize) -> Option<usize> {
        let mut data = self.frames.iter().filter(|(_, opcode)| *opcode < 8);
        data.nth(most).map(|(at, _)| *at)
    }

    /// Where one frame ends, and another may begin.
    fn is_boundary(&self, at: usize) -> bool {
        at == self.bytes.len()
            || self.frames.iter().any(|(begin, _)| *begin == at)
            || self.malformed == Some(at)
    }
}

fn frame(random: &mut Rng, opcode: u8) -> Vec<u8> {
    let length = [0, 1, 125, 126, 127, 400][random.usize(..6)];
    let mask = [0, 0x80][random.usize(..2)];
    let mut bytes = vec![0x80 | opcode];
    match length {
        0..126 => bytes.push(mask | length as u8),
        _ if random.bool() => {
            bytes.push(mask | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(mask | 127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    if mask != 0 {
        bytes.extend(random_bytes(random, 4));
    }
    bytes.extend(random_bytes(random, length));
    bytes
}

/// So many messages pass at once, and then none for long.
fn limits(burst: u32, over: Over) -> Arc<StreamLimits> {
    Arc::new(StreamLimits::new(StreamSettings {
        connections: None,
        messages: Some(MessageLimit {
            count: 1,
            per: Duration::from_secs(3600),
            burst,
            scope: Scope::Connection,
            over,
        }),
    }))
}

struct Schedule {
    random: Rng,
    sent: Sent,
    source: Peer,
    sink: Peer,
    direction: Direction,
    gate: Gate,
    counter: Counter,
    /// How many messages may pass, and what becomes of the next.
    limit: Option<(usize, Over)>,
}

impl Schedule {
    fn new(seed: u64, deadlines: &Deadlines) -> Self {
        let mut random = Rng::with_seed(seed);
        let sent = Sent::new(&mut random);
        let limit = random.bool().then(|| {
            let over = [Over::Delay, Over::Close][random.usize(..2)];
            (random.usize(1..=4), over)
        });
        let limits = limit.map(|(most, over)| limits(most as u32, over));
        let mut sink = Peer::new(&mut random, Vec::new());
        if random.u8(..6) == 0 {
            sink.capacity = random.usize(..=sent.bytes.len());
        }
        Self {
            source: Peer::new(&mut random, sent.bytes.clone()),
            sink,
            direction: Direction::default(),
            gate: Gate::new(limits.as_ref(), deadlines),
            counter: Counter::default(),
            random,
            sent,
            limit,
        }
    }

    fn run(mut self) {
        let hold_after = match self.random.bool() {
            true => self.random.usize(..60),
            false => POLLS_MAX,
        };
        let mut context = Context::from_waker(Waker::noop());
        for polls in 0..POLLS_MAX {
            if polls == hold_after {
                self.direction.hold();
            }
            let sides = (&mut self.source, &mut self.sink);
            let (gate, counter) = (&mut self.gate, &self.counter);
            let polled = self.direction.poll(&mut context, sides, gate, counter);
            self.check_so_far();
            match polled {
                Poll::Ready(stop) => return self.check_stop(stop),
                Poll::Pending if self.waits() => return,
                Poll::Pending => {}
            }
        }
        panic!("it stands still");
    }

    /// Whether it waits for a message that is delayed.
    fn waits(&self) -> bool {
        let Some((most, Over::Delay)) = self.limit else {
            return false;
        };
        let has_header = matches!(Frames::default().look(self.source.input()), Part::Header(_));
        self.sent.over(most) == Some(self.source.consumed) && has_header
    }

    fn check_so_far(&self) {
        let accepted = self.sink.accepted();
        assert_eq!(accepted.len(), self.source.consumed, "taken and lost");
        assert!(self.sent.bytes.starts_with(&accepted), "other bytes");
        let most = self.limit.and_then(|(most, _)| self.sent.over(most));
        let most = most.or(self.sent.malformed);
        assert!(accepted.len() <= most.unwrap_or(usize::MAX), "too much");
        let counted = self.counter.get() as usize;
        assert!(counted >= self.sent.data_in(accepted.len()));
        if self.direction.is_between() {
            assert!(self.sent.is_boundary(accepted.len()), "inside a frame");
            assert_eq!(counted, self.sent.data_in(accepted.len()));
        }
    }

    fn check_stop(&self, stop: Stop) {
        let passed = self.source.consumed;
        match stop {
            Stop::Source => {
                assert_eq!(self.source.arrived, self.sent.bytes.len());
                let left = self.sent.bytes.len() - passed;
                assert!(left < 14 && (left == 0 || self.direction.is_between()));
            }
            Stop::Sink => assert!(self.sink.written.len() >= self.sink.capacity),
            Stop::Malformed => assert_eq!(Some(passed), self.sent.malformed),
            Stop::OverLimit => {
                let (most, over) = self.limit.unwrap();
                assert_eq!((Some(passed), over), (self.sent.over(most), Over::Close));
            }
            Stop::Held => assert!(self.direction.is_between() && self.direction.holds),
        }
        let passed_frames = self.sent.frames.iter().filter(|(at, _)| *at < passed);
        let has_close = passed_frames.clone().any(|(_, opcode)| *opcode == CLOSE);
        let takes_a_frame = self.direction.is_between() && !has_close;
        assert_eq!(self.direction.takes_a_frame(), takes_a_frame);
    }
}

#[test]
fn no_schedule_loses_frames_or_passes_those_that_may_not() {
    let deadlines = Deadlines::new();
    run_schedules(SCHEDULES, |seed| Schedule::new(seed, &deadlines).run());
}

/// A tunnel that ends does not wait for the frames of a side that is quiet.
#[test]
fn a_quiet_direction_holds_at_once() {
    let mut random = Rng::with_seed(1);
    let (mut source, mut sink) = (
        Peer::new(&mut random, Vec::new()),
        Peer::new(&mut random, Vec::new()),
    );
    let (mut direction, counter) = (Direction::default(), Counter::default());
    direction.hold();
    let mut gate = Gate::new(None, &Deadlines::new());
    let mut context = Context::from_waker(Waker::noop());
    let sides = (&mut source, &mut sink);
    let polled = direction.poll(&mut context, sides, &mut gate, &counter);
    assert_eq!(polled, Poll::Ready(Stop::Held));
}
