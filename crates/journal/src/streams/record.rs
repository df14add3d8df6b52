//! What stands in the files of streams: entries, and what has become of streams. Numbers are
//! little-endian. `docs/journal-format.md` has it byte by byte.

use crate::crc;
use crate::cursor::{Cursor, write_bytes};
use crate::frame::Format;

/// The files of streams.
pub(crate) static FORMAT: Format = Format {
    folder: "topics",
    magic: *b"ITTOPIC1",
    is_indexed: true,
};

/// How many bytes stand before the key of an entry.
pub(crate) const ENTRY_HEAD: usize = 32;

const ENTRY: u8 = 1;
const STREAM: u8 = 2;
const FIRST: u8 = 3;
const REMOVED: u8 = 4;
/// The first version does not have it.
const EPOCH: u8 = 5;

/// What stands before the key of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHead {
    /// The number of the stream.
    pub stream: u32,
    pub sequence: u64,
    /// When it came, in milliseconds since 1970 began.
    pub at: u64,
    pub kind: u8,
    /// How many bytes the key has.
    pub key: u16,
    /// How many bytes the body has.
    pub body: u32,
}

impl EntryHead {
    /// The checksum of an entry in the folder of this tag.
    pub fn crc(&self, tag: u64, key: &[u8], body: &[u8]) -> u32 {
        let crc = crc::extend(crc::of(&tag.to_le_bytes()), &self.start());
        crc::extend(crc::extend(crc, key), body)
    }

    /// All but the checksum.
    fn start(&self) -> [u8; ENTRY_HEAD - 4] {
        let mut bytes = [0; ENTRY_HEAD - 4];
        let parts = [ENTRY].into_iter().chain(self.stream.to_le_bytes());
        let parts = parts
            .chain(self.sequence.to_le_bytes())
            .chain(self.at.to_le_bytes())
            .chain([self.kind])
            .chain(self.key.to_le_bytes())
            .chain(self.body.to_le_bytes());
        bytes
            .iter_mut()
            .zip(parts)
            .for_each(|(to, from)| *to = from);
        bytes
    }

    /// Writes an entry behind what is there, with a checksum that has been made before.
    pub fn write(&self, crc: u32, key: &[u8], body: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.start());
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(body);
    }

    /// The head at the beginning of these bytes, and its checksum; `None` when it is none.
    pub fn read(bytes: &[u8]) -> Option<(Self, u32)> {
        let mut cursor = Cursor::new(bytes);
        let kind = cursor.u8()?;
        let head = Self::after_kind(&mut cursor)?;
        (kind == ENTRY).then_some(head)
    }

    fn after_kind(cursor: &mut Cursor<'_>) -> Option<(Self, u32)> {
        let head = Self {
            stream: cursor.u32()?,
            sequence: cursor.u64()?,
            at: cursor.u64()?,
            kind: cursor.u8()?,
            key: cursor.u16()?,
            body: cursor.u32()?,
        };
        Some((head, cursor.u32()?))
    }
}

/// What a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRecord<'a> {
    pub number: u32,
    pub epoch: u64,
    /// The oldest entry that is kept.
    pub first: u64,
    /// The number of the next entry.
    pub next: u64,
    pub name: &'a str,
}

impl<'a> StreamRecord<'a> {
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(STREAM);
        out.extend(self.number.to_le_bytes());
        for number in [self.epoch, self.first, self.next] {
            out.extend(number.to_le_bytes());
        }
        write_bytes(self.name.as_bytes(), out);
    }

    /// The record at this place; `None` when it is none of a stream.
    pub fn read(cursor: &mut Cursor<'a>) -> Option<Self> {
        (cursor.u8()? == STREAM).then_some(())?;
        Self::after_kind(cursor)
    }

    fn after_kind(cursor: &mut Cursor<'a>) -> Option<Self> {
        let record = Self {
            number: cursor.u32()?,
            epoch: cursor.u64()?,
            first: cursor.u64()?,
            next: cursor.u64()?,
            name: cursor.text()?,
        };
        (1 <= record.first && record.first <= record.next).then_some(record)
    }
}

/// Writes that the entries of a stream before `first` are not kept any more.
pub(crate) fn write_first(stream: u32, first: u64, out: &mut Vec<u8>) {
    out.push(FIRST);
    out.extend(stream.to_le_bytes());
    out.extend(first.to_le_bytes());
}

/// Writes that a stream has this epoch from an entry on.
pub(crate) fn write_epoch(stream: u32, epoch: u64, start: u64, out: &mut Vec<u8>) {
    out.push(EPOCH);
    out.extend(stream.to_le_bytes());
    out.extend(epoch.to_le_bytes());
    out.extend(start.to_le_bytes());
}

/// The number of a stream, an epoch and its first entry at this place, if they stand there.
pub(crate) fn read_epoch(cursor: &mut Cursor<'_>) -> Option<(u32, u64, u64)> {
    (cursor.u8()? == EPOCH).then_some(())?;
    Some((cursor.u32()?, cursor.u64()?, cursor.u64()?))
}

/// Writes that a stream is gone.
pub(crate) fn write_removed(stream: u32, out: &mut Vec<u8>) {
    out.push(REMOVED);
    out.extend(stream.to_le_bytes());
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// An entry has come, or has been moved; where its head begins among the records.
    Entry(EntryHead, usize),
    /// A stream is there. The same again at the beginning of each file.
    Stream(StreamRecord<'a>),
    /// Entries of a stream before this one are not kept any more.
    First(u32, u64),
    /// A stream has this epoch from this entry on.
    Epoch(u32, u64, u64),
    /// A stream is gone.
    Removed(u32),
}

/// The records of a frame, one after the other; `Err` for what is none, and then no more.
pub(crate) fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record<'_>, ()>> {
    let mut cursor = Cursor::new(bytes);
    let mut has_failed = false;
    std::iter::from_fn(move || {
        if has_failed || cursor.is_at_end() {
            return None;
        }
        let record = record(&mut cursor).ok_or(());
        has_failed = record.is_err();
        Some(record)
    })
}

fn record<'a>(cursor: &mut Cursor<'a>) -> Option<Record<'a>> {
    let at = cursor.at();
    let record = match cursor.u8()? {
        ENTRY => {
            let (head, _) = EntryHead::after_kind(cursor)?;
            cursor.take(head.key.into())?;
            cursor.take(head.body)?;
            Record::Entry(head, at)
        }
        STREAM => Record::Stream(StreamRecord::after_kind(cursor)?),
        FIRST => Record::First(cursor.u32()?, cursor.u64()?),
        EPOCH => Record::Epoch(cursor.u32()?, cursor.u64()?, cursor.u64()?),
        REMOVED => Record::Removed(cursor.u32()?),
        _ => return None,
    };
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let head = EntryHead {
            stream: 1,
            sequence: 2,
            at: 3,
            kind: 4,
            key: 1,
            body: 4,
        };
        let stream = StreamRecord {
            number: 1,
            epoch: 2,
            first: 3,
            next: 4,
            name: "prices",
        };
        let mut bytes = Vec::new();
        head.write(head.crc(9, b"k", b"body"), b"k", b"body", &mut bytes);
        assert_eq!(bytes.len(), ENTRY_HEAD + 5);
        stream.write(&mut bytes);
        write_first(5, 6, &mut bytes);
        write_removed(7, &mut bytes);
        write_epoch(8, 9, 10, &mut bytes);
        let read: Result<Vec<_>, ()> = records(&bytes).collect();
        let expected = vec![
            Record::Entry(head, 0),
            Record::Stream(stream),
            Record::First(5, 6),
            Record::Removed(7),
            Record::Epoch(8, 9, 10),
        ];
        assert_eq!(read, Ok(expected));
        let (read, crc) = EntryHead::read(&bytes).unwrap();
        assert_eq!((read, crc), (head, head.crc(9, b"k", b"body")));
        assert_ne!(crc, head.crc(8, b"k", b"body"), "the folder counts");
        for size in 1..bytes.len() {
            // Whatever is cut off is told or ends.
            assert!(records(&bytes[..size]).count() <= 5);
        }
    }
}
