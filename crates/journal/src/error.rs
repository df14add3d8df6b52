//! What can go wrong with a journal.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a journal cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it.
    InUse(PathBuf, Option<u32>),
    /// It was written by another version, or its file `format` is damaged; which.
    Format(PathBuf, String),
    /// A file is not as it was written: its folder within the data folder, its number, the place
    /// in it in bytes, and what is wrong there.
    Corrupt(&'static str, u64, u64, &'static str),
    /// A file is missing that the manifest names: its folder within the data folder, and its
    /// number.
    Missing(&'static str, u64),
    /// The manifest of a folder cannot be used, and why.
    Manifest(&'static str, &'static str),
    /// The file of keyed state, which is named, cannot be used, and why.
    Keyed(PathBuf, String),
    /// The disk failed; what was being done.
    Disk(String, io::Error),
}

/// What to do when something is gone.
pub(crate) const RESTORE: &str = "put the data folder back from a copy, or accept the loss with \
                       `--accept-data-loss`";

impl OpenError {
    pub(crate) fn disk(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Disk(doing, error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(folder, pid) => {
                let folder = folder.display();
                write!(formatter, "the data folder {folder} is in use by ")?;
                match pid {
                    Some(pid) => write!(formatter, "process {pid}"),
                    None => write!(formatter, "another process"),
                }
            }
            Self::Format(folder, why) => {
                write!(formatter, "the data folder {}: {why}", folder.display())
            }
            Self::Corrupt(folder, number, at, why) => write!(
                formatter,
                "the file {folder}/{} is damaged at byte {at}: {why}",
                crate::folder::file_name(*number)
            ),
            Self::Missing(folder, number) => write!(
                formatter,
                "the file {folder}/{} is missing: {RESTORE}",
                crate::folder::file_name(*number)
            ),
            Self::Manifest(folder, why) => {
                write!(formatter, "the file {folder}/manifest {why}: {RESTORE}")
            }
            Self::Keyed(file, why) => {
                write!(
                    formatter,
                    "the file {} cannot be used: {why}",
                    file.display()
                )
            }
            Self::Disk(doing, error) => write!(formatter, "cannot {doing}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Disk(_, error) => Some(error),
            _ => None,
        }
    }
}

/// Why a journal has not done something. Nothing of it has been done, or so it is seen after a
/// restart that it may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue has as much as it may.
    Full,
    /// Too much is waiting to be written.
    Busy,
    /// The disk did not take it; nothing that was there is lost. It may be tried again.
    NoSpace(String),
    /// The disk failed in a way that leaves unknown what is on it. Nothing is written any more
    /// before a restart.
    Poisoned(String),
    /// The message is not there any more, or somebody else has it.
    Gone,
    /// A message could not be read from the disk.
    Unreadable(String),
    /// There is no stream of this name.
    Unknown(String),
    /// An entry of this stream does not have the number that comes next.
    OutOfOrder {
        /// The stream.
        stream: String,
        /// The number that comes next.
        next: u64,
    },
    /// It is larger than may be, or there are more than may be; what.
    TooLarge(&'static str),
    /// The journal has been closed.
    Closed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => formatter.write_str("the store is full"),
            Self::Busy => formatter.write_str("too much is waiting to be written"),
            Self::NoSpace(error) => write!(formatter, "the disk did not take it: {error}"),
            Self::Poisoned(error) => write!(
                formatter,
                "the disk has failed, nothing is written before a restart: {error}"
            ),
            Self::Gone => formatter.write_str("the message is not there any more"),
            Self::Unreadable(error) => write!(formatter, "a message cannot be read: {error}"),
            Self::Unknown(name) => write!(formatter, "there is no stream `{name}`"),
            Self::OutOfOrder { stream, next } => {
                write!(
                    formatter,
                    "the next entry of `{stream}` has the number {next}"
                )
            }
            Self::TooLarge(what) => write!(formatter, "{what}"),
            Self::Closed => formatter.write_str("the store is closed"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Why entries of a stream are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// What was asked for is not kept any more.
    Gone {
        /// The oldest that is kept.
        first: u64,
    },
    /// What was asked for is not there yet.
    Ahead {
        /// The number of the next one.
        next: u64,
    },
    /// There is no stream of this name.
    Unknown,
    /// It is not as it was written: the file, the byte, and what should be there.
    Damaged(String),
    /// The disk failed; which file, and how.
    Disk(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { first } => write!(formatter, "what is kept begins with {first}"),
            Self::Ahead { next } => write!(formatter, "the next one will be {next}"),
            Self::Unknown => formatter.write_str("there is no such stream"),
            Self::Damaged(what) | Self::Disk(what) => formatter.write_str(what),
        }
    }
}

impl std::error::Error for ReadError {}
