//! Changes that have to outlive the process, not the machine: they are answered when they are in a
//! file, without an `fsync`, and are in memory until the next commit of the database takes them
//! along. What is in the file counts only for the generation and tag that the database names: each
//! commit that takes changes along begins another generation, and the file is emptied.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Change;
use super::database::{LogMark, Tag};
use crate::cursor::{Cursor, write_bytes};
use crate::disk::DiskFile;

/// The most bytes in the file, but for the last frame of it. Tests come to it soon.
const SIZE_MAX: u64 = if cfg!(test) { 4 << 10 } else { 1 << 20 };
/// For how long changes are there only.
const AGE_MAX: Duration = Duration::from_secs(1);
/// How many frames are looked at behind one that is broken: each costs a checksum.
const CANDIDATES_MAX: usize = 64;
/// What stands before the content of a frame: its size, its checksum.
const HEAD: usize = 8;

/// Values by table and key; `None` for one that is taken away.
pub(super) type Values = BTreeMap<(Arc<str>, Bytes), Option<Bytes>>;

/// The log of changes that the database has not got yet.
#[derive(Default)]
pub(super) struct WriteAhead {
    /// Opened when something is to be written to it.
    pub file: Option<Box<dyn DiskFile>>,
    /// Which frames count.
    pub mark: LogMark,
    /// Where the next frame goes.
    at: u64,
    values: Values,
    /// Since when there are some.
    since: Option<Instant>,
}

/// What a file has that counts.
#[derive(Default)]
pub(super) struct LogContent {
    pub values: Values,
    pub end: LogEnd,
}

/// How the frames end that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LogEnd {
    /// With the file, or before what an earlier use of it has left.
    #[default]
    Whole,
    /// With a frame that is not whole, at this byte: as it is when the machine stops.
    Torn(u64),
    /// With damage at this byte. Behind it there are frames that count no more.
    Broken(u64),
}

impl WriteAhead {
    /// What is in the file, of what the database says that it counts.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(file: &dyn DiskFile, mark: LogMark) -> io::Result<LogContent> {
        let mut bytes = vec![0; usize::try_from(file.size()?).map_err(io::Error::other)?];
        file.read_at(0, &mut bytes)?;
        let mut values = Values::new();
        let mut rest = &*bytes;
        while let Some((changes, next)) = read_frame(rest, mark) {
            values.extend(changes);
            rest = next;
        }
        let at = (bytes.len() - rest.len()) as u64;
        let end = match mark.tag {
            _ if has_frame_behind(rest, mark) => LogEnd::Broken(at),
            Tag::Random(_) if !rest.is_empty() => LogEnd::Torn(at),
            // Version 3 of the part left what was written before.
            _ => LogEnd::Whole,
        };
        Ok(LogContent { values, end })
    }

    /// Whether the database says that there may be frames.
    pub fn is_in_use(&self) -> bool {
        matches!(self.mark.tag, Tag::Random(_))
    }

    /// What the database has not got yet.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Whether there is something of a table that it has not got.
    pub fn has(&self, table: &Arc<str>) -> bool {
        let from = (Arc::clone(table), Bytes::new());
        let mut values = self.values.range(from..);
        values.next().is_some_and(|((first, _), _)| first == table)
    }

    /// What it has not got of a key; the inner `None` says that it is taken away.
    pub fn get(&self, table: &Arc<str>, key: &Bytes) -> Option<&Option<Bytes>> {
        match self.values.is_empty() {
            true => None,
            false => self.values.get(&(Arc::clone(table), key.clone())),
        }
    }

    /// Whether it is time that the database gets everything.
    pub fn is_due(&self, now: Instant) -> bool {
        self.at >= SIZE_MAX || self.due().is_some_and(|due| due <= now)
    }

    /// When it is time at the latest.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + AGE_MAX)
    }

    /// Has changes in the file: all of them are found in it after the process has ended, or none.
    ///
    /// # Errors
    /// When they could not be written: nothing has changed then.
    pub fn append(&mut self, changes: Vec<Change>, now: Instant) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let frame = frame(self.mark, &changes);
        file.write_at(self.at, &frame)?;
        self.at += frame.len() as u64;
        self.values
            .extend(changes.into_iter().map(Change::into_value));
        self.since.get_or_insert(now);
        Ok(())
    }

    /// The database could not get everything: it is tried again after a while.
    pub fn put_off(&mut self, now: Instant) {
        if self.since.is_some() {
            self.since = Some(now);
        }
    }

    /// The database has everything, and says that these frames count from now on: none yet.
    pub fn begin(&mut self, mark: LogMark) {
        let file = self.file.take();
        if let Some(Err(error)) = file.as_ref().map(|it| it.truncate(0)) {
            // What stands in it counts no more.
            tracing::debug!(%error, "the log beside keyed state is not emptied");
        }
        *self = Self {
            file,
            mark,
            ..Self::default()
        };
    }
}

pub(super) fn frame(mark: LogMark, changes: &[Change]) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    bytes.extend(mark.generation.to_le_bytes());
    for (table, key, value) in changes.iter().map(Change::parts) {
        write_bytes(table.as_bytes(), &mut bytes);
        write_bytes(key, &mut bytes);
        bytes.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write_bytes(value, &mut bytes);
        }
    }
    let content = bytes.get(HEAD..).unwrap_or_default();
    let (size, crc) = (content.len() as u32, mark.checksum(content));
    let head = size.to_le_bytes().into_iter().chain(crc.to_le_bytes());
    bytes.iter_mut().zip(head).for_each(|(to, from)| *to = from);
    bytes
}

/// The changes of the first frame, and what comes behind it; `None` when there is none that counts.
fn read_frame(bytes: &[u8], mark: LogMark) -> Option<(Values, &[u8])> {
    let mut head = Cursor::new(bytes);
    let (size, crc) = (head.u32()?, head.u32()?);
    let content = head.take(size)?;
    let mut cursor = Cursor::new(content);
    // The checksum last: where a frame is looked for, there are many that are none.
    if cursor.u64()? != mark.generation || mark.checksum(content) != crc {
        return None;
    }
    let mut values = Values::new();
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
        values.insert((table, key), value);
    }
    Some((values, bytes.get(head.at()..)?))
}

/// Whether there is a frame that counts behind the first byte.
fn has_frame_behind(bytes: &[u8], mark: LogMark) -> bool {
    let may_be_one = |bytes: &[u8]| {
        let mut head = Cursor::new(bytes);
        let content = head.u32().and_then(|size| {
            head.u32()?;
            head.take(size)
        });
        content.and_then(|it| Cursor::new(it).u64()) == Some(mark.generation)
    };
    let behind = (1..bytes.len()).filter_map(|at| bytes.get(at..));
    let mut candidates = behind.filter(|it| may_be_one(it)).take(CANDIDATES_MAX);
    candidates.any(|it| read_frame(it, mark).is_some())
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
        let mark = LogMark {
            generation: 7,
            tag: Tag::Random(1),
        };
        let whole = frame(mark, &changes);
        let (values, rest) = read_frame(&whole, mark).unwrap();
        let wanted = changes.map(Change::into_value).into_iter().collect();
        assert_eq!((values, rest), (wanted, &[][..]));
        let others = [(8, Tag::Random(1)), (7, Tag::Random(2)), (7, Tag::Absent)];
        for (generation, tag) in others {
            assert!(read_frame(&whole, LogMark { generation, tag }).is_none());
        }
        for at in 0..whole.len() {
            assert!(read_frame(&whole[..at], mark).is_none(), "{at}");
            for bit in 0..8 {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                assert!(read_frame(&other, mark).is_none(), "{at} {bit}");
            }
        }
    }

    #[test]
    fn where_the_frames_end_is_told() {
        let marks = [Tag::Random(3), Tag::Absent].map(|tag| LogMark { generation: 5, tag });
        let [mark, old] = marks;
        let frames = |mark| {
            ["a", "b", "c"].map(|key| {
                let change = Change::Delete {
                    table: "t".into(),
                    key: Bytes::from(key),
                };
                frame(mark, &[change])
            })
        };
        let read = |mark, bytes: &[u8]| {
            let mut disk = SimDisk::new(1);
            let file = Disk::create(&mut disk, 1).unwrap();
            file.write_at(0, bytes).unwrap();
            let content = WriteAhead::read(&*file, mark).unwrap();
            (content.values.len(), content.end)
        };
        let whole = frames(mark).concat();
        let size = whole.len() / 3;
        assert_eq!(read(mark, &whole), (3, LogEnd::Whole));
        assert_eq!(read(mark, &[]), (0, LogEnd::Whole));
        let torn = (2, LogEnd::Torn(2 * size as u64));
        assert_eq!(read(mark, &whole[..3 * size - 1]), torn);
        let mut broken = whole.clone();
        broken[size + HEAD] ^= 1;
        assert_eq!(read(mark, &broken), (1, LogEnd::Broken(size as u64)));
        // Its size is another one.
        let mut broken = whole;
        broken[0] ^= 0x40;
        assert_eq!(read(mark, &broken), (0, LogEnd::Broken(0)));
        // Version 3 left what was there before.
        let left = [frames(old).concat(), frames(old.next(Tag::Absent)).concat()];
        assert_eq!(read(old, &left.concat()), (3, LogEnd::Whole));
    }
}
