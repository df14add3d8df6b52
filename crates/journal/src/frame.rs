//! What all files of a log have in common: what stands at their beginning, and what stands before
//! the records of a frame, which are there as a whole or not at all.

use crate::crc;
use crate::cursor::Cursor;

/// What kind of log it is.
pub(crate) struct Format {
    /// The folder of its files, for what is said about them.
    pub folder: &'static str,
    /// How its files begin.
    pub magic: [u8; 8],
    /// Whether a file that is full gets an index at its end.
    pub is_indexed: bool,
}

impl Format {
    /// What a file is called when something is said about it.
    pub fn file(&self, number: u64) -> String {
        format!("{}/{}", self.folder, crate::folder::file_name(number))
    }
}

/// What stands at the beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// A random number that all files of a folder have.
    pub tag: u64,
    /// The file's number.
    pub number: u64,
    /// The number of its first frame.
    pub frame: u64,
    /// The number that the next new message or stream gets.
    pub next_id: u64,
}

impl Header {
    /// How many bytes it takes.
    pub const SIZE: usize = 44;

    pub fn write(&self, magic: [u8; 8]) -> Vec<u8> {
        let mut bytes = magic.to_vec();
        for number in [self.tag, self.number, self.frame, self.next_id] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(crc::of(&bytes).to_le_bytes());
        bytes
    }

    pub fn read(magic: [u8; 8], bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let found: [u8; 8] = cursor.array()?;
        let header = Self {
            tag: cursor.u64()?,
            number: cursor.u64()?,
            frame: cursor.u64()?,
            next_id: cursor.u64()?,
        };
        let crc = crc::of(bytes.get(..Self::SIZE - 4)?);
        (found == magic && cursor.u32()? == crc).then_some(header)
    }
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Records of what has happened.
    Records,
    /// Where in the file what is. It has the number of the frame that comes next.
    Index,
}

impl Holds {
    /// How the frame begins.
    fn magic(self) -> [u8; 4] {
        match self {
            Self::Records => *b"\xf1ITf",
            Self::Index => *b"\xf1ITx",
        }
    }
}

/// What stands before the content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub holds: Holds,
    /// How many bytes follow.
    pub size: u32,
    /// The frame's number.
    pub number: u64,
    /// The checksum.
    pub crc: u32,
}

impl FrameHead {
    /// How many bytes it takes.
    pub const SIZE: usize = 20;
    /// How every frame begins.
    pub const MAGIC: [u8; 3] = *b"\xf1IT";

    /// The head of the frame with this content.
    pub fn of(holds: Holds, tag: u64, number: u64, content: &[u8]) -> Self {
        let size = content.len() as u32;
        let mut crc = crc::of(&tag.to_le_bytes());
        crc = crc::extend(crc, &number.to_le_bytes());
        crc = crc::extend(crc, &size.to_le_bytes());
        crc = crc::extend(crc, content);
        if holds == Holds::Index {
            crc = crc::extend(crc, b"index");
        }
        Self {
            holds,
            size,
            number,
            crc,
        }
    }

    pub fn write(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let parts = self.holds.magic().into_iter();
        let parts = parts
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
        let mut cursor = Cursor::new(bytes);
        let magic: [u8; 4] = cursor.array()?;
        let (size, number, crc) = (cursor.u32()?, cursor.u64()?, cursor.u32()?);
        let kinds = [Holds::Records, Holds::Index];
        let holds = kinds.into_iter().find(|it| it.magic() == magic)?;
        Some(Self {
            holds,
            size,
            number,
            crc,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked() {
        let header = Header {
            tag: 1,
            number: 2,
            frame: 3,
            next_id: 4,
        };
        let magic = *b"ITSTORE1";
        let mut bytes = header.write(magic);
        assert_eq!(bytes.len(), Header::SIZE);
        assert_eq!(Header::read(magic, &bytes), Some(header));
        assert_eq!(Header::read(*b"ITOTHER1", &bytes), None);
        bytes[9] ^= 1;
        assert_eq!(Header::read(magic, &bytes), None);
    }

    #[test]
    fn heads_of_frames_are_read_as_written() {
        for holds in [Holds::Records, Holds::Index] {
            let head = FrameHead::of(holds, 1, 2, b"content");
            assert_eq!(FrameHead::read(&head.write()), Some(head));
            assert!(head.write().starts_with(&FrameHead::MAGIC));
        }
        let (records, index) = (Holds::Records, Holds::Index);
        let crc = |holds| FrameHead::of(holds, 1, 2, b"content").crc;
        assert_ne!(crc(records), crc(index));
        assert_eq!(FrameHead::read(&[0; FrameHead::SIZE]), None);
    }
}
