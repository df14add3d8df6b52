//! The deny list of the admin API: read at the start, and written before an answer is given.

use access::deny::{Change, Denied, Kind};
use anyhow::Context;
use auth::{CLOCK_SKEW_MAX, DENIED_TABLE as TABLE, Revocations, denied_key, denied_row};
use bytes::Bytes;
use component::state::States;
use journal::{Keyed, Refusal};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use steps::KeyedState;

/// How many rows are read at a time.
const ROWS: usize = 1000;
/// How often rows are removed whose entries have expired.
const EVERY: Duration = Duration::from_secs(3600);

/// Puts the deny list in force with the entries that were kept.
///
/// # Errors
/// When the disk fails, or an entry cannot be read: to go on without it could let somebody in.
pub(super) async fn restore(revocations: &Revocations, keyed: &Keyed) -> anyhow::Result<()> {
    let mut entries = Vec::new();
    let mut expired = Vec::new();
    let mut after: Option<Bytes> = None;
    loop {
        let rows = keyed.scan(TABLE, b"", after.as_deref(), ROWS).await;
        let rows = rows.context("cannot read the deny list")?;
        let Some((last, _)) = rows.last() else {
            break;
        };
        after = Some(last.clone());
        for (key, value) in rows {
            let line = std::str::from_utf8(&value).ok();
            match line.and_then(|it| Change::of_line(it).ok()) {
                Some(Change::Add(entry)) if has_expired(&entry) => expired.push(key),
                Some(Change::Add(entry)) => entries.push(entry),
                Some(Change::Remove(..)) | None => {
                    anyhow::bail!("an entry of the deny list in the data folder is damaged")
                }
            }
        }
    }
    remove(keyed, expired).await?;
    revocations.begin(entries);
    Ok(())
}

/// Whether an entry is in force no more, however clocks may differ.
fn has_expired(entry: &Denied) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let end = entry.expires.map(|it| it.saturating_add(CLOCK_SKEW_MAX));
    end.is_some_and(|end| end <= now)
}

async fn remove(keyed: &Keyed, keys: Vec<Bytes>) -> anyhow::Result<()> {
    for part in keys.chunks(ROWS) {
        let changes = part.iter().map(|key| journal::Change::Delete {
            table: TABLE.into(),
            key: key.clone(),
        });
        let written = keyed.write(changes.collect()).await;
        written.context("cannot remove expired entries of the deny list")?;
    }
    Ok(())
}

/// Removes the rows of expired entries, until the process ends.
pub(crate) async fn tidy(states: Arc<States>) {
    loop {
        tokio::time::sleep(EVERY).await;
        if let Some(keyed) = KeyedState::of(&states).keyed().cloned()
            && let Err(error) = remove_expired(&keyed).await
        {
            tracing::warn!(error = format!("{error:#}"), "the deny list is not tidied");
        }
    }
}

async fn remove_expired(keyed: &Keyed) -> anyhow::Result<()> {
    let mut after: Option<Bytes> = None;
    loop {
        let rows = keyed.scan(TABLE, b"", after.as_deref(), ROWS).await;
        let rows = rows.context("cannot read the deny list")?;
        let Some((last, _)) = rows.last() else {
            return Ok(());
        };
        after = Some(last.clone());
        let is_old = |value: &Bytes| {
            let line = std::str::from_utf8(value).ok();
            let change = line.and_then(|it| Change::of_line(it).ok());
            matches!(change, Some(Change::Add(entry)) if has_expired(&entry))
        };
        let old = rows.into_iter().filter(|(_, value)| is_old(value));
        remove(keyed, old.map(|(key, _)| key).collect()).await?;
    }
}

/// Keeps an entry. When this returns it outlives a restart.
///
/// # Errors
/// When it cannot be written.
pub(crate) async fn keep(keyed: &Keyed, entry: &Denied) -> Result<(), Refusal> {
    let (key, line) = denied_row(entry);
    keyed.put(TABLE, key, line).await
}

/// Keeps that an entry is removed.
///
/// # Errors
/// When it cannot be written.
pub(crate) async fn forget(keyed: &Keyed, kind: Kind, name: &str) -> Result<(), Refusal> {
    keyed.delete(TABLE, denied_key(kind, name)).await
}
