//! What is on the disk of subscriptions: a record for each, and where it is in the topic's log.

use std::sync::Arc;

use access::sealer::{SEALING_KEY_BYTES, Sealer};
use bytes::Bytes;
use journal::{Change, Keyed};
use serde::{Deserialize, Serialize};
use websub::hub::Record;
use websub::signature::Secret;

use crate::keys;
use crate::webhooks::hub::EndpointKind;

/// The table of subscriptions.
pub(crate) const TABLE: &str = "websub-subscriptions";
/// The table of where they are.
pub(crate) const CURSORS: &str = EndpointKind::Hub.table();
/// The table and the key of what secrets are sealed with.
const KEYS: &str = "websub-keys";
const KEY: &[u8] = b"secrets";
/// How many records are read at once.
const SCAN_MAX: usize = 1000;

/// Seals the secrets of subscribers: no other module knows how they lie on the disk.
pub(super) struct Vault(Sealer);

impl Vault {
    /// The one of a data folder; its key is made when there is none.
    ///
    /// # Errors
    /// When that cannot be read or written, or the system has no random bytes.
    pub async fn open(keyed: &Keyed) -> Result<Self, String> {
        let kept = keyed.get(KEYS, KEY).await;
        let kept = kept.map_err(|refusal| refusal.to_string())?;
        let key: [u8; SEALING_KEY_BYTES] = match kept {
            Some(kept) => kept.as_ref().try_into().map_err(|_| "its key is damaged")?,
            None => {
                let key = Sealer::random_key().ok_or("the system has no random bytes")?;
                let value = Bytes::copy_from_slice(&key);
                let put = keyed.put(KEYS, Bytes::from_static(KEY), value).await;
                put.map_err(|refusal| refusal.to_string())?;
                key
            }
        };
        let sealer = Sealer::new(&key).ok_or("its key cannot be used")?;
        Ok(Self(sealer))
    }

    fn seal(&self, context: &str, secret: &Secret) -> Option<String> {
        self.0
            .seal_text(context.as_bytes(), secret.expose().as_bytes())
    }

    fn open_text(&self, context: &str, sealed: &str) -> Option<Secret> {
        let text = self.0.open_text(context.as_bytes(), sealed)?;
        Secret::new(std::str::from_utf8(&text).ok()?)
    }
}

/// A subscription as JSON.
#[derive(Serialize, Deserialize)]
struct Stored {
    topic: String,
    callback: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    caller: String,
    /// In seconds since 1970.
    expires: u64,
    /// What its cursor is called.
    id: String,
}

/// A secret cannot be moved to another subscription.
fn context(topic: &str, callback: &str) -> String {
    format!("websub secret\0{topic}\0{callback}")
}

/// The key of the subscription of a callback to the topic of this name.
fn key(name: &str, callback: &str) -> Bytes {
    let digest = keys::digest(callback.as_bytes());
    [name.as_bytes(), &[0], &digest].concat().into()
}

/// What writes a subscription; `None` when its secret cannot be sealed.
pub(super) fn put(name: &str, id: &str, record: &Record, vault: &Vault) -> Option<Change> {
    let of = context(&record.topic, &record.callback);
    let secret = match &record.secret {
        Some(secret) => Some(vault.seal(&of, secret)?),
        None => None,
    };
    let stored = Stored {
        topic: record.topic.to_string(),
        callback: record.callback.to_string(),
        secret,
        caller: record.caller.to_string(),
        expires: record.expires,
        id: id.to_owned(),
    };
    Some(Change::Put {
        table: TABLE.into(),
        key: key(name, &record.callback),
        value: serde_json::to_vec(&stored).unwrap_or_default().into(),
    })
}

/// What removes it.
pub(super) fn delete(name: &str, callback: &str) -> Change {
    Change::Delete {
        table: TABLE.into(),
        key: key(name, callback),
    }
}

/// A subscription of an earlier run, and what its cursor is called.
pub(super) struct Left {
    pub record: Record,
    pub id: Arc<str>,
}

/// What earlier runs have left of a topic.
#[derive(Default)]
pub(super) struct AllLeft {
    pub subscriptions: Vec<Left>,
    /// The cursors by their names, with the keys of their records.
    pub cursors: Vec<(Bytes, Bytes)>,
    /// How many records cannot be read: damaged ones, and secrets sealed with another key.
    pub unreadable: usize,
}

/// Reads what earlier runs have left of the topic of this name.
///
/// # Errors
/// When the disk cannot be read.
pub(super) async fn read(name: &str, keyed: &Keyed, vault: &Vault) -> Result<AllLeft, String> {
    let mut left = AllLeft::default();
    for (_, value) in scan(TABLE, name, keyed).await? {
        match decode(&value, vault) {
            Some(one) => left.subscriptions.push(one),
            None => left.unreadable += 1,
        }
    }
    left.cursors = scan(CURSORS, name, keyed).await?;
    Ok(left)
}

fn decode(value: &[u8], vault: &Vault) -> Option<Left> {
    let stored: Stored = serde_json::from_slice(value).ok()?;
    let of = context(&stored.topic, &stored.callback);
    let secret = match &stored.secret {
        // Without its secret a subscriber would take what comes for somebody else's.
        Some(sealed) => Some(vault.open_text(&of, sealed)?),
        None => None,
    };
    Some(Left {
        record: Record {
            topic: stored.topic.into(),
            callback: stored.callback.into(),
            secret,
            caller: stored.caller.into(),
            expires: stored.expires,
        },
        id: stored.id.into(),
    })
}

async fn scan(table: &str, name: &str, keyed: &Keyed) -> Result<Vec<(Bytes, Bytes)>, String> {
    let prefix = [name.as_bytes(), &[0]].concat();
    let mut all = Vec::new();
    let mut after: Option<Bytes> = None;
    loop {
        let page = keyed.scan(table, &prefix, after.as_deref(), SCAN_MAX).await;
        let page = page.map_err(|refusal| refusal.to_string())?;
        let Some((last, _)) = page.last() else {
            return Ok(all);
        };
        after = Some(last.clone());
        all.extend(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_sealed_for_their_subscription() {
        let vault = Vault(Sealer::random().unwrap());
        let record = Record {
            topic: "https://t.example/a".into(),
            callback: "https://c.example/?x".into(),
            secret: Secret::new("a secret of the test"),
            caller: "ip 192.0.2.1".into(),
            expires: 1_800_000_000,
        };
        let Some(Change::Put { value, .. }) = put("a", "id", &record, &vault) else {
            panic!("nothing to write");
        };
        let text = String::from_utf8(value.to_vec()).unwrap();
        assert!(!text.contains("a secret"), "{text}");
        let left = decode(text.as_bytes(), &vault).unwrap();
        assert_eq!((left.record, &*left.id), (record, "id"));
        let moved = text.replace("c.example", "d.example");
        assert!(decode(moved.as_bytes(), &vault).is_none());
        let other = Vault(Sealer::random().unwrap());
        assert!(decode(text.as_bytes(), &other).is_none());
    }
}
