//! Things that are kept for the next who needs one, until it shows that nobody does.

/// Spare things. [`Spares::trim`], called from time to time, frees those that were not needed: half
/// of them each time, so that a pause between two bursts costs little and an idle thread keeps
/// none.
#[derive(Debug)]
pub struct Spares<T> {
    kept: Vec<T>,
    /// The fewest that there were since the last trim: so many nobody has needed.
    unneeded: usize,
}

impl<T> Spares<T> {
    /// None.
    pub const fn new() -> Self {
        Self {
            kept: Vec::new(),
            unneeded: 0,
        }
    }

    /// One of them.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        let taken = self.kept.pop();
        self.unneeded = self.unneeded.min(self.kept.len());
        taken
    }

    /// Keeps one more, unless there are `max`.
    #[inline]
    pub fn give(&mut self, spare: T, max: usize) {
        if self.kept.len() < max {
            self.kept.push(spare);
        }
    }

    /// Takes half of those out that were not needed since the last time, for the caller to drop.
    pub fn trim(&mut self) -> Vec<T> {
        let left = self.kept.len() - self.unneeded.div_ceil(2);
        let dropped = self.kept.split_off(left);
        self.unneeded = left;
        if left == 0 {
            self.kept = Vec::new();
        }
        dropped
    }
}

impl<T> Default for Spares<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spares(count: usize) -> Spares<usize> {
        let mut spares = Spares::new();
        (0..count).for_each(|at| spares.give(at, 100));
        spares
    }

    #[test]
    fn what_nobody_needs_is_gone_after_a_while() {
        let mut spares = spares(100);
        assert_eq!(spares.trim().len(), 0, "they are new");
        let freed: Vec<usize> = (0..8).map(|_| spares.trim().len()).collect();
        assert_eq!(freed, [50, 25, 13, 6, 3, 2, 1, 0]);
        assert_eq!(spares.take(), None);
    }

    #[test]
    fn what_is_needed_between_two_trims_stays() {
        let mut spares = spares(100);
        spares.trim();
        for _ in 0..10 {
            let taken: Vec<usize> = (0..100).filter_map(|_| spares.take()).collect();
            assert_eq!(taken.len(), 100);
            taken.into_iter().for_each(|it| spares.give(it, 100));
            assert_eq!(spares.trim().len(), 0);
        }
        let taken: Vec<usize> = (0..60).filter_map(|_| spares.take()).collect();
        taken.into_iter().for_each(|it| spares.give(it, 100));
        assert_eq!(
            spares.trim().len(),
            20,
            "half of the 40 that were not needed"
        );
    }

    #[test]
    fn no_more_are_kept_than_the_caller_says() {
        let mut spares = Spares::new();
        (0..10).for_each(|at| spares.give(at, 3));
        assert_eq!(std::iter::from_fn(|| spares.take()).count(), 3);
    }
}
