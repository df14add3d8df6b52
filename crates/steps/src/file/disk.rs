//! What is done on the disk. All of it may block.
//!
//! A file that is taken is locked (flock(2)), read, and renamed into the folder for files under
//! way; only then a flow runs on it. The lock tells whether somebody works on a file there: it ends
//! with the process, so that what a crash has left can be taken up again by whoever comes first.
//! Nothing is ever written over another file.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::Order;
use super::naming::{NAMES_MAX, error_name, numbered};
use super::pattern::Pattern;
use crate::folder::place::{check_size, fill, rename_new};

/// The most files that a look finds: the first ones.
pub(super) const LISTED_MAX: usize = 100_000;

/// The folders of a source.
#[derive(Debug)]
pub(super) struct Folders {
    /// Where files come.
    pub folder: PathBuf,
    /// Where they are while flows run on them.
    pub processing: PathBuf,
    /// Where they go then; absent when they are deleted.
    pub done: Option<PathBuf>,
    /// Where they go when their flow has failed; absent when they never go to such a folder.
    pub failed: Option<PathBuf>,
}

/// A file that may be taken.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub name: OsString,
    pub size: u64,
    pub modified: SystemTime,
    /// Whether it has been taken before and is still under way, or was left by a crash.
    pub is_left: bool,
}

/// What is in a folder.
#[derive(Debug)]
pub(super) struct Listing {
    pub files: Vec<Found>,
    /// Whether the folder had to be made.
    pub is_new: bool,
}

/// A file that has been taken.
pub(super) struct Taken {
    pub body: Vec<u8>,
    pub modified: SystemTime,
    /// Holds the lock.
    pub file: File,
}

/// What becomes of a file that was to be taken.
pub(super) enum Claim {
    Taken(Taken),
    /// It is not there any more, or no file any more.
    Gone,
    /// Somebody works on it, or on another one of its name.
    Busy,
    /// It is not as it was when it was found.
    Changed,
}

/// What becomes of a file when its flow has ended.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    Done,
    /// With what is written beside it.
    Failed(String),
}

impl Folders {
    /// Makes the folders that are missing; whether the watched one was.
    fn prepare(&self) -> io::Result<bool> {
        let is_new = !self.folder.is_dir();
        let all = [
            Some(&self.folder),
            Some(&self.processing),
            self.done.as_ref(),
            self.failed.as_ref(),
        ];
        for folder in all.into_iter().flatten() {
            make_folder(folder)?;
        }
        Ok(is_new)
    }

    /// Looks through the folder for the first files, at most so many and in no order.
    pub fn list(&self, pattern: &Pattern, (order, most): (Order, usize)) -> io::Result<Listing> {
        let is_new = self.prepare()?;
        let mut files = Vec::new();
        for (folder, is_left) in [(&self.processing, true), (&self.folder, false)] {
            let entries = fs::read_dir(folder).map_err(|error| named(folder, &error))?;
            for entry in entries {
                let entry = entry.map_err(|error| named(folder, &error))?;
                let name = entry.file_name();
                if !pattern.takes(&name) || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                    continue;
                }
                // It may have gone by now.
                let Ok(about) = entry.metadata() else {
                    continue;
                };
                files.push(Found {
                    name,
                    size: about.len(),
                    modified: about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                    is_left,
                });
                if files.len() >= most.saturating_mul(2) {
                    keep_first(&mut files, (order, most));
                }
            }
        }
        keep_first(&mut files, (order, most));
        Ok(Listing { files, is_new })
    }

    /// Takes a file.
    pub fn claim(&self, found: &Found, body_max: u64) -> io::Result<Claim> {
        let under_way = self.processing.join(&found.name);
        let place = match found.is_left {
            true => under_way.clone(),
            false => self.folder.join(&found.name),
        };
        let file = match open_plain(&place) {
            Ok(file) => file,
            Err(error) if is_gone(&error) => return Ok(Claim::Gone),
            Err(error) => return Err(error),
        };
        let about = file.metadata()?;
        if !about.is_file() {
            return Ok(Claim::Gone);
        }
        // Where there are no locks, renaming alone decides.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Ok(Claim::Busy);
        }
        if !is_as_found(&about, found) {
            return Ok(Claim::Changed);
        }
        check_size(found.size, body_max)?;
        let mut body = Vec::new();
        // One byte more tells whether it has grown.
        fill(&mut body, &file, found.size + 1)?;
        if !is_as_found(&file.metadata()?, found) || body.len() as u64 != found.size {
            return Ok(Claim::Changed);
        }
        if !found.is_left {
            match move_new(&place, &under_way) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Claim::Busy),
                Err(error) if is_gone(&error) => return Ok(Claim::Gone),
                Err(error) => return Err(error),
            }
        }
        // Another file may have come to its place between opening and renaming.
        let is_ours = fs::symlink_metadata(&under_way)
            .is_ok_and(|there| (there.dev(), there.ino()) == (about.dev(), about.ino()));
        if !is_ours {
            return Ok(Claim::Gone);
        }
        Ok(Claim::Taken(Taken {
            body,
            modified: about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            file,
        }))
    }

    /// Moves a file that is under way to where it belongs, at a time that its name may get.
    pub fn settle(&self, name: &OsStr, verdict: &Verdict, time: &str) -> io::Result<()> {
        let from = self.processing.join(name);
        let moved = match (verdict, &self.done, &self.failed) {
            (Verdict::Failed(why), _, Some(failed)) => put(&from, failed, Some(why), (name, time)),
            // invariant: without such a folder no file gets this verdict.
            (Verdict::Failed(_), _, None) => Err(io::Error::other("no folder is for failed files")),
            (Verdict::Done, Some(done), _) => put(&from, done, None, (name, time)),
            (Verdict::Done, None, _) => fs::remove_file(&from),
        };
        match moved {
            // Somebody else has taken it away.
            Err(error) if error.kind() == ErrorKind::NotFound && !from.exists() => Ok(()),
            other => other,
        }
    }
}

/// Keeps the first files, so many of them.
fn keep_first(files: &mut Vec<Found>, (order, most): (Order, usize)) {
    if files.len() > most {
        files.select_nth_unstable_by(most, |a, b| compare(a, b, order));
        files.truncate(most);
    }
}

/// Which of two files comes first. Those that are left over come before all others.
pub(super) fn compare(a: &Found, b: &Found, order: Order) -> Ordering {
    let by_time = match order {
        Order::Name => Ordering::Equal,
        Order::Time => a.modified.cmp(&b.modified),
    };
    b.is_left
        .cmp(&a.is_left)
        .then(by_time)
        .then_with(|| a.name.cmp(&b.name))
}

/// Opens a file for reading. What is a link by now is an error; what is a pipe does not hold us up,
/// and is told by its metadata.
fn open_plain(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags).open(path)
}

/// Makes a folder unless it is there.
fn make_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder).map_err(|error| named(folder, &error))
}

/// An error with the place where it happened.
fn named(place: &Path, error: &io::Error) -> io::Error {
    let place = place.display().to_string();
    io::Error::new(error.kind(), format!("{}: {error}", place.escape_debug()))
}

/// Whether there is no such file any more, or a link in its place.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

fn is_as_found(about: &Metadata, found: &Found) -> bool {
    about.len() == found.size && about.modified().is_ok_and(|time| time == found.modified)
}

/// Renames a file unless something has the new name already.
fn move_new(from: &Path, to: &Path) -> io::Result<()> {
    rename_new((CWD, from), (CWD, to))
}

/// Moves a file into a folder under the first name that is free, with a text beside it.
fn put(
    from: &Path,
    folder: &Path,
    beside: Option<&String>,
    (name, time): (&OsStr, &str),
) -> io::Result<()> {
    make_folder(folder)?;
    for number in 0..NAMES_MAX {
        let name = numbered(name, number, time);
        let to = folder.join(&name);
        if fs::symlink_metadata(&to).is_ok() {
            continue;
        }
        let note = folder.join(error_name(&name));
        if let Some(text) = beside {
            match write_new(&note, text.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                written => written?,
            }
        }
        let moved = match move_new(from, &to) {
            Err(error) if error.kind() == ErrorKind::CrossesDevices => copy_new(from, &to),
            other => other,
        };
        if moved.is_err() && beside.is_some() {
            // It was made just now, for nothing.
            let _ = fs::remove_file(&note);
        }
        match moved {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            other => return other,
        }
    }
    Err(io::Error::new(
        ErrorKind::AlreadyExists,
        "no name is free there",
    ))
}

/// Writes a file that is not there yet, or nothing.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes).inspect_err(|_| {
        // Half of it is worse than nothing.
        let _ = fs::remove_file(path);
    })
}

/// Moves a file to another file system: whoever looks there sees nothing or the whole file.
fn copy_new(from: &Path, to: &Path) -> io::Result<()> {
    let mut hidden = OsString::from(".");
    hidden.push(to.file_name().unwrap_or_default());
    hidden.push(".part");
    let part = to.with_file_name(hidden);
    // One that a crash has left.
    let _ = fs::remove_file(&part);
    let copied = copy_whole(from, &part).and_then(|()| move_new(&part, to));
    if copied.is_err() {
        let _ = fs::remove_file(&part);
    }
    copied?;
    // Its name has to be on the disk before the other one goes. Else the next try begins anew,
    // and would leave two of it.
    sync_folder(to).inspect_err(|_| {
        let _ = fs::remove_file(to);
    })?;
    fs::remove_file(from)
}

/// Has it on the disk which files are in the folder of this one.
fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn copy_whole(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = open_plain(from)?;
    let about = source.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(ErrorKind::NotFound, "it is no plain file"));
    }
    let mut target = OpenOptions::new().write(true).create_new(true).open(to)?;
    io::copy(&mut source, &mut target)?;
    target.set_permissions(about.permissions())?;
    target.set_modified(about.modified()?)?;
    target.sync_all()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testkit::TempDir;

    use super::*;

    #[test]
    fn of_too_many_files_the_first_in_their_order_are_found() {
        let place = TempDir::new();
        let at = |name: &str| place.path().join(name);
        let folders = Folders {
            folder: at("in"),
            processing: at("in/.processing"),
            done: None,
            failed: Some(at("failed")),
        };
        let now = SystemTime::now();
        // Those that come later by name are older; the system lists them in an order of its own.
        for number in (0..50_u64).rev() {
            let path = place.write(&format!("in/{number:02}"), "");
            let time = now - Duration::from_secs(number);
            File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        place.write("in/.processing/49", "");
        let pattern = Pattern::read("*").unwrap();
        let list = |order, most| {
            let mut files = folders.list(&pattern, (order, most)).unwrap().files;
            files.sort_unstable_by(|a, b| compare(a, b, order));
            let names = files.iter().map(|found| found.name.to_str().unwrap());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(list(Order::Name, 4), ["49", "00", "01", "02"]);
        assert_eq!(list(Order::Time, 4), ["49", "49", "48", "47"]);
        assert_eq!(list(Order::Name, 100).len(), 51);
    }
}
