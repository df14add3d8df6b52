//! What files a log has to have, and how much of the last one: a file that is missing, emptied or
//! cut is then no shorter log, but damage.
//!
//! Two slots are written in turn, so that one is always whole, and in place, so that it can be
//! written when the disk is full. A file is named before anything stands in it, and the oldest is
//! no longer named before it is removed.

use std::io;

use crate::crc;
use crate::cursor::Cursor;
use crate::disk::DiskFile;

const MAGIC: [u8; 8] = *b"ITMANIF1";
/// How far the slots are apart: a write that is torn destroys one of them.
const SLOT: u64 = 4096;
const SLOTS: u64 = 2;
/// How many bytes of a slot are used.
const USED: usize = 61;

/// What a log has to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The random number of all its files.
    pub tag: u64,
    /// The number of the oldest file.
    pub first: u64,
    /// The number of the file that is written to.
    pub last: u64,
    /// The length of that file that is known to be durable, in bytes.
    pub end: u64,
    /// The number of the frame behind them.
    pub frame: u64,
    /// Whether that is all that has been written.
    pub is_closed: bool,
}

impl Bounds {
    fn write(&self, generation: u64) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [
            generation, self.tag, self.first, self.last, self.end, self.frame,
        ] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.push(u8::from(self.is_closed));
        bytes.extend(crc::of(&bytes).to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<(u64, Self)> {
        let mut cursor = Cursor::new(bytes);
        let magic: [u8; 8] = cursor.array()?;
        let generation = cursor.u64()?;
        let bounds = Self {
            tag: cursor.u64()?,
            first: cursor.u64()?,
            last: cursor.u64()?,
            end: cursor.u64()?,
            frame: cursor.u64()?,
            is_closed: cursor.u8()? != 0,
        };
        let crc = crc::of(bytes.get(..USED - 4)?);
        (magic == MAGIC && cursor.u32()? == crc).then_some((generation, bounds))
    }
}

/// The file of them.
pub(super) struct Manifest {
    file: Box<dyn DiskFile>,
    /// The slot that is on the disk for certain, and its number.
    slot: u64,
    generation: u64,
    bounds: Bounds,
}

impl Manifest {
    /// Begins one in an empty file, which the caller names durably.
    pub fn create(file: Box<dyn DiskFile>, bounds: Bounds) -> io::Result<Self> {
        // All of its space is taken at once.
        file.write_at(0, &vec![0; (SLOT * SLOTS) as usize])?;
        let mut made = Self {
            file,
            slot: 1,
            generation: 0,
            bounds,
        };
        made.note(bounds)?;
        made.sync()?;
        Ok(made)
    }

    /// What it says; `None` when neither slot is whole.
    pub fn read(file: Box<dyn DiskFile>) -> io::Result<Option<Self>> {
        let size = file.size()?;
        let mut newest: Option<(u64, u64, Bounds)> = None;
        for slot in (0..SLOTS).filter(|slot| slot * SLOT + USED as u64 <= size) {
            let mut bytes = [0; USED];
            file.read_at(slot * SLOT, &mut bytes)?;
            if let Some((generation, bounds)) = Bounds::read(&bytes)
                && newest.is_none_or(|newest| newest.1 < generation)
            {
                newest = Some((slot, generation, bounds));
            }
        }
        Ok(newest.map(|(slot, generation, bounds)| Self {
            file,
            slot,
            generation,
            bounds,
        }))
    }

    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Has what was read on the disk for certain: it may have been in memory alone.
    pub fn confirm(&self) -> io::Result<()> {
        let bytes = self.bounds.write(self.generation);
        self.file.write_at(self.slot * SLOT, &bytes)?;
        self.file.sync()
    }

    /// Has what was noted last on the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.slot = (self.slot + 1) % SLOTS;
        Ok(())
    }

    /// Replaces what it says, for whoever finds the file as the process left it: the machine may
    /// forget it. What is on the disk for certain stays there.
    pub fn note(&mut self, bounds: Bounds) -> io::Result<()> {
        self.generation += 1;
        let bytes = bounds.write(self.generation);
        self.file.write_at((self.slot + 1) % SLOTS * SLOT, &bytes)?;
        self.bounds = bounds;
        Ok(())
    }
}
