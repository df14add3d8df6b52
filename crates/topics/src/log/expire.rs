//! Snapshots that are too old. The store cannot remove them by itself: those that are not old may
//! need the whole one before them.

use super::Log;
use crate::settings::Payload;
use crate::store::memory::now_ms;
use crate::store::{Kept, RecordKind, StoreError};

impl Log {
    /// Has everything removed before the last whole snapshot that is too old, if `keep.time` says
    /// so: it is what the oldest that is not too old was made from. Blocks.
    pub fn expire(self: &std::sync::Arc<Self>) -> Result<(), StoreError> {
        let settings = self.settings();
        let Some(time) = settings.keep.time else {
            return Ok(());
        };
        let Some(found) = self.store.find(&self.stored_as) else {
            return Ok(());
        };
        if self.payload == Payload::Event || found.first + 1 >= found.next {
            return Ok(());
        }
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let wholes = self.wholes(found.first, found.next - 1)?;
        let last_old = self.last_old(&wholes, now_ms().saturating_sub(time))?;
        let Some(first) = last_old.filter(|first| *first > found.first) else {
            return Ok(());
        };
        let log = std::sync::Arc::clone(self);
        // Between two batches: what is published meanwhile would move the end.
        let chore = async move {
            let (store, name, kept) = (&log.store, &log.stored_as, log.kept());
            let next = store.find(name).map_or(found.next, |found| found.next);
            let events = (next - first).min(kept.events);
            store.declare(name, Kept { events, ..kept }).await?;
            store.declare(name, kept).await.map(drop)
        };
        self.sequencer.chore(self.durability, Box::pin(chore));
        Ok(())
    }

    /// The numbers of whole snapshots, the newest first.
    fn wholes(&self, first: u64, last: u64) -> Result<Vec<u64>, StoreError> {
        let (mut wholes, mut at) = (Vec::new(), last);
        let find = |at| {
            self.store
                .last_of_kind(&self.stored_as, RecordKind::Whole, at)
        };
        while at >= first.max(1)
            && let Some(whole) = find(at)?
        {
            wholes.push(whole);
            at = whole - 1;
        }
        Ok(wholes)
    }

    /// The newest of them that is older than this time.
    fn last_old(&self, wholes: &[u64], time: u64) -> Result<Option<u64>, StoreError> {
        // The times of events never go back, so that few have to be read.
        let (mut from, mut to) = (0, wholes.len());
        while from < to {
            let middle = (from + to) / 2;
            let number = wholes.get(middle).copied().unwrap_or_default();
            let records = self.store.read(&self.stored_as, number, 1)?;
            match records.first().is_some_and(|it| it.at_ms < time) {
                true => to = middle,
                false => from = middle + 1,
            }
        }
        Ok(wholes.get(from).copied())
    }
}
