//! The streams of a connection: what is known of each, and a store that finds them by number.

use std::collections::VecDeque;

use super::flow::{ReceiveWindow, SendWindow};
use super::head::{Fields, Head};

/// The number of a stream (RFC 9113, section 5.1.1). Numbers are never used twice.
pub type StreamId = u32;

/// Memory that a free place keeps for the next stream.
const SPARE_MAX: usize = 16 * 1024;

/// A stream that is not released.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub id: StreamId,
    pub send_window: SendWindow,
    pub receive_window: ReceiveWindow,
    /// The head was sent that is not interim.
    pub is_answered: bool,
    /// Nothing more will be sent: END_STREAM or RST_STREAM was sent, or the peer reset it.
    pub is_send_ended: bool,
    /// Nothing more will be received.
    pub is_receive_ended: bool,
    /// END_STREAM was received.
    pub is_complete: bool,
    /// RST_STREAM was sent or received.
    pub is_reset: bool,
    /// It counts among the open streams of its side.
    pub is_counted: bool,
    /// The caller knows of it.
    pub is_known: bool,
    /// The head of the message was received that is not interim.
    pub has_head: bool,
    /// The message received has no body whatever its head says: it answers HEAD.
    pub is_bodiless: bool,
    /// The caller wanted to send more than there was room for.
    pub is_blocked: bool,
    /// It stands in the list of blocked streams.
    pub is_listed: bool,
    /// When it last sent data, in turns of the connection.
    pub served: u64,
    /// `Data` waits among the events.
    pub has_data_event: bool,
    /// `Writable` waits among the events.
    pub has_writable_event: bool,
    /// How much body is still to come by `content-length`.
    pub expected: Option<u64>,
    /// How many interim heads were received.
    pub interims: u32,
    pub heads: VecDeque<Head>,
    pub trailers: Option<Fields>,
    body: Vec<u8>,
    body_start: usize,
}

impl Stream {
    /// The received bytes that wait to be consumed.
    #[inline]
    pub(crate) fn body(&self) -> &[u8] {
        self.body.get(self.body_start..).unwrap_or_default()
    }

    pub(crate) fn append(&mut self, data: &[u8]) {
        self.body.extend_from_slice(data);
    }

    /// Drops the first `count` waiting bytes; the answer is how many there were.
    #[inline]
    pub(crate) fn drop_body(&mut self, count: usize) -> usize {
        let count = count.min(self.body().len());
        self.body_start += count;
        if self.body_start == self.body.len() {
            self.body.clear();
            self.body_start = 0;
            self.shrink();
        } else if self.body_start > self.body.len() / 2 {
            self.body.drain(..self.body_start);
            self.body_start = 0;
        }
        count
    }

    fn shrink(&mut self) {
        if self.body.capacity() > SPARE_MAX {
            self.body = Vec::new();
        }
    }

    /// Whether both sides have ended (RFC 9113, section 5.1: closed).
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_send_ended && self.is_receive_ended
    }

    /// Whether no frame for it means anything any more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_reset || self.is_closed()
    }

    /// Makes it a fresh stream that uses the same memory.
    fn renew(&mut self, id: StreamId) {
        let mut body = std::mem::take(&mut self.body);
        let mut heads = std::mem::take(&mut self.heads);
        body.clear();
        heads.clear();
        *self = Self {
            id,
            body,
            heads,
            ..Self::default()
        };
    }
}

/// A place of the index that is free.
const NOWHERE: u32 = u32::MAX;

/// The streams by number. Numbers of one side follow each other, so their lower bits are as good
/// as a hash: nearly every stream is found at the first look.
#[derive(Debug)]
pub(crate) struct Streams {
    places: Vec<Stream>,
    free: Vec<u32>,
    /// Places of streams: a hash table with linear probing and Robin Hood hashing, which keeps an
    /// entry that is further from its home slot in front. Stream numbers grow by two, so nearly all
    /// entries are in their home slots, and neither a look-up nor a removal scans the neighbours.
    /// The length is a power of two; the table is never full.
    index: Vec<u32>,
    count: usize,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            index: vec![NOWHERE; 32],
            count: 0,
        }
    }

    /// How many streams are not released.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    fn home(&self, id: StreamId) -> usize {
        (id >> 1) as usize & (self.index.len() - 1)
    }

    /// Where in the index the stream is, and its place.
    #[inline]
    fn find(&self, id: StreamId) -> Option<(usize, usize)> {
        let mut at = self.home(id);
        for distance in 0.. {
            let place = *self.index.get(at)?;
            if place == NOWHERE {
                return None;
            }
            let found = self.places.get(place as usize)?.id;
            if found == id {
                return Some((at, place as usize));
            }
            if self.distance(at, found) < distance {
                return None;
            }
            at = (at + 1) & (self.index.len() - 1);
        }
        None
    }

    /// How far from its home a stream is.
    #[inline]
    fn distance(&self, at: usize, id: StreamId) -> usize {
        at.wrapping_sub(self.home(id)) & (self.index.len() - 1)
    }

    #[inline]
    fn id_of(&self, place: u32) -> StreamId {
        self.places
            .get(place as usize)
            .map_or(0, |stream| stream.id)
    }

    #[inline]
    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        let (_, place) = self.find(id)?;
        self.places.get(place)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let (_, place) = self.find(id)?;
        self.places.get_mut(place)
    }

    /// Every stream.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.places.iter_mut().filter(|stream| stream.id != 0)
    }

    /// Adds a stream. The number is not 0 and was never there before.
    pub(crate) fn insert(&mut self, id: StreamId) -> &mut Stream {
        if (self.count + 1) * 2 > self.index.len() {
            self.grow();
        }
        let place = self
            .free
            .pop()
            .map_or(self.places.len(), |place| place as usize);
        if place == self.places.len() {
            self.places.push(Stream::default());
        }
        self.enter(id, place as u32);
        self.count += 1;
        let stream = &mut self.places[place];
        stream.renew(id);
        stream
    }

    fn enter(&mut self, id: StreamId, place: u32) {
        let (mut at, mut place) = (self.home(id), place);
        let mut distance = 0;
        while let Some(&there) = self.index.get(at)
            && there != NOWHERE
        {
            let theirs = self.distance(at, self.id_of(there));
            if theirs < distance {
                self.index[at] = place;
                (place, distance) = (there, theirs);
            }
            at = (at + 1) & (self.index.len() - 1);
            distance += 1;
        }
        if let Some(found) = self.index.get_mut(at) {
            *found = place;
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.index = vec![NOWHERE; self.index.len() * 2];
        for place in 0..self.places.len() {
            let id = self.id_of(place as u32);
            if id != 0 {
                self.enter(id, place as u32);
            }
        }
    }

    /// Takes a stream out.
    pub(crate) fn remove(&mut self, id: StreamId) {
        let Some((at, place)) = self.find(id) else {
            return;
        };
        if let Some(stream) = self.places.get_mut(place) {
            stream.id = 0;
            stream.heads.clear();
            stream.trailers = None;
            stream.body.clear();
            stream.body_start = 0;
            stream.shrink();
        }
        self.free.push(place as u32);
        self.count -= 1;
        self.close_gap(at);
    }

    /// Moves those behind a gap one nearer to their homes.
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.index.len() - 1;
        loop {
            let at = (gap + 1) & mask;
            let place = self.index.get(at).copied().unwrap_or(NOWHERE);
            if place == NOWHERE || self.distance(at, self.id_of(place)) == 0 {
                break;
            }
            self.index.swap(gap, at);
            gap = at;
        }
        if let Some(place) = self.index.get_mut(gap) {
            *place = NOWHERE;
        }
    }
}

/// The numbers of the streams that were reset here last: frames for them were sent before the
/// peer knew, and are ignored (RFC 9113, section 5.1: closed).
#[derive(Debug)]
pub(crate) struct ResetHere {
    /// With what the peer was still allowed to send on each.
    streams: VecDeque<(StreamId, usize)>,
}

impl ResetHere {
    /// More than a client has under way: early answers to uploads may be a thousand in one round
    /// trip.
    const MOST: usize = 1024;

    pub(crate) fn new() -> Self {
        Self {
            streams: VecDeque::new(),
        }
    }

    pub(crate) fn add(&mut self, id: StreamId, window: usize) {
        if self.streams.len() >= Self::MOST {
            self.streams.pop_front();
        }
        self.streams.push_back((id, window));
    }

    pub(crate) fn has(&self, id: StreamId) -> bool {
        self.streams.iter().any(|&(known, _)| known == id)
    }

    /// Takes DATA that has come for a stream: whether it is within the window that the peer had, if
    /// the stream is known. Empty frames use no window and may be any number: they are not.
    pub(crate) fn take(&mut self, id: StreamId, count: usize) -> Option<bool> {
        let (_, window) = self.streams.iter_mut().find(|(known, _)| *known == id)?;
        let is_within = count > 0 && count <= *window;
        *window = window.saturating_sub(count);
        Some(is_within)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fastrand::Rng;

    use super::*;

    #[test]
    fn streams_are_found_whatever_was_removed() {
        let mut streams = Streams::new();
        let mut known = BTreeSet::new();
        let (mut random, mut next) = (Rng::with_seed(7), 1);
        for _ in 0..20_000 {
            if known.len() < 200 && random.bool() {
                next += 2 * random.u32(1..=40);
                streams.insert(next).append(b"x");
                known.insert(next);
            } else if let Some(&id) = known.iter().nth(random.usize(..200)) {
                streams.remove(id);
                known.remove(&id);
                assert!(streams.get(id).is_none());
            }
            assert_eq!(streams.len(), known.len());
            assert!(
                known
                    .iter()
                    .all(|&id| streams.get(id).is_some_and(|s| s.body() == b"x"))
            );
        }
        assert_eq!(streams.iter_mut().count(), known.len());
    }

    #[test]
    fn a_body_is_dropped_piece_by_piece() {
        let mut stream = Stream::default();
        stream.append(b"abcdef");
        assert_eq!(stream.drop_body(4), 4);
        stream.append(b"gh");
        assert_eq!(stream.body(), b"efgh");
        assert_eq!(stream.drop_body(9), 4);
        assert_eq!(stream.body(), b"");
    }
}
