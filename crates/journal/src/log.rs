//! The files: frames of records, one behind the other, in files one behind the other. A frame is on
//! the disk before anybody is told so, and the next one is begun only then. So there is at most one
//! frame that is there in part, the last one, and nobody has been told of it.
//!
//! Files go away from the oldest on only: what says that a message is done then never goes before
//! the message.
//!
//! The log does not know what records are. Where its format says so, a file that is full gets an
//! index at its end, so that a start need not read what is before it.

mod ahead;
mod manifest;
mod opening;

pub(crate) use opening::write_again;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::crc;
use crate::disk::{Disk, DiskFile, LowSpace};
use crate::error::Refusal;
use crate::frame::{Format, FrameHead, Header, Holds};
use crate::record::Place;
use manifest::{Bounds, Manifest};

/// What is taken of the disk at least for nothing, so that messages can be marked as done when it
/// is full; and by how much it grows.
const RESERVE: u64 = 256 * 1024;
/// What is taken at most.
const RESERVE_MAX: u64 = 16 << 20;
/// How much of it notes may use that remove nothing.
const RESERVE_OF_NOTES: u64 = RESERVE / 2;
/// A file is tidied on a full disk when what is needed in it has at most so many bytes.
pub(crate) const MOVED_WHEN_LOW: u64 = RESERVE / 8;
/// The last file is left for another one on a full disk when that gives back more than this.
const LEFT_BEHIND_MIN: u64 = 4096;
/// Where the frames of a file begin.
const HEAD: u64 = Header::SIZE as u64;
/// What stands at the end of an index: where its frame begins, and this.
const INDEX_END: [u8; 8] = *b"ITINDEX1";
/// How many bytes both take.
const INDEX_END_SIZE: usize = 16;

/// The files of a journal.
pub(crate) struct Log {
    disk: Box<dyn Disk>,
    format: &'static Format,
    segments: BTreeMap<u64, Segment>,
    /// What there has to be at the next start; not there while the files are opened.
    manifest: Option<Manifest>,
    /// A random number that all files have.
    pub tag: u64,
    /// The number of the next frame.
    frame: u64,
    /// How large a file gets before another one is begun.
    segment_max: u64,
    /// Why nothing is written any more.
    poison: Option<String>,
    /// How much of the disk is taken for nothing, and how much is to be.
    reserved: u64,
    to_reserve: u64,
    /// What other logs of the folder have to know of the disk, too.
    low_space: LowSpace,
    /// Whether others have been told that space is low.
    is_low: bool,
}

/// What is written, for what space it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Something new.
    New,
    /// What has become of something that is there, and stays.
    Note,
    /// What lets space be given back.
    Removal,
}

struct Segment {
    file: Arc<dyn DiskFile>,
    size: u64,
}

/// What the files say.
pub(crate) enum Told<'a> {
    /// A file begins; new messages or streams have this number or a higher one.
    File(u64),
    /// The records of a frame: the number of the file, where they begin in it, and they.
    Frame(u64, u64, &'a [u8]),
    /// The index of a file: its number, and what the index says instead of all its frames.
    Index(u64, &'a [u8]),
}

impl Log {
    /// Appends a frame with these records and makes it durable. `records` begins with
    /// [`FrameHead::SIZE`] bytes for its head. Gives the number of the file and where the records
    /// begin in it.
    ///
    /// # Errors
    /// `NoSpace` when nothing has been written, `Poisoned` when that is not known.
    pub fn append(&mut self, records: &mut [u8], next_id: u64) -> Result<(u64, u64), Refusal> {
        self.check()?;
        if self.is_full(records.len() as u64) {
            self.roll(next_id)?;
        }
        let place = self.put(Holds::Records, records)?;
        self.frame += 1;
        Ok(place)
    }

    /// Whether a frame of this size needs another file.
    pub fn is_full(&self, size: u64) -> bool {
        let last = self.segments.last_key_value();
        last.is_some_and(|(_, last)| last.size > HEAD && last.size + size > self.segment_max)
    }

    /// Whether the last file, of which so many bytes are still needed, holds little else than what
    /// is not. On a full disk another one is begun then: a file goes only when one is behind it.
    pub fn is_last_to_be_left(&self, live: u64) -> bool {
        let size = self.segments.last_key_value().map_or(0, |it| it.1.size);
        let dead = size.saturating_sub(HEAD + live);
        live <= MOVED_WHEN_LOW && dead > live.max(LEFT_BEHIND_MIN)
    }

    /// Whether nothing stands in the last file.
    pub fn is_last_empty(&self) -> bool {
        let last = self.segments.last_key_value();
        last.is_none_or(|(_, last)| last.size <= HEAD)
    }

    /// Puts an index at the end of the last file. A file without one can be read as well.
    ///
    /// # Errors
    /// `NoSpace` when it has none, `Poisoned` when that is not known.
    pub fn seal(&mut self, index: &[u8]) -> Result<(), Refusal> {
        self.check()?;
        let start = self.segments.last_key_value().map_or(0, |it| it.1.size);
        let mut frame = Vec::with_capacity(FrameHead::SIZE + index.len() + INDEX_END_SIZE);
        frame.resize(FrameHead::SIZE, 0);
        frame.extend_from_slice(index);
        frame.extend(start.to_le_bytes());
        frame.extend(INDEX_END);
        self.put(Holds::Index, &mut frame).map(drop)
    }

    /// Writes a frame behind the last one and makes it durable.
    fn put(&mut self, holds: Holds, frame: &mut [u8]) -> Result<(u64, u64), Refusal> {
        let (head, content) = frame
            .split_at_mut_checked(FrameHead::SIZE)
            .unwrap_or_default();
        head.copy_from_slice(&FrameHead::of(holds, self.tag, self.frame, content).write());
        let Some(mut last) = self.segments.last_entry() else {
            return Err(Refusal::Closed);
        };
        let number = *last.key();
        let segment = last.get_mut();
        let start = segment.size;
        if let Err(error) = segment.file.write_at(start, frame) {
            let undone = segment.file.truncate(start);
            if let Err(second) = undone.and_then(|()| segment.file.sync()) {
                self.poison(format!("a failed write cannot be undone: {second}"));
            }
            return Err(self.refusal(&error));
        }
        if let Err(error) = segment.file.sync() {
            self.poison(format!("fsync failed: {error}"));
            return Err(self.refusal(&error));
        }
        segment.size += frame.len() as u64;
        Ok((number, start + FrameHead::SIZE as u64))
    }

    /// Begins another file.
    ///
    /// # Errors
    /// `NoSpace` when there is none, `Poisoned` when that is not known.
    pub fn roll(&mut self, next_id: u64) -> Result<(), Refusal> {
        self.check()?;
        let last = self.segments.last_key_value();
        let number = last.map_or(1, |(number, _)| number + 1);
        let begun = self.begin_segment(number, next_id);
        begun.map_err(|error| self.refusal(&error))?;
        if let Err(error) = self.write_manifest(false) {
            // The file stays: it may be named. Nothing stands in it.
            self.segments.remove(&number);
            return Err(self.refusal(&error));
        }
        Ok(())
    }

    /// What there is by now.
    fn bounds(&self, is_closed: bool) -> Bounds {
        let first = self.segments.first_key_value();
        let last = self.segments.last_key_value();
        Bounds {
            tag: self.tag,
            first: first.map_or(1, |it| *it.0),
            last: last.map_or(1, |it| *it.0),
            end: last.map_or(HEAD, |it| it.1.size),
            frame: self.frame,
            is_closed,
        }
    }

    /// Has the manifest say what there is by now, durably.
    fn write_manifest(&mut self, is_closed: bool) -> io::Result<()> {
        let bounds = self.bounds(is_closed);
        let Some(manifest) = &mut self.manifest else {
            return Ok(());
        };
        manifest.note(bounds)?;
        if let Err(error) = manifest.sync() {
            self.poison(format!("fsync of the manifest failed: {error}"));
            return Err(error);
        }
        Ok(())
    }

    /// Notes how much has been written since, when something has. The machine may forget that note,
    /// the process does not: it costs no `fsync`.
    pub fn note_end(&mut self) {
        let bounds = self.bounds(false);
        if let Some(manifest) = self.manifest.as_mut().filter(|it| it.bounds() != bounds) {
            // A later one will do.
            let _ = manifest.note(bounds);
        }
    }

    /// Notes that this is all: what is missing at the next start has been taken away.
    pub fn close(&mut self) {
        if self.check().is_ok() {
            // It is told when it fails.
            let _ = self.write_manifest(true);
        }
    }

    /// Begins a file. When it fails, there is none.
    fn begin_segment(&mut self, number: u64, next_id: u64) -> io::Result<()> {
        let header = Header {
            tag: self.tag,
            number,
            frame: self.frame,
            next_id,
        };
        let begun = self.disk.create(number).and_then(|file| {
            file.write_at(0, &header.write(self.format.magic))?;
            Ok(file)
        });
        let file = match begun {
            Ok(file) => file,
            Err(error) => {
                if self
                    .disk
                    .remove(number)
                    .is_err_and(|it| it.kind() != io::ErrorKind::NotFound)
                {
                    self.poison(format!("a failed write cannot be undone: {error}"));
                }
                return Err(error);
            }
        };
        if let Err(error) = file.sync().and_then(|()| self.disk.sync()) {
            self.poison(format!("fsync failed: {error}"));
            return Err(error);
        }
        let file = Arc::from(file);
        self.segments.insert(number, Segment { file, size: HEAD });
        Ok(())
    }

    /// The key and the bytes at a place.
    ///
    /// # Errors
    /// When they cannot be read, or are not what was written.
    pub fn read(&self, place: Place) -> Result<(Bytes, Bytes), Refusal> {
        let (key, body) = self.read_as_is(place)?;
        match crc::extend(crc::of(&key), &body) == place.crc {
            true => Ok((key, body)),
            false => Err(Refusal::Unreadable(format!(
                "{} is damaged at byte {}",
                crate::folder::file_name(place.segment),
                place.at
            ))),
        }
    }

    /// The same, whether it is what was written or not.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_as_is(&self, place: Place) -> Result<(Bytes, Bytes), Refusal> {
        let mut bytes = vec![0; place.key as usize + place.size as usize];
        let Some(segment) = self.segments.get(&place.segment) else {
            return Err(Refusal::Gone);
        };
        let read = segment.file.read_at(place.at, &mut bytes);
        read.map_err(|error| Refusal::Unreadable(error.to_string()))?;
        let mut key = Bytes::from(bytes);
        let body = key.split_off(place.key as usize);
        Ok((key, body))
    }

    /// The oldest file, when it is not the one that is written to.
    pub fn oldest(&self) -> Option<u64> {
        let (oldest, _) = self.segments.first_key_value()?;
        (self.segments.len() > 1).then_some(*oldest)
    }

    /// The numbers of all files.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.segments.keys().copied()
    }

    /// A file, for those who read beside whoever writes.
    pub fn file(&self, number: u64) -> Option<Arc<dyn DiskFile>> {
        let segment = self.segments.get(&number);
        segment.map(|segment| Arc::clone(&segment.file))
    }

    /// Removes the oldest file: nothing in it is needed any more.
    ///
    /// # Errors
    /// When it cannot be removed; it is tried again later.
    pub fn remove_oldest(&mut self) -> Result<(), Refusal> {
        self.check()?;
        let Some(number) = self.oldest() else {
            return Ok(());
        };
        let Some(segment) = self.segments.remove(&number) else {
            return Ok(());
        };
        // One that is not named is removed at the next start, if it is not now.
        let named = self.write_manifest(false);
        if let Err(error) = named.and_then(|()| self.disk.remove(number)) {
            self.segments.insert(number, segment);
            return Err(self.refusal(&error));
        }
        if let Err(error) = self.disk.sync() {
            self.poison(format!("fsync failed: {error}"));
            return Err(self.refusal(&error));
        }
        Ok(())
    }

    /// How many bytes all files have.
    pub fn size(&self) -> u64 {
        self.segments.values().map(|segment| segment.size).sum()
    }

    /// How large a file gets.
    pub fn segment_max(&self) -> u64 {
        self.segment_max
    }

    /// Gives back some of what was taken of the disk for nothing. Whether there was something for
    /// this need. From then on nothing new is taken until all of it is there again: it would use up
    /// what removals need.
    pub fn release_reserve(&mut self, need: Need) -> bool {
        let rest = match need {
            Need::New => return false,
            // At first only what notes may use, for removals too.
            _ if self.reserved == self.to_reserve => self.reserved - RESERVE_OF_NOTES,
            Need::Note => return false,
            Need::Removal => 0,
        };
        if self.reserved <= rest || self.disk.reserve(rest).is_err() {
            return false;
        }
        self.reserved = rest;
        self.set_low(true);
        true
    }

    /// Takes it again, or more of it when removals need so many bytes by now.
    pub fn keep_reserve(&mut self, needed: u64) {
        let needed = (RESERVE + needed.next_multiple_of(RESERVE)).min(RESERVE_MAX);
        // Less is enough for what is there to be removed, but it would come and go.
        if self.reserved == self.to_reserve && needed <= self.to_reserve && self.reserved > 0 {
            return;
        }
        self.to_reserve = needed;
        let mut wanted = needed;
        while self.reserved < wanted {
            if self.disk.reserve(wanted).is_ok() {
                self.reserved = wanted;
            }
            // As much as there is.
            wanted = match wanted / 2 {
                less if less >= RESERVE_OF_NOTES => less,
                _ => 0,
            };
        }
        self.set_low(self.reserved < needed);
    }

    fn set_low(&mut self, is_low: bool) {
        match (std::mem::replace(&mut self.is_low, is_low), is_low) {
            (false, true) => self.low_space.begin(),
            (true, false) => self.low_space.end(),
            _ => {}
        }
    }

    /// Whether this log has given up what it reserves.
    pub fn is_low(&self) -> bool {
        self.is_low
    }

    /// Whether something new can be taken.
    ///
    /// # Errors
    /// `Poisoned` when nothing can be written, `NoSpace` when what is left is for removals.
    pub fn check_new(&self) -> Result<(), Refusal> {
        self.check()?;
        match self.low_space.is_low() {
            true => {
                let why = "no space is left but for what removes";
                Err(Refusal::NoSpace(why.to_owned()))
            }
            false => Ok(()),
        }
    }

    /// Whether anything can be written.
    ///
    /// # Errors
    /// `Poisoned` when not.
    pub fn check(&self) -> Result<(), Refusal> {
        match &self.poison {
            Some(why) => Err(Refusal::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    fn poison(&mut self, why: String) {
        tracing::error!(
            error = why,
            folder = self.format.folder,
            "the store is not written to any more: what is on the disk is not known; restart"
        );
        self.poison = Some(why);
    }

    fn refusal(&self, error: &io::Error) -> Refusal {
        match self.check() {
            Err(refusal) => refusal,
            Ok(()) => Refusal::NoSpace(error.to_string()),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.set_low(false);
    }
}

/// A random number.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now())
}
