//! Changes that have to outlive the process, not the machine: they are answered when they are in a
//! file, without an `fsync`, and are in memory until the next commit of the database takes them
//! along. What is in the file counts only for the generation that the database names: each commit
//! that takes changes along begins another one, and the file is written from its beginning again.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Change;
use crate::crc;
use crate::cursor::{Cursor, write_bytes};
use crate::disk::DiskFile;

/// The most bytes in the file, but for the last frame of it. Tests come to it soon.
const SIZE_MAX: u64 = if cfg!(test) { 4 << 10 } else { 1 << 20 };
/// For how long changes are there only.
const AGE_MAX: Duration = Duration::from_secs(1);
/// What stands before the content of a frame: its size, its checksum.
const HEAD: usize = 8;
/// How many bytes of a frame its generation takes.
const GENERATION: usize = 8;

/// Values by table and key; `None` for one that is taken away.
pub(super) type Values = BTreeMap<(Arc<str>, Bytes), Option<Bytes>>;

/// The log of changes that the database has not got yet.
#[derive(Default)]
pub(super) struct WriteAhead {
    /// Opened when something is to be written to it.
    pub file: Option<Box<dyn DiskFile>>,
    pub generation: u64,
    /// Where the next frame goes.
    at: u64,
    values: Values,
    /// Since when there are some.
    since: Option<Instant>,
}

impl WriteAhead {
    /// What is in the file, for the generation that the database names.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(file: &dyn DiskFile, generation: u64) -> io::Result<Values> {
        let mut bytes = vec![0; usize::try_from(file.size()?).map_err(io::Error::other)?];
        file.read_at(0, &mut bytes)?;
        let mut values = Values::new();
        let mut rest = &*bytes;
        // Where a frame is not whole, or of another generation, is the end.
        while let Some((changes, next)) = read_frame(rest, generation) {
            values.extend(changes);
            rest = next;
        }
        Ok(values)
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
        let frame = frame(self.generation, &changes);
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

    /// The database has everything, and names this generation.
    pub fn begin(&mut self, generation: u64) {
        *self = Self {
            file: self.file.take(),
            generation,
            ..Self::default()
        };
    }
}

fn frame(generation: u64, changes: &[Change]) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    bytes.extend(generation.to_le_bytes());
    for (table, key, value) in changes.iter().map(Change::parts) {
        write_bytes(table.as_bytes(), &mut bytes);
        write_bytes(key, &mut bytes);
        bytes.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write_bytes(value, &mut bytes);
        }
    }
    let content = bytes.get(HEAD..).unwrap_or_default();
    let (size, crc) = (content.len() as u32, crc::of(content));
    let head = size.to_le_bytes().into_iter().chain(crc.to_le_bytes());
    bytes.iter_mut().zip(head).for_each(|(to, from)| *to = from);
    bytes
}

/// The changes of the first frame, and what comes behind it; `None` when there is none of this
/// generation.
fn read_frame(bytes: &[u8], generation: u64) -> Option<(Values, &[u8])> {
    let mut head = Cursor::new(bytes);
    let (size, crc) = (head.u32()?, head.u32()?);
    let content = head.take(size)?;
    let is_whole = content.len() >= GENERATION && crc::of(content) == crc;
    let mut cursor = Cursor::new(content);
    if !is_whole || cursor.u64()? != generation {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let whole = frame(7, &changes);
        let (values, rest) = read_frame(&whole, 7).unwrap();
        let wanted = changes.map(Change::into_value).into_iter().collect();
        assert_eq!((values, rest), (wanted, &[][..]));
        assert!(read_frame(&whole, 8).is_none());
        for at in 0..whole.len() {
            assert!(read_frame(&whole[..at], 7).is_none(), "{at}");
            for bit in 0..8 {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                assert!(read_frame(&other, 7).is_none(), "{at} {bit}");
            }
        }
    }
}
