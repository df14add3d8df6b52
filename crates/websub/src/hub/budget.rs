//! A number of failures within a time, forgotten at a steady rate.

use std::time::Duration;

/// How many failures there were lately: the time when the last of them is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    until: Duration,
}

/// So many failures within a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub failures: u32,
    pub time: Duration,
}

impl Allowed {
    /// After which time one failure is forgotten.
    fn each(self) -> Duration {
        self.time / self.failures.max(1)
    }
}

impl Failures {
    /// Counts one.
    pub fn add(&mut self, allowed: Allowed, now: Duration) {
        self.until = self.until.max(now).saturating_add(allowed.each());
    }

    /// How long until one more may fail; zero when it may now.
    pub fn wait(&self, allowed: Allowed, now: Duration) -> Duration {
        let room = allowed.time.saturating_sub(allowed.each());
        self.until.saturating_sub(now).saturating_sub(room)
    }

    /// Whether all are forgotten.
    pub fn is_over(&self, now: Duration) -> bool {
        self.until <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_forgotten_at_a_steady_rate() {
        let allowed = Allowed {
            failures: 3,
            time: Duration::from_secs(30),
        };
        let at = Duration::from_secs;
        let mut failures = Failures::default();
        for _ in 0..3 {
            assert_eq!(failures.wait(allowed, at(100)), Duration::ZERO);
            failures.add(allowed, at(100));
        }
        assert_eq!(failures.wait(allowed, at(100)), at(10));
        assert_eq!(failures.wait(allowed, at(109)), at(1));
        assert_eq!(failures.wait(allowed, at(110)), at(0));
        failures.add(allowed, at(110));
        assert_eq!(failures.wait(allowed, at(110)), at(10));
        assert!(!failures.is_over(at(139)) && failures.is_over(at(140)));
    }
}
