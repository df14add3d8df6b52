//! The encoded events of a channel as one long row of bytes, kept in a few pieces. Every reader has
//! a place in it, an offset that only grows, so nothing is copied or queued for any of them.

use std::collections::VecDeque;
use std::rc::Rc;

/// The smallest and the largest piece that is made for small frames.
const SEGMENT: (usize, usize) = (1024, 64 * 1024);

/// Bytes that lie side by side.
#[derive(Debug)]
pub(crate) struct Segment {
    start: u64,
    bytes: Vec<u8>,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// How many bytes it has allocated.
    pub fn allocated(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// The bytes from this offset up to that one.
    pub fn between(&self, from: u64, to: u64) -> &[u8] {
        let place = |offset: u64| usize::try_from(offset.saturating_sub(self.start));
        match (place(from), place(to)) {
            (Ok(from), Ok(to)) => self.bytes.get(from..to).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// Where a frame begins, and what it is.
#[derive(Clone, Copy, Debug)]
struct Frame {
    start: u64,
    /// The sequence of the event, or of the next one when the frame is none.
    sequence: u64,
    /// How many events stand before it in the row.
    index: u64,
}

/// What has to be known of a place whose bytes are about to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The next place at or behind it where a frame begins.
    pub boundary: u64,
    /// The sequence of the frame there.
    pub sequence: u64,
    /// How many events stand before that frame.
    pub index: u64,
}

/// The encoded events of a channel.
#[derive(Debug)]
pub(crate) struct Ring {
    segments: VecDeque<Segment>,
    frames: VecDeque<Frame>,
    end: u64,
    /// How many events have ever been put in.
    events: u64,
    /// Every event from this sequence on has been put in, or left out on purpose, and is kept.
    covered: u64,
    /// The sequence that comes next.
    next: u64,
    bytes_max: u64,
    /// The size of the next segment.
    segment: usize,
    /// How many bytes the segments have allocated.
    allocated: u64,
}

impl Ring {
    /// An empty ring that begins with the event of this sequence and keeps at most about this many
    /// bytes.
    pub fn new(next: u64, bytes_max: u64) -> Self {
        Self {
            segments: VecDeque::new(),
            frames: VecDeque::new(),
            end: 0,
            events: 0,
            covered: next,
            next,
            bytes_max,
            segment: SEGMENT.0,
            allocated: 0,
        }
    }

    /// How many bytes the segments have allocated.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Where the first byte that is kept lies.
    pub fn start(&self) -> u64 {
        self.segments.front().map_or(self.end, |it| it.start)
    }

    /// Where the next byte will lie.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many events have been put in.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How many bytes are kept.
    pub fn len(&self) -> u64 {
        self.end - self.start()
    }

    /// Whether the next frame needs a new segment: a good moment to forget old ones.
    pub fn is_turning(&self, length: usize) -> bool {
        self.segments.back().is_none_or(|last| !fits(last, length))
    }

    /// Puts in the frame of an event.
    pub fn push_event(&mut self, sequence: u64, frame: &[u8]) {
        self.push(sequence, frame);
        self.events += 1;
        self.next = sequence + 1;
    }

    /// Puts in a frame that is no event.
    pub fn push_other(&mut self, frame: &[u8]) {
        self.push(self.next, frame);
    }

    /// Notes that events before this sequence are not here, and that it comes next. The history has
    /// them.
    pub fn leave_gap(&mut self, next: u64) {
        self.covered = self.covered.max(next);
        self.next = next;
    }

    /// Notes that the event of this sequence has been left out.
    pub fn skip(&mut self, sequence: u64) {
        self.next = sequence + 1;
    }

    fn push(&mut self, sequence: u64, frame: &[u8]) {
        if self.is_turning(frame.len()) {
            let bytes = Vec::with_capacity(self.segment.max(frame.len()));
            self.allocated += bytes.capacity() as u64;
            let start = self.end;
            self.segments.push_back(Segment { start, bytes });
            // In small pieces the bound is kept more closely.
            let quarter = usize::try_from(self.bytes_max / 4).unwrap_or(usize::MAX);
            let most = quarter.clamp(SEGMENT.0, SEGMENT.1);
            self.segment = (self.segment * 2).min(most);
        }
        self.frames.push_back(Frame {
            start: self.end,
            sequence,
            index: self.events,
        });
        if let Some(last) = self.segments.back_mut() {
            last.bytes.extend_from_slice(frame);
        }
        self.end += frame.len() as u64;
    }

    /// The bytes from this offset on that lie side by side. None when it has been forgotten; empty
    /// at the end.
    #[inline]
    pub fn slice(&self, from: u64) -> Option<&[u8]> {
        let last = self.segments.back();
        let found = match last.filter(|it| it.start <= from) {
            Some(last) => Some(last),
            None => self.earlier(from),
        };
        match found {
            Some(segment) if from <= segment.end() => Some(segment.between(from, segment.end())),
            _ if from == self.end => Some(&[]),
            _ => None,
        }
    }

    fn earlier(&self, from: u64) -> Option<&Segment> {
        let at = self.segments.partition_point(|it| it.start <= from);
        self.segments.get(at.checked_sub(1)?)
    }

    /// The next place at or behind this one where a frame begins.
    pub fn place(&self, at: u64) -> Place {
        let found = self.frames.partition_point(|it| it.start < at);
        self.place_of(self.frames.get(found))
    }

    fn place_of(&self, frame: Option<&Frame>) -> Place {
        frame.map_or(
            Place {
                boundary: self.end,
                sequence: self.next,
                index: self.events,
            },
            |frame| Place {
                boundary: frame.start,
                sequence: frame.sequence,
                index: frame.index,
            },
        )
    }

    /// Where this event begins, or the one behind it when it has been left out. None when it has
    /// been forgotten or was never here.
    pub fn find(&self, sequence: u64) -> Option<u64> {
        if sequence < self.covered || sequence > self.next {
            return None;
        }
        let at = self.frames.partition_point(|it| it.sequence < sequence);
        Some(self.place_of(self.frames.get(at)).boundary)
    }

    /// Where the first event behind this one begins; none when it has not come yet.
    pub fn behind(&self, sequence: u64) -> Option<u64> {
        let at = self.frames.partition_point(|it| it.sequence <= sequence);
        self.frames.get(at).map(|it| it.start)
    }

    /// Where the last event begins, unless it has been forgotten.
    pub fn last_event(&self) -> Option<u64> {
        let mut behind = self.events;
        for frame in self.frames.iter().rev() {
            if frame.index < behind {
                return Some(frame.start);
            }
            behind = frame.index;
        }
        None
    }

    /// Forgets every segment that ends at or before this offset.
    pub fn release(&mut self, before: u64) {
        while self.segments.front().is_some_and(|it| it.end() <= before) {
            self.forget_first();
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.release(self.end);
    }

    /// Forgets what lies before this offset, but keeps about that many bytes at the end.
    pub fn trim(&mut self, before: u64, tail: u64) {
        while let [first, _, ..] = self.segments.make_contiguous() {
            if first.end() > before || self.end - first.end() < tail {
                return;
            }
            self.forget_first();
        }
    }

    /// The oldest segment when there is more than may be, for those who are still in it. The last
    /// one stays.
    pub fn evict(&mut self) -> Option<Rc<Segment>> {
        if self.len() <= self.bytes_max || self.segments.len() < 2 {
            return None;
        }
        self.forget_first().map(Rc::new)
    }

    /// Whether the oldest segment is about to be evicted, and where it ends.
    pub fn surplus(&self) -> Option<u64> {
        let is_full = self.len() > self.bytes_max && self.segments.len() >= 2;
        self.segments.front().filter(|_| is_full).map(Segment::end)
    }

    fn forget_first(&mut self) -> Option<Segment> {
        let first = self.segments.pop_front()?;
        self.allocated -= first.allocated();
        while let Some(frame) = self.frames.front().filter(|it| it.start < first.end()) {
            // A frame that is no event has the sequence of the next one, which is not lost.
            self.covered = self.covered.max((frame.sequence + 1).min(self.next));
            self.frames.pop_front();
        }
        Some(first)
    }
}

fn fits(segment: &Segment, length: usize) -> bool {
    segment.bytes.capacity() - segment.bytes.len() >= length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(frames: u64, bytes_max: u64) -> Ring {
        let mut ring = Ring::new(1, bytes_max);
        for sequence in 1..=frames {
            ring.push_event(sequence, format!("<{sequence}>").as_bytes());
        }
        ring
    }

    fn read(ring: &Ring, mut from: u64) -> String {
        let mut text = Vec::new();
        while from < ring.end() {
            let slice = ring.slice(from).unwrap();
            assert!(!slice.is_empty());
            text.extend_from_slice(slice);
            from += slice.len() as u64;
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_place_reads_on_to_the_end() {
        let ring = filled(3000, u64::MAX);
        let whole = read(&ring, 0);
        assert!(whole.starts_with("<1><2><3>") && whole.ends_with("<2999><3000>"));
        for from in [0, 1, 7, 1023, 1024, 1025, 5000, whole.len() as u64] {
            assert_eq!(read(&ring, from), whole[from as usize..]);
        }
        assert!(ring.slice(ring.end() + 1).is_none());
    }

    #[test]
    fn an_event_is_found_or_known_to_be_gone() {
        let mut ring = filled(3000, 4096);
        while let Some(end) = ring.surplus() {
            let place = ring.place(end - 1);
            let segment = ring.evict().unwrap();
            assert_eq!(segment.end(), end);
            assert_eq!((place.boundary, ring.start()), (end, end));
        }
        let first = ring.covered;
        assert!(ring.find(first - 1).is_none() && ring.slice(0).is_none());
        for sequence in first..=3000 {
            let from = ring.find(sequence).unwrap();
            assert!(read(&ring, from).starts_with(&format!("<{sequence}>")));
            assert_eq!(ring.behind(sequence - 1), Some(from));
        }
        assert_eq!(ring.find(3001), Some(ring.end()));
        assert_eq!((ring.find(3002), ring.behind(3000)), (None, None));
    }

    #[test]
    fn what_is_left_out_does_not_hide_what_follows() {
        let mut ring = Ring::new(5, 1000);
        ring.push_event(5, b"five");
        ring.skip(6);
        ring.push_other(b":");
        ring.push_event(7, b"seven");
        assert_eq!(read(&ring, ring.find(6).unwrap()), ":seven");
        assert_eq!(read(&ring, ring.find(7).unwrap()), ":seven");
        assert_eq!(ring.find(4), None);
        assert_eq!((ring.events(), ring.place(1).sequence), (2, 7));
    }

    #[test]
    fn what_has_been_released_takes_no_memory_and_is_asked_of_the_history() {
        let mut ring = filled(100, u64::MAX);
        let (middle, before) = (ring.find(50).unwrap(), ring.allocated());
        assert!(before >= ring.len());
        ring.release(middle);
        assert_eq!((ring.allocated(), ring.start()), (before, 0), "it is read");
        ring.release(ring.end());
        assert_eq!((ring.allocated(), ring.start()), (0, ring.end()));
        assert_eq!((ring.find(100), ring.find(101)), (None, Some(ring.end())));
        assert_eq!(ring.last_event(), None);
        ring.push_event(101, b"<101>");
        let at = ring.last_event().unwrap();
        ring.push_other(b":");
        assert_eq!(ring.last_event(), Some(at));
        assert_eq!(read(&ring, at), "<101>:");
        // Whoever has had less than what is behind a gap does not pass over it.
        ring.push_other(b"gap");
        ring.leave_gap(110);
        ring.push_event(110, b"<110>");
        assert_eq!((ring.find(102), ring.find(109)), (None, None));
        assert_eq!(read(&ring, ring.find(110).unwrap()), "<110>");
    }

    #[test]
    fn what_all_have_read_is_forgotten_but_for_a_tail() {
        let mut ring = filled(20_000, u64::MAX);
        ring.trim(ring.end(), 10_000);
        assert!(ring.len() >= 10_000 && ring.len() < 10_000 + SEGMENT.1 as u64 * 2);
        let (middle, before) = (ring.start() + 1, ring.start());
        ring.trim(middle, 0);
        assert_eq!(ring.start(), before);
    }
}
