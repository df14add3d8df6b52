//! What stands in the files: records of what has happened to messages, many of them in a frame
//! that is there as a whole or not at all. Numbers are little-endian.

use crate::crc;

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

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Reads records one after the other.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next record, and where the key begins of one that has one; `None` at the end.
    ///
    /// # Errors
    /// When it is none.
    pub fn next(&mut self) -> Option<Result<(Record<'a>, usize), ()>> {
        (self.at < self.bytes.len()).then(|| self.record().ok_or(()))
    }

    fn record(&mut self) -> Option<(Record<'a>, usize)> {
        let [kind] = self.array()?;
        let id = self.u64()?;
        let record = match kind {
            PUT => Record::Put(self.put(id)?),
            DONE => Record::Done(id),
            BACK => Record::Back(id, self.u64()?, self.u32()?),
            BURY => Record::Bury(id, self.u32()?, self.text()?),
            REVIVE => Record::Revive(id),
            _ => return None,
        };
        let body = match &record {
            Record::Put(put) => self.at - put.body.len() - put.key.len(),
            _ => self.at,
        };
        Some((record, body))
    }

    fn put(&mut self, id: u64) -> Option<Put<'a>> {
        let (stored, due, attempts) = (self.u64()?, self.u64()?, self.u32()?);
        let queue = self.text()?;
        let [is_dead] = self.array()?;
        let why = self.text()?;
        let (key, body) = (self.u32()?, self.u32()?);
        let (key, body) = (self.take(key)?, self.take(body)?);
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

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.slice()?).ok()
    }

    fn slice(&mut self) -> Option<&'a [u8]> {
        let size = self.u32()?;
        self.take(size)
    }

    fn take(&mut self, size: u32) -> Option<&'a [u8]> {
        let end = self.at.checked_add(size as usize)?;
        let slice = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(slice)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, _) = self.bytes.get(self.at..)?.split_first_chunk::<N>()?;
        self.at += N;
        Some(*array)
    }
}

/// What stands at the beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// A number of chance that all files of a folder have.
    pub tag: u64,
    /// The file's number.
    pub number: u64,
    /// The number of its first frame.
    pub frame: u64,
    /// The number that the next new message gets.
    pub next_id: u64,
}

impl Header {
    /// How many bytes it takes.
    pub const SIZE: usize = 44;
    const MAGIC: [u8; 8] = *b"ITSTORE1";

    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Self::MAGIC.to_vec();
        for number in [self.tag, self.number, self.frame, self.next_id] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(crc::of(&bytes).to_le_bytes());
        bytes
    }

    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let magic: [u8; 8] = reader.array()?;
        let header = Self {
            tag: reader.u64()?,
            number: reader.u64()?,
            frame: reader.u64()?,
            next_id: reader.u64()?,
        };
        let crc = crc::of(bytes.get(..Self::SIZE - 4)?);
        (magic == Self::MAGIC && reader.u32()? == crc).then_some(header)
    }
}

/// What stands before the records of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    /// How many bytes of records follow.
    pub size: u32,
    /// The frame's number.
    pub number: u64,
    /// The checksum.
    pub crc: u32,
}

impl FrameHead {
    /// How many bytes it takes.
    pub const SIZE: usize = 20;
    /// How it begins.
    pub const MAGIC: [u8; 4] = *b"\xf1ITf";

    /// The head of the frame with these records.
    pub fn of(tag: u64, number: u64, records: &[u8]) -> Self {
        let size = records.len() as u32;
        let mut crc = crc::of(&tag.to_le_bytes());
        crc = crc::extend(crc, &number.to_le_bytes());
        crc = crc::extend(crc, &size.to_le_bytes());
        crc = crc::extend(crc, records);
        Self { size, number, crc }
    }

    pub fn write(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let parts = Self::MAGIC
            .into_iter()
            .chain(self.size.to_le_bytes())
            .chain(self.number.to_le_bytes())
            .chain(self.crc.to_le_bytes());
        bytes
            .iter_mut()
            .zip(parts)
            .for_each(|(to, from)| *to = from);
        bytes
    }

    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let magic: [u8; 4] = reader.array()?;
        let (size, number, crc) = (reader.u32()?, reader.u64()?, reader.u32()?);
        (magic == Self::MAGIC).then_some(Self { size, number, crc })
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

    #[test]
    fn headers_are_checked() {
        let header = Header {
            tag: 1,
            number: 2,
            frame: 3,
            next_id: 4,
        };
        let mut bytes = header.write();
        assert_eq!(bytes.len(), Header::SIZE);
        assert_eq!(Header::read(&bytes), Some(header));
        bytes[9] ^= 1;
        assert_eq!(Header::read(&bytes), None);
    }
}
