//! The data folder: one process at a time, a format that is checked, files that nobody else reads.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskFile};
use crate::error::OpenError;

/// What the file `format` says.
const FORMAT: &str = "intertie data folder, format 1\n";
/// The file that is taken for nothing.
const RESERVE: &str = "reserve";

/// The name of a file of the store.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:012}.log")
}

/// A data folder that this process has for itself.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl DataFolder {
    /// Takes a folder; it is made when it is not there.
    ///
    /// # Errors
    /// When another process has it, when it is of another version, or when the disk fails.
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        let doing = |what: &str| OpenError::disk(format!("{what} {}", path.display()));
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(path)
            .map_err(doing("make the data folder"))?;
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
        let folder = Self {
            path: path.to_owned(),
            _lock: lock,
        };
        folder.check_format()?;
        Ok(folder)
    }

    fn check_format(&self) -> Result<(), OpenError> {
        let doing = |what: &str| OpenError::disk(format!("{what} {}", self.path.display()));
        let file = self.path.join("format");
        match fs::read_to_string(&file) {
            Ok(text) if text == FORMAT => return Ok(()),
            Ok(_) => {
                let why = "it was written by another version of intertie".to_owned();
                return Err(OpenError::Format(self.path.clone(), why));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(doing("read the data folder")(error)),
        }
        if self.path.join("store").exists() {
            let why = "the file `format` is missing".to_owned();
            return Err(OpenError::Format(self.path.clone(), why));
        }
        let write = || {
            let part = self.path.join("format.part");
            let mut options = private();
            let mut new = options
                .write(true)
                .create(true)
                .truncate(true)
                .open(&part)?;
            new.write_all(FORMAT.as_bytes())?;
            new.sync_all()?;
            fs::rename(&part, &file)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(doing("write to the data folder"))
    }

    /// The files of the store in it. They keep the folder taken.
    ///
    /// # Errors
    /// When their folder cannot be made.
    pub fn store(self) -> Result<Box<dyn Disk>, OpenError> {
        let path = self.path.join("store");
        let doing = || OpenError::disk(format!("make the folder {}", path.display()));
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&path);
        made.map_err(doing())?;
        let synced = File::open(&self.path).and_then(|folder| folder.sync_all());
        synced.map_err(doing())?;
        Ok(Box::new(Folder { path, _taken: self }))
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
    _taken: DataFolder,
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
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        // Some file systems keep no space for what is only promised: it is written.
        let zeros = vec![0; bytes as usize];
        let kept = file.write_all_at(&zeros, 0);
        if kept.is_err() {
            let _ = fs::remove_file(&path);
        }
        kept
    }
}

impl DiskFile for File {
    fn size(&mut self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, at)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
