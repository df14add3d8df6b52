//! File descriptors when there are few: clients may not use up those that back ends need, nor both
//! together those of the admin port and of files.
//!
//! The kernel gives a new descriptor the lowest number that is free (open(2)), so its number says
//! how many are in use at least. That is compared with the share of whoever has opened it: nothing
//! is counted, and what libraries open is seen too.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// The most descriptors that are kept from clients, and of these from back ends too.
const KEPT_FROM_CLIENTS: u64 = 4096;
const KEPT_FROM_BACK_ENDS: u64 = 256;

/// The machine has no descriptor left, or this process; the same numbers on all Unix systems.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

static CLIENTS: AtomicI32 = AtomicI32::new(RawFd::MAX);
static BACK_ENDS: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// How a number of descriptors is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// A client's connection gets a descriptor below this number.
    pub clients: u64,
    /// A connection to a back end gets one below this number.
    pub back_ends: u64,
}

impl Shares {
    /// Of so many descriptors a quarter, at most 4096, is kept from clients, and an eighth, at most
    /// 256, from back ends.
    pub fn of(limit: u64) -> Self {
        Self {
            clients: limit - (limit / 4).min(KEPT_FROM_CLIENTS),
            back_ends: limit - (limit / 8).min(KEPT_FROM_BACK_ENDS),
        }
    }

    /// The least number of descriptors of which clients get this many.
    pub fn needed(clients: u64) -> u64 {
        clients + (clients.div_ceil(3)).min(KEPT_FROM_CLIENTS)
    }

    /// Has the connections of this process keep to the shares.
    pub fn apply(self) {
        let number = |share: u64| RawFd::try_from(share).unwrap_or(RawFd::MAX);
        CLIENTS.store(number(self.clients), Ordering::Relaxed);
        BACK_ENDS.store(number(self.back_ends), Ordering::Relaxed);
    }
}

/// Whether a client's connection is within the clients' share.
pub fn is_for_clients(socket: &impl AsRawFd) -> bool {
    socket.as_raw_fd() < CLIENTS.load(Ordering::Relaxed)
}

/// Refuses a connection to a back end that is above their share.
///
/// # Errors
/// [`io::ErrorKind::QuotaExceeded`] when it is.
pub(crate) fn check_back_end(socket: &impl AsRawFd) -> io::Result<()> {
    if socket.as_raw_fd() < BACK_ENDS.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::QuotaExceeded,
        "the file descriptors for back ends are used up (ulimit -n)",
    ))
}

/// Gives the error of a socket that could not be made the kind of [`check_back_end`], when there is
/// no descriptor for it: that says nothing about whoever was to be connected to.
pub(crate) fn no_descriptor(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(ENFILE | EMFILE) => io::Error::new(io::ErrorKind::QuotaExceeded, error),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_ends_have_more_than_clients_and_something_is_left() {
        for limit in [32, 100, 256, 1024, 4096, 65_536, 1 << 20] {
            let shares = Shares::of(limit);
            assert!(shares.clients < shares.back_ends && shares.back_ends < limit);
            assert!(shares.clients >= limit / 4 * 3);
        }
        assert_eq!(Shares::of(256).clients, 192);
        assert_eq!(Shares::of(1 << 20).back_ends, (1 << 20) - 256);
    }

    #[test]
    fn a_lack_of_descriptors_has_a_kind_of_its_own() {
        let error = |number: i32| no_descriptor(io::Error::from_raw_os_error(number));
        assert_eq!(error(EMFILE).kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(error(ENFILE).kind(), io::ErrorKind::QuotaExceeded);
        let others = io::ErrorKind::ConnectionRefused;
        assert_eq!(no_descriptor(others.into()).kind(), others);
        let shown = error(EMFILE).to_string();
        assert!(shown.contains("open files"), "{shown}");
    }

    #[test]
    fn what_is_said_to_be_needed_is_enough() {
        for clients in [1, 2, 3, 100, 192, 12_287, 12_288, 12_289, 20_000, 1_000_000] {
            let limit = Shares::needed(clients);
            assert!(Shares::of(limit).clients >= clients, "{clients}");
            assert!(Shares::of(limit - 1).clients < clients + 2, "{clients}");
        }
    }
}
