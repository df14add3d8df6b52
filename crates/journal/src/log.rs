//! The files: frames of records, one behind the other, in files one behind the other. A frame is on
//! the disk before anybody is told so, and the next one is begun only then. So there is at most one
//! frame that is there in part, the last one, and nobody has been told of it.
//!
//! Files go away from the oldest on only: what says that a message is done then never goes before
//! the message.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;

use crate::crc;
use crate::disk::{Disk, DiskFile};
use crate::error::{OpenError, Refusal};
use crate::record::{FrameHead, Header, Place, Reader, Record};

/// What is taken of the disk for nothing, so that messages can be marked as done when it is full.
const RESERVE: u64 = 256 * 1024;
/// Where the frames of a file begin.
const HEAD: u64 = Header::SIZE as u64;

/// The files of a journal.
pub(crate) struct Log {
    disk: Box<dyn Disk>,
    segments: BTreeMap<u64, Segment>,
    /// A number of chance that all files have.
    pub tag: u64,
    /// The number of the next frame.
    frame: u64,
    /// How large a file gets before another one is begun.
    segment_max: u64,
    /// Why nothing is written any more.
    poison: Option<String>,
    has_reserve: bool,
}

struct Segment {
    file: Box<dyn DiskFile>,
    size: u64,
}

impl Log {
    /// Opens the files and tells every record there is to `told`, in order. The first call of it
    /// for each file is with the number that the next new message gets.
    ///
    /// # Errors
    /// When the disk fails, or when the files are not as they have been written.
    pub fn open(
        mut disk: Box<dyn Disk>,
        segment_max: u64,
        mut told: impl FnMut(Told<'_>),
    ) -> Result<Self, OpenError> {
        let numbers = disk.list();
        let numbers = numbers.map_err(OpenError::disk("list the files of the store"))?;
        let mut log = Self {
            disk,
            segments: BTreeMap::new(),
            tag: chance(),
            frame: 1,
            segment_max,
            poison: None,
            has_reserve: false,
        };
        let mut before: Option<u64> = None;
        for &number in &numbers {
            if before.is_some_and(|before| before + 1 != number) {
                return Err(OpenError::Corrupt(
                    number,
                    0,
                    "the file before it is missing",
                ));
            }
            log.open_one(number, &numbers, before.is_none(), &mut told)?;
            before = Some(number);
        }
        log.end_open(&mut told)?;
        Ok(log)
    }

    fn open_one(
        &mut self,
        number: u64,
        numbers: &[u64],
        is_first: bool,
        told: &mut impl FnMut(Told<'_>),
    ) -> Result<(), OpenError> {
        let doing = || OpenError::disk(format!("read {}", crate::folder::file_name(number)));
        let mut file = self.disk.open(number).map_err(doing())?;
        let size = file.size().map_err(doing())?;
        let mut head = vec![0; Header::SIZE.min(size as usize)];
        file.read_at(0, &mut head).map_err(doing())?;
        let Some(header) = Header::read(&head).filter(|it| it.number == number) else {
            let is_last = numbers.last() == Some(&number);
            if is_last && size <= HEAD {
                // The process has ended while it made the file: nothing has been put into it.
                return self.drop_file(number);
            }
            return Err(OpenError::Corrupt(
                number,
                0,
                "it does not begin as it should",
            ));
        };
        if is_first {
            (self.tag, self.frame) = (header.tag, header.frame);
        }
        if header.tag != self.tag || header.frame != self.frame {
            return Err(OpenError::Corrupt(number, 0, "it belongs to other files"));
        }
        told(Told::NextId(header.next_id));
        let mut segment = Segment { file, size };
        let end = self.read_frames(number, &mut segment, told)?;
        if end < segment.size {
            self.cut_off(number, numbers, &mut segment, end)?;
        }
        self.segments.insert(number, segment);
        Ok(())
    }

    /// Reads frames as long as they are whole. Gives where the last one ends.
    fn read_frames(
        &mut self,
        number: u64,
        segment: &mut Segment,
        told: &mut impl FnMut(Told<'_>),
    ) -> Result<u64, OpenError> {
        let doing = || OpenError::disk(format!("read {}", crate::folder::file_name(number)));
        let mut at = HEAD;
        let mut records = Vec::new();
        while let Some(head) = segment.frame_head(at).map_err(doing())? {
            records.resize(head.size as usize, 0);
            let start = at + FrameHead::SIZE as u64;
            segment.file.read_at(start, &mut records).map_err(doing())?;
            if FrameHead::of(self.tag, self.frame, &records) != head {
                break;
            }
            let mut reader = Reader::new(&records);
            while let Some(record) = reader.next() {
                let Ok((record, body)) = record else {
                    return Err(OpenError::Corrupt(number, at, "a record cannot be read"));
                };
                told(Told::Record(&record, place(number, start, body, &record)));
            }
            self.frame += 1;
            at = start + u64::from(head.size);
        }
        Ok(at)
    }

    /// Cuts off what was being written when the process or the machine stopped. What has been
    /// written before and cannot be read is never cut off.
    fn cut_off(
        &mut self,
        number: u64,
        numbers: &[u64],
        segment: &mut Segment,
        end: u64,
    ) -> Result<(), OpenError> {
        let doing = || OpenError::disk(format!("read {}", crate::folder::file_name(number)));
        let damaged = "what stands there is not what was written, and more follows";
        for &later in numbers.iter().filter(|it| **it > number) {
            let mut file = self.disk.open(later).map_err(doing())?;
            if file.size().map_err(doing())? > HEAD {
                return Err(OpenError::Corrupt(number, end, damaged));
            }
        }
        if segment
            .has_frame_behind(end, self.tag, self.frame)
            .map_err(doing())?
        {
            return Err(OpenError::Corrupt(number, end, damaged));
        }
        let left_out = segment.size - end;
        tracing::warn!(
            bytes = left_out,
            "cut off what was being written at the last stop"
        );
        segment.file.truncate(end).map_err(doing())?;
        segment.size = end;
        Ok(())
    }

    fn drop_file(&mut self, number: u64) -> Result<(), OpenError> {
        let doing = || OpenError::disk(format!("remove {}", crate::folder::file_name(number)));
        self.disk.remove(number).map_err(doing())?;
        self.disk.sync().map_err(doing())
    }

    /// Drops files at the end in which nothing stands, and makes certain that the last one is on
    /// the disk: after a failed `fsync` the system may show what is only in memory.
    fn end_open(&mut self, told: &mut impl FnMut(Told<'_>)) -> Result<(), OpenError> {
        while self.segments.len() > 1
            && let Some((&number, _)) = self
                .segments
                .last_key_value()
                .filter(|it| it.1.size <= HEAD)
        {
            self.segments.remove(&number);
            self.drop_file(number)?;
        }
        let doing = || OpenError::disk("write to the store");
        if let Some(mut last) = self.segments.last_entry() {
            let segment = last.get_mut();
            let mut bytes = vec![0; segment.size as usize];
            segment.file.read_at(0, &mut bytes).map_err(doing())?;
            segment.file.write_at(0, &bytes).map_err(doing())?;
            segment.file.sync().map_err(doing())?;
            self.disk.sync().map_err(doing())?;
        } else {
            let begun = self.begin_segment(1, 1);
            begun.map_err(|error| OpenError::Disk("write to the store".to_owned(), error))?;
            told(Told::NextId(1));
        }
        self.keep_reserve();
        Ok(())
    }

    /// Appends a frame with these records and makes it durable. `records` begins with
    /// [`FrameHead::SIZE`] bytes for its head. Gives the number of the file and where the records
    /// begin in it.
    ///
    /// # Errors
    /// `NoSpace` when nothing has been written, `Poisoned` when that is not known.
    pub fn append(&mut self, records: &mut [u8], next_id: u64) -> Result<(u64, u64), Refusal> {
        self.check()?;
        let size = records.len() as u64;
        let is_full =
            |segment: &Segment| segment.size > HEAD && segment.size + size > self.segment_max;
        let last = self.segments.last_key_value();
        if let Some((&number, _)) = last.filter(|(_, segment)| is_full(segment)) {
            self.begin_segment(number + 1, next_id)
                .map_err(|error| self.refusal(&error))?;
        }
        let (head, content) = records
            .split_at_mut_checked(FrameHead::SIZE)
            .unwrap_or_default();
        head.copy_from_slice(&FrameHead::of(self.tag, self.frame, content).write());
        let Some(mut last) = self.segments.last_entry() else {
            return Err(Refusal::Closed);
        };
        let number = *last.key();
        let segment = last.get_mut();
        let start = segment.size;
        if let Err(error) = segment.file.write_at(start, records) {
            if let Err(second) = segment.file.truncate(start) {
                self.poison(format!("a failed write cannot be undone: {second}"));
            }
            return Err(self.refusal(&error));
        }
        if let Err(error) = segment.file.sync() {
            self.poison(format!("fsync failed: {error}"));
            return Err(self.refusal(&error));
        }
        segment.size += size;
        self.frame += 1;
        Ok((number, start + FrameHead::SIZE as u64))
    }

    /// Begins a file. When it fails, there is none.
    fn begin_segment(&mut self, number: u64, next_id: u64) -> io::Result<()> {
        let header = Header {
            tag: self.tag,
            number,
            frame: self.frame,
            next_id,
        };
        let begun = self.disk.create(number).and_then(|mut file| {
            file.write_at(0, &header.write())?;
            Ok(file)
        });
        let mut file = match begun {
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
        self.segments.insert(number, Segment { file, size: HEAD });
        Ok(())
    }

    /// The key and the bytes at a place.
    ///
    /// # Errors
    /// When they cannot be read, or are not what was written.
    pub fn read(&mut self, place: Place) -> Result<(Bytes, Bytes), Refusal> {
        let mut bytes = vec![0; place.key as usize + place.size as usize];
        let Some(segment) = self.segments.get_mut(&place.segment) else {
            return Err(Refusal::Gone);
        };
        let read = segment.file.read_at(place.at, &mut bytes);
        read.map_err(|error| Refusal::Unreadable(error.to_string()))?;
        match crc::of(&bytes) == place.crc {
            true => {
                let mut key = Bytes::from(bytes);
                let body = key.split_off(place.key as usize);
                Ok((key, body))
            }
            false => Err(Refusal::Unreadable(format!(
                "{} is damaged at byte {}",
                crate::folder::file_name(place.segment),
                place.at
            ))),
        }
    }

    /// The oldest file, when it is not the one that is written to.
    pub fn oldest(&self) -> Option<u64> {
        let (oldest, _) = self.segments.first_key_value()?;
        (self.segments.len() > 1).then_some(*oldest)
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
        if let Err(error) = self.disk.remove(number) {
            return Err(self.refusal(&error));
        }
        self.segments.remove(&number);
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

    /// Gives back what was taken of the disk for nothing. Whether there was something.
    pub fn release_reserve(&mut self) -> bool {
        std::mem::take(&mut self.has_reserve) && self.disk.reserve(0).is_ok()
    }

    /// Takes it again.
    pub fn keep_reserve(&mut self) {
        if !self.has_reserve {
            self.has_reserve = self.disk.reserve(RESERVE).is_ok();
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

/// What the files say.
pub(crate) enum Told<'a> {
    /// New messages have this number or a higher one.
    NextId(u64),
    /// A record, and where its body is.
    Record(&'a Record<'a>, Place),
}

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

impl Segment {
    /// The head of the frame at this place, when the file is long enough for it.
    fn frame_head(&mut self, at: u64) -> io::Result<Option<FrameHead>> {
        let left = self.size.saturating_sub(at);
        if left < FrameHead::SIZE as u64 {
            return Ok(None);
        }
        let mut bytes = [0; FrameHead::SIZE];
        self.file.read_at(at, &mut bytes)?;
        let head = FrameHead::read(&bytes);
        let fits = |head: &FrameHead| FrameHead::SIZE as u64 + u64::from(head.size) <= left;
        Ok(head.filter(fits))
    }

    /// Whether a whole frame stands anywhere behind this place whose number is not lower than that
    /// of the one that should stand there.
    fn has_frame_behind(&mut self, at: u64, tag: u64, frame: u64) -> io::Result<bool> {
        let mut rest = vec![0; (self.size - at) as usize];
        self.file.read_at(at, &mut rest)?;
        for start in 0..rest.len() {
            let Some(bytes) = rest
                .get(start..)
                .filter(|it| it.starts_with(&FrameHead::MAGIC))
            else {
                continue;
            };
            let Some(head) = FrameHead::read(bytes).filter(|it| it.number >= frame) else {
                continue;
            };
            let records = bytes.get(FrameHead::SIZE..FrameHead::SIZE + head.size as usize);
            let is_whole = |records| FrameHead::of(tag, head.number, records) == head;
            if records.is_some_and(is_whole) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A number of chance.
fn chance() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now())
}
