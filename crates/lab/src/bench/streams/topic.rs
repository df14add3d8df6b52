//! What is known of a topic's events. The first subscriber that has an event lets it be checked in
//! full: a stamped event by its hash, a document or a patch by the document that must come of it.
//! All others must have the same bytes.

use std::collections::VecDeque;

use serde_json::Value;

use super::patch;
use super::unit::{Data, Unit};
use crate::document::{Document, Shape, told};
use crate::stamp;

/// How many bytes of events are remembered of a topic, beside the last one.
const KNOWN_BYTES: usize = 4 * 1024 * 1024;
const KNOWN_MAX: usize = 512;

/// An event that has been checked.
#[derive(Debug)]
pub(super) struct Known {
    /// As it stands on the wire, without chunks around it.
    pub raw: Vec<u8>,
    pub number: u64,
    /// When it was scheduled.
    pub at: u64,
    /// How many subscribers have it.
    pub count: usize,
}

/// What somebody's event turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A comment, a control message.
    Nothing,
    /// The event of this number, scheduled at this instant.
    Good { number: u64, at: u64 },
    /// A whole document that stands for all events up to this number.
    Whole { number: u64, at: u64 },
    /// The system says that something is missing here.
    Gap,
    /// It is not what was published.
    Corrupt(String),
}

/// How the events of a topic are checked.
enum Witness {
    /// Each has a hash of its own.
    Stamped,
    /// They tell of a document that is renewed.
    Document(Box<Mirror>),
}

/// The document as its subscribers must have it.
struct Mirror {
    shape: Shape,
    number: u32,
    /// What the source has made, as far as it is known.
    source: Document,
    /// What came of the first document and all patches.
    value: Value,
    /// The tick of `value`; 0 before the first.
    tick: u64,
}

/// One topic.
pub(super) struct Topic {
    known: VecDeque<Known>,
    bytes: usize,
    witness: Witness,
    /// Whether ids must be an epoch and a sequence without gaps.
    has_ids: bool,
    last_id: Option<(Vec<u8>, u64)>,
    /// The highest number that has come to anybody.
    pub newest: u64,
}

impl Topic {
    /// A topic of stamped events.
    pub fn stamped(has_ids: bool) -> Self {
        Self {
            known: VecDeque::new(),
            bytes: 0,
            witness: Witness::Stamped,
            has_ids,
            last_id: None,
            newest: 0,
        }
    }

    /// A topic whose events tell of a document.
    pub fn of_document(shape: Shape, number: u32, has_ids: bool) -> Self {
        let mirror = Mirror {
            shape,
            number,
            source: Document::new(shape, number, 0),
            value: Value::Null,
            tick: 0,
        };
        Self {
            witness: Witness::Document(Box::new(mirror)),
            ..Self::stamped(has_ids)
        }
    }

    /// The event of this number, while it is remembered.
    pub fn known(&mut self, number: u64) -> Option<&mut Known> {
        let first = self.known.front()?.number;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.known
            .get_mut(at)
            .filter(|known| known.number == number)
    }

    /// Looks at what a subscriber got. `raw` are its bytes; `is_first` says that nothing came to
    /// this subscriber before.
    pub fn check(&mut self, unit: &Unit<'_>, raw: &[u8], is_first: bool) -> Verdict {
        let Some(data) = unit.data.as_ref().map(Data::bytes) else {
            return Verdict::Nothing;
        };
        match unit.name {
            b"" | b"message" | b"event" | b"snapshot" | b"patch" => {}
            b"gap" | b"reset" => return Verdict::Gap,
            b"error" => return Verdict::Corrupt(format!("an error: {}", shown(data))),
            _ => return Verdict::Nothing,
        }
        let verdict = match &mut self.witness {
            Witness::Stamped => stamped(data),
            Witness::Document(mirror) => mirror.check(data, is_first),
        };
        let (Verdict::Good { number, at } | Verdict::Whole { number, at }) = verdict else {
            return verdict;
        };
        if let Some(known) = self.known(number)
            && matches!(verdict, Verdict::Good { .. })
            && known.raw != raw
        {
            return Verdict::Corrupt(format!("event {number} differs among subscribers"));
        }
        let is_new = number > self.newest;
        if is_new && !(is_first && matches!(verdict, Verdict::Whole { .. })) {
            if let Err(problem) = self.check_id(unit.id, number) {
                return Verdict::Corrupt(problem);
            }
            self.remember(number, at, raw);
        }
        verdict
    }

    /// The sequence number in an id must follow that of the event before.
    fn check_id(&mut self, id: &[u8], number: u64) -> Result<(), String> {
        if !self.has_ids {
            return Ok(());
        }
        let split = id.iter().rposition(|byte| *byte == b'-');
        let parts = split.map(|at| id.split_at(at));
        let parts = parts.and_then(|(epoch, rest)| {
            let (sequence, length) = stamp::number(rest.get(1..)?)?;
            (length + 1 == rest.len()).then_some((epoch.to_vec(), sequence))
        });
        let shown = String::from_utf8_lossy(id);
        let (epoch, sequence) = parts.ok_or_else(|| format!("no id: `{shown}`"))?;
        if let Some((last_epoch, last)) = &self.last_id {
            let follows = sequence == last + number.saturating_sub(self.newest);
            if epoch != *last_epoch || !follows {
                let before = String::from_utf8_lossy(last_epoch);
                return Err(format!("id `{shown}` follows `{before}-{last}`"));
            }
        }
        self.last_id = Some((epoch, sequence));
        Ok(())
    }

    fn remember(&mut self, number: u64, at: u64, raw: &[u8]) {
        if number != self.newest + 1 {
            self.known.clear();
            self.bytes = 0;
        }
        self.newest = number;
        self.bytes += raw.len();
        self.known.push_back(Known {
            raw: raw.to_vec(),
            number,
            at,
            count: 0,
        });
        while self.known.len() > 1 && (self.bytes > KNOWN_BYTES || self.known.len() > KNOWN_MAX) {
            let gone = self.known.pop_front();
            self.bytes -= gone.map_or(0, |gone| gone.raw.len());
        }
    }
}

fn stamped(data: &[u8]) -> Verdict {
    match stamp::find(data) {
        Some(stamp) if stamp.is_whole => Verdict::Good {
            number: stamp.number,
            at: stamp.at,
        },
        Some(stamp) => Verdict::Corrupt(format!("event {} has another hash", stamp.number)),
        // What a system says of itself, such as that the client is connected.
        None if data.len() < stamp::SIZE_MIN || !has_number(data) => Verdict::Nothing,
        None => Verdict::Corrupt(format!("no event: {}", shown(data))),
    }
}

fn has_number(data: &[u8]) -> bool {
    memchr::memmem::find(data, b"\"n\"").is_some()
}

fn shown(data: &[u8]) -> String {
    let start = data.get(..data.len().min(200)).unwrap_or_default();
    String::from_utf8_lossy(start).into_owned()
}

impl Mirror {
    fn check(&mut self, data: &[u8], is_first: bool) -> Verdict {
        match data.first() {
            Some(b'{') => self.whole(data, is_first),
            Some(b'[') => self.patched(data),
            _ => Verdict::Corrupt(format!("neither document nor patch: {}", shown(data))),
        }
    }

    fn whole(&mut self, data: &[u8], is_first: bool) -> Verdict {
        let Some((number, tick, at)) = told(data) else {
            return Verdict::Corrupt(format!("no document: {}", shown(data)));
        };
        if number != self.number {
            return Verdict::Corrupt(format!("document {number} in topic {}", self.number));
        }
        if data != self.shape.text(number, tick, at) {
            return Verdict::Corrupt(format!("document {number} at tick {tick} is another"));
        }
        // Patches for the others begin at what they have; only the stream of events moves on.
        let may_move = !is_first || self.tick == 0;
        if may_move && tick > self.tick {
            self.value = serde_json::from_slice(data).unwrap_or(Value::Null);
            self.tick = tick;
        }
        Verdict::Whole { number: tick, at }
    }

    fn patched(&mut self, data: &[u8]) -> Verdict {
        let Some((tick, at)) = stamp_of(data) else {
            return Verdict::Corrupt(format!("a patch without a tick: {}", shown(data)));
        };
        let result = match tick > self.tick {
            true => self.follow(data, tick, at),
            false => self.follow_late(data, tick, at),
        };
        match result {
            Ok(()) => Verdict::Good { number: tick, at },
            Err(problem) => Verdict::Corrupt(format!("patch to tick {tick}: {problem}")),
        }
    }

    /// Applies a patch that nobody has had before.
    fn follow(&mut self, data: &[u8], tick: u64, at: u64) -> Result<(), String> {
        patch::apply(&mut self.value, data)?;
        self.tick = tick;
        while self.source.tick < tick {
            self.source.renew(at);
        }
        self.source.at = at;
        let mut wanted = Vec::new();
        self.source.write(&mut wanted);
        same(&self.value, &wanted)
    }

    /// Applies a patch from behind the others to what was there then.
    fn follow_late(&self, data: &[u8], tick: u64, at: u64) -> Result<(), String> {
        let before = self.shape.text(self.number, tick.saturating_sub(1), at);
        let mut value = serde_json::from_slice(&before).map_err(|error| error.to_string())?;
        patch::apply(&mut value, data)?;
        same(&value, &self.shape.text(self.number, tick, at))
    }
}

/// Whether a document is what it must be, member by member in the same order.
fn same(value: &Value, wanted: &[u8]) -> Result<(), String> {
    let text = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    match text == wanted {
        true => Ok(()),
        false => Err("the document is not what the source had".to_owned()),
    }
}

/// The tick and the instant that a patch sets.
fn stamp_of(patch: &[u8]) -> Option<(u64, u64)> {
    let value = |path: &[u8]| {
        let at = memchr::memmem::find(patch, path)?;
        let rest = patch.get(at + path.len()..)?;
        let rest = rest.strip_prefix(b",\"value\":")?;
        stamp::number(rest).map(|(number, _)| number)
    };
    Some((value(b"\"path\":\"/tick\"")?, value(b"\"path\":\"/at\"")?))
}

#[cfg(test)]
mod tests;
