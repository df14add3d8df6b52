//! What a start does with the files: reads them, or their indexes, cuts off what was being written
//! at the last stop, and refuses what is not as it was written.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::ahead::Ahead;
use super::manifest::{Bounds, Manifest};
use super::{HEAD, INDEX_END, INDEX_END_SIZE, Log, Segment, Told, random};
use crate::cursor::Cursor;
use crate::disk::{Disk, DiskFile};
use crate::error::OpenError;
use crate::frame::{Format, FrameHead, Header, Holds};

/// How much of the last file is written again at once.
const PART: usize = 1 << 20;
/// What a file system takes space for.
const BLOCK: usize = 4096;
/// What is said of what stands between frames that are whole.
const DAMAGED: &str = "what stands there is not what was written, and more follows";

/// What is said of a file that has had more.
const CUT: &str = "it has been longer: what stood from there on is missing or damaged";

/// The content of a frame with an index, and the frame's number.
type Index = (Vec<u8>, u64);

impl Log {
    /// Opens the files and tells everything there is to `told`, in order. It says what is wrong
    /// with what it has been told.
    ///
    /// # Errors
    /// When the disk fails, or when the files are not as they have been written.
    pub fn open(
        mut disk: Box<dyn Disk>,
        format: &'static Format,
        segment_max: u64,
        mut told: impl FnMut(Told<'_>) -> Result<(), &'static str>,
    ) -> Result<Self, OpenError> {
        let numbers = disk.list();
        let doing = OpenError::disk(format!("list the files of {}", format.folder));
        let numbers = numbers.map_err(doing)?;
        let manifest = read_manifest(&mut *disk, format)?;
        let mut log = Self {
            manifest,
            format,
            segments: BTreeMap::new(),
            tag: random(),
            frame: 1,
            segment_max,
            poison: None,
            reserved: 0,
            to_reserve: 0,
            is_low: false,
            low_space: disk.low_space(),
            disk,
        };
        let numbers = log.check_names(numbers)?;
        let mut before: Option<u64> = None;
        for &number in &numbers {
            if before.is_some_and(|before| before + 1 != number) {
                return Err(log.corrupt(number, 0, "the file before it is missing"));
            }
            log.open_one(number, &numbers, before.is_none(), &mut told)?;
            before = Some(number);
        }
        log.end_open(&mut told)?;
        Ok(log)
    }

    fn corrupt(&self, number: u64, at: u64, why: &'static str) -> OpenError {
        OpenError::Corrupt(self.format.folder, number, at, why)
    }

    fn reading(&self, number: u64) -> impl FnOnce(io::Error) -> OpenError {
        OpenError::disk(format!("read {}", self.format.file(number)))
    }

    fn open_one(
        &mut self,
        number: u64,
        numbers: &[u64],
        is_first: bool,
        told: &mut impl FnMut(Told<'_>) -> Result<(), &'static str>,
    ) -> Result<(), OpenError> {
        let opened = self.disk.open(number).and_then(|file| {
            let size = file.size()?;
            let mut head = vec![0; Header::SIZE.min(size as usize)];
            file.read_at(0, &mut head)?;
            Ok((Arc::from(file), size, head))
        });
        let (file, size, head) = opened.map_err(self.reading(number))?;
        let header = Header::read(self.format.magic, &head);
        let Some(header) = header.filter(|it| it.number == number) else {
            let is_last = numbers.last() == Some(&number);
            if is_last && size <= HEAD && self.manifest.is_none() {
                // The process has ended while it made the file: nothing has been put into it.
                return self.drop_file(number);
            }
            return Err(self.corrupt(number, 0, "it does not begin as it should"));
        };
        if is_first {
            (self.tag, self.frame) = (header.tag, header.frame);
        }
        let is_ours = self.named().is_none_or(|it| it.tag == header.tag);
        if header.tag != self.tag || header.frame != self.frame || !is_ours {
            return Err(self.corrupt(number, 0, "it belongs to other files"));
        }
        let said = told(Told::File(header.next_id));
        said.map_err(|why| self.corrupt(number, 0, why))?;
        let mut segment = Segment { file, size };
        let is_last = numbers.last() == Some(&number);
        let index = match self.format.is_indexed && !is_last {
            true => self.index_of(&segment).map_err(self.reading(number))?,
            false => None,
        };
        match index {
            Some((content, frame)) => {
                let at = size - content.len() as u64;
                let index = content.get(..content.len() - INDEX_END_SIZE);
                let said = told(Told::Index(number, index.unwrap_or_default()));
                said.map_err(|why| self.corrupt(number, at, why))?;
                self.frame = frame;
            }
            None => {
                let end = self.read_frames(number, &segment, told)?;
                self.check_end(number, end)?;
                if end < segment.size {
                    self.cut_off(number, numbers, &mut segment, end)?;
                }
            }
        }
        self.segments.insert(number, segment);
        Ok(())
    }

    /// The index at the end of a file, when there is one that is as it was written.
    fn index_of(&self, segment: &Segment) -> io::Result<Option<Index>> {
        let mut end = [0; INDEX_END_SIZE];
        let least = HEAD + (FrameHead::SIZE + INDEX_END_SIZE) as u64;
        if segment.size < least {
            return Ok(None);
        }
        let file = &segment.file;
        file.read_at(segment.size - INDEX_END_SIZE as u64, &mut end)?;
        let mut cursor = Cursor::new(&end);
        let (start, magic) = (cursor.u64().unwrap_or(0), cursor.array());
        let size = segment.size.saturating_sub(start);
        if magic != Some(INDEX_END) || start < HEAD || size < least - HEAD {
            return Ok(None);
        }
        let mut head = [0; FrameHead::SIZE];
        file.read_at(start, &mut head)?;
        let is_right = |head: &FrameHead| {
            head.holds == Holds::Index && u64::from(head.size) + FrameHead::SIZE as u64 == size
        };
        let Some(head) = FrameHead::read(&head).filter(is_right) else {
            return Ok(None);
        };
        let mut content = vec![0; head.size as usize];
        file.read_at(start + FrameHead::SIZE as u64, &mut content)?;
        let is_whole = FrameHead::of(Holds::Index, self.tag, head.number, &content) == head;
        Ok((is_whole && head.number >= self.frame).then_some((content, head.number)))
    }

    /// Reads frames as long as they are whole. Gives where the last one ends.
    fn read_frames(
        &mut self,
        number: u64,
        segment: &Segment,
        told: &mut impl FnMut(Told<'_>) -> Result<(), &'static str>,
    ) -> Result<u64, OpenError> {
        let mut ahead = Ahead::new(&*segment.file, segment.size);
        let mut at = HEAD;
        loop {
            let head = frame_head(&mut ahead, at).map_err(self.reading(number))?;
            let Some(head) = head.filter(|it| self.may_hold(it)) else {
                return Ok(at);
            };
            let start = at + FrameHead::SIZE as u64;
            let content = ahead.get(start, head.size.into());
            let content = content.map_err(self.reading(number))?;
            if FrameHead::of(head.holds, self.tag, self.frame, content) != head {
                return Ok(at);
            }
            if head.holds == Holds::Records {
                let said = told(Told::Frame(number, start, content));
                said.map_err(|why| self.corrupt(number, at, why))?;
                self.frame += 1;
            }
            at = start + u64::from(head.size);
        }
    }

    fn may_hold(&self, head: &FrameHead) -> bool {
        head.holds == Holds::Records || self.format.is_indexed
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
        if self.format.is_indexed && self.is_whole(number + 1)? {
            // What follows is what came of an index: it is not needed.
            return Ok(());
        }
        for &later in numbers.iter().filter(|it| **it > number) {
            let size = self.disk.open(later).and_then(|file| file.size());
            if size.map_err(self.reading(later))? > HEAD {
                return Err(self.corrupt(number, end, DAMAGED));
            }
        }
        let behind = self.has_frame_behind(segment, end);
        if behind.map_err(self.reading(number))? {
            return Err(self.corrupt(number, end, DAMAGED));
        }
        let left_out = segment.size - end;
        tracing::warn!(
            bytes = left_out,
            folder = self.format.folder,
            "cut off what was being written at the last stop"
        );
        let cut = segment.file.truncate(end);
        cut.map_err(self.reading(number))?;
        segment.size = end;
        Ok(())
    }

    /// Whether all frames have been read that were there when the file of this number was begun,
    /// and that one is there.
    fn is_whole(&mut self, next: u64) -> Result<bool, OpenError> {
        let read = self.disk.open(next).and_then(|file| {
            let mut head = vec![0; Header::SIZE.min(file.size()? as usize)];
            file.read_at(0, &mut head)?;
            Ok(Header::read(self.format.magic, &head))
        });
        match read {
            Ok(header) => Ok(header.is_some_and(|it| it.tag == self.tag && it.frame == self.frame)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.reading(next)(error)),
        }
    }

    /// Whether a whole frame stands anywhere behind this place whose number is not lower than that
    /// of the one that should stand there.
    fn has_frame_behind(&self, segment: &Segment, at: u64) -> io::Result<bool> {
        let mut rest = vec![0; (segment.size - at) as usize];
        segment.file.read_at(at, &mut rest)?;
        for start in 0..rest.len() {
            let Some(bytes) = rest
                .get(start..)
                .filter(|it| it.starts_with(&FrameHead::MAGIC))
            else {
                continue;
            };
            let head = FrameHead::read(bytes);
            let Some(head) = head.filter(|it| it.number >= self.frame && self.may_hold(it)) else {
                continue;
            };
            let content = bytes.get(FrameHead::SIZE..FrameHead::SIZE + head.size as usize);
            let is_whole =
                |content| FrameHead::of(head.holds, self.tag, head.number, content) == head;
            if content.is_some_and(is_whole) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What the last run has named.
    fn named(&self) -> Option<Bounds> {
        self.manifest.as_ref().map(Manifest::bounds)
    }

    /// Checks that all files are there which the manifest names, and removes those that it does not
    /// name any more, or not yet.
    fn check_names(&mut self, numbers: Vec<u64>) -> Result<Vec<u64>, OpenError> {
        let Some(named) = self.named() else {
            return Ok(numbers);
        };
        if let Some(missing) = (named.first..=named.last).find(|it| !numbers.contains(it)) {
            return Err(OpenError::Missing(self.format.folder, missing));
        }
        for &number in numbers.iter().filter(|it| **it > named.last) {
            let size = self.disk.open(number).and_then(|file| file.size());
            if number > named.last + 1 || size.map_err(self.reading(number))? > HEAD {
                return Err(self.corrupt(number, 0, "the manifest does not name it"));
            }
        }
        let (stay, go): (Vec<u64>, Vec<u64>) = numbers
            .into_iter()
            .partition(|it| (named.first..=named.last).contains(it));
        if let Some(manifest) = self.manifest.as_ref().filter(|_| !go.is_empty()) {
            // What it says may be in memory alone, since its `fsync` has failed: without this a
            // power cut would bring back one that names a file which is removed here.
            let confirmed = manifest.confirm();
            let doing = format!("write {}/manifest", self.format.folder);
            confirmed.map_err(OpenError::disk(doing))?;
        }
        go.into_iter()
            .try_for_each(|number| self.drop_file(number))?;
        Ok(stay)
    }

    /// Checks that the last file has at least what was there at last.
    fn check_end(&self, number: u64, end: u64) -> Result<(), OpenError> {
        match self.named() {
            Some(named) if named.last == number && end < named.end => {
                Err(self.corrupt(number, end, CUT))
            }
            _ => Ok(()),
        }
    }

    /// Has the manifest name what there is now.
    fn begin_manifest(&mut self) -> io::Result<()> {
        if let Some(manifest) = &self.manifest {
            manifest.confirm()?;
            return self.write_manifest(false);
        }
        let file = self.disk.create_manifest()?;
        self.manifest = Some(Manifest::create(file, self.bounds(false))?);
        self.disk.sync()?;
        self.disk.made()
    }

    fn drop_file(&mut self, number: u64) -> Result<(), OpenError> {
        let dropped = self.disk.remove(number).and_then(|()| self.disk.sync());
        let doing = format!("remove {}", self.format.file(number));
        dropped.map_err(OpenError::disk(doing))
    }

    /// Drops files at the end in which nothing stands, and makes certain that the last one is on
    /// the disk: after a failed `fsync` the system may show what is only in memory.
    fn end_open(
        &mut self,
        told: &mut impl FnMut(Told<'_>) -> Result<(), &'static str>,
    ) -> Result<(), OpenError> {
        let mut empty = Vec::new();
        while self.segments.len() > 1
            && let Some((&number, _)) = self
                .segments
                .last_key_value()
                .filter(|it| it.1.size <= HEAD)
        {
            let Some(segment) = self.segments.remove(&number) else {
                break;
            };
            // What was cut off must not be there again when the file is named no more.
            segment.file.sync().map_err(self.reading(number))?;
            empty.push(number);
        }
        let folder = self.format.folder;
        let doing = || OpenError::disk(format!("write to the {folder}"));
        if let Some((_, segment)) = self.segments.last_key_value() {
            write_again(&*segment.file, segment.size).map_err(doing())?;
            self.disk.sync().map_err(doing())?;
        } else {
            self.begin_segment(1, 1).map_err(doing())?;
            let said = told(Told::File(1));
            said.map_err(|why| self.corrupt(1, 0, why))?;
        }
        self.begin_manifest().map_err(doing())?;
        // They are not named any more.
        for number in empty {
            self.drop_file(number)?;
        }
        Ok(())
    }
}

/// The manifest, where there has to be one.
fn read_manifest(disk: &mut dyn Disk, format: &Format) -> Result<Option<Manifest>, OpenError> {
    if !disk.is_made() {
        return Ok(None);
    }
    let folder = format.folder;
    let file = disk.manifest();
    let doing = || OpenError::disk(format!("read {folder}/manifest"));
    let file = file.map_err(doing())?;
    let file = file.ok_or(OpenError::Manifest(folder, "is missing"))?;
    let manifest = Manifest::read(file).map_err(doing())?;
    let manifest = manifest.ok_or(OpenError::Manifest(folder, "is damaged"))?;
    Ok(Some(manifest))
}

/// Writes a file again and has it on the disk. Its holes stay: they would take space.
pub(crate) fn write_again(file: &dyn DiskFile, size: u64) -> io::Result<()> {
    let mut bytes = vec![0; PART.min(size as usize)];
    let has_holes = file.has_holes()?;
    let mut at = 0;
    while at < size {
        let count = (bytes.len() as u64).min(size - at);
        let part = bytes.get_mut(..count as usize).unwrap_or_default();
        file.read_at(at, part)?;
        match has_holes {
            true => write_data(file, at, part)?,
            false => file.write_at(at, part)?,
        }
        at += count;
    }
    file.sync()
}

/// Writes the blocks that are not all zeros.
fn write_data(file: &dyn DiskFile, start: u64, part: &[u8]) -> io::Result<()> {
    let places = (start..).step_by(BLOCK);
    for (at, block) in places.zip(part.chunks(BLOCK)) {
        if block.iter().any(|byte| *byte != 0) {
            file.write_at(at, block)?;
        }
    }
    Ok(())
}

/// The head of the frame at this place, when the file is long enough for it.
fn frame_head(ahead: &mut Ahead<'_>, at: u64) -> io::Result<Option<FrameHead>> {
    let left = ahead.left(at);
    if left < FrameHead::SIZE as u64 {
        return Ok(None);
    }
    let head = FrameHead::read(ahead.get(at, FrameHead::SIZE as u64)?);
    let fits = |head: &FrameHead| FrameHead::SIZE as u64 + u64::from(head.size) <= left;
    Ok(head.filter(fits))
}
