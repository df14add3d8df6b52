//! Which messages were acknowledged and how often each arrived, compared message by message.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

/// How often each message was found at its destination.
#[derive(Clone, Debug, Default)]
pub(super) struct Found(HashMap<u64, u32>);

impl Found {
    /// Counts one more.
    pub fn add(&mut self, number: u64) {
        *self.0.entry(number).or_default() += 1;
    }

    /// How many different ones there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Compares what was acknowledged with what was found.
    pub fn compare(&self, acknowledged: &HashSet<u64>) -> Comparison {
        let is_lost = |number: &&u64| !self.0.contains_key(number);
        let mut lost: Vec<u64> = acknowledged.iter().filter(is_lost).copied().collect();
        lost.sort_unstable();
        let is_unknown = |number: &&u64| !acknowledged.contains(number);
        Comparison {
            lost: lost.len() as u64,
            first_lost: lost.into_iter().take(5).collect(),
            duplicates: self.0.values().map(|count| u64::from(count - 1)).sum(),
            most: self.0.values().copied().max().unwrap_or(0),
            unanswered: self.0.keys().filter(is_unknown).count() as u64,
        }
    }
}

/// What the comparison says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Comparison {
    /// Messages that were acknowledged and not found.
    pub lost: u64,
    /// The first numbers of those.
    pub first_lost: Vec<u64>,
    /// Arrivals beyond the first of each message.
    pub duplicates: u64,
    /// How often the message came that came most often.
    pub most: u32,
    /// Messages that arrived although their sender got no acknowledgement.
    pub unanswered: u64,
}

impl Comparison {
    /// The sum with that of another destination.
    pub fn and(mut self, other: Self) -> Self {
        self.lost += other.lost;
        self.first_lost.extend(other.first_lost);
        self.duplicates += other.duplicates;
        self.most = self.most.max(other.most);
        self.unanswered = self.unanswered.max(other.unanswered);
        self
    }
}

/// The number in the member `id` of a message.
pub(super) fn number(body: &[u8]) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    value.get("id")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_compared() {
        let mut found = Found::default();
        [1, 2, 2, 2, 9].into_iter().for_each(|it| found.add(it));
        let comparison = found.compare(&HashSet::from([1, 2, 3, 4]));
        let wanted = Comparison {
            lost: 2,
            first_lost: vec![3, 4],
            duplicates: 2,
            most: 3,
            unanswered: 1,
        };
        assert_eq!((comparison, found.len()), (wanted.clone(), 3));
        assert_eq!(wanted.clone().and(wanted).lost, 4);
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!(number(br#"{"a":"\u00e4","id":7}"#), Some(7));
        for text in ["", "{}", r#"{"id":"7"}"#] {
            assert_eq!(number(text.as_bytes()), None);
        }
    }
}
