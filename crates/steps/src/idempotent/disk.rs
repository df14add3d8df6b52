//! Keys in the data folder: they are read before the first message, and each is on the disk before
//! its message goes on.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use component::definition::BuildContext;
use component::handler::Services;
use journal::{Change, Keyed, Refusal};
use message::{Fault, Kind, Origin};
use serde_json::Value as Json;
use tokio::sync::OnceCell;

use super::record::{self, Record, Stored, TABLE};
use super::{Claim, Durability, Entry, Inner, Outcome, Success, Table};
use crate::kept;
use crate::keyed_state::KeyedStateHandle;

/// How many keys are read at a time.
const PAGE: usize = 1000;
/// How many keys are forgotten at a time, at most.
const GONE_MAX: usize = 1000;

/// A key on its way to the disk.
type Writing = Pin<Box<dyn Future<Output = Result<(), Refusal>>>>;

/// The keys of a step in the data folder.
pub(super) struct Disk {
    of: KeyedStateHandle,
    /// What they begin with.
    scope: [u8; 32],
    is_read: OnceCell<()>,
}

impl Disk {
    /// What a step has there; none when its keys are in memory.
    pub fn of(
        durability: Option<Durability>,
        key: &Option<Json>,
        context: &BuildContext<'_>,
    ) -> Option<Self> {
        let is_required = match durability {
            Some(Durability::Memory) => return None,
            Some(Durability::Disk) => true,
            None => false,
        };
        let made_of = key.as_ref().map(Json::to_string).unwrap_or_default();
        Some(Self {
            of: KeyedStateHandle::new(context.surroundings.states, is_required),
            scope: record::scope(context.flow, &context.label, &made_of),
            is_read: OnceCell::new(),
        })
    }
}

impl Table {
    /// The keyed state of the data folder, where keys are kept there.
    fn keyed(&self) -> Option<(&Disk, &Keyed)> {
        let disk = self.disk.as_ref()?;
        Some((disk, disk.of.keyed()?))
    }

    /// Reads the keys of earlier runs, once.
    ///
    /// # Errors
    /// `unavailable` when they cannot be read: without them a message may be done twice.
    pub async fn load(&self, services: &dyn Services) -> Result<(), Fault> {
        let Some((disk, keyed)) = self.keyed() else {
            return Ok(());
        };
        let read = disk.is_read.get_or_try_init(|| async {
            let records = read_all(keyed, &disk.scope).await?;
            self.take_in(records, services);
            Ok(())
        });
        read.await.map(drop).map_err(|refusal: Refusal| {
            let detail = "the keys of earlier messages cannot be read";
            Fault::new(Kind::Unavailable, Origin::Engine, detail).with_cause(refusal)
        })
    }

    /// Remembers what earlier runs have left, the oldest first, and forgets what is over.
    fn take_in(&self, mut records: Vec<Record>, services: &dyn Services) {
        records.sort_by_key(|record| record.until);
        let surplus = records.len().saturating_sub(self.settings.max);
        let (wall, now) = (services.wall(), services.now());
        let mut inner = self.lock();
        inner.has_disk = true;
        for (number, record) in records.into_iter().enumerate() {
            // The time of day may have been put back.
            let left = record.until.saturating_sub(wall).min(self.settings.window);
            if left.is_zero() || number < surplus {
                inner.forget(record.key);
                continue;
            }
            let result = match record.result {
                Stored::Nothing => (Outcome::Forgotten, 0),
                Stored::Content(reply) => {
                    let weight = record::weight(&reply) + kept::ENTRY;
                    (Outcome::Stored(reply), weight)
                }
                Stored::Reply(reply) => {
                    let weight = record::weight(&reply) + kept::ENTRY;
                    (Outcome::Reply(reply), weight)
                }
            };
            inner.put(record.key, result, now + left, &self.settings);
        }
    }

    /// The steps of a key have succeeded. It is remembered from now on, and it is on the disk,
    /// where keys are, when this is over.
    pub async fn end(&self, claim: Claim<'_>, kept: ((Outcome, usize), Stored), at: Success) {
        let mut claim = claim;
        let mut first = Some(kept);
        let mut writing: Option<Writing> = None;
        let written = poll_fn(|context| match (first.take(), &mut writing) {
            (Some(kept), writing) => self.hand_over(&mut claim, kept, at, writing, context),
            (None, Some(writing)) => writing.as_mut().poll(context),
            (None, None) => Poll::Ready(Ok(())),
        })
        .await;
        self.note(written);
    }

    /// The same for a key whose message nobody waits for any more: there is no result. The disk
    /// gets the key, too, but nobody waits until it has it.
    pub fn remember_without_result(&self, claim: &mut Claim<'_>, at: Success) {
        let nothing = ((Outcome::Forgotten, 0), Stored::Nothing);
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(written) = self.hand_over(claim, nothing, at, &mut None, &mut context) {
            self.note(written);
        }
    }

    /// Remembers a key, and begins to write it to the disk, where keys are.
    fn hand_over(
        &self,
        claim: &mut Claim<'_>,
        (result, stored): ((Outcome, usize), Stored),
        at: Success,
        writing: &mut Option<Writing>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        let Some((disk, keyed)) = self.keyed() else {
            claim.end(&mut self.lock(), result, at.now);
            return Poll::Ready(Ok(()));
        };
        let record = Record {
            key: claim.key.to_owned(),
            until: at.wall + self.settings.window,
            result: stored,
        };
        // It is handed over while the table is locked: the disk hears of a key in the same order
        // as the table.
        let mut inner = self.lock();
        let changes = inner.changes(disk, &record);
        claim.end(&mut inner, result, at.now);
        let keyed = keyed.clone();
        let write = async move { keyed.write(changes).await };
        writing.insert(Box::pin(write)).as_mut().poll(context)
    }

    fn note(&self, written: Result<(), Refusal>) {
        if let Err(error) = written {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                target: "flow", %error,
                "a key of `idempotent` is not on the disk: it is forgotten when the engine ends"
            );
        }
    }
}

impl Inner {
    /// What the disk is to change when a key is done.
    fn changes(&mut self, disk: &Disk, record: &Record) -> Vec<Change> {
        let count = self.gone.len().min(GONE_MAX);
        let gone: Vec<String> = self.gone.drain(..count).collect();
        let is_there = |key: &String| matches!(self.entries.peek(key), Some(Entry::Done { .. }));
        let gone = gone.into_iter().filter(|key| !is_there(key));
        let mut changes: Vec<Change> = gone
            .map(|key| Change::Delete {
                table: TABLE.into(),
                key: record::name(&disk.scope, &key),
            })
            .collect();
        changes.push(Change::Put {
            table: TABLE.into(),
            key: record::name(&disk.scope, &record.key),
            value: record.encode(),
        });
        changes
    }
}

async fn read_all(keyed: &Keyed, scope: &[u8; 32]) -> Result<Vec<Record>, Refusal> {
    let (mut records, mut after) = (Vec::new(), None);
    loop {
        let page = keyed.scan(TABLE, scope, after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else {
            return Ok(records);
        };
        after = Some(last.clone());
        // What another version has written is left to it.
        records.extend(page.iter().filter_map(|(_, value)| Record::decode(value)));
    }
}
