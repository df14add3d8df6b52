//! One subscriber: its connection, what it has of the stream, and which events came to it.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;

use super::topic::{Topic, Verdict};
use super::unit;
use crate::bench::http;
use crate::wire::{BodyLength, invalid};

/// A subscriber that is further behind than this has lost what is between.
const MISSING_MAX: usize = 100_000;
/// More than this of one event or head is refused.
const PARTIAL_MAX: usize = 128 * 1024 * 1024;

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The head of the reply, which must have this status.
    Head {
        status: u16,
    },
    /// Server-sent events in chunks.
    Chunks,
    /// Server-sent events up to the end.
    Plain,
    /// WebSocket frames.
    Frames,
    Ended,
}

/// What a subscriber has told the books.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Events that came for the first time.
    pub delivered: u64,
    /// Whole documents with which streams began.
    pub initial: u64,
    pub duplicates: u64,
    /// Events that came behind a later one.
    pub disordered: u64,
    pub corrupt: u64,
    /// Places where the system said that something is missing, or sent a whole document instead.
    pub gaps: u64,
    /// Events that such a place stands for.
    pub skipped: u64,
    /// What the first thing was that went wrong.
    pub first_error: Option<String>,
    /// Bytes that were read.
    pub bytes: u64,
    /// Events that were left out: later ones came.
    pub lost: u64,
    /// Events at the end of the stream that had not come when the sample ended.
    pub behind: u64,
    /// Publications without an answer at the end.
    pub unanswered: u64,
}

impl Tally {
    fn corrupt(&mut self, problem: String) {
        self.corrupt += 1;
        self.first_error.get_or_insert(problem);
    }
}

/// Who is told of what comes.
pub(super) trait Arrivals {
    /// Bytes have been read just now.
    fn received(&mut self);

    /// An event has come to a subscriber for the first time: its topic, when it was scheduled, and
    /// whether all subscribers of the topic have it now.
    fn arrived(&mut self, topic: usize, at: u64, is_last: bool);
}

/// A subscriber.
pub(super) struct Reader {
    pub stream: TcpStream,
    pub topic: usize,
    /// What is sent once the connection is open.
    pub greeting: Vec<u8>,
    state: State,
    /// Bytes of the connection that are not taken.
    raw: Vec<u8>,
    /// Bytes of chunks that are not a whole event.
    carry: Vec<u8>,
    pub progress: Progress,
}

/// Which events have come.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Progress {
    /// The number that must come next; 0: whatever comes is the first.
    pub next: u64,
    /// Numbers that were left out, and are not explained.
    pub missing: Vec<u64>,
    /// Whether the system has said that something is missing here.
    is_excused: bool,
}

impl Progress {
    /// Notes a number. Whether it came for the first time.
    fn note(&mut self, number: u64, tally: &mut Tally) -> bool {
        if self.next == 0 {
            self.next = number;
        }
        if number < self.next {
            return match self.missing.iter().position(|missing| *missing == number) {
                Some(at) => {
                    self.missing.swap_remove(at);
                    tally.disordered += 1;
                    true
                }
                None => {
                    tally.duplicates += 1;
                    false
                }
            };
        }
        let left_out = number - self.next;
        if self.is_excused {
            tally.skipped += left_out;
        } else {
            let room = MISSING_MAX.saturating_sub(self.missing.len());
            self.missing.extend((self.next..number).take(room));
        }
        self.is_excused = false;
        self.next = number + 1;
        true
    }

    /// Notes a whole document that stands for everything up to this number. Whether it is news.
    fn note_whole(&mut self, number: u64, tally: &mut Tally) -> bool {
        if self.next == 0 {
            self.next = number + 1;
            tally.initial += 1;
            return false;
        }
        if number > self.next {
            tally.gaps += 1;
            tally.skipped += number - self.next;
            self.next = number;
        }
        self.note(number, tally)
    }

    /// How many events were left out.
    pub fn lost(&self) -> u64 {
        self.missing.len() as u64
    }

    /// How many are still to come when the last of all has this number.
    pub fn behind(&self, last: u64) -> u64 {
        (last + 1).saturating_sub(self.next.max(1))
    }
}

impl Reader {
    /// A subscriber that has asked, and whose reply must have this status.
    pub fn new(stream: TcpStream, topic: usize, status: u16) -> Self {
        Self {
            stream,
            topic,
            greeting: Vec::new(),
            state: State::Head { status },
            raw: Vec::new(),
            carry: Vec::new(),
            progress: Progress::default(),
        }
    }

    /// Whether the reply's head has come.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Head { .. } | State::Ended)
    }

    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Takes the connection down.
    pub fn end(&mut self) {
        self.state = State::Ended;
        self.raw = Vec::new();
        self.carry = Vec::new();
        // The peer may have done so first.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Reads everything that has come, through a buffer that all share.
    ///
    /// # Errors
    /// When the connection has ended, or something has come that is no stream.
    pub fn read(
        &mut self,
        room: &mut [u8],
        topic: &mut Topic,
        tally: &mut Tally,
        arrivals: &mut dyn Arrivals,
        subscribers: usize,
    ) -> io::Result<()> {
        loop {
            let count = match self.stream.read(room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            tally.bytes += count as u64;
            arrivals.received();
            let mut books = Books {
                topic,
                tally,
                arrivals,
                subscribers,
                topic_index: self.topic,
                progress: &mut self.progress,
            };
            let bytes = room.get(..count).unwrap_or_default();
            if self.raw.is_empty() {
                let taken = take(&mut self.state, &mut self.carry, bytes, &mut books)?;
                self.raw
                    .extend_from_slice(bytes.get(taken..).unwrap_or_default());
            } else {
                self.raw.extend_from_slice(bytes);
                let taken = take(&mut self.state, &mut self.carry, &self.raw, &mut books)?;
                drain(&mut self.raw, taken);
            }
            if !self.greeting.is_empty() && self.is_open() {
                // It is short, and nothing was sent before it but the request.
                self.stream.write_all(&std::mem::take(&mut self.greeting))?;
            }
            if self.raw.len() + self.carry.len() > PARTIAL_MAX {
                return Err(invalid("an event without an end"));
            }
            // Edge triggered: less than there was room for means that nothing is left.
            if count < room.len() {
                return Ok(());
            }
        }
    }
}

/// Takes bytes off, and gives memory back that only a large event needed.
fn drain(bytes: &mut Vec<u8>, count: usize) {
    if count >= bytes.len() {
        bytes.clear();
        bytes.shrink_to(4096);
    } else {
        bytes.drain(..count);
    }
}

/// Takes what is whole of the connection's bytes; returns how many bytes that is.
fn take(
    state: &mut State,
    carry: &mut Vec<u8>,
    bytes: &[u8],
    books: &mut Books<'_>,
) -> io::Result<usize> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match *state {
            State::Head { status } => {
                let Some(head) = http::head(rest)? else {
                    return Ok(at);
                };
                *state = after_head(&head, status, rest)?;
                at += head.size;
            }
            State::Plain => return Ok(at + books.events(rest)),
            State::Frames => return Ok(at + books.messages(rest)?),
            State::Ended => return Ok(bytes.len()),
            State::Chunks => {
                let Some((start, size, end)) = http::chunk(rest)? else {
                    return Ok(at);
                };
                if size == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let data = rest.get(start..start + size).unwrap_or_default();
                if carry.is_empty() {
                    let taken = books.events(data);
                    carry.extend_from_slice(data.get(taken..).unwrap_or_default());
                } else {
                    carry.extend_from_slice(data);
                    let taken = books.events(carry);
                    drain(carry, taken);
                }
                at += end;
            }
        }
    }
}

fn after_head(head: &http::Head, wanted: u16, bytes: &[u8]) -> io::Result<State> {
    if head.status != wanted {
        let text = String::from_utf8_lossy(bytes.get(..bytes.len().min(600)).unwrap_or_default());
        return Err(invalid(&format!("status {}: {text}", head.status)));
    }
    match (head.status, head.body) {
        (101, _) => Ok(State::Frames),
        (_, BodyLength::Chunked) => Ok(State::Chunks),
        (_, BodyLength::Unknown) => Ok(State::Plain),
        (_, BodyLength::Exactly(_)) => Err(invalid("a stream with a length")),
    }
}

/// Where events are entered.
struct Books<'a> {
    topic: &'a mut Topic,
    tally: &'a mut Tally,
    arrivals: &'a mut dyn Arrivals,
    subscribers: usize,
    topic_index: usize,
    progress: &'a mut Progress,
}

impl Books<'_> {
    /// Takes all whole events; returns their bytes.
    fn events(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if let Some(size) = self.next_known(rest) {
                if size > rest.len() {
                    return at;
                }
                at += size;
                continue;
            }
            let Some(unit) = unit::event(rest) else {
                return at;
            };
            let raw = rest.get(..unit.size).unwrap_or_default();
            self.enter(&unit, raw);
            at += unit.size;
        }
        at
    }

    /// Takes all whole messages; returns their bytes.
    fn messages(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if let Some(size) = self.next_known(rest) {
                if size > rest.len() {
                    return Ok(at);
                }
                at += size;
                continue;
            }
            let Some(unit) = unit::message(rest).map_err(invalid)? else {
                return Ok(at);
            };
            let raw = rest.get(..unit.size).unwrap_or_default();
            self.enter(&unit, raw);
            at += unit.size;
        }
        Ok(at)
    }

    /// Takes the next event by its bytes, when somebody else has had it. Its size, which is more
    /// than there are bytes while it is incomplete.
    fn next_known(&mut self, bytes: &[u8]) -> Option<usize> {
        let number = self.progress.next;
        let known = self.topic.known(number)?;
        let size = known.raw.len();
        let Some(whole) = bytes.get(..size) else {
            return known.raw.starts_with(bytes).then_some(size);
        };
        if known.raw != whole {
            return None;
        }
        known.count += 1;
        let (at, is_last) = (known.at, known.count == self.subscribers);
        self.progress.note(number, self.tally);
        self.tally.delivered += 1;
        self.arrivals.arrived(self.topic_index, at, is_last);
        Some(size)
    }

    /// Takes an event that must be looked at.
    fn enter(&mut self, unit: &unit::Unit<'_>, raw: &[u8]) {
        let is_first = self.progress.next == 0;
        let (number, at, is_news) = match self.topic.check(unit, raw, is_first) {
            Verdict::Nothing => return,
            Verdict::Gap => {
                self.tally.gaps += 1;
                self.progress.is_excused = true;
                return;
            }
            Verdict::Corrupt(problem) => return self.tally.corrupt(problem),
            Verdict::Good { number, at } => (number, at, self.progress.note(number, self.tally)),
            Verdict::Whole { number, at } => {
                let is_news = self.progress.note_whole(number, self.tally);
                (number, at, is_news)
            }
        };
        if is_news {
            let known = self.topic.known(number);
            let is_last = known.is_some_and(|known| {
                known.count += 1;
                known.count == self.subscribers
            });
            self.tally.delivered += 1;
            self.arrivals.arrived(self.topic_index, at, is_last);
        }
    }
}

#[cfg(test)]
mod tests;
