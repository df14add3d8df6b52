//! The tables of keyed state in `redb`, and what the database says of the log beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadableDatabase, Table, TableDefinition, TableError};

use crate::crc;

/// About how many bytes are given at once.
const SCAN_MAX: usize = 16 << 20;

/// The table that says which frames of the log beside the file count, and its keys.
const LOG: &str = "write-ahead";
const FIRST: &[u8] = b"first";
/// In place of the first one, where versions 3 and 4 of the part have written it.
const GENERATION: &[u8] = b"generation";
const TAG: &[u8] = b"tag";

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

/// A table, a key, and the value that it gets; `None` where it has none from then on.
pub(super) type Parts<'a> = (&'a Arc<str>, &'a Bytes, Option<&'a Bytes>);

/// Which frames of the log beside the database count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogMark {
    pub replayed: ReplayRange,
    pub tag: Tag,
}

/// The frames that the database has not got, which are replayed when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplayRange {
    /// Those from this number on, without a gap.
    From(u64),
    /// All of this generation, as versions 3 and 4 of the part wrote them. It is 0 where there was
    /// no log.
    Generation(u64),
}

/// What the checksums of frames begin with. Each use of the log, from the first frame of a process
/// to its end, has another one, so that a database that is put back from a copy never takes frames
/// for its own that were written behind other ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tag {
    /// Frames have none: version 3 of the part has written them.
    #[default]
    Absent,
    /// No frame counts, and the log may be missing.
    Unused,
    /// Frames may be there: a log that is missing is missed.
    Random(u64),
}

impl LogMark {
    /// What the database says.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(database: &Database) -> Result<Self, redb::Error> {
        let number = |value: &Bytes| value.first_chunk().map(|it| u64::from_le_bytes(*it));
        let named = |key| get(database, LOG, key).map(|it| it.as_ref().and_then(number));
        let replayed = match named(FIRST)? {
            Some(first) => ReplayRange::From(first),
            None => ReplayRange::Generation(named(GENERATION)?.unwrap_or_default()),
        };
        let tag = get(database, LOG, TAG)?;
        Ok(Self {
            replayed,
            tag: match tag.as_ref().map(number) {
                None => Tag::Absent,
                Some(None) => Tag::Unused,
                Some(Some(tag)) => Tag::Random(tag),
            },
        })
    }

    /// The mark of a log from which no frame counts.
    pub fn unused() -> Self {
        Self {
            replayed: ReplayRange::From(1),
            tag: Tag::Unused,
        }
    }
}

impl Tag {
    /// The checksum of a frame's content.
    pub fn checksum(self, content: &[u8]) -> u32 {
        match self {
            Self::Absent | Self::Unused => crc::of(content),
            Self::Random(tag) => crc::extend(crc::of(&tag.to_le_bytes()), content),
        }
    }
}

/// Makes all changes in one commit, from which on these frames of the log count.
pub(super) fn write<'a>(
    database: &Database,
    changes: impl Iterator<Item = Parts<'a>>,
    mark: Option<LogMark>,
) -> Result<(), redb::Error> {
    let mut of_tables: BTreeMap<&str, Vec<Parts<'a>>> = BTreeMap::new();
    for change in changes {
        of_tables.entry(change.0).or_default().push(change);
    }
    let transaction = database.begin_write()?;
    for (name, changes) in of_tables {
        let mut table: Table<&[u8], &[u8]> = transaction.open_table(Definition::new(name))?;
        for (_, key, value) in changes {
            match value {
                Some(value) => drop(table.insert(&**key, &**value)?),
                None => drop(table.remove(&**key)?),
            }
        }
    }
    if let Some(mark) = mark {
        let mut table = transaction.open_table(Definition::new(LOG))?;
        let (key, number) = match mark.replayed {
            ReplayRange::From(first) => {
                table.remove(GENERATION)?;
                (FIRST, first)
            }
            ReplayRange::Generation(generation) => (GENERATION, generation),
        };
        table.insert(key, &number.to_le_bytes()[..])?;
        match mark.tag {
            Tag::Absent => drop(table.remove(TAG)?),
            Tag::Unused => drop(table.insert(TAG, &[][..])?),
            Tag::Random(tag) => drop(table.insert(TAG, &tag.to_le_bytes()[..])?),
        }
    }
    transaction.commit()?;
    Ok(())
}

/// The value of a key.
pub(super) fn get(
    database: &Database,
    table: &str,
    key: &[u8],
) -> Result<Option<Bytes>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(Definition::new(table)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let value = table.get(key)?;
    Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
}

/// The keys of a table that begin like this, behind `after`, with their values.
pub(super) fn scan(
    database: &Database,
    table: &str,
    prefix: &[u8],
    after: Option<&[u8]>,
    most: usize,
) -> Result<Vec<(Bytes, Bytes)>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(Definition::new(table)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let start = after.map_or(prefix, |after| after.max(prefix));
    let mut found = Vec::new();
    let mut size = 0;
    for pair in table.range(start..)? {
        let (key, value) = pair?;
        let (key, value) = (key.value(), value.value());
        if !key.starts_with(prefix) || found.len() >= most || size >= SCAN_MAX {
            break;
        }
        if after.is_none_or(|after| key > after) {
            size += key.len() + value.len();
            found.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
        }
    }
    Ok(found)
}
