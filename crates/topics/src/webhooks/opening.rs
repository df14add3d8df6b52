//! The first note of endpoints: it is on the disk before anybody can publish what belongs to them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use journal::{Change, Keyed};

use super::state::{EndpointState, Records, Stored, TABLE};
use crate::event::EventId;
use crate::log::Log;
use crate::source::Start;

/// Endpoints that nobody has known before.
pub(crate) struct Opened {
    made: Vec<Arc<EndpointState>>,
    keyed: Option<Keyed>,
}

impl Opened {
    /// Forgets them again, since the plan that has them is not served.
    pub async fn withdraw(self) {
        let mut changes = Vec::new();
        for state in self.made {
            state.set_stored(None);
            changes.push(Change::Delete {
                table: TABLE.into(),
                key: state.key(),
            });
        }
        if let Some(keyed) = self.keyed.filter(|_| !changes.is_empty())
            && let Err(error) = keyed.write(changes).await
        {
            tracing::warn!(target: "topics", %error, "records of unused webhooks stay");
        }
    }
}

/// Finds out where endpoints of a topic are, and notes where new ones begin.
///
/// # Errors
/// When that cannot be read or written.
pub(crate) async fn open(
    log: &Log,
    endpoints: &[(Arc<EndpointState>, Start)],
    keyed: Option<&Keyed>,
) -> Result<Opened, String> {
    let unknown = endpoints
        .iter()
        .filter(|(state, _)| state.stored().is_none());
    let unknown: Vec<&(Arc<EndpointState>, Start)> = unknown.collect();
    let mut opened = Opened {
        made: Vec::new(),
        keyed: keyed.cloned(),
    };
    if unknown.is_empty() {
        return Ok(opened);
    }
    let known = match keyed {
        Some(keyed) => {
            let wanted: HashSet<Bytes> = unknown.iter().map(|(state, _)| state.key()).collect();
            records(&wanted, &log.name, keyed).await?
        }
        None => HashMap::new(),
    };
    let (next, first) = (log.next(), log.first());
    let before = |sequence: u64| log.id(sequence.saturating_sub(1));
    let mut changes = Vec::new();
    for (state, start) in unknown {
        if let Some(bytes) = known.get(&state.key()) {
            let stored = Stored::of_bytes(bytes);
            let damaged = || format!("what is noted of the webhook {} cannot be read", state.name);
            state.open(stored.ok_or_else(damaged)?);
            continue;
        }
        let cursor: EventId = match start {
            Start::Latest => before(next.sequence),
            Start::Earliest => before(first),
        };
        let stored = Stored::at(cursor);
        changes.push(Change::Put {
            table: TABLE.into(),
            key: state.key(),
            value: stored.to_bytes(),
        });
        state.open(stored);
        opened.made.push(Arc::clone(state));
    }
    if let Some(keyed) = keyed.filter(|_| !changes.is_empty())
        && let Err(error) = keyed.write(changes).await
    {
        opened.made.iter().for_each(|it| it.set_stored(None));
        return Err(format!("where webhooks begin cannot be noted: {error}"));
    }
    Ok(opened)
}

/// The records with these keys. Those of users' webhooks lie in the same table, and may be many.
async fn records(
    wanted: &HashSet<Bytes>,
    topic: &str,
    keyed: &Keyed,
) -> Result<HashMap<Bytes, Bytes>, String> {
    let mut records = Records::new(keyed, TABLE, topic);
    let mut found = HashMap::new();
    while let Some(some) = records.next().await? {
        found.extend(some.into_iter().filter(|(key, _)| wanted.contains(key)));
    }
    Ok(found)
}
