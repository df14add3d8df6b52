//! What stands in the files of the log beside the database, and what of it counts.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::Change;
use super::database::{LogMark, Parts, ReplayRange, Tag};
use crate::cursor::{Cursor, write_bytes};
use crate::disk::DiskFile;

/// How many frames are looked at behind one that is broken: each costs a checksum.
const CANDIDATES_MAX: usize = 64;
/// More frames than there ever are at a time: what has such a number is none.
const AHEAD_MAX: u64 = 1 << 32;
/// What stands before the content of a frame: its size, its checksum.
const HEAD: usize = 8;

/// Values by table and key; `None` for one that is taken away.
pub(super) type Values = BTreeMap<(Arc<str>, Bytes), Option<Bytes>>;

/// The values as changes.
pub(super) fn parts(values: &Values) -> impl Iterator<Item = Parts<'_>> {
    values
        .iter()
        .map(|((table, key), value)| (table, key, value.as_ref()))
}

/// What the files have that counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LogContent {
    pub values: Values,
    pub end: LogEnd,
}

/// How the frames end that count. Later ones are worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LogEnd {
    /// With the file, or before what an earlier use of it has left.
    #[default]
    Whole,
    /// With a frame that is not whole: as it is when the machine stops.
    Torn(Position),
    /// With damage. Behind it there are frames that count no more.
    Broken(Position),
    /// Before this frame, which is missing. There are later ones.
    Missing(u64),
}

/// A byte of one of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// Of which file, from 0.
    pub file: usize,
    pub at: u64,
}

/// A frame: changes of one write. Its number is the generation in those of older versions.
struct Frame<'a> {
    number: u64,
    changes: Values,
    /// What comes behind it.
    rest: &'a [u8],
}

/// What is in the files, of what the database says that it counts.
///
/// # Errors
/// When they cannot be read.
pub(super) fn read(files: &[Option<Box<dyn DiskFile>>], mark: LogMark) -> io::Result<LogContent> {
    let counts = |number| match mark.replayed {
        ReplayRange::From(first) => (first..first.saturating_add(AHEAD_MAX)).contains(&number),
        ReplayRange::Generation(generation) => number == generation,
    };
    let mut end = LogEnd::Whole;
    let mut found: Vec<(u64, Values)> = Vec::new();
    for (file, opened) in files.iter().enumerate() {
        let Some(opened) = opened else { continue };
        let mut bytes = vec![0; usize::try_from(opened.size()?).map_err(io::Error::other)?];
        opened.read_at(0, &mut bytes)?;
        let mut rest = &*bytes;
        while let Some(frame) = read_frame(rest, mark.tag) {
            match mark.replayed {
                // What is behind a frame of another generation has been left by earlier ones.
                ReplayRange::Generation(_) if !counts(frame.number) => break,
                _ if counts(frame.number) => found.push((frame.number, frame.changes)),
                _ => {}
            }
            rest = frame.rest;
        }
        let at = (bytes.len() - rest.len()) as u64;
        let position = Position { file, at };
        end = end.max(match mark.tag {
            _ if has_frame_behind(rest, mark.tag, counts) => LogEnd::Broken(position),
            Tag::Random(_) if !rest.is_empty() => LogEnd::Torn(position),
            // Version 3 of the part left what was written before.
            _ => LogEnd::Whole,
        });
    }
    let mut values = Values::new();
    if let ReplayRange::From(first) = mark.replayed {
        found.sort_by_key(|it| it.0);
        let numbers = (first..).zip(&found);
        let gap = numbers.clone().position(|(number, it)| number != it.0);
        if let Some(gap) = gap {
            end = end.max(LogEnd::Missing(first + gap as u64));
            found.truncate(gap);
        }
    }
    values.extend(found.into_iter().flat_map(|it| it.1));
    Ok(LogContent { values, end })
}

/// The bytes of a frame.
pub(super) fn frame(number: u64, tag: Tag, changes: &[Change]) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    bytes.extend(number.to_le_bytes());
    for (table, key, value) in changes.iter().map(Change::parts) {
        write_bytes(table.as_bytes(), &mut bytes);
        write_bytes(key, &mut bytes);
        bytes.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write_bytes(value, &mut bytes);
        }
    }
    let content = bytes.get(HEAD..).unwrap_or_default();
    let (size, crc) = (content.len() as u32, tag.checksum(content));
    let head = size.to_le_bytes().into_iter().chain(crc.to_le_bytes());
    bytes.iter_mut().zip(head).for_each(|(to, from)| *to = from);
    bytes
}

/// The first frame; `None` when it is not whole.
fn read_frame(bytes: &[u8], tag: Tag) -> Option<Frame<'_>> {
    let mut head = Cursor::new(bytes);
    let (size, crc) = (head.u32()?, head.u32()?);
    let content = head.take(size)?;
    if tag.checksum(content) != crc {
        return None;
    }
    let mut cursor = Cursor::new(content);
    let number = cursor.u64()?;
    let mut changes = Values::new();
    while !cursor.is_at_end() {
        let table = Arc::from(cursor.text()?);
        let size = cursor.u32()?;
        let key = Bytes::copy_from_slice(cursor.take(size)?);
        let value = match cursor.u8()? {
            0 => None,
            _ => {
                let size = cursor.u32()?;
                Some(Bytes::copy_from_slice(cursor.take(size)?))
            }
        };
        changes.insert((table, key), value);
    }
    Some(Frame {
        number,
        changes,
        rest: bytes.get(head.at()..)?,
    })
}

/// Whether there is a frame that counts behind the first byte.
fn has_frame_behind(bytes: &[u8], tag: Tag, counts: impl Fn(u64) -> bool) -> bool {
    // The checksum last: where a frame is looked for, there are many that are none.
    let may_be_one = |bytes: &[u8]| {
        let mut head = Cursor::new(bytes);
        let content = head.u32().and_then(|size| {
            head.u32()?;
            head.take(size)
        });
        content
            .and_then(|it| Cursor::new(it).u64())
            .is_some_and(&counts)
    };
    let behind = (1..bytes.len()).filter_map(|at| bytes.get(at..));
    let mut candidates = behind.filter(|it| may_be_one(it)).take(CANDIDATES_MAX);
    candidates.any(|it| read_frame(it, tag).is_some_and(|it| counts(it.number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::tests::sim::SimDisk;

    #[test]
    fn a_frame_that_is_cut_or_changed_anywhere_is_none() {
        let changes = [
            Change::Put {
                table: "t".into(),
                key: Bytes::from_static(b"a"),
                value: Bytes::from_static(b"1"),
            },
            Change::Delete {
                table: "t".into(),
                key: Bytes::from_static(b"b"),
            },
        ];
        let tag = Tag::Random(1);
        let whole = frame(7, tag, &changes);
        let found = read_frame(&whole, tag).unwrap();
        let wanted = changes.map(Change::into_value).into_iter().collect();
        assert_eq!(
            (found.number, found.changes, found.rest.len()),
            (7, wanted, 0)
        );
        for tag in [Tag::Random(2), Tag::Absent] {
            assert!(read_frame(&whole, tag).is_none());
        }
        for at in 0..whole.len() {
            assert!(read_frame(&whole[..at], tag).is_none(), "{at}");
            for bit in 0..8 {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                assert!(read_frame(&other, tag).is_none(), "{at} {bit}");
            }
        }
    }

    /// Deletions of keys, in frames with these numbers.
    fn deletions(numbers: &[u64], tag: Tag) -> Vec<u8> {
        let frames = numbers.iter().enumerate().flat_map(|(at, number)| {
            let change = Change::Delete {
                table: "t".into(),
                key: Bytes::from(format!("{number}-{at}")),
            };
            frame(*number, tag, &[change])
        });
        frames.collect()
    }

    /// How many changes are read, and how they end.
    fn read_files(files: [Option<&[u8]>; 2], mark: LogMark) -> (usize, LogEnd) {
        let mut disk = SimDisk::new(1);
        let mut number = 0;
        let files = files.map(|bytes| {
            number += 1;
            let file = Disk::create(&mut disk, number).unwrap();
            file.write_at(0, bytes?).unwrap();
            Some(file)
        });
        let content = read(&files, mark).unwrap();
        (content.values.len(), content.end)
    }

    const TAG: Tag = Tag::Random(3);

    fn numbered(first: u64) -> LogMark {
        LogMark {
            replayed: ReplayRange::From(first),
            tag: TAG,
        }
    }

    #[test]
    fn where_the_frames_end_is_told() {
        let of_version_4 = LogMark {
            replayed: ReplayRange::Generation(5),
            tag: TAG,
        };
        for (mark, numbers) in [(of_version_4, [5; 3]), (numbered(5), [5, 6, 7])] {
            let read = |bytes: &[u8]| read_files([Some(bytes), None], mark);
            let at = |at: usize| Position {
                file: 0,
                at: at as u64,
            };
            let whole = deletions(&numbers, TAG);
            let size = whole.len() / 3;
            assert_eq!(read(&whole), (3, LogEnd::Whole));
            assert_eq!(read(&[]), (0, LogEnd::Whole));
            let torn = (2, LogEnd::Torn(at(2 * size)));
            assert_eq!(read(&whole[..3 * size - 1]), torn);
            let mut broken = whole.clone();
            broken[size + HEAD + 20] ^= 1;
            assert_eq!(read(&broken), (1, LogEnd::Broken(at(size))));
            // Its size is another one.
            let mut broken = whole;
            broken[0] ^= 0x40;
            assert_eq!(read(&broken), (0, LogEnd::Broken(at(0))));
        }
        // Version 3 left what was there before.
        let left = [
            deletions(&[5; 3], Tag::Absent),
            deletions(&[4; 3], Tag::Absent),
        ]
        .concat();
        let old = LogMark {
            tag: Tag::Absent,
            ..of_version_4
        };
        assert_eq!(read_files([Some(&left), None], old), (3, LogEnd::Whole));
    }

    #[test]
    fn frames_of_both_files_count_in_their_order_without_a_gap() {
        let files = |first: &[u64], second: &[u64], mark| {
            let files = [first, second].map(|it| deletions(it, TAG));
            read_files([Some(&files[0]), Some(&files[1])], mark)
        };
        for turned in [false, true] {
            let files = |first: &[u64], second: &[u64], mark| match turned {
                true => files(second, first, mark),
                false => files(first, second, mark),
            };
            let mark = numbered(4);
            assert_eq!(files(&[4, 5], &[6, 7], mark), (4, LogEnd::Whole));
            // What the database has had, as it is where a file could not be emptied.
            assert_eq!(files(&[2, 3], &[4, 5], mark), (2, LogEnd::Whole));
            assert_eq!(files(&[2, 3, 6], &[4, 5], mark), (3, LogEnd::Whole));
            assert_eq!(files(&[], &[3], mark), (0, LogEnd::Whole));
            // Lost with the machine.
            assert_eq!(files(&[4], &[6, 7], mark), (1, LogEnd::Missing(5)));
            assert_eq!(files(&[], &[6, 7], mark), (0, LogEnd::Missing(4)));
        }
    }
}
