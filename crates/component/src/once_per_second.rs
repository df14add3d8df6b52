//! Log lines that something may cause thousands of times a second: one a second is written, with
//! how many there were.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Lets one line a second through, whichever thread writes it.
#[derive(Debug, Default)]
pub struct OncePerSecond {
    /// The second of the last line, counted from 1; 0 before there was one.
    last: AtomicU64,
    /// Lines that were left out since.
    left_out: AtomicU64,
}

impl OncePerSecond {
    /// Lets the first line through.
    pub const fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// Whether a line may be written now; with how many it stands for, itself included.
    pub fn pass(&self) -> Option<u64> {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        self.pass_at(ORIGIN.get_or_init(Instant::now).elapsed().as_secs() + 1)
    }

    fn pass_at(&self, second: u64) -> Option<u64> {
        let order = Ordering::Relaxed;
        let last = self.last.load(order);
        if last == second
            || self
                .last
                .compare_exchange(last, second, order, order)
                .is_err()
        {
            self.left_out.fetch_add(1, order);
            return None;
        }
        Some(self.left_out.swap(0, order) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_tells_how_many_there_were() {
        let lines = OncePerSecond::new();
        assert_eq!(lines.pass_at(1), Some(1));
        for _ in 0..7 {
            assert_eq!(lines.pass_at(1), None);
        }
        assert_eq!(lines.pass_at(2), Some(8));
        assert_eq!(lines.pass_at(9), Some(1));
    }
}
