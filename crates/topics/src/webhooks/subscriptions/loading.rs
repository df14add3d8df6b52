//! Reads subscriptions from the disk in parts at startup: there may be many, and what is read of
//! all of them at once would be memory that is never used again.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use bytes::Bytes;
use journal::{Change, Keyed};

use super::record::{Owner, Subscription, ViewText, is_subscription_id};
use crate::webhooks::state::{Records, TABLE};

/// Where subscriptions of a topic are, read beside the subscriptions in the same order. Nothing
/// may be created meanwhile: both are read in parts, and what came in between would look like an
/// orphan.
pub(super) struct Cursors<'a> {
    records: Records<'a>,
    /// What has been read and comes next.
    next: VecDeque<(Bytes, Bytes)>,
    /// How many bytes of a key the topic has.
    prefix: usize,
    /// The deletions of those without a subscription.
    orphans: Vec<Change>,
}

impl<'a> Cursors<'a> {
    /// Those of a topic.
    pub fn new(keyed: &'a Keyed, topic: &str) -> Self {
        Self {
            records: Records::new(keyed, TABLE, topic),
            next: VecDeque::new(),
            prefix: topic.len() + 1,
            orphans: Vec::new(),
        }
    }

    /// That of this key, which is greater than the one before.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn find(&mut self, key: &Bytes) -> Result<Option<Bytes>, String> {
        while let Some((own, value)) = self.take(|it| it <= key).await? {
            if own == *key {
                return Ok(Some(value));
            }
            self.delete_orphan(own);
        }
        Ok(None)
    }

    /// What deletes those without a subscription: a driver has written them that had not heard of
    /// the deletion yet.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn orphans(mut self) -> Result<Vec<Change>, String> {
        while let Some((own, _)) = self.take(|_| true).await? {
            self.delete_orphan(own);
        }
        Ok(self.orphans)
    }

    /// Removes and returns the next record if its key is wanted.
    async fn take(
        &mut self,
        is_wanted: impl Fn(&Bytes) -> bool,
    ) -> Result<Option<(Bytes, Bytes)>, String> {
        if self.next.is_empty() {
            self.next = self.records.next().await?.unwrap_or_default().into();
        }
        Ok(self.next.pop_front_if(|(key, _)| is_wanted(key)))
    }

    /// Endpoints of files have their records in the same table.
    fn delete_orphan(&mut self, key: Bytes) {
        if is_subscription_id(key.get(self.prefix..).unwrap_or_default()) {
            self.orphans.push(Change::Delete {
                table: TABLE.into(),
                key,
            });
        }
    }
}

/// What subscriptions have in common, once for all of them.
#[derive(Default)]
pub(super) struct Shared {
    owners: HashSet<Arc<Owner>>,
    views: HashSet<Arc<ViewText>>,
}

impl Shared {
    /// Has one share what others have too.
    pub fn share(&mut self, subscription: &mut Subscription) {
        share(&mut self.owners, &mut subscription.owner);
        share(&mut self.views, &mut subscription.view);
    }
}

fn share<T: Eq + Hash>(all: &mut HashSet<Arc<T>>, one: &mut Arc<T>) {
    match all.get(one) {
        Some(known) => *one = Arc::clone(known),
        None => drop(all.insert(Arc::clone(one))),
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use journal::DataFolder;

    use super::super::record::SUBSCRIPTIONS;
    use super::*;
    use crate::webhooks::state::key;

    fn put(table: &str, key: Bytes, value: &str) -> Change {
        Change::Put {
            table: table.into(),
            key,
            value: value.to_owned().into(),
        }
    }

    #[tokio::test]
    async fn each_subscription_gets_its_cursor_and_what_has_none_is_deleted() {
        let name = format!("intertie-cursors-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let data = DataFolder::take(&folder).unwrap();
        let keyed = Keyed::open(data.keyed().unwrap()).unwrap();
        let mut random = Rng::with_seed(7);
        let (mut changes, mut expected) = (Vec::new(), (Vec::new(), Vec::new()));
        // More than are read at once, of the topic and of others around it.
        for number in 0..7_000_u64 {
            let topic = ["orders", "order", "orders2"][random.usize(..3)];
            let is_file = random.u8(..4) == 0;
            let id = match is_file {
                true => format!("{}-{number}", ["a", "wh_", "x"][random.usize(..3)]),
                false => format!("wh_{:016x}{number:016x}", random.u64(..)),
            };
            let (key, cursor) = (key(topic, &id), format!("1-{number}"));
            let (has_cursor, is_there) = (random.u8(..8) > 0, random.u8(..8) > 0);
            if has_cursor {
                changes.push(put(TABLE, key.clone(), &cursor));
            }
            if is_there && !is_file {
                changes.push(put(SUBSCRIPTIONS, key.clone(), ""));
            }
            if topic == "orders" && !is_file {
                let (found, left) = &mut expected;
                match (is_there, has_cursor) {
                    (true, _) => found.push((key, has_cursor.then_some(cursor))),
                    (false, true) => left.push(key),
                    (false, false) => {}
                }
            }
        }
        keyed.write(changes).await.unwrap();
        let (mut expected_found, mut expected_left) = expected;
        expected_found.sort();
        expected_left.sort();
        let mut records = Records::new(&keyed, SUBSCRIPTIONS, "orders");
        let (mut cursors, mut found) = (Cursors::new(&keyed, "orders"), Vec::new());
        while let Some(some) = records.next().await.unwrap() {
            for (key, _) in some {
                let cursor = cursors.find(&key).await.unwrap();
                let cursor = cursor.map(|it| String::from_utf8(it.to_vec()).unwrap());
                found.push((key, cursor));
            }
        }
        assert!(found.len() > 1000 && found == expected_found);
        let left = cursors.orphans().await.unwrap().into_iter();
        let left: Vec<Bytes> = left
            .map(|it| match it {
                Change::Delete { table, key } if &*table == TABLE => key,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(left.len() > 100 && left == expected_left);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
