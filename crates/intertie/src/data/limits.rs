//! What limits per caller have counted in windows of an hour or more: read at the start, written
//! beside the workers every few seconds and when the process stops.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use component::limits::{KeptLimits, Limiter};
use component::state::States;
use journal::{Change, Keyed};
use steps::KeyedState;
use tokio::time::Instant;

/// The table of the keyed state.
const TABLE: &str = "limits";
/// The key of the callers' hashes.
const HASH_KEY: &[u8] = b"key";
/// What the buckets of a limit begin with.
const BUCKETS: &str = "buckets/";
/// How often what has changed is written: a crash loses what has been counted since.
const EVERY: Duration = Duration::from_secs(5);
/// Writing takes at most one part in so many of the time.
const REST: u32 = 20;
/// The bytes of one commit.
const BATCH: usize = 4 << 20;

/// Reads what has been counted for limits that are new.
///
/// # Errors
/// When the disk fails.
pub(super) async fn restore(limits: &KeptLimits, keyed: &Keyed) -> anyhow::Result<()> {
    let is_same = share_key(limits, keyed).await?;
    for (name, limiter) in limits.take_new() {
        let prefix = prefix(&name);
        let rows = keyed.scan(TABLE, prefix.as_bytes(), None, usize::MAX).await;
        let rows = rows.context("cannot read what limits have counted")?;
        let is_sound = rows.iter().all(|(_, value)| limiter.restore(value));
        if !is_sound {
            tracing::warn!(
                name,
                "what this limit had counted is damaged: it begins anew"
            );
        }
    }
    if is_same {
        forget_others(limits, keyed).await?;
    }
    Ok(())
}

/// Uses the key under which callers have been counted before, or keeps the new one. False when
/// another one is in use already.
async fn share_key(limits: &KeptLimits, keyed: &Keyed) -> anyhow::Result<bool> {
    let kept = keyed.get(TABLE, HASH_KEY).await;
    let kept = kept.context("cannot read what limits have counted")?;
    let kept = kept.and_then(|it| Some(u128::from_le_bytes(it.get(..16)?.try_into().ok()?)));
    let used = match kept {
        Some(kept) => limits.set_key(((kept >> 64) as u64, kept as u64)),
        None => limits.key(),
    };
    let used = (u128::from(used.0) << 64) | u128::from(used.1);
    if kept == Some(used) {
        return Ok(true);
    }
    if kept.is_some() {
        tracing::warn!(
            "what limits had counted before the last start cannot be used: this process had no \
             limit of an hour or more when it started"
        );
        remove(keyed, |_| true).await?;
    }
    let value = Bytes::copy_from_slice(&used.to_le_bytes());
    let put = keyed.put(TABLE, Bytes::from_static(HASH_KEY), value).await;
    put.context("cannot write the key of limits")?;
    Ok(false)
}

/// Forgets limits that are there no more.
async fn forget_others(limits: &KeptLimits, keyed: &Keyed) -> anyhow::Result<()> {
    let names = limits.all().into_iter().map(|(name, _)| prefix(&name));
    let names: Vec<String> = names.collect();
    remove(keyed, |key| {
        !names.iter().any(|name| key.starts_with(name.as_bytes()))
    })
    .await
}

/// Removes the buckets under these keys.
async fn remove(keyed: &Keyed, is_old: impl Fn(&[u8]) -> bool) -> anyhow::Result<()> {
    let mut after: Option<Bytes> = None;
    loop {
        let rows = keyed.scan(TABLE, BUCKETS.as_bytes(), after.as_deref(), 1000);
        let rows = rows.await.context("cannot read what limits have counted")?;
        let Some((last, _)) = rows.last() else {
            return Ok(());
        };
        after = Some(last.clone());
        let old = rows.into_iter().filter(|(key, _)| is_old(key));
        let old = old.map(|(key, _)| Change::Delete {
            table: TABLE.into(),
            key,
        });
        let written = keyed.write(old.collect()).await;
        written.context("cannot remove what old limits have counted")?;
    }
}

fn prefix(name: &str) -> String {
    format!("{BUCKETS}{name}/")
}

/// Writes what is counted until the process ends.
pub(crate) async fn keep(states: Arc<States>) {
    loop {
        let begin = Instant::now();
        save(&states).await;
        tokio::time::sleep(EVERY.max(begin.elapsed() * REST)).await;
    }
}

/// Writes what has been counted since the last time.
pub(super) async fn save(states: &States) {
    let Some(keyed) = KeyedState::of(states).keyed().cloned() else {
        return;
    };
    for (name, limiter) in KeptLimits::of(states).all() {
        save_one(&name, &limiter, &keyed).await;
    }
}

async fn save_one(name: &str, limiter: &Limiter, keyed: &Keyed) {
    let mut batch = Batch::default();
    for snapshot in limiter.changed() {
        batch.size += snapshot.bytes.len();
        batch.shards.push(snapshot.shard);
        let key = Bytes::from(format!("{}{:02}", prefix(name), snapshot.shard));
        let table = TABLE.into();
        batch.changes.push(match snapshot.bytes.is_empty() {
            true => Change::Delete { table, key },
            false => Change::Put {
                table,
                key,
                value: snapshot.bytes.into(),
            },
        });
        if batch.size >= BATCH {
            std::mem::take(&mut batch).write(name, limiter, keyed).await;
        }
    }
    batch.write(name, limiter, keyed).await;
}

#[derive(Default)]
struct Batch {
    changes: Vec<Change>,
    shards: Vec<usize>,
    size: usize,
}

impl Batch {
    /// Writes it. What cannot be written is tried again the next time.
    async fn write(self, name: &str, limiter: &Limiter, keyed: &Keyed) {
        if self.changes.is_empty() {
            return;
        }
        if let Err(error) = keyed.write(self.changes).await {
            tracing::warn!(name, %error, "what a limit has counted cannot be written");
            limiter.not_written(self.shards.into_iter());
        }
    }
}
