//! What is known of all streams without looking at the disk: which there are, where their entries
//! are, and what each file holds that is still needed. It is made from the files at the start.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::epochs::Epochs;
use super::record::{self, ENTRY_HEAD, EntryHead, Record, StreamRecord, records};
use super::slots::{Slot, Slots};
use super::{Keep, StreamInfo};
use crate::disk::DiskFile;

/// What does not fit what came before it.
const MISFIT: &str = "a record does not fit those before it";

/// A stream.
pub(super) struct Stream {
    pub name: Arc<str>,
    /// Those that the disk has.
    epochs: Epochs,
    /// The one that this run begins with its first entry.
    pub coming: Option<u64>,
    /// The number of the oldest entry that is kept.
    pub first: u64,
    /// The same as the disk has it for certain.
    pub noted: u64,
    pub slots: Slots,
    /// What the entries take on the disk.
    pub bytes: u64,
    /// What is kept; `None` as long as nobody has said so.
    pub keep: Option<Keep>,
}

impl Stream {
    /// The number of the next entry.
    pub fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// The place of an entry.
    pub fn slot(&self, sequence: u64) -> Option<&Slot> {
        let at = sequence.checked_sub(self.first)?;
        self.slots.get(usize::try_from(at).ok()?)
    }

    pub fn info(&self) -> StreamInfo {
        StreamInfo {
            epoch: self.coming.unwrap_or_else(|| self.epochs.last()),
            first: self.first,
            next: self.next(),
            events: self.slots.len() as u64,
            bytes: self.bytes,
        }
    }

    fn record(&self, number: u32) -> StreamRecord<'_> {
        StreamRecord {
            number,
            epoch: self.epochs.first(),
            first: self.first,
            next: self.next(),
            name: &self.name,
        }
    }

    /// The epochs, with the one that comes.
    pub fn epochs(&self) -> Epochs {
        let mut epochs = self.epochs.clone();
        if let Some(coming) = self.coming {
            epochs.begin(self.next(), coming);
        }
        epochs
    }

    /// Whether the oldest entry is more than is to be kept.
    fn is_over(&self, keep: &Keep, now: u64) -> bool {
        let events = self.slots.len() as u64;
        // The last one always stays.
        let Some(oldest) = self.slots.get(0).filter(|_| events > 1) else {
            return false;
        };
        if self.first >= keep.from {
            return false;
        }
        let age = Duration::from_millis(now.saturating_sub(oldest.at));
        events > keep.events || self.bytes > keep.bytes || keep.time.is_some_and(|time| age > time)
    }
}

/// What a file holds.
#[derive(Default)]
pub(super) struct Segment {
    /// For those who read; not there while files are opened.
    pub file: Option<Arc<dyn DiskFile>>,
    /// How many bytes the entries take that are still needed.
    pub live: u64,
    /// The entries of each stream that have been written here. Some may be needed no more, or be
    /// somewhere else by now.
    runs: BTreeMap<u32, Vec<Range<u64>>>,
}

impl Segment {
    fn add(&mut self, stream: u32, sequence: u64) {
        let runs = self.runs.entry(stream).or_default();
        match runs.last_mut().filter(|run| run.end == sequence) {
            Some(run) => run.end += 1,
            None => runs.push(sequence..sequence + 1),
        }
    }
}

/// All streams and files.
#[derive(Default)]
pub(super) struct State {
    pub streams: BTreeMap<u32, Stream>,
    pub names: HashMap<Arc<str>, u32>,
    pub segments: BTreeMap<u64, Segment>,
    /// New streams have this number or a higher one.
    pub next_number: u32,
}

/// What an entry takes on the disk.
pub(super) fn size(slot: &Slot) -> u64 {
    ENTRY_HEAD as u64 + u64::from(slot.size)
}

/// The place of an entry by its head and by where that begins.
pub(super) fn slot(head: &EntryHead, segment: u64, at: u64) -> Option<Slot> {
    Some(Slot {
        at: head.at,
        segment: u32::try_from(segment).ok()?,
        offset: u32::try_from(at).ok()?,
        size: head.body.checked_add(head.key.into())?,
        key: head.key,
        kind: head.kind,
    })
}

impl State {
    pub fn stream(&self, name: &str) -> Option<(u32, &Stream)> {
        let number = *self.names.get(name)?;
        self.streams.get(&number).map(|stream| (number, stream))
    }

    /// Does what the records of a frame say.
    ///
    /// # Errors
    /// When they do not fit what came before.
    pub fn apply(&mut self, segment: u64, start: u64, bytes: &[u8]) -> Result<(), &'static str> {
        self.segments.entry(segment).or_default();
        for record in records(bytes) {
            match record.map_err(|()| "a record cannot be read")? {
                Record::Entry(head, at) => {
                    let slot = slot(&head, segment, start + at as u64).ok_or(MISFIT)?;
                    self.place(head.stream, head.sequence, slot)?;
                }
                Record::Stream(record) => self.enter(&record)?,
                Record::First(number, first) => {
                    if self
                        .streams
                        .get(&number)
                        .is_some_and(|it| it.next() < first)
                    {
                        return Err(MISFIT);
                    }
                    self.drop_before(number, first);
                    self.note(number, first);
                }
                Record::Epoch(number, epoch, start) => self.begin_epoch(number, epoch, start)?,
                Record::Removed(number) => self.remove(number),
            }
        }
        Ok(())
    }

    /// A stream is there. One that is known has the next number that is said.
    pub fn enter(&mut self, record: &StreamRecord<'_>) -> Result<(), &'static str> {
        if let Some(stream) = self.streams.get(&record.number)
            && stream.next() != record.next
        {
            return Err(MISFIT);
        }
        self.advance(record)?;
        self.note(record.number, record.first);
        Ok(())
    }

    /// A stream has come this far. Its entries have been in files that are gone and follow in
    /// others, or they are said next.
    pub fn advance(&mut self, record: &StreamRecord<'_>) -> Result<(), &'static str> {
        self.next_number = self.next_number.max(record.number.saturating_add(1));
        let stream = self.streams.entry(record.number).or_insert_with(|| {
            let name: Arc<str> = record.name.into();
            self.names.insert(Arc::clone(&name), record.number);
            Stream {
                name,
                epochs: Epochs::new(record.epoch),
                coming: None,
                first: record.first,
                noted: 0,
                slots: Slots::default(),
                bytes: 0,
                keep: None,
            }
        });
        let is_known = stream.epochs.end_of(record.epoch).is_some();
        if stream.next() > record.next || !is_known {
            return Err(MISFIT);
        }
        while stream.next() < record.next {
            stream.slots.push(Slot::default());
        }
        self.drop_before(record.number, record.first);
        Ok(())
    }

    /// From an entry on, a stream has another epoch.
    pub fn begin_epoch(&mut self, number: u32, epoch: u64, start: u64) -> Result<(), &'static str> {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        if start > stream.next() || !stream.epochs.begin(start, epoch) {
            return Err(MISFIT);
        }
        stream.coming = None;
        Ok(())
    }

    /// Takes the oldest epoch that an index knows for one that is known: it may have begun in the
    /// file, and those before it may have ended there.
    pub fn adopt_epoch(&mut self, record: &StreamRecord<'_>) {
        if let Some(stream) = self.streams.get_mut(&record.number)
            && stream.epochs.end_of(record.epoch).is_none()
        {
            stream.epochs = Epochs::new(record.epoch);
        }
    }

    /// A run begins: what it appends is of another epoch than what others have.
    pub fn begin_run(&mut self, mut epoch: impl FnMut() -> u64) {
        for stream in self.streams.values_mut() {
            stream.coming = Some(epoch());
        }
    }

    /// An entry is on the disk: the next one, or one that is there already in another place.
    pub fn place(&mut self, number: u32, sequence: u64, slot: Slot) -> Result<(), &'static str> {
        let Some(stream) = self.streams.get_mut(&number) else {
            // It was removed, and what had waited to be moved came too late.
            return Ok(());
        };
        if sequence > stream.next() {
            return Err(MISFIT);
        }
        let Some(at) = sequence.checked_sub(stream.first) else {
            return Ok(());
        };
        let bytes = size(&slot);
        match stream
            .slots
            .get_mut(usize::try_from(at).unwrap_or(usize::MAX))
        {
            Some(before) => {
                let old = std::mem::replace(before, slot);
                if old.segment == 0 {
                    stream.bytes += bytes;
                } else if let Some(segment) = self.segments.get_mut(&u64::from(old.segment)) {
                    segment.live = segment.live.saturating_sub(size(&old));
                }
            }
            None => {
                stream.slots.push(slot);
                stream.bytes += bytes;
            }
        }
        let segment = self.segments.entry(slot.segment.into()).or_default();
        segment.live += bytes;
        segment.add(number, sequence);
        Ok(())
    }

    fn drop_before(&mut self, number: u32, first: u64) {
        while self.streams.get(&number).is_some_and(|it| it.first < first) {
            self.drop_oldest(number);
        }
    }

    fn drop_oldest(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        let Some(slot) = stream.slots.pop_front() else {
            return;
        };
        stream.first += 1;
        stream.epochs.trim(stream.first);
        if slot.segment == 0 {
            return;
        }
        stream.bytes = stream.bytes.saturating_sub(size(&slot));
        if let Some(segment) = self.segments.get_mut(&u64::from(slot.segment)) {
            segment.live = segment.live.saturating_sub(size(&slot));
        }
    }

    /// Forgets a stream.
    pub fn remove(&mut self, number: u32) {
        while self
            .streams
            .get(&number)
            .is_some_and(|it| it.slots.len() > 0)
        {
            self.drop_oldest(number);
        }
        if let Some(stream) = self.streams.remove(&number) {
            self.names.remove(&stream.name);
        }
    }

    /// Drops what is more than is to be kept of a stream.
    pub fn retain(&mut self, number: u32, now: u64) {
        while let Some(stream) = self.streams.get(&number)
            && let Some(keep) = &stream.keep
            && stream.is_over(keep, now)
        {
            self.drop_oldest(number);
        }
    }

    /// Whether something of a stream is too old by now.
    pub fn is_over(&self, number: u32, now: u64) -> bool {
        let stream = self.streams.get(&number);
        stream.is_some_and(|it| it.keep.as_ref().is_some_and(|keep| it.is_over(keep, now)))
    }

    /// What is said of all streams, as it stands at the beginning of each file.
    pub fn write_streams(&self, out: &mut Vec<u8>) {
        for (number, stream) in &self.streams {
            stream.record(*number).write(out);
            for (start, epoch) in stream.epochs.later() {
                record::write_epoch(*number, *epoch, *start, out);
            }
        }
    }

    /// The streams whose oldest entry is another one than the disk has, and that entry.
    pub fn unnoted(&self) -> Vec<(u32, u64)> {
        let streams = self.streams.iter();
        let streams = streams.filter(|(_, stream)| stream.noted < stream.first);
        streams
            .map(|(number, stream)| (*number, stream.first))
            .collect()
    }

    /// The disk has this oldest entry of a stream.
    pub fn note(&mut self, number: u32, first: u64) {
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.noted = stream.noted.max(first);
        }
    }

    /// The entries of a file that are needed: streams, with rows of entries one after the other.
    pub fn live_of(&self, segment: u64) -> impl Iterator<Item = (u32, &Stream, Range<u64>)> {
        let runs = self.segments.get(&segment).map(|it| &it.runs);
        let runs = runs.into_iter().flatten();
        runs.flat_map(move |(number, runs)| {
            let stream = self.streams.get(number);
            let runs = runs.iter().map(move |run| (stream, run));
            runs.filter_map(|(stream, run)| Some((stream?, run)))
                .flat_map(move |(stream, run)| {
                    let rows = Rows {
                        stream,
                        segment,
                        left: run.start.max(stream.first)..run.end,
                    };
                    rows.map(move |row| (*number, stream, row))
                })
        })
    }

    /// What all files hold that is needed, in bytes.
    pub fn live(&self) -> u64 {
        self.segments.values().map(|segment| segment.live).sum()
    }

    /// The first entry that should be in the files and is not.
    pub fn missing(&self) -> Option<(&str, u64)> {
        self.streams.values().find_map(|stream| {
            let at = stream.slots.iter().position(|slot| slot.segment == 0)?;
            Some((&*stream.name, stream.first + at as u64))
        })
    }
}

/// The parts of a run of entries that are still in a file.
struct Rows<'a> {
    stream: &'a Stream,
    segment: u64,
    left: Range<u64>,
}

impl Iterator for Rows<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let is_here = |sequence: &u64| {
            let slot = self.stream.slot(*sequence);
            slot.is_some_and(|slot| u64::from(slot.segment) == self.segment)
        };
        let start = self.left.clone().find(is_here)?;
        let end = (start + 1..self.left.end).find(|it| !is_here(it));
        let end = end.unwrap_or(self.left.end);
        self.left.start = end;
        Some(start..end)
    }
}
