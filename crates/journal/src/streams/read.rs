//! Reading, on the thread of whoever asks: places are looked up, entries that stand close to each
//! other are read at once, and each is checked.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::record::{ENTRY_HEAD, EntryHead, FORMAT};
use super::slots::Slot;
use super::{Entry, SharedState, state};
use crate::disk::DiskFile;
use crate::error::{ReadError, Refusal};

/// The most entries of one look at what is known: whoever writes waits for it.
const LOOK_MAX: usize = 65_536;
/// About how many bytes are read at once.
const SPAN_MAX: u64 = 1 << 20;
/// How many bytes that are not wanted are read along.
const GAP_MAX: u64 = 4096;
/// How often an entry is looked up again that has been moved meanwhile.
const TRIES: usize = 5;

/// The file of an entry's place.
type File = Arc<dyn DiskFile>;

/// What has been looked up.
struct Found {
    stream: u32,
    /// The numbers of entries and their places, in the order of their numbers.
    slots: Vec<(u64, Slot)>,
    files: HashMap<u32, File>,
}

pub(super) fn entries(
    state: &SharedState,
    tag: u64,
    name: &str,
    from: u64,
    bytes_max: usize,
) -> Result<Vec<Entry>, ReadError> {
    let mut last = Ok(());
    for _ in 0..TRIES {
        let found = look(state, name, from, bytes_max as u64)?;
        let mut entries = Vec::with_capacity(found.slots.len());
        last = read(&found, tag, |entry| entries.push(entry));
        if last.is_ok() || !entries.is_empty() {
            return Ok(entries);
        }
        // It may have been moved, or dropped, while it was read.
        let Some(slot) = found.slots.first() else {
            break;
        };
        if has_stayed(state, name, slot) {
            break;
        }
    }
    last.map(|()| Vec::new())
}

fn has_stayed(state: &SharedState, name: &str, (sequence, slot): &(u64, Slot)) -> bool {
    let state = state.read();
    let stream = state.stream(name);
    stream.is_some_and(|(_, stream)| stream.slot(*sequence) == Some(slot))
}

/// Looks up entries from a number on: as many as have so many bytes, but at least one where there
/// is one.
fn look(state: &SharedState, name: &str, from: u64, bytes_max: u64) -> Result<Found, ReadError> {
    let state = state.read();
    let (number, stream) = state.stream(name).ok_or(ReadError::Unknown)?;
    let (first, next) = (stream.first, stream.next());
    if from < first {
        return Err(ReadError::Gone { first });
    }
    if from > next {
        return Err(ReadError::Ahead { next });
    }
    let mut found = Found {
        stream: number,
        slots: Vec::new(),
        files: HashMap::new(),
    };
    let mut taken = 0;
    for sequence in (from..next).take(LOOK_MAX) {
        let Some(slot) = stream.slot(sequence) else {
            break;
        };
        taken += state::size(slot);
        if !found.slots.is_empty() && taken > bytes_max {
            break;
        }
        found.add(&state, sequence, slot);
    }
    Ok(found)
}

impl Found {
    fn add(&mut self, state: &state::State, sequence: u64, slot: &Slot) {
        let is_same_file = self
            .slots
            .last()
            .is_some_and(|it| it.1.segment == slot.segment);
        if !is_same_file
            && let Some(segment) = state.segments.get(&slot.segment.into())
            && let Some(file) = &segment.file
        {
            self.files.insert(slot.segment, Arc::clone(file));
        }
        self.slots.push((sequence, *slot));
    }

    /// The places that are read at once: those from `start` on.
    fn span(&self, start: usize) -> (Range<usize>, Range<u64>) {
        let slots = self.slots.get(start..).unwrap_or_default();
        let Some((_, first)) = slots.first() else {
            return (start..start, 0..0);
        };
        let begin = u64::from(first.offset);
        let mut end = begin + state::size(first);
        let mut count = 1;
        for (_, slot) in slots.get(1..).unwrap_or_default() {
            let at = u64::from(slot.offset);
            let is_near = slot.segment == first.segment && (end..=end + GAP_MAX).contains(&at);
            let slot_end = at + state::size(slot);
            if !is_near || slot_end - begin > SPAN_MAX {
                break;
            }
            end = slot_end;
            count += 1;
        }
        (start..start + count, begin..end)
    }

    /// Reads what has been looked up, as much as lies side by side at once, and gives each entry's
    /// sequence and slot, and where it begins in the bytes.
    fn each(
        &self,
        mut take: impl FnMut(u64, &Slot, usize, &Bytes) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let mut at = 0;
        while at < self.slots.len() {
            let (which, place) = self.span(at);
            at = which.end;
            let slots = self.slots.get(which).unwrap_or_default();
            let bytes = read_span(self, slots, &place)?;
            for (sequence, slot) in slots {
                let start = u64::from(slot.offset).saturating_sub(place.start) as usize;
                take(*sequence, slot, start, &bytes)?;
            }
        }
        Ok(())
    }
}

/// Reads what has been looked up and tells each entry, up to the first that cannot be read.
fn read(found: &Found, tag: u64, mut tell: impl FnMut(Entry)) -> Result<(), ReadError> {
    found.each(|sequence, slot, start, bytes| {
        tell(check(found.stream, tag, sequence, slot, start, bytes)?);
        Ok(())
    })
}

fn read_span(found: &Found, slots: &[(u64, Slot)], place: &Range<u64>) -> Result<Bytes, ReadError> {
    let segment = slots.first().map_or(0, |(_, slot)| slot.segment);
    let name = || FORMAT.file(segment.into());
    let Some(file) = found.files.get(&segment) else {
        return Err(ReadError::Disk(format!("{} is not there", name())));
    };
    let mut bytes = vec![0; place.end.saturating_sub(place.start) as usize];
    match file.read_at(place.start, &mut bytes) {
        Ok(()) => Ok(Bytes::from(bytes)),
        Err(error) => {
            let at = place.start;
            let what = format!("{} cannot be read at byte {at}: {error}", name());
            Err(ReadError::Disk(what))
        }
    }
}

/// The entry that begins at `start`, when all of it is as it was written.
fn check(
    stream: u32,
    tag: u64,
    sequence: u64,
    slot: &Slot,
    start: usize,
    bytes: &Bytes,
) -> Result<Entry, ReadError> {
    let damaged = || {
        let (file, at) = (FORMAT.file(slot.segment.into()), slot.offset);
        ReadError::Damaged(format!("{file} is damaged at byte {at}: entry {sequence}"))
    };
    let end = start + ENTRY_HEAD + slot.size as usize;
    let whole = bytes.get(start..end).ok_or_else(damaged)?;
    let head = head(stream, sequence, slot);
    let read = EntryHead::read(whole);
    let (_, crc) = read.filter(|it| it.0 == head).ok_or_else(damaged)?;
    let key = start + ENTRY_HEAD;
    let body = key + usize::from(slot.key);
    let entry = Entry {
        sequence,
        at_ms: slot.at,
        kind: slot.kind,
        key: bytes.slice(key..body.min(end)),
        body: bytes.slice(body.min(end)..end),
    };
    match head.crc(tag, &entry.key, &entry.body) == crc {
        true => Ok(entry),
        false => Err(damaged()),
    }
}

fn head(stream: u32, sequence: u64, slot: &Slot) -> EntryHead {
    EntryHead {
        stream,
        sequence,
        at: slot.at,
        kind: slot.kind,
        key: slot.key,
        body: slot.size.saturating_sub(slot.key.into()),
    }
}

pub(super) fn last_of_kind(
    state: &SharedState,
    name: &str,
    kind: u8,
    at_most: u64,
) -> Result<Option<u64>, ReadError> {
    let mut end = at_most.saturating_add(1);
    loop {
        let state = state.read();
        let (_, stream) = state.stream(name).ok_or(ReadError::Unknown)?;
        end = end.min(stream.next());
        if end <= stream.first {
            return Ok(None);
        }
        let start = end.saturating_sub(LOOK_MAX as u64).max(stream.first);
        let is_it = |sequence: &u64| stream.slot(*sequence).is_some_and(|slot| slot.kind == kind);
        if let Some(found) = (start..end).rev().find(is_it) {
            return Ok(Some(found));
        }
        end = start;
    }
}

pub(super) fn keys(
    state: &SharedState,
    tag: u64,
    name: &str,
    since: u64,
) -> Result<Vec<(Bytes, u64)>, ReadError> {
    let mut keys = Vec::new();
    let mut from = 0;
    let mut tries = 0;
    loop {
        let (found, next) = look_for_keys(state, name, from, since)?;
        let before = keys.len();
        let read = read(&found, tag, |entry| {
            keys.push((Bytes::copy_from_slice(&entry.key), entry.sequence));
        });
        match read {
            Ok(()) if found.slots.is_empty() && next == from => return Ok(keys),
            Ok(()) => (from, tries) = (next, 0),
            Err(error) => {
                let failed = found.slots.get(keys.len() - before);
                tries += 1;
                if tries > TRIES || failed.is_none_or(|slot| has_stayed(state, name, slot)) {
                    return Err(error);
                }
                // Those that were read are not read again.
                from = failed.map_or(next, |slot| slot.0);
            }
        }
    }
}

/// Entries with a key from a number on, and the number that has not been looked at.
fn look_for_keys(
    state: &SharedState,
    name: &str,
    from: u64,
    since: u64,
) -> Result<(Found, u64), ReadError> {
    let state = state.read();
    let (number, stream) = state.stream(name).ok_or(ReadError::Unknown)?;
    let mut found = Found {
        stream: number,
        slots: Vec::new(),
        files: HashMap::new(),
    };
    let start = from.max(stream.first);
    let end = stream.next().min(start + LOOK_MAX as u64).max(start);
    for sequence in start..end {
        let slot = stream.slot(sequence);
        if let Some(slot) = slot.filter(|slot| slot.key > 0 && slot.at >= since) {
            found.add(&state, sequence, slot);
        }
    }
    Ok((found, end))
}

/// An entry as it stands in a file, whether it is damaged or not: its head as it is known, the
/// checksum that stands there, key and body.
type Raw = (EntryHead, u32, Bytes);

/// Some entries of a file that are needed, about so many bytes of them. What is damaged is moved
/// as it is, with its checksum, so that whoever reads it is told, and the file can go.
pub(super) fn to_move(
    state: &SharedState,
    segment: u64,
    bytes_max: u64,
) -> Result<Vec<Raw>, Refusal> {
    let mut found: Vec<Found> = Vec::new();
    let known = state.read();
    let mut bytes = 0;
    'rows: for (number, stream, row) in known.live_of(segment) {
        let mut of_row = Found {
            stream: number,
            slots: Vec::new(),
            files: HashMap::new(),
        };
        for sequence in row {
            let Some(slot) = stream.slot(sequence) else {
                continue;
            };
            of_row.add(&known, sequence, slot);
            bytes += state::size(slot);
            if bytes >= bytes_max {
                found.push(of_row);
                break 'rows;
            }
        }
        found.push(of_row);
    }
    drop(known);
    let mut raw = Vec::new();
    for found in &found {
        read_raw(found, &mut raw).map_err(|error| Refusal::Unreadable(error.to_string()))?;
    }
    Ok(raw)
}

fn read_raw(found: &Found, raw: &mut Vec<Raw>) -> Result<(), ReadError> {
    found.each(|sequence, slot, start, bytes| {
        let content = start + ENTRY_HEAD;
        let crc = bytes.get(content - 4..content);
        let crc = crc.and_then(|crc| crc.first_chunk::<4>().copied());
        let content = bytes.slice(content..content + slot.size as usize);
        let head = head(found.stream, sequence, slot);
        raw.push((head, u32::from_le_bytes(crc.unwrap_or_default()), content));
        Ok(())
    })
}
