//! Seeded schedules of a tapped body: its pieces come cut anywhere, the tap waits and stops inside
//! them, the sink takes few bytes, either side breaks, and the transfer is dropped half-way.
//!
//! `RELAY_SCHEDULES` says how many, `RELAY_SEED` where they begin.

use std::task::Waker;

use fastrand::Rng;
use net::http1::ReadError;

use super::*;
use crate::relay::tests::{random_bytes, run_schedules};
use crate::relay::{Sink, pump};

const SCHEDULES: u64 = 100_000;
/// More polls than any schedule needs that does not stand still.
const POLLS_MAX: usize = 20_000;

/// Kinds of units: a unit is its kind, the length of its content, and the content.
const PASS: u8 = 0;
const WAIT: u8 = 1;
const STOP: u8 = 2;

/// A body that comes piece by piece.
pub(crate) struct ScriptedSource {
    random: Rng,
    body: Vec<u8>,
    arrived: usize,
    pub taken: usize,
    /// Whether the body breaks off behind its last byte.
    breaks: bool,
    is_ended: bool,
    /// Whether more was needed than was there: so many bytes had arrived then.
    needed_more: Option<usize>,
}

impl ScriptedSource {
    pub fn new(random: &Rng, body: Vec<u8>, breaks: bool) -> Self {
        Self {
            random: random.clone(),
            body,
            arrived: 0,
            taken: 0,
            breaks,
            is_ended: false,
            needed_more: None,
        }
    }

    /// Whether all is there, after some of it may have come.
    fn poll_arrive(&mut self) -> Poll<()> {
        let needs_more = self.arrived == self.taken || self.needed_more == Some(self.arrived);
        if !needs_more || self.arrived == self.body.len() {
            return Poll::Ready(());
        }
        if self.random.u8(..3) == 0 {
            return Poll::Pending;
        }
        let most = [1, 2, 7, 300, 100_000][self.random.usize(..5)];
        let rest = self.body.len() - self.arrived;
        self.arrived += rest.min(self.random.usize(1..=most));
        Poll::Ready(())
    }
}

impl Source for ScriptedSource {
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        ready!(self.poll_arrive());
        let rest = &self.body[self.taken..self.arrived];
        let is_all = self.arrived == self.body.len();
        let has_more_to_give = !rest.is_empty() && self.needed_more != Some(self.arrived);
        if is_all && self.breaks && !has_more_to_give {
            return Poll::Ready(Err(TransferError::Source(ReadError::Truncated)));
        }
        let end = match is_all && !self.breaks {
            true => End::End(None),
            false => End::More,
        };
        let used = ready!(take(context, rest, end)).map_err(TransferError::Sink)?;
        self.needed_more = (used == 0 && !end.is_end()).then_some(self.arrived);
        self.is_ended = end.is_end() && used == rest.len();
        self.taken += used;
        Poll::Ready(Ok(()))
    }

    fn is_ended(&self) -> bool {
        self.is_ended
    }

    fn moved(&self) -> u64 {
        (self.arrived + self.taken) as u64
    }
}

/// Takes few bytes, and breaks when it has got so many.
struct ScriptedSink {
    random: Rng,
    got: Vec<u8>,
    capacity: usize,
    has_end: bool,
}

impl Sink for ScriptedSink {
    fn poll_accept(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
        end: End<'_>,
    ) -> Poll<io::Result<usize>> {
        assert!(!self.has_end, "something comes behind the end");
        assert!(!bytes.is_empty() || end.is_end(), "nothing is passed on");
        if self.got.len() >= self.capacity {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.random.u8(..3) == 0 {
            return Poll::Pending;
        }
        let most = [1, 5, 900][self.random.usize(..3)];
        let count = bytes.len().min(self.random.usize(1..=most));
        self.got.extend_from_slice(&bytes[..count]);
        self.has_end = end.is_end() && count == bytes.len();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.random.u8(..4) == 0 {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }

    fn sent(&self) -> u64 {
        self.got.len() as u64
    }
}

/// Follows units, and remembers all that it has let pass.
struct UnitTap {
    random: Rng,
    /// How much of a unit's content is still to come.
    left: usize,
    /// Whether the unit that waits may pass now.
    is_granted: bool,
    units: usize,
    seen: Vec<u8>,
}

impl UnitTap {
    fn look_on(&mut self, bytes: &[u8]) -> (usize, Rest<usize>) {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            if self.left > 0 && !rest.is_empty() {
                let count = self.left.min(rest.len());
                self.left -= count;
                at += count;
                continue;
            }
            let [kind, length, ..] = *rest else {
                return (at, Rest::More);
            };
            if kind == STOP {
                return (at, Rest::Stop(self.units));
            }
            if kind == WAIT && !std::mem::take(&mut self.is_granted) {
                return (at, Rest::Wait);
            }
            self.units += 1;
            self.left = length.into();
            at += 2;
        }
    }
}

impl Tap for UnitTap {
    type Stop = usize;

    fn look(&mut self, bytes: &[u8]) -> (usize, Rest<usize>) {
        assert!(!bytes.is_empty());
        let (count, rest) = self.look_on(bytes);
        self.seen.extend_from_slice(&bytes[..count]);
        (count, rest)
    }

    fn poll_wait(&mut self, _: &mut Context<'_>) -> Poll<()> {
        if self.random.u8(..3) > 0 {
            return Poll::Pending;
        }
        // Another look may find that it has to wait once more.
        self.is_granted = self.random.bool();
        Poll::Ready(())
    }
}

struct Schedule {
    random: Rng,
    source: ScriptedSource,
    sink: ScriptedSink,
    tap: UnitTap,
    state: TapState<usize>,
    body: Vec<u8>,
    /// Where a unit stops the tap, and how many come before it.
    stop: Option<(usize, usize)>,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let (mut body, mut stop) = (Vec::new(), None);
        let count = random.usize(..12);
        for unit in 0..count {
            let kind = [PASS, PASS, PASS, WAIT, WAIT, STOP][random.usize(..6)];
            if kind == STOP && stop.is_none() {
                stop = Some((body.len(), unit));
            }
            let length = [0, 1, 255][random.usize(..3)];
            body.extend([kind, length]);
            body.extend(random_bytes(&mut random, length.into()));
        }
        let breaks = random.u8(..3) == 0;
        if random.u8(..3) == 0 {
            let length = random.usize(..=body.len());
            body.truncate(length);
        }
        // A kind alone stops nothing.
        let stop = stop.filter(|(at, _)| at + 2 <= body.len());
        let capacity = match random.u8(..5) == 0 {
            true => random.usize(..=body.len()),
            false => usize::MAX,
        };
        Self {
            source: ScriptedSource::new(&random, body.clone(), breaks),
            sink: ScriptedSink {
                random: random.fork(),
                got: Vec::new(),
                capacity,
                has_end: false,
            },
            tap: UnitTap {
                random: random.fork(),
                left: 0,
                is_granted: false,
                units: 0,
                seen: Vec::new(),
            },
            state: TapState::default(),
            random,
            body,
            stop,
        }
    }

    fn run(mut self) {
        let drop_after = match self.random.u8(..5) == 0 {
            true => self.random.usize(..40),
            false => POLLS_MAX,
        };
        let mut context = Context::from_waker(Waker::noop());
        for polls in 0.. {
            assert!(polls < POLLS_MAX, "it stands still");
            if polls > drop_after {
                return;
            }
            let mut from = Tapped::new(&mut self.source, &mut self.tap, &mut self.state);
            let pumped = pump(&mut context, &mut from, &mut self.sink);
            self.check_so_far();
            if let Poll::Ready(result) = pumped {
                return self.check_end(result);
            }
        }
    }

    fn check_so_far(&self) {
        let got = self.sink.got.len();
        assert_eq!(self.source.taken, got, "taken and lost");
        assert!(self.body.starts_with(&self.sink.got), "other bytes");
        let (most, _) = self.stop.unwrap_or((self.body.len(), 0));
        assert!(got <= most, "something behind the stop has passed");
        let seen = got + self.state.ready;
        // What the body ends with may pass without having been let.
        if self.tap.seen.len() == seen {
            assert_eq!(self.tap.seen, self.body[..seen], "looked at twice");
        } else {
            assert!(seen == self.body.len() && !self.source.breaks, "unseen");
            assert!(seen - self.tap.seen.len() < 2);
        }
    }

    fn check_end(&self, result: Result<(), TransferError>) {
        let got = self.sink.got.len();
        match result {
            Ok(()) => {
                let (at, units) = self.stop.unzip();
                assert_eq!(self.state.stopped(), units);
                assert_eq!(got, at.unwrap_or(self.body.len()));
                assert_eq!(self.sink.has_end, at.is_none());
                assert!(at.is_none() || self.tap.left == 0, "inside a unit");
            }
            Err(TransferError::Source(_)) => {
                assert!(self.source.breaks && self.stop.is_none());
                assert!(self.body.len() - got < 2, "it breaks off too early");
            }
            Err(TransferError::Sink(_)) => assert!(got >= self.sink.capacity),
        }
    }
}

#[test]
fn no_schedule_passes_what_the_tap_has_not_let_pass() {
    run_schedules(SCHEDULES, |seed| Schedule::new(seed).run());
}
