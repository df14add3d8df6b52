//! The data folder: what has to outlive the process. It is opened when a flow needs it, and stays
//! open until the process ends.

pub(crate) mod command;

use std::path::Path;

use anyhow::Context;
use component::state::States;
use journal::{DataFolder, Options, Outbox};
use steps::store::Depot;
use topics::hub::Hub;

/// Where it is when nobody says.
pub(crate) const DEFAULT: &str = "./intertie-data";

/// Opens the folder when a flow needs it and it is not open yet.
///
/// # Errors
/// When another process has it, when it is damaged, or when the disk fails.
pub(crate) async fn open(path: &Path, states: &States) -> anyhow::Result<()> {
    let depot = Depot::of(states);
    if depot.is_needed() && !depot.is_open() {
        depot.open(outbox(path)?);
    }
    Hub::of(states).open().await?;
    Ok(())
}

/// Finishes what waits to be written.
pub(crate) async fn close(states: &States) {
    Hub::of(states).close().await;
}

/// Opens the store of a folder.
fn outbox(path: &Path) -> anyhow::Result<Outbox> {
    let disk = DataFolder::take(path).and_then(DataFolder::store);
    let outbox = disk.and_then(|disk| Outbox::open(disk, Options::default()));
    outbox.with_context(|| format!("cannot open the data folder {}", path.display()))
}
