//! The index at the end of a file that is full: which streams there are, and where the entries are
//! in the file. A start reads it instead of the file.

use std::collections::HashSet;

use super::record::{self, StreamRecord};
use super::slots::Slot;
use super::state::State;
use crate::cursor::Cursor;

/// Of what kind it is.
const VERSION: u8 = 2;
/// The first, which has no epochs behind the streams.
const VERSION_1: u8 = 1;
/// How many bytes an entry takes.
const ENTRY: usize = 19;
/// What is said when it cannot be what has been written.
const UNREADABLE: &str = "its index cannot be read";

/// The index of a file, as things are now.
pub(super) fn write(state: &State, segment: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    let mut streams = Vec::new();
    state.write_streams(&mut streams);
    out.extend((streams.len() as u32).to_le_bytes());
    out.extend(streams);
    for (number, stream, row) in state.live_of(segment) {
        out.extend(number.to_le_bytes());
        out.extend(row.start.to_le_bytes());
        out.extend(((row.end - row.start) as u32).to_le_bytes());
        for slot in row.filter_map(|sequence| stream.slot(sequence)) {
            out.extend(slot.at.to_le_bytes());
            out.extend(slot.offset.to_le_bytes());
            out.extend(slot.size.to_le_bytes());
            out.extend(slot.key.to_le_bytes());
            out.push(slot.kind);
        }
    }
    out
}

/// Takes an index for what the file's frames say.
///
/// # Errors
/// When it cannot be, which no damage can bring about: that has been looked for.
pub(super) fn apply(state: &mut State, segment: u64, bytes: &[u8]) -> Result<(), &'static str> {
    let mut cursor = Cursor::new(bytes);
    state.segments.entry(segment).or_default();
    let (streams, epochs) = streams(&mut cursor).ok_or(UNREADABLE)?;
    let numbers: HashSet<u32> = streams.iter().map(|it| it.number).collect();
    let known = state.streams.keys().copied();
    let gone: Vec<u32> = known.filter(|it| !numbers.contains(it)).collect();
    gone.into_iter().for_each(|number| state.remove(number));
    for stream in &streams {
        state.adopt_epoch(stream);
        state.advance(stream)?;
    }
    for (number, epoch, start) in epochs {
        state.begin_epoch(number, epoch, start)?;
    }
    while !cursor.is_at_end() {
        let (number, first, entries) = row(&mut cursor).ok_or(UNREADABLE)?;
        for (sequence, entry) in (first..).zip(entries) {
            let slot = slot(segment, entry).ok_or(UNREADABLE)?;
            state.place(number, sequence, slot)?;
        }
    }
    Ok(())
}

/// Streams, and the epochs that they have had since the first: number, epoch and first entry.
type Streams<'a> = (Vec<StreamRecord<'a>>, Vec<(u32, u64, u64)>);

fn streams<'a>(cursor: &mut Cursor<'a>) -> Option<Streams<'a>> {
    let (mut streams, mut epochs) = (Vec::new(), Vec::new());
    match cursor.u8()? {
        VERSION_1 => {
            for _ in 0..cursor.u32()? {
                streams.push(StreamRecord::read(cursor)?);
            }
        }
        VERSION => {
            let size = cursor.u32()?;
            let mut records = Cursor::new(cursor.take(size)?);
            while !records.is_at_end() {
                let mut ahead = records.clone();
                match record::read_epoch(&mut ahead) {
                    Some(epoch) => {
                        epochs.push(epoch);
                        records = ahead;
                    }
                    None => streams.push(StreamRecord::read(&mut records)?),
                }
            }
        }
        _ => return None,
    }
    Some((streams, epochs))
}

/// The number of a stream, that of an entry, and where it and those behind it are.
fn row<'a>(cursor: &mut Cursor<'a>) -> Option<(u32, u64, &'a [[u8; ENTRY]])> {
    let (number, first, count) = (cursor.u32()?, cursor.u64()?, cursor.u32()?);
    let entries = cursor.take(count.checked_mul(ENTRY as u32)?)?;
    Some((number, first, entries.as_chunks::<ENTRY>().0))
}

fn slot(segment: u64, entry: &[u8; ENTRY]) -> Option<Slot> {
    let mut cursor = Cursor::new(entry);
    Some(Slot {
        at: cursor.u64()?,
        segment: u32::try_from(segment).ok()?,
        offset: cursor.u32()?,
        size: cursor.u32()?,
        key: cursor.u16()?,
        kind: cursor.u8()?,
    })
}
