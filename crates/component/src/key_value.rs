//! State by key outside of the process that several engines may change at the same time. Whoever
//! changes a value says which version of it has been read: of several, one succeeds.

pub mod conformance;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use message::Fault;

use crate::handler::{LocalFuture, Services};

/// Which of the values that a key has had one after the other: each write makes another one, also
/// where a value has expired or was deleted in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub u64);

/// A value that has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Bytes,
    /// Its version.
    pub version: Version,
}

/// A value to be written.
#[derive(Clone, Debug)]
pub struct Write {
    /// The version that the key has; `None` when it has no value.
    pub expected: Option<Version>,
    /// The value that it gets.
    pub value: Bytes,
    /// How long it has that, at least a millisecond, by the clock of the store.
    pub ttl: Duration,
    /// Whether it has to outlive the machine when it is answered, not only the process. A store
    /// that is not of this process decides by itself.
    pub is_synced: bool,
}

/// A store of values by key with compare-and-set and expiry, such as Redis. Keys and values are any
/// bytes.
pub trait KeyValueStore: Send + Sync {
    /// The value of a key.
    fn get<'a>(
        &'a self,
        key: &'a [u8],
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Entry>, Fault>>;

    /// Writes a value when the key has the expected version, and gives the new one; `None` when the
    /// key has another one. After a fault the value may or may not have been written.
    fn compare_and_set<'a>(
        &'a self,
        key: &'a [u8],
        write: Write,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Version>, Fault>>;

    /// Deletes the value of a key when it has the expected version; whether it had.
    fn compare_and_delete<'a>(
        &'a self,
        key: &'a [u8],
        expected: Version,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<bool, Fault>>;
}

/// The connections of one kind as stores: what their definition makes of a connection.
pub type AsKeyValueStore = fn(&Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn KeyValueStore>>;
