//! What stands in the files of the outbox: records of what has happened to messages, many of them
//! in a frame. Numbers are little-endian.

use crate::crc;
use crate::cursor::{Cursor, write_bytes};
use crate::frame::Format;

/// Where a message's key is, with its bytes behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the file.
    pub segment: u64,
    /// Where the key begins in it.
    pub at: u64,
    /// How many bytes the key has.
    pub key: u32,
    /// How many bytes the message has.
    pub size: u32,
    /// The checksum of both.
    pub crc: u32,
}

/// A message as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Put<'a> {
    pub id: u64,
    /// When it was stored, in milliseconds since 1970 began.
    pub stored: u64,
    /// When it may be taken, the same.
    pub due: u64,
    /// How often it has been taken in vain.
    pub attempts: u32,
    pub queue: &'a str,
    pub key: &'a [u8],
    /// Why nobody takes it any more.
    pub dead: Option<&'a str>,
    pub body: &'a [u8],
}

/// What has happened to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// It is there; the same again when its file goes away.
    Put(Put<'a>),
    /// It is not needed any more.
    Done(u64),
    /// It is to be taken again, at this time, after so many attempts.
    Back(u64, u64, u32),
    /// Nobody takes it any more, after so many attempts, for this reason.
    Bury(u64, u32, &'a str),
    /// It is to be taken again as if it were new.
    Revive(u64),
}

const PUT: u8 = 1;
const DONE: u8 = 2;
const BACK: u8 = 3;
const BURY: u8 = 4;
const REVIVE: u8 = 5;

impl Record<'_> {
    /// Writes it behind what is there. Gives where the key begins, of one that has one.
    pub fn write(&self, out: &mut Vec<u8>) -> usize {
        match self {
            Self::Put(put) => return write_put(put, out),
            Self::Done(id) => {
                out.push(DONE);
                out.extend(id.to_le_bytes());
            }
            Self::Back(id, due, attempts) => {
                out.push(BACK);
                out.extend(id.to_le_bytes());
                out.extend(due.to_le_bytes());
                out.extend(attempts.to_le_bytes());
            }
            Self::Bury(id, attempts, why) => {
                out.push(BURY);
                out.extend(id.to_le_bytes());
                out.extend(attempts.to_le_bytes());
                write_bytes(why.as_bytes(), out);
            }
            Self::Revive(id) => {
                out.push(REVIVE);
                out.extend(id.to_le_bytes());
            }
        }
        out.len()
    }
}

fn write_put(put: &Put<'_>, out: &mut Vec<u8>) -> usize {
    out.push(PUT);
    out.extend(put.id.to_le_bytes());
    out.extend(put.stored.to_le_bytes());
    out.extend(put.due.to_le_bytes());
    out.extend(put.attempts.to_le_bytes());
    write_bytes(put.queue.as_bytes(), out);
    out.push(u8::from(put.dead.is_some()));
    write_bytes(put.dead.unwrap_or_default().as_bytes(), out);
    out.extend((put.key.len() as u32).to_le_bytes());
    out.extend((put.body.len() as u32).to_le_bytes());
    let at = out.len();
    out.extend_from_slice(put.key);
    out.extend_from_slice(put.body);
    at
}

/// Reads records one after the other.
pub(crate) struct Reader<'a>(Cursor<'a>);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Cursor::new(bytes))
    }

    /// The next record, and where the key begins of one that has one; `None` at the end.
    ///
    /// # Errors
    /// When it is none.
    pub fn next(&mut self) -> Option<Result<(Record<'a>, usize), ()>> {
        (!self.0.is_at_end()).then(|| self.record().ok_or(()))
    }

    fn record(&mut self) -> Option<(Record<'a>, usize)> {
        let cursor = &mut self.0;
        let kind = cursor.u8()?;
        let id = cursor.u64()?;
        let record = match kind {
            PUT => Record::Put(self.put(id)?),
            DONE => Record::Done(id),
            BACK => Record::Back(id, cursor.u64()?, cursor.u32()?),
            BURY => Record::Bury(id, cursor.u32()?, cursor.text()?),
            REVIVE => Record::Revive(id),
            _ => return None,
        };
        let body = match &record {
            Record::Put(put) => self.0.at() - put.body.len() - put.key.len(),
            _ => self.0.at(),
        };
        Some((record, body))
    }

    fn put(&mut self, id: u64) -> Option<Put<'a>> {
        let cursor = &mut self.0;
        let (stored, due, attempts) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
        let queue = cursor.text()?;
        let is_dead = cursor.u8()?;
        let why = cursor.text()?;
        let (key, body) = (cursor.u32()?, cursor.u32()?);
        let (key, body) = (cursor.take(key)?, cursor.take(body)?);
        Some(Put {
            id,
            stored,
            due,
            attempts,
            queue,
            key,
            dead: (is_dead != 0).then_some(why),
            body,
        })
    }
}

/// The files of the outbox.
pub(crate) static FORMAT: Format = Format {
    folder: "store",
    magic: *b"ITSTORE1",
    is_indexed: false,
};

/// The place of a record's bytes in a file, by where the records of its frame begin and by where
/// its key begins among them.
pub(crate) fn place(segment: u64, start: u64, key: usize, record: &Record<'_>) -> Place {
    match record {
        Record::Put(put) => Place {
            segment,
            at: start + key as u64,
            key: put.key.len() as u32,
            size: put.body.len() as u32,
            crc: crc::extend(crc::of(put.key), put.body),
        },
        _ => Place::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let put = Put {
            id: 7,
            stored: 1,
            due: 2,
            attempts: 3,
            queue: "orders",
            key: b"k",
            dead: Some("why"),
            body: b"content",
        };
        let records = [
            Record::Put(put.clone()),
            Record::Put(Put {
                dead: None,
                body: b"",
                ..put
            }),
            Record::Done(7),
            Record::Back(7, 9, 2),
            Record::Bury(7, 3, "no"),
            Record::Revive(7),
        ];
        let mut bytes = Vec::new();
        let places: Vec<usize> = records.iter().map(|it| it.write(&mut bytes)).collect();
        let mut reader = Reader::new(&bytes);
        for (record, place) in records.iter().zip(places) {
            assert_eq!(reader.next(), Some(Ok((record.clone(), place))));
        }
        assert_eq!(reader.next(), None);
        for size in 1..bytes.len() {
            let mut reader = Reader::new(&bytes[..size]);
            // Whatever is cut off is told or ends.
            while let Some(Ok(_)) = reader.next() {}
        }
    }
}
