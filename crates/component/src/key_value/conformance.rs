//! What every [`KeyValueStore`] has to do, for the tests of each: one suite, so that a store can
//! take the place of another.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use message::Fault;

use super::{KeyValueStore, Version, Write};
use crate::handler::{LocalFuture, Services};

/// Longer than the suite takes.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(50);

/// A store that is tested.
pub struct Suite<'a> {
    /// The store. Keys that begin with `conformance` are changed.
    pub store: &'a dyn KeyValueStore,
    /// What is given to it.
    pub services: &'a dyn Services,
    /// Lets time pass on the clock of the store.
    pub pass: &'a dyn Fn(Duration) -> LocalFuture<'static, ()>,
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}, not {wanted:?}")),
    }
}

impl Suite<'_> {
    /// Runs the suite.
    ///
    /// # Errors
    /// What the store does otherwise.
    pub async fn run(&self) -> Result<(), String> {
        self.one_of_two_writers_succeeds().await?;
        self.values_expire().await?;
        self.a_version_is_given_once().await?;
        self.bytes_come_back_as_they_are().await?;
        self.no_change_is_lost().await
    }

    async fn get(&self, key: &[u8]) -> Result<Option<(Bytes, Version)>, String> {
        let entry = self.store.get(key, self.services).await.map_err(told)?;
        Ok(entry.map(|entry| (entry.value, entry.version)))
    }

    async fn set(
        &self,
        key: &[u8],
        expected: Option<Version>,
        (value, ttl): (&[u8], Duration),
    ) -> Result<Option<Version>, String> {
        let value = Bytes::copy_from_slice(value);
        let write = Write {
            is_synced: false,
            expected,
            value,
            ttl,
        };
        let set = self.store.compare_and_set(key, write, self.services).await;
        set.map_err(told)
    }

    async fn must_set(
        &self,
        key: &[u8],
        expected: Option<Version>,
        write: (&[u8], Duration),
    ) -> Result<Version, String> {
        let set = self.set(key, expected, write).await?;
        set.ok_or_else(|| format!("{} is not written", key.escape_ascii()))
    }

    async fn delete(&self, key: &[u8], expected: Version) -> Result<bool, String> {
        let deleted = self
            .store
            .compare_and_delete(key, expected, self.services)
            .await;
        deleted.map_err(told)
    }

    async fn one_of_two_writers_succeeds(&self) -> Result<(), String> {
        let key = b"conformance-writers";
        expect("a key without a value", self.get(key).await?, None)?;
        let first = self.must_set(key, None, (b"1", LONG)).await?;
        let again = self.set(key, None, (b"2", LONG)).await?;
        expect("a second first value", again, None)?;
        let found = self.get(key).await?;
        expect("the value", found, Some((Bytes::from_static(b"1"), first)))?;

        let second = self.must_set(key, Some(first), (b"2", LONG)).await?;
        let late = self.set(key, Some(first), (b"3", LONG)).await?;
        expect("a write for an old version", late, None)?;
        expect(
            "a deletion of an old version",
            self.delete(key, first).await?,
            false,
        )?;
        let found = self.get(key).await?;
        expect("the value", found, Some((Bytes::from_static(b"2"), second)))?;

        expect("a deletion", self.delete(key, second).await?, true)?;
        expect("a second deletion", self.delete(key, second).await?, false)?;
        expect("a deleted value", self.get(key).await?, None)?;
        let gone = self.set(key, Some(second), (b"4", LONG)).await?;
        expect("a write for a deleted version", gone, None)
    }

    async fn values_expire(&self) -> Result<(), String> {
        let key = b"conformance-expiry";
        let short = self.must_set(key, None, (b"1", SHORT)).await?;
        (self.pass)(SHORT * 3).await;
        expect("an expired value", self.get(key).await?, None)?;
        let late = self.set(key, Some(short), (b"2", LONG)).await?;
        expect("a write for an expired version", late, None)?;

        // The time counts from the last write.
        let short = self.must_set(key, None, (b"1", SHORT)).await?;
        let long = self.must_set(key, Some(short), (b"2", LONG)).await?;
        (self.pass)(SHORT * 3).await;
        let found = self.get(key).await?;
        expect("the value", found, Some((Bytes::from_static(b"2"), long)))
    }

    async fn a_version_is_given_once(&self) -> Result<(), String> {
        let key = b"conformance-versions";
        let mut versions = Vec::new();
        for _ in 0..20 {
            let version = self.must_set(key, None, (b"same", LONG)).await?;
            versions.push(version.0);
            self.delete(key, version).await?;
        }
        let count = versions.len();
        versions.sort_unstable();
        versions.dedup();
        expect("different versions", versions.len(), count)
    }

    async fn bytes_come_back_as_they_are(&self) -> Result<(), String> {
        let all: Vec<u8> = (0..=255).collect();
        let long = all.repeat(256);
        let key = [b"conformance-bytes-".as_slice(), &all].concat();
        let values: [&[u8]; 4] = [b"", b"\0", &all, &long];
        let mut version = None;
        for value in values {
            let written = self.must_set(&key, version, (value, LONG)).await?;
            let found = self.get(&key).await?;
            let wanted = (Bytes::copy_from_slice(value), written);
            expect("the bytes", found, Some(wanted))?;
            version = Some(written);
        }
        // Keys that differ only in their end.
        let other = self.get(&[key.as_slice(), b"0"].concat()).await?;
        expect("another key", other, None)
    }

    /// Several writers count in one value.
    async fn no_change_is_lost(&self) -> Result<(), String> {
        const WRITERS: u64 = 3;
        const EACH: u64 = 20;
        let mut writers: Vec<LocalFuture<'_, _>> = Vec::new();
        for _ in 0..WRITERS {
            writers.push(Box::pin(self.count(EACH)));
        }
        all(writers).await?;
        let found = self.get(b"conformance-counter").await?;
        let count = found.map(|(value, _)| number(&value));
        expect("the count", count, Some(WRITERS * EACH))
    }

    async fn count(&self, times: u64) -> Result<(), String> {
        let key = b"conformance-counter";
        for _ in 0..times {
            loop {
                let found = self.get(key).await?;
                let (value, version) = match found {
                    Some((value, version)) => (number(&value) + 1, Some(version)),
                    None => (1, None),
                };
                let value = value.to_string();
                let set = self.set(key, version, (value.as_bytes(), LONG)).await?;
                if set.is_some() {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn number(value: &Bytes) -> u64 {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.parse().unwrap_or_default()
}

fn told(fault: Fault) -> String {
    format!("{fault:?}")
}

/// Runs futures beside each other until all are done.
async fn all(mut futures: Vec<LocalFuture<'_, Result<(), String>>>) -> Result<(), String> {
    poll_fn(|context| {
        let mut failed = None;
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(done) => {
                failed = failed.take().or(done.err());
                false
            }
        });
        match failed {
            Some(problem) => Poll::Ready(Err(problem)),
            None if futures.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}
