//! The epochs of a stream: each run that appends to it begins one. What a copy of the files is
//! given after it was put back is then of another epoch than what the original was given.

/// The epochs of a stream that are known, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// The first entry of each, and its random number.
    all: Vec<(u64, u64)>,
}

/// The most that are known of a stream. Whoever comes back from an older one is told that it is not
/// known.
const MOST: usize = 1024;

/// How many are known of which no entry is kept: whoever comes back from one of them is told how
/// much is missing, and not only that something may be.
const GONE_MOST: usize = 16;

impl Epochs {
    /// Those of a stream that begins with this one.
    pub fn new(epoch: u64) -> Self {
        Self {
            all: vec![(1, epoch)],
        }
    }

    /// The epoch of an entry, or of the place behind it.
    pub fn of(&self, sequence: u64) -> u64 {
        let behind = self.all.partition_point(|it| it.0 <= sequence);
        let found = self.all.get(behind.saturating_sub(1));
        found.map_or(0, |it| it.1)
    }

    /// The last entry that an epoch has in this stream, `u64::MAX` of the one that goes on; `None`
    /// when it is not known.
    pub fn end_of(&self, epoch: u64) -> Option<u64> {
        let at = self.all.iter().rposition(|it| it.1 == epoch)?;
        let next = self.all.get(at + 1);
        Some(next.map_or(u64::MAX, |it| it.0.saturating_sub(1)))
    }

    /// The one that goes on.
    pub fn last(&self) -> u64 {
        self.all.last().map_or(0, |it| it.1)
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.all.iter().map(|it| it.1)
    }

    pub(super) fn first(&self) -> u64 {
        self.all.first().map_or(0, |it| it.1)
    }

    /// Those behind the first, with their first entries.
    pub(super) fn later(&self) -> &[(u64, u64)] {
        self.all.get(1..).unwrap_or_default()
    }

    /// From this entry on there is another epoch. Whether that fits what is known.
    pub(super) fn begin(&mut self, start: u64, epoch: u64) -> bool {
        if let Some(known) = self.all.iter().find(|it| it.1 == epoch) {
            return known.0 == start;
        }
        let fits = self.all.last().is_none_or(|last| last.0 <= start);
        self.all.push((start, epoch));
        let more = self.all.len().saturating_sub(MOST);
        self.all.drain(..more);
        fits
    }

    /// Entries before this one are not kept: of the epochs that end before, few stay known.
    pub(super) fn trim(&mut self, first: u64) {
        let after = 1 + GONE_MOST;
        while self.all.get(after).is_some_and(|next| next.0 < first) {
            self.all.remove(0);
        }
    }
}
