//! The data folder: what has to outlive the process. It is opened when a flow needs it, and stays
//! open until the process ends.

pub(crate) mod command;
pub(crate) mod denied;
mod identity;
pub(crate) mod limits;
mod tickets;
pub(crate) mod topics;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ::topics::hub::{Hub, PreparedTopics};
use anyhow::Context;
use auth::{IdentityKeys, Revocations, TicketOffice};
use component::limits::KeptLimits;
use component::state::States;
use journal::{DataFolder, Keyed, OpenError, Options, Outbox, StreamOptions, Streams};
use steps::KeyedState;
use steps::store::Depot;
use tokio::task::JoinSet;

/// Where it is when nobody says.
pub(crate) const DEFAULT: &str = "./intertie-data";

/// Opens the folder when a flow needs it and it is not open yet, and prepares topics that are new:
/// they are committed once the plan is served, or withdrawn.
///
/// # Errors
/// When another process has it, when it is damaged, or when the disk fails.
pub(crate) async fn open(path: &Path, states: &States) -> anyhow::Result<PreparedTopics> {
    let depot = Depot::of(states);
    if depot.is_needed() && !depot.is_open() {
        depot.open(outbox(path)?);
    }
    let kept = KeyedState::of(states);
    let hub = Hub::of(states);
    // What was on the disk before is looked at too: it must not be forgotten silently.
    let has_topics = hub.has_topics() && path.join("topics").exists();
    if !hub.has_disk() && (hub.needs_disk() || has_topics) {
        hub.set_disk(streams(path)?, shared_keyed(path, &kept)?);
    }
    // Keys of `idempotent` are there where there is a data folder.
    let is_there = depot.is_open() || hub.has_disk() || path.exists();
    if kept.is_required() || (kept.is_wanted() && is_there) {
        shared_keyed(path, &kept)?;
    }
    let office = TicketOffice::of(states);
    if office.needs_key() && is_there {
        tickets::share_key(&office, &shared_keyed(path, &kept)?).await?;
    }
    let limits = KeptLimits::of(states);
    if limits.is_needed() {
        limits::restore(&limits, &shared_keyed(path, &kept)?).await?;
    }
    let revocations = Revocations::of(states);
    if revocations.is_needed() && !revocations.is_on() {
        denied::restore(&revocations, &shared_keyed(path, &kept)?).await?;
    }
    let keys = IdentityKeys::of(states);
    if keys.is_needed() {
        identity::restore(&keys, &shared_keyed(path, &kept)?).await?;
    }
    Ok(hub.prepare().await?)
}

/// What has to be done in the folder from time to time, until this is dropped.
pub(crate) fn upkeep(states: &Arc<States>) -> JoinSet<()> {
    let mut upkeep = JoinSet::new();
    upkeep.spawn(limits::keep(Arc::clone(states)));
    upkeep.spawn(denied::tidy(Arc::clone(states)));
    upkeep.spawn(identity::rotate_in_time(Arc::clone(states)));
    upkeep
}

/// Why nothing is kept any more before a restart, if that is so.
pub(crate) fn failure(states: &States) -> Option<&'static str> {
    let failed = [
        Depot::of(states).has_failed(),
        Hub::of(states).has_failed(),
        KeyedState::of(states).has_failed(),
    ];
    failed
        .contains(&true)
        .then_some("the disk has failed: nothing is stored before a restart\n")
}

/// Takes the folder as it is: what is missing in it is lost.
///
/// # Errors
/// When another process has it, when it is of another version, or when the disk fails.
pub(crate) fn accept_loss(path: &Path) -> anyhow::Result<()> {
    let folder = DataFolder::take_accepting_loss(path);
    let folder =
        folder.with_context(|| format!("cannot open the data folder {}", path.display()))?;
    tracing::warn!(folder = %path.display(), "what is missing in the data folder is given up");
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    taken.push(folder);
    Ok(())
}

/// Finishes what waits to be written.
pub(crate) async fn close(states: &States) {
    Hub::of(states).close().await;
    limits::save(states).await;
    KeyedState::of(states).close().await;
}

/// The keyed state of a folder, which is opened once for topics and steps.
fn shared_keyed(path: &Path, kept: &KeyedState) -> anyhow::Result<Keyed> {
    if let Some(keyed) = kept.keyed() {
        return Ok(keyed.clone());
    }
    let keyed = keyed(path)?;
    kept.open(keyed.clone());
    Ok(keyed)
}

/// Opens the store of a folder.
fn outbox(path: &Path) -> anyhow::Result<Outbox> {
    let disk = folder(path).and_then(|folder| folder.store());
    let outbox = disk.and_then(|disk| Outbox::open(disk, Options::default()));
    outbox.with_context(|| format!("cannot open the data folder {}", path.display()))
}

/// Opens what topics keep in a folder; once, for the whole process.
///
/// # Errors
/// When another process has it, when it is damaged, or when the disk fails.
pub(crate) fn streams(path: &Path) -> anyhow::Result<Streams> {
    let disk = folder(path).and_then(|folder| folder.topics());
    let streams = disk.and_then(|disk| Streams::open(disk, StreamOptions::default()));
    streams.with_context(|| format!("cannot open the data folder {}", path.display()))
}

/// Opens the keyed state of a folder; once, for the whole process.
///
/// # Errors
/// When another process has it, when it is damaged, or when the disk fails.
pub(crate) fn keyed(path: &Path) -> anyhow::Result<Keyed> {
    let keyed = folder(path).and_then(|folder| folder.keyed());
    let keyed = keyed.and_then(Keyed::open);
    keyed.with_context(|| format!("cannot open the data folder {}", path.display()))
}

/// The folders that this process has.
static TAKEN: Mutex<Vec<DataFolder>> = Mutex::new(Vec::new());

/// Takes a folder, which is locked once for all that is in it, and stays so.
fn folder(path: &Path) -> Result<DataFolder, OpenError> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = taken.iter().find(|it| it.path() == path) {
        return Ok(folder.clone());
    }
    let folder = DataFolder::take(path)?;
    taken.push(folder.clone());
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_in_a_folder_has_one_lock() {
        let path = std::env::temp_dir().join(format!("intertie-data-{}", std::process::id()));
        let outbox = outbox(&path).unwrap();
        let (streams, keyed_state) = (streams(&path).unwrap(), keyed(&path).unwrap());
        assert!(DataFolder::take(&path).is_err());
        for again in [super::streams(&path).err(), keyed(&path).err()] {
            let error = format!("{:#}", again.unwrap());
            assert!(error.contains("in use by process"), "{error}");
        }
        drop((streams, keyed_state));
        outbox.close();
        std::fs::remove_dir_all(path).unwrap();
    }
}
