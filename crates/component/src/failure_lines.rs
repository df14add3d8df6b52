//! Which failures are logged. While a disk or a store is full every message fails in the same way:
//! one line a second tells it, for the log may be on that disk.

use std::hash::{DefaultHasher, Hash, Hasher};

use message::{Fault, Kind, Origin};

use crate::once_per_second::OncePerSecond;

/// How many reasons have lines of their own. Now and then two of them share one.
const REASONS: usize = 32;

/// The lines of a place that logs failures.
#[derive(Debug, Default)]
pub struct FailureLines([OncePerSecond; REASONS]);

impl FailureLines {
    /// Lets the first line of each reason through.
    pub const fn new() -> Self {
        Self([const { OncePerSecond::new() }; REASONS])
    }

    /// Whether a failure is logged now; how many the line stands for, itself included, when these
    /// are several. Only refusals of the engine itself are left out (`unavailable`): what fails
    /// elsewhere, or for one message, is logged each time.
    pub fn pass(&self, fault: &Fault) -> Option<Repeats> {
        if (fault.kind, fault.origin) != (Kind::Unavailable, Origin::Engine) {
            return Some(None);
        }
        let mut hasher = DefaultHasher::new();
        fault.detail.hash(&mut hasher);
        let reason = hasher.finish() as usize % REASONS;
        let count = self.0.get(reason).map_or(Some(1), OncePerSecond::pass)?;
        Some((count > 1).then_some(count))
    }
}

/// How many failures a line stands for; `None` stands for one.
pub type Repeats = Option<u64>;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(detail: &'static str) -> Fault {
        Fault::new(Kind::Unavailable, Origin::Engine, detail)
    }

    #[test]
    fn refusals_have_few_lines_that_count_them() {
        let lines = FailureLines::new();
        assert_eq!(lines.pass(&refusal("the disk is full")), Some(None));
        let passed = (0..10_000).filter(|_| lines.pass(&refusal("the disk is full")).is_some());
        // As many as seconds have begun meanwhile.
        assert!(passed.count() < 100);
    }

    #[test]
    fn other_reasons_and_other_failures_have_lines_of_their_own() {
        let lines = FailureLines::new();
        let details = ["the disk is full", "the circuit is open", "too late"];
        let passed = details.map(|it| lines.pass(&refusal(it)).is_some());
        assert!(passed.iter().filter(|it| **it).count() > 1, "{passed:?}");
        for _ in 0..100 {
            let away = Fault::new(Kind::Unavailable, Origin::Upstream, "the back end is busy");
            assert_eq!(lines.pass(&away), Some(None));
            let wrong = Fault::expression("null has no key");
            assert_eq!(lines.pass(&wrong), Some(None));
        }
    }
}
