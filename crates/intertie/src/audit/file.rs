//! The file of the audit stream: appended to, and opened anew when its name stands for another
//! file.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::Line;

/// The most bytes that are handed to the system at once.
const CHUNK: usize = 64 * 1024;
/// Who may read a new file: its owner, for it says who calls from where.
const MODE: u32 = 0o600;

/// An open file. One that was made and never written to is removed when this is dropped, so that a
/// refused reload leaves no trace.
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
    /// Whether it was made by this, and nothing has been written.
    is_new: bool,
    /// How many bytes of the first line that waits are in the file.
    begun: usize,
    /// Whether the last line of the file is whole: another run may have been killed while it wrote.
    is_whole: bool,
}

impl AuditFile {
    /// Opens a file, and makes it if it is not there.
    ///
    /// # Errors
    /// When it cannot be written to, or is no regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, is_new) = open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            is_new,
            begun: 0,
            is_whole: is_new,
        })
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the beginning of a line over that another handle of the file has written.
    pub fn go_on(&mut self, other: &Self) {
        if is_same(&self.file, &other.file) {
            (self.begun, self.is_whole) = (other.begun, other.is_whole);
        }
    }

    /// Writes lines and removes those that are in the file; gives their number. On a full disk the
    /// rest of the lines stays in the queue, and the next call continues where this one stopped,
    /// in the middle of a line if need be.
    ///
    /// # Errors
    /// When something is left.
    pub fn append(&mut self, lines: &mut VecDeque<Line>) -> (u64, io::Result<()>) {
        let mut written = 0;
        if let Err(error) = self.follow_name() {
            return (written, Err(error));
        }
        if !self.is_whole
            && !lines.is_empty()
            && let Err(error) = self.end_last_line()
        {
            return (written, Err(error));
        }
        while !lines.is_empty() {
            let mut chunk = Vec::new();
            for line in lines.iter() {
                if chunk.len() >= CHUNK {
                    break;
                }
                chunk.extend_from_slice(line.json.as_bytes());
                chunk.push(b'\n');
            }
            let rest = chunk.get(self.begun..).unwrap_or_default();
            match self.file.write(rest) {
                Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
                Ok(count) => written += self.advance(count, lines),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    /// Removes the lines of which so many more bytes are in the file.
    fn advance(&mut self, count: usize, lines: &mut VecDeque<Line>) -> u64 {
        self.is_new = false;
        self.begun += count;
        let mut written = 0;
        while let Some(line) = lines.front() {
            let length = line.json.len() + 1;
            if self.begun < length {
                break;
            }
            self.begun -= length;
            written += 1;
            lines.pop_front();
        }
        written
    }

    /// Opens the file anew when it was renamed or removed. A line that was begun is written again
    /// as a whole.
    fn follow_name(&mut self) -> io::Result<()> {
        let is_there = match std::fs::metadata(&self.path) {
            Ok(there) => {
                let own = self.file.metadata()?;
                (there.dev(), there.ino()) == (own.dev(), own.ino())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !is_there {
            (self.file, self.is_new) = open(&self.path)?;
            (self.begun, self.is_whole) = (0, self.is_new);
        }
        Ok(())
    }

    /// Ends the last line of the file, if it has no end: the next one would be a part of it.
    fn end_last_line(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if let Some(last) = length.checked_sub(1) {
            let mut byte = *b"\n";
            match File::open(&self.path) {
                Ok(file) => file.read_exact_at(&mut byte, last)?,
                // It may be one to be written to only: nobody can look then.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
            if byte != *b"\n" {
                self.file.write_all(b"\n")?;
            }
        }
        self.is_whole = true;
        Ok(())
    }

    /// Has what was written outlive a crash of the machine.
    ///
    /// # Errors
    /// Those of the system.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Drop for AuditFile {
    fn drop(&mut self) {
        let is_empty = || self.file.metadata().is_ok_and(|it| it.len() == 0);
        if self.is_new && is_empty() {
            // Nobody misses it, and nobody is harmed when it stays.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn is_same(left: &File, right: &File) -> bool {
    let id = |file: &File| file.metadata().map(|it| (it.dev(), it.ino())).ok();
    id(left).is_some_and(|left| id(right) == Some(left))
}

fn open(path: &Path) -> io::Result<(File, bool)> {
    // A pipe or a device is not even opened, which alone may wait or have an effect.
    let before = std::fs::metadata(path);
    if before.as_ref().is_ok_and(|it| !it.is_file()) {
        return Err(not_regular());
    }
    let is_new = before.is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE);
    let file = options.custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok((file, is_new)),
        false => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use testkit::TempDir;

    use super::*;

    fn lines(texts: &[&str]) -> VecDeque<Line> {
        let lines = texts.iter().map(|it| Line {
            key: String::new(),
            json: (*it).to_owned(),
        });
        lines.collect()
    }

    #[test]
    fn lines_are_appended_and_a_renamed_file_is_left() {
        let folder = TempDir::new();
        let path = folder.write("audit", "before\n");
        let mut file = AuditFile::open(&path).unwrap();
        let mut waiting = lines(&["one", "two"]);
        let (written, result) = file.append(&mut waiting);
        result.unwrap();
        assert_eq!((written, waiting.len()), (2, 0));
        let old = folder.path().join("audit.1");
        fs::rename(&path, &old).unwrap();
        file.append(&mut lines(&["three"])).1.unwrap();
        fs::remove_file(&path).unwrap();
        file.append(&mut lines(&["four"])).1.unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "before\none\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "four\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
    }

    #[test]
    fn a_line_that_was_begun_is_ended_or_begun_again_in_another_file() {
        let folder = TempDir::new();
        let path = folder.path().join("audit");
        let mut file = AuditFile::open(&path).unwrap();
        let mut waiting = lines(&["one", "two"]);
        // As if the disk had been full after these.
        file.file.write_all(b"one\nt").unwrap();
        assert_eq!(file.advance(5, &mut waiting), 1);
        let mut other = AuditFile::open(&path).unwrap();
        other.go_on(&file);
        drop(file);
        other.append(&mut waiting).1.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        let mut waiting = lines(&["three"]);
        other.file.write_all(b"th").unwrap();
        other.advance(2, &mut waiting);
        fs::rename(&path, folder.path().join("old")).unwrap();
        other.append(&mut waiting).1.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn a_line_that_another_run_has_left_in_the_middle_is_ended() {
        let folder = TempDir::new();
        let path = folder.write("audit", "one\n{\"time\":");
        let mut file = AuditFile::open(&path).unwrap();
        file.append(&mut lines(&["two"])).1.unwrap();
        file.append(&mut lines(&["three"])).1.unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "one\n{\"time\":\ntwo\nthree\n");
        // A file that takes the place of the one that is open, too.
        fs::remove_file(&path).unwrap();
        folder.write("audit", "other");
        file.append(&mut lines(&["four"])).1.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "other\nfour\n");
    }

    #[test]
    fn a_file_that_was_never_written_to_leaves_no_trace() {
        let folder = TempDir::new();
        let path = folder.path().join("audit");
        drop(AuditFile::open(&path).unwrap());
        assert!(!path.exists());
        let empty = folder.write("empty", "");
        drop(AuditFile::open(&empty).unwrap());
        assert!(empty.exists());
    }

    #[test]
    fn only_regular_files_are_written_to() {
        let folder = TempDir::new();
        let link = folder.path().join("full");
        std::os::unix::fs::symlink("/dev/full", &link).unwrap();
        for path in [link.as_path(), folder.path()] {
            let error = AuditFile::open(path).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{path:?}");
        }
        assert!(AuditFile::open(&folder.path().join("no/audit")).is_err());
    }
}
