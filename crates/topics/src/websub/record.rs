//! What is on the disk of a subscription: its callback, its secret and its lease in one record, and
//! a record for each delivery that has been dealt with.

use std::time::Duration;

use bytes::Bytes;
use journal::{Change, Keyed, Refusal};
use serde::{Deserialize, Serialize};
use steps::KeyedStateHandle;
use websub::deliveries::Key;
use websub::signature::Secret;
use websub::subscriber::Lease;
use websub::url::Url;

use crate::keys;

/// The table of the keyed state.
const TABLE: &str = "websub";
/// How many records are read at a time.
const PAGE: usize = 1000;
/// How many bytes tell flows, and subscriptions of a flow, from others.
const PART: usize = 16;
/// What the key of the record, and of a delivery, begins with behind that.
const RECORD: u8 = b'r';
const DELIVERY: u8 = b'd';

/// Where a subscription of a flow has its records.
pub(super) fn scope(flow: &str, settings: &str) -> [u8; 2 * PART] {
    let mut scope = [0; 2 * PART];
    let parts = [
        keys::digest(flow.as_bytes()),
        keys::digest(settings.as_bytes()),
    ];
    for (to, from) in scope.iter_mut().zip(parts.as_flattened()) {
        *to = *from;
    }
    scope
}

/// The data folder, if there is one.
pub(super) struct Disk {
    pub keyed: KeyedStateHandle,
    pub scope: [u8; 2 * PART],
}

/// What a subscription is over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub token: String,
    pub secret: Secret,
    pub lease: Option<Lease>,
}

/// The same as JSON. The secret lies there as it is, in a folder that only the engine may read:
/// with it alone nobody can subscribe, and a key beside it would hide nothing.
#[derive(Serialize, Deserialize)]
struct Stored {
    token: String,
    secret: String,
    lease: Option<StoredLease>,
}

#[derive(Serialize, Deserialize)]
struct StoredLease {
    hub: String,
    topic: String,
    since_ms: u64,
    ends_ms: u64,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Record {
    fn encode(&self) -> Bytes {
        let stored = Stored {
            token: self.token.clone(),
            secret: self.secret.expose().to_owned(),
            lease: self.lease.as_ref().map(|lease| StoredLease {
                hub: lease.hub.as_str().to_owned(),
                topic: lease.topic.as_str().to_owned(),
                since_ms: milliseconds(lease.since),
                ends_ms: milliseconds(lease.ends),
            }),
        };
        serde_json::to_vec(&stored).unwrap_or_default().into()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let stored: Stored = serde_json::from_slice(bytes).ok()?;
        let lease = stored.lease.and_then(|lease| {
            Some(Lease {
                hub: Url::parse(&lease.hub).ok()?,
                topic: Url::parse(&lease.topic).ok()?,
                since: Duration::from_millis(lease.since_ms),
                ends: Duration::from_millis(lease.ends_ms),
            })
        });
        Some(Self {
            token: Some(stored.token).filter(|it| websub::random::is_token(it))?,
            secret: Secret::new(&stored.secret)?,
            lease,
        })
    }
}

/// What earlier runs have left.
#[derive(Default)]
pub(super) struct Left {
    pub record: Option<Record>,
    /// The deliveries, the oldest first.
    pub deliveries: Vec<(Key, Duration)>,
}

impl Disk {
    /// Reads what earlier runs have left, and forgets what the flow had with other settings.
    pub async fn read(&self) -> Result<Left, Refusal> {
        let mut left = Left::default();
        let Some(keyed) = self.keyed.keyed() else {
            return Ok(left);
        };
        let (flow, own) = self.scope.split_at(PART);
        let mut after = None;
        loop {
            let page = keyed.scan(TABLE, flow, after.as_deref(), PAGE).await?;
            let Some((last, _)) = page.last() else {
                break;
            };
            after = Some(last.clone());
            let mut others = Vec::new();
            for (key, value) in &page {
                match key.get(PART..).and_then(|it| it.strip_prefix(own)) {
                    Some(kind) => left.add(kind, value),
                    None => others.push(Change::Delete {
                        table: TABLE.into(),
                        key: key.clone(),
                    }),
                }
            }
            if !others.is_empty() {
                keyed.write(others).await?;
            }
        }
        left.deliveries.sort_by_key(|it| it.1);
        Ok(left)
    }

    /// Writes the record.
    pub async fn write(&self, record: &Record) -> Result<(), Refusal> {
        let change = Change::Put {
            table: TABLE.into(),
            key: self.key(RECORD, &[]),
            value: record.encode(),
        };
        self.change(vec![change]).await
    }

    /// Notes that a delivery has been dealt with, and forgets others.
    pub async fn note(&self, key: Key, at: Duration, gone: Vec<Key>) -> Result<(), Refusal> {
        let gone = gone.into_iter().map(|key| Change::Delete {
            table: TABLE.into(),
            key: self.key(DELIVERY, &key.to_bytes()),
        });
        let put = Change::Put {
            table: TABLE.into(),
            key: self.key(DELIVERY, &key.to_bytes()),
            value: Bytes::copy_from_slice(&milliseconds(at).to_be_bytes()),
        };
        self.change(gone.chain([put]).collect()).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<(), Refusal> {
        match self.keyed.keyed() {
            Some(keyed) => Keyed::write(keyed, changes).await,
            None => Ok(()),
        }
    }

    fn key(&self, kind: u8, of: &[u8]) -> Bytes {
        [&self.scope[..], &[kind], of].concat().into()
    }
}

impl Left {
    fn add(&mut self, kind: &[u8], value: &[u8]) {
        match kind.split_first() {
            Some((&RECORD, [])) => self.record = Record::decode(value),
            Some((&DELIVERY, key)) => {
                let at = <[u8; 8]>::try_from(value).map(u64::from_be_bytes);
                if let (Some(key), Ok(at)) = (Key::from_bytes(key), at) {
                    self.deliveries.push((key, Duration::from_millis(at)));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_are_written() {
        let record = Record {
            token: websub::random::token().unwrap(),
            secret: Secret::new("a secret of the test").unwrap(),
            lease: Some(Lease {
                hub: Url::parse("https://hub.example/?a").unwrap(),
                topic: Url::parse("https://t.example/").unwrap(),
                since: Duration::from_millis(1_700_000_000_001),
                ends: Duration::from_millis(1_700_000_100_000),
            }),
        };
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        let without = Record {
            lease: None,
            ..record.clone()
        };
        assert_eq!(Record::decode(&without.encode()), Some(without));
        // What could not be a callback of ours is made anew.
        let odd = Record {
            token: "../x".to_owned(),
            ..record
        };
        assert_eq!(Record::decode(&odd.encode()), None);
        assert_eq!(Record::decode(b"{"), None);
    }

    #[test]
    fn flows_and_settings_have_places_of_their_own() {
        let all = [
            scope("a", "b"),
            scope("a", "c"),
            scope("b", "b"),
            scope("ab", ""),
        ];
        let differs = |at: usize| all[at + 1..].iter().all(|it| *it != all[at]);
        assert!((0..all.len()).all(differs));
        assert_eq!(all[0][..PART], all[1][..PART], "of one flow");
    }
}
