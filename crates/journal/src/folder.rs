//! The data folder: one process at a time, a format that is checked, files that nobody else reads.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::crc;
use crate::disk::{Disk, DiskFile, LowSpace};
use crate::error::{OpenError, RESTORE};
use crate::keyed::Place;

use FormatProblem::{Damaged, Foreign};

/// What the file `format` says of a folder that has nothing but a store.
const FIRST: &str = "intertie data folder, format 1\n";
/// What it begins with otherwise: a line for each part follows.
const SECOND: &str = "intertie data folder, format 2\n";
/// How its last line begins.
const CHECKSUM: &str = "checksum ";
/// The file that is taken for nothing.
const RESERVE: &str = "reserve";
/// What files a log has to have.
const MANIFEST: &str = "manifest";

/// The name of a file of a log.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:012}.log")
}

/// What may be in a folder: its name there, and the version of its format that is written.
const PARTS: [(&str, u32); 3] = [("store", 2), ("topics", 2), ("keyed", 5)];
/// The version from which on a part is named when all of it is there.
const NAMED_WHEN_MADE: u32 = 2;
/// The file of keyed state.
const KEYED: &str = "keyed.redb";

/// A data folder that this process has for itself. Copies are the same one; it is given back when
/// all of them are gone, and all that has been opened in it.
#[derive(Clone, Debug)]
pub struct DataFolder(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
    parts: Mutex<Parts>,
    low_space: LowSpace,
    /// Whether what is missing is taken for what has never been there.
    accepts_loss: bool,
}

/// What is in a folder.
#[derive(Debug, Default)]
struct Parts {
    /// What its file `format` names.
    named: Vec<(String, u32)>,
    /// What somebody has opened.
    open: Vec<&'static str>,
}

impl DataFolder {
    /// Takes a folder; it is made when it is not there.
    ///
    /// # Errors
    /// When another process has it, when it is of another version, or when the disk fails.
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        Self::take_with(path, false)
    }

    /// The same; files that are missing, emptied or cut are taken for what is left of the folder.
    ///
    /// # Errors
    /// As [`DataFolder::take`].
    pub fn take_accepting_loss(path: &Path) -> Result<Self, OpenError> {
        Self::take_with(path, true)
    }

    fn take_with(path: &Path, accepts_loss: bool) -> Result<Self, OpenError> {
        let doing = |what: &str| OpenError::disk(format!("{what} {}", path.display()));
        make_folder(path).map_err(doing("make the data folder"))?;
        let mut options = private();
        let lock = options.read(true).write(true).create(true).truncate(false);
        let mut lock = lock
            .open(path.join("lock"))
            .map_err(doing("open the data folder"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse(path.to_owned(), read_pid(&mut lock)));
            }
            Err(TryLockError::Error(error)) => return Err(doing("lock the data folder")(error)),
        }
        let written = lock
            .set_len(0)
            .and_then(|()| lock.write_all(format!("{}\n", std::process::id()).as_bytes()));
        // A full disk is no reason not to start: the number is for people.
        drop(written);
        let parts = Parts {
            named: check_format(path, accepts_loss)?,
            open: Vec::new(),
        };
        Ok(Self(Arc::new(Taken {
            path: path.to_owned(),
            _lock: lock,
            parts: Mutex::new(parts),
            low_space: LowSpace::default(),
            accepts_loss,
        })))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The files of the store in it. They keep the folder taken.
    ///
    /// # Errors
    /// When their folder cannot be made, or somebody has opened them.
    pub fn store(&self) -> Result<Box<dyn Disk>, OpenError> {
        self.numbered("store")
    }

    /// The files of topics in it. They keep the folder taken.
    ///
    /// # Errors
    /// When their folder cannot be made, or somebody has opened them.
    pub fn topics(&self) -> Result<Box<dyn Disk>, OpenError> {
        self.numbered("topics")
    }

    /// The file of keyed state in it. It keeps the folder taken.
    ///
    /// # Errors
    /// When the disk fails, or somebody has opened it.
    pub fn keyed(&self) -> Result<KeyedFile, OpenError> {
        let part = self.part("keyed")?;
        let path = self.0.path.join(KEYED);
        Ok(KeyedFile { path, part })
    }

    fn numbered(&self, name: &'static str) -> Result<Box<dyn Disk>, OpenError> {
        let part = self.part(name)?;
        let path = self.0.path.join(name);
        let doing = || OpenError::disk(format!("make the folder {}", path.display()));
        make_folder(&path).map_err(doing())?;
        Ok(Box::new(Folder { path, part }))
    }

    /// Takes what has this name for whoever opens it.
    fn part(&self, name: &'static str) -> Result<Part, OpenError> {
        let path = &self.0.path;
        let parts = self.0.parts.lock();
        let mut parts = parts.unwrap_or_else(PoisonError::into_inner);
        if parts.open.contains(&name) {
            return Err(OpenError::InUse(path.clone(), Some(std::process::id())));
        }
        parts.open.push(name);
        Ok(Part(self.clone(), name))
    }
}

impl Part {
    /// Whether all of it has been there before.
    fn is_made(&self) -> bool {
        let parts = self.0.0.parts.lock();
        let parts = parts.unwrap_or_else(PoisonError::into_inner);
        let mut named = parts.named.iter();
        !self.0.0.accepts_loss
            && named.any(|(name, version)| name == self.1 && *version >= NAMED_WHEN_MADE)
    }

    /// Has the file `format` name it in the version that is written: no older version takes the
    /// folder for one that it knows, and what is missing from now on is missed.
    fn made(&self) -> io::Result<()> {
        let parts = self.0.0.parts.lock();
        let mut parts = parts.unwrap_or_else(PoisonError::into_inner);
        let written = PARTS.iter().find(|it| it.0 == self.1);
        let version = written.map_or(1, |it| it.1);
        let mut named = parts.named.clone();
        named.retain(|it| it.0 != self.1);
        named.push((self.1.to_owned(), version));
        if named != parts.named {
            write_format(&self.0.0.path, &named)?;
            parts.named = named;
        }
        Ok(())
    }
}

/// What somebody has opened of a folder. It can be opened again when this is gone.
#[derive(Debug)]
struct Part(DataFolder, &'static str);

impl Drop for Part {
    fn drop(&mut self) {
        let parts = self.0.0.parts.lock();
        let mut parts = parts.unwrap_or_else(PoisonError::into_inner);
        parts.open.retain(|it| *it != self.1);
    }
}

/// The file of keyed state, which nobody else has.
#[derive(Debug)]
pub struct KeyedFile {
    path: PathBuf,
    part: Part,
}

impl KeyedFile {
    /// What becomes the file.
    fn part(&self) -> PathBuf {
        self.path.with_extension("part")
    }
}

impl Place for KeyedFile {
    fn open(&mut self) -> io::Result<Option<Box<dyn DiskFile>>> {
        let is_lost =
            |it: &File| self.part.0.0.accepts_loss && it.metadata().is_ok_and(|it| it.len() == 0);
        match OpenOptions::new().read(true).write(true).open(&self.path) {
            Ok(file) if is_lost(&file) => Ok(None),
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn begin(&mut self) -> io::Result<Box<dyn DiskFile>> {
        let mut options = private();
        let options = options.read(true).write(true).create(true).truncate(true);
        Ok(Box::new(options.open(self.part())?))
    }

    fn finish(&mut self) -> io::Result<()> {
        fs::rename(self.part(), &self.path)?;
        self.path
            .parent()
            .map_or(Ok(()), |it| File::open(it)?.sync_all())
    }

    fn ahead(&mut self, number: usize, make: bool) -> io::Result<Option<Box<dyn DiskFile>>> {
        let path = self.ahead_path(number);
        let mut options = private();
        let options = options.read(true).write(true).create(make).truncate(false);
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // Also one that is there: its process may have been killed before it did so.
        path.parent().map_or(Ok(()), sync_folder)?;
        Ok(Some(Box::new(file)))
    }

    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn is_made(&self) -> bool {
        self.part.is_made()
    }

    fn made(&mut self) -> io::Result<()> {
        self.part.made()
    }
}

/// What the file `format` says of a folder with these parts.
fn format_text(named: &[(String, u32)]) -> String {
    let lines = named
        .iter()
        .map(|(name, version)| format!("{name} {version}\n"));
    let text = SECOND.to_owned() + &lines.collect::<String>();
    let crc = crc::of(text.as_bytes());
    format!("{text}{CHECKSUM}{crc:08x}\n")
}

/// Why the file `format` names no parts.
enum FormatProblem {
    /// It is not what any version has written.
    Damaged(&'static str),
    /// It is whole, and another version has written it.
    Foreign(String),
}

impl FormatProblem {
    fn error(self, path: &Path) -> OpenError {
        let why = match self {
            Damaged(what) => format!("the file `format` {what}: {RESTORE}"),
            Foreign(why) => why,
        };
        OpenError::Format(path.to_owned(), why)
    }
}

/// The parts that the file `format` names. Every version from 2 on ends the file with its checksum:
/// one that does not match is damage, whatever version the text names.
fn read_format(text: &str) -> Result<Vec<(String, u32)>, FormatProblem> {
    let checked = text.rsplit_once(CHECKSUM);
    let Some((lines, crc)) = checked else {
        return read_unchecked(text);
    };
    if format!("{:08x}\n", crc::of(lines.as_bytes())) != crc {
        return Err(Damaged("is damaged, its checksum does not match"));
    }
    let other = || Foreign("it was written by another version of intertie".to_owned());
    let parts = lines.strip_prefix(SECOND).ok_or_else(other)?;
    let parts = parts.lines().map(|line| {
        let (name, version) = read_part(line).ok_or_else(other)?;
        let known = PARTS.iter().find(|it| it.0 == name);
        match known.is_some_and(|it| (1..=it.1).contains(&version)) {
            true => Ok((name.to_owned(), version)),
            false => Err(Foreign(format!(
                "it has `{name}` in version {version} of its format, which this version of \
                 intertie does not know"
            ))),
        }
    });
    parts.collect()
}

/// The same of the first versions, which wrote no checksum: nothing but these few texts is whole.
fn read_unchecked(text: &str) -> Result<Vec<(String, u32)>, FormatProblem> {
    if text.is_empty() {
        return Err(Damaged("is empty"));
    }
    if text == FIRST {
        return Ok(vec![("store".to_owned(), 1)]);
    }
    let damaged = || Damaged("is damaged or cut off, it has no checksum");
    let parts = text.strip_prefix(SECOND).ok_or_else(damaged)?;
    let parts = parts.strip_suffix('\n').ok_or_else(damaged)?;
    let parts = parts.split('\n').map(|line| {
        let is_known = |it: &(&str, u32)| it.1 == 1 && PARTS.iter().any(|part| part.0 == it.0);
        let (name, version) = read_part(line).filter(is_known).ok_or_else(damaged)?;
        Ok((name.to_owned(), version))
    });
    parts.collect()
}

/// The name of a part, and its version.
fn read_part(line: &str) -> Option<(&str, u32)> {
    let (name, version) = line.split_once(' ')?;
    Some((name, version.parse().ok()?))
}

/// What the file `format` names. Where loss is accepted, one that is missing or damaged names
/// nothing: the parts are then read without the claim that all of them is there.
fn check_format(path: &Path, accepts_loss: bool) -> Result<Vec<(String, u32)>, OpenError> {
    let doing = |what: &str| OpenError::disk(format!("{what} {}", path.display()));
    let is_there = |name: &&str| path.join(name).exists();
    let read = match fs::read(path.join("format")) {
        Ok(bytes) => match str::from_utf8(&bytes) {
            Ok(text) => read_format(text),
            Err(_) => Err(Damaged("is damaged, it is no text")),
        },
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(doing("read the data folder")(error));
        }
        Err(_) if ["store", "topics", KEYED].iter().any(is_there) => Err(Damaged("is missing")),
        Err(_) => {
            let named = Vec::new();
            write_format(path, &named).map_err(doing("write to the data folder"))?;
            return Ok(named);
        }
    };
    match read {
        Ok(named) => Ok(named),
        Err(Damaged(what)) if accepts_loss => {
            let folder = path.display();
            tracing::warn!(%folder, "the file `format` {what}, it is written again");
            let named = Vec::new();
            write_format(path, &named).map_err(doing("write to the data folder"))?;
            Ok(named)
        }
        Err(problem) => Err(problem.error(path)),
    }
}

fn write_format(path: &Path, named: &[(String, u32)]) -> io::Result<()> {
    let part = path.join("format.part");
    let mut options = private();
    let mut new = options
        .write(true)
        .create(true)
        .truncate(true)
        .open(&part)?;
    new.write_all(format_text(named).as_bytes())?;
    new.sync_all()?;
    fs::rename(&part, path.join("format"))?;
    File::open(path)?.sync_all()
}

/// Makes a folder, and those it is in, when they are not there: durably, with their names.
fn make_folder(path: &Path) -> io::Result<()> {
    make_folder_with(path, &mut sync_folder)
}

/// The same; `sync` makes durable what a folder has in it.
fn make_folder_with(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        // The root.
        None => return Ok(()),
    };
    if !path.is_dir() {
        make_folder_with(parent, sync)?;
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    sync(parent)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(path) {
        // It was made by somebody who may do more than we.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        folder => folder?.sync_all(),
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

fn read_pid(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// A folder of numbered files.
struct Folder {
    path: PathBuf,
    part: Part,
}

impl Disk for Folder {
    fn list(&mut self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            let number = name.strip_suffix(".log").and_then(|it| it.parse().ok());
            numbers.extend(number.filter(|number| file_name(*number) == name));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn create(&mut self, number: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut options = private();
        let options = options.read(true).write(true).create(true).truncate(true);
        Ok(Box::new(options.open(self.path.join(file_name(number)))?))
    }

    fn open(&mut self, number: u64) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path.join(file_name(number));
        Ok(Box::new(
            OpenOptions::new().read(true).write(true).open(path)?,
        ))
    }

    fn remove(&mut self, number: u64) -> io::Result<()> {
        fs::remove_file(self.path.join(file_name(number)))
    }

    fn sync(&mut self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let path = self.path.join(RESERVE);
        if bytes == 0 {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let mut options = private();
        let options = options.write(true).create(true).truncate(false);
        let file = options.open(&path)?;
        let before = file.metadata()?.len();
        if bytes <= before {
            return file.set_len(bytes);
        }
        // Some file systems keep no space for what is only promised: it is written.
        let zeros = vec![0; (bytes - before) as usize];
        let kept = file.write_all_at(&zeros, before);
        if kept.is_err() {
            // Others have taken what it was before if not all of this can be undone.
            let _ = file.set_len(before);
        }
        kept
    }

    fn is_made(&self) -> bool {
        self.part.is_made()
    }

    fn made(&mut self) -> io::Result<()> {
        self.part.made()
    }

    fn manifest(&mut self) -> io::Result<Option<Box<dyn DiskFile>>> {
        let path = self.path.join(MANIFEST);
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create_manifest(&mut self) -> io::Result<Box<dyn DiskFile>> {
        let mut options = private();
        let options = options.read(true).write(true).create(true).truncate(true);
        Ok(Box::new(options.open(self.path.join(MANIFEST))?))
    }

    fn low_space(&self) -> LowSpace {
        self.part.0.0.low_space.clone()
    }
}

impl DiskFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn has_holes(&self) -> io::Result<bool> {
        let metadata = self.metadata()?;
        // In units of 512 bytes, whatever the file system has for blocks (stat(2)).
        Ok(metadata.blocks() * 512 < metadata.len())
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, at)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_is_synced_in_the_one_that_it_is_in() {
        let temporary = std::env::temp_dir();
        let top = temporary.join(format!("intertie-folders-{}", std::process::id()));
        let path = top.join("a/data");
        let make = || {
            let mut synced = Vec::new();
            let made = make_folder_with(&path, &mut |folder| {
                let mut inner = path.ancestors();
                let made = inner.find(|it| it.parent() == Some(folder)).unwrap();
                assert!(made.exists(), "{} is not there yet", made.display());
                synced.push(folder.to_owned());
                Ok(())
            });
            made.unwrap();
            synced
        };
        assert!(make().ends_with(&[temporary, top.clone(), top.join("a")]));
        // Whoever made one that is there may not have come to that.
        assert_eq!(make(), [top.join("a")]);
        fs::remove_dir_all(&top).unwrap();
    }
}
