//! Writes files that commands change: whole or not at all, one command at a time.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another command may take.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Writes a file: beside it, flushed to disk, and renamed. A new one may be read by its owner only;
/// one that is there keeps its owner, its group and what these may do. A link is followed, so that
/// what it leads to is replaced.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = target(file);
    let before = match fs::metadata(&file) {
        Ok(before) => Some(before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let folder = folder(&file);
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    let beside = folder.join(name);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options.open(&beside).and_then(|mut new| {
        if let Some(before) = before {
            let now = new.metadata()?;
            if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
                // An engine that runs as another user could not read it any more.
                fchown(&new, Some(before.uid()), Some(before.gid()))?;
            }
            // What others may do was never meant: these files are secrets.
            let mode = before.permissions().mode() & 0o660 | 0o600;
            new.set_permissions(Permissions::from_mode(mode))?;
        }
        new.write_all(bytes)?;
        new.sync_all()?;
        fs::rename(&beside, &file)
    });
    if written.is_err() {
        // It may never have been there.
        let _ = fs::remove_file(&beside);
    }
    written?;
    File::open(folder)?.sync_all()
}

/// Waits until no other command changes a file, and keeps others from it until what it returns is
/// dropped. The folder is locked: the file itself is another one after each change.
///
/// # Errors
/// `TimedOut` after 10 seconds; those of the system.
pub(crate) fn lock(file: &Path) -> io::Result<File> {
    let folder = File::open(folder(&target(file)))?;
    let end = Instant::now() + LOCK_WAIT;
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(folder),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                let message = "another command has been writing in its folder for 10 seconds";
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The file that a name leads to, whether or not it is there.
fn target(file: &Path) -> PathBuf {
    fs::canonicalize(file).unwrap_or_else(|_| file.to_owned())
}

fn folder(file: &Path) -> &Path {
    let folder = file.parent().filter(|path| !path.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_keeps_what_its_group_may_do_and_others_get_nothing() {
        let folder = TempDir::new();
        let path = folder.path().join("keys");
        replace(&path, b"one").unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), mode(&path)),
            (b"one".to_vec(), 0o600)
        );
        for (before, after) in [(0o644, 0o640), (0o660, 0o660), (0o400, 0o600)] {
            fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            replace(&path, b"two").unwrap();
            assert_eq!(mode(&path), after);
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace(&link, b"three").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn one_at_a_time_has_the_lock() {
        let folder = TempDir::new();
        let path = folder.path().join("keys");
        let first = lock(&path).unwrap();
        let other = File::open(folder.path()).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(first);
        other.try_lock().unwrap();
    }
}
