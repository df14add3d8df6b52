//! What can go wrong with a journal.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a journal cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it.
    InUse(PathBuf, Option<u32>),
    /// It was written by another version, or is no data folder.
    Format(PathBuf, String),
    /// A file is not as it was written: the place in it, and what is wrong there.
    Corrupt(u64, u64, &'static str),
    /// The disk failed; what was being done.
    Disk(String, io::Error),
}

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
            Self::Corrupt(number, at, why) => write!(
                formatter,
                "the store's file {} is damaged at byte {at}: {why}",
                crate::folder::file_name(*number)
            ),
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
            Self::Closed => formatter.write_str("the store is closed"),
        }
    }
}

impl std::error::Error for Refusal {}
