//! What is done on the disk: a file is written whole or not at all.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use message::memory::{self, Cover, Exhausted};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, linkat, mkdirat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::{number, parts};

/// Files that are made can be read by others as the process' mask lets them.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);
/// How long to wait for somebody else who adds to the same file.
const LOCK_MAX: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// How much more of a file is read at a time that is longer than it was said to be.
const PIECE: u64 = 64 * 1024;
/// The most folders within folders that are looked through.
const DEPTH_MAX: usize = 32;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It must not be there.
    Create,
    /// It takes the place of one that is there.
    Replace,
    /// It is added to one that is there.
    Append,
}

/// A file of a folder.
pub(crate) struct Listed {
    /// Its name within the folder.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last changed.
    pub modified: SystemTime,
}

/// The folder that a file is in, opened part by part, and the file's own name.
struct Place<'a> {
    folder: OwnedFd,
    name: &'a str,
}

fn open_folder(
    at: impl AsFd,
    name: impl rustix::path::Arg,
    follows: bool,
) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    if !follows {
        flags |= OFlags::NOFOLLOW;
    }
    openat(at, name, OFlags::RDONLY | flags, Mode::empty())
}

/// Finds the place of a name. Folders are made when they are missing and that is wanted.
fn place<'a>(folder: &Path, name: &'a str, makes: bool) -> Result<Place<'a>, Error> {
    let invalid = |why| Error::new(ErrorKind::InvalidInput, why);
    let mut parts = parts(name).map_err(invalid)?;
    let name = parts.pop().ok_or_else(|| invalid("the name is empty"))?;
    if makes {
        std::fs::create_dir_all(folder)?;
    }
    let mut at = open_folder(CWD, folder, true)?;
    for part in parts {
        at = match open_folder(&at, part, false) {
            Err(Errno::NOENT) if makes => {
                match mkdirat(&at, part, FOLDER_MODE) {
                    // Somebody else was faster.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                rustix::fs::fsync(&at)?;
                open_folder(&at, part, false)?
            }
            other => other?,
        };
    }
    Ok(Place { folder: at, name })
}

/// Opens a file as a plain one: a link or a pipe is none.
fn open_file(place: &Place<'_>, flags: OFlags) -> Result<File, Error> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&place.folder, place.name, flags, FILE_MODE)?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Error::new(ErrorKind::NotFound, "it is no plain file")),
    }
}

/// Reads a file of at most so many bytes, which keep what is reserved for them in the budget for
/// bodies.
pub(crate) fn read(folder: &Path, name: &str, most: u64) -> Result<Bytes, Error> {
    let place = place(folder, name, false)?;
    let file = open_file(&place, OFlags::RDONLY)?;
    let size = file.metadata()?.len();
    let limit = memory::bodies().limit();
    check_size(size, most)?;
    let (mut body, mut cover) = (Vec::new(), Cover::default());
    // One byte more tells whether the file has grown.
    let mut wanted = size + 1;
    loop {
        let needed = wanted.min(most);
        cover
            .cover(needed as usize)
            .map_err(|Exhausted| no_room(needed, limit))?;
        fill(&mut body, &file, wanted.min(most + 1))?;
        let length = body.len() as u64;
        check_size(length, most)?;
        if length < wanted {
            return Ok(cover.hold(body));
        }
        wanted = length + PIECE;
    }
}

/// Refuses a file of more than so many bytes.
pub(crate) fn check_size(size: u64, most: u64) -> Result<(), Error> {
    match size > most {
        true => {
            let most = config::ByteSize(most);
            let why = format!("larger than {most}");
            Err(Error::new(ErrorKind::FileTooLarge, why))
        }
        false => Ok(()),
    }
}

/// Reads on until there are so many bytes, or to the end of the file.
pub(crate) fn fill(body: &mut Vec<u8>, file: &File, most: u64) -> Result<(), Error> {
    let missing = most.saturating_sub(body.len() as u64);
    body.reserve_exact(missing as usize);
    file.take(missing).read_to_end(body)?;
    Ok(())
}

fn no_room(needed: u64, limit: u64) -> Error {
    match memory::bodies().never_has(needed) {
        true => too_large_for_memory(limit),
        false => Error::from(ErrorKind::OutOfMemory),
    }
}

/// The error of a file for which the budget for bodies never has room.
pub(crate) fn too_large_for_memory(limit: u64) -> Error {
    let limit = config::ByteSize(limit);
    let why = format!("larger than `limits.body_memory`, {limit}");
    Error::new(ErrorKind::FileTooLarge, why)
}

/// Writes a file, on the disk when it returns unless `syncs` is false.
pub(crate) fn write(
    (folder, name): (&Path, &str),
    bytes: &[u8],
    mode: Way,
    syncs: bool,
) -> Result<(), Error> {
    let place = place(folder, name, true)?;
    if mode == Way::Append {
        return append(&place, bytes, syncs);
    }
    let temporary = format!(".intertie-{}-{}.tmp", std::process::id(), number());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&place.folder, &temporary, flags, FILE_MODE)?);
    let written = file
        .write_all(bytes)
        .and_then(|()| if syncs { file.sync_all() } else { Ok(()) })
        .and_then(|()| match mode {
            Way::Create => rename_new((&place.folder, &temporary), (&place.folder, place.name)),
            _ => replace(&place, &temporary),
        });
    if written.is_err() {
        // Nothing more can be done about it than about the failure itself.
        let _ = unlinkat(&place.folder, &temporary, AtFlags::empty());
    }
    written?;
    if syncs {
        rustix::fs::fsync(&place.folder)?;
    }
    Ok(())
}

fn replace(place: &Place<'_>, temporary: &str) -> Result<(), Error> {
    Ok(renameat(
        &place.folder,
        temporary,
        &place.folder,
        place.name,
    )?)
}

/// Renames a file unless something has the new name already.
pub(crate) fn rename_new<T: rustix::path::Arg + Copy>(
    (from_folder, from): (impl AsFd + Copy, T),
    (to_folder, to): (impl AsFd + Copy, impl rustix::path::Arg + Copy),
) -> Result<(), Error> {
    match renameat_with(from_folder, from, to_folder, to, RenameFlags::NOREPLACE) {
        // File systems that cannot do this can make links, which replace nothing either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            linkat(from_folder, from, to_folder, to, AtFlags::empty())?;
            Ok(unlinkat(from_folder, from, AtFlags::empty())?)
        }
        other => Ok(other?),
    }
}

/// Adds to a file, all or nothing: what has been written of a failed try is cut off again.
fn append(place: &Place<'_>, bytes: &[u8], syncs: bool) -> Result<(), Error> {
    let is_new = statat(&place.folder, place.name, AtFlags::SYMLINK_NOFOLLOW).is_err();
    let mut file = open_file(place, OFlags::WRONLY | OFlags::CREATE)?;
    lock(&file)?;
    let before = file.seek(SeekFrom::End(0))?;
    let written = file
        .write_all(bytes)
        .and_then(|()| if syncs { file.sync_all() } else { Ok(()) });
    if written.is_err() {
        file.set_len(before)?;
    }
    written?;
    if syncs && is_new {
        rustix::fs::fsync(&place.folder)?;
    }
    Ok(())
}

/// Keeps others away who add to the same file (flock(2)); the lock ends with the file.
fn lock(file: &File) -> Result<(), Error> {
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(std::fs::TryLockError::WouldBlock) if waited < LOCK_MAX => {
                thread::sleep(LOCK_PAUSE);
                waited += LOCK_PAUSE;
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                let why = "somebody else has locked the file";
                return Err(Error::new(ErrorKind::ResourceBusy, why));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Deletes a file.
pub(crate) fn delete(folder: &Path, name: &str) -> Result<(), Error> {
    let place = place(folder, name, false)?;
    // A folder has another error than a file that is not there.
    let about = statat(&place.folder, place.name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return Err(Error::new(ErrorKind::NotFound, "it is no plain file"));
    }
    unlinkat(&place.folder, place.name, AtFlags::empty())?;
    Ok(rustix::fs::fsync(&place.folder)?)
}

/// Opens a folder below another one, part by part. The name is empty or ends with `/`.
fn open_below(folder: &Path, name: &str) -> Result<OwnedFd, Errno> {
    let mut at = open_folder(CWD, folder, true)?;
    for part in name.split_terminator('/') {
        at = open_folder(&at, part, false)?;
    }
    Ok(at)
}

/// Lists the plain files of a folder whose names are wanted, at most so many.
pub(crate) fn list(
    folder: &Path,
    recursive: bool,
    most: usize,
    wants: impl Fn(&str) -> bool,
) -> Result<Vec<Listed>, Error> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), 0)];
    while let Some((before, depth)) = open.pop() {
        let at = match open_below(folder, &before) {
            // It has gone by now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if depth > 0 => continue,
            other => other?,
        };
        for entry in Dir::read_from(&at)? {
            let entry = entry?;
            // A name that is no text could not be asked for.
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            // It may have gone by now.
            let Ok(about) = statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let path = format!("{before}{name}");
            match FileType::from_raw_mode(about.st_mode) {
                FileType::RegularFile if wants(name) => {
                    if found.len() >= most {
                        let why = format!("the folder has more than {most} such files");
                        return Err(Error::new(ErrorKind::FileTooLarge, why));
                    }
                    found.push(Listed {
                        name: path,
                        size: u64::try_from(about.st_size).unwrap_or_default(),
                        modified: modified(about.st_mtime, about.st_mtime_nsec),
                    });
                }
                FileType::Directory if recursive && depth < DEPTH_MAX => {
                    open.push((format!("{path}/"), depth + 1));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

fn modified(seconds: impl TryInto<u64>, nanoseconds: impl TryInto<u32>) -> SystemTime {
    let seconds = seconds.try_into().unwrap_or_default();
    let nanoseconds = nanoseconds.try_into().unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}
