//! Events that are kept as long as the process lives.

use std::collections::{HashMap, VecDeque};
use std::future::ready;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;

use super::{Answer, Found, Kept, Record, RecordKind, Store, StoreError};

/// What a record takes beside its bytes.
const EACH: usize = 32;

/// All logs.
#[derive(Default)]
pub(crate) struct MemoryStore(Mutex<HashMap<Arc<str>, Arc<Mutex<Log>>>>);

struct Log {
    epoch: u64,
    keep: Kept,
    records: VecDeque<Record>,
    next: u64,
    bytes: u64,
}

impl Log {
    fn found(&self) -> Found {
        Found {
            epoch: self.epoch,
            first: self.next - self.records.len() as u64,
            next: self.next,
            bytes: self.bytes,
        }
    }

    fn push(&mut self, record: Record) {
        self.bytes += size(&record);
        self.next = record.sequence + 1;
        self.records.push_back(record);
    }

    fn tidy(&mut self) {
        let oldest = self.keep.time.map(|time| {
            let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            now_ms().saturating_sub(time)
        });
        while let Some(record) = self.records.front() {
            let is_old = oldest.is_some_and(|oldest| record.at_ms < oldest);
            let count = self.records.len() as u64;
            let is_too_much = self.bytes > self.keep.bytes || count > self.keep.events;
            let is_needed = record.sequence >= self.keep.from;
            // The last one stays, however large and old it is.
            if count == 1 || is_needed || !is_old && !is_too_much {
                return;
            }
            self.bytes -= size(record);
            self.records.pop_front();
        }
    }
}

fn size(record: &Record) -> u64 {
    (record.body.len() + record.key.len() + EACH) as u64
}

/// The time of day, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// A number at random that is not 0.
pub(crate) fn new_epoch() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(now_ms());
    // In hex it has at most 12 digits, and a program that reads numbers as floats reads it right.
    (hasher.finish() >> 16).max(1)
}

impl MemoryStore {
    fn logs(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Mutex<Log>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all topics but these.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.logs().retain(|topic, _| is_there(topic));
    }

    fn with<T>(&self, topic: &str, work: impl FnOnce(&mut Log) -> T) -> Option<T> {
        let log = Arc::clone(self.logs().get(topic)?);
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        Some(work(&mut log))
    }
}

fn unknown() -> StoreError {
    StoreError::Broken("the topic is not there".to_owned())
}

impl Store for MemoryStore {
    fn declare(&self, topic: &str, keep: Kept) -> Answer<Found> {
        let mut logs = self.logs();
        let log = logs.entry(topic.into()).or_insert_with(|| {
            Arc::new(Mutex::new(Log {
                epoch: new_epoch(),
                keep,
                records: VecDeque::new(),
                next: 1,
                bytes: 0,
            }))
        });
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.keep = keep;
        log.tidy();
        Box::pin(ready(Ok(log.found())))
    }

    fn find(&self, topic: &str) -> Option<Found> {
        self.with(topic, |log| {
            log.tidy();
            log.found()
        })
    }

    fn append(&self, records: Vec<(Arc<str>, Record)>) -> Answer<()> {
        let mut result = Ok(());
        for (topic, record) in records {
            let pushed = self.with(&topic, |log| {
                log.push(record);
                log.tidy();
            });
            result = result.and(pushed.ok_or_else(unknown));
        }
        Box::pin(ready(result))
    }

    fn read(&self, topic: &str, from: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError> {
        let read = self.with(topic, |log| {
            let Some(at) = from.checked_sub(log.found().first) else {
                return Err(StoreError::Gone(log.found().first));
            };
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let mut bytes = 0;
            let wanted = log.records.iter().skip(at).take_while(|record| {
                let is_wanted = bytes < bytes_max as u64;
                bytes += size(record);
                is_wanted
            });
            Ok(wanted.cloned().collect())
        });
        read.unwrap_or_else(|| Err(unknown()))
    }

    fn last_of_kind(
        &self,
        topic: &str,
        kind: RecordKind,
        at_most: u64,
    ) -> Result<Option<u64>, StoreError> {
        let found = self.with(topic, |log| {
            let mut newest = log.records.iter().rev();
            let found = newest.find(|it| it.kind == kind && it.sequence <= at_most);
            found.map(|it| it.sequence)
        });
        found.ok_or_else(unknown)
    }

    fn keys(&self, topic: &str, since_ms: u64) -> Result<Vec<(Bytes, u64)>, StoreError> {
        let keys = self.with(topic, |log| {
            let records = log.records.iter();
            let keyed = records.filter(|it| !it.key.is_empty() && it.at_ms >= since_ms);
            keyed.map(|it| (it.key.clone(), it.sequence)).collect()
        });
        keys.ok_or_else(unknown)
    }

    fn remove(&self, topic: &str) -> Answer<()> {
        self.logs().remove(topic);
        Box::pin(ready(Ok(())))
    }

    fn close(&self) -> Answer<()> {
        Box::pin(ready(Ok(())))
    }
}
