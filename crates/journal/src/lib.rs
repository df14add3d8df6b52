//! Messages on the disk until they are delivered: bytes, kept by name and number. This crate does
//! not know what they mean.
//!
//! [`Outbox::append`] answers when a message is durable. [`Outbox::take`] hands each message to one
//! taker at a time; [`Delivery::settle`] says what becomes of it. One thread writes (`keeper`):
//! whatever waits for it becomes one frame of the files (`log`) and one `fsync`, and then all are
//! answered. What is known of messages beside their bytes is in memory (`index`) and is made again
//! from the files at the start.

mod crc;
mod disk;
mod error;
mod folder;
mod index;
mod keeper;
mod log;
mod outbox;
mod record;
#[cfg(test)]
mod tests;

pub use disk::{Disk, DiskFile};
pub use error::{OpenError, Refusal};
pub use folder::DataFolder;
pub use outbox::{Delivery, Listed, Options, Order, Outbox, Room, Settle, Stats};
