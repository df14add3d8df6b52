//! Reads files that a user names: flow files, certificates, secrets, schemas.
//!
//! A name may stand for a pipe, a device or a socket, and what it stands for may change while the
//! process runs. Opening a pipe waits for a writer and reading `/dev/zero` never ends, either of
//! which would hold up the thread that reloads and hears signals.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use config::ByteSize;
use rustix::fs::OFlags;

/// Reads a regular file of at most `size_max` bytes. Links are followed.
///
/// The kind is looked at after opening, and bytes are counted while they are read: another file may
/// come to the name, or the file may grow, between two looks at it.
///
/// # Errors
/// `InvalidInput` when there is something other than a regular file; `FileTooLarge` when it has
/// more bytes; those of the system.
pub(crate) fn read(path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
    let not_regular = || {
        let message = "it is not a regular file";
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    // A device is not even opened, which alone may have an effect.
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(not_regular());
    }
    let room = about.len().min(size_max);
    let mut bytes = Vec::with_capacity(usize::try_from(room).unwrap_or_default());
    file.take(size_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > size_max {
        let message = format!("it has more than {}", ByteSize(size_max));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let folder = TempDir::new();
        let small = folder.write("small", "text");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&small, &link).unwrap();
        assert_eq!(read(&small, 4).unwrap(), b"text");
        assert_eq!(read(&link, 4).unwrap(), b"text");
        assert_eq!(
            read(&small, 3).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let endless = folder.path().join("endless");
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        for path in [pipe.as_path(), &endless, folder.path()] {
            let error = read(path, 4).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        // Its metadata says that it is empty: the size is what has been read.
        let status = read(Path::new("/proc/self/status"), 4).unwrap_err();
        assert_eq!(status.kind(), io::ErrorKind::FileTooLarge);
    }
}
