//! The places of a channel's readers in its ring, and what is kept of each: a few words, no buffer.

use std::io;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use component::access::Validity;

use crate::channel::{Policy, StreamEnd};
use crate::ring::{Ring, Segment};

/// The place of a reader that does not read from the ring.
pub(crate) const APART: u64 = u64::MAX;
/// The window of a reader that has none.
const NO_WINDOW: u64 = u64::MAX;

/// How many bytes more could be written for what a write costs by itself.
const WRITE_COST: u64 = 2048;

/// What takes a reader's bytes.
pub(crate) trait Outlet {
    /// Writes some of these bytes, at least one. A write that was pending is repeated with the same
    /// bytes at its front.
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// How many bytes of TLS records the socket has taken, or 0 without TLS: what was accepted for
    /// writing is encrypted in large pieces, within which progress shows only here.
    fn records_taken(&self) -> u64;
}

/// Who reads.
#[derive(Default)]
pub(crate) struct Seats {
    all: Vec<Seat>,
    free: Vec<u32>,
    /// Whether somebody's credential has ever been one that expires.
    has_expiring: bool,
}

/// A reader's place.
struct Seat {
    waker: Option<Waker>,
    /// Where it is in the ring; [`APART`] while it does not read from it.
    at: u64,
    /// How many events it had when it was last at the end of the ring.
    seen: u64,
    /// Up to where the bytes of a write that is pending go.
    offered: u64,
    /// What it has begun of bytes that are forgotten.
    rest: Option<Box<Rest>>,
    /// Since which tick it has taken nothing.
    stalled: Option<u32>,
    /// The TLS records that its socket had taken when a write was last pending, in bytes.
    records: u64,
    /// The tick in which its time is over.
    over_at: Option<u32>,
    /// When the reader's credential expires, in seconds since 1970; a later time than has room
    /// here counts as the last one, in 2106.
    expires: Option<NonZeroU32>,
    end: Option<StreamEnd>,
    /// How long the reader's credential lets its stream go on.
    validity: Option<Arc<Validity>>,
    /// The last event that it may have, or [`NO_WINDOW`].
    window: u64,
    /// Whether it waits for something to read.
    is_hungry: bool,
    is_taken: bool,
}

impl Default for Seat {
    fn default() -> Self {
        Self {
            waker: None,
            at: 0,
            seen: 0,
            offered: 0,
            rest: None,
            stalled: None,
            records: 0,
            over_at: None,
            expires: None,
            end: None,
            validity: None,
            window: NO_WINDOW,
            is_hungry: false,
            is_taken: false,
        }
    }
}

/// What a reader has begun of bytes that the ring has forgotten, and what stood behind that.
struct Rest {
    segment: Option<Rc<Segment>>,
    until: u64,
    sequence: u64,
    index: u64,
}

/// What a reader has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing but to wait.
    Wait,
    /// To ask again: something has been written.
    Again,
    /// It is further behind than it may be.
    Behind(Lost),
    /// Its stream ends. It is not within a frame, unless it is too slow.
    End(StreamEnd),
}

/// What a reader has missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The sequence of the first event.
    pub from: u64,
    /// The sequence of the event that is kept behind the last one.
    pub behind: u64,
    /// How many they are.
    pub count: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    /// Bytes.
    pub bytes: u64,
    /// Events that have been written wholly.
    pub events: u64,
}

impl Seats {
    /// A place for a reader that does not read from the ring yet.
    pub fn enter(&mut self, over_at: Option<u32>) -> u32 {
        let seat = Seat {
            at: APART,
            is_taken: true,
            over_at,
            ..Seat::default()
        };
        match self.free.pop() {
            Some(key) => {
                if let Some(place) = self.all.get_mut(key as usize) {
                    *place = seat;
                }
                key
            }
            None => {
                self.all.push(seat);
                (self.all.len() - 1) as u32
            }
        }
    }

    /// Has a reader's stream end when its credential expires or is revoked.
    pub fn hold_to(&mut self, key: u32, validity: Arc<Validity>) {
        let expires = validity.expires();
        let expires = expires.map(|it| u32::try_from(it).unwrap_or(u32::MAX).max(1));
        self.has_expiring |= expires.is_some();
        if let Some(seat) = self.seat(key) {
            seat.expires = expires.and_then(NonZeroU32::new);
            if validity.is_revoked() {
                seat.finish(StreamEnd::Revoked);
            }
            seat.validity = Some(validity);
        }
    }

    /// Ends the streams of those whose credential has been revoked.
    pub fn finish_revoked(&mut self) {
        for seat in self.all.iter_mut().filter(|it| it.is_taken) {
            if seat.validity.as_ref().is_some_and(|it| it.is_revoked()) {
                seat.finish(StreamEnd::Revoked);
            }
        }
    }

    /// Gives a place back.
    pub fn leave(&mut self, key: u32) {
        if let Some(seat) = self.seat(key).filter(|it| it.is_taken) {
            *seat = Seat::default();
            self.free.push(key);
        }
    }

    #[inline]
    fn seat(&mut self, key: u32) -> Option<&mut Seat> {
        self.all.get_mut(key as usize)
    }

    /// Has a reader go on from this offset of the ring.
    pub fn place(&mut self, key: u32, at: u64, ring: &Ring) {
        if let Some(seat) = self.seat(key) {
            seat.at = at;
            seat.seen = ring.place(at).index;
            seat.rest = None;
            seat.offered = at;
        }
    }

    /// Lets a reader have the events up to this one.
    pub fn open_window(&mut self, key: u32, sequence: u64) {
        if let Some(seat) = self.seat(key) {
            seat.window = sequence;
        }
    }

    /// Wakes those who wait for something to read, from this seat on, until they have so many bytes
    /// to write together. Where to go on then, unless these were all.
    pub fn wake_hungry(&mut self, first: usize, end: u64, most: u64) -> Option<usize> {
        let mut bytes = 0;
        for (at, seat) in self.all.iter_mut().enumerate().skip(first) {
            if !seat.is_hungry {
                continue;
            }
            if bytes >= most {
                return Some(at);
            }
            bytes += end.saturating_sub(seat.at) + WRITE_COST;
            seat.is_hungry = false;
            if let Some(waker) = &seat.waker {
                waker.wake_by_ref();
            }
        }
        None
    }

    /// Ends the streams of those who have taken nothing for that many ticks, of those whose time is
    /// over, and of those whose credential has expired by the time of day (`wall`, in seconds since
    /// 1970), which is asked for only when somebody's does expire.
    pub fn look(&mut self, now: u32, stalled_max: u32, wall: impl FnOnce() -> u64) {
        let wall = if self.has_expiring { wall() } else { 0 };
        for seat in self.all.iter_mut().filter(|it| it.is_taken) {
            let stalled = seat.stalled.map(|since| now.wrapping_sub(since));
            if stalled.is_some_and(|time| time >= stalled_max) {
                seat.finish(StreamEnd::Stalled);
            } else if seat.expires.is_some_and(|it| u64::from(it.get()) <= wall) {
                seat.finish(StreamEnd::Expired);
            } else if seat.over_at == Some(now) {
                seat.finish(StreamEnd::Time);
            }
        }
    }

    /// Ends the stream of one. It is asked by itself.
    pub fn finish_one(&mut self, key: u32, end: StreamEnd) {
        if let Some(seat) = self.seat(key) {
            seat.end = seat.end.or(Some(end));
        }
    }

    /// Ends all streams.
    pub fn finish_all(&mut self, end: StreamEnd) {
        self.all.iter_mut().for_each(|seat| seat.finish(end));
    }

    /// How many readers there are.
    pub fn count(&self) -> u64 {
        self.all.iter().filter(|it| it.is_taken).count() as u64
    }

    /// Where a reader is in the ring.
    pub fn at(&self, key: u32) -> u64 {
        self.all.get(key as usize).map_or(APART, |seat| seat.at)
    }

    /// Where the slowest of those is who read from the ring.
    pub fn slowest(&self) -> u64 {
        let taken = self.all.iter().filter(|it| it.is_taken);
        taken.map(|it| it.at).min().unwrap_or(APART)
    }

    /// Notes of all who are in the oldest segment what they have begun, for it ends here and is
    /// about to be forgotten.
    pub fn save_begun(&mut self, ring: &Ring, end: u64) {
        let start = ring.start();
        let within = |seat: &&mut Seat| seat.is_taken && (start..end).contains(&seat.at);
        for seat in self.all.iter_mut().filter(within) {
            let place = ring.place(seat.at.max(seat.offered));
            seat.rest = Some(Box::new(Rest {
                segment: None,
                until: place.boundary,
                sequence: place.sequence,
                index: place.index,
            }));
        }
    }

    /// Gives the forgotten segment to those who have begun something of it.
    pub fn hand_over(
        &mut self,
        segment: Option<Rc<Segment>>,
        (start, end): (u64, u64),
        policy: Policy,
    ) {
        let within = |seat: &&mut Seat| seat.is_taken && (start..end).contains(&seat.at);
        for seat in self.all.iter_mut().filter(within) {
            let at = seat.at;
            if let Some(rest) = seat.rest.as_mut().filter(|it| it.until > at) {
                rest.segment = segment.as_ref().map(Rc::clone);
            }
            if policy == Policy::Disconnect {
                seat.finish(StreamEnd::Slow);
            }
        }
    }

    /// Writes what comes next for a reader, in one write.
    ///
    /// # Errors
    /// When the connection has ended.
    #[inline]
    pub fn step(
        &mut self,
        (key, now): (u32, u32),
        ring: &Ring,
        outlet: &mut (impl Outlet + ?Sized),
        context: &mut Context<'_>,
    ) -> io::Result<(Next, Written)> {
        let mut written = Written::default();
        let Some(seat) = self.seat(key) else {
            return Ok((Next::End(StreamEnd::Failed), written));
        };
        seat.listen(context);
        let next = seat.step(now, ring, outlet, context, &mut written)?;
        Ok((next, written))
    }

    /// What the reader has to end for, once it is not within a frame.
    pub fn end(&mut self, key: u32) -> Option<StreamEnd> {
        self.seat(key).and_then(|seat| seat.end)
    }

    /// Notes how a write of other bytes than the ring's went. When no byte was accepted, `pending`
    /// has the bytes of TLS records that the socket has taken.
    pub fn note_other(
        &mut self,
        (key, now): (u32, u32),
        pending: Option<u64>,
        context: &Context<'_>,
    ) {
        if let Some(seat) = self.seat(key) {
            seat.listen(context);
            match pending {
                None => seat.stalled = None,
                Some(records) => seat.note_pending(now, records),
            }
        }
    }
}

impl Seat {
    #[inline]
    fn listen(&mut self, context: &Context<'_>) {
        match &mut self.waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            waker => *waker = Some(context.waker().clone()),
        }
    }

    /// Notes that a write is pending: since when nothing at all has been taken.
    fn note_pending(&mut self, now: u32, records: u64) {
        if records != self.records {
            self.records = records;
            self.stalled = None;
        }
        self.stalled = self.stalled.or(Some(now));
    }

    /// Has the reader end its stream.
    fn finish(&mut self, end: StreamEnd) {
        let is_last_word = matches!(self.end, Some(StreamEnd::Stalled | StreamEnd::Slow));
        if self.is_taken && !is_last_word {
            self.end = Some(end);
            if let Some(waker) = &self.waker {
                waker.wake_by_ref();
            }
        }
    }

    #[inline]
    fn step(
        &mut self,
        now: u32,
        ring: &Ring,
        outlet: &mut (impl Outlet + ?Sized),
        context: &mut Context<'_>,
        written: &mut Written,
    ) -> io::Result<Next> {
        let mut stop_at = u64::MAX;
        if let Some(end) = self.end {
            stop_at = ring.place(self.at.max(self.offered)).boundary;
            let is_whole = self.at >= stop_at && self.rest.is_none();
            if is_whole || matches!(end, StreamEnd::Slow | StreamEnd::Stalled) {
                return Ok(Next::End(end));
            }
        }
        let window = Some(self.window).filter(|it| *it != NO_WINDOW);
        if let Some(limit) = window.and_then(|it| ring.behind(it)) {
            stop_at = stop_at.min(limit);
            if self.at >= limit {
                return Ok(Next::Wait);
            }
        }
        let rest = self.rest.take();
        let bytes = match &rest {
            Some(rest) if self.at >= rest.until => return Ok(self.pass(rest, ring, written)),
            Some(rest) => {
                let segment = rest.segment.as_deref();
                segment
                    .map(|it| it.between(self.at, rest.until))
                    .unwrap_or_default()
            }
            None => ring.slice(self.at).unwrap_or_default(),
        };
        let room = usize::try_from(stop_at.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let bytes = bytes.get(..room).unwrap_or(bytes);
        if bytes.is_empty() {
            return Ok(self.rest_here(ring, written));
        }
        let Poll::Ready(count) = outlet.poll_write(context, bytes) else {
            self.offered = self.at + bytes.len() as u64;
            self.note_pending(now, outlet.records_taken());
            self.rest = rest;
            return Ok(Next::Wait);
        };
        let count = count? as u64;
        self.at += count;
        self.offered = self.at;
        self.stalled = None;
        self.rest = rest;
        written.bytes += count;
        if self.at == ring.end() {
            return Ok(self.rest_here(ring, written));
        }
        Ok(Next::Again)
    }

    /// At the end of the ring.
    #[inline]
    fn rest_here(&mut self, ring: &Ring, written: &mut Written) -> Next {
        if self.at != APART {
            written.events += ring.events() - self.seen;
            self.seen = ring.events();
        }
        self.is_hungry = true;
        Next::Wait
    }

    /// At the end of what it had begun: the ring may go on right there.
    fn pass(&mut self, rest: &Rest, ring: &Ring, written: &mut Written) -> Next {
        if self.at >= ring.start() {
            return Next::Again;
        }
        written.events += rest.index.saturating_sub(self.seen);
        let oldest = ring.place(ring.start());
        Next::Behind(Lost {
            from: rest.sequence,
            behind: oldest.sequence,
            count: oldest.index.saturating_sub(rest.index),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_ends_when_its_credential_has_expired_and_no_clock_is_read_without_one() {
        let mut seats = Seats::default();
        let plain = seats.enter(Some(9));
        seats.look(1, 10, || panic!("nobody has a credential"));
        let (one, late) = (seats.enter(Some(5)), seats.enter(Some(3)));
        seats.hold_to(one, Arc::new(Validity::new(Some(1000))));
        seats.hold_to(late, Arc::new(Validity::new(Some(u64::MAX))));
        seats.look(2, 10, || 999);
        assert_eq!(seats.end(one), None);
        seats.look(3, 10, || 1000);
        assert_eq!(seats.end(one), Some(StreamEnd::Expired));
        assert_eq!(
            seats.end(late),
            Some(StreamEnd::Time),
            "the earlier of both"
        );
        assert_eq!(seats.end(plain), None);
        seats.leave(one);
        let next = seats.enter(None);
        seats.look(4, 10, || 2000);
        assert_eq!(
            (next, seats.end(next)),
            (one, None),
            "of the one before nothing is left"
        );
    }

    #[test]
    fn a_stream_ends_when_its_credential_is_revoked_and_others_go_on() {
        let mut seats = Seats::default();
        let stolen = Arc::new(Validity::new(None));
        let (one, two, other, plain) = (
            seats.enter(None),
            seats.enter(None),
            seats.enter(None),
            seats.enter(None),
        );
        seats.hold_to(one, Arc::clone(&stolen));
        seats.hold_to(two, Arc::clone(&stolen));
        seats.hold_to(other, Arc::new(Validity::new(None)));
        seats.finish_revoked();
        assert_eq!(seats.end(one), None);
        stolen.revoke();
        seats.look(1, 10, || panic!("no credential expires"));
        assert_eq!(seats.end(one), None, "nobody looks before it is told to");
        seats.finish_revoked();
        for (key, end) in [
            (one, Some(StreamEnd::Revoked)),
            (two, Some(StreamEnd::Revoked)),
            (other, None),
            (plain, None),
        ] {
            assert_eq!(seats.end(key), end, "{key}");
        }
        let late = seats.enter(None);
        seats.hold_to(late, stolen);
        assert_eq!(
            seats.end(late),
            Some(StreamEnd::Revoked),
            "it came too late"
        );
    }

    /// A subscriber is a few words, and costs no more for the credentials of others.
    #[test]
    fn a_seat_has_96_bytes() {
        assert_eq!(size_of::<Seat>(), 96);
    }

    #[test]
    fn records_of_tls_are_progress_while_a_write_is_pending() {
        let mut seats = Seats::default();
        let key = seats.enter(None);
        let context = Context::from_waker(Waker::noop());
        let mut end_after = |tick: u32, records: u64| {
            seats.note_other((key, tick), Some(records), &context);
            seats.look(tick, 2, || 0);
            seats.end(key)
        };
        for tick in 0..10 {
            assert_eq!(end_after(tick, u64::from(tick) * 100), None, "{tick}");
        }
        assert_eq!(end_after(10, 900), None);
        assert_eq!(end_after(11, 900), Some(StreamEnd::Stalled));
    }
}
