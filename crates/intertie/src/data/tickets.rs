//! The key of the cookies that stand for used tickets: with a data folder pages come again with
//! them after a restart.

use anyhow::Context;
use auth::{TicketOffice, new_ticket_key};
use bytes::Bytes;
use journal::Keyed;

/// The table of the keyed state.
const TABLE: &str = "tickets";
/// The row of the key.
const KEY: &[u8] = b"key";

/// Uses the key that is kept, or makes one and keeps it.
///
/// # Errors
/// When the disk fails, or the system has no random bytes.
pub(super) async fn share_key(office: &TicketOffice, keyed: &Keyed) -> anyhow::Result<()> {
    let kept = keyed.get(TABLE, KEY).await;
    let kept = kept.context("cannot read the key of ticket cookies")?;
    if let Some(kept) = kept.and_then(|it| it.as_ref().try_into().ok()) {
        office.set_key(&kept);
        return Ok(());
    }
    let key = new_ticket_key().context("the system has no random bytes")?;
    let value = Bytes::copy_from_slice(&key);
    let put = keyed.put(TABLE, Bytes::from_static(KEY), value).await;
    put.context("cannot keep the key of ticket cookies")?;
    office.set_key(&key);
    Ok(())
}
