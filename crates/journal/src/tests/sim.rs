//! A disk in memory that forgets what was not synced, sector by sector, when it crashes; whose
//! `fsync` fails and loses what it should have kept; and that gets full.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;

use crate::disk::{Disk, DiskFile, LowSpace};

const SECTOR: u64 = 512;
/// The number of the manifest among the files.
const MANIFEST: u64 = u64::MAX;

enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

#[derive(Default)]
struct SimFile {
    /// What is on the disk for certain.
    durable: Vec<u8>,
    /// What the process sees.
    seen: Vec<u8>,
    /// What is not on the disk yet.
    pending: Vec<Change>,
    /// Whether its name is on the disk.
    is_named: bool,
}

pub struct World {
    files: BTreeMap<u64, SimFile>,
    /// Removed files whose names may still be on the disk.
    removed: BTreeMap<u64, SimFile>,
    random: Rng,
    /// After how many operations everything stops.
    pub left: Option<u64>,
    /// How many calls of `fsync` from now one fails.
    pub sync_fails: Option<u64>,
    /// How many writes from now one is not done as a whole: there is no space for it.
    pub write_fails: Option<u64>,
    /// Whether each `fsync` of a file waits: the disk is slow.
    pub is_sync_held: bool,
    /// The file that is not written to: its part of the disk is broken.
    pub broken: Option<u64>,
    /// Whether whoever writes panics.
    pub write_panics: bool,
    /// Whether the next file that is cut, but not emptied, is not.
    pub cut_fails: bool,
    /// Whether something has failed for one of these reasons.
    pub has_failed: bool,
    /// How many bytes there is space for.
    pub space: Option<u64>,
    reserve: u64,
    /// Whether it is noted that the files are there.
    pub is_made: bool,
    /// What other logs on the disk say of its space.
    pub low_space: LowSpace,
    /// How many operations there have been.
    pub operations: u64,
    /// How often the power has gone. Files that were opened before are of no use after it: what
    /// still holds them is of a process that is gone.
    pub crashes: u64,
}

/// The disk. Copies are the same one.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<World>>);

impl SimDisk {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(World {
            files: BTreeMap::new(),
            removed: BTreeMap::new(),
            random: Rng::with_seed(seed),
            left: None,
            sync_fails: None,
            write_fails: None,
            is_sync_held: false,
            broken: None,
            write_panics: false,
            cut_fails: false,
            has_failed: false,
            space: None,
            reserve: 0,
            is_made: false,
            low_space: LowSpace::default(),
            operations: 0,
            crashes: 0,
        })))
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    pub fn boxed(&self) -> Box<dyn Disk> {
        Box::new(self.clone())
    }

    /// Gives a file another number, which is certain when the folder is synced.
    pub fn rename(&self, from: u64, to: u64) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        let mut file = world.files.remove(&from).ok_or(ErrorKind::NotFound)?;
        file.is_named = false;
        world.files.insert(to, file);
        Ok(())
    }

    /// All files and their bytes.
    pub fn all(&self) -> Vec<(u64, Vec<u8>)> {
        let world = self.world();
        let files = world.files.iter();
        let files = files.map(|(number, file)| (*number, file.durable.clone()));
        files.collect()
    }

    /// Puts other files in the place of all there are.
    pub fn replace(&self, files: Vec<(u64, Vec<u8>)>) {
        self.world().is_made = files.iter().any(|it| it.0 == MANIFEST);
        let files = files.into_iter().map(|(number, bytes)| {
            let file = SimFile {
                durable: bytes.clone(),
                seen: bytes,
                pending: Vec::new(),
                is_named: true,
            };
            (number, file)
        });
        self.world().files = files.collect();
    }

    /// The process is gone, the machine goes on: what has been written is there, synced or not.
    pub fn kill(&self) {
        let mut world = self.world();
        (world.left, world.sync_fails, world.write_fails) = (None, None, None);
        world.crashes += 1;
    }

    /// The power goes and comes back.
    pub fn crash(&self) {
        self.world().crash();
    }
}

impl World {
    fn step(&mut self) -> io::Result<()> {
        self.operations += 1;
        match &mut self.left {
            Some(0) => Err(io::Error::other("the power is off")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Whether this operation is the one at which the power goes.
    fn goes_off(&self) -> bool {
        self.left == Some(0)
    }

    fn crash(&mut self) {
        self.left = None;
        self.sync_fails = None;
        self.crashes += 1;
        let random = &mut self.random;
        for (number, file) in std::mem::take(&mut self.removed) {
            if random.bool() {
                self.files.insert(number, file);
            }
        }
        self.files.retain(|_, file| file.is_named || random.bool());
        for file in self.files.values_mut() {
            file.crash(random);
        }
    }

    fn used(&self) -> u64 {
        let files = self.files.iter().filter(|it| *it.0 != MANIFEST);
        let sizes = files.map(|(_, file)| file.seen.len() as u64);
        sizes.sum::<u64>() + self.reserve
    }

    /// How many more bytes fit.
    fn free(&self) -> u64 {
        let space = self.space.unwrap_or(u64::MAX);
        space.saturating_sub(self.used())
    }

    /// Whether the next write is the one that fails.
    fn write_fails(&mut self) -> bool {
        let left = self.write_fails.as_mut();
        let is_it = left.as_ref().is_some_and(|left| **left == 0);
        match left {
            _ if is_it => self.write_fails = None,
            Some(left) => *left -= 1,
            None => {}
        }
        is_it
    }

    /// Whether the next `fsync` is the one that fails.
    fn sync_fails(&mut self) -> bool {
        match &mut self.sync_fails {
            Some(0) => {
                (self.sync_fails, self.has_failed) = (None, true);
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    /// Changes one bit of a file.
    pub fn flip(&mut self, number: u64, at: usize, bit: u8) {
        let file = self.files.get_mut(&number).unwrap();
        file.durable[at] ^= 1 << bit;
        file.seen[at] ^= 1 << bit;
    }

    /// What is on the disk, for damage.
    pub fn bytes(&mut self) -> impl Iterator<Item = (u64, &mut Vec<u8>, &mut Vec<u8>)> {
        let files = self.files.iter_mut().filter(|it| *it.0 != MANIFEST);
        files.map(|(number, file)| (*number, &mut file.durable, &mut file.seen))
    }
}

impl SimFile {
    /// Of what was not synced each sector may be there or not, in whatever order it was written;
    /// or only what was before some place; or parts of sectors; or something else stands there.
    /// No later `fsync` writes what is left out.
    fn lose(&mut self, random: &mut Rng) {
        let mut sizes = vec![self.durable.len() as u64];
        let changes = std::mem::take(&mut self.pending);
        let mode = random.u8(..6);
        let likely = [10, 50, 90][random.usize(..3)];
        let cut = random.usize(..=changes.len());
        for (at, change) in changes.into_iter().enumerate() {
            match change {
                Change::Truncate(size) => sizes.push(size),
                Change::Write(start, bytes) => {
                    let end = start + bytes.len() as u64;
                    sizes.push(end.max(sizes.last().copied().unwrap_or(0)));
                    let mut place = start;
                    while place < end {
                        let next = match mode {
                            4 => place + random.u64(1..=SECTOR),
                            _ => (place / SECTOR + 1) * SECTOR,
                        };
                        let next = next.min(end);
                        let is_kept = match mode {
                            0 => true,
                            1 => false,
                            2 => at < cut || (at == cut && random.bool()),
                            _ => random.u8(..100) < likely,
                        };
                        let part = &bytes[(place - start) as usize..(next - start) as usize];
                        if is_kept {
                            put(&mut self.durable, place, part);
                        } else if mode == 5 && place >= self.durable.len() as u64 {
                            // What was there before is not lost with what should replace it.
                            let noise: Vec<u8> = part.iter().map(|_| random.u8(..)).collect();
                            put(&mut self.durable, place, &noise);
                        }
                        place = next;
                    }
                }
            }
        }
        let size = match random.u8(..100) < 70 {
            true => sizes.last().copied(),
            false => random.choice(&sizes).copied(),
        };
        self.durable.resize(size.unwrap_or(0) as usize, 0);
    }

    fn crash(&mut self, random: &mut Rng) {
        self.lose(random);
        self.seen = self.durable.clone();
        self.is_named = true;
    }
}

fn put(bytes: &mut Vec<u8>, at: u64, new: &[u8]) {
    let end = at as usize + new.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at as usize..end].copy_from_slice(new);
}

impl Disk for SimDisk {
    fn list(&mut self) -> io::Result<Vec<u64>> {
        let mut world = self.world();
        world.step()?;
        let numbers = world.files.keys().filter(|it| **it != MANIFEST);
        Ok(numbers.copied().collect())
    }

    fn create(&mut self, number: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut world = self.world();
        world.step()?;
        let file = world.files.entry(number).or_default();
        file.seen.clear();
        file.pending.push(Change::Truncate(0));
        Ok(Box::new((self.clone(), number, world.crashes)))
    }

    fn open(&mut self, number: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut world = self.world();
        world.step()?;
        match world.files.contains_key(&number) {
            true => Ok(Box::new((self.clone(), number, world.crashes))),
            false => Err(ErrorKind::NotFound.into()),
        }
    }

    fn remove(&mut self, number: u64) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        let file = world.files.remove(&number).ok_or(ErrorKind::NotFound)?;
        if file.is_named {
            world.removed.insert(number, file);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        if world.sync_fails() {
            return Err(io::Error::other("fsync of the folder failed"));
        }
        world.removed.clear();
        world
            .files
            .values_mut()
            .for_each(|file| file.is_named = true);
        Ok(())
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        // As little as the files of the tests are large.
        let bytes = bytes / 128;
        if bytes > world.free() + world.reserve {
            return Err(ErrorKind::StorageFull.into());
        }
        world.reserve = bytes;
        Ok(())
    }

    fn is_made(&self) -> bool {
        self.world().is_made
    }

    fn made(&mut self) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        world.is_made = true;
        Ok(())
    }

    fn manifest(&mut self) -> io::Result<Option<Box<dyn DiskFile>>> {
        match Disk::open(self, MANIFEST) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn create_manifest(&mut self) -> io::Result<Box<dyn DiskFile>> {
        self.create(MANIFEST)
    }

    fn low_space(&self) -> LowSpace {
        self.world().low_space.clone()
    }
}

/// The disk, the number of the file, and how often the power had gone when it was opened.
type Open = (SimDisk, u64, u64);

fn with<T>(
    (disk, number, crashes): &Open,
    work: impl FnOnce(&mut World, &mut SimFile) -> io::Result<T>,
) -> io::Result<T> {
    let mut world = disk.world();
    if world.crashes != *crashes {
        return Err(io::Error::other("the power has gone since"));
    }
    let mut file = world.files.remove(number).ok_or(ErrorKind::NotFound)?;
    let result = work(&mut world, &mut file);
    world.files.insert(*number, file);
    result
}

impl DiskFile for Open {
    fn size(&self) -> io::Result<u64> {
        with(self, |world, file| {
            world.step()?;
            Ok(file.seen.len() as u64)
        })
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        with(self, |_, file| {
            let end = at as usize + bytes.len();
            let part = file.seen.get(at as usize..end);
            bytes.copy_from_slice(part.ok_or(ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (broken, panics) = {
            let world = self.0.world();
            (world.broken, world.write_panics)
        };
        assert!(!panics, "a fault of the library");
        if broken == Some(self.1) {
            return Err(io::Error::other("the disk is broken here"));
        }
        with(self, |world, file| {
            let begun = world.step();
            let grown = (at + bytes.len() as u64).saturating_sub(file.seen.len() as u64);
            let free = world.free().saturating_sub(file.seen.len() as u64);
            let mut fits = match grown <= free {
                true => bytes.len(),
                false => bytes.len() - (grown - free) as usize,
            };
            if begun.is_err() || world.write_fails() {
                fits = world.random.usize(..bytes.len().max(1));
            }
            let part = &bytes[..fits];
            put(&mut file.seen, at, part);
            file.pending.push(Change::Write(at, part.to_vec()));
            begun?;
            if fits < bytes.len() {
                world.has_failed = true;
                return Err(ErrorKind::StorageFull.into());
            }
            Ok(())
        })
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        with(self, |world, file| {
            world.step()?;
            let is_cut = size > 0 && size < file.seen.len() as u64;
            if is_cut && std::mem::take(&mut world.cut_fails) {
                world.has_failed = true;
                return Err(io::Error::other("the file is not cut"));
            }
            let grown = size.saturating_sub(file.seen.len() as u64);
            if grown > world.free().saturating_sub(file.seen.len() as u64) {
                world.has_failed = true;
                return Err(ErrorKind::StorageFull.into());
            }
            file.seen.resize(size as usize, 0);
            file.pending.push(Change::Truncate(size));
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        while self.0.world().is_sync_held {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        with(self, |world, file| {
            world.step()?;
            if world.sync_fails() {
                file.lose(&mut world.random);
                return Err(io::Error::other("fsync failed"));
            }
            for change in file.pending.drain(..) {
                match change {
                    Change::Write(at, bytes) => put(&mut file.durable, at, &bytes),
                    Change::Truncate(size) => file.durable.resize(size as usize, 0),
                }
            }
            file.durable.resize(file.seen.len(), 0);
            // The power may go between the work and the answer.
            match world.goes_off() && world.random.bool() {
                true => Err(io::Error::other("the power is off")),
                false => Ok(()),
            }
        })
    }
}
