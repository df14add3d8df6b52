//! The keys of the identity header: read or made at the start, and replaced in time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use access::jwt::KeyRing;
use anyhow::Context;
use auth::IdentityKeys;
use bytes::Bytes;
use component::state::States;
use journal::Keyed;
use steps::KeyedState;

/// The table of the keyed state.
const TABLE: &str = "identity";
/// The key of the keys.
const KEY: &[u8] = b"keys";
/// How often it is asked whether the next key is to sign.
const EVERY: Duration = Duration::from_secs(3600);

/// Signs by the keys that are kept, or makes some and keeps them.
///
/// # Errors
/// When the disk fails, when the keys are damaged, or when the system has no random bytes.
pub(super) async fn restore(keys: &IdentityKeys, keyed: &Keyed) -> anyhow::Result<()> {
    let kept = keyed.get(TABLE, KEY).await;
    let kept = kept.context("cannot read the keys of the identity header")?;
    let now = now();
    let Some(kept) = kept else {
        let made = KeyRing::random(now).context("the system has no random bytes")?;
        return keep(keys, keyed, made).await;
    };
    let ring = KeyRing::from_bytes(&kept);
    let ring = ring.context("the keys of the identity header in the data folder are damaged")?;
    match ring.is_due(now) {
        true => rotate(keys, keyed, &ring).await,
        false => {
            keys.set(ring);
            Ok(())
        }
    }
}

/// Has the next key sign.
async fn rotate(keys: &IdentityKeys, keyed: &Keyed, ring: &KeyRing) -> anyhow::Result<()> {
    let rotated = ring.rotated(now());
    let rotated = rotated.context("the system has no random bytes")?;
    keep(keys, keyed, rotated).await?;
    tracing::info!("the identity header has a new key");
    Ok(())
}

/// Writes keys to the disk before they sign: what has been signed can be verified after a restart.
async fn keep(keys: &IdentityKeys, keyed: &Keyed, ring: KeyRing) -> anyhow::Result<()> {
    let value = Bytes::from(ring.to_bytes());
    let put = keyed.put(TABLE, Bytes::from_static(KEY), value).await;
    put.context("cannot keep the keys of the identity header")?;
    keys.set(ring);
    Ok(())
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Replaces keys in time, until the process ends.
pub(super) async fn rotate_in_time(states: Arc<States>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let keys = IdentityKeys::of(&states);
        let due = keys.ring().filter(|it| it.is_due(now()));
        let keyed = KeyedState::of(&states).keyed().cloned();
        if let (Some(ring), Some(keyed)) = (due, keyed)
            && let Err(error) = rotate(&keys, &keyed, &ring).await
        {
            let error = format!("{error:#}");
            tracing::warn!(error, "the key of the identity header is not replaced");
        }
    }
}
