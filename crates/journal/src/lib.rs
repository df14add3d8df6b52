//! What has to outlive the process, on the disk: bytes, kept by name and number. This crate does
//! not know what they mean. Three things are kept in one data folder ([`DataFolder`]):
//!
//! *Messages until they are delivered* ([`Outbox`]). [`Outbox::append`] answers when a message is
//! durable. [`Outbox::take`] hands each message to one taker at a time; [`Delivery::settle`] says
//! what becomes of it. One thread writes (`keeper`): whatever waits for it becomes one frame of the
//! files (`log`) and one `fsync`, and then all are answered. What is known of messages beside their
//! bytes is in memory (`index`) and is made again from the files at the start.
//!
//! *Streams of entries that are kept for a while* ([`Streams`]), on files of the same kind.
//! [`Streams::read`] reads beside the one thread that writes.
//!
//! *Small keyed state* ([`Keyed`]), in one file of `redb`.
//!
//! `docs/journal-format.md` says what stands in the files.

mod asking;
mod backlog;
mod crc;
mod cursor;
mod disk;
mod error;
mod folder;
mod frame;
mod index;
mod keeper;
mod keyed;
mod log;
mod outbox;
mod record;
mod refusals;
mod streams;
#[cfg(test)]
mod tests;

pub use disk::{Disk, DiskFile, LowSpace};
pub use error::{OpenError, ReadError, Refusal};
pub use folder::{DataFolder, KeyedFile};
pub use keyed::{Change, Durability, Keyed};
pub use outbox::{Delivery, Listed, Options, Order, Outbox, Room, Settle, Stats};
pub use refusals::Refusals;
pub use streams::{Entry, Epochs, Keep, NewEntry, StreamInfo, StreamOptions, StreamStats, Streams};
