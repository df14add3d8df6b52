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
    /// A random number of the run that stored it; 0 for the tag of the files, which messages of
    /// the first version go by.
    pub epoch: u64,
    /// When it was stored, in milliseconds since 1970 began.
    pub stored: u64,
    /// When it may be taken again.
    pub due: Due,
    /// How often it has been taken in vain.
    pub attempts: u32,
    pub queue: &'a str,
    pub key: &'a [u8],
    /// Why nobody takes it any more.
    pub dead: Option<&'a str>,
    pub body: &'a [u8],
    /// The checksum of key and body; `None` in files of the first version, whose frames are
    /// checked.
    pub crc: Option<u32>,
}

/// When a message may be taken again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// In milliseconds since 1970 began; 0 for at once.
    pub at: u64,
    /// How long it was to wait when that was noted, in milliseconds: whatever the clock says after
    /// a start, it does not wait longer.
    pub wait: u32,
}

/// What has happened to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// It is there; the same again when its file goes away.
    Put(Put<'a>),
    /// It is not needed any more.
    Done(u64),
    /// It is to be taken again, at this time, after so many attempts.
    Back(u64, Due, u32),
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
/// With epoch, wait and checksum, which the first version does not have.
const PUT_2: u8 = 6;
/// With a wait.
const BACK_2: u8 = 7;

impl Put<'_> {
    fn checksum(&self) -> u32 {
        let made = || crc::extend(crc::of(self.key), self.body);
        self.crc.unwrap_or_else(made)
    }
}

impl Due {
    fn write(self, out: &mut Vec<u8>) {
        out.extend(self.at.to_le_bytes());
        out.extend(self.wait.to_le_bytes());
    }

    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let (at, wait) = (cursor.u64()?, cursor.u32()?);
        Some(Self { at, wait })
    }

    /// Of the first version, which did not say how long.
    fn read_1(cursor: &mut Cursor<'_>) -> Option<Self> {
        let (at, wait) = (cursor.u64()?, u32::MAX);
        Some(Self { at, wait })
    }
}

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
                out.push(BACK_2);
                out.extend(id.to_le_bytes());
                due.write(out);
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
    out.push(PUT_2);
    for number in [put.id, put.epoch, put.stored] {
        out.extend(number.to_le_bytes());
    }
    put.due.write(out);
    out.extend(put.attempts.to_le_bytes());
    write_bytes(put.queue.as_bytes(), out);
    out.push(u8::from(put.dead.is_some()));
    write_bytes(put.dead.unwrap_or_default().as_bytes(), out);
    out.extend(put.checksum().to_le_bytes());
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
            PUT => Record::Put(self.put_1(id)?),
            PUT_2 => Record::Put(self.put_2(id)?),
            DONE => Record::Done(id),
            BACK => Record::Back(id, Due::read_1(cursor)?, cursor.u32()?),
            BACK_2 => Record::Back(id, Due::read(cursor)?, cursor.u32()?),
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

    fn put_1(&mut self, id: u64) -> Option<Put<'a>> {
        let cursor = &mut self.0;
        let (stored, mut due) = (cursor.u64()?, Due::read_1(cursor)?);
        let attempts = cursor.u32()?;
        if attempts == 0 {
            // It was said to be due when it was stored.
            due = Due::default();
        }
        let (queue, dead) = self.queue()?;
        self.bytes(Put {
            id,
            epoch: 0,
            stored,
            due,
            attempts,
            queue,
            key: b"",
            dead,
            body: b"",
            crc: None,
        })
    }

    fn put_2(&mut self, id: u64) -> Option<Put<'a>> {
        let cursor = &mut self.0;
        let (epoch, stored) = (cursor.u64()?, cursor.u64()?);
        let (due, attempts) = (Due::read(cursor)?, cursor.u32()?);
        let (queue, dead) = self.queue()?;
        let crc = Some(self.0.u32()?);
        self.bytes(Put {
            id,
            epoch,
            stored,
            due,
            attempts,
            queue,
            key: b"",
            dead,
            body: b"",
            crc,
        })
    }

    /// The queue, and why nobody takes the message any more.
    fn queue(&mut self) -> Option<(&'a str, Option<&'a str>)> {
        let cursor = &mut self.0;
        let queue = cursor.text()?;
        let is_dead = cursor.u8()?;
        let why = cursor.text()?;
        Some((queue, (is_dead != 0).then_some(why)))
    }

    fn bytes(&mut self, put: Put<'a>) -> Option<Put<'a>> {
        let cursor = &mut self.0;
        let (key, body) = (cursor.u32()?, cursor.u32()?);
        let (key, body) = (cursor.take(key)?, cursor.take(body)?);
        Some(Put { key, body, ..put })
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
            crc: put.checksum(),
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
            epoch: 8,
            stored: 1,
            due: Due { at: 2, wait: 3 },
            attempts: 3,
            queue: "orders",
            key: b"k",
            dead: Some("why"),
            body: b"content",
            crc: Some(5),
        };
        let records = [
            Record::Put(put.clone()),
            Record::Put(Put {
                dead: None,
                body: b"",
                ..put
            }),
            Record::Done(7),
            Record::Back(7, Due { at: 9, wait: 1 }, 2),
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
